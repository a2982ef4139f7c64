"""The one figure style: theory as solid lines, simulation as markers with error bars."""

from sparsetoken.plotting.drawing import (
    draw_band,
    draw_boundary,
    draw_reference,
    draw_simulation,
    draw_theory,
    tidy_log_ticks,
)
from sparsetoken.plotting.figures import (
    caption,
    describe,
    named,
    new_figure,
    save_figure,
    shared_legend,
    styled,
    svg_text,
)
from sparsetoken.plotting.style import COLOURS, LOOKS, STYLE, Look, look_of

__all__ = [
    "COLOURS",
    "LOOKS",
    "STYLE",
    "Look",
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
    "save_figure",
    "shared_legend",
    "styled",
    "svg_text",
    "tidy_log_ticks",
]
