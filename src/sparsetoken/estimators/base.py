"""What all classifiers of sequences share: input, labels, weights, one against the rest."""

import inspect
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    assert_all_finite,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from sparsetoken.arrays import Array
from sparsetoken.estimators.labelled import LabelledSequences
from sparsetoken.estimators.partitions import is_partitioned, read_partitions
from sparsetoken.estimators.sequences import Block, Sequences, as_sequences, looks_transposed
from sparsetoken.losses import get_loss, loss_names
from sparsetoken.numerics.solution import Solution
from sparsetoken.numerics.threads import one_thread
from sparsetoken.validation import ParameterError, choice, integer, real, rectangular

__all__ = [
    "Check",
    "Model",
    "SequenceClassifier",
    "automatic",
    "checked_groups",
    "checked_weights",
    "sequences_of",
    "unchanged_on_error",
    "warn_of_copies",
    "warn_user",
]


# Of so many samples copies move a held-out error by less than other things do.
MANY_COPIES = 0.05


class Model(Protocol):
    """What a fit gives: decisions of all one-against-the-rest problems."""

    @property
    def solutions(self) -> Sequence[Solution]:
        """How the solver of each problem ended."""

    def decide(self, block: Block) -> Array:
        """Return the decisions, of shape (problems, samples of the block)."""


def _class_weight(name: str, value: Any) -> Any:
    if value is None or isinstance(value, Mapping):
        return value
    if isinstance(value, str) and value == "balanced":
        return value
    raise ParameterError(name, value, "None, 'balanced' or a dict {class: weight}")


def _loss(name: str, value: Any) -> str:
    return choice(name, value, loss_names())


Check = Callable[[str, Any], Any]


def automatic(check: Check) -> Check:
    """Return a check that accepts "auto" as well, and says so."""

    def checked(name: str, value: Any) -> Any:
        if isinstance(value, str) and value == "auto":
            return value
        try:
            return check(name, value)
        except ParameterError as error:
            raise ParameterError(name, value, f"{error.accepted}, or 'auto'") from None

    return checked


class SequenceClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier sign(⟨f(X), w⟩ + b) of sequences, for some feature map f."""

    model_: Any  # a Model, with more in the classifiers that need it

    # How each parameter is checked, once; `fit` goes through them all.
    _checks: ClassVar[dict[str, Check]] = {
        "ridge": automatic(lambda name, value: real(name, value, low=0)),
        "loss": _loss,
        "class_weight": _class_weight,
        "length": lambda name, value: None if value is None else integer(name, value, low=1),
    }

    @property
    @abstractmethod
    def ridge_(self) -> float:
        """The ridge, chosen or given."""

    @abstractmethod
    def _fit_model(self, labelled: LabelledSequences, rng: np.random.Generator) -> Model:
        """Fit one binary problem for each row of the labels."""

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        mask: Any = None,
        groups: Any = None,
        client: Any = None,
    ) -> Self:
        """Fit the classifier.

        Parameters
        ----------
        X : array of shape (n, L, d), list of n arrays of shape (L_i, d), masked array (n, L, d), or
            array of shape (n, d)
            A 2-D X is n sequences of one token, or of `length` tokens if that is given.
        y : array of shape (n,)
            Class labels, two or more.
        sample_weight : array of shape (n,), optional
        mask : array of shape (n, L), optional
            True where a token is present, for a 3-D X with padding.
        groups : array of shape (n,), optional
            Samples of one group (a patient, a recording) are held out together when parameters
            that are "auto" are chosen.
        client : distributed.Client, optional
            The Dask cluster on which to read an X in parts: a Dask array with chunks along samples,
            a list of delayed blocks, or a list of .npy or .h5 files. Without it files are read
            here, one after another. None for an X in memory.

        Returns
        -------
        the classifier itself

        Examples
        --------
        >>> from sparsetoken import PooledClassifier, digit_bags
        >>> train, test = digit_bags(4, train=60, test=20)
        >>> PooledClassifier().fit(train.X, train.y).classes_
        array([0, 1])
        """
        with one_thread, unchanged_on_error(self):  # threads would decide the last bits
            self.check_parameters()
            sequences = sequences_of(self, X, mask, reset=True, client=client)
            if hasattr(y, "compute"):
                y = y.compute()
            classes, codes = _encoded(y, len(sequences))
            weights = checked_weights(sample_weight, len(sequences))
            weights = weights * self._class_factors(classes, codes, weights)
            _require_classes(classes, codes, weights)
            targets = range(1, 2) if len(classes) == 2 else range(len(classes))
            labels = np.array([np.where(codes == target, 1.0, -1.0) for target in targets])
            labelled = LabelledSequences(
                sequences,
                codes,
                labels,
                weights / weights.sum(),
                checked_groups(groups, len(sequences)),
            )
            self._fit_labelled(labelled, classes)
        return self

    def check_parameters(self) -> None:
        """Raise a ParameterError if a parameter is not valid; `fit` does this first.

        Examples
        --------
        >>> from sparsetoken import PooledClassifier
        >>> PooledClassifier(ridge=-1.0).check_parameters()
        Traceback (most recent call last):
            ...
        sparsetoken.validation.ParameterError: ridge = -1.0 is not valid: expected a finite number >= 0, or 'auto'
        """
        for name, check in self._checks.items():
            check(name, getattr(self, name))

    def _fit_labelled(self, labelled: LabelledSequences, classes: Array) -> None:
        """Fit to samples that are checked; those of no weight play no part."""
        used = np.flatnonzero(labelled.weights > 0)
        if len(used) < len(labelled):
            labelled = labelled.take(used)
        seed = check_random_state(getattr(self, "random_state", None)).randint(2**31)
        model = self._fit_model(labelled, np.random.default_rng(seed))
        self.classes_ = classes
        self.model_ = model
        self.n_iter_ = max(1, *(solution.steps for solution in model.solutions))
        if not all(solution.converged for solution in model.solutions):
            warn_user(f"{self._unfinished()} (here {self.ridge_:g})", ConvergenceWarning)

    def _unfinished(self) -> str:
        """Return what to say of a fit that did not converge, up to the ridge."""
        return "the readout did not converge; raise the ridge"

    def decision_function(self, X: Any, *, mask: Any = None) -> Array:
        """Return the decisions: (n,) for two classes, positive for the second; else (n, classes).

        Parameters
        ----------
        X : array of shape (n, L, d), list of n arrays of shape (L_i, d), masked array (n, L, d), or
            array of shape (n, d)
        mask : array of shape (n, L), optional
            True where a token is present, for a 3-D X with padding.

        Returns
        -------
        array of shape (n,) or (n, classes)

        Examples
        --------
        >>> from sparsetoken import PooledClassifier, digit_bags
        >>> train, test = digit_bags(4, train=60, test=20)
        >>> model = PooledClassifier().fit(train.X, train.y)
        >>> model.decision_function(test.X).shape
        (20,)
        """
        decisions = self._decisions(self._fitted_sequences(X, mask))
        return decisions[0] if len(decisions) == 1 else decisions.T

    def predict(self, X: Any, *, mask: Any = None) -> Array:
        """Return the predicted class of each sequence.

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
        >>> from sparsetoken import PooledClassifier, digit_bags
        >>> train, test = digit_bags(4, train=60, test=20)
        >>> model = PooledClassifier().fit(train.X, train.y)
        >>> model.predict(test.X[:5]).shape
        (5,)
        """
        predicted = self._predicted(self._fitted_sequences(X, mask))
        return np.asarray(self.classes_[predicted])

    @available_if(lambda self: self.loss == "logistic")  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any, *, mask: Any = None) -> Array:
        """Return the probability of each class, of shape (n, classes); logistic loss only.

        Parameters
        ----------
        X : array of shape (n, L, d), list of n arrays of shape (L_i, d), masked array (n, L, d), or
            array of shape (n, d)
        mask : array of shape (n, L), optional
            True where a token is present, for a 3-D X with padding.

        Returns
        -------
        array of shape (n, classes)

        Examples
        --------
        >>> from sparsetoken import PooledClassifier, digit_bags
        >>> train, test = digit_bags(4, train=60, test=20)
        >>> model = PooledClassifier().fit(train.X, train.y)
        >>> float(model.predict_proba(test.X).sum(axis=1).round(6).max())
        1.0
        """
        decisions = self.decision_function(X, mask=mask)
        if decisions.ndim == 1:
            return np.column_stack([expit(-decisions), expit(decisions)])
        separate = np.maximum(expit(decisions), np.finfo(decisions.dtype).tiny)
        return np.asarray(separate / separate.sum(axis=1, keepdims=True))

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, mask: Any = None) -> float:
        """Return the share of sequences whose class is predicted rightly.

        Parameters
        ----------
        X : array of shape (n, L, d), list of n arrays of shape (L_i, d), masked array (n, L, d), or
            array of shape (n, d)
        y : array of shape (n,)
            The true classes.
        sample_weight : array of shape (n,), optional
        mask : array of shape (n, L), optional
            True where a token is present, for a 3-D X with padding.

        Returns
        -------
        float

        Examples
        --------
        >>> from sparsetoken import PooledClassifier, digit_bags
        >>> train, test = digit_bags(4, train=60, test=20)
        >>> model = PooledClassifier().fit(train.X, train.y)
        >>> model.score(test.X, test.y) > 0.5
        True
        """
        predicted = self.predict(X, mask=mask)
        if y is None:
            raise ParameterError("y", None, f"{len(predicted)} labels")
        labels = np.asarray(y)
        if labels.shape != predicted.shape:
            raise ParameterError(
                "shape of y", labels.shape, f"({len(predicted)},), a label a sample"
            )
        # A class that no training sample had may come up in a fold; labels that are all unknown,
        # such as strings for numbers, are another kind of label.
        if not np.isin(labels, self.classes_).any():
            raise ParameterError("y", labels[0], f"labels of fit, such as {self.classes_[0]!r}")
        weights = checked_weights(sample_weight, len(predicted))
        if not weights.any():
            raise ParameterError("sample_weight", "all 0", "weights that are not all 0")
        return float(np.average(predicted == labels, weights=weights))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags

    def _fitted_sequences(self, X: Any, mask: Any) -> Sequences:
        check_is_fitted(self)
        return sequences_of(self, X, mask, reset=False)

    @one_thread
    def _decisions(self, sequences: Sequences) -> Array:
        parts = []
        for block in sequences.blocks():
            decisions = self.model_.decide(block)
            if not np.all(np.isfinite(decisions)):
                sequences.require_finite(block)
            parts.append(decisions)
        return np.concatenate(parts, axis=1)

    def _predicted(self, sequences: Sequences) -> Array:
        """Return the index of the predicted class of each sequence."""
        decisions = self._decisions(sequences)
        if len(decisions) == 1:
            return np.asarray(decisions[0] > 0, dtype=int)
        return np.asarray(decisions.argmax(axis=0))

    def _class_factors(self, classes: Array, codes: Array, weights: Array) -> Array:
        if self.class_weight is None:
            return np.ones(len(codes))
        totals = np.bincount(codes, weights, minlength=len(classes))
        if self.class_weight == "balanced":
            factors = totals.sum() / (len(classes) * np.where(totals > 0, totals, 1.0))
        else:
            unknown = [label for label in self.class_weight if label not in classes]
            if unknown:
                raise ParameterError(
                    "class_weight", unknown[0], f"classes of y, {classes.tolist()}"
                )
            factors = np.array([float(self.class_weight.get(c, 1.0)) for c in classes.tolist()])
        return np.asarray(factors[codes])

    @property
    def _loss_object(self) -> Any:
        return get_loss(self.loss)


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line that called the package, however many calls inside lie between."""
    frame, level = inspect.currentframe(), 1
    while frame is not None and frame.f_globals.get("__name__", "").startswith("sparsetoken."):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def warn_of_copies(X: Any, y: Any) -> None:
    """Warn if many sequences are copies of others of their class, that folds put on both sides."""
    if isinstance(X, np.ndarray) and X.ndim == 2:  # rows of a table are alike by chance
        return
    try:
        sequences = as_sequences(X)
    except (ParameterError, ValueError, TypeError):  # what other classifiers take
        return
    codes = np.unique(y, return_inverse=True)[1]
    keys = LabelledSequences(sequences, codes, codes[None], np.ones(len(codes))).content()
    copies = len(keys) - len(np.unique(keys))
    if copies > MANY_COPIES * len(keys):
        warn_user(
            f"{copies} of {len(keys)} samples are copies of others: folds have them on both sides, so "
            "that errors on held-out samples are too low; leave copies out, or give compare() groups"
        )


