"""The `sparsetoken` command.

One module per command. They import nothing heavy at module level, so that `--help` is instant.
"""

from itertools import chain
from typing import Any

import click

from sparsetoken import __version__
from sparsetoken.cli.descend import descend
from sparsetoken.cli.diagnose import diagnose
from sparsetoken.cli.explore import explore
from sparsetoken.cli.floor import floor
from sparsetoken.cli.forecast import forecast
from sparsetoken.cli.map import phase_map
from sparsetoken.cli.plan import plan
from sparsetoken.cli.reproduce import reproduce
from sparsetoken.cli.shift import shift
from sparsetoken.cli.simulate import simulate
from sparsetoken.cli.sweep import sweep
from sparsetoken.cli.terminal import prepare_streams, written_out
from sparsetoken.cli.theory import align, capacity, oracle, predict
from sparsetoken.files import NO_ROOM
from sparsetoken.numerics.memory import path_memory
from sparsetoken.validation import ParameterError

__all__ = ["main"]


class _Commands(click.Group):
    """A group whose commands turn what a user can cause into one message and exit code 2."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        prepare_streams()
        with written_out():
            return super().main(*args, **kwargs)

    def format_commands(self, _: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands under what a reader comes with."""
        width = max(len(name) for name in self.commands)
        for title, commands in _COMMANDS.items():
            with formatter.section(title):
                formatter.write_dl(
                    [(str(one.name).ljust(width), one.get_short_help_str(90)) for one in commands]
                )

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with path_memory():  # a command is one path: its metrics share the laws of its errors
                return super().invoke(ctx)
        except ParameterError as error:
            raise click.UsageError(str(error)) from None
        except KeyboardInterrupt:
            click.echo("Interrupted.", err=True)
            raise SystemExit(130) from None
        except BrokenPipeError:  # a reader such as `head` has seen enough: click ends quietly
            raise
        except MemoryError as error:
            raise click.UsageError(f"there is not enough memory for this: {error}") from None
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            if error.errno in NO_ROOM:
                where = f"{error.filename or 'the output'} cannot be written: "
            raise click.UsageError(f"{where}{error.strerror or error}") from None


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="sparsetoken")
def main() -> None:
    """Find weak signals in a few tokens: exact theory, simulation and estimators."""


_COMMANDS = {
    "Your own data": (diagnose, forecast),
    "Plan a study": (plan, phase_map, floor),
    "Theory": (predict, align, capacity, oracle, descend, shift),
    "See and check": (explore, simulate, sweep, reproduce),
}
for command in chain(*_COMMANDS.values()):
    main.add_command(command)
