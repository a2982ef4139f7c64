"""Families of learning curves: error as a function of the number of training samples.

Every family maps coordinates in the unit cube, one for each parameter, to curves, so that one
sampler fits them all with a uniform prior. Parameters are placed by what is known before a fit:
the error of guessing, the smallest and the largest size seen.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import expit

from sparsetoken.arrays import Array
from sparsetoken.planning.learning_curve import LearningCurve

__all__ = ["CurveFamily", "PowerLaw", "SparseSignal", "families"]

# Lengths for which the signal's curve is tabulated; others take the nearest in ratio.
_LENGTHS = (2, 3, 5, 8, 12, 20, 32, 50, 80, 128, 200, 320, 512)
_EFFECTIVE = np.linspace(0.0, 12.0, 73)
_STRENGTHS = np.geomspace(0.6, 12.0, 56)
_LOG_RATIOS = np.linspace(-9.0, 9.0, 181)
_TOKENS_DRAWN = 2**18
_TYPICAL_LENGTH = 20
_LARGEST_FLOOR_EXPONENT = 0.7
_LATEST = 20.0


@dataclass(frozen=True)
class CurveFamily(ABC):
    """A family of curves.

    Attributes
    ----------
    chance, guessing : float
        Error of always naming the most frequent class, and of naming classes at random as often as
        they are; without samples a model lies between the two.
    first, last : float
        The smallest and the largest size at which errors were measured.
    """

    chance: float
    guessing: float
    first: float
    last: float

    @property
    @abstractmethod
    def name(self) -> str:
        """How the family is called in reports."""

    @property
    @abstractmethod
    def parameters(self) -> tuple[str, ...]:
        """Names of the coordinates."""

    @abstractmethod
    def curves(self, cube: Array, sizes: Array) -> Array:
        """Return errors (P, K) of P points of the unit cube (P, parameters) at K sizes (K,).

        An infinite size gives the limit.
        """


@dataclass(frozen=True)
class PowerLaw(CurveFamily):
    """a + b (n/N)^-c, with N the largest size seen.

    Coordinates: the value a + b at N, the share a/(a + b) that more samples cannot remove (small
    ones likelier), and c between 0.1 and 3 (by factors).
    """

    @property
    def name(self) -> str:
        """How the family is called in reports."""
        return "power law"

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the coordinates."""
        return ("value", "limit share", "exponent")

    def curves(self, cube: Array, sizes: Array) -> Array:
        """Return errors (P, K)."""
        value, share = 1.2 * self.chance * cube[:, :1], cube[:, 1:2] ** 2
        decay = (sizes / self.last) ** -(0.1 * 30 ** cube[:, 2:3])
        return np.asarray(np.minimum(value * (share + (1 - share) * decay), 1.0))


