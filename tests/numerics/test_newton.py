from dataclasses import dataclass

import numpy as np

from sparsetoken.arrays import Array
from sparsetoken.numerics.newton import newton
from sparsetoken.numerics.solution import Status


@dataclass
class Equations:
    gradient: Array
    hessian: Array


def banana(x: Array) -> Equations:
    """Gradient of the Rosenbrock function: one root, at (1, 1)."""
    a, b = x
    gradient = np.array([-2 * (1 - a) - 40 * a * (b - a**2), 20 * (b - a**2)])
    hessian = np.array([[2 - 40 * b + 120 * a**2, -40 * a], [-40 * a, 20.0]])
    return Equations(gradient, hessian)


def logarithm(x: Array) -> Equations:
    """log(x / 3): Newton's method from a large x steps below zero unless it is held back."""
    return Equations(np.log(x / 3), np.diag(1 / x))


ALL, NONE = np.array([True, True]), np.array([False, False])


def test_finds_the_root_of_a_curved_valley() -> None:
    result = newton(banana, np.array([-1.2, 1.0]), ALL, NONE)
    assert result.converged
    np.testing.assert_allclose(result.point, 1, rtol=1e-8)


def test_positive_variables_stay_positive() -> None:
    seen: list[float] = []

    def watched(x: Array) -> Equations:
        seen.append(float(x[0]))
        return logarithm(x)

    one = np.array([True])
    result = newton(watched, np.array([500.0]), one, one)
    assert result.converged
    assert result.point[0] == np.float64(3) or abs(result.point[0] - 3) < 1e-6
    assert min(seen) > 0


def test_inactive_variables_do_not_move() -> None:
    def separate(x: Array) -> Equations:
        return Equations(x - np.array([2.0, 5.0]), np.eye(2))

    result = newton(separate, np.array([0.5, 0.5]), np.array([True, False]), NONE)
    assert result.converged
    np.testing.assert_allclose(result.point, [2.0, 0.5])


def test_says_when_there_is_no_root() -> None:
    def rootless(x: Array) -> Equations:
        return Equations(1 + x**2, np.diag(2 * x))

    result = newton(rootless, np.array([3.0]), np.array([True]), np.array([False]))
    assert not result.converged
    assert result.solution.status in (Status.STALLED, Status.STEP_LIMIT)


def test_a_singular_jacobian_ends_the_iteration() -> None:
    def flat(x: Array) -> Equations:
        return Equations(np.ones_like(x), np.zeros((2, 2)))

    result = newton(flat, np.array([1.0, 1.0]), ALL, NONE)
    assert result.solution.status is Status.DEGENERATE
    assert result.solution.residual == np.inf
    assert np.all(np.isfinite(result.point))


def test_says_when_the_steps_were_too_few() -> None:
    result = newton(banana, np.array([-1.2, 1.0]), ALL, NONE, max_steps=3)
    assert result.solution.status is Status.STEP_LIMIT
    assert result.solution.steps == 3
