"""Test errors far below the number of points of the law, against importance sampling by hand."""

import numpy as np
import pytest
from scipy.special import ndtr, softmax

from sparsetoken import Prediction, Query, Task, Training, predict

SHIFTS = np.arange(11.0)


def importance_sampled_error(
    task: Task, query: Query, prediction: Prediction, count: int, seed: int
) -> tuple[float, float]:
    """The error E Φ(-ym/(Sρ)) of the predicted readout, and its standard error.

    Plain random numbers with informative tokens lowered by 0 to 10, or one other token raised by as
    much; weights by the ratio of the densities. Only the readout's four numbers are the package's.
    """
    rng = np.random.default_rng(seed)
    readout = prediction.order_parameters
    informative, gamma = task.informative, query.alignment
    error, variance = 0.0, 0.0
    for label, rate in ((1, task.positive_rate), (-1, 1 - task.positive_rate)):
        parts = []
        for shift in SHIFTS:
            u = rng.standard_normal((count, task.length))
            if label == 1:
                u[:, :informative] -= shift
                total = u[:, :informative].sum(axis=1)
                ratios = np.exp(-SHIFTS[:, None] * total - informative * SHIFTS[:, None] ** 2 / 2)
            else:
                u[:, 0] += shift
                ratios = np.exp(SHIFTS[:, None, None] * u - SHIFTS[:, None, None] ** 2 / 2).mean(2)
            mass = np.zeros(task.length)
            mass[:informative] = label == 1
            p = softmax(query.sharpness * (task.strength * gamma * mass + u), axis=1)
            marked, scale = p @ mass, np.linalg.norm(p, axis=1)
            along = task.strength * gamma * marked + (p * u).sum(axis=1)
            across = task.strength * np.sqrt(1 - gamma**2) * marked
            mean = readout.along * along + readout.across * across + readout.bias
            noise = scale * np.hypot(readout.across, readout.rest)
            parts.append(ndtr(-label * mean / noise) / ratios.mean(axis=0))
        error += rate * np.mean(parts)
        variance += rate**2 * np.mean(np.var(parts, axis=1)) / (count * len(SHIFTS))
    return float(error), float(np.sqrt(variance))


# z < 4, and standard errors below 2 %: a deviation of 8 % beside the error bar would be noticed.
@pytest.mark.parametrize(
    ("task", "query"),
    [
        (Task(10, 1, 11.0), Query(0.97, 1.5)),
        (Task(10, 1, 13.0), Query(0.97, 0.5)),
        (Task(10, 2, 9.0), Query(0.95, 1.0)),
        (Task(40, 1, 15.0, 0.3), Query(0.98, 2.0)),
    ],
)
def test_rare_test_errors_to_five_percent(task: Task, query: Query) -> None:
    found = predict(task, Training(6.0, 3.0, ridge=1e-2), query=query)
    error, deviation = importance_sampled_error(task, query, found, 10_000, seed=1)
    assert error < 1e-6
    assert deviation < 0.02 * error
    assert abs(found.test_error - error) < found.uncertainty.test_error + 4 * deviation
    assert found.uncertainty.test_error < 0.05 * found.test_error
    assert found.solution.converged


def test_an_error_below_the_tolerance_is_given_to_five_percent_though_many_points_err() -> None:
    task, query = Task(10, 1, 8.5), Query(0.97, 1.5)
    found = predict(task, Training(6.0, 2.0, ridge=1e-2), query=query, tolerance=1e-3)
    assert found.test_error < 1e-3
    assert found.uncertainty.test_error < 0.05 * found.test_error
