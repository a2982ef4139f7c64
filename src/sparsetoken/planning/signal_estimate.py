"""How strong a signal is in the tokens, in how many of them, and in how many dimensions it hides.

Directions are learnt on one half of the samples and looked at on the other. Along a direction the
tokens of the class without signal are noise, and those of the other class a mixture of noise and of
noise shifted by s; s is the strength times the direction's cosine with the signal. Two directions,
learnt on either half, have only the signal in common: their correlation c under the noise is the
product of their cosines, so that s_1 s_2 / c is the strength squared, whatever they missed.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, logit, ndtr
from sklearn.base import clone

from sparsetoken.arrays import Array
from sparsetoken.estimators.attention import AttentionClassifier
from sparsetoken.planning.learning_curve import balanced_order
from sparsetoken.records import Record

__all__ = ["Projections", "SignalEstimate", "Tokens", "estimate_signal"]

# Below this many standard errors two directions cannot be said to have anything in common.
_SEEN = 2.0
_GROUPS = 10
# Where the search for the mixture starts: shift, and share of tokens.
_STARTS = ((3.0, 0.05), (1.0, 0.3))
# Bounds of location, log scale, shift and logit of the share in that search.
_BOUNDS = ((-3, 3), (-3, 3), (0.01, 50), (-14, 14))
# In units of both classes, a coordinate that varies less than this without the signal does not vary.
_CONSTANT = 1e-6
# Noise whose distribution function is further than this from a normal one, beyond chance, is not normal.
_NOT_NORMAL = 0.03
_CHANCE_DISTANCE = 1.1
# Of the usual error of fits: where all tokens carry the signal, the share ends at its bound, and an error
# of nearly 0 there means nothing.
_LEAST_ERROR = 0.1
_MOST_TOKENS = 200_000
_SHOWN_TOKENS = 20_000


@dataclass(frozen=True)
class Tokens:
    """Standardised tokens (N, d) with the sequence of each (N,), and labels (n,) of 0 and 1."""

    values: Array
    sequence: Array
    labels: Array

    @property
    def lengths(self) -> Array:
        """Number of tokens of each sequence (n,)."""
        return np.bincount(self.sequence, minlength=len(self.labels))

    def lists(self, rows: Array) -> list[Array]:
        """Return some of the sequences, each an array (L_i, d)."""
        ends = np.cumsum(self.lengths)
        return [self.values[ends[row] - self.lengths[row] : ends[row]] for row in rows]


@dataclass(frozen=True)
class SignalEstimate(Record):
    """What the data say about a signal. None where they cannot say.

    Attributes
    ----------
    strength : float or None
        θ, in standard deviations of the noise along the signal.
    informative : float or None
        R, how many tokens carry it, on average.
    effective_dimension : float
        tr(Σ)²/tr(Σ²) of the tokens' noise: the dimension, if all directions are alike.
    alignment : float or None
        Cosine with the signal that attention reaches when it learns from all samples.
    shift : float
        Strength along the direction that half of the samples teach, on samples not used for it.
    positive : int
        The class that carries the signal: 1 or 0.
    distance : float
        Largest difference between the distribution functions of the noise along the learnt direction
        and of a normal law.
    normal : bool
        Whether that is no more than chance and a little. Otherwise strength and informative tokens
        describe a mixture of normal laws that the tokens do not have.
    query_alignment : float or None
        Cosine with the signal of a query of the caller's own settings; None without such.
    uncertainty : dict
        Standard errors.
    """

    strength: float | None
    informative: float | None
    effective_dimension: float
    alignment: float | None
    shift: float
    positive: int
    distance: float
    normal: bool
    query_alignment: float | None
    uncertainty: dict[str, float]


@dataclass(frozen=True)
class Projections:
    """Tokens along a direction that was learnt without them, the noise with mean 0 and deviation 1.

    Attributes
    ----------
    noise, positive : arrays
        Tokens of the class without and with the signal, some of them if there are many.
    shift, share : float
        The fitted mixture of the positive class.
    """

    noise: Array
    positive: Array
    shift: float
    share: float


@dataclass(frozen=True)
class _Mixture:
    """Shift s and number R of shifted tokens, with their standard errors and the fit's quality."""

    shift: float
    informative: float
    shift_error: float
    informative_error: float
    likelihood: float


