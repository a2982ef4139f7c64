"""Solve the self-consistent equations: the saddle point of the potential, for ridge >= 0."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from sparsetoken.arrays import Array
from sparsetoken.numerics.newton import NewtonResult, newton
from sparsetoken.numerics.solution import Status
from sparsetoken.theory.potential import POSITIVE, Potential, SecondOrder

__all__ = ["Saddle", "solve_saddle", "stationary_point"]

# A loss with kinks is first smoothed over this width, in units of the margin: more than the
# distance from 0 to where a margin is as good as can be, so that nothing is left of the kink.
_FIRST_SMOOTHING = 4.0
# With so much of it left the solution is that of another loss.
_MOST_SMOOTHING = 0.1

# How much heavier the first ridge becomes, if Newton's method does not find the solution there from
# the one to leading order. The moments of a law with reused samples can be far from what they are
# at a vanishing readout.
_HEAVIER = (1.0, 30.0, 900.0)

# How fast a parameter falls: Newton's method bears two or three decades at once on most paths. Steps
# of less than a tenth would take longer than anyone waits.
_FIRST_FACTOR = 300.0
_LARGEST_FACTOR = 1e3
_LEAST_FACTOR = 1.1
_JUMPS = 3
# The factor grows while Newton's method follows, and falls where it does not: two such steps make
# less than the one that failed.
_GROWTH = 1.5
_RETREAT = 0.4
# Below these the parameter is as good as at its target: the ridge, in units of the noise's variance; the
# smoothing, in margins; what is still there of lost directions. Where the target fails from there, the
# floor falls by the last factor.
_RIDGE_FLOOR = 1e-9
_SMOOTHING_FLOOR = 1e-5
_LOSS_FLOOR = 1e-2
_DEEPER = 100
# The directions that are lost change the solution more than a ridge that falls.
_FIRST_LOSS = 3.0

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
    one, or if that fails, it follows a path, each step starting from the last: the ridge falls from
    a value so large that the solution is known, with the kinks of the loss smoothed; then the
    smoothing falls, and `Saddle.smoothing` says how far. Directions that the noise of training data
    has lost come last: with all of them lost, the readout of a large ridge may have next to no noise
    of its own, and is hard to follow from there. The last Newton correction, of relative size
    `tolerance` at most, is left to the caller.
    """
    if start is not None:
        result = stationary_point(potential, start, ridge, 0.0, tolerance)
        if result.converged:
            return Saddle(result, 0.0)
    walk = _Walk(potential, ridge, tolerance)
    walk.lower_ridge()
    if walk.kept:
        walk.lose_directions()
        walk.lower_ridge()
    walk.lower_smoothing()
    return walk.end()


