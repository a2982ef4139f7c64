"""The trained readout in the limit of high dimension, whichever regime applies.

- ridge > 0, or more samples than the readout can fit: the saddle point of the potential;
- ridge = 0 and separable data, for a loss that is least at large margins: the maximum margin;
- ridge = 0 and fewer samples than dimensions, for a loss with one best margin: interpolation.
"""

from dataclasses import dataclass, replace

import numpy as np

from sparsetoken.arrays import Array
from sparsetoken.losses import Loss
from sparsetoken.numerics.newton import NewtonResult
from sparsetoken.numerics.solution import Status
from sparsetoken.theory.feature_law import FeatureLaw
from sparsetoken.theory.potential import (
    DUAL,
    POSITIVE,
    REST,
    WIDTH,
    FirstOrder,
    Potential,
    SecondOrder,
)
from sparsetoken.theory.ridgeless import (
    interpolating_readout,
    maximum_margin_readout,
    refuse_undefined,
    separable_at,
)
from sparsetoken.theory.saddle import Saddle, solve_saddle, stationary_point
from sparsetoken.theory.trained_readout import (
    ALL_WELL,
    AT_ONCE,
    LimitReadout,
    LimitState,
    Note,
    fresh_weights,
    noted_solution,
)

__all__ = ["FINEST", "limit_readout"]

# The tolerance from which on quadrature and tables are as accurate as they get.
FINEST = 1e-5

# The solution for a coarse law is a start for the fine one: accuracy of its tables, nodes of a panel
# of its quadrature, relative size of the last Newton correction.
_ROUGH_TABLES = 2e-5
_ROUGH_ORDER = 4
_ROUGH_SOLUTION = 1e-3
_SOLUTION = 1e-5

# How often the gradient is evaluated on the fine law, at most: from the solution of a coarse one, and
# where a path seems to go, which is given up sooner.
_CORRECTIONS = 8
_FOLLOWING = 3

# Corrections with the Hessian of a coarse law are trusted up to this share of a positive variable, and
# an offset from a problem nearby is tried up to this one: the Hessian is from too far beyond.
_LARGEST_CORRECTION = 0.5
_LARGEST_OFFSET = 0.3
# They end where what is left is nothing beside the spread of the replicates, or at rounding level; one
# that is small beside it is good enough where no more are made.
_NEGLIGIBLE = 0.02
_SMALL = 0.1
_ROUNDING = 1e-10
# To first order a replicate's solution may have a negative norm: it keeps this share of the mean's.
_LEAST_SHARE = 0.01

# For a fine law with no more points its own Hessian takes no longer than that of a coarse one.
_SMALL_LAW = 4096

# Finite data have a surplus of one label of the order of 1/√n. It moves the bias by its own size in
# margins where the loss has less curvature than that, in units of its slope; this is for n of 10^5.
# Where there is none at all the bias depends on the logarithm of the surplus only.
_STRAIGHT = _SURPLUS = 3e-3
_ALTERNATIVES = 9
# How far a bias is looked for, in margins, and by how many halvings.
_FARTHEST_BIAS = 1e3
_HALVINGS = 40


def limit_readout(
    laws: tuple[FeatureLaw, FeatureLaw],
    loss: Loss,
    alpha: float,
    ridge: float,
    start: LimitState | None = None,
    tolerance: float = 1e-5,
    guess: Array | None = None,
) -> LimitReadout:
    """Return the readout trained on alpha samples per token dimension.

    Parameters
    ----------
    laws : a coarse and a fine approximation of the law of the training features
        The equations are solved for the coarse one; the fine one then needs a correction only.
        The same object twice if the law is exact.
    start : a `LimitReadout.state` to begin from
    tolerance : float
        Wanted accuracy; decides how precise quadrature and tables are.
    guess : array of shape (v,), optional
        Where a path of solutions for the fine law seems to go; used if `start` is of that kind.
    """
    fine = laws[1]
    ratio = alpha / fine.dimension_ratio
    if ridge == 0 and np.isfinite(loss.minimisers[1]):
        refuse_undefined(loss, alpha, fine.dimension_ratio)
        if ratio < 1:
            return interpolating_readout(fine, loss, ratio)
    note = ALL_WELL
    if ridge == 0 and np.isinf(loss.minimisers[1]):
        separable, note = separable_at(fine, alpha)
        if separable:
            return maximum_margin_readout(laws, loss, ratio, start, note)
    return _at_saddle(laws, loss, ratio, ridge, start, tolerance, guess, note)


