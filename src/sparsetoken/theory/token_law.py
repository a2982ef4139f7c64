"""Standard normal tokens by quasi-Monte Carlo, at a cost that does not grow with their number.

Sums over the tokens of a sequence are dominated by its largest tokens. A group of n tokens is drawn
as its largest ones, in order, exactly; the others are independent normals below the smallest of
those, and their sums are normal to a very good approximation, with mean and covariance in closed
form (docs/theory.md, section 5.1). For n up to `EXPLICIT` nothing is approximated.

Where a tail of the first coordinate matters most, which says how large the largest token is, more
points lie there, and weights make up for it; for rare events they reach far into it.
"""

from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
from scipy.special import erfcx, ndtr, ndtri_exp

from sparsetoken.arrays import Array
from sparsetoken.numerics.memory import kept_on_path
from sparsetoken.numerics.sobol import sobol_points
from sparsetoken.theory.replicates import REPLICATES

__all__ = [
    "EXPLICIT",
    "SUMS",
    "ExponentialSums",
    "Tail",
    "TokenGroup",
    "draw_tokens",
    "draw_weighted_tokens",
    "exponential_sums",
    "group_dimensions",
    "hard_triple",
    "mean_given_sums",
    "rest_sums",
    "token_groups",
    "truncated_moment",
]

Tail = Literal["low", "high"]

# Sums Σ u^degree exp(power κu) over tokens u, as (power, degree): those that the softmax needs.
Terms = tuple[tuple[int, int], ...]
SUMS: Terms = ((1, 0), (1, 1), (2, 0))

# Tokens of a group that are drawn one by one.
EXPLICIT = 32

# A variance at the rounding level of its second moment is none, and neither is what another variable
# leaves of one at that of two subtractions.
_NO_VARIANCE = 1e-12
_NO_REMAINDER = 1e-10

# How far the tail of a rare law reaches: -log of a probability of 10^-18.
_DEPTH = 18 * np.log(10)


@dataclass(frozen=True, eq=False)
class TokenGroup:
    """Tokens of many sequences at once.

    Attributes
    ----------
    values : array of shape (points, k)
        The k largest tokens, in falling order.
    rest : int
        How many more there are, all below the last of `values`.
    normals : array of shape (points, terms)
        Standard normals for the sums over the rest, one for each.
    """

    values: Array
    rest: int
    normals: Array


@kept_on_path(limit=64_000_000)
def draw_tokens(
    counts: tuple[int, ...],
    log2_points: int,
    seed: tuple[int, ...],
    most: int = EXPLICIT,
    mean_first: bool = False,
) -> tuple[TokenGroup, ...]:
    """Draw groups of independent standard normal tokens at 2^log2_points scrambled Sobol points.

    At most `most` tokens of a group are drawn one by one. Kept while a path lasts: the tokens do
    not depend on the signal or the query.

    With `mean_first` and all tokens drawn, the mean of a sequence has a coordinate of its own: it
    is independent of the differences from it, so that it can be replaced. Sums that weigh all
    tokens nearly alike are then almost one-dimensional, and far more accurate.
    """
    logs = _log_uniforms(counts, log2_points, seed, most, mean_first)
    return token_groups(logs, counts, most, mean_first)


@kept_on_path(limit=64_000_000)
def draw_weighted_tokens(
    counts: tuple[int, ...],
    log2_points: int,
    seed: tuple[int, ...],
    tail: Tail | None,
    most: int = EXPLICIT,
    mean_first: bool = False,
    *,
    rare: bool = True,
) -> tuple[tuple[TokenGroup, ...], Array]:
    """Draw replicates in a row as `draw_tokens` does, with more points in a tail of a coordinate.

    Replicate i has the seed (s, i, ...) if `seed` is (s, ...). The first coordinate decides the
    largest token of the first group that is not empty, or the mean of all tokens with `mean_first`.
    q is the probability of a value further in the tail. For `rare` events half of the points have
    uniform q and half uniform log q, down to 10^-18; otherwise √q is uniform. The weights,
    (points,), are none above 2 and have the mean 1: a mean of weight times value is a mean under
    the true law. Without a tail all weights are 1.
    """
    streams = [(seed[0], index, *seed[1:]) for index in range(REPLICATES)]
    logs = np.concatenate(
        [_log_uniforms(counts, log2_points, stream, most, mean_first) for stream in streams]
    )
    weight = np.ones(len(logs))
    if tail is not None:
        uniform = np.exp(logs[:, 0])
        chance, weight = (_rare_chance if rare else _skewed_chance)(uniform)
        logs[:, 0] = np.log(chance) if tail == "low" else np.log1p(-chance)
    return token_groups(logs, counts, most, mean_first), weight


