"""The picture of a forecast: measured errors, the band, the target and the answer."""

from typing import TYPE_CHECKING, Any

import numpy as np

from sparsetoken.planning.curve_posterior import CurvePosterior
from sparsetoken.plotting import (
    COLOURS,
    LOOKS,
    axes_to_draw_in,
    draw_boundary,
    draw_simulation,
    styled,
    tidy_log_ticks,
)
from sparsetoken.records import share_text

if TYPE_CHECKING:
    from sparsetoken.planning.forecast import Forecast

__all__ = ["draw_forecast"]


@styled
def draw_forecast(found: "Forecast", posterior: CurvePosterior, axes: Any = None) -> Any:
    """Draw a forecast and return its axes."""
    curve, last = found.curve, found.outlooks[-1].samples
    axes = axes_to_draw_in(axes, panel_height=3.2)
    look = LOOKS["attention"].named("forecast, 80 % band")
    sizes = np.geomspace(curve.sizes[0], max(last, curve.sizes[-1]), 80)
    low, middle, high = posterior.quantiles(sizes, np.array([0.1, 0.5, 0.9]))
    axes.plot(sizes, middle, color=look.colour, label=look.label)
    axes.fill_between(sizes, low, high, color=look.colour, alpha=0.2, linewidth=0)
    seen = LOOKS["bayes"].named("measured ± standard error")
    draw_simulation(axes, curve.sizes, curve.errors, curve.standard_errors, seen, "", fmt="o")
    draw_boundary(axes, curve.chance, "guessing", vertical=False, color=COLOURS["grey"])
    axes.set_xscale("log")
    axes.set_xlabel("training samples")
    axes.set_ylabel("test error")
    highest = max(curve.guessing, high.max(), np.max(curve.errors + curve.standard_errors))
    axes.set_ylim(0, 1.05 * highest)
    if found.required is not None:
        _mark_answer(axes, found.required)
    axes.set_title(f"{found.model}, {curve.samples:,} samples")
    tidy_log_ticks(axes)
    axes.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)
    return axes


def _mark_answer(axes: Any, required: Any) -> None:
    blue = COLOURS["blue"]
    draw_boundary(axes, required.target, f"target {required.target:g}", vertical=False, color=blue)
    if required.samples is None:
        return
    axes.plot(required.samples, required.target, marker="D", color=blue, linestyle="none", zorder=4)
    axes.annotate(
        f"{required.samples:,} samples,\n{share_text(required.assurance)} sure",
        (required.samples, required.target),
        xytext=(4, 6),
        textcoords="offset points",
        fontsize=7,
        color=blue,
    )
