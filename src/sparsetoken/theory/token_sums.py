"""The law of a sum of one function over independent tokens, exact up to a grid (docs/theory.md, section 2).

Element-wise attention adds up ψ(x_l). The law of ψ of one token is put on a grid, each value shared
between its two neighbours so that the mean stays; spread to either side is taken back, so that the
variance stays as well. Powers of its Fourier transform are then the laws of sums of any length, of
which the grid changes only the third and higher cumulants. A grid twice as coarse tells the error.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import fft
from scipy.optimize import brentq
from scipy.special import expit

from sparsetoken.arrays import Array
from sparsetoken.numerics.quadrature import normal_density
from sparsetoken.task import Task

__all__ = ["NONLINEARITIES", "SumError", "sum_error"]

_SUMMED: dict[str, Callable[[Array, float], Array]] = {
    "sigmoid": lambda x, sharpness: expit(sharpness * x) * x,
    "tanh": lambda x, sharpness: np.tanh(sharpness * x) * x,
    "linear": lambda x, _: x**2,
}
# Sums of exp are as large as their largest token: see `largest_token`.
NONLINEARITIES = (*_SUMMED, "exp")

# One normal token, on an even grid.
_REACH = 9.0
_NODES = 2049
# Grid of the sum: step in units of one token's spread, at this length; longer sums forgive more.
_STEP = 0.08
_ROUGHLY = 3.0
_STEP_LENGTH = 100
_MOST_BINS = 2**18
# Further than so many standard deviations, and one token's reach, no sum goes.
_FAR = 12.0
_VARIANCE_ACCURACY = 1e-6
# Rounding of the transforms, as a probability.
_ROUNDING = 1e-15


@dataclass(frozen=True)
class SumError:
    """The least error of a threshold on the mean of ψ over the tokens.

    Attributes
    ----------
    error, threshold : float
    uncertainty : float
        What the grid leaves.
    """

    error: float
    threshold: float
    uncertainty: float


def sum_error(task: Task, nonlinearity: str, sharpness: float, *, judged: bool = True) -> SumError:
    """Return the least error over thresholds on (1/L) Σ_l ψ(x_l), ψ(x) = σ(κx) x.

    Without `judged` there is no error bar: a rough value to search with.
    """
    # At κ = 0 tanh has lost its sign and size: near it only the size.
    sharpness = max(sharpness, 1e-6)

    def function(x: Array) -> Array:
        return _SUMMED[nonlinearity](x, sharpness)

    step = _STEP * max(1.0, task.length / _STEP_LENGTH) ** 0.25
    if not judged:
        return SumError(*_least(task, function, _ROUGHLY * step), uncertainty=np.inf)
    error, threshold = _least(task, function, step)
    coarse, _ = _least(task, function, 2 * step)
    bar = 3 * abs(coarse - error) + 1e-6 * error + _ROUNDING
    return SumError(error, threshold, bar)


def _least(task: Task, function: Callable[[Array], Array], step: float) -> tuple[float, float]:
    """Return the least error and its threshold, with the sums on one grid."""
    nodes = np.linspace(-_REACH, _REACH, _NODES)
    weights = normal_density(nodes) / normal_density(nodes).sum()
    noise, signal = function(nodes), function(nodes + task.strength)
    centre = float(weights @ noise)
    spread = float(np.sqrt(weights @ (noise - centre) ** 2))
    most = int(task.counts.values[-1])
    shift = float(weights @ signal) - centre
    marked = float(np.sqrt(weights @ (signal - centre - shift) ** 2))
    reach = _FAR * np.hypot(np.sqrt(task.length) * spread, np.sqrt(most) * marked)
    reach += max(np.ptp(noise), np.ptp(signal))
    width = 2 * reach + most * abs(shift)
    bins = fft.next_fast_len(int(min(width / (step * spread), _MOST_BINS)) + 16, real=True)
    spacing = max(step * spread, width / bins)
    base = _transform((noise - centre) / spacing, weights, bins)
    other = _transform((signal - centre) / spacing, weights, bins)
    known = task.counts
    ratio = sum(
        chance * base ** float(task.length - number) * other ** float(number)
        for number, chance in zip(known.values, known.probability, strict=True)
    )
    # From the sum's lowest place on: the grid is circular, and it begins `below` under the centre.
    below = int(np.ceil((reach + max(0.0, -most * shift)) / spacing))
    positive, negative = (
        np.maximum(np.roll(fft.irfft(law, bins), below), 0.0)
        for law in (ratio, base ** float(task.length))
    )
    rate = task.positive_rate
    missed = np.concatenate([[0.0], np.cumsum(positive)])
    alarms = np.concatenate([np.cumsum(negative[::-1])[::-1], [0.0]])
    errors = rate * missed + (1 - rate) * alarms
    best = int(np.argmin(errors))
    place = centre * task.length + spacing * (best - below - 0.5)
    return float(errors[best]), place / task.length


def _transform(values: Array, weights: Array, bins: int) -> Array:
    """Return the Fourier transform of a token's law on a circular grid of step 1."""
    mean = float(weights @ values)
    deviations = values - mean

    def surplus(factor: float) -> float:
        """Return by how much the variance is too large with deviations drawn in by a factor."""
        part = (mean + factor * deviations) % 1.0
        return float(weights @ (part * (1 - part) + (factor**2 - 1) * deviations**2))

    wanted = float(weights @ deviations**2)
    factor = float(np.sqrt(max(1 - surplus(1.0) / wanted, 0.0))) if wanted > 0 else 0.0
    if abs(surplus(factor)) > _VARIANCE_ACCURACY * wanted:
        # On a grid far too coarse for one token even its mean alone may be spread too much.
        factor = float(brentq(surplus, 0.0, 1.0, xtol=1e-10)) if surplus(0.0) < 0 else 0.0
    return np.asarray(fft.rfft(_shared(mean + factor * deviations, weights, bins)))


def _shared(values: Array, weights: Array, bins: int) -> Array:
    """Return the law with every value shared between the grid points next to it."""
    lower = np.floor(values)
    upper_part = values - lower
    index = lower.astype(int) % bins
    probability = np.bincount(index, weights * (1 - upper_part), bins)
    return np.asarray(probability + np.bincount((index + 1) % bins, weights * upper_part, bins))