def _at_saddle(
    laws: tuple[FeatureLaw, FeatureLaw],
    loss: Loss,
    ratio: float,
    ridge: float,
    start: LimitState | None,
    tolerance: float,
    guess: Array | None,
    note: Note,
) -> LimitReadout:
    """Return the readout at the saddle point of the potential.

    `ratio` is that of samples to features; the other arguments are as in `limit_readout`.

    On a path the fine law's solution is found from the guess by corrections. Otherwise the equations
    are solved for the coarse law, and the solution is carried over to the fine one; where the two
    laws lie on different sides of a threshold, they are solved for the fine one as well.
    """
    rough, fine = _potentials(laws, loss, ratio, start, tolerance)
    start = start if start is not None and start.kind == "saddle" else None
    if start is not None and guess is not None and len(fine.law.scale) <= _SMALL_LAW:
        followed = _followed(fine, ridge, guess)
        if followed is not None:
            saddle, carried = followed
            state = LimitState("saddle", carried.point, (rough.shapes, fine.shapes))
            return _trained(fine, saddle, carried, note, state)
    saddle = _coarse_saddle(rough, ridge, start, guess, exact=rough is fine)
    if saddle.result.evaluation.bend < _STRAIGHT:
        return _any_bias(rough, fine, ridge, saddle)
    offset, last = (None, None) if start is None else (start.offset, start.solution)
    carried, solved = _carried_over(fine, ridge, saddle, offset), rough
    if not (carried.trusted or rough is fine):
        near = saddle.result.point if saddle.result.converged else last
        saddle, solved = solve_saddle(fine, ridge, near), fine
        carried = _carried_over(fine, ridge, saddle)
    offset = carried.point - saddle.result.point
    if saddle.smoothing:
        carried = replace(carried, error=carried.error + _smoothing_error(solved, ridge, saddle))
        if saddle.result.converged:
            detail = f"the kinks of the loss are smoothed over a width {saddle.smoothing:.1g}"
            note = (Status.NOT_UNIQUE, detail)
    state = LimitState("saddle", saddle.result.point, (rough.shapes, fine.shapes), offset)
    return _trained(fine, saddle, carried, note, state)


def _potentials(
    laws: tuple[FeatureLaw, FeatureLaw],
    loss: Loss,
    ratio: float,
    start: LimitState | None,
    tolerance: float,
) -> tuple[Potential, Potential]:
    """Return the potentials of the coarse and the fine law: the same one if the law is exact."""
    coarse, fine = laws
    shapes = ({}, {}) if start is None else start.shapes
    if coarse is fine:
        exact = Potential(fine, loss, ratio, shapes[1], *_table_accuracy(FINEST))
        return exact, exact
    return (
        Potential(coarse, loss, ratio, shapes[0], _ROUGH_TABLES, _ROUGH_ORDER),
        Potential(fine, loss, ratio, shapes[1], *_table_accuracy(tolerance)),
    )


def _coarse_saddle(
    potential: Potential,
    ridge: float,
    start: LimitState | None,
    guess: Array | None,
    *,
    exact: bool,
) -> Saddle:
    """Return the saddle point for the coarse law, from where a path was or seems to go."""
    near = None if start is None else start.point
    if start is not None and guess is not None:
        # The guess is of the fine law's solution: what the last correction added is taken off.
        if start.offset is None:
            near = guess
        elif np.all(np.abs(start.offset[POSITIVE]) < _LARGEST_CORRECTION * guess[POSITIVE]):
            near = guess - start.offset
    saddle = solve_saddle(potential, ridge, near, _SOLUTION if exact else _ROUGH_SOLUTION)
    if ridge > 0 and not (saddle.result.converged or potential.loss.smooth):
        return _straight_saddle(potential, ridge) or saddle
    return saddle


