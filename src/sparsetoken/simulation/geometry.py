"""What a fitted readout does to fresh data, known from a few numbers of it.

Given the hidden variables of a sequence (its label, its informative places, the noise that the
query sees) the score of a fitted readout is normal with a known mean and spread. The test error and
all that ranks sequences are then averages of normal probabilities over the hidden variables: no
test set is needed (docs/theory.md, section 7).
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import combinations
from typing import ClassVar

import numpy as np
from scipy.special import ndtri

from sparsetoken.arrays import Array
from sparsetoken.numerics.sobol import plain_sobol_points
from sparsetoken.simulation.measures import Class, ScorePoints
from sparsetoken.simulation.reduced import (
    BLOCK_ENTRIES,
    attention_triples,
    largest_score,
    token_noise,
)
from sparsetoken.simulation.sampling import (
    rows_by_count,
    sample_counts,
    sample_labels,
    sample_positions,
)
from sparsetoken.task import Task
from sparsetoken.validation import ParameterError

__all__ = ["AttentionGeometry", "Geometry", "PooledGeometry", "VectorisedGeometry"]

# The test error of one trial is a mean over the law of a sequence: that many shifted point sets, whose
# spread is its error, with so many numbers in all, and no more points than a trial's own noise needs.
REPLICATES = 8
LAW_ENTRIES = 2**20
MOST_POINTS = 2**10
# Later tokens of a sequence are plain random numbers: Sobol points of more dimensions are no better.
SOBOL_TOKENS = 128
# Sets of informative places of the vectorised classifier: all of them, or so many at random, whose mean
# over parts has a standard error.
MOST_SUBSETS = 20_000
SUBSET_REPLICATES = 10
BOTH_LABELS = np.array([[True], [False]])


class Geometry(ABC):
    """A fitted readout, seen from the task.

    Attributes
    ----------
    knows_sharpness : bool
        Whether it depends on the sharpness of a softmax; if not, another one at test time is refused.
    """

    knows_sharpness: ClassVar[bool] = False

    @abstractmethod
    def points(self, task: Task, rng: np.random.Generator) -> ScorePoints:
        """Return the scores of fresh sequences of `task`, at points that the generator draws."""

    def test_error(self, task: Task, rng: np.random.Generator) -> tuple[float, float]:
        """Return the probability of a wrong label on `task`, and the standard error of its value.

        Where the integral is closed the standard error is 0.
        """
        return self.points(task, rng).test_error

    @abstractmethod
    def _scores(self, task: Task, positive: Array, rng: np.random.Generator) -> Class:
        """Draw hidden variables and return the mean and spread of the scores given them."""

    def fresh_error(self, task: Task, count: int, rng: np.random.Generator) -> float:
        """Return the fraction of wrong labels on `count` fresh samples."""
        wrong, size = 0, max(1, BLOCK_ENTRIES // task.length)
        for start in range(0, count, size):
            labels = sample_labels(task, min(size, count - start), rng)
            mean, spread = self._scores(task, labels > 0, rng)
            scores = mean + spread * rng.standard_normal(len(labels))
            wrong += int(np.sum(np.where(scores > 0, 1, -1) != labels))
        return wrong / count


@dataclass(frozen=True)
class PooledGeometry(Geometry):
    """w by its coordinate along the signal and its norm."""

    on_signal: float
    norm: float
    bias: float

    def points(self, task: Task, rng: np.random.Generator) -> ScorePoints:  # noqa: ARG002
        """Return one point for each label and number of informative tokens: all is closed."""
        known = task.counts
        positive = self._scores_given(task, known.values[None])
        negative = self._scores_given(task, np.zeros((1, 1)))
        return ScorePoints(positive, negative, task.positive_rate, weight=known.probability)

    def _scores_given(self, task: Task, informative: Array) -> Class:
        shift = task.strength * informative / task.length * self.on_signal
        return shift + self.bias, np.full(shift.shape, self.norm / math.sqrt(task.length))

    def _scores(self, task: Task, positive: Array, rng: np.random.Generator) -> Class:
        return self._scores_given(task, sample_counts(task, len(positive), rng) * positive)


@dataclass(frozen=True)
class VectorisedGeometry(Geometry):
    """w by its coordinates along the signal in each token (L,) and its norm."""

    on_signal: Array
    norm: float
    bias: float

    def points(self, task: Task, rng: np.random.Generator) -> ScorePoints:
        """Return a point for each set of informative places: all of them, or 20,000 at random."""
        self._require_length(task)
        replicates, weight = 1, None
        subsets = [math.comb(task.length, number) for number, _ in task.counts]
        if sum(subsets) <= MOST_SUBSETS:
            parts = [self._all_shifts(task.length, number) for number, _ in task.counts]
            shifts = np.concatenate(parts)
            weight = np.repeat(task.counts.probability / subsets, subsets)
        else:
            shifts, replicates = self._random_shifts(task, MOST_SUBSETS, rng), SUBSET_REPLICATES
        means = task.strength * shifts.reshape(replicates, -1) + self.bias
        other = np.full((replicates, 1), self.bias)
        positive, negative = ((m, np.full_like(m, self.norm)) for m in (means, other))
        return ScorePoints(positive, negative, task.positive_rate, weight=weight)

    def _all_shifts(self, length: int, informative: int) -> Array:
        chosen = np.array(list(combinations(range(length), informative)), dtype=int)
        return np.asarray(self.on_signal[chosen].sum(axis=1))

    def _random_shifts(self, task: Task, count: int, rng: np.random.Generator) -> Array:
        size = max(1, BLOCK_ENTRIES // task.length)
        starts = range(0, count, size)
        parts = [sample_positions(task, min(size, count - s), rng) @ self.on_signal for s in starts]
        return np.concatenate(parts)

    def _scores(self, task: Task, positive: Array, rng: np.random.Generator) -> Class:
        self._require_length(task)
        shifts = task.strength * self._random_shifts(task, len(positive), rng)
        return shifts * positive + self.bias, np.full(len(positive), self.norm)

    def _require_length(self, task: Task) -> None:
        length = len(self.on_signal)
        if task.length != length:
            accepted = f"{length}, the training's: a vectorised classifier has one length"
            raise ParameterError("at.length", task.length, accepted)


@dataclass(frozen=True)
class AttentionGeometry(Geometry):
    """Query and w in the frame of the query q̂ and the part e of the signal orthogonal to it.

    Attributes
    ----------
    alignment, sharpness : float
        γ = ⟨q̂, ξ⟩ and κ = β‖q‖.
    on_query, on_rest : float
        w along q̂ and along e, where ξ = γ q̂ + √(1-γ²) e.
    across_norm : float
        Norm of w without its part along q̂.
    bias : float
    """

    knows_sharpness: ClassVar[bool] = True

    alignment: float
    sharpness: float
    on_query: float
    on_rest: float
    across_norm: float
    bias: float

    def points(self, task: Task, rng: np.random.Generator) -> ScorePoints:
        """Return points of the law of (A, B, S), by randomly shifted Sobol points.

        The points cover the first 128 tokens, the informative ones first; any others are drawn at
        random, which at so many dimensions is as good. There are eight independent replicates.
        """
        points = _sobol(task.length)
        shape = (2, REPLICATES, len(points))
        means, spreads = np.empty(shape), np.empty(shape)
        mass, hits = np.empty(REPLICATES), np.empty(REPLICATES)
        for replicate in range(REPLICATES):
            noise = _shifted_normals(points, task.length, rng)
            informative = _spread_counts(task, len(points), rng)
            triples = attention_triples(
                task, self.alignment, self.sharpness, noise, BOTH_LABELS, informative
            )
            means[:, replicate], spreads[:, replicate] = self._scores_of(task, triples)
            mass[replicate] = triples[0][0].mean()
            hits[replicate] = self._hits(task, noise, informative).mean()
        positive, negative = zip(means, spreads, strict=True)
        tokens = {"attended_mass": mass, "hit_rate": hits}
        return ScorePoints(positive, negative, task.positive_rate, tokens)

    def _hits(self, task: Task, noise: Array, informative: Array) -> Array:
        """Return where the largest score is an informative token's, (n,)."""
        found = np.empty(len(noise), dtype=bool)
        for number, rows in rows_by_count(informative):
            largest = largest_score(noise[rows, :number]) + task.strength * self.alignment
            found[rows] = largest > largest_score(noise[rows, number:])
        return found

    def _scores_of(self, task: Task, triples: tuple[Array, Array, Array]) -> Class:
        on_signal, along, spread = triples
        across = math.sqrt(max(0.0, 1 - self.alignment**2))
        readout_on_signal = self.alignment * self.on_query + across * self.on_rest
        mean = task.strength * on_signal * readout_on_signal + along * self.on_query + self.bias
        return mean, spread * self.across_norm

    def _scores(self, task: Task, positive: Array, rng: np.random.Generator) -> Class:
        noise = token_noise(len(positive), task.length, rng)
        informative = sample_counts(task, len(positive), rng)
        triples = attention_triples(
            task, self.alignment, self.sharpness, noise, positive, informative
        )
        return self._scores_of(task, triples)


