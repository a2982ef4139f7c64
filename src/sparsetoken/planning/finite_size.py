"""What a prediction becomes at a finite dimension: the mean over data sets, and their spread."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparsetoken import validation
from sparsetoken.limits import MOST_DIMENSIONS, MOST_TRIALS
from sparsetoken.numerics.memory import path_memory
from sparsetoken.records import Record
from sparsetoken.simulation.trials import Simulation, simulate
from sparsetoken.task import Query, Task, Training
from sparsetoken.theory.predictor import predict
from sparsetoken.uncertainty import standard_error

__all__ = ["FiniteSize", "finite_size"]

# A trial of n1 × d numbers takes some milliseconds; larger ones are not simulated but extrapolated,
# from dimensions at which the difference still stands out of the spread: this, or ten samples.
_NUMBERS = 4e5
_SMALL_DIMENSION = 64
_FEW_SAMPLES = 10


@dataclass(frozen=True)
class FiniteSize(Record):
    """The test error at a finite dimension.

    Attributes
    ----------
    test_error : float
        Its mean over data sets of that dimension.
    spread : float
        Its standard deviation between data sets.
    difference : float
        The mean minus the limit.
    limit : float
        The prediction for infinite dimension.
    dimension : int
    simulated : int
        The largest dimension that was simulated. The rest is extrapolated: the difference as 1/d, the
        spread as 1/√d.
    uncertainty : mapping
        Standard errors of the mean and of the spread, with what the extrapolation may be off.

    Examples
    --------
    >>> from sparsetoken import Task, Training, finite_size
    >>> found = finite_size(Task(10, 1, 5.0), Training(4.0, 0.5), dimension=100, trials=8)
    >>> abs(found.difference - (found.test_error - found.limit)) < 1e-12
    True
    """

    test_error: float
    spread: float
    difference: float
    limit: float
    dimension: int
    simulated: int
    uncertainty: Mapping[str, float]


@path_memory()
def finite_size(
    task: Task,
    training: Training,
    *,
    dimension: int,
    trials: int = 128,
    classifier: str = "attention",
    query: Query | None = None,
    at: Task | None = None,
    tolerance: float = 1e-4,
    seed: int = 0,
    workers: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> FiniteSize:
    """Estimate mean and spread of the test error at a finite dimension.

    Small problems are simulated at that dimension. Larger ones are simulated at two smaller
    dimensions, and the difference from the prediction is extrapolated as c/d. The constant c is not
    universal: it is some 11 at α1 = 0.1 and below 1 at α1 >= 1.

    Parameters
    ----------
    task, training, classifier, query, at, tolerance : as in `predict`
    dimension : int
        Dimension d of a token.
    trials : int
        Data sets drawn at each simulated dimension.
    seed, workers, progress : as in `simulate`; progress counts the trials of all dimensions

    Returns
    -------
    FiniteSize

    Examples
    --------
    >>> from sparsetoken import Task, Training, finite_size
    >>> found = finite_size(Task(10, 1, 5.0), Training(4.0, 0.1), dimension=200, trials=8)
    >>> found.dimension, found.simulated
    (200, 200)
    """
    dimension = validation.integer("dimension", dimension, low=2, high=MOST_DIMENSIONS)
    trials = validation.integer("trials", trials, low=4, high=MOST_TRIALS)
    validation.callback("progress", progress)
    kind: dict[str, Any] = {"classifier": classifier, "query": query, "at": at}
    prediction = predict(task, training, tolerance=tolerance, **kind)
    limit, bar = prediction.test_error, prediction.uncertainty.test_error
    dimensions = _simulated_dimensions(dimension, training.alpha1)
    total, before = trials * len(dimensions), 0

    def tell(done: int, _: int) -> None:
        if progress is not None:
            progress(before + done, total)

    found = []
    for size in dimensions:
        kind |= {"dimension": size, "trials": trials, "seed": seed, "workers": workers}
        found.append(simulate(task, training, progress=tell, **kind))
        before += trials
    return _extrapolated(dimension, found, limit, bar)


def _simulated_dimensions(dimension: int, alpha: float) -> tuple[int, ...]:
    """Return the dimension itself if it is small enough, or two smaller ones."""
    small = max(_SMALL_DIMENSION, math.ceil(_FEW_SAMPLES / alpha))
    if dimension <= max(2 * small, math.sqrt(_NUMBERS / alpha)):
        return (dimension,)
    return small, 2 * small


def _extrapolated(
    dimension: int, simulations: list[Simulation], limit: float, bar: float
) -> FiniteSize:
    """Fit difference = c/d and spread = s/√d to simulations; a single one is at the dimension itself."""
    sizes = np.array([item.dimension for item in simulations], dtype=float)
    errors = [np.array(item.values("test_error")) for item in simulations]
    deviations = np.array([values.std(ddof=1) for values in errors])
    counts = np.array([len(values) for values in errors])
    # Where no data set differs from another, all weigh the same.
    standard = np.maximum([standard_error(values) for values in errors], 1e-12)
    constants = sizes * np.array([values.mean() - limit for values in errors])
    weights = (sizes * standard) ** -2.0
    constant = float(weights @ constants / weights.sum())
    # If two dimensions disagree on c, terms of higher order matter: by about so much.
    higher = float(np.ptp(constants)) if len(sizes) > 1 else 0.0
    statistical = float(weights.sum() ** -0.5)
    largest = float(sizes[-1])
    spread = float(deviations[-1] * math.sqrt(largest / dimension))
    extrapolated = 0.0 if len(sizes) == 1 else bar
    return FiniteSize(
        test_error=limit + constant / dimension,
        spread=spread,
        difference=constant / dimension,
        limit=limit,
        dimension=dimension,
        simulated=int(largest),
        uncertainty={
            "test_error": math.hypot(statistical, higher) / dimension + extrapolated,
            "spread": spread / math.sqrt(2 * (counts[-1] - 1)),
            "difference": math.hypot(statistical, higher) / dimension + bar,
            "limit": bar,
        },
    )
