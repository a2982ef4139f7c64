"""The scalar potential whose stationary point is the trained classifier (docs/theory.md, section 5).

With order parameters (μ, b, a, ν), a noise scale τ and its dual β,

    Ψ = α E M_{χS²}(y m + D·a + SρG) + (Λ/2)(‖μ‖² + ν²) - (α/2χ)‖a‖² + βτ/2 - βν,
    m = μ·c + b,  ρ² = ν² + Σ μ_j² over the coordinates with noise,  χ = τ/β,  Λ = α ridge,

where α is the number of samples over that of features, c are the mean coordinates of a feature and D
what its noise had along removed directions; both may be of any number. Ψ is convex in (μ, b, ν, τ) and,
with the best a, concave in β, so that Newton's method on its gradient is safe. At the saddle point τ = ν
(docs/theory.md, sections 5.3 and 5.6).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.special import ndtr

from sparsetoken.arrays import Array
from sparsetoken.losses import Loss
from sparsetoken.theory.feature_law import FeatureLaw
from sparsetoken.theory.interpolation import FEW_POINTS, Shape, tabulated_moments
from sparsetoken.theory.moments import GRADIENT_MOMENTS, MOMENTS, Margin

__all__ = ["DUAL", "POSITIVE", "REST", "WIDTH", "FirstOrder", "Potential", "SecondOrder"]

# The last three variables, after the coefficients (μ, b, a) of the law's columns: all positive.
REST, WIDTH, DUAL = -3, -2, -1
POSITIVE = slice(REST, None)

# Centres and scales of the grid on which the quadrature is checked.
_CHECKED = (16, 4)


@dataclass(frozen=True)
class FirstOrder:
    """The potential's gradient at a point x = (μ, b, a, ν, τ, β) of v variables.

    Attributes
    ----------
    gradient : array of shape (v,)
    replicate_gradients : array of shape (replicates, v)
        The gradient with each replicate of the law alone.
    train_loss : array of shape (replicates,)
        E ℓ(r).
    """

    gradient: Array
    replicate_gradients: Array
    train_loss: Array


@dataclass(frozen=True)
class SecondOrder(FirstOrder):
    """The potential, its gradient and its Hessian at a point.

    Attributes
    ----------
    value : float
    hessian : array of shape (v, v)
    train_loss_gradient : array of shape (v,)
    bend : float
        E D/|E p|: how far the loss is from a straight line where the margins lie.
    """

    value: float
    hessian: Array
    train_loss_gradient: Array
    bend: float


class Potential:
    """The potential of one law of features, loss and sample ratio, for any ridge.

    Parameters
    ----------
    ratio : float
        Samples per dimension of the features: alpha over the law's `dimension_ratio`.
    shapes : mapping, optional
        Sizes of the tables that resolve the margin's moments, to begin with.
    table_tolerance : float
        What a table may leave of the largest value of a moment.
    order : int
        Nodes of a panel of the quadrature over the noise.
    """

    def __init__(
        self,
        law: FeatureLaw,
        loss: Loss,
        ratio: float,
        shapes: Mapping[int, Shape] | None = None,
        table_tolerance: float = 2e-7,
        order: int = 8,
    ) -> None:
        self.law = law
        self.loss = loss
        self.ratio = ratio
        self._table_tolerance = table_tolerance
        self._order = order
        self._kept = _Kept({} if shapes is None else dict(shapes))

    @property
    def shapes(self) -> dict[int, Shape]:
        """Sizes of the tables that were needed last."""
        return dict(self._kept.shapes)

    def with_part_of_lost(self, kept: float) -> "Potential":
        """Return the potential of a law that keeps this part of what it has of lost directions.

        With all of it nothing is lost, and the readout has as much noise as of fresh data.
        """
        if kept == 0:
            return self
        law = replace(self.law, removed=(1 - kept) * self.law.removed)
        settings = (self.shapes, self._table_tolerance, self._order)
        return Potential(law, self.loss, self.ratio, *settings)

    def first_order(self, x: Array, ridge: float, smoothing: float = 0.0) -> FirstOrder:
        """Return the gradient at x = (μ, b, a, ν, τ, β).

        With a smoothing ε > 0 the loss is replaced by its Moreau envelope M_ε, which turns the prox
        step χS² into χS² + ε: a way to approach losses with kinks.
        """
        moments = self._moments(x, smoothing, GRADIENT_MOMENTS).values
        return FirstOrder(*self._gradients(moments, self._chain(x, ridge)))

    def second_order(self, x: Array, ridge: float, smoothing: float = 0.0) -> SecondOrder:
        """Return the potential and its derivatives at x."""
        moments = self._moments(x, smoothing, len(MOMENTS)).values
        chain = self._chain(x, ridge)
        inner_gradient, inner_hessian = self._inner_derivatives(moments)
        step = chain.step * self.law.scale**2 + smoothing
        envelope = self.law.weight @ (moments[:, 0] + 0.5 * step * moments[:, 3])
        return SecondOrder(
            *self._gradients(moments, chain),
            value=float(self.ratio * envelope + chain.outer_value),
            hessian=chain.hessian(inner_gradient, inner_hessian),
            train_loss_gradient=self._train_loss_gradient(moments, step) @ chain.jacobian,
            bend=_bend(*(float(self.law.weight @ moments[:, column]) for column in (4, 1))),
        )

    def errors(self, x: Array, smoothing: float = 0.0) -> tuple[Array, float]:
        """Return the numerical errors of the gradient, (v,), and of the training loss, at x.

        They are those of the margin's moments, from quadrature and tables.
        """
        moments, law = self._moments(x, smoothing, GRADIENT_MOMENTS), self.law
        errors = moments.errors[:GRADIENT_MOMENTS]
        errors = errors + self._quadrature_error(x, smoothing, moments.values)
        inner = self.ratio * np.array(
            [
                *(errors[1] * (law.weight @ np.abs(law.signed))),
                errors[2] * (law.weight @ law.scale),
                0.5 * errors[3] * (law.weight @ law.scale**2),
            ]
        )
        return inner @ np.abs(self._chain(x, 0.0).jacobian), float(errors[0])

    def below(self, x: Array, level: Array | float) -> Array:
        """Return P(ω < level) at each point of the law, (n,), for ω = y m + D·a + SρG.

        `x` is one point, or a row for each replicate of the law.
        """
        rows = np.atleast_2d(x)
        law, size = self.law, len(self.law.scale) // len(rows)
        columns = law.signed.reshape(len(rows), size, -1)
        centre = np.einsum("rnj,rj->rn", columns, rows[:, :REST]).ravel()
        noise = np.sqrt(rows[:, REST] ** 2 + rows[:, :REST] ** 2 @ law.own_noise)
        return np.asarray(ndtr((level - centre) / (law.scale * np.repeat(noise, size))))

    def _chain(self, x: Array, ridge: float) -> "_Chain":
        return _Chain(x, self.law, self.ratio, ridge)

    def _gradients(self, moments: Array, chain: "_Chain") -> tuple[Array, Array, Array]:
        """Return the fields of `FirstOrder`."""
        law = self.law
        rows = np.column_stack(
            [
                law.signed * moments[:, 1:2],
                law.scale * moments[:, 2],
                -0.5 * law.scale**2 * moments[:, 3],
                moments[:, 0],
            ]
        )
        means = law.by_replicate(rows)
        replicates = self.ratio * means[:, :-1] @ chain.jacobian + chain.outer_gradient
        return replicates.mean(axis=0), replicates, means[:, -1]

    def _train_loss_gradient(self, moments: Array, step: Array) -> Array:
        """Return the gradient of E ℓ(r) = M + t M_t in (μ, b, a, ρ, χ)."""
        _, p, pg, pp, _, _, _, pd, pdg, ppd = moments.T * self.law.weight
        scale = self.law.scale
        by_centre, by_noise, by_step = p - step * pd, pg - step * pdg, step * ppd - pp
        return np.array([*(self.law.signed.T @ by_centre), scale @ by_noise, scale**2 @ by_step])

    def _inner_derivatives(self, moments: Array) -> tuple[Array, Array]:
        """Return gradient and Hessian of α E M in (μ, b, a, ρ, χ)."""
        signed, scale = self.law.signed, self.law.scale
        square, count = scale**2, signed.shape[1]
        _, p, pg, pp, d, dg, dgg, pd, pdg, ppd = moments.T * (self.ratio * self.law.weight)
        gradient = np.array([*(signed.T @ p), scale @ pg, -0.5 * square @ pp])
        hessian = np.empty((count + 2, count + 2))
        hessian[:-2, :-2] = signed.T @ (signed * d[:, None])
        hessian[:-2, -2] = hessian[-2, :-2] = signed.T @ (scale * dg)
        hessian[:-2, -1] = hessian[-1, :-2] = -(signed.T @ (square * pd))
        hessian[-2, -2] = square @ dgg
        hessian[-2, -1] = hessian[-1, -2] = -(square * scale) @ pdg
        hessian[-1, -1] = square**2 @ ppd
        return gradient, hessian

    def _margin(self, x: Array, smoothing: float, finer: int = 1) -> Margin:
        noise = float(np.sqrt(x[REST] ** 2 + x[:REST] ** 2 @ self.law.own_noise))
        return Margin(self.loss, noise, x[WIDTH] / x[DUAL], smoothing, finer * self._order)

    def _moments(self, x: Array, smoothing: float, count: int) -> "_Moments":
        """Return the first margin moments at all points of the law.

        The last ones are kept: they do not depend on the ridge, nor on the order of derivatives.
        """
        kept, key = self._kept, (x.tobytes(), smoothing)
        if kept.key != key or kept.moments.values.shape[1] < count:
            centre, scale = self.law.signed @ x[:REST], self.law.scale
            margin = self._margin(x, smoothing)
            if self.loss.piecewise_quadratic or self._few_points:
                kept.moments = _Moments(margin.moments(centre, scale), np.zeros(len(MOMENTS)))
            else:
                values, errors, kept.shapes = tabulated_moments(
                    margin,
                    centre,
                    scale,
                    self.law.scale_ranges,
                    count,
                    kept.shapes,
                    self._table_tolerance,
                )
                kept.moments = _Moments(values, errors)
            kept.key = key
        return kept.moments

    @property
    def _few_points(self) -> bool:
        """Whether the law has too few points for any table."""
        return len(self.law.scale) <= FEW_POINTS

    def _quadrature_error(self, x: Array, smoothing: float, moments: Array) -> Array:
        """Return the error of the exact moments: what a finer rule changes on a grid of points.

        Few points are that grid themselves.
        """
        if self.loss.piecewise_quadratic:
            return np.zeros(GRADIENT_MOMENTS)
        centre, scale = self.law.signed @ x[:REST], self.law.scale
        usual, finer = (self._margin(x, smoothing, factor) for factor in (1, 2))
        if self._few_points:
            changes = (finer.moments(centre, scale) - moments)[:, :GRADIENT_MOMENTS]
            return np.asarray(np.abs(changes).max(axis=0))
        centres = np.linspace(centre.min(), centre.max(), _CHECKED[0])
        scales = np.geomspace(scale.min(), scale.max(), _CHECKED[1])
        changes = np.subtract(
            *(
                margin.moments_on_grid(centres, scales, GRADIENT_MOMENTS)
                for margin in (finer, usual)
            )
        )
        return np.asarray(np.abs(changes).max(axis=(0, 1)))


def _bend(curvature: float, slope: float) -> float:
    return abs(curvature / slope) if slope != 0 else np.inf


@dataclass(frozen=True)
class _Moments:
    """Margin moments at all points of a law, (n, count), and their error from tables, (count,)."""

    values: Array
    errors: Array


@dataclass
class _Kept:
    """What a potential keeps for its next evaluation: table sizes, and moments at the last point."""

    shapes: dict[int, Shape]
    key: tuple[bytes, float] | None = None
    moments: _Moments = field(default_factory=lambda: _Moments(np.empty((0, 0)), np.empty(0)))


class _Chain:
    """The chain rule from (μ, b, a, ρ, χ) to the variables, and the terms beside α E M."""

    def __init__(self, x: Array, law: FeatureLaw, ratio: float, ridge: float) -> None:
        linear = x[:REST]
        self.rest, self.width, self.dual = x[REST:]
        self.own_noise, self.lost, self.ratio = law.own_noise, law.lost, ratio
        self.penalty = ratio * ridge * law.penalised
        self.rest_penalty = ratio * ridge
        self.noise = float(np.sqrt(self.rest**2 + linear**2 @ self.own_noise))
        self.step = self.width / self.dual
        self.removed = linear * self.lost
        count = len(linear)
        self.jacobian = np.zeros((count + 2, count + 3))
        self.jacobian[:count, :count] = np.eye(count)
        self.noisy_part = np.array([*(linear * self.own_noise), self.rest])
        self.jacobian[-2, : count + 1] = self.noisy_part / self.noise
        self.jacobian[-1, WIDTH] = 1 / self.dual
        self.jacobian[-1, DUAL] = -self.width / self.dual**2
        square = float(self.removed @ self.removed)
        self.loss_of_norm = 0.5 * ratio * square
        self.outer_value = float(
            0.5 * (self.penalty @ linear**2 + self.rest_penalty * self.rest**2)
            + self.dual * (0.5 * self.width - self.rest)
            - self.loss_of_norm / self.step
        )
        self.outer_gradient = np.array(
            [
                *(self.penalty * linear - ratio / self.step * self.removed),
                self.rest_penalty * self.rest - self.dual,
                0.5 * self.dual + self.loss_of_norm * self.dual / self.width**2,
                0.5 * self.width - self.rest - self.loss_of_norm / self.width,
            ]
        )

    def hessian(self, inner_gradient: Array, inner_hessian: Array) -> Array:
        """Return the Hessian in the variables."""
        hessian = self.jacobian.T @ inner_hessian @ self.jacobian
        # The second derivatives of ρ, and of χ = τ/β.
        by_noise, by_step = inner_gradient[-2:]
        curved = np.diag([*self.own_noise, 1.0])
        unit = self.noisy_part / self.noise
        hessian[:WIDTH, :WIDTH] += by_noise / self.noise * (curved - np.outer(unit, unit))
        outer = np.zeros_like(hessian)
        outer[WIDTH, DUAL] = 0.5 - by_step / self.dual**2 + self.loss_of_norm / self.width**2
        outer[REST, DUAL] = -1
        outer[:REST, WIDTH] = self.ratio * self.dual / self.width**2 * self.removed
        outer[:REST, DUAL] = -self.ratio / self.width * self.removed
        hessian += outer + outer.T
        hessian[DUAL, DUAL] += 2 * by_step * self.width / self.dual**3
        hessian[WIDTH, WIDTH] -= 2 * self.loss_of_norm * self.dual / self.width**3
        diagonal = np.arange(len(hessian) - 2)
        linear = self.penalty - self.ratio / self.step * self.lost
        hessian[diagonal, diagonal] += np.array([*linear, self.rest_penalty])
        return np.asarray(hessian)
