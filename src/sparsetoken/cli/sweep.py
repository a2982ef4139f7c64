"""`sparsetoken sweep`: studies that survive interruptions.

Exit codes: 0 all is done, 1 some trials failed (or theory, in a study of theory alone), 2 the sweep could not start or go on, 130 Ctrl-C.
"""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sparsetoken.cli.options import import_option, json_option, workers_option
from sparsetoken.cli.output import (
    Refusal,
    check_folder,
    check_picture,
    check_writable,
    console,
    force_option,
    refuse_unread_options,
)
from sparsetoken.limits import MOST_RETRIES

if TYPE_CHECKING:
    from sparsetoken.sweeps import Progress, Store, Study, StudyCounts
    from sparsetoken.sweeps.repair import Inspection

__all__ = ["sweep"]

_LOG_SECONDS = 10.0
_CTRL_C = 130


class _Commands(click.Group):
    """A group whose commands turn a SweepError into one message and exit code 2."""

    def invoke(self, ctx: click.Context) -> Any:
        from sparsetoken.sweeps.errors import SweepError

        try:
            return super().invoke(ctx)
        except SweepError as error:
            raise Refusal(str(error)) from None
        except RecursionError:
            raise Refusal("the study is nested too deeply") from None
        except KeyboardInterrupt:
            click.echo("Stopped.", err=True)
            sys.exit(_CTRL_C)


@click.group(cls=_Commands, short_help="Run a grid of problems, and go on after any interruption.")
def sweep() -> None:
    """Run a grid of problems, kept in a file, and go on after any interruption."""


def _named(_: click.Context, parameter: click.Parameter, path: Path | None) -> Path | None:
    """Refuse a path without a name, such as the empty one."""
    if path is not None and not path.name:
        raise click.BadParameter("expected the name of a file", param=parameter)
    return path


_study = click.argument("study", type=click.Path(dir_okay=False, path_type=Path), callback=_named)
_store = click.option(
    "--store",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=_named,
    help="The store; STUDY with the ending .sqlite if not given.",
)


def _store_path(study: Path, store: Path | None) -> Path:
    path = study.with_suffix(".sqlite") if store is None else store
    if path == study:
        raise Refusal(f"{path} is the study: give the store another name with --store")
    return path


@contextmanager
def _open_store(study: Path, store: Path | None, *, check: bool) -> "Iterator[Store]":
    """Open the store of a study for reading, as far as the study asks for its trials now."""
    from sparsetoken.sweeps import Store, read_study
    from sparsetoken.sweeps.run import study_fingerprint

    grid = read_study(study)
    path, wanted = _store_path(study, store), study_fingerprint(grid)
    with Store(path, wanted, trials=grid.trials, check=check) as opened:
        yield opened


@sweep.command()
@_study
def init(study: Path) -> None:
    """Write a commented example to STUDY, which must not exist yet."""
    from importlib.resources import files

    from sparsetoken.sweeps.errors import SweepError

    text = files("sparsetoken.sweeps").joinpath("example.toml").read_text(encoding="utf-8")
    try:
        with study.open("x", encoding="utf-8") as file:
            try:
                file.write(text.replace("STUDY.toml", str(study)))
                file.flush()
            except OSError:  # a full disk leaves no half of a study
                study.unlink()
                raise
    except OSError as error:
        raise SweepError(f"{study} cannot be written: {error.strerror}") from None
    click.echo(f"Wrote {study}. Run it with: sparsetoken sweep run {study}")


@sweep.command(short_help="Run what is missing of STUDY; start it, or go on.")
@_study
@_store
@workers_option
@click.option("--dask", metavar="ADDRESS", help="Scheduler of a Dask cluster to use instead.")
@click.option(
    "--retries",
    type=click.IntRange(min=0, max=MOST_RETRIES),
    default=2,
    show_default=True,
    help="How often a failed trial is tried again.",
)
@click.option("--retry-failed", is_flag=True, help="Run trials again that are stored as failed.")
@import_option
def run(
    study: Path,
    store: Path | None,
    workers: int,
    dask: str | None,
    retries: int,
    retry_failed: bool,
) -> None:
    """Run what is missing of STUDY; stop it at any time and run it again to go on."""
    from sparsetoken.sweeps import read_study, run_sweep

    if dask is not None:
        given = click.get_current_context().get_parameter_source("workers")
        if given is not click.core.ParameterSource.DEFAULT:
            raise click.UsageError(
                "--workers has no meaning with --dask, whose workers are its own"
            )
        workers = 1
    path = _store_path(study, store)
    grid = read_study(study)
    check_folder(path.parent)
    try:
        with _progress_shown() as show:
            end = run_sweep(
                grid,
                path,
                workers=workers,
                dask=dask,
                retries=retries,
                retry_failed=retry_failed,
                progress=show,
            )
    except KeyboardInterrupt:
        click.echo(f"What had finished is in {path}; run again to go on.", err=True)
        raise
    _summarise(end, path)
    sys.exit(_exit_code(end.counts))


