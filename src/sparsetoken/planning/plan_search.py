"""What a plan rests on: the best training of attention, and what others would need or reach."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from sparsetoken.planning.best_training import (
    FEWEST_SAMPLES,
    FINEST,
    GOALS,
    LARGEST_RATIO,
    MOST_PREDICTIONS,
    SCHEDULES,
    Found,
    TrainingSearch,
    VariedTraining,
    chance_of,
    loss_of,
)
from sparsetoken.planning.crossing import least_enough
from sparsetoken.planning.parallel import finished
from sparsetoken.records import Record
from sparsetoken.task import Task, Training
from sparsetoken.theory.floor import Floor, floor, learnable_overlaps
from sparsetoken.theory.laws import LAWS
from sparsetoken.theory.oracle import ORACLES, oracle, required_strength
from sparsetoken.theory.oracle_ranking import BestRanking, best_ranking
from sparsetoken.theory.prediction import Prediction
from sparsetoken.theory.predictor import predict
from sparsetoken.validation import ParameterError

__all__ = [
    "Alternative",
    "LossAndBar",
    "PlanSearch",
    "Searched",
    "learnt_ranking",
    "limit_of",
    "loss_error",
    "most_searched",
    "rivals",
]

# Learners, by what their fields of `Floor` begin with.
_FLOORS = {"message passing": "reachable_", "floor": ""}
_UNKNOWN = "theory knows none for so many, or so unevenly many, informative tokens"
# Ranking with several informative tokens takes seconds for longer sequences, each time.
_RANKED_WORK = 256
_TOO_LONG = "the AUC of the best ranking takes too long for so many informative tokens"
_ANY_LEARNER = "any learner"

_FIRST_ALPHA = 4.0
# Predictions at the most: for a rival, and for the number of samples that is just enough.
_MOST_RIVAL = 40
_MOST_FINAL = 10
# Ratios between which the floor's least sample ratio is sought, and floors at the most.
_FLOOR_RATIOS = (1e-3, 1e4)
_MOST_FLOOR = 20
_FLOOR_TOLERANCE = 1e-2
# Cosines between learnt and true signal from which on an AUC is sought.
_LEAST_COSINE = 1e-3
# The overlap that is enough is known to about a percent: samples grow by so much, and so often, until
# the error that it gives is too.
_CORRECTION = 1.005
_MOST_CORRECTIONS = 8
# Another loss is taken if it errs less than this share of what the first one does.
_BETTER_LOSS = 0.99
# The final prediction's numerical error, and as a share of what the goal has above the limit.
_FINE = 2e-4
_FINE_SHARE = 1 / 100
# Settings of a candidate that a plan tells, and with how many digits: a percent changes no error.
_SEARCHED = ("ridge", "readout_step", "bias_step")
_DIGITS = 3


@dataclass(frozen=True)
class Alternative(Record):
    """What another classifier, or the best there could be, would need or reach.

    Attributes
    ----------
    name : str
        "attention, split" or "attention, no split" (the plan's other way to share out the samples),
        a classifier without a query such as "pooled", "message passing" (the best known efficient
        learner) or "floor" (any learner).
    samples : int or None
        Samples for the target; None where it is out of reach.
    value : float or None
        What it reaches with them, or with the budget.
    limit : float or None
        What it reaches with ever more samples, where that is known.
    unknown : str or None
        Why nothing is said about it, if nothing is.
    uncertainty : dict
        Numerical error bars of value and limit.
    """

    name: str
    samples: int | None
    value: float | None
    limit: float | None
    unknown: str | None = None
    uncertainty: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Searched:
    """The best training of one schedule, if it reaches the goal, and what finding it took."""

    schedule: str
    best: Found | None
    widths: dict[str, tuple[float, float]]
    predictions: int
    exhausted: bool


def rivals() -> list[str]:
    """Return the classifiers without a query, which a plan compares attention with."""
    return [name for name, law in LAWS.items() if not law.takes_query]


def most_searched() -> int:
    """Return how many predictions a search takes at the most."""
    return MOST_PREDICTIONS * len(SCHEDULES) + _MOST_RIVAL * len(rivals()) + _MOST_FINAL


class LossAndBar(NamedTuple):
    """A loss, with its numerical error bar."""

    loss: float
    bar: float


def limit_of(task: Task, metric: str, classifier: str = "attention") -> LossAndBar:
    """Return what a classifier reaches with ever more samples: it then knows the signal."""
    if metric == "auc":
        ranking = best_ranking(task, classifier)
        return LossAndBar(ranking.misranked, ranking.uncertainty)
    known = oracle(task, classifier=classifier)
    return LossAndBar(known.test_error, known.uncertainty)


def loss_error(metric: str, prediction: Prediction) -> float:
    """Return the numerical error of what a plan aims at."""
    if metric == "auc":
        return float(prediction.metrics("auc")["auc_uncertainty"])
    return prediction.uncertainty.test_error


@dataclass(frozen=True)
class PlanSearch:
    """What is sought: a goal (a loss to reach), or a budget of samples per dimension.

    Attributes
    ----------
    limit : LossAndBar
        Of attention, with ever more samples.
    """

    task: Task
    dimension: int
    metric: str
    goal: float | None
    budget: float | None
    losses: tuple[str, ...]
    limit: LossAndBar

    def all(
        self, workers: int, more: Callable[[int], None]
    ) -> tuple[Searched | None, tuple[Alternative, ...], int]:
        """Return the best training of attention, what others need or reach, and how many predictions.

        `more` is told of finished predictions. The training is None if there is none.
        """
        schedules = () if self._beyond(self.limit.loss) else SCHEDULES
        calls: list[Callable[[], Any]] = [
            *(partial(self.scheduled, schedule) for schedule in schedules),
            *(partial(self.rival, name) for name in (*rivals(), _ANY_LEARNER)),
        ]
        found: dict[int, Any] = {}
        for index, result in finished(calls, workers):
            found[index] = result
            more(result.predictions)
        searched = [found[index] for index in range(len(schedules))]
        others = [found[index] for index in range(len(schedules), len(calls))]
        alternatives = [one for rival in others for one in rival.alternatives]
        predictions = sum(one.predictions for one in found.values())
        if not searched:
            return None, tuple(alternatives), predictions
        best, other = sorted(searched, key=self._order)
        alternatives.insert(
            0, self._alternative(f"attention, {other.schedule}", other.best, self.limit)
        )
        exhausted = best.exhausted or other.exhausted
        return replace(best, exhausted=exhausted), tuple(alternatives), predictions

    def _beyond(self, limit: float) -> bool:
        return self.goal is not None and self.goal < limit

    def _order(self, found: Searched) -> tuple[float, float]:
        """Return what to choose by: the number of samples, then the loss."""
        if found.best is None:
            return np.inf, np.inf
        return _whole(found.best.candidate.alpha * self.dimension), found.best.loss

    def scheduled(self, schedule: str) -> Searched:
        """Search one way to share out the samples."""
        search = self._of("attention", self.limit.loss)
        start = search.start(self.budget or _FIRST_ALPHA, schedule, self.losses[0])
        best = self._solve(search, start)
        widths = {}
        if best is not None:
            for loss in self.losses[1:]:
                other = search.best(replace(best.candidate, loss=loss), sizes=(1.0,))
                if other is not None and other.loss < best.loss * _BETTER_LOSS:
                    best = self._solve(search, other.candidate) or best
            best = self._steadied(search, best)
            widths = search.widths(best)
        return Searched(schedule, best, widths, search.predictions, search.exhausted)

    def _steadied(self, search: TrainingSearch, best: Found) -> Found:
        steady = search.steadied(best, self.dimension)
        if steady is best or self.goal is None:
            return steady
        return search.enough(steady.candidate, self.goal) or best

    def _of(self, classifier: str, limit: float, *, most: int = MOST_PREDICTIONS) -> TrainingSearch:
        return TrainingSearch(
            self.task,
            classifier,
            self.metric,
            goal=self.goal,
            limit=limit,
            most=most,
            fewest=FEWEST_SAMPLES / self.dimension,
        )

    def _solve(self, search: TrainingSearch, start: VariedTraining) -> Found | None:
        return search.best(start) if self.goal is None else search.least(start, self.goal)

    def rival(self, name: str) -> "_Rivals":
        """Return what other classifiers need or reach."""
        if name == _ANY_LEARNER:
            return _Rivals(tuple(self._floors()), 0)
        limit = limit_of(self.task, self.metric, name) if name in ORACLES else None
        least = 0.0 if limit is None else limit.loss
        search = self._of(name, least, most=_MOST_RIVAL)
        start = search.start(self.budget or _FIRST_ALPHA)
        try:
            found = None if self._beyond(least) else self._solve(search, start)
            if found is not None:
                found = self._steadied(search, found)
        except ParameterError as error:  # a law from outside may be that of some tasks only
            refused = replace(self._alternative(name, None, limit), unknown=str(error))
            return _Rivals((refused,), search.predictions)
        return _Rivals((self._alternative(name, found, limit),), search.predictions)

    def _alternative(self, name: str, found: Found | None, limit: LossAndBar | None) -> Alternative:
        if found is None:
            return self._stated(name, None, None, limit)
        samples = _whole(found.candidate.alpha * self.dimension)
        outcome = LossAndBar(found.loss, loss_error(self.metric, found.prediction))
        return self._stated(name, samples, outcome, limit)

    def _stated(
        self, name: str, samples: int | None, outcome: LossAndBar | None, limit: LossAndBar | None
    ) -> Alternative:
        """Return what another needs and reaches, losses as the metric has them."""
        value, bound = (
            None if one is None else loss_of(self.metric, one.loss) for one in (outcome, limit)
        )
        told = {"value": outcome, "limit": limit}
        bars = {key: one.bar for key, one in told.items() if one is not None}
        return Alternative(name, samples, value, bound, uncertainty=bars)

    def _floors(self) -> list[Alternative]:
        """Return what message passing, and any learner, need or reach."""
        most = int(self.task.counts.values[-1])
        if self.metric == "auc" and most > 1 and most * self.task.length > _RANKED_WORK:
            return [Alternative(name, None, None, None, _TOO_LONG) for name in _FLOORS]
        try:
            limit = limit_of(self.task, self.metric, "bayes")
            overlap = None if self.goal is None else self._overlap_needed(limit.loss)
            overlaps = cache(partial(learnable_overlaps, self.task, tolerance=_FLOOR_TOLERANCE))
            known = cache(partial(floor, self.task, tolerance=_FLOOR_TOLERANCE))
            found = []
            for name in _FLOORS:
                alpha = self.budget
                if overlap is not None:
                    alpha = self._least_ratio(overlaps, name, overlap)
                found.append(self._floor(known, name, alpha, limit))
            return found
        except ParameterError:
            return [Alternative(name, None, None, None, _UNKNOWN) for name in _FLOORS]

    def _overlap_needed(self, limit: float) -> float:
        """Return the squared cosine with the signal at which the best classifier reaches the goal.

        Infinite if it does not with the signal known.
        """
        goal, strength = self.goal, self.task.strength
        assert goal is not None
        if self._beyond(limit):
            return np.inf
        if self.metric == "error":
            needed = required_strength(self.task, error=goal, classifier="bayes").strength
            return (needed / strength) ** 2

        def loss(cosine: float) -> float:
            learnt = self.task.replace(strength=strength * cosine)
            return limit_of(learnt, self.metric, "bayes").loss

        bounds = (_LEAST_COSINE, 1.0)
        cosine = least_enough(loss, goal, 1.0, bounds=bounds, accuracy=1e-3, most=_MOST_FLOOR)
        return np.inf if cosine is None else cosine**2

    def _least_ratio(
        self, overlaps: Callable[[float], dict[str, float]], name: str, wanted: float
    ) -> float | None:
        """Return the samples per dimension that teach a learner an overlap; None if none do."""
        if wanted >= 1:
            return None
        return least_enough(
            lambda alpha: 1 - overlaps(alpha)[f"{_FLOORS[name]}overlap"],
            1 - wanted,
            _FIRST_ALPHA,
            bounds=(max(_FLOOR_RATIOS[0], FEWEST_SAMPLES / self.dimension), _FLOOR_RATIOS[1]),
            accuracy=0.01,
            most=_MOST_FLOOR,
        )

    def _floor(
        self, known: Callable[[float], Floor], name: str, alpha: float | None, limit: LossAndBar
    ) -> Alternative:
        """Return what a learner reaches with samples that are about enough, or with the budget."""
        if alpha is None:
            return self._stated(name, None, None, limit)
        for _ in range(_MOST_CORRECTIONS):
            samples = _whole(alpha * self.dimension)
            found = known(samples / self.dimension)
            outcome = _floor_loss(self.task, self.metric, found, _FLOORS[name])
            if self.goal is None or outcome.loss <= self.goal:
                break
            alpha *= _CORRECTION
        return self._stated(name, samples, outcome, limit)

    def settled(self, found: VariedTraining) -> tuple[Training, Prediction, int]:
        """Return the training in the digits of a plan, its fine prediction, and how many of these.

        Samples are whole numbers, settings have three digits: what is told is the plan. For a goal,
        the least number of samples with which the fine prediction reaches it.
        """
        above = 1.0
        if self.goal is not None:
            above = min(self.goal - self.limit.loss, chance_of(self.metric, self.task) - self.goal)
        tolerance = min(_FINE, max(_FINE_SHARE * above, FINEST))

        known: dict[int, Prediction] = {}

        def outcome(samples: int) -> Prediction:
            if samples not in known:
                training = _with_samples(found, self.task, self.dimension, samples)
                known[samples] = predict(self.task, training, tolerance=tolerance)
            return known[samples]

        def loss(samples: float) -> float:
            prediction = outcome(_whole(samples))
            return loss_of(self.metric, float(getattr(prediction, GOALS[self.metric][0])))

        samples = max(found.alpha * self.dimension, FEWEST_SAMPLES)
        if self.goal is not None:
            enough = least_enough(
                loss,
                self.goal,
                samples,
                bounds=(max(samples / 2, FEWEST_SAMPLES), LARGEST_RATIO * self.dimension),
                accuracy=0.004,
                most=_MOST_FINAL,
                first_step=1.01,
            )
            samples = enough or samples
        training = _with_samples(found, self.task, self.dimension, _whole(samples))
        return training, outcome(_whole(samples)), len(known)


@dataclass(frozen=True)
class _Rivals:
    """What others need or reach, and how many predictions that took."""

    alternatives: tuple[Alternative, ...]
    predictions: int


def _floor_loss(task: Task, metric: str, known: Floor, prefix: str) -> LossAndBar:
    """Return the loss of the best classifier with the overlap that a floor tells, and its error."""
    if metric == "error":
        name = f"{prefix}test_error"
        return LossAndBar(getattr(known, name), getattr(known.uncertainty, name))
    overlap, bar = (getattr(part, f"{prefix}overlap") for part in (known, known.uncertainty))
    found = learnt_ranking(task, overlap)
    moved = learnt_ranking(task, max(overlap - bar, 0.0)).misranked - found.misranked
    return LossAndBar(found.misranked, found.uncertainty + abs(moved))


def learnt_ranking(task: Task, overlap: float) -> BestRanking:
    """Return how well the best classifier ranks that has learnt a squared cosine with the signal."""
    strength = task.strength * float(np.sqrt(overlap))
    return best_ranking(task.replace(strength=strength), "bayes")


def _whole(samples: float) -> int:
    """Return the next whole number of samples; what is off by rounding alone does not count."""
    return max(int(np.ceil(samples * (1 - 1e-9))), FEWEST_SAMPLES)


def _with_samples(candidate: VariedTraining, task: Task, dimension: int, samples: int) -> Training:
    """Return the training with so many samples, at least two for either part, and short settings.

    Random streams are a hash of all digits of a training: with those of a search, which end in the
    machine's rounding, simulated studies would differ from machine to machine.
    """
    settings: dict[str, Any] = {name: _short(getattr(candidate, name)) for name in _SEARCHED}
    candidate = replace(candidate, alpha=samples / dimension, **settings)
    if candidate.schedule == "split":
        first = int(np.clip(round(candidate.split * samples), 2, samples - 2))
        candidate = replace(candidate, split=first / samples)
    training = candidate.training(task)
    shares = {name: round(getattr(training, name) * dimension) for name in ("alpha0", "alpha1")}
    ratios = {name: count / dimension for name, count in shares.items()}
    return training.replace(query_step=_short(training.query_step), **ratios)


def _short(value: float) -> float:
    """Return a value with the digits that a plan tells."""
    return float(f"{value:.{_DIGITS}g}")
