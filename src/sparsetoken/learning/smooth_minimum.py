"""The minimum of a smooth loss: limited-memory BFGS while that is fast, then Newton's method.

Losses that only tend to their infimum, like the logistic loss, make Newton's method grow the
margins by about one unit a step, with a new Hessian each time; there limited-memory BFGS, whose
steps cost one product with the features and one with their transpose, goes first, for as long as
its progress promises to end soon. Near capacity and at small ridges it does not.

A Newton step solves its system by conjugate gradients, preconditioned by the Cholesky factor of an
earlier Hessian. The factor is made anew only when conjugate gradients slow down. It is held in
single precision, which preconditions as well and takes half the memory; double precision takes over
where the Hessian is too ill-conditioned for that. benchmarks/readout_solvers.py has the times.
"""

from collections import deque
from dataclasses import dataclass

import numpy as np

from sparsetoken.arrays import Array
from sparsetoken.learning.examples import BorderedFactor, Examples
from sparsetoken.losses import Loss
from sparsetoken.numerics.solution import Solution, Status

__all__ = ["Minimum", "NewtonSystem", "minimise_smooth"]

# A factor of some steps ago needs a handful of conjugate gradients; where this many are not enough, a
# new one is cheaper.
_CONJUGATE_STEPS = 16
# Where a loss only tends to its infimum and the gradient has vanished on the way there, the next Newton
# step still adds one to some margins, and the loss, but for rounding, does not rise.
_STILL_MOVING = 0.5
_RISE_BY_ROUNDING = 1e-12
# Pairs that limited-memory BFGS remembers, and steps over which its progress is watched.
_MEMORY = 20
_WATCHED = 20
# In fewer dimensions a Newton step costs as little as one of limited-memory BFGS.
_SMALLEST_DIMENSION = 100


@dataclass(frozen=True)
class Minimum:
    """The point (w, b) reached, and how; the residual is the norm of the gradient there."""

    weights: Array
    bias: float
    solution: Solution


def minimise_smooth(
    examples: Examples, loss: Loss, ridge: float, tolerance: float, max_steps: int
) -> Minimum:
    """Minimise Σ p_i ℓ(y_i(⟨f_i, w⟩ + b)) + (ridge/2)‖w‖² until the gradient's norm <= tolerance."""
    descent = _Descent(examples, loss, ridge, tolerance)
    if np.isinf(loss.minimisers[0]) and examples.shape[1] >= _SMALLEST_DIMENSION:
        _limited_memory(descent, max_steps * _MEMORY)
    system = NewtonSystem(examples, ridge)
    first, taken = descent.residual, 0
    while (status := descent.status()) is None and taken < max_steps:
        accuracy = max(min(0.1, descent.residual / first), 0.3 * descent.goal / descent.residual)
        curvature = examples.weights * loss.curvature(descent.margins)
        step = system.solve(curvature, -descent.gradient, accuracy)
        taken += 1
        if not descent.move(step):
            status = Status.STALLED
            break
    if descent.residual <= tolerance:
        status = Status.CONVERGED
        if ridge == 0 and np.isinf(loss.minimisers[0]) and _moves_on(descent, system):
            status = Status.NO_MINIMUM
    solution = Solution(status or Status.STEP_LIMIT, descent.residual, descent.steps)
    return Minimum(descent.point[:-1], float(descent.point[-1]), solution)


def _moves_on(descent: "_Descent", system: "NewtonSystem") -> bool:
    """Return whether Newton's next step moves margins far and for nothing: the way has no end."""
    examples, loss, margins = descent.examples, descent.loss, descent.margins
    step = system.solve(examples.weights * loss.curvature(margins), -descent.gradient, 0.1)
    change = examples.margins(step[:-1], float(step[-1]))
    # A step longer than all of the way goes where features differ by rounding.
    far = np.linalg.norm(step) > np.linalg.norm(descent.point)
    if far or np.abs(change).max() <= _STILL_MOVING:
        return False
    before, after = (float(examples.weights @ loss.value(at)) for at in (margins, margins + change))
    return after <= before * (1 + _RISE_BY_ROUNDING)


