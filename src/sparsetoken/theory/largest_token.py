"""Errors of a threshold on a softmax average, one direction integrated exactly (docs/theory.md, section 2).

Which side of a threshold the score falls on is decided mostly by the largest token, or, where the
softmax is mild, by the mean of all tokens. Given all else, that direction has a normal law, and the
chance of an error is a closed form of it. What is left to sample is a smooth function of strength,
sharpness and threshold, and rare errors need no rare points.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import lambertw, ndtr, ndtri

from sparsetoken.arrays import Array
from sparsetoken.task import Task
from sparsetoken.theory.mixture import Stratum, label_strata
from sparsetoken.theory.replicates import REPLICATES
from sparsetoken.theory.scores import Scores, counted_threshold
from sparsetoken.theory.token_law import (
    EXPLICIT,
    ExponentialSums,
    Tail,
    TokenGroup,
    draw_weighted_tokens,
    exponential_sums,
)

__all__ = ["LargestTokenErrors", "ThresholdErrors"]

# A search for the threshold takes steps of so many standard deviations of all scores, and shorter
# ones until over a step the logarithm of the error is as flat as this.
_STEP = 0.1
_FLAT = 0.02
_MOST_STEPS = 40
_GOLDEN = 0.5 * (np.sqrt(5) - 1)
# Where exp(x) is 0 for all that matters; logarithms of Lambert's argument are cut there.
_NOTHING = -700.0
_NEWTON_STEPS = 4
# Up to this length every token is drawn for their mean.
_ALL_TOKENS = 256
# A sharpness below this is the average; 0 itself has no logarithm.
_LEAST_SHARPNESS = 1e-9


@dataclass(frozen=True, eq=False)
class ThresholdErrors:
    """Chances of the two errors of the rule "positive above t", for every point of the law.

    Attributes
    ----------
    missed, alarms : callable
        missed(t), alarms(t) of shape (replicates, points): their means are the chances of a miss
        among positives and of a false alarm among negatives.
    rate : float
        Rate of positives π.
    scores : Scores
        One score of each point, to find a threshold near the best one.
    """

    missed: Callable[[float], Array]
    alarms: Callable[[float], Array]
    rate: float
    scores: Scores

    def terms(self, threshold: float) -> tuple[Array, Array]:
        """Return π times misses and (1-π) times false alarms."""
        return self.rate * self.missed(threshold), (1 - self.rate) * self.alarms(threshold)

    def error(self, threshold: float) -> float:
        """Return the error."""
        positive, negative = self.terms(threshold)
        return float(positive.mean() + negative.mean())

    def least(self) -> tuple[float, float]:
        """Return the least error over thresholds, and the threshold.

        The best one of the scores is near it; the logarithm of the error is smooth, whatever its
        size.
        """
        error, near = counted_threshold(self.scores, self.rate)
        if not np.isfinite(near):
            return error, near

        scores = np.concatenate([self.scores.positive, self.scores.negative])
        step = _STEP * max(float(scores[np.isfinite(scores)].std()), 1e-12)
        known = {near: self._logarithm(near)}
        for _ in range(_MOST_STEPS):
            for place in (near - step, near + step):
                if place not in known:
                    known[place] = self._logarithm(place)
            sides = [known[near - step], known[near], known[near + step]]
            lowest = int(np.argmin(sides))
            if lowest != 1:
                near += (lowest - 1) * step
                continue
            bend = sides[0] + sides[2] - 2 * sides[1]
            if bend < _FLAT:
                break
            vertex = near + 0.5 * step * (sides[0] - sides[2]) / bend
            known[vertex] = self._logarithm(vertex)
            near, step = min(near, vertex, key=known.__getitem__), 0.2 * step
        best = min(known, key=known.__getitem__)
        return float(np.exp(known[best])), float(best)

    def _logarithm(self, threshold: float) -> float:
        return float(np.log(max(self.error(threshold), 1e-300)))


class LargestTokenErrors:
    """Tokens drawn once for the errors at many strengths, sharpnesses and thresholds.

    Parameters
    ----------
    log2_points : int
        2^log2_points points a label and replicate.
    stream : int
        Those of different streams are independent.
    rare : bool
        Whether points of tasks with several informative tokens reach to where all of these are low,
        and to where several others are high.
    normalised : bool
        Whether the score is Σ softmax(κx)_l x_l; otherwise arsinh (1/L) Σ exp(κx_l) x_l, a logarithm
        of large sums that goes on below zero.
    """

    def __init__(
        self, task: Task, log2_points: int, *, stream: int, rare: bool, normalised: bool = True
    ) -> None:
        self._task = task
        self._log2_points = log2_points
        self._stream = stream
        self._rare = rare
        self._normalised = normalised
        self._edges: dict[tuple[object, ...], _Edges] = {}

    def at(self, strength: float, sharpness: float, *, mean: bool) -> ThresholdErrors:
        """Return the errors as functions of the threshold.

        Integrated is the mean of all tokens, or the largest one.
        """
        laws = {
            label: [
                (part, self._law(label, part, strength, sharpness, mean))
                for part in label_strata(self._task, label, self._log2_points)
            ]
            for label in (1, -1)
        }

        def joined(label: int, above: bool) -> Callable[[float], Array]:
            points = sum(part.points for part, _ in laws[label])

            def chances(threshold: float) -> Array:
                columns = [
                    law.chance(threshold, above).reshape(REPLICATES, -1)
                    * (part.weight * points / part.points)
                    for part, law in laws[label]
                ]
                return np.concatenate(columns, axis=1)

            return chances

        return ThresholdErrors(
            joined(1, False), joined(-1, True), self._task.positive_rate, _joined_scores(laws)
        )

    def _law(
        self, label: int, part: Stratum, strength: float, sharpness: float, mean: bool
    ) -> "_OneToken | _Mean":
        """Return the law of the score of the sequences of one label and stratum."""
        if mean:
            most = _ALL_TOKENS if self._task.length <= _ALL_TOKENS else EXPLICIT
            tokens, _ = self._drawn(part, part.counts, None, most)
            return _mean_law(tokens, strength, sharpness, self._task.length)
        sharpness = max(sharpness, _LEAST_SHARPNESS)
        # Integrated is over an informative token, if there is one; `counts` are the others.
        chosen = 0 if part.counts[0] else 1
        counts = (part.counts[0] - 1, part.counts[1]) if not chosen else (0, part.counts[1] - 1)
        tail = self._tail(label, counts)
        tokens, weight = self._drawn(part, counts, tail)
        # Without informative tokens among those drawn nothing depends on the strength.
        key = (counts, part.stream, tail, sharpness, strength if counts[0] else None)
        if key not in self._edges:
            found = exponential_sums(tokens, sharpness, (sharpness * strength, 0.0))
            self._edges = {key: value for key, value in self._edges.items() if sharpness in key}
            self._edges[key] = _Edges(found, strength, sharpness)
        return _OneToken(
            self._edges[key],
            shift=0.0 if chosen else strength,
            count=part.counts[chosen],
            lowest=tokens[chosen].values[:, 0] if counts[chosen] else None,
            weight=weight,
            length=None if self._normalised else self._task.length,
        )

    def _tail(self, label: int, counts: tuple[int, int]) -> Tail | None:
        """Return where the tokens beside the integrated one make rare errors, None for nowhere."""
        if self._rare and label > 0 and counts[0]:
            return "low"
        # Attention to several tokens is mild: one high token alone makes no false alarm.
        if self._rare and label < 0 and self._task.counts.values[-1] > 1:
            return "high"
        return None

    def _drawn(
        self, part: Stratum, counts: tuple[int, int], tail: Tail | None, most: int = EXPLICIT
    ) -> tuple[tuple[TokenGroup, ...], Array]:
        """Return the tokens of all replicates in a row, and their weights."""
        stream = (self._stream, *part.stream)
        return draw_weighted_tokens(counts, part.log2_points, stream, tail, most)


def _joined_scores(laws: "dict[int, list[tuple[Stratum, _OneToken | _Mean]]]") -> Scores:
    columns = []
    for label in (1, -1):
        total = sum(part.points for part, _ in laws[label])
        parts = [
            (scores, weight * (part.weight * total / part.points))
            for part, law in laws[label]
            for scores, weight in [law.scores()]
        ]
        columns += [np.concatenate(column) for column in zip(*parts, strict=True)]
    positive, positive_weight, negative, negative_weight = columns
    return Scores(positive, negative, positive_weight, negative_weight)


def _even(count: int) -> Array:
    """Return numbers evenly spread over (0, 1), in an order that no coordinate follows."""
    return np.asarray((0.5 + np.arange(count) * _GOLDEN) % 1.0)


class _Edges:
    """Where one more token x brings the score of the others to a threshold t.

    With a = Σ e^{κx} and b = Σ x e^{κx} over the others, the score is at most t where
    (x - t) e^{κx} <= ta - b: for y = κ(x - t) where y e^y <= w, between the two branches of Lambert's
    function.

    Parameters
    ----------
    peak, total, first : arrays of shape (points,)
        a and b in units of exp(peak).
    length : int or None
        For the arsinh of a sum that is not divided by a: y = κx, y e^y <= κ(L sinh t - b).
    """

    def __init__(self, sums: ExponentialSums, strength: float, sharpness: float) -> None:
        self.peak, self.total = sums.peak, sums.total
        self.first = sums.first + strength * sums.marked
        self.sharpness = sharpness
        self._last: tuple[float, Array, Array] | None = None

    def at(self, threshold: float, length: int | None) -> tuple[Array, Array]:
        """Return between which values of x the score is at most the threshold."""
        # Positives and negatives may share the other tokens.
        if self._last is None or self._last[0] != threshold:
            self._last = (threshold, *self._between(threshold, length))
        return self._last[1:]

    def _between(self, threshold: float, length: int | None) -> tuple[Array, Array]:
        if length is None:
            excess = threshold * self.total - self.first
            scale, centre = self.peak - self.sharpness * threshold, threshold
        else:
            excess = length * _sinh(threshold, self.peak) - self.first
            scale, centre = self.peak, 0.0
        with np.errstate(divide="ignore"):
            logs = np.log(np.abs(excess)) + np.log(self.sharpness) + scale
        low = np.full(len(logs), -np.inf)
        high = _lambert(logs)
        falling = excess < 0
        if falling.any():
            argument = -np.exp(np.minimum(logs[falling], 1.0))
            real = argument > -np.exp(-1.0)
            argument = np.where(real, argument, -0.1)
            upper, lower = lambertw(argument, 0).real, lambertw(argument, -1).real
            # Beyond the branch point the score is above the threshold whatever the token is.
            high[falling] = np.where(real, upper, -np.inf)
            low[falling] = np.where(real, lower, -np.inf)
        return low / self.sharpness + centre, high / self.sharpness + centre


@dataclass(frozen=True, eq=False)
class _OneToken:
    """Chances given all tokens but the largest of one group, x = u + shift.

    Of `count` tokens alike each is the largest one as often as the others, so that a chance is
    `count` times that of u there and above the largest of the others.

    Attributes
    ----------
    lowest : array of shape (points,) or None
        The largest other token of the group.
    length : int or None
        As for `_Edges`.
    """

    edges: _Edges
    shift: float
    count: int
    lowest: Array | None
    weight: Array
    length: int | None

    def chance(self, threshold: float, above: bool) -> Array:
        """Return the chance of a score above the threshold, or at most there, times weights."""
        low, high = (edge - self.shift for edge in self.edges.at(threshold, self.length))
        least = np.zeros(len(low))
        if self.lowest is not None:
            low, high = np.maximum(low, self.lowest), np.maximum(high, self.lowest)
            least = ndtr(self.lowest)
        # Each from the end at which it is small, so that rare errors keep their digits.
        inside = ndtr(-high) + ndtr(low) - least if above else ndtr(high) - ndtr(low)
        return np.asarray(self.count * self.weight * np.maximum(inside, 0.0))

    def scores(self) -> tuple[Array, Array]:
        """Return a score for each point, with the largest token drawn, and weights."""
        edges = self.edges
        above = ndtr(-self.lowest) if self.lowest is not None else np.ones(len(edges.peak))
        token = self.shift - ndtri(np.maximum(_even(len(above)) * above, 1e-300))
        peak = np.maximum(edges.peak, edges.sharpness * token)
        others, one = np.exp(edges.peak - peak), np.exp(edges.sharpness * token - peak)
        first = others * edges.first + one * token
        weight = self.count * self.weight * above
        if self.length is None:
            return first / (others * edges.total + one), weight
        return _arsinh(first / self.length, peak), weight


def _sinh(value: float, peak: Array) -> Array:
    """Return sinh(value) in units of exp(peak), of any size."""
    if value == 0:
        return np.zeros_like(peak)
    size = abs(value) + np.log(-0.5 * np.expm1(-2 * abs(value)))
    return np.asarray(np.sign(value) * np.exp(np.minimum(size - peak, 600.0)))


def _arsinh(values: Array, peak: Array) -> Array:
    """Return the inverse of sinh at values in units of exp(peak)."""
    size = np.log(np.maximum(np.abs(values), 1e-300)) + peak
    # Of large numbers it is a logarithm, and numbers may be too large to have one.
    return np.asarray(
        np.sign(values)
        * (np.arcsinh(np.exp(np.minimum(size, 30.0))) + np.maximum(size - 30.0, 0.0))
    )


def _lambert(logs: Array) -> Array:
    """Return y > 0 with y e^y = w from log w, of any size."""
    logs = np.maximum(logs, _NOTHING)
    y = np.where(logs > 1, logs - np.log(np.maximum(logs, 1.0)), np.exp(np.minimum(logs, 1.0)))
    y = np.where((logs > -2) & (logs <= 1), np.log1p(np.exp(np.minimum(logs, 1.0))) * 0.8, y)
    for _ in range(_NEWTON_STEPS):
        y = y * (1 + logs - np.log(y)) / (1 + y)
    return np.asarray(y)


@dataclass(frozen=True, eq=False)
class _Mean:
    """Chances of a score that is N(centre, spread²) given all but one direction."""

    centre: Array
    spread: Array

    def scores(self) -> tuple[Array, Array]:
        """Return a score for each point, and weights."""
        count = len(self.centre)
        return self.centre + self.spread * ndtri(_even(count)), np.ones(count)

    def chance(self, threshold: float, above: bool) -> Array:
        """Return the chance of a score above the threshold, or at most there."""
        excess = (threshold - self.centre) / self.spread
        return np.asarray(ndtr(-excess if above else excess))


def _mean_law(
    tokens: tuple[TokenGroup, ...], strength: float, sharpness: float, length: int
) -> _Mean:
    """Return the law of the score given all but the mean of the tokens, or that of the rest.

    Where all tokens are drawn, adding a number to all of them adds it to the score: their mean
    is N(0, 1/L), independent of their differences. Otherwise the score is linear in the normal that
    only Σ u e^{κu} over the smaller tokens has.
    """

    def score(groups: tuple[TokenGroup, ...]) -> Array:
        sums = exponential_sums(groups, sharpness, (sharpness * strength, 0.0))
        return np.asarray((sums.first + strength * sums.marked) / sums.total)

    if not any(group.rest for group in tokens):
        mean = sum(group.values.sum(axis=1) for group in tokens) / length
        return _Mean(score(tokens) - mean, np.full(len(mean), length**-0.5))
    longest = max(tokens, key=lambda group: group.rest)

    def at(value: float) -> Array:
        normals = longest.normals.copy()
        normals[:, 1] = value
        moved = replace(longest, normals=normals)
        return score(tuple(moved if group is longest else group for group in tokens))

    centre = at(0.0)
    return _Mean(centre, np.maximum(np.abs(at(1.0) - centre), 1e-300))
