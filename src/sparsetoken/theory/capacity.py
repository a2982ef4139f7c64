"""How many samples per dimension a linear readout can separate (docs/theory.md, section 6)."""

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from sparsetoken import validation
from sparsetoken.arrays import Array
from sparsetoken.numerics.memory import path_memory
from sparsetoken.numerics.newton import NewtonResult
from sparsetoken.numerics.solution import Solution, Status
from sparsetoken.numerics.threads import one_thread
from sparsetoken.records import Curve, Record
from sparsetoken.task import Query, Task, Training, check_matters, vary
from sparsetoken.theory.chosen_query import (
    chosen_query,
    query_fields,
    refuse_unread,
    reuses,
    training_law,
)
from sparsetoken.theory.feature_law import FeatureLaw
from sparsetoken.theory.laws import classifier_law, feature_law
from sparsetoken.theory.margin import EXCESS_FLOOR, Excess, largest_capacity, least_excess
from sparsetoken.theory.replicates import replicate_error

__all__ = ["Capacity", "capacity", "capacity_curve", "capacity_fields"]

# Points a class and replicate, as powers of two: to begin with, and where that is not enough.
_FIRST_SIZE = 9
_FINER_SIZES = (10, 12)

# The same without a split: for the search, and for the answer.
_COARSE_SIZE = 8
_SIZE = 12

# Without a split: steps of the search in log α, and where it ends.
_STEP = 0.4
_LARGEST = 1e4


@dataclass(frozen=True)
class Capacity(Record):
    """The largest ratio of samples to token dimension at which data are separable.

    Attributes
    ----------
    alpha : float
        Infinite if it is beyond 10^9, or beyond what the points of the law can tell.
    uncertainty : float
        Numerical error bar; infinite in the second case, and the status has a lower bound.
    query : Query or None
        The query that was used.
    solution : Solution

    Examples
    --------
    >>> from sparsetoken import Task, capacity
    >>> found = capacity(Task(10, 1, 5.0), classifier="pooled")
    >>> round(found.alpha, 1), found.uncertainty < 0.01 * found.alpha
    (3.0, True)
    """

    alpha: float
    uncertainty: float
    query: Query | None = field(metadata={"merge": True})
    solution: Solution


@one_thread
@path_memory()
def capacity(
    task: Task,
    training: Training | None = None,
    *,
    classifier: str = "attention",
    query: Query | None = None,
    tolerance: float = 1e-2,
) -> Capacity:
    """Predict the capacity: up to how many samples per dimension a classifier separates all data.

    1/α* = min E[(√(1+μ_e²) G - y m/S)₊²], Conjecture 1 of the paper: checked by simulation, not proved.

    Parameters
    ----------
    task : Task
    training : Training, optional
        How the query is learnt, if there is one and it is not given; refused otherwise. With `reuse`
        the answer is the largest ratio at which the samples that made the query are separable;
        alpha0 and alpha1 are not read then.
    classifier : str
        "attention", "pooled", "vectorised", or another entry of `theory.laws.LAWS`.
    query : Query, optional
        A given query, for classifiers that take one.
    tolerance : float
        Wanted numerical error of the capacity, relative to it. If it cannot be reached, the
        uncertainty says so. With `reuse` the answer is always as accurate as it gets.

    Returns
    -------
    Capacity

    Examples
    --------
    >>> from sparsetoken import Task, Query, capacity
    >>> found = capacity(Task(10, 1, 5.0), query=Query(alignment=0.9, sharpness=3.0))
    >>> round(found.alpha, 1)
    20.8
    """
    path = _Path(classifier, tolerance)
    refuse_unread(training, classifier, query)
    return path.capacity(task, training, query)


@one_thread
@path_memory()
def capacity_curve(
    task: Task,
    training: Training | None = None,
    *,
    over: str = "strength",
    values: Iterable[float],
    classifier: str = "attention",
    query: Query | None = None,
    tolerance: float = 1e-2,
) -> Curve[Capacity]:
    """Predict the capacity along a path; each point starts from the solution of the one before.

    Parameters
    ----------
    over : str
        A numeric field of `Task`, or of the query: of `Query` if one is given, else what it is
        learnt with. Others are refused, for the capacity does not depend on them.
    values : iterable of float
        Its values, in the order in which results are returned.
    task, training, classifier, query, tolerance
        As in `capacity`.

    Returns
    -------
    Curve of Capacity

    Examples
    --------
    >>> from sparsetoken import Task, capacity_curve
    >>> found = capacity_curve(Task(10, 1, 5.0), values=[0.0, 5.0, 10.0], classifier="pooled")
    >>> [round(alpha, 1) for alpha in found.column("alpha")]
    [2.0, 3.0, 8.9]
    """
    path = _Path(classifier, tolerance)
    validation.instance("task", task, Task)
    validation.instance("training", training, Training, optional=True)
    validation.instance("query", query, Query, optional=True)
    validation.instance("over", over, str)
    refuse_unread(training, classifier, query)
    check_matters(over, capacity_fields(training, classifier, query))
    points, records = [], []
    for value in validation.several("values", values, "numbers"):
        points.append(value)
        records.append(path.capacity(*vary(over, value, task, training, query)))
    fixed: dict[str, Any] = {"classifier": classifier}
    for part in (task, training, query):
        fixed |= part.to_dict() if part is not None else {}
    fixed.pop(over, None)
    return Curve(over, tuple(points), tuple(records), fixed)


def capacity_fields(
    training: Training | None, classifier: str, query: Query | None
) -> tuple[str, ...]:
    """Return the numeric fields of the settings that a capacity depends on."""
    task = tuple(item.name for item in fields(Task))
    reused = training is not None and training.reuse
    read = query_fields(classifier, query)
    return (*task, *(name for name in read if not (reused and name == "alpha0")))


