"""What happens to a plan if a setting is not as planned."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from sparsetoken.numerics.threads import one_thread
from sparsetoken.planning.best_training import (
    COARSE,
    FEWEST_SAMPLES,
    GOALS,
    TOLERANCE,
    drawn_shares,
    enlarged,
    loss_of,
    mean_over_shares,
    positive_rates_nearby,
    total_samples,
)
from sparsetoken.planning.crossing import least_enough
from sparsetoken.planning.parallel import finished
from sparsetoken.records import Record, rate_text
from sparsetoken.task import Task, Training, vary
from sparsetoken.theory.alignment import align
from sparsetoken.theory.predictor import Predictor
from sparsetoken.theory.usage import Usage
from sparsetoken.validation import ParameterError

__all__ = ["MOST_SENSITIVITY", "Sensitivity", "anti_alignments", "sensitivities"]

# By how much a setting may be off: what nature chose by a little, what is set by more.
_FACTORS = {
    "strength": (0.8, 1.25),
    "query_step": (0.5, 2.0),
    "ridge": (0.1, 10.0),
    "readout_step": (0.5, 2.0),
    "bias_step": (0.5, 2.0),
}
# What nature chose, so that the number of samples is all that can answer it.
_OF_THE_TASK = ("strength", "positive_rate", "informative")
# The needed samples are sought up to this multiple of the planned ones, to this share, with so many
# predictions at the most.
_LARGEST_MULTIPLE = 64.0
_ACCURACY = 0.03
_MOST_MULTIPLES = 12
MOST_SENSITIVITY = 1 + 2 * (len(_FACTORS) + 2) + 2 * len(_OF_THE_TASK) * _MOST_MULTIPLES + 2
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
        Test error (or AUC) with them, the training unchanged. With a larger ridge it is the mean over
        the shares of positives that chance draws: most of what goes wrong then, and not seen in the
        limit of high dimension.
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
            f"{end:.3g}: {rate_text(value)}{_needed_text(samples) if asked else ''}"
            for end, value, samples in ends
            if end != self.planned
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
) -> tuple[list[Sensitivity], int]:
    """Return what each setting does, the one that matters most first, and how many predictions."""
    planned = _Outcomes(metric).loss(task, training)
    calls = [
        partial(_one, task, training, metric, planned, setting, ends, target, dimension)
        for setting, ends in _neighbours(task, training).items()
    ]
    found = [result for _, result in finished(calls, workers)]
    ordered = sorted((one for one, _ in found), key=lambda one: (-one.effect, one.setting))
    return ordered, 1 + sum(count for _, count in found)


class _Outcomes:
    """Losses (errors, or 1 - AUC) of trainings, each prediction begun from the one before."""

    def __init__(self, metric: str) -> None:
        self._metric = metric
        self._fine = Predictor("attention", None, Usage(), TOLERANCE)
        self._coarse = Predictor("attention", None, Usage(), COARSE)
        self.predictions = 0

    def loss(self, task: Task, training: Training, *, coarse: bool = False) -> float:
        """Predict one training; coarsely where the answer is read off many."""
        return self._by(self._coarse if coarse else self._fine, task, training)

    def mean_loss(self, task: Task, training: Training, dimension: int, middle: float) -> float:
        """Return the mean over the shares of positives that samples in `dimension` have.

        `middle` is the loss where that share is the rate.
        """
        sides = []
        for share in drawn_shares(task.positive_rate, training.alpha1 * dimension):
            path = Predictor("attention", None, Usage(at=task), TOLERANCE)
            sides.append(self._by(path, task.replace(positive_rate=share), training))
        return mean_over_shares(sides, middle)

    def _by(self, path: Predictor, task: Task, training: Training) -> float:
        self.predictions += 1
        with one_thread:
            value = float(getattr(path.predict(task, training), GOALS[self._metric][0]))
        return loss_of(self._metric, value)


def _one(
    task: Task,
    training: Training,
    metric: str,
    planned: float,
    setting: str,
    ends: tuple[float, float],
    target: float | None,
    dimension: int,
) -> tuple[Sensitivity, int]:
    """Return what one setting does, and how many predictions it took to know."""
    outcomes = _Outcomes(metric)
    sides = [vary(setting, end, task, training) for end in ends]
    losses = [
        planned if varied[:2] == (task, training) else outcomes.loss(varied[0], varied[1])
        for varied in sides
    ]
    if setting == "ridge":
        losses[1] = outcomes.mean_loss(task, sides[1][1], dimension, losses[1])
    samples: list[int | None] = [None, None]
    if target is not None and setting in _OF_THE_TASK:
        goal = loss_of(metric, target)
        samples = [
            total_samples(training, dimension)
            if varied[0] == task
            else _samples_needed(varied[0], training, outcomes, goal, dimension)
            for varied in sides
        ]
    found = Sensitivity(
        setting=setting,
        low=float(ends[0]),
        planned=float({**task.to_dict(), **training.to_dict()}[setting]),
        high=float(ends[1]),
        value_low=loss_of(metric, losses[0]),
        value_high=loss_of(metric, losses[1]),
        effect=max(abs(loss - planned) for loss in losses) / max(planned, 1e-12),
        samples_low=samples[0],
        samples_high=samples[1],
    )
    return found, outcomes.predictions


def _samples_needed(
    task: Task, training: Training, outcomes: _Outcomes, goal: float, dimension: int
) -> int | None:
    """Return the samples with which a training reaches the goal; None if none are enough."""
    fewest = min(FEWEST_SAMPLES / total_samples(training, dimension), 1.0)
    multiple = least_enough(
        lambda multiple: outcomes.loss(task, enlarged(training, multiple), coarse=True),
        goal,
        1.0,
        bounds=(max(1 / _LARGEST_MULTIPLE, fewest), _LARGEST_MULTIPLE),
        accuracy=_ACCURACY,
        most=_MOST_MULTIPLES,
    )
    return None if multiple is None else total_samples(enlarged(training, multiple), dimension)


def _neighbours(task: Task, training: Training) -> dict[str, tuple[float, float]]:
    """Return the values to try for each setting, those that are possible."""
    planned = {**task.to_dict(), **training.to_dict()}
    tried: dict[str, tuple[float, float]] = {}
    for setting, factors in _FACTORS.items():
        low, high = (planned[setting] * factor for factor in factors)
        if low < high:
            tried[setting] = (low, high)
    tried["positive_rate"] = positive_rates_nearby(task.positive_rate)
    possible = {
        setting: ends
        for setting, ends in tried.items()
        if all(_is_possible(setting, end, task, training) for end in ends)
    }
    if isinstance(task.informative, int):
        fewer, more = max(task.informative - 1, 1), min(task.informative + 1, task.length - 1)
        if fewer < more:
            possible["informative"] = (fewer, more)
    return possible


def _is_possible(setting: str, value: float, task: Task, training: Training) -> bool:
    try:
        vary(setting, value, task, training)
    except ParameterError:
        return False
    return True


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
            varied = align(*vary(setting, end, task, training))
            if varied.anti_aligned:
                yield (
                    f"With a {setting.replace('_', ' ')} of {end:.3g} the query would point away "
                    f"from the signal: {varied.cause}. {_remedy(varied.cure)}"
                )


def _remedy(cure: str | None) -> str:
    return f"Cure: {cure}." if cure else "No step alone cures it."
