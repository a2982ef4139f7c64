"""A primal-dual interior-point method for the hinge loss and the maximum-margin classifier.

Both are one quadratic program over (w, b, s): minimise (ridge/2)‖w‖² + Σ p_i s_i such that
y_i(⟨f_i, w⟩ + b) >= 1 - s_i and s_i >= 0; the maximum-margin classifier has s = 0 and ridge 1.
"""

from dataclasses import dataclass, replace

import numpy as np

from sparsetoken.arrays import Array
from sparsetoken.learning.examples import BorderedFactor, Examples
from sparsetoken.numerics.solution import Solution, Status

__all__ = ["SoftMarginProgram", "minimise_hinge"]

# The gap bounds the square of w's error, so go on far below the tolerance, to the limit of rounding: it
# costs little. There a residual that does not fall ends it soon, before it only after many steps.
_FAR_BELOW = 1e-5
_PATIENCE_AT_THE_END = 3
_PATIENCE = 25

# A step leaves a little to the boundary. One that is cut to less than half may be cycling: the way back
# to the central path aims at half of the barrier.
_OF_THE_LONGEST = 0.995
_SHORT_STEP = 0.5
_CENTRING = 0.5

# What is added to the diagonal where rounding makes the matrix indefinite, in mean eigenvalues.
_FLOORS = (0.0, 1e-15, 1e-12)


@dataclass(frozen=True)
class SoftMarginProgram:
    """An approximate solution of the quadratic program.

    Attributes
    ----------
    weights, bias : the readout (w, b)
    multipliers : array of shape (n,)
        The dual variables a_i of the margins' constraints.
    solution : Solution
        Its residual is the largest violation of the optimality (KKT) conditions: stationarity,
        feasibility, and complementarity, which here is the duality gap. Relative to Σ a_i where
        that exceeds 1.
    """

    weights: Array
    bias: float
    multipliers: Array
    solution: Solution


@dataclass
class _Iterate:
    """Primal (w, b), dual a, surplus p = margin - 1 + s, violation s, and s's multiplier z."""

    weights: Array
    bias: float
    dual: Array
    surplus: Array
    violation: Array
    violation_dual: Array

    def moved(self, step: "_Iterate", length: float) -> "_Iterate":
        length = min(length, 1.0)
        return _Iterate(
            self.weights + length * step.weights,
            self.bias + length * step.bias,
            self.dual + length * step.dual,
            self.surplus + length * step.surplus,
            self.violation + length * step.violation,
            self.violation_dual + length * step.violation_dual,
        )

    def gap(self) -> float:
        return float(self.dual @ self.surplus + self.violation_dual @ self.violation)


# An iterate that overflows has a residual that is no number, and is never the best.
@np.errstate(over="ignore", invalid="ignore")
def minimise_hinge(
    examples: Examples,
    ridge: float,
    *,
    separator: tuple[Array, float] | None = None,
    tolerance: float,
    max_steps: int = 200,
) -> SoftMarginProgram:
    """Solve the program by Mehrotra's predictor and corrector.

    Parameters
    ----------
    examples : Examples
    ridge : float >= 0
    separator : (weights, bias), optional
        A readout with positive margins. If given, margins below 1 are forbidden: the solution is
        the maximum-margin classifier, and ridge must be > 0.
    tolerance : float
        Largest KKT residual accepted.
    """
    hard = separator is not None
    point = _start(examples) if separator is None else _feasible_start(examples, ridge, separator)
    best: SoftMarginProgram | None = None
    worse = 0
    for steps in range(max_steps + 1):
        residuals = _Residuals.of(examples, point, ridge, hard=hard)
        residual = residuals.largest(point)
        if best is None or residual < best.solution.residual:
            best, worse = _program(point, residual, steps, tolerance), 0
        else:
            worse += 1
        patience = _PATIENCE_AT_THE_END if best.solution.converged else _PATIENCE
        if residual <= _FAR_BELOW * tolerance or worse > patience or steps == max_steps:
            break
        moved = _advance(examples, point, residuals, ridge, hard=hard)
        if moved is None:
            break
        point = moved
    assert best is not None
    status = best.solution.status
    if status is Status.STALLED and steps == max_steps:
        status = Status.STEP_LIMIT
    return replace(best, solution=replace(best.solution, status=status, steps=steps))


def _advance(
    examples: Examples, point: _Iterate, residuals: "_Residuals", ridge: float, *, hard: bool
) -> _Iterate | None:
    """Take one step; None if its system is singular."""
    system = _System.of(examples, point, ridge, hard=hard)
    if system is None:
        return None
    barrier = point.gap() / (len(point.dual) * (1 if hard else 2))
    affine = system.step(residuals, 0.0, None)
    reduction = point.moved(affine, _longest(point, affine, hard=hard)).gap() / point.gap()
    step = system.step(residuals, barrier * min(reduction, 1.0) ** 3, affine)
    length = _longest(point, step, hard=hard)
    if length < _SHORT_STEP:
        # The corrector can cycle when an iterate is far from the central path: go back to it.
        centring = system.step(residuals, _CENTRING * barrier, None)
        other = _longest(point, centring, hard=hard)
        if other > length:
            step, length = centring, other
    return point.moved(step, _OF_THE_LONGEST * length)


def _program(point: _Iterate, residual: float, steps: int, tolerance: float) -> SoftMarginProgram:
    status = Status.CONVERGED if residual <= tolerance else Status.STALLED
    solution = Solution(status, residual, steps)
    return SoftMarginProgram(point.weights, point.bias, point.dual, solution)


