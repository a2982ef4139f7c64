"""Newton's method for smooth losses, with a Cholesky factor that several steps share.

A step solves the Newton system by conjugate gradients, preconditioned by the factor of an earlier
Hessian. The factor, whose cost is that of about twenty products, is made anew only when conjugate
gradients slow down. It is held in single precision, which preconditions as well and takes half the
memory; double precision takes over where the Hessian is too ill-conditioned for that.
"""

from dataclasses import dataclass

import numpy as np

from sparsetoken.arrays import Array
from sparsetoken.learning.examples import BorderedFactor, Examples
from sparsetoken.losses import Loss

__all__ = ["Minimum", "minimise_smooth"]

CONJUGATE_STEPS = 16
LARGEST_NORM = 1e9


@dataclass(frozen=True)
class Minimum:
    """The point (w, b) reached, its margins, the norm of the gradient there, and how it went."""

    weights: Array
    bias: float
    margins: Array
    residual: float
    converged: bool
    status: str
    steps: int


def minimise_smooth(
    examples: Examples, loss: Loss, ridge: float, tolerance: float, max_steps: int
) -> Minimum:
    """Minimise Σ p_i ℓ(y_i(⟨f_i, w⟩ + b)) + (ridge/2)‖w‖² until the gradient's norm <= tolerance."""
    n, d = examples.shape
    weights, bias, margins = np.zeros(d), 0.0, np.zeros(n)
    newton = _NewtonSystem(examples, ridge)
    status, residual, steps, first = "reached the limit of steps", np.inf, 0, 0.0
    for steps in range(max_steps + 1):
        gradient_w, gradient_b = examples.signed_total(examples.weights * loss.slope(margins))
        gradient_w += ridge * weights
        residual = float(np.hypot(np.linalg.norm(gradient_w), gradient_b))
        first = first or residual
        norm = float(np.linalg.norm(weights))
        # A gradient of size ε leaves an error of up to ε/ridge in w: small ridges need more.
        goal = min(tolerance, max(1e-4 * ridge * norm, 1e-13))
        if residual <= goal:
            status = "converged"
            break
        if norm > LARGEST_NORM or abs(bias) > LARGEST_NORM:
            status = "no finite minimiser: the data are separable; use a ridge > 0"
            break
        accuracy = max(min(0.1, residual / first), 0.3 * goal / residual)
        curvature = examples.weights * loss.curvature(margins)
        step_w, step_b = newton.solve(curvature, -gradient_w, -gradient_b, accuracy)
        change = examples.margins(step_w, step_b)
        length = _line_search(
            loss,
            examples.weights,
            margins,
            change,
            ridge,
            (float(weights @ step_w), float(step_w @ step_w)),
        )
        if length == 0.0:
            status = "stalled at rounding error; standardise the features or use a larger ridge"
            break
        weights, bias = weights + length * step_w, bias + length * step_b
        margins = margins + length * change
        if steps % 8 == 7:  # sheds the rounding errors that the updates gather
            margins = examples.margins(weights, bias)
    if residual <= tolerance:
        status = "converged"
    return Minimum(weights, bias, margins, residual, status == "converged", status, steps)


class _NewtonSystem:
    """Solves Newton systems of one problem, one after another."""

    def __init__(self, examples: Examples, ridge: float) -> None:
        self.examples = examples
        self.ridge = ridge
        self.factor: BorderedFactor | None = None

    def solve(
        self, curvature: Array, weights: Array, bias: float, accuracy: float
    ) -> tuple[Array, float]:
        """Return (Σ k_i (f_i, 1)(f_i, 1)ᵀ + ridge)⁻¹ (weights, bias), to a relative residual."""
        if self.factor is not None:
            solution, reached = self._conjugate_gradients(curvature, weights, bias, accuracy)
            if reached:
                return solution
        self.factor = None
        for dtype, floor in ((np.float32, 1e-7), (np.float64, 1e-14), (np.float64, 1e-10)):
            scale = float(curvature @ _square_norms(self.examples)) / self.examples.shape[1]
            shift = self.ridge + floor * max(scale, 1e-300)
            self.factor = self.examples.factor(curvature, shift, dtype)
            if self.factor is None:
                continue
            solution, reached = self._conjugate_gradients(curvature, weights, bias, accuracy)
            if reached:
                return solution
        if self.factor is None:  # flat: the curvature vanishes, so follow the gradient
            return weights, bias
        return self.factor.solve(weights, bias)

    def _conjugate_gradients(
        self, curvature: Array, weights: Array, bias: float, accuracy: float
    ) -> tuple[tuple[Array, float], bool]:
        assert self.factor is not None
        target = np.append(weights, bias)
        solution, residual = np.zeros_like(target), target
        direction, product = target, 1.0
        for step in range(CONJUGATE_STEPS + 1):
            if np.linalg.norm(residual) <= accuracy * np.linalg.norm(target):
                return (solution[:-1], float(solution[-1])), True
            if step == CONJUGATE_STEPS:
                break
            solved = np.append(*self.factor.solve(residual[:-1], residual[-1]))
            previous, product = product, float(residual @ solved)
            direction = solved if step == 0 else solved + (product / previous) * direction
            image = self._times(curvature, direction)
            along = float(direction @ image)
            if not (product > 0 and along > 0):
                break
            solution = solution + (product / along) * direction
            residual = residual - (product / along) * image
        return (solution[:-1], float(solution[-1])), False

    def _times(self, curvature: Array, point: Array) -> Array:
        scores = self.examples.scores(point[:-1]) + point[-1]
        weights, bias = self.examples.total(curvature * scores)
        return np.append(weights + self.ridge * point[:-1], bias)


def _square_norms(examples: Examples) -> Array:
    return np.asarray(np.einsum("nd,nd->n", examples.features, examples.features, dtype=float))


def _line_search(
    loss: Loss,
    probabilities: Array,
    margins: Array,
    change: Array,
    ridge: float,
    products: tuple[float, float],
) -> float:
    """Return a step at which the objective's slope along the direction is at most half of that at 0.

    The slope is monotone, and unlike the value it is not lost in rounding near the minimum.
    `products` are ⟨w, step⟩ and ‖step‖².
    """
    inner, square = products

    def slope(length: float) -> float:
        return float(
            (probabilities * loss.slope(margins + length * change)) @ change
            + ridge * (inner + length * square)
        )

    start = slope(0.0)
    if not start < 0:
        return 0.0
    low, high, length = 0.0, np.inf, 1.0
    for _ in range(60):
        here = slope(length)
        if abs(here) <= 0.5 * abs(start):
            return length
        if here > 0 or not np.isfinite(here):
            high = length
        else:
            low = length
        length = 0.5 * (low + high) if np.isfinite(high) else 2 * length
    return low if np.isfinite(high) else length
