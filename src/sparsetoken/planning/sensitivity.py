"""What happens to a plan if a setting is not as planned."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.optimize import brentq

from sparsetoken.planning.best_training import METRICS, TOLERANCE, enlarged, total_samples
from sparsetoken.planning.parallel import finished
from sparsetoken.records import Record
from sparsetoken.task import Task, Training, vary
from sparsetoken.theory.alignment import align
from sparsetoken.theory.prediction import predict
from sparsetoken.validation import ParameterError

__all__ = ["Sensitivity", "anti_alignments", "sensitivities"]

# By how much a setting may be off: what nature chose by a little, what is set by more.
_FACTORS = {
    "strength": (0.8, 1.25),
    "positive_rate": (0.8, 1.25),
    "query_step": (0.5, 2.0),
    "ridge": (0.1, 10.0),
    "readout_step": (0.5, 2.0),
    "bias_step": (0.5, 2.0),
}
# What nature chose, so that the number of samples is all that can answer it.
_OF_THE_TASK = ("strength", "positive_rate", "informative")
# The needed samples are sought up to this multiple of the planned ones, to this share.
_LARGEST_MULTIPLE = 64.0
_LOG_ACCURACY = 0.03
_RISKY = ("strength", "positive_rate", "readout_step", "bias_step")


@dataclass(frozen=True)
class Sensitivity(Record):
    """The outcome with one setting below and above its planned value.

    Attributes
    ----------
    setting : str
    low, planned, high : float
        Its values.
    value_low, value_high : float
        Test error (or AUC) with them, the training unchanged.
    effect : float
        The larger change from the planned outcome, as a share of it.
    samples_low, samples_high : int or None
        Samples that the target then takes with the planned training: for a target, and for settings
        of the task. None where 64 times the planned samples are not enough, or where nothing was
        asked.
    """

    setting: str
    low: float
    planned: float
    high: float
    value_low: float
    value_high: float
    effect: float
    samples_low: int | None = None
    samples_high: int | None = None

    def __str__(self) -> str:
        ends = (
            (self.low, self.value_low, self.samples_low),
            (self.high, self.value_high, self.samples_high),
        )
        asked = self.samples_low is not None or self.samples_high is not None
        shown = [
            f"{end:.3g}: {value:.4f}{_needed_text(samples) if asked else ''}"
            for end, value, samples in ends
        ]
        return f"{self.setting.replace('_', ' '):14} {', '.join(shown)}"


def _needed_text(samples: int | None) -> str:
    return " (target out of reach)" if samples is None else f" (target: {samples:,} samples)"


def sensitivities(
    task: Task,
    training: Training,
    metric: str,
    *,
    target: float | None,
    dimension: int,
    workers: int = 1,
) -> list[Sensitivity]:
    """Return what each setting does, the one that matters most first."""
    planned = _value(task, training, metric)
    calls = [
        partial(_one, task, training, metric, planned, setting, ends, target, dimension)
        for setting, ends in _neighbours(task, training).items()
    ]
    found = dict(finished(calls, workers))
    return sorted((found[index] for index in range(len(calls))), key=lambda one: -one.effect)


def _one(
    task: Task,
    training: Training,
    metric: str,
    planned: float,
    setting: str,
    ends: tuple[float, float],
    target: float | None,
    dimension: int,
) -> Sensitivity:
    """Return what one setting does."""
    sides = [vary(setting, end, task, training) for end in ends]
    below, above = (_value(varied[0], varied[1], metric) for varied in sides)
    samples: list[int | None] = [None, None]
    if target is not None and setting in _OF_THE_TASK:
        samples = [
            _samples_needed(varied[0], varied[1], metric, target, dimension) for varied in sides
        ]
    return Sensitivity(
        setting=setting,
        low=ends[0],
        planned={**task.to_dict(), **training.to_dict()}[setting],
        high=ends[1],
        value_low=below,
        value_high=above,
        effect=max(abs(below - planned), abs(above - planned)) / max(planned, 1e-12),
        samples_low=samples[0],
        samples_high=samples[1],
    )


def _value(task: Task, training: Training, metric: str) -> float:
    return float(getattr(predict(task, training, tolerance=TOLERANCE), METRICS[metric][0]))


def _samples_needed(
    task: Task, training: Training, metric: str, target: float, dimension: int
) -> int | None:
    """Return the samples with which a training reaches the target; None if none are enough."""
    sign = 1 if METRICS[metric][1] else -1

    def excess(multiple: float) -> float:
        return sign * (_value(task, enlarged(training, multiple), metric) - target)

    multiple = _least_multiple(excess)
    return None if multiple is None else total_samples(enlarged(training, multiple), dimension)


def _least_multiple(excess: Callable[[float], float]) -> float | None:
    """Return the multiple of the planned samples at which an excess over the target ends.

    None if it has not ended at the largest multiple. The excess is taken to fall with the samples.
    """
    first = excess(1.0)
    factor = 0.25 if first <= 0 else 4.0
    here, last = 1.0, first
    while (last <= 0) == (first <= 0):
        if not 1 / _LARGEST_MULTIPLE < here < _LARGEST_MULTIPLE:
            return here if first <= 0 else None
        here *= factor
        last = excess(here)
    ends = np.log(here), np.log(here / factor)
    return float(np.exp(brentq(lambda log: excess(np.exp(log)), *ends, xtol=_LOG_ACCURACY)))


def _neighbours(task: Task, training: Training) -> dict[str, tuple[float, float]]:
    """Return the values to try for each setting, those that are possible."""
    planned = {**task.to_dict(), **training.to_dict()}
    tried: dict[str, tuple[float, float]] = {}
    for setting, factors in _FACTORS.items():
        ends = tuple(planned[setting] * factor for factor in factors)
        if setting == "positive_rate":
            ends = (ends[0], min(ends[1], 1 - 0.8 * (1 - planned[setting])))
        if ends[0] < ends[1]:
            tried[setting] = (ends[0], ends[1])
    if isinstance(task.informative, int):
        fewer, more = max(task.informative - 1, 1), min(task.informative + 1, task.length - 1)
        if fewer < more:
            tried["informative"] = (fewer, more)
    return tried


def anti_alignments(task: Task, training: Training) -> Iterator[str]:
    """Yield a warning if the query points away from the signal, or would if little were otherwise."""
    now = align(task, training)
    if now.anti_aligned:
        yield f"The query points away from the signal: {now.cause}. {_remedy(now.cure)}"
        return
    for setting, ends in _neighbours(task, training).items():
        if setting not in _RISKY:
            continue
        for end in ends:
            try:
                varied = align(*vary(setting, end, task, training))
            except ParameterError:
                continue
            if varied.anti_aligned:
                yield (
                    f"With a {setting.replace('_', ' ')} of {end:.3g} the query would point away "
                    f"from the signal: {varied.cause}. {_remedy(varied.cure)}"
                )


def _remedy(cure: str | None) -> str:
    return f"Cure: {cure}." if cure else "No step alone cures it."
