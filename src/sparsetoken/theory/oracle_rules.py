"""Rules that know the signal: how each decides, and the least error that it can reach.

A rule is fitted on some points of the law of the tokens and judged on others, so that its error is
none of luck's.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from scipy import optimize
from scipy.special import expit, ndtr

from sparsetoken import validation
from sparsetoken.arrays import Array
from sparsetoken.numerics.solution import Solution, Status
from sparsetoken.records import Record
from sparsetoken.task import Task
from sparsetoken.theory.largest_token import LargestTokenErrors, ThresholdErrors
from sparsetoken.theory.replicates import replicate_error
from sparsetoken.theory.scores import TokenSample, likelihood_ratio_scores
from sparsetoken.theory.token_sums import NONLINEARITIES, SumError, sum_error
from sparsetoken.validation import ParameterError

__all__ = [
    "FIT",
    "JUDGE",
    "ORACLES",
    "RARE",
    "TOLERANCE",
    "LargestTokenRule",
    "MeasuredError",
    "Oracle",
    "Rule",
    "rule_for",
]

# Wanted bar, as a fraction of the error.
TOLERANCE = 0.01

# Points a label and replicate, as powers of two: for the answer, more until the tolerance is met; to
# search with, and more where the error is above such a share of that without a signal, or there are
# so many informative tokens that the largest one says less.
_SIZES = (5, 7, 9, 11)
_SEARCH_SIZE = 6
_LARGE_SEARCH_SIZE = 7
_WEAK = {0.6: 8, 0.8: 9}
_MANY = 2
_BAYES_SIZES = (7, 9, 10, 11)
_BAYES_BUDGET = 1.5e8
# Where the best sharpness is looked for: fine enough to show a least error near averages, at a κ that
# grows with the length from 1 to 4, besides that of the maximum.
_SHARPNESS_GRID = np.array([0.0, 0.5, 1.0, 2.0, 3.5, 6.0, 50.0])
_SMALL_SHARPNESS_GRID = np.array([0.0, *np.geomspace(1e-3, 100.0, 11)])
_LOG_SPACING = 1.2
_LEAST_SHARPNESS = 0.1
# The error is flat around the best sharpness: this much of its logarithm changes nothing. Where the
# neighbours on the grid are no further above it than this fraction no search is needed.
_LOG_ACCURACY = 0.05
_FLAT = 0.003
# Local minima that differ by less than this fraction on few points may come in the other order on more.
_CLOSE = 0.05
# Few points place the best sharpness some tenths of its logarithm away: a parabola through errors this
# far to either side tells what is left to gain, and is believed so many such steps from its middle.
_NEAR_STEP = 0.25
_NEAR_REACH = 1.5
# A choice that moves the error by less than this part of the tolerance may stay undecided.
_UNDECIDED = 0.1

# Below this sharpness the mean of all tokens says more than the largest one; of rare errors it may
# only below the second.
_MILD_SHARPNESS = 0.5
_RARE_MILD_SHARPNESS = 0.2

# Rules are fitted on points of one stream and judged on those of another.
JUDGE, FIT = 2, 3

# Below this error points that reach far into the tails are worth their price.
RARE = 0.01
# An error that fewer points than these show may have other causes, which none shows.
_FEW = 30
_LARGEST_SHARPNESS = 1e12


@dataclass(frozen=True)
class Oracle(Record):
    """The least error of a classifier that knows the signal.

    Attributes
    ----------
    test_error : float
    sharpness : float or None
        The best κ, for attention and element-wise attention.
    threshold : float
        The best threshold: on the score of the classifier, on the score over its standard
        deviation for pooled and vectorised, on the log-likelihood ratio for bayes, on the arsinh
        of the score for element-wise exp.
    uncertainty : float
        Numerical error bar of the error.
    solution : Solution
        Its status says where the error is too rare for the points of the law; the bar is a bound
        then.

    Examples
    --------
    >>> from sparsetoken import Task, oracle
    >>> found = oracle(Task(100, 1, 5.0))
    >>> round(found.test_error, 3), found.sharpness > 1
    (0.043, True)
    """

    test_error: float
    sharpness: float | None
    threshold: float
    uncertainty: float
    solution: Solution


def rule_for(task: Task, classifier: str, nonlinearity: str, sharpness: float | None) -> "Rule":
    """Return the rule of a classifier, once all of its settings are checked."""
    validation.instance("task", task, Task)
    validation.choice("classifier", classifier, RULES)
    validation.choice("nonlinearity", nonlinearity, NONLINEARITIES)
    if nonlinearity != "sigmoid" and classifier != "elementwise":
        accepted = f"its default for the classifier {classifier!r}: only 'elementwise' has one"
        raise ParameterError("nonlinearity", nonlinearity, accepted)
    if sharpness is not None:
        sharpness = validation.real("sharpness", sharpness, low=0, high=_LARGEST_SHARPNESS)
        if classifier not in ("attention", "elementwise"):
            accepted = f"None for the classifier {classifier!r}, which has no sharpness"
            raise ParameterError("sharpness", sharpness, accepted)
    return RULES[classifier](task, sharpness, nonlinearity)


class Rule(ABC):
    """A classifier that knows the signal, at any strength of it."""

    sharpness: float | None = None

    @abstractmethod
    def least(
        self, strength: float, rare: bool | None = None, tolerance: float = TOLERANCE
    ) -> Oracle:
        """Return the least error; with `rare` None a first look decides which points to take."""

    @abstractmethod
    def quick(self, strength: float, rare: bool) -> float:
        """Return the least error on few points, to search with."""

    def at_best(self, _strength: float, _rare: bool) -> "Rule":
        """Return the same rule with the sharpness fixed at the best one, if there is one."""
        return self

    def at_sharpness(self, _sharpness: float | None) -> "Rule":
        """Return the same rule with this sharpness, if it has one."""
        return self


class _Linear(Rule):
    """A threshold on a score that is N(0, 1) or N(Δ, 1), Δ = θR/√L."""

    def __init__(self, task: Task) -> None:
        self._rate = task.positive_rate
        self._known = task.counts
        self._length = task.length

    def quick(self, strength: float, _rare: bool) -> float:
        return self.least(strength).test_error

    def least(
        self, strength: float, _rare: bool | None = None, _tolerance: float = TOLERANCE
    ) -> Oracle:
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


class _Bayes(Rule):
    """The likelihood-ratio test.

    With Λ the likelihood ratio, the error ∫ min(π p₊, (1-π) p₋) is the mean of
    2 min(πΛ, 1-π)/(1+Λ) over sequences of which half are positive, whatever π is: no term is above
    twice the smaller rate.
    """

    def __init__(self, task: Task) -> None:
        self._task = task
        # The last points alone: many of long sequences take hundreds of megabytes.
        self._size, self._rare = 0, False
        self._points: TokenSample | None = None

    def least(
        self, strength: float, rare: bool | None = None, tolerance: float = TOLERANCE
    ) -> Oracle:
        if rare is None:
            rare = self.quick(strength, False) < RARE
        for size in _BAYES_SIZES:
            found = self._measured(strength, rare, size)
            if found.uncertainty <= tolerance * found.error:
                break
        rate = self._task.positive_rate
        error = min(found.error, rate, 1 - rate)
        prior = float(np.log(rate / (1 - rate)))
        return Oracle(error, None, -prior, found.uncertainty, found.solution)

    def quick(self, strength: float, rare: bool) -> float:
        return self._measured(strength, rare, _BAYES_SIZES[0]).error

    def _measured(self, strength: float, rare: bool, largest: int) -> "MeasuredError":
        task = self._task
        largest_number = int(task.counts.values[-1])
        work = task.length * largest_number if largest_number > 1 else 1
        size = int(np.clip(np.log2(_BAYES_BUDGET / (16 * work)), 5, largest))
        scores = likelihood_ratio_scores(self._drawn(size, rare), strength)
        rate = task.positive_rate

        def terms(ratio: Array, weight: Array) -> Array:
            smaller = np.minimum(rate * expit(ratio), (1 - rate) * expit(-ratio))
            return np.asarray(weight * smaller)

        return MeasuredError.of(
            terms(scores.positive, scores.positive_weight),
            terms(scores.negative, scores.negative_weight),
            0.0,
        )

    def _drawn(self, size: int, rare: bool) -> TokenSample:
        """Return so many points of the law, which are drawn when they are asked for a score."""
        if self._points is None or (size, rare) != (self._size, self._rare):
            self._points = TokenSample(self._task, size, stream=JUDGE, rare=rare)
            self._size, self._rare = size, rare
        return self._points


class _WithSharpness(Rule):
    """A rule whose sharpness is the best one on a grid and near there, or a fixed one.

    Attributes
    ----------
    sharpness : float or None
    searched : bool
        Whether that is the best one that was found, and none that was asked for.
    rivals : tuple of float
        Other κ that may be better than this one on more points.
    size : int
        2^size points a label and replicate to search with.
    """

    grid: Array

    def __init__(self, task: Task, sharpness: float | None) -> None:
        self._task = task
        self.sharpness = sharpness
        self.searched = False
        self.rivals: tuple[float, ...] = ()
        many = task.counts.mean > _MANY
        self.size = _LARGE_SEARCH_SIZE if many else _SEARCH_SIZE

    @abstractmethod
    def rough(self, strength: float, sharpness: float, rare: bool) -> float:
        """Return the error with the best threshold on few points."""

    @abstractmethod
    def judged(self, strength: float, rare: bool, tolerance: float) -> Oracle:
        """Return the error at the fixed sharpness, or at the best of its rivals, with its bar."""

    def least(
        self, strength: float, rare: bool | None = None, tolerance: float = TOLERANCE
    ) -> Oracle:
        fixed = self.at_best(strength, bool(rare))
        if rare is None and fixed.quick(strength, False) < RARE:
            rare, fixed = True, self.at_best(strength, True)
        return fixed.judged(strength, bool(rare), tolerance)

    def quick(self, strength: float, rare: bool) -> float:
        fixed = self.at_best(strength, rare)
        assert fixed.sharpness is not None
        return fixed.rough(strength, fixed.sharpness, rare)

    def at_sharpness(self, sharpness: float | None) -> Self:
        fixed = copy(self)
        fixed.sharpness, fixed.rivals = sharpness, ()
        return fixed

    def at_best(self, strength: float, rare: bool) -> Self:
        """Return the rule at the κ of least error on few points: a coarse scan, then a search."""
        if self.sharpness is not None:
            return self
        errors = np.array([self.rough(strength, float(value), rare) for value in self.grid])
        rate = self._task.positive_rate
        weak = float(errors.min()) / min(rate, 1 - rate)
        fixed = copy(self)
        fixed.size = max([self.size, *(size for share, size in _WEAK.items() if weak > share)])
        found = sorted(fixed._least_near(strength, place, errors, rare) for place in _low(errors))
        (least, fixed.sharpness), *others = found
        fixed.searched = True
        fixed.rivals = tuple(value for error, value in others if error < (1 + _CLOSE) * least)
        return fixed

    def _least_near(
        self, strength: float, place: int, errors: Array, rare: bool
    ) -> tuple[float, float]:
        """Return the least error near a place of the grid with these errors, and its κ."""

        def error(logarithm: float) -> float:
            return self.rough(strength, float(np.exp(logarithm)), rare)

        grid, centre = self.grid, float(self.grid[place])
        least = (self.rough(strength, centre, rare), centre)
        if errors[max(place - 1, 0) : place + 2].max() < (1 + _FLAT) * errors[place]:
            return least
        ends = np.log([_LEAST_SHARPNESS * grid[1], grid[-1]])
        middle = float(np.clip(np.log(max(centre, 1e-300)), *ends))
        found = optimize.minimize_scalar(
            error,
            bounds=np.clip([middle - _LOG_SPACING, middle + _LOG_SPACING], *ends),
            method="bounded",
            options={"maxiter": 10, "xatol": _LOG_ACCURACY},
        )
        return min(least, (float(found.fun), float(np.exp(found.x))))


def _low(errors: Array) -> list[int]:
    """Return the places of the local minima that are close to the least one."""
    sides = np.pad(errors, 1, constant_values=np.inf)
    lowest = (errors < sides[:-2]) & (errors <= sides[2:])
    return [
        int(place) for place in np.flatnonzero(lowest & (errors <= (1 + _CLOSE) * errors.min()))
    ]


class LargestTokenRule(_WithSharpness):
    """Softmax attention, or a sum of exp: errors that the largest token decides.

    Sharpness and threshold are the best on points that do not judge them.
    """

    grid = _SHARPNESS_GRID

    def __init__(self, task: Task, sharpness: float | None, *, normalised: bool) -> None:
        super().__init__(task, sharpness)
        self.normalised = normalised
        self._known: dict[tuple[int, int, bool], LargestTokenErrors] = {}

    def _errors(
        self,
        strength: float,
        sharpness: float,
        size: int,
        stream: int,
        rare: bool,
        like: float | None = None,
    ) -> ThresholdErrors:
        """Return the errors on points of a stream, integrated as for the sharpness that it is `like`."""
        key = (size, stream, rare)
        if key not in self._known:
            self._known[key] = LargestTokenErrors(
                self._task, size, stream=stream, rare=rare, normalised=self.normalised
            )
        known = self._known[key]
        mildest = _RARE_MILD_SHARPNESS if rare else _MILD_SHARPNESS
        mild = self.normalised and (sharpness if like is None else like) < mildest
        errors = known.at(strength, sharpness, mean=mild)
        if mild and rare:
            # Few points carry the errors of the direction that hides them where it is not integrated.
            other = known.at(strength, sharpness, mean=False)
            return max(errors, other, key=lambda item: _carriers(*item.terms(item.least()[1])))
        return errors

    def rough(self, strength: float, sharpness: float, rare: bool) -> float:
        """Return the error on the points that the rule is fitted to."""
        if sharpness == 0 and self.normalised:
            return _Linear(self._task).least(strength).test_error
        return self._errors(strength, sharpness, self.size, FIT, rare).least()[0]

    def judged(self, strength: float, rare: bool, tolerance: float) -> Oracle:
        """Return the error on other points, more of them until the tolerance is met."""
        assert self.sharpness is not None
        rate = self._task.positive_rate
        chosen = (self.sharpness, *self.rivals)
        for size in _SIZES:
            best, *others = sorted(
                (self._judgement(strength, value, size, rare) for value in chosen),
                key=lambda item: item.fitted,
            )
            gains = {other.sharpness: best.gain(other) for other in others}
            missed = best.gained + max(gains.values(), default=0.0)
            found = MeasuredError.of(best.positive, best.negative, missed)
            wanted = tolerance * found.error
            centre = best.sharpness
            if self.searched and (found.uncertainty <= wanted or size == _SIZES[-1]):
                _, near = self._nearby(strength, centre, best.judged, size, JUDGE, rare)
                found = replace(found, uncertainty=found.uncertainty + near)
                if found.uncertainty > wanted and size < _SIZES[-1]:
                    fit = max(size, self.size)
                    centre, _ = self._nearby(strength, centre, best.fitted, fit, FIT, rare)
            if found.uncertainty <= wanted:
                break
            matters = _UNDECIDED * wanted
            chosen = (centre, *(value for value, gain in gains.items() if gain > matters))
        # Constant guesses are rules too.
        least = min(found.error, rate, 1 - rate)
        return Oracle(least, best.sharpness, best.threshold, found.uncertainty, found.solution)

    def _nearby(
        self, strength: float, sharpness: float, here: float, size: int, stream: int, rare: bool
    ) -> tuple[float, float]:
        """Return the best sharpness near one, and how far its error is below the one `here`.

        Both on points of a stream, each sharpness with its own best threshold.
        """
        step = float(np.exp(_NEAR_STEP))
        low, high = (
            self._errors(strength, value, size, stream, rare, like=sharpness).least()[0]
            for value in (sharpness / step, sharpness * step)
        )
        slope, bend = 0.5 * (high - low), low + high - 2 * here
        # Without a least error between the three, the lower end.
        shift = -slope / bend if bend > 0 else -np.inf * slope
        shift = float(np.clip(np.nan_to_num(shift), -_NEAR_REACH, _NEAR_REACH))
        return sharpness * float(step**shift), max(-(slope + 0.5 * bend * shift) * shift, 0.0)

    def _judgement(self, strength: float, sharpness: float, size: int, rare: bool) -> "_Judgement":
        """Fit the threshold on some points and judge it on as many others."""
        fitted = self._errors(strength, sharpness, max(size, self.size), FIT, rare)
        least, threshold = fitted.least()
        errors = self._errors(strength, sharpness, size, JUDGE, rare)
        # How much a threshold that knows the points would gain: more than the best one gains.
        judged = errors.least()[0]
        gained = max(errors.error(threshold) - judged, 0.0)
        return _Judgement(sharpness, threshold, least, judged, *errors.terms(threshold), gained)


@dataclass(frozen=True, eq=False)
class _Judgement:
    """A sharpness and a threshold, with their error on the points that they were fitted to.

    Its terms are those on other points, `judged` is the error there of the threshold that is best
    there, and `gained` what that gains.
    """

    sharpness: float
    threshold: float
    fitted: float
    judged: float
    positive: Array
    negative: Array
    gained: float

    def gain(self, other: "_Judgement") -> float:
        """Return how much less the error of another rule may be: what the same points leave open."""
        more = (self.positive - other.positive).mean(axis=1)
        more += (self.negative - other.negative).mean(axis=1)
        return max(float(more.mean()) + replicate_error(more), 0.0)


class _Summed(_WithSharpness):
    """A sum over the tokens that no single one decides: its law is exact."""

    grid = _SMALL_SHARPNESS_GRID

    def __init__(self, task: Task, sharpness: float | None, nonlinearity: str) -> None:
        super().__init__(task, sharpness)
        self._nonlinearity = nonlinearity

    def _error(self, strength: float, sharpness: float, judged: bool) -> SumError:
        task = self._task.replace(strength=strength)
        return sum_error(task, self._nonlinearity, sharpness, judged=judged)

    def rough(self, strength: float, sharpness: float, _rare: bool) -> float:
        return self._error(strength, sharpness, judged=False).error

    def judged(self, strength: float, _rare: bool, _tolerance: float) -> Oracle:
        assert self.sharpness is not None
        chosen = (self.sharpness, *self.rivals)
        known = {value: self._error(strength, value, judged=True) for value in chosen}
        sharpness = min(chosen, key=lambda value: known[value].error)
        found = known[sharpness]
        solution = Solution(Status.CONVERGED, residual=0.0, steps=1)
        if found.uncertainty > found.error:
            detail = "the error is below the rounding of its law"
            solution = Solution(Status.BEYOND_REACH, residual=0.0, steps=1, detail=detail)
        return Oracle(found.error, sharpness, found.threshold, found.uncertainty, solution)


def _elementwise(task: Task, sharpness: float | None, nonlinearity: str) -> Rule:
    if nonlinearity == "exp":
        return LargestTokenRule(task, sharpness, normalised=False)
    return _Summed(task, sharpness, nonlinearity)


# The rule of each classifier for a task, a sharpness and a nonlinearity.
RULES: dict[str, Callable[[Task, float | None, str], Rule]] = {
    "attention": lambda task, sharpness, _: LargestTokenRule(task, sharpness, normalised=True),
    "pooled": lambda task, *_: _Linear(task),
    "vectorised": lambda task, *_: _Linear(task),
    "elementwise": _elementwise,
    "bayes": lambda task, *_: _Bayes(task),
}
ORACLES = tuple(RULES)


@dataclass(frozen=True)
class MeasuredError:
    """An error as a mean over points, with its bar and what the points cannot tell."""

    error: float
    uncertainty: float
    solution: Solution

    @classmethod
    def of(cls, positive: Array, negative: Array, gain: float) -> "MeasuredError":
        """Sum the means over positives and negatives, terms of shape (replicates, points).

        `gain` is what a rule fitted to these very points would gain.
        """
        replicates = positive.mean(axis=1) + negative.mean(axis=1)
        shares = np.concatenate(
            [positive.ravel() / positive.size, negative.ravel() / negative.size]
        )
        error, largest = float(shares.sum()), float(shares.max())
        seen = _carriers(positive, negative)
        # What no point shows happens to less than about one of them, and may double their chance.
        bar = replicate_error(replicates, largest) + error / positive.size + gain
        status, detail = Status.CONVERGED, ""
        if seen < _FEW:
            # An event that none of n points shows has a probability below 3/n, at 95 %.
            bar = max(bar, 3 * (1 / positive.size + 1 / negative.size))
            status, detail = Status.BEYOND_REACH, f"only some {seen:.0f} points of the law err"
        return cls(error, bar, Solution(status, residual=0.0, steps=1, detail=detail))


def _carriers(positive: Array, negative: Array) -> float:
    """Return how many points carry an error: (Σ s)²/Σ s² of the shares s that its terms have in it."""
    shares = np.concatenate([positive.ravel() / positive.size, negative.ravel() / negative.size])
    largest = float(shares.max())
    if not largest > 0:
        return 0.0
    # In units of the largest share: squares of very small errors would vanish.
    relative = shares / largest
    return float(relative.sum()) ** 2 / float(relative @ relative)
