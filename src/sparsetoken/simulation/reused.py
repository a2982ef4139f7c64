"""Draw a trial whose query and readout train on the same data, without building the sequences.

Exactly the law of building (n, L, d) arrays, at any dimension d >= 3: Gaussian noise is drawn one
direction at a time, each conditional on what the stages before have used of it (docs/theory.md,
section 5.6). It takes O(nL + nd) time and memory.
"""

import math

import numpy as np
from numpy.typing import DTypeLike

from sparsetoken.arrays import Array
from sparsetoken.losses import get_loss
from sparsetoken.simulation.reduced import QueryState, chi, gaussian_columns
from sparsetoken.simulation.sampling import first_places, sample_labels
from sparsetoken.task import Task, Training
from sparsetoken.validation import ParameterError

__all__ = ["reduced_reused"]


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
    signs = np.broadcast_to(labels[:, None], (count, task.length))

    # Along the signal: places are exchangeable, so the first ones are the informative ones.
    on_signal = rng.standard_normal((count, task.length))
    on_signal += task.strength * (first_places(task, count, rng) & (labels > 0)[:, None])

    # Along the readout's noise: the sum over samples of y times the noise is known, its length.
    lost = [signs / math.sqrt(signs.size)]
    on_readout = _conditional(lost, float(chi(dimension - 1, rng)), rng)
    rate = -training.readout_step * slope / signs.size
    readout = rate * np.array([np.sum(signs * on_signal), np.sum(signs * on_readout)])
    bias = -training.bias_step * slope * float(labels.mean())

    scores = readout[0] * on_signal + readout[1] * on_readout
    pooled = scores.mean(axis=1)
    slopes = labels * loss.slope(labels * (pooled + bias))
    parts = slopes[:, None] * (scores - pooled[:, None])
    size = float(np.linalg.norm(parts))

    # Along the query's noise: the sum of `parts` times the noise is known, and points against it.
    lost.append(parts / size if size > 0 else np.zeros_like(parts))
    on_query = _conditional(lost, -float(chi(dimension - 2, rng)), rng)
    tokens = np.stack([on_signal, on_readout, on_query], axis=2)
    rate = -training.query_step * training.inverse_temperature / signs.size
    query = rate * np.einsum("nl,nlk->k", parts, tokens)
    norm = float(np.linalg.norm(query))
    cosine = float(query[0] / norm) if norm > 0 else 0.0
    length = float(np.linalg.norm(readout))
    state = QueryState(cosine, norm, float(readout[0] / length) if length > 0 else 0.0)

    features = _features(tokens, query, lost, training.inverse_temperature, dimension, rng, dtype)
    return state, features, labels


def _features(
    tokens: Array,
    query: Array,
    lost: list[Array],
    inverse_temperature: float,
    dimension: int,
    rng: np.random.Generator,
    dtype: DTypeLike,
) -> Array:
    """Draw the attention features, given the tokens (n, L, 3) along the three known directions.

    Across these the tokens' noise is new, but for its products with the arrays in `lost`, which are 0.
    """
    weights = _softmax(inverse_temperature * (tokens @ query))
    frame = _frame(query, float(np.linalg.norm(query)))
    means = np.einsum("nl,nlk->nk", weights, tokens) @ frame.T
    spread = np.sqrt(np.vecdot(weights, weights))
    columns = np.stack([np.vecdot(weights, part) for part in lost], axis=1)
    noise = gaussian_columns(len(tokens), 0, dimension - 3, rng, dtype)
    features = np.empty((len(tokens), 3 + noise.shape[1]), dtype=noise.dtype)
    features[:, :3] = means
    features[:, 3:] = _without(noise, columns / spread[:, None]) * spread[:, None]
    return features


def _conditional(lost: list[Array], last: float, rng: np.random.Generator) -> Array:
    """Draw normals (n, L) whose products with the unit arrays in `lost` are 0, but `last` for the last."""
    noise = rng.standard_normal(lost[0].shape)
    for unit in lost:
        noise -= float(np.vdot(unit, noise)) * unit
    noise += last * lost[-1]
    return noise


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
