"""The best training for a task by exact predictions: a search with a stated number of them."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sparsetoken.arrays import Array
from sparsetoken.numerics.threads import one_thread
from sparsetoken.planning.crossing import least_enough
from sparsetoken.task import Task, Training
from sparsetoken.theory.alignment import learnt_alignment, with_sharpness
from sparsetoken.theory.laws import classifier_law
from sparsetoken.theory.prediction import Prediction
from sparsetoken.theory.predictor import Predictor
from sparsetoken.theory.usage import Usage

__all__ = [
    "COARSE",
    "FEWEST_SAMPLES",
    "FINEST",
    "GOALS",
    "LARGEST_RATIO",
    "MOST_PREDICTIONS",
    "SCHEDULES",
    "TOLERANCE",
    "Found",
    "TrainingSearch",
    "VariedTraining",
    "best_cosine",
    "chance_of",
    "drawn_shares",
    "enlarged",
    "loss_of",
    "mean_over_shares",
    "positive_rates_nearby",
    "total_samples",
]

# What a plan may aim at: the field of a prediction, and whether less of it is better.
GOALS = {"error": ("test_error", True), "auc": ("auc", False)}


def loss_of(metric: str, value: float) -> float:
    """Return what is to be made small: an error, or 1 - AUC; and from that the value again."""
    return value if GOALS[metric][1] else 1 - value


def chance_of(metric: str, task: Task) -> float:
    """Return the loss without any sample."""
    return min(task.positive_rate, 1 - task.positive_rate) if metric == "error" else 0.5


# Numerical error of a prediction that is shown; of one in a search, and as a share of what the goal
# has above its limit, or below chance.
TOLERANCE = 1e-3
COARSE = 3e-3
FINEST = 2e-5
_ACCURACY = 0.2
# Predictions of a search at the most.
MOST_PREDICTIONS = 110
# Values within this of the best are as good in practice.
NEARLY = 0.05
# A step of the search must gain this share, and cosines this close are alike.
_GAIN = 1e-4
_AS_ALIGNED = 2e-3
_SHARPNESSES = (0.3, 1.0, 3.0, 9.0)
_READOUT_STEPS = (0.1, 0.5, 2.0)
_BIAS_STEPS = (0.0, 0.2, 0.5, 0.7, 1.0, 1.4, 2.0, 3.0, 4.0, 5.0, 7.0, 10.0, 14.0)
# The limit of high dimension says nothing about fewer samples.
FEWEST_SAMPLES = 10
# Samples per dimension between which a number of samples is sought.
_SMALLEST_RATIO, LARGEST_RATIO = 1e-3, 2048.0
# Turns between the number of samples and the settings, and the logarithm that ends them early.
_TURNS = 4
_SETTLED = 0.3


@dataclass(frozen=True)
class VariedTraining:
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
        )
        return with_sharpness(task, made, self.sharpness)


def _split(candidate: VariedTraining) -> dict[str, Any]:
    return {
        "alpha0": candidate.split * candidate.alpha,
        "alpha1": (1 - candidate.split) * candidate.alpha,
    }


def _without_split(candidate: VariedTraining) -> dict[str, Any]:
    return {"alpha0": candidate.alpha, "alpha1": candidate.alpha, "reuse": True}


def _readout_only(candidate: VariedTraining) -> dict[str, Any]:
    return {"alpha0": candidate.alpha, "alpha1": candidate.alpha}


# How the samples are shared out between the query and the readout; others have no query.
SCHEDULES = ("split", "no split")
_RATIOS: dict[str, Callable[[VariedTraining], dict[str, Any]]] = {
    "split": _split,
    "no split": _without_split,
    "readout only": _readout_only,
}


@dataclass(frozen=True)
class Found:
    """A candidate with its prediction; `loss` is what the search makes small."""

    candidate: VariedTraining
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

    def moved(self, candidate: VariedTraining, steps: float) -> VariedTraining:
        value = getattr(candidate, self.name)
        value = value * self.step**steps if self.factor else value + self.step * steps
        change: dict[str, Any] = {self.name: float(np.clip(value, self.low, self.high))}
        return replace(candidate, **change)


# Larger ridges of attention are hardly better in the limit of high dimension (by 0.4 % of its error),
# and much worse below (`steadied`). Features of linear classifiers are longer, and bear more.
_AXES = {
    "sharpness": _Axis("sharpness", 2.0, 0.02, 30.0, factor=True),
    "ridge": _Axis("ridge", 6.0, 1e-6, 0.3, factor=True),
    "split": _Axis("split", 0.2, 0.05, 0.95, factor=False),
    "bias_step": _Axis("bias_step", 2.0, 0.01, 50.0, factor=True),
}
_LINEAR_RIDGE = replace(_AXES["ridge"], high=30.0)


class _Spent(Exception):
    """No more predictions may be made."""


class TrainingSearch:
    """Predictions for one task and classifier, counted, each setting at most once.

    Each prediction starts from the solution of the one before. They are coarse: settings are
    compared on the same points, so that most of their numerical error is common to all.

    Parameters
    ----------
    metric : a name of `GOALS`
    goal : float, optional
        The loss that is sought.
    limit : float
        The loss with ever more samples, or 0. What a loss has above it decides how accurate
        predictions have to be: that much changes with the samples and the settings.
    most : int
        No more predictions than this; afterwards the best found so far is all there is.
    fewest : float
        Samples per dimension at the least.
    """

    def __init__(
        self,
        task: Task,
        classifier: str,
        metric: str,
        *,
        goal: float | None = None,
        limit: float = 0.0,
        most: int = MOST_PREDICTIONS,
        fewest: float = 0.0,
    ) -> None:
        self.task = task
        self.classifier = classifier
        self._learns_query = classifier_law(classifier).takes_query
        self.metric = metric
        self.most = most
        self._ratios = (max(fewest, _SMALLEST_RATIO), LARGEST_RATIO)
        self._known: dict[VariedTraining, Found] = {}
        self._by_chance: dict[tuple[VariedTraining, float], float] = {}
        self._goal = goal
        self._limit = limit
        above = 1.0 if goal is None else min(goal - limit, chance_of(metric, task) - goal)
        self._path = self._path_for(above)

    def _path_for(self, above: float) -> Predictor:
        """Return what predicts well enough to tell losses apart that have so much above the limit."""
        tolerance = max(_ACCURACY * above, FINEST)
        return Predictor(self.classifier, None, Usage(), min(COARSE, tolerance))

    @property
    def predictions(self) -> int:
        """How many predictions were made."""
        return len(self._known) + len(self._by_chance)

    @property
    def exhausted(self) -> bool:
        """Whether no more predictions may be made."""
        return self.predictions >= self.most

    def at(self, candidate: VariedTraining) -> Found:
        """Predict one candidate; raise `_Spent` if there are no predictions left."""
        if candidate not in self._known:
            prediction = self._predicted(self._path, self.task, candidate)
            self._known[candidate] = Found(candidate, prediction, self._loss(prediction))
        return self._known[candidate]

    def _predicted(self, path: Predictor, task: Task, candidate: VariedTraining) -> Prediction:
        if self.exhausted:
            raise _Spent
        with one_thread:
            return path.predict(task, candidate.training(self.task))

    def _loss(self, prediction: Prediction) -> float:
        loss = loss_of(self.metric, float(getattr(prediction, GOALS[self.metric][0])))
        return loss if np.isfinite(loss) and prediction.solution.converged else np.inf

    def axes(self, candidate: VariedTraining) -> list[_Axis]:
        """Return what there is to choose."""
        if not self._learns_query:
            return [_LINEAR_RIDGE]
        names = ["sharpness", "ridge"]
        if candidate.schedule == "split":
            names.append("split")
        if self.task.positive_rate != 0.5:
            names.append("bias_step")
        return [_AXES[name] for name in names]

    def best(self, start: VariedTraining, *, sizes: tuple[float, ...] = (1.0, 0.5)) -> Found | None:
        """Return the best training found near a start, at its number of samples and with its loss.

        None if there are no predictions left for any.
        """
        with suppress(_Spent):
            self._tuned(self._with_better_rates(start), sizes)
        same = [
            found
            for found in self._known.values()
            if (found.candidate.alpha, found.candidate.loss) == (start.alpha, start.loss)
        ]
        return min(same, key=lambda found: found.loss, default=None)

    def least(self, start: VariedTraining, goal: float) -> Found | None:
        """Return the training of the fewest samples found with a loss of at most `goal`.

        None if there is none within reach of the search.
        """
        with suppress(_Spent):
            if self.at(start).loss > goal:
                start = self._tuned(start, (1.0,)).candidate
            self._close_in(start, goal)
        enough = [found for found in self._known.values() if found.loss <= goal]
        return min(enough, key=lambda found: found.candidate.alpha, default=None)

    def _close_in(self, settings: VariedTraining, goal: float) -> None:
        """Find the number of samples for the settings, and settings for that number, by turns.

        Settings change slowly with the number of samples, so that few turns are enough. Where settings
        for few samples do not reach the goal with ever more, the search begins anew with ever more:
        with few, all settings may err like chance, and nothing shows where to go.
        """
        for _ in range(_TURNS):
            before = settings.alpha
            alpha = self._least_alpha(settings, goal, 0.2)
            if alpha is None:
                alpha = LARGEST_RATIO
                settings = self._begun(replace(settings, alpha=alpha)).candidate
            settings = self._with_better_rates(replace(settings, alpha=alpha))
            settings = self._tuned(settings, (1.0,)).candidate
            if np.isclose(alpha, self._ratios[0]):  # no fewer samples are asked for
                return
            if abs(np.log(alpha / before)) < _SETTLED:
                break
        for accuracy in (0.05, 0.01):
            enough = self._least_alpha(settings, goal, accuracy)
            if enough is None:
                return
            settings = self._tuned(replace(settings, alpha=enough), (0.5,)).candidate
        self._least_alpha(settings, goal, 0.01)

    def _least_alpha(self, settings: VariedTraining, goal: float, accuracy: float) -> float | None:
        """Return the least sample ratio that reaches the goal with given settings."""
        return least_enough(
            lambda alpha: self.at(replace(settings, alpha=alpha)).loss,
            goal,
            settings.alpha,
            bounds=self._ratios,
            accuracy=accuracy,
            most=self.most,
            first_step=1 + accuracy,
        )

    def _tuned(self, start: VariedTraining, sizes: tuple[float, ...]) -> Found:
        """Return the best found near a start, at its sample ratio: a compass search.

        One coordinate after another moves as long as that helps. Then the parabolas through the
        neighbours say where to go in all coordinates at once, and steps become smaller.
        """
        best = self.at(start)
        for size in sizes:
            before = None
            while best is not before:
                before = best
                for axis in self.axes(best.candidate):
                    best = self._moved(best, axis, size)
            best = self._at_vertex(best, size)
        return best

    def _moved(self, best: Found, axis: _Axis, size: float) -> Found:
        for sign in (1, -1):
            tried = self.at(axis.moved(best.candidate, sign * size))
            if tried.loss < best.loss * (1 - _GAIN):
                return tried
        return best

    def _at_vertex(self, best: Found, size: float) -> Found:
        """Return the better of a point and of what parabolas through its neighbours say."""
        vertex = best.candidate
        for axis in self.axes(best.candidate):
            sides = [axis.moved(best.candidate, sign * size) for sign in (-1, 1)]
            if best.candidate in sides:  # at the end of its range
                continue
            below, above = (self.at(side).loss for side in sides)
            curvature = below + above - 2 * best.loss
            if 0 < curvature < np.inf:
                vertex = axis.moved(vertex, size * (below - above) / (2 * curvature))
        return min(best, self.at(vertex), key=lambda found: found.loss)

    def _with_rates(self, candidate: VariedTraining) -> VariedTraining:
        """Return the candidate with the rates of the two steps that align the query best.

        Of rates that are as good, those that still align it best where positives are fewer or more
        than thought; of those, the ones nearest to the usual.
        """
        options = [
            replace(candidate, readout_step=readout, bias_step=bias)
            for readout in _READOUT_STEPS
            for bias in _BIAS_STEPS
        ]
        planned = self._cosines(options, self.task)
        worst = np.min([self._cosines(options, task) for task in _other_rates(self.task)], axis=0)
        worst = np.where(planned > planned.max() - _AS_ALIGNED, worst, -np.inf)
        usual = [abs(np.log(one.readout_step / 0.5)) + abs(one.bias_step - 0.5) for one in options]
        good = np.flatnonzero(worst > worst.max() - _AS_ALIGNED)
        return options[min(good, key=lambda index: usual[index])]

    def _with_better_rates(self, candidate: VariedTraining) -> VariedTraining:
        """Return the candidate, with the rates that align its query best if that is no worse."""
        if not self._learns_query:
            return candidate
        aligned = self._with_rates(candidate)
        worse = self.at(aligned).loss > self.at(candidate).loss * (1 + _GAIN)
        return candidate if worse else aligned

    def _cosines(self, options: list[VariedTraining], task: Task) -> Array:
        found = [learnt_alignment(task, option.training(task)).alignment for option in options]
        return np.array(found)

    def start(
        self, alpha: float, schedule: str = "split", loss: str = "logistic"
    ) -> VariedTraining:
        """Return where to begin a search at a sample ratio."""
        if not self._learns_query:
            return VariedTraining(alpha, schedule="readout only")
        best = self._begun(VariedTraining(alpha, schedule=schedule, loss=loss))
        if self._goal is None:
            self._path = self._path_for(best.loss - self._limit)
        return best.candidate

    def _begun(self, first: VariedTraining) -> Found:
        """Return the best of a few sharpnesses, with the rates that align the query best."""
        if not self._learns_query:
            return self.at(first)
        aligned = self._with_rates(first)
        tries = [self.at(replace(aligned, sharpness=value)) for value in _SHARPNESSES]
        return min(tries, key=lambda found: found.loss)

    def steadied(self, best: Found, dimension: int) -> Found:
        """Return the best with a ridge and a bias step that bear the positives that chance draws.

        In a finite sample their share is not the rate. A large ridge leaves a readout so short that
        the bias, which follows that share, decides, and goes wrong; a bias step near the edge of
        alignment falls over it. Neither is seen in the limit of high dimension.
        """
        steps = {"ridge": (-0.5,), "bias_step": (0.25, -0.25)}
        with suppress(_Spent):
            for axis in self.axes(best.candidate):
                for size in steps.get(axis.name, ()):
                    best = self._steadier(best, axis, size, dimension)
        return best

    def _steadier(self, best: Found, axis: _Axis, size: float, dimension: int) -> Found:
        while True:
            moved = axis.moved(best.candidate, size)
            gain = self._expected(best.candidate, dimension) - self._expected(moved, dimension)
            if moved == best.candidate or gain <= _GAIN * best.loss:
                return best
            best = self.at(moved)

    def _expected(self, candidate: VariedTraining, dimension: int) -> float:
        """Return the mean loss over the share of positives that samples in `dimension` have."""
        samples = dimension * _RATIOS[candidate.schedule](candidate)["alpha1"]
        shares = drawn_shares(self.task.positive_rate, samples)
        sides = [self._with_share(candidate, share) for share in shares]
        return mean_over_shares(sides, self.at(candidate).loss)

    def _with_share(self, candidate: VariedTraining, share: float) -> float:
        """Return the loss after training on another share of positives than there are."""
        if (candidate, share) not in self._by_chance:
            path = Predictor(
                self.classifier, None, Usage(at=self.task), max(self._path.tolerance, TOLERANCE)
            )
            drawn = self.task.replace(positive_rate=share)
            loss = self._loss(self._predicted(path, drawn, candidate))
            self._by_chance[candidate, share] = loss
        return self._by_chance[candidate, share]

    def enough(self, settings: VariedTraining, goal: float) -> Found | None:
        """Return given settings with the fewest samples for a goal; None if there are none."""
        with suppress(_Spent):
            alpha = self._least_alpha(settings, goal, 0.01)
            return None if alpha is None else self.at(replace(settings, alpha=alpha))
        return None

    def widths(self, best: Found) -> dict[str, tuple[float, float]]:
        """Return for each setting the range of tried values that are nearly as good as the best."""
        limit = best.loss * (1 + NEARLY)
        ranges = {}
        for axis in self.axes(best.candidate):
            low, high = (self._end(best, axis, sign, limit) for sign in (-1, 1))
            if low is not None and high is not None:
                ranges[axis.name] = (low, high)
        return ranges

    def _end(self, best: Found, axis: _Axis, sign: int, limit: float) -> float | None:
        """Return how far a setting may move; None if no prediction is left to look at all."""
        end = getattr(best.candidate, axis.name)
        for steps in (0.5, 1.0, 2.0):
            try:
                moved = self.at(axis.moved(best.candidate, sign * steps))
            except _Spent:
                return float(end) if steps > 0.5 else None
            if moved.loss > limit:
                break
            end = getattr(moved.candidate, axis.name)
        return float(end)


def _other_rates(task: Task) -> list[Task]:
    """Return the task with fewer and with more positives than thought."""
    return [task.replace(positive_rate=rate) for rate in positive_rates_nearby(task.positive_rate)]


def drawn_shares(rate: float, samples: float) -> tuple[float, float]:
    """Return two shares of positives that so many samples have by chance, √3 deviations off the rate.

    They are the nodes of Gauss-Hermite quadrature with three points, beside the rate itself.
    """
    shift = np.sqrt(3 * rate * (1 - rate) / samples)
    low, high = np.clip([rate - shift, rate + shift], rate / 100, 1 - (1 - rate) / 100)
    return float(low), float(high)


def mean_over_shares(sides: Sequence[float], middle: float) -> float:
    """Return the mean of what two `drawn_shares` give, of weight 1/6 each, and the rate itself."""
    return (sum(sides) + 4 * middle) / 6


def positive_rates_nearby(rate: float) -> tuple[float, float]:
    """Return rates that a rate of positives may well be instead: a fifth lower, and a fourth higher.

    Higher by so little, if need be, that a fifth of the negatives turns positive.
    """
    return 0.8 * rate, min(1.25 * rate, 1 - 0.8 * (1 - rate))


def best_cosine(task: Task, alpha: float) -> float:
    """Return the largest cosine with the signal that two steps on α samples per dimension teach."""
    first = VariedTraining(alpha, schedule="no split")
    options = (
        replace(first, readout_step=readout, bias_step=bias)
        for readout in _READOUT_STEPS
        for bias in _BIAS_STEPS
    )
    return max(learnt_alignment(task, one.training(task)).alignment for one in options)


def enlarged(training: Training, multiple: float) -> Training:
    """Return the training with that many times the samples, shared out as before."""
    return training.replace(alpha0=training.alpha0 * multiple, alpha1=training.alpha1 * multiple)


def total_samples(training: Training, dimension: int) -> int:
    """Return how many samples a training takes."""
    first, second = round(training.alpha0 * dimension), round(training.alpha1 * dimension)
    return second if training.reuse else first + second
