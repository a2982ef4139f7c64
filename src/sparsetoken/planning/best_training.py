"""The best training for a task by exact predictions: a search with a stated number of them."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sparsetoken.task import Task, Training
from sparsetoken.theory.alignment import learnt_alignment
from sparsetoken.theory.prediction import Prediction, predict

__all__ = [
    "METRICS",
    "MOST_PREDICTIONS",
    "SCHEDULES",
    "TOLERANCE",
    "Candidate",
    "Found",
    "TrainingSearch",
    "enlarged",
    "total_samples",
]

# What a plan may aim at: the field of a prediction, and whether less of it is better.
METRICS = {"error": ("test_error", True), "auc": ("auc", False)}

TOLERANCE = 1e-3
# Predictions of a search at the most.
MOST_PREDICTIONS = 160
# Values within this of the best are as good in practice.
NEARLY = 0.05
_READOUT_STEPS = (0.05, 0.2, 0.5, 1.0, 2.0, 5.0)
_BIAS_STEPS = (0.0, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_LARGEST_ALPHA = 2048.0
_QUERY_STEPS = (1e-9, 1e6)


@dataclass(frozen=True)
class Candidate:
    """A training, by what the search varies.

    Attributes
    ----------
    alpha : float
        All samples, per dimension.
    split : float
        Share of them that teaches the query; of no meaning without a split.
    sharpness : float
        κ = β‖q‖ of the learnt query, which the query step sets.
    ridge, loss, readout_step, bias_step
        As in `Training`.
    schedule : str
        A name of `SCHEDULES`, or "readout only" for classifiers without a query.
    """

    alpha: float
    split: float = 0.5
    sharpness: float = 1.0
    ridge: float = 0.01
    loss: str = "logistic"
    readout_step: float = 0.5
    bias_step: float = 0.5
    schedule: str = "split"

    def training(self, task: Task) -> Training:
        """Return the training, with the query step that gives the sharpness."""
        made = Training(
            **_RATIOS[self.schedule](self),
            loss=self.loss,
            ridge=self.ridge,
            readout_step=self.readout_step,
            bias_step=self.bias_step,
            query_step=1.0,
        )
        unit = learnt_alignment(task, made).sharpness
        if unit == 0:
            return made
        return made.replace(query_step=float(np.clip(self.sharpness / unit, *_QUERY_STEPS)))


def _split(candidate: Candidate) -> dict[str, Any]:
    return {
        "alpha0": candidate.split * candidate.alpha,
        "alpha1": (1 - candidate.split) * candidate.alpha,
    }


def _without_split(candidate: Candidate) -> dict[str, Any]:
    return {"alpha0": candidate.alpha, "alpha1": candidate.alpha, "reuse": True}


def _readout_only(candidate: Candidate) -> dict[str, Any]:
    return {"alpha0": candidate.alpha, "alpha1": candidate.alpha}


# How the samples are shared out between the query and the readout; others have no query.
SCHEDULES = ("split", "no split")
_RATIOS: dict[str, Callable[[Candidate], dict[str, Any]]] = {
    "split": _split,
    "no split": _without_split,
    "readout only": _readout_only,
}


@dataclass(frozen=True)
class Found:
    """A candidate with its prediction; `loss` is what the search makes small."""

    candidate: Candidate
    prediction: Prediction
    loss: float


@dataclass(frozen=True)
class _Axis:
    """A coordinate of the search: how far to step, and between which values."""

    name: str
    step: float
    low: float
    high: float
    factor: bool

    def moved(self, candidate: Candidate, steps: float) -> Candidate:
        value = getattr(candidate, self.name)
        value = value * self.step**steps if self.factor else value + self.step * steps
        change: dict[str, Any] = {self.name: float(np.clip(value, self.low, self.high))}
        return replace(candidate, **change)


# A larger ridge can look slightly better in the limit of high dimension, but leaves a readout so
# short that at a finite one the bias decides, and goes wrong.
_AXES = {
    "sharpness": _Axis("sharpness", 2.0, 0.02, 30.0, factor=True),
    "ridge": _Axis("ridge", 6.0, 1e-6, 0.3, factor=True),
    "split": _Axis("split", 0.2, 0.05, 0.95, factor=False),
}


class TrainingSearch:
    """Predictions for one task and classifier, counted, each setting at most once.

    Parameters
    ----------
    metric : a name of `METRICS`
    most : int
        No more predictions than this; afterwards the best found so far is all there is.
    """

    def __init__(
        self,
        task: Task,
        classifier: str,
        metric: str,
        *,
        most: int = MOST_PREDICTIONS,
        progress: Callable[[], None] = lambda: None,
    ) -> None:
        self.task = task
        self.classifier = classifier
        self.field, self.smaller_is_better = METRICS[metric]
        self.most = most
        self._progress = progress
        self._known: dict[Candidate, Found] = {}

    @property
    def predictions(self) -> int:
        """How many predictions were made."""
        return len(self._known)

    @property
    def exhausted(self) -> bool:
        """Whether no more predictions may be made."""
        return self.predictions >= self.most

    def value(self, loss: float) -> float:
        """Return the metric's value for what is made small."""
        return loss if self.smaller_is_better else 1 - loss

    def at(self, candidate: Candidate) -> Found:
        """Predict one candidate."""
        if candidate not in self._known:
            prediction = predict(
                self.task,
                candidate.training(self.task),
                classifier=self.classifier,
                tolerance=TOLERANCE,
            )
            value = getattr(prediction, self.field)
            loss = value if self.smaller_is_better else 1 - value
            if not np.isfinite(loss) or not prediction.solution.converged:
                loss = np.inf
            self._known[candidate] = Found(candidate, prediction, loss)
            self._progress()
        return self._known[candidate]

    def axes(self, candidate: Candidate) -> list[_Axis]:
        """Return what there is to choose."""
        if self.classifier != "attention":
            return [_AXES["ridge"]]
        names = ["sharpness", "ridge"] + (["split"] if candidate.schedule == "split" else [])
        return [_AXES[name] for name in names]

    def optimum(self, start: Candidate, *, steps: tuple[float, ...] = (1.0, 0.5, 0.25)) -> Found:
        """Return the best found near a start, at its sample ratio: a compass search.

        One coordinate after another moves as long as that helps; then the steps are halved.
        """
        best = self.at(self._with_rates(start))
        for size in steps:
            moving = True
            while moving and not self.exhausted:
                moving = False
                for axis in self.axes(best.candidate):
                    better = self._moved(best, axis, size)
                    moving |= better is not best
                    best = better
        return best

    def _moved(self, best: Found, axis: _Axis, size: float) -> Found:
        for sign in (1, -1):
            tried = self._try(axis.moved(best.candidate, sign * size))
            if tried is not None and tried.loss < best.loss - 1e-7:
                return tried
        return best

    def _try(self, candidate: Candidate) -> Found | None:
        if candidate not in self._known and self.exhausted:
            return None
        return self.at(candidate)

    def _with_rates(self, candidate: Candidate) -> Candidate:
        """Return the candidate with the rates of the two steps that align the query best."""
        if self.classifier != "attention":
            return candidate
        options = [
            replace(candidate, readout_step=readout, bias_step=bias)
            for readout in _READOUT_STEPS
            for bias in (_BIAS_STEPS if self.task.positive_rate != 0.5 else _BIAS_STEPS[2:3])
        ]
        cosines = [
            learnt_alignment(self.task, option.training(self.task)).alignment for option in options
        ]
        best = float(np.max(cosines))
        # Of rates that are as good, the ones nearest to the usual.
        good = [one for one, cosine in zip(options, cosines, strict=True) if cosine > best - 1e-3]
        return min(
            good,
            key=lambda one: abs(np.log(one.readout_step / 0.5)) + abs(one.bias_step - 0.5),
        )

    def start(self, alpha: float, schedule: str = "split") -> Candidate:
        """Return the best of a few sharpnesses at a sample ratio, to begin a search."""
        if self.classifier != "attention":
            return Candidate(alpha, schedule="readout only")
        first = self._with_rates(Candidate(alpha, schedule=schedule))
        tries = [self.at(replace(first, sharpness=value)) for value in (0.3, 1.0, 3.0, 9.0)]
        return min(tries, key=lambda found: found.loss).candidate

    def least_alpha(self, start: Candidate, goal: float) -> Found | None:
        """Return the training of the fewest samples with a loss of at most `goal`.

        None if there is none within reach of the search. Settings are optimised anew on the way, as
        they change slowly with the number of samples.
        """
        best = self.optimum(start)
        below, above = (best, None) if best.loss <= goal else (None, best)
        while (below is None or above is None) and not self.exhausted:
            factor = 2.0 if below is None else 0.5
            alpha = best.candidate.alpha * factor
            if not 1e-3 <= alpha <= _LARGEST_ALPHA:
                break
            best = self.optimum(replace(best.candidate, alpha=alpha), steps=(0.5,))
            below, above = (best, above) if best.loss <= goal else (below, best)
        if below is None or above is None:
            return below
        for steps in ((0.25,), (0.125,)):
            found = self._crossing(below, above, goal)
            improved = self.optimum(found.candidate, steps=steps)
            below, above = self._bracket(improved, goal) or (below, above)
        return self._crossing(below, above, goal)

    def _bracket(self, near: Found, goal: float) -> tuple[Found, Found] | None:
        """Return settings just enough and not quite enough, close to a crossing."""
        sides = []
        for factor in (1.15, 1 / 1.15):
            tried = self._try(replace(near.candidate, alpha=near.candidate.alpha * factor))
            if tried is None:
                return None
            sides.append(tried)
        enough, short = sides
        return (enough, short) if enough.loss <= goal < short.loss else None

    def _crossing(self, enough: Found, short: Found, goal: float) -> Found:
        """Return a training that just reaches the goal, with the settings of `enough`."""
        high = np.log(enough.candidate.alpha)
        low = np.log(short.candidate.alpha)
        high_loss, low_loss = enough.loss, short.loss
        best = enough
        for _ in range(8):
            if high - low < 0.004:
                break
            # The chord's crossing in log loss, kept off the ends.
            slope = np.log(max(low_loss, 1e-12)) - np.log(max(high_loss, 1e-12))
            share = (np.log(low_loss) - np.log(goal)) / slope if slope > 0 else 0.5
            middle = low + float(np.clip(share, 0.1, 0.9)) * (high - low)
            tried = self._try(replace(enough.candidate, alpha=float(np.exp(middle))))
            if tried is None:
                break
            if tried.loss <= goal:
                best, high, high_loss = tried, middle, tried.loss
            else:
                low, low_loss = middle, tried.loss
        return best

    def widths(self, best: Found) -> dict[str, tuple[float, float]]:
        """Return for each setting the range of tried values that are nearly as good as the best."""
        limit = best.loss * (1 + NEARLY) + TOLERANCE
        ranges = {}
        for axis in self.axes(best.candidate):
            ends = [self._end(best, axis, sign, limit) for sign in (-1, 1)]
            ranges[axis.name] = (ends[0], ends[1])
        return ranges

    def _end(self, best: Found, axis: _Axis, sign: int, limit: float) -> float:
        end = getattr(best.candidate, axis.name)
        for steps in (0.5, 1.0, 2.0):
            moved = self._try(axis.moved(best.candidate, sign * steps))
            if moved is None or moved.loss > limit:
                break
            end = getattr(moved.candidate, axis.name)
        return float(end)


def enlarged(training: Training, multiple: float) -> Training:
    """Return the training with that many times the samples, shared out as before."""
    return training.replace(alpha0=training.alpha0 * multiple, alpha1=training.alpha1 * multiple)


def total_samples(training: Training, dimension: int) -> int:
    """Return how many samples a training takes."""
    first, second = round(training.alpha0 * dimension), round(training.alpha1 * dimension)
    return second if training.reuse else first + second