def _rare_chance(uniform: Array) -> tuple[Array, Array]:
    """Return q, half of it uniform and half of it with a uniform logarithm, and both halves' weights."""
    chance = np.where(uniform >= 0.5, np.exp(-_DEPTH * (2 * uniform - 1)), 2 * uniform)
    weight = 2 / (1 + np.where(chance > np.exp(-_DEPTH), 1 / (_DEPTH * chance), 0.0))
    return chance, weight


def _skewed_chance(uniform: Array) -> tuple[Array, Array]:
    """Return q with a uniform square root, and weights.

    They vanish towards the tail's end, which makes the weighted integrand smoother as well.
    """
    return uniform**2, 2 * uniform


def _log_uniforms(
    counts: tuple[int, ...],
    log2_points: int,
    seed: tuple[int, ...],
    most: int,
    mean_first: bool,
) -> Array:
    """Return logarithms of scrambled Sobol points: for the mean if it comes first, then by group."""
    replaced = _mean_replaced(_split(counts, most)[1], mean_first)
    return _log_points(group_dimensions(counts, most) + replaced, log2_points, seed)


@kept_on_path(limit=32_000_000)
def _log_points(dimensions: int, log2_points: int, seed: tuple[int, ...]) -> Array:
    """Return the logarithms of scrambled Sobol points: the same for all long sequences."""
    return np.asarray(np.log(sobol_points(dimensions, log2_points, np.random.default_rng(seed))))


def group_dimensions(counts: tuple[int, ...], most: int = EXPLICIT, terms: Terms = SUMS) -> int:
    """Return how many uniforms `token_groups` makes its groups of."""
    explicit, rests = _split(counts, most)
    return sum(explicit) + len(terms) * sum(rest > 0 for rest in rests)


def _split(counts: tuple[int, ...], most: int) -> tuple[list[int], list[int]]:
    """Return how many tokens of each group are drawn one by one, and how many are left."""
    explicit = [min(count, most) for count in counts]
    return explicit, [count - kept for count, kept in zip(counts, explicit, strict=True)]


def _mean_replaced(rests: list[int], mean_first: bool) -> bool:
    return mean_first and not any(rests)


def token_groups(
    logs: Array,
    counts: tuple[int, ...],
    most: int = EXPLICIT,
    mean_first: bool = False,
    terms: Terms = SUMS,
) -> tuple[TokenGroup, ...]:
    """Return the tokens at points given by the logarithms of their uniforms."""
    explicit, rests = _split(counts, most)
    replaced = _mean_replaced(rests, mean_first)
    sizes = [kept + (len(terms) if rest else 0) for kept, rest in zip(explicit, rests, strict=True)]
    means, logs = logs[:, :replaced], logs[:, replaced:]
    groups = []
    for part, count, kept, rest in zip(
        np.split(logs, np.cumsum(sizes)[:-1], axis=1), counts, explicit, rests, strict=True
    ):
        normals = ndtri_exp(part[:, kept:]) if rest else np.zeros((len(part), len(terms)))
        groups.append(TokenGroup(_largest(part[:, :kept], count), rest, normals))
    if replaced:
        old = sum(group.values.sum(axis=1, keepdims=True) for group in groups) / sum(counts)
        shift = ndtri_exp(means) / np.sqrt(sum(counts)) - old
        groups = [TokenGroup(group.values + shift, 0, group.normals) for group in groups]
    return tuple(groups)


