import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsetoken.numerics.roots import increasing_root

LARGEST = np.finfo(float).max


def test_many_roots_at_once_to_the_last_bits() -> None:
    target = np.concatenate([-np.logspace(-12, 12, 200), [0.0], np.logspace(-12, 12, 200)])
    roots = increasing_root(
        lambda x: x**3 - target,
        lambda x: 3 * x**2,
        np.full_like(target, -1e5),
        np.full_like(target, 1e5),
    )
    np.testing.assert_allclose(roots, np.cbrt(target), rtol=4e-16, atol=0)


@given(st.floats(-700, 700))
def test_widest_bracket_and_overflowing_function(target: float) -> None:
    goal = np.array([np.exp(target)])
    root = increasing_root(
        lambda x: np.exp(x) - goal, np.exp, np.array([-LARGEST]), np.array([LARGEST])
    )
    np.testing.assert_allclose(root, target, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("slope", [0.0, np.nan, -1.0, 1e-300, 1e300])
def test_a_wrong_derivative_costs_steps_but_not_the_root(slope: float) -> None:
    root = increasing_root(
        lambda x: np.arctan(x - 0.3),
        lambda x: np.full_like(x, slope),
        np.array([-1e6]),
        np.array([1e6]),
    )
    np.testing.assert_allclose(root, 0.3, rtol=4e-16)


def test_a_jump_is_found() -> None:
    root = increasing_root(
        lambda x: np.where(x < 1, -1.0, 1.0), np.zeros_like, np.array([-10.0]), np.array([50.0])
    )
    np.testing.assert_allclose(root, 1.0, rtol=4e-16)


def test_root_at_either_end_of_the_bracket() -> None:
    low, high = np.array([1.0, -3.0]), np.array([5.0, -2.0])
    goal = np.array([1.0, -2.0])
    np.testing.assert_array_equal(
        increasing_root(lambda x: x - goal, np.ones_like, low, high), goal
    )


def test_nan_is_an_error_not_an_answer() -> None:
    with pytest.raises(ArithmeticError, match="NaN"):
        increasing_root(lambda x: x * np.nan, np.ones_like, np.array([-1.0]), np.array([1.0]))


def test_too_few_steps_are_an_error() -> None:
    with pytest.raises(ArithmeticError, match="3 steps"):
        increasing_root(
            lambda x: x**3 - 2, lambda x: 3 * x**2, np.array([-9.0]), np.array([9.0]), max_steps=3
        )
