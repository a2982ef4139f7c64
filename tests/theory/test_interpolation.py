"""Tables of margin moments: accuracy, their error, and how their size is found."""

from collections.abc import Callable

import numpy as np
import pytest

from sparsetoken import get_loss
from sparsetoken.theory.interpolation import (
    FEW_POINTS,
    Shape,
    scale_ranges,
    tabulated_moments,
)
from sparsetoken.theory.moments import Margin

RNG = np.random.default_rng(1)
SCALE = np.exp(RNG.uniform(-3.5, 0, 4000))
CENTRE = RNG.uniform(-3, 12, 4000) * SCALE**0.5


EXACT = Margin(get_loss("logistic"), 2.0, 9.0, 0.0, order=8)


class Counted:
    """Moments of a function of (centre, scale), and how many values were computed."""

    def __init__(self, function: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> None:
        self.function = function
        self.calls: list[int] = []

    def moments(self, centre: np.ndarray, scale: np.ndarray) -> np.ndarray:
        self.calls.append(len(centre))
        return self.function(centre, scale)

    def moments_on_grid(self, centre: np.ndarray, scale: np.ndarray, count: int) -> np.ndarray:
        rows, columns = np.meshgrid(centre, scale, indexing="ij")
        values = self.moments(rows.ravel(), columns.ravel())
        return values[:, :count].reshape(*rows.shape, count)


def test_every_point_is_in_one_range_of_scales() -> None:
    ranges = scale_ranges(SCALE)
    assert len(ranges) > 2
    points = np.sort(np.concatenate([part.points for part in ranges]))
    np.testing.assert_array_equal(points, np.arange(len(SCALE)))
    for part in ranges:
        low, high = part.span
        logs = 0.5 * (low + high) + 0.5 * (high - low) * part.unit
        np.testing.assert_allclose(np.exp(logs), SCALE[part.points])
        assert -0.8 * (part.number + 1) <= low <= high <= -0.8 * part.number


def test_ranges_are_numbered_alike_for_every_law() -> None:
    numbers = {part.number for part in scale_ranges(SCALE)}
    assert {part.number for part in scale_ranges(SCALE[SCALE > 0.3])} < numbers


@pytest.mark.parametrize("tolerance", [1e-4, 2e-7])
@pytest.mark.parametrize("count", [4, 10])
def test_tabulated_moments_are_as_accurate_as_asked_and_know_their_error(
    tolerance: float, count: int
) -> None:
    ranges = scale_ranges(SCALE)
    found, error, shapes = tabulated_moments(EXACT, CENTRE, SCALE, ranges, count, {}, tolerance)
    expected = EXACT.moments(CENTRE, SCALE)[:, :count]
    deviation = np.abs(found - expected).max(axis=0)
    assert np.all(deviation <= 3 * error[:count] + 1e-10)
    size = np.abs(expected).max(axis=0)
    assert np.all(deviation[:4] <= 10 * tolerance * size[:4])
    assert set(shapes) == {part.number for part in ranges}


def test_the_size_found_is_enough_the_next_time_and_not_too_large() -> None:
    shapes: dict[int, Shape] = dict.fromkeys(range(6), (28, 22))
    counted = Counted(EXACT.moments)
    tables = []
    for _ in range(3):
        before = dict(shapes)
        arguments = (CENTRE, SCALE, scale_ranges(SCALE), 4, shapes, 2e-7)
        _, _, following = tabulated_moments(counted, *arguments)
        assert shapes == before
        shapes = following
        tables.append(counted.calls[:])
        counted.calls.clear()
    # A table for each range of scales, never built twice.
    assert [len(calls) for calls in tables] == [len(scale_ranges(SCALE))] * 3
    nodes = [sum(calls) for calls in tables]
    assert nodes[2] <= nodes[1] < 0.5 * nodes[0]


def test_what_no_fair_table_resolves_is_computed_point_by_point_from_then_on() -> None:
    def function(centre: np.ndarray, scale: np.ndarray) -> np.ndarray:
        steps = np.where(np.sin(300 * centre) > 0, 1.0, 0.0)
        return np.stack([steps + scale] * 10, axis=1)

    rough = Counted(function)
    arguments = (rough, CENTRE, SCALE, scale_ranges(SCALE), 4)
    found, error, shapes = tabulated_moments(*arguments, {}, 2e-7)
    np.testing.assert_array_equal(found, function(CENTRE, SCALE)[:, :4])
    np.testing.assert_array_equal(error, 0)
    rough.calls.clear()
    tabulated_moments(*arguments, shapes, 2e-7)
    assert sum(rough.calls) == len(CENTRE)


def test_moments_that_are_not_numbers_do_not_change_the_size_of_a_table() -> None:
    arguments = (CENTRE, SCALE, scale_ranges(SCALE), 4)
    _, _, shapes = tabulated_moments(EXACT, *arguments, {}, 2e-7)
    nothing = Counted(lambda centre, scale: EXACT.moments(centre, scale) * np.nan)
    found, _, after = tabulated_moments(nothing, *arguments, shapes, 2e-7)
    assert np.all(np.isnan(found))
    assert after == shapes


def test_a_few_points_are_computed_exactly() -> None:
    few = slice(FEW_POINTS)
    found, error, _ = tabulated_moments(
        EXACT, CENTRE[few], SCALE[few], scale_ranges(SCALE[few]), 10, {}, 1e-2
    )
    np.testing.assert_allclose(found, EXACT.moments(CENTRE[few], SCALE[few]), rtol=1e-13)
    np.testing.assert_array_equal(error, 0)


def test_one_scale_for_all_points_takes_hardly_any_columns() -> None:
    scale = np.full(1000, 0.3)
    arguments = (EXACT, CENTRE[:1000], scale, scale_ranges(scale), 4, {}, 2e-7)
    found, _, shapes = tabulated_moments(*arguments)
    np.testing.assert_allclose(found, EXACT.moments(CENTRE[:1000], scale)[:, :4], atol=1e-6)
    assert [columns for _, columns in shapes.values()] == [3]
