"""The four training stages on arrays (docs/theory.md, section 3).

Data are read in blocks of samples; no temporary is larger than one block, except the readout's
feature matrix. Sums are taken in float64 whatever the type of the data.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sparsetoken.arrays import Array
from sparsetoken.learning.examples import check_labels
from sparsetoken.learning.features import (
    FEATURE_MAPS,
    NONLINEARITIES,
    blocks,
    features,
    sequence_array,
)
from sparsetoken.learning.readout import Readout, fit_readout
from sparsetoken.losses import Loss, get_loss
from sparsetoken.task import Training
from sparsetoken.validation import ParameterError, choice, instance

__all__ = ["TrainedModel", "first_step", "query_step", "train"]


@dataclass(frozen=True)
class TrainedModel:
    """A trained classifier sign(⟨f(X), w⟩ + b).

    Attributes
    ----------
    classifier, nonlinearity : str
    inverse_temperature : float
    weights, bias : the readout (w, b) of stage 4
    query : array of shape (d,), or None for classifiers without one
    first_weights, first_bias : the readout after stage 1, or None for classifiers without a query
    readout : the report of stage 4's solver, with its residual and status

    Examples
    --------
    >>> import numpy as np
    >>> from sparsetoken import Task, Training, sample, train
    >>> X, y, _, _ = sample(Task(6, 2, 5.0), 400, dimension=40, rng=np.random.default_rng(0))
    >>> model = train((X[:200], y[:200]), (X[200:], y[200:]), Training(5, 5), classifier="pooled")
    >>> model.query is None, bool(np.mean(model.predict(X) == y) > 0.8)
    (True, True)
    """

    classifier: str
    nonlinearity: str
    inverse_temperature: float
    readout: Readout
    query: Array | None = field(default=None, repr=False)
    first_weights: Array | None = field(default=None, repr=False)
    first_bias: float | None = None

    @property
    def weights(self) -> Array:
        """The readout vector w."""
        return self.readout.weights

    @property
    def bias(self) -> float:
        """The readout's bias b."""
        return self.readout.bias

    def decision(self, X: ArrayLike) -> Array:
        """Return ⟨f(X), w⟩ + b for each sequence of X (n, L, d).

        Parameters
        ----------
        X : array of shape (n, L, d)

        Returns
        -------
        array of shape (n,)

        Examples
        --------
        >>> from sparsetoken import Task, Training, sample, train
        >>> task = Task(6, 1, 5.0)
        >>> first, second = (sample(task, 200, dimension=10, rng=seed) for seed in (0, 1))
        >>> model = train((first.X, first.y), (second.X, second.y), Training(20.0, 20.0, query_step=20.0))
        >>> model.decision(first.X).shape
        (200,)
        """
        X = sequence_array(X)
        if self.query is not None and X.shape[2] != len(self.query):
            accepted = f"{len(self.query)}, as in training"
            raise ParameterError("dimension of X", X.shape[2], accepted)
        scores = np.empty(len(X))
        for part in blocks(X):
            if not np.isfinite(X[part]).all():
                raise ParameterError("X", "NaN or infinity", "finite numbers")
            mapped = features(
                X[part],
                self.classifier,
                query=self.query,
                inverse_temperature=self.inverse_temperature,
                nonlinearity=self.nonlinearity,
            )
            if mapped.shape[1] != len(self.weights):
                accepted = f"sequences of {len(self.weights)} features, as in training"
                found = f"{X.shape}, with {mapped.shape[1]} features"
                raise ParameterError("shape of X", found, accepted)
            scores[part] = mapped @ self.weights + self.bias
        return scores

    def predict(self, X: ArrayLike) -> Array:
        """Return the predicted labels, -1 or +1.

        Parameters
        ----------
        X : array of shape (n, L, d)

        Returns
        -------
        array of shape (n,)

        Examples
        --------
        >>> from sparsetoken import Task, Training, sample, train
        >>> task = Task(6, 1, 5.0)
        >>> first, second = (sample(task, 200, dimension=10, rng=seed) for seed in (0, 1))
        >>> model = train((first.X, first.y), (second.X, second.y), Training(20.0, 20.0, query_step=20.0))
        >>> model.predict(first.X).shape
        (200,)
        """
        return np.where(self.decision(X) > 0, 1, -1)