@contextmanager
def unchanged_on_error(estimator: Any) -> Iterator[None]:
    """Leave the estimator as it was if the block raises: nothing is half-fitted."""
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise


def sequences_of(
    estimator: Any, X: Any, mask: Any, *, reset: bool, client: Any = None
) -> Sequences:
    """Return the input as Sequences, and set or compare the number of features."""
    length = getattr(estimator, "length", None)
    X = _column_as_list(X)
    if is_partitioned(X):
        if mask is not None:
            raise ParameterError("mask", type(mask).__name__, "None for an X in parts")
        return _consistent(estimator, read_partitions(X, client), length, reset=reset)
    if client is not None:
        accepted = "None unless X is a Dask array, or a list of delayed blocks or of files"
        raise ParameterError("client", client, accepted)
    if not _is_three_dimensional(X):
        if mask is not None or np.ma.is_masked(X):
            raise ParameterError("mask", type(mask).__name__, "none unless X is a 3-D array")
        _require_rows(X)
        X = validate_data(estimator, X, reset=reset, dtype=(np.float64, np.float32))
        return as_sequences(X, length=length)
    sequences = as_sequences(X, mask)
    if reset and isinstance(X, np.ndarray) and mask is None and looks_transposed(X):
        warn_user(
            f"X of shape {X.shape} is read as (samples, tokens, dimension), and looks like (samples, "
            "channels, time): give X.transpose(0, 2, 1) if it is"
        )
    return _consistent(estimator, sequences, length, reset=reset)


