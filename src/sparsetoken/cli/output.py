"""How commands show results: tables for people, JSON for machines, a picture of a curve."""

import functools
import json
import math
import os
import textwrap
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click
from click.core import ParameterSource

from sparsetoken.files import replacing
from sparsetoken.records import Curve, is_noteworthy, readable, table_cells
from sparsetoken.validation import ParameterError

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "Refusal",
    "Row",
    "check_different",
    "check_folder",
    "check_picture",
    "check_writable",
    "console",
    "draw_curve",
    "force_option",
    "is_our_page",
    "json_text",
    "json_value",
    "print_curve",
    "print_json",
    "print_record",
    "print_settings",
    "print_text",
    "refuse_unread_options",
    "tell_written",
    "tracked",
    "write_rows",
]


Function = TypeVar("Function", bound=Callable[..., Any])


class Refusal(click.ClickException):
    """A message without the command's usage, for a call that is right but cannot be done."""

    exit_code = 2


# A flat record: values by name, error bars under name_uncertainty.
Row = Mapping[str, Any]


# How a picture begins, by the ending of its name. Ours name the package as well.
_PICTURES = {".pdf": (b"%PDF",), ".png": (b"\x89PNG",), ".svg": (b"<?xml", b"<svg")}

# Options that name a file to write, and those of commands that always write one.
_WISHED = ("plot", "csv_path", "save", "export")
_ALWAYS = ("output", "file")


def refuse_unread_options(names: Iterable[str], because: str) -> None:
    """Refuse options of this call that were typed though nothing reads them; defaults are silent."""
    context = click.get_current_context()
    for parameter in context.command.params:
        typed = context.get_parameter_source(parameter.name or "")
        if parameter.name in set(names) and typed is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{parameter.opts[-1]} has no effect here: {because}")


def force_option(function: Function) -> Function:
    """Add --force, which is refused where no file is written."""

    @functools.wraps(function)
    def checked(*args: Any, **options: Any) -> Any:
        given = click.get_current_context().params
        wished = any(given.get(name) is not None for name in _WISHED)
        if not (wished or any(name in given for name in _ALWAYS)):
            refuse_unread_options(["force"], "no file is written")
        return function(*args, **options)

    text = "Replace an output file that this command did not write."
    return click.option("--force", is_flag=True, help=text)(cast(Function, checked))


def check_folder(folder: Path) -> None:
    """Refuse a folder that does not exist."""
    if folder.exists() and not folder.is_dir():
        raise Refusal(f"{folder} is not a folder")
    if not folder.exists():
        raise Refusal(f"the folder {folder} does not exist")


def check_writable(
    path: Path,
    is_ours: Callable[[bytes], bool],
    *,
    inputs: Iterable[Path] = (),
    force: bool = False,
) -> None:
    """Refuse, before any work, a file that could not or must not be written after it.

    See `sparsetoken.files.check_output`.
    """
    from sparsetoken.files import OutputRefused, check_output

    try:
        check_output(path, is_ours, inputs=inputs, force=force)
    except OutputRefused as error:
        raise Refusal(str(error)) from None


def check_different(outputs: Mapping[str, Path | None]) -> None:
    """Refuse, before any work, two outputs in one place: the second would replace the first."""
    places: dict[str, str] = {}
    for option, path in outputs.items():
        if path is not None:
            first = places.setdefault(os.path.realpath(path), option)
            if first != option:
                raise ParameterError(option, str(path), f"another file than that of --{first}")


def is_our_page(content: bytes) -> bool:
    """Tell whether a file is a page that a command wrote: its first and last bytes are given."""
    return content[:15].lower() == b"<!doctype html>" and b"<title>sparsetoken: " in content


def check_picture(
    option: str, path: Path, *, inputs: Iterable[Path] = (), force: bool = False
) -> None:
    """Refuse, before any work, a picture of an unknown kind or that must not be written."""
    if path.suffix not in _PICTURES:
        accepted = "a file name that ends in " + ", ".join(_PICTURES)
        raise ParameterError(option, str(path), accepted)
    start = _PICTURES[path.suffix]
    check_writable(
        path,
        lambda content: content.startswith(start) and b"sparsetoken" in content,
        inputs=inputs,
        force=force,
    )


def tell_written(path: Path) -> None:
    """Say that a file was written, on the stream that is not for results."""
    click.echo(f"Wrote {path}", err=True)


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """Write flat records as a table with a row for each."""
    import csv

    with replacing(path) as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def console(*, stderr: bool = False) -> "Console":
    """Return what prints tables and progress; brackets are not markup, for they may be a path's."""
    from rich.console import Console

    return Console(stderr=stderr, markup=False)


