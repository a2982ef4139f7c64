"""The scalar potential whose stationary point is the trained classifier (docs/theory.md, section 5).

With order parameters (μ_q, μ_e, b, ν), a noise scale τ and its dual β,

    Ψ = α E M_{χS²}(y m + SρG) + (Λ/2)(μ_q² + μ_e² + ν²) + βτ/2 - βν,
    m = μ_q c_q + μ_e c_e + b,  ρ² = ν² + μ_e²,  χ = τ/β,  Λ = α ridge.

Ψ is convex in (μ_q, μ_e, b, ν, τ) and concave in β, so that Newton's method on its gradient is
safe. At the saddle point τ = ν, and the six conditions are the five self-consistent equations.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from sparsetoken.arrays import Array
from sparsetoken.losses import Loss
from sparsetoken.theory.interpolation import (
    FEW_POINTS,
    GRADIENT_MOMENTS,
    Resolution,
    ScaleRange,
    scale_ranges,
    tabulated_moments,
)
from sparsetoken.theory.laws import FeatureLaw
from sparsetoken.theory.moments import MOMENTS, margin_moments

__all__ = ["VARIABLES", "FirstOrder", "Potential", "SecondOrder"]

VARIABLES = ("along", "across", "bias", "rest", "width", "dual")
ALONG, ACROSS, BIAS, REST, WIDTH, DUAL = range(6)


@dataclass(frozen=True)
class FirstOrder:
    """The potential's gradient at a point of the six variables.

    Attributes
    ----------
    gradient : array of shape (6,)
    replicate_gradients : array of shape (replicates, 6)
        The gradient with each replicate of the law alone.
    train_loss : array of shape (replicates,)
        E ℓ(r).
    gradient_error, train_loss_error : numerical errors of the margin's moments, carried over
    """

    gradient: Array
    replicate_gradients: Array
    train_loss: Array
    gradient_error: Array
    train_loss_error: float


@dataclass(frozen=True)
class SecondOrder(FirstOrder):
    """The potential, its gradient and its Hessian at a point.

    Attributes
    ----------
    value : float
    hessian : array of shape (6, 6)
    train_loss_gradient : array of shape (6,)
    """

    value: float
    hessian: Array
    train_loss_gradient: Array


class Potential:
    """The potential of one law of features, loss and sample ratio, for any ridge.

    Parameters
    ----------
    resolution : dict
        Sizes of the tables that resolve the margin's moments; changed as needed.
    table_tolerance : float
        What a table may leave of the largest value of a moment.

    Attributes
    ----------
    smoothing : float
        ε >= 0: the loss is replaced by its Moreau envelope M_ε, which turns the prox step χS² into
        χS² + ε. A way to approach losses with kinks.
    """

    def __init__(
        self,
        law: FeatureLaw,
        loss: Loss,
        alpha: float,
        resolution: Resolution | None = None,
        table_tolerance: float = 2e-7,
    ) -> None:
        self.law = law
        self.loss = loss
        self.alpha = alpha / law.dimension_ratio
        self.smoothing = 0.0
        self._signed = law.label[:, None] * np.stack(
            [law.along, law.across, np.ones_like(law.along)], axis=1
        )
        self._resolution = {} if resolution is None else resolution
        self._table_tolerance = table_tolerance
        self._last_key: tuple[bytes, float] | None = None
        self._last = (np.empty((0, 0)), np.empty(0))

    def first_order(self, x: Array, ridge: float) -> FirstOrder:
        """Return the gradient at x = (μ_q, μ_e, b, ν, τ, β)."""
        moments, errors = self._moments(x, GRADIENT_MOMENTS)
        errors = errors + self._quadrature_error(x)
        return FirstOrder(*self._gradients(moments, errors, _Chain(x, self.alpha * ridge)))

    def second_order(self, x: Array, ridge: float) -> SecondOrder:
        """Return the potential and its derivatives at x; the error of quadrature is left out."""
        moments, errors = self._moments(x, len(MOMENTS))
        chain = _Chain(x, self.alpha * ridge)
        inner_gradient, inner_hessian = self._inner_derivatives(moments)
        step = chain.step * self.law.scale**2 + self.smoothing
        envelope = self.law.weight @ (moments[:, 0] + 0.5 * step * moments[:, 3])
        return SecondOrder(
            *self._gradients(moments, errors, chain),
            value=float(self.alpha * envelope + chain.outer_value),
            hessian=chain.hessian(inner_gradient, inner_hessian),
            train_loss_gradient=self._train_loss_gradient(moments, step) @ chain.jacobian,
        )

    def _gradients(
        self, moments: Array, errors: Array, chain: "_Chain"
    ) -> tuple[Array, Array, Array, Array, float]:
        """Return the fields of `FirstOrder`."""
        law, alpha = self.law, self.alpha
        rows = np.empty((len(law.scale), 6))
        rows[:, :3] = self._signed * moments[:, 1:2]
        rows[:, 3] = law.scale * moments[:, 2]
        rows[:, 4] = -0.5 * law.scale**2 * moments[:, 3]
        rows[:, 5] = moments[:, 0]
        means = law.by_replicate(rows)
        replicates = alpha * means[:, :5] @ chain.jacobian + chain.outer_gradient
        inner_error = alpha * np.array(
            [
                *(errors[1] * (law.weight @ np.abs(self._signed))),
                errors[2] * (law.weight @ law.scale),
                0.5 * errors[3] * (law.weight @ law.scale**2),
            ]
        )
        gradient_error = inner_error @ np.abs(chain.jacobian)
        return replicates.mean(axis=0), replicates, means[:, 5], gradient_error, float(errors[0])

    def _train_loss_gradient(self, moments: Array, step: Array) -> Array:
        """Return the gradient of E ℓ(r) = M + t M_t in (μ_q, μ_e, b, ρ, χ)."""
        _, p, pg, pp, _, _, _, pd, pdg, ppd = moments.T * self.law.weight
        scale = self.law.scale
        by_centre, by_noise, by_step = p - step * pd, pg - step * pdg, step * ppd - pp
        return np.array([*(self._signed.T @ by_centre), scale @ by_noise, scale**2 @ by_step])

    def _inner_derivatives(self, moments: Array) -> tuple[Array, Array]:
        """Return gradient and Hessian of α E M in (μ_q, μ_e, b, ρ, χ)."""
        signed, scale = self._signed, self.law.scale
        square = scale**2
        _, p, pg, pp, d, dg, dgg, pd, pdg, ppd = moments.T * (self.alpha * self.law.weight)
        gradient = np.array([*(signed.T @ p), scale @ pg, -0.5 * square @ pp])
        hessian = np.empty((5, 5))
        hessian[:3, :3] = signed.T @ (signed * d[:, None])
        hessian[:3, 3] = hessian[3, :3] = signed.T @ (scale * dg)
        hessian[:3, 4] = hessian[4, :3] = -(signed.T @ (square * pd))
        hessian[3, 3] = square @ dgg
        hessian[3, 4] = hessian[4, 3] = -(square * scale) @ pdg
        hessian[4, 4] = square**2 @ ppd
        return gradient, hessian

    def _exact(self, x: Array, centre: Array, scale: Array, order: int = 8) -> Array:
        """Return all margin moments at points of the law."""
        noise, step = float(np.hypot(x[REST], x[ACROSS])), x[WIDTH] / x[DUAL]
        steps = step * scale**2 + self.smoothing
        return margin_moments(self.loss, centre, noise * scale, steps, order)

    def _moments(self, x: Array, count: int) -> tuple[Array, Array]:
        """Return the first margin moments at all points of the law, and their error from tables.

        The last ones are kept: they do not depend on the ridge, nor on the order of derivatives.
        """
        key = (x.tobytes(), self.smoothing)
        if self._last_key != key or self._last[0].shape[1] < count:
            centre, scale = self._signed @ x[:3], self.law.scale
            if self.loss.piecewise_quadratic or len(scale) <= FEW_POINTS:
                self._last = self._exact(x, centre, scale), np.zeros(len(MOMENTS))
            else:
                self._last = tabulated_moments(
                    lambda c, s: self._exact(x, c, s),
                    centre,
                    scale,
                    _scale_ranges(self.law),
                    count,
                    self._resolution,
                    self._table_tolerance,
                )
            self._last_key = key
        return self._last

    def _quadrature_error(self, x: Array) -> Array:
        """Return the error of the exact moments: what a finer rule changes at some points."""
        if self.loss.piecewise_quadratic:
            return np.zeros(len(MOMENTS))
        some = slice(None, None, max(1, len(self.law.scale) // 32))
        centre, scale = self._signed[some] @ x[:3], self.law.scale[some]
        finer, usual = (self._exact(x, centre, scale, order) for order in (16, 8))
        return np.asarray(np.abs(finer - usual).max(axis=0))


@lru_cache(maxsize=8)
def _scale_ranges(law: FeatureLaw) -> tuple[ScaleRange, ...]:
    return scale_ranges(law.scale)


class _Chain:
    """The chain rule from (μ_q, μ_e, b, ρ, χ) to the six variables, and the terms beside α E M."""

    def __init__(self, x: Array, penalty: float) -> None:
        along, self.across, _, self.rest, self.width, self.dual = x
        self.noise = float(np.hypot(self.rest, self.across))
        self.step = self.width / self.dual
        self.penalty = penalty
        self.jacobian = np.zeros((5, 6))
        self.jacobian[:3, :3] = np.eye(3)
        self.jacobian[3, ACROSS] = self.across / self.noise
        self.jacobian[3, REST] = self.rest / self.noise
        self.jacobian[4, WIDTH] = 1 / self.dual
        self.jacobian[4, DUAL] = -self.width / self.dual**2
        ridge_part = penalty * np.array([along, self.across, 0.0, self.rest, 0.0, 0.0])
        dual_part = np.array([0, 0, 0, -self.dual, self.dual / 2, self.width / 2 - self.rest])
        self.outer_gradient = ridge_part + dual_part
        self.outer_value = 0.5 * penalty * (
            along**2 + self.across**2 + self.rest**2
        ) + self.dual * (0.5 * self.width - self.rest)

    def hessian(self, inner_gradient: Array, inner_hessian: Array) -> Array:
        """Return the Hessian in the six variables."""
        hessian = self.jacobian.T @ inner_hessian @ self.jacobian
        across, rest = self.across, self.rest
        bend = np.array([[rest**2, -across * rest], [-across * rest, across**2]]) / self.noise**3
        hessian[np.ix_([ACROSS, REST], [ACROSS, REST])] += inner_gradient[3] * bend
        hessian[WIDTH, DUAL] += 0.5 - inner_gradient[4] / self.dual**2
        hessian[DUAL, WIDTH] = hessian[WIDTH, DUAL]
        hessian[DUAL, DUAL] += 2 * inner_gradient[4] * self.width / self.dual**3
        hessian[REST, DUAL] -= 1
        hessian[DUAL, REST] -= 1
        hessian[[ALONG, ACROSS, REST], [ALONG, ACROSS, REST]] += self.penalty
        return np.asarray(hessian)
