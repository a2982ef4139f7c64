"""Solve the self-consistent equations: the saddle point of the potential, for ridge >= 0."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from sparsetoken.arrays import Array
from sparsetoken.numerics.newton import NewtonResult, newton
from sparsetoken.theory.potential import Potential, SecondOrder

__all__ = ["solve_saddle"]

# A loss with kinks is first smoothed over this width, in units of the margin.
_FIRST_SMOOTHING = 4.0

_POSITIVE = np.array([False, False, False, True, True, True])


def solve_saddle(
    potential: Potential, ridge: float, start: Array | None = None, tolerance: float = 1e-5
) -> NewtonResult[SecondOrder]:
    """Return the saddle point (μ_q, μ_e, b, ν, τ, β) of the potential.

    From a `start` near the solution, as along a curve, Newton's method goes straight to it. Without
    one, or if that fails, the ridge is lowered in steps from a value so large that the solution is
    known, each step starting from the last. A loss with kinks is smoothed meanwhile, and the
    smoothing is lowered in the same way at the end; `potential.smoothing` says how far that went.
    The last Newton correction, of relative size `tolerance` at most, is left to the caller.
    """
    active = np.array([potential.law.has_query, True, True, True, True, True])

    def solve(point: Array, value: float, last: bool = True) -> NewtonResult[SecondOrder]:
        # On the way to the target it is enough to stay near the path.
        return newton(
            lambda x: potential.second_order(x, value),
            point,
            active,
            _POSITIVE,
            tolerance if last else 0.03,
        )

    potential.smoothing = 0.0
    if start is not None:
        result = solve(start, ridge)
        if result.converged:
            return result
    law = potential.law
    noise = float(law.weight @ law.scale**2)
    heavy = max(ridge, noise + float(law.weight @ (law.along**2 + law.across**2)))
    potential.smoothing = 0.0 if potential.loss.smooth else _FIRST_SMOOTHING
    result = solve(_heavy_ridge_point(potential, heavy), heavy, last=heavy == ridge)
    result, reached = _lower(solve, result, heavy, ridge, floor=1e-9 * noise)
    if reached > ridge:
        return replace(result, converged=False)
    if potential.loss.smooth or not result.converged:
        return result

    def solve_smoothed(
        point: Array, smoothing: float, last: bool = True
    ) -> NewtonResult[SecondOrder]:
        potential.smoothing = smoothing
        return solve(point, ridge, last)

    result, potential.smoothing = _lower(solve_smoothed, result, _FIRST_SMOOTHING, 0.0, floor=1e-5)
    return result


def _lower(
    solve: Callable[[Array, float, bool], NewtonResult[SecondOrder]],
    result: NewtonResult[SecondOrder],
    current: float,
    target: float,
    floor: float,
) -> tuple[NewtonResult[SecondOrder], float]:
    """Follow the solution while a parameter falls from `current` to `target`, by growing factors.

    Below the floor the target is tried at once. Returns the last solution and the value it is for.
    """
    steps, factor, retries = result.steps, 300.0, 3
    while current > target and result.converged:
        following = max(current / factor, target)
        jump = following < floor
        if jump:
            following = target
        trial = solve(result.point, following, following == target)
        steps += trial.steps
        if trial.converged:
            current, result = following, trial
            factor = min(factor**1.5, 1e3)
        elif jump and retries > 0:
            retries, floor = retries - 1, floor / 100
        elif not jump and factor > 1.1:
            factor = (current / following) ** 0.4
        else:
            break
    return replace(result, steps=steps), current


def _heavy_ridge_point(potential: Potential, ridge: float) -> Array:
    """Return the solution to leading order in 1/ridge: a readout close to zero."""
    law, alpha = potential.law, potential.alpha
    slope = abs(float(potential.loss.slope(np.zeros(1))[0]))
    dual = np.sqrt(alpha * (law.weight @ law.scale**2)) * max(slope, 1e-3)
    width = dual / (alpha * ridge)
    across = slope / ridge * (law.weight @ (law.label * law.across))
    along = slope / ridge * (law.weight @ (law.label * law.along)) if law.has_query else 0.0
    return np.array([along, across, 0.0, width, width, dual])
