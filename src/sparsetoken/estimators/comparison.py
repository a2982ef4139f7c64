"""Does attention pay on these data? Cross-validated scores, side by side."""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from scipy.special import ndtr, stdtrit
from sklearn.base import clone
from sklearn.kernel_approximation import Nystroem
from sklearn.metrics import average_precision_score, get_scorer, get_scorer_names, roc_auc_score
from sklearn.model_selection import RepeatedStratifiedKFold, StratifiedGroupKFold, check_cv
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.multiclass import check_classification_targets

from sparsetoken.arrays import Array
from sparsetoken.estimators.attention import AttentionClassifier
from sparsetoken.estimators.base import checked_groups, warn_of_copies
from sparsetoken.estimators.linear import PooledClassifier, VectorisedClassifier
from sparsetoken.estimators.metrics import concentration
from sparsetoken.estimators.scaling import in_plain_units
from sparsetoken.estimators.sequences import Sequences, as_sequences
from sparsetoken.estimators.token_evidence import draw_attention, explain
from sparsetoken.estimators.tokenwise import TokenWise
from sparsetoken.limits import LARGEST_SEED, MOST_REPEATS, MOST_WORKERS
from sparsetoken.records import FEW_POSITIVES, preformatted, to_frame
from sparsetoken.uncertainty import standard_error
from sparsetoken.validation import ParameterError, integer, rectangular, several

__all__ = ["AttentionExample", "Comparison", "ComparisonRow", "PairedDifference", "compare"]

EXAMPLES_SHOWN = 12
# A difference of two standard errors is clear. From fewer folds than this the error itself is a guess:
# with two folds that was one false verdict in five, and Student's law says what is clear then.
CLEAR_ERRORS = 2.0
ENOUGH_FOLDS = 5


class _Landmarks(Nystroem):  # type: ignore[misc]
    """As many landmarks as there are tokens, if those are fewer: no news for who compares."""

    def fit(self, X: Any, y: Any = None) -> Any:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="n_components > n_samples")
            return super().fit(X, y)


@dataclass(frozen=True)
class ComparisonRow:
    """Cross-validated error of one classifier.

    Attributes
    ----------
    name : str
    measure : str
        What the error is: one minus the first score, so "error" for the accuracy, "1 - auc" for the
        area under the ROC curve, and the like.
    error, uncertainty : float
        Its mean over folds, and the standard error of that.
    errors : array of shape (folds,)
    scores : dict from the name of a score to (mean, standard error)
    coefficients : int or None
        How many numbers the classifier has fitted, if it tells.
    """

    name: str
    measure: str
    error: float
    uncertainty: float
    errors: Array
    scores: Mapping[str, tuple[float, float]]
    coefficients: int | None


@dataclass(frozen=True)
class PairedDifference:
    """Error of attention minus error of another classifier, on the same folds.

    Attributes
    ----------
    name : str
        The other classifier.
    difference, uncertainty : float
        The mean over folds, and its standard error.
    """

    name: str
    difference: float
    uncertainty: float


@dataclass(frozen=True)
class AttentionExample:
    """A sequence of a test fold: its row, class, predicted class, and attention (L_i,)."""

    row: int
    label: Any
    predicted: Any
    attention: Array


