"""Does attention pay on these data? Cross-validated errors, side by side."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import RepeatedStratifiedKFold, check_cv
from sklearn.pipeline import Pipeline, make_pipeline

from sparsetoken.arrays import Array
from sparsetoken.estimators.attention import AttentionClassifier
from sparsetoken.estimators.linear import PooledClassifier, VectorisedClassifier
from sparsetoken.estimators.metrics import concentration
from sparsetoken.estimators.sequences import Sequences, as_sequences
from sparsetoken.plotting import LOOKS, Look, new_figure, styled
from sparsetoken.plotting.style import SERIES
from sparsetoken.validation import ParameterError, integer

__all__ = ["AttentionExample", "Comparison", "ComparisonRow", "PairedDifference", "compare"]

EXAMPLES_SHOWN = 12


@dataclass(frozen=True)
class ComparisonRow:
    """Cross-validated error of one classifier.

    Attributes
    ----------
    name : str
    error, standard_error : float
    errors : array of shape (folds,)
    """

    name: str
    error: float
    standard_error: float
    errors: Array


@dataclass(frozen=True)
class PairedDifference:
    """Error of attention minus error of another classifier, on the same folds."""

    name: str
    difference: float
    standard_error: float


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
    sharpness : float
        Spread of log-attention within a sequence, the mean over test folds; 0 is pooling.
    attended_tokens : float
        Mean of 1/Σ p²: the number of tokens that attention is spread over.
    mean_length : float
    examples : tuple of AttentionExample
    """

    rows: tuple[ComparisonRow, ...]
    differences: tuple[PairedDifference, ...]
    sharpness: float
    attended_tokens: float
    mean_length: float
    examples: tuple[AttentionExample, ...]

    @property
    def table(self) -> list[dict[str, Any]]:
        """One dict a classifier: name, error, its standard error, and attention's difference."""
        differences = {entry.name: entry for entry in self.differences}
        table = []
        for row in self.rows:
            entry = differences.get(row.name)
            table.append(
                {
                    "classifier": row.name,
                    "error": row.error,
                    "standard_error": row.standard_error,
                    "attention_minus_it": entry.difference if entry else None,
                    "difference_standard_error": entry.standard_error if entry else None,
                }
            )
        return table

    @property
    def advice(self) -> str:
        """Whether attention pays here, in a sentence."""
        rival = min(self.rows[:-1], key=lambda row: row.error)
        paired = next(entry for entry in self.differences if entry.name == rival.name)
        gap = f"{abs(paired.difference):.3f} ± {paired.standard_error:.3f}"
        focus = (
            f"it looks at {self.attended_tokens:.1f} of {self.mean_length:.1f} tokens on average"
        )
        if paired.difference < -2 * paired.standard_error:
            return f"Attention pays: its error is {gap} below that of {rival.name}, and {focus}."
        if paired.difference > 2 * paired.standard_error:
            return (
                f"Attention does not pay: its error is {gap} above that of {rival.name}; use that."
            )
        return (
            f"No clear difference: attention and {rival.name} are {gap} apart; prefer {rival.name}, "
            "which is simpler, or bring more data."
        )

    def __str__(self) -> str:
        lines = [f"{'classifier':<12} {'error':>15}   {'attention minus it':>18}"]
        for row in self.table:
            error = f"{row['error']:.3f} ± {row['standard_error']:.3f}"
            gap = ""
            if row["attention_minus_it"] is not None:
                gap = f"{row['attention_minus_it']:+.3f} ± {row['difference_standard_error']:.3f}"
            lines.append(f"{row['classifier']:<12} {error:>15}   {gap:>18}".rstrip())
        lines.append(f"sharpness {self.sharpness:.2f}, attended tokens {self.attended_tokens:.2f}")
        lines.append(self.advice)
        return "\n".join(lines)

    @styled
    def plot(self, figure: Any = None) -> Any:
        """Draw the errors, and the attention in sequences of the test folds; return the figure."""
        if figure is None:
            figure, (left, right) = new_figure(columns=2)
        else:
            left, right = figure.subplots(1, 2)
        for position, row in enumerate(self.rows):
            look = _look(row.name, position)
            left.errorbar(
                row.error,
                position,
                xerr=row.standard_error,
                color=look.colour,
                marker=look.marker,
                linestyle="none",
            )
        left.set_yticks(range(len(self.rows)), [row.name for row in self.rows])
        left.set_ylim(len(self.rows) - 0.5, -0.5)
        left.set_xlim(left=0)
        left.set_xlabel("cross-validated error ± standard error")
        _draw_attention(right, self.examples)
        return figure


