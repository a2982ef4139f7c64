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
from sparsetoken.numerics.quadrature import normal_density
from sparsetoken.task import Task
from sparsetoken.theory.laws import MILD_SHARPNESS
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
        self.length = task.length
        self.informative = task.informative
        self.rare = rare
        self._log2_points = log2_points
        self._stream = stream
        self._drawn: dict[tuple[int, int, bool], tuple[tuple[TokenGroup, ...], Array]] = {}

    def scores(
        self, score: Callable[[tuple[TokenGroup, ...]], Array], most: int, mild: bool = False
    ) -> Scores:
        """Apply score(informative tokens, other tokens) to sequences of either label.

        At most `most` tokens of a group are drawn one by one. The mean of a sequence comes first if
        the score is `mild`, that is, weighs all tokens nearly alike.
        """
        columns = []
        for label in (1, -1):
            groups, weight = self._tokens(label, most, mild)
            columns += [score(groups).reshape(REPLICATES, -1), weight.reshape(REPLICATES, -1)]
        positive, positive_weight, negative, negative_weight = columns
        return Scores(positive, negative, positive_weight, negative_weight)

    def _tokens(self, label: int, most: int, mild: bool) -> tuple[tuple[TokenGroup, ...], Array]:
        """Return all replicates in a row, and their weights."""
        key = (label, most, mild)
        if key not in self._drawn:
            parts = [self._replicate(label, most, mild, index) for index in range(REPLICATES)]
            groups = tuple(
                TokenGroup(
                    np.concatenate([group.values for group in same]),
                    same[0].rest,
                    np.concatenate([group.normals for group in same]),
                )
                for same in zip(*(groups for groups, _ in parts), strict=True)
            )
            self._drawn[key] = groups, np.concatenate([weight for _, weight in parts])
        return self._drawn[key]

    def _replicate(
        self, label: int, most: int, mild: bool, index: int
    ) -> tuple[tuple[TokenGroup, ...], Array]:
        informative = self.informative if label == 1 else 0
        counts = (informative, self.length - informative)
        seed = (self._stream, index, label + 1)
        tail: Tail | None = None
        if self.rare:
            tail = "low" if label == 1 else "high"
        return draw_weighted_tokens(counts, self._log2_points, seed, tail, most, mild)


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

    It is the log of the mean over R-subsets of exp(θ Σ x - Rθ²/2): an elementary symmetric
    polynomial of the exp(θx_l).
    """
    if sample.informative == 1:
        return sample.scores(_one_token_ratio(sample.length, strength), most=_SOME_TOKENS // 2)
    if sample.length > 4096:
        accepted = "at most 4096 for 'bayes' with informative > 1"
        raise ParameterError("length", sample.length, accepted)
    ratio = _subset_ratio(sample.length, sample.informative, strength)
    return sample.scores(ratio, most=sample.length)


def _one_token_ratio(length: int, strength: float) -> Callable[[tuple[TokenGroup, ...]], Array]:
    def score(tokens: tuple[TokenGroup, ...]) -> Array:
        sums = exponential_sums(tokens, strength, (strength**2, 0.0))
        return np.asarray(sums.peak + np.log(sums.total) - np.log(length) - 0.5 * strength**2)

    return score


def _subset_ratio(
    length: int, order: int, strength: float
) -> Callable[[tuple[TokenGroup, ...]], Array]:
    subsets = gammaln(length + 1) - gammaln(order + 1) - gammaln(length - order + 1)

    def score(tokens: tuple[TokenGroup, ...]) -> Array:
        exponents = np.concatenate(
            [
                strength * (group.values + shift)
                for group, shift in zip(tokens, (strength, 0.0), strict=True)
            ],
            axis=1,
        )
        return np.asarray(
            _log_symmetric_polynomial(exponents.T, order) - subsets - 0.5 * order * strength**2
        )

    return score


def _log_symmetric_polynomial(exponents: Array, order: int) -> Array:
    """Return log e_order(exp(exponents)) over the first axis, in O(L R) and without overflow."""
    logs = np.full((order + 1, exponents.shape[1]), -np.inf)
    logs[0] = 0.0
    for index, exponent in enumerate(exponents):
        top = min(index + 1, order)
        # From the highest degree down: e_j ← e_j + exp(exponent) e_{j-1}.
        logs[1 : top + 1] = np.logaddexp(logs[1 : top + 1], exponent + logs[:top])
    return np.asarray(logs[order])
