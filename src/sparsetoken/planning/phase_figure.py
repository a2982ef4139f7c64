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
from sparsetoken.task import ALL_SAMPLES

if TYPE_CHECKING:
    from sparsetoken.planning.phase_map import PhaseMap

__all__ = ["draw_phase_map"]


@styled
def draw_phase_map(found: "PhaseMap", level: float, figure: Any = None) -> Any:
    """Draw a panel for each classifier with its contour, and one of what sets them apart, if any."""
    names = list(found.errors)
    compared = len(names) > 1 or found.capacities is not None
    count = len(names) + compared
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
    figure.colorbar(image, ax=panels[len(names) - 1], label="test error")
    if compared:
        _draw_winners(panels[-1], found, level)
    for axes in panels:
        axes.grid(visible=False)
        axes.set_xlabel(named(found.x))
        for side, values in (("x", found.x_values), ("y", found.y_values)):
            if _by_factors(values):
                getattr(axes, f"set_{side}scale")("log")
        tidy_log_ticks(axes)
    panels[0].set_ylabel(named(found.y))
    title = f"{_fixed(found)}; white line: error {level:g}"
    figure.suptitle(title, fontsize=7, wrap=True)
    return figure


def _fixed(found: "PhaseMap") -> str:
    """Return what does not vary, in words."""
    settings = {**found.task.to_dict(), **found.training.to_dict()}
    varied = {found.x, found.y}
    shared = ""
    if ALL_SAMPLES in varied:
        varied |= {"alpha0", "alpha1"}
        if not found.training.reuse:
            shared = f", α0 = {found.training.alpha0 / found.training.alpha:.3g} α"
    fixed = {name: value for name, value in settings.items() if name not in varied}
    return describe(fixed) + shared


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
    for name in names:
        axes.plot([], [], "s", color=look_of(name).colour, alpha=0.55, label=look_of(name).label)
    lines = []
    if "attention" in found.errors:
        errors = found.errors["attention"]
        lines.append((f"attention: error {level:g}", errors, level, "-"))
        if "pooled" in found.errors:
            lines.append(("attention = pooling", errors - found.errors["pooled"], 0.0, ":"))
    if found.capacities is not None:
        lines.append(("capacity of attention", found.capacities, 1.0, "--"))
    for label, values, height, style in lines:
        if _contour(axes, found, values, height, COLOURS["black"], linestyles=style):
            axes.plot([], [], color=COLOURS["black"], linestyle=style, label=label)
    # Beside the panel: within it, it would hide what is drawn.
    axes.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.01, 1.0))
    axes.set_title("who wins" if len(names) > 1 else "capacity")


def _contour(
    axes: Any, found: "PhaseMap", values: Any, level: float, colour: str, **options: Any
) -> bool:
    """Draw where values cross a level; return whether they do."""
    finite = values[np.isfinite(values)]
    crossed = bool(len(finite) and finite.min() < level < finite.max())
    if crossed:
        axes.contour(
            found.x_values, found.y_values, values, levels=[level], colors=[colour], **options
        )
    return crossed


def _by_factors(values: Any) -> bool:
    """Return whether values grow by factors rather than by equal steps."""
    if values[0] <= 0 or len(values) < 3:
        return False
    return bool(np.std(np.diff(np.log(values))) < np.std(np.diff(values)) / values.mean())
