"""Feature maps of the four classifiers: from sequences X (n, L, d) to one vector each.

All classifiers are sign(⟨f(X), w⟩ + b) and differ only in f (docs/theory.md, section 1).
"""

from collections.abc import Callable, Iterator

import numpy as np
from scipy.special import expit, softmax

from sparsetoken.arrays import Array
from sparsetoken.validation import ParameterError, choice

__all__ = [
    "CLASSIFIERS",
    "NONLINEARITIES",
    "attention_features",
    "attention_weights",
    "blocks",
    "elementwise_features",
    "features",
    "pooled_features",
    "vectorised_features",
]

CLASSIFIERS = ("attention", "pooled", "vectorised", "elementwise")

NONLINEARITIES: dict[str, Callable[[Array], Array]] = {
    "sigmoid": expit,
    "tanh": np.tanh,
    "linear": lambda score: score,
    "exp": np.exp,
}

BLOCK_BYTES = 32 * 2**20


def blocks(X: Array, block_bytes: int = BLOCK_BYTES) -> Iterator[slice]:
    """Yield slices of the samples of X, each of at most `block_bytes` (at least one sample)."""
    size = max(1, block_bytes // max(1, X[:1].nbytes))
    for start in range(0, len(X), size):
        yield slice(start, start + size)


def vectorised_features(X: Array) -> Array:
    """Return vec(X), of shape (n, L d)."""
    return X.reshape(len(X), -1)


def pooled_features(X: Array) -> Array:
    """Return (1/L) Σ_l X_l, of shape (n, d)."""
    return np.asarray(X.mean(axis=1))


def attention_weights(X: Array, query: Array, inverse_temperature: float) -> Array:
    """Return softmax(β X q) over the tokens, of shape (n, L)."""
    return np.asarray(softmax(inverse_temperature * (X @ query), axis=1))


def attention_features(X: Array, query: Array, inverse_temperature: float) -> Array:
    """Return Xᵀ softmax(β X q), of shape (n, d)."""
    return _weighted_sum(X, attention_weights(X, query, inverse_temperature))


def elementwise_features(
    X: Array, query: Array, inverse_temperature: float, nonlinearity: str
) -> Array:
    """Return (1/L) Xᵀ σ(β X q) with σ applied token by token, of shape (n, d).

    The exponential overflows beyond a score of 709. Then, and only then, the features of all
    samples cannot be represented, and a ParameterError says so.
    """
    function = NONLINEARITIES[choice("nonlinearity", nonlinearity, NONLINEARITIES)]
    scores = inverse_temperature * (X @ query)
    with np.errstate(over="ignore"):
        weights = function(scores)
    if not np.all(np.isfinite(weights)):
        raise ParameterError(
            "inverse_temperature",
            inverse_temperature,
            f"a value at which {nonlinearity}(β X q) is finite (here β X q reaches "
            f"{scores.max():.3g}); softmax attention has no such limit",
        )
    return np.asarray(_weighted_sum(X, weights) / X.shape[1])


def features(
    X: Array,
    classifier: str,
    query: Array | None = None,
    inverse_temperature: float = 1.0,
    nonlinearity: str = "sigmoid",
) -> Array:
    """Return the features of the named classifier, built block by block.

    Parameters
    ----------
    X : array of shape (n, L, d)
    classifier : "attention", "pooled", "vectorised" or "elementwise"
    query : array of shape (d,), for "attention" and "elementwise"
    inverse_temperature : float
    nonlinearity : "sigmoid", "tanh", "linear" or "exp", for "elementwise"
    """
    choice("classifier", classifier, CLASSIFIERS)
    if classifier == "vectorised":
        return vectorised_features(X)
    if classifier == "pooled":
        return _blockwise(X, pooled_features)
    if query is None:
        raise ParameterError("query", None, f"an array of shape ({X.shape[2]},) for {classifier!r}")
    if classifier == "attention":
        return _blockwise(X, lambda part: attention_features(part, query, inverse_temperature))
    return _blockwise(
        X, lambda part: elementwise_features(part, query, inverse_temperature, nonlinearity)
    )


def _blockwise(X: Array, function: Callable[[Array], Array]) -> Array:
    result = np.empty((len(X), X.shape[2]), dtype=X.dtype)
    for part in blocks(X):
        result[part] = function(X[part])
    return result


def _weighted_sum(X: Array, weights: Array) -> Array:
    return np.asarray(np.matmul(weights[:, None, :], X)[:, 0, :])
