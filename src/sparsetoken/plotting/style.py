"""Colours, markers and matplotlib settings. The same thing looks the same in every figure."""

from dataclasses import dataclass, replace
from typing import Any

__all__ = ["COLOURS", "LOOKS", "SERIES", "STYLE", "Look", "look_of"]

# Okabe and Ito's palette, told apart with every common kind of colour vision.
COLOURS = {
    "black": "#000000",
    "orange": "#E69F00",
    "sky": "#56B4E9",
    "green": "#009E73",
    "yellow": "#F0E442",
    "blue": "#0072B2",
    "vermilion": "#D55E00",
    "purple": "#CC79A7",
    "grey": "#666666",
}


@dataclass(frozen=True)
class Look:
    """How one thing is drawn: its label, colour and marker."""

    label: str
    colour: str
    marker: str

    def named(self, label: str) -> "Look":
        """Return the same look under another label."""
        return replace(self, label=label)


LOOKS = {
    "attention": Look("attention", COLOURS["vermilion"], "o"),
    "pooled": Look("pooled linear", COLOURS["blue"], "s"),
    "vectorised": Look("vectorised linear", COLOURS["green"], "^"),
    "bayes": Look("Bayes floor", COLOURS["black"], "*"),
    "message_passing": Look("message passing", COLOURS["sky"], "D"),
    "elementwise": Look("element-wise, sigmoid", COLOURS["purple"], "D"),
    "sigmoid": Look("element-wise, sigmoid", COLOURS["purple"], "D"),
    "tanh": Look("element-wise, tanh", COLOURS["sky"], "v"),
    "linear": Look("element-wise, linear", COLOURS["orange"], "P"),
    "exp": Look("element-wise, exp", COLOURS["grey"], "X"),
    "query": Look("query", COLOURS["vermilion"], "o"),
    "readout": Look("readout after one step", COLOURS["blue"], "s"),
}

# For families of curves that are not classifiers (dimensions, rates), in order.
SERIES = tuple(
    Look("", COLOURS[colour], marker)
    for colour, marker in (
        ("sky", "v"),
        ("orange", "D"),
        ("purple", "P"),
        ("black", "X"),
        ("grey", "h"),
    )
)

STYLE: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.labelsize": 9,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 9,
    "axes.unicode_minus": True,
    "errorbar.capsize": 0,
    "figure.facecolor": "white",
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.5,
    "image.cmap": "cividis",
    "legend.fontsize": 8,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
    "mathtext.fontset": "dejavusans",
    "pdf.fonttype": 42,
    "savefig.dpi": 200,
    # A fixed salt makes the identifiers in an SVG, and so the whole file, the same in every run.
    "svg.fonttype": "path",
    "svg.hashsalt": "sparsetoken",
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
}


def look_of(name: str) -> Look:
    """Return the look of a classifier, a non-linearity or a vector of the training.

    A name without a look of its own gets one of `SERIES`, always the same.
    """
    if name in LOOKS:
        return LOOKS[name]
    return SERIES[sum(name.encode()) % len(SERIES)].named(name.replace("_", " "))