class _Path:
    """Capacities one after another, each law starting from the solution of the last one."""

    def __init__(self, classifier: str, tolerance: float) -> None:
        self.law = classifier_law(classifier)
        self.classifier = classifier
        self.tolerance = validation.real("tolerance", tolerance, low=0, inclusive=False)
        self._last: Array | None = None

    def capacity(self, task: Task, training: Training | None, given: Query | None) -> Capacity:
        """Return the capacity, refining the law until the tolerance is met."""
        query, _ = chosen_query(task, training, self.classifier, given)
        if training is not None and reuses(training, self.classifier, given):
            return _without_split(task, training, self.classifier)
        found = self._of_law(feature_law(task, self.classifier, query, _FIRST_SIZE), query)
        # Few sequences decide a large capacity: points that reach into the tails tell far more.
        make = self.law.make_rare or self.law.make
        for size in _FINER_SIZES:
            if found.uncertainty <= self.tolerance * min(found.alpha, 1 / EXCESS_FLOOR):
                break
            found = self._of_law(make(task, query, size, 0), query)
        return found

    def _of_law(self, law: FeatureLaw, query: Query | None) -> Capacity:
        result = least_excess(law, self._last)
        clear = result.converged and result.evaluation.hinged.value >= EXCESS_FLOOR
        self._last = result.point if clear else None
        return _of_excess(law, result, query)


def _of_excess(law: FeatureLaw, result: NewtonResult[Excess], query: Query | None) -> Capacity:
    """Return the capacity 1/H of a law, from its least excess H."""
    excess = result.evaluation.hinged
    exact = law.replicates == 1
    beyond = law.dimension_ratio * largest_capacity(law)
    if excess.value >= EXCESS_FLOOR:
        alpha = law.dimension_ratio / excess.value
        # At the minimum the error of the excess is, to first order, that of the law at a fixed
        # point.
        relative = result.solution.residual + replicate_error(excess.replicates) / excess.value
        beyond = min(beyond, alpha / (1 + relative))
    # An excess that is all error bar is one that the points cannot tell from none.
    if excess.value < EXCESS_FLOOR or (relative > 1 and not exact):
        solution = Solution(
            Status.CONVERGED if exact else Status.BEYOND_REACH,
            result.solution.residual,
            result.solution.steps,
            "separable at any size in practice: the capacity is beyond 10^9"
            if exact
            else f"the capacity is beyond {beyond:.2g}",
        )
        return Capacity(np.inf, 0.0 if exact else np.inf, query, solution)
    status = Status.CONVERGED if result.converged else Status.DEGENERATE
    solution = replace(result.solution, status=status)
    return Capacity(float(alpha), float(alpha * relative), query, solution)


class _Load:
    """log(α H) of data at ratio α that train query and readout: negative where they are separable.

    The law of the features depends on α as well, so that the capacity is a root and not a value.
    """

    def __init__(self, task: Task, training: Training, classifier: str, size: int) -> None:
        self.problem = task, training, classifier
        self.size = size
        self.steps = 0
        self._last: Array | None = None

    def __call__(self, log_alpha: float) -> float:
        return self.with_error(log_alpha)[0]

    def with_error(self, log_alpha: float) -> tuple[float, float, float]:
        """Return the value, the error of the law and the residual of the solver."""
        task, training, classifier = self.problem
        alpha = float(np.exp(log_alpha))
        law = training_law(task, training.replace(alpha0=alpha, alpha1=alpha), classifier)
        drawn = law(self.size, 0)
        result = least_excess(drawn, self._last)
        self._last = result.point
        self.steps += result.solution.steps
        excess = result.evaluation.hinged
        # What the points of the law cannot show has a probability of a few points at most.
        floor = 1 / largest_capacity(drawn)
        value = max(excess.value, 1e-3 * floor)
        error = (replicate_error(excess.replicates) + (excess.value < floor) * floor) / value
        return log_alpha + float(np.log(value)), error, result.solution.residual


def _without_split(task: Task, training: Training, classifier: str) -> Capacity:
    """Return the smallest α at which the samples that made the query cease to be separable.

    Found on a coarse law by steps and bisection, and corrected on a fine one with the coarse slope.
    """
    from scipy.optimize import brentq  # takes longer to load than all of theory

    coarse = _Load(task, training, classifier, _COARSE_SIZE)
    low = high = 0.0  # log α: fewer samples than dimensions are always separable
    while coarse(high) < 0 and high < np.log(_LARGEST):
        low, high = high, high + _STEP
    if coarse(high) < 0:
        found = Solution(
            Status.BEYOND_REACH, 0.0, coarse.steps, f"the capacity is beyond {_LARGEST:.2g}"
        )
        return Capacity(np.inf, np.inf, None, found)
    root = float(brentq(coarse, low, high, xtol=1e-4)) if high > 0 else 0.0
    slope = (coarse(root + 0.05) - coarse(root - 0.05)) / 0.1
    fine = _Load(task, training, classifier, _SIZE)
    for _ in range(2):
        value, error, residual = fine.with_error(root)
        correction = -value / slope
        root += correction
    alpha = float(np.exp(root))
    # The second correction is the error of the first, and more than that of itself.
    relative = (error + residual) / slope + abs(correction)
    trusted = slope > 0 and relative < 1
    status = Status.CONVERGED if trusted else Status.DEGENERATE
    query, _ = chosen_query(task, training.replace(alpha0=alpha, alpha1=alpha), classifier, None)
    solution = Solution(status, residual, coarse.steps + fine.steps)
    return Capacity(alpha, alpha * relative if trusted else np.inf, query, solution)
