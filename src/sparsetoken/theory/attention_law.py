"""The law of attention features, drawn by scrambled Sobol points (docs/theory.md, section 5).

A feature is f = θA ξ + B q̂ + S g: only the triple (A, B, S) and the label are random beyond the
Gaussian g. Theory needs its coordinates c_q = θγA + B (along the query, where g has no part) and
c_e = θ√(1-γ²) A (across it), and S.
"""

from dataclasses import dataclass

import numpy as np

from sparsetoken.arrays import Array
from sparsetoken.numerics.memory import kept_on_path
from sparsetoken.task import Query, Task
from sparsetoken.theory.feature_law import FeatureLaw
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

__all__ = ["MILD_SHARPNESS", "attention_law", "softmax_triples"]

# Below this sharpness attention is close to pooling, and the mean of the tokens matters most.
MILD_SHARPNESS = 0.2

# From this one on, the mean of all tokens is a small part of what varies.
_SMOOTH_SHARPNESS = 1.0

# From this advantage of an informative token on, in its score, attention mostly finds it.
_FOUND = 2.0

# What the laws of a path may take: at the finest tolerance, those of training and of test.
_KEPT_BYTES = 2**27


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
    manner = _Manner.suited(task, query, rare, smooth)
    amplitude, along, scale, variance, weight, labels = _drawn(
        task, query, log2_points, seed, manner
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
        further=np.sqrt(variance) if manner.smooth else None,
    )


@dataclass(frozen=True)
class _Manner:
    """How tokens are drawn.

    Attributes
    ----------
    mild : bool
        Whether the mean of all tokens has a coordinate of its own.
    smooth : bool
        Whether that mean is left out.
    tails, rare : bool
        Whether more points lie where labels look alike, and whether they reach far.
    """

    mild: bool
    smooth: bool
    tails: bool
    rare: bool

    @classmethod
    def suited(cls, task: Task, query: Query, rare: bool, smooth: bool) -> "_Manner":
        """Choose by what decides a score: the mean of all tokens, tails, or neither."""
        mild = query.sharpness < MILD_SHARPNESS
        smooth = smooth and query.sharpness < _SMOOTH_SHARPNESS
        smooth = smooth and (mild or not _decided_in_tails(task, query, mild))
        mild = mild and not smooth
        tails = rare or (not smooth and _decided_in_tails(task, query, mild))
        return cls(mild, smooth, tails, rare)

    def tail(self, label: int, informative: int) -> Tail | None:
        """Return the tail of a class with so many informative tokens where more points lie."""
        if not self.tails:
            return None
        # A positive without informative tokens is no rarer than a negative where it errs.
        return "high" if label < 0 else "low" if informative else None


def _decided_in_tails(task: Task, query: Query, mild: bool) -> bool:
    """Return whether low informative tokens and high others matter more than the rest.

    They do where attention finds the signal, and where it is decided by the mean of all tokens and
    that is the first coordinate.
    """
    if mild:
        return query.alignment > 0 and task.length <= EXPLICIT
    return query.sharpness * task.strength * query.alignment >= _FOUND


def _drawn(
    task: Task, query: Query, log2_points: int, seed: int, manner: _Manner
) -> tuple[Array, ...]:
    """Return A, B, S, the variance left out of B, weights and labels of all points, each (n,).

    Replicate after replicate, positives first in each; the weights of a replicate sum to one.
    """
    parts = []
    for label, rate in ((1, task.positive_rate), (-1, 1 - task.positive_rate)):
        for part in label_strata(task, label, log2_points):
            tokens, drawn = draw_weighted_tokens(
                part.counts,
                part.log2_points,
                (seed, label + 1, *part.stream),
                manner.tail(label, part.counts[0]),
                mean_first=manner.mild,
                rare=manner.rare,
            )
            weights = drawn.reshape(REPLICATES, -1)
            weights = rate * part.weight / weights.sum(axis=1, keepdims=True) * weights
            signs = np.full(weights.shape, float(label))
            triples = _noisy_triples(task, query, tokens, manner.smooth)
            parts.append((*triples, weights, signs))
    return tuple(
        np.concatenate([array.reshape(REPLICATES, -1) for array in column], axis=1).ravel()
        for column in zip(*parts, strict=True)
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


def softmax_triples(
    task: Task, query: Query, tokens: tuple[TokenGroup, ...]
) -> tuple[Array, Array, Array]:
    """Return (A, B, S) of sequences: the weight of the first group of tokens, ⟨u, p⟩ and ‖p‖."""
    shift = task.strength * query.alignment
    if query.is_hard:
        return hard_triple(tokens, (shift, 0.0))
    sums = exponential_sums(tokens, query.sharpness, (query.sharpness * shift, 0.0))
    return sums.softmax_triple()
