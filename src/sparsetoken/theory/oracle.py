"""What a classifier can do when it knows the signal (docs/theory.md, section 2)."""

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace

import numpy as np
from scipy import optimize
from scipy.special import ndtri

from sparsetoken import validation
from sparsetoken.numerics.memory import path_memory
from sparsetoken.numerics.solution import Solution, Status
from sparsetoken.numerics.threads import one_thread
from sparsetoken.records import Curve, Record
from sparsetoken.task import Task
from sparsetoken.theory.oracle_rules import (
    ORACLES,
    RARE,
    TOLERANCE,
    LargestTokenRule,
    Oracle,
    Rule,
    rule_for,
)
from sparsetoken.validation import ParameterError

__all__ = [
    "ORACLES",
    "Oracle",
    "RequiredStrength",
    "oracle",
    "required_strength",
    "strength_curve",
]

# Wanted bar, as a fraction of the strength.
_STRENGTH_TOLERANCE = 2e-3

# Errors below this drown in the rounding of probabilities; strengths end where those of a task do.
_LEAST_ERROR = 1e-15
_LARGEST_STRENGTH = 1e6

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


@dataclass(frozen=True)
class RequiredStrength(Record):
    """The least signal strength for a given error.

    Attributes
    ----------
    strength : float
        Infinite if no strength up to 10^6, the largest of a task, is enough.
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
    tolerance: float = TOLERANCE,
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
    judge = rule_for(task, classifier, nonlinearity, sharpness)
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
    judge = rule_for(task, classifier, nonlinearity, sharpness)
    validation.instance("near", near, RequiredStrength, optional=True)
    return _searched(judge, task, error, tolerance, near)


def _searched(
    judge: "Rule",
    task: Task,
    error: float,
    tolerance: float,
    near: RequiredStrength | None = None,
) -> RequiredStrength:
    """Search for the strength, near a known one, and between the bounds of attention's."""
    found = _StrengthSearch(judge, task, error, tolerance).solve(near)
    free = isinstance(judge, LargestTokenRule) and judge.normalised and judge.sharpness is None
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
    for value in validation.several("values", values, "numbers"):
        varied = task.replace(**{over: value})
        judge = rule_for(varied, classifier, nonlinearity, sharpness)
        with one_thread:
            near = _searched(judge, varied, error, tolerance, near)
        chosen.append(value)
        found.append(near)
    settings = {name: value for name, value in task.to_dict().items() if name in names}
    settings |= {"classifier": classifier, "error": error}
    settings.pop(over)
    return Curve(over, tuple(chosen), tuple(found), settings)


class _StrengthSearch:
    """The strength at which the least error of a rule has a given value."""

    def __init__(self, judge: Rule, task: Task, error: float, tolerance: float) -> None:
        rate = task.positive_rate
        # The error without a signal.
        self._ceiling = min(rate, 1 - rate)
        self._error = validation.real("error", error, low=0, high=self._ceiling, inclusive=False)
        if error < _LEAST_ERROR:
            raise ParameterError("error", error, f"at least {_LEAST_ERROR:g}")
        self._tolerance = validation.real("tolerance", tolerance, low=0, inclusive=False)
        self._judge = judge
        self._task = task
        self._rare = error < RARE
        self._steps = 0
        # A rule with a fixed sharpness, and what is known of it.
        self._fixed = judge
        self._known: dict[float, float] = {}

    def solve(self, near: RequiredStrength | None = None) -> RequiredStrength:
        """Solve at a fixed sharpness, choose the best one there, and so on while that helps.

        `near` is the answer to a similar question.
        """
        # Positives without an informative token look like negatives, at any strength.
        silent = min(self._task.positive_rate * self._task.silent_rate, self._ceiling)
        if self._error <= silent:
            return self._unreachable(f"sequences without a signal alone err in {silent:.3g}")
        known = near is not None and np.isfinite(near.uncertainty)
        rough = near.strength if near is not None and known else self._first()
        for _ in range(_ROUNDS):
            self._fix(self._judge.at_best(rough, self._rare))
            following = self._root(rough)
            if following > _LARGEST_STRENGTH:
                return self._unreachable(f"no strength up to {_LARGEST_STRENGTH:g} is enough")
            moved, rough = abs(following - rough), following
            if moved < _SETTLED * rough or self._fixed is self._judge:
                break
        return self._polished(rough)

    def _unreachable(self, detail: str) -> RequiredStrength:
        solution = Solution(Status.BEYOND_REACH, 0.0, self._steps, detail)
        return RequiredStrength(np.inf, np.inf, None, solution)

    def _first(self) -> float:
        """Return the lesser of what averages need and about what one token above all others needs."""
        quantile = -2 * ndtri(self._error / (2 * self._ceiling))
        number, length = self._task.counts.mean, self._task.length
        above = np.sqrt(2 * np.log(length)) + 0.5 * quantile
        return float(max(min(quantile * np.sqrt(length) / max(number, 1e-3), above), 0.1))

    def _fix(self, fixed: Rule) -> None:
        """Take a rule with a fixed sharpness, of which nothing is known but its error by chance."""
        self._fixed = fixed
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
                self._fix(self._judge.at_best(high, self._rare))
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
        if found.sharpness != self._fixed.sharpness:
            self._fix(self._fixed.at_sharpness(found.sharpness))
            slope = self._slope(rough, 0.02)
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
