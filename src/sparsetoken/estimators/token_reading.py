"""Where a fitted classifier looks, token by token: attention, evidence, scores and places."""

from collections.abc import Callable
from functools import partial
from typing import Any, Self

import numpy as np

from sparsetoken.arrays import Array
from sparsetoken.estimators.base import SequenceClassifier, warn_user
from sparsetoken.estimators.labelled import LabelledSequences
from sparsetoken.estimators.sequences import Block, Sequences
from sparsetoken.estimators.token_evidence import Background
from sparsetoken.numerics.threads import one_thread
from sparsetoken.validation import ParameterError, integer, real

__all__ = ["TokenReading"]


class TokenReading(SequenceClassifier):
    """What can be asked about tokens of a classifier whose `model_` is an `AttentionModel`."""

    def _fit_labelled(self, labelled: LabelledSequences, classes: Array) -> None:
        super()._fit_labelled(labelled, classes)
        # What another fit has learnt says nothing of this one.
        self.backgrounds_: dict[int | None, Background] = {}

    def attention(self, X: Any, *, mask: Any = None, target: Any = None) -> Any:
        """Return the weight of each token, of sum 1 in each sequence, averaged over heads.

        Parameters
        ----------
        X, mask : as in `fit`
        target : class label, optional
            With three or more classes, the class against the rest whose attention is wanted; that
            of each sequence's predicted class by default. Two classes share one attention, so that
            both have the same weights here.

        Returns
        -------
        array of shape (n, L), 0 at padding, or a list of arrays of shape (L_i,) for a list

        Examples
        --------
        >>> from sparsetoken import AttentionClassifier, digit_bags
        >>> train, test = digit_bags(6, train=120, test=40)
        >>> model = AttentionClassifier(refine=False, ridge=0.01, sharpness=2.0).fit(train.X, train.y)
        >>> model.attention(test.X).sum(axis=1).round(6).tolist() == [1.0] * 40
        True
        """
        sequences = self._fitted_sequences(X, mask)
        wanted = self._wanted(target)
        return _in_shape(sequences, self._per_token(sequences, wanted, self.model_.attend))

    def evidence(self, X: Any, *, mask: Any = None, target: Any = None) -> Any:
        """Return by how much each token moves the decision: it would fall by this without it.

        Positive for tokens that speak for the class `target`, negative for those against it. With
        two classes it is the second by default, and what speaks for one speaks against the other.

        Parameters
        ----------
        X : array of shape (n, L, d), list of n arrays of shape (L_i, d), masked array (n, L, d), or
            array of shape (n, d)
        mask : array of shape (n, L), optional
            True where a token is present, for a 3-D X with padding.
        target : class label, optional
            As in `attention`.

        Returns
        -------
        as `attention`

        Examples
        --------
        >>> from sparsetoken import AttentionClassifier, digit_bags
        >>> train, test = digit_bags(6, train=120, test=40)
        >>> model = AttentionClassifier(refine=False, ridge=0.01, sharpness=2.0).fit(train.X, train.y)
        >>> model.evidence(test.X).shape
        (40, 6)
        """
        sequences = self._fitted_sequences(X, mask)
        wanted = self._wanted(target)
        compute = partial(self.model_.evidence, sign=self._sign(wanted))
        return _in_shape(sequences, self._per_token(sequences, wanted, compute))

    def token_scores(self, X: Any, *, mask: Any = None, target: Any = None) -> Any:
        """Return how much each token attracts attention by itself, whatever stands beside it.

        Comparable between sequences of any length. Without a query, as with mean or max pooling, it
        is how much the token alone speaks for the class `target` (with two classes, the second by
        default).

        Parameters
        ----------
        X : array of shape (n, L, d), list of n arrays of shape (L_i, d), masked array (n, L, d), or
            array of shape (n, d)
        mask : array of shape (n, L), optional
            True where a token is present, for a 3-D X with padding.
        target : class label, optional
            As in `attention`.

        Returns
        -------
        as `attention`

        Examples
        --------
        >>> from sparsetoken import AttentionClassifier, digit_bags
        >>> train, test = digit_bags(6, train=120, test=40)
        >>> model = AttentionClassifier(refine=False, ridge=0.01, sharpness=2.0).fit(train.X, train.y)
        >>> bool((model.token_scores(test.X).argmax(axis=1) == model.locate(test.X)[:, 0]).all())
        True
        """
        sequences = self._fitted_sequences(X, mask)
        return _in_shape(sequences, self._token_scores(sequences, self._wanted(target)))

    def learn_background(self, X: Any, *, mask: Any = None, target: Any = None) -> Self:
        """Learn the law of token scores in sequences without signal, for `locate(false_alarms=)`.

        Parameters
        ----------
        X, mask : as in `fit`
            Sequences without signal, of other classes than `target`, that were not used in `fit`.
            To control a false alarms in sequences of L tokens takes at least L/a tokens here.
        target : class label, optional
            The class to locate, which has a background of its own; with two classes, the second by
            default. With three or more, that of each sequence's predicted class has one as well,
            which is learnt without `target`.

        Returns
        -------
        the classifier itself

        Examples
        --------
        >>> from sparsetoken import AttentionClassifier, digit_bags
        >>> train, test = digit_bags(6, train=120, test=40)
        >>> model = AttentionClassifier(refine=False, ridge=0.01, sharpness=2.0).fit(train.X, train.y)
        >>> ready = model.learn_background(test.X[test.y == 0])
        >>> len(ready.locate(test.X, false_alarms=0.1))
        40
        """
        sequences = self._fitted_sequences(X, mask)
        wanted = self._wanted(target)
        learnt = Background.of(np.concatenate(self._token_scores(sequences, wanted)))
        self.backgrounds_ = {**self.backgrounds_, wanted: learnt}
        return self

    def locate(
        self,
        X: Any,
        *,
        k: int | None = None,
        mask: Any = None,
        target: Any = None,
        false_alarms: float | None = None,
    ) -> Any:
        """Return the positions of the tokens that matter, the first first.

        Parameters
        ----------
        X, mask, target : as in `attention`
        k : int, default 1
            How many tokens of each sequence: the k most attended. Where attention is the same, as
            everywhere with mean pooling, those of the largest `token_scores` come first.
        false_alarms : float, optional
            Instead of `k`: as many tokens as stand out from the background, perhaps none, so that
            a sequence without signal has at most this many on average. `learn_background` first.

        Returns
        -------
        array of shape (n, k), or a list of n arrays with `false_alarms`

        Examples
        --------
        >>> from sparsetoken import AttentionClassifier, digit_bags
        >>> train, test = digit_bags(6, train=120, test=40)
        >>> model = AttentionClassifier(refine=False, ridge=0.01, sharpness=2.0).fit(train.X, train.y)
        >>> model.locate(test.X, k=2).shape
        (40, 2)
        """
        sequences = self._fitted_sequences(X, mask)
        wanted = self._wanted(target)
        if false_alarms is not None:
            if k is not None:
                raise ParameterError("k", k, "None together with false_alarms")
            return self._outstanding(sequences, wanted, false_alarms)
        k = integer("k", 1 if k is None else k, low=1)
        short = np.flatnonzero(sequences.lengths < k)
        if len(short):
            raise ParameterError(
                "k", k, f"at most the {sequences.lengths[short[0]]} tokens of sample {short[0]}"
            )
        weights = _in_shape(sequences, self._per_token(sequences, wanted, self.model_.attend))
        scores = _in_shape(sequences, self._token_scores(sequences, wanted))
        if sequences.token_mask is not None:
            weights[~sequences.token_mask] = -1.0
        return np.array([np.lexsort((-b, -a))[:k] for a, b in zip(weights, scores, strict=True)])

    def _wanted(self, target: Any) -> int | None:
        """Return the index of the class: the second of two by default, None of several."""
        if target is None:
            return 1 if len(self.classes_) == 2 else None
        if np.ndim(target) > 0 or not np.any(self.classes_ == target):
            raise ParameterError("target", target, f"one of {self.classes_.tolist()}")
        return int(np.flatnonzero(self.classes_ == target)[0])

    def _sign(self, wanted: int | None) -> int:
        """Return -1 for the first of two classes, whose one problem is that of the second."""
        return -1 if len(self.classes_) == 2 and wanted == 0 else 1

    def _token_scores(self, sequences: Sequences, wanted: int | None) -> list[Array]:
        compute = partial(self.model_.token_scores, sign=self._sign(wanted))
        return self._per_token(sequences, wanted, compute)

    def _outstanding(
        self, sequences: Sequences, wanted: int | None, false_alarms: float
    ) -> list[Array]:
        """Return the tokens whose p-value times the length is at most `false_alarms`."""
        allowed = real("false_alarms", false_alarms, low=0, inclusive=False)
        background = self.backgrounds_.get(wanted)
        if background is None:
            default = wanted is None or (len(self.classes_) == 2 and wanted == 1)
            how = "" if default else f", target={self.classes_.tolist()[wanted]!r}"
            raise ParameterError(
                "false_alarms", false_alarms, f"a call of learn_background(X_background{how}) first"
            )
        needed = int(np.ceil(sequences.lengths.max() / allowed))
        if background.count < needed:
            warn_user(
                f"the background has {background.count} tokens; to let any token of the "
                f"longest sequence stand out takes {needed}: learn it from more sequences"
            )
        scores = np.concatenate(self._token_scores(sequences, wanted))
        p_values = background.p_values(scores)
        found = []
        ends = np.cumsum(sequences.lengths)
        masks = sequences.token_mask
        for row, (end, length) in enumerate(zip(ends, sequences.lengths, strict=True)):
            own = p_values[end - length : end]
            chosen = np.flatnonzero(length * own <= allowed)
            chosen = chosen[np.argsort(own[chosen], kind="stable")]
            found.append(chosen if masks is None else np.flatnonzero(masks[row])[chosen])
        return found

    @one_thread
    def _per_token(
        self, sequences: Sequences, wanted: int | None, compute: Callable[[Block, int], Array]
    ) -> list[Array]:
        """Return one number a token, block by block, from the problem of each sequence."""
        if len(self.model_.problems) == 1:
            problem = np.zeros(len(sequences), dtype=int)
        elif wanted is None:
            problem = self._predicted(sequences)
        else:
            problem = np.full(len(sequences), wanted)
        parts = []
        for block in sequences.blocks():
            asked = problem[block.samples]
            values = np.zeros(len(block.tokens), dtype=block.tokens.dtype)
            for index in np.unique(asked):
                here = np.repeat(asked == index, block.lengths)
                values[here] = compute(block, index)[here]
            if not np.all(np.isfinite(values)):
                sequences.require_finite(block)
            parts.append(values)
        return parts


def _in_shape(sequences: Sequences, parts: list[Array]) -> Any:
    """Return weights of all tokens in the input's shape: padded array, or list."""
    flat = np.concatenate(parts)
    if sequences.padded_length is None:
        return np.split(flat, np.cumsum(sequences.lengths)[:-1])
    if sequences.token_mask is None:
        return flat.reshape(len(sequences), sequences.padded_length)
    result = np.zeros(sequences.token_mask.shape, dtype=flat.dtype)
    result[sequences.token_mask] = flat
    return result
