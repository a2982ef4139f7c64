"""Separable data: capacity, and the maximum-margin classifier (docs/theory.md, section 6).

Both rest on one function, convex in (μ, b, ρ, δ) and concave in a. In units where the unstructured
part ν of the readout is 1, a margin δ is within reach of a sample ratio α exactly when α H <= 1 for
the largest H over a, where

    H(μ, b, a, ρ, δ) = E[((δ - y m - D·a)/S + ρG)₊²] - ‖a‖²,  m = μ·c + b,  ρ² = 1 + Σ μ_j²,

the last sum over the coordinates with noise of their own.
"""

import warnings
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
from scipy.special import ndtr

from sparsetoken.arrays import Array
from sparsetoken.numerics.newton import NewtonResult, newton
from sparsetoken.numerics.quadrature import normal_density
from sparsetoken.numerics.solution import Solution, Status
from sparsetoken.theory.feature_law import FeatureLaw

__all__ = ["EXCESS_FLOOR", "Excess", "Hinged", "largest_capacity", "least_excess", "widest_margin"]


# Below this, capacity is beyond 10^9 samples a dimension and counts as unbounded.
EXCESS_FLOOR = 1e-9

# Above this, a few hundred points tell where the least excess is.
_CLEAR_EXCESS = 1e-3


def largest_capacity(law: FeatureLaw) -> float:
    """Return the capacity up to which the law can tell.

    An event that none of n points shows has a probability below 3/n, at a confidence of 95 %.
    """
    return 1 / EXCESS_FLOOR if law.replicates == 1 else 1 / (3 * float(law.weight.max()))


@dataclass(frozen=True)
class Hinged:
    """E[((δ - y m - D·a)/S + ρG)₊²] - ‖a‖² in the variables (μ, b, a, ρ, δ), v of them.

    Attributes
    ----------
    value : float
    gradient : array of shape (v,)
    hessian : array of shape (v, v)
    replicates, replicate_gradients : the same with each replicate of the law alone
    """

    value: float
    gradient: Array
    hessian: Array
    replicates: Array
    replicate_gradients: Array

    @classmethod
    def evaluate(cls, law: FeatureLaw, point: Array) -> "Hinged":
        """Evaluate at (μ, b, a, ρ, δ); closed in Φ and φ."""
        linear, noise, margin = point[:-2], point[-2], point[-1]
        removed = linear * law.lost
        # The excess is linear in all variables but ρ.
        directions = law.per_scale
        excess = directions @ np.append(linear, margin)
        ratio = excess / noise
        mass, density = ndtr(ratio), normal_density(ratio)
        values = (excess**2 + noise**2) * mass + excess * noise * density
        by_excess = 2 * (excess * mass + noise * density)
        size = len(point)
        full = [*range(size - 2), size - 1]
        rows = np.empty((len(values), size + 1))
        rows[:, full] = directions * by_excess[:, None]
        rows[:, -3] = 2 * noise * mass
        rows[:, -1] = values
        means = law.by_replicate(rows)
        gradients, replicates = means[:, :-1], means[:, -1] - removed @ removed
        gradients[:, :-2] -= 2 * removed

        hessian = np.diag([*(-2 * law.lost), 0.0, 0.0])
        weighted = law.weight[:, None] * directions
        hessian[np.ix_(full, full)] += directions.T @ (weighted * (2 * mass)[:, None])
        hessian[-2, full] = hessian[full, -2] = weighted.T @ (2 * density)
        hessian[-2, -2] = law.weight @ (2 * mass - 2 * ratio * density)
        return cls(float(replicates.mean()), gradients.mean(axis=0), hessian, replicates, gradients)


@dataclass(frozen=True)
class _AtMargin:
    """H in (μ, b, a, ν) at a given margin: ρ² = ν² + the noisy part of ‖μ‖²."""

    hinged: Hinged
    gradient: Array
    hessian: Array
    replicate_gradients: Array

    @classmethod
    def evaluate(cls, law: FeatureLaw, point: Array, margin: float) -> "_AtMargin":
        own = np.append(law.own_noise, 1.0)
        noisy = point * own
        noise = float(np.linalg.norm(noisy))
        hinged = Hinged.evaluate(law, np.array([*point[:-1], noise, margin]))
        jacobian = np.zeros((len(point) + 1, len(point)))
        jacobian[: len(point) - 1, :-1] = np.eye(len(point) - 1)
        jacobian[-2] = noisy / noise
        unit = noisy / noise
        bend = hinged.gradient[-2] / noise * (np.diag(own) - np.outer(unit, unit))
        return cls(
            hinged,
            hinged.gradient @ jacobian,
            jacobian.T @ hinged.hessian @ jacobian + bend,
            hinged.replicate_gradients @ jacobian,
        )