def _largest(logs: Array, count: int) -> Array:
    """Return the largest of `count` standard normals, in falling order, from log uniforms (n, k).

    Going down, each order statistic of a uniform sample is the one above it times a power of a
    fresh uniform.
    """
    remaining = count - np.arange(logs.shape[1])
    return np.asarray(ndtri_exp(np.cumsum(logs / remaining, axis=1)))


@dataclass(frozen=True, eq=False)
class ExponentialSums:
    """Sums of e = exp(κu + shift - peak) over the tokens u of each sequence, all of shape (points,).

    Attributes
    ----------
    peak : the largest exponent of the sequence
    marked, total : Σ e over the first group, and over both
    first, square : Σ u e and Σ e²
    """

    peak: Array
    marked: Array
    total: Array
    first: Array
    square: Array

    def softmax_triple(self) -> tuple[Array, Array, Array]:
        """Return (A, B, S) of the softmax weights p: the first group's weight, ⟨u, p⟩ and ‖p‖."""
        return self.marked / self.total, self.first / self.total, np.sqrt(self.square) / self.total


def hard_triple(
    tokens: tuple[TokenGroup, ...], shifts: tuple[float, float]
) -> tuple[Array, Array, Array]:
    """Return (A, B, S) of hard attention: all weight on the largest of the u + shift of its group."""
    points = len(tokens[0].values)
    largest = [
        group.values[:, 0] if group.values.shape[1] else np.full(points, -np.inf)
        for group in tokens
    ]
    marked = largest[0] + shifts[0] > largest[1] + shifts[1]
    return marked.astype(float), np.where(marked, *largest), np.ones(points)


def exponential_sums(
    tokens: tuple[TokenGroup, ...], sharpness: float, shifts: tuple[float, float]
) -> ExponentialSums:
    """Return the sums over two groups of tokens u of e = exp(κu + shift of the group)."""
    peak = np.full(len(tokens[0].values), -np.inf)
    for group, shift in zip(tokens, shifts, strict=True):
        if group.values.shape[1]:
            peak = np.maximum(peak, sharpness * group.values[:, 0] + shift)
    mass, first, square = [], np.zeros_like(peak), np.zeros_like(peak)
    for group, shift in zip(tokens, shifts, strict=True):
        weights = np.exp(sharpness * group.values + (shift - peak)[:, None])
        group_mass = weights.sum(axis=1)
        first += np.einsum("ij,ij->i", weights, group.values)
        square += np.einsum("ij,ij->i", weights, weights)
        if group.rest:
            level = np.exp(sharpness * group.values[:, -1] + shift - peak)
            zeroth_rest, first_rest, square_rest = rest_sums(group, sharpness)
            group_mass += level * zeroth_rest
            first += level * first_rest
            square += level**2 * square_rest
        mass.append(group_mass)
    return ExponentialSums(peak, mass[0], mass[0] + mass[1], first, square)


def truncated_moment(t: Array, a: Array | float, degree: int) -> Array:
    """Return E[u^degree exp(a(u - t)) | u < t] for a standard normal u and degree 0, 1 or 2.

    E[exp(a(u - t)); u < t] = φ(t) m(a - t) with Mills' ratio m(x) = √(π/2) erfcx(x/√2), and factors
    u come by differentiating in a.
    """
    return np.asarray(_density_at_top(t) * _moment_in_density(t, a, _mills(a - t), degree))


def _density_at_top(t: Array) -> Array:
    """Return the density at t of a standard normal below t."""
    return np.asarray(np.exp(-0.5 * t**2) / (np.sqrt(2 * np.pi) * ndtr(t)))


def _mills(x: Array) -> Array:
    return np.asarray(np.sqrt(np.pi / 2) * erfcx(x / np.sqrt(2)))


def _moment_in_density(t: Array, a: Array | float, mills: Array, degree: int) -> Array:
    """Return a truncated moment in units of the density at t."""
    if degree == 0:
        return mills
    return a * mills - 1 if degree == 1 else (1 + a**2) * mills - (a + t)


