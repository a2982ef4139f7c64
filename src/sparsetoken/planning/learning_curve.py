"""Errors of a model on nested subsamples of the data, with the covariance of their means."""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import RepeatedStratifiedKFold
from sklearn.utils import _safe_indexing, get_tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _num_samples, column_or_1d

from sparsetoken.arrays import Array
from sparsetoken.validation import ParameterError, integer

__all__ = [
    "FOLDS",
    "LearningCurve",
    "balanced_order",
    "check_finite",
    "checked_model",
    "labels_of",
    "learning_curve",
    "planned_sizes",
    "rows_of",
]

# A curve is measured at so many sizes, from the largest training set of so many folds down to a 64th
# of it, where classes allow; less than a factor of four shows no shape.
FOLDS = 5
_SIZES = 7
_WIDEST = 64
_NARROWEST = 4
# Every class is met at least this often in the smallest subsample.
_PER_CLASS = 2


@dataclass(frozen=True)
class LearningCurve:
    """Measured errors.

    Attributes
    ----------
    samples : int
        How many samples the data have.
    sizes : array of shape (K,)
        Training samples, increasing.
    errors : array of shape (K,)
        Mean share of wrong labels on samples that were held out.
    covariance : array of shape (K, K)
        Of the errors: the sizes share their test samples and, in part, their training samples.
    rates : array of shape (C,)
        Shares of the classes.
    """

    samples: int
    sizes: Array
    errors: Array
    covariance: Array
    rates: Array

    @property
    def chance(self) -> float:
        """Error of always naming the most frequent class."""
        return float(1 - self.rates.max())

    @property
    def guessing(self) -> float:
        """Error of naming classes at random, as often as they are: no less than `chance`."""
        return float(1 - (self.rates**2).sum())

    @property
    def standard_errors(self) -> Array:
        """Standard errors (K,)."""
        return np.asarray(np.sqrt(np.diag(self.covariance)))


