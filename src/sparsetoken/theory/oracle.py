"""What a classifier can do when it knows the signal (docs/theory.md, section 2)."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import optimize
from scipy.special import expit, ndtr

from sparsetoken import validation
from sparsetoken.numerics.threads import one_thread
from sparsetoken.records import Record
from sparsetoken.task import Task
from sparsetoken.theory.replicates import replicate_error
from sparsetoken.theory.scores import (
    NONLINEARITIES,
    Scores,
    attention_scores,
    elementwise_scores,
    likelihood_ratio_scores,
)

__all__ = ["ORACLES", "Oracle", "RequiredStrength", "oracle", "required_strength"]

ORACLES = ("attention", "pooled", "vectorised", "elementwise", "bayes")

# Points a label and replicate, as powers of two: for the answer, and for the search before it.
_SIZE = 13
_SEARCH_SIZE = 10
_BAYES_SIZE = 11
_SHARPNESS_GRID = np.geomspace(1e-3, 100.0, 18)
_BAYES_BUDGET = 1.5e8


@dataclass(frozen=True)
class Oracle(Record):
    """The least error of a classifier that knows the signal.

    Attributes
    ----------
    error : float
    sharpness : float or None
        The best κ, for attention and element-wise attention.
    threshold : float
        The best threshold: on the score of the classifier, on the score over its standard
        deviation for pooled and vectorised, on the log-likelihood ratio for bayes, on the log of
        the score for element-wise exp.
    uncertainty : float
        Numerical error bar of the error.
    """

    error: float
    sharpness: float | None
    threshold: float
    uncertainty: float


@dataclass(frozen=True)
class RequiredStrength(Record):
    """The least signal strength for a given error, with its numerical error bar."""

    strength: float
    uncertainty: float
    sharpness: float | None


@one_thread
def oracle(
    task: Task,
    *,
    classifier: str = "attention",
    nonlinearity: str = "sigmoid",
    sharpness: float | None = None,
) -> Oracle:
    """Return the least error of a classifier that knows the signal, for any length up to 10^6.

    Parameters
    ----------
    classifier : "attention", "pooled", "vectorised", "elementwise" or "bayes"
        "bayes" is the floor under all of them.
    nonlinearity : "sigmoid", "tanh", "linear" or "exp", for "elementwise"
    sharpness : float, optional
        A fixed κ instead of the best one, for "attention" and "elementwise".
    """
    validation.instance("task", task, Task)
    validation.choice("classifier", classifier, ORACLES)
    validation.choice("nonlinearity", nonlinearity, NONLINEARITIES)
    if sharpness is not None:
        sharpness = validation.real("sharpness", sharpness, low=0)
    if classifier in ("pooled", "vectorised"):
        return _linear(task)
    if classifier == "bayes":
        return _bayes(task)
    return _thresholded(_score_function(classifier, nonlinearity), task, sharpness, _SIZE)


ScoreFunction = Callable[[Task, float, int], Scores]


def _score_function(classifier: str, nonlinearity: str) -> ScoreFunction:
    if classifier == "attention":
        return attention_scores
    return lambda task, sharpness, size: elementwise_scores(task, sharpness, nonlinearity, size)


def _linear(task: Task) -> Oracle:
    """Return the error of a threshold on a score that is N(0, 1) or N(Δ, 1), Δ = θR/√L."""
    separation = task.strength * task.informative / np.sqrt(task.length)
    rate = task.positive_rate
    if separation == 0:
        return Oracle(min(rate, 1 - rate), None, np.inf if rate <= 0.5 else -np.inf, 0.0)
    threshold = separation / 2 + np.log((1 - rate) / rate) / separation
    error = rate * ndtr(threshold - separation) + (1 - rate) * ndtr(-threshold)
    return Oracle(float(error), None, float(threshold), 0.0)


def _bayes(task: Task) -> Oracle:
    """Return the error of the likelihood-ratio test, as the mean of the smaller posterior."""
    work = task.length * task.informative if task.informative > 1 else 1
    size = int(np.clip(np.log2(_BAYES_BUDGET / (16 * work)), 5, _BAYES_SIZE))
    scores = likelihood_ratio_scores(task, size)
    rate = task.positive_rate
    prior = np.log(rate / (1 - rate))
    # For each label the mean of min(posteriors); labels weighed by their rates.
    positive, negative = (
        expit(-np.abs(part + prior)) for part in (scores.positive, scores.negative)
    )
    errors = rate * positive.mean(axis=1) + (1 - rate) * negative.mean(axis=1)
    return Oracle(float(errors.mean()), None, float(-prior), replicate_error(errors))


def _thresholded(score: ScoreFunction, task: Task, sharpness: float | None, size: int) -> Oracle:
    if sharpness is None:
        sharpness = _best_sharpness(score, task, min(size, _SEARCH_SIZE))
    scores = score(task, sharpness, size)
    error, threshold = _best_threshold(scores, task.positive_rate)
    rate = task.positive_rate
    replicates = rate * (scores.positive <= threshold).mean(axis=1) + (1 - rate) * (
        scores.negative > threshold
    ).mean(axis=1)
    # Replicates with the same counts may still be a point of the law off.
    uncertainty = max(replicate_error(replicates), 1 / scores.positive.shape[1])
    return Oracle(error, float(sharpness), threshold, uncertainty)


def _best_sharpness(
    score: ScoreFunction, task: Task, size: int, near: float | None = None
) -> float:
    """Return the κ of least error: a coarse scan, then a bounded search around its best."""
    grid = np.concatenate([[0.0], _SHARPNESS_GRID])
    if near is not None and near > 0:
        # Pooling and picking the largest token are two minima: a look afar keeps both in view.
        grid = np.union1d(near * np.geomspace(0.4, 2.5, 5), grid[::3])

    def error(sharpness: float) -> float:
        return _best_threshold(score(task, sharpness, size), task.positive_rate)[0]

    errors = [error(float(value)) for value in grid]
    best = int(np.argmin(errors))
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    found = optimize.minimize_scalar(
        error, bounds=(low, high), method="bounded", options={"maxiter": 12}
    )
    return float(found.x if found.fun < errors[best] else grid[best])


def _best_threshold(scores: Scores, rate: float) -> tuple[float, float]:
    """Return the least error over thresholds, positive above, and the threshold."""
    positive, negative = scores.positive.ravel(), scores.negative.ravel()
    values = np.concatenate([positive, negative])
    order = np.argsort(values)
    steps = np.concatenate(
        [
            np.full(len(positive), rate / len(positive)),
            np.full(len(negative), -(1 - rate) / len(negative)),
        ]
    )[order]
    # Raising the threshold past a positive costs, past a negative gains.
    errors = (1 - rate) + np.concatenate([[0.0], np.cumsum(steps)])
    ordered = values[order]
    # No threshold tells equal scores apart.
    errors[1:-1][ordered[1:] == ordered[:-1]] = np.inf
    best = int(np.argmin(errors))
    bounds = np.concatenate([[-np.inf], ordered, [np.inf]])
    low, high = bounds[best], bounds[best + 1]
    threshold = low if not np.isfinite(high) else high if not np.isfinite(low) else (low + high) / 2
    return float(errors[best]), float(threshold)


@one_thread
def required_strength(
    task: Task, *, error: float, classifier: str = "attention", nonlinearity: str = "sigmoid"
) -> RequiredStrength:
    """Return the least strength θ at which `oracle` reaches the given error; the inverse of it.

    The task's own strength does not matter.
    """
    validation.instance("task", task, Task)
    validation.choice("classifier", classifier, ORACLES)
    validation.choice("nonlinearity", nonlinearity, NONLINEARITIES)
    ceiling = min(task.positive_rate, 1 - task.positive_rate)
    error = validation.real("error", error, low=0, high=ceiling, inclusive=False)
    search = _StrengthSearch(task, classifier, nonlinearity)
    high = 1.0
    while search.error(high) > error:
        high *= 1.5
    low = high / 1.5 if high > 1 else 0.0
    strength = optimize.brentq(lambda value: search.error(value) - error, low, high, xtol=1e-4)
    step = 0.02 * strength
    slope = (search.error(strength + step) - search.error(strength - step)) / (2 * step)
    spread = search.at(strength).uncertainty
    return RequiredStrength(
        float(strength), float(spread / abs(slope)) if slope else np.inf, search.sharpness
    )


class _StrengthSearch:
    """Errors at trial strengths; the best sharpness at one guides the search at the next."""

    def __init__(self, task: Task, classifier: str, nonlinearity: str) -> None:
        self.task = task
        self.classifier = classifier
        self.nonlinearity = nonlinearity
        self.sharpness: float | None = None
        self._known: dict[float, Oracle] = {}

    def at(self, strength: float) -> Oracle:
        # The answer depends a little on what was asked before: a bracket must not change its mind.
        if strength not in self._known:
            self._known[strength] = self._solve(strength)
        return self._known[strength]

    def _solve(self, strength: float) -> Oracle:
        task = self.task.replace(strength=strength)
        if self.classifier in ("pooled", "vectorised", "bayes"):
            return oracle(task, classifier=self.classifier)
        score = _score_function(self.classifier, self.nonlinearity)
        self.sharpness = _best_sharpness(score, task, _SEARCH_SIZE, self.sharpness)
        return _thresholded(score, task, self.sharpness, _SEARCH_SIZE)

    def error(self, strength: float) -> float:
        return self.at(strength).error