@dataclass(frozen=True)
class Comparison:
    """What `compare` found.

    Attributes
    ----------
    rows : tuple of ComparisonRow
    differences : tuple of PairedDifference
        Attention minus each of the others; negative where attention is better.
    scoring : tuple of str
        The scores; the first decides.
    log_attention_spread : float
        Standard deviation of log-attention within a sequence, the mean over test folds; 0 is
        pooling. For a softmax, it is that of the scores.
    attended_tokens : float
        Mean of 1/Σ p²: the number of tokens that attention is spread over.
    mean_length : float
    examples : tuple of AttentionExample

    Examples
    --------
    >>> from sparsetoken import AttentionClassifier, compare, digit_bags
    >>> train, test = digit_bags(6, train=120, test=100)
    >>> quick = AttentionClassifier(refine=False, ridge=0.01, sharpness=2.0)
    >>> found = compare(train.X, train.y, cv=3, repeats=1, classifiers={"attention": quick})
    >>> found.scoring, found.mean_length
    (('accuracy',), 6.0)
    """

    rows: tuple[ComparisonRow, ...]
    differences: tuple[PairedDifference, ...]
    scoring: tuple[str, ...]
    log_attention_spread: float
    attended_tokens: float
    mean_length: float
    examples: tuple[AttentionExample, ...]

    def to_rows(self) -> list[dict[str, Any]]:
        """Return a dict a classifier: what was measured, scores, attention's difference, with bars.

        Returns
        -------
        list of dict

        Examples
        --------
        >>> from sparsetoken import PooledClassifier, compare, digit_bags
        >>> train, _ = digit_bags(4, train=60, test=20)
        >>> found = compare(train.X, train.y, classifiers={"pooled": PooledClassifier()}, cv=2, repeats=1)
        >>> "pooled" in [row["classifier"] for row in found.to_rows()]
        True
        """
        differences = {entry.name: entry for entry in self.differences}
        rows = []
        for row in self.rows:
            entry = differences.get(row.name)
            line: dict[str, Any] = {
                "classifier": row.name,
                "measure": row.measure,
                "error": row.error,
                "error_uncertainty": row.uncertainty,
            }
            for name, (mean, error) in row.scores.items():
                line |= {name: mean, f"{name}_uncertainty": error}
            line |= {
                "attention_minus_it": entry.difference if entry else None,
                "attention_minus_it_uncertainty": entry.uncertainty if entry else None,
                "coefficients": row.coefficients,
            }
            rows.append(line)
        return rows

    def to_frame(self) -> Any:
        """Return a data frame with a row for each classifier.

        Returns
        -------
        DataFrame

        Examples
        --------
        >>> from sparsetoken import PooledClassifier, compare, digit_bags
        >>> train, _ = digit_bags(4, train=60, test=20)
        >>> found = compare(train.X, train.y, classifiers={"pooled": PooledClassifier()}, cv=2, repeats=1)
        >>> len(found.to_frame()) == len(found.to_rows())
        True
        """
        return to_frame(self.to_rows())

    def _repr_html_(self) -> str:
        return preformatted(str(self))

    @property
    def measure(self) -> str:
        """What the rows call their error: "error", or "1 - auc" and the like for another score."""
        return self.rows[0].measure

    @property
    def advice(self) -> str:
        """Whether attention pays here, in a sentence."""
        rival = min(self.rows[:-1], key=lambda row: row.error)
        paired = next(entry for entry in self.differences if entry.name == rival.name)
        gap = f"{abs(paired.difference):.3f} ± {paired.uncertainty:.3f}"
        focus = (
            f"it looks at {self.attended_tokens:.1f} of {self.mean_length:.1f} tokens on average"
        )
        clear = self._is_clear(paired)
        if clear and paired.difference < 0:
            return (
                f"Attention pays: its {self.measure} is {gap} below that of {rival.name}, and "
                f"{focus}."
            )
        if clear:
            return (
                f"Attention does not pay: its {self.measure} is {gap} above that of {rival.name}; "
                "use that."
            )
        if paired.difference == paired.uncertainty == 0:
            return (
                f"No difference: attention and {rival.name} have the same {self.measure} in every "
                f"fold, {rival.error:.3f} on average; {self._simpler(rival, 0.0)}use either."
            )
        return f"No clear difference: attention and {rival.name} are {gap} apart; " + (
            self._simpler(rival, paired.difference) + "bring more data."
        )

    def _is_clear(self, paired: PairedDifference) -> bool:
        """Whether a difference is more than chance gives in so few folds."""
        folds, errors = len(self.rows[0].errors), CLEAR_ERRORS
        if folds < ENOUGH_FOLDS:
            errors = float(stdtrit(folds - 1, ndtr(CLEAR_ERRORS)))
            if paired.uncertainty == 0:  # a few folds agree by chance
                return False
        return abs(paired.difference) > errors * paired.uncertainty

    def _simpler(self, rival: ComparisonRow, difference: float) -> str:
        """Return whom to prefer for having at most half as many coefficients and no larger error."""
        own, other = self.rows[-1].coefficients, rival.coefficients
        if own is None or other is None or 2 * min(own, other) > max(own, other):
            return ""
        name, worse = ("attention", difference) if own < other else (rival.name, -difference)
        if worse > 0:
            return ""
        return (
            f"prefer {name}, which has fewer coefficients ({min(own, other)} against "
            f"{max(own, other)}), or "
        )

    def __repr__(self) -> str:
        return f"<Comparison of {', '.join(row.name for row in self.rows)}>"

    def __str__(self) -> str:
        width = max(len(row.name) for row in self.rows)
        width = max(width, len("classifier"))
        others = self.scoring[1:]
        head = [f"{'classifier':<{width}}", f"{self.measure:>15}"]
        head += [f"{name:>17}" for name in others]
        lines = ["  ".join([*head, f"{'attention minus it':>18}"])]
        differences = {entry.name: entry for entry in self.differences}
        for row in self.rows:
            cells = [
                f"{row.name:<{width}}",
                f"{row.error:.3f} ± {row.uncertainty:.3f}".rjust(15),
            ]
            cells += [f"{row.scores[n][0]:.3f} ± {row.scores[n][1]:.3f}".rjust(17) for n in others]
            entry = differences.get(row.name)
            if entry is not None:
                cells.append(f"{entry.difference:+.3f} ± {entry.uncertainty:.3f}".rjust(18))
            lines.append("  ".join(cells))
        lines.append(
            f"attended tokens {self.attended_tokens:.2f} of {self.mean_length:.1f}, spread of "
            f"log-attention {self.log_attention_spread:.2f}"
        )
        lines.append(self.advice)
        return "\n".join(lines)

    def plot(self, *, figure: Any = None) -> Any:
        """Draw the errors, and the attention in sequences of the test folds; return the figure.

        Parameters
        ----------
        figure : matplotlib Figure or SubFigure, optional
            Where to draw, side by side; in a new one if not given.

        Returns
        -------
        matplotlib Figure

        Examples
        --------
        >>> from sparsetoken import PooledClassifier, compare, digit_bags
        >>> train, _ = digit_bags(4, train=60, test=20)
        >>> found = compare(train.X, train.y, classifiers={"pooled": PooledClassifier()}, cv=2, repeats=1)
        >>> len(found.plot().axes) > 0
        True
        """
        from sparsetoken.plotting import styled

        return styled(self._draw)(figure)

    def _draw(self, figure: Any) -> Any:
        from sparsetoken.plotting import LOOKS, panels_to_draw_in
        from sparsetoken.plotting.style import SERIES

        figure, (left, right) = panels_to_draw_in(figure, 2)
        for position, row in enumerate(self.rows):
            look = LOOKS[row.name] if row.name in LOOKS else SERIES[position % len(SERIES)]
            left.errorbar(
                row.error,
                position,
                xerr=row.uncertainty,
                color=look.colour,
                marker=look.marker,
                linestyle="none",
            )
        left.set_yticks(range(len(self.rows)), [row.name for row in self.rows])
        left.set_ylim(len(self.rows) - 0.5, -0.5)
        left.set_xlim(left=0)
        left.set_xlabel(f"cross-validated {self.measure} ± standard error")
        labels = [
            f"{example.label}"
            + ("" if example.label == example.predicted else f" (as {example.predicted})")
            for example in self.examples
        ]
        draw_attention(right, [example.attention for example in self.examples], labels)
        right.set_ylabel("class of a test sequence")
        return figure


