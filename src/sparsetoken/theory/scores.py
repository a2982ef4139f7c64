"""Scores of sequences for a classifier that knows the signal (docs/theory.md, section 2).

Only the projections x_l = ⟨X_l, ξ⟩ = θ v_l + u_l of the tokens matter, with u_l standard normal.
Scores come for both labels at the same quasi-random points whatever θ and κ, so that errors are
smooth functions of both.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln

from sparsetoken.arrays import Array
from sparsetoken.informative import Counts
from sparsetoken.task import Task
from sparsetoken.theory.attention_law import MILD_SHARPNESS
from sparsetoken.theory.mixture import Stratum, label_strata
from sparsetoken.theory.replicates import REPLICATES
from sparsetoken.theory.token_law import (
    EXPLICIT,
    Tail,
    TokenGroup,
    draw_weighted_tokens,
    exponential_sums,
)
from sparsetoken.validation import ParameterError

__all__ = [
    "Scores",
    "TokenSample",
    "attention_scores",
    "counted_threshold",
    "likelihood_ratio_scores",
]


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
        stream = (self._stream, label + 1, *part.stream)
        groups, weight = draw_weighted_tokens(
            part.counts, part.log2_points, stream, tail, most, mild
        )
        return groups, scale * weight


def attention_scores(sample: TokenSample, strength: float, sharpness: float) -> Scores:
    """Return T = Σ_l softmax(κx)_l x_l."""

    def score(tokens: tuple[TokenGroup, ...]) -> Array:
        sums = exponential_sums(tokens, sharpness, (sharpness * strength, 0.0))
        marked, noise, _ = sums.softmax_triple()
        return np.asarray(strength * marked + noise)

    return sample.scores(score, most=EXPLICIT, mild=bool(sharpness < MILD_SHARPNESS))


def counted_threshold(scores: Scores, rate: float) -> tuple[float, float]:
    """Return the least error over thresholds on the scores, positive above, and the threshold."""
    values = np.concatenate([scores.positive.ravel(), scores.negative.ravel()])
    order = np.argsort(values)
    missed = np.zeros(len(values))
    missed[: scores.positive.size] = rate / scores.positive.size * scores.positive_weight.ravel()
    alarms = np.zeros(len(values))
    alarms[scores.positive.size :] = (
        (1 - rate) / scores.negative.size * scores.negative_weight.ravel()
    )
    # Summed from either end, so that small errors keep their digits.
    below = np.concatenate([[0.0], np.cumsum(missed[order])])
    above = np.concatenate([np.cumsum(alarms[order][::-1])[::-1], [0.0]])
    errors = below + above
    ordered = values[order]
    # No threshold tells equal scores apart.
    errors[1:-1][ordered[1:] == ordered[:-1]] = np.inf
    best = int(np.argmin(errors))
    bounds = np.concatenate([[-np.inf], ordered, [np.inf]])
    low, high = bounds[best], bounds[best + 1]
    threshold = low if not np.isfinite(high) else high if not np.isfinite(low) else (low + high) / 2
    return float(errors[best]), float(threshold)


def likelihood_ratio_scores(sample: TokenSample, strength: float) -> Scores:
    """Return the log-likelihood ratio, of positive against negative.

    It is the log of the mean over R and over R-subsets of exp(θ Σ x - Rθ²/2): elementary symmetric
    polynomials of the exp(θx_l).
    """
    known = sample.task.counts
    if known.values[-1] <= 1:
        chance = float(known.probability[-1])
        ratio = _one_token_ratio(sample.length, strength, chance)
        return sample.scores(ratio, most=EXPLICIT)
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
