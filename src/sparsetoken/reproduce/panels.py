"""Panels that several claims draw."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from sparsetoken.arrays import Array
from sparsetoken.plotting import Look, draw_boundary, draw_simulation, draw_theory, look_of
from sparsetoken.reproduce.claim import Table

__all__ = [
    "UNDERLAY",
    "draw_floor",
    "draw_pooled_level",
    "error_with_optimum",
    "grid",
    "label_axes",
    "line_over_dots",
]


def line_over_dots(
    axes: Axes, table: Table, x: str, y: str, look: Look, label: str | None = ""
) -> None:
    """Draw the theory rows as a line and the simulation rows as markers over it."""
    theory = table.select(source="theory")
    theory = Table([row for row in theory.rows if y in row and x in row], table.settings)
    simulation = table.select(source="simulation").largest("dimension")
    if len(theory):
        draw_theory(axes, theory.column(x), theory.column(y), look, label=label)
    if len(simulation):
        draw_simulation(
            axes,
            simulation.column(x),
            simulation.column(y),
            simulation.column(f"{y}_uncertainty"),
            look,
            label=None if len(theory) else label,
        )


def label_axes(
    axes: Axes, x: str, y: str, title: str = "", log_x: bool = False, log_y: bool = False
) -> None:
    """Name the axes and set their scales."""
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.set_title(title)
    if log_x:
        axes.set_xscale("log")
    if log_y:
        axes.set_yscale("log")


# A broad pale line under another one that nearly coincides with it.
UNDERLAY: dict[str, Any] = {"linewidth": 5, "alpha": 0.3}


def draw_floor(axes: Axes, table: Table, x: str, y: str) -> None:
    """Draw the Bayes floor so broad that attention, which comes close to it, does not hide it."""
    draw_theory(axes, table.column(x), table.column(y), look_of("bayes"), **UNDERLAY)


def draw_pooled_level(axes: Axes, error: float, label: str | None = None) -> None:
    """Draw the pooled classifier's error, which does not depend on the query, as a level."""
    look = look_of("pooled")
    draw_boundary(
        axes,
        error,
        vertical=False,
        label=label or look.label,
        color=look.colour,
        linestyle="-",
    )


def error_with_optimum(
    axes: Axes, table: Table, over: str, best: float, pooled_label: str | None = None
) -> None:
    """Draw attention's error along a curve, its predicted optimum, and the pooled level."""
    attention = table.select(classifier="attention")
    line_over_dots(axes, attention, over, "test_error", look_of("attention"))
    pooled = table.select(classifier="pooled").column("test_error")[0]
    draw_pooled_level(axes, pooled, pooled_label)
    draw_boundary(axes, best, label="predicted optimum")
    axes.set_ylim(0, None)


def grid(table: Table, x: str, y: str, name: str) -> tuple[Array, Array, Array]:
    """Return the values of two labels and a field at each pair of them, as (y, x) for a map."""
    columns, rows = (np.array(sorted(table.distinct(label)), dtype=float) for label in (x, y))
    values = np.full((len(rows), len(columns)), np.nan)
    for row in table.rows:
        values[np.searchsorted(rows, row[y]), np.searchsorted(columns, row[x])] = row[name]
    return columns, rows, values