def _spread_counts(task: Task, count: int, rng: np.random.Generator) -> Array:
    """Return numbers of informative tokens in random order, as evenly spread as their law."""
    known = task.counts
    if len(known.values) == 1:
        return np.full(count, known.values[0])
    levels = (rng.permutation(count) + rng.random()) / count
    places = np.searchsorted(np.cumsum(known.probability), levels, side="right")
    return np.asarray(known.values[np.minimum(places, len(known.values) - 1)])


def _sobol(length: int) -> Array:
    """Return Sobol points (N, min(length, 128)); N falls with length, from 1024 to 64."""
    count = min(MOST_POINTS, LAW_ENTRIES // (REPLICATES * length))
    exponent = max(6, int(math.log2(max(count, 1))))
    return plain_sobol_points(min(length, SOBOL_TOKENS), exponent)


def _shifted_normals(points: Array, length: int, rng: np.random.Generator) -> Array:
    """Return token noise (N, length): the shifted points as normals, then random normals."""
    count, covered = points.shape
    shifted = points + rng.random(covered)
    shifted -= shifted >= 1
    normals = ndtri(np.clip(shifted, 1e-16, 1 - 1e-16))
    if covered == length:
        return np.asarray(normals)
    return np.hstack([normals, token_noise(count, length - covered, rng)])