def _with_best_removed(law: FeatureLaw, point: Array, margin: float) -> tuple[Array, _AtMargin]:
    """Return (μ, b, a, ν) with the a that makes H largest, and H there: Newton, H is concave in a."""
    index = np.flatnonzero(law.lost)
    found = _AtMargin.evaluate(law, point, margin)
    for _ in range(_INNER_STEPS if len(index) else 0):
        slope = found.gradient[index]
        step = -np.linalg.solve(found.hessian[np.ix_(index, index)], slope)
        promised = float(slope @ step)
        if not promised > 1e-12 * abs(found.hinged.value):
            break
        while True:
            trial = point.copy()
            trial[index] += step
            better = _AtMargin.evaluate(law, trial, margin)
            if better.hinged.value > found.hinged.value or np.abs(step).max() < 1e-12:
                break
            step = 0.5 * step
        point, found = trial, better
    return point, found


# A concave function of one or two variables with a piecewise smooth slope: Newton needs three or
# four steps from the last answer.
_INNER_STEPS = 30


@dataclass(frozen=True)
class Excess:
    """H in (μ, b, a) at margin 0 and ν = 1: least over (μ, b) and largest over a at capacity."""

    gradient: Array
    hessian: Array
    hinged: Hinged

    @classmethod
    def evaluate(cls, law: FeatureLaw, point: Array) -> "Excess":
        """Evaluate H and its derivatives at (μ, b, a)."""
        found = _AtMargin.evaluate(law, np.append(point, 1.0), 0.0)
        return cls(found.gradient[:-1], found.hessian[:-1, :-1], found.hinged)


def least_excess(law: FeatureLaw, start: Array | None = None) -> NewtonResult[Excess]:
    """Return the (μ, b, a) of min over (μ, b) of max over a of H at margin 0: 1/capacity.

    Kept as long as the law itself. `start` is the answer for a law nearby; without one, that for
    the compressed law is, unless it separates almost all.
    """
    if law not in _KNOWN:
        if start is None and law.compressed is not law:
            rough = least_excess(law.compressed)
            if rough.converged and rough.evaluation.hinged.value > _CLEAR_EXCESS:
                start = rough.point
        near = None if start is None else _stationary_excess(law, start)
        _KNOWN[law] = near if near is not None and near.converged else _least_excess(law)
    return _KNOWN[law]


_KNOWN: WeakKeyDictionary[FeatureLaw, NewtonResult["Excess"]] = WeakKeyDictionary()


def _least_excess(law: FeatureLaw) -> NewtonResult[Excess]:
    """Follow Newton's steps on max_a H, which is convex in (μ, b), from 0.

    Where H falls to 0 far away, as exp(-x²), a step of Newton's method is short: it is doubled as
    long as that lowers log H by more.
    """
    index, inner = np.flatnonzero(law.lost == 0), np.flatnonzero(law.lost)
    point, found = _with_best_removed(law, np.append(np.zeros(len(law.lost)), 1.0), 0.0)
    steps = 0
    while found.hinged.value >= EXCESS_FLOOR and steps < _OUTER_STEPS:
        steps, value = steps + 1, found.hinged.value
        curvature = found.hessian[np.ix_(index, index)]
        if len(inner):
            mixed = found.hessian[np.ix_(index, inner)]
            curvature -= mixed @ np.linalg.solve(found.hessian[np.ix_(inner, inner)], mixed.T)
        ridge = 1e-12 * np.trace(curvature) * np.eye(len(index))
        direction = np.zeros_like(point)
        direction[index] = -np.linalg.solve(curvature + ridge, found.gradient[index])
        point, found = _lowered(law, point, found, direction)
        if found.hinged.value > (1 - 1e-6) * value:
            break
    at_end = Excess.evaluate(law, point[:-1])
    if at_end.hinged.value < EXCESS_FLOOR:
        return NewtonResult(point[:-1], at_end, Solution(Status.CONVERGED, 0.0, steps))
    return _stationary_excess(law, point[:-1])


def _lowered(
    law: FeatureLaw, point: Array, found: _AtMargin, direction: Array
) -> tuple[Array, _AtMargin]:
    """Return a point along the direction with a lower max_a H, and H there; the same if none is."""
    best, length, growth = (point, found), 1.0, 2.0
    while 1e-6 < length < 1e6:
        trial = _with_best_removed(law, point + length * direction, 0.0)
        value = trial[1].hinged.value
        if value < best[1].hinged.value:
            # Only where the first step gains much are there long ways to go.
            far = value < 0.6 * best[1].hinged.value
            best = trial
            if growth < 1 or not far or value < EXCESS_FLOOR:
                break
        elif length > 1:
            break
        else:
            growth = 0.5
        length *= growth
    return best


# Some six to twelve steps are usual; many only where the data are all but separable.
_OUTER_STEPS = 100


def _stationary_excess(law: FeatureLaw, start: Array) -> NewtonResult[Excess]:
    every = np.ones(len(start), dtype=bool)
    return newton(lambda x: Excess.evaluate(law, x), start, every, ~every)


