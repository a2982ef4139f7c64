"""Output that survives any terminal: one that lacks signs, is closed, or writes to a full disk."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["prepare_streams", "written_out"]


def prepare_streams() -> None:
    """Let nothing that a command prints fail for the stream's sake.

    Signs that the stream cannot show are replaced, so that a result of an hour is not lost to a
    Greek letter. A stream that was closed is led to nowhere, and takes the place of its number, so
    that no file of ours gets it.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    # Figures go to files: whatever backend the environment wants, none is needed.
    os.environ["MPLBACKEND"] = "agg"


@contextmanager
def written_out() -> Iterator[None]:
    """Write all that is to be written; if it cannot be, say so and end with exit code 2.

    Python would try after everything else, and end with a traceback and exit code 120.
    """
    try:
        try:
            yield
        except SystemExit as end:
            if end.code:  # there has been a message already
                with suppress(OSError):
                    sys.stdout.flush()
                _lead_nowhere()
            raise
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        _lead_nowhere()
        raise SystemExit(1) from None
    except OSError as error:
        _lead_nowhere()
        with suppress(OSError):
            print(f"Error: the output cannot be written: {error.strerror}", file=sys.stderr)
        raise SystemExit(2) from None


def _lead_nowhere() -> None:
    with suppress(OSError, AttributeError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
