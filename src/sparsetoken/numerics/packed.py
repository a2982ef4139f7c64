"""Symmetric positive definite matrices in half the memory."""

from functools import lru_cache
from typing import Any

import numpy as np
from scipy import linalg

from sparsetoken.arrays import Array

__all__ = ["PackedMatrix"]


class PackedMatrix:
    """A symmetric d × d matrix, 0 at first, in LAPACK's rectangular full packed format.

    It takes d(d+1)/2 entries, and sums, factors and solves at the speed of a full matrix.
    """

    def __init__(self, size: int, dtype: type = np.float64) -> None:
        self.size = size
        self.entries: Array = np.zeros(size * (size + 1) // 2, dtype=dtype)

    def add_squares(self, rows: Array) -> None:
        """Add rowsᵀ rows; rows (k, d) are of the matrix's dtype."""
        update, _, _ = _routines(self.entries.dtype.char)
        self.entries = update(
            self.size, len(rows), 1.0, rows.T, 1.0, self.entries, uplo="L", overwrite_c=True
        )

    def trace(self) -> float:
        """Return the sum of the diagonal."""
        return sum(float(part.sum(dtype=float)) for part in self._diagonal())

    def shift(self, amount: float) -> None:
        """Add `amount` to the diagonal."""
        for part in self._diagonal():
            part += amount

    def factor(self) -> bool:
        """Replace the matrix by its Cholesky factor; False if it is not positive definite."""
        _, factor, _ = _routines(self.entries.dtype.char)
        self.entries, info = factor(self.size, self.entries, uplo="L", overwrite_a=True)
        return bool(info == 0 and all(np.isfinite(part).all() for part in self._diagonal()))

    def pivot_ratio(self) -> float:
        """Return the smallest squared pivot over the largest, once factored: 0 if singular."""
        pivots = np.concatenate(self._diagonal())
        return float(pivots.min() / pivots.max()) ** 2

    def solve(self, right: Array) -> Array:
        """Return the solution x (d,) of the system, once factored, in double precision."""
        _, _, solve = _routines(self.entries.dtype.char)
        column = right.astype(self.entries.dtype)[:, None]
        solution, _ = solve(self.size, self.entries, column, uplo="L", overwrite_b=True)
        return np.asarray(solution[:, 0], dtype=float)

    def _diagonal(self) -> tuple[Array, Array]:
        """Return views of the diagonal's two halves.

        The format is a rectangle with an odd number of rows (d, or d + 1 for even d), in columns.
        The halves run along diagonals of the rectangle.
        """
        rows = self.size + 1 - self.size % 2
        starts = (0, rows) if self.size % 2 else (1, 0)
        first, second = (self.entries[start :: rows + 1] for start in starts)
        return first, second


@lru_cache
def _routines(dtype: str) -> tuple[Any, Any, Any]:
    return tuple(linalg.get_lapack_funcs(("sfrk", "pftrf", "pftrs"), dtype=dtype))
