"""A real target instead of classes, by the same code: labels ±1 whose weights stand for the target."""

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import assert_all_finite, check_is_fitted, column_or_1d

from sparsetoken.arrays import Array
from sparsetoken.estimators.attention import AttentionClassifier
from sparsetoken.estimators.base import (
    checked_groups,
    checked_weights,
    sequences_of,
    unchanged_on_error,
)
from sparsetoken.estimators.labelled import LabelledSequences
from sparsetoken.estimators.sequences import Sequences
from sparsetoken.numerics.threads import one_thread
from sparsetoken.validation import ParameterError

__all__ = ["AttentionRegressor"]


class AttentionRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Softmax attention for a real target, by the square loss.

    The prediction is ⟨Xᵀ softmax(X q), w⟩ + b. What is fitted, and how it is chosen, is as in
    `AttentionClassifier`: the target is moved to t in (-1, 1), and each sample counts as a positive
    of weight (1 + t)/2 and a negative of weight (1 - t)/2, since

        (1 + t)/2 (1 - f)² + (1 - t)/2 (1 + f)² = (t - f)² + 1 - t².

    A target with a few far values is better given through `TransformedTargetRegressor`.

    Parameters
    ----------
    heads, refine, tied, sharpness, whiten, ridge, max_iter, tol, verbose, length, random_state
        As in `AttentionClassifier`; `tol` is in units of the target's variance.

    Attributes
    ----------
    classifier_ : AttentionClassifier
        The fit to t, with all that it tells: `family_`, `candidates_`, `transform`, ...
    middle_, unit_ : float
        The target is `middle_` + `unit_` × t.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsetoken import AttentionRegressor
    >>> rng = np.random.default_rng(0)
    >>> X, value = rng.standard_normal((200, 5, 3)), rng.standard_normal(200)
    >>> X[:, 2, 0] += 6  # one token is marked along the first axis,
    >>> X[:, 2, 1] = value  # and says the target along the second
    >>> model = AttentionRegressor().fit(X[:150], 10 + 2 * value[:150])
    >>> model.score(X[150:], 10 + 2 * value[150:]) > 0.9
    True
    """

    def __init__(
        self,
        *,
        heads: int = 1,
        refine: bool | str = "auto",
        tied: bool | str = "auto",
        sharpness: float | str = "auto",
        whiten: bool | str = "auto",
        ridge: float | str = "auto",
        max_iter: int = 300,
        tol: float = 1e-5,
        verbose: bool = False,
        length: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.heads = heads
        self.refine = refine
        self.tied = tied
        self.sharpness = sharpness
        self.whiten = whiten
        self.ridge = ridge
        self.max_iter = max_iter
        self.tol = tol
        self.verbose = verbose
        self.length = length
        self.random_state = random_state

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, mask: Any = None, groups: Any = None
    ) -> Self:
        """Fit to targets; everything else as in `AttentionClassifier.fit`.

        Parameters
        ----------
        X : array of shape (n, L, d), list of n arrays of shape (L_i, d), masked array (n, L, d), or
            array of shape (n, d)
        y : array of shape (n,)
            Targets, real numbers.
        sample_weight : array of shape (n,), optional
        mask : array of shape (n, L), optional
            True where a token is present, for a 3-D X with padding.
        groups : array of shape (n,), optional
            Samples of one group are held out together when parameters that are "auto" are chosen.

        Returns
        -------
        the regressor itself

        Examples
        --------
        >>> import numpy as np
        >>> from sparsetoken import AttentionRegressor, digit_bags
        >>> train, test = digit_bags(4, train=60, test=20)
        >>> model = AttentionRegressor(max_iter=20, tol=1e-2).fit(train.X, train.X.sum(axis=(1, 2)))
        >>> model.n_features_in_
        64
        """
        with one_thread, unchanged_on_error(self):
            classifier = AttentionClassifier(loss="square", **self.get_params())
            classifier.check_parameters()
            sequences = sequences_of(classifier, X, mask, reset=True)
            targets = _checked_targets(y, len(sequences))
            weights = checked_weights(sample_weight, len(sequences))
            groups = checked_groups(groups, len(sequences))
            used = np.flatnonzero(weights > 0)
            if not len(used):
                raise ParameterError("sample_weight", 0.0, "weights of a sum above zero")
            sequences, targets, weights = sequences.take(used), targets[used], weights[used]
            middle = (targets.max() + targets.min()) / 2
            # A little more than needed: no label has weight 0, not even at the ends.
            unit = (1 + 1e-6) * (targets.max() - targets.min()) / 2 or 1.0
            t = (targets - middle) / unit
            labelled = _as_labels(sequences, t, weights, None if groups is None else groups[used])
            classifier._fit_labelled(labelled, np.array([-1.0, 1.0]))
            self.classifier_, self.middle_, self.unit_ = classifier, float(middle), float(unit)
            for name in ("n_features_in_", "feature_names_in_"):
                if hasattr(classifier, name):
                    setattr(self, name, getattr(classifier, name))
                elif hasattr(self, name):  # of an earlier fit
                    delattr(self, name)
        return self

    @property
    def n_iter_(self) -> int:
        """Steps of the optimiser."""
        check_is_fitted(self, "classifier_")
        return int(self.classifier_.n_iter_)

    def predict(self, X: Any, *, mask: Any = None) -> Array:
        """Return the predicted targets, of shape (n,).

        Parameters
        ----------
        X : array of shape (n, L, d), list of n arrays of shape (L_i, d), masked array (n, L, d), or
            array of shape (n, d)
        mask : array of shape (n, L), optional
            True where a token is present, for a 3-D X with padding.

        Returns
        -------
        array of shape (n,)

        Examples
        --------
        >>> import numpy as np
        >>> from sparsetoken import AttentionRegressor, digit_bags
        >>> train, test = digit_bags(4, train=60, test=20)
        >>> model = AttentionRegressor(max_iter=20, tol=1e-2).fit(train.X, train.X.sum(axis=(1, 2)))
        >>> model.predict(test.X).shape
        (20,)
        """
        decisions = self._fitted().decision_function(X, mask=mask)
        return np.asarray(self.middle_ + self.unit_ * decisions.astype(float))

    def attention(self, X: Any, *, mask: Any = None) -> Any:
        """Return the weight of each token, as `AttentionClassifier.attention`.

        Parameters
        ----------
        X : array of shape (n, L, d), list of n arrays of shape (L_i, d), masked array (n, L, d), or
            array of shape (n, d)
        mask : array of shape (n, L), optional
            True where a token is present, for a 3-D X with padding.

        Returns
        -------
        as `AttentionClassifier.attention`

        Examples
        --------
        >>> import numpy as np
        >>> from sparsetoken import AttentionRegressor, digit_bags
        >>> train, test = digit_bags(4, train=60, test=20)
        >>> model = AttentionRegressor(max_iter=20, tol=1e-2).fit(train.X, train.X.sum(axis=(1, 2)))
        >>> float(model.attention(test.X).sum(axis=1).round(6).max())
        1.0
        """
        return self._fitted().attention(X, mask=mask)

    def evidence(self, X: Any, *, mask: Any = None) -> Any:
        """Return by how much the prediction would fall without each token, in the target's units.

        Parameters
        ----------
        X : array of shape (n, L, d), list of n arrays of shape (L_i, d), masked array (n, L, d), or
            array of shape (n, d)
        mask : array of shape (n, L), optional
            True where a token is present, for a 3-D X with padding.

        Returns
        -------
        as `attention`

        Examples
        --------
        >>> import numpy as np
        >>> from sparsetoken import AttentionRegressor, digit_bags
        >>> train, test = digit_bags(4, train=60, test=20)
        >>> model = AttentionRegressor(max_iter=20, tol=1e-2).fit(train.X, train.X.sum(axis=(1, 2)))
        >>> model.evidence(test.X).shape
        (20, 4)
        """
        evidence = self._fitted().evidence(X, mask=mask)
        if isinstance(evidence, list):
            return [self.unit_ * one for one in evidence]
        return self.unit_ * evidence

    def token_scores(self, X: Any, *, mask: Any = None) -> Any:
        """Return how much each token attracts attention, as `AttentionClassifier.token_scores`.

        Parameters
        ----------
        X : array of shape (n, L, d), list of n arrays of shape (L_i, d), masked array (n, L, d), or
            array of shape (n, d)
        mask : array of shape (n, L), optional
            True where a token is present, for a 3-D X with padding.

        Returns
        -------
        as `attention`

        Examples
        --------
        >>> import numpy as np
        >>> from sparsetoken import AttentionRegressor, digit_bags
        >>> train, test = digit_bags(4, train=60, test=20)
        >>> model = AttentionRegressor(max_iter=20, tol=1e-2).fit(train.X, train.X.sum(axis=(1, 2)))
        >>> model.token_scores(test.X).shape
        (20, 4)
        """
        return self._fitted().token_scores(X, mask=mask)

    def learn_background(self, X: Any, *, mask: Any = None) -> Self:
        """Learn token scores in sequences without tokens that matter, for `locate(false_alarms=)`.

        These sequences were not used in `fit`.

        Parameters
        ----------
        X : array of shape (n, L, d), list of n arrays of shape (L_i, d), masked array (n, L, d), or
            array of shape (n, d)
        mask : array of shape (n, L), optional
            True where a token is present, for a 3-D X with padding.

        Returns
        -------
        the regressor itself

        Examples
        --------
        >>> import numpy as np
        >>> from sparsetoken import AttentionRegressor, digit_bags
        >>> train, test = digit_bags(4, train=60, test=20)
        >>> model = AttentionRegressor(max_iter=20, tol=1e-2).fit(train.X, train.X.sum(axis=(1, 2)))
        >>> _ = model.learn_background(train.X)
        >>> len(model.locate(test.X, false_alarms=0.1))
        20
        """
        self._fitted().learn_background(X, mask=mask)
        return self

    def locate(
        self, X: Any, *, k: int | None = None, mask: Any = None, false_alarms: float | None = None
    ) -> Any:
        """Return the positions of the tokens that matter, as `AttentionClassifier.locate`.

        Parameters
        ----------
        X : array of shape (n, L, d), list of n arrays of shape (L_i, d), masked array (n, L, d), or
            array of shape (n, d)
        mask : array of shape (n, L), optional
            True where a token is present, for a 3-D X with padding.
        k, false_alarms
            As in `AttentionClassifier.locate`.

        Returns
        -------
        as `AttentionClassifier.locate`

        Examples
        --------
        >>> import numpy as np
        >>> from sparsetoken import AttentionRegressor, digit_bags
        >>> train, test = digit_bags(4, train=60, test=20)
        >>> model = AttentionRegressor(max_iter=20, tol=1e-2).fit(train.X, train.X.sum(axis=(1, 2)))
        >>> model.locate(test.X, k=2).shape
        (20, 2)
        """
        return self._fitted().locate(X, k=k, mask=mask, false_alarms=false_alarms)

    def _fitted(self) -> AttentionClassifier:
        check_is_fitted(self, "classifier_")
        classifier: AttentionClassifier = self.classifier_
        return classifier

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags


def _checked_targets(y: Any, samples: int) -> Array:
    if y is None:
        raise ValueError("fit requires y to be passed, but the target y is None")
    targets = column_or_1d(y, dtype=np.float64, warn=True)
    assert_all_finite(targets, input_name="y")
    if len(targets) != samples:
        raise ParameterError("length of y", len(targets), f"{samples}, one target a sample")
    return np.asarray(targets)


def _as_labels(
    sequences: Sequences, t: Array, weights: Array, groups: Array | None
) -> LabelledSequences:
    """Return each sample twice, as a negative and as a positive, with weights that stand for t."""
    n = len(t)
    if groups is None:  # the two, and copies of the sample, are held out together
        codes = np.unique(t, return_inverse=True)[1]
        groups = LabelledSequences(sequences, codes, codes[None], weights).content()
    shares = np.column_stack([(1 - t) / 2, (1 + t) / 2]) * weights[:, None]
    signs = np.tile([-1.0, 1.0], n)
    variance = np.average((t - np.average(t, weights=weights)) ** 2, weights=weights)
    return LabelledSequences(
        sequences.take(np.repeat(np.arange(n), 2)),
        np.tile([0, 1], n),
        signs[None],
        (shares / shares.sum()).ravel(),
        np.repeat(groups, 2),
        unit=float(variance) or 1.0,
    )
