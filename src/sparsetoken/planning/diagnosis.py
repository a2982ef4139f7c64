"""Why attention is not (yet) better on these data, and what to do next."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sparsetoken import validation
from sparsetoken.arrays import Array
from sparsetoken.estimators.attention import AttentionClassifier
from sparsetoken.estimators.comparison import Comparison, compare
from sparsetoken.estimators.scaling import in_plain_units
from sparsetoken.estimators.sequences import as_sequences
from sparsetoken.limits import LARGEST_SEED, MOST_REPEATS
from sparsetoken.numerics.memory import path_memory
from sparsetoken.planning.findings import Facts, Finding, findings
from sparsetoken.planning.learning_curve import labels_of
from sparsetoken.planning.signal_estimate import (
    Projections,
    SignalEstimate,
    Tokens,
    estimate_signal,
)
from sparsetoken.records import Record, preformatted, with_error
from sparsetoken.validation import ParameterError

__all__ = ["Diagnosis", "diagnose"]

# Samples of either class, at the least: the signal is estimated from halves of them.
_FEWEST = 20


@dataclass(frozen=True)
class Diagnosis(Record):
    """What `diagnose` found. `print` it for the findings in words, `plot` it for a picture.

    Attributes
    ----------
    samples, dimension : int
    length : float
        Mean number of tokens.
    comparison : Comparison
        Cross-validated errors of the classifiers; 1 - AUC where a class has fewer than a fifth of
        the samples (`comparison.measure`).
    signal : SignalEstimate
        Strength, informative tokens, effective dimension and alignment, with standard errors.
    limits : dict of str to float
        Errors, or 1 - AUC, of attention and of pooling that knew a signal of that strength
        ("attention", "pooled"), and of the best classifier with the alignment that the samples allow
        ("learnt").
        Empty where no signal is seen.
    findings : tuple of Finding
        What limits attention here, the main reason first.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsetoken import Task, diagnose, sample
    >>> X, y, _, _ = sample(Task(5, 1, 5.0), 120, dimension=8, rng=np.random.default_rng(0))
    >>> found = diagnose(X, y, cv=3, splits=1)
    >>> sorted(found.limits)
    ['attention', 'learnt', 'pooled']
    """

    samples: int
    length: float
    dimension: int
    comparison: Comparison
    signal: SignalEstimate
    limits: dict[str, float]
    findings: tuple[Finding, ...]
    _projections: Projections = field(repr=False)

    @property
    def verdict(self) -> str:
        """The main reason, in a few words."""
        return self.findings[0].cause

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as a flat dictionary of plain values.

        Returns
        -------
        dict

        Examples
        --------
        >>> from sparsetoken import Task, diagnose, sample
        >>> data = sample(Task(4, 1, 5.0), 150, dimension=5, rng=0)
        >>> found = diagnose(data.X, data.y).to_dict()
        >>> "strength" in found
        True
        """
        flat: dict[str, Any] = {
            "samples": self.samples,
            "length": self.length,
            "dimension": self.dimension,
            **self.signal.to_dict(),
            "attended_tokens": self.comparison.attended_tokens,
            "measure": self.comparison.measure,
        }
        for row in self.comparison.to_rows():
            flat[f"{row['classifier']}_error"] = row["error"]
            flat[f"{row['classifier']}_error_uncertainty"] = row["error_uncertainty"]
        flat |= {f"{name}_limit": value for name, value in self.limits.items()}
        return flat | {"verdict": self.verdict, "findings": [str(one) for one in self.findings]}

    def __repr__(self) -> str:
        return f"<Diagnosis of {self.samples:,} samples: {self.verdict}>"

    def __str__(self) -> str:
        return "\n".join(_lines(self))

    def _repr_html_(self) -> str:
        return preformatted(str(self))

    def plot(self, *, figure: Any = None) -> Any:
        """Draw errors with their limits, and the tokens along the learnt direction.

        Parameters
        ----------
        figure : matplotlib Figure or SubFigure, optional
            Where to draw, side by side; in a new one if not given.

        Returns
        -------
        matplotlib Figure

        Examples
        --------
        >>> from sparsetoken import Task, diagnose, sample
        >>> data = sample(Task(4, 1, 5.0), 150, dimension=5, rng=0)
        >>> len(diagnose(data.X, data.y).plot().axes) > 0
        True
        """
        from sparsetoken.planning.diagnosis_figure import draw_diagnosis

        return draw_diagnosis(self, self._projections, figure)


