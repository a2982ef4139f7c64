"""Separable data: capacity, and the maximum-margin classifier (docs/theory.md, section 6).

Both rest on one convex function. In units where the unstructured part ν of the readout is 1, a
margin δ is within reach of a sample ratio α exactly when α H <= 1, where

    H(μ_q, μ_e, b, δ) = E[((δ - y m)/S + √(1 + μ_e²) G)₊²],  m = μ_q c_q + μ_e c_e + b.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import optimize
from scipy.special import ndtr

from sparsetoken.arrays import Array
from sparsetoken.numerics.newton import NewtonResult, newton
from sparsetoken.numerics.quadrature import normal_density
from sparsetoken.theory.laws import FeatureLaw

__all__ = ["EXCESS_FLOOR", "Hinged", "largest_capacity", "least_excess", "widest_margin"]


# Below this, capacity is beyond 10^9 samples a dimension and counts as unbounded.
EXCESS_FLOOR = 1e-9


def largest_capacity(law: FeatureLaw) -> float:
    """Return the capacity up to which the law can tell.

    An event that none of n points shows has a probability below 3/n, at a confidence of 95 %.
    """
    return 1 / EXCESS_FLOOR if law.replicates == 1 else 1 / (3 * float(law.weight.max()))


@dataclass(frozen=True)
class Hinged:
    """E[((δ - y m)/S + ρG)₊²] in the variables (μ_q, μ_e, b, ρ, δ).

    Attributes
    ----------
    value : float
    gradient : array of shape (5,)
    hessian : array of shape (5, 5)
    replicates, replicate_gradients : the same with each replicate of the law alone
    """

    value: float
    gradient: Array
    hessian: Array
    replicates: Array
    replicate_gradients: Array

    @classmethod
    def evaluate(cls, law: FeatureLaw, point: Array) -> "Hinged":
        """Evaluate at (μ_q, μ_e, b, ρ, δ); closed in Φ and φ."""
        *weights, noise, margin = point
        columns = -law.label[:, None] * np.stack(
            [law.along, law.across, np.ones_like(law.along)], axis=1
        )
        inverse = 1 / law.scale
        excess = (margin + columns @ np.array(weights)) * inverse
        ratio = excess / noise
        mass, density = ndtr(ratio), normal_density(ratio)
        values = (excess**2 + noise**2) * mass + excess * noise * density
        by_excess = 2 * (excess * mass + noise * density)
        rows = np.empty((len(excess), 5))
        rows[:, :3] = columns * (by_excess * inverse)[:, None]
        rows[:, 3] = 2 * noise * mass
        rows[:, 4] = by_excess * inverse

        directions = np.empty((len(excess), 4))
        directions[:, :3] = columns * inverse[:, None]
        directions[:, 3] = inverse
        full = [0, 1, 2, 4]
        hessian = np.zeros((5, 5))
        weighted = law.weight[:, None] * directions
        hessian[np.ix_(full, full)] = directions.T @ (weighted * (2 * mass)[:, None])
        hessian[3, full] = hessian[full, 3] = weighted.T @ (2 * density)
        hessian[3, 3] = law.weight @ (2 * mass - 2 * ratio * density)
        gradients = law.by_replicate(rows)
        replicates = law.by_replicate(values)
        return cls(float(replicates.mean()), gradients.mean(axis=0), hessian, replicates, gradients)


@dataclass(frozen=True)
class _Excess:
    """H in (μ_q, μ_e, b) at margin 0 and ν = 1: what capacity minimises."""

    gradient: Array
    hessian: Array
    hinged: Hinged

    @classmethod
    def evaluate(cls, law: FeatureLaw, point: Array) -> "_Excess":
        across = point[1]
        noise = np.sqrt(1 + across**2)
        hinged = Hinged.evaluate(law, np.array([*point, noise, 0.0]))
        jacobian = np.zeros((5, 3))
        jacobian[:3] = np.eye(3)
        jacobian[3, 1] = across / noise
        hessian = jacobian.T @ hinged.hessian @ jacobian
        hessian[1, 1] += hinged.gradient[3] / noise**3
        return cls(hinged.gradient @ jacobian, hessian, hinged)


@lru_cache(maxsize=32)
def least_excess(law: FeatureLaw) -> NewtonResult[_Excess]:
    """Minimise E[(√(1+μ_e²) G - y m/S)₊²] over (μ_q, μ_e, b): the minimum is 1/capacity."""
    active = np.array([law.has_query, True, True])
    index = np.flatnonzero(active)

    def objective(part: Array) -> tuple[float, Array]:
        point = np.zeros(3)
        point[index] = part
        excess = _Excess.evaluate(law, point)
        # The logarithm keeps its curvature where the excess is small; the floor ends the search.
        value = excess.hinged.value + EXCESS_FLOOR
        return float(np.log(value)), excess.gradient[index] / value

    rough = optimize.minimize(objective, np.zeros(len(index)), jac=True, method="BFGS")
    start = np.zeros(3)
    start[index] = rough.x
    found = _Excess.evaluate(law, start)
    if found.hinged.value < EXCESS_FLOOR:
        return NewtonResult(start, found, 0.0, converged=True, steps=int(rough.nit))
    return newton(lambda x: _Excess.evaluate(law, x), start, active, np.zeros(3, dtype=bool))


@dataclass(frozen=True)
class WidestMargin:
    """Conditions of the maximum-margin classifier in (μ_q, μ_e, b, ν, ζ), scaled to margin 1.

    Stationarity of ζ‖w‖²/2 + (α E[((1 - y m)/S + ρG)₊²] - ν²)/2 in the first four, and the
    constraint α E[…] = ν² as the fifth; ζ is the multiplier, up to scale.
    """

    gradient: Array
    hessian: Array
    replicate_gradients: Array

    @classmethod
    def evaluate(cls, law: FeatureLaw, alpha: float, point: Array) -> "WidestMargin":
        """Evaluate the five conditions, their Jacobian, and their values by replicate."""
        across, rest, multiplier = point[1], point[3], point[4]
        noise = float(np.hypot(across, rest))
        hinged = Hinged.evaluate(law, np.array([*point[:3], noise, 1.0]))
        jacobian = np.zeros((5, 4))
        jacobian[:3, :3] = np.eye(3)
        jacobian[3, 1], jacobian[3, 3] = across / noise, rest / noise
        norm_part = np.array([point[0], across, 0.0, rest])
        rest_part = np.array([0.0, 0.0, 0.0, rest])
        slopes = 0.5 * alpha * hinged.replicate_gradients @ jacobian
        values = 0.5 * (alpha * hinged.replicates - rest**2)
        conditions = np.column_stack([slopes + multiplier * norm_part - rest_part, values])

        hessian = np.zeros((5, 5))
        block = 0.5 * alpha * jacobian.T @ hinged.hessian @ jacobian
        bend = 0.5 * alpha * hinged.gradient[3] / noise**3
        block[1, 1] += bend * rest**2
        block[3, 3] += bend * across**2
        block[1, 3] -= bend * across * rest
        block[3, 1] -= bend * across * rest
        block += multiplier * np.diag([1.0, 1.0, 0.0, 1.0]) - np.diag([0.0, 0.0, 0.0, 1.0])
        hessian[:4, :4] = block
        hessian[:4, 4] = norm_part
        hessian[4, :4] = slopes.mean(axis=0) - rest_part
        return cls(conditions.mean(axis=0), hessian, conditions)


def widest_margin(
    law: FeatureLaw, alpha: float, start: Array | None = None
) -> NewtonResult[WidestMargin]:
    """Return (μ_q, μ_e, b, ν, ζ) of the maximum-margin classifier, scaled to margin 1.

    `alpha` is the ratio of samples to the dimension of the features, below capacity.
    """
    active = np.array([law.has_query, True, True, True, True])
    positive = np.array([False, False, False, True, True])

    def evaluate(x: Array) -> WidestMargin:
        return WidestMargin.evaluate(law, alpha, x)

    if start is not None:
        result = newton(evaluate, start, active, positive)
        if result.converged:
            return result
    return newton(evaluate, _rough_margin(law, alpha), active, positive)


def _rough_margin(law: FeatureLaw, alpha: float) -> Array:
    """Minimise ‖w‖² subject to ν >= √(α E[((1 - y m)/S + ρG)₊²]), both convex, by SLSQP."""
    capacity = least_excess(law).point

    def reach(margin: float) -> float:
        point = np.array([*capacity, np.sqrt(1 + capacity[1] ** 2), margin])
        return alpha * Hinged.evaluate(law, point).value - 1

    high = 1.0
    while reach(high) < 0:
        high *= 2
    unit = optimize.brentq(reach, 0.0, high, rtol=1e-6)
    start = np.array([*capacity, 1.0]) / unit
    index = np.flatnonzero([law.has_query, True, True, True])
    scale = float(np.linalg.norm(start))

    def expand(part: Array) -> Array:
        point = np.zeros(4)
        point[index] = part * scale
        return point

    def slack(part: Array) -> tuple[float, Array]:
        point = expand(part)
        noise = float(np.hypot(point[1], point[3]))
        hinged = Hinged.evaluate(law, np.array([*point[:3], noise, 1.0]))
        root = np.sqrt(alpha * max(hinged.value, 1e-300))
        slope = np.append(hinged.gradient[:3], 0.0)
        slope[[1, 3]] += hinged.gradient[3] * point[[1, 3]] / noise
        slope *= -0.5 * alpha / root
        slope[3] += 1
        return (point[3] - root) / scale, slope[index]

    norm = np.array([1.0, 1.0, 0.0, 1.0])[index]
    found = optimize.minimize(
        lambda part: (0.5 * float(norm @ part**2), norm * part),
        start[index] / scale,
        jac=True,
        method="SLSQP",
        bounds=[(None, None)] * (len(index) - 1) + [(1e-8, None)],
        constraints={"type": "ineq", "fun": lambda p: slack(p)[0], "jac": lambda p: slack(p)[1]},
        options={"maxiter": 200, "ftol": 1e-12},
    )
    point = expand(found.x)
    # ζ = 1 - α P(margin active), from the condition on ν.
    noise = float(np.hypot(point[1], point[3]))
    hinged = Hinged.evaluate(law, np.array([*point[:3], noise, 1.0]))
    multiplier = 1 - 0.5 * alpha * hinged.gradient[3] / noise
    return np.append(point, max(multiplier, 1e-6))
