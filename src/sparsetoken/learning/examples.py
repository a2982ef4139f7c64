"""Labelled feature vectors, and the few products with them that every readout solver needs.

Products accumulate in double precision whatever the features' dtype, in blocks of rows, so that no
solver ever copies the feature matrix.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy import linalg

from sparsetoken.arrays import Array

__all__ = ["BorderedFactor", "Examples"]

BLOCK_ENTRIES = 2**18


@dataclass(frozen=True)
class BorderedFactor:
    """The Cholesky factor of Σ c_i (f_i, 1)(f_i, 1)ᵀ + diag(shift, ..., shift, 0)."""

    factor: Array
    border_solved: Array
    border: Array
    schur: float

    def solve(self, weights: Array, bias: float) -> tuple[Array, float]:
        """Return the solution for the right-hand side (weights, bias)."""
        inner = linalg.cho_solve(
            (self.factor, False), weights.astype(self.factor.dtype), check_finite=False
        ).astype(float)
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
        for part in self._parts():
            result[part] = self.features[part].astype(float) @ weights
        return result

    def total(self, coefficients: Array) -> tuple[Array, float]:
        """Return Σ_i c_i (f_i, 1)."""
        if self.features.dtype == np.float64:
            return np.asarray(coefficients @ self.features), float(coefficients.sum())
        result = np.zeros(self.shape[1])
        for part in self._parts():
            result += coefficients[part] @ self.features[part].astype(float)
        return result, float(coefficients.sum())

    def signed_total(self, coefficients: Array) -> tuple[Array, float]:
        """Return Σ_i c_i y_i (f_i, 1)."""
        return self.total(coefficients * self.labels)

    def gram(self, coefficients: Array, dtype: type = np.float64) -> Array:
        """Return the upper triangle of Σ_i c_i f_i f_iᵀ (c_i >= 0), in Fortran order."""
        d = self.shape[1]
        rank_update = linalg.get_blas_funcs("syrk", dtype=np.dtype(dtype))
        result: Array = np.zeros((d, d), dtype=dtype, order="F")
        roots = np.sqrt(coefficients)
        rows = np.flatnonzero(roots)
        for part in self._parts(rows.size):
            chosen = rows[part]
            contiguous = chosen[-1] - chosen[0] + 1 == chosen.size
            block = self.features[slice(chosen[0], chosen[-1] + 1) if contiguous else chosen]
            scaled = block * roots[chosen, None]
            result = rank_update(
                1.0, scaled.astype(dtype, copy=False).T, beta=1.0, c=result, overwrite_c=True
            )
        return result

    def factor(
        self, coefficients: Array, shift: float, dtype: type = np.float64
    ) -> BorderedFactor | None:
        """Factor Σ_i c_i (f_i, 1)(f_i, 1)ᵀ + shift on the features; None if it is singular."""
        matrix = self.gram(coefficients, dtype)
        border, corner = self.total(coefficients)
        matrix[np.diag_indices(len(matrix))] += shift
        try:
            factor, _ = linalg.cho_factor(matrix, overwrite_a=True, check_finite=False)
        except linalg.LinAlgError:
            return None
        solved = linalg.cho_solve(
            (factor, False), border.astype(factor.dtype), check_finite=False
        ).astype(float)
        schur = corner - float(border @ solved)
        if not schur > 1e-15 * corner:
            return None
        return BorderedFactor(factor, solved, border, schur)

    def _parts(self, count: int | None = None) -> Iterator[slice]:
        n, d = self.shape
        size = max(1, min(BLOCK_ENTRIES, max(n * d // 32, 2**14)) // d)
        for start in range(0, n if count is None else count, size):
            yield slice(start, min(start + size, n if count is None else count))
