"""The scalar potential whose stationary point is the trained classifier (docs/theory.md, section 5).

With order parameters (μ_q, μ_e, b, ν), a noise scale τ and its dual β,

    Ψ = α E M_{χS²}(y m + SρG) + (Λ/2)(μ_q² + μ_e² + ν²) + βτ/2 - βν,
    m = μ_q c_q + μ_e c_e + b,  ρ² = ν² + μ_e²,  χ = τ/β,  Λ = α ridge.

Ψ is convex in (μ_q, μ_e, b, ν, τ) and concave in β, so that Newton's method on its gradient is
safe. At the saddle point τ = ν, and the six conditions are the five self-consistent equations.
"""

from dataclasses import dataclass

import numpy as np

from sparsetoken.arrays import Array
from sparsetoken.losses import Loss
from sparsetoken.theory.features import FeatureLaw
from sparsetoken.theory.moments import MomentTable, margin_moments

__all__ = ["VARIABLES", "Evaluation", "Potential"]

VARIABLES = ("along", "across", "bias", "rest", "width", "dual")
ALONG, ACROSS, BIAS, REST, WIDTH, DUAL = range(6)

_TABLE_SHAPES = ((24, 6), (32, 8), (48, 10), (64, 12), (96, 14), (128, 16), (256, 16))
_TABLE_TOLERANCE = 2e-6


@dataclass(frozen=True)
class Evaluation:
    """The potential at a point x of the six variables.

    Attributes
    ----------
    value : float
    gradient : array of shape (6,)
    hessian : array of shape (6, 6)
    replicate_gradients : array of shape (replicates, 6)
        The gradient with each replicate of the law alone.
    train_loss : array of shape (replicates,)
        E ℓ(r).
    train_loss_gradient : array of shape (6,)
    gradient_error, train_loss_error : numerical errors of the margin's moments, carried over
    """

    value: float
    gradient: Array
    hessian: Array
    replicate_gradients: Array
    train_loss: Array
    train_loss_gradient: Array
    gradient_error: Array
    train_loss_error: float


