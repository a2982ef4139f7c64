"""Solve the self-consistent equations: the saddle point of the potential, for ridge >= 0."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from sparsetoken.arrays import Array
from sparsetoken.numerics.newton import NewtonResult, newton
from sparsetoken.theory.potential import Potential, SecondOrder

__all__ = ["Saddle", "solve_saddle"]

# A loss with kinks is first smoothed over this width, in units of the margin: more than the
# distance from 0 to where a margin is as good as can be, so that nothing is left of the kink.
_FIRST_SMOOTHING = 4.0
# With so much of it left the solution is that of another loss.
_MOST_SMOOTHING = 0.1

# How much heavier the first ridge becomes, if Newton's method does not find the solution there from
# the one to leading order. The moments of a law with reused samples can be far from what they are
# at a vanishing readout.
_HEAVIER = (1.0, 30.0, 900.0)
# Least share of the noise that the readout may not see of what taught the query. Where attention is
# close to pooling and labels are balanced hardly any is left, and how little depends on the next order.
_LEFT_OF_NOISE = (1e-8, 1e-3)

# On the way to the target it is enough to stay near the path.
_NEAR = 0.03


@dataclass(frozen=True)
class Saddle:
    """The saddle point (μ, b, a, ν, τ, β) of the potential, and how it was found.

    Attributes
    ----------
    result : NewtonResult
    smoothing : float
        Width over which the kinks of the loss are still smoothed; 0 unless that is needed.
    """

    result: NewtonResult[SecondOrder]
    smoothing: float


# A solver of one problem of a path: (start, parameter, whether it is the last) → solution.
_Solve = Callable[[Array, float, bool], NewtonResult[SecondOrder]]


def solve_saddle(
    potential: Potential, ridge: float, start: Array | None = None, tolerance: float = 1e-5
) -> Saddle:
    """Return the saddle point (μ, b, a, ν, τ, β) of the potential.

    From a `start` near the solution, as along a curve, Newton's method goes straight to it. Without
    one, or if that fails, the ridge is lowered in steps from a value so large that the solution is
    known, each step starting from the last. A loss with kinks is smoothed meanwhile, and the
    smoothing is lowered in the same way at the end; `Saddle.smoothing` says how far that went. The
    last Newton correction, of relative size `tolerance` at most, is left to the caller.
    """

    def solve(
        point: Array, value: float, smoothing: float, last: bool = True
    ) -> NewtonResult[SecondOrder]:
        return newton(
            lambda x: potential.second_order(x, value, smoothing),
            point,
            np.ones(len(point), dtype=bool),
            np.arange(len(point)) >= len(point) - 3,
            tolerance if last else _NEAR,
        )

    if start is not None:
        result = solve(start, ridge, 0.0)
        if result.converged:
            return Saddle(result, 0.0)
    law = potential.law
    noise = float(law.weight @ law.scale**2)
    heavy = max(ridge, noise + float(law.weight @ (law.coordinates**2).sum(axis=1)))
    smoothing = 0.0 if potential.loss.smooth else _FIRST_SMOOTHING
    begin = np.empty(0)
    for factor, left in itertools.product(_HEAVIER, _LEFT_OF_NOISE):
        before, begin = begin, _heavy_ridge_point(potential, factor * heavy, smoothing, left)
        if np.array_equal(before, begin):
            continue
        result = solve(begin, factor * heavy, smoothing, factor * heavy == ridge)
        if result.converged:
            heavy *= factor
            break
    result, reached = _lower(
        lambda point, value, last: solve(point, value, smoothing, last),
        result,
        heavy,
        ridge,
        floor=1e-9 * noise,
    )
    if reached > ridge:
        return Saddle(replace(result, converged=False), smoothing)
    if potential.loss.smooth or not result.converged:
        return Saddle(result, smoothing)
    result, smoothing = _lower(
        lambda point, value, last: solve(point, ridge, value, last),
        result,
        smoothing,
        0.0,
        floor=1e-5,
    )
    kept = result.converged and smoothing < _MOST_SMOOTHING
    return Saddle(replace(result, converged=kept), smoothing)


def _lower(
    solve: _Solve,
    result: NewtonResult[SecondOrder],
    current: float,
    target: float,
    floor: float,
) -> tuple[NewtonResult[SecondOrder], float]:
    """Follow the solution while a parameter falls from `current` to `target`, by growing factors.

    Below the floor the target is tried at once; if that fails, a hundred times lower, three times.
    Returns the last solution and the value it is for.
    """
    steps, factor, tries = result.steps, _FIRST_FACTOR, _JUMPS
    while current > target and result.converged:
        lower = max(current / factor, target)
        following = lower if lower >= floor else target
        trial = solve(result.point, following, following == target)
        steps += trial.steps
        if trial.converged:
            current, result = following, trial
            factor = min(factor**1.5, _LARGEST_FACTOR)
        elif lower < floor and tries > 0:
            tries, floor = tries - 1, floor / 100
        elif lower >= floor and factor > _LEAST_FACTOR:
            factor = (current / following) ** 0.4
        else:
            break
    return replace(result, steps=steps), current


# How fast a parameter falls: Newton's method bears two or three decades at once on most paths. Steps
# of less than a tenth would take longer than anyone waits.
_FIRST_FACTOR = 300.0
_LARGEST_FACTOR = 1e3
_LEAST_FACTOR = 1.1
_JUMPS = 3


def _heavy_ridge_point(potential: Potential, ridge: float, smoothing: float, left: float) -> Array:
    """Return the solution to leading order in 1/ridge: a readout close to zero.

    There every slope is that of the (smoothed) loss at 0, χ = 1/Λ, and β² = α ℓ'(0)² (E S² - ‖E D‖²).
    Of that difference at least the share `left` of E S² is taken.
    """
    law, alpha, loss = potential.law, potential.alpha, potential.loss
    origin = (
        loss.prox(np.zeros(1), smoothing) / -smoothing if smoothing else loss.slope(np.zeros(1))
    )
    slope = abs(float(origin[0]))
    means = law.weight @ law.signed
    linear = slope / ridge * means * (law.penalised - law.lost / alpha)
    removed, noise = means * law.lost, float(law.weight @ law.scale**2)
    square = max(noise - float(removed @ removed), left * noise)
    dual = np.sqrt(alpha * square) * max(slope, 1e-3)
    width = dual / (alpha * ridge)
    return np.array([*linear, width, width, dual])