@np.errstate(all="ignore")
def _followed(potential: Potential, ridge: float, guess: Array) -> tuple[Saddle, "_Carried"] | None:
    """Return the solution by corrections of a guess, with the Hessian there; None if it is too far."""
    found = potential.second_order(guess, ridge)
    if not (np.all(np.isfinite(found.hessian)) and found.bend >= _STRAIGHT):
        return None
    saddle = Saddle(NewtonResult(guess, found, AT_ONCE), 0.0)
    carried = _carried_over(potential, ridge, saddle, most=_FOLLOWING)
    return (saddle, carried) if carried.trusted else None


def _table_accuracy(tolerance: float) -> tuple[float, int]:
    """Return what tables may leave of a moment, and the nodes of a panel, for a wanted accuracy.

    Panels of 5, 6 and 8 nodes leave some 1e-4, 1e-5 and 1e-7 of a moment in the worst case.
    """
    tables = float(np.clip(5e-3 * tolerance, 2e-7, 1e-5))
    return tables, 5 if tolerance >= 1e-3 else 6 if tolerance >= 1e-4 else 8


def _smoothing_error(potential: Potential, ridge: float, saddle: Saddle) -> Array:
    """Return how far twice the smoothing would move the solution: what is left of it, about."""
    point = saddle.result.point
    twice = stationary_point(potential, point, ridge, 2 * saddle.smoothing, _SOLUTION)
    return np.abs(twice.point - point) if twice.converged else np.full(len(point), np.inf)


def _any_bias(coarse: Potential, fine: Potential, ridge: float, saddle: Saddle) -> LimitReadout:
    """Return the readout where all margins lie on a straight part of the loss (docs, section 5.7).

    The bias is then decided by which label happens to be more frequent: it moves until a few
    margins reach a kink. The answer has the bias that a surplus of positives would choose, and the
    alternatives reach to that of a surplus of negatives.
    """
    index = len(coarse.law.noisy)
    edges = [
        _tilted_solution(coarse, ridge, surplus, saddle.result) for surplus in (_SURPLUS, -_SURPLUS)
    ]
    high, low = (edge.point[index] for edge in edges)
    point = np.mean([edge.point for edge in edges], axis=0)
    # Anywhere in between all other variables are the same.
    middle = stationary_point(coarse, point, ridge, 0.0, _SOLUTION, frozen=index)
    ends = [middle.solution, *(edge.solution for edge in edges)]
    worst = next((one for one in ends if not one.converged), middle.solution)
    steps = saddle.result.solution.steps + sum(one.steps for one in ends)
    result = replace(middle, solution=replace(middle.solution, status=worst.status, steps=steps))
    carried = _carried_over(fine, ridge, Saddle(result, 0.0), frozen=index)
    detail = f"any bias from {low:.3g} to {high:.3g} is as good, for the loss is straight there"
    state = LimitState("any bias", result.point)

    def with_bias(bias: float) -> LimitReadout:
        moved = carried.point.copy()
        moved[index] = bias
        shifted = replace(carried, point=moved)
        note = (Status.NOT_UNIQUE, detail)
        return _trained(fine, Saddle(result, 0.0), shifted, note, state)

    chosen, *others = [with_bias(bias) for bias in np.linspace(high, low, _ALTERNATIVES)]
    curved = float(0.5 * middle.evaluation.bend * (high - low) ** 2)
    return replace(
        chosen,
        train_loss_error=chosen.train_loss_error + curved,
        alternatives=np.array([other.weights for other in others]),
        train_error_range=max(abs(other.train_error - chosen.train_error) for other in others),
    )


