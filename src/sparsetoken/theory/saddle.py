"""Solve the self-consistent equations: the saddle point of the potential, for ridge >= 0."""

from collections.abc import Callable

import numpy as np

from sparsetoken.arrays import Array
from sparsetoken.numerics.newton import NewtonResult, newton
from sparsetoken.theory.potential import Evaluation, Potential

__all__ = ["solve_saddle"]

Attempt = Callable[[Array, float], NewtonResult[Evaluation]]

_POSITIVE = np.array([False, False, False, True, True, True])


def solve_saddle(
    potential: Potential, ridge: float, start: Array | None = None
) -> NewtonResult[Evaluation]:
    """Return the saddle point (μ_q, μ_e, b, ν, τ, β) of the potential.

    From a `start` near the solution, as along a curve, Newton's method goes straight to it. Without
    one, or if that fails, the ridge is lowered in steps from a value so large that the solution is
    known, each step starting from the last.
    """
    active = np.array([potential.law.has_query, True, True, True, True, True])

    def attempt(point: Array, value: float) -> NewtonResult[Evaluation]:
        return newton(lambda x: potential.evaluate(x, value), point, active, _POSITIVE)

    if start is not None:
        result = attempt(start, ridge)
        if result.converged:
            return result
    return _lower_ridge(potential, ridge, attempt_at=attempt)


def _lower_ridge(
    potential: Potential, ridge: float, attempt_at: Attempt
) -> NewtonResult[Evaluation]:
    law = potential.law
    # Curvature of the smooth losses is at most about one: this ridge dominates it.
    natural = float(law.weight @ law.scale**2)
    current = max(ridge, 10 * natural)
    result = attempt_at(_heavy_ridge_point(potential, current), current)
    steps, factor = result.steps, 10.0
    floor = 1e-9 * natural
    while current > ridge and result.converged:
        following = max(current / factor, ridge)
        if following < floor:
            following = ridge
        trial = attempt_at(result.point, following)
        steps += trial.steps
        if trial.converged:
            current, result = following, trial
            factor = min(factor**1.5, 1e3)
        elif factor > 1.05:
            factor = factor**0.4
            if following == ridge and ridge < floor:
                floor /= 10
        else:
            result = trial
    return NewtonResult(result.point, result.evaluation, result.residual, result.converged, steps)


def _heavy_ridge_point(potential: Potential, ridge: float) -> Array:
    """Return the solution to leading order in 1/ridge: a readout close to zero."""
    law, alpha = potential.law, potential.alpha
    slope = abs(float(potential.loss.slope(np.zeros(1))[0]))
    dual = np.sqrt(alpha * (law.weight @ law.scale**2)) * max(slope, 1e-3)
    width = dual / (alpha * ridge)
    across = slope / ridge * (law.weight @ (law.label * law.across))
    along = slope / ridge * (law.weight @ (law.label * law.along)) if law.has_query else 0.0
    return np.array([along, across, 0.0, width, width, dual])
