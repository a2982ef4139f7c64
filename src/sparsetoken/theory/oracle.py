"""What a classifier can do when it knows the signal (docs/theory.md, section 2)."""

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

import numpy as np
from scipy import optimize
from scipy.special import expit, ndtr

from sparsetoken import validation
from sparsetoken.arrays import Array
from sparsetoken.numerics.solution import Solution, Status
from sparsetoken.numerics.threads import one_thread
from sparsetoken.records import Record
from sparsetoken.task import Task
from sparsetoken.theory.replicates import replicate_error
from sparsetoken.theory.scores import (
    NONLINEARITIES,
    Scores,
    TokenSample,
    attention_scores,
    elementwise_scores,
    likelihood_ratio_scores,
)
from sparsetoken.validation import ParameterError

__all__ = ["ORACLES", "Oracle", "RequiredStrength", "oracle", "required_strength"]

ORACLES = ("attention", "pooled", "vectorised", "elementwise", "bayes")

# Points a label and replicate, as powers of two: for the answer, to fit a rule, to refine the
# sharpness, and for a first scan of it.
_SIZE = 13
_FIT_SIZE = 12
_SEARCH_SIZE = 10
_SCAN_SIZE = 7
_BAYES_SIZE = 11
_BAYES_BUDGET = 1.5e8
_SHARPNESS_GRID = np.concatenate([[0.0], np.geomspace(1e-3, 100.0, 18)])

# Rules are fitted on points of one stream and judged on those of another.
_JUDGE, _FIT = 2, 3

# Below this error points that reach far into the tails are worth their price.
_RARE = 0.01
# An error that fewer points than these show may have other causes, which none shows.
_FEW = 30
_LEAST_ERROR = 1e-15
_LARGEST_STRENGTH = 1e6
_LARGEST_SHARPNESS = 1e12

# A search for the strength begins here. It solves at a fixed sharpness and chooses the best one where
# it ends, so many times at most, until the strength moves no more than this; on the way it chooses
# anew where the strength has grown so much.
_FIRST_STRENGTH = 2.0
_LEAST_STRENGTH = 1e-3
_ROUNDS = 4
_SETTLED = 3e-3
_FAR = 2.0


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
    solution : Solution
        Its status says where the error is too rare for the points of the law; the bar is a bound
        then.

    Examples
    --------
    >>> from sparsetoken import Task, oracle
    >>> found = oracle(Task(100, 1, 5.0))
    >>> round(found.error, 3), round(found.sharpness, 1)
    (0.043, 1.9)
    """

    error: float
    sharpness: float | None
    threshold: float
    uncertainty: float
    solution: Solution


@dataclass(frozen=True)
class RequiredStrength(Record):
    """The least signal strength for a given error.

    Attributes
    ----------
    strength : float
        Infinite if no strength up to 10^9 is enough.
    uncertainty : float
        Numerical error bar: how far the strength moves while the error moves by its own bar.
    sharpness : float or None
        The κ it is reached with, for attention and element-wise attention.
    solution : Solution

    Examples
    --------
    >>> from sparsetoken import Task, required_strength
    >>> found = required_strength(Task(100, 1, 1.0), error=0.05, classifier="pooled")
    >>> round(found.strength, 1), found.uncertainty < 0.01
    (32.9, True)
    """

    strength: float
    uncertainty: float
    sharpness: float | None
    solution: Solution


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

    Returns
    -------
    Oracle

    Examples
    --------
    >>> from sparsetoken import Task, oracle
    >>> round(oracle(Task(16, 2, 3.0), classifier="pooled").error, 4)
    0.2266
    """
    judge = _judge(task, classifier, nonlinearity, sharpness)
    return judge.least(task.strength)


@one_thread
def required_strength(
    task: Task,
    *,
    error: float,
    classifier: str = "attention",
    nonlinearity: str = "sigmoid",
    sharpness: float | None = None,
) -> RequiredStrength:
    """Return the least strength θ at which `oracle` reaches the given error; the inverse of it.

    The task's own strength does not matter.

    Parameters
    ----------
    error : float
        Between 10^-15 and what no signal gives, min(π, 1 - π).
    classifier, nonlinearity, sharpness : as for `oracle`

    Returns
    -------
    RequiredStrength

    Examples
    --------
    >>> from sparsetoken import Task, required_strength
    >>> round(required_strength(Task(100, 1, 1.0), error=0.05, classifier="pooled").strength, 2)
    32.9
    """
    judge = _judge(task, classifier, nonlinearity, sharpness)
    ceiling = min(task.positive_rate, 1 - task.positive_rate)
    error = validation.real("error", error, low=0, high=ceiling, inclusive=False)
    if error < _LEAST_ERROR:
        raise ParameterError("error", error, f"at least {_LEAST_ERROR:g}")
    found = _StrengthSearch(judge, error, ceiling).solve()
    if classifier == "attention" and sharpness is None:
        return _between_bounds(task, error, found)
    return found


