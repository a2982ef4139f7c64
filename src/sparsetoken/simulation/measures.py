"""What is measured of a fitted readout, from the means and spreads of its scores at many points."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from scipy import optimize
from scipy.special import ndtr

from sparsetoken import validation
from sparsetoken.arrays import Array
from sparsetoken.records import METRICS
from sparsetoken.uncertainty import standard_error
from sparsetoken.validation import ParameterError

__all__ = ["ScorePoints"]

# Spreads and rates of 0 are divided by as if they were this.
_TINY = 1e-290
# Positives meet negatives in all pairs if these are few, else in so many random pairings.
_PAIRINGS = 8
_FEW_PAIRS = 4096
# Thresholds of a precision-recall curve, at quantiles of so many scores and what lies up to six
# spreads beside them.
_THRESHOLDS = 129
_PLACED_POINTS = 2048
_OFFSETS = np.linspace(-6, 6, 13)

Class = tuple[Array, Array]


@dataclass(frozen=True, eq=False)
class ScorePoints:
    """Scores of fresh sequences of either label: normal at each of many points.

    Attributes
    ----------
    positive, negative : (mean, spread), arrays of shape (replicates, points)
        Points of a replicate weigh the same, but for `weight`; independent replicates tell the
        standard error, and a single one is exact.
    positive_rate : float
    weight : array of shape (points,), optional
        Weights of the points of positives, which sum to 1.
    tokens : dict
        What attention does to tokens, by replicate, for classifiers with a query.
    """

    positive: Class
    negative: Class
    positive_rate: float
    tokens: Mapping[str, Array] = field(default_factory=dict)
    weight: Array | None = None

    @property
    def test_error(self) -> tuple[float, float]:
        """The probability of a wrong label, and its standard error."""
        rate = self.positive_rate
        missed, alarms = self._error_rates
        return _mean(rate * missed + (1 - rate) * alarms)

    def measure(
        self, names: Iterable[str], rng: np.random.Generator
    ) -> dict[str, tuple[float, float]]:
        """Return quantities of `METRICS` by name, with their standard errors."""
        return {name: _mean(self._replicates(name, rng)) for name in names}

    def recalibrated(self) -> tuple["ScorePoints", float]:
        """Return the scores with the bias of least error, and how much was added to it."""
        added = -self._best_threshold()
        mean, spread = self.positive
        other, width = self.negative
        return replace(
            self, positive=(mean + added, spread), negative=(other + added, width)
        ), added

    def _replicates(self, name: str, rng: np.random.Generator) -> Array:
        if validation.choice("metric", name, METRICS) == "balanced_error":
            return np.asarray(0.5 * np.add(*self._error_rates))
        if name == "auc":
            return self._auc(rng)
        if name == "average_precision":
            return self._average_precision()
        if name not in self.tokens:
            accepted = "a quantity of scores for a classifier without a query"
            raise ParameterError("metric", name, accepted)
        return self.tokens[name]

    @property
    def _error_rates(self) -> tuple[Array, Array]:
        """Missed positives and false alarms, (replicates,) each."""
        missed = ndtr(-self.positive[0] / np.maximum(self.positive[1], _TINY))
        alarms = ndtr(self.negative[0] / np.maximum(self.negative[1], _TINY))
        return self._positive_mean(missed), alarms.mean(axis=1)

    def _positive_mean(self, values: Array) -> Array:
        """Return the mean over the points of positives, values (replicates, points, ...)."""
        if self.weight is None:
            return np.asarray(values.mean(axis=1))
        return np.asarray(np.tensordot(values, self.weight, axes=(1, 0)))

    def _auc(self, rng: np.random.Generator) -> Array:
        """Return E Φ((m₊ - m₋)/√(σ₊² + σ₋²)), over all pairs or over random pairings."""
        mean, spread = self.positive
        other, width = self.negative
        if mean.shape[1] * other.shape[1] <= _FEW_PAIRS or 1 in (mean.shape[1], other.shape[1]):
            gap = mean[:, :, None] - other[:, None, :]
            scale = np.hypot(spread[:, :, None], width[:, None, :])
            return np.asarray(self._positive_mean(_above(gap, scale)).mean(axis=1))
        found = np.zeros(len(mean))
        for _ in range(_PAIRINGS):
            order = rng.permutation(other.shape[1])
            found += _above(mean - other[:, order], np.hypot(spread, width[:, order])).mean(axis=1)
        return found / _PAIRINGS

    def _average_precision(self) -> Array:
        """Return ∫ precision d(recall), by trapezoids between well-placed thresholds.

        They follow the scores of positives from end to end, six spreads beyond the outermost; the
        rates at them are exact.
        """
        step = max(1, self.positive[0].size // _PLACED_POINTS)
        mean, spread = (part.ravel()[::step, None] for part in self.positive)
        thresholds = np.quantile(mean + spread * _OFFSETS, np.linspace(0, 1, _THRESHOLDS))

        def above(side: Class) -> Iterator[Array]:
            # One replicate after the other: points times thresholds are many numbers.
            for m, s in zip(*side, strict=True):
                yield _above(m[:, None] - thresholds, s[:, None])[None]

        recall = np.concatenate([self._positive_mean(part) for part in above(self.positive)])
        alarms = np.concatenate([part.mean(axis=1) for part in above(self.negative)])
        hits, false = self.positive_rate * recall, (1 - self.positive_rate) * alarms
        precision = hits / np.maximum(hits + false, _TINY)
        fine, rough = (
            -np.trapezoid(precision[:, ::step], recall[:, ::step], axis=1) for step in (1, 2)
        )
        # Half as many trapezoids have four times the error.
        return np.asarray(fine + (fine - rough) / 3)

    def _best_threshold(self) -> float:
        rate = self.positive_rate

        def error(threshold: float) -> float:
            found = _above(self.positive[0] - threshold, self.positive[1])
            missed = 1 - self._positive_mean(found).mean()
            alarms = _above(self.negative[0] - threshold, self.negative[1]).mean()
            return float(rate * missed + (1 - rate) * alarms)

        grid = []
        for mean, spread in (self.positive, self.negative):
            width = math.hypot(float(mean.std()), float(np.sqrt(np.mean(spread**2))))
            grid.append(mean.mean() + width * np.linspace(-6, 6, 25))
        far = 60 * max(float(self.positive[1].max()), float(self.negative[1].max()), _TINY)
        lowest = min(float(self.positive[0].min()), float(self.negative[0].min())) - far
        highest = max(float(self.positive[0].max()), float(self.negative[0].max())) + far
        candidates = np.unique(np.concatenate([[lowest], *grid, [highest]]))
        best = int(np.argmin([error(float(value)) for value in candidates]))
        if best in (0, len(candidates) - 1):
            return float(candidates[best])
        found = optimize.minimize_scalar(
            error, bounds=(candidates[best - 1], candidates[best + 1]), method="bounded"
        )
        return float(found.x)


def _above(gap: Array, scale: Array) -> Array:
    return np.asarray(ndtr(gap / np.maximum(scale, _TINY)))


def _mean(replicates: Array) -> tuple[float, float]:
    """Return the mean of replicates and its standard error; 0 for an exact one."""
    return float(replicates.mean()), standard_error(replicates) if len(replicates) > 1 else 0.0
