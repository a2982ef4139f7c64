"""The convex readout: minimise (1/n) Σ ℓ(y(⟨f, w⟩ + b)) + (ridge/2)‖w‖² over w and b."""

from dataclasses import dataclass

import numpy as np
from scipy import linalg

from sparsetoken.arrays import Array
from sparsetoken.losses import Loss
from sparsetoken.validation import ParameterError

__all__ = ["Readout", "fit_readout"]

GRADIENT_TOLERANCE = 1e-8


@dataclass(frozen=True)
class Readout:
    """A fitted linear readout.

    Attributes
    ----------
    weights : array of shape (d,)
    bias : float
    objective : float
        (1/n) Σ ℓ + (ridge/2)‖w‖² at the solution.
    residual : float
        Norm of the objective's gradient in (w, b).
    converged : bool
        Whether the residual is at most 1e-8.
    status : str
        What happened and, if it did not converge, what to do.
    steps : int
    """

    weights: Array
    bias: float
    objective: float
    residual: float
    converged: bool
    status: str
    steps: int


def fit_readout(
    features: Array, labels: Array, loss: Loss, ridge: float, max_steps: int = 200
) -> Readout:
    """Minimise the readout's objective by Newton's method with a Cholesky factor.

    Parameters
    ----------
    features : array of shape (n, d)
    labels : array of shape (n,), values -1 and +1
    loss : a smooth Loss
    ridge : float >= 0
    """
    if not loss.smooth:
        raise ParameterError("loss", loss.name, "a loss with a continuous slope")
    n, d = features.shape
    if n >= d:
        return _newton(features, labels, loss, ridge, max_steps)
    # With fewer samples than dimensions the solution lies in the span of the features: fᵢ = Q rᵢ.
    basis, coordinates = linalg.qr(features.T, mode="economic")
    small = _newton(coordinates.T, labels, loss, ridge, max_steps)
    return Readout(
        basis @ small.weights,
        small.bias,
        small.objective,
        small.residual,
        small.converged,
        small.status,
        small.steps,
    )


def _newton(features: Array, labels: Array, loss: Loss, ridge: float, max_steps: int) -> Readout:
    n, d = features.shape
    signed = np.empty((n, d + 1))
    signed[:, :d] = labels[:, None] * features
    signed[:, d] = labels
    penalty = np.full(d + 1, ridge)
    penalty[d] = 0.0

    def objective(point: Array, margins: Array) -> float:
        return float(loss.value(margins).mean() + 0.5 * (penalty @ point**2))

    point = np.zeros(d + 1)
    margins = np.zeros(n)
    current = objective(point, margins)
    status, residual, steps = "reached the limit of steps", np.inf, 0
    for steps in range(max_steps + 1):  # noqa: B007
        gradient = signed.T @ (loss.slope(margins) / n) + penalty * point
        residual = float(np.linalg.norm(gradient))
        if residual <= GRADIENT_TOLERANCE:
            status = "converged"
            break
        scaled = signed * np.sqrt(loss.curvature(margins) / n)[:, None]
        hessian = scaled.T @ scaled
        # A flat direction (no ridge, or a saturated loss) needs some curvature to be factored.
        floor = 1e-14 * max(float(np.trace(hessian)) / (d + 1), 1e-300)
        hessian[np.diag_indices(d + 1)] += penalty + floor
        direction = -linalg.solve(hessian, gradient, assume_a="pos", check_finite=False)
        change = signed @ direction
        decrease = float(gradient @ direction)
        length = 1.0
        while length > 1e-12:
            trial = objective(point + length * direction, margins + length * change)
            if trial <= current + 1e-4 * length * decrease + 1e-15 * abs(current):
                break
            length *= 0.5
        point, margins = point + length * direction, margins + length * change
        current = trial
        if np.linalg.norm(point) > 1e8:
            status = "no finite minimiser: the data are separable; use a ridge > 0"
            break
    return Readout(
        point[:d], float(point[d]), current, residual, status == "converged", status, steps
    )