def _start(examples: Examples) -> _Iterate:
    n, d = examples.shape
    ones = np.ones(n)
    half = 0.5 * examples.weights
    return _Iterate(np.zeros(d), 0.0, half, ones, 2 * ones, half.copy())


def _feasible_start(examples: Examples, ridge: float, separator: tuple[Array, float]) -> _Iterate:
    """Return the separator, with all margins above 1 and multipliers on the central path."""
    scale = 2 / float(examples.margins(*separator).min())
    weights, bias = scale * separator[0], scale * separator[1]
    surplus = examples.margins(weights, bias) - 1
    dual = ridge * max(float(weights @ weights), 1e-8) / (len(surplus) * surplus)
    still = np.zeros_like(surplus)
    return _Iterate(weights, bias, dual, surplus, still, still)


@dataclass(frozen=True)
class _Residuals:
    """What is left of the equality conditions."""

    weights: Array
    bias: float
    margin: Array
    bound: Array

    @classmethod
    def of(cls, examples: Examples, point: _Iterate, ridge: float, *, hard: bool) -> "_Residuals":
        pull_w, pull_b = examples.signed_total(point.dual)
        margins = examples.margins(point.weights, point.bias)
        bound = np.zeros_like(margins)
        if not hard:
            bound = examples.weights - point.dual - point.violation_dual
        return cls(
            ridge * point.weights - pull_w,
            pull_b,
            margins - 1 + point.violation - point.surplus,
            bound,
        )

    def largest(self, point: _Iterate) -> float:
        # The maximum-margin classifier's norm 1/margin sets the scale of its multipliers.
        scale = max(1.0, float(point.dual.sum()))
        stationarity = float(np.hypot(np.linalg.norm(self.weights), self.bias))
        feasibility = float(np.max(np.abs(self.margin)))
        bound = float(np.abs(self.bound).sum())
        parts = [stationarity / scale, feasibility, bound, point.gap() / scale]
        return float(np.max(parts))  # no number if one of them is none


@dataclass(frozen=True)
class _System:
    """The Newton system of one iterate, reduced to (w, b) and factored."""

    examples: Examples
    point: _Iterate
    factor: BorderedFactor
    stiffness: Array
    hard: bool

    @classmethod
    def of(
        cls, examples: Examples, point: _Iterate, ridge: float, *, hard: bool
    ) -> "_System | None":
        give = point.surplus / point.dual
        if not hard:
            give = give + point.violation / point.violation_dual
        stiffness = 1 / give
        for floor in _FLOORS:
            factor = examples.factor(stiffness, ridge, floor)
            if factor is not None:
                return cls(examples, point, factor, stiffness, hard)
        return None

    def step(self, residuals: _Residuals, barrier: float, affine: _Iterate | None) -> _Iterate:
        """Return the Newton step to complementarity products of `barrier`.

        With the dual a, surplus p, violation s and its multiplier z, the step solves

            ridge Δw - Σ y_i Δa_i f_i = -r_w,  Σ y_i Δa_i = -r_b,  Δa + Δz = r_z,
            y(⟨f, Δw⟩ + Δb) + Δs - Δp = -r_m,  a Δp + p Δa = c,  z Δs + s Δz = e.

        The last four give Δa = k (g - y(⟨f, Δw⟩ + Δb)) with the stiffness k and the pull g, and
        the first two are then the factored system for (Δw, Δb).
        """
        products, violation_products = self._missing_products(barrier, affine)
        pull = self._pull(residuals, products, violation_products)
        right_w, right_b = self.examples.signed_total(self.stiffness * pull)
        weights, bias = self.factor.solve(right_w - residuals.weights, right_b + residuals.bias)
        dual = self.stiffness * (pull - self.examples.margins(weights, bias))
        surplus = (products - self.point.surplus * dual) / self.point.dual
        if self.hard:
            still = np.zeros_like(dual)
            return _Iterate(weights, bias, dual, surplus, still, still)
        violation_dual = residuals.bound - dual
        violation = (
            violation_products - self.point.violation * violation_dual
        ) / self.point.violation_dual
        return _Iterate(weights, bias, dual, surplus, violation, violation_dual)

    def _missing_products(self, barrier: float, affine: _Iterate | None) -> tuple[Array, Array]:
        """Return c and e: what a p and z s lack of the barrier, less the last step's own products."""
        point = self.point
        products = barrier - point.dual * point.surplus
        violation_products = barrier - point.violation_dual * point.violation
        if affine is not None:
            products = products - affine.dual * affine.surplus
            violation_products = violation_products - affine.violation_dual * affine.violation
        return products, violation_products

    def _pull(self, residuals: _Residuals, products: Array, violation_products: Array) -> Array:
        """Return g = -r_m + c/a - (e - s r_z)/z, the last term only where violations are allowed."""
        point = self.point
        pull = -residuals.margin + products / point.dual
        if self.hard:
            return pull
        given = violation_products - point.violation * residuals.bound
        return np.asarray(pull - given / point.violation_dual)


def _longest(point: _Iterate, step: _Iterate, *, hard: bool) -> float:
    """Return the longest step that keeps the iterate positive.

    Primal and dual move together, since the quadratic term couples them.
    """
    pairs = [(point.surplus, step.surplus), (point.dual, step.dual)]
    if not hard:
        pairs += [(point.violation, step.violation), (point.violation_dual, step.violation_dual)]
    return min(_to_boundary(value, change) for value, change in pairs)


def _to_boundary(value: Array, change: Array) -> float:
    shrinking = change < 0
    with np.errstate(over="ignore"):
        return float(np.min(-value[shrinking] / change[shrinking], initial=np.inf))
