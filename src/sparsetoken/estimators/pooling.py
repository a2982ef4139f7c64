"""From scores of tokens to weights of tokens, sequence by sequence, for many heads at once.

Arrays of scores and weights have the shape (heads, N): one row a head, the block's tokens along it.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit

from sparsetoken.arrays import Array
from sparsetoken.estimators.sequences import Block
from sparsetoken.learning.features import NONLINEARITIES

__all__ = ["Elementwise", "Pooling", "Softmax", "segment_sums"]

# e^30 outweighs any number of tokens, and its square does not overflow in single precision.
EXPONENT_CAP = 30.0


class Pooling(ABC):
    """The map from the scores s = X q of a sequence's tokens to their weights p in f = Xᵀ p."""

    @property
    @abstractmethod
    def holds_mean(self) -> bool:
        """Whether q = 0 is mean pooling, but for a factor."""

    @property
    def holds_extremes(self) -> bool:
        """Whether a head of infinite sharpness reads one token alone."""
        return False

    @abstractmethod
    def weights(self, scores: Array, block: Block) -> Array:
        """Return the weights p, of the scores' shape."""

    @abstractmethod
    def pull_back(
        self, scores: Array, weights: Array, values: Array, pooled: Array, block: Block
    ) -> Array:
        """Return the derivative of Σ_l p_l v_l (which is `pooled`) in each score."""


class Softmax(Pooling):
    """p = softmax(s) over the tokens of a sequence."""

    @property
    def holds_mean(self) -> bool:
        """Whether q = 0 is mean pooling: it is."""
        return True

    @property
    def holds_extremes(self) -> bool:
        """Whether a head of infinite sharpness reads one token alone: it does."""
        return True

    def weights(self, scores: Array, block: Block) -> Array:
        """Return softmax(s), sequence by sequence."""
        peaks = np.maximum.reduceat(scores, block.starts, axis=-1)
        powers = np.exp(scores - np.repeat(peaks, block.lengths, axis=-1))
        totals = np.add.reduceat(powers, block.starts, axis=-1)
        powers /= np.repeat(totals, block.lengths, axis=-1)
        return np.asarray(powers)

    def pull_back(
        self, scores: Array, weights: Array, values: Array, pooled: Array, block: Block
    ) -> Array:
        """Return p (v - Σ p v)."""
        del scores
        return np.asarray(weights * (values - np.repeat(pooled, block.lengths, axis=-1)))


@dataclass(frozen=True)
class Elementwise(Pooling):
    """p = σ(s)/L, token by token."""

    nonlinearity: str = "sigmoid"

    @property
    def holds_mean(self) -> bool:
        """Whether σ(0) is not 0."""
        return self.nonlinearity in ("sigmoid", "exp")

    def weights(self, scores: Array, block: Block) -> Array:
        """Return σ(s)/L."""
        return np.asarray(self._value(scores) * _inverse_lengths(block, scores.dtype))

    def pull_back(
        self, scores: Array, weights: Array, values: Array, pooled: Array, block: Block
    ) -> Array:
        """Return σ'(s) v/L."""
        del weights, pooled
        return np.asarray(self._slope(scores) * values * _inverse_lengths(block, scores.dtype))

    def _value(self, scores: Array) -> Array:
        if self.nonlinearity == "exp":
            # Beyond the cap a token outweighs all others by any measure; overflow would end the fit.
            scores = np.minimum(scores, EXPONENT_CAP)
        return np.asarray(NONLINEARITIES[self.nonlinearity](scores))

    def _slope(self, scores: Array) -> Array:
        if self.nonlinearity == "sigmoid":
            return np.asarray(expit(scores) * expit(-scores))
        if self.nonlinearity == "tanh":
            return np.asarray(1 - np.tanh(scores) ** 2)
        if self.nonlinearity == "linear":
            return np.ones_like(scores)
        return np.asarray(np.where(scores < EXPONENT_CAP, self._value(scores), 0))


def segment_sums(values: Array, block: Block, axis: int = -1) -> Array:
    """Return the sums over the tokens of each sequence."""
    return np.asarray(np.add.reduceat(values, block.starts, axis=axis))


def _inverse_lengths(block: Block, dtype: Any) -> Array:
    return np.repeat((1 / block.lengths).astype(dtype), block.lengths)
