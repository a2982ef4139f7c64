"""Labelled feature vectors, and the few products with them that every readout solver needs.

Products accumulate in double precision whatever the features' dtype, in blocks of rows, so that no
solver ever copies the feature matrix.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from sparsetoken.arrays import Array
from sparsetoken.numerics.packed import PackedMatrix
from sparsetoken.validation import ParameterError, rectangular

__all__ = ["BorderedFactor", "Examples", "check_examples", "check_labels", "gram"]

_BLOCK_ENTRIES = 2**18


def check_examples(features: Array, labels: Array) -> tuple[Array, Array]:
    """Return features as floats and labels -1 and +1, or say what is wrong with them."""
    features = rectangular("features", features)
    if features.ndim != 2 or 0 in features.shape:
        raise ParameterError("features", features.shape, "an array of shape (n, d), not empty")
    if features.dtype.kind not in "biuf":
        raise ParameterError("dtype of features", features.dtype.name, "real numbers")
    if features.dtype not in (np.float64, np.float32):
        features = features.astype(float)
    if (
        not np.isfinite(np.einsum("nd->", features, dtype=float))
        and not np.isfinite(features).all()
    ):
        raise ParameterError("features", "nan or infinity", "finite numbers")
    return features, check_labels("labels", labels, len(features))


def check_labels(name: str, labels: ArrayLike, count: int) -> Array:
    """Return `count` labels -1 and +1 as floats, or say what is wrong with them."""
    labels = rectangular(name, labels)
    if labels.shape != (count,):
        raise ParameterError(f"shape of {name}", labels.shape, f"({count},), one a row")
    if labels.dtype.kind == "O":  # what they hold need not have an order, or may look right
        raise ParameterError(f"type of {name}", "object", "numbers -1 and +1")
    different = np.unique(labels)
    if different.dtype.kind not in "iuf" or not np.isin(different, (-1, 1)).all():
        raise ParameterError(name, different[:4].tolist(), "values -1 and +1")
    return labels.astype(float)


@dataclass(frozen=True)
class BorderedFactor:
    """The Cholesky factor of Σ c_i (f_i, 1)(f_i, 1)ᵀ + diag(shift, ..., shift, 0)."""

    factor: PackedMatrix
    border_solved: Array
    border: Array
    schur: float

    def solve(self, weights: Array, bias: float) -> tuple[Array, float]:
        """Return the solution for the right-hand side (weights, bias)."""
        inner = self.factor.solve(weights)
        change = (bias - float(self.border @ inner)) / self.schur
        return inner - change * self.border_solved, change


@dataclass(frozen=True)
class Examples:
    """Feature vectors f_i (n, d) with labels y_i = ±1 (n,) and weights p_i (n,) that sum to 1."""

    features: Array
    labels: Array
    weights: Array

    @classmethod
    def of(cls, features: Array, labels: Array, sample_weight: Array | None = None) -> Self:
        """Normalise the sample weights (equal if not given) and drop samples of weight 0."""
        labels = np.asarray(labels, dtype=float)
        if sample_weight is None:
            return cls(features, labels, np.full(len(labels), 1 / len(labels)))
        weights = np.asarray(sample_weight, dtype=float)
        weights = weights / weights.sum()
        if not np.all(weights > 0):
            kept = weights > 0
            features, labels, weights = features[kept], labels[kept], weights[kept]
        return cls(features, labels, weights)

    @property
    def shape(self) -> tuple[int, int]:
        """The number of samples and of features."""
        n, d = self.features.shape
        return n, d

    def margins(self, weights: Array, bias: float) -> Array:
        """Return y_i(⟨f_i, w⟩ + b)."""
        return np.asarray(self.labels * (self.scores(weights) + bias))

    def scores(self, weights: Array) -> Array:
        """Return ⟨f_i, w⟩."""
        if self.features.dtype == np.float64:
            return np.asarray(self.features @ weights)
        result = np.empty(len(self.features))
        for part in _parts(self.features, len(self.features)):
            result[part] = self.features[part].astype(float) @ weights
        return result

    def total(self, coefficients: Array) -> tuple[Array, float]:
        """Return Σ_i c_i (f_i, 1)."""
        if self.features.dtype == np.float64:
            return np.asarray(coefficients @ self.features), float(coefficients.sum())
        result = np.zeros(self.shape[1])
        for part in _parts(self.features, len(self.features)):
            result += coefficients[part] @ self.features[part].astype(float)
        return result, float(coefficients.sum())

    def gram_times(self, coefficients: Array, point: Array) -> Array:
        """Return Σ_i c_i (f_i, 1)⟨(f_i, 1), point⟩, with one passage over the features."""
        result = np.zeros(len(point))
        for part in _parts(self.features, len(self.features)):
            block = self.features[part].astype(float, copy=False)
            shares = coefficients[part] * (block @ point[:-1] + point[-1])
            result[:-1] += shares @ block
            result[-1] += shares.sum()
        return result

    def signed_total(self, coefficients: Array) -> tuple[Array, float]:
        """Return Σ_i c_i y_i (f_i, 1)."""
        return self.total(coefficients * self.labels)

    def factor(
        self, coefficients: Array, ridge: float, floor: float, dtype: type = np.float64
    ) -> BorderedFactor | None:
        """Factor Σ_i c_i (f_i, 1)(f_i, 1)ᵀ + shift on the features; None if it is singular.

        The shift is the ridge and `floor` times the mean eigenvalue of the features' part, or times
        1 if all features are 0.
        """
        matrix = gram(self.features, coefficients, dtype)
        matrix.shift(ridge + floor * (matrix.trace() / matrix.size or 1.0))
        border, corner = self.total(coefficients)
        if not matrix.factor():
            return None
        solved = matrix.solve(border)
        schur = corner - float(border @ solved)
        if not schur > 1e-15 * corner:
            return None
        return BorderedFactor(matrix, solved, border, schur)


def gram(features: Array, coefficients: Array, dtype: type = np.float64) -> PackedMatrix:
    """Return Σ_i c_i f_i f_iᵀ over the rows f_i of `features`, with c_i >= 0."""
    result = PackedMatrix(features.shape[1], dtype)
    roots = np.sqrt(coefficients)
    chosen = np.flatnonzero(roots)
    for part in _parts(features, chosen.size):
        rows = chosen[part]
        contiguous = rows[-1] - rows[0] + 1 == rows.size
        block = features[slice(rows[0], rows[-1] + 1) if contiguous else rows]
        scaled: Array = np.empty(block.shape, dtype)
        result.add_squares(np.multiply(block, roots[rows, None], out=scaled, casting="same_kind"))
    return result


def _parts(features: Array, count: int) -> Iterator[slice]:
    """Yield slices of `count` rows that take a small part of the features' memory."""
    n, d = features.shape
    size = max(1, min(_BLOCK_ENTRIES, max(n * d // 32, 2**14)) // d)
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))
