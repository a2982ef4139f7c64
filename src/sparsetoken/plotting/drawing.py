"""What goes on an axis: theory lines, simulation markers, references and boundaries."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullFormatter
from numpy.typing import ArrayLike

from sparsetoken.plotting.figures import styled
from sparsetoken.plotting.style import COLOURS, Look

__all__ = [
    "draw_band",
    "draw_boundary",
    "draw_reference",
    "draw_simulation",
    "draw_theory",
    "show_whole_markers",
    "tidy_log_ticks",
]

# A marker is so near the frame, as a share of the panel, that it may reach across.
_NEAR = 0.03


@styled
def draw_theory(
    axes: Axes, x: ArrayLike, y: ArrayLike, look: Look, label: str | None = "", **options: Any
) -> None:
    """Draw a theory curve, a solid line. `label` "" takes the look's own, None gives none."""
    order = np.argsort(x)
    axes.plot(
        np.asarray(x)[order],
        np.asarray(y)[order],
        **{"color": look.colour, "label": look.label if label == "" else label, **options},
    )


@styled
def draw_band(
    axes: Axes, x: ArrayLike, y: ArrayLike, uncertainty: ArrayLike, look: Look, **options: Any
) -> None:
    """Draw a theory curve with the band of its numerical error."""
    draw_theory(axes, x, y, look, **options)
    order = np.argsort(x)
    points, middle, bars = (np.asarray(part, dtype=float)[order] for part in (x, y, uncertainty))
    axes.fill_between(
        points, middle - bars, middle + bars, alpha=0.25, color=look.colour, linewidth=0
    )


@styled
def draw_simulation(
    axes: Axes,
    x: ArrayLike,
    mean: ArrayLike,
    standard_error: ArrayLike | None,
    look: Look,
    label: str | None = None,
    **options: Any,
) -> None:
    """Draw simulated means as markers with their standard errors as bars."""
    axes.errorbar(
        np.asarray(x),
        np.asarray(mean),
        yerr=None if standard_error is None else np.asarray(standard_error),
        **{
            "fmt": look.marker,
            "color": look.colour,
            "markerfacecolor": "white",
            "markeredgewidth": 1.1,
            "elinewidth": 1.1,
            "label": look.label if label == "" else label,
            "zorder": 3,
            **options,
        },
    )


@styled
def draw_reference(
    axes: Axes, x: ArrayLike, y: ArrayLike, label: str | None = None, **options: Any
) -> None:
    """Draw a guide for the eye, such as a power law: a thin dotted line."""
    axes.plot(
        np.asarray(x),
        np.asarray(y),
        **{
            "color": COLOURS["grey"],
            "linestyle": ":",
            "linewidth": 1.0,
            "label": label,
            **options,
        },
    )


@styled
def draw_boundary(
    axes: Axes, position: float, label: str | None = None, vertical: bool = True, **options: Any
) -> None:
    """Draw a predicted threshold or optimum: a thin dashed line across the panel."""
    draw = axes.axvline if vertical else axes.axhline
    draw(
        position,
        **{
            "color": COLOURS["black"],
            "linestyle": "--",
            "linewidth": 1.0,
            "label": label,
            **options,
        },
    )


def show_whole_markers(axes: Axes) -> None:
    """Let the frame cut no marker that lies on it, once all is drawn and the limits are final."""
    for line in axes.get_lines():
        if line.get_marker() in ("None", "", " ", None):
            continue
        places = axes.transLimits.transform(axes.transScale.transform(line.get_xydata()))
        to_frame = np.minimum(places, 1 - places)
        # What lies beyond the limits stays hidden.
        if np.any(to_frame < _NEAR) and np.all(to_frame > -1e-9):
            line.set_clip_on(False)


def tidy_log_ticks(axes: Axes) -> None:
    """Label logarithmic axes of few decades with plain numbers, once all is drawn.

    They stand at 1, 2 and 5, and at even steps where the axis spans less than a factor of five.
    """
    for axis, limits in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
        if axis.get_scale() != "log" or isinstance(axis.get_major_locator(), FixedLocator):
            continue
        low, high = sorted(limits)
        decades = np.log10(high / low)
        # A tick without a free number in its label is more readable than a power of ten.
        axis.set_minor_formatter(NullFormatter())
        if low >= 5e-4 and high <= 5e4 and decades <= 4:
            subs = (1, 2, 5) if decades < 1.7 else (1,)
            steps = MaxNLocator(5, steps=[1, 2, 5, 10])
            axis.set_major_locator(LogLocator(subs=subs) if decades > 0.7 else steps)
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
