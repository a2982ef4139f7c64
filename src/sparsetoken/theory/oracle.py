"""What a classifier can do when it knows the signal (docs/theory.md, section 2)."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass, fields, replace
from typing import Self

import numpy as np
from scipy import optimize
from scipy.special import expit, ndtr, ndtri

from sparsetoken import validation
from sparsetoken.arrays import Array
from sparsetoken.numerics.memory import path_memory
from sparsetoken.numerics.solution import Solution, Status
from sparsetoken.numerics.threads import one_thread
from sparsetoken.records import Curve, Record
from sparsetoken.task import Task
from sparsetoken.theory.largest_token import LargestTokenErrors, ThresholdErrors
from sparsetoken.theory.replicates import replicate_error
from sparsetoken.theory.scores import TokenSample, likelihood_ratio_scores
from sparsetoken.theory.token_sums import NONLINEARITIES, SumError, sum_error
from sparsetoken.validation import ParameterError

__all__ = [
    "ORACLES",
    "Oracle",
    "RequiredStrength",
    "oracle",
    "required_strength",
    "strength_curve",
]

ORACLES = ("attention", "pooled", "vectorised", "elementwise", "bayes")

# Wanted bars, as fractions of the error and of the strength.
_TOLERANCE = 0.01
_STRENGTH_TOLERANCE = 2e-3

# Points a label and replicate, as powers of two: for the answer, more until the tolerance is met; to
# search with, and more where the error is so near to that without a signal, or there are so many
# informative tokens that the largest one says less.
_SIZES = (5, 7, 9, 11)
_SEARCH_SIZE = 6
_LARGE_SEARCH_SIZE = 7
_WEAK = 0.8
_MANY = 2
_BAYES_SIZES = (7, 9, 10, 11)
_BAYES_BUDGET = 1.5e8
# Where the best sharpness is looked for. The error is flat around it: this much of its logarithm
# changes nothing.
_SHARPNESS_GRID = np.array([0.0, 0.5, 1.0, 2.0, 4.0, 10.0, 50.0])
_SMALL_SHARPNESS_GRID = np.array([0.0, *np.geomspace(1e-3, 100.0, 11)])
_LOG_SPACING = 1.2
_LEAST_SHARPNESS = 0.1
_LOG_ACCURACY = 0.05

# Below this sharpness the mean of all tokens says more than the largest one; less so of rare errors.
_MILD_SHARPNESS = 0.5
_RARE_MILD_SHARPNESS = 0.2

# Rules are fitted on points of one stream and judged on those of another.
_JUDGE, _FIT = 2, 3

# Below this error points that reach far into the tails are worth their price.
_RARE = 0.01
# An error that fewer points than these show may have other causes, which none shows.
_FEW = 30
_LEAST_ERROR = 1e-15
_LARGEST_STRENGTH = 1e6
_LARGEST_SHARPNESS = 1e12

# A search for the strength solves at a fixed sharpness and chooses the best one where it ends, so
# many times at most, until the strength moves no more than this; on the way it chooses anew where
# the strength has grown so much.
_LEAST_STRENGTH = 1e-3
_ROUNDS = 4
_SETTLED = 0.05
_ROOT_ACCURACY = 1e-3
_FAR = 2.0
# A bar above this fraction of attention's strength makes bounds worth their price.
_UNSURE = 0.2
# Where the strength has moved less than this the best sharpness is near the last one.
_NEAR = 0.3


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
    >>> round(found.test_error, 3), found.sharpness > 1
    (0.043, True)
    """

    test_error: float
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
@path_memory()
def oracle(
    task: Task,
    *,
    classifier: str = "attention",
    nonlinearity: str = "sigmoid",
    sharpness: float | None = None,
    tolerance: float = _TOLERANCE,
) -> Oracle:
    """Return the least error of a classifier that knows the signal, for any length up to 10^6.

    Parameters
    ----------
    task : Task
    classifier : "attention", "pooled", "vectorised", "elementwise" or "bayes"
        "bayes" is the floor under all of them.
    nonlinearity : "sigmoid", "tanh", "linear" or "exp", for "elementwise"
    sharpness : float, optional
        A fixed κ instead of the best one, for "attention" and "elementwise".
    tolerance : float
        Wanted numerical error, as a fraction of the error. If it cannot be reached, the
        uncertainty says so.

    Returns
    -------
    Oracle

    Examples
    --------
    >>> from sparsetoken import Task, oracle
    >>> round(oracle(Task(16, 2, 3.0), classifier="pooled").test_error, 4)
    0.2266
    """
    judge = _judge(task, classifier, nonlinearity, sharpness)
    tolerance = validation.real("tolerance", tolerance, low=0, inclusive=False)
    return judge.least(task.strength, None, tolerance)