Scorer = Callable[[Any, Any, Array], float]


def compare(
    X: Any,
    y: Any,
    *,
    cv: Any = 5,
    repeats: int | None = None,
    groups: Any = None,
    scoring: Any = None,
    transformer: Any = None,
    classifiers: Mapping[str, Any] | None = None,
    seed: int = 0,
    workers: int = 1,
) -> Comparison:
    """Compare attention with pooling, a kernel mean and a vectorised classifier on your data.

    Parameters
    ----------
    X, y : as in the classifiers' `fit`
        A padded array must be a masked one (`mask_tokens`).
    cv : int or scikit-learn splitter, default 5
        An int is the number of stratified folds.
    repeats : int, optional
        How often to repeat the folds with another shuffle, if `cv` is an int; 2 by default.
    groups : array of shape (n,), optional
        Samples of one group are never on both sides of a fold.
    scoring : name, list of names or dict of name to scorer, optional
        Of scikit-learn's scores, or "auc" and "average_precision" (means over classes). By default
        "accuracy", or these two if a class has fewer than a fifth of the samples. The first
        decides.
    transformer : optional
        Put before every classifier, for example ``TokenWise(Nystroem())``.
    classifiers : dict of name to classifier, pipeline or search, optional
        Replaces or adds classifiers, None leaves one out; "attention" is the one that the others
        are compared with.
    seed : int
        Of the folds and of the default classifiers.
    workers : int
        Processes, each with a fold of its own; the result does not depend on it.

    Returns
    -------
    Comparison

    Notes
    -----
    Folds share training data, so their errors are correlated. Standard errors are those of Nadeau
    and Bengio (2003): √((1/J + n_test/n_train) s²) for J folds with sample variance s².

    Examples
    --------
    >>> from sparsetoken import AttentionClassifier, compare, digit_bags
    >>> train, test = digit_bags(6, train=120, test=100)
    >>> quick = AttentionClassifier(refine=False, ridge=0.01, sharpness=2.0)
    >>> found = compare(train.X, train.y, cv=3, repeats=1, classifiers={"attention": quick})
    >>> [row.name for row in found.rows]
    ['pooled', 'max-pooled', 'mean|max|min', 'kernel mean', 'vectorised', 'attention']
    """
    X = in_plain_units(X)
    sequences = as_sequences(X)
    y = _labels(y, len(sequences))
    groups = checked_groups(groups, len(sequences))
    if groups is None and isinstance(cv, Integral):  # who gives folds knows of copies
        warn_of_copies(X, y)
    scorers = _scorers(scoring, y)
    seed = integer("seed", seed, low=0, high=LARGEST_SEED)
    workers = integer("workers", workers, low=1, high=MOST_WORKERS)
    candidates = _candidates(sequences, transformer, classifiers, seed)
    folds = _folds(cv, repeats, y, groups, seed)
    # joblib would start every process that it is asked for.
    results = Parallel(n_jobs=min(workers, len(folds)))(
        delayed(_one_fold)(candidates, scorers, X, y, train, test) for train, test in folds
    )
    shared = float(np.mean([len(test) / len(train) for train, test in folds]))
    rows = tuple(
        _row(
            name,
            np.array([fold.scores[name] for fold in results]),
            tuple(scorers),
            shared,
            results[0].coefficients[name],
        )
        for name in candidates
    )
    return Comparison(
        rows=rows,
        differences=tuple(_paired(rows[-1], row, shared) for row in rows[:-1]),
        scoring=tuple(scorers),
        log_attention_spread=float(np.mean([fold.log_spread for fold in results])),
        attended_tokens=float(np.mean([fold.attended for fold in results])),
        mean_length=float(sequences.lengths.mean()),
        examples=tuple(results[0].examples),
    )


