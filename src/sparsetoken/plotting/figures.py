"""Make and save figures without pyplot: no global state, no display."""

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure, FigureBase

from sparsetoken.files import replacing
from sparsetoken.plotting.style import STYLE
from sparsetoken.validation import ParameterError, choice

__all__ = [
    "axes_to_draw_in",
    "caption",
    "describe",
    "named",
    "new_figure",
    "panels_to_draw_in",
    "save_figure",
    "shared_legend",
    "styled",
]

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")

COLUMN_WIDTH = 3.4
PANEL_HEIGHT = 2.7

# Nothing that changes from run to run may enter a file.
_METADATA: dict[str, dict[str, Any]] = {
    "svg": {"Date": None, "Creator": "sparsetoken"},
    "pdf": {"CreationDate": None, "ModDate": None, "Creator": "sparsetoken", "Producer": None},
    "png": {"Software": "sparsetoken"},
}

SYMBOLS = {
    "length": "L",
    "informative": "R",
    "strength": "θ",
    "positive_rate": "π",
    "alpha": "α",
    "alpha0": "α0",
    "alpha1": "α1",
    "loss": "loss",
    "ridge": "λ",
    "readout_step": "η_w",
    "bias_step": "η_b",
    "query_step": "η_q",
    "inverse_temperature": "β",
    "alignment": "γ",
    "sharpness": "κ",
    "dimension": "d",
    "trials": "trials",
}


def styled(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Run a drawing function in the package's style and leave the caller's style as it was."""

    @wraps(function)
    def in_style(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
        with mpl.rc_context():
            mpl.rcParams.update({**_defaults(), **STYLE})
            return function(*args, **kwargs)

    return in_style


def _defaults() -> dict[Any, Any]:
    # Naming the backend would choose one, which imports pyplot.
    return {
        name: value for name, value in mpl.rcParamsDefault.items() if not name.startswith("backend")
    }


@styled
def new_figure(
    columns: int = 1, rows: int = 1, panel_height: float = PANEL_HEIGHT, **options: Any
) -> tuple[Figure, list[Axes]]:
    """Return a figure of `rows` x `columns` panels, each a journal column wide, row by row."""
    figure = Figure(figsize=(COLUMN_WIDTH * columns, panel_height * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, **options)
    return figure, list(grid.flat)


def axes_to_draw_in(axes: Any, **options: Any) -> Any:
    """Return the axes that a caller gave, or those of a new figure."""
    if axes is None:
        return new_figure(**options)[1][0]
    if not isinstance(axes, Axes):
        raise ParameterError("axes", axes, "axes of matplotlib, or None")
    return axes


def panels_to_draw_in(figure: Any, columns: int, **options: Any) -> tuple[Any, list[Axes]]:
    """Return the figure that a caller gave, or a new one, with panels side by side."""
    if figure is None:
        return new_figure(columns=columns, **options)
    if not isinstance(figure, FigureBase):
        raise ParameterError("figure", figure, "a figure of matplotlib, or None")
    return figure, list(figure.subplots(1, columns, squeeze=False).flat)


@styled
def shared_legend(figure: Figure, columns: int = 3, axes: Iterable[Axes] | None = None) -> None:
    """Put one legend above all panels, with each label once, in as many columns as there is room for."""
    entries: dict[str, Any] = {}
    for panel in figure.axes if axes is None else axes:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    for count in range(columns, 0, -1):
        legend = figure.legend(
            list(entries.values()), list(entries), loc="outside upper center", ncols=count
        )
        if count == 1 or legend.get_window_extent().width <= figure.bbox.width:
            return
        legend.remove()


@styled
def save_figure(
    figure: Figure, stem: str | Path, formats: Iterable[str] = ("svg", "pdf")
) -> list[Path]:
    """Write the figure as `stem`.svg and so on, byte for byte the same in every run."""
    paths = []
    for name in formats:
        path = Path(f"{stem}.{choice('format', name, _METADATA)}")
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path, binary=True) as file:
            figure.savefig(file, format=name, metadata=_METADATA[name])
        paths.append(path)
    return paths


def describe(settings: Mapping[str, Any]) -> str:
    """Return settings as "L = 10, R = 1, θ = 5", by their symbols, without those that are off."""
    return ", ".join(
        f"{SYMBOLS.get(name, name.replace('_', ' '))} = {_shown(value)}"
        for name, value in settings.items()
        if value is not None and value is not False
    )


def named(field: str) -> str:
    """Return "strength (θ)": a field with its symbol, for an axis."""
    words, symbol = field.replace("_", " "), SYMBOLS.get(field)
    return f"{words} ({symbol})" if symbol and symbol != words else words


def caption(subject: str, settings: Mapping[str, Any], trials: int | None = None) -> str:
    """Return a caption: what is shown, at which settings, and what lines and markers mean."""
    parts = [subject.rstrip(".") + "."]
    if settings:
        parts.append(describe(settings) + ".")
    if trials is not None:
        parts.append(
            f"Lines: theory. Markers: simulation, mean and standard error of {trials} trials."
        )
    return " ".join(parts)


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        return f"({', '.join(map(_shown, value))})"
    if isinstance(value, Mapping):
        return "; ".join(f"{name}: {_shown(part)}" for name, part in value.items())
    return str(value)