@one_thread
@path_memory()
def required_strength(
    task: Task,
    *,
    error: float,
    classifier: str = "attention",
    nonlinearity: str = "sigmoid",
    sharpness: float | None = None,
    tolerance: float = _STRENGTH_TOLERANCE,
    near: RequiredStrength | None = None,
) -> RequiredStrength:
    """Return the least strength θ at which `oracle` reaches the given error; the inverse of it.

    The task's own strength does not matter.

    Parameters
    ----------
    task : Task
    error : float
        Between 10^-15 and what no signal gives, min(π, 1 - π).
    classifier, nonlinearity, sharpness : as for `oracle`
    tolerance : float
        Wanted numerical error, as a fraction of the strength, or of the error where that depends
        little on the strength. If it cannot be reached, the uncertainty says so.
    near : RequiredStrength, optional
        The answer to a similar question, where the search begins: it is found sooner then.

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
    validation.instance("near", near, RequiredStrength, optional=True)
    return _searched(judge, task, error, tolerance, near)


def _searched(
    judge: "_Rule",
    task: Task,
    error: float,
    tolerance: float,
    near: RequiredStrength | None = None,
) -> RequiredStrength:
    """Search for the strength, near a known one, and between the bounds of attention's."""
    found = _StrengthSearch(judge, task, error, tolerance).solve(near)
    free = isinstance(judge, _LargestToken) and judge.normalised and judge.sharpness is None
    return _between_bounds(task, error, found) if free else found


def _between_bounds(task: Task, error: float, found: RequiredStrength) -> RequiredStrength:
    """Put attention's strength between Bayes' and pooling's, where its points tell less.

    Pooling is attention of sharpness 0, so that the best sharpness needs no more.
    """
    if found.solution.status is Status.CONVERGED and found.uncertainty < _UNSURE * found.strength:
        return found
    least, most = (
        required_strength(task, error=error, classifier=rule, tolerance=1e-6)
        for rule in ("bayes", "pooled")
    )
    low, high = max(0.0, least.strength - least.uncertainty), most.strength + most.uncertainty
    strength = min(max(found.strength, low), high)
    bar = max(strength - low, high - strength)
    if not bar < found.uncertainty:
        return found
    detail = "it lies between what the Bayes rule and pooling need"
    solution = replace(found.solution, status=Status.BEYOND_REACH, detail=detail)
    return replace(found, strength=strength, uncertainty=bar, solution=solution)


@path_memory()
def strength_curve(
    task: Task,
    *,
    over: str = "length",
    values: Iterable[float],
    error: float,
    classifier: str = "attention",
    nonlinearity: str = "sigmoid",
    sharpness: float | None = None,
    tolerance: float = _STRENGTH_TOLERANCE,
) -> Curve[RequiredStrength]:
    """Return the required strength along a path; each search begins where the last one ended.

    Parameters
    ----------
    task : Task
    over : "length", "informative" or "positive_rate"
    values : iterable of float
        Its values, in the order in which results are returned.
    error, classifier, nonlinearity, sharpness, tolerance : as for `required_strength`

    Returns
    -------
    Curve of RequiredStrength

    Examples
    --------
    >>> from sparsetoken import Task, strength_curve
    >>> found = strength_curve(Task(10, 1, 1.0), values=[10, 100, 1000], error=0.05)
    >>> [round(strength, 1) for strength in found.column("strength")]
    [4.2, 4.9, 5.5]
    """
    validation.instance("task", task, Task)
    names = [item.name for item in fields(Task) if item.name != "strength"]
    validation.choice("over", over, names)
    chosen, found = [], []
    near: RequiredStrength | None = None
    for value in values:
        varied = task.replace(**{over: value})
        judge = _judge(varied, classifier, nonlinearity, sharpness)
        with one_thread:
            near = _searched(judge, varied, error, tolerance, near)
        chosen.append(value)
        found.append(near)
    settings = {name: value for name, value in task.to_dict().items() if name in names}
    settings |= {"classifier": classifier, "error": error}
    settings.pop(over)
    return Curve(over, tuple(chosen), tuple(found), settings)