@dataclass(frozen=True)
class _Fold:
    """Scores by classifier, one a scorer, coefficients by classifier, and what attention did."""

    scores: dict[str, list[float]]
    coefficients: dict[str, int | None]
    log_spread: float
    attended: float
    examples: list[AttentionExample]


def _one_fold(
    candidates: dict[str, Any],
    scorers: dict[str, Scorer],
    X: Any,
    y: Array,
    train: Array,
    test: Array,
) -> _Fold:
    held_out = _rows(X, test)
    scores, coefficients = {}, {}
    for name, candidate in candidates.items():
        model = clone(candidate).fit(_rows(X, train), y[train])
        scores[name] = [score(model, held_out, y[test]) for score in scorers.values()]
        coefficients[name] = _coefficients(model)
    attention = _attention(model, held_out)  # the last one is attention
    return _Fold(
        scores,
        coefficients,
        float(np.mean([_log_spread(weights) for weights in attention])),
        float(concentration(attention).mean()),
        _examples(attention, test, y, model.predict(held_out)),
    )


def _labels(y: Any, samples: int) -> Array:
    labels = rectangular("y", y)
    if labels.shape != (samples,):
        raise ParameterError("shape of y", labels.shape, f"({samples},), one label a sample")
    try:
        check_classification_targets(labels)
    except ValueError as error:
        raise ParameterError("y", labels[:4].tolist(), f"labels of classes ({error})") from None
    return labels


