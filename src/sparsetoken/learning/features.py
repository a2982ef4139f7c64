"""Feature maps of classifiers, by name: from sequences X (n, L, d) to one vector each.

All classifiers are sign(⟨f(X), w⟩ + b) and differ only in f (docs/theory.md, section 1).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, softmax

from sparsetoken.arrays import Array
from sparsetoken.extensions import extensible
from sparsetoken.validation import ParameterError, choice, real, rectangular

__all__ = [
    "FEATURE_MAPS",
    "NONLINEARITIES",
    "FeatureMap",
    "attention_features",
    "attention_weights",
    "blocks",
    "elementwise_features",
    "features",
    "pooled_features",
    "sequence_array",
    "vectorised_features",
]

NONLINEARITIES: dict[str, Callable[[Array], Array]] = {
    "sigmoid": expit,
    "tanh": np.tanh,
    "linear": lambda score: score,
    "exp": np.exp,
}

BLOCK_BYTES = 32 * 2**20


def sequence_array(X: ArrayLike, name: str = "X") -> Array:
    """Return X as an array of real numbers of shape (n, L, d), or say what is wrong with it."""
    sequences = rectangular(name, X)
    if sequences.ndim != 3 or 0 in sequences.shape[1:]:
        accepted = "(samples, tokens, dimension), none of the last two 0"
        raise ParameterError(f"shape of {name}", sequences.shape, accepted)
    if sequences.dtype.kind not in "biuf":
        raise ParameterError(f"type of {name}", sequences.dtype.name, "real numbers")
    return sequences


def blocks(X: Array, block_bytes: int = BLOCK_BYTES) -> Iterator[slice]:
    """Yield slices of the samples of X (n, L, d), each of at most `block_bytes` as float64.

    A block has at least one sample.
    """
    size = max(1, block_bytes // (8 * X.shape[1] * X.shape[2]))
    for start in range(0, len(X), size):
        yield slice(start, start + size)


def vectorised_features(X: Array) -> Array:
    """Return vec(X), of shape (n, L d)."""
    return X.reshape(len(X), X.shape[1] * X.shape[2])


def pooled_features(X: Array) -> Array:
    """Return (1/L) Σ_l X_l, of shape (n, d)."""
    return np.asarray(X.mean(axis=1))


def attention_weights(X: Array, query: Array, inverse_temperature: float) -> Array:
    """Return softmax(β X q) over the tokens, of shape (n, L)."""
    return np.asarray(softmax(_scores(X, query, inverse_temperature), axis=1))


def attention_features(X: Array, query: Array, inverse_temperature: float) -> Array:
    """Return Xᵀ softmax(β X q), of shape (n, d)."""
    return _weighted_sum(X, attention_weights(X, query, inverse_temperature))


def elementwise_features(
    X: Array, query: Array, inverse_temperature: float, nonlinearity: str
) -> Array:
    """Return (1/L) Xᵀ σ(β X q) with σ applied token by token, of shape (n, d).

    The exponential overflows beyond a score of 709 (88 in float32). Then, and only then, the
    features cannot be represented, and a ParameterError says so.
    """
    function = NONLINEARITIES[choice("nonlinearity", nonlinearity, NONLINEARITIES)]
    scores = _scores(X, query, inverse_temperature)
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


@dataclass(frozen=True)
class FeatureMap:
    """How a classifier maps sequences.

    Attributes
    ----------
    make : callable
        make(X) gives the features (n, width) of sequences (n, L, d); with a query it is called as
        make(X, query, inverse_temperature), and with a nonlinearity as well that comes last.
    takes_query, takes_nonlinearity : bool
    is_view : bool
        Whether the features are X itself in another shape, so that to go by blocks would only copy.
    """

    make: Callable[..., Array]
    takes_query: bool = False
    takes_nonlinearity: bool = False
    is_view: bool = False


# `features` and `train` take the names from here.
FEATURE_MAPS: dict[str, FeatureMap] = {
    "attention": FeatureMap(attention_features, takes_query=True),
    "pooled": FeatureMap(pooled_features),
    "vectorised": FeatureMap(vectorised_features, is_view=True),
    "elementwise": FeatureMap(elementwise_features, takes_query=True, takes_nonlinearity=True),
}
extensible(__name__, FEATURE_MAPS)


def features(
    X: ArrayLike,
    classifier: str,
    *,
    query: ArrayLike | None = None,
    inverse_temperature: float = 1.0,
    nonlinearity: str = "sigmoid",
) -> Array:
    """Return the features of the named classifier, built block by block.

    float32 and float64 are kept; other types become float64.

    Parameters
    ----------
    X : array of shape (n, L, d)
    classifier : str
        "attention", "pooled", "vectorised", "elementwise", or another entry of
        `learning.features.FEATURE_MAPS`.
    query : array of shape (d,), for "attention" and "elementwise"
    inverse_temperature : float, for "attention" and "elementwise"
    nonlinearity : "sigmoid", "tanh", "linear" or "exp", for "elementwise"

    Returns
    -------
    array of shape (n, d), or (n, L d) for "vectorised"

    Examples
    --------
    >>> import numpy as np
    >>> from sparsetoken import features
    >>> X = np.array([[[1.0, 0.0], [0.0, 1.0]]])
    >>> features(X, "pooled").tolist()
    [[0.5, 0.5]]
    >>> features(X, "attention", query=np.array([np.log(3), 0.0])).round(3).tolist()
    [[0.75, 0.25]]
    """
    known = FEATURE_MAPS[choice("classifier", classifier, FEATURE_MAPS)]
    if query is not None and not known.takes_query:
        raise ParameterError("query", "an array", f"None for {classifier!r}, which has no query")
    inverse_temperature = real("inverse_temperature", inverse_temperature)
    choice("nonlinearity", nonlinearity, NONLINEARITIES)
    if inverse_temperature != 1 and not known.takes_query:
        accepted = f"1 for {classifier!r}, which has no scores"
        raise ParameterError("inverse_temperature", inverse_temperature, accepted)
    if nonlinearity != "sigmoid" and not known.takes_nonlinearity:
        raise ParameterError("nonlinearity", nonlinearity, "'sigmoid' unless it is elementwise")
    X = sequence_array(X)
    settings: tuple[Any, ...] = ()
    if known.takes_query:
        vector = _checked_query(query, X.shape[2])
        settings = (vector, real("inverse_temperature", inverse_temperature))
    if known.takes_nonlinearity:
        settings = (*settings, nonlinearity)
    # Integers and half precision have no room for the result.
    dtype = X.dtype if X.dtype in (np.float32, np.float64) else np.dtype(float)
    if known.is_view:
        return known.make(X.astype(dtype, copy=False), *settings)
    return _blockwise(X, dtype, lambda x: known.make(x, *settings))


def _checked_query(query: ArrayLike | None, dimension: int) -> Array:
    accepted = f"({dimension},), the dimension of X"
    if query is None:
        raise ParameterError("shape of query", None, accepted)
    vector = rectangular("query", query)
    if vector.shape != (dimension,):
        raise ParameterError("shape of query", vector.shape, accepted)
    if vector.dtype.kind not in "biuf":
        raise ParameterError("type of query", vector.dtype.name, "real numbers")
    if not np.isfinite(vector).all():
        raise ParameterError("query", "NaN or infinity", "finite numbers")
    return vector


def _blockwise(X: Array, dtype: np.dtype[Any], function: Callable[[Array], Array]) -> Array:
    """Map blocks of X, in the given precision; the first one tells how many features there are."""
    parts = list(blocks(X)) or [slice(0, 0)]
    result = None
    for part in parts:
        mapped = function(np.ascontiguousarray(X[part], dtype=dtype))
        if result is None:
            result = np.empty((len(X), mapped.shape[1]), dtype=dtype)
        result[part] = mapped
    return np.asarray(result)


def _scores(X: Array, query: Array, inverse_temperature: float) -> Array:
    """Return β X q in the precision of X, of shape (n, L)."""
    with np.errstate(over="ignore", invalid="ignore"):
        scores = np.asarray(inverse_temperature * (X @ np.asarray(query, dtype=X.dtype)))
    if not np.all(np.isfinite(scores)):
        if not np.all(np.isfinite(X)):
            raise ParameterError("X", "NaN or infinity", "finite numbers")
        raise ParameterError(
            "inverse_temperature", inverse_temperature, "a value at which β X q is finite"
        )
    return scores


def _weighted_sum(X: Array, weights: Array) -> Array:
    return np.asarray(np.matmul(weights[:, None, :], X)[:, 0, :])
