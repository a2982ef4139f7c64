"""Scores of sequences for a classifier that knows the signal (docs/theory.md, section 2).

Only the projections x_l = ⟨X_l, ξ⟩ = θ v_l + u_l of the tokens matter, with u_l standard normal.
Scores come for both labels at the same quasi-random points whatever θ and κ, so that errors are
smooth functions of both.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, gammaln

from sparsetoken.arrays import Array
from sparsetoken.informative import Counts
from sparsetoken.numerics.quadrature import normal_density
from sparsetoken.task import Task
from sparsetoken.theory.laws import MILD_SHARPNESS
from sparsetoken.theory.mixture import Stratum, label_strata
from sparsetoken.theory.replicates import REPLICATES
from sparsetoken.theory.token_law import (
    Tail,
    TokenGroup,
    draw_weighted_tokens,
    exponential_sums,
)
from sparsetoken.validation import ParameterError

__all__ = [
    "NONLINEARITIES",
    "Scores",
    "TokenSample",
    "attention_scores",
    "elementwise_scores",
    "likelihood_ratio_scores",
]

NONLINEARITIES = ("sigmoid", "tanh", "linear", "exp")

# Up to this length every token is drawn for sums that the largest tokens do not dominate.
_ALL_TOKENS = 256
_SOME_TOKENS = 64


@dataclass(frozen=True)
class Scores:
    """Scores of positive and negative sequences and their weights, each (replicates, points).

    Weights have the mean 1: a mean of weight times value is a mean under the law.
    """

    positive: Array
    negative: Array
    positive_weight: Array
    negative_weight: Array


class TokenSample:
    """Tokens of positive and negative sequences, drawn once for many strengths and sharpnesses.

    Parameters
    ----------
    log2_points : int
        2^log2_points points a label and replicate.
    stream : int
        Samples of different streams are independent.
    rare : bool
        Whether the points reach far to where positives look like negatives and the other way round:
        low informative tokens, and high largest ones of the others.
    """

    def __init__(self, task: Task, log2_points: int, *, stream: int, rare: bool = False) -> None:
        self.task = task
        self.length = task.length
        self.rare = rare
        self._log2_points = log2_points
        self._stream = stream
        self._drawn: dict[tuple[int, int, bool], list[tuple[tuple[TokenGroup, ...], Array]]] = {}

    def scores(
        self, score: Callable[[tuple[TokenGroup, ...]], Array], most: int, mild: bool = False
    ) -> Scores:
        """Apply score(informative tokens, other tokens) to sequences of either label.

        At most `most` tokens of a group are drawn one by one. The mean of a sequence comes first if
        the score is `mild`, that is, weighs all tokens nearly alike.
        """
        columns = []
        for label in (1, -1):
            parts = [
                (score(groups).reshape(REPLICATES, -1), weight.reshape(REPLICATES, -1))
                for groups, weight in self._tokens(label, most, mild)
            ]
            columns += [np.concatenate(part, axis=1) for part in zip(*parts, strict=True)]
        positive, positive_weight, negative, negative_weight = columns
        return Scores(positive, negative, positive_weight, negative_weight)

    def _tokens(
        self, label: int, most: int, mild: bool
    ) -> list[tuple[tuple[TokenGroup, ...], Array]]:
        """Return the tokens by number of informative ones: replicates in a row, and their weights."""
        key = (label, most, mild)
        if key not in self._drawn:
            strata = label_strata(self.task, label, self._log2_points)
            points = sum(part.points for part in strata)
            self._drawn[key] = [
                self._stratum(label, part, points * part.weight / part.points, most, mild)
                for part in strata
            ]
        return self._drawn[key]

    def _stratum(
        self, label: int, part: Stratum, scale: float, most: int, mild: bool
    ) -> tuple[tuple[TokenGroup, ...], Array]:
        """Return the tokens of one stratum, with `scale` as the mean of their weights."""
        tail: Tail | None = None
        if self.rare:
            tail = "high" if label < 0 else "low" if part.counts[0] else None
        drawn = [
            draw_weighted_tokens(
                part.counts,
                part.log2_points,
                (self._stream, index, label + 1, *part.stream),
                tail,
                most,
                mild,
            )
            for index in range(REPLICATES)
        ]
        groups = tuple(
            TokenGroup(
                np.concatenate([group.values for group in same]),
                same[0].rest,
                np.concatenate([group.normals for group in same]),
            )
            for same in zip(*(groups for groups, _ in drawn), strict=True)
        )
        return groups, scale * np.concatenate([weight for _, weight in drawn])


def attention_scores(sample: TokenSample, strength: float, sharpness: float) -> Scores:
    """Return T = Σ_l softmax(κx)_l x_l."""

    def score(tokens: tuple[TokenGroup, ...]) -> Array:
        sums = exponential_sums(tokens, sharpness, (sharpness * strength, 0.0))
        marked, noise, _ = sums.softmax_triple()
        return np.asarray(strength * marked + noise)

    return sample.scores(score, most=_SOME_TOKENS // 2, mild=bool(sharpness < MILD_SHARPNESS))


def elementwise_scores(
    sample: TokenSample, strength: float, sharpness: float, nonlinearity: str
) -> Scores:
    """Return (1/L) Σ_l σ(κ x_l) x_l; for exp its logarithm, which orders sequences alike."""
    if nonlinearity == "exp":
        return sample.scores(_log_exponential_score(sample.length, strength, sharpness), most=32)
    functions: dict[str, Callable[[Array], Array]] = {
        "sigmoid": lambda x: expit(sharpness * x) * x,
        "tanh": lambda x: np.tanh(sharpness * x) * x,
        "linear": lambda x: x**2,
    }
    function = functions[nonlinearity]

    def score(tokens: tuple[TokenGroup, ...]) -> Array:
        total = np.zeros(len(tokens[0].values))
        for group, shift in zip(tokens, (strength, 0.0), strict=True):
            total += function(group.values + shift).sum(axis=1)
            if group.rest:
                total += _rest_sum(function, group, shift)
        return np.asarray(total / sample.length)

    most = _ALL_TOKENS if sample.length <= _ALL_TOKENS else _SOME_TOKENS
    return sample.scores(score, most)


def _log_exponential_score(
    length: int, strength: float, sharpness: float
) -> Callable[[tuple[TokenGroup, ...]], Array]:
    def score(tokens: tuple[TokenGroup, ...]) -> Array:
        sums = exponential_sums(tokens, sharpness, (sharpness * strength, 0.0))
        total = (sums.first + strength * sums.marked) / length
        # A sum below zero, with every token negative, comes last in any order.
        logarithm = np.log(np.where(total > 0, total, 1.0))
        return np.asarray(np.where(total > 0, sums.peak + logarithm, -np.inf))

    return score


def _rest_sum(function: Callable[[Array], Array], group: TokenGroup, shift: float) -> Array:
    """Return the sum of function(u + shift) over tokens below the last kept, to normal accuracy."""
    grid = np.linspace(-9.0, 9.0, 8001)
    spacing = grid[1] - grid[0]
    values, density = function(grid + shift), normal_density(grid)
    columns = np.stack([np.ones_like(grid), values, values**2]) * density
    below = np.cumsum(columns, axis=1) * spacing - 0.5 * spacing * columns
    top = group.values[:, -1]
    mass, first, second = (np.interp(top, grid, column) for column in below)
    mean = first / mass
    variance = np.maximum(second / mass - mean**2, 0.0)
    return np.asarray(group.rest * mean + np.sqrt(group.rest * variance) * group.normals[:, 0])


def likelihood_ratio_scores(sample: TokenSample, strength: float) -> Scores:
    """Return the log-likelihood ratio, of positive against negative.

    It is the log of the mean over R and over R-subsets of exp(θ Σ x - Rθ²/2): elementary symmetric
    polynomials of the exp(θx_l).
    """
    known = sample.task.counts
    if known.values[-1] <= 1:
        chance = float(known.probability[-1])
        ratio = _one_token_ratio(sample.length, strength, chance)
        return sample.scores(ratio, most=_SOME_TOKENS // 2)
    if sample.length > 4096:
        accepted = "at most 4096 for 'bayes' with informative > 1"
        raise ParameterError("length", sample.length, accepted)
    return sample.scores(_subset_ratio(sample.length, known, strength), most=sample.length)


def _one_token_ratio(
    length: int, strength: float, chance: float
) -> Callable[[tuple[TokenGroup, ...]], Array]:
    """Return the score where there is one informative token, or with 1 - `chance` none."""

    def score(tokens: tuple[TokenGroup, ...]) -> Array:
        sums = exponential_sums(tokens, strength, (strength**2, 0.0))
        ratio = sums.peak + np.log(sums.total) - np.log(length) - 0.5 * strength**2
        if chance < 1:
            ratio = np.logaddexp(np.log(chance) + ratio, np.log1p(-chance))
        return np.asarray(ratio)

    return score


def _subset_ratio(
    length: int, known: Counts, strength: float
) -> Callable[[tuple[TokenGroup, ...]], Array]:
    orders = known.values
    subsets = gammaln(length + 1) - gammaln(orders + 1) - gammaln(length - orders + 1)
    # The logarithm of the weight of a subset of each size, before its tokens are seen.
    priors = np.log(known.probability) - subsets - 0.5 * orders * strength**2

    def score(tokens: tuple[TokenGroup, ...]) -> Array:
        exponents = np.concatenate(
            [
                strength * (group.values + shift)
                for group, shift in zip(tokens, (strength, 0.0), strict=True)
            ],
            axis=1,
        )
        polynomials = _log_symmetric_polynomials(exponents.T, int(orders[-1]))[orders]
        return np.asarray(np.logaddexp.reduce(polynomials + priors[:, None], axis=0))

    return score


def _log_symmetric_polynomials(exponents: Array, order: int) -> Array:
    """Return log e_j(exp(exponents)) over the first axis, j = 0 ... order, in O(L R)."""
    logs = np.full((order + 1, exponents.shape[1]), -np.inf)
    logs[0] = 0.0
    for index, exponent in enumerate(exponents):
        top = min(index + 1, order)
        # From the highest degree down: e_j ← e_j + exp(exponent) e_{j-1}.
        logs[1 : top + 1] = np.logaddexp(logs[1 : top + 1], exponent + logs[:top])
    return logs
