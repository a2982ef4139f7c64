"""How each classifier's training data are drawn, and what its readout does to fresh data.

`DRAWS` has one entry for a classifier; everything else in the package that names classifiers
takes the names from there. A new one needs an entry here and one in `theory.laws.LAWS`
(docs/extending-classifiers.md).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
from numpy.typing import DTypeLike

from sparsetoken.arrays import Array
from sparsetoken.extensions import extensible
from sparsetoken.learning.features import features
from sparsetoken.learning.readout import Readout
from sparsetoken.simulation.geometry import (
    AttentionGeometry,
    Geometry,
    PooledGeometry,
    VectorisedGeometry,
)
from sparsetoken.simulation.reduced import (
    QueryState,
    reduced_attention,
    reduced_pooled,
    reduced_vectorised,
)
from sparsetoken.simulation.reused import reduced_reused
from sparsetoken.task import Query, Task, Training
from sparsetoken.validation import ParameterError

__all__ = ["DRAWS", "ClassifierDraws", "orthogonal"]


class ClassifierDraws(ABC):
    """Draws of one classifier, by both samplers, with the same law.

    "reduced" draws features in a frame of few numbers, "plain" maps whole sequences. `query` is
    None for a classifier that takes none.

    Attributes
    ----------
    takes_query : bool
        Whether the classifier has a query, learnt or given.
    fixed_length : bool
        Whether it can only be used on sequences of the length it was trained on.
    """

    takes_query: bool = False
    fixed_length: bool = False

    def columns(self, task: Task, dimension: int) -> int:  # noqa: ARG002
        """Return the number of features."""
        return dimension

    @abstractmethod
    def reduced(
        self,
        task: Task,
        query: Query | None,
        count: int,
        dimension: int,
        rng: np.random.Generator,
        dtype: DTypeLike,
    ) -> tuple[Array, Array]:
        """Draw features (count, columns), in any frame, and labels (count,)."""

    def reused(
        self,
        task: Task,  # noqa: ARG002
        training: Training,  # noqa: ARG002
        count: int,  # noqa: ARG002
        dimension: int,  # noqa: ARG002
        rng: np.random.Generator,  # noqa: ARG002
        dtype: DTypeLike,  # noqa: ARG002
    ) -> tuple[QueryState, Array, Array]:
        """Draw a learnt query, and features and labels of the same samples in the same frame."""
        accepted = "'plain': this classifier has no reduced sampler for data that are reused"
        raise ParameterError("sampler", "reduced", accepted)

    @abstractmethod
    def reduced_geometry(self, readout: Readout, task: Task, query: Query | None) -> Geometry:
        """Return what a readout in the frame of `reduced` does to fresh data.

        The query is that of the test: its sharpness may be another than in training.
        """

    @abstractmethod
    def features(self, X: Array, vector: Array | None, inverse_temperature: float) -> Array:
        """Return the features of sequences X (n, L, d) for a query vector (d,)."""

    @abstractmethod
    def plain_geometry(
        self, readout: Readout, task: Task, signal: Array, vector: Array | None, query: Query | None
    ) -> Geometry:
        """Return what a readout of `features` does to fresh data with that signal (d,)."""


class _Linear(ClassifierDraws):
    """A classifier without a query, known by the readout's coordinates along the signal.

    Parameters
    ----------
    name : str
        Of its feature map.
    draw : callable
        draw(task, count, dimension, rng, dtype) gives reduced features, their first columns along
        the signal, and labels.
    geometry : callable
        geometry(coordinates along the signal, norm, bias).
    every_token : bool
        Whether each token has features of its own, so that the length is fixed.
    """

    def __init__(
        self,
        name: str,
        draw: Callable[..., tuple[Array, Array]],
        geometry: Callable[[Array, float, float], Geometry],
        every_token: bool,
    ) -> None:
        self._name, self._draw, self._geometry = name, draw, geometry
        self.fixed_length = every_token

    def columns(self, task: Task, dimension: int) -> int:
        return dimension * self._tokens(task)

    def _tokens(self, task: Task) -> int:
        return task.length if self.fixed_length else 1

    def reduced(
        self,
        task: Task,
        query: Query | None,  # noqa: ARG002
        count: int,
        dimension: int,
        rng: np.random.Generator,
        dtype: DTypeLike,
    ) -> tuple[Array, Array]:
        return self._draw(task, count, dimension, rng, dtype)

    def reduced_geometry(self, readout: Readout, task: Task, query: Query | None) -> Geometry:  # noqa: ARG002
        w = readout.weights
        return self._geometry(w[: self._tokens(task)].copy(), _norm(w), readout.bias)

    def features(self, X: Array, vector: Array | None, inverse_temperature: float) -> Array:  # noqa: ARG002
        return features(X, self._name)

    def plain_geometry(
        self,
        readout: Readout,
        task: Task,  # noqa: ARG002
        signal: Array,
        vector: Array | None,  # noqa: ARG002
        query: Query | None,  # noqa: ARG002
    ) -> Geometry:
        w = readout.weights
        return self._geometry(w.reshape(-1, len(signal)) @ signal, _norm(w), readout.bias)


def _pooled_geometry(on_signal: Array, norm: float, bias: float) -> Geometry:
    return PooledGeometry(float(on_signal[0]), norm, bias)


class _Attention(ClassifierDraws):
    takes_query = True

    def reduced(
        self,
        task: Task,
        query: Query | None,
        count: int,
        dimension: int,
        rng: np.random.Generator,
        dtype: DTypeLike,
    ) -> tuple[Array, Array]:
        assert query is not None
        return reduced_attention(
            task, query.alignment, query.sharpness, count, dimension, rng, dtype
        )

    def reused(
        self,
        task: Task,
        training: Training,
        count: int,
        dimension: int,
        rng: np.random.Generator,
        dtype: DTypeLike,
    ) -> tuple[QueryState, Array, Array]:
        return reduced_reused(task, training, count, dimension, rng, dtype)

    def reduced_geometry(self, readout: Readout, task: Task, query: Query | None) -> Geometry:  # noqa: ARG002
        assert query is not None
        w = readout.weights
        return AttentionGeometry(
            query.alignment, query.sharpness, w[0], w[1], _norm(w[1:]), readout.bias
        )

    def features(self, X: Array, vector: Array | None, inverse_temperature: float) -> Array:
        return features(X, "attention", query=vector, inverse_temperature=inverse_temperature)

    def plain_geometry(
        self,
        readout: Readout,
        task: Task,  # noqa: ARG002
        signal: Array,
        vector: Array | None,
        query: Query | None,
    ) -> Geometry:
        """Split w along the query and the rest of the signal; any frame will do for a query of 0."""
        assert vector is not None
        assert query is not None
        w, bias, gamma = readout.weights, readout.bias, query.alignment
        norm = _norm(vector)
        if norm == 0:
            unit = orthogonal(signal, np.ones_like(signal))
            return AttentionGeometry(
                0.0, query.sharpness, float(w @ unit), float(w @ signal), _across(w, unit), bias
            )
        unit = vector / norm
        on_query, across = float(w @ unit), math.sqrt(max(0.0, 1 - gamma**2))
        on_rest = (float(w @ signal) - gamma * on_query) / across if across > 0 else 0.0
        return AttentionGeometry(gamma, query.sharpness, on_query, on_rest, _across(w, unit), bias)


DRAWS: dict[str, ClassifierDraws] = {
    "attention": _Attention(),
    "pooled": _Linear("pooled", reduced_pooled, _pooled_geometry, every_token=False),
    "vectorised": _Linear("vectorised", reduced_vectorised, VectorisedGeometry, every_token=True),
}
extensible(__name__, DRAWS)


def orthogonal(signal: Array, vector: Array) -> Array:
    """Return the direction of `vector` without its part along the unit vector `signal`."""
    rest = vector - (vector @ signal) * signal
    rest /= np.linalg.norm(rest)
    rest -= (rest @ signal) * signal
    return np.asarray(rest / np.linalg.norm(rest))


def _norm(vector: Array) -> float:
    return float(np.linalg.norm(vector))


def _across(vector: Array, unit: Array) -> float:
    return _norm(vector - (vector @ unit) * unit)
