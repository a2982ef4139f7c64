"""What noisy scores tell about which tokens are informative (docs/theory.md, section 10.1).

A 0/1 vector v with R ones in random places is seen through scores s v + z, z standard normal. Two
functions of s say all that the Bayes floor needs:

    overlap    e(s) = E⟨v̂, v⟩, v̂ the posterior mean of v; from R²/L at s = 0 to R,
    potential  ψ(s) = E log mean over R-subsets S of exp(s² ⟨1_S, v⟩ + s ⟨1_S, z⟩ - s² R/2),

with dψ/ds = s e(s). For R = 1 the overlap is a one-dimensional integral, exact to rounding for any
length; for R > 1 it is a mean over quasi-random scores of ratios of elementary symmetric
polynomials. Taking the places without signal instead of those with it maps R to L - R:
e_R = e_{L-R} + 2R - L. Where R is a law, the posterior is one over R too (section 13.3), and e goes
from (E R)²/L to E R.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.polynomial import chebyshev
from scipy.special import expit, gammaln, logit

from sparsetoken.arrays import Array
from sparsetoken.informative import CountLaw
from sparsetoken.numerics.memory import kept_on_path
from sparsetoken.numerics.quadrature import normal_density
from sparsetoken.task import Task
from sparsetoken.theory.mixture import label_strata
from sparsetoken.theory.replicates import REPLICATES
from sparsetoken.theory.token_law import draw_tokens
from sparsetoken.validation import ParameterError

__all__ = [
    "PlacesLaw",
    "exact_overlap",
    "mixed_overlap",
    "places_law",
    "sampled_overlap",
]

# Steps of the symmetric polynomials of one sequence, L times the smaller of R and L - R.
_LARGEST_WORK = 2**15
_LONGEST_SAMPLED = 4096

# Spacing of the grid of the exact integral; its error falls as exp(-π²/spacing).
_SPACING = 0.25
_NORMAL_STEP = 0.45
_PANEL = 2.0
_EXACT_NODES = 18
_SAMPLED_NODES = 10
# Where all but this of the places are known, nothing is computed any more.
_KNOWN = 1e-13
# What the laws of a path may take; one takes some ten kilobytes.
_KEPT_BYTES = 2**20
# How far, in logarithms, a law may be from a binomial one before probabilities underflow.
_MOST_UNEVEN = 250.0


def exact_overlap(length: int, signal: float, spacing: float = _SPACING) -> float:
    """Return e(s) for one informative token, by one-dimensional integrals.

    The posterior of the place is the softmax of s times the scores, and a softmax is the law of the
    largest of y_l = s x_l + (Gumbel noise). With F and f the distribution function and density of
    s z + Gumbel: e = ∫ f(y - s²) F(y)^{L-1} dy, the chance that the true place wins. The trapezoidal
    rule is exponentially accurate.
    """
    low = -8.5 * signal - 5
    high = signal**2 + 8.5 * signal + 45 + np.log(length)
    grid = np.arange(low, high, spacing)
    log_other, _ = _noisy_gumbel(grid, signal, spacing)
    _, density_true = _noisy_gumbel(grid - signal**2, signal, spacing)
    return spacing * float(density_true @ np.exp((length - 1) * log_other))


def _noisy_gumbel(y: Array, signal: float, spacing: float) -> tuple[Array, Array]:
    """Return log F(y) and f(y) for s z + Gumbel on an even grid of y, as sums over a grid of z."""
    if signal * _NORMAL_STEP < spacing:
        z = _NORMAL_STEP * np.arange(-20, 21)
        below, above, density = (
            part @ (_NORMAL_STEP * normal_density(z)) for part in _gumbel(y[:, None] - signal * z)
        )
    else:
        # With a step of z that is one of y, all y - s z lie on one grid: a convolution.
        reach = int(9 * signal / spacing)
        step = spacing / signal
        weight = step * normal_density(step * np.arange(-reach, reach + 1))
        longer = y[0] + spacing * np.arange(-reach, len(y) + reach)
        below, above, density = (
            np.convolve(part, weight, mode="valid") for part in _gumbel(longer)
        )
    # The logarithm of a number near 1 comes from what it lacks.
    log_below = np.where(
        above < 0.5, np.log1p(-np.minimum(above, 0.5)), np.log(np.maximum(below, 1e-300))
    )
    return log_below, density


def _gumbel(y: Array) -> tuple[Array, Array, Array]:
    """Return the chances of a Gumbel variable to be below and above y, and its density."""
    exponent = np.exp(np.minimum(-y, 700.0))
    below = np.exp(-exponent)
    return below, -np.expm1(-exponent), exponent * below


def sampled_overlap(
    length: int, informative: int, signal: float, log2_points: int, seed: int = 0
) -> Array:
    """Return e(s) from quasi-random scores, one value for each replicate.

    With e_j(I) and e_j(N) the elementary symmetric polynomials of the weights exp(s x_l) of the
    informative tokens and of the others, the posterior has j informative places with probability
    proportional to e_j(I) e_{R-j}(N); the overlap is the mean of j.
    """
    counts = (informative, length - informative)
    draws = [
        draw_tokens(counts, log2_points, (5, seed, index), most=length)
        for index in range(REPLICATES)
    ]
    marked, others = (
        np.concatenate([signal * draw[group].values for draw in draws]).T for group in (0, 1)
    )
    exponents = np.concatenate([marked + signal**2, others])
    exponents -= exponents.max(axis=0)
    weights = np.exp(exponents)
    chances = weights / (weights + _tilt(weights, informative))
    chosen = _count_law(chances[:informative], informative)
    rest = _count_law(chances[informative:], informative)
    joint = chosen * rest[::-1]
    mean = np.arange(informative + 1) @ joint / joint.sum(axis=0)
    return np.asarray(mean.reshape(REPLICATES, -1).mean(axis=1))


def _tilt(weights: Array, count: int) -> Array:
    """Return c for each column such that about `count` of the w/(w + c) are expected to be ones.

    A factor of all weights changes no posterior; with this one the polynomials are probabilities of
    independent choices near their mode, which neither overflow nor vanish.
    """
    low = np.log(np.partition(weights, -count, axis=0)[-count] * 1e-3 + 1e-300)
    high = np.maximum(np.log(weights.sum(axis=0) / count), low)
    for _ in range(6):
        middle = 0.5 * (low + high)
        too_many = (weights / (weights + np.exp(middle))).sum(axis=0) > count
        low, high = np.where(too_many, middle, low), np.where(too_many, high, middle)
    return np.asarray(np.exp(0.5 * (low + high)))


def _count_law(chances: Array, most: int) -> Array:
    """Return P(j of the independent choices are ones), j = 0 ... most, for each column."""
    law = np.zeros((most + 1, chances.shape[1]))
    law[0] = 1.0
    moved = np.empty_like(law[1:])
    for chance, stay in zip(chances, 1 - chances, strict=True):
        np.multiply(law[:-1], chance, out=moved)
        law *= stay
        law[1:] += moved
    return law


def mixed_overlap(task: Task, signal: float, log2_points: int, seed: int = 0) -> Array:
    """Return e(s) where the number of informative tokens is random, one value for each replicate.

    A set S of places has the weight P(r)/C(L, r) exp(s Σ_S x - s² r/2), r = |S|. With o = ρ/(1-ρ),
    ρ = E R/L, and independent choices of odds o exp(s x - s²/2), it is the chance of S times
    P(r)/(C(L, r) o^r), up to a constant: the choices are a posterior under a binomial law, which
    the last factor corrects.
    """
    known, length = task.counts, task.length
    most, share = int(known.values[-1]), known.mean / length
    correction = np.zeros(most + 1)
    correction[known.values] = np.exp(_log_corrections(task))
    overlap = np.zeros(REPLICATES)
    for part in label_strata(task, 1, log2_points):
        draws = [
            draw_tokens(part.counts, part.log2_points, (5, seed, index, *part.stream), most=length)
            for index in range(REPLICATES)
        ]
        marked, others = (
            np.concatenate([draw[group].values for draw in draws]).T for group in (0, 1)
        )
        base = float(logit(share)) - 0.5 * signal**2
        chosen = _count_law(expit(base + signal * (marked + signal)), part.counts[0])
        rest = _count_law(expit(base + signal * others), most)
        # By the number of informative places among the chosen ones.
        weights = np.stack(
            [
                chosen[hits] * (correction[hits:] @ rest[: most + 1 - hits])
                for hits in range(part.counts[0] + 1)
            ]
        )
        means = np.arange(len(weights)) @ weights / weights.sum(axis=0)
        overlap += part.weight * means.reshape(REPLICATES, -1).mean(axis=1)
    return overlap


def _log_corrections(task: Task) -> Array:
    """Return log [P(r)/(C(L, r) ρ^r (1-ρ)^{L-r})] for the numbers of a law, less the largest one."""
    known, length = task.counts, task.length
    share, values = known.mean / length, known.values
    subsets = gammaln(length + 1) - gammaln(values + 1) - gammaln(length - values + 1)
    logs = np.log(known.probability) - subsets - values * logit(share)
    return np.asarray(logs - logs.max())


@dataclass(frozen=True, eq=False)
class _Panel:
    """Chebyshev coefficients (nodes, replicates) of e and of ∫ s e on a panel, and e's error."""

    overlap: Array
    integral: Array
    relative_error: float