def _exit_code(counts: "StudyCounts") -> int:
    """Return 1 if trials have failed, or theory in a study of theory alone."""
    return int(bool(counts.failed or (counts.theory_failed and not counts.trials)))


def _summarise(end: "Progress", path: Path, *, err: bool = False) -> None:
    from sparsetoken.sweeps import Store

    ran = "1 trial" if end.ran == 1 else f"{end.ran} trials"
    click.echo(f"{_counted(end.counts)}; {ran} in {end.seconds:.1f} s. Store: {path}", err=err)
    with Store(path) as store:
        _show_errors(store, err=err)
        versions = store.versions()
    if len(versions) > 1:
        click.echo(
            f"Note: the trials are of several versions of sparsetoken: {', '.join(versions)}",
            err=err,
        )


def _counted(counts: "StudyCounts") -> str:
    failed = f" ({counts.failed} failed)" if counts.failed else ""
    theory = f", theory of {counts.theory_done}" if counts.theory_done else ""
    bad = f" (failed in {counts.theory_failed})" if counts.theory_failed else ""
    return (
        f"cells {counts.cells_done}/{counts.cells}{theory}{bad}, "
        f"trials {counts.done + counts.failed}/{counts.trials}{failed}"
    )


def _show_errors(store: "Store", *, err: bool = False) -> None:
    for cell, trial, error in store.errors():
        what = "theory" if trial is None else f"trial {trial}"
        click.echo(f"  cell {cell}, {what}: {error}", err=err)


@contextmanager
def _progress_shown() -> "Iterator[Callable[[Progress], None]]":
    """Give a function that shows progress: a bar in a terminal, else a line now and then."""
    if not sys.stderr.isatty():
        yield _Log()
        return
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bar

    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:.0f} %")
    with Bar(*columns, console=console(stderr=True), transient=True) as bar:
        task = bar.add_task("Starting", total=None)

        def show(now: "Progress") -> None:
            ended = now.counts.done + now.counts.failed
            bar.update(task, total=now.counts.trials, completed=ended, description=_line(now))

        yield show


def _line(now: "Progress") -> str:
    left = "" if now.seconds_left is None else f", {_duration(now.seconds_left)} left"
    note = f". {now.note}" if now.note else ""
    return f"{_counted(now.counts)}, {now.rate:.3g}/s{left}{note}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}"


class _Log:
    """Write a plain line at the start and then every few seconds."""

    def __init__(self) -> None:
        self._next = 0.0
        self._note = ""

    def __call__(self, now: "Progress") -> None:
        if now.seconds >= self._next or now.note != self._note:
            self._note = now.note
            self._next = now.seconds + _LOG_SECONDS
            click.echo(_line(now), err=True)


@sweep.command()
@_study
@_store
@json_option
@import_option
def status(study: Path, store: Path | None, as_json: bool) -> None:
    """Say how far STUDY is; also while it runs."""
    with _open_store(study, store, check=False) as opened:
        counts = opened.counts()
        if as_json:
            errors = [
                dict(zip(("cell", "trial", "error"), one, strict=True)) for one in opened.errors()
            ]
            facts = {
                "created": opened.study["created"],
                "versions": opened.versions(),
                "errors": errors,
            }
            click.echo(json.dumps({**counts._asdict(), **facts}))
            return
        click.echo(_counted(counts))
        _show_errors(opened)


@sweep.command(short_help="Look for damage in every row of the store of STUDY.")
@_study
@_store
@click.option("--repair", is_flag=True, help="Keep what is whole and compute the rest again.")
@workers_option
@json_option
@import_option
def check(study: Path, store: Path | None, repair: bool, workers: int, as_json: bool) -> None:
    """Look for damage in every row of the store of STUDY; exit code 1 if there is any."""
    from sparsetoken.sweeps import read_study
    from sparsetoken.sweeps.errors import DamagedStore
    from sparsetoken.sweeps.repair import Inspection, inspect_store
    from sparsetoken.sweeps.run import study_fingerprint

    if not repair:
        refuse_unread_options(["workers"], "nothing is computed without --repair")
    path, grid = _store_path(study, store), read_study(study)
    try:
        with _waiting(f"Looking at {path}"):
            found = inspect_store(path, study_fingerprint(grid))
    except DamagedStore as error:
        found = Inspection(0, 0, (), str(error))
    if as_json:
        click.echo(json.dumps({"sound": found.sound, **asdict(found)}))
    else:
        _show_inspection(found, path)
    if found.sound:
        return
    if not repair:
        sys.exit(1)
    _repair(grid, path, workers, as_json)