def print_settings(settings: Row, unread: Container[str] = ()) -> None:
    """Print of which settings a table is, without those that are off or that nothing reads."""
    parts = [
        f"{name.replace('_', ' ')} {_setting(value)}"
        for name, value in settings.items()
        if name not in unread and value is not None and value is not False
    ]
    console().print("Settings: " + ", ".join(parts), highlight=False)


def _setting(value: Any) -> str:
    if value is True:
        return "on"
    return f"{value:g}" if isinstance(value, float) else str(value)


def print_text(text: str) -> None:
    """Print lines of text, broken between words where a terminal is narrower than they are."""
    shown = console()
    for line in text.splitlines():
        indent = " " * (len(line) - len(line.lstrip()) + 2)
        fits = not shown.is_terminal or len(line) <= shown.width
        broken = [line] if fits else textwrap.wrap(line, shown.width, subsequent_indent=indent)
        click.echo("\n".join(broken))


def print_record(title: str, row: Row) -> None:
    """Print one flat record as a table of names and values."""
    from rich.table import Table

    table = Table(title=title, title_justify="left", show_header=False)
    for name, text in readable(row).items():
        table.add_row(name, text)
    console().print(table)
    _print_notes([row])


def print_curve(title: str, curve: Curve[Any], hidden: Sequence[str] = ()) -> None:
    """Print results along a curve as a table with a row for each value, and what to note.

    What is the same at every point is told once, below the table.
    """
    from rich import box
    from rich.table import Table

    rows = curve.to_rows()
    head, *body = table_cells(
        curve.over, [{name: row[name] for name in row if name not in hidden} for row in rows]
    )
    columns = list(zip(head, *body, strict=True))
    varying = [len(set(cells)) > 1 or len(cells) == 1 for _, *cells in columns]
    table = Table(
        title=title,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        min_width=len(title) + 2,  # even if no result varies
    )
    for name, varies in zip(head, varying, strict=True):
        if varies:
            table.add_column(name.replace(" ", "\n"))
    for line in body:
        table.add_row(*(text for text, varies in zip(line, varying, strict=True) if varies))
    console().print(table)
    same = [f"{column[0]} {column[1]}" for column, v in zip(columns, varying, strict=True) if not v]
    if same:
        console().print("At every point: " + ", ".join(same), highlight=False)
    _print_notes(rows)


def _print_notes(rows: Sequence[Row]) -> None:
    """Say on the stream for notes what is special about a solution."""
    for message in sorted({row["message"] for row in rows if is_noteworthy(row)}):
        click.echo(f"note: {message}", err=True)
    if any(row.get("anti_aligned") and not row.get("cause") for row in rows):
        turned = "the query points away from the signal; `sparsetoken align` says why, and the cure"
        click.echo(f"note: {turned}", err=True)


def print_json(settings: Mapping[str, Any], result: Row | Sequence[Row]) -> None:
    """Print settings and flat records as JSON; numbers that are not finite as strings."""
    several = not isinstance(result, Mapping)
    click.echo(json_text({"settings": settings, "results" if several else "result": result}))


def json_text(value: Any) -> str:
    """Return JSON that any reader takes: numbers that are not finite become texts."""
    return json.dumps(json_value(value), indent=2, ensure_ascii=False, allow_nan=False)


def json_value(value: Any) -> Any:
    """Return a value that JSON can hold: numbers that are not finite become texts."""
    if isinstance(value, Mapping):
        return {name: json_value(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def draw_curve(
    path: Path, curve: Curve[Any], quantities: Sequence[str], look: str, logarithmic: bool
) -> None:
    """Draw theory curves against the varied field, one panel for each quantity."""
    from sparsetoken.plotting import describe, new_figure, save_figure

    figure, panels = new_figure(columns=len(quantities))
    for axes, name in zip(panels, quantities, strict=True):
        curve.plot(name, axes=axes, look=look, logarithmic=logarithmic)
    figure.suptitle(f"{look}: {describe(curve.settings)}", fontsize=6, wrap=True)
    save_figure(figure, path.with_suffix(""), [path.suffix.lstrip(".")])
    tell_written(path)


def tracked(values: Sequence[float]) -> Iterable[float]:
    """Return the values, with a progress bar on a terminal."""
    from rich.console import Console
    from rich.progress import track

    return track(values, "Solving", console=Console(stderr=True), transient=True)