class PlacesLaw:
    """The functions e(s) and ψ(s) as piecewise polynomials, made where they are asked for.

    `replicates` is 1 for an exact law; otherwise e and ψ exist for each of independent replicates,
    whose mean is the answer and whose spread its error. From s = `known` on all places are known.
    """

    def __init__(
        self,
        length: int,
        informative: int | CountLaw,
        log2_points: int = 7,
        seed: int = 0,
        nodes: int | None = None,
        spacing: float = _SPACING,
    ) -> None:
        self.task, self.length = _task(length, informative), length
        known = self.task.counts
        # Above half of the tokens, those without signal are looked for, and `surplus` is added.
        self._mixed = len(known.values) > 1
        number = int(known.values[0])
        self.fewer = known.mean if self._mixed else min(number, self.length - number)
        self.surplus = 0.0 if self._mixed else float(number - self.fewer)
        self.exact = not self._mixed and self.fewer == 1
        self.replicates = 1 if self.exact else REPLICATES
        self.log2_points, self.seed = log2_points, seed
        self._nodes = nodes or (_EXACT_NODES if self.exact else _SAMPLED_NODES)
        self._spacing = spacing
        self._panels: list[_Panel] = []
        self.known = self._known()
        self._integrals = [np.zeros(self.replicates)]

    @property
    def nbytes(self) -> int:
        """Size of the panels, with those that are made when they are asked for."""
        panels = 1 + int(self.known / _PANEL)
        return panels * self.replicates * (2 * self._nodes + 2) * 8

    def _known(self) -> float:
        if not self._mixed:
            return float(2 * np.sqrt(np.log(self.fewer * self.length / _KNOWN)))
        # Odds that the law gives to one number against the next are worth some scores more.
        logs = np.log(self.task.counts.probability)
        doubt = float(np.log(self.length) + np.ptp(logs))
        far = np.sqrt(2 * np.log(self.length / _KNOWN))
        return float(far + np.sqrt(far**2 + 2 * doubt))

    def overlap(self, signal: Array) -> Array:
        """Return e(s), of shape (replicates, *s.shape)."""
        values = self._evaluate(signal, lambda panel: panel.overlap)
        values[:, signal >= self.known] = self.fewer
        return np.asarray(values + self.surplus)

    def potential(self, signal: Array) -> Array:
        """Return ψ(s) = ∫ s e ds, of shape (replicates, *s.shape)."""
        inside = np.minimum(signal, self.known)
        values = self._evaluate(inside, lambda panel: panel.integral)
        index = self._index(inside)
        values += np.stack(self._integrals, axis=1)[:, index]
        values += 0.5 * self.fewer * (signal**2 - inside**2)
        return np.asarray(values + 0.5 * self.surplus * signal**2)

    def relative_error(self, signal: float) -> float:
        """Return the error of e that quadrature and interpolation leave, up to s, as a ratio."""
        self._grow(min(signal, self.known))
        last = int(self._index(np.array([min(signal, self.known)]))[0])
        return max(panel.relative_error for panel in self._panels[: last + 1])

    def _index(self, signal: Array) -> Array:
        return np.asarray(np.maximum(np.ceil(signal / _PANEL) - 1, 0), dtype=int)

    def _evaluate(self, signal: Array, part: Callable[[_Panel], Array]) -> Array:
        inside = np.minimum(signal, self.known)
        self._grow(float(inside.max(initial=0.0)))
        index = self._index(inside)
        values = np.empty((self.replicates, *signal.shape))
        for number in np.unique(index):
            here = index == number
            unit = 2 * (inside[here] / _PANEL - number) - 1
            values[:, here] = chebyshev.chebval(unit, part(self._panels[number]))
        return values

    def _grow(self, signal: float) -> None:
        """Make the panels up to s."""
        while not self._panels or len(self._panels) * _PANEL < signal:
            panel = self._make(len(self._panels) * _PANEL)
            whole = chebyshev.chebval(1.0, panel.integral)
            self._panels.append(panel)
            self._integrals.append(self._integrals[-1] + whole)

    def _make(self, start: float) -> _Panel:
        unit = chebyshev.chebpts1(self._nodes)
        signal = start + 0.5 * _PANEL * (unit + 1)
        if self.exact:
            values, coarse = (
                np.array([[exact_overlap(self.length, s, spacing)] for s in signal])
                for spacing in (self._spacing, 1.5 * self._spacing)
            )
            # The error falls as exp(-π²/spacing): that of the coarse grid tells that of the fine.
            quadrature = float(np.max(np.abs(coarse / values - 1)) ** 1.5) + 1e-13
        else:
            values = np.stack([self._sampled(s) for s in signal])
            quadrature = 1e-13
        fit = chebyshev.chebvander(unit, self._nodes - 1)
        coefficients = np.linalg.solve(fit, values)
        moment = np.linalg.solve(fit, signal[:, None] * values)
        integral = 0.5 * _PANEL * chebyshev.chebint(moment, lbnd=-1)
        tail = np.abs(coefficients[-2:].mean(axis=1)).sum() / values.mean(axis=1).min()
        return _Panel(coefficients, integral, quadrature + float(tail))

    def _sampled(self, signal: float) -> Array:
        if self._mixed:
            return mixed_overlap(self.task, signal, self.log2_points, self.seed)
        return sampled_overlap(self.length, int(self.fewer), signal, self.log2_points, self.seed)


