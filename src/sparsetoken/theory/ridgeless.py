"""What a readout tends to as its ridge vanishes, where training data can be fitted.

- separable data, for a loss that is least at large margins: the maximum margin;
- fewer samples than dimensions, for a loss with one best margin: interpolation.
"""

import numpy as np

from sparsetoken.arrays import Array
from sparsetoken.losses import Loss
from sparsetoken.numerics.solution import Status
from sparsetoken.theory.feature_law import FeatureLaw
from sparsetoken.theory.margin import EXCESS_FLOOR, largest_capacity, least_excess, widest_margin
from sparsetoken.theory.replicates import replicate_error
from sparsetoken.theory.trained_readout import (
    ALL_WELL,
    AT_ONCE,
    LimitReadout,
    LimitState,
    Note,
    fresh_weights,
    noted_solution,
)
from sparsetoken.validation import ParameterError

__all__ = ["interpolating_readout", "maximum_margin_readout", "refuse_undefined", "separable_at"]


def refuse_undefined(loss: Loss, alpha: float, threshold: float) -> None:
    """Raise if ridge → 0 has no limit: at the interpolation threshold, or without one best margin."""
    if alpha == threshold:
        accepted = (
            f"a value other than the interpolation threshold {threshold:g}, "
            "where the error diverges at ridge = 0; or use ridge > 0"
        )
        raise ParameterError("alpha1", alpha, accepted)
    if alpha < threshold and loss.minimisers[0] < loss.minimisers[1]:
        accepted = f"a number > 0 for the loss {loss.name!r}, which is least on an interval"
        raise ParameterError("ridge", 0.0, accepted)


def separable_at(law: FeatureLaw, alpha: float) -> tuple[bool, Note]:
    """Return whether data at this ratio are separable, and a note on how sure that is."""
    excess = least_excess(law).evaluation.hinged
    if excess.value < EXCESS_FLOOR:
        beyond = law.dimension_ratio * largest_capacity(law)
        if alpha <= beyond:
            return True, ALL_WELL
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
    close = alpha * (1 - spread) <= threshold <= alpha * (1 + spread)
    return bool(alpha < threshold), (Status.NEAR_THRESHOLD, detail) if close else ALL_WELL


def maximum_margin_readout(
    laws: tuple[FeatureLaw, FeatureLaw],
    loss: Loss,
    ratio: float,
    start: LimitState | None,
    note: Note,
) -> LimitReadout:
    """Return the classifier of the widest margin, which ridge → 0 gives on separable data.

    The laws are a coarse and a fine one: the solution for the one is where that for the other begins.
    """
    coarse, law = laws
    near = start.point if start is not None and start.kind == "margin" else None
    # Close to capacity the coarse law may be on the other side.
    if ratio * least_excess(coarse).evaluation.hinged.value < 1:
        near = widest_margin(coarse, ratio, near).point
    result = widest_margin(law, ratio, near)
    point, found = result.point, result.evaluation
    inverse = np.linalg.pinv(found.hessian)
    points = point - (found.replicate_gradients - found.gradient) @ inverse.T
    penalised = np.append(law.penalised, 1.0)
    weights = fresh_weights(law, point)
    zeros = np.zeros(law.replicates)
    return LimitReadout(
        weights=weights,
        susceptibility=np.inf,
        replicate_weights=fresh_weights(law, points),
        weights_error=np.abs(result.solution.residual * weights),
        train_loss=loss.infimum,
        train_error=0.0,
        replicate_train_loss=zeros,
        replicate_train_error=zeros,
        train_loss_error=0.0,
        state=LimitState("margin", point),
        solution=noted_solution(
            result.converged, note, result.solution.residual, result.solution.steps
        ),
        margin=float(penalised @ point[:-1] ** 2) ** -0.5,
        replicate_margins=(points[:, :-1] ** 2 @ penalised) ** -0.5,
    )


def interpolating_readout(law: FeatureLaw, loss: Loss, ratio: float) -> LimitReadout:
    """Return the minimum-norm readout that gives every training sample the best margin."""
    target = loss.minimisers[0]
    columns, precision = law.signed, law.scale**-2
    products = law.by_replicate(
        columns[:, :, None] * columns[:, None, :] * precision[:, None, None]
    )
    targets = law.by_replicate(columns * precision[:, None]) * target
    squares = law.by_replicate(precision) * target**2
    weights = _interpolating_weights(
        law, ratio, products.mean(axis=0), targets.mean(axis=0), float(squares.mean())
    )
    replicate_weights = np.array(
        [
            _interpolating_weights(law, ratio, *moments)
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
        state=LimitState("interpolation", weights),
        solution=AT_ONCE,
    )


def _interpolating_weights(
    law: FeatureLaw, ratio: float, products: Array, targets: Array, square: float
) -> Array:
    """Solve for (μ, b, a), which is linear, then for ν; return fresh features' (μ, b, ν)."""
    own = law.own_noise
    stiffness = np.where(own > 0, 1.0, (1 - ratio) * law.penalised) - ratio * law.lost
    linear = np.linalg.solve(ratio * products + np.diag(stiffness), ratio * targets)
    misfit = linear @ products @ linear - 2 * linear @ targets + square
    gain = linear**2 @ (own - law.lost)
    rest = np.sqrt(ratio / (1 - ratio) * max(misfit + gain, 0.0))
    return fresh_weights(law, np.append(linear, rest))