def learning_curve(
    model: Any,
    X: Any,
    y: Array,
    *,
    sizes: Array,
    repeats: int,
    seed: int,
    workers: int,
    progress: Callable[[], None],
) -> LearningCurve:
    """Measure the error of `model` at each size, by repeated cross-validation.

    In each fold the smaller training sets are part of the larger ones, and each has the classes in
    the proportion of the data.
    """
    splits = list(_splits(y, sizes, repeats, seed))
    wrong = np.zeros((repeats, len(y), len(sizes)))
    by_fold = np.zeros((len(splits), len(sizes)))
    jobs = [
        (fold, size, train, test)
        for fold, (trains, test) in enumerate(splits)
        for size, train in enumerate(trains)
    ]
    for fold, size, test, missed in _measured(model, X, y, jobs, workers):
        wrong[fold // FOLDS, test, size] = missed
        by_fold[fold, size] = missed.mean()
        progress()
    covariance = _test_covariance(wrong) + _training_covariance(by_fold, sizes, len(y), repeats)
    _, counts = np.unique(y, return_counts=True)
    return LearningCurve(
        samples=len(y),
        sizes=sizes,
        errors=wrong.mean(axis=(0, 1)),
        covariance=covariance,
        rates=counts / len(y),
    )


def labels_of(X: Any, y: Any) -> Array:
    """Return the labels (n,), or raise an error that says what is wrong with them."""
    try:
        y = column_or_1d(y)
        if y.dtype.kind == "f" and not np.isfinite(y).all():
            raise ValueError("NaN or inf among them")
        check_classification_targets(y)
    except ValueError as error:
        reason = str(error).split(". ")[0].splitlines()[0].rstrip(".")
        raise ParameterError("y", y, f"labels of classes ({reason})") from None
    try:
        samples = _num_samples(X)
    except TypeError as error:
        raise ParameterError("X", X, f"samples ({error})") from None
    if len(y) != samples:
        raise ParameterError("length of y", len(y), f"{samples}, one label a sample")
    if len(np.unique(y)) < 2:
        raise ParameterError("y of one class", np.unique(y).tolist(), "labels of two classes")
    return np.asarray(y)


def rows_of(X: Any, rows: Array) -> Any:
    """Return some of the samples; a masked array keeps its mask, a list stays one."""
    return X[rows] if isinstance(X, np.ndarray) else _safe_indexing(X, rows)


def checked_model(model: Any) -> Any:
    """Return the model if it can be copied, fitted and asked for labels."""
    for verb in ("fit", "predict", "get_params"):
        if not callable(getattr(model, verb, None)) or isinstance(model, type):
            accepted = f"a scikit-learn classifier: an object with {verb}()"
            raise ParameterError("model", model, accepted)
    try:
        kind = get_tags(model).estimator_type
    except AttributeError:  # an object from elsewhere, which says nothing about itself
        kind = None
    if kind not in ("classifier", None):
        article = "an" if kind.startswith("o") else "a"
        accepted = f"a classifier, not {article} {kind.replace('_', ' ')}"
        raise ParameterError("model", model, accepted)
    return model


def check_finite(model: Any, X: Any) -> None:
    """Refuse an array with NaN or inf before the first fit, by its row, unless the model takes them."""
    # What is made of other models, such as a pipeline that imputes, does not tell what these take.
    composed = any(hasattr(part, "fit") for part in model.get_params().values())
    if composed or not isinstance(X, np.ndarray) or X.dtype.kind != "f":
        return
    try:
        allowed = get_tags(model).input_tags.allow_nan
    except AttributeError:
        return
    # Tokens that are masked do not count.
    finite = np.ma.filled(np.isfinite(X), fill_value=True)
    if not allowed and not finite.all():
        first = int(np.flatnonzero(~finite.reshape(len(X), -1).all(axis=1))[0])
        raise ParameterError(f"sample {first} of X", "NaN or inf", "finite numbers")


def planned_sizes(y: Array, smallest: int | None) -> Array:
    """Return the training sizes, by equal factors up to what cross-validation leaves.

    The smallest has every class twice, and is at most 64 times below the largest.
    """
    _, counts = np.unique(y, return_counts=True)
    largest = int(len(y) * (FOLDS - 1) / FOLDS)
    lowest = int(np.ceil(_PER_CLASS * len(y) / counts.min()))
    least = _PER_CLASS * _NARROWEST * FOLDS // (FOLDS - 1)
    if counts.min() < least:
        accepted = f"at least {least} samples of every class, to fit subsamples of several sizes"
        raise ParameterError("samples of the rarest class", int(counts.min()), accepted)
    if smallest is None:
        smallest = max(lowest, -(-largest // _WIDEST))
    else:
        smallest = integer("smallest", smallest, low=1)
        if not lowest <= smallest <= largest // _NARROWEST:
            accepted = f"between {lowest}, so that no class is missing, and {largest // _NARROWEST}"
            raise ParameterError("smallest", smallest, accepted)
    return np.unique(np.round(np.geomspace(smallest, largest, _SIZES)).astype(int))


def _splits(y: Array, sizes: Array, repeats: int, seed: int) -> Iterator[tuple[list[Array], Array]]:
    """Yield nested training sets and the test samples of each fold."""
    rng = np.random.default_rng([seed, 7])
    folds = RepeatedStratifiedKFold(n_splits=FOLDS, n_repeats=repeats, random_state=seed)
    for train, test in folds.split(np.zeros(len(y)), y):
        order = train[balanced_order(y[train], rng)]
        yield [order[:size] for size in sizes], test


def balanced_order(labels: Array, rng: np.random.Generator) -> Array:
    """Return a random order of which every beginning has the classes in proportion."""
    position = np.empty(len(labels))
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        position[members] = (rng.permutation(len(members)) + 0.5) / len(members)
    return np.lexsort((rng.random(len(labels)), position))


Measured = tuple[int, int, Array, Array]


def _measured(
    model: Any, X: Any, y: Array, jobs: list[tuple[int, int, Array, Array]], workers: int
) -> Iterator[Measured]:
    """Yield (fold, size, test samples, which were wrong) as the fits finish."""
    if workers == 1:
        for job in jobs:
            yield _fit_and_test(model, X, y, *job)
        return
    from joblib import Parallel, delayed, parallel_config

    with parallel_config("loky", inner_max_num_threads=1):
        pool = Parallel(n_jobs=min(workers, len(jobs)), return_as="generator_unordered")
        # The largest first, so that no worker is left with one at the end.
        ordered = sorted(jobs, key=lambda job: -len(job[2]))
        yield from pool(delayed(_fit_and_test)(model, X, y, *job) for job in ordered)


def _fit_and_test(
    model: Any, X: Any, y: Array, fold: int, size: int, train: Array, test: Array
) -> Measured:
    try:
        with warnings.catch_warnings():
            # Small subsamples make solvers complain, which says nothing about the whole data.
            warnings.simplefilter("ignore")
            fitted = clone(model).fit(rows_of(X, train), y[train])
            predicted = np.asarray(fitted.predict(rows_of(X, test)))
    except (ValueError, ArithmeticError) as error:
        accepted = f"a model that can be fitted to {len(train)} samples, or a larger `smallest`"
        raise ParameterError("model", f"{type(error).__name__}: {error}", accepted) from error
    if predicted.shape != (len(test),):
        accepted = f"labels of shape ({len(test)},)"
        raise ParameterError("shape of model.predict(X)", predicted.shape, accepted)
    return fold, size, test, predicted != y[test]


def _test_covariance(wrong: Array) -> Array:
    """Return the part that comes from a finite number of test samples, common to all sizes.

    One more right and one more wrong sample keep it from vanishing where no or few were wrong.
    """
    by_sample = wrong.mean(axis=0)
    samples = len(by_sample)
    rate = by_sample.mean(axis=0)
    smoothed = (samples * rate + 1) / (samples + 2)
    excess = smoothed * (1 - smoothed) - rate * (1 - rate)
    covariance = np.atleast_2d(np.cov(by_sample, rowvar=False))
    return np.asarray((covariance + np.diag(np.maximum(excess, 0))) / samples)


def _training_covariance(by_fold: Array, sizes: Array, samples: int, repeats: int) -> Array:
    """Return the part that comes from which samples were trained on.

    What is left of the variance between folds after that of their test samples, over the number of
    training sets. Sets overlap the more the larger they are, and what they share does not average
    out. Nadeau and Bengio (2003) take that to be 1/(folds - 1) of it at the largest size; half of
    that here, because much of the variance is luck of the optimiser, which is not shared.
    """
    folds = by_fold.reshape(repeats, FOLDS, len(sizes))
    mean = by_fold.mean(axis=0)
    between = folds.var(axis=1, ddof=1).mean(axis=0)
    excess = np.maximum(between - mean * (1 - mean) * FOLDS / samples, 0.0)
    shared = 0.5 * sizes / sizes[-1] / (FOLDS - 1)
    spread = np.sqrt(excess * (1 / len(by_fold) + shared))
    # Nested training sets share their smaller one.
    ratio = np.minimum.outer(sizes, sizes) / np.maximum.outer(sizes, sizes)
    return np.asarray(np.outer(spread, spread) * np.sqrt(ratio))
