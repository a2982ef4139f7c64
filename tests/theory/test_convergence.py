"""Settings in which a solution is hard to find: near a threshold, or far from the first guess."""

import numpy as np
import pytest

from sparsetoken import Query, Task, Training, capacity, curve, predict

TASK = Task(length=10, informative=1, strength=5.0)
# Its capacity is 24: at 20 samples a dimension a coarse and a fine law can disagree on the side.
NEAR_CAPACITY = Training(alpha0=2, alpha1=20, ridge=1e-6)
SHARP = Query(alignment=1.0, sharpness=1.5)


@pytest.mark.parametrize("alpha1", [3, 20])
@pytest.mark.parametrize("tolerance", [1e-2, 1e-4])
def test_a_long_sequence_of_signal_but_for_one_token(alpha1: float, tolerance: float) -> None:
    almost_all = Task(length=10**4, informative=9999, strength=5.0)
    training = Training(alpha0=6, alpha1=alpha1)
    found = predict(almost_all, training, query=Query(0.95, 2.0), tolerance=tolerance)
    assert found.solution.converged, found.solution.message
    assert found.uncertainty.test_error <= 0.3 * found.test_error


@pytest.mark.parametrize("loss", ["logistic", "squared_hinge", "hinge"])
def test_near_capacity_at_a_tiny_ridge(loss: str) -> None:
    training = NEAR_CAPACITY.replace(loss=loss)
    found = predict(TASK, training, query=SHARP, tolerance=2e-3)
    assert found.solution.converged, found.solution.message
    # Coming from a heavy ridge there is another way to the same solution.
    path = curve(
        TASK, training, over="ridge", values=[1e-2, 1e-4, 1e-6], query=SHARP, tolerance=2e-3
    )
    allowed = found.uncertainty.test_error + path[-1].uncertainty.test_error
    assert path[-1].solution.converged
    assert allowed <= 4e-3
    assert abs(found.test_error - path[-1].test_error) <= allowed


@pytest.mark.parametrize(
    ("loss", "task", "steps"),
    [
        ("square", Task(8, 1, 5.0), (1.0, 1.0)),
        ("square", Task(10, 1, 5.0), (0.5, 3.0)),
        ("squared_hinge", Task(8, 2, 4.0), (1.0, 3.0)),
        ("squared_hinge", Task(10, 1, 5.0), (0.5, 10.0)),
    ],
)
def test_reused_samples_far_from_the_first_guess(
    loss: str, task: Task, steps: tuple[float, float]
) -> None:
    first, last = steps
    training = Training(
        4,
        4,
        loss=loss,
        ridge=0.02,
        readout_step=first,
        bias_step=first,
        query_step=last,
        reuse=True,
    )
    found = predict(task, training, tolerance=1e-3)
    assert found.solution.converged, found.solution.message
    # A curve that begins at a heavy ridge finds it as well.
    path = curve(task, training, over="ridge", values=[1.0, 0.1, 0.02], tolerance=1e-3)
    allowed = found.uncertainty.test_error + path[-1].uncertainty.test_error
    assert allowed <= 2e-3
    assert abs(found.test_error - path[-1].test_error) <= allowed


def test_the_capacity_of_almost_no_signal_without_a_split() -> None:
    # The query remembers the samples' noise, which helps to separate them, less the longer.
    training = Training(4, 4, query_step=20.0, reuse=True)
    found = [capacity(Task(length, 1, 1e-3), training) for length in (2, 10, 50)]
    assert all(point.solution.converged for point in found)
    assert np.all(np.diff([point.alpha for point in found]) < 0)
    assert found[-1].alpha > 2
