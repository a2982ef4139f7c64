"""One trial's training: draw the data, run the four stages, and give what can be reported.

Two ways give the same joint law of everything reported: "plain" builds the sequences and trains
on them, "reduced" draws the few numbers that matter (docs/theory.md, section 7).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike

from sparsetoken.arrays import Array
from sparsetoken.learning.readout import Readout, fit_readout
from sparsetoken.learning.separability import separability
from sparsetoken.learning.stages import first_step, query_step
from sparsetoken.losses import get_loss
from sparsetoken.simulation.draws import DRAWS, ClassifierDraws, orthogonal
from sparsetoken.simulation.geometry import Geometry
from sparsetoken.simulation.reduced import BLOCK_ENTRIES, QueryState, reduced_query
from sparsetoken.simulation.sampling import Sample, sample
from sparsetoken.task import Query, Task, Training

__all__ = ["WAYS", "Protocol", "Trained", "train_plain", "train_reduced"]

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
    at_sharpness: float | None = None

    def at_test(self, query: Query | None) -> Query | None:
        """Return the query as fresh data meet it: the same, but with `at_sharpness` if that is given."""
        if query is None or self.at_sharpness is None:
            return query
        return query.replace(sharpness=self.at_sharpness)

    @property
    def head(self) -> tuple[Task, Training, int, ClassifierDraws]:
        """Task, training, dimension and the classifier's draws, to unpack."""
        return self.task, self.training, self.dimension, DRAWS[self.classifier]

    @property
    def reuses(self) -> bool:
        """Whether the readout trains on samples that a query was learnt from."""
        learns = DRAWS[self.classifier].takes_query and self.query is None
        return learns and self.training.reuse


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


def train_reduced(protocol: Protocol, rng: np.random.Generator) -> Trained:
    """Draw a trained classifier by the reduced sampler."""
    task, training, dimension, draws = protocol.head
    state, query = None, None
    count = _count(training.alpha1, dimension)
    if protocol.reuses:
        state, *drawn = draws.reused(task, training, count, dimension, rng, protocol.dtype)
        query = state.seen(training)
    else:
        if draws.takes_query:
            if protocol.query is not None:
                state = _given(protocol.query, training)
            else:
                first = _count(training.alpha0, dimension)
                state = reduced_query(task, training, first, dimension, rng)
            query = state.seen(training)
        drawn = list(draws.reduced(task, query, count, dimension, rng, protocol.dtype))
    readout, separable = _fit(protocol, *drawn)
    geometry = draws.reduced_geometry(readout, task, protocol.at_test(query))
    return Trained(state, readout, geometry, geometry.fresh_error, separable)


def train_plain(protocol: Protocol, rng: np.random.Generator) -> Trained:
    """Draw the sequences, and train on them."""
    task, training, dimension, draws = protocol.head
    signal = rng.standard_normal(dimension)
    signal /= np.linalg.norm(signal)
    state, vector, first = _plain_query(protocol, signal, rng)
    query = None if state is None else state.seen(training)
    if first is not None and protocol.reuses:
        second = first
    else:
        del first  # a whole array, before the next one
        second = sample(
            task, _count(training.alpha1, dimension), dimension=dimension, rng=rng, signal=signal
        )
    mapped = draws.features(second.X, vector, training.inverse_temperature)
    readout, separable = _fit(protocol, mapped.astype(protocol.dtype, copy=False), second.y)

    def fresh_error(at: Task, count: int, rng: np.random.Generator) -> float:
        wrong, size = 0, max(1, BLOCK_ENTRIES // (at.length * dimension))
        for start in range(0, count, size):
            test = sample(at, min(size, count - start), dimension=dimension, rng=rng, signal=signal)
            seen = draws.features(test.X, vector, training.inverse_temperature)
            predicted = np.where(seen @ readout.weights + readout.bias > 0, 1, -1)
            wrong += int(np.sum(predicted != test.y))
        return wrong / count

    geometry = draws.plain_geometry(readout, task, signal, vector, protocol.at_test(query))
    return Trained(state, readout, geometry, fresh_error, separable)


def _plain_query(
    protocol: Protocol, signal: Array, rng: np.random.Generator
) -> tuple[QueryState | None, Array | None, Sample | None]:
    """Return the query, its vector and the samples that it was learnt from, where there are such."""
    task, training, dimension, draws = protocol.head
    if not draws.takes_query:
        return None, None, None
    if protocol.query is not None:
        state = _given(protocol.query, training)
        return state, state.norm * _with_cosine(signal, state.alignment, rng), None
    first = sample(
        task, _count(training.alpha0, dimension), dimension=dimension, rng=rng, signal=signal
    )
    weights, bias = first_step(first.X, first.y, training)
    vector = query_step(first.X, first.y, weights, bias, training)
    norm = float(np.linalg.norm(vector))
    return QueryState(_cosine(vector, signal), norm, _cosine(weights, signal)), vector, first


# A way to train for each of `SAMPLERS`.
WAYS: dict[str, Callable[[Protocol, np.random.Generator], Trained]] = {
    "reduced": train_reduced,
    "plain": train_plain,
}


def _fit(protocol: Protocol, features: Array, labels: Array) -> tuple[Readout, bool | None]:
    training = protocol.training
    readout = fit_readout(features, labels, loss=get_loss(training.loss), ridge=training.ridge)
    if not protocol.check_separable:
        return readout, None
    if readout.train_error == 0:
        return readout, True
    start = (readout.weights, readout.bias)
    return readout, separability(features, labels, start=start).separable


def _given(query: Query, training: Training) -> QueryState:
    return QueryState(query.alignment, query.sharpness / training.inverse_temperature, None)


def _count(ratio: float, dimension: int) -> int:
    return max(1, round(ratio * dimension))


def _with_cosine(signal: Array, cosine: float, rng: np.random.Generator) -> Array:
    other = orthogonal(signal, rng.standard_normal(len(signal)))
    return np.asarray(cosine * signal + math.sqrt(max(0.0, 1 - cosine**2)) * other)


def _cosine(vector: Array, unit: Array) -> float:
    norm = float(np.linalg.norm(vector))
    return float(vector @ unit) / norm if norm > 0 else 0.0
