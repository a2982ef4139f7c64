"""The law of a classifier's features, as points and weights (docs/theory.md, section 5).

A feature is f = θA ξ + B q̂ + S g: only the triple (A, B, S) and the label are random beyond the
Gaussian g. Theory needs it as c_q = θγA + B (along the query), c_e = θ√(1-γ²) A (across it) and S.
For the pooled and vectorised classifiers the law is one point per class. For attention it is drawn
by scrambled Sobol points, in independent replicates whose spread tells the error.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from sparsetoken import validation
from sparsetoken.arrays import Array
from sparsetoken.task import Query, Task
from sparsetoken.theory.replicates import REPLICATES
from sparsetoken.theory.token_law import draw_tokens, exponential_sums

__all__ = [
    "LAWS",
    "ClassifierLaw",
    "FeatureLaw",
    "ScoreLaw",
    "attention_law",
    "classifier_law",
    "pooled_law",
    "score_law",
    "vectorised_law",
]


# Below this sharpness attention is close to pooling, and the mean of the tokens matters most.
MILD_SHARPNESS = 0.2


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
    """Points of the law of (c_q, c_e, S, y), replicate after replicate.

    Attributes
    ----------
    along, across, scale, label, weight : arrays of shape (n,)
        c_q, c_e, S, y = ±1, and weights that sum to one.
    replicates : int
        The points are that many independent approximations in a row, of equal weight; 1 if the
        law is exact.
    dimension_ratio : float
        Dimension of the features over that of a token: 1, or L for the vectorised classifier.
    has_query : bool
        Whether the readout has a direction along a query.
    """

    along: Array
    across: Array
    scale: Array
    label: Array
    weight: Array
    replicates: int = 1
    dimension_ratio: float = 1.0
    has_query: bool = False


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
    """Return the law of the score ⟨f, w⟩ + b of features with this law.

    Parameters
    ----------
    weights : array of shape (4,) or (replicates, 4)
        The readout (μ_q, μ_e, b, ν), or one for each replicate of the law.
    """
    rows = np.repeat(np.atleast_2d(weights), len(law.scale) // len(np.atleast_2d(weights)), axis=0)
    along, across, bias, rest = rows.T
    mean = along * law.along + across * law.across + bias
    spread = law.scale * np.hypot(across, rest)
    return ScoreLaw(mean, spread, law.label, law.weight, law.replicates)


def pooled_law(task: Task) -> FeatureLaw:
    """Return the law of pooled features: S = 1/√L, c_e = θR/L for positives."""
    shift = task.strength * task.informative / task.length
    return _two_points(task, shift, 1 / np.sqrt(task.length))


def vectorised_law(task: Task) -> FeatureLaw:
    """Return the law of vectorised features in dimension L d: S = 1, c_e = θR/√L for positives."""
    shift = task.strength * task.informative / np.sqrt(task.length)
    return _two_points(task, shift, 1.0, dimension_ratio=float(task.length))


def _two_points(task: Task, shift: float, scale: float, dimension_ratio: float = 1.0) -> FeatureLaw:
    return FeatureLaw(
        along=np.zeros(2),
        across=np.array([shift, 0.0]),
        scale=np.full(2, scale),
        label=np.array([1.0, -1.0]),
        weight=np.array([task.positive_rate, 1 - task.positive_rate]),
        dimension_ratio=dimension_ratio,
    )


@lru_cache(maxsize=64)
def attention_law(task: Task, query: Query, log2_points: int, seed: int = 0) -> FeatureLaw:
    """Return the law of attention features, by 2^log2_points points a class and replicate.

    Kept for repeated calls. The same seed gives the same points whatever the query, so that curves
    are smooth.
    """
    parts = [_replicate(task, query, log2_points, (seed, index)) for index in range(REPLICATES)]
    along, across, scale, label, weight = (
        np.concatenate(column) for column in zip(*parts, strict=True)
    )
    return FeatureLaw(
        along, across, scale, label, weight / REPLICATES, replicates=REPLICATES, has_query=True
    )


def _replicate(
    task: Task, query: Query, log2_points: int, seed: tuple[int, int]
) -> tuple[Array, Array, Array, Array, Array]:
    """Return c_q, c_e, S, y and weights of one replicate, positives first."""
    count = 2**log2_points
    shift = query.sharpness * task.strength * query.alignment
    groups = {+1: (task.informative, task.length - task.informative), -1: (0, task.length)}
    amplitude, along_noise, scale = [], [], []
    for label, counts in groups.items():
        mild = query.sharpness < MILD_SHARPNESS
        tokens = draw_tokens(counts, log2_points, (*seed, label + 1), mean_first=mild)
        a, b, s = exponential_sums(tokens, query.sharpness, (shift, 0.0)).softmax_triple()
        amplitude.append(a)
        along_noise.append(b)
        scale.append(s)
    strength = task.strength * np.concatenate(amplitude)
    across = np.sqrt(1 - query.alignment**2)
    rates = np.repeat([task.positive_rate, 1 - task.positive_rate], count) / count
    return (
        query.alignment * strength + np.concatenate(along_noise),
        across * strength,
        np.concatenate(scale),
        np.repeat([1.0, -1.0], count),
        rates,
    )


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
    """

    make: Callable[[Task, Query | None, int, int], FeatureLaw]
    takes_query: bool = False
    fixed_length: bool = False
    exact: bool = True


def _attention(task: Task, query: Query | None, log2_points: int, seed: int) -> FeatureLaw:
    assert query is not None
    return attention_law(task, query, log2_points, seed)


# Everything else in the package that names classifiers takes the names from here.
LAWS: dict[str, ClassifierLaw] = {
    "attention": ClassifierLaw(_attention, takes_query=True, exact=False),
    "pooled": ClassifierLaw(lambda task, *_: pooled_law(task)),
    "vectorised": ClassifierLaw(lambda task, *_: vectorised_law(task), fixed_length=True),
}


def classifier_law(name: str) -> ClassifierLaw:
    """Return the law of the classifier of that name."""
    return LAWS[validation.choice("classifier", name, LAWS)]
