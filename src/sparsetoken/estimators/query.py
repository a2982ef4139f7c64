"""Standardised tokens and the two gradient steps to a query (docs/theory.md, section 3).

Tokens are never standardised in memory. All that is computed from them is linear in the tokens, so
that location μ and scale σ are folded into the vectors instead: ⟨(x - μ)/σ, w⟩ = ⟨x, w/σ⟩ - ⟨μ, w/σ⟩.
"""

from dataclasses import dataclass

import numpy as np

from sparsetoken.arrays import Array
from sparsetoken.estimators.pooling import segment_sums
from sparsetoken.estimators.sequences import Sequences
from sparsetoken.losses import Loss

__all__ = ["Scaler", "first_pass", "pooled_sums", "query_pass", "spread"]


@dataclass(frozen=True)
class Scaler:
    """Location μ and scale σ of the tokens, coordinate by coordinate.

    Attributes
    ----------
    location, scale : arrays of shape (d,)
    """

    location: Array
    scale: Array

    def scores(self, vectors: Array, tokens: Array) -> Array:
        """Return ⟨(x - μ)/σ, v⟩ for each vector and token: (H, d), (N, d) → (H, N)."""
        scaled = vectors / self.scale
        constants = scaled @ self.location
        result = scaled.astype(tokens.dtype) @ tokens.T
        result -= constants[:, None].astype(tokens.dtype)
        return np.asarray(result)

    def weighted_sums(self, weights: Array, tokens: Array) -> Array:
        """Return Σ_l a_l (x_l - μ)/σ for each row of weights: (H, N), (N, d) → (H, d)."""
        sums = np.asarray(weights @ tokens, dtype=float)
        totals = weights.sum(axis=1, dtype=float)
        return np.asarray((sums - totals[:, None] * self.location) / self.scale)


def first_pass(
    sequences: Sequences, token_weights: Array, coefficients: Array
) -> tuple[Scaler, Array]:
    """Read the data once: return the scaler and Σ_i c_i f̄_i in standardised coordinates.

    Parameters
    ----------
    token_weights : array of shape (n,)
        Weight of each token of a sample in μ and σ².
    coefficients : array of shape (K, n)
        c, one row for each sum wanted; f̄_i is the mean of sample i's tokens.

    Returns
    -------
    scaler : Scaler
    sums : array of shape (K, d)
    """
    dimension = sequences.dimension
    rows = np.vstack([token_weights, coefficients / sequences.lengths])
    sums = np.zeros((len(rows), dimension))
    squares = np.zeros(dimension)
    shift: Array | None = None
    unit = np.ones(dimension)
    buffer = np.empty((0, dimension), dtype=sequences.dtype)
    for block in sequences.blocks():
        if shift is None:  # sums of squares are taken about a nearby point, not to lose digits
            shift = block.tokens[: block.lengths[0]].mean(axis=0)
            if not np.all(np.isfinite(shift)):
                sequences.require_finite(block)
            unit = _unit(block.tokens - shift)
        spread_out = np.repeat(rows[:, block.samples], block.lengths, axis=1)
        spread_out = spread_out.astype(sequences.dtype)
        if len(buffer) < len(block.tokens):
            buffer = np.empty_like(block.tokens)
        shifted = np.subtract(block.tokens, shift, out=buffer[: len(block.tokens)])
        if np.any(unit != 1):
            shifted /= unit
        part = spread_out @ shifted
        if not np.all(np.isfinite(part)):
            sequences.require_finite(block)
        sums += part
        np.square(shifted, out=shifted)
        squares += spread_out[0] @ shifted
    assert shift is not None
    total = float(token_weights @ sequences.lengths)
    offset = sums[0] / total
    location = offset * unit + shift
    deviation = np.sqrt(np.maximum(squares / total - offset**2, 0.0))
    # A coordinate that varies by rounding alone is constant.
    constant = deviation * unit <= 4 * np.finfo(sequences.dtype).eps * np.abs(location)
    deviation = np.where(constant, 1 / unit, deviation)
    centred = sums[1:] - coefficients.sum(axis=1)[:, None] * offset
    return Scaler(location, deviation * unit), centred / deviation


def _unit(tokens: Array) -> Array:
    """Return a unit for each coordinate, of shape (d,): 1 unless squares could leave the range."""
    largest = np.abs(tokens).max(axis=0)
    extreme = (largest > 1e12) | ((largest < 1e-12) & (largest > 0))
    return np.where(extreme, largest, 1).astype(tokens.dtype)


def pooled_sums(sequences: Sequences, scaler: Scaler, coefficients: Array) -> Array:
    """Return Σ_i c_i f̄_i in standardised coordinates, of shape (d,), for c of shape (n,)."""
    total = np.zeros((1, sequences.dimension))
    shares = (coefficients / sequences.lengths).astype(sequences.dtype)
    for block in sequences.blocks():
        weights = np.repeat(shares[block.samples], block.lengths)
        total += scaler.weighted_sums(weights[None], block.tokens)
    return np.asarray(total[0])


def query_pass(
    sequences: Sequences,
    labels: Array,
    weights: Array,
    scaler: Scaler,
    first_weights: Array,
    loss: Loss,
    offset: Array | float = 0.0,
) -> Array:
    """Read the data once: return stages 2 and 3, the query's direction (not its length).

    q ∝ -Σ_i ω_i h_i (1/L_i) X_iᵀ (I - 11ᵀ/L_i) X_i w with h_i = y_i ℓ'(y_i(o_i + ⟨f̄_i, w⟩)).

    Parameters
    ----------
    labels : array of shape (n,), values -1 and +1
    weights : array of shape (n,), ω
    first_weights : array of shape (d,)
        Stage 1's w, in standardised coordinates.
    offset : array of shape (n,) or number
        o, the decision of the heads found before.
    """
    total = np.zeros(sequences.dimension)
    offset = np.broadcast_to(offset, labels.shape)
    for block in sequences.blocks():
        scores = scaler.scores(first_weights[None], block.tokens)[0]
        pooled = segment_sums(scores, block) / block.lengths
        y = labels[block.samples]
        slopes = weights[block.samples] * y * loss.slope(y * (offset[block.samples] + pooled))
        centred = scores - np.repeat(pooled.astype(scores.dtype), block.lengths)
        centred *= np.repeat((slopes / block.lengths).astype(scores.dtype), block.lengths)
        total -= centred @ block.tokens  # the weights sum to zero over a sequence: no μ
    return np.asarray(total / scaler.scale)


def spread(sequences: Sequences, scaler: Scaler, query: Array) -> float:
    """Return the standard deviation of the scores ⟨x, q⟩ about their sequence's mean."""
    total = 0.0
    for block in sequences.blocks():
        scores = scaler.scores(query[None], block.tokens)[0]
        means = (segment_sums(scores, block) / block.lengths).astype(scores.dtype)
        centred = scores - np.repeat(means, block.lengths)
        total += float(centred @ centred)
    return float(np.sqrt(total / sequences.lengths.sum()))
