"""The picture of a plan: outcome against samples for all classifiers, the plan marked."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsetoken.arrays import Array
from sparsetoken.numerics.memory import path_memory
from sparsetoken.planning.best_training import (
    GOALS,
    TOLERANCE,
    TrainingSearch,
    enlarged,
    loss_of,
)
from sparsetoken.planning.plan_search import learnt_ranking
from sparsetoken.plotting import (
    COLOURS,
    LOOKS,
    axes_to_draw_in,
    describe,
    draw_boundary,
    draw_simulation,
    draw_theory,
    look_of,
    styled,
    tidy_log_ticks,
)
from sparsetoken.records import share_text
from sparsetoken.task import Training
from sparsetoken.theory.floor import floor_curve
from sparsetoken.theory.laws import LAWS
from sparsetoken.theory.predictor import predict

if TYPE_CHECKING:
    from sparsetoken.planning.plan import Plan

__all__ = ["draw_plan"]

# Inches: wide enough for a legend at the side.
_SIZE = (7.0, 4.4)
_CHOSEN = ("loss", "ridge", "readout_step", "bias_step", "query_step")
_MULTIPLES = np.geomspace(0.25, 4.0, 13)
# Predictions for a number of samples: far more than a search of one ridge takes.
_MOST_LINEAR = 100


@styled
@path_memory()
def draw_plan(found: "Plan", axes: Any = None) -> Any:
    """Draw a plan and return its axes."""
    training, task = found.training, found.task
    assert training is not None
    assert found.samples is not None
    is_new, axes = axes is None, axes_to_draw_in(axes)
    if is_new:
        axes.figure.set_size_inches(*_SIZE)
        axes.figure.suptitle(_title(found, training), fontsize=8, color="0.35")
    samples = found.samples * _MULTIPLES
    field, _ = GOALS[found.metric]
    outcomes = [
        predict(task, enlarged(training, multiple), tolerance=TOLERANCE) for multiple in _MULTIPLES
    ]
    values = [getattr(one, field) for one in outcomes]
    draw_theory(axes, samples, values, look_of("attention").named("attention,\ntwo-step training"))
    computed = [one.name for one in found.alternatives if one.unknown is None]
    for name in (name for name in computed if name in LAWS):
        draw_theory(axes, samples, _best_linear(found, name, samples), look_of(name))
    if "floor" in computed:
        some = samples[::2] if found.metric == "auc" else samples
        draw_theory(axes, some, _floors(found, some), LOOKS["bayes"], linestyle=":")
    if found.target is not None:
        draw_boundary(axes, found.target, f"target {found.target:g}", vertical=False)
    _mark(axes, found)
    axes.set_xscale("log")
    axes.set_xlabel("samples")
    axes.set_ylabel("test error" if found.metric == "error" else "AUC")
    tidy_log_ticks(axes)
    axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.01, 1.0))
    return axes


def _title(found: "Plan", training: Training) -> str:
    settings = {**found.task.to_dict(), "dimension": found.dimension}
    known = training.to_dict()
    names = (*_CHOSEN, *(["inverse_temperature"] if known["inverse_temperature"] != 1 else []))
    chosen = {name: known[name] for name in names}
    return f"{describe(settings)}\n{'no split' if training.reuse else 'split'}, {describe(chosen)}"


def _best_linear(found: "Plan", name: str, samples: Array) -> list[float]:
    """Return what a classifier without a query reaches with each number of samples, at its best ridge."""
    search = TrainingSearch(found.task, name, found.metric, most=_MOST_LINEAR * len(samples))
    candidate, values = search.start(1.0), []
    for total in samples:
        best = search.best(replace(candidate, alpha=float(total) / found.dimension))
        assert best is not None
        best = search.steadied(best, found.dimension)
        candidate = best.candidate
        values.append(loss_of(found.metric, best.loss))
    return values


def _floors(found: "Plan", samples: Array) -> list[float]:
    """Return what the best of all learners reaches with each number of samples."""
    floors = floor_curve(found.task, values=samples / found.dimension, tolerance=1e-2)
    if found.metric == "error":
        return floors.column("test_error")
    return [1 - learnt_ranking(found.task, m).misranked for m in floors.column("overlap")]


def _mark(axes: Any, found: "Plan") -> None:
    value = found.test_error if found.metric == "error" else found.auc
    samples = float(found.samples or 0)
    axes.plot(samples, value, "D", color=COLOURS["vermilion"], zorder=4, label="plan")
    checked = found.assurance
    if checked is None:
        return
    bars = [[checked.simulated - checked.low], [checked.high - checked.simulated]]
    look = LOOKS["bayes"].named("simulated: mean, and\n80 % of studies")
    draw_simulation(axes, [samples], [checked.simulated], bars, look, "", fmt="o", zorder=5)
    if checked.assured_samples is not None:
        label = f"{share_text(checked.assurance)} of studies\nreach the target"
        draw_boundary(axes, checked.assured_samples, label, color=COLOURS["blue"])
