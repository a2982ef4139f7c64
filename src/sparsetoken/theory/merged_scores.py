"""Laws of scores with points that lie close together made one, and integrals over all thresholds.

A law has thousands of points, and a prediction asks for many copies of it: merged, a few dozen stand for
all. Rates of the merged laws give AUC and average precision, and how far merging changes them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.polynomial import chebyshev
from scipy.special import expit, log_ndtr, ndtr, ndtri

from sparsetoken.arrays import Array
from sparsetoken.numerics.quadrature import legendre, normal_density
from sparsetoken.theory.feature_law import ScoreLaw
from sparsetoken.theory.replicates import replicate_error

__all__ = ["FARTHEST", "NARROWEST", "merged_class", "quantiles", "ranking_integrals"]

# Points of a law this close, in units of their spread and in its logarithm, are merged for the
# integrals over all thresholds. Rough bins show how replicates differ, and how much merging does:
# its error falls with the square of the widths, by 30.
_FINE_BINS = (0.15, 0.03)
_ROUGH_BINS = (0.8, 0.25)
_MERGING = 0.15

# A class is followed over thresholds that leave out this much of it on either side.
_TAIL = 1e-9
_BISECTIONS = 12

# Chebyshev nodes of a rate on its window: where to begin, where to end, and the wanted accuracy.
_FIRST_NODES = 33
_MOST_NODES = 513
_ACCURACY = 1e-5
_FINE_NODES = 128

# Normal quantiles of rates are kept between minus the first and the second.
FARTHEST = 30.0
_LAST_DIGIT = 8.2

# What is below this counts as this, where something is divided by it: a spread, a density, a rate.
NARROWEST = 1e-290


def merged_class(law: ScoreLaw, sign: float, *, rough: bool = False) -> tuple[Array, Array, Array]:
    """Return (mean, spread, weight) of a class, with close points made one; the weights sum to 1."""
    order, key = _sorted_bins(law, sign, _ROUGH_BINS if rough else _FINE_BINS)
    mean, spread, weight = _merged(law, order, _starts(key // law.replicates))
    return mean, spread, weight / weight.sum()


def _sorted_bins(law: ScoreLaw, sign: float, bins: tuple[float, float]) -> tuple[Array, Array]:
    """Return the points of a class in the order of their bins, and a number for each.

    It is `replicates` times that of the bin, plus that of the replicate.
    """
    chosen = np.flatnonzero(law.label == sign)
    level = np.floor(np.log(np.maximum(law.spread[chosen], NARROWEST)) / bins[1])
    place = np.floor(law.mean[chosen] / (bins[0] * np.exp(level * bins[1])))
    # One integer for each bin; a spread that small beside its mean is as good as none.
    place = np.clip(place, -(2**24), 2**24) + 2**24
    key = ((level + 2**16).astype(np.int64) << 26) + place.astype(np.int64)
    key = key * law.replicates + chosen // (len(law.mean) // law.replicates)
    order = np.argsort(key)
    return chosen[order], key[order]


def _starts(key: Array) -> Array:
    """Return where the runs of equal numbers begin."""
    return np.flatnonzero(np.concatenate([[True], key[1:] != key[:-1]]))


def _merged(
    laws: ScoreLaw | Sequence[ScoreLaw], order: Array, starts: Array
) -> tuple[Array, Array, Array]:
    """Return mean, spread, (laws, bins), and weight, (bins,), of runs of points made one each.

    A group of normal laws becomes one normal law of the same weight, mean and variance. Several
    laws have the same weights; without several the first axis is left out.
    """
    same = laws if isinstance(laws, ScoreLaw) else laws[0]
    if isinstance(laws, ScoreLaw):
        mean, spread = laws.mean[order], laws.spread[order]
    else:
        mean, spread = (
            np.stack([column[order] for column in columns])
            for columns in zip(*((law.mean, law.spread) for law in laws), strict=True)
        )
    weight = same.weight[order]
    total = np.add.reduceat(weight, starts)
    centre = np.add.reduceat(weight * mean, starts, axis=-1) / total
    offset = mean - np.repeat(centre, np.diff(starts, append=len(order)), axis=-1)
    squares = np.maximum(spread, NARROWEST) ** 2 + offset**2
    variance = np.add.reduceat(weight * squares, starts, axis=-1) / total
    return centre, np.maximum(np.sqrt(variance), NARROWEST), total


def quantiles(mean: Array, spread: Array, weight: Array, levels: Array, steps: int) -> Array:
    """Return t (k,) with Σ weight Φ((mean - t)/spread) = level, by bisection."""
    low = np.full(len(levels), (mean - FARTHEST * spread).min())
    high = np.full(len(levels), (mean + FARTHEST * spread).max())
    for _ in range(steps):
        middle = 0.5 * (low + high)
        above = weight @ ndtr((mean[:, None] - middle) / spread[:, None]) > levels
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return np.asarray(0.5 * (low + high))


def ranking_integrals(
    law: ScoreLaw, replicated: ScoreLaw, moved: Sequence[ScoreLaw], class_weights: Array
) -> dict[str, tuple[float, float]]:
    """Return AUC and average precision of a law of scores, each with its error bar.

    Parameters
    ----------
    replicated : ScoreLaw
        The law with each replicate's own readout, whose differences are the error of the law.
    moved : sequence of ScoreLaw
        The first replicate, and that with one parameter of the readout after the other moved by its
        numerical error; or none.
    class_weights : array of shape (2,)
        Shares of positives and negatives.
    """
    rows = _Rows.merged(law, replicated, moved, class_weights)
    values, resolution = rows.integrals()
    replicates = replicated.replicates
    found = {}
    for name, row, error in zip(("auc", "average_precision"), values, resolution, strict=True):
        fine, rough, copies = row[0], row[1], row[2 : 2 + replicates]
        numerical = np.abs(row[2 + replicates :] - row[2 + replicates : 3 + replicates]).sum()
        bar = replicate_error(copies) + _MERGING * abs(fine - rough)
        found[name] = (float(fine), float(bar + numerical + error))
    return found


@dataclass(frozen=True, eq=False)
class _Rows:
    """Several laws with few points each, side by side.

    Points of one class and row lie next to each other; a row's weights sum to one in each class.

    Attributes
    ----------
    mean, spread, weight : arrays of shape (n,)
    starts : array of shape (2 rows,)
        Where the points of each class of each row begin, positives of all rows first.
    class_weights : array of shape (2,)
    """

    mean: Array
    spread: Array
    weight: Array
    starts: Array
    class_weights: Array

    @classmethod
    def merged(
        cls,
        law: ScoreLaw,
        replicated: ScoreLaw,
        moved: Sequence[ScoreLaw],
        class_weights: Array,
    ) -> "_Rows":
        """Merge points that lie close together.

        The rows are the law with fine bins, the same with rough bins, and with rough bins every
        replicate of the second law and the others, which are like the first replicate of the law.
        """
        columns, sizes = [], []
        for sign in (1.0, -1.0):
            order, key = _sorted_bins(law, sign, _FINE_BINS)
            fine = _merged(law, order, _starts(key // law.replicates))
            order, key = _sorted_bins(law, sign, _ROUGH_BINS)
            rough = _merged(law, order, _starts(key // law.replicates))
            # The same points fall into the same bins, or the bins' edges would show.
            starts = _starts(key)
            row = key[starts] % law.replicates
            by_row = np.argsort(row, kind="stable")
            parts = [column[by_row] for column in _merged(replicated, order, starts)]
            columns += [fine, rough, parts]
            sizes += [len(fine[0]), len(rough[0]), *np.bincount(row, minlength=law.replicates)]
            if moved:
                first = key % law.replicates == 0
                starts = _starts(key[first])
                means, spreads, weight = _merged(moved, order[first], starts)
                columns.append((means.ravel(), spreads.ravel(), np.tile(weight, len(moved))))
                sizes += [len(starts)] * len(moved)
        mean, spread, weight = (np.concatenate(column) for column in zip(*columns, strict=True))
        begin = np.cumsum([0, *sizes[:-1]])
        weight = weight / np.repeat(np.add.reduceat(weight, begin), sizes)
        return cls(mean, spread, weight, begin, class_weights)

    @property
    def rows(self) -> int:
        """How many laws there are."""
        return len(self.starts) // 2

    def integrals(self) -> tuple[Array, Array]:
        """Return AUC and average precision of each row (2, rows), and their resolution error (2,)."""
        auc, auc_error = self._resolved(1, self._auc)
        precision, precision_error = self._resolved(0, self._average_precision)
        return np.stack([auc, precision]), np.array([auc_error, precision_error])

    def _resolved(
        self, side: int, integral: Callable[[Array, Array], Array]
    ) -> tuple[Array, float]:
        """Integrate over the window of a class with more and more nodes."""
        low, high = self._window(side)
        count, known, before = _FIRST_NODES, None, None
        while True:
            nodes = 0.5 * (low + high) + 0.5 * (high - low) * _nodes(count)
            if known is None:
                known = self._quantiles(nodes)
                before = integral(*_on_fine_grid(known[:, :, ::2]))
            else:
                finer = np.empty((*known.shape[:2], count))
                finer[:, :, ::2], finer[:, :, 1::2] = known, self._quantiles(nodes[1::2])
                known = finer
            values = integral(*_on_fine_grid(known))
            error = float(np.abs(values - before)[0])
            if error <= _ACCURACY or count >= _MOST_NODES:
                return values, error
            before, count = values, 2 * count - 1

    def _auc(self, quantiles: Array, slopes: Array) -> Array:
        """Return ∫ recall d(false-alarm rate)."""
        recall, alarms = quantiles
        density = normal_density(alarms) * -slopes[1]
        inner = (ndtr(recall) * density) @ _fine_weights()
        # What the window leaves out below and above.
        below = ndtr(-alarms[:, 0]) * ndtr(recall[:, 0])
        above = 0.5 * ndtr(alarms[:, -1]) * ndtr(recall[:, -1])
        return np.asarray(inner + below + above)

    def _average_precision(self, quantiles: Array, slopes: Array) -> Array:
        """Return ∫ precision d(recall)."""
        recall, alarms = quantiles
        odds = np.log(self.class_weights[1] / self.class_weights[0])
        precision = expit(log_ndtr(recall) - log_ndtr(alarms) - odds)
        inner = (precision * normal_density(recall) * -slopes[0]) @ _fine_weights()
        below = precision[:, 0] * ndtr(-recall[:, 0])
        above = precision[:, -1] * ndtr(recall[:, -1])
        return np.asarray(inner + below + above)

    def _window(self, side: int) -> tuple[float, float]:
        """Return thresholds between which almost all of a class lies, from the second, rough row."""
        first = side * self.rows + 1
        stop = self.starts[first + 1] if first + 1 < len(self.starts) else len(self.mean)
        chosen = slice(self.starts[first], stop)
        columns = (self.mean[chosen], self.spread[chosen], self.weight[chosen])
        low, high = quantiles(*columns, np.array([1 - _TAIL, _TAIL]), _BISECTIONS)
        return float(low), float(high)

    def _quantiles(self, thresholds: Array) -> Array:
        """Return the normal quantiles of recall and false-alarm rate, (2, rows, k).

        They are smooth functions of the threshold, nearly straight lines, which a few nodes
        follow into the far tails.
        """
        above = ndtr((self.mean[:, None] - thresholds) / self.spread[:, None])
        above *= self.weight[:, None]
        rates = np.add.reduceat(above, self.starts, axis=0)
        # Beyond the upper end a rate is 1 to the last digit.
        quantiles = np.clip(ndtri(np.minimum(rates, 1.0)), -FARTHEST, _LAST_DIGIT)
        return np.asarray(quantiles.reshape(2, self.rows, -1))


@lru_cache
def _nodes(count: int) -> Array:
    """Return the Chebyshev points with both ends, rising; every other one is a node of half."""
    return np.asarray(-np.cos(np.pi * np.arange(count) / (count - 1)))


@lru_cache
def _node_maps(count: int) -> tuple[Array, Array]:
    """Return matrices that take values at the nodes to values and slopes on the fine grid."""
    to_coefficients = np.linalg.inv(chebyshev.chebvander(_nodes(count), count - 1))
    grid = _fine_grid()
    values = chebyshev.chebvander(grid, count - 1) @ to_coefficients
    derivative = chebyshev.chebder(to_coefficients)
    slopes = chebyshev.chebvander(grid, count - 2) @ derivative
    return values.T, slopes.T


def _fine_grid() -> Array:
    return 2 * legendre(_FINE_NODES)[0] - 1


def _fine_weights() -> Array:
    return 2 * legendre(_FINE_NODES)[1]


def _on_fine_grid(quantiles: Array) -> tuple[Array, Array]:
    """Return values and slopes (in units of half the window) on the fine grid, (2, rows, grid)."""
    values, slopes = _node_maps(quantiles.shape[2])
    return quantiles @ values, quantiles @ slopes
