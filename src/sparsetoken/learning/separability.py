"""Is there a linear readout with every margin positive? A verdict with its proof."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sparsetoken.arrays import Array
from sparsetoken.learning.examples import Examples, check_examples
from sparsetoken.learning.smooth_minimum import NewtonSystem
from sparsetoken.numerics.solution import Solution, Status
from sparsetoken.validation import ParameterError, integer, real, rectangular

__all__ = ["Separability", "separability"]

# Features of this size are used as they are, without a copy in other units.
_USUAL = 1e-3, 1e3


@dataclass(frozen=True)
class Separability:
    """Whether data are linearly separable, and why.

    Attributes
    ----------
    separable : bool or None
        None if neither proof was found within the limit of steps.
    weights, bias : array of shape (d,) and float, or None
        A readout with all margins y_i(⟨f_i, w⟩ + b) > 0, if separable.
    margin : float or None
        The smallest margin of that readout over ‖w‖; not the largest possible.
    multipliers : array of shape (n,), or None
        a >= 0 with Σ a_i = 1 and Σ a_i y_i (f_i, 1) = 0, if not separable. Multiplying any
        would-be separator by this sum shows that it cannot exist.
    solution : Solution
        Converged if there is a verdict. Its residual is ‖Σ a_i y_i (g_i, 1)‖ over the root mean
        square of ‖(g_i, 1)‖, where g_i are the features shifted by their mean and in units of their
        spread: how far the sum is from 0. A readout that separates could only have margins below
        this, relative to the features' spread.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsetoken import separability
    >>> data, labels = np.array([[1.0], [2.0], [-1.0], [0.0]]), np.array([1, -1, 1, -1])
    >>> proof = separability(data, labels).multipliers
    >>> bool(abs((proof * labels) @ data) < 1e-8), round(float(proof.sum()), 6)
    (True, 1.0)
    """

    separable: bool | None
    weights: Array | None = field(repr=False)
    bias: float | None
    margin: float | None
    multipliers: Array | None = field(repr=False)
    solution: Solution


def separability(
    features: Array,
    labels: Array,
    *,
    start: tuple[Array, float] | None = None,
    max_steps: int = 200,
    tolerance: float = 1e-9,
) -> Separability:
    """Decide whether (features, labels) is linearly separable with a bias.

    Newton's method on the sum of squared hinges max(0, 1 - margin)²: its least value is 0 exactly
    if the data are separable, and otherwise max(0, 1 - margin_i) at the minimum are multipliers
    that prove that they are not. Only samples with a margin below 1 enter a step. The verdict does
    not depend on the features' units or origin, and its proof is checked before it is returned.

    Parameters
    ----------
    features : array of shape (n, d)
    labels : array of shape (n,), values -1 and +1
    start : (weights, bias), optional
        Where to start: a readout fitted to the same data saves steps.
    max_steps : int
        At most so many steps of Newton's method.
    tolerance : float
        Largest residual of the proof that data are not separable.

    Returns
    -------
    Separability

    Examples
    --------
    >>> import numpy as np
    >>> from sparsetoken import separability
    >>> data = np.array([[1.0], [2.0], [-1.0], [0.0]])
    >>> separability(data, np.array([1, 1, -1, -1])).separable
    True
    >>> separability(data, np.array([1, -1, 1, -1])).separable
    False
    """
    features, labels = check_examples(features, labels)
    max_steps = integer("max_steps", max_steps, low=0)
    tolerance = real("tolerance", tolerance, low=0, inclusive=False)
    start = _checked_start(start, features.shape[1])
    centre, unit = _units(features)
    if centre is None:
        return _decide(Examples.of(features, labels), start, tolerance, max_steps)
    # Any readout of g = (f - centre)/unit is one of f: (w/unit, b - ⟨w, centre⟩/unit).
    examples = Examples.of((features.astype(float) - centre) / unit, labels)
    if start is not None:
        start = unit * start[0], start[1] + float(centre @ start[0])
    found = _decide(examples, start, tolerance, max_steps)
    if not found.separable or found.weights is None or found.bias is None:
        return found
    weights = found.weights / unit
    bias = found.bias - float(centre @ weights)
    return _separated(Examples.of(features, labels), weights, bias, found.solution.steps)


def _units(features: Array) -> tuple[Array | None, float]:
    """Return the mean and the spread of the features; no mean if they can stay as they are."""
    largest = max(float(features.max()), -float(features.min()))
    if _USUAL[0] < largest < _USUAL[1]:
        centre = features.mean(axis=0, dtype=float)
        total = float(np.einsum("nd,nd->", features, features, dtype=float)) / len(features)
        spread = np.sqrt(max(total - float(centre @ centre), 0.0))
        if spread > _USUAL[0] * max(1.0, largest):
            return None, 1.0
    unit = largest or 1.0
    scaled = features.astype(float) / unit
    centre = scaled.mean(axis=0)
    scaled -= centre
    spread = float(np.sqrt(np.einsum("nd,nd->", scaled, scaled) / len(scaled))) or 1.0
    return centre * unit, unit * spread


def _checked_start(start: Any, dimension: int) -> tuple[Array, float] | None:
    if start is None:
        return None
    accepted = f"({dimension} finite weights, a finite bias)"
    if not isinstance(start, tuple | list) or len(start) != 2:
        raise ParameterError("start", start, accepted)
    weights = rectangular("start", start[0])
    if weights.shape != (dimension,) or weights.dtype.kind not in "iuf":
        raise ParameterError("start", weights.shape, accepted)
    if not np.isfinite(weights).all():
        raise ParameterError("start", "nan or infinity", accepted)
    return weights, real("bias of start", start[1])


def _decide(
    examples: Examples, start: tuple[Array, float] | None, tolerance: float, max_steps: int
) -> Separability:
    """Find a readout with all margins positive, or multipliers that rule one out."""
    n, d = examples.shape
    features = examples.features
    size = float(np.sqrt(1 + np.einsum("nd,nd->", features, features, dtype=float) / n))
    weights, bias = (np.zeros(d), 0.0) if start is None else _scaled(examples, *start)
    margins = examples.margins(weights, bias)
    residual = np.inf
    system = NewtonSystem(examples, 0.0)
    for steps in range(max_steps + 1):
        if margins.min() > 1e-12 * (size * float(np.linalg.norm(weights)) + abs(bias)):
            return _separated(examples, weights, bias, steps)
        shortfall = np.maximum(1 - margins, 0.0)
        pull_w, pull_b = examples.signed_total(shortfall)
        total = float(shortfall.sum())
        residual = float(np.hypot(np.linalg.norm(pull_w), pull_b)) / (size * total)
        if residual <= tolerance:
            multipliers = shortfall / total
            found = Solution(Status.CONVERGED, residual, steps)
            return Separability(False, None, None, None, multipliers, found)
        active = (margins < 1).astype(float)
        accuracy = max(min(0.1, residual), 0.1 * tolerance / residual)
        step = system.solve(active, np.append(pull_w, pull_b), accuracy)
        change = examples.margins(step[:-1], step[-1])
        length = _exact_line_search(margins, change)
        weights, bias = weights + length * step[:-1], bias + length * float(step[-1])
        margins = examples.margins(weights, bias)
    return _undecided(Status.STEP_LIMIT, residual, steps)


def _undecided(status: Status, residual: float, steps: int) -> Separability:
    return Separability(None, None, None, None, None, Solution(status, residual, steps))


def _scaled(examples: Examples, weights: Array, bias: float) -> tuple[Array, float]:
    """Scale a readout so that the squared hinges of its margins are least."""
    margins = examples.margins(weights, bias)
    if margins.min() > 0:
        return weights, bias
    length = _exact_line_search(np.zeros_like(margins), margins)
    return length * weights, length * bias


def _exact_line_search(margins: Array, change: Array) -> float:
    """Return the t >= 0 that minimises Σ max(0, 1 - margins - t change)².

    The slope in t is piecewise linear and increasing: Newton's method on it, within a bracket.
    """
    low, high, length = 0.0, np.inf, 1.0
    for _ in range(100):
        shortfall = 1 - margins - length * change
        active = shortfall > 0
        slope = -float(shortfall[active] @ change[active])
        curvature = float(change[active] @ change[active])
        if slope <= 0:
            low = length
        else:
            high = length
        if curvature == 0 or abs(slope) <= 1e-12 * curvature * max(length, 1e-300):
            break
        newton = length - slope / curvature
        middle = 0.5 * (low + high) if np.isfinite(high) else 2 * length
        length = newton if low < newton < high else middle
    return length


def _separated(examples: Examples, weights: Array, bias: float, steps: int) -> Separability:
    """Return the verdict with its proof, or None if the proof does not hold for these features."""
    smallest = float(examples.margins(weights, bias).min())
    norm = float(np.linalg.norm(weights))
    if not smallest > 0:
        return _undecided(Status.STALLED, np.inf, steps)
    margin = smallest / norm if norm > 0 else np.inf
    return Separability(True, weights, bias, margin, None, Solution(Status.CONVERGED, 0.0, steps))