def compare(
    X: Any,
    y: Any,
    *,
    cv: Any = 5,
    repeats: int = 2,
    transformer: Any = None,
    classifiers: Mapping[str, Any] | None = None,
    random_state: int | None = 0,
) -> Comparison:
    """Compare attention with pooled, max-pooled and vectorised classifiers by cross-validation.

    Parameters
    ----------
    X, y : as in the classifiers' `fit`
        A padded array must be a masked one (`mask_tokens`).
    cv : int or scikit-learn splitter, default 5
        An int is the number of stratified folds.
    repeats : int, default 2
        How often to repeat the folds with another shuffle, if `cv` is an int.
    transformer : optional
        Put before every classifier, for example ``TokenWise(Nystroem())``.
    classifiers : dict of name to classifier, optional
        Replaces or adds classifiers; "attention" is the one that the others are compared with.
    random_state : int or None
        Seed of the folds and of the default classifiers.

    Notes
    -----
    Folds share training data, so their errors are correlated. Standard errors are those of Nadeau
    and Bengio (2003): √((1/J + n_test/n_train) s²) for J folds with sample variance s².
    """
    sequences = as_sequences(X)
    for block in sequences.blocks():  # here samples still have the numbers that the caller knows
        sequences.require_finite(block)
    y = np.asarray(y)
    candidates = _candidates(sequences, transformer, classifiers, random_state)
    folds = _folds(cv, repeats, X, y, random_state)
    errors: dict[str, list[float]] = {name: [] for name in candidates}
    examples: list[AttentionExample] = []
    spreads, counts = [], []
    for train, test in folds:
        fitted = {}
        for name, candidate in candidates.items():
            fitted[name] = clone(candidate).fit(_rows(X, train), y[train])
            errors[name].append(1 - fitted[name].score(_rows(X, test), y[test]))
        attention = _attention(fitted["attention"], _rows(X, test))
        spreads.append(np.mean([_log_spread(weights) for weights in attention]))
        counts.append(concentration(attention).mean())
        if not examples:
            predicted = fitted["attention"].predict(_rows(X, test))
            examples = _examples(attention, test, y, predicted)
    inflation = float(np.mean([len(test) / len(train) for train, test in folds]))
    rows = tuple(_row(name, np.array(values), inflation) for name, values in errors.items())
    return Comparison(
        rows=rows,
        differences=tuple(_paired(rows[-1], row, inflation) for row in rows[:-1]),
        sharpness=float(np.mean(spreads)),
        attended_tokens=float(np.mean(counts)),
        mean_length=float(sequences.lengths.mean()),
        examples=tuple(examples),
    )


def _candidates(
    sequences: Sequences,
    transformer: Any,
    classifiers: Mapping[str, Any] | None,
    random_state: int | None,
) -> dict[str, Any]:
    """Return the classifiers by name, attention last."""
    known: dict[str, Any] = {
        "pooled": PooledClassifier(),
        "max-pooled": PooledClassifier(pooling="max"),
    }
    if np.all(sequences.lengths == sequences.lengths[0]):
        known["vectorised"] = VectorisedClassifier()
    known["attention"] = AttentionClassifier(random_state=random_state)
    known |= classifiers or {}
    attention = known.pop("attention")
    if not hasattr(attention, "attention"):
        raise ParameterError("classifiers['attention']", attention, "one with attention weights")
    known["attention"] = attention
    if transformer is not None:
        known = {name: make_pipeline(clone(transformer), one) for name, one in known.items()}
    return known


def _folds(cv: Any, repeats: int, X: Any, y: Array, random_state: int | None) -> list[Any]:
    if isinstance(cv, int) and not isinstance(cv, bool):
        cv = RepeatedStratifiedKFold(
            n_splits=integer("cv", cv, low=2),
            n_repeats=integer("repeats", repeats, low=1),
            random_state=random_state,
        )
    folds = list(check_cv(cv, y, classifier=True).split(np.zeros(len(X)), y))
    if len(folds) < 2:
        raise ParameterError("cv", cv, "at least two folds, for standard errors")
    return folds


def _rows(X: Any, rows: Array) -> Any:
    return X[rows] if isinstance(X, np.ndarray) else [X[row] for row in rows]


def _attention(model: Any, X: Any) -> list[Array]:
    """Return the attention of each sequence without its padding."""
    if isinstance(model, Pipeline):
        X = model[:-1].transform(X)
        model = model[-1]
    weights = model.attention(X)
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


def _standard_error(values: Array, inflation: float) -> float:
    return float(np.sqrt((1 / len(values) + inflation) * np.var(values, ddof=1)))


def _row(name: str, errors: Array, inflation: float) -> ComparisonRow:
    return ComparisonRow(name, float(errors.mean()), _standard_error(errors, inflation), errors)


def _paired(attention: ComparisonRow, other: ComparisonRow, inflation: float) -> PairedDifference:
    gaps = attention.errors - other.errors
    return PairedDifference(other.name, float(gaps.mean()), _standard_error(gaps, inflation))


def _look(name: str, position: int) -> Look:
    return LOOKS[name] if name in LOOKS else SERIES[position % len(SERIES)]


def _draw_attention(axes: Any, examples: tuple[AttentionExample, ...]) -> None:
    """Draw one row of cells a sequence, its class beside it; cells beyond its end stay empty."""
    longest = max(len(example.attention) for example in examples)
    cells = np.full((len(examples), longest), np.nan)
    for row, example in enumerate(examples):
        cells[row, : len(example.attention)] = example.attention
    image = axes.imshow(cells, aspect="auto", vmin=0, vmax=1, interpolation="nearest")
    labels = [
        f"{example.label}"
        + ("" if example.label == example.predicted else f" (as {example.predicted})")
        for example in examples
    ]
    axes.set_yticks(range(len(examples)), labels)
    axes.set_xlabel("token")
    axes.set_ylabel("class of a test sequence")
    axes.grid(visible=False)
    axes.figure.colorbar(image, ax=axes, label="attention")
