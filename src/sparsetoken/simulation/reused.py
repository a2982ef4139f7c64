"""Draw a trial whose query and readout train on the same data, without building the sequences.

Exactly the law of building (n, L, d) arrays, at any dimension d >= 3: Gaussian noise is drawn one
direction at a time, each conditional on what the stages before have used of it (docs/theory.md,
section 5.6). It takes O(nL + nd) time and memory.
"""

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import DTypeLike

from sparsetoken.arrays import Array
from sparsetoken.losses import Loss, get_loss
from sparsetoken.simulation.reduced import BLOCK_ENTRIES, QueryState, chi, gaussian_columns
from sparsetoken.simulation.sampling import sample_counts, sample_labels
from sparsetoken.task import Task, Training
from sparsetoken.validation import ParameterError

__all__ = ["TOKEN_ARRAYS", "reduced_reused"]

# How many arrays (n, L) are held at once: noise along three directions, and each token's part in the query.
TOKEN_ARRAYS = 4


def reduced_reused(
    task: Task,
    training: Training,
    count: int,
    dimension: int,
    rng: np.random.Generator,
    dtype: DTypeLike = np.float64,
) -> tuple[QueryState, Array, Array]:
    """Draw the query of stages 1 to 3 and the attention features of the same samples.

    Returns
    -------
    query : QueryState
    features : array of shape (count, 3 + min(dimension - 3, count))
        Columns 0 and 1 are along the query and the rest of the signal.
    labels : array of shape (count,)
    """
    if dimension < 3:
        accepted = "an integer >= 3 to draw data that are reused (or sampler='plain')"
        raise ParameterError("dimension", dimension, accepted)
    loss = get_loss(training.loss)
    slope = float(loss.slope(np.zeros(1))[0])
    labels = sample_labels(task, count, rng)
    size = count * task.length

    # Along the signal: places are exchangeable, so the first ones are the informative ones.
    on_signal = rng.standard_normal((count, task.length))
    informative = sample_counts(task, count, rng) * (labels > 0)
    most = int(informative.max(initial=0))
    on_signal[:, :most] += task.strength * (np.arange(most) < informative[:, None])

    # Along the readout's noise: the sum over samples of y times the noise is known, its length.
    signs = labels / math.sqrt(size)
    length = float(chi(dimension - 1, rng))
    on_readout = rng.standard_normal((count, task.length))
    sums = on_readout.sum(axis=1)
    change = (length - float(signs @ sums)) * signs
    on_readout += change[:, None]
    rate = -training.readout_step * slope / size
    on_labels = np.array([labels @ on_signal.sum(axis=1), labels @ (sums + task.length * change)])
    readout = rate * on_labels
    bias = -training.bias_step * slope * float(labels.mean())

    parts = _parts((on_signal, on_readout), readout, labels, bias, loss)
    on_query, unit = _against_parts(parts, signs, float(chi(dimension - 2, rng)), rng)
    tokens = (on_signal, on_readout, on_query)
    rate = -training.query_step * training.inverse_temperature / size
    query = rate * np.array([np.vdot(parts, values) for values in tokens])
    norm = float(np.linalg.norm(query))
    cosine = float(query[0] / norm) if norm > 0 else 0.0
    length = float(np.linalg.norm(readout))
    state = QueryState(cosine, norm, float(readout[0] / length) if length > 0 else 0.0)

    lost = (signs, unit, parts)
    features = _features(tokens, query, lost, training.inverse_temperature, dimension, rng, dtype)
    return state, features, labels


def _against_parts(
    parts: Array, signs: Array, length: float, rng: np.random.Generator
) -> tuple[Array, float]:
    """Draw the noise along that of the query (n, L), and return it with the factor of unit `parts`.

    The sum of `parts` times the noise is known, and points against it. They add up to 0 in each
    sample, so that they are orthogonal to the signs.
    """
    norm = float(np.linalg.norm(parts))
    unit = 1 / norm if norm > 0 else 0.0
    noise = rng.standard_normal(parts.shape)
    noise -= (float(signs @ noise.sum(axis=1)) * signs)[:, None]
    missing = -unit * (length + unit * float(np.vdot(parts, noise)))
    for rows in _blocks(parts):
        noise[rows] += missing * parts[rows]
    return noise, unit


def _parts(
    tokens: tuple[Array, Array], readout: Array, labels: Array, bias: float, loss: Loss
) -> Array:
    """Return each token's part in the query (n, L): its sample's slope times its score less their mean."""
    first, second = tokens
    pooled = readout[0] * first.mean(axis=1) + readout[1] * second.mean(axis=1)
    slopes = labels * loss.slope(labels * (pooled + bias))
    parts = np.empty_like(first)
    for rows in _blocks(parts):
        scores = readout[0] * first[rows] + readout[1] * second[rows]
        parts[rows] = slopes[rows, None] * (scores - pooled[rows, None])
    return parts


def _blocks(tokens: Array) -> Iterator[slice]:
    """Yield rows of (n, L) that stay in the processor's cache together."""
    count, length = tokens.shape
    size = max(1, BLOCK_ENTRIES // length)
    return (slice(start, start + size) for start in range(0, count, size))


def _features(
    tokens: tuple[Array, ...],
    query: Array,
    lost: tuple[Array, float, Array],
    inverse_temperature: float,
    dimension: int,
    rng: np.random.Generator,
    dtype: DTypeLike,
) -> Array:
    """Draw the attention features, given the tokens (n, L) along each of three known directions.

    Across these the tokens' noise is new, but for its products with two unit arrays (n, L), which are
    0: `lost` are the rows of the first, (n,), and a factor of the second with that.
    """
    signs, unit, parts = lost
    count = len(signs)
    along, columns, spread = np.empty((count, 3)), np.empty((count, 2)), np.empty(count)
    columns[:, 0] = signs
    for rows in _blocks(parts):
        here = [values[rows] for values in tokens]
        scores = sum(part * values for part, values in zip(query, here, strict=True))
        weights = _softmax(inverse_temperature * scores)
        along[rows] = np.stack([np.vecdot(weights, values) for values in here], axis=1)
        spread[rows] = np.sqrt(np.vecdot(weights, weights))
        columns[rows, 1] = unit * np.vecdot(weights, parts[rows])
    noise = gaussian_columns(count, 0, dimension - 3, rng, dtype)
    features = np.empty((count, 3 + noise.shape[1]), dtype=noise.dtype)
    features[:, :3] = along @ _frame(query, float(np.linalg.norm(query))).T
    features[:, 3:] = _without(noise, columns / spread[:, None]) * spread[:, None]
    return features


def _softmax(scores: Array) -> Array:
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    return np.asarray(weights)


def _frame(query: Array, norm: float) -> Array:
    """Return orthonormal rows: along the query, towards the signal (1, 0, 0) across it, and a third."""
    along = query / norm if norm > 0 else np.array([0.0, 0.0, 1.0])
    basis, signs = np.linalg.qr(np.stack([along, [1.0, 0.0, 0.0], [0.0, 1.0, 1.0]], axis=1))
    return np.asarray((basis * np.where(np.diag(signs) < 0, -1.0, 1.0)).T)


def _without(noise: Array, columns: Array) -> Array:
    """Return (I - CCᵀ)^½ times the noise (n, k), for columns C (n, 2) of norm at most 1."""
    directions, sizes, _ = np.linalg.svd(columns, full_matrices=False)
    kept = np.sqrt(np.maximum(1 - sizes**2, 0.0))
    change = directions * (1 - kept)
    return np.asarray(
        noise - change.astype(noise.dtype) @ (directions.T.astype(noise.dtype) @ noise)
    )
