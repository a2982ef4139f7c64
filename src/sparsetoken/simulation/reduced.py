"""Draw what a trial needs without ever building the sequences (docs/theory.md, section 7).

Everything here has exactly the law that sampling (n, L, d) arrays and running the four stages would
give, at any dimension d >= 2. Rotations of R^d that keep the signal and the query in place change
nothing that is reported, so vectors are held by their coordinates along those two and the length of
the rest, and a Gaussian matrix with more columns than rows is replaced by its triangular factor.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from sparsetoken.arrays import Array
from sparsetoken.losses import get_loss
from sparsetoken.simulation.sampling import (
    rows_by_count,
    sample_counts,
    sample_labels,
    sample_positions,
)
from sparsetoken.task import Query, Task, Training

__all__ = [
    "QueryState",
    "attention_triples",
    "chi",
    "gaussian_columns",
    "largest_score",
    "reduced_attention",
    "reduced_pooled",
    "reduced_query",
    "reduced_vectorised",
    "token_noise",
]

BLOCK_ENTRIES = 2**15

# A score below all others, in single precision too.
_LOWEST = -1e38


@dataclass(frozen=True)
class QueryState:
    """A query by what matters of it, and the readout that it was learnt from.

    Attributes
    ----------
    alignment : float
        Cosine of the query with the signal.
    norm : float
        ‖q‖.
    readout_cosine : float or None
        Cosine of the readout after stage 1 with the signal; None for a query that was given.
    positive_share : float or None
        Share of positives among the samples that the query was learnt from, where it is known.
    """

    alignment: float
    norm: float
    readout_cosine: float | None
    positive_share: float | None = None

    def seen(self, training: Training) -> Query:
        """Return the query as attention sees it: its cosine, and its norm times β."""
        return Query(self.alignment, training.inverse_temperature * self.norm)


def reduced_query(
    task: Task, training: Training, count: int, dimension: int, rng: np.random.Generator
) -> QueryState:
    """Draw the query of stages 1 to 3 from `count` samples, in O(count) time and memory.

    The sums over tokens in stage 3 need only, for each sample, the noise along the informative
    places (a normal) and the square norm of the remaining token noise (a chi-square of L - 2).
    """
    loss = get_loss(training.loss)
    slope = float(loss.slope(np.zeros(1))[0])
    length = task.length
    y = sample_labels(task, count, rng)
    positive = y > 0
    informative = sample_counts(task, count, rng)
    shift = task.strength * informative / length

    # Stage 1: the readout's coordinates along the signal and along the rest.
    noise = np.array([rng.standard_normal(), chi(dimension - 1, rng)])
    readout = noise * math.sqrt(count / length)
    readout[0] += float(positive @ shift)
    readout *= -training.readout_step * slope / count
    norm = float(np.linalg.norm(readout))
    if norm == 0:
        return QueryState(0.0, 0.0, 0.0, float(positive.mean()))
    bias = -training.bias_step * slope * float(y.mean())

    # Stage 2: each sample's margin, conditional on the readout that the sample helped to make.
    direction = y / math.sqrt(count)
    residual = rng.standard_normal(count)
    residual -= direction * (direction @ residual)
    scores = (direction * float(noise @ readout) + norm * residual) / math.sqrt(length)
    slopes = y * loss.slope(y * (scores + shift * readout[0] * positive + bias))

    # Stage 3: the sum of h_i X_iᵀ (I - 11ᵀ/L) X_i w along the signal, the readout and the rest.
    spread = informative - informative**2 / length
    along = rng.standard_normal(count)
    square = along**2 + 2 * rng.standard_gamma((length - 2) / 2, size=count)
    pull = task.strength * readout[0] * np.sqrt(spread) * positive
    on_places = np.sqrt(spread) * (pull + norm * along)
    on_readout = pull * along + norm * square
    squares = pull**2 + 2 * pull * norm * along + norm**2 * square
    unit = readout / norm
    noise_norm = math.sqrt(float(slopes**2 @ squares))
    query = float(slopes @ on_readout) * unit
    query[0] += task.strength * float((slopes * positive) @ on_places)
    query += noise_norm * rng.standard_normal() * np.array([-unit[1], unit[0]])
    rest = noise_norm * chi(dimension - 2, rng)
    rate = -training.query_step * training.inverse_temperature / (count * length)
    size = math.hypot(query[0], query[1], rest)
    alignment = float(np.sign(rate) * query[0] / size) if size > 0 else 0.0
    return QueryState(alignment, abs(rate) * size, float(unit[0]), float(positive.mean()))


def attention_triples(
    task: Task,
    alignment: float,
    sharpness: float,
    noise: Array,
    positive: ArrayLike,
    informative: Array | None = None,
) -> tuple[Array, Array, Array]:
    """Return (A, B, S) of each sample from its token noise along the query.

    With p = softmax(κ(θγ v + u)): A = ⟨v, p⟩, B = ⟨u, p⟩, S = ‖p‖ (docs/theory.md, section 5).

    Parameters
    ----------
    noise : array of shape (n, L)
        u, standard normal.
    positive : booleans that broadcast with shape (n,)
        Which samples carry the signal, in their first R tokens: places are exchangeable. With
        shape (2, 1) both labels share the work.
    informative : integer array of shape (n,), optional
        R of each sample, where it is random.
    """
    carries = np.asarray(positive)
    shift = task.strength * alignment
    if informative is None:
        return _triples(task.fixed_informative, shift, sharpness, noise, carries)
    carries = np.broadcast_to(carries, np.broadcast_shapes(carries.shape, (len(noise),)))
    found = np.empty((3, *carries.shape))
    for number, rows in rows_by_count(informative):
        found[..., rows] = _triples(number, shift, sharpness, noise[rows], carries[..., rows])
    return found[0], found[1], found[2]


def _triples(
    informative: int, shift: float, sharpness: float, noise: Array, carries: Array
) -> tuple[Array, Array, Array]:
    """Return (A, B, S) where the signal moves the scores of the first tokens by `shift`."""
    groups = noise[:, :informative], noise[:, informative:]
    if math.isinf(sharpness):
        return _hard_triples(*groups, shift, carries)
    signal, rest = (_exponential_sums(group, sharpness) for group in groups)
    # Each group of tokens is relative to its own largest score; bring both to the larger one.
    signal_peak = signal.peak + sharpness * shift * carries.astype(float)
    peak = np.maximum(signal_peak, rest.peak)
    signal_scale, rest_scale = np.exp(signal_peak - peak), np.exp(rest.peak - peak)
    on_signal = signal_scale * signal.total
    total = on_signal + rest_scale * rest.total
    along = signal_scale * signal.along + rest_scale * rest.along
    square = signal_scale**2 * signal.square + rest_scale**2 * rest.square
    return carries * on_signal / total, along / total, np.sqrt(square) / total


def _hard_triples(
    marked: Array, others: Array, shift: float, carries: Array
) -> tuple[Array, Array, Array]:
    """Return (A, B, S) with all weight on the token of the largest score."""
    signal, rest = largest_score(marked).astype(float), largest_score(others).astype(float)
    picked = signal + shift * carries > rest
    along = np.where(picked, signal, rest)
    return (carries & picked).astype(float), along, np.ones_like(along)


class _ExponentialSums(NamedTuple):
    """Sums over tokens of e, u e and e², with e = exp(κu - peak), and the peak max κu."""

    peak: Array
    total: Array
    along: Array
    square: Array


def token_noise(count: int, length: int, rng: np.random.Generator) -> Array:
    """Draw standard normal token scores (count, length), three times as fast as `rng` does.

    The method of Box and Muller on 32 random bits each for radius and angle, in single precision:
    relative rounding of 1e-7, except that radii come in steps of 4e-4 next to 0 and of up to 0.2
    next to their end at 6.8, which 1 in 10¹¹ would exceed.
    """
    pairs = (count * length + 1) // 2
    bits = rng.integers(2**64, size=pairs, dtype=np.uint64)
    noise = bits.view(np.uint32).astype(np.float32)
    radius, angle = noise[:pairs], noise[pairs:]
    radius += 0.5
    radius *= 2.0**-32
    np.log(radius, out=radius)
    radius *= -2.0
    np.sqrt(radius, out=radius)
    angle *= 2 * math.pi / 2**32
    across = np.sin(angle)
    np.cos(angle, out=angle)
    angle *= radius
    radius *= across
    return noise[: count * length].reshape(count, length)


def largest_score(noise: Array) -> Array:
    """Return the largest of each row, (n,); of no tokens, one that never wins."""
    return np.asarray(noise.max(axis=1, initial=_LOWEST))


def _exponential_sums(noise: Array, sharpness: float) -> _ExponentialSums:
    largest = largest_score(noise)
    weights = noise - largest[:, None]
    weights *= min(sharpness, 1e30)  # beyond, in single precision too, all but the largest vanish
    np.exp(weights, out=weights)
    return _ExponentialSums(
        sharpness * largest.astype(float),
        weights.sum(axis=1),
        np.vecdot(noise, weights),
        np.vecdot(weights, weights),
    )


def reduced_attention(
    task: Task,
    alignment: float,
    sharpness: float,
    count: int,
    dimension: int,
    rng: np.random.Generator,
    dtype: DTypeLike = np.float64,
) -> tuple[Array, Array]:
    """Draw labels and attention features; columns 0 and 1 are along q̂ and the rest of ξ.

    Returns
    -------
    features : array of shape (count, min(dimension, count + 2))
    labels : array of shape (count,)
    """
    labels = sample_labels(task, count, rng)
    positive = labels > 0
    informative = None
    if not isinstance(task.informative, int):
        informative = sample_counts(task, count, rng)
    on_signal, along, spread = np.empty((3, count))
    size = max(1, BLOCK_ENTRIES // task.length)
    for start in range(0, count, size):
        part = slice(start, min(start + size, count))
        noise = token_noise(part.stop - part.start, task.length, rng)
        on_signal[part], along[part], spread[part] = attention_triples(
            task,
            alignment,
            sharpness,
            noise,
            positive[part],
            None if informative is None else informative[part],
        )
    features = gaussian_columns(count, 2, dimension - 2, rng, dtype)
    features *= spread[:, None].astype(features.dtype)
    features[:, 0] = task.strength * alignment * on_signal + along
    features[:, 1] += task.strength * math.sqrt(max(0.0, 1 - alignment**2)) * on_signal
    return features, labels


def reduced_pooled(
    task: Task, count: int, dimension: int, rng: np.random.Generator, dtype: DTypeLike = np.float64
) -> tuple[Array, Array]:
    """Draw labels and pooled features (count, min(dimension, count + 1)); column 0 is along ξ."""
    labels = sample_labels(task, count, rng)
    features = gaussian_columns(count, 1, dimension - 1, rng, dtype)
    features *= 1 / math.sqrt(task.length)
    informative = sample_counts(task, count, rng)
    features[:, 0] += task.strength * informative / task.length * (labels > 0)
    return features, labels


def reduced_vectorised(
    task: Task, count: int, dimension: int, rng: np.random.Generator, dtype: DTypeLike = np.float64
) -> tuple[Array, Array]:
    """Draw labels and vectorised features (count, L + min(L (dimension - 1), count)).

    Column l < L is along ξ in token l.
    """
    labels = sample_labels(task, count, rng)
    places = sample_positions(task, count, rng) & (labels > 0)[:, None]
    length = task.length
    features = gaussian_columns(count, length, length * (dimension - 1), rng, dtype)
    features[:, :length] += task.strength * places
    return features, labels


def gaussian_columns(
    count: int, kept: int, others: int, rng: np.random.Generator, dtype: DTypeLike
) -> Array:
    """Draw a standard normal matrix (count, kept + others), its last columns up to a rotation.

    With more of them than rows, the other columns are the triangular factor T of their LQ
    decomposition (Bartlett): independent normals below the diagonal, chi variables of falling
    degrees on it.
    """
    width = min(others, count)
    result = np.empty((count, kept + width), dtype=dtype)
    rng.standard_normal(dtype=result.dtype, out=result)
    if others > count:
        diagonal = chi(others - np.arange(count), rng)
        for row in range(count):
            result[row, kept + row] = diagonal[row]
            result[row, kept + row + 1 :] = 0.0
    return result


def chi(degrees: float | Array, rng: np.random.Generator) -> Array:
    """Draw chi variables; 0 degrees give 0."""
    return np.asarray(np.sqrt(2 * rng.standard_gamma(np.asarray(degrees) / 2)))