class Potential:
    """The potential of one law of features, loss and sample ratio, for any ridge."""

    def __init__(self, law: FeatureLaw, loss: Loss, alpha: float) -> None:
        self.law = law
        self.loss = loss
        self.alpha = alpha / law.dimension_ratio
        self._signed = law.label[:, None] * np.stack(
            [law.along, law.across, np.ones_like(law.along)], axis=1
        )
        self._scale_range = (float(law.scale.min()), float(law.scale.max()))
        columns = 1 if self._scale_range[0] == self._scale_range[1] else _TABLE_SHAPES[-1][1]
        self._scale_basis = MomentTable.scale_basis(law.scale, self._scale_range, columns)
        self._table_size = 0

    def evaluate(self, x: Array, ridge: float) -> Evaluation:
        """Return the potential and its derivatives at x = (μ_q, μ_e, b, ν, τ, β)."""
        along, across, _, rest, width, dual = x
        noise, step = float(np.hypot(rest, across)), width / dual
        centre = self._signed @ x[:3]
        moments, moment_error = self._moments(centre, noise, step)
        inner = _InnerDerivatives(self, moments, moment_error, step)
        penalty = self.alpha * ridge

        # Chain rule from (μ_q, μ_e, b, ρ, χ) to the six variables.
        jacobian = np.zeros((5, 6))
        jacobian[:3, :3] = np.eye(3)
        jacobian[3, ACROSS], jacobian[3, REST] = across / noise, rest / noise
        jacobian[4, WIDTH], jacobian[4, DUAL] = 1 / dual, -width / dual**2
        ridge_part = penalty * np.array([along, across, 0.0, rest, 0.0, 0.0])
        dual_part = np.array([0, 0, 0, -dual, dual / 2, width / 2 - rest])
        outer = ridge_part + dual_part
        hessian = jacobian.T @ inner.hessian @ jacobian
        curvature = np.array([[rest**2, -across * rest], [-across * rest, across**2]]) / noise**3
        hessian[np.ix_([ACROSS, REST], [ACROSS, REST])] += inner.gradient[3] * curvature
        hessian[WIDTH, DUAL] += 0.5 - inner.gradient[4] / dual**2
        hessian[DUAL, WIDTH] = hessian[WIDTH, DUAL]
        hessian[DUAL, DUAL] += 2 * inner.gradient[4] * width / dual**3
        hessian[REST, DUAL] -= 1
        hessian[DUAL, REST] -= 1
        hessian[[ALONG, ACROSS, REST], [ALONG, ACROSS, REST]] += penalty
        envelope = self.alpha * (inner.train_loss.mean() - step * inner.gradient[4] / self.alpha)
        return Evaluation(
            value=float(
                envelope
                + 0.5 * penalty * (along**2 + across**2 + rest**2)
                + dual * (0.5 * width - rest)
            ),
            gradient=inner.gradient @ jacobian + outer,
            hessian=hessian,
            replicate_gradients=inner.replicate_gradients @ jacobian + outer,
            train_loss=inner.train_loss,
            train_loss_gradient=inner.train_loss_gradient @ jacobian,
            gradient_error=inner.gradient_error @ np.abs(jacobian),
            train_loss_error=float(moment_error[0]),
        )

    def _moments(self, centre: Array, noise: float, step: float) -> tuple[Array, Array]:
        """Return the margin's moments at all points of the law, and their numerical error."""
        scale = self.law.scale
        small = len(scale) <= 4 * _TABLE_SHAPES[0][0] * _TABLE_SHAPES[0][1]
        if self.loss.piecewise_quadratic:
            return margin_moments(self.loss, centre, noise * scale, step * scale**2), np.zeros(10)
        if small:
            return self._direct(centre, noise, step, scale)
        span = (float(centre.min()), float(centre.max()))
        while self._table_size < len(_TABLE_SHAPES):
            rows, columns = _TABLE_SHAPES[self._table_size]
            shape = (rows, min(columns, self._scale_basis.shape[1]))
            table = MomentTable.build(self.loss, span, self._scale_range, noise, step, shape)
            moments = table(centre, self._scale_basis)
            # The last six moments enter only the Hessian, where they steer Newton's method.
            relative = table.error / np.maximum(np.abs(moments).max(axis=0), 1e-12)
            if relative[:4].max() <= _TABLE_TOLERANCE and relative[4:].max() <= 1e-3:
                return moments, table.error
            self._table_size += 1
        return self._direct(centre, noise, step, scale)

    def _direct(
        self, centre: Array, noise: float, step: float, scale: Array
    ) -> tuple[Array, Array]:
        moments = np.concatenate(
            [
                margin_moments(
                    self.loss, centre[part], noise * scale[part], step * scale[part] ** 2
                )
                for part in (slice(i, i + 4096) for i in range(0, len(centre), 4096))
            ]
        )
        probe = slice(None, None, max(1, len(centre) // 32))
        finer = margin_moments(
            self.loss, centre[probe], noise * scale[probe], step * scale[probe] ** 2, order=16
        )
        return moments, np.abs(finer - moments[probe]).max(axis=0)


class _InnerDerivatives:
    """Derivatives of α E M_{χS²}(y m + SρG) in (μ_q, μ_e, b, ρ, χ), from the margin's moments."""

    def __init__(
        self, potential: Potential, moments: Array, moment_error: Array, step: float
    ) -> None:
        law, alpha = potential.law, potential.alpha
        value, p, pg, pp, d, dg, dgg, pd, pdg, ppd = moments.T
        signed, scale = potential._signed, law.scale
        square = scale**2
        rows = np.empty((len(scale), 5))
        rows[:, :3] = signed * p[:, None]
        rows[:, 3] = scale * pg
        rows[:, 4] = -0.5 * square * pp
        self.replicate_gradients = alpha * law.by_replicate(rows)
        self.gradient = self.replicate_gradients.mean(axis=0)
        self.train_loss = law.by_replicate(value)

        weight = alpha * law.weight
        hessian = np.empty((5, 5))
        hessian[:3, :3] = signed.T @ (signed * (weight * d)[:, None])
        hessian[:3, 3] = hessian[3, :3] = signed.T @ (weight * scale * dg)
        hessian[:3, 4] = hessian[4, :3] = -(signed.T @ (weight * square * pd))
        hessian[3, 3] = weight @ (square * dgg)
        hessian[3, 4] = hessian[4, 3] = -(weight @ (square * scale * pdg))
        hessian[4, 4] = weight @ (square**2 * ppd)
        self.hessian = hessian
        # E ℓ(r) = M + χ M_χ, since M = E[ℓ(r) + χS²p²/2].
        self.train_loss_gradient = (self.gradient + step * hessian[4]) / alpha
        self.train_loss_gradient[4] += self.gradient[4] / alpha
        error_p, error_pg, error_pp = moment_error[1:4]
        self.gradient_error = alpha * np.concatenate(
            [
                error_p * (law.weight @ np.abs(signed)),
                [error_pg * (law.weight @ scale), 0.5 * error_pp * (law.weight @ square)],
            ]
        )