def train(
    query_data: tuple[ArrayLike, ArrayLike] | None,
    readout_data: tuple[ArrayLike, ArrayLike],
    training: Training,
    *,
    classifier: str = "attention",
    nonlinearity: str = "sigmoid",
) -> TrainedModel:
    """Train a classifier: two gradient steps for the query, then the convex readout.

    Parameters
    ----------
    query_data : (X0, y0) or None
        Sequences (n0, L, d) and labels in {-1, +1} for stages 1 to 3. Classifiers without a query
        do not read them, so that one call serves all classifiers; None will do for those.
    readout_data : (X1, y1)
        The same for stage 4; with `reuse` of the training, the same arrays.
    training : Training
        Its sample ratios are not used here: the arrays have their sizes.
    classifier : str
        "attention", "pooled", "vectorised", "elementwise", or another entry of
        `learning.features.FEATURE_MAPS`.
    nonlinearity : for "elementwise"

    Returns
    -------
    TrainedModel

    Notes
    -----
    The gradient for element-wise attention at q = 0 is not that of the softmax; stages 1 to 3 are
    the softmax's for both, as for any other classifier with a query, so that they differ in the
    features alone.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsetoken import Task, Training, sample, train
    >>> task, rng = Task(6, 1, 6.0), np.random.default_rng(0)
    >>> first = sample(task, 400, dimension=40, rng=rng)
    >>> second = sample(task, 400, dimension=40, rng=rng, signal=first.signal)
    >>> model = train((first.X, first.y), (second.X, second.y), Training(10, 10, query_step=10.0))
    >>> bool(model.query @ first.signal / np.linalg.norm(model.query) > 0.9)
    True
    """
    instance("training", training, Training)
    loss = get_loss(training.loss)
    takes_query = FEATURE_MAPS[choice("classifier", classifier, FEATURE_MAPS)].takes_query
    choice("nonlinearity", nonlinearity, NONLINEARITIES)
    readout_X, readout_y = _checked(readout_data, "readout_data")
    query = first_weights = first_bias = None
    if takes_query:
        query_X, query_y = _checked(query_data, "query_data")
        if query_X.shape[2] != readout_X.shape[2]:
            raise ParameterError(
                "dimension of X in query_data",
                query_X.shape[2],
                f"{readout_X.shape[2]}, as in readout_data",
            )
        if training.reuse and not _same_data(query_X, query_y, readout_X, readout_y):
            accepted = "the same arrays as query_data with reuse = True"
            raise ParameterError("readout_data", f"X of shape {readout_X.shape}", accepted)
        first_weights, first_bias = first_step(query_X, query_y, training)
        query = query_step(query_X, query_y, first_weights, first_bias, training)
    inverse_temperature = 1.0 if query is None else training.inverse_temperature
    mapped = features(
        readout_X,
        classifier,
        query=query,
        inverse_temperature=inverse_temperature,
        nonlinearity=nonlinearity,
    )
    readout = fit_readout(mapped, readout_y, loss=loss, ridge=training.ridge)
    return TrainedModel(
        classifier=classifier,
        nonlinearity=nonlinearity,
        inverse_temperature=inverse_temperature,
        readout=readout,
        query=query,
        first_weights=first_weights,
        first_bias=first_bias,
    )


def first_step(X: Array, y: Array, training: Training) -> tuple[Array, float]:
    """Return stage 1: w = -η_w ℓ'(0) mean(y f̄) and b = -η_b ℓ'(0) mean(y), f̄ pooled over tokens."""
    slope = float(get_loss(training.loss).slope(np.zeros(1))[0])
    total = np.zeros(X.shape[2])
    for part in blocks(X):
        total += _signed_sum(_float64(X[part]), y[part])
    weights = -training.readout_step * slope * total / (len(X) * X.shape[1])
    return weights, -training.bias_step * slope * float(np.mean(y))


def query_step(X: Array, y: Array, weights: Array, bias: float, training: Training) -> Array:
    """Return stages 2 and 3: the query after one gradient step from q = 0.

    q = -(η_q β/(n L)) Σ_i h_i X_iᵀ (I - 11ᵀ/L) X_i w with h_i = y_i ℓ'(y_i(⟨f̄_i, w⟩ + b)), which
    is -η_q times the gradient in q of the mean loss at q = 0.
    """
    loss = get_loss(training.loss)
    total = np.zeros(X.shape[2])
    for part in blocks(X):
        total += _query_sum(_float64(X[part]), y[part], weights, bias, loss)
    rate = training.query_step * training.inverse_temperature / (len(X) * X.shape[1])
    return np.asarray(-rate * total)


def _signed_sum(X: Array, y: Array) -> Array:
    """Return Σ_i y_i Σ_l X_il, of shape (d,)."""
    return np.asarray((y @ X.reshape(len(X), -1)).reshape(X.shape[1:]).sum(axis=0))


def _query_sum(X: Array, y: Array, weights: Array, bias: float, loss: Loss) -> Array:
    """Return Σ_i h_i X_iᵀ (I - 11ᵀ/L) X_i w, of shape (d,)."""
    scores = X @ weights
    pooled = scores.mean(axis=1)
    slopes = y * loss.slope(y * (pooled + bias))
    centred = slopes[:, None] * (scores - pooled[:, None])
    return np.asarray(centred.reshape(-1) @ X.reshape(-1, X.shape[2]))


def _same_data(X: Array, y: Array, other_X: Array, other_y: Array) -> bool:
    """Return whether two data sets are one, or have the same entries."""
    if X.shape != other_X.shape or not np.array_equal(y, other_y):
        return False
    return X is other_X or all(np.array_equal(X[part], other_X[part]) for part in blocks(X))


def _float64(block: Array) -> Array:
    return np.ascontiguousarray(block, dtype=np.float64)


def _checked(data: Any, name: str) -> tuple[Array, Array]:
    if not isinstance(data, tuple | list) or len(data) != 2:
        raise ParameterError(name, data, "a pair (X, y)")
    X = sequence_array(data[0], f"X in {name}")
    if len(X) == 0:
        raise ParameterError(f"samples in {name}", 0, "at least one")
    if not all(np.isfinite(X[part]).all() for part in blocks(X)):
        raise ParameterError(f"X in {name}", "NaN or infinity", "finite numbers")
    return X, check_labels(f"y in {name}", data[1], len(X))