def _straight_saddle(potential: Potential, ridge: float) -> Saddle | None:
    """Return the solution if all margins lie on one straight part of the loss, else None.

    Every slope is then ℓ'(0), χ = 1/Λ, the readout the sum of the y f over nλ, and
    β² = α ℓ'(0)² (E S² - ‖E D‖²).
    """
    law, ratio = potential.law, potential.ratio
    slope = abs(float(potential.loss.slope(np.zeros(1))[0]))
    means = law.weight @ law.signed
    linear = slope / ridge * means * (law.penalised - law.lost / ratio)
    lost = means * law.lost
    dual = slope * np.sqrt(ratio * max(float(law.weight @ law.scale**2 - lost @ lost), 0.0))
    width = dual / (ratio * ridge)
    point = np.array([*linear, width, width, dual])
    found = potential.second_order(point, ridge)
    # Of a surplus of one label as much is left as makes no difference.
    allowed = np.full(len(point), _SOLUTION)
    allowed[len(law.noisy)] = ratio * _SURPLUS
    if not (found.bend < _STRAIGHT and np.all(np.abs(found.gradient) < allowed)):
        return None
    return Saddle(NewtonResult(point, found, AT_ONCE), 0.0)


def _tilted_solution(
    potential: Potential, ridge: float, surplus: float, straight: NewtonResult[SecondOrder]
) -> NewtonResult[SecondOrder]:
    """Return the solution with so many more positives than there are, as a share of all samples.

    Where margins vary so little that all reach the kink at once, no solver finds it, and the bias
    alone moves from the `straight` solution.
    """
    law = potential.law
    rate = float(law.weight[law.label > 0].sum())
    factors = np.where(law.label > 0, 1 + surplus / rate, 1 - surplus / (1 - rate))
    tilted = replace(law, weight=law.weight * factors)
    pulled = Potential(tilted, potential.loss, potential.ratio)
    found = solve_saddle(pulled, ridge, None).result
    if found.converged or not straight.converged:
        return found
    index, sign = len(law.noisy), float(np.sign(surplus))

    def at_bias(size: float) -> Array:
        point = straight.point.copy()
        point[index] = sign * size
        return point

    def pull(size: float) -> float:
        return sign * float(pulled.first_order(at_bias(size), ridge).gradient[index])

    low, high = 0.0, 1.0
    while pull(high) < 0 and high < _FARTHEST_BIAS:
        low, high = high, 2 * high
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if pull(middle) < 0 else (low, middle)
    status = Status.CONVERGED if high < _FARTHEST_BIAS else Status.NO_MINIMUM
    moved = replace(straight.solution, status=status)
    return replace(straight, point=at_bias(high), solution=moved)


@dataclass(frozen=True)
class _Carried:
    """A solution for a coarse law, carried over to a fine one.

    Attributes
    ----------
    point, error : arrays of shape (v,)
        The variables of the potential and their numerical error.
    correction : array of shape (v,)
        The last step, from where `found` was evaluated to `point`.
    shifts : array of shape (replicates, v)
        How the solution of each replicate alone differs, to first order.
    train_loss_error : float
        Numerical error of the training loss of `found`.
    residual : float
    trusted : bool
        Whether the corrections converged.
    """

    point: Array
    error: Array
    correction: Array
    shifts: Array
    found: FirstOrder
    train_loss_error: float
    residual: float
    trusted: bool


