"""How well scores rank sequences, for rare positives above all (docs/theory.md, section 12.1).

The score of a fresh sequence is s = m + σG given a point of the law of its features, with G standard
normal. Recall and false-alarm rate at a threshold t are the means of Φ((m - t)/σ) over positives and
over negatives, and everything else follows from these two functions of t.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.polynomial import chebyshev
from scipy.special import expit, log_ndtr, ndtr, ndtri

from sparsetoken import validation
from sparsetoken.arrays import Array
from sparsetoken.numerics.quadrature import legendre, normal_density
from sparsetoken.records import UNCERTAINTY, Curve, Record
from sparsetoken.theory.feature_law import ScoreLaw
from sparsetoken.theory.replicates import replicate_error

__all__ = [
    "CalibrationPoint",
    "OperatingPoint",
    "Ranked",
    "Ranking",
    "best_threshold",
    "densities",
    "first_replicate",
    "rates",
]

# Points of a law this close, in units of their spread and in its logarithm, are merged for the
# integrals over all thresholds. Rough bins show how replicates differ, and how much merging does:
# its error falls with the square of the widths, by 30.
_FINE_BINS = (0.15, 0.03)
_ROUGH_BINS = (0.8, 0.25)
_MERGING = 0.15

# A class is followed over thresholds that leave out this much of it on either side.
_TAIL = 1e-9
_BISECTIONS = 12
_NEWTON_STEPS = 8
_BALANCE_STEPS = 40

# Chebyshev nodes of a rate on its window: where to begin, where to end, and the wanted accuracy.
_FIRST_NODES = 33
_MOST_NODES = 513
_ACCURACY = 1e-5
_FINE_NODES = 128

# Normal quantiles of rates are kept between minus the first and the second.
_FARTHEST = 30.0
_LAST_DIGIT = 8.2
_NARROWEST = 1e-290

# Entries of the work arrays of exact rates.
_BLOCK = 2**20


def rates(law: ScoreLaw, thresholds: Array) -> Array:
    """Return recall and false-alarm rate at thresholds (k,), by replicate: (2, replicates, k)."""
    return _by_class(law, thresholds, lambda z, _: ndtr(z))


def densities(law: ScoreLaw, thresholds: Array) -> Array:
    """Return the densities of the scores of positives and of negatives, (2, replicates, k)."""
    return _by_class(law, thresholds, lambda z, spread: normal_density(z) / spread)


def _by_class(law: ScoreLaw, thresholds: Array, function: Callable[[Array, Array], Array]) -> Array:
    """Average function((m - t)/σ, σ) over each class and replicate."""
    found = np.empty((2, law.replicates, len(thresholds)))
    size = max(1, _BLOCK // len(law.mean))
    means, spreads = law.mean[:, None], np.maximum(law.spread, _NARROWEST)[:, None]
    for first in range(0, len(thresholds), size):
        part = slice(first, first + size)
        values = function((means - thresholds[part]) / spreads, spreads)
        columns = values.reshape(law.replicates, -1, values.shape[1])
        for index, sign in enumerate((1.0, -1.0)):
            weights = np.where(law.label == sign, law.weight, 0.0).reshape(law.replicates, 1, -1)
            found[index, :, part] = (weights @ columns)[:, 0] / weights.sum(axis=2)
    return found


def first_replicate(law: ScoreLaw) -> ScoreLaw:
    """Return the first replicate as a law of its own."""
    size = len(law.mean) // law.replicates
    mean, spread, label = law.mean[:size], law.spread[:size], law.label[:size]
    return ScoreLaw(mean, spread, label, law.weight[:size] * law.replicates)


@dataclass(frozen=True)
class OperatingPoint(Record):
    """What a threshold on the score gives.

    Attributes
    ----------
    threshold : float
        Scores above it are called positive; the trained classifier has 0.
    recall : float
        Fraction of the positives that are called positive.
    false_alarm_rate : float
        Fraction of the negatives that are called positive.
    precision : float
        Fraction of those called positive that are.
    uncertainty : dict
        Numerical error bars by name.

    Examples
    --------
    >>> from sparsetoken import Task, Training, predict
    >>> found = predict(Task(10, 1, 5.0, positive_rate=0.1), Training(8.0, 2.0, query_step=20.0))
    >>> point = found.at_recall(0.9)
    >>> round(point.recall, 3), 0 < point.precision < 1
    (0.9, True)
    """

    threshold: float
    recall: float
    false_alarm_rate: float
    precision: float
    uncertainty: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class CalibrationPoint(Record):
    """How far a score can be read as a probability.

    Attributes
    ----------
    probability : float
        P(y = +1 | score).
    stated_probability : float
        1/(1 + exp(-score)), what the logistic loss takes the score for.
    density : float
        Density of the score among all sequences.
    uncertainty : dict
        Numerical error bars by name.

    Examples
    --------
    >>> from sparsetoken import Task, Training, predict
    >>> found = predict(Task(10, 1, 5.0), Training(4.0, 2.0, query_step=20.0, ridge=0.1))
    >>> point = found.calibration([0.0])[0]
    >>> round(point.stated_probability, 2), 0 < point.probability < 1
    (0.5, True)
    """

    probability: float
    stated_probability: float
    density: float
    uncertainty: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False, repr=False)
class Ranking(Record):
    """Ranking quantities of one law of scores, with numerical error bars.

    Attributes
    ----------
    law : ScoreLaw
    replicated : ScoreLaw
        The same with each replicate's own readout, whose differences are the error of the law.
    shifted : tuple of ScoreLaw
        The first replicate of `law`, with one parameter of the readout after the other moved by
        its numerical error.

    Examples
    --------
    >>> from sparsetoken import Task, Training, predict
    >>> ranking = predict(Task(10, 1, 5.0), Training(4.0, 2.0, query_step=20.0)).ranking
    >>> round(ranking.auc, 2), ranking.uncertainty["auc"] < 1e-3
    (0.99, True)
    """

    law: ScoreLaw
    replicated: ScoreLaw
    shifted: tuple[ScoreLaw, ...] = ()

    @property
    def auc(self) -> float:
        """P(score of a positive > score of a negative): E Φ((m₊ - m₋)/√(σ₊² + σ₋²))."""
        return self._integrals["auc"][0]

    @property
    def average_precision(self) -> float:
        """Precision averaged over recall: ∫ precision d(recall)."""
        return self._integrals["average_precision"][0]

    @cached_property
    def balanced_error(self) -> float:
        """The mean of the error on positives and the error on negatives.

        Examples
        --------
        >>> from sparsetoken import Task, Training, predict
        >>> rare = Task(10, 1, 5.0, positive_rate=0.1)
        >>> found = predict(rare, Training(4.0, 2.0), classifier="pooled").ranking
        >>> round(found.balanced_error, 2)
        0.44
        """
        return float(_balanced(rates(self.law, _TRAINED).mean(axis=1))[0])

    @cached_property
    def uncertainty(self) -> dict[str, float]:
        """Numerical error bars of the three numbers, by name.

        Examples
        --------
        >>> from sparsetoken import Task, Training, predict
        >>> rare = Task(10, 1, 5.0, positive_rate=0.1)
        >>> found = predict(rare, Training(4.0, 2.0), classifier="pooled").ranking
        >>> found.uncertainty["auc"] < 1e-3
        True
        """
        bars = {name: bar for name, (_, bar) in self._integrals.items()}
        return {**bars, "balanced_error": self._balanced_error_bar}

    def to_dict(self) -> dict[str, Any]:
        """Return the three numbers by name, each with its error bar under name_uncertainty.

        Returns
        -------
        dict

        Examples
        --------
        >>> from sparsetoken import Task, Training, predict
        >>> rare = Task(10, 1, 5.0, positive_rate=0.1)
        >>> found = predict(rare, Training(4.0, 2.0), classifier="pooled").ranking
        >>> sorted(found.to_dict())[:2]
        ['auc', 'auc_uncertainty']
        """
        flat: dict[str, Any] = {}
        for name, bar in self.uncertainty.items():
            flat |= {name: getattr(self, name), name + UNCERTAINTY: bar}
        return flat

    __repr__ = Record.__str__

    def at_recall(self, recall: float) -> OperatingPoint:
        """Return the operating point with the given recall.

        Returns
        -------
        OperatingPoint

        Examples
        --------
        >>> from sparsetoken import Task, Training, predict
        >>> rare = Task(10, 1, 5.0, positive_rate=0.1)
        >>> found = predict(rare, Training(4.0, 2.0), classifier="pooled").ranking
        >>> round(found.at_recall(0.9).precision, 2)
        0.13
        """
        level = validation.real("recall", recall, low=0, high=1, inclusive=False)
        return self._operating_points(np.array([level]), side=0)[0]

    def at_false_alarm_rate(self, rate: float) -> OperatingPoint:
        """Return the operating point with the given false-alarm rate.

        Returns
        -------
        OperatingPoint

        Examples
        --------
        >>> from sparsetoken import Task, Training, predict
        >>> rare = Task(10, 1, 5.0, positive_rate=0.1)
        >>> found = predict(rare, Training(4.0, 2.0), classifier="pooled").ranking
        >>> round(found.at_false_alarm_rate(0.05).recall, 2)
        0.19
        """
        level = validation.real("false_alarm_rate", rate, low=0, high=1, inclusive=False)
        return self._operating_points(np.array([level]), side=1)[0]

    def at_threshold(self, threshold: float) -> OperatingPoint:
        """Return the operating point of a threshold on the score.

        Returns
        -------
        OperatingPoint

        Examples
        --------
        >>> from sparsetoken import Task, Training, predict
        >>> rare = Task(10, 1, 5.0, positive_rate=0.1)
        >>> found = predict(rare, Training(4.0, 2.0), classifier="pooled").ranking
        >>> round(found.at_threshold(0.0).false_alarm_rate, 3)
        0.042
        """
        value = validation.real("threshold", threshold)
        return self._points(np.array([value]), side=None)[0]

    def roc(self, false_alarm_rates: Iterable[float] | None = None) -> Curve[OperatingPoint]:
        """Return recall against false-alarm rate, at the given rates or at well-chosen ones.

        Returns
        -------
        Curve of OperatingPoint

        Examples
        --------
        >>> from sparsetoken import Task, Training, predict
        >>> rare = Task(10, 1, 5.0, positive_rate=0.1)
        >>> found = predict(rare, Training(4.0, 2.0), classifier="pooled").ranking
        >>> [round(one, 2) for one in found.roc([0.05, 0.2]).column("recall")]
        [0.19, 0.47]
        """
        levels = self._levels("false_alarm_rate", false_alarm_rates, side=1)
        points = self._operating_points(levels, side=1)
        return Curve("false_alarm_rate", tuple(map(float, levels)), tuple(points), {}, "recall")

    def precision_recall(self, recalls: Iterable[float] | None = None) -> Curve[OperatingPoint]:
        """Return precision against recall, at the given recalls or at well-chosen ones.

        Returns
        -------
        Curve of OperatingPoint

        Examples
        --------
        >>> from sparsetoken import Task, Training, predict
        >>> rare = Task(10, 1, 5.0, positive_rate=0.1)
        >>> found = predict(rare, Training(4.0, 2.0), classifier="pooled").ranking
        >>> [round(one, 2) for one in found.precision_recall([0.2, 0.8]).column("precision")]
        [0.29, 0.14]
        """
        levels = self._levels("recall", recalls, side=0)
        points = self._operating_points(levels, side=0)
        return Curve("recall", tuple(map(float, levels)), tuple(points), {}, "precision")

    def calibration(self, scores: Iterable[float] | None = None) -> Curve[CalibrationPoint]:
        """Return P(y = +1 | score) against the score, over the range that holds 99.8 % of them.

        Returns
        -------
        Curve of CalibrationPoint

        Examples
        --------
        >>> from sparsetoken import Task, Training, predict
        >>> rare = Task(10, 1, 5.0, positive_rate=0.1)
        >>> found = predict(rare, Training(4.0, 2.0), classifier="pooled").ranking
        >>> len(found.calibration([-1.0, 0.0, 1.0]))
        3
        """
        if scores is None:
            ends = [self._thresholds(np.array([0.001, 0.999]), side) for side in (0, 1)]
            points = np.linspace(np.min(ends), np.max(ends), _CURVE_POINTS)
        else:
            points = _checked("scores", scores, -np.inf, np.inf)
        weights = self._class_weights[:, None]

        def probability(law: ScoreLaw) -> Array:
            joint = weights[..., None] * densities(law, points)
            return np.asarray(joint[0] / np.maximum(joint.sum(axis=0), _NARROWEST))

        joint = weights * densities(self.law, points).mean(axis=1)
        density = joint.sum(axis=0)
        values = joint[0] / np.maximum(density, _NARROWEST)
        bars = self._bars(probability)
        found = [
            CalibrationPoint(
                probability=float(values[k]),
                stated_probability=float(expit(points[k])),
                density=float(density[k]),
                uncertainty={"probability": float(bars[k])},
            )
            for k in range(len(points))
        ]
        return Curve("score", tuple(map(float, points)), tuple(found), {})

    @cached_property
    def _class_weights(self) -> Array:
        positive = float(self.law.weight[self.law.label > 0].sum() / self.law.weight.sum())
        return np.array([positive, 1 - positive])

    @property
    def _balanced_error_bar(self) -> float:
        bars = self._bars(lambda law: _balanced(rates(law, _TRAINED)))
        return float(bars[0])

    def _bars(self, quantity: Callable[[ScoreLaw], Array]) -> Array:
        """Return error bars (k,) of a quantity that gives (replicates, k) for a law."""
        bars = np.array([replicate_error(column) for column in quantity(self.replicated).T])
        if self.shifted:
            reference = quantity(self._first)[0]
            bars += sum(np.abs(quantity(law)[0] - reference) for law in self.shifted)
        return bars

    @cached_property
    def _first(self) -> ScoreLaw:
        return first_replicate(self.law)

    def _levels(self, name: str, given: Iterable[float] | None, side: int) -> Array:
        if given is not None:
            return _checked(name, given, 0.0, 1.0)
        # Evenly spaced in the normal quantile, where a curve of two normal laws is straight, down
        # to where a tenth of the rarer class is left, or fewer.
        least = min(0.001, 0.1 * self._class_weights.min()) if side else 0.001
        return np.asarray(ndtr(np.linspace(ndtri(least), ndtri(0.999), _CURVE_POINTS)))

    def _operating_points(self, levels: Array, side: int) -> list[OperatingPoint]:
        return self._points(self._thresholds(levels, side), side)

    def _points(self, thresholds: Array, side: int | None) -> list[OperatingPoint]:
        """Return operating points; the rate of class `side` is given, and has no error bar."""
        centre = rates(self.law, thresholds).mean(axis=1)
        slopes = np.maximum(densities(self.law, thresholds).mean(axis=1), _NARROWEST)
        weights = self._class_weights

        def quantities(law: ScoreLaw) -> Array:
            """Recall, false-alarm rate, precision and threshold in a row, (replicates, 4 k)."""
            found = rates(law, thresholds)
            moved = np.zeros_like(found[0])
            if side is not None:
                # A threshold that keeps the given rate moves by what this law makes of it.
                moved = (found[side] - centre[side]) / slopes[side]
                found = np.clip(found - moved * slopes[:, None, :], 0.0, 1.0)
            columns = (found[0], found[1], _precision(found, weights), thresholds + moved)
            return np.concatenate(columns, axis=1)

        precision = _precision(centre, weights)
        bars = self._bars(quantities).reshape(4, -1)
        names = ("recall", "false_alarm_rate", "precision", "threshold")
        return [
            OperatingPoint(
                threshold=float(thresholds[k]),
                recall=float(centre[0, k]),
                false_alarm_rate=float(centre[1, k]),
                precision=float(precision[k]),
                uncertainty={name: float(bar) for name, bar in zip(names, bars[:, k], strict=True)},
            )
            for k in range(len(thresholds))
        ]

    def _thresholds(self, levels: Array, side: int) -> Array:
        """Return the thresholds (k,) above which a class has the given weights (k,).

        Bisection on merged points, then Newton's method on the logarithm of the exact rate.
        """
        found = _quantiles(*_merge(self.law, (1.0, -1.0)[side], _FINE_BINS), levels, steps=30)
        for _ in range(_NEWTON_STEPS):
            rate = rates(self.law, found)[side].mean(axis=0)
            slope = np.maximum(densities(self.law, found)[side].mean(axis=0), _NARROWEST)
            found = found + np.log(np.maximum(rate, _NARROWEST) / levels) * rate / slope
            if np.all(np.abs(rate / levels - 1) < 1e-6):  # and the step just made squares that
                break
        return found

    @cached_property
    def _integrals(self) -> dict[str, tuple[float, float]]:
        """AUC and average precision with their error bars."""
        moved = (self._first, *self.shifted) if self.shifted else ()
        rows = _Rows.merged(self.law, self.replicated, moved, self._class_weights)
        values, resolution = rows.integrals()
        replicates = self.replicated.replicates
        found = {}
        for name, row, error in zip(("auc", "average_precision"), values, resolution, strict=True):
            fine, rough, copies = row[0], row[1], row[2 : 2 + replicates]
            numerical = np.abs(row[2 + replicates :] - row[2 + replicates : 3 + replicates]).sum()
            bar = replicate_error(copies) + _MERGING * abs(fine - rough)
            found[name] = (float(fine), float(bar + numerical + error))
        return found


_CURVE_POINTS = 61

# The threshold of the trained classifier: its bias is part of the score.
_TRAINED = np.zeros(1)


class Ranked:
    """A classifier whose scores rank fresh sequences: what its `ranking` tells, under its own name."""

    if TYPE_CHECKING:

        @property
        def ranking(self) -> Ranking:
            """How well the scores rank fresh sequences."""
            ...

    @property
    def auc(self) -> float:
        """P(score of a positive > score of a negative)."""
        return self.ranking.auc

    @property
    def average_precision(self) -> float:
        """Precision averaged over recall."""
        return self.ranking.average_precision

    @property
    def balanced_error(self) -> float:
        """The mean of the error on positives and the error on negatives."""
        return self.ranking.balanced_error

    def at_recall(self, recall: float) -> OperatingPoint:
        """Return the threshold with the given recall, and what else it gives.

        Returns
        -------
        OperatingPoint

        Examples
        --------
        >>> from sparsetoken import Task, Training, predict
        >>> found = predict(Task(10, 1, 5.0), Training(8.0, 2.0, query_step=20.0))
        >>> 0 < found.at_recall(0.9).false_alarm_rate < 0.5
        True
        """
        return self.ranking.at_recall(recall)

    def at_false_alarm_rate(self, rate: float) -> OperatingPoint:
        """Return the threshold with the given false-alarm rate, and what else it gives.

        Returns
        -------
        OperatingPoint

        Examples
        --------
        >>> from sparsetoken import Task, Training, predict
        >>> found = predict(Task(10, 1, 5.0), Training(8.0, 2.0, query_step=20.0))
        >>> 0.5 < found.at_false_alarm_rate(0.1).recall < 1
        True
        """
        return self.ranking.at_false_alarm_rate(rate)

    def roc(self, false_alarm_rates: Iterable[float] | None = None) -> Curve[OperatingPoint]:
        """Return recall against false-alarm rate.

        Returns
        -------
        Curve of OperatingPoint

        Examples
        --------
        >>> from sparsetoken import Task, Training, predict
        >>> found = predict(Task(10, 1, 5.0), Training(8.0, 2.0, query_step=20.0))
        >>> rare, frequent = found.roc([0.01, 0.1]).column("recall")
        >>> rare < frequent
        True
        """
        return self.ranking.roc(false_alarm_rates)

    def precision_recall(self, recalls: Iterable[float] | None = None) -> Curve[OperatingPoint]:
        """Return precision against recall.

        Returns
        -------
        Curve of OperatingPoint

        Examples
        --------
        >>> from sparsetoken import Task, Training, predict
        >>> found = predict(Task(10, 1, 5.0), Training(8.0, 2.0, query_step=20.0))
        >>> len(found.precision_recall([0.5, 0.9]))
        2
        """
        return self.ranking.precision_recall(recalls)

    def calibration(self, scores: Iterable[float] | None = None) -> Curve[CalibrationPoint]:
        """Return the probability of a positive label against the score.

        Returns
        -------
        Curve of CalibrationPoint

        Examples
        --------
        >>> from sparsetoken import Task, Training, predict
        >>> found = predict(Task(10, 1, 5.0), Training(8.0, 2.0, query_step=20.0))
        >>> 0 < found.calibration([0.0])[0].probability < 1
        True
        """
        return self.ranking.calibration(scores)


def _checked(name: str, given: Iterable[float], low: float, high: float) -> Array:
    inclusive = not np.isfinite(low)
    values = [validation.real(name, v, low=low, high=high, inclusive=inclusive) for v in given]
    return np.array(values)


def _balanced(rates: Array) -> Array:
    return np.asarray(0.5 * (1 - rates[0] + rates[1]))


def _precision(rates: Array, weights: Array) -> Array:
    """Return the precision from rates (2, ...); 1 where nothing is called positive."""
    hits, alarms = weights[0] * rates[0], weights[1] * rates[1]
    total = hits + alarms
    return np.asarray(np.divide(hits, total, out=np.ones_like(hits), where=total > 0))


def best_threshold(law: ScoreLaw, *, rough: bool = False) -> float:
    """Return the threshold of least error; far below or above all scores if one label is best.

    A search around both classes on merged points, and then Newton's method on the law itself,
    unless a `rough` answer will do.
    """
    bins = _ROUGH_BINS if rough else _FINE_BINS
    sides = [_merge(law, sign, bins) for sign in (1.0, -1.0)]
    shares = [float(law.weight[law.label == sign].sum()) for sign in (1.0, -1.0)]

    def best_of(grid: Array) -> tuple[float, float, float]:
        """Return the best of rising thresholds, and its neighbours."""
        above = [
            weight @ ndtr((mean[:, None] - grid) / spread[:, None])
            for mean, spread, weight in sides
        ]
        best = int(np.argmin(shares[0] * (1 - above[0]) + shares[1] * above[1]))
        last = len(grid) - 1
        return float(grid[best]), float(grid[max(best - 1, 0)]), float(grid[min(best + 1, last)])

    far = float(law.spread.max()) * 2 * _FARTHEST
    ends = (float(law.mean.min()) - far, float(law.mean.max()) + far)
    best, low, high = best_of(np.unique(np.concatenate([ends, *map(_around, sides)])))
    if best in ends:
        return best
    return best_of(np.linspace(low, high, 33))[0] if rough else _balance(law, best, low, high)


def _balance(law: ScoreLaw, start: float, low: float, high: float) -> float:
    """Return the threshold between two where both classes are as likely: the error has no slope.

    Newton's method, halving where it would leave the bracket or the error does not curve upwards.
    """
    scale = np.maximum(law.spread, _NARROWEST)
    signed = law.weight * law.label / scale
    accuracy = 1e-5 * float(scale.min())
    threshold = start
    for _ in range(_BALANCE_STEPS):
        ratio = (threshold - law.mean) / scale
        density = signed * normal_density(ratio)
        slope, curvature = float(density.sum()), -float(density @ (ratio / scale))
        low, high = (low, threshold) if slope > 0 else (threshold, high)
        following = threshold - slope / curvature if curvature > 0 else low
        if not low < following < high:
            following = 0.5 * (low + high)
        moved, threshold = abs(following - threshold), following
        if moved <= accuracy:
            break
    return threshold


def _around(side: tuple[Array, Array, Array]) -> Array:
    """Return thresholds around the scores of a class, six standard deviations either way."""
    mean, spread, weight = side
    centre = weight @ mean
    deviation = np.sqrt(weight @ (spread**2 + (mean - centre) ** 2))
    return np.asarray(centre + deviation * np.linspace(-6.0, 6.0, 49))


def _quantiles(mean: Array, spread: Array, weight: Array, levels: Array, steps: int) -> Array:
    """Return t (k,) with Σ weight Φ((mean - t)/spread) = level, by bisection."""
    low = np.full(len(levels), (mean - _FARTHEST * spread).min())
    high = np.full(len(levels), (mean + _FARTHEST * spread).max())
    for _ in range(steps):
        middle = 0.5 * (low + high)
        above = weight @ ndtr((mean[:, None] - middle) / spread[:, None]) > levels
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return np.asarray(0.5 * (low + high))


@dataclass(frozen=True, eq=False)
class _Rows:
    """Several laws with few points each, side by side.

    Points of one class and row lie next to each other; a row's weights sum to one in each class.

    Attributes
    ----------
    mean, spread, weight : arrays of shape (n,)
    starts : array of shape (2 rows,)
        Where the points of each class of each row begin, positives of all rows first.
    class_weights : array of shape (2,)
    """

    mean: Array
    spread: Array
    weight: Array
    starts: Array
    class_weights: Array

    @classmethod
    def merged(
        cls,
        law: ScoreLaw,
        replicated: ScoreLaw,
        moved: Sequence[ScoreLaw],
        class_weights: Array,
    ) -> "_Rows":
        """Merge points that lie close together.

        The rows are the law with fine bins, the same with rough bins, and with rough bins every
        replicate of the second law and the others, which are like the first replicate of the law.
        """
        columns, sizes = [], []
        for sign in (1.0, -1.0):
            order, key = _sorted_bins(law, sign, _FINE_BINS)
            fine = _merged(law, order, _starts(key // law.replicates))
            order, key = _sorted_bins(law, sign, _ROUGH_BINS)
            rough = _merged(law, order, _starts(key // law.replicates))
            # The same points fall into the same bins, or the bins' edges would show.
            starts = _starts(key)
            row = key[starts] % law.replicates
            by_row = np.argsort(row, kind="stable")
            parts = [column[by_row] for column in _merged(replicated, order, starts)]
            columns += [fine, rough, parts]
            sizes += [len(fine[0]), len(rough[0]), *np.bincount(row, minlength=law.replicates)]
            if moved:
                first = key % law.replicates == 0
                starts = _starts(key[first])
                means, spreads, weight = _merged(moved, order[first], starts)
                columns.append((means.ravel(), spreads.ravel(), np.tile(weight, len(moved))))
                sizes += [len(starts)] * len(moved)
        mean, spread, weight = (np.concatenate(column) for column in zip(*columns, strict=True))
        begin = np.cumsum([0, *sizes[:-1]])
        weight = weight / np.repeat(np.add.reduceat(weight, begin), sizes)
        return cls(mean, spread, weight, begin, class_weights)

    @property
    def rows(self) -> int:
        """How many laws there are."""
        return len(self.starts) // 2

    def integrals(self) -> tuple[Array, Array]:
        """Return AUC and average precision of each row (2, rows), and their resolution error (2,)."""
        auc, auc_error = self._resolved(1, self._auc)
        precision, precision_error = self._resolved(0, self._average_precision)
        return np.stack([auc, precision]), np.array([auc_error, precision_error])

    def _resolved(
        self, side: int, integral: Callable[[Array, Array], Array]
    ) -> tuple[Array, float]:
        """Integrate over the window of a class with more and more nodes."""
        low, high = self._window(side)
        count, known, before = _FIRST_NODES, None, None
        while True:
            nodes = 0.5 * (low + high) + 0.5 * (high - low) * _nodes(count)
            if known is None:
                known = self._quantiles(nodes)
                before = integral(*_on_fine_grid(known[:, :, ::2]))
            else:
                finer = np.empty((*known.shape[:2], count))
                finer[:, :, ::2], finer[:, :, 1::2] = known, self._quantiles(nodes[1::2])
                known = finer
            values = integral(*_on_fine_grid(known))
            error = float(np.abs(values - before)[0])
            if error <= _ACCURACY or count >= _MOST_NODES:
                return values, error
            before, count = values, 2 * count - 1

    def _auc(self, quantiles: Array, slopes: Array) -> Array:
        """Return ∫ recall d(false-alarm rate)."""
        recall, alarms = quantiles
        density = normal_density(alarms) * -slopes[1]
        inner = (ndtr(recall) * density) @ _fine_weights()
        # What the window leaves out below and above.
        below = ndtr(-alarms[:, 0]) * ndtr(recall[:, 0])
        above = 0.5 * ndtr(alarms[:, -1]) * ndtr(recall[:, -1])
        return np.asarray(inner + below + above)

    def _average_precision(self, quantiles: Array, slopes: Array) -> Array:
        """Return ∫ precision d(recall)."""
        recall, alarms = quantiles
        odds = np.log(self.class_weights[1] / self.class_weights[0])
        precision = expit(log_ndtr(recall) - log_ndtr(alarms) - odds)
        inner = (precision * normal_density(recall) * -slopes[0]) @ _fine_weights()
        below = precision[:, 0] * ndtr(-recall[:, 0])
        above = precision[:, -1] * ndtr(recall[:, -1])
        return np.asarray(inner + below + above)

    def _window(self, side: int) -> tuple[float, float]:
        """Return thresholds between which almost all of a class lies, from the second, rough row."""
        first = side * self.rows + 1
        stop = self.starts[first + 1] if first + 1 < len(self.starts) else len(self.mean)
        chosen = slice(self.starts[first], stop)
        columns = (self.mean[chosen], self.spread[chosen], self.weight[chosen])
        low, high = _quantiles(*columns, np.array([1 - _TAIL, _TAIL]), _BISECTIONS)
        return float(low), float(high)

    def _quantiles(self, thresholds: Array) -> Array:
        """Return the normal quantiles of recall and false-alarm rate, (2, rows, k).

        They are smooth functions of the threshold, nearly straight lines, which a few nodes
        follow into the far tails.
        """
        above = ndtr((self.mean[:, None] - thresholds) / self.spread[:, None])
        above *= self.weight[:, None]
        rates = np.add.reduceat(above, self.starts, axis=0)
        # Beyond the upper end a rate is 1 to the last digit.
        quantiles = np.clip(ndtri(np.minimum(rates, 1.0)), -_FARTHEST, _LAST_DIGIT)
        return np.asarray(quantiles.reshape(2, self.rows, -1))


def _merge(law: ScoreLaw, sign: float, bins: tuple[float, float]) -> tuple[Array, Array, Array]:
    """Return (mean, spread, weight) of a class, with close points made one; the weights sum to 1."""
    order, key = _sorted_bins(law, sign, bins)
    mean, spread, weight = _merged(law, order, _starts(key // law.replicates))
    return mean, spread, weight / weight.sum()


def _sorted_bins(law: ScoreLaw, sign: float, bins: tuple[float, float]) -> tuple[Array, Array]:
    """Return the points of a class in the order of their bins, and a number for each.

    It is `replicates` times that of the bin, plus that of the replicate.
    """
    chosen = np.flatnonzero(law.label == sign)
    level = np.floor(np.log(np.maximum(law.spread[chosen], _NARROWEST)) / bins[1])
    place = np.floor(law.mean[chosen] / (bins[0] * np.exp(level * bins[1])))
    # One integer for each bin; a spread that small beside its mean is as good as none.
    place = np.clip(place, -(2**24), 2**24) + 2**24
    key = ((level + 2**16).astype(np.int64) << 26) + place.astype(np.int64)
    key = key * law.replicates + chosen // (len(law.mean) // law.replicates)
    order = np.argsort(key)
    return chosen[order], key[order]


def _starts(key: Array) -> Array:
    """Return where the runs of equal numbers begin."""
    return np.flatnonzero(np.concatenate([[True], key[1:] != key[:-1]]))


def _merged(
    laws: ScoreLaw | Sequence[ScoreLaw], order: Array, starts: Array
) -> tuple[Array, Array, Array]:
    """Return mean, spread, (laws, bins), and weight, (bins,), of runs of points made one each.

    A group of normal laws becomes one normal law of the same weight, mean and variance. Several
    laws have the same weights; without several the first axis is left out.
    """
    same = laws if isinstance(laws, ScoreLaw) else laws[0]
    if isinstance(laws, ScoreLaw):
        mean, spread = laws.mean[order], laws.spread[order]
    else:
        mean, spread = (
            np.stack([column[order] for column in columns])
            for columns in zip(*((law.mean, law.spread) for law in laws), strict=True)
        )
    weight = same.weight[order]
    total = np.add.reduceat(weight, starts)
    centre = np.add.reduceat(weight * mean, starts, axis=-1) / total
    offset = mean - np.repeat(centre, np.diff(starts, append=len(order)), axis=-1)
    squares = np.maximum(spread, _NARROWEST) ** 2 + offset**2
    variance = np.add.reduceat(weight * squares, starts, axis=-1) / total
    return centre, np.maximum(np.sqrt(variance), _NARROWEST), total


@lru_cache
def _nodes(count: int) -> Array:
    """Return the Chebyshev points with both ends, rising; every other one is a node of half."""
    return np.asarray(-np.cos(np.pi * np.arange(count) / (count - 1)))


@lru_cache
def _node_maps(count: int) -> tuple[Array, Array]:
    """Return matrices that take values at the nodes to values and slopes on the fine grid."""
    to_coefficients = np.linalg.inv(chebyshev.chebvander(_nodes(count), count - 1))
    grid = _fine_grid()
    values = chebyshev.chebvander(grid, count - 1) @ to_coefficients
    derivative = chebyshev.chebder(to_coefficients)
    slopes = chebyshev.chebvander(grid, count - 2) @ derivative
    return values.T, slopes.T


def _fine_grid() -> Array:
    return 2 * legendre(_FINE_NODES)[0] - 1


def _fine_weights() -> Array:
    return 2 * legendre(_FINE_NODES)[1]


def _on_fine_grid(quantiles: Array) -> tuple[Array, Array]:
    """Return values and slopes (in units of half the window) on the fine grid, (2, rows, grid)."""
    values, slopes = _node_maps(quantiles.shape[2])
    return quantiles @ values, quantiles @ slopes
