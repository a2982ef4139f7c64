"""The trained readout in the limit of high dimension, whichever regime applies.

- ridge > 0, or more samples than the readout can fit: the saddle point of the potential;
- ridge = 0 and separable data, for a loss that is least at large margins: the maximum margin;
- ridge = 0 and fewer samples than dimensions, for a loss with one best margin: interpolation.
"""

from dataclasses import dataclass, field

import numpy as np
from scipy.special import ndtr

from sparsetoken.arrays import Array
from sparsetoken.losses import Loss
from sparsetoken.numerics.newton import NewtonResult
from sparsetoken.numerics.solution import Solution, Status
from sparsetoken.theory.interpolation import Resolution
from sparsetoken.theory.laws import FeatureLaw, score_law
from sparsetoken.theory.margin import (
    EXCESS_FLOOR,
    largest_capacity,
    least_excess,
    widest_margin,
)
from sparsetoken.theory.potential import Potential, SecondOrder
from sparsetoken.theory.replicates import replicate_error
from sparsetoken.theory.saddle import solve_saddle
from sparsetoken.validation import ParameterError

__all__ = ["LimitReadout", "State", "limit_readout", "misclassified"]

# How a solution that converges is to be read, and what is special about it.
Note = tuple[Status, str]
_ALL_WELL: Note = (Status.CONVERGED, "")


@dataclass(frozen=True)
class State:
    """Where a solver ended, to start the next problem of a path from.

    Attributes
    ----------
    kind : which equations were solved
    point : array
    resolutions : sizes of the tables for the coarse and the fine law
    """

    kind: str
    point: Array
    resolutions: tuple[Resolution, Resolution] = field(default_factory=lambda: ({}, {}))


@dataclass(frozen=True)
class LimitReadout:
    """A trained readout: its order parameters and its quantities on the training data.

    Attributes
    ----------
    weights : array of shape (4,)
        (μ_q, μ_e, b, ν).
    susceptibility : float
        χ; infinite where the training loss is zero at ridge 0.
    replicate_weights : array of shape (replicates, 4)
        The same from each replicate of the law alone, to first order.
    weights_error : array of shape (4,)
        Numerical error of `weights`, apart from the law's.
    train_loss, train_error : float
    replicate_train_loss, replicate_train_error : arrays of shape (replicates,)
    train_loss_error : float
        Numerical error of the training loss, apart from the law's.
    margin, replicate_margins : float and array, or None
        Margin of the unit-norm readout, for the maximum-margin classifier.
    state : State
    solution : Solution
    """

    weights: Array
    susceptibility: float
    replicate_weights: Array
    weights_error: Array
    train_loss: float
    train_error: float
    replicate_train_loss: Array
    replicate_train_error: Array
    train_loss_error: float
    state: State
    solution: Solution
    margin: float | None = None
    replicate_margins: Array | None = None


def limit_readout(
    laws: tuple[FeatureLaw, FeatureLaw],
    loss: Loss,
    alpha: float,
    ridge: float,
    start: State | None = None,
) -> LimitReadout:
    """Return the readout trained on alpha samples per token dimension.

    Parameters
    ----------
    laws : a coarse and a fine approximation of the law of the features
        The equations are solved for the coarse one; the fine one then needs a correction only.
        The same object twice if the law is exact.
    start : a `LimitReadout.state` to begin from
    """
    coarse, fine = laws
    ratio = alpha / fine.dimension_ratio
    if ridge == 0 and np.isfinite(loss.minimisers[1]):
        if ratio == 1:
            accepted = (
                f"a value other than the interpolation threshold {fine.dimension_ratio:g}, "
                "where the error diverges at ridge = 0; or use ridge > 0"
            )
            raise ParameterError("alpha1", alpha, accepted)
        if ratio < 1 and loss.minimisers[0] < loss.minimisers[1]:
            accepted = f"a number > 0 for the loss {loss.name!r}, which is least on an interval"
            raise ParameterError("ridge", ridge, accepted)
        if ratio < 1:
            return _interpolation(fine, loss, ratio)
    note = _ALL_WELL
    if ridge == 0 and np.isinf(loss.minimisers[1]):
        separable, note = _separability(fine, alpha)
        if separable:
            rough = widest_margin(coarse, ratio, _matching(start, "margin"))
            return _maximum_margin(fine, loss, ratio, rough.point, note)
    resolutions = ({}, {}) if start is None else start.resolutions
    potential = Potential(coarse, loss, alpha, resolutions[0], _ROUGH_TABLES)
    exact = coarse is fine
    rough_saddle = solve_saddle(
        potential, ridge, _matching(start, "saddle"), _SOLUTION if exact else _ROUGH_SOLUTION
    )
    finer = potential if exact else Potential(fine, loss, alpha, resolutions[1])
    finer.smoothing = potential.smoothing
    if potential.smoothing and rough_saddle.converged:
        note = (
            Status.NOT_UNIQUE,
            f"the kinks of the loss are smoothed over a width {potential.smoothing:.1g}",
        )
    return _saddle(finer, ridge, rough_saddle, note, resolutions)


