"""Draw a study: theory as lines over the simulation's dots, without further work.

Classifiers differ in colour and dimensions in marker; every other setting that varies, apart from
the one on the horizontal axis, gets a panel for each of its values.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from sparsetoken.sweeps.errors import SweepError
from sparsetoken.sweeps.store import Store
from sparsetoken.uncertainty import mean_and_error
from sparsetoken.validation import shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Summary", "draw_store", "summarise"]

_MOST_PANELS = 12
_LOOKED_AT = 1000
_MARKERS = "os^vDPXh"


class Summary(NamedTuple):
    """One field of one cell: theory, and mean and standard error of the trials; None if missing."""

    settings: dict[str, Any]
    theory: float | None
    mean: float | None
    standard_error: float | None
    trials: int


def summarise(store: Store, field: str) -> list[Summary]:
    """Return a field of every cell. Trials in which it is not a number do not count."""
    values: dict[int, list[float]] = {}
    for row in store.rows():
        if _is_drawable(row.get(field)):
            values.setdefault(row["cell"], []).append(float(row[field]))
    theory = {
        row["cell"]: float(row[field])
        for row in store.theory_rows()
        if _is_drawable(row.get(field))
    }
    return [
        Summary(settings, theory.get(cell), *_mean(values.get(cell, [])))
        for cell, settings in store.cells()
    ]


def _mean(values: list[float]) -> tuple[float | None, float | None, int]:
    return *mean_and_error(values), len(values)


def draw_store(store: Store, x: str | None = None, y: str = "test_error", scale: str = "linear",
               title: str = "") -> "Figure":  # fmt: skip
    """Draw field `y` of the trials and of the theory against setting `x`.

    Parameters
    ----------
    store : Store
    x : str, optional
        A setting; the one with most different numbers if not given.
    y : str
        A field of the trials or the theory.
    scale : "linear", "logx", "logy" or "loglog"
    title : str
    """
    from sparsetoken.plotting import new_figure, shared_legend
    from sparsetoken.plotting.formulas import formula_problem

    if y not in (*store.columns("trials"), *store.columns("theory")):
        raise SweepError(f"there is no field {y!r} to draw; there are {_drawable_fields(store)}")
    cells = summarise(store, y)
    if all(cell.theory is None and cell.mean is None for cell in cells):
        raise SweepError(
            f"no trial has a number {y!r} to draw; there are {_drawable_fields(store)}"
        )
    varied = _varied(cells)
    x = _horizontal(cells, varied, x)
    apart = [name for name in varied if name not in (x, "classifier", "dimension")]
    panels = _groups(cells, apart)
    if len(panels) > _MOST_PANELS:
        raise SweepError(
            f"{len(panels)} panels are too many ({', '.join(apart)} vary beside {x}): export the "
            "store and draw a part of it"
        )
    columns = min(3, len(panels))
    figure, axes = new_figure(columns, math.ceil(len(panels) / columns))
    for panel, (values, members) in zip(axes, panels.items(), strict=False):
        _draw_panel(panel, members, x)
        _label(panel, x, y, scale, dict(zip(apart, values, strict=True)))
    for panel in axes[len(panels) :]:
        panel.set_visible(False)
    shared_legend(figure, columns=3 if columns > 1 else 2)
    if title:
        problem = formula_problem(title)
        if problem:
            raise SweepError(f"the title {shown(title)} cannot be set: {problem}")
        figure.legends[0].set_title(title)
    return figure


def _is_drawable(value: Any) -> bool:
    """Tell whether a result has a mean: a number, or a truth value."""
    return isinstance(value, int | float)


def _drawable_fields(store: Store) -> str:
    """Return the names of the fields with numbers; the first trials are enough to tell."""
    rows = [*islice(store.rows(), _LOOKED_AT), *islice(store.theory_rows(), _LOOKED_AT)]
    known = dict.fromkeys((*store.columns("trials"), *store.columns("theory")))
    return ", ".join(n for n in known if any(_is_drawable(row.get(n)) for row in rows)) or "none"


def _varied(cells: Sequence[Summary]) -> list[str]:
    """Return settings that differ between cells, without those at test time that only follow."""
    seen: dict[str, set[Any]] = {}
    for cell in cells:
        for name, value in cell.settings.items():
            seen.setdefault(name, set()).add(value)

    def follows(name: str) -> bool:
        trained = name.removeprefix("at_")
        return trained != name and all(
            cell.settings.get(name) == cell.settings.get(trained) for cell in cells
        )

    return [name for name, values in seen.items() if len(values) > 1 and not follows(name)]


def _horizontal(cells: list[Summary], varied: list[str], asked: str | None) -> str:
    """Return the setting asked for, or the one with most different numbers."""

    def is_numeric(name: str) -> bool:
        return all(_is_number(cell.settings.get(name)) for cell in cells)

    numeric = [name for name in varied if is_numeric(name)]
    if asked is not None:
        if not is_numeric(asked):
            others = ", ".join(numeric) or "none"
            raise SweepError(
                f"{asked!r} is not a numeric setting of all cells; those that vary are {others}"
            )
        return asked
    if not numeric:
        raise SweepError("no setting takes different numbers: name one to draw against")
    return max(numeric, key=lambda name: len({cell.settings[name] for cell in cells}))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _groups(cells: Iterable[Summary], names: list[str]) -> dict[tuple[Any, ...], list[Summary]]:
    groups: dict[tuple[Any, ...], list[Summary]] = {}
    for cell in cells:
        groups.setdefault(tuple(cell.settings.get(name) for name in names), []).append(cell)
    return groups


def _draw_panel(axes: "Axes", cells: list[Summary], x: str) -> None:
    from sparsetoken.plotting import draw_simulation, draw_theory, look_of

    several = len({cell.settings.get("dimension") for cell in cells}) > 1 and x != "dimension"
    for (classifier,), members in _groups(cells, ["classifier"]).items():
        look = look_of(classifier or "attention")
        # Theory is the same for all dimensions: one line is enough.
        line = {c.settings[x]: c.theory for c in members if c.theory is not None}
        if line:
            draw_theory(axes, list(line), list(line.values()), look)
        by_dimension = _groups(members, ["dimension"] if several else [])
        for number, (dimension, dots) in enumerate(by_dimension.items()):
            means = {cell.settings[x]: cell.mean for cell in dots if cell.mean is not None}
            if not means:
                continue
            marker = _MARKERS[number % len(_MARKERS)] if several else look.marker
            label = f"{look.label}, d = {dimension[0]}" if several else None
            draw_simulation(
                axes,
                list(means),
                list(means.values()),
                [cell.standard_error or 0.0 for cell in dots if cell.mean is not None],
                look,
                label=label or (None if line else look.label),
                fmt=marker,
            )


def _label(axes: "Axes", x: str, y: str, scale: str, apart: Mapping[str, Any]) -> None:
    from sparsetoken.plotting import describe, styled
    from sparsetoken.plotting.figures import SYMBOLS

    @styled
    def write() -> None:
        symbol = f" ({SYMBOLS[x]})" if x in SYMBOLS else ""
        axes.set_xlabel(x.replace("_", " ") + symbol)
        axes.set_ylabel(y.replace("_", " "))
        axes.set_title(describe(apart))
        for letter, axis in (("x", axes.xaxis), ("y", axes.yaxis)):
            if scale in (f"log{letter}", "loglog"):
                axes.set(**{f"{letter}scale": "log"})
                axis.set_major_formatter("{x:g}")
                low, high = axis.get_data_interval()
                # Below a decade there are few major ticks: name the minor ones as well.
                axis.set_minor_formatter("{x:.2g}" if high < 10 * low else "")

    write()
