"""Damped Newton iteration for small systems of smooth equations."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np

from sparsetoken.arrays import Array
from sparsetoken.numerics.solution import Solution, Status

__all__ = ["NewtonResult", "newton"]


class Linearised(Protocol):
    """What Newton's method needs of a function at a point: its value and its Jacobian."""

    @property
    def gradient(self) -> Array:
        """The value of the equations, (k,)."""

    @property
    def hessian(self) -> Array:
        """Their Jacobian, (k, k)."""


E = TypeVar("E", bound=Linearised)

# A damped step has to gain this share of what a full one would; one below the shortest gains nothing but
# rounding, which is a solution if the correction is within this factor of the tolerance.
_GAIN = 0.25
_SHORTEST = 1e-6
_NEARLY = 1e3
_LARGEST_ROUNDING = 1e-2


@dataclass(frozen=True)
class NewtonResult(Generic[E]):
    """The last point, the function there, and how it was reached."""

    point: Array
    evaluation: E
    solution: Solution

    @property
    def converged(self) -> bool:
        """Whether the point solves the equations."""
        return self.solution.converged


# A trial point may lie where the function overflows; it is then rejected.
@np.errstate(all="ignore")
def newton(
    evaluate: Callable[[Array], E],
    start: Array,
    active: Array,
    positive: Array,
    tolerance: float = 1e-9,
    max_steps: int = 60,
) -> NewtonResult[E]:
    """Solve gradient(x) = 0 in the active variables, by Newton's method with natural damping.

    A step is accepted when the next simplified Newton correction, with the same Jacobian, is
    shorter than the step itself; this test does not depend on how the equations are scaled.
    Variables marked positive keep at least a tenth of their value in a step.

    Parameters
    ----------
    evaluate : callable
        Gives an object with `gradient` and `hessian` at a point.
    start : array of shape (k,)
    active, positive : boolean arrays of shape (k,)
    tolerance : float
        Largest relative Newton correction of a solution.
    """
    point, current = start.copy(), evaluate(start)
    residual = np.inf

    def ended(status: Status, steps: int) -> NewtonResult[E]:
        return NewtonResult(point, current, Solution(status, residual, steps))

    for steps in range(max_steps):
        scale = np.where(positive, np.abs(point), np.maximum(np.abs(point), _typical(point)))
        solve = _solver(current.hessian, active, scale)
        correction = solve(current.gradient)
        residual = _size(correction, scale)
        if not np.isfinite(residual):
            residual = np.inf
            return ended(Status.DEGENERATE, steps)
        if residual <= tolerance:
            return ended(Status.CONVERGED, steps)
        length = _largest_step(point, correction, positive)
        while True:
            candidate = point - length * correction
            trial = evaluate(candidate)
            following = _size(solve(trial.gradient), scale)
            if following <= (1 - _GAIN * length) * residual:
                break
            length *= 0.5
            if length < _SHORTEST:
                # Rounding level: no step improves on a correction that is already small.
                small = residual <= min(_NEARLY * tolerance, _LARGEST_ROUNDING)
                return ended(Status.CONVERGED if small else Status.STALLED, steps)
        point, current = candidate, trial
    return ended(Status.STEP_LIMIT, max_steps)


def _typical(point: Array) -> float:
    return max(1e-3, 1e-2 * float(np.abs(point).max()))


def _size(correction: Array, scale: Array) -> float:
    return float(np.abs(correction / scale).max())


def _solver(jacobian: Array, active: Array, scale: Array) -> Callable[[Array], Array]:
    """Return the map from equations to corrections, least-squares in scaled variables."""
    index = np.flatnonzero(active)
    # Symmetric scaling by the variables' sizes keeps the matrix well conditioned.
    scaled = jacobian[np.ix_(index, index)] * np.outer(scale[index], scale[index])
    equilibrate = 1 / np.sqrt(np.maximum(np.abs(scaled).max(axis=1), 1e-300))
    matrix = scaled * np.outer(equilibrate, equilibrate)

    def solve(gradient: Array) -> Array:
        correction = np.zeros_like(scale)
        right = gradient[index] * scale[index] * equilibrate
        try:
            solution = np.linalg.solve(matrix, right)
        except np.linalg.LinAlgError:
            solution = np.full(len(index), np.nan)
        correction[index] = solution * equilibrate * scale[index]
        return correction

    return solve


def _largest_step(point: Array, correction: Array, positive: Array) -> float:
    shrinking = positive & (correction > 0)
    if not np.any(shrinking):
        return 1.0
    return float(min(1.0, np.min(0.9 * point[shrinking] / correction[shrinking])))
