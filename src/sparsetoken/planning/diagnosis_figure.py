"""The picture of a diagnosis: errors with their limits, and tokens along the learnt direction."""

from typing import TYPE_CHECKING, Any

import numpy as np

from sparsetoken.numerics.quadrature import normal_density
from sparsetoken.planning.signal_estimate import Projections
from sparsetoken.plotting import COLOURS, LOOKS, draw_boundary, panels_to_draw_in, styled
from sparsetoken.plotting.style import SERIES

if TYPE_CHECKING:
    from sparsetoken.planning.diagnosis import Diagnosis

__all__ = ["draw_diagnosis"]


@styled
def draw_diagnosis(found: "Diagnosis", projections: Projections, figure: Any = None) -> Any:
    """Draw a diagnosis and return its figure."""
    figure, (left, right) = panels_to_draw_in(figure, 2)
    _draw_errors(left, found)
    _draw_projections(right, projections)
    doubt = "" if found.signal.normal else ", noise not normal: limits unreliable"
    figure.suptitle(f"{found.verdict} ({found.samples:,} samples{doubt})", fontsize=9)
    return figure


def _draw_errors(axes: Any, found: "Diagnosis") -> None:
    rows = found.comparison.rows
    for position, row in enumerate(rows):
        look = LOOKS.get(row.name, SERIES[position % len(SERIES)])
        axes.errorbar(row.error, position, xerr=row.uncertainty, fmt=look.marker, color=look.colour)
        limit = found.limits.get(row.name)
        if limit is not None:
            axes.plot(limit, position, marker="|", markersize=14, color=look.colour, mew=2)
    axes.set_yticks(range(len(rows)), [row.name for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(left=0)
    if "learnt" in found.limits:
        draw_boundary(axes, found.limits["learnt"], "best at this alignment")
        axes.legend(fontsize=7)
    axes.set_xlabel(f"{found.comparison.measure} ± standard error; bars: signal known")


def _draw_projections(axes: Any, shown: Projections) -> None:
    low, high = np.quantile(np.concatenate([shown.noise, shown.positive]), (0.0005, 0.9995))
    edges = np.linspace(low, high, 50)
    grid = np.linspace(low, high, 300)
    mixture = (1 - shown.share) * normal_density(grid) + shown.share * normal_density(
        grid - shown.shift
    )
    sides = (
        ("without signal", shown.noise, COLOURS["blue"], normal_density(grid)),
        ("with signal", shown.positive, COLOURS["vermilion"], mixture),
    )
    for name, values, colour, density in sides:
        axes.hist(values, bins=edges, density=True, color=colour, alpha=0.25, label=name)
        axes.plot(grid, density, color=colour)
    axes.set_yscale("log")
    axes.set_ylim(bottom=0.2 / len(shown.positive))
    axes.set_xlabel("tokens along the learnt direction")
    axes.set_ylabel("density")
    axes.legend(fontsize=7)