def _scorers(scoring: Any, y: Array) -> dict[str, Scorer]:
    """Return the scores by name."""
    if scoring is None:
        rarest = np.unique(y, return_counts=True)[1].min() / len(y)
        scoring = ["auc", "average_precision"] if rarest < FEW_POSITIVES else ["accuracy"]
    if isinstance(scoring, Mapping):
        found = dict(scoring)
    else:
        names = [scoring] if isinstance(scoring, str) else several("scoring", scoring, "names")
        found = {str(name): _scorer(name) for name in names}
    for name, score in found.items():
        if not callable(score):
            raise ParameterError(f"scoring[{name!r}]", score, "a scorer: scorer(model, X, y)")
    if not found:
        raise ParameterError("scoring", scoring, "at least one score")
    return found


def _scorer(name: Any) -> Scorer:
    """Return a score of ours or of scikit-learn."""
    own: dict[str, Scorer] = {
        "auc": lambda model, X, y: _over_classes(roc_auc_score, model, X, y),
        "average_precision": lambda model, X, y: _over_classes(
            average_precision_score, model, X, y
        ),
    }
    if not isinstance(name, str) or name not in {*own, *get_scorer_names()}:
        accepted = "'auc', 'average_precision', or a name that sklearn.metrics.get_scorer knows"
        raise ParameterError("scoring", name, accepted)
    return own[name] if name in own else get_scorer(name)


def _over_classes(score: Callable[[Array, Array], float], model: Any, X: Any, y: Array) -> float:
    """Return a score of ranking, the mean over classes against the rest if there are several."""
    if hasattr(model, "decision_function"):
        decisions = model.decision_function(X)
    else:
        decisions = model.predict_proba(X)
        decisions = decisions[:, 1] if decisions.shape[1] == 2 else decisions
    if decisions.ndim == 1:
        return float(score(y == model.classes_[1], decisions))
    return float(
        np.mean([score(y == c, d) for c, d in zip(model.classes_, decisions.T, strict=True)])
    )


def _coefficients(model: Any) -> int | None:
    """Return how many numbers the last step of a model has fitted to labels, if it tells."""
    model = getattr(model, "best_estimator_", model)
    model = model[-1] if hasattr(model, "steps") else model
    if not hasattr(model, "coef_"):
        return None
    # Silent coefficients, such as those of the mean beside maxima, are no numbers that were fitted.
    count = np.count_nonzero(model.coef_) + np.size(model.intercept_)
    if getattr(model, "family_", None) in ("free", "two-step"):
        count += np.count_nonzero(model.queries_)
    extremes = getattr(model, "extremes_", None)
    return int(count if extremes is None else count + np.count_nonzero(extremes))


def _candidates(
    sequences: Sequences,
    transformer: Any,
    classifiers: Mapping[str, Any] | None,
    seed: int,
) -> dict[str, Any]:
    """Return the classifiers by name, attention last."""
    if not isinstance(classifiers, Mapping | None):
        raise ParameterError("classifiers", classifiers, "a dict of name to classifier")
    for name, one in (classifiers or {}).items():
        _require_estimator(f"classifiers[{name!r}]", one, "fit")
    _require_estimator("transformer", transformer, "transform")
    kernel = _Landmarks(n_components=100, random_state=seed)
    known: dict[str, Any] = {
        "pooled": PooledClassifier(),
        "max-pooled": PooledClassifier(pooling="max"),
        "mean|max|min": PooledClassifier(pooling="mean|max|min"),
        "kernel mean": make_pipeline(
            TokenWise(make_pipeline(StandardScaler(), kernel), random_state=seed),
            PooledClassifier(),
        ),
    }
    if np.all(sequences.lengths == sequences.lengths[0]):
        known["vectorised"] = VectorisedClassifier()
    known["attention"] = AttentionClassifier(random_state=seed)
    known |= classifiers or {}
    attention = known.pop("attention")
    last = attention[-1] if hasattr(attention, "steps") else attention
    if not hasattr(getattr(last, "estimator", last), "attention") and not hasattr(
        last, "estimator"
    ):
        raise ParameterError("classifiers['attention']", attention, "one with attention weights")
    known["attention"] = attention
    known = {name: one for name, one in known.items() if one is not None}
    if transformer is not None:
        known = {name: make_pipeline(clone(transformer), one) for name, one in known.items()}
    return known


