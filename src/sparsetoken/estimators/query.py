"""The two gradient steps to a query (docs/theory.md, section 3), for many problems in one pass."""

import numpy as np

from sparsetoken.arrays import Array
from sparsetoken.estimators.pooling import segment_sums
from sparsetoken.estimators.scaling import Scaler
from sparsetoken.estimators.sequences import Block, Sequences
from sparsetoken.losses import Loss

__all__ = ["first_coefficients", "pooled_sums", "query_pass", "spreads", "two_step_directions"]


def two_step_directions(
    sequences: Sequences,
    labels: Array,
    weights: Array,
    scaler: Scaler,
    loss: Loss,
    *,
    firsts: Array | None = None,
    offsets: Array | None = None,
    units: Array | None = None,
) -> Array:
    """Return each problem's query after stages 1 to 3, scaled so that scores spread by one: (P, d).

    The classes are balanced in these stages, whatever their weights: the query of rare positives
    would else point away from the signal (docs/theory.md, section 4).

    Parameters
    ----------
    labels, weights : arrays of shape (P, n)
    firsts : array of shape (P, d), optional
        Stage 1's readouts of balanced classes, if they are known already.
    offsets : array of shape (P, n), optional
        Decisions of the heads found before.
    units : array of shape (P, d), optional
        Standard deviations of standardised tokens, by which each problem standardises its own again.
    """
    squares = 1.0 if units is None else units**2  # once for the sums, once for what they multiply
    balanced = balanced_weights(labels, weights)
    if firsts is None:
        coefficients = first_coefficients(labels, balanced, loss, offsets)
        firsts = pooled_sums(sequences, scaler, coefficients) / squares
    queries = query_pass(sequences, labels, balanced, scaler, firsts, loss, offsets) / squares
    scale = spreads(sequences, scaler, queries, weights)[:, None]
    return np.divide(queries, scale, out=np.zeros_like(queries), where=scale > 0)


def balanced_weights(labels: Array, weights: Array) -> Array:
    """Return the weights (..., n) rescaled so that either class has half of the total."""
    positive = labels > 0
    share = np.sum(weights * positive, axis=-1, keepdims=True)
    total = np.sum(weights, axis=-1, keepdims=True)
    return np.asarray(0.5 * weights / np.where(positive, share, total - share))


def first_coefficients(
    labels: Array, weights: Array, loss: Loss, offsets: Array | None = None
) -> Array:
    """Return c such that stage 1's readout is Σ c_i f̄_i: -ω_i y_i ℓ'(y_i o_i)."""
    margins = np.zeros_like(labels) if offsets is None else labels * offsets
    return -weights * labels * loss.slope(margins)


def pooled_sums(sequences: Sequences, scaler: Scaler, coefficients: Array) -> Array:
    """Return Σ_i c_i f̄_i in standardised coordinates, (P, d), for c of shape (P, n)."""
    shares = (coefficients / sequences.lengths).astype(sequences.dtype)
    (totals,) = sequences.sums(_pooled_sums, (shares,), scaler)
    return np.asarray(totals)


def _pooled_sums(block: Block, shares: Array, scaler: Scaler) -> tuple[Array]:
    weights = np.repeat(shares, block.lengths, axis=1)
    return (scaler.weighted_sums(weights, block.tokens),)


def query_pass(
    sequences: Sequences,
    labels: Array,
    weights: Array,
    scaler: Scaler,
    firsts: Array,
    loss: Loss,
    offsets: Array | None = None,
) -> Array:
    """Read the data once: return stages 2 and 3, the queries' directions (not their lengths): (P, d).

    q ∝ -Σ_i ω_i h_i (1/L_i) X_iᵀ (I - 11ᵀ/L_i) X_i w with h_i = y_i ℓ'(y_i(o_i + ⟨f̄_i, w⟩)).

    Parameters
    ----------
    labels, weights : arrays of shape (P, n), y (values -1 and +1) and ω
    firsts : array of shape (P, d)
        Stage 1's w, in standardised coordinates.
    offsets : array of shape (P, n), optional
        o, the decisions of the heads found before.
    """
    factors = weights * labels / sequences.lengths
    (totals,) = sequences.sums(_query_sums, (labels, factors, offsets), scaler, firsts, loss)
    return scaler.standardised(totals)


def _query_sums(
    block: Block,
    labels: Array,
    factors: Array,
    offsets: Array | None,
    scaler: Scaler,
    firsts: Array,
    loss: Loss,
) -> tuple[Array]:
    scores = scaler.scores(firsts, block.tokens)
    decisions = pooled = segment_sums(scores, block) / block.lengths
    if offsets is not None:
        decisions = pooled + offsets
    slopes = factors * loss.slope(labels * decisions)
    scores -= np.repeat(pooled.astype(scores.dtype), block.lengths, axis=1)
    scores *= np.repeat(slopes.astype(scores.dtype), block.lengths, axis=1)
    # The weights sum to zero over a sequence: no μ.
    return (-np.asarray(scores @ block.tokens, dtype=float),)


def spreads(sequences: Sequences, scaler: Scaler, queries: Array, weights: Array) -> Array:
    """Return the standard deviations of the scores ⟨x, q⟩ about their sequence's mean: (P,).

    Every token counts with the weight of its sample, of shape (P, n) or (n,).
    """
    weights = np.broadcast_to(weights, (len(queries), len(sequences)))
    (totals,) = sequences.sums(_squared_spreads, (weights,), scaler, queries)
    return np.asarray(np.sqrt(totals / (weights @ sequences.lengths)))


def _squared_spreads(block: Block, weights: Array, scaler: Scaler, queries: Array) -> tuple[Array]:
    scores = scaler.scores(queries, block.tokens)
    means = (segment_sums(scores, block) / block.lengths).astype(scores.dtype)
    centred = scores - np.repeat(means, block.lengths, axis=1)
    return (np.einsum("pk,pk->p", segment_sums(centred**2, block), weights),)
