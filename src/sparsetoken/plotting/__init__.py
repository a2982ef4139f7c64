"""The one figure style: theory as solid lines, simulation as markers with error bars."""

from sparsetoken.plotting.drawing import (
    draw_band,
    draw_boundary,
    draw_reference,
    draw_simulation,
    draw_theory,
    show_whole_markers,
    tidy_log_ticks,
)
from sparsetoken.plotting.figures import (
    axes_to_draw_in,
    caption,
    describe,
    named,
    new_figure,
    panels_to_draw_in,
    save_figure,
    shared_legend,
    styled,
)
from sparsetoken.plotting.style import COLOURS, LOOKS, STYLE, Look, look_of

__all__ = [
    "COLOURS",
    "LOOKS",
    "STYLE",
    "Look",
    "axes_to_draw_in",
    "caption",
    "describe",
    "draw_band",
    "draw_boundary",
    "draw_reference",
    "draw_simulation",
    "draw_theory",
    "look_of",
    "named",
    "new_figure",
    "panels_to_draw_in",
    "save_figure",
    "shared_legend",
    "show_whole_markers",
    "styled",
    "tidy_log_ticks",
]
