"""The law of a classifier's features, as points and weights (docs/theory.md, section 5).

A feature is f = θA ξ + B q̂ + S g: only the triple (A, B, S) and the label are random beyond the
Gaussian g. Theory needs its coordinates c_q = θγA + B (along the query, where g has no part) and
c_e = θ√(1-γ²) A (across it), and S. For the pooled and vectorised classifiers there is one
coordinate, along the signal, and one point per class. For attention the law is drawn by scrambled
Sobol points, in independent replicates whose spread tells the error.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from sparsetoken import validation
from sparsetoken.arrays import Array
from sparsetoken.extensions import extensible
from sparsetoken.numerics.memory import kept_on_path
from sparsetoken.task import Query, Task, Training
from sparsetoken.theory.interpolation import ScaleRange, scale_ranges
from sparsetoken.theory.mixture import label_strata
from sparsetoken.theory.replicates import REPLICATES
from sparsetoken.theory.token_law import (
    EXPLICIT,
    Tail,
    TokenGroup,
    draw_weighted_tokens,
    exponential_sums,
    hard_triple,
    mean_given_sums,
)

__all__ = [
    "LAWS",
    "ClassifierLaw",
    "FeatureLaw",
    "ScoreLaw",
    "attention_law",
    "classifier_law",
    "pooled_law",
    "score_law",
    "softmax_triples",
    "vectorised_law",
]


# Below this sharpness attention is close to pooling, and the mean of the tokens matters most.
MILD_SHARPNESS = 0.2

# From this one on, the mean of all tokens is a small part of what varies.
SMOOTH_SHARPNESS = 1.0

# From this advantage of an informative token on, in its score, attention mostly finds it.
_FOUND = 2.0

# What the laws of a path may take: at the finest tolerance, those of training and of test.
_KEPT_BYTES = 2**27

# How often the points of a class are halved for a compressed law: 128 cells.
_CUTS = 7


class _Points:
    """Points with weights, replicate after replicate."""

    weight: Array
    replicates: int

    def by_replicate(self, values: Array) -> Array:
        """Return the weighted mean of values (n, ...) over each replicate, (replicates, ...)."""
        weights = self.weight.reshape(self.replicates, 1, -1) * self.replicates
        columns = values.reshape(self.replicates, weights.shape[2], -1)
        return np.asarray((weights @ columns).reshape(self.replicates, *values.shape[1:]))


@dataclass(frozen=True, eq=False)
class FeatureLaw(_Points):
    """Points of the law of features: their mean coordinates, their scale of noise and their label.

    A feature has k coordinates of its own and isotropic Gaussian noise of size S in all other
    directions. Where the noise of training data has lost directions because it was used before
    (docs/theory.md, section 5.6), each is a column of `removed`.

    Attributes
    ----------
    coordinates : array of shape (n, k)
        Mean of the feature along k orthogonal directions.
    scale, label, weight : arrays of shape (n,)
        S, y = ±1, and weights that sum to one.
    noisy : tuple of k booleans
        Whether there is noise of size S along that direction too, on top of the mean.
    removed : array of shape (n, r)
        What a sample's noise had along directions that are lost, in units in which the lost
        directions are orthonormal.
    spurious : int
        The last so many coordinates are nothing but noise in fresh data.
    replicates : int
        The points are that many independent approximations in a row, of equal weight; 1 if the
        law is exact.
    dimension_ratio : float
        Dimension of the features over that of a token: 1, or L for the vectorised classifier.
    further : array of shape (n,) or None
        Size of noise along the first coordinate alone; laws of training data have none.
    """

    coordinates: Array
    scale: Array
    label: Array
    weight: Array
    noisy: tuple[bool, ...]
    removed: Array
    spurious: int = 0
    replicates: int = 1
    dimension_ratio: float = 1.0
    further: Array | None = None

    @property
    def nbytes(self) -> int:
        """Size of the arrays, with those that are made when they are asked for."""
        numbers, k, lost = len(self.scale), len(self.noisy), self.removed.shape[1]
        columns = (k + 3 + lost + (self.further is not None), k + 1 + lost, k + 2 + lost, 2)
        return int(numbers * sum(columns) * self.scale.itemsize)

    @cached_property
    def signed(self) -> Array:
        """Columns that make the centre of the margin, y m + D a = signed @ (μ, b, a): (n, k+1+r)."""
        means = np.column_stack([self.coordinates, np.ones(len(self.scale))])
        return np.column_stack([self.label[:, None] * means, self.removed])

    @cached_property
    def per_scale(self) -> Array:
        """How (δ - y m - D a)/S grows with (μ, b, a, δ): (n, k+2+r)."""
        columns = np.column_stack([-self.signed, np.ones(len(self.scale))])
        return np.asarray(columns / self.scale[:, None])

    @cached_property
    def scale_ranges(self) -> tuple[ScaleRange, ...]:
        """The points sorted by scale, for tables of functions of (centre, S)."""
        return scale_ranges(self.scale)

    @cached_property
    def compressed(self) -> "FeatureLaw":
        """256 points that stand for all, to begin a solution with; itself if there are no more.

        The points of a class are cut into halves along each coordinate that varies, and along the
        scale, by turns, and each cell is replaced by its mean. What it loses is of second order in
        the width of a cell.
        """
        if len(self.scale) <= 2 * 2**_CUTS:
            return self
        kept = [_cells(np.flatnonzero(self.label == label), self) for label in (1.0, -1.0)]
        weights = [self.weight[cells] for cells in kept]

        def means(values: Array) -> Array:
            parts = [
                np.einsum("cp,cpk->ck", weight / weight.sum(axis=1, keepdims=True), values[cells])
                for cells, weight in zip(kept, weights, strict=True)
            ]
            return np.concatenate(parts)

        return replace(
            self,
            coordinates=means(self.coordinates),
            scale=np.sqrt(means(self.scale[:, None] ** 2)[:, 0]),
            label=np.repeat([1.0, -1.0], 2**_CUTS),
            weight=np.concatenate([weight.sum(axis=1) for weight in weights]),
            removed=means(self.removed),
            replicates=1,
        )

    @property
    def first_replicate(self) -> "FeatureLaw":
        """The first replicate as a law of its own."""
        size = len(self.scale) // self.replicates
        return replace(
            self,
            coordinates=self.coordinates[:size],
            scale=self.scale[:size],
            label=self.label[:size],
            weight=self.weight[:size] * self.replicates,
            removed=self.removed[:size],
            replicates=1,
            further=None if self.further is None else self.further[:size],
        )

    @property
    def own_noise(self) -> Array:
        """1 where a column of `signed` is a coordinate with noise of its own, else 0: (k+1+r,)."""
        return np.array([*self.noisy, *([False] * (1 + self.removed.shape[1]))], dtype=float)

    @property
    def penalised(self) -> Array:
        """1 where a column of `signed` is a coordinate, on which the ridge acts, else 0: (k+1+r,)."""
        lost = self.removed.shape[1]
        return np.array([*([1.0] * len(self.noisy)), *([0.0] * (1 + lost))])

    @property
    def lost(self) -> Array:
        """1 where a column of `signed` is a removed direction, else 0: (k+1+r,)."""
        return np.array([*([0.0] * (len(self.noisy) + 1)), *([1.0] * self.removed.shape[1])])


def _cells(points: Array, law: FeatureLaw) -> Array:
    """Return 2^_CUTS cells of points of one class, as rows of equal length."""
    columns = np.column_stack([law.coordinates, law.scale])[points]
    varying = np.flatnonzero(np.ptp(columns, axis=0) > 0)
    rows = np.arange(len(points))[None]
    if len(varying):
        # Along each column at once what its turns would halve.
        turns = np.bincount(np.arange(_CUTS) % len(varying), minlength=len(varying))
        for column, count in zip(varying, turns, strict=True):
            order = np.argsort(columns[rows, column], axis=1)
            rows = np.take_along_axis(rows, order, axis=1).reshape(len(rows) * 2**count, -1)
    return points[rows.reshape(2**_CUTS, -1)]


@dataclass(frozen=True, eq=False)
class ScoreLaw(_Points):
    """The law of a readout's score on fresh data: s = mean + spread G given a point.

    Attributes
    ----------
    mean, spread, label, weight : arrays of shape (n,)
        m, Sρ, y = ±1, and weights that sum to one.
    replicates : int
        As in `FeatureLaw`.
    """

    mean: Array
    spread: Array
    label: Array
    weight: Array
    replicates: int = 1


def score_law(law: FeatureLaw, weights: Array) -> ScoreLaw:
    """Return the law of the score ⟨f, w⟩ + b of fresh features with this law.

    Parameters
    ----------
    weights : array of shape (k + 2,) or (replicates, k + 2)
        The readout (μ_1 … μ_k, b, ν), or one for each replicate of the law.
    """
    rows = np.atleast_2d(weights)
    # Points of one replicate are one row of this view.
    view = (len(rows), -1)
    coordinates = law.coordinates.reshape(*view, len(law.noisy))
    mean = np.einsum("rnk,rk->rn", coordinates, rows[:, :-2]) + rows[:, -2:-1]
    squares = rows[:, :-2] ** 2 @ np.array(law.noisy, dtype=float) + rows[:, -1] ** 2
    spread = law.scale.reshape(view) * np.sqrt(squares)[:, None]
    if law.further is not None:
        spread = np.hypot(spread, law.further.reshape(view) * rows[:, :1])
    return ScoreLaw(mean.ravel(), spread.ravel(), law.label, law.weight, law.replicates)


def pooled_law(task: Task) -> FeatureLaw:
    """Return the law of pooled features: S = 1/√L, c_e = θR/L for positives."""
    return _few_points(task, task.strength / task.length, 1 / np.sqrt(task.length))


def vectorised_law(task: Task) -> FeatureLaw:
    """Return the law of vectorised features in dimension L d: S = 1, c_e = θR/√L for positives."""
    shift = task.strength / np.sqrt(task.length)
    return _few_points(task, shift, 1.0, dimension_ratio=float(task.length))


def _few_points(task: Task, shift: float, scale: float, dimension_ratio: float = 1.0) -> FeatureLaw:
    """Return a point for each number of informative tokens, `shift` times it, and one at 0."""
    known = task.counts
    size = len(known.values) + 1
    return FeatureLaw(
        coordinates=shift * np.append(known.values, 0.0)[:, None],
        scale=np.full(size, scale),
        label=np.append(np.ones(size - 1), -1.0),
        weight=np.append(task.positive_rate * known.probability, 1 - task.positive_rate),
        noisy=(True,),
        removed=np.empty((size, 0)),
        dimension_ratio=dimension_ratio,
    )


@kept_on_path(limit=_KEPT_BYTES)
def attention_law(
    task: Task,
    query: Query,
    log2_points: int,
    seed: int = 0,
    *,
    rare: bool = False,
    smooth: bool = False,
) -> FeatureLaw:
    """Return the law of attention features, by 2^log2_points points a class and replicate.

    Kept while a path lasts. The same seed gives the same points whatever the query, so that curves
    are smooth. The points of a `rare` law reach to where positives look like negatives and the
    other way round: low informative tokens, and high ones of the others.

    With `smooth`, where neither tails decide nor a few tokens, the mean of all tokens is not drawn: the softmax does
    not depend on it, so that it is independent noise along the query, N(0, 1/L).
    """
    mild = query.sharpness < MILD_SHARPNESS
    smooth = smooth and query.sharpness < SMOOTH_SHARPNESS
    smooth = smooth and (mild or not _decided_in_tails(task, query, mild))
    mild = mild and not smooth
    tails = rare or (not smooth and _decided_in_tails(task, query, mild))
    parts = []
    for label, rate in ((1, task.positive_rate), (-1, 1 - task.positive_rate)):
        for part in label_strata(task, label, log2_points):
            tail: Tail | None = None
            if tails:
                # A positive without informative tokens is no rarer than a negative where it errs.
                tail = "high" if label < 0 else "low" if part.counts[0] else None
            stream = (seed, label + 1, *part.stream)
            tokens, drawn = draw_weighted_tokens(
                part.counts, part.log2_points, stream, tail, mean_first=mild, rare=rare
            )
            weights = drawn.reshape(REPLICATES, -1)
            weights = rate * part.weight / weights.sum(axis=1, keepdims=True) * weights
            signs = np.full(weights.shape, float(label))
            parts.append((*_noisy_triples(task, query, tokens, smooth), weights, signs))
    # Replicate after replicate, positives first in each.
    amplitude, along, scale, variance, weight, labels = (
        np.concatenate([array.reshape(REPLICATES, -1) for array in column], axis=1).ravel()
        for column in zip(*parts, strict=True)
    )
    strength = task.strength * amplitude
    along = query.alignment * strength + along
    across = np.sqrt(1 - query.alignment**2) * strength
    return FeatureLaw(
        coordinates=np.column_stack([along, across]),
        scale=scale,
        label=labels,
        weight=weight / REPLICATES,
        noisy=(False, True),
        removed=np.empty((len(scale), 0)),
        replicates=REPLICATES,
        further=np.sqrt(variance) if smooth else None,
    )


def _noisy_triples(
    task: Task, query: Query, tokens: tuple[TokenGroup, ...], smooth: bool
) -> tuple[Array, Array, Array, Array]:
    """Return A, B and S, and the variance of what is left out of B where it is `smooth`."""
    amplitude, along, scale = softmax_triples(task, query, tokens)
    if not smooth:
        return amplitude, along, scale, np.zeros_like(along)
    mean, left = mean_given_sums(tokens, query.sharpness)
    return amplitude, along - mean, scale, 1 / task.length + left


def _decided_in_tails(task: Task, query: Query, mild: bool) -> bool:
    """Return whether low informative tokens and high others matter more than the rest.

    They do where attention finds the signal, and where it is decided by the mean of all tokens and
    that is the first coordinate.
    """
    if mild:
        return query.alignment > 0 and task.length <= EXPLICIT
    return query.sharpness * task.strength * query.alignment >= _FOUND


def softmax_triples(
    task: Task, query: Query, tokens: tuple[TokenGroup, ...]
) -> tuple[Array, Array, Array]:
    """Return (A, B, S) of sequences: the weight of the first group of tokens, ⟨u, p⟩ and ‖p‖."""
    shift = task.strength * query.alignment
    if query.is_hard:
        return hard_triple(tokens, (shift, 0.0))
    sums = exponential_sums(tokens, query.sharpness, (query.sharpness * shift, 0.0))
    return sums.softmax_triple()


@dataclass(frozen=True)
class ClassifierLaw:
    """What theory knows of a classifier: the law of its features.

    Attributes
    ----------
    make : callable
        make(task, query, log2_points, seed) gives the law; the last two matter only to laws that
        are drawn.
    takes_query : bool
        Whether the classifier has a query, learnt or given.
    fixed_length : bool
        Whether it can only be used on sequences of the length it was trained on.
    exact : bool
        Whether the law has the same few points whatever their wanted number.
    make_rare : callable, optional
        The same as `make` with points that reach to where rare errors come from.
    make_fresh : callable, optional
        The same as `make`, more accurate, for data that nothing is trained on.
    reused : callable or None
        reused(task, training, log2_points, seed) gives the law of the features of samples that the
        query was learnt from; None if the classifier has no query, or the law is not known.
    """

    make: Callable[[Task, Query | None, int, int], FeatureLaw]
    takes_query: bool = False
    fixed_length: bool = False
    exact: bool = True
    make_rare: Callable[[Task, Query | None, int, int], FeatureLaw] | None = None
    make_fresh: Callable[[Task, Query | None, int, int], FeatureLaw] | None = None
    reused: Callable[[Task, Training, int, int], FeatureLaw] | None = None


def _attention(task: Task, query: Query | None, log2_points: int, seed: int) -> FeatureLaw:
    assert query is not None
    return attention_law(task, query, log2_points, seed)


def _rare_attention(task: Task, query: Query | None, log2_points: int, seed: int) -> FeatureLaw:
    assert query is not None
    return attention_law(task, query, log2_points, seed, rare=True)


def _fresh_attention(task: Task, query: Query | None, log2_points: int, seed: int) -> FeatureLaw:
    assert query is not None
    return attention_law(task, query, log2_points, seed, smooth=True)


def _reused(task: Task, training: Training, log2_points: int, seed: int) -> FeatureLaw:
    from sparsetoken.theory.reuse import reused_law  # which needs this module

    return reused_law(task, training, log2_points, seed)


# Everything else in the package that names classifiers takes the names from here.
LAWS: dict[str, ClassifierLaw] = {
    "attention": ClassifierLaw(
        _attention,
        takes_query=True,
        exact=False,
        make_rare=_rare_attention,
        make_fresh=_fresh_attention,
        reused=_reused,
    ),
    "pooled": ClassifierLaw(lambda task, *_: pooled_law(task)),
    "vectorised": ClassifierLaw(lambda task, *_: vectorised_law(task), fixed_length=True),
}
extensible(__name__, LAWS)


def classifier_law(name: str) -> ClassifierLaw:
    """Return the law of the classifier of that name."""
    return LAWS[validation.choice("classifier", name, LAWS)]