class _Descent:
    """A point (w, b) with its margins and gradient, moved along directions of descent."""

    def __init__(self, examples: Examples, loss: Loss, ridge: float, tolerance: float) -> None:
        n, d = examples.shape
        self.examples, self.loss, self.ridge, self.tolerance = examples, loss, ridge, tolerance
        self.point, self.margins = np.zeros(d + 1), np.zeros(n)
        self.steps = 0
        self._look()

    def _look(self) -> None:
        slopes = self.examples.weights * self.loss.slope(self.margins)
        self.gradient = np.append(*self.examples.signed_total(slopes))
        self.gradient[:-1] += self.ridge * self.point[:-1]
        self.residual = float(np.linalg.norm(self.gradient))
        # A gradient of size ε leaves an error of up to ε/ridge in w: small ridges need more.
        norm = float(np.linalg.norm(self.point[:-1]))
        self.goal = min(self.tolerance, max(1e-4 * self.ridge * norm, 1e-13))

    def status(self) -> Status | None:
        """Return how it ended, or None if it has not."""
        return Status.CONVERGED if self.residual <= self.goal else None

    def move(self, step: Array) -> bool:
        """Go along `step` as far as a line search says; False if that is nowhere."""
        change = self.examples.margins(step[:-1], step[-1])
        length = self._line_search(step, change)
        if length == 0.0:
            return False
        self.point = self.point + length * step
        self.margins = self.margins + length * change
        self.steps += 1
        if self.steps % 8 == 0:  # sheds the rounding errors that the updates gather
            self.margins = self.examples.margins(self.point[:-1], self.point[-1])
        self._look()
        return True

    def _line_search(self, step: Array, change: Array) -> float:
        """Return a length at which the objective's slope is at most half of that at 0.

        The slope is monotone, and unlike the value it is not lost in rounding near the minimum.
        """
        inner, square = float(self.point[:-1] @ step[:-1]), float(step[:-1] @ step[:-1])

        def slope(length: float) -> float:
            slopes = self.examples.weights * self.loss.slope(self.margins + length * change)
            return float(slopes @ change + self.ridge * (inner + length * square))

        start = float(self.gradient @ step)
        if not start < 0:
            return 0.0
        low, high, length = 0.0, np.inf, 1.0
        slope_low, slope_high = start, np.inf
        for _ in range(60):
            here = slope(length)
            if abs(here) <= 0.5 * abs(start):
                return length
            if here > 0 or not np.isfinite(here):
                high, slope_high = length, here
            else:
                low, slope_low = length, here
            if np.isinf(high):
                length *= 2
                continue
            # The secant's root, kept away from the ends of the bracket.
            share = -slope_low / (slope_high - slope_low) if np.isfinite(slope_high) else 0.5
            length = low + min(max(share, 0.1), 0.9) * (high - low)
        return low


def _limited_memory(descent: _Descent, max_steps: int) -> None:
    """Descend by limited-memory BFGS until it converges or its progress is too slow."""
    pairs: deque[tuple[Array, Array, float]] = deque(maxlen=_MEMORY)
    history = [descent.residual]
    scale = 1.0
    while descent.status() is None and len(history) <= max_steps:
        step = -_two_loops(descent.gradient, pairs, scale)
        point, gradient = descent.point, descent.gradient
        if not descent.move(step):
            return
        moved, turned = descent.point - point, descent.gradient - gradient
        product = float(moved @ turned)
        if product > 0:
            pairs.append((moved, turned, 1 / product))
            scale = product / float(turned @ turned)
        history.append(descent.residual)
        if len(history) % _WATCHED == 0 and len(history) > 2 * _WATCHED:
            gained = np.log(history[-_WATCHED] / history[-1])
            left = np.log(max(history[-1] / descent.goal, 1.0))
            if left > 3 * max(gained, 0.0):
                return


def _two_loops(gradient: Array, pairs: deque[tuple[Array, Array, float]], scale: float) -> Array:
    """Return the limited-memory BFGS inverse Hessian times the gradient."""
    result = gradient.copy()
    shares = []
    for moved, turned, inverse in reversed(pairs):
        share = inverse * float(moved @ result)
        shares.append(share)
        result -= share * turned
    result *= scale
    for (moved, turned, inverse), share in zip(pairs, reversed(shares), strict=True):
        result += (share - inverse * float(turned @ result)) * moved
    return result


class NewtonSystem:
    """Solves Newton systems of one problem, one after another."""

    def __init__(self, examples: Examples, ridge: float) -> None:
        self.examples = examples
        self.ridge = ridge
        self.factor: BorderedFactor | None = None
        self.precise = False

    def solve(self, curvature: Array, target: Array, accuracy: float) -> Array:
        """Return (Σ k_i (f_i, 1)(f_i, 1)ᵀ + ridge)⁻¹ target, to a relative residual."""
        if self.factor is not None and not self.precise:
            solution, reached = self._conjugate_gradients(curvature, target, accuracy)
            if reached:
                return solution
        for dtype, floor in ((np.float32, 1e-7), (np.float64, 1e-14), (np.float64, 1e-10)):
            if dtype is np.float32 and self.precise:
                continue
            self.factor = None  # free the last one first
            self.factor = self.examples.factor(curvature, self.ridge, floor, dtype)
            if self.factor is not None:
                solution, reached = self._conjugate_gradients(curvature, target, accuracy)
                if reached:
                    return solution
            self.precise = True  # what is too ill-conditioned now will hardly get better
        if self.factor is None:  # flat: the curvature vanishes, so follow the gradient
            return target
        return np.append(*self.factor.solve(target[:-1], float(target[-1])))

    def _conjugate_gradients(
        self, curvature: Array, target: Array, accuracy: float
    ) -> tuple[Array, bool]:
        assert self.factor is not None
        solution, residual = np.zeros_like(target), target
        direction, product = target, 1.0
        enough = accuracy * float(np.linalg.norm(target))
        for step in range(_CONJUGATE_STEPS):
            solved = np.append(*self.factor.solve(residual[:-1], float(residual[-1])))
            previous, product = product, float(residual @ solved)
            direction = solved if step == 0 else solved + (product / previous) * direction
            image = self._times(curvature, direction)
            along = float(direction @ image)
            if not (product > 0 and along > 0):
                break
            solution = solution + (product / along) * direction
            residual = residual - (product / along) * image
            if np.linalg.norm(residual) <= enough:
                return solution, True
        return solution, False

    def _times(self, curvature: Array, point: Array) -> Array:
        image = self.examples.gram_times(curvature, point)
        image[:-1] += self.ridge * point[:-1]
        return image