def _judge(task: Task, classifier: str, nonlinearity: str, sharpness: float | None) -> "_Rule":
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
        return _LargestToken(task, sharpness, normalised=True)
    if classifier == "elementwise":
        if nonlinearity == "exp":
            return _LargestToken(task, sharpness, normalised=False)
        return _Summed(task, sharpness, nonlinearity)
    return _Bayes(task) if classifier == "bayes" else _Linear(task)


class _Rule(ABC):
    """A classifier that knows the signal, at any strength of it."""

    sharpness: float | None = None

    @abstractmethod
    def least(
        self, strength: float, rare: bool | None = None, tolerance: float = _TOLERANCE
    ) -> Oracle:
        """Return the least error; with `rare` None a first look decides which points to take."""

    @abstractmethod
    def quick(self, strength: float, rare: bool) -> float:
        """Return the least error on few points, to search with."""

    def at_best(self, _strength: float, _rare: bool, _near: float | None = None) -> "_Rule":
        """Return the same rule with the sharpness fixed at the best one, if there is one."""
        return self


class _Linear(_Rule):
    """A threshold on a score that is N(0, 1) or N(Δ, 1), Δ = θR/√L."""

    def __init__(self, task: Task) -> None:
        self._rate = task.positive_rate
        self._known = task.counts
        self._length = task.length

    def quick(self, strength: float, _rare: bool) -> float:
        return self.least(strength).test_error

    def least(
        self, strength: float, _rare: bool | None = None, _tolerance: float = _TOLERANCE
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


class _Bayes(_Rule):
    """The likelihood-ratio test.

    With Λ the likelihood ratio, the error ∫ min(π p₊, (1-π) p₋) is the mean of
    2 min(πΛ, 1-π)/(1+Λ) over sequences of which half are positive, whatever π is: no term is above
    twice the smaller rate.
    """

    def __init__(self, task: Task) -> None:
        self._task = task
        self._samples = _Samples(task)

    def least(
        self, strength: float, rare: bool | None = None, tolerance: float = _TOLERANCE
    ) -> Oracle:
        if rare is None:
            rare = self.quick(strength, False) < _RARE
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

    def _measured(self, strength: float, rare: bool, largest: int) -> "_Measured":
        task = self._task
        largest_number = int(task.counts.values[-1])
        work = task.length * largest_number if largest_number > 1 else 1
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


class _WithSharpness(_Rule):
    """A rule whose sharpness is the best one on a grid and near there, or a fixed one."""

    grid: Array

    def __init__(self, task: Task, sharpness: float | None) -> None:
        self._task = task
        self.sharpness = sharpness
        many = task.counts.mean > _MANY
        self.size = _LARGE_SEARCH_SIZE if many else _SEARCH_SIZE

    @abstractmethod
    def rough(self, strength: float, sharpness: float, rare: bool) -> float:
        """Return the error with the best threshold on few points."""

    @abstractmethod
    def judged(self, strength: float, sharpness: float, rare: bool, tolerance: float) -> Oracle:
        """Return the error with its bar."""

    def least(
        self, strength: float, rare: bool | None = None, tolerance: float = _TOLERANCE
    ) -> Oracle:
        sharpness = self._best_sharpness(strength, bool(rare))
        if rare is None and self.rough(strength, sharpness, False) < _RARE:
            rare, sharpness = True, self._best_sharpness(strength, True, sharpness)
        return self.judged(strength, sharpness, bool(rare), tolerance)

    def quick(self, strength: float, rare: bool) -> float:
        return self.rough(strength, self._best_sharpness(strength, rare), rare)

    def at_best(self, strength: float, rare: bool, near: float | None = None) -> Self:
        fixed = copy(self)
        fixed.sharpness = self._best_sharpness(strength, rare, near)
        return fixed

    def _best_sharpness(self, strength: float, rare: bool, near: float | None = None) -> float:
        """Return the κ of least error: a coarse scan unless it is near one, then a search there."""
        if self.sharpness is not None:
            return self.sharpness
        grid = self.grid
        if near is None:
            scanned = [self.rough(strength, float(value), rare) for value in grid]
            near = float(grid[int(np.argmin(scanned))])
            rate = self._task.positive_rate
            if min(scanned) > _WEAK * min(rate, 1 - rate):
                self.size = _LARGE_SEARCH_SIZE
        ends = np.log([_LEAST_SHARPNESS * grid[1], grid[-1]])
        centre = float(np.clip(np.log(max(near, 1e-300)), *ends))

        def error(logarithm: float) -> float:
            return self.rough(strength, float(np.exp(logarithm)), rare)

        found = optimize.minimize_scalar(
            error,
            bounds=np.clip([centre - _LOG_SPACING, centre + _LOG_SPACING], *ends),
            method="bounded",
            options={"maxiter": 10, "xatol": _LOG_ACCURACY},
        )
        chosen = float(np.exp(found.x))
        return chosen if found.fun < self.rough(strength, near, rare) else near


class _LargestToken(_WithSharpness):
    """Softmax attention, or a sum of exp: errors that the largest token decides.

    Sharpness and threshold are the best on points that do not judge them.
    """

    grid = _SHARPNESS_GRID

    def __init__(self, task: Task, sharpness: float | None, *, normalised: bool) -> None:
        super().__init__(task, sharpness)
        self.normalised = normalised
        self._known: dict[tuple[int, int, bool], LargestTokenErrors] = {}

    def _errors(
        self, strength: float, sharpness: float, size: int, stream: int, rare: bool
    ) -> ThresholdErrors:
        key = (size, stream, rare)
        if key not in self._known:
            self._known[key] = LargestTokenErrors(
                self._task, size, stream=stream, rare=rare, normalised=self.normalised
            )
        known = self._known[key]
        mild = self.normalised and sharpness < (_RARE_MILD_SHARPNESS if rare else _MILD_SHARPNESS)
        errors = known.at(strength, sharpness, mean=mild)
        if mild and rare:
            # Whichever direction is not integrated may hide rare errors, never make them.
            other = known.at(strength, sharpness, mean=False)
            return max(errors, other, key=lambda item: item.least()[0])
        return errors

    def rough(self, strength: float, sharpness: float, rare: bool) -> float:
        if sharpness == 0 and self.normalised:
            return _Linear(self._task).least(strength).test_error
        return self._errors(strength, sharpness, self.size, _FIT, rare).least()[0]

    def judged(self, strength: float, sharpness: float, rare: bool, tolerance: float) -> Oracle:
        rate = self._task.positive_rate
        for size in _SIZES:
            fitted = self._errors(strength, sharpness, max(size, self.size), _FIT, rare)
            _, threshold = fitted.least()
            errors = self._errors(strength, sharpness, size, _JUDGE, rare)
            terms = errors.terms(threshold)
            # How much a threshold that knows the points would gain: more than the best one gains.
            gain = max(errors.error(threshold) - errors.least()[0], 0.0)
            found = _Measured.of(*terms, gain)
            if found.uncertainty <= tolerance * found.error:
                break
        # Constant guesses are rules too.
        least = min(found.error, rate, 1 - rate)
        return Oracle(least, sharpness, threshold, found.uncertainty, found.solution)


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

    def judged(self, strength: float, sharpness: float, _rare: bool, _tolerance: float) -> Oracle:
        found = self._error(strength, sharpness, judged=True)
        solution = Solution(Status.CONVERGED, residual=0.0, steps=1)
        if found.uncertainty > found.error:
            detail = "the error is below the rounding of its law"
            solution = Solution(Status.BEYOND_REACH, residual=0.0, steps=1, detail=detail)
        return Oracle(found.error, sharpness, found.threshold, found.uncertainty, solution)


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
        # What no point shows happens to less than about one of them, and may double their chance.
        bar = replicate_error(replicates, largest) + error / positive.size + gain
        status, detail = Status.CONVERGED, ""
        if seen < _FEW:
            # An event that none of n points shows has a probability below 3/n, at 95 %.
            bar = max(bar, 3 * (1 / positive.size + 1 / negative.size))
            status, detail = Status.BEYOND_REACH, f"only some {seen:.0f} points of the law err"
        return cls(error, bar, Solution(status, residual=0.0, steps=1, detail=detail))


class _StrengthSearch:
    """The strength at which the least error of a rule has a given value."""

    def __init__(self, judge: _Rule, task: Task, error: float, tolerance: float) -> None:
        rate = task.positive_rate
        # The error without a signal.
        self._ceiling = min(rate, 1 - rate)
        self._error = validation.real("error", error, low=0, high=self._ceiling, inclusive=False)
        if error < _LEAST_ERROR:
            raise ParameterError("error", error, f"at least {_LEAST_ERROR:g}")
        self._tolerance = validation.real("tolerance", tolerance, low=0, inclusive=False)
        self._judge = judge
        self._task = task
        self._rare = error < _RARE
        self._steps = 0
        # A rule with a fixed sharpness, and what is known of it.
        self._fixed = judge
        self._known: dict[float, float] = {}

    def solve(self, near: RequiredStrength | None = None) -> RequiredStrength:
        """Solve at a fixed sharpness, choose the best one there, and so on while that helps.

        `near` is the answer to a similar question.
        """
        rough, last = self._first(), None
        if near is not None and np.isfinite(near.uncertainty):
            rough, last = near.strength, near.sharpness
        for _ in range(_ROUNDS):
            self._fix(rough, last)
            following = self._root(rough)
            if following > _LARGEST_STRENGTH:
                detail = f"no strength up to {_LARGEST_STRENGTH:g} is enough"
                solution = Solution(Status.BEYOND_REACH, 0.0, self._steps, detail)
                return RequiredStrength(np.inf, np.inf, None, solution)
            moved = abs(following - rough)
            last = self._fixed.sharpness if moved < _NEAR * rough else None
            rough = following
            if moved < _SETTLED * rough or self._fixed is self._judge:
                break
        return self._polished(rough)

    def _first(self) -> float:
        """Return the lesser of what averages need and about what one token above all others needs."""
        quantile = -2 * ndtri(self._error / (2 * self._ceiling))
        number, length = self._task.counts.mean, self._task.length
        above = np.sqrt(2 * np.log(length)) + 0.5 * quantile
        return float(max(min(quantile * np.sqrt(length) / max(number, 1e-3), above), 0.1))

    def _fix(self, strength: float, near: float | None = None) -> None:
        """Take the sharpness that is best at this strength, if there is one to choose."""
        self._fixed = self._judge.at_best(strength, self._rare, near)
        self._known = {0.0: float(np.log(self._ceiling))}

    def _root(self, near: float) -> float:
        """Return the strength that is wanted at the fixed sharpness, or one beyond all."""
        near = max(near, _LEAST_STRENGTH)
        low, high = 0.0, near
        factor = 1.1
        while self._excess(high) > 0:
            low, high, factor = high, factor * high, 1.5
            if high > _LARGEST_STRENGTH:
                return high
            if self._fixed is not self._judge and high > _FAR * near:
                # Another sharpness may be far better here, and nothing is known of it below.
                low, near = 0.0, high
                self._fix(high)
        for share in (0.9, 0.5):
            if low == 0.0 and self._excess(share * high) > 0:
                low = share * high
            elif low == 0.0:
                high = share * high
        found = optimize.brentq(self._excess, low, high, xtol=1e-12, rtol=_ROOT_ACCURACY)
        # A threshold fitted to few points may seem to do better than chance without a signal.
        return max(float(found), _LEAST_STRENGTH)

    def _excess(self, strength: float) -> float:
        """Return log(error/wanted error) on few points, at the fixed sharpness."""
        if strength not in self._known:
            found = self._fixed.quick(strength, self._rare)
            self._known[strength] = float(np.log(max(found, 1e-300)))
            self._steps += 1
        return self._known[strength] - float(np.log(self._error))

    def _polished(self, rough: float) -> RequiredStrength:
        """Correct the strength by one step on many points, and give it an error bar."""
        slope = self._slope(rough, 0.02)
        wanted = self._tolerance * max(-slope * rough, 1.0)
        found = self._fixed.least(rough, self._rare, wanted)
        relative = found.uncertainty / self._error
        # Over a distance on which the error moves more than its bar, the slope is no noise.
        needed = np.clip(2 * relative / max(-slope * rough, 1e-300), 0.02, 0.5)
        if needed > 0.02:
            slope = self._slope(rough, float(needed))
        distance = np.log(found.test_error / self._error) if found.test_error > 0 else -np.inf
        # Few points and many must agree on where the error is, or it lies beyond them.
        if slope >= 0 or abs(distance) > 1:
            detail = "at this strength the points of the law begin to err"
            return self._beyond(rough, np.inf, found, detail)
        strength = rough - distance / slope
        # The last step is a straight line over a distance on which the slope changes a little.
        bar = relative / -slope + (strength - rough) ** 2 / rough + 1e-6 * rough
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