def _between_bounds(task: Task, error: float, found: RequiredStrength) -> RequiredStrength:
    """Put attention's strength between Bayes' and pooling's, where its points tell less.

    Pooling is attention of sharpness 0, so that the best sharpness needs no more.
    """
    if found.solution.status is not Status.BEYOND_REACH:
        return found
    least, most = (
        required_strength(task, error=error, classifier=rule) for rule in ("bayes", "pooled")
    )
    low, high = max(0.0, least.strength - least.uncertainty), most.strength + most.uncertainty
    strength = min(max(found.strength, low), high)
    bar = max(strength - low, high - strength)
    if not bar < found.uncertainty:
        return found
    detail = "it lies between what the Bayes rule and pooling need"
    solution = replace(found.solution, detail=detail)
    return replace(found, strength=strength, uncertainty=bar, solution=solution)


def _judge(
    task: Task, classifier: str, nonlinearity: str, sharpness: float | None
) -> "_Linear | _Bayes | _Thresholded":
    validation.instance("task", task, Task)
    validation.choice("classifier", classifier, ORACLES)
    validation.choice("nonlinearity", nonlinearity, NONLINEARITIES)
    if nonlinearity != "sigmoid" and classifier != "elementwise":
        accepted = f"its default for the classifier {classifier!r}: only 'elementwise' has one"
        raise ParameterError("nonlinearity", nonlinearity, accepted)
    if sharpness is not None:
        sharpness = validation.real("sharpness", sharpness, low=0, high=_LARGEST_SHARPNESS)
        if classifier not in ("attention", "elementwise"):
            accepted = f"None for the classifier {classifier!r}, which has no sharpness"
            raise ParameterError("sharpness", sharpness, accepted)
    if classifier == "attention":
        return _Thresholded(task, attention_scores, sharpness, reaches_far=True)
    if classifier == "elementwise":
        return _Thresholded(
            task,
            partial(elementwise_scores, nonlinearity=nonlinearity),
            sharpness,
            # Other sums are large because all tokens are a little larger, not because one is.
            reaches_far=nonlinearity == "exp",
        )
    return _Bayes(task) if classifier == "bayes" else _Linear(task)


class _WithoutSharpness:
    """A rule that has none to choose."""

    def at_best(self, _strength: float, _rare: bool) -> Self:
        return self


class _Linear(_WithoutSharpness):
    """A threshold on a score that is N(0, 1) or N(Δ, 1), Δ = θR/√L."""

    def __init__(self, task: Task) -> None:
        self._rate = task.positive_rate
        self._known = task.counts
        self._length = task.length

    def least(self, strength: float, _rare: bool | None = None, _quick: bool = False) -> Oracle:
        shifts, rate = strength * self._known.values / np.sqrt(self._length), self._rate
        separation = float(shifts[-1])
        solution = Solution(Status.CONVERGED, residual=0.0, steps=1)
        # The logarithm of the odds over a vanishing Δ would overflow.
        if separation < 1e-100:
            end = np.inf if rate <= 0.5 else -np.inf
            return Oracle(min(rate, 1 - rate), None, end, 0.0, solution)
        if len(shifts) > 1:
            threshold = self._threshold(shifts)
        else:
            threshold = separation / 2 + np.log((1 - rate) / rate) / separation
        missed = float(self._known.probability @ ndtr(threshold - shifts))
        error = rate * missed + (1 - rate) * ndtr(-threshold)
        return Oracle(float(error), None, float(threshold), 0.0, solution)

    def _threshold(self, shifts: Array) -> float:
        """Return where the likelihood ratio, which rises with the score, is (1-π)/π.

        Infinite where positives without informative tokens make it larger everywhere.
        """
        logs = np.log(self._known.probability) - 0.5 * shifts**2
        wanted = float(np.log((1 - self._rate) / self._rate))

        def excess(score: float) -> float:
            return float(np.logaddexp.reduce(logs + shifts * score)) - wanted

        low, high = -1.0, 1.0
        while excess(high) < 0:
            high *= 2
        while excess(low) > 0:
            low *= 2
            # The score of no sequence is as low.
            if low < -1e3:
                return -np.inf
        return float(optimize.brentq(excess, low, high, xtol=1e-12))