@path_memory()
def diagnose(
    X: Any,
    y: Any,
    *,
    attention: Any = None,
    cv: int = 5,
    repeats: int = 1,
    splits: int = 2,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Diagnosis:
    """Say why attention is, or is not, better than pooling on sequences of two classes.

    Parameters
    ----------
    X : array of shape (n, L, d), masked array, or list of arrays of shape (L_i, d)
    y : array of shape (n,)
        Labels of two classes, either of which may carry the signal.
    attention : classifier, optional
        Attention with settings of your own, to be judged instead of the default one.
    cv, repeats : int
        Folds, and repeats of them, for the errors of the classifiers (`compare`).
    splits : int
        Random halvings of the data for the estimates of the signal.
    seed : int
    progress : callable, optional
        Called as progress(finished, total) after the comparison and after every fit on a half.

    Returns
    -------
    Diagnosis

    Examples
    --------
    >>> import numpy as np
    >>> from sparsetoken import Task, diagnose, sample
    >>> X, y, _, _ = sample(Task(5, 1, 5.0), 120, dimension=8, rng=np.random.default_rng(0))
    >>> found = diagnose(X, y, cv=3, splits=1)
    >>> found.samples, found.dimension, len(found.findings) > 0
    (120, 8, True)
    """
    X = in_plain_units(X)
    tokens, labels = _tokens(X, y)
    cv = validation.integer("cv", cv, low=2)
    repeats = validation.integer("repeats", repeats, low=1, high=MOST_REPEATS)
    splits = validation.integer("splits", splits, low=1, high=MOST_REPEATS)
    seed = validation.integer("seed", seed, low=0, high=LARGEST_SEED)
    validation.callback("progress", progress)
    total, done = 1 + 2 * splits, 0

    def one_more() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, total)

    own = None if attention is None else {"attention": attention}
    comparison = compare(X, labels, cv=cv, repeats=repeats, classifiers=own, seed=seed)
    one_more()
    known = attention if isinstance(attention, AttentionClassifier) else None
    signal, projections = estimate_signal(
        tokens, splits=splits, seed=seed, progress=one_more, own=known
    )
    facts = Facts(tokens, comparison, signal)
    return Diagnosis(
        samples=len(labels),
        length=float(tokens.lengths.mean()),
        dimension=tokens.values.shape[1],
        comparison=comparison,
        signal=signal,
        limits=facts.limits,
        findings=tuple(findings(facts)),
        _projections=projections,
    )


def _tokens(X: Any, y: Any) -> tuple[Tokens, Array]:
    """Return standardised tokens and the labels, or refuse what cannot be diagnosed."""
    sequences = as_sequences(X)
    labels = labels_of(X, y)
    classes, codes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    if len(classes) != 2:
        raise ParameterError("classes of y", classes.tolist(), "two classes")
    if counts.min() < _FEWEST:
        accepted = f"at least {_FEWEST} samples of either class"
        raise ParameterError("samples of the rarer class", int(counts.min()), accepted)
    if sequences.lengths.max() < 2:
        raise ParameterError("tokens of a sequence", 1, "sequences of at least two tokens")
    blocks = []
    for block in sequences.blocks():
        sequences.require_finite(block)
        blocks.append(block.tokens.astype(float))
    values = np.concatenate(blocks)
    scale = values.std(axis=0)
    if not scale.any():
        raise ParameterError("X", "the same token everywhere", "tokens that differ")
    values = (values - values.mean(axis=0)) / np.where(scale > 0, scale, 1.0)
    sequence = np.repeat(np.arange(len(codes)), sequences.lengths)
    return Tokens(values, sequence, codes.astype(bool)), labels


def _lines(found: Diagnosis) -> Iterator[str]:
    signal, bars = found.signal, found.signal.uncertainty
    yield f"{found.samples:,} sequences of {found.length:.4g} tokens in {found.dimension} dimensions"
    for name, value, unit in (
        ("strength", signal.strength, "standard deviations of the noise"),
        ("informative", signal.informative, f"of {found.length:.4g} tokens"),
        ("alignment", signal.alignment, "cosine of the learnt direction with the signal"),
        ("effective_dimension", signal.effective_dimension, ""),
    ):
        text = "cannot say" if value is None else f"{with_error(value, bars[name])} {unit}"
        yield f"  {name.replace('_', ' '):22} {text}".rstrip()
    if signal.strength is not None and not signal.normal:
        yield (
            f"  unreliable: the noise along the signal is not normal (distribution functions differ by "
            f"{signal.distance:.2f});"
        )
        yield "  strength, informative tokens and limits describe normal noise: go by measured errors"
    for row in found.comparison.rows:
        text = f"{row.error:.4g} in every fold"
        if row.uncertainty > 0:
            text = with_error(row.error, row.uncertainty)
        yield f"  {found.comparison.measure + ', ' + row.name:22} {text}"
    if found.limits:
        yield (
            f"  with the signal known attention would reach {found.limits['attention']:.3f}, pooling "
            f"{found.limits['pooled']:.3f}"
        )
    yield from map(str, found.findings)
