"""Solve the self-consistent equations: the saddle point of the potential, for ridge >= 0."""

from collections.abc import Callable

import numpy as np

from sparsetoken.arrays import Array
from sparsetoken.numerics.newton import NewtonResult, newton
from sparsetoken.theory.potential import Potential, SecondOrder

__all__ = ["solve_saddle"]

_POSITIVE = np.array([False, False, False, True, True, True])


def solve_saddle(
    potential: Potential, ridge: float, start: Array | None = None
) -> NewtonResult[SecondOrder]:
    """Return the saddle point (μ_q, μ_e, b, ν, τ, β) of the potential.

    From a `start` near the solution, as along a curve, Newton's method goes straight to it. Without
    one, or if that fails, the ridge is lowered in steps from a value so large that the solution is
    known, each step starting from the last. A loss with kinks is smoothed meanwhile, and the
    smoothing is lowered in the same way at the end. The last Newton correction, of relative size
    1e-5 at most, is left to the caller.
    """
    active = np.array([potential.law.has_query, True, True, True, True, True])

    def solve(point: Array, value: float) -> NewtonResult[SecondOrder]:
        return newton(
            lambda x: potential.second_order(x, value), point, active, _POSITIVE, tolerance=1e-5
        )

    potential.smoothing = 0.0
    if start is not None:
        result = solve(start, ridge)
        if result.converged:
            return result
    natural = float(potential.law.weight @ potential.law.scale**2)
    heavy = max(ridge, 10 * natural)
    potential.smoothing = 0.0 if potential.loss.smooth else 1.0
    result = solve(_heavy_ridge_point(potential, heavy), heavy)
    result = _lower(solve, result, heavy, ridge, floor=1e-9 * natural)
    if potential.loss.smooth or not result.converged:
        return result

    def solve_smoothed(point: Array, smoothing: float) -> NewtonResult[SecondOrder]:
        potential.smoothing = smoothing
        return solve(point, ridge)

    return _lower(solve_smoothed, result, 1.0, 0.0, floor=1e-7)


def _lower(
    solve: Callable[[Array, float], NewtonResult[SecondOrder]],
    result: NewtonResult[SecondOrder],
    current: float,
    target: float,
    floor: float,
) -> NewtonResult[SecondOrder]:
    """Follow the solution while a parameter falls from `current` to `target`, by growing factors.

    Below the floor the target is tried at once.
    """
    steps, factor = result.steps, 10.0
    while current > target and result.converged:
        following = max(current / factor, target)
        if following < floor:
            following = target
        trial = solve(result.point, following)
        steps += trial.steps
        if trial.converged:
            current, result = following, trial
            factor = min(factor**1.5, 1e3)
        elif following == target and floor > 1e-14 * current:
            floor /= 100
        elif factor > 1.1:
            factor = factor**0.4
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