def estimate_signal(
    tokens: Tokens,
    *,
    splits: int,
    seed: int,
    progress: Callable[[], None] = lambda: None,
    own: AttentionClassifier | None = None,
) -> tuple[SignalEstimate, Projections]:
    """Estimate strength, informative tokens and effective dimension from random halves.

    With attention of the caller's `own` settings, how far its query is aligned as well.
    """
    rng = np.random.default_rng([seed, 3])
    found, owned = [], []
    for _ in range(splits):
        order = balanced_order(tokens.labels, rng)
        halves = order[: len(order) // 2], order[len(order) // 2 :]
        directions = []
        for half in halves:
            directions.append(_direction(tokens, half, AttentionClassifier(random_state=seed)))
            if own is not None:
                owned.append(_direction(tokens, half, clone(own)))
            progress()
        found.append((halves, directions))
    positive = _class_with_signal(tokens, found)
    oriented = Tokens(tokens.values, tokens.sequence, tokens.labels == positive)
    # Queries grow along the signal in the units of both classes; in units of the noise the signal is
    # the direction that shows it best.
    deviation = _noise_deviation(oriented)
    oriented = Tokens(tokens.values / deviation, tokens.sequence, oriented.labels)
    found = [(halves, [direction / deviation for direction in two]) for halves, two in found]
    owned = [direction / deviation for direction in owned]
    dimension, dimension_error = _effective_dimension(oriented)
    pairs = [
        _pair(oriented, halves, directions, owned[2 * index : 2 * index + 2])
        for index, (halves, directions) in enumerate(found)
    ]
    estimate = _combined(pairs, dimension, dimension_error, positive)
    halves, directions = found[0]
    return estimate, _projections(oriented, halves[1], directions[0], pairs[0].mixtures[0])


def _noise_deviation(tokens: Tokens) -> Array:
    """Return the deviation of each coordinate (d,) in the class without signal.

    Deviations over both classes hold the signal as well, and make the noise along it look small.
    """
    deviation = tokens.values[~tokens.labels[tokens.sequence]].std(axis=0)
    return np.where(deviation > _CONSTANT, deviation, 1.0)


def _projections(tokens: Tokens, rows: Array, direction: Array, mixture: _Mixture) -> Projections:
    chosen = np.flatnonzero(np.isin(tokens.sequence, rows))[:_SHOWN_TOKENS]
    scores = np.sign(mixture.shift) * (tokens.values[chosen] @ direction)
    positive = tokens.labels[tokens.sequence[chosen]]
    noise = scores[~positive]
    scores = (scores - noise.mean()) / noise.std()
    share = mixture.informative / float(tokens.lengths[rows].mean())
    return Projections(scores[~positive], scores[positive], abs(mixture.shift), share)


def _direction(tokens: Tokens, half: Array, model: AttentionClassifier) -> Array:
    model.fit(tokens.lists(half), tokens.labels[half])
    scaler, heads = model.model_.scaler, model.model_.problems[0].heads
    # A fit that chose pooling has no query; what it learnt is how it reads a token.
    vectors = heads.queries if np.any(heads.queries) else heads.alone(scaler)
    return np.asarray(scaler.in_token_units(vectors[:1])[0])


def _class_with_signal(tokens: Tokens, found: list[tuple[tuple[Array, Array], list[Array]]]) -> int:
    """Return the class, 1 or 0, whose tokens are better explained as the mixture."""
    (first, second), directions = found[0]
    likelihoods = {}
    for positive in (1, 0):
        oriented = Tokens(tokens.values, tokens.sequence, tokens.labels == positive)
        fits = [
            _mixture(oriented, other, direction)
            for other, direction in ((second, directions[0]), (first, directions[1]))
        ]
        likelihoods[positive] = sum(fit.likelihood for fit in fits)
    return max(likelihoods, key=lambda positive: likelihoods[positive])


@dataclass(frozen=True)
class _Pair:
    """Two halves: the mixture along either direction, and the directions' correlation.

    `owned` is the mean correlation of the caller's own queries with the other half's direction, and
    `distances` say how far from normal the noise is along either.
    """

    mixtures: tuple[_Mixture, _Mixture]
    correlation: float
    owned: float | None
    distances: list[float]
    noise_tokens: int


def _pair(
    tokens: Tokens, halves: tuple[Array, Array], directions: list[Array], owned: list[Array]
) -> _Pair:
    noise = tokens.values[~tokens.labels[tokens.sequence]] @ np.array([*directions, *owned]).T
    sign = 1.0
    mixtures = []
    for direction, other in zip(directions, halves[::-1], strict=True):
        mixtures.append(_mixture(tokens, other, direction))
        # A direction and its opposite are one; the shift says which way the signal lies.
        sign *= np.sign(mixtures[-1].shift)
    correlations = np.corrcoef(noise.T)
    return _Pair(
        (mixtures[0], mixtures[1]),
        float(correlations[0, 1] * sign),
        float(abs(correlations[2, 1]) + abs(correlations[3, 0])) / 2 if owned else None,
        [_distance(column) for column in noise.T[:2]],
        len(noise),
    )


def _distance(noise: Array) -> float:
    """Return the largest difference of the distribution function from a normal one (Lilliefors)."""
    spread = noise.std()
    if spread == 0:
        return 0.5
    normal = ndtr(np.sort((noise - noise.mean()) / spread))
    steps = np.arange(len(normal) + 1) / len(normal)
    return float(max(np.max(steps[1:] - normal), np.max(normal - steps[:-1])))


def _combined(
    pairs: list[_Pair], dimension: float, dimension_error: float, positive: int
) -> SignalEstimate:
    """Return the estimate from all pairs of halves."""
    mixtures = [mixture for pair in pairs for mixture in pair.mixtures]
    distance = float(np.mean([pair.distances for pair in pairs]))
    chance_distance = _CHANCE_DISTANCE / np.sqrt(pairs[0].noise_tokens)
    unseen = SignalEstimate(
        strength=None,
        informative=None,
        effective_dimension=dimension,
        alignment=None,
        shift=float(np.mean(np.abs([mixture.shift for mixture in mixtures]))),
        positive=positive,
        distance=distance,
        normal=bool(distance <= _NOT_NORMAL + chance_distance),
        query_alignment=None,
        uncertainty={
            "effective_dimension": dimension_error,
            "shift": float(np.mean([mixture.shift_error for mixture in mixtures])),
        },
    )
    correlation = float(np.mean([pair.correlation for pair in pairs]))
    chance = (1 - max(correlation, 0.0)) / np.sqrt(dimension)
    if correlation < _SEEN * chance:
        return unseen
    strength, strength_error = _strength(pairs, correlation, chance)
    informative, informative_error = _pooled_estimate(
        np.array([mixture.informative for mixture in mixtures]),
        np.array([mixture.informative_error for mixture in mixtures]),
    )
    alignment = _from_all(correlation)
    own = [pair.owned for pair in pairs if pair.owned is not None]
    # Of the two cosines in a correlation, that of the other half's direction is known.
    query = _from_all(min(float(np.mean(own)) ** 2 / correlation, 1.0)) if own else None
    return replace(
        unseen,
        strength=strength,
        informative=informative,
        alignment=alignment,
        query_alignment=query,
        uncertainty={
            **unseen.uncertainty,
            "strength": strength_error,
            "informative": informative_error,
            "alignment": chance / (alignment * (1 + correlation) ** 2),
        },
    )


def _strength(pairs: list[_Pair], correlation: float, chance: float) -> tuple[float, float]:
    """Return θ and its standard error: what both shifts of a pair show is θ² times the correlation."""
    squares = [pair.mixtures[0].shift * pair.mixtures[1].shift for pair in pairs]
    strength = float(np.sqrt(np.mean(np.abs(squares)) / correlation))
    relative = np.array(
        [[mixture.shift_error / mixture.shift for mixture in pair.mixtures] for pair in pairs]
    )
    shift_part = float(np.mean(np.sqrt((relative**2).sum(axis=1))))
    return strength, strength / 2 * float(np.hypot(shift_part, chance / correlation))


def _from_all(squared: float) -> float:
    """Return the cosine that all samples teach, from the squared one that half of them do.

    Twice the samples double m/(1 - m) as long as the places are known as well as before.
    """
    return float(np.sqrt(2 * squared / (1 + squared)))


def _pooled_estimate(values: Array, errors: Array) -> tuple[float, float]:
    """Return the mean weighed by precision, and the error of one value.

    What is best seen where the shift is large counts most there. Where values differ by more than their
    errors allow, the variance between them is added to each (DerSimonian and Laird): one fit that ran
    astray and is sure of itself does not decide.
    """
    errors = np.maximum(errors, _LEAST_ERROR * np.median(errors))
    weights = errors**-2.0
    mean = float(weights @ values / weights.sum())
    excess = float(weights @ (values - mean) ** 2) - (len(values) - 1)
    between = max(excess, 0.0) / float(weights.sum() - (weights**2).sum() / weights.sum())
    weights = 1 / (errors**2 + between)
    mean = float(weights @ values / weights.sum())
    return mean, float(np.sqrt(len(values) / weights.sum()))


def _mixture(tokens: Tokens, rows: Array, direction: Array) -> _Mixture:
    """Fit noise and shifted noise to the projections of some sequences, by maximum likelihood.

    Every token of a positive sequence is shifted with probability R/L, on its own; that the tokens
    of a sequence are not independent enters the standard errors (a sandwich over sequences).
    """
    chosen = np.isin(tokens.sequence, rows)
    sequence = tokens.sequence[chosen]
    positive = tokens.labels[sequence]
    scores = tokens.values[chosen] @ direction
    # In units that do not depend on which class is called noise: likelihoods are compared.
    scores = (scores - scores.mean()) / scores.std()
    sign = 1.0 if scores[positive].mean() >= scores[~positive].mean() else -1.0
    return _fitted(_Scores(sign * scores, sequence, tokens), sign)


class _Scores:
    """Projections with the log-likelihood of each sequence at (location, log scale, s, logit R/L)."""

    def __init__(self, scores: Array, sequence: Array, tokens: Tokens) -> None:
        kept = slice(None, _MOST_TOKENS)
        _, self._index = np.unique(sequence[kept], return_inverse=True)
        self._scores = scores[kept]
        positive = tokens.labels[sequence[kept]]
        noise = self._scores[~positive]
        self.location = float(noise.mean())
        self.log_scale = float(np.log(max(noise.std(), np.exp(_BOUNDS[1][0]))))
        lengths = tokens.lengths[sequence[kept]]
        self.mean_length = float(lengths.mean())
        # A sequence of another length has as many shifted tokens, a different share of its own.
        self._share = np.where(positive, self.mean_length / lengths, 0.0)
        self.sequences = int(self._index.max()) + 1

    def likelihoods(self, point: Array) -> Array:
        """Return the log-likelihood of each sequence."""
        location, log_scale, shift, share = point
        standard = (self._scores - location) * np.exp(-log_scale)
        probability = np.minimum(self._share * expit(share), 1 - 1e-6)
        ratio = np.exp(np.minimum(shift * standard - shift**2 / 2, 500.0))
        values = -(standard**2) / 2 - log_scale + np.log1p(probability * (ratio - 1))
        return np.bincount(self._index, values, minlength=self.sequences)

    def scores_at(self, point: Array) -> Array:
        """Return the derivatives of the likelihoods (sequences, 4)."""
        steps = 1e-4 * np.eye(4)
        return np.column_stack(
            [(self.likelihoods(point + e) - self.likelihoods(point - e)) / 2e-4 for e in steps]
        )


def _fitted(scores: _Scores, sign: float) -> _Mixture:
    fits = [
        minimize(
            lambda point: -scores.likelihoods(point).sum(),
            np.array([scores.location, scores.log_scale, shift, logit(share)]),
            jac=lambda point: -scores.scores_at(point).sum(axis=0),
            bounds=_BOUNDS,
            method="L-BFGS-B",
        )
        for shift, share in _STARTS
    ]
    best = min(fits, key=lambda fit: fit.fun)
    shift, share = best.x[2:]
    covariance = _sandwich(scores, best.x)
    informative = scores.mean_length * float(expit(share))
    slope = informative * (1 - float(expit(share)))
    errors = np.sqrt(np.maximum(np.diag(covariance)[2:], 1e-12))
    return _Mixture(
        sign * float(shift), informative, float(errors[0]), slope * float(errors[1]), -best.fun
    )


def _sandwich(scores: _Scores, point: Array) -> Array:
    """Return the covariance H⁻¹ J H⁻¹ of the estimates, J from the sequences' own derivatives."""
    derivatives = scores.scores_at(point)
    steps = 1e-3 * np.eye(4)
    hessian = np.array(
        [
            (scores.scores_at(point + e).sum(axis=0) - scores.scores_at(point - e).sum(axis=0))
            / 2e-3
            for e in steps
        ]
    )
    inverse = np.linalg.pinv((hessian + hessian.T) / 2)
    return np.asarray(inverse @ (derivatives.T @ derivatives) @ inverse)


def _effective_dimension(tokens: Tokens) -> tuple[float, float]:
    """Return tr(Σ)²/tr(Σ²) of the noise tokens, and its standard error by a jackknife.

    The squares of covariances of N tokens between different coordinates are too large by the product
    of their variances over N, which is taken off.
    """
    noise = tokens.values[~tokens.labels[tokens.sequence]]
    groups = np.arange(len(noise)) * _GROUPS // len(noise)
    sums = [
        (part.sum(axis=0), part.T @ part, len(part))
        for part in (noise[groups == group] for group in range(_GROUPS))
    ]

    def ratio(parts: list[tuple[Array, Array, int]]) -> float:
        count = sum(part[2] for part in parts)
        mean = sum(part[0] for part in parts) / count
        covariance = sum(part[1] for part in parts) / count - np.outer(mean, mean)
        trace = np.trace(covariance)
        chance = (trace**2 - (np.diag(covariance) ** 2).sum()) / count
        square = (covariance**2).sum() - chance
        return float(trace**2 / max(square, trace**2 / (10 * len(covariance))))

    left_out = [ratio(sums[:group] + sums[group + 1 :]) for group in range(_GROUPS)]
    spread = np.sqrt((_GROUPS - 1) * np.var(left_out))
    return ratio(sums), float(spread)
