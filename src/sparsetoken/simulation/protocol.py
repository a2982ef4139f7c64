"""One trial's training: draw the data, run the four stages, and give what can be reported.

Two samplers give the same joint law of everything reported: "plain" builds the sequences and trains
on them, "reduced" draws the few numbers that matter (docs/theory.md, section 7).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike

from sparsetoken.arrays import Array
from sparsetoken.learning.features import features as feature_map
from sparsetoken.learning.readout import Readout, fit_readout
from sparsetoken.learning.separability import separability
from sparsetoken.learning.stages import first_step, query_step
from sparsetoken.losses import get_loss
from sparsetoken.simulation.geometry import (
    AttentionGeometry,
    Geometry,
    PooledGeometry,
    VectorisedGeometry,
)
from sparsetoken.simulation.reduced import (
    BLOCK_ENTRIES,
    QueryState,
    reduced_attention,
    reduced_pooled,
    reduced_query,
    reduced_vectorised,
)
from sparsetoken.simulation.sampling import sample
from sparsetoken.task import Query, Task, Training

__all__ = ["SAMPLERS", "Protocol", "Trained", "train_plain", "train_reduced"]

FreshError = Callable[[Task, int, np.random.Generator], float]


@dataclass(frozen=True)
class Protocol:
    """What a trial trains: see `run_trial` for the fields."""

    task: Task
    training: Training
    dimension: int
    classifier: str
    query: Query | None = None
    dtype: DTypeLike = "float64"
    check_separable: bool = True

    @property
    def head(self) -> tuple[Task, Training, int, str]:
        """The first four fields, to unpack."""
        return self.task, self.training, self.dimension, self.classifier


@dataclass(frozen=True)
class Trained:
    """A trained classifier: its query (if it has one), its readout and what that does to new data.

    `fresh_error(task, count, rng)` is the fraction of wrong labels on fresh samples. `separable` is
    None if it was not asked for or could not be decided.
    """

    query: QueryState | None
    readout: Readout
    geometry: Geometry
    fresh_error: FreshError
    separable: bool | None


def train_reduced(problem: Protocol, rng: np.random.Generator) -> Trained:
    """Draw a trained classifier by the reduced sampler."""
    task, training, dimension, classifier = problem.head
    count = _count(training.alpha1, dimension)
    state = None
    if classifier == "attention":
        state = (
            _given(problem.query, training)
            if problem.query
            else _learnt(task, training, dimension, rng)
        )
        sharpness = training.inverse_temperature * state.norm
        drawn = reduced_attention(
            task, state.alignment, sharpness, count, dimension, rng, problem.dtype
        )
    elif classifier == "pooled":
        drawn = reduced_pooled(task, count, dimension, rng, problem.dtype)
    else:
        drawn = reduced_vectorised(task, count, dimension, rng, problem.dtype)

    def geometry(readout: Readout) -> Geometry:
        w, bias = readout.weights, readout.bias
        if state is not None:
            across = float(np.linalg.norm(w[1:]))
            return AttentionGeometry(state.alignment, sharpness, w[0], w[1], across, bias)
        norm = float(np.linalg.norm(w))
        if classifier == "pooled":
            return PooledGeometry(float(w[0]), norm, bias)
        return VectorisedGeometry(w[: task.length].copy(), norm, bias)

    readout, separable = _fit(problem, *drawn)
    seen = geometry(readout)
    return Trained(state, readout, seen, seen.fresh_error, separable)


def train_plain(problem: Protocol, rng: np.random.Generator) -> Trained:
    """Draw the sequences, and train on them."""
    task, training, dimension, classifier = problem.head
    query = problem.query
    signal = rng.standard_normal(dimension)
    signal /= np.linalg.norm(signal)
    state, vector = None, None
    if classifier == "attention" and query is not None:
        state = _given(query, training)
        vector = state.norm * _with_cosine(signal, state.alignment, rng)
    elif classifier == "attention":
        first = sample(task, _count(training.alpha0, dimension), dimension, rng, signal=signal)
        weights, bias = first_step(first.X, first.y, training)
        vector = query_step(first.X, first.y, weights, bias, training)
        state = QueryState(
            _cosine(vector, signal), float(np.linalg.norm(vector)), _cosine(weights, signal)
        )
        del first
    second = sample(task, _count(training.alpha1, dimension), dimension, rng, signal=signal)
    mapped = feature_map(second.X, classifier, vector, training.inverse_temperature)
    mapped = mapped.astype(problem.dtype, copy=False)

    def geometry(readout: Readout) -> Geometry:
        if vector is not None and state is not None:
            return _attention_geometry(readout, signal, vector, state, training)
        norm = float(np.linalg.norm(readout.weights))
        if classifier == "pooled":
            return PooledGeometry(float(readout.weights @ signal), norm, readout.bias)
        tokens = readout.weights.reshape(task.length, dimension)
        return VectorisedGeometry(tokens @ signal, norm, readout.bias)

    readout, separable = _fit(problem, mapped, second.y)

    def fresh_error(at: Task, count: int, rng: np.random.Generator) -> float:
        wrong, size = 0, max(1, BLOCK_ENTRIES // (at.length * dimension))
        for start in range(0, count, size):
            test = sample(at, min(size, count - start), dimension, rng, signal=signal)
            seen = feature_map(test.X, classifier, vector, training.inverse_temperature)
            predicted = np.where(seen @ readout.weights + readout.bias > 0, 1, -1)
            wrong += int(np.sum(predicted != test.y))
        return wrong / count

    return Trained(state, readout, geometry(readout), fresh_error, separable)


SAMPLERS: dict[str, Callable[[Protocol, np.random.Generator], Trained]] = {
    "reduced": train_reduced,
    "plain": train_plain,
}


def _fit(problem: Protocol, features: Array, labels: Array) -> tuple[Readout, bool | None]:
    training = problem.training
    readout = fit_readout(features, labels, get_loss(training.loss), training.ridge)
    if not problem.check_separable:
        return readout, None
    if readout.train_error == 0:
        return readout, True
    start = (readout.weights, readout.bias)
    return readout, separability(features, labels, start=start).separable


def _attention_geometry(
    readout: Readout, signal: Array, query: Array, state: QueryState, training: Training
) -> AttentionGeometry:
    """Split w along the query and the rest of the signal; any frame will do for a query of 0."""
    w = readout.weights
    sharpness = training.inverse_temperature * state.norm
    across = math.sqrt(max(0.0, 1 - state.alignment**2))
    if state.norm == 0:
        query = _orthogonal(signal, np.ones_like(signal))
        return AttentionGeometry(
            0.0, 0.0, float(w @ query), float(w @ signal), _across(w, query), readout.bias
        )
    unit = query / state.norm
    on_query = float(w @ unit)
    on_rest = (float(w @ signal) - state.alignment * on_query) / across if across > 0 else 0.0
    return AttentionGeometry(
        state.alignment, sharpness, on_query, on_rest, _across(w, unit), readout.bias
    )


def _learnt(task: Task, training: Training, dimension: int, rng: np.random.Generator) -> QueryState:
    return reduced_query(task, training, _count(training.alpha0, dimension), dimension, rng)


def _given(query: Query, training: Training) -> QueryState:
    return QueryState(query.alignment, query.sharpness / training.inverse_temperature, None)


def _count(ratio: float, dimension: int) -> int:
    return max(1, round(ratio * dimension))


def _with_cosine(signal: Array, cosine: float, rng: np.random.Generator) -> Array:
    other = _orthogonal(signal, rng.standard_normal(len(signal)))
    return np.asarray(cosine * signal + math.sqrt(max(0.0, 1 - cosine**2)) * other)


def _orthogonal(signal: Array, vector: Array) -> Array:
    rest = vector - (vector @ signal) * signal
    rest /= np.linalg.norm(rest)
    rest -= (rest @ signal) * signal
    return np.asarray(rest / np.linalg.norm(rest))


def _across(vector: Array, unit: Array) -> float:
    return float(np.linalg.norm(vector - (vector @ unit) * unit))


def _cosine(vector: Array, unit: Array) -> float:
    norm = float(np.linalg.norm(vector))
    return float(vector @ unit) / norm if norm > 0 else 0.0