def rest_sums(group: TokenGroup, sharpness: Array | float, terms: Terms = SUMS) -> list[Array]:
    """Return Σ u^degree exp(power κ(u - t)) over the rest for each term, t the smallest value kept.

    They are drawn as normals with the exact mean and covariance.
    """
    mean, factor = _rest_law(group.values[:, -1], sharpness, terms)
    deviation = np.einsum("ijn,nj->in", factor, group.normals)
    sums = group.rest * mean + np.sqrt(group.rest) * deviation
    return [
        np.maximum(total, 0.0) if degree == 0 else total
        for total, (_, degree) in zip(sums, terms, strict=True)
    ]


def mean_given_sums(tokens: tuple[TokenGroup, ...], sharpness: float) -> tuple[Array, Array]:
    """Return the mean of all tokens of a sequence, and its variance, given what `rest_sums` drew."""
    total, variance, count = 0.0, 0.0, 0
    for group in tokens:
        total = total + group.values.sum(axis=1)
        count += group.rest + group.values.shape[1]
        if group.rest:
            t = group.values[:, -1]
            mean, factor = _rest_law(t, sharpness, SUMS)
            centre = truncated_moment(t, 0.0, 1)
            left = truncated_moment(t, 0.0, 2) - centre**2
            deviation = np.zeros_like(t)
            row: list[Array] = []
            for i, (power, degree) in enumerate(SUMS):
                product = truncated_moment(t, power * sharpness, degree + 1) - centre * mean[i]
                product = product - sum(factor[i, j] * row[j] for j in range(i))
                row.append(_ratio(product, factor[i, i]))
                deviation = deviation + row[i] * group.normals[:, i]
                left = left - row[i] ** 2
            total = total + group.rest * centre + np.sqrt(group.rest) * deviation
            variance = variance + group.rest * np.maximum(left, 0.0)
    return np.asarray(total / count), np.asarray(variance / count**2 + np.zeros_like(total))


def _rest_law(t: Array, sharpness: Array | float, terms: Terms) -> tuple[Array, Array]:
    """Return the means (k, n) of the k terms of a token below t, and their Cholesky factor (k, k, n)."""
    density = _density_at_top(t)

    @cache
    def mills(power: int) -> Array:
        return _mills(power * sharpness - t)

    @cache
    def moment(power: int, degree: int) -> Array:
        return density * _moment_in_density(t, power * sharpness, mills(power), degree)

    mean = np.stack([moment(*term) for term in terms])
    covariance = np.empty((len(terms), len(terms), len(t)))
    for i, (power, degree) in enumerate(terms):
        for j, (other_power, other_degree) in enumerate(terms[: i + 1]):
            product = moment(power + other_power, degree + other_degree)
            covariance[i, j] = product - mean[i] * mean[j]
        noticed = covariance[i, i] > _NO_VARIANCE * product
        covariance[i, i] = np.where(noticed, covariance[i, i], 0.0)
    return mean, _cholesky(covariance)


def _cholesky(covariance: Array) -> Array:
    """Return the Cholesky factors of matrices (k, k, n) from their lower halves.

    What has no variance that the others do not explain gets 0.
    """
    factor = np.zeros_like(covariance)
    for j in range(len(covariance)):
        left = covariance[j, j] - (factor[j, :j] ** 2).sum(axis=0)
        noticed = left > _NO_REMAINDER * covariance[j, j]
        factor[j, j] = np.sqrt(np.where(noticed, left, 0.0))
        for i in range(j + 1, len(covariance)):
            shared = (factor[i, :j] * factor[j, :j]).sum(axis=0)
            factor[i, j] = _ratio(covariance[i, j] - shared, factor[j, j])
    return factor


def _ratio(numerator: Array, denominator: Array) -> Array:
    """Return numerator/denominator, 0 where the denominator is 0."""
    return np.divide(numerator, denominator, out=np.zeros_like(numerator), where=denominator > 0)