def _consistent(
    estimator: Any, sequences: Sequences, length: int | None, *, reset: bool
) -> Sequences:
    """Return sequences that are no rows of a table, if `length` and the fit agree with them."""
    factor = length or 1
    if reset:
        if length is not None and not np.all(sequences.lengths == length):
            other = sequences.lengths[sequences.lengths != length][0]
            accepted = f"None for an X whose sequences have lengths of their own, such as {other}"
            raise ParameterError("length", length, accepted)
        vars(estimator).pop("feature_names_in_", None)
        estimator.n_features_in_ = factor * sequences.dimension
    elif factor * sequences.dimension != estimator.n_features_in_:
        raise ParameterError(
            "dimension of X's tokens",
            sequences.dimension,
            f"{estimator.n_features_in_ // factor}, as in fit",
        )
    return sequences


def _column_as_list(X: Any) -> Any:
    """Return a data frame's column of arrays as a list of arrays; anything else as it is."""
    if type(X).__module__.split(".")[0] not in ("pandas", "polars"):
        return X
    if hasattr(X, "columns"):
        if len(X.columns) != 1:
            return X
        X = X[X.columns[0]]
    items = X.to_list()
    return [np.asarray(item) for item in items] if np.ndim(items[0]) > 0 else X


def _is_three_dimensional(X: Any) -> bool:
    """Whether X is an array of three dimensions or a list of sequences, not a table."""
    if isinstance(X, list | tuple) or (
        isinstance(X, np.ndarray) and X.dtype == object and X.ndim == 1
    ):
        return len(X) == 0 or np.ndim(X[0]) != 1
    return int(getattr(X, "ndim", 0)) > 2


def _require_rows(X: Any) -> None:
    """Raise an error if X has no rows: labels in its place, or the name of a file."""
    if isinstance(X, str | bytes | PathLike):
        raise ParameterError("X", X, "an array or a list; files come as a list of their names")
    if isinstance(X, list | tuple):
        rectangular("X", X)
    if isinstance(X, np.ndarray) and X.ndim < 2:
        # scikit-learn's own checks look for the last three words.
        accepted = "(samples, tokens, dimension) or (samples, dimension): Reshape your data"
        raise ParameterError("shape of X", X.shape, accepted)


def _encoded(y: Any, samples: int) -> tuple[Array, Array]:
    """Return the classes and each sample's index among them."""
    if y is None:
        raise ValueError("fit requires y to be passed, but the target y is None")
    y = column_or_1d(y, warn=True)
    try:
        assert_all_finite(y, input_name="y")
    except TypeError:  # a missing label of pandas is neither true nor false
        raise ParameterError("y", "a missing label", "a class for every sample") from None
    check_classification_targets(y)
    if len(y) != samples:
        raise ParameterError("length of y", len(y), f"{samples}, one label a sample")
    classes, codes = np.unique(y, return_inverse=True)
    return classes, codes


def _require_classes(classes: Array, codes: Array, weights: Array) -> None:
    if len(classes) < 2:
        raise ParameterError("y of one class", classes.tolist(), "labels of at least two classes")
    totals = np.bincount(codes, weights, minlength=len(classes))
    if not np.all(totals > 0):
        empty = classes[np.argmin(totals)]
        raise ParameterError(f"weight of class {empty}", 0.0, "more than zero for every class")


def checked_groups(groups: Any, samples: int) -> Array | None:
    """Return a number for each sample's group."""
    if groups is None:
        return None
    names = np.asarray(groups)
    if names.shape != (samples,):
        raise ParameterError("shape of groups", names.shape, f"({samples},), one group a sample")
    try:
        return np.unique(names, return_inverse=True)[1]
    except TypeError:  # None among names
        raise ParameterError("groups", groups, "names or numbers, all of one kind") from None


def checked_weights(sample_weight: Any, samples: int) -> Array:
    """Return the weights of the samples, all one if none are given."""
    if sample_weight is None:
        return np.ones(samples)
    try:
        weights = np.asarray(sample_weight, dtype=float)
    except (TypeError, ValueError):
        raise ParameterError("sample_weight", sample_weight, f"{samples} numbers") from None
    if weights.ndim == 0:
        weights = np.full(samples, float(weights))
    if weights.shape != (samples,):
        raise ParameterError("shape of sample_weight", weights.shape, f"({samples},)")
    bad = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if len(bad):
        raise ParameterError(
            f"sample_weight of sample {bad[0]}", weights[bad[0]], "a finite number >= 0"
        )
    return weights