class _Bayes(_WithoutSharpness):
    """The likelihood-ratio test.

    With Λ the likelihood ratio, the error ∫ min(π p₊, (1-π) p₋) is the mean of
    2 min(πΛ, 1-π)/(1+Λ) over sequences of which half are positive, whatever π is: no term is above
    twice the smaller rate.
    """

    def __init__(self, task: Task) -> None:
        self._task = task
        self._samples = _Samples(task)

    def least(self, strength: float, rare: bool | None = None, quick: bool = False) -> Oracle:
        found = self._measured(strength, bool(rare), quick)
        if rare is None and found.error < _RARE:
            found = self._measured(strength, True, quick)
        rate = self._task.positive_rate
        error = min(found.error, rate, 1 - rate)
        prior = float(np.log(rate / (1 - rate)))
        return Oracle(error, None, -prior, found.uncertainty, found.solution)

    def _measured(self, strength: float, rare: bool, quick: bool) -> "_Measured":
        task = self._task
        largest_number = int(task.counts.values[-1])
        work = task.length * largest_number if largest_number > 1 else 1
        largest = _SEARCH_SIZE if quick else _BAYES_SIZE
        size = int(np.clip(np.log2(_BAYES_BUDGET / (16 * work)), 5, largest))
        scores = likelihood_ratio_scores(self._samples.of(size, _JUDGE, rare), strength)
        rate = task.positive_rate

        def terms(ratio: Array, weight: Array) -> Array:
            smaller = np.minimum(rate * expit(ratio), (1 - rate) * expit(-ratio))
            return np.asarray(weight * smaller)

        return _Measured.of(
            terms(scores.positive, scores.positive_weight),
            terms(scores.negative, scores.negative_weight),
            0.0,
        )


ScoreFunction = Callable[[TokenSample, float, float], Scores]


class _Thresholded:
    """A threshold on a score with a sharpness, both the best on points that do not judge them.

    Parameters
    ----------
    sharpness : float or None
        A fixed one instead of the best.
    reaches_far : bool
        Whether rare errors come from single tokens far in their tail, which can be drawn.
    """

    def __init__(
        self, task: Task, score: ScoreFunction, sharpness: float | None, *, reaches_far: bool
    ) -> None:
        self._rate = task.positive_rate
        self._score = score
        self._sharpness = sharpness
        self._reaches_far = reaches_far
        self._samples = _Samples(task)

    def least(self, strength: float, rare: bool | None = None, quick: bool = False) -> Oracle:
        """Return the least error; with `rare` None a first look decides which points to take."""
        far = self._reaches_far and bool(rare)
        sharpness = self._best_sharpness(strength, far)
        if rare is None and self._reaches_far:
            scores = self._scores(strength, sharpness, _SEARCH_SIZE, _FIT, far)
            if _best_threshold(scores, self._rate)[0] < _RARE:
                far, sharpness = True, self._best_sharpness(strength, rare=True)
        if quick:
            return self._fitted(strength, sharpness, far)
        return self._judged(strength, sharpness, far)

    def at_best(self, strength: float, rare: bool) -> "_Thresholded":
        """Return the same rule with the sharpness fixed at the best one for this strength."""
        fixed = copy(self)
        fixed._sharpness = self._best_sharpness(strength, self._reaches_far and rare)
        return fixed

    def _fitted(self, strength: float, sharpness: float, rare: bool) -> Oracle:
        """Return the error on few points of the best threshold there, to search with."""
        scores = self._scores(strength, sharpness, _SEARCH_SIZE, _FIT, rare)
        error, threshold = _best_threshold(scores, self._rate)
        unknown = Solution(Status.CONVERGED, residual=0.0, steps=1)
        return Oracle(error, sharpness, threshold, np.inf, unknown)

    def _judged(self, strength: float, sharpness: float, rare: bool) -> Oracle:
        fitted = self._scores(strength, sharpness, _FIT_SIZE, _FIT, rare)
        _, threshold = _best_threshold(fitted, self._rate)
        scores = self._scores(strength, sharpness, _SIZE, _JUDGE, rare)
        missed = self._rate * scores.positive_weight * (scores.positive <= threshold)
        alarms = (1 - self._rate) * scores.negative_weight * (scores.negative > threshold)
        error = missed.mean() + alarms.mean()
        # How much a threshold that knows the points would gain: more than the best one gains.
        gain = max(float(error) - _best_threshold(scores, self._rate)[0], 0.0)
        found = _Measured.of(missed, alarms, gain)
        # Constant guesses are rules too.
        least = min(found.error, self._rate, 1 - self._rate)
        return Oracle(least, sharpness, threshold, found.uncertainty, found.solution)

    def _scores(
        self, strength: float, sharpness: float, size: int, stream: int, rare: bool
    ) -> Scores:
        return self._score(self._samples.of(size, stream, rare), strength, sharpness)

    def _best_sharpness(self, strength: float, rare: bool) -> float:
        """Return the κ of least error: a coarse scan, then a bounded search around its best."""
        if self._sharpness is not None:
            return self._sharpness

        def error(sharpness: float, size: int = _SEARCH_SIZE) -> float:
            scores = self._scores(strength, sharpness, size, _FIT, rare)
            counted = _best_threshold(scores, self._rate)[0]
            points = scores.positive.size + scores.negative.size
            if self._reaches_far or counted * points >= _FEW:
                return counted
            # Few points err, or none: those of another sharpness may be as few by chance.
            return max(counted, _normal_error(scores))

        grid = _SHARPNESS_GRID
        best = int(np.argmin([error(float(value), _SCAN_SIZE) for value in grid]))
        low, high = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
        found = optimize.minimize_scalar(
            error, bounds=(low, high), method="bounded", options={"maxiter": 10}
        )
        return float(found.x if found.fun < error(float(grid[best])) else grid[best])


