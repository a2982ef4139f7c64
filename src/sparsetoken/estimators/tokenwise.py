"""Lift a transformer of rows to a transformer of tokens."""

from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from sparsetoken.arrays import Array
from sparsetoken.estimators.base import Check, sequences_of, unchanged_on_error
from sparsetoken.estimators.sequences import Sequences, mask_tokens
from sparsetoken.validation import ParameterError, integer

__all__ = ["TokenWise"]


def _transformer(name: str, value: Any) -> Any:
    if not (hasattr(value, "fit") and hasattr(value, "transform")):
        raise ParameterError(name, value, "a scikit-learn transformer")
    return value


class TokenWise(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Apply a transformer to every token of every sequence.

    The output has the input's form: an array (n, L, d') for an array, a list for a list, a masked
    array for a masked one (the transformer never sees its padding), 2-D for 2-D.

    Parameters
    ----------
    transformer : scikit-learn transformer
        For example StandardScaler, PCA or Nystroem. A clone of it is fitted, without labels.
    max_tokens : int or None, default 100000
        Most tokens to fit on, drawn at random; None fits on all of them, in one copy.
    random_state : int, RandomState or None
        Decides which tokens are drawn.

    Attributes
    ----------
    transformer_ : the fitted transformer

    Examples
    --------
    >>> from sklearn.decomposition import PCA
    >>> from sparsetoken import TokenWise, digit_bags
    >>> train, test = digit_bags(6, train=120, test=100)
    >>> TokenWise(PCA(10)).fit_transform(train.X).shape
    (120, 6, 10)
    """

    _checks: ClassVar[dict[str, Check]] = {
        "transformer": _transformer,
        "max_tokens": lambda name, value: None if value is None else integer(name, value, low=1),
    }

    def __init__(
        self, transformer: Any, *, max_tokens: int | None = 100_000, random_state: Any = None
    ) -> None:
        self.transformer = transformer
        self.max_tokens = max_tokens
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, *, mask: Any = None) -> Self:
        """Fit the transformer on the tokens of all sequences.

        Parameters
        ----------
        X : array of shape (n, L, d), list of n arrays of shape (L_i, d), masked array (n, L, d), or
            array of shape (n, d)
        y : ignored
        mask : array of shape (n, L), optional
            True where a token is present, for a 3-D X with padding.

        Returns
        -------
        the transformer itself

        Examples
        --------
        >>> from sklearn.preprocessing import StandardScaler
        >>> from sparsetoken import TokenWise, digit_bags
        >>> train, _ = digit_bags(4, train=60, test=20)
        >>> TokenWise(StandardScaler()).fit(train.X).transformer_.mean_.shape
        (64,)
        """
        del y
        with unchanged_on_error(self):
            for name, check in self._checks.items():
                check(name, getattr(self, name))
            sequences = sequences_of(self, X, mask, reset=True)
            tokens = self._sample(sequences)
            self.transformer_ = clone(self.transformer).fit(tokens)
        return self

    def transform(self, X: Any, *, mask: Any = None) -> Any:
        """Return the sequences with every token transformed.

        Parameters
        ----------
        X : array of shape (n, L, d), list of n arrays of shape (L_i, d), masked array (n, L, d), or
            array of shape (n, d)
        mask : array of shape (n, L), optional
            True where a token is present, for a 3-D X with padding.

        Returns
        -------
        as X: an array, or a list of arrays

        Examples
        --------
        >>> from sklearn.decomposition import PCA
        >>> from sparsetoken import TokenWise, digit_bags
        >>> train, test = digit_bags(4, train=60, test=20)
        >>> TokenWise(PCA(5)).fit(train.X).transform(test.X).shape
        (20, 4, 5)
        """
        check_is_fitted(self)
        sequences = sequences_of(self, X, mask, reset=False)
        result: Array | None = None
        start = 0
        for block in sequences.blocks():
            _require_finite(sequences, block)
            part = np.asarray(self.transformer_.transform(block.tokens))
            if result is None:
                result = np.empty((int(sequences.lengths.sum()), part.shape[1]), dtype=part.dtype)
            result[start : start + len(part)] = part
            start += len(part)
        assert result is not None
        return _in_form(sequences, result, two_dimensional=np.ndim(_first(X)) == 1)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags

    def _sample(self, sequences: Sequences) -> Array:
        """Return the tokens to fit on, at most `max_tokens`."""
        total = int(sequences.lengths.sum())
        limit = total if self.max_tokens is None else min(total, self.max_tokens)
        rng = check_random_state(self.random_state)
        chosen = np.sort(rng.choice(total, limit, replace=False)) if limit < total else None
        parts, start = [], 0
        for block in sequences.blocks():
            _require_finite(sequences, block)
            stop = start + len(block.tokens)
            if chosen is None:
                parts.append(block.tokens)
            else:
                low, high = np.searchsorted(chosen, (start, stop))
                parts.append(block.tokens[chosen[low:high] - start])
            start = stop
        return np.concatenate(parts)


def _require_finite(sequences: Sequences, block: Any) -> None:
    if not np.isfinite(block.tokens.sum()):
        sequences.require_finite(block)


def _first(X: Any) -> Any:
    return X[0] if isinstance(X, list | tuple | np.ndarray) else np.asarray(X)[0]


def _in_form(sequences: Sequences, tokens: Array, *, two_dimensional: bool) -> Any:
    if sequences.padded_length is None:
        return np.split(tokens, np.cumsum(sequences.lengths)[:-1])
    if two_dimensional:
        return tokens
    shape = (len(sequences), sequences.padded_length, tokens.shape[1])
    present = sequences.token_mask
    if present is None:
        return tokens.reshape(shape)
    padded = np.zeros(shape, dtype=tokens.dtype)
    padded[present] = tokens
    return mask_tokens(padded, present)