class _Walk:
    """A path to the saddle point: where it is, and for which ridge, smoothing and lost share.

    Attributes
    ----------
    result : NewtonResult
    ridge, smoothing : float
        What they are at `result`.
    kept : float
        Which part of the directions that are lost is still there.
    """

    def __init__(self, potential: Potential, target: float, tolerance: float) -> None:
        self.target, self.tolerance, self.whole = target, tolerance, potential
        self.smoothing = 0.0 if potential.loss.smooth else _FIRST_SMOOTHING
        law = potential.law
        self.kept = float(law.removed.shape[1] > 0)
        self.potential = potential.with_part_of_lost(self.kept)
        self.noise = float(law.weight @ law.scale**2)
        spread = self.noise + float(law.weight @ (law.coordinates**2).sum(axis=1))
        for factor in _HEAVIER:
            self.ridge = factor * max(target, spread)
            begin = _heavy_ridge_point(potential, self.ridge, self.smoothing)
            self.result = self._solve(begin, last=self.ridge == target)
            if self.result.converged:
                break

    def lower_ridge(self) -> None:
        """Lower the ridge towards its target."""
        self.result, self.ridge = _lower(
            lambda point, value, last: self._solve(point, last=last, ridge=value),
            self.result,
            self.ridge,
            self.target,
            floor=_RIDGE_FLOOR * self.noise,
        )

    def lower_smoothing(self) -> None:
        """Lower the smoothing to none, if everything else is as it should be."""
        if self.ridge > self.target or self.kept:
            return
        self.result, self.smoothing = _lower(
            lambda point, value, last: self._solve(point, last=last, smoothing=value),
            self.result,
            self.smoothing,
            0.0,
            floor=_SMOOTHING_FLOOR,
        )

    def lose_directions(self) -> None:
        """Lower the part of the lost directions that is still there to none."""

        def solve(point: Array, kept: float, last: bool) -> NewtonResult[SecondOrder]:
            self.potential = self.whole.with_part_of_lost(kept)
            return self._solve(point, last=last)

        self.result, self.kept = _lower(
            solve, self.result, self.kept, 0.0, _LOSS_FLOOR, _FIRST_LOSS
        )

    def end(self) -> Saddle:
        """Return where the path ended, converged if that is where it was to lead."""
        there = self.ridge == self.target and self.kept == 0 and self.smoothing < _MOST_SMOOTHING
        if there or not self.result.converged:
            return Saddle(self.result, self.smoothing)
        short = replace(self.result.solution, status=Status.DEGENERATE)
        return Saddle(replace(self.result, solution=short), self.smoothing)

    def _solve(
        self,
        point: Array,
        *,
        last: bool,
        ridge: float | None = None,
        smoothing: float | None = None,
    ) -> NewtonResult[SecondOrder]:
        return stationary_point(
            self.potential,
            point,
            self.ridge if ridge is None else ridge,
            self.smoothing if smoothing is None else smoothing,
            self.tolerance if last else _NEAR,
        )


def stationary_point(
    potential: Potential,
    start: Array,
    ridge: float,
    smoothing: float,
    tolerance: float,
    *,
    frozen: int | None = None,
) -> NewtonResult[SecondOrder]:
    """Return where the gradient vanishes near a start, in all variables but one that is `frozen`."""
    positive = np.zeros(len(start), dtype=bool)
    positive[POSITIVE] = True
    return newton(
        lambda point: potential.second_order(point, ridge, smoothing),
        start,
        np.arange(len(start)) != (-1 if frozen is None else frozen),
        positive,
        tolerance,
    )


def _lower(
    solve: _Solve,
    result: NewtonResult[SecondOrder],
    current: float,
    target: float,
    floor: float,
    factor: float = _FIRST_FACTOR,
) -> tuple[NewtonResult[SecondOrder], float]:
    """Follow the solution while a parameter falls from `current` to `target`, by growing factors.

    Below the floor the target is tried at once; if that fails, a hundred times lower, three times.
    Above it a smaller factor is tried. Returns the last solution and the value it is for.
    """
    steps, tries = result.solution.steps, _JUMPS
    while current > target and result.converged:
        lower = max(current / factor, target)
        jumps = lower < floor
        following = target if jumps else lower
        trial = solve(result.point, following, following == target)
        steps += trial.solution.steps
        if trial.converged:
            current, result = following, trial
            factor = min(factor**_GROWTH, _LARGEST_FACTOR)
        elif jumps and tries > 0:
            tries, floor = tries - 1, floor / _DEEPER
        elif not jumps and factor > _LEAST_FACTOR:
            factor = (current / following) ** _RETREAT
        else:
            break
    return replace(result, solution=replace(result.solution, steps=steps)), current


def _heavy_ridge_point(potential: Potential, ridge: float, smoothing: float) -> Array:
    """Return the solution to leading order in 1/ridge, with no direction lost: close to zero.

    There every slope is that of the (smoothed) loss at 0, χ = 1/Λ, and β² = α ℓ'(0)² E S².
    """
    law, ratio, loss = potential.law, potential.ratio, potential.loss
    origin = (
        loss.prox(np.zeros(1), smoothing) / -smoothing if smoothing else loss.slope(np.zeros(1))
    )
    slope = abs(float(origin[0]))
    linear = slope / ridge * (law.weight @ law.signed) * law.penalised
    dual = np.sqrt(ratio * float(law.weight @ law.scale**2)) * max(slope, 1e-3)
    width = dual / (ratio * ridge)
    return np.array([*linear, width, width, dual])
