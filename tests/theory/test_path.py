"""Where solutions go along a path: a guess that is good, or none."""

from typing import Any

import numpy as np
import pytest

from sparsetoken import ParameterError, Query, Task, Training, curve, predict
from sparsetoken.theory import limit
from sparsetoken.theory.path import Trail
from sparsetoken.theory.trained_readout import LimitState


def solution(position: float) -> np.ndarray:
    """A path that is a parabola in log position, and a power of it where it is positive."""
    log = np.log(position)
    return np.array([1 + log, log**2, position, position**0.5, 2 / position])


def trail(positions: list[float]) -> Trail:
    made = Trail()
    for position in positions:
        made.add(
            position,
            LimitState("saddle", 0.5 * solution(position), offset=0.5 * solution(position)),
        )
    return made


def test_the_guess_is_on_the_parabola_of_the_last_three() -> None:
    np.testing.assert_allclose(trail([9.0, 1.0, 2.0, 4.0]).ahead(8.0), solution(8.0))
    linear = trail([1.0, 2.0]).ahead(4.0)
    assert linear is not None
    np.testing.assert_allclose(linear[[0, 2, 3, 4]], solution(4.0)[[0, 2, 3, 4]])


@pytest.mark.parametrize(
    ("positions", "following"),
    [
        ([1.0], 2.0),
        ([1.0, 2.0], 1.5),
        ([1.0, 2.0], 100.0),
        ([1.0, 2.0, 2.0], 3.0),
        ([np.inf, 4.0], 2.0),
    ],
)
def test_there_is_no_guess_far_ahead_backwards_or_too_soon(
    positions: list[float], following: float
) -> None:
    assert trail(positions).ahead(following) is None


def test_other_equations_begin_a_new_path() -> None:
    made = trail([1.0, 2.0])
    made.add(3.0, LimitState("margin", solution(3.0)))
    made.add(4.0, LimitState("saddle", solution(4.0)))
    assert made.ahead(5.0) is None
    assert Trail().ahead(None) is None


@pytest.mark.parametrize("tolerance", [2e-3, 1e-4])
def test_a_curve_follows_its_path_to_where_each_point_alone_is(
    tolerance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = []
    original = limit.solve_saddle

    def solve_saddle(potential, ridge, start=None, *more):  # type: ignore[no-untyped-def]
        found = original(potential, ridge, start, *more)
        taken.append(found.result.solution.steps)
        return found

    monkeypatch.setattr(limit, "solve_saddle", solve_saddle)
    task, training, query = Task(10, 1, 5.0), Training(4.0, 2.0), Query(0.9, 1.5)
    values = np.geomspace(1, 10, 12)
    found = curve(task, training, over="alpha1", values=values, query=query, tolerance=tolerance)
    # Beyond the first few points few steps are left, or none.
    assert sum(taken[3:]) <= 2.5 * len(taken[3:])
    monkeypatch.undo()
    for value, prediction in zip(values, found, strict=True):
        alone = predict(task, training.replace(alpha1=value), query=query, tolerance=tolerance)
        # The same points of the law: what differs is the solver alone.
        difference = abs(prediction.test_error - alone.test_error)
        assert difference <= 0.1 * alone.uncertainty.test_error


@pytest.mark.parametrize(
    ("task", "training", "name"),
    [("a task", Training(2.0, 1.0), "task"), (Task(6, 1, 3.0), "a training", "training")],
)
def test_a_path_of_nothing_asks_for_its_setting_all_the_same(
    task: Any, training: Any, name: str
) -> None:
    with pytest.raises(ParameterError, match=f"^{name} = 'a {name}'"):
        curve(task, training, values=[])
