import numpy as np
import pytest

from sparsetoken.numerics.packed import PackedMatrix


def packed(rows: np.ndarray, dtype: type) -> PackedMatrix:
    matrix = PackedMatrix(rows.shape[1], dtype)
    for part in np.array_split(rows.astype(dtype), 3):
        matrix.add_squares(part)
    return matrix


@pytest.mark.parametrize("size", [1, 2, 7, 20])
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-12), (np.float32, 1e-4)])
def test_sums_and_solutions_are_those_of_the_full_matrix(
    size: int, dtype: type, tolerance: float
) -> None:
    rng = np.random.default_rng(size)
    rows, right = rng.standard_normal((3 * size, size)), rng.standard_normal(size)
    matrix = packed(rows, dtype)
    assert matrix.trace() == pytest.approx(np.sum(rows**2), rel=tolerance)
    matrix.shift(0.3)
    full = rows.T @ rows + 0.3 * np.eye(size)
    assert matrix.factor()
    assert matrix.solve(right) == pytest.approx(np.linalg.solve(full, right), rel=100 * tolerance)
    pivots = np.diag(np.linalg.cholesky(full)) ** 2
    assert matrix.pivot_ratio() == pytest.approx(pivots.min() / pivots.max(), rel=100 * tolerance)
    assert matrix.entries.nbytes == size * (size + 1) // 2 * np.dtype(dtype).itemsize


def test_a_singular_matrix_is_noticed() -> None:
    matrix = packed(np.random.default_rng(0).standard_normal((4, 9)), np.float64)
    assert not matrix.factor() or matrix.pivot_ratio() < 1e-12
    assert not PackedMatrix(3).factor()
