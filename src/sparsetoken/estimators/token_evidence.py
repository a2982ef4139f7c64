"""Which tokens speak for a class: evidence, p-values against a background, and pictures."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparsetoken import validation
from sparsetoken.arrays import Array
from sparsetoken.estimators.metrics import with_positions
from sparsetoken.records import preformatted, to_frame
from sparsetoken.validation import ParameterError

__all__ = [
    "Background",
    "FreeResponseCurve",
    "draw_attention",
    "explain",
    "free_response_curve",
    "plot_attention",
]

# Of the background, only so many of the largest scores are kept, with how many there were.
KEPT_SCORES = 2**16
# False alarms per sequence at which the text of a free-response curve says what is found.
SHOWN_ALARMS = (0.0, 0.01, 0.1, 1.0, 10.0, 100.0)


@dataclass(frozen=True)
class Background:
    """The law of token scores in sequences without signal, from a sample of them.

    Attributes
    ----------
    scores : array, sorted
        The largest scores of the sample.
    count : int
        How many tokens the sample had.
    """

    scores: Array
    count: int

    @classmethod
    def of(cls, scores: Array) -> "Background":
        """Keep the upper tail of a sample of scores."""
        ordered = np.sort(np.asarray(scores, dtype=float))
        return cls(ordered[-KEPT_SCORES:], len(ordered))

    def p_values(self, scores: Array) -> Array:
        """Return (1 + number of background scores at least as large)/(1 + their number).

        For a token that is exchangeable with the background's, P(p <= a) <= a for every a.
        """
        larger = len(self.scores) - np.searchsorted(self.scores, scores, side="left")
        return np.asarray((1 + larger) / (1 + self.count))


@dataclass(frozen=True, repr=False)
class FreeResponseCurve:
    """How many informative tokens are found, at how many false alarms, from the strictest threshold.

    Attributes
    ----------
    false_alarms : array of shape (T,)
        Tokens above the threshold that are not informative, per sequence.
    token_recall : array of shape (T,)
        Share of the informative tokens above the threshold.

    Examples
    --------
    >>> from sparsetoken import free_response_curve
    >>> free_response_curve([[0.9, 0.1], [0.2, 0.3]], [[0], []]).to_rows()[1]
    {'false_alarms': 0.0, 'token_recall': 1.0}
    """

    false_alarms: Array
    token_recall: Array

    def at(self, false_alarms: float) -> float:
        """Return the share found at this many false alarms per sequence.

        Parameters
        ----------
        false_alarms : float >= 0

        Returns
        -------
        float

        Examples
        --------
        >>> from sparsetoken import free_response_curve
        >>> found = free_response_curve([[0.1, 2.0], [0.4, 0.3]], [[False, True], [False, False]])
        >>> found.at(0.0)
        1.0
        """
        false_alarms = validation.real("false_alarms", false_alarms, low=0)
        return float(np.interp(false_alarms, self.false_alarms, self.token_recall))

    def to_rows(self) -> list[dict[str, float]]:
        """Return a dictionary for each threshold.

        Returns
        -------
        list of dict

        Examples
        --------
        >>> from sparsetoken import free_response_curve
        >>> found = free_response_curve([[0.1, 2.0], [0.4, 0.3]], [[False, True], [False, False]])
        >>> sorted(found.to_rows()[0])
        ['false_alarms', 'token_recall']
        """
        return [
            {"false_alarms": float(alarms), "token_recall": float(recall)}
            for alarms, recall in zip(self.false_alarms, self.token_recall, strict=True)
        ]

    def to_frame(self) -> Any:
        """Return a data frame with a row for each threshold.

        Returns
        -------
        DataFrame

        Examples
        --------
        >>> from sparsetoken import free_response_curve
        >>> found = free_response_curve([[0.1, 2.0], [0.4, 0.3]], [[False, True], [False, False]])
        >>> len(found.to_frame()) == len(found.to_rows())
        True
        """
        return to_frame(self.to_rows())

    def __repr__(self) -> str:
        most = f"{self.false_alarms[-1]:.3g} false alarms per sequence"
        return f"<FreeResponseCurve of {len(self.false_alarms)} thresholds up to {most}>"

    def __str__(self) -> str:
        shown = [alarms for alarms in SHOWN_ALARMS if alarms <= self.false_alarms[-1]]
        lines = [f"{alarms:25g}  {self.at(alarms):24.3f}" for alarms in shown]
        return "\n".join(["false alarms per sequence  informative tokens found", *lines])

    def _repr_html_(self) -> str:
        return preformatted(str(self))

    def plot(self, *, axes: Any = None) -> Any:
        """Draw the curve; return the axes.

        Parameters
        ----------
        axes : matplotlib Axes, optional
            Where to draw; in a new figure if not given.

        Returns
        -------
        matplotlib Axes

        Examples
        --------
        >>> from sparsetoken import free_response_curve
        >>> found = free_response_curve([[0.1, 2.0], [0.4, 0.3]], [[False, True], [False, False]])
        >>> found.plot().get_ylabel()
        'informative tokens found'
        """
        from sparsetoken.plotting import axes_to_draw_in, styled

        @styled
        def draw(axes: Any) -> Any:
            axes = axes_to_draw_in(axes)
            axes.step(self.false_alarms, self.token_recall, where="post")
            axes.set_xlabel("false alarms per sequence")
            axes.set_ylabel("informative tokens found")
            axes.set_ylim(0, 1.02)
            return axes

        return draw(axes)


def free_response_curve(scores: Sequence[Any], positions: Sequence[Any]) -> FreeResponseCurve:
    """Return the free-response curve of token scores against known positions.

    Parameters
    ----------
    scores : list of n arrays of shape (L_i,), or array of shape (n, L)
        The larger, the more a token looks informative: `token_scores`, `evidence` or `attention`.
    positions : as in `localisation_score`
        Sequences without informative tokens count as well: all their tokens are false alarms.

    Returns
    -------
    FreeResponseCurve

    Examples
    --------
    >>> from sparsetoken import free_response_curve
    >>> found = free_response_curve([[0.9, 0.1], [0.2, 0.3]], [[0], []])
    >>> found.at(0.0)
    1.0
    """
    parts, informative = [], []
    for row, wanted in with_positions("scores", scores, positions):
        mark = np.zeros(len(row), dtype=bool)
        mark[wanted] = True
        parts.append(row.astype(float))
        informative.append(mark)
    if not any(mark.any() for mark in informative):
        raise ParameterError("positions", "none", "an informative token in some sequence")
    values, marks = np.concatenate(parts), np.concatenate(informative)
    order = np.argsort(-values, kind="stable")
    last_of_ties = np.append(np.diff(values[order]) != 0, True)
    hits, misses = np.cumsum(marks[order]), np.cumsum(~marks[order])
    return FreeResponseCurve(
        np.append(0.0, misses[last_of_ties] / len(parts)),
        np.append(0.0, hits[last_of_ties] / marks.sum()),
    )


def explain(model: Any, X: Any, *, what: str = "attention", **options: Any) -> Any:
    """Return what a classifier with attention says about X, also from within a pipeline or search.

    Parameters
    ----------
    model : fitted classifier, Pipeline, or search such as GridSearchCV
    X : as given to the model
    what : "attention", "locate", "evidence", "token_scores" or "transform"
    options : passed on, such as ``k`` or ``false_alarms`` of `locate`

    Returns
    -------
    array, or list of arrays for ragged sequences

    Examples
    --------
    >>> from sparsetoken import AttentionClassifier, digit_bags, explain
    >>> train, test = digit_bags(6, train=120, test=100)
    >>> model = AttentionClassifier(refine=False, ridge=0.01, sharpness=2.0).fit(train.X, train.y)
    >>> explain(model, test.X, what="attention").sum(axis=1).round(6)[:3].tolist()
    [1.0, 1.0, 1.0]
    """
    known = ("attention", "locate", "evidence", "token_scores", "transform")
    validation.choice("what", what, known)
    final, data = _walked(model, X)
    if not hasattr(final, what):
        raise ParameterError("model", type(final).__name__, f"a classifier that has {what}()")
    return getattr(final, what)(data, **options)


def _walked(model: Any, X: Any) -> tuple[Any, Any]:
    """Return the last estimator of a pipeline, and X as it reaches it."""
    while hasattr(model, "best_estimator_"):
        model = model.best_estimator_
    if hasattr(model, "steps"):
        if len(model.steps) > 1:
            X = model[:-1].transform(X)
        return _walked(model[-1], X)
    return model, X


def plot_attention(
    model: Any, X: Any, *, labels: Any = None, positions: Any = None, axes: Any = None
) -> Any:
    """Draw the attention in each sequence of X, one row a sequence; return the axes.

    Parameters
    ----------
    model : fitted classifier with attention, perhaps in a pipeline or search
    X : a few sequences
    labels : n texts, optional
        What to write beside each row.
    positions : as in `localisation_score`, optional
        Informative tokens, marked by a circle.
    axes : matplotlib axes, optional

    Returns
    -------
    matplotlib axes

    Examples
    --------
    >>> from sparsetoken import AttentionClassifier, digit_bags, plot_attention
    >>> train, test = digit_bags(6, train=120, test=100)
    >>> model = AttentionClassifier(refine=False, ridge=0.01, sharpness=2.0).fit(train.X, train.y)
    >>> axes = plot_attention(model, test.X[:4], positions=test.positions[:4])
    >>> axes.get_xlabel()
    'token'
    """
    from sparsetoken.plotting import axes_to_draw_in, styled

    attention = list(explain(model, X))
    texts: list[Any] = list(range(len(attention)))
    if labels is not None:
        texts = list(validation.several("labels", labels, "texts"))
    if len(texts) != len(attention):
        raise ParameterError("length of labels", len(texts), f"{len(attention)}, one a sequence")
    marked = []
    if positions is not None:
        marked = [wanted for _, wanted in with_positions("attention", attention, positions)]

    @styled
    def draw(axes: Any) -> Any:
        axes = axes_to_draw_in(axes)
        draw_attention(axes, attention, [str(text) for text in texts])
        for row, wanted in enumerate(marked):
            axes.plot(wanted, np.full(len(wanted), row), "o", mfc="none", color="C3")
        axes.set_ylabel("sequence")
        return axes

    return draw(axes)


def draw_attention(axes: Any, attention: list[Array], labels: list[str]) -> None:
    """Draw one row of cells a sequence, a label beside it; cells beyond its end stay empty."""
    cells = np.full((len(attention), max(map(len, attention))), np.nan)
    for row, weights in enumerate(attention):
        cells[row, : len(weights)] = weights
    image = axes.imshow(cells, aspect="auto", vmin=0, vmax=1, interpolation="nearest")
    axes.set_yticks(range(len(attention)), labels)
    axes.set_xlabel("token")
    axes.grid(visible=False)
    axes.figure.colorbar(image, ax=axes, label="attention")
