"""How commands show results: tables for people, JSON for machines, a picture of a curve."""

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from sparsetoken.numerics.solution import Status
from sparsetoken.records import Curve, shown, table_cells
from sparsetoken.validation import ParameterError

__all__ = [
    "Refusal",
    "Row",
    "check_folder",
    "check_picture",
    "check_writable",
    "draw_curve",
    "plain",
    "print_curve",
    "print_json",
    "print_record",
    "tell_written",
]


class Refusal(click.ClickException):
    """A message without the command's usage, for a call that is right but cannot be done."""

    exit_code = 2


# A flat record: values by name, error bars under name_uncertainty.
Row = Mapping[str, Any]


_PICTURES = (".pdf", ".png", ".svg")


def check_folder(folder: Path) -> None:
    """Refuse a folder that does not exist."""
    if folder.exists() and not folder.is_dir():
        raise Refusal(f"{folder} is not a folder")
    if not folder.exists():
        raise Refusal(f"the folder {folder} does not exist")


def check_writable(path: Path) -> None:
    """Refuse, before any work, a file that could not be written after it."""
    from tempfile import TemporaryFile

    check_folder(path.parent)
    if path.is_dir():
        raise Refusal(f"{path} is a folder, not a file")
    if path.exists():
        if not os.access(path, os.W_OK):
            raise Refusal(f"{path} cannot be written: Permission denied")
        return
    try:
        # An attempt, because permissions do not tell of read-only and special file systems.
        with TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise Refusal(f"{path} cannot be written: {error.strerror}") from None


def check_picture(option: str, path: Path) -> None:
    """Refuse, before any work, a picture of an unknown kind or that could not be written."""
    if path.suffix not in _PICTURES:
        accepted = "a file name that ends in " + ", ".join(_PICTURES)
        raise ParameterError(option, str(path), accepted)
    check_writable(path)


def tell_written(path: Path) -> None:
    """Say that a file was written, on the stream that is not for results."""
    click.echo(f"Wrote {path}", err=True)


def print_record(title: str, row: Row) -> None:
    """Print one flat record as a table of names and values."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left", show_header=False)
    for name, text in shown(row).items():
        table.add_row(name, text)
    Console().print(table)
    _print_notes([row])


def print_curve(title: str, curve: Curve[Any], hidden: Sequence[str] = ()) -> None:
    """Print results along a curve as a table with a row for each value, and what to note."""
    from rich.console import Console
    from rich.table import Table

    rows = curve.to_rows()
    head, *body = table_cells(
        curve.over, [{name: row[name] for name in row if name not in hidden} for row in rows]
    )
    table = Table(*head, title=title)
    for line in body:
        table.add_row(*line)
    Console().print(table)
    _print_notes(rows)


def _print_notes(rows: Sequence[Row]) -> None:
    """Say on the stream for notes what is special about a solution."""
    for message in sorted({row["message"] for row in rows if "message" in row}):
        if message != Status.CONVERGED.text:
            click.echo(f"note: {message}", err=True)


def print_json(settings: Mapping[str, Any], result: Row | Sequence[Row]) -> None:
    """Print settings and flat records as JSON; numbers that are not finite as strings."""
    several = not isinstance(result, Mapping)
    text = {"settings": settings, "results" if several else "result": plain(result)}
    click.echo(json.dumps(text, indent=2, ensure_ascii=False, allow_nan=False))


def plain(value: Any) -> Any:
    """Return a value that JSON can hold: numbers that are not finite become texts."""
    if isinstance(value, Mapping):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
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