def _show_inspection(found: "Inspection", path: Path) -> None:
    if found.sound:
        click.echo(f"{path} is sound: {found.rows} rows")
        return
    click.echo(f"{path} is damaged: {found.damaged} of {found.damaged + found.rows} rows")
    for text in (*found.examples, *filter(None, [found.structure])):
        click.echo(f"  {text}")
    if found.damaged > len(found.examples):
        click.echo(f"  ... and {found.damaged - len(found.examples)} more")


def _repair(grid: "Study", path: Path, workers: int, as_json: bool) -> None:
    from sparsetoken.sweeps import run_sweep
    from sparsetoken.sweeps.repair import rebuild_store
    from sparsetoken.sweeps.run import study_fingerprint

    with _waiting(f"Saving what is whole of {path}"):
        rows, kept = rebuild_store(path, study_fingerprint(grid), grid.cells(), grid.trials)
    click.echo(f"Kept {rows} rows; the damaged store is now {kept}", err=True)
    with _progress_shown() as show:
        end = run_sweep(grid, path, workers=workers, progress=show)
    _summarise(end, path, err=as_json)  # what was found is all that a machine reads
    sys.exit(_exit_code(end.counts))


@sweep.command(short_help="Write the trials of STUDY to FILE, one row a trial.")
@_study
@_store
@click.option("--csv", is_flag=True, help="Comma-separated values.")
@click.option("--parquet", is_flag=True, help="Parquet; needs pyarrow.")
@click.option("--json", is_flag=True, help="A JSON array of rows.")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path), callback=_named)
@force_option
@import_option
def export(study: Path, store: Path | None, file: Path, force: bool, **formats: bool) -> None:
    """Write the trials of STUDY to FILE: one row a trial, all settings as columns.

    The ending of FILE says the format (.csv, .parquet or .json) unless an option does.
    """
    from sparsetoken.sweeps.export import FORMATS, IS_OURS

    asked = [name for name, wanted in formats.items() if wanted]
    kinds = asked or [name for name in FORMATS if file.suffix == f".{name}"]
    if len(kinds) != 1:
        raise click.UsageError("say which format: --csv, --parquet or --json, one of them")
    inputs = study, _store_path(study, store)
    check_writable(file, IS_OURS[kinds[0]], inputs=inputs, force=force)
    with _open_store(study, store, check=False) as opened, _waiting(f"Writing {file}"):
        count = FORMATS[kinds[0]](opened, file)
    click.echo(f"Wrote {count} rows to {file}")


@contextmanager
def _waiting(what: str) -> Iterator[None]:
    """Show that something is going on, in a terminal."""
    from rich.text import Text

    with console(stderr=True).status(Text(what)):  # a text, not markup: paths may have brackets
        yield


@sweep.command()
@_study
@_store
@click.option("--x", help="The setting on the horizontal axis.")
@click.option("--y", help="The result to draw.")
@click.option(
    "--scale",
    type=click.Choice(["linear", "logx", "logy", "loglog"]),
    help="Which axes are logarithmic; as the study says if not given.",
)
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=_named,
    help="A .png, .svg or .pdf file; STUDY with the ending .png if not given.",
)
@force_option
@import_option
def plot(
    study: Path,
    store: Path | None,
    x: str | None,
    y: str | None,
    scale: str | None,
    output: Path | None,
    force: bool,
) -> None:
    """Draw theory as lines over the simulation's dots with error bars."""
    from sparsetoken.plotting import save_figure
    from sparsetoken.sweeps import read_study
    from sparsetoken.sweeps.figure import draw_store

    chosen = read_study(study)
    path = output or study.with_suffix(".png")
    check_picture("output", path, inputs=(study, _store_path(study, store)), force=force)
    field = y or chosen.plot.y
    # The title is about what the study draws by itself.
    title = chosen.title if field == chosen.plot.y else f"{field.replace('_', ' ')}, {study.name}"
    with _open_store(study, store, check=False) as opened, _waiting("Drawing"):
        figure = draw_store(
            opened,
            x or chosen.plot.x,
            field,
            scale or chosen.plot.scale,
            title,
        )
        save_figure(figure, path.with_suffix(""), [path.suffix.lstrip(".")])
    click.echo(f"Wrote {path}")
