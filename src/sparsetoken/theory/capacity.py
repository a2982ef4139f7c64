"""How many samples per dimension a linear readout can separate (docs/theory.md, section 6)."""

from dataclasses import dataclass, field

import numpy as np

from sparsetoken.numerics.solution import Solution, Status
from sparsetoken.numerics.threads import one_thread
from sparsetoken.records import Record
from sparsetoken.task import Query, Task, Training
from sparsetoken.theory.margin import EXCESS_FLOOR, largest_capacity, least_excess
from sparsetoken.theory.prediction import chosen_query, feature_law
from sparsetoken.theory.replicates import replicate_error

__all__ = ["Capacity", "capacity"]

_SIZE = 12


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
    """

    alpha: float
    uncertainty: float
    query: Query | None = field(metadata={"merge": True})
    solution: Solution


@one_thread
def capacity(
    task: Task,
    training: Training | None = None,
    *,
    classifier: str = "attention",
    query: Query | None = None,
) -> Capacity:
    """Predict the capacity of a classifier on a task, 1/α* = min E[(√(1+μ_e²) G - y m/S)₊²].

    The formula is Conjecture 1 of the source, checked by simulation, not proved.

    Parameters
    ----------
    training : Training, optional
        How the query is learnt, if it is not given.
    classifier : str
        "attention", "pooled", "vectorised", or another entry of `theory.laws.LAWS`.
    query : Query, optional
        A given query, for classifiers that take one.
    """
    query, _ = chosen_query(task, training, classifier, query)
    law = feature_law(task, classifier, query, _SIZE)
    result = least_excess(law)
    excess = result.evaluation.hinged
    if excess.value < EXCESS_FLOOR:
        beyond = law.dimension_ratio * largest_capacity(law)
        exact = law.replicates == 1
        solution = Solution(
            Status.CONVERGED if exact else Status.BEYOND_REACH,
            result.residual,
            result.steps,
            "separable at any size in practice: the capacity is beyond 10^9"
            if exact
            else f"the capacity is beyond {beyond:.2g}",
        )
        return Capacity(np.inf, 0.0 if exact else np.inf, query, solution)
    alpha = law.dimension_ratio / excess.value
    # At the minimum the error of the excess is, to first order, that of the law at a fixed point.
    relative = result.residual + replicate_error(excess.replicates) / excess.value
    status = Status.CONVERGED if result.converged else Status.DEGENERATE
    solution = Solution(status, result.residual, result.steps)
    return Capacity(float(alpha), float(alpha * relative), query, solution)