def _task(length: int, informative: int | CountLaw) -> Task:
    """Return a task with these places, whatever else it is."""
    return Task(length, informative, strength=1.0)


@kept_on_path(_KEPT_BYTES)
def places_law(length: int, informative: int | CountLaw, log2_points: int) -> PlacesLaw:
    """Return the law of places, kept while a path lasts: it depends on L and R alone."""
    task = _task(length, informative)
    known = task.counts
    fewer = int(known.values[-1])
    if len(known.values) == 1:
        fewer = min(fewer, length - fewer)
    elif np.ptp(_log_corrections(task)) > _MOST_UNEVEN:
        accepted = (
            "an integer, or a law nearer to a binomial one: the posterior of others overflows"
        )
        raise ParameterError("informative", str(informative), accepted)
    if fewer > 1 and (length > _LONGEST_SAMPLED or length * fewer > _LARGEST_WORK):
        accepted = (
            f"1 or length - 1, or length <= {_LONGEST_SAMPLED} and length × min(informative, "
            f"length - informative) <= {_LARGEST_WORK}: the symmetric polynomials take that many "
            f"steps a sequence"
        )
        given = task.to_dict()["informative"]
        raise ParameterError("informative", given, f"{accepted} (length = {length})")
    return PlacesLaw(length, informative, log2_points)