@dataclass(frozen=True)
class SparseSignal(CurveFamily):
    """The curve of the best learner of a weak signal in one of `length` tokens.

    Of n samples in d dimensions it learns a squared cosine m with the signal,
    m = Λe/(1 + Λe), Λ = (n/d) θ²/2, e = e(θ√m) the mean weight that the posterior of the
    informative place gives to the right one, and errs like the Bayes oracle at strength θ√m. With
    E that error, the curve is floor + (start - floor) 2E. The weight e grows with m, which makes the
    sudden drop that no power law has. After the half-way size the floor falls on as a power of n,
    which real data do and the Gaussian task does not. Coordinates: θ (by factors), the size at
    which half of the fall has happened (by factors), the share of the chance that is floor, the
    start, between chance and guessing, and the floor's exponent.
    """

    length: int = _TYPICAL_LENGTH

    @property
    def name(self) -> str:
        """How the family is called in reports."""
        return "sparse signal"

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the coordinates."""
        return ("strength", "half-way size", "floor", "start", "floor exponent")

    def curves(self, cube: Array, sizes: Array) -> Array:
        """Return errors (P, K)."""
        table = _signal_table(_nearest_length(self.length))
        with np.errstate(divide="ignore"):
            ratios = np.log(sizes) - np.log(self.half_way(cube))[:, None]
        row = cube[:, :1] * (len(_STRENGTHS) - 1)
        column = np.clip(
            (ratios - _LOG_RATIOS[0]) / (_LOG_RATIOS[1] - _LOG_RATIOS[0]), 0, len(_LOG_RATIOS) - 1
        )
        late = np.clip(ratios, 0.0, _LATEST) * _LARGEST_FLOOR_EXPONENT * cube[:, 4:5]
        floor = self.floor(cube)[:, None] * np.exp(-late)
        start = self.chance + (self.guessing - self.chance) * cube[:, 3:4]
        return np.asarray(floor + (start - floor) * _bilinear(table, row, column))

    def strength(self, cube: Array) -> Array:
        """Return θ (P,)."""
        return np.asarray(_STRENGTHS[0] * (_STRENGTHS[-1] / _STRENGTHS[0]) ** cube[:, 0])

    def half_way(self, cube: Array) -> Array:
        """Return the size (P,) at which half of the fall has happened."""
        low, high = self.first / 100, self.last * 10
        return np.asarray(low * (high / low) ** cube[:, 1])

    def floor(self, cube: Array) -> Array:
        """Return the error (P,) that stays at the half-way size even for a strong signal."""
        return np.asarray(self.chance * 0.9 * cube[:, 2] ** 2)


def families(curve: LearningCurve, length: int) -> list[CurveFamily]:
    """Return the families that a forecast weighs, for sequences of about `length` tokens.

    Data that are not sequences have sudden drops too: they are taken as a typical length.
    """
    known = (curve.chance, curve.guessing, float(curve.sizes[0]), float(curve.sizes[-1]))
    return [
        PowerLaw(*known),
        SparseSignal(*known, length=length if length > 1 else _TYPICAL_LENGTH),
    ]


def _nearest_length(length: int) -> int:
    return min(_LENGTHS, key=lambda known: abs(np.log(known / length)))


def _bilinear(table: Array, row: Array, column: Array) -> Array:
    """Interpolate a table at fractional rows (P, 1) and columns (P, K)."""
    top = np.clip(row.astype(int), 0, table.shape[0] - 2)
    left = np.clip(column.astype(int), 0, table.shape[1] - 2)
    down, right = row - top, column - left
    upper = (1 - right) * table[top, left] + right * table[top, left + 1]
    lower = (1 - right) * table[top + 1, left] + right * table[top + 1, left + 1]
    return np.asarray((1 - down) * upper + down * lower)


@lru_cache(maxsize=len(_LENGTHS))
def _signal_table(length: int) -> Array:
    """Return 2E for each θ of the grid (rows) against log(n / half-way size) (columns)."""
    weight, error = _oracle_table(length)
    # √m, dense near 1, where the last of the learning takes ever more samples.
    cosine = np.concatenate([np.linspace(0.002, 0.95, 160), 1 - np.geomspace(0.05, 1e-9, 80)[1:]])
    rows = []
    for strength in _STRENGTHS:
        effective = strength * cosine
        ratio = cosine**2 / ((1 - cosine**2) * np.interp(effective, _EFFECTIVE, weight))
        # Where the ratio falls with the cosine, learning jumps to the next branch.
        log_ratio = np.log(np.maximum.accumulate(ratio))
        doubled = 2 * np.interp(effective, _EFFECTIVE, error)
        half = np.interp(-(1 + doubled[-1]) / 2, -doubled, log_ratio)
        rows.append(np.interp(_LOG_RATIOS + half, log_ratio, doubled))
        # The ends are the limits themselves: no samples, and ever more.
        rows[-1][0], rows[-1][-1] = 1.0, doubled[-1]
    return np.array(rows)


@lru_cache(maxsize=len(_LENGTHS))
def _oracle_table(length: int) -> tuple[Array, Array]:
    """Return e(s) and E(s) on the grid of strengths s, for one informative token of `length`."""
    rng = np.random.default_rng([16, length])
    noise = rng.standard_normal((max(_TOKENS_DRAWN // length // 2, 1024), length))
    noise = np.concatenate([noise, -noise])
    largest = noise[:, 1:].max(axis=1)
    below = noise[:, 1:] - largest[:, None]
    weights, errors = [], []
    for strength in _EFFECTIVE:
        others = strength * largest + np.log(np.exp(strength * below).sum(axis=1))
        first = strength * noise[:, 0]
        signal = first + strength**2
        ratios = [
            np.logaddexp(own, others) - np.log(length) - strength**2 / 2 for own in (signal, first)
        ]
        weights.append(expit(signal - others).mean())
        errors.append(np.mean([expit(-np.abs(ratio)).mean() for ratio in ratios]))
    # Each draw keeps its noise along the grid, so that only tiny steps upwards are left to remove.
    return np.maximum.accumulate(weights), np.minimum.accumulate(errors)