@dataclass(frozen=True)
class WidestMargin:
    """Conditions of the maximum-margin classifier in (μ, b, a, ν, ζ), scaled to margin 1.

    Stationarity of ζ‖w‖²/2 + (α H - ν²)/2 in all but the last, and the constraint α H = ν² as the
    last; ζ is the multiplier, up to scale.
    """

    gradient: Array
    hessian: Array
    replicate_gradients: Array

    @classmethod
    def evaluate(cls, law: FeatureLaw, ratio: float, point: Array) -> "WidestMargin":
        """Evaluate the conditions, their Jacobian, and their values by replicate."""
        readout, rest, multiplier = point[:-1], point[-2], point[-1]
        found = _AtMargin.evaluate(law, readout, 1.0)
        penalised = np.append(law.penalised, 1.0)
        norm_part = penalised * readout
        rest_part = np.append(np.zeros(len(readout) - 1), rest)
        slopes = 0.5 * ratio * found.replicate_gradients
        values = 0.5 * (ratio * found.hinged.replicates - rest**2)
        conditions = np.column_stack([slopes + multiplier * norm_part - rest_part, values])

        hessian = np.zeros((len(point), len(point)))
        block = 0.5 * ratio * found.hessian + multiplier * np.diag(penalised)
        block[-1, -1] -= 1.0
        hessian[:-1, :-1] = block
        hessian[:-1, -1] = norm_part
        hessian[-1, :-1] = slopes.mean(axis=0) - rest_part
        return cls(conditions.mean(axis=0), hessian, conditions)


def widest_margin(
    law: FeatureLaw, ratio: float, start: Array | None = None
) -> NewtonResult[WidestMargin]:
    """Return (μ, b, a, ν, ζ) of the maximum-margin classifier, scaled to margin 1.

    Parameters
    ----------
    ratio : float
        Ratio of samples to the dimension of the features, below capacity.
    start : array, optional
        A solution of a problem nearby.
    """

    def solve(point: Array) -> NewtonResult[WidestMargin]:
        return newton(
            lambda x: WidestMargin.evaluate(law, ratio, x),
            point,
            np.ones(len(point), dtype=bool),
            np.arange(len(point)) >= len(point) - 2,
        )

    if start is not None:
        result = solve(start)
        if result.converged:
            return result
    return solve(_rough_margin(law, ratio))


def _rough_margin(law: FeatureLaw, ratio: float) -> Array:
    """Minimise ‖w‖² subject to ν >= √(α max_a H), both convex, by SLSQP; with ζ as well."""
    from scipy import optimize  # takes longer to load than all of theory

    start = _unit_margin(law, ratio, np.append(least_excess(law).point, 1.0))
    index = np.flatnonzero(np.append(law.lost, 0.0) == 0)
    scale = float(np.linalg.norm(start[index]))
    last = start

    def evaluate(part: Array) -> tuple[Array, _AtMargin]:
        nonlocal last
        point = last.copy()
        point[index] = part * scale
        last, found = _with_best_removed(law, point, 1.0)
        return last, found

    def slack(part: Array) -> tuple[float, Array]:
        point, found = evaluate(part)
        root = np.sqrt(ratio * max(found.hinged.value, 1e-300))
        slope = -0.5 * ratio / root * found.gradient[index]
        slope[-1] += 1
        return (point[-1] - root) / scale, slope

    norm = np.append(law.penalised, 1.0)[index]
    with warnings.catch_warnings():
        # SciPy 1.15 tells of steps beyond a bound, which it takes back.
        warnings.filterwarnings("ignore", "Values in x were outside bounds", RuntimeWarning)
        best = optimize.minimize(
            lambda part: (0.5 * float(norm @ part**2), norm * part),
            start[index] / scale,
            jac=True,
            method="SLSQP",
            bounds=[(None, None)] * (len(index) - 1) + [(1e-8, None)],
            constraints={
                "type": "ineq",
                "fun": lambda p: slack(p)[0],
                "jac": lambda p: slack(p)[1],
            },
            options={"maxiter": 200, "ftol": 1e-12},
        )
    point, found = evaluate(best.x)
    # ζ = 1 - α P(margin active), from the condition on ν.
    multiplier = 1 - 0.5 * ratio * found.gradient[-1] / point[-1]
    return np.append(point, max(multiplier, 1e-6))


def _unit_margin(law: FeatureLaw, ratio: float, point: Array) -> Array:
    """Scale a readout (μ, b, a, ν) that separates so that the margin it reaches is 1."""
    from scipy import optimize

    def reach(margin: float) -> float:
        return ratio * _with_best_removed(law, point, margin)[1].hinged.value - 1

    high = 1.0
    while reach(high) < 0:
        high *= 2
    return np.asarray(point / optimize.brentq(reach, 0.0, high, rtol=1e-6))
