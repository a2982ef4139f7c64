"""Roots of increasing functions, many at once."""

from collections.abc import Callable

import numpy as np

from sparsetoken.arrays import Array

__all__ = ["increasing_root"]


def increasing_root(
    function: Callable[[Array], Array],
    derivative: Callable[[Array], Array],
    low: Array,
    high: Array,
    max_steps: int = 200,
) -> Array:
    """Solve function(x) = 0 element by element for an increasing function.

    Newton steps that leave the bracket, or that do not halve the last step, are replaced by
    bisection, so that convergence is certain whatever the derivative says. Each element is solved
    to the last bits: iteration stops when the bracket or the step is at rounding level.

    Parameters
    ----------
    function, derivative : callable
        The function and its derivative, elementwise, on arrays of the shape of `low`.
    low, high : array
        A bracket: function(low) <= 0 <= function(high).
    max_steps : int
        Bound on the number of steps; bisection alone needs about 100.
    """
    low, high = np.array(low, dtype=float), np.array(high, dtype=float)
    x = np.clip(0.0, low, high)
    step_before = high - low
    for _ in range(max_steps):
        value = function(x)
        np.copyto(low, x, where=value <= 0)
        np.copyto(high, x, where=value >= 0)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            candidate = x - value / derivative(x)
        middle = low + 0.5 * (high - low)
        step = np.abs(candidate - x)
        trusted = (candidate >= low) & (candidate <= high) & (step <= 0.5 * step_before)
        candidate = np.where(trusted, candidate, middle)
        step_before = np.abs(candidate - x)
        x = candidate
        if np.all(step_before <= 2 * np.spacing(np.abs(x))):
            break
    return np.asarray(x)
