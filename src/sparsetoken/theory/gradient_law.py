"""Means of the gradient of an attention classifier, and of its noise (docs/theory.md, section 11).

Given the tokens' scores along the query, everything else that a token has is Gaussian. Of the
softmax only sums of p^j times polynomials of the score are needed, and beyond them the mean of the
loss's slope over one normal variable: the cost does not grow with the length.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from sparsetoken.arrays import Array
from sparsetoken.losses import Loss
from sparsetoken.numerics.quadrature import normal_panels
from sparsetoken.task import Task
from sparsetoken.theory.feature_law import ScoreLaw
from sparsetoken.theory.mixture import label_strata
from sparsetoken.theory.token_law import SUMS, TokenGroup, draw_tokens, rest_sums, truncated_moment

__all__ = [
    "FrameReadout",
    "Gradient",
    "TokenDraw",
    "draw_sequences",
    "mean_gradient",
    "sequence_scores",
]

# Sums Σ e^j u^k over tokens: the degrees k of each power j.
_DEGREES = {1: 3, 2: 3, 3: 2, 4: 1}


@dataclass(frozen=True)
class FrameReadout:
    """A query and a readout, by their coordinates in the frame of section 5.

    Attributes
    ----------
    alignment, sharpness : γ and κ
    along, across, rest : w along q̂, along e (the rest of ξ), and the norm of what is left
    bias : b
    """

    alignment: float
    sharpness: float
    along: float
    across: float
    rest: float
    bias: float

    @property
    def spread(self) -> float:
        """ρ, the norm of w without its part along the query."""
        return float(np.hypot(self.across, self.rest))


@dataclass(frozen=True)
class Gradient:
    """Means over a fresh sequence, in the frame (q̂, e, the rest of w).

    With h = yℓ'(margin), t_l = ⟨x_l, w⟩ and k_l = p_l(t_l - t̄):

    Attributes
    ----------
    readout : array of shape (3,)
        E[h Σ p_l x_l].
    query : array of shape (3,)
        E[h Σ k_l x_l], which β multiplies.
    bias : E[h]
    readout_noise, cross_noise, query_noise : float
        E[h² Σ p²], E[h² Σ p k] and E[h² Σ k²]: variances in every other direction, times n.
    bias_noise : float
        E[h²], the variance of a batch's bias gradient, times n, if its mean is small.
    """

    readout: Array
    query: Array
    bias: float
    readout_noise: float
    cross_noise: float
    query_noise: float
    bias_noise: float


@dataclass(frozen=True, eq=False)
class TokenDraw:
    """Quasi-random tokens of positive and negative sequences.

    Attributes
    ----------
    parts : tuple of (label, weight, tokens)
        Sequences with the same number of informative tokens, and the probability of that number
        among those with their label.
    """

    parts: tuple[tuple[int, float, tuple[TokenGroup, ...]], ...]


def draw_sequences(task: Task, log2_points: int, seed: tuple[int, ...], mild: bool) -> TokenDraw:
    """Draw tokens of 2^log2_points sequences of each label; `mild` for a nearly even softmax."""
    parts = []
    for label in (1, -1):
        for part in label_strata(task, label, log2_points):
            stream = (7, *seed, label + 1, *part.stream)
            tokens = draw_tokens(part.counts, part.log2_points, stream, mean_first=mild)
            parts.append((label, part.weight, tokens))
    return TokenDraw(tuple(parts))


def mean_gradient(
    task: Task, loss: Loss, readout: FrameReadout, draws: Sequence[TokenDraw], order: int = 8
) -> Gradient:
    """Return the means over the given draws; `order` is that of the quadrature's panels."""
    total = np.zeros(11)
    for label, rate, sums in _each(task, readout, draws):
        total += rate / len(draws) * _means(task, loss, readout, sums, label, order)
    return Gradient(total[:3], total[3:6], *map(float, total[6:]))


