"""How commands show results: tables for people, JSON for machines, a picture of a curve."""

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from sparsetoken.records import with_error
from sparsetoken.validation import ParameterError

__all__ = [
    "Measured",
    "Refusal",
    "check_folder",
    "check_picture",
    "check_writable",
    "draw_curve",
    "print_curve",
    "print_json",
    "print_record",
    "tell_written",
]


class Refusal(click.ClickException):
    """A message without the command's usage, for a call that is right but cannot be done."""

    exit_code = 2


# A value and its numerical error, None if it has none.
Measured = tuple[Any, float | None]


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


def print_record(title: str, record: Mapping[str, Measured]) -> None:
    """Print one result as a table of names and values."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left", show_header=False)
    for name, (value, error) in record.items():
        table.add_row(name.replace("_", " "), with_error(value, error))
    Console().print(table)


def print_curve(
    title: str, over: str, values: Sequence[float], records: Sequence[Mapping[str, Measured]]
) -> None:
    """Print results along a curve as a table with a row for each value."""
    from rich.console import Console
    from rich.table import Table

    table = Table(over, *(name.replace("_", " ") for name in records[0]), title=title)
    for value, record in zip(values, records, strict=True):
        table.add_row(f"{value:.5g}", *(with_error(*entry) for entry in record.values()))
    Console().print(table)


def print_json(
    settings: Mapping[str, Any],
    records: Sequence[Mapping[str, Measured]],
    over: str | None = None,
    values: Sequence[float] = (),
) -> None:
    """Print settings and results as JSON; numbers that are not finite as strings."""
    rows = [
        {
            "values": {name: _plain(entry[0]) for name, entry in record.items()},
            "uncertainty": {
                name: _plain(entry[1]) for name, entry in record.items() if entry[1] is not None
            },
        }
        for record in records
    ]
    for row, value in zip(rows, values, strict=False):
        row[over or "value"] = value  # type: ignore[assignment]
    text: dict[str, Any] = {"settings": settings}
    text["results" if over else "result"] = rows if over else rows[0]
    click.echo(json.dumps(text, indent=2, ensure_ascii=False, allow_nan=False))


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def draw_curve(
    path: Path,
    over: str,
    values: Sequence[float],
    curves: Mapping[str, Sequence[Measured]],
    look: str,
    settings: Mapping[str, Any],
    logarithmic: bool,
) -> None:
    """Draw theory curves against the varied field, one panel for each quantity."""
    from sparsetoken.plotting import describe, draw_band, look_of, named, new_figure, save_figure

    figure, panels = new_figure(columns=len(curves))
    for axes, (name, entries) in zip(panels, curves.items(), strict=True):
        heights, errors = zip(*((entry[0], entry[1] or 0.0) for entry in entries), strict=True)
        draw_band(axes, values, heights, errors, look_of(look))
        axes.set_xlabel(named(over))
        axes.set_ylabel(named(name))
        if logarithmic:
            axes.set_xscale("log")
    shown = {key: value for key, value in settings.items() if key != over}
    figure.suptitle(f"{look}: {describe(shown)}", fontsize=6, wrap=True)
    save_figure(figure, path.with_suffix(""), [path.suffix.lstrip(".")])
    tell_written(path)
