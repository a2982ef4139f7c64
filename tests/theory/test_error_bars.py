"""Each part of an error bar is there: leave one out, and a test fails."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sparsetoken import Query, Task, Training, predict
from sparsetoken.theory import limit as limit_module
from sparsetoken.theory import prediction as prediction_module
from sparsetoken.theory.replicates import replicate_error

TASK, QUERY = Task(10, 1, 4.0), Query(0.8, 1.0)


def test_the_spread_of_replicates_is_a_98_percent_bar() -> None:
    replicates = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])
    expected = 3.0 * np.std(replicates, ddof=1) / np.sqrt(8)
    assert replicate_error(replicates) == pytest.approx(expected, rel=1e-9)


def test_points_that_were_not_drawn_count_where_few_carry_the_mean() -> None:
    few = np.array([8e-6, 0, 0, 0, 0, 0, 0, 0])
    unseen = replicate_error(few, largest=1e-6) - replicate_error(few)
    assert unseen == pytest.approx(10 * 1e-6 * np.std(few, ddof=1) / 1e-6, rel=1e-6)
    even = np.full(8, 0.1)
    assert replicate_error(even, largest=1e-6) < 1e-12


def test_an_exact_law_has_rounding_left_relative_to_its_value() -> None:
    assert replicate_error(np.array([0.3])) == pytest.approx(3e-14)
    assert 0 < replicate_error(np.array([1e-9])) < 1e-15


def test_the_error_of_quadrature_is_part_of_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training(1.0, 2.0, ridge=1e-3)
    good = predict(TASK, training, query=QUERY, tolerance=1e-3)
    monkeypatch.setattr(limit_module, "_precision", lambda _: (1e-5, 2))
    monkeypatch.setattr(prediction_module, "FINEST", 1.0)
    crude = predict(TASK, training, query=QUERY, tolerance=1e-3)
    # Two nodes a panel leave some percent of a moment, on the same points of the law.
    assert crude.uncertainty.test_error > 2 * good.uncertainty.test_error
    deviation = abs(crude.test_error - good.test_error)
    assert deviation < crude.uncertainty.test_error


def test_a_solution_that_is_not_one_widens_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training(1.0, 2.0, ridge=1e-3)
    good = predict(TASK, training, query=QUERY, tolerance=1e-3)

    carried_over = limit_module._carried_over

    def trusted(*arguments: Any, **options: Any) -> Any:
        return replace(carried_over(*arguments, **options), trusted=True)

    # No second correction, nor a new solution: the residual of the first is all that is known.
    monkeypatch.setattr(limit_module, "_CORRECTIONS", 1)
    monkeypatch.setattr(limit_module, "_carried_over", trusted)
    monkeypatch.setattr(limit_module, "_ROUGH_SOLUTION", 0.5)
    rough = predict(TASK, training, query=QUERY, tolerance=1.0)
    assert rough.solution.residual > 10 * good.solution.residual
    bar = rough.uncertainty.test_error
    assert bar > good.uncertainty.test_error
    assert abs(rough.test_error - good.test_error) < bar