def sequence_scores(task: Task, readout: FrameReadout, draws: Sequence[TokenDraw]) -> ScoreLaw:
    """Return the law of a fresh sequence's score, one replicate for each draw."""
    push = task.strength * np.sqrt(1 - readout.alignment**2) * readout.across
    parts = []
    for label, rate, sums in _each(task, readout, draws):
        count = len(sums.plain[1])
        parts.append(
            (
                readout.along * sums.first[1] + push * sums.marked[1] + readout.bias,
                readout.spread * np.sqrt(sums.plain[2]),
                np.full(count, float(label)),
                np.full(count, rate / (count * len(draws))),
            )
        )
    means, spreads, labels, weights = (np.concatenate(part) for part in zip(*parts, strict=True))
    return ScoreLaw(means, spreads, labels, weights, replicates=len(draws))


@dataclass(frozen=True, eq=False)
class _SoftmaxSums:
    """Sums over tokens by power of p (the index) and factor, each of shape (points,).

    `plain[j]` is Σ p^j; `marked[j]` over informative tokens only (Σ p^j v); `first[j]` and
    `second[j]` have factors a and a², a = ⟨x, q̂⟩; `mixed[j]` is Σ p^j a v.
    """

    plain: dict[int, Array]
    marked: dict[int, Array]
    first: dict[int, Array]
    second: dict[int, Array]
    mixed: dict[int, Array]


def _each(
    task: Task, readout: FrameReadout, draws: Sequence[TokenDraw]
) -> "Iterator[tuple[int, float, _SoftmaxSums]]":
    """Give the label, the probability and the sums over tokens of each part of each draw."""
    rates = {1: task.positive_rate, -1: 1 - task.positive_rate}
    for draw in draws:
        for label, weight, tokens in draw.parts:
            yield label, rates[label] * weight, _softmax_sums(tokens, readout, task.strength)


def _softmax_sums(
    groups: tuple[TokenGroup, ...], readout: FrameReadout, strength: float
) -> _SoftmaxSums:
    shift = strength * readout.alignment
    shifts = (shift, 0.0)
    peak = np.full(len(groups[0].values), -np.inf)
    for group, moved in zip(groups, shifts, strict=True):
        if group.values.shape[1]:
            peak = np.maximum(peak, readout.sharpness * (group.values[:, 0] + moved))
    marked, others = (
        _group_sums(group, readout.sharpness, readout.sharpness * moved - peak)
        for group, moved in zip(groups, shifts, strict=True)
    )
    norm = marked[1, 0] + others[1, 0]
    plain, informative, first, second, mixed = ({} for _ in range(5))
    for power, degrees in _DEGREES.items():
        scale = norm**-power
        # a = u + θγ for informative tokens, u for others.
        informative[power] = scale * marked[power, 0]
        plain[power] = informative[power] + scale * others[power, 0]
        if degrees > 1:
            mixed[power] = scale * marked[power, 1] + shift * informative[power]
            first[power] = mixed[power] + scale * others[power, 1]
        if degrees > 2:
            square = marked[power, 2] + 2 * shift * marked[power, 1] + shift**2 * marked[power, 0]
            second[power] = scale * (square + others[power, 2])
    return _SoftmaxSums(plain, informative, first, second, mixed)


def _group_sums(group: TokenGroup, sharpness: float, offset: Array) -> dict[tuple[int, int], Array]:
    """Return Σ e^j u^k over a group, e = exp(κu + offset)."""
    weights = np.exp(sharpness * group.values + offset[:, None])
    sums = {}
    power_weights = np.ones_like(weights)
    for power, degrees in _DEGREES.items():
        power_weights = power_weights * weights
        sums[power, 0] = power_weights.sum(axis=1)
        if degrees > 1:
            sums[power, 1] = np.vecdot(power_weights, group.values)
        if degrees > 2:
            sums[power, 2] = np.vecdot(power_weights, group.values**2)
    if group.rest:
        last = group.values[:, -1]
        level = np.exp(sharpness * last + offset)
        drawn = dict(zip(SUMS, rest_sums(group, sharpness), strict=True))
        for (power, degree), value in sums.items():
            rest = drawn.get((power, degree))
            if rest is None:
                rest = group.rest * truncated_moment(last, power * sharpness, degree)
            sums[power, degree] = value + level**power * rest
    return sums


