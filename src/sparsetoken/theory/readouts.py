"""The trained readout in the limit of high dimension, whichever regime applies.

- ridge > 0, or more samples than the readout can fit: the saddle point of the potential;
- ridge = 0 and separable data, for a loss that is least at large margins: the maximum margin;
- ridge = 0 and fewer samples than dimensions, for a loss with one best margin: interpolation.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from sparsetoken.arrays import Array
from sparsetoken.losses import Loss
from sparsetoken.numerics.solution import Solution
from sparsetoken.theory.features import FeatureLaw
from sparsetoken.theory.margin import EXCESS_FLOOR, least_excess, widest_margin
from sparsetoken.theory.potential import Potential
from sparsetoken.theory.saddle import solve_saddle
from sparsetoken.validation import ParameterError

__all__ = ["LimitReadout", "limit_readout", "misclassified"]


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
    state : array
        Where the solver ended, to start the next problem of a path from.
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
    state: tuple[str, Array]
    solution: Solution
    margin: float | None = None
    replicate_margins: Array | None = None


def limit_readout(
    law: FeatureLaw,
    loss: Loss,
    alpha: float,
    ridge: float,
    start: tuple[str, Array] | None = None,
) -> LimitReadout:
    """Return the readout trained on alpha samples per token dimension.

    Parameters
    ----------
    start : a `LimitReadout.state` to begin from
    """
    ratio = alpha / law.dimension_ratio
    if ridge == 0 and np.isfinite(loss.minimisers[1]):
        if ratio == 1:
            accepted = (
                f"a value other than the interpolation threshold {law.dimension_ratio:g}, "
                "where the error diverges at ridge = 0; or use ridge > 0"
            )
            raise ParameterError("alpha1", alpha, accepted)
        if ratio < 1:
            return _interpolation(law, loss, ratio)
    if ridge == 0 and np.isinf(loss.minimisers[1]):
        regime, note = _separability(law, alpha)
        if regime == "separable":
            return _maximum_margin(law, loss, ratio, _matching(start, "margin"), note)
        return _saddle(law, loss, alpha, ridge, _matching(start, "saddle"), note)
    return _saddle(law, loss, alpha, ridge, _matching(start, "saddle"), "converged")


def _matching(start: tuple[str, Array] | None, kind: str) -> Array | None:
    return start[1] if start is not None and start[0] == kind else None


def misclassified(law: FeatureLaw, weights: Array, shift: Array | float = 0.0) -> Array:
    """Return P(y m + SρG < shift) at each point of the law, (n,)."""
    centre = law.label * (weights[0] * law.along + weights[1] * law.across + weights[2])
    return np.asarray(ndtr((shift - centre) / (law.scale * np.hypot(weights[1], weights[3]))))


def _saddle(
    law: FeatureLaw, loss: Loss, alpha: float, ridge: float, start: Array | None, note: str
) -> LimitReadout:
    potential = Potential(law, loss, alpha)
    result = solve_saddle(potential, ridge, start)
    point, found = result.point, result.evaluation
    active = np.flatnonzero([law.has_query, True, True, True, True, True])
    inverse = np.linalg.pinv(found.hessian[np.ix_(active, active)])
    shifts = np.zeros((law.replicates, 6))
    # One Newton step from the common solution towards that of each replicate.
    shifts[:, active] = -(found.replicate_gradients - found.gradient)[:, active] @ inverse.T
    errors = np.abs(result.residual * point)
    errors[active] += np.abs(inverse) @ found.gradient_error[active]
    replicate_points = point + shifts
    replicate_points[:, 3:] = np.maximum(replicate_points[:, 3:], 0.01 * point[3:])
    slope = float(loss.slope(np.zeros(1))[0])

    def below_zero(x: Array) -> Array:
        # r < 0 exactly when ω < χS² ℓ'(0).
        return law.by_replicate(misclassified(law, x, x[4] / x[5] * law.scale**2 * slope))

    train_errors = [below_zero(x)[index] for index, x in enumerate(replicate_points)]
    return LimitReadout(
        weights=point[:4],
        susceptibility=float(point[4] / point[5]),
        replicate_weights=replicate_points[:, :4],
        weights_error=errors[:4],
        train_loss=float(found.train_loss.mean()),
        train_error=float(below_zero(point).mean()),
        replicate_train_loss=found.train_loss + shifts @ found.train_loss_gradient,
        replicate_train_error=np.array(train_errors),
        train_loss_error=float(found.train_loss_error + errors @ np.abs(found.train_loss_gradient)),
        state=("saddle", point),
        solution=Solution(
            converged=result.converged,
            status=note if result.converged else _ADVICE,
            residual=result.residual,
            steps=result.steps,
        ),
    )


_ADVICE = (
    "not converged: the equations are nearly degenerate here; raise the ridge, or move the sample "
    "ratio away from a threshold"
)


def _separability(law: FeatureLaw, alpha: float) -> tuple[str, str]:
    """Return whether data at this ratio are separable, and a note on how sure that is."""
    excess = least_excess(law).evaluation.hinged
    if excess.value < EXCESS_FLOOR:
        return "separable", "converged"
    threshold = law.dimension_ratio / excess.value
    if abs(alpha / threshold - 1) < 1e-9:
        accepted = (
            f"a value other than the capacity {threshold:.10g}, where the margin vanishes at "
            "ridge = 0; or use ridge > 0"
        )
        raise ParameterError("alpha1", alpha, accepted)
    spread = 3 * np.std(excess.replicates) / np.sqrt(law.replicates) / excess.value
    close = abs(alpha / threshold - 1) <= spread
    note = (
        "converged"
        if not close
        else (
            f"converged, but alpha1 is within the numerical error of the capacity {threshold:.4g}: "
            "use ridge > 0 or move away from it"
        )
    )
    return ("separable" if alpha < threshold else "inseparable"), note


def _maximum_margin(
    law: FeatureLaw, loss: Loss, ratio: float, start: Array | None, note: str
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
    least = min(loss.minimisers[0], 1e300)
    zeros = np.zeros(law.replicates)
    return LimitReadout(
        weights=point[:4],
        susceptibility=np.inf,
        replicate_weights=replicate_points[:, :4],
        weights_error=np.abs(result.residual * point[:4]),
        train_loss=float(loss.value(np.array([least]))[0]),
        train_error=0.0,
        replicate_train_loss=zeros,
        replicate_train_error=zeros,
        train_loss_error=0.0,
        state=("margin", point),
        solution=Solution(
            result.converged, note if result.converged else _ADVICE, result.residual, result.steps
        ),
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
        train_loss=float(loss.value(np.array([target]))[0]),
        train_error=float(target <= 0),
        replicate_train_loss=zeros,
        replicate_train_error=zeros,
        train_loss_error=0.0,
        state=("interpolation", weights),
        solution=Solution(converged=True, status="converged", residual=0.0, steps=1),
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
