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
    max_steps: int = 2000,
) -> Array:
    """Solve function(x) = 0 element by element for an increasing function.

    Newton steps that leave the bracket, or that do not halve the last step, are replaced by
    bisection, so that convergence is certain whatever the derivative says. Each element is solved
    to the last bits: iteration stops when its bracket is at rounding level.

    Parameters
    ----------
    function, derivative : callable
        The function and its derivative, elementwise, on arrays of the shape of `low`.
    low, high : array
        A finite bracket: function(low) <= 0 <= function(high).
    max_steps : int
        Bound on the number of steps. Some 10 are usual; bisection alone, from the largest float
        to a root near 0, needs about 1100.

    Raises
    ------
    ArithmeticError
        If the function is NaN in its bracket, or `max_steps` were not enough.
    """
    low, high = np.array(low, dtype=float), np.array(high, dtype=float)
    x = np.clip(0.0, low, high)
    step_before = np.full_like(x, np.inf)
    for _ in range(max_steps):
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            value = function(x)
            # At least one unit in the last place, to close the bracket from its other side.
            step = np.maximum(np.abs(value / derivative(x)), np.spacing(np.abs(x)))
            newton = x - np.sign(value) * step
        if np.any(np.isnan(value)):
            raise ArithmeticError("the function is NaN in its bracket")
        np.copyto(low, x, where=value <= 0)
        np.copyto(high, x, where=value >= 0)
        trusted = (newton >= low) & (newton <= high) & (step <= 0.5 * step_before)
        candidate = np.where(trusted, newton, 0.5 * low + 0.5 * high)
        step_before = np.abs(candidate - x)
        x = candidate
        if np.all(0.5 * high - 0.5 * low <= np.spacing(np.abs(x))):
            return np.asarray(x)
    raise ArithmeticError(f"no root found in {max_steps} steps")