def _matching(start: State | None, kind: str) -> Array | None:
    return start.point if start is not None and start.kind == kind else None


def misclassified(law: FeatureLaw, weights: Array, shift: Array | float = 0.0) -> Array:
    """Return P(y m + SρG < shift) at each point of the law, (n,).

    `weights` are (μ_q, μ_e, b, ν), or one such row for each replicate.
    """
    scores = score_law(law, weights)
    return np.asarray(ndtr((shift - scores.label * scores.mean) / scores.spread))


# A solver that failed may have ended where the gradient overflows.
@np.errstate(all="ignore")
def _saddle(
    potential: Potential,
    ridge: float,
    rough: NewtonResult[SecondOrder],
    note: Note,
    resolutions: tuple[Resolution, Resolution],
) -> LimitReadout:
    """Carry the solution for a coarse law over to a fine one, with the coarse Hessian."""
    law, loss = potential.law, potential.loss
    active = np.flatnonzero([law.has_query, True, True, True, True, True])
    inverse = np.zeros((6, 6))
    inverse[np.ix_(active, active)] = np.linalg.pinv(
        rough.evaluation.hessian[np.ix_(active, active)]
    )
    point, residual = rough.point, min(rough.residual, 1.0)
    trusted = rough.converged
    for _ in range(_CORRECTIONS):
        found = potential.first_order(point, ridge)
        correction = -inverse @ found.gradient
        shifts = -(found.replicate_gradients - found.gradient) @ inverse.T
        size = np.abs(correction[3:] / point[3:]).max()
        spread = np.abs(shifts[:, 3:] / point[3:]).max()
        if not size <= 0.5:
            # A readout that vanishes with the smoothing has no digits to correct.
            correction = np.zeros(6)
            shifts = np.nan_to_num(shifts, nan=0.0, posinf=0.0, neginf=0.0)
            trusted = trusted and potential.smoothing > 0
            break
        point = point + correction
        # The next correction would be of the order of the square of this one.
        residual = float(size**2)
        if residual <= max(0.02 * spread, 1e-10):
            break
    errors = residual * np.abs(point) + np.abs(inverse) @ found.gradient_error
    replicates = point + shifts
    replicates[:, 3:] = np.maximum(replicates[:, 3:], 0.01 * point[3:])
    slope = float(loss.slope(np.zeros(1))[0])

    def below_zero(points: Array) -> Array:
        # r < 0 exactly when ω < t ℓ'(0), with the prox step t.
        steps = np.repeat(points[:, 4] / points[:, 5], len(law.scale) // len(points))
        steps = steps * law.scale**2 + potential.smoothing
        below = misclassified(law, points[:, :4], steps * slope)
        return law.by_replicate(below)

    sensitivity = rough.evaluation.train_loss_gradient
    return LimitReadout(
        weights=point[:4],
        susceptibility=float(point[4] / point[5]),
        replicate_weights=replicates[:, :4],
        weights_error=errors[:4],
        train_loss=max(float(found.train_loss.mean() + sensitivity @ correction), loss.infimum),
        train_error=float(below_zero(point[None]).mean()),
        replicate_train_loss=found.train_loss + shifts @ sensitivity,
        replicate_train_error=below_zero(replicates),
        train_loss_error=float(
            found.train_loss_error + errors @ np.abs(sensitivity) + potential.smoothing
        ),
        state=State("saddle", rough.point, resolutions),
        solution=_solution(trusted, note, residual, rough.steps),
    )


# The solution for a coarse law is a start for the fine one: accuracy of its tables, relative size of
# the last Newton correction.
_ROUGH_TABLES = 2e-5
_ROUGH_SOLUTION = 1e-3
_SOLUTION = 1e-5

# How often the gradient is evaluated on the fine law, at most.
_CORRECTIONS = 8


def _solution(converged: bool, note: Note, residual: float, steps: int) -> Solution:
    status, detail = note if converged else (Status.DEGENERATE, "")
    return Solution(status, residual, steps, detail)


def _separability(law: FeatureLaw, alpha: float) -> tuple[bool, Note]:
    """Return whether data at this ratio are separable, and a note on how sure that is."""
    excess = least_excess(law).evaluation.hinged
    if excess.value < EXCESS_FLOOR:
        beyond = law.dimension_ratio * largest_capacity(law)
        if alpha <= beyond:
            return True, _ALL_WELL
        detail = f"the capacity is beyond {beyond:.2g}, which alpha1 is as well: use ridge > 0"
        return True, (Status.BEYOND_REACH, detail)
    threshold = law.dimension_ratio / excess.value
    if abs(alpha / threshold - 1) < 1e-9:
        accepted = (
            f"a value other than the capacity {threshold:.10g}, where the margin vanishes at "
            "ridge = 0; or use ridge > 0"
        )
        raise ParameterError("alpha1", alpha, accepted)
    spread = replicate_error(excess.replicates) / excess.value
    detail = f"alpha1 is within the numerical error of the capacity {threshold:.4g}"
    close = abs(alpha / threshold - 1) <= spread
    return bool(alpha < threshold), (Status.NEAR_THRESHOLD, detail) if close else _ALL_WELL


def _maximum_margin(
    law: FeatureLaw, loss: Loss, ratio: float, start: Array, note: Note
) -> LimitReadout:
    result = widest_margin(law, ratio, start)
    point, found = result.point, result.evaluation
    active = np.flatnonzero([law.has_query, True, True, True, True])
    inverse = np.linalg.pinv(found.hessian[np.ix_(active, active)])
    shifts = np.zeros((law.replicates, 5))
    shifts[:, active] = -(found.replicate_gradients - found.gradient)[:, active] @ inverse.T
    replicate_points = point + shifts
    norm = float(np.sqrt(point[0] ** 2 + point[1] ** 2 + point[3] ** 2))
    norms = np.sqrt((replicate_points[:, [0, 1, 3]] ** 2).sum(axis=1))
    zeros = np.zeros(law.replicates)
    return LimitReadout(
        weights=point[:4],
        susceptibility=np.inf,
        replicate_weights=replicate_points[:, :4],
        weights_error=np.abs(result.residual * point[:4]),
        train_loss=loss.infimum,
        train_error=0.0,
        replicate_train_loss=zeros,
        replicate_train_error=zeros,
        train_loss_error=0.0,
        state=State("margin", point),
        solution=_solution(result.converged, note, result.residual, result.steps),
        margin=1 / norm,
        replicate_margins=1 / norms,
    )


def _interpolation(law: FeatureLaw, loss: Loss, ratio: float) -> LimitReadout:
    """Return the minimum-norm readout that gives every training sample the best margin."""
    target = loss.minimisers[0]
    columns = np.stack([law.along, law.across, np.ones_like(law.along)], axis=1)
    precision = law.scale**-2
    products = law.by_replicate(
        columns[:, :, None] * columns[:, None, :] * precision[:, None, None]
    )
    targets = law.by_replicate(columns * (law.label * precision)[:, None]) * target
    squares = law.by_replicate(precision) * target**2
    weights = _interpolating_weights(
        products.mean(axis=0), targets.mean(axis=0), float(squares.mean()), ratio, law.has_query
    )
    replicate_weights = np.array(
        [
            _interpolating_weights(*moments, ratio, law.has_query)
            for moments in zip(products, targets, squares, strict=True)
        ]
    )
    zeros = np.zeros(law.replicates)
    return LimitReadout(
        weights=weights,
        susceptibility=np.inf,
        replicate_weights=replicate_weights,
        weights_error=1e-14 * np.abs(weights),
        train_loss=loss.infimum,
        train_error=float(target <= 0),
        replicate_train_loss=zeros,
        replicate_train_error=zeros,
        train_loss_error=0.0,
        state=State("interpolation", weights),
        solution=Solution(Status.CONVERGED, residual=0.0, steps=1),
    )


def _interpolating_weights(
    products: Array, targets: Array, square: float, ratio: float, has_query: bool
) -> Array:
    """Solve for (μ_q, μ_e, b, ν): three linear equations, then one for ν."""
    matrix = ratio * products + np.diag([1 - ratio, 1.0, 0.0])
    index = np.flatnonzero([has_query, True, True])
    linear = np.zeros(3)
    linear[index] = np.linalg.solve(matrix[np.ix_(index, index)], ratio * targets[index])
    misfit = linear @ products @ linear - 2 * linear @ targets + square
    rest = np.sqrt(ratio / (1 - ratio) * (max(misfit, 0.0) + linear[1] ** 2))
    return np.append(linear, rest)
