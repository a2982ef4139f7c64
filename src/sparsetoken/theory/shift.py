"""How a classifier trained on one task does on others, and what repairs it."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sparsetoken import validation
from sparsetoken.numerics.memory import path_memory
from sparsetoken.numerics.threads import one_thread
from sparsetoken.records import UNCERTAINTY, Curve, Record
from sparsetoken.task import Query, Task, Training, vary
from sparsetoken.theory.oracle import oracle
from sparsetoken.theory.prediction import Prediction
from sparsetoken.theory.predictor import Predictor
from sparsetoken.theory.usage import BEST, Usage
from sparsetoken.validation import ParameterError

__all__ = ["Shift", "shift"]


@dataclass(frozen=True)
class Shift(Record):
    """Errors of one trained attention classifier on one task, used in several ways.

    Attributes
    ----------
    ways : dict
        `Prediction` by the way of use: "trained", "hard" (all weight on the largest score) or a
        sharpness such as "sharpness_2", each also with the best bias ("trained_best_bias"), and
        "best_pair", the best sharpness with the best bias.
    oracle_test_error : float or None
        The error of the Bayes oracle, which knows the signal; None where it is out of reach.
    oracle_test_error_uncertainty : float or None

    Examples
    --------
    >>> from sparsetoken import Query, Task, Training, shift
    >>> known = Query(alignment=0.9, sharpness=3.0)
    >>> longer = shift(Task(10, 1, 5.0), Training(4.0, 2.0), values=[100], query=known)[0]
    >>> longer.ways["trained_best_bias"].test_error < longer.ways["trained"].test_error
    True
    """

    ways: dict[str, Prediction]
    oracle_test_error: float | None
    oracle_test_error_uncertainty: float | None

    @property
    def best(self) -> str:
        """The way of use with the least error."""
        return min(self.ways, key=lambda name: self.ways[name].test_error)

    def to_dict(self) -> dict[str, Any]:
        """Return the error of every way, named after it, and the best sharpness and bias.

        Returns
        -------
        dict

        Examples
        --------
        >>> from sparsetoken import Query, Task, Training, shift
        >>> query = Query(alignment=0.9, sharpness=3.0)
        >>> found = shift(Task(10, 1, 5.0), Training(4.0, 2.0), values=[20], query=query)[0]
        >>> found.to_dict()["trained_test_error"] == found.ways["trained"].test_error
        True
        """
        flat: dict[str, Any] = {}
        for name, found in self.ways.items():
            flat[f"{name}_test_error"] = found.test_error
            flat[f"{name}_test_error{UNCERTAINTY}"] = found.uncertainty.test_error
        pair = self.ways["best_pair"]
        flat |= {"best_sharpness": pair.at_sharpness, "best_bias": pair.at_bias}
        if self.oracle_test_error is not None:
            known = "oracle_test_error"
            flat |= {name: getattr(self, name) for name in (known, known + UNCERTAINTY)}
        return flat


@one_thread
@path_memory()
def shift(
    task: Task,
    training: Training,
    *,
    over: str = "length",
    values: Iterable[float],
    query: Query | None = None,
    sharpness: Sequence[float] = (math.inf,),
    tolerance: float = 1e-3,
) -> Curve[Shift]:
    """Predict how attention trained on one task does on others, as trained and as repaired.

    Parameters
    ----------
    task : Task
    training : Training
    over : "length", "informative", "strength" or "positive_rate"
        The field of the task at test time that varies.
    values : iterable of float
    query : Query, optional
        A given query instead of the learnt one, as for `predict`.
    sharpness : sequence of float
        Sharpnesses of the softmax to try beside the trained and the best one; infinity for a hard
        maximum.
    tolerance : float
        Wanted numerical error of the errors.

    Returns
    -------
    Curve of Shift

    Examples
    --------
    >>> from sparsetoken import Query, Task, Training, shift
    >>> known = Query(alignment=0.9, sharpness=3.0)
    >>> found = shift(Task(10, 1, 5.0), Training(4.0, 2.0), values=[10, 100], query=known)
    >>> [round(point.ways["trained"].test_error, 2) for point in found]
    [0.04, 0.07]
    """
    validation.instance("task", task, Task)
    validation.choice("over", over, Task.__dataclass_fields__)
    asked = validation.several("sharpness", sharpness, "numbers")
    usages = {"trained": None, **{_named(value): value for value in asked}}
    predictor = Predictor("attention", query, Usage(), tolerance)
    points, found = [], []
    # One by one: they may come as the caller makes them.
    for value in validation.several("values", values, "numbers"):
        (at,) = vary(over, value, task)
        ways = {}
        for name, used in usages.items():
            for suffix, recalibrate in (("", False), ("_best_bias", True)):
                predictor.usage = Usage(at, used, recalibrate)
                ways[name + suffix] = predictor.predict(task, training)
        predictor.usage = Usage(at, BEST, recalibrate=True)
        ways["best_pair"] = predictor.predict(task, training)
        points.append(value)
        found.append(Shift(ways, *_oracle(at)))
    fixed = {"classifier": "attention", **task.to_dict(), **training.to_dict()}
    fixed |= query.to_dict() if query is not None else {}
    return Curve(f"at_{over}", tuple(points), tuple(found), fixed)


def _named(sharpness: float) -> str:
    value = validation.real("sharpness", sharpness, low=0, infinite=True)
    return "hard" if math.isinf(value) else f"sharpness_{value:g}"


def _oracle(task: Task) -> tuple[float | None, float | None]:
    try:
        found = oracle(task, classifier="bayes")
    except ParameterError:  # too long for several informative tokens
        return None, None
    return found.test_error, found.uncertainty
