"""What happens to a plan if a setting is not as planned."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sparsetoken.planning.best_training import METRICS, TOLERANCE
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
    """

    setting: str
    low: float
    planned: float
    high: float
    value_low: float
    value_high: float
    effect: float

    def __str__(self) -> str:
        return (
            f"{self.setting.replace('_', ' '):14} {self.low:.3g}: {self.value_low:.4f}, "
            f"{self.high:.3g}: {self.value_high:.4f}"
        )


def sensitivities(task: Task, training: Training, metric: str) -> list[Sensitivity]:
    """Return what each setting does, the one that matters most first."""
    name, _ = METRICS[metric]

    def value(settings: tuple[Any, ...]) -> float:
        return float(getattr(predict(*settings, tolerance=TOLERANCE), name))

    planned = value((task, training))
    found = []
    for setting, (low, high) in _neighbours(task, training).items():
        below, above = (value(vary(setting, end, task, training)) for end in (low, high))
        effect = max(abs(below - planned), abs(above - planned)) / max(planned, 1e-12)
        centre = {**task.to_dict(), **training.to_dict()}[setting]
        found.append(Sensitivity(setting, low, centre, high, below, above, effect))
    return sorted(found, key=lambda one: -one.effect)


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
