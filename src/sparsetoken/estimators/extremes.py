"""Maxima and minima of single coordinates, and what each token has to do with them.

The maximum of coordinate c over a sequence is what attention reads with the query κ e_c, κ → ∞, and
the readout e_c. All 2 d such heads together are held here as two rows of weights; coordinates are
standardised and never whitened, so that they are those of the tokens.
"""

from dataclasses import dataclass

import numpy as np

from sparsetoken.arrays import Array
from sparsetoken.estimators.sequences import Block

__all__ = ["coordinate_extremes", "extreme_evidence", "extreme_shares"]


def coordinate_extremes(block: Block) -> Array:
    """Return the maxima, then the minima, of each coordinate over each sequence: (k, 2 d)."""
    return np.concatenate(
        [
            reduce.reduceat(block.tokens, block.starts, axis=0)
            for reduce in (np.maximum, np.minimum)
        ],
        axis=1,
    )


def extreme_evidence(block: Block, location: Array, weights: Array) -> Array:
    """Return by how much Σ_c u_c max_l x_lc + Σ_c v_c min_l x_lc falls without each token: (N,).

    Without token l a maximum falls to the second largest value if l alone attains it. A sequence of
    one token is compared with an empty one, whose extremes are the location μ.

    Parameters
    ----------
    location : array of shape (d,), μ
    weights : array of shape (2, d), u and v, in the tokens' own units
    """
    total = np.zeros(len(block.tokens))
    for sign, row in zip((1, -1), weights, strict=True):
        tops = _tops(block, sign)
        # min x = -max(-x), so that the weights of minima change sign.
        falls = tops.falls(block, sign * location) * (sign * row)
        total += np.einsum("nc,nc->n", tops.attained, np.repeat(falls, block.lengths, axis=0))
    return total


def extreme_shares(block: Block, weights: Array) -> Array:
    """Return Σ_c |u_c| (max_l x_lc - mean_l x_lc) over the extremes that each token attains: (N,).

    That is how far the token pulls the readout away from the mean, minima likewise; ties share.
    """
    total = np.zeros(len(block.tokens))
    for sign, row in zip((1, -1), np.abs(weights), strict=True):
        tops = _tops(block, sign)
        means = np.add.reduceat(sign * block.tokens, block.starts, axis=0) / block.lengths[:, None]
        pulls = np.maximum(tops.values - means, 0.0) * row / tops.ties
        total += np.einsum("nc,nc->n", tops.attained, np.repeat(pulls, block.lengths, axis=0))
    return total


@dataclass(frozen=True)
class _Tops:
    """Maxima (k, d) of ±x, which tokens attain them (N, d), by how many (k, d), and the runners-up."""

    values: Array
    attained: Array
    ties: Array
    second: Array

    def falls(self, block: Block, empty: Array) -> Array:
        """Return by how much each maximum falls without the token that attains it: (k, d)."""
        second = np.where((block.lengths == 1)[:, None], empty, self.second)
        return np.subtract(self.values, second, out=np.zeros(second.shape), where=self.ties == 1)


def _tops(block: Block, sign: int) -> _Tops:
    tokens = sign * block.tokens
    values = np.maximum.reduceat(tokens, block.starts, axis=0)
    attained = tokens == np.repeat(values, block.lengths, axis=0)
    ties = np.add.reduceat(attained.astype(float), block.starts, axis=0)
    second = np.maximum.reduceat(np.where(attained, -np.inf, tokens), block.starts, axis=0)
    return _Tops(values, attained, ties, second)
