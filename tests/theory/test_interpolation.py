"""Tables of margin moments: accuracy, their error, and how their size is found."""

import numpy as np
import pytest

from sparsetoken import get_loss
from sparsetoken.theory.interpolation import (
    FEW_POINTS,
    Shape,
    scale_ranges,
    tabulated_moments,
)
from sparsetoken.theory.moments import margin_moments

RNG = np.random.default_rng(1)
SCALE = np.exp(RNG.uniform(-3.5, 0, 4000))
CENTRE = RNG.uniform(-3, 12, 4000) * SCALE**0.5


def exact(centre: np.ndarray, scale: np.ndarray) -> np.ndarray:
    return margin_moments(get_loss("logistic"), centre, 2.0 * scale, 9.0 * scale**2)


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
    found, error, shapes = tabulated_moments(exact, CENTRE, SCALE, ranges, count, {}, tolerance)
    expected = exact(CENTRE, SCALE)[:, :count]
    deviation = np.abs(found - expected).max(axis=0)
    assert np.all(deviation <= 3 * error[:count] + 1e-10)
    size = np.abs(expected).max(axis=0)
    assert np.all(deviation[:4] <= 10 * tolerance * size[:4])
    assert set(shapes) == {part.number for part in ranges}


def test_the_size_found_is_enough_the_next_time_and_not_too_large() -> None:
    shapes: dict[int, Shape] = dict.fromkeys(range(6), (28, 22))
    calls = []

    def counted(centre: np.ndarray, scale: np.ndarray) -> np.ndarray:
        calls.append(len(centre))
        return exact(centre, scale)

    for _ in range(3):
        before = dict(shapes)
        arguments = (CENTRE, SCALE, scale_ranges(SCALE), 4, shapes, 2e-7)
        _, _, following = tabulated_moments(counted, *arguments)
        assert shapes == before
        shapes = following
    assert len(calls) == 3
    assert calls[2] <= calls[1] < 0.5 * calls[0]


def test_what_no_fair_table_resolves_is_computed_point_by_point_from_then_on() -> None:
    calls = []

    def rough(centre: np.ndarray, scale: np.ndarray) -> np.ndarray:
        calls.append(len(centre))
        steps = np.where(np.sin(300 * centre) > 0, 1.0, 0.0)
        return np.stack([steps + scale] * 10, axis=1)

    arguments = (rough, CENTRE, SCALE, scale_ranges(SCALE), 4)
    found, error, shapes = tabulated_moments(*arguments, {}, 2e-7)
    np.testing.assert_array_equal(found, rough(CENTRE, SCALE)[:, :4])
    np.testing.assert_array_equal(error, 0)
    calls.clear()
    tabulated_moments(*arguments, shapes, 2e-7)
    assert sum(calls) == len(CENTRE)


def test_moments_that_are_not_numbers_do_not_change_the_size_of_a_table() -> None:
    arguments = (CENTRE, SCALE, scale_ranges(SCALE), 4)
    _, _, shapes = tabulated_moments(exact, *arguments, {}, 2e-7)
    found, _, after = tabulated_moments(lambda c, s: exact(c, s) * np.nan, *arguments, shapes, 2e-7)
    assert np.all(np.isnan(found))
    assert after == shapes


def test_a_few_points_are_computed_exactly() -> None:
    few = slice(FEW_POINTS)
    found, error, _ = tabulated_moments(
        exact, CENTRE[few], SCALE[few], scale_ranges(SCALE[few]), 10, {}, 1e-2
    )
    np.testing.assert_allclose(found, exact(CENTRE[few], SCALE[few]), rtol=1e-13)
    np.testing.assert_array_equal(error, 0)


def test_one_scale_for_all_points_takes_hardly_any_columns() -> None:
    scale = np.full(1000, 0.3)
    arguments = (exact, CENTRE[:1000], scale, scale_ranges(scale), 4, {}, 2e-7)
    found, _, shapes = tabulated_moments(*arguments)
    np.testing.assert_allclose(found, exact(CENTRE[:1000], scale)[:, :4], atol=1e-6)
    assert [columns for _, columns in shapes.values()] == [3]
