"""What a threshold on the score gives, and which threshold gives what is wanted.

Recall and false-alarm rate at a threshold t are the means of Φ((m - t)/σ) over positives and over
negatives.
"""

from collections.abc import Callable

import numpy as np
from scipy.special import ndtr

from sparsetoken.arrays import Array
from sparsetoken.numerics.quadrature import normal_density
from sparsetoken.theory.feature_law import ScoreLaw
from sparsetoken.theory.merged_scores import FARTHEST, NARROWEST, merged_class, quantiles

__all__ = [
    "best_threshold",
    "densities",
    "first_replicate",
    "rates",
    "replicate_shifts",
    "thresholds_at",
]

_NEWTON_STEPS = 8
_BALANCE_STEPS = 40

# Rounding alone makes such a difference, between thresholds that are next to equal.
_SAME_ERROR = 1e-14

# Entries of the work arrays of exact rates.
_BLOCK = 2**20


def rates(law: ScoreLaw, thresholds: Array) -> Array:
    """Return recall and false-alarm rate at thresholds (k,), by replicate: (2, replicates, k)."""
    return _by_class(law, thresholds, lambda z, _: ndtr(z))


def densities(law: ScoreLaw, thresholds: Array) -> Array:
    """Return the densities of the scores of positives and of negatives, (2, replicates, k)."""
    return _by_class(law, thresholds, lambda z, spread: normal_density(z) / spread)


def _by_class(law: ScoreLaw, thresholds: Array, function: Callable[[Array, Array], Array]) -> Array:
    """Average function((m - t)/σ, σ) over each class and replicate."""
    found = np.empty((2, law.replicates, len(thresholds)))
    size = max(1, _BLOCK // len(law.mean))
    means, spreads = law.mean[:, None], np.maximum(law.spread, NARROWEST)[:, None]
    for first in range(0, len(thresholds), size):
        part = slice(first, first + size)
        values = function((means - thresholds[part]) / spreads, spreads)
        columns = values.reshape(law.replicates, -1, values.shape[1])
        for index, sign in enumerate((1.0, -1.0)):
            weights = np.where(law.label == sign, law.weight, 0.0).reshape(law.replicates, 1, -1)
            found[index, :, part] = (weights @ columns)[:, 0] / weights.sum(axis=2)
    return found


def first_replicate(law: ScoreLaw) -> ScoreLaw:
    """Return the first replicate as a law of its own."""
    size = len(law.mean) // law.replicates
    mean, spread, label = law.mean[:size], law.spread[:size], law.label[:size]
    return ScoreLaw(mean, spread, label, law.weight[:size] * law.replicates)


def thresholds_at(law: ScoreLaw, levels: Array, side: int) -> Array:
    """Return the thresholds (k,) above which positives (side 0) or negatives (1) have given shares (k,).

    Bisection on merged points, then Newton's method on the logarithm of the exact rate.
    """
    found = quantiles(*merged_class(law, (1.0, -1.0)[side]), levels, steps=30)
    for _ in range(_NEWTON_STEPS):
        rate = rates(law, found)[side].mean(axis=0)
        slope = np.maximum(densities(law, found)[side].mean(axis=0), NARROWEST)
        found = found + np.log(np.maximum(rate, NARROWEST) / levels) * rate / slope
        if np.all(np.abs(rate / levels - 1) < 1e-6):  # and the step just made squares that
            break
    return found


def best_threshold(law: ScoreLaw, *, rough: bool = False) -> float:
    """Return the threshold of least error; far below or above all scores if one label is best.

    A search around both classes on merged points, and then Newton's method on the law itself,
    unless a `rough` answer will do.
    """
    sides = [merged_class(law, sign, rough=rough) for sign in (1.0, -1.0)]
    shares = [float(law.weight[law.label == sign].sum()) for sign in (1.0, -1.0)]

    def best_of(grid: Array) -> tuple[float, float, float]:
        """Return the best of rising thresholds, and the next on either side that is clearly worse."""
        above = [
            weight @ ndtr((mean[:, None] - grid) / spread[:, None])
            for mean, spread, weight in sides
        ]
        errors = shares[0] * (1 - above[0]) + shares[1] * above[1]
        best = int(np.argmin(errors))
        worse = np.flatnonzero(errors > errors[best] + _SAME_ERROR)
        low = worse[worse < best].max(initial=0)
        high = worse[worse > best].min(initial=len(grid) - 1)
        return float(grid[best]), float(grid[low]), float(grid[high])

    far = float(law.spread.max()) * 2 * FARTHEST
    ends = (float(law.mean.min()) - far, float(law.mean.max()) + far)
    best, low, high = best_of(np.unique(np.concatenate([ends, *map(_around, sides)])))
    if best in ends:
        return best
    return best_of(np.linspace(low, high, 33))[0] if rough else _balance(law, best, low, high)


def replicate_shifts(law: ScoreLaw, threshold: float) -> Array:
    """Return how far the best threshold of each replicate is above that of all, to first order.

    At the best threshold t the error has no slope, π f₊(t) = (1-π) f₋(t). Where it does not curve
    either, as beyond all scores, every threshold near is as good, and none is moved.
    """
    place = np.array([threshold])
    rate = float(law.weight[law.label > 0].sum() / law.weight.sum())
    signs = np.array([rate, rate - 1])
    slope = signs @ densities(law, place)[:, :, 0]
    bends = _by_class(law, place, lambda z, spread: normal_density(z) * z / spread**2)
    bend = float((signs @ bends[:, :, 0]).mean())
    if not bend > 0:
        return np.zeros(law.replicates)
    farthest = float(law.spread.mean())
    return np.asarray(np.clip(-slope / bend, -farthest, farthest))


def _balance(law: ScoreLaw, start: float, low: float, high: float) -> float:
    """Return the threshold between two where both classes are as likely: the error has no slope.

    Newton's method, halving where it would leave the bracket or the error does not curve upwards.
    """
    scale = np.maximum(law.spread, NARROWEST)
    signed = law.weight * law.label / scale
    accuracy = 1e-5 * float(scale.min())
    threshold = start
    for _ in range(_BALANCE_STEPS):
        ratio = (threshold - law.mean) / scale
        density = signed * normal_density(ratio)
        slope, curvature = float(density.sum()), -float(density @ (ratio / scale))
        low, high = (low, threshold) if slope > 0 else (threshold, high)
        following = threshold - slope / curvature if curvature > 0 else low
        if not low < following < high:
            following = 0.5 * (low + high)
        moved, threshold = abs(following - threshold), following
        if moved <= accuracy:
            break
    return threshold


def _around(side: tuple[Array, Array, Array]) -> Array:
    """Return thresholds around the scores of a class, six standard deviations either way."""
    mean, spread, weight = side
    centre = weight @ mean
    deviation = np.sqrt(weight @ (spread**2 + (mean - centre) ** 2))
    return np.asarray(centre + deviation * np.linspace(-6.0, 6.0, 49))