# A solver that failed may have ended where the gradient overflows.
@np.errstate(all="ignore")
def _carried_over(
    potential: Potential,
    ridge: float,
    saddle: Saddle,
    offset: Array | None = None,
    frozen: int | None = None,
    most: int | None = None,
) -> _Carried:
    """Repeat x ← x - H⁻¹ ∇Ψ with the Hessian of the coarse law and the gradient of the fine one.

    The `offset` between the two solutions at a problem nearby is a first guess of that here. A
    variable that is `frozen` stays as it is. There are `most` corrections, or `_CORRECTIONS`.
    """
    rough = saddle.result
    inverse = _inverse(rough.evaluation.hessian, frozen)
    point, trusted = rough.point, rough.converged
    residual = min(rough.solution.residual, 1.0)
    if offset is not None and np.all(np.abs(offset[POSITIVE]) <= _LARGEST_OFFSET * point[POSITIVE]):
        point = point + offset
    before = np.inf
    # In the bar of an exact law nothing else leaves room for shares that change.
    room = 4.0 if potential.law.replicates == 1 else 1.0
    for _ in range(_CORRECTIONS if most is None else most):
        evaluated = point
        found = potential.first_order(point, ridge, saddle.smoothing)
        correction = -inverse @ found.gradient
        shifts = -(found.replicate_gradients - found.gradient) @ inverse.T
        # The norm, the width and its dual are positive: relative sizes mean something.
        size = np.abs(correction[POSITIVE] / point[POSITIVE]).max()
        spread = np.abs(shifts[:, POSITIVE] / point[POSITIVE]).max()
        if not size <= _LARGEST_CORRECTION:
            # A readout that vanishes with the smoothing has no digits to correct.
            correction = np.zeros_like(point)
            shifts = np.nan_to_num(shifts, nan=0.0, posinf=0.0, neginf=0.0)
            trusted = trusted and saddle.smoothing > 0
            break
        point = point + correction
        # The next correction would be of the order of the square of this one, or, with a Hessian from
        # elsewhere, the share of it that this one is of the last.
        step = float(np.abs(correction / _sizes(point)).max())
        residual = room * step * max(step, step / max(before - step, step))
        before = step
        if residual <= max(_NEGLIGIBLE * spread, _ROUNDING):
            break
    else:
        trusted = trusted and residual <= max(_SMALL * spread, _SOLUTION)
    left = residual * _sizes(point)
    gradient_error, train_loss_error = potential.errors(evaluated, saddle.smoothing)
    error = left + np.abs(inverse) @ gradient_error
    return _Carried(point, error, correction, shifts, found, train_loss_error, residual, trusted)


def _inverse(hessian: Array, frozen: int | None) -> Array:
    """Return the inverse in all variables but the one that is frozen, 0 in that."""
    index = np.flatnonzero(np.arange(len(hessian)) != (-1 if frozen is None else frozen))
    inverse = np.zeros_like(hessian)
    inverse[np.ix_(index, index)] = np.linalg.pinv(hessian[np.ix_(index, index)])
    return inverse


def _sizes(point: Array) -> Array:
    """Return how large each variable is: coordinates and bias, which may pass through 0, at least ν."""
    return np.asarray(np.maximum(np.abs(point), np.abs(point[REST])))


@np.errstate(all="ignore")
def _trained(
    potential: Potential, saddle: Saddle, carried: _Carried, note: Note, state: LimitState
) -> LimitReadout:
    """Read the quantities of the trained readout off the saddle point."""
    law, loss, found = potential.law, potential.loss, carried.found
    point = carried.point
    replicates = point + carried.shifts
    replicates[:, POSITIVE] = np.maximum(replicates[:, POSITIVE], _LEAST_SHARE * point[POSITIVE])
    slope = float(loss.slope(np.zeros(1))[0])

    def below_zero(points: Array, smoothing: float = saddle.smoothing) -> Array:
        # r < 0 exactly when ω < t ℓ'(0), with the prox step t.
        steps = np.repeat(points[:, WIDTH] / points[:, DUAL], len(law.scale) // len(points))
        level = (steps * law.scale**2 + smoothing) * slope
        return law.by_replicate(potential.below(points, level))

    sensitivity = saddle.result.evaluation.train_loss_gradient
    loss_at_point = found.train_loss.mean() + sensitivity @ carried.correction
    weights = fresh_weights(law, point)
    train_error = float(below_zero(point[None]).mean())
    sharp = float(below_zero(point[None], 0.0).mean()) if saddle.smoothing else train_error
    return LimitReadout(
        weights=weights,
        susceptibility=float(point[WIDTH] / point[DUAL]),
        replicate_weights=fresh_weights(law, replicates),
        weights_error=np.abs(fresh_weights(law, np.abs(point) + carried.error) - np.abs(weights)),
        train_loss=max(float(loss_at_point), loss.infimum),
        train_error=train_error,
        replicate_train_loss=found.train_loss + carried.shifts @ sensitivity,
        replicate_train_error=below_zero(replicates),
        train_loss_error=float(
            carried.train_loss_error + carried.error @ np.abs(sensitivity) + saddle.smoothing
        ),
        train_error_range=abs(sharp - train_error),
        state=state,
        solution=noted_solution(
            carried.trusted, note, carried.residual, saddle.result.solution.steps
        ),
    )
