"""Small data sets with a known signal, in every form of input."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from sparsetoken.arrays import Array


@dataclass(frozen=True)
class Bags:
    """Positive bags hold one token moved by `strength` along the first axis."""

    X: list[Array]
    y: Array
    positions: Array

    @property
    def padded(self) -> tuple[Array, Array]:
        """Zero-padded array and mask."""
        longest = max(map(len, self.X))
        array = np.zeros((len(self.X), longest, self.X[0].shape[1]), dtype=self.X[0].dtype)
        mask = np.zeros((len(self.X), longest), dtype=bool)
        for row, bag in enumerate(self.X):
            array[row, : len(bag)] = bag
            mask[row, : len(bag)] = True
        return array, mask


def make_bags(
    count: int = 160,
    lengths: tuple[int, int] = (3, 9),
    dimension: int = 5,
    strength: float = 6.0,
    seed: int = 0,
    dtype: Any = np.float64,
) -> Bags:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(lengths[0], lengths[1] + 1, size=count)
    y = rng.permutation(np.arange(count) % 2)
    positions = np.where(y == 1, rng.integers(0, sizes), -1)
    X = [rng.standard_normal((size, dimension)).astype(dtype) for size in sizes]
    for bag, position in zip(X, positions, strict=True):
        if position >= 0:
            bag[position, 0] += strength
    return Bags(X, y, positions)


def equal_bags(count: int = 160, length: int = 6, **options: Any) -> tuple[Array, Array, Array]:
    bags = make_bags(count, (length, length), **options)
    return np.stack(bags.X), bags.y, bags.positions
