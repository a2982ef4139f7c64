"""Sums over tokens by Fourier transforms of the law of one."""

import numpy as np
import pytest

from sparsetoken import Task
from sparsetoken.arrays import Array
from sparsetoken.theory.token_sums import _least


@pytest.mark.parametrize("unit", [1e-4, 1e4])
@pytest.mark.parametrize("length", [20, 5000])
def test_the_unit_of_a_score_does_not_matter(unit: float, length: int) -> None:
    task = Task(length, 2, 3.0, 0.4)

    def score(x: Array) -> Array:
        return np.asarray(np.tanh(x) * x)

    error, threshold = _least(task, score, 0.02)
    same, moved = _least(task, lambda x: unit * score(x), 0.02)
    assert same == pytest.approx(error, rel=1e-9)
    assert moved == pytest.approx(unit * threshold, rel=1e-9)