def _require_estimator(parameter: str, value: Any, method: str) -> None:
    if value is None:
        return
    if isinstance(value, type) or not (hasattr(value, "get_params") and hasattr(value, method)):
        accepted = f"None, or an object (no class) that has get_params() and {method}()"
        raise ParameterError(parameter, value, accepted)


def _folds(cv: Any, repeats: int | None, y: Array, groups: Array | None, seed: int) -> list[Any]:
    if isinstance(cv, bool) or not isinstance(cv, Integral):
        if repeats is not None:
            accepted = "None unless cv is an int: a splitter repeats its folds by itself"
            raise ParameterError("repeats", repeats, accepted)
        folds = _splits(cv, cv, y, groups)
        if len(folds) < 2:
            raise ParameterError("cv", cv, "at least two folds, for standard errors")
        return folds
    largest = int(np.unique(y, return_counts=True)[1].max())
    count = integer("cv", cv, low=2, high=max(2, largest))
    repeats = integer("repeats", 2 if repeats is None else repeats, low=1, high=MOST_REPEATS)
    if groups is None:
        splitter = RepeatedStratifiedKFold(n_splits=count, n_repeats=repeats, random_state=seed)
        return _splits(splitter, cv, y, None)
    return [
        fold
        for repeat in range(repeats)
        for fold in _splits(
            StratifiedGroupKFold(count, shuffle=True, random_state=seed + repeat), cv, y, groups
        )
    ]


def _splits(splitter: Any, cv: Any, y: Array, groups: Array | None) -> list[tuple[Array, Array]]:
    """Return the folds of a splitter, or say why `cv` gives none."""
    try:
        folds = check_cv(splitter, y, classifier=True).split(np.zeros(len(y)), y, groups)
        return [(train, test) for train, test in folds]
    except (TypeError, ValueError) as error:
        accepted = f"a number of folds, or a splitter that fits the samples ({error})"
        raise ParameterError("cv", cv, accepted) from None


def _rows(X: Any, rows: Array) -> Any:
    return X[rows] if isinstance(X, np.ndarray) else [X[row] for row in rows]


def _attention(model: Any, X: Any) -> list[Array]:
    """Return the attention of each sequence without its padding."""
    weights = explain(model, X)
    mask = as_sequences(X).token_mask
    return list(weights) if mask is None else [w[m] for w, m in zip(weights, mask, strict=True)]


def _log_spread(weights: Array) -> float:
    return float(np.std(np.log(np.maximum(weights, np.finfo(weights.dtype).tiny))))


def _examples(
    attention: list[Array], test: Array, y: Array, predicted: Array
) -> list[AttentionExample]:
    """Return as many examples of each class as there is room for, class by class."""
    classes = np.unique(y[test])
    each = max(1, EXAMPLES_SHOWN // len(classes))
    chosen = [np.flatnonzero(y[test] == label)[:each] for label in classes]
    return [
        AttentionExample(int(test[i]), y[test[i]], predicted[i], attention[i])
        for i in np.concatenate(chosen)[:EXAMPLES_SHOWN]
    ]


def _row(
    name: str, scores: Array, names: tuple[str, ...], shared: float, coefficients: int | None
) -> ComparisonRow:
    """Return a classifier's row from its scores (folds, scorers)."""
    measures = {
        one: (float(values.mean()), standard_error(values, shared=shared))
        for one, values in zip(names, scores.T, strict=True)
    }
    errors = 1 - scores[:, 0]
    return ComparisonRow(
        name,
        measure="error" if names[0] == "accuracy" else f"1 - {names[0]}",
        error=float(errors.mean()),
        uncertainty=standard_error(errors, shared=shared),
        errors=errors,
        scores=measures,
        coefficients=coefficients,
    )


def _paired(attention: ComparisonRow, other: ComparisonRow, shared: float) -> PairedDifference:
    gaps = attention.errors - other.errors
    return PairedDifference(other.name, float(gaps.mean()), standard_error(gaps, shared=shared))