def _means(
    task: Task, loss: Loss, readout: FrameReadout, sums: _SoftmaxSums, label: int, order: int
) -> Array:
    """Return the means of the gradient's parts for one label; see `Gradient` for their order."""
    p, v, a, aa, av = sums.plain, sums.marked, sums.first, sums.second, sums.mixed
    strength = task.strength * np.sqrt(1 - readout.alignment**2)
    pull, push, rho = readout.along, strength * readout.across, readout.spread
    mean_a, share, square = a[1], v[1], p[2]
    scale = np.sqrt(square)
    # Variances under p, and the same sums with p²: of a and v around their means under p.
    var_aa, var_av, var_vv = aa[1] - mean_a**2, av[1] - share * mean_a, share - share**2
    two_a, two_v = a[2] - square * mean_a, v[2] - square * share
    two_aa = aa[2] - 2 * mean_a * a[2] + square * mean_a**2
    two_av = av[2] - share * a[2] - mean_a * v[2] + square * mean_a * share
    two_vv = (1 - 2 * share) * v[2] + square * share**2
    # Sums of p^j f, where f is the part of t_l - t̄ that the scores along q̂ and the places fix.
    two = pull * two_a + push * two_v
    two_square = pull**2 * two_aa + 2 * pull * push * two_av + push**2 * two_vv
    three = pull * (a[3] - p[3] * mean_a) + push * (v[3] - p[3] * share)

    centre = pull * mean_a + push * share + readout.bias
    h, hg, hgg, q, qg, qgg = _slope_moments(loss, label, centre, rho * scale, order)
    along = h * (pull * var_aa + push * var_av) + rho * hg * two_a / scale
    places = h * (pull * var_av + push * var_vv) + rho * hg * two_v / scale
    noise = hg * two / scale + rho * (h + (hgg - h) * p[3] / square - square * hgg)
    cross = q * two + rho * qg * (p[3] / scale - scale * square)
    squares = q * two_square + 2 * rho * qg * (three / scale - scale * two)
    squares += rho**2 * (square * q + (qgg - q) * p[4] / square + qgg * (square**2 - 2 * p[3]))
    unit = (readout.across / rho, readout.rest / rho) if rho > 0 else (0.0, 0.0)
    columns = (
        h * mean_a,
        strength * h * share + unit[0] * hg * scale,
        unit[1] * hg * scale,
        along,
        strength * places + unit[0] * noise,
        unit[1] * noise,
        h,
        q * square,
        cross,
        squares,
        q,
    )
    return np.array([float(column.mean()) for column in columns])


def _slope_moments(
    loss: Loss, label: int, centre: Array, noise: Array, order: int
) -> tuple[Array, ...]:
    """Return E[h], E[hG], E[hG²], E[h²], E[h²G], E[h²G²] for h = yℓ'(y(centre + noise G))."""
    if not noise.any():
        slope = label * loss.slope(label * centre)
        zero = np.zeros_like(slope)
        return slope, zero, slope, slope**2, zero, slope**2
    margin = label * centre
    # The sign of G goes with that of the label.
    edges = (np.array(loss.breakpoints)[None] - margin[:, None]) / noise[:, None]
    nodes, weights = normal_panels(edges, order)
    slopes = loss.slope(margin[:, None] + noise[:, None] * nodes)
    weighted = weights * slopes
    first = label * nodes
    return (
        label * weighted.sum(axis=1),
        label * np.vecdot(weighted, first),
        label * np.vecdot(weighted, nodes**2),
        np.vecdot(weighted, slopes),
        np.vecdot(weighted * slopes, first),
        np.vecdot(weighted * slopes, nodes**2),
    )
