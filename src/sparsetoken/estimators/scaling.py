"""Standardised tokens, without ever standardising them in memory.

All that is computed from tokens is linear in them, so that location μ, scale σ and whitening M are
folded into the vectors instead: ⟨M (x - μ)/σ, w⟩ = ⟨x, (Mᵀ w)/σ⟩ - ⟨μ, (Mᵀ w)/σ⟩.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import linalg

from sparsetoken.arrays import Array
from sparsetoken.estimators.sequences import Block, Sequences, as_sequences

__all__ = [
    "Scaler",
    "TokenMoments",
    "are_correlated",
    "constant_coordinates",
    "first_pass",
    "in_plain_units",
    "outlying",
    "smallest_deviation",
    "token_moments",
    "whitened",
]

# Small enough that tokens and their squares stay in the processor's cache together.
SCRATCH_BYTES = 2**19
# Up to so many vectors, products with a block of tokens are faster one by one than all at once.
FEW_VECTORS = 4
# Tokens whose directions are fewer than d by this factor may gain from whitening.
WHITENING_PAYS_FROM = 1.5
# So many times the deviation of their bulk, tokens hide what the bulk says: of the real sets that were
# tried the widest has 2.8 in half of its coordinates (with a kernel 3.9), digits with a narrow kernel have 6,
# and one token in a thousand that is 1,000 times as large as the rest makes 31.
OUTLYING_FROM = 15.0
# The bulk is seen in about so many numbers, and at least in so many tokens.
BULK_NUMBERS = 2**16
BULK_TOKENS = 256
# The median distance from the median of a normal law, in standard deviations.
NORMAL_MEDIAN_DISTANCE = 0.6745


@dataclass(frozen=True)
class Scaler:
    """Location μ and scale σ of the tokens, coordinate by coordinate, and perhaps a whitening M.

    Attributes
    ----------
    location, scale : arrays of shape (d,)
    whitening : symmetric array of shape (d, d), or None for the identity
    constant : boolean array of shape (d,), or None for none
        The coordinates that vary by rounding alone; their scale is 1, and no readout may look at them.
    """

    location: Array
    scale: Array
    whitening: Array | None = None
    constant: Array | None = None

    def scores(self, vectors: Array, tokens: Array) -> Array:
        """Return ⟨M (x - μ)/σ, v⟩ for each vector and token: (H, d), (N, d) → (H, N)."""
        return self.scorer(vectors, tokens.dtype)(tokens)

    def scorer(self, vectors: Array, dtype: Any) -> Callable[[Array], Array]:
        """Return `scores` for these vectors as a function of tokens, to be called block by block."""
        scaled = self.in_token_units(vectors)
        constants = (scaled @ self.location)[:, None].astype(dtype)
        scaled = scaled.astype(dtype)

        def scores(tokens: Array) -> Array:
            result = np.empty((len(scaled), len(tokens)), dtype=tokens.dtype)
            if len(scaled) <= FEW_VECTORS:
                for row, vector in zip(result, scaled, strict=True):
                    np.matmul(tokens, vector, out=row)
            else:
                np.matmul(scaled, tokens.T, out=result)
            result -= constants
            return result

        return scores

    def weighted_sums(self, weights: Array, tokens: Array) -> Array:
        """Return Σ_l a_l M (x_l - μ)/σ for each row of weights: (H, N), (N, d) → (H, d)."""
        sums = np.asarray(weights @ tokens, dtype=float)
        totals = weights.sum(axis=1, dtype=float)
        return self.standardised(sums - totals[:, None] * self.location)

    def in_token_units(self, vectors: Array) -> Array:
        """Return (Mᵀ v)/σ for each row v: what to multiply plain tokens with."""
        mixed = vectors if self.whitening is None else vectors @ self.whitening
        return np.asarray(mixed / self.scale)

    def standardised(self, differences: Array) -> Array:
        """Return M δ/σ for each row δ, a difference of tokens."""
        scaled = differences / self.scale
        return np.asarray(scaled if self.whitening is None else scaled @ self.whitening)


def smallest_deviation(dtype: Any) -> float:
    """Return the smallest unit: weights in smaller ones would leave what floats hold."""
    return 2.0**10 * float(np.finfo(dtype).tiny)


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
    rows = np.vstack([token_weights, coefficients / sequences.lengths])
    origin, unit, sums = _weighted_moments(sequences, rows)
    total = float(token_weights @ sequences.lengths)
    offset = sums[0] / total
    location = offset * unit + origin
    deviation = np.sqrt(np.maximum(sums[-1] / total - offset**2, 0.0))
    # A coordinate that varies by rounding alone is constant.
    rounding = 4 * np.finfo(sequences.dtype).eps * np.abs(location)
    constant = deviation * unit <= np.maximum(rounding, smallest_deviation(sequences.dtype))
    deviation = np.where(constant, 1 / unit, deviation)
    centred = sums[1:-1] - coefficients.sum(axis=1)[:, None] * offset
    return Scaler(location, deviation * unit, constant=constant), centred / deviation


def constant_coordinates(sequences: Sequences) -> Array:
    """Return which coordinates are the same, but for rounding, in all tokens: (d,)."""
    first = next(iter(sequences.blocks())).tokens[0]
    margin = 4 * np.finfo(sequences.dtype).eps * np.abs(first)
    constant = np.ones(sequences.dimension, dtype=bool)
    for block in sequences.blocks():
        left = np.flatnonzero(constant)
        if not len(left):
            break
        apart = np.abs(block.tokens[:, left] - first[left])
        constant[left] = np.all(apart <= margin[left], axis=0)
    return constant


def in_plain_units(X: Any) -> Any:
    """Return the samples, in units of a power of two if their squares would leave what floats hold.

    All of them must be finite. Our classifiers take any units by themselves; kernels do not.
    """
    sequences, largest = as_sequences(X), 0.0
    for block in sequences.blocks():  # here samples still have the numbers that the caller knows
        sequences.require_finite(block)
        largest = max(largest, float(np.abs(block.tokens).max()))
    limits = np.finfo(sequences.dtype)
    if largest == 0 or float(limits.tiny) ** 0.25 <= largest <= float(limits.max) ** 0.25:
        return X
    power = -int(np.frexp(largest)[1])
    if hasattr(X, "ndim"):
        return np.ldexp(X, power)
    return [np.ldexp(np.asarray(sample), power) for sample in X]


@dataclass(frozen=True)
class TokenMoments:
    """Moments of standardised tokens x, each with the weight of its sample.

    Attributes
    ----------
    correlation : array of shape (d, d), E x xᵀ
    fourth : float, E ‖x‖⁴
    distinct : int
        How many tokens differ: those that come up again are no independent evidence.
    """

    correlation: Array
    fourth: float
    distinct: int

    @property
    def chance(self) -> float:
        """By how much chance raises ‖E x xᵀ‖², the squares of all entries together."""
        return max(self.fourth - float(np.sum(self.correlation**2)), 0.0) / self.distinct


def token_moments(sequences: Sequences, weights: Array, scaler: Scaler) -> TokenMoments:
    """Return the moments of evenly spaced tokens, at most 10,000 and ten for each dimension.

    Parameters
    ----------
    weights : array of shape (n,)
        Weight of each token of a sample.
    """
    total, d = int(sequences.lengths.sum()), sequences.dimension
    every = max(1, -(-total // (10_000 + 10 * d)))
    parts, shares, start = [], [], 0
    for block in sequences.blocks():
        chosen = slice(-start % every, None, every)
        parts.append(scaler.standardised(block.tokens[chosen] - scaler.location))
        shares.append(np.repeat(weights[block.samples], block.lengths)[chosen])
        start += len(block.tokens)
    tokens, share = np.concatenate(parts), np.concatenate(shares)
    share = share / share.sum()
    # One direction tells tokens apart.
    projections = tokens @ np.cos(np.arange(1.0, d + 1))
    squares = np.vecdot(tokens, tokens)
    tokens *= np.sqrt(share)[:, None]
    return TokenMoments(
        tokens.T @ tokens,
        float(share @ squares**2),
        len(np.unique(np.round(projections[share > 0], 6))),
    )


def are_correlated(moments: TokenMoments) -> bool:
    """Whether a few directions hold most of the variance of standardised tokens.

    (Σ λ)²/Σ λ² of the eigenvalues of their correlation matrix counts the directions; Σ λ² is taken
    without the part that chance adds.
    """
    squares = float(np.sum(moments.correlation**2)) - moments.chance
    return squares > WHITENING_PAYS_FROM * len(moments.correlation)


def whitened(scaler: Scaler, moments: TokenMoments) -> Scaler:
    """Return the scaler that also whitens.

    M = ((1 - ρ) R + ρ I)^(-1/2) with the correlation matrix R and Ledoit and Wolf's shrinkage ρ.
    That falls like one over the number of independent tokens, so that tokens which come up again
    count once, lest directions in which a few things hardly vary are blown up for all others.
    """
    correlation = moments.correlation
    level = max(float(np.trace(correlation)) / len(correlation), 1e-300)
    unlike = float(np.sum(correlation**2)) - len(correlation) * level**2  # ‖R - level I‖²
    shrinkage = min(1.0, moments.chance / unlike) if unlike > 0 else 1.0
    values, vectors = linalg.eigh(correlation)
    mixed = (1 - shrinkage) * np.maximum(values, 0.0) + shrinkage * level
    floor = 1e-10 * mixed.max()  # coordinates that repeat others exactly
    roots = 1 / np.sqrt(np.maximum(mixed, floor))
    return replace(scaler, whitening=(vectors * roots) @ vectors.T)


def outlying(sequences: Sequences, scaler: Scaler) -> tuple[float, int] | None:
    """Return how far a few tokens widen the units of all, and the sample of the farthest one.

    The deviation of a coordinate over that of its bulk, the median over coordinates; None if that is
    no more than usual. The bulk is the median distance from the median of the tokens that differ
    from it, so that counts and other coordinates that are mostly one value have one.
    """
    d = sequences.dimension
    wanted = max(BULK_TOKENS, BULK_NUMBERS // d) / float(np.mean(sequences.lengths))
    rows = np.linspace(0, len(sequences) - 1, min(len(sequences), int(np.ceil(wanted))))
    some = sequences.take(rows.astype(int))
    tokens = np.concatenate([block.tokens for block in some.blocks()])
    distances = np.sort(np.abs(tokens - np.median(tokens, axis=0)), axis=0)
    middle = (np.sum(distances == 0, axis=0) + len(tokens)) // 2
    bulk = distances[np.minimum(middle, len(tokens) - 1), np.arange(d)] / NORMAL_MEDIAN_DISTANCE
    varies = bulk > 0 if scaler.constant is None else (bulk > 0) & ~scaler.constant
    if not varies.any():
        return None
    excess = float(np.median(scaler.scale[varies] / bulk[varies]))
    return (excess, _farthest(sequences, scaler)) if excess > OUTLYING_FROM else None


def _farthest(sequences: Sequences, scaler: Scaler) -> int:
    """Return the row of the sample with the token farthest from the mean, in units of the scale."""
    largest, row = -1.0, 0
    for block in sequences.blocks():
        distances = (np.abs(block.tokens - scaler.location) / scaler.scale).max(axis=1)
        token = int(distances.argmax())
        if distances[token] > largest:
            within = int(np.searchsorted(block.starts, token, side="right")) - 1
            largest, row = distances[token], sequences.source_row(block.samples.start + within)
    return row


@np.errstate(invalid="ignore")  # infinities of both signs: the error about them is enough
def _weighted_moments(sequences: Sequences, rows: Array) -> tuple[Array, Array, Array]:
    """Return an origin o and a unit u, of shape (d,), and sums of z = (x - o)/u over all tokens x.

    The sums have the shape (K + 1, d): of z with the weights of each of the K `rows`, which hold
    one weight a sample, then of z² with those of the first row.
    """
    rows = rows.astype(sequences.dtype)
    origin, unit = _origin_and_unit(next(iter(sequences.blocks())).tokens)
    (sums,) = sequences.sums(_block_moments, (rows,), origin, unit)
    if not np.isfinite(sums).all():
        for block in sequences.blocks():
            sequences.require_finite(block)
    return origin, unit, sums


@np.errstate(invalid="ignore")
def _block_moments(block: Block, rows: Array, origin: Array, unit: Array) -> tuple[Array]:
    """Return a block's part of the sums, (K + 1, d), taken in pieces that stay in the cache."""
    d, dtype = block.tokens.shape[1], block.tokens.dtype
    height = max(1, SCRATCH_BYTES // (d * dtype.itemsize))
    shifted, scaled = bool(np.any(origin != 0)), bool(np.any(unit != 1))
    origins = np.tile(origin, (height if shifted else 0, 1))  # faster to subtract than one row
    buffer = np.empty((min(height, len(block.tokens)), d), dtype=dtype)
    part = np.empty((len(rows) + 1, d), dtype=dtype)
    sums = np.zeros(part.shape)
    weights = np.repeat(rows, block.lengths, axis=1)
    for start in range(0, len(block.tokens), height):
        piece = slice(start, start + height)
        values = block.tokens[piece]
        scratch = buffer[: len(values)]
        if shifted:
            values = np.subtract(values, origins[: len(values)], out=scratch)
        if scaled:
            values = np.divide(values, unit, out=scratch)
        np.matmul(weights[:, piece], values, out=part[:-1])
        np.matmul(weights[0, piece], np.square(values, out=scratch), out=part[-1])
        sums += part
    return (sums,)


def _origin_and_unit(tokens: Array) -> tuple[Array, Array]:
    """Return an origin and a unit for each coordinate, of shape (d,), in which to take squares.

    The origin is 0 unless squares about 0 would lose digits: the mean is then farther from 0 than
    tokens are from the mean. The unit is 1 unless squares could leave the range of numbers.
    """
    mean = tokens.mean(axis=0, dtype=float).astype(tokens.dtype)
    distances = np.abs(tokens - mean)
    far = np.abs(mean) > distances.mean(axis=0, dtype=float)
    origin = np.where(far, mean, 0)
    largest = distances.max(axis=0) + np.abs(mean - origin)
    extreme = (largest > 1e12) | ((largest < 1e-12) & (largest > smallest_deviation(tokens.dtype)))
    return origin, np.where(extreme, largest, 1)