class _Samples:
    """Tokens drawn once for one question, by size, stream and reach."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._known: dict[tuple[int, int, bool], TokenSample] = {}

    def of(self, size: int, stream: int, rare: bool) -> TokenSample:
        key = (size, stream, rare)
        if key not in self._known:
            self._known[key] = TokenSample(self._task, size, stream=stream, rare=rare)
        return self._known[key]


@dataclass(frozen=True)
class _Measured:
    """An error as a mean over points, with its bar and what the points cannot tell."""

    error: float
    uncertainty: float
    solution: Solution

    @classmethod
    def of(cls, positive: Array, negative: Array, gain: float) -> "_Measured":
        """Sum the means over positives and negatives, terms of shape (replicates, points).

        `gain` is what a rule fitted to these very points would gain.
        """
        replicates = positive.mean(axis=1) + negative.mean(axis=1)
        shares = np.concatenate(
            [positive.ravel() / positive.size, negative.ravel() / negative.size]
        )
        error, largest = float(shares.sum()), float(shares.max())
        # In units of the largest share: squares of very small errors would vanish.
        relative = shares / largest if largest > 0 else shares
        seen = (error / largest) ** 2 / float(relative @ relative) if largest > 0 else 0.0
        # Replicates that agree may all still be a point or two off.
        bar = max(replicate_error(replicates, largest), 2 * len(replicates) * largest) + gain
        status, detail = Status.CONVERGED, ""
        if seen < _FEW:
            # An event that none of n points shows has a probability below 3/n, at 95 %.
            bar = max(bar, 3 * (1 / positive.size + 1 / negative.size))
            status, detail = Status.BEYOND_REACH, f"only some {seen:.0f} points of the law err"
        return cls(error, bar, Solution(status, residual=0.0, steps=1, detail=detail))


def _normal_error(scores: Scores) -> float:
    """Return the error of scores with these means and spreads, if both laws were normal."""
    positive, negative = scores.positive, scores.negative
    spread = float(positive.std() + negative.std())
    return float(ndtr(-(positive.mean() - negative.mean()) / spread)) if spread > 0 else 0.0


def _best_threshold(scores: Scores, rate: float) -> tuple[float, float]:
    """Return the least error over thresholds, positive above, and the threshold."""
    values = np.concatenate([scores.positive.ravel(), scores.negative.ravel()])
    order = np.argsort(values)
    missed = np.zeros(len(values))
    missed[: scores.positive.size] = rate / scores.positive.size * scores.positive_weight.ravel()
    alarms = np.zeros(len(values))
    alarms[scores.positive.size :] = (
        (1 - rate) / scores.negative.size * scores.negative_weight.ravel()
    )
    # Summed from either end, so that small errors keep their digits.
    below = np.concatenate([[0.0], np.cumsum(missed[order])])
    above = np.concatenate([np.cumsum(alarms[order][::-1])[::-1], [0.0]])
    errors = below + above
    ordered = values[order]
    # No threshold tells equal scores apart.
    errors[1:-1][ordered[1:] == ordered[:-1]] = np.inf
    best = int(np.argmin(errors))
    bounds = np.concatenate([[-np.inf], ordered, [np.inf]])
    low, high = bounds[best], bounds[best + 1]
    threshold = low if not np.isfinite(high) else high if not np.isfinite(low) else (low + high) / 2
    return float(errors[best]), float(threshold)


class _StrengthSearch:
    """The strength at which the least error has a given value below its ceiling.

    Parameters
    ----------
    ceiling : float
        The error without a signal.
    """

    def __init__(
        self, judge: _Linear | _Bayes | _Thresholded, error: float, ceiling: float
    ) -> None:
        self._judge = judge
        self._error = error
        self._ceiling = ceiling
        self._rare = error < _RARE
        self._steps = 0
        # A rule with a fixed sharpness, and what is known of it.
        self._fixed = judge
        self._known: dict[float, float] = {}

    def solve(self) -> RequiredStrength:
        """Solve at a fixed sharpness, choose the best one there, and so on while that helps."""
        rough = _FIRST_STRENGTH
        for _ in range(_ROUNDS):
            self._fix(rough)
            following = self._root(rough)
            if following > _LARGEST_STRENGTH:
                detail = f"no strength up to {_LARGEST_STRENGTH:g} is enough"
                solution = Solution(Status.BEYOND_REACH, 0.0, self._steps, detail)
                return RequiredStrength(np.inf, np.inf, None, solution)
            if abs(following - rough) < _SETTLED * rough or self._fixed is self._judge:
                rough = following
                break
            rough = following
        return self._polished(rough)

    def _fix(self, strength: float) -> None:
        """Take the sharpness that is best at this strength, if there is one to choose."""
        self._fixed = self._judge.at_best(strength, self._rare)
        self._known = {0.0: float(np.log(self._ceiling))}

    def _root(self, near: float) -> float:
        """Return the strength that is wanted at the fixed sharpness, or one beyond all."""
        near = max(near, _LEAST_STRENGTH)
        low, high = 0.0, near
        while self._excess(high) > 0:
            low, high = high, 1.5 * high
            if high > _LARGEST_STRENGTH:
                return high
            if self._fixed is not self._judge and high > _FAR * near:
                # Another sharpness may be far better here, and nothing is known of it below.
                low, near = 0.0, high
                self._fix(high)
        if low == 0.0 and self._excess(0.5 * high) > 0:
            low = 0.5 * high
        found = optimize.brentq(self._excess, low, high, xtol=1e-12, rtol=1e-6)
        # A threshold fitted to few points may seem to do better than chance without a signal.
        return max(float(found), _LEAST_STRENGTH)

    def _excess(self, strength: float) -> float:
        """Return log(error/wanted error) on few points, at the fixed sharpness."""
        if strength not in self._known:
            found = self._fixed.least(strength, self._rare, True).error
            self._known[strength] = float(np.log(max(found, 1e-300)))
            self._steps += 1
        return self._known[strength] - float(np.log(self._error))

    def _polished(self, rough: float) -> RequiredStrength:
        """Correct the strength by one step on many points, and give it an error bar."""
        found = self._judge.least(rough, self._rare)
        relative = found.uncertainty / self._error
        slope = self._slope(rough, 0.02)
        # Over a distance on which the error moves more than its bar, the slope is no noise.
        needed = np.clip(2 * relative / max(-slope * rough, 1e-300), 0.02, 0.5)
        if needed > 0.02:
            slope = self._slope(rough, float(needed))
        distance = np.log(found.error / self._error) if found.error > 0 else -np.inf
        # Few points and many must agree on where the error is, or it lies beyond them.
        if slope >= 0 or abs(distance) > 1:
            detail = "at this strength the points of the law begin to err"
            return self._beyond(rough, np.inf, found, detail)
        strength = rough - distance / slope
        bar = relative / -slope + 1e-6 * rough
        if self._error + found.uncertainty >= self._ceiling:
            detail = "the wanted error cannot be told from that without a signal"
            return self._beyond(strength, max(bar, strength), found, detail)
        solution = replace(
            found.solution, residual=float(abs(strength / rough - 1)), steps=self._steps
        )
        return RequiredStrength(float(strength), float(bar), found.sharpness, solution)

    def _beyond(self, strength: float, bar: float, found: Oracle, detail: str) -> RequiredStrength:
        solution = Solution(Status.BEYOND_REACH, 0.0, self._steps, detail)
        return RequiredStrength(float(strength), float(bar), found.sharpness, solution)

    def _slope(self, strength: float, step: float) -> float:
        """Return d log(error)/dθ, over a relative step to either side."""
        low, high = (1 - step) * strength, (1 + step) * strength
        slope = (self._excess(high) - self._excess(low)) / (high - low)
        # Points of which none errs give no slope: that of a normal tail is no steeper than the truth.
        unseen = self._excess(high) < np.log(_LEAST_ERROR)
        gentle = 2 * np.log(self._error / self._ceiling) / strength
        return max(slope, float(gentle)) if unseen else slope
