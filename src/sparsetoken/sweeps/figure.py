"""Draw a study: theory as lines over the simulation's dots, without further work.

Classifiers differ in colour and dimensions in marker; every other setting that varies gets a panel
for each of its values, apart from the one on the horizontal axis and those that run along with it.
"""

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from sparsetoken.records import UNCERTAINTY, is_number
from sparsetoken.sweeps.errors import SweepError
from sparsetoken.sweeps.store import Store
from sparsetoken.uncertainty import Joined, joined, mean_and_error
from sparsetoken.validation import shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from sparsetoken.plotting import Look

__all__ = ["Summary", "draw_store", "summarise"]

_MOST_PANELS = 12
_LOOKED_AT = 1000
_MARKERS = "os^vDPXh"
# Letters that fit above a panel.
_TITLE_WIDTH = 42


class Summary(NamedTuple):
    """One field of one cell: its settings, how many trials have it, and theory beside them."""

    settings: dict[str, Any]
    trials: int
    compared: Joined


def summarise(store: Store, field: str) -> list[Summary]:
    """Return a field of every cell. Trials in which it is not a number do not count."""
    values: dict[int, list[float]] = {}
    for row in store.rows():
        if _is_drawable(row.get(field)):
            values.setdefault(row["cell"], []).append(float(row[field]))
    theory = {row["cell"]: row for row in store.theory_rows() if _is_drawable(row.get(field))}
    return [
        _summary(settings, field, values.get(cell, []), theory.get(cell, {}))
        for cell, settings in store.cells()
    ]


def _summary(
    settings: dict[str, Any], field: str, values: list[float], theory: Mapping[str, Any]
) -> Summary:
    mean, error = mean_and_error(values)
    simulated = {field: mean, field + UNCERTAINTY: error}
    return Summary(settings, len(values), joined(field, simulated, theory, trials=len(values)))


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
    if all(cell.compared.theory is None and cell.compared.mean is None for cell in cells):
        raise SweepError(
            f"no trial has a number {y!r} to draw; there are {_drawable_fields(store)}"
        )
    varied = _varied(cells)
    x = _horizontal(cells, varied, x)
    others = [name for name in varied if name not in (x, "classifier", "dimension")]
    along = [name for name in others if _runs_along(cells, name, x)]
    apart = [name for name in others if name not in along]
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
        _label(panel, x, along, y, scale, dict(zip(apart, values, strict=True)))
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
        return all(is_number(cell.settings.get(name)) for cell in cells)

    numeric = [name for name in varied if is_numeric(name)]
    if asked is not None:
        if not is_numeric(asked) or (numeric and asked not in numeric):
            others = ", ".join(numeric) or "none"
            raise SweepError(
                f"{asked!r} is not a setting that takes different numbers; those that do: {others}"
            )
        return asked
    if not numeric:
        raise SweepError("no setting takes different numbers: name one to draw against")
    return max(numeric, key=lambda name: len({cell.settings[name] for cell in cells}))


def _runs_along(cells: list[Summary], name: str, x: str) -> bool:
    """Tell whether each value of x comes with one value of another setting, as in a zip."""
    pairs = {(cell.settings.get(x), cell.settings.get(name)) for cell in cells}
    return len(pairs) == len({first for first, _ in pairs})


def _groups(cells: Iterable[Summary], names: list[str]) -> dict[tuple[Any, ...], list[Summary]]:
    groups: dict[tuple[Any, ...], list[Summary]] = {}
    for cell in cells:
        groups.setdefault(tuple(cell.settings.get(name) for name in names), []).append(cell)
    return groups


def _draw_panel(axes: "Axes", cells: list[Summary], x: str) -> None:
    """Draw for each classifier a line of theory, and dots for each dimension."""
    from sparsetoken.plotting import look_of

    several = len({cell.settings.get("dimension") for cell in cells}) > 1 and x != "dimension"
    for (classifier,), members in _groups(cells, ["classifier"]).items():
        look = look_of(classifier or "attention")
        has_line = _draw_line(axes, members, x, look)
        if not several:
            _draw_dots(axes, members, x, look, None if has_line else look.label, look.marker)
            continue
        for number, ((dimension,), dots) in enumerate(_groups(members, ["dimension"]).items()):
            marker = _MARKERS[number % len(_MARKERS)]
            _draw_dots(axes, dots, x, look, f"{look.label}, d = {dimension}", marker)


def _draw_line(axes: "Axes", cells: list[Summary], x: str, look: "Look") -> bool:
    """Draw theory, which is the same for all dimensions, as one line; return whether there is any."""
    from sparsetoken.plotting import draw_band

    line = {c.settings[x]: c.compared for c in cells if c.compared.theory is not None}
    if line:
        heights, bars = zip(*((one.theory, one.bar or 0.0) for one in line.values()), strict=True)
        draw_band(axes, list(line), heights, bars, look)
    return bool(line)


def _draw_dots(
    axes: "Axes", cells: list[Summary], x: str, look: "Look", label: str | None, marker: str
) -> None:
    from sparsetoken.plotting import draw_simulation

    seen = {c.settings[x]: c.compared for c in cells if c.compared.mean is not None}
    if seen:
        means, errors = zip(
            *((one.mean, one.standard_error or 0.0) for one in seen.values()), strict=True
        )
        draw_simulation(axes, list(seen), means, errors, look, label=label, fmt=marker)


def _label(
    axes: "Axes", x: str, along: Sequence[str], y: str, scale: str, apart: Mapping[str, Any]
) -> None:
    from sparsetoken.plotting import describe, named, show_whole_markers, styled, tidy_log_ticks

    @styled
    def write() -> None:
        axes.set_xlabel(", with ".join(map(named, [x, *along])))
        axes.set_ylabel(named(y))
        axes.set_title(textwrap.fill(describe(apart), _TITLE_WIDTH))
        for letter in "xy":
            if scale in (f"log{letter}", "loglog"):
                axes.set(**{f"{letter}scale": "log"})
        tidy_log_ticks(axes)
        show_whole_markers(axes)

    write()
