"""The picture of a phase map: errors of the classifiers, and who wins."""

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.colors import ListedColormap

from sparsetoken.plotting import (
    COLOURS,
    describe,
    look_of,
    named,
    panels_to_draw_in,
    styled,
    tidy_log_ticks,
)

if TYPE_CHECKING:
    from sparsetoken.planning.phase_map import PhaseMap

__all__ = ["draw_phase_map"]


@styled
def draw_phase_map(found: "PhaseMap", level: float, figure: Any = None) -> Any:
    """Draw a panel for each classifier with its contour, and one of the winners."""
    count = len(found.errors) + 1
    figure, panels = panels_to_draw_in(figure, count, panel_height=3.0)
    top = max(0.5, *(float(np.nanmax(values)) for values in found.errors.values()))
    for axes, (name, values) in zip(panels, found.errors.items(), strict=False):
        image = axes.pcolormesh(
            found.x_values,
            found.y_values,
            values,
            vmin=0,
            vmax=top,
            shading="nearest",
            rasterized=True,
        )
        _contour(axes, found, values, level, "white")
        axes.set_title(look_of(name).label)
    figure.colorbar(image, ax=panels[count - 2], label="test error")
    _draw_winners(panels[-1], found, level)
    for axes in panels:
        axes.grid(visible=False)
        axes.set_xlabel(named(found.x))
        for side, values in (("x", found.x_values), ("y", found.y_values)):
            if _by_factors(values):
                getattr(axes, f"set_{side}scale")("log")
        tidy_log_ticks(axes)
    panels[0].set_ylabel(named(found.y))
    varied = (found.x, found.y, *(("alpha0", "alpha1") if "alpha" in (found.x, found.y) else ()))
    settings = {**found.task.to_dict(), **found.training.to_dict()}
    fixed = {name: value for name, value in settings.items() if name not in varied}
    figure.suptitle(f"{describe(fixed)}; line: error {level:g}", fontsize=7)
    return figure


def _draw_winners(axes: Any, found: "PhaseMap", level: float) -> None:
    names = list(found.errors)
    codes = np.searchsorted(names, found.winners, sorter=np.argsort(names))
    codes = np.argsort(names)[codes]
    colours = ListedColormap([look_of(name).colour for name in names])
    axes.pcolormesh(
        found.x_values,
        found.y_values,
        codes,
        cmap=colours,
        vmin=-0.5,
        vmax=len(names) - 0.5,
        alpha=0.55,
        shading="nearest",
        rasterized=True,
    )
    drawn = []
    if "attention" in found.errors:
        _contour(axes, found, found.errors["attention"], level, COLOURS["black"])
        if "pooled" in found.errors:
            drawn.append("dotted: attention = pooling")
            gain = found.errors["attention"] - found.errors["pooled"]
            _contour(axes, found, gain, 0.0, COLOURS["black"], linestyles=":")
    if found.capacities is not None:
        drawn.append("dashed: capacity")
        _contour(axes, found, found.capacities, 1.0, COLOURS["black"], linestyles="--")
    for name in names:
        axes.plot([], [], "s", color=look_of(name).colour, alpha=0.55, label=look_of(name).label)
    axes.legend(fontsize=6, loc="lower left", frameon=True)
    title = f"who wins; {', '.join(drawn)}".removesuffix("; ")
    axes.set_title(title, fontsize=9 - len(drawn))


def _contour(
    axes: Any, found: "PhaseMap", values: Any, level: float, colour: str, **options: Any
) -> None:
    finite = values[np.isfinite(values)]
    if len(finite) and finite.min() < level < finite.max():
        axes.contour(
            found.x_values, found.y_values, values, levels=[level], colors=[colour], **options
        )


def _by_factors(values: Any) -> bool:
    """Return whether values grow by factors rather than by equal steps."""
    if values[0] <= 0 or len(values) < 3:
        return False
    return bool(np.std(np.diff(np.log(values))) < np.std(np.diff(values)) / values.mean())
