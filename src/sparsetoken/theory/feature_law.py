"""The law of features and that of scores, as points and weights (docs/theory.md, section 5).

A feature has a few mean coordinates along directions that matter, and Gaussian noise in all others. Its
law is a mixture over points: in closed form a few, or many that are drawn, in independent replicates
whose spread tells the error.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from sparsetoken.arrays import Array
from sparsetoken.theory.interpolation import ScaleRange, scale_ranges

__all__ = ["FeatureLaw", "ScoreLaw", "score_law"]

# How often the points of a class are halved for a compressed law: 128 cells.
_CUTS = 7

# What may be missing of a sum of weights.
_ROUNDING = 1e-9


class _Points:
    """Points with weights, replicate after replicate."""

    weight: Array
    replicates: int

    def by_replicate(self, values: Array) -> Array:
        """Return the weighted mean of values (n, ...) over each replicate, (replicates, ...)."""
        weights = self.weight.reshape(self.replicates, 1, -1) * self.replicates
        columns = values.reshape(self.replicates, weights.shape[2], -1)
        return np.asarray((weights @ columns).reshape(self.replicates, *values.shape[1:]))


@dataclass(frozen=True, eq=False)
class FeatureLaw(_Points):
    """Points of the law of features: their mean coordinates, their scale of noise and their label.

    A feature has k coordinates of its own and isotropic Gaussian noise of size S in all other
    directions. Where the noise of training data has lost directions because it was used before
    (docs/theory.md, section 5.6), each is a column of `removed`.

    Attributes
    ----------
    coordinates : array of shape (n, k)
        Mean of the feature along k orthogonal directions.
    scale, label, weight : arrays of shape (n,)
        S, y = ±1, and weights that sum to one.
    noisy : tuple of k booleans
        Whether there is noise of size S along that direction too, on top of the mean.
    removed : array of shape (n, r)
        What a sample's noise had along directions that are lost, in units in which the lost
        directions are orthonormal.
    spurious : int
        The last so many coordinates are nothing but noise in fresh data.
    replicates : int
        The points are that many independent approximations in a row, of equal weight; 1 if the
        law is exact.
    dimension_ratio : float
        Dimension of the features over that of a token: 1, or L for the vectorised classifier.
    further : array of shape (n,) or None
        Size of noise along the first coordinate alone; laws of training data have none.
    """

    coordinates: Array
    scale: Array
    label: Array
    weight: Array
    noisy: tuple[bool, ...]
    removed: Array
    spurious: int = 0
    replicates: int = 1
    dimension_ratio: float = 1.0
    further: Array | None = None

    @property
    def is_consistent(self) -> bool:
        """Whether shapes agree, labels are ±1 and weights sum to one."""
        size = len(self.scale)
        return (
            self.coordinates.shape == (size, len(self.noisy))
            and self.label.shape == self.weight.shape == self.removed.shape[:1] == (size,)
            and size % self.replicates == 0
            and bool(np.all(np.abs(self.label) == 1))
            and abs(float(self.weight.sum()) - 1) < _ROUNDING
        )

    @property
    def nbytes(self) -> int:
        """Size of the arrays, with those that are made when they are asked for."""
        numbers, k, lost = len(self.scale), len(self.noisy), self.removed.shape[1]
        columns = (k + 3 + lost + (self.further is not None), k + 1 + lost, k + 2 + lost, 2)
        return int(numbers * sum(columns) * self.scale.itemsize)

    @cached_property
    def signed(self) -> Array:
        """Columns that make the centre of the margin, y m + D a = signed @ (μ, b, a): (n, k+1+r)."""
        means = np.column_stack([self.coordinates, np.ones(len(self.scale))])
        return np.column_stack([self.label[:, None] * means, self.removed])

    @cached_property
    def per_scale(self) -> Array:
        """How (δ - y m - D a)/S grows with (μ, b, a, δ): (n, k+2+r)."""
        columns = np.column_stack([-self.signed, np.ones(len(self.scale))])
        return np.asarray(columns / self.scale[:, None])

    @cached_property
    def scale_ranges(self) -> tuple[ScaleRange, ...]:
        """The points sorted by scale, for tables of functions of (centre, S)."""
        return scale_ranges(self.scale)

    @cached_property
    def compressed(self) -> "FeatureLaw":
        """256 points that stand for all, to begin a solution with; itself if there are no more.

        The points of a class are cut into halves along each coordinate that varies, and along the
        scale, by turns, and each cell is replaced by its mean. What it loses is of second order in
        the width of a cell.
        """
        if len(self.scale) <= 2 * 2**_CUTS:
            return self
        kept = [_cells(np.flatnonzero(self.label == label), self) for label in (1.0, -1.0)]
        weights = [self.weight[cells] for cells in kept]

        def means(values: Array) -> Array:
            parts = [
                np.einsum("cp,cpk->ck", weight / weight.sum(axis=1, keepdims=True), values[cells])
                for cells, weight in zip(kept, weights, strict=True)
            ]
            return np.concatenate(parts)

        return replace(
            self,
            coordinates=means(self.coordinates),
            scale=np.sqrt(means(self.scale[:, None] ** 2)[:, 0]),
            label=np.repeat([1.0, -1.0], 2**_CUTS),
            weight=np.concatenate([weight.sum(axis=1) for weight in weights]),
            removed=means(self.removed),
            replicates=1,
        )

    @property
    def first_replicate(self) -> "FeatureLaw":
        """The first replicate as a law of its own."""
        size = len(self.scale) // self.replicates
        return replace(
            self,
            coordinates=self.coordinates[:size],
            scale=self.scale[:size],
            label=self.label[:size],
            weight=self.weight[:size] * self.replicates,
            removed=self.removed[:size],
            replicates=1,
            further=None if self.further is None else self.further[:size],
        )

    @property
    def own_noise(self) -> Array:
        """1 where a column of `signed` is a coordinate with noise of its own, else 0: (k+1+r,)."""
        return np.array([*self.noisy, *([False] * (1 + self.removed.shape[1]))], dtype=float)

    @property
    def penalised(self) -> Array:
        """1 where a column of `signed` is a coordinate, on which the ridge acts, else 0: (k+1+r,)."""
        lost = self.removed.shape[1]
        return np.array([*([1.0] * len(self.noisy)), *([0.0] * (1 + lost))])

    @property
    def lost(self) -> Array:
        """1 where a column of `signed` is a removed direction, else 0: (k+1+r,)."""
        return np.array([*([0.0] * (len(self.noisy) + 1)), *([1.0] * self.removed.shape[1])])


def _cells(points: Array, law: FeatureLaw) -> Array:
    """Return 2^_CUTS cells of points of one class, as rows of equal length."""
    columns = np.column_stack([law.coordinates, law.scale])[points]
    varying = np.flatnonzero(np.ptp(columns, axis=0) > 0)
    rows = np.arange(len(points))[None]
    if len(varying):
        # Along each column at once what its turns would halve.
        turns = np.bincount(np.arange(_CUTS) % len(varying), minlength=len(varying))
        for column, count in zip(varying, turns, strict=True):
            order = np.argsort(columns[rows, column], axis=1)
            rows = np.take_along_axis(rows, order, axis=1).reshape(len(rows) * 2**count, -1)
    return points[rows.reshape(2**_CUTS, -1)]


@dataclass(frozen=True, eq=False)
class ScoreLaw(_Points):
    """The law of a readout's score on fresh data: s = mean + spread G given a point.

    Attributes
    ----------
    mean, spread, label, weight : arrays of shape (n,)
        m, Sρ, y = ±1, and weights that sum to one.
    replicates : int
        As in `FeatureLaw`.
    """

    mean: Array
    spread: Array
    label: Array
    weight: Array
    replicates: int = 1


def score_law(law: FeatureLaw, weights: Array) -> ScoreLaw:
    """Return the law of the score ⟨f, w⟩ + b of fresh features with this law.

    Parameters
    ----------
    weights : array of shape (k + 2,) or (replicates, k + 2)
        The readout (μ_1 … μ_k, b, ν), or one for each replicate of the law.
    """
    rows = np.atleast_2d(weights)
    # Points of one replicate are one row of this view.
    view = (len(rows), len(law.scale) // len(rows))
    coordinates = law.coordinates.reshape(*view, len(law.noisy))
    mean = np.einsum("rnk,rk->rn", coordinates, rows[:, :-2]) + rows[:, -2:-1]
    squares = rows[:, :-2] ** 2 @ np.array(law.noisy, dtype=float) + rows[:, -1] ** 2
    spread = law.scale.reshape(view) * np.sqrt(squares)[:, None]
    if law.further is not None:
        spread = np.hypot(spread, law.further.reshape(view) * rows[:, :1])
    return ScoreLaw(mean.ravel(), spread.ravel(), law.label, law.weight, law.replicates)
