"""What measured errors say about a learning curve: samples from the posterior of every family."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from sparsetoken.arrays import Array
from sparsetoken.planning.curve_families import CurveFamily
from sparsetoken.planning.learning_curve import LearningCurve

__all__ = ["CurvePosterior", "fit_curves", "weighted_quantile"]

# Curves that stand for all that fit, and how often each is moved at a temperature: twice as many of
# either move the ends of a band by a few percent of its width.
_PARTICLES = 1500
_MOVES = 5

# No family is exactly right. Errors may leave their curve by this share of themselves at the largest
# size, and by so much more for every halving below it, where the shape matters less; and beyond the
# data by this share for every doubling (its square root, as a random walk would).
_MISFIT = 0.03
_MISFIT_BELOW = 0.5
_DRIFT = 0.1
_LEAST_ERROR = 0.01
# Measured variances are too small by about this much, and differences in likelihood say less than
# they seem to, as the true curve is in no family. All of these numbers are set by design curves.
_INFLATION = 1.3
_TEMPER = 0.5


@dataclass(frozen=True)
class CurvePosterior:
    """Curves with weights.

    Attributes
    ----------
    families : tuple of CurveFamily
    shares : array (families,)
        Posterior probability of each family.
    particles : tuple of arrays (P, parameters), equally likely within a family
    drift : array (families * P,)
        Standard normal numbers: where each curve leaves its shape beyond the data.
    last : float
        The largest size that was measured.
    resolution : float
        The smallest error that the data can show, one wrong sample.
    """

    families: tuple[CurveFamily, ...]
    shares: Array
    particles: tuple[Array, ...]
    drift: Array
    last: float
    resolution: float

    @property
    def weights(self) -> Array:
        """Weight of each curve, of sum 1."""
        counts = [len(cube) for cube in self.particles]
        return np.repeat(self.shares / counts, counts)

    def curves(self, sizes: Array) -> Array:
        """Return the errors of all curves (N, K) at K sizes, which may be infinite."""
        sizes = np.asarray(sizes, dtype=float)
        smooth = np.concatenate(
            [
                family.curves(cube, sizes)
                for family, cube in zip(self.families, self.particles, strict=True)
            ]
        )
        # Ever more samples are counted as a thousandfold.
        doublings = np.log2(np.clip(sizes / self.last, 1.0, 1000.0))
        chance = self.families[0].chance
        drifted = smooth * np.exp(_DRIFT * np.sqrt(doublings) * self.drift[:, None])
        return np.asarray(np.minimum(drifted, np.maximum(smooth, chance)))

    def quantiles(self, sizes: Array, levels: Array) -> Array:
        """Return quantiles (levels, K) of the error at each size.

        Smaller errors than one in all samples were never seen: a band that begins there begins at 0.
        """
        curves, levels = self.curves(sizes), np.asarray(levels)
        values = np.column_stack(
            [weighted_quantile(column, self.weights, levels) for column in curves.T]
        )
        unseen = (values < self.resolution) & (levels < 0.5)[:, None]
        return np.where(unseen, 0.0, values)


def weighted_quantile(values: Array, weights: Array, levels: Array) -> Array:
    """Return the smallest values below which a share `levels` of the weight lies."""
    order = np.argsort(values)
    total = np.cumsum(weights[order])
    index = np.searchsorted(total, np.asarray(levels) * total[-1] * (1 - 1e-12))
    return np.asarray(values[order][np.minimum(index, len(values) - 1)])


def fit_curves(curve: LearningCurve, families: list[CurveFamily], seed: int) -> CurvePosterior:
    """Fit every family to the measured errors.

    Errors e are compared as angles arcsin √e, of which counting noise has one size whatever the
    error: a small error that was seen by luck does not look certain. They are normal around the
    curve with their covariance, plus the misfit that any family is allowed; parameters are uniform
    in the unit cube. Families are weighed by the root of how likely they make the data.
    """
    rng = np.random.default_rng([seed, 16])
    # Anscombe's correction keeps the noise of one size where few samples are wrong.
    errors = (curve.samples * curve.errors + 0.375) / (curve.samples + 0.75)
    slope = 0.5 / np.sqrt(errors * (1 - errors))
    misfit = _MISFIT * (1 + _MISFIT_BELOW * np.log2(curve.sizes[-1] / curve.sizes))
    allowed = misfit * np.maximum(errors, _LEAST_ERROR) * slope
    noise = _INFLATION * curve.covariance * np.outer(slope, slope)
    factor = cho_factor(noise + np.diag(allowed**2 + 1e-8), lower=True)
    seen = _angles(errors)

    def likelihood(family: CurveFamily) -> Callable[[Array], Array]:
        def logarithm(cube: Array) -> Array:
            gap = _angles(family.curves(cube, curve.sizes)) - seen
            return np.asarray(-0.5 * np.einsum("pk,kp->p", gap, cho_solve(factor, gap.T)))

        return logarithm

    fits = [_sample(likelihood(one), len(one.parameters), rng) for one in families]
    evidence = np.array([fit[1] for fit in fits])
    shares = np.exp(_TEMPER * (evidence - evidence.max()))
    count = sum(len(cube) for cube, _ in fits)
    return CurvePosterior(
        families=tuple(families),
        shares=shares / shares.sum(),
        particles=tuple(cube for cube, _ in fits),
        drift=rng.standard_normal(count),
        last=float(curve.sizes[-1]),
        resolution=1 / curve.samples,
    )


def _angles(errors: Array) -> Array:
    return np.asarray(np.arcsin(np.sqrt(np.clip(errors, 0.0, 1.0))))


def _sample(
    likelihood: Callable[[Array], Array], parameters: int, rng: np.random.Generator
) -> tuple[Array, float]:
    """Return points (P, parameters) from the posterior in the unit cube, and the log evidence.

    Sequential Monte Carlo: the likelihood is raised to a power that grows from 0 to 1, each time by
    as much as half of the points bear; in between they are resampled and moved by random walks.
    """
    cube = rng.random((_PARTICLES, parameters))
    values = likelihood(cube)
    power = evidence = 0.0
    while power < 1:
        step = _largest_step(values, 1 - power)
        weights = np.exp(step * (values - values.max()))
        evidence += float(np.log(weights.mean()) + step * values.max())
        power += step
        chosen = _resampled(weights, rng)
        cube, values = cube[chosen], values[chosen]
        spread = np.atleast_2d(np.cov(cube, rowvar=False)) + 1e-10 * np.eye(parameters)
        root = np.linalg.cholesky(spread) * 2.38 / np.sqrt(parameters)
        for move in range(_MOVES):
            # Long and short steps in turn: posteriors are bent.
            jump = rng.standard_normal(cube.shape) @ root.T * (1.0, 0.5, 0.2)[move % 3]
            proposed = _reflected(cube + jump)
            proposed_values = likelihood(proposed)
            better = np.log(rng.random(len(cube))) < power * (proposed_values - values)
            cube = np.where(better[:, None], proposed, cube)
            values = np.where(better, proposed_values, values)
    return cube, evidence


def _largest_step(values: Array, most: float) -> float:
    """Return the step of the power that leaves half of the points effective."""

    def effective(step: float) -> float:
        weights = np.exp(step * (values - values.max()))
        return float(weights.sum() ** 2 / (weights**2).sum() / len(values))

    if effective(most) >= 0.5:
        return most
    low, high = 0.0, most
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if effective(middle) >= 0.5 else (low, middle)
    return high


def _resampled(weights: Array, rng: np.random.Generator) -> Array:
    positions = (np.arange(len(weights)) + rng.random()) / len(weights)
    index = np.searchsorted(np.cumsum(weights) / weights.sum(), positions)
    return np.asarray(np.minimum(index, len(weights) - 1))


def _reflected(cube: Array) -> Array:
    """Return points that left the unit cube to it, as in a mirror."""
    folded = np.abs(cube) % 2
    return np.asarray(np.where(folded > 1, 2 - folded, folded))
