"""How well scores rank sequences, for rare positives above all (docs/theory.md, section 12.1).

The score of a fresh sequence is s = m + σG given a point of the law of its features, with G standard
normal. Recall and false-alarm rate at a threshold t are the means of Φ((m - t)/σ) over positives and
over negatives, and everything else follows from these two functions of t.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import expit, ndtr, ndtri

from sparsetoken import validation
from sparsetoken.arrays import Array
from sparsetoken.records import UNCERTAINTY, Curve, Record
from sparsetoken.theory.feature_law import ScoreLaw
from sparsetoken.theory.merged_scores import NARROWEST, ranking_integrals
from sparsetoken.theory.replicates import replicate_error
from sparsetoken.theory.thresholds import densities, first_replicate, rates, thresholds_at

__all__ = [
    "CalibrationPoint",
    "OperatingPoint",
    "Ranked",
    "Ranking",
]

_CURVE_POINTS = 61

# The threshold of the trained classifier: its bias is part of the score.
_TRAINED = np.zeros(1)


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
    alternatives : tuple of ScoreLaw
        The first replicate of `law`, with each of other readouts that are as good.

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
    alternatives: tuple[ScoreLaw, ...] = ()

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

        Parameters
        ----------
        recall : float in (0, 1)

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

        Parameters
        ----------
        rate : float in (0, 1)

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

        Parameters
        ----------
        threshold : float
            Scores above it are called positive.

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

        Parameters
        ----------
        false_alarm_rates : iterable of float in (0, 1), optional

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

        Parameters
        ----------
        recalls : iterable of float in (0, 1), optional

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

        Parameters
        ----------
        scores : iterable of float, optional
            Where; by default 61 values over the range that holds 99.8 % of all scores.

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
            ends = [thresholds_at(self.law, np.array([0.001, 0.999]), side) for side in (0, 1)]
            points = np.linspace(np.min(ends), np.max(ends), _CURVE_POINTS)
        else:
            points = _checked("scores", scores, -np.inf, np.inf)
        weights = self._class_weights[:, None]

        def probability(law: ScoreLaw) -> Array:
            joint = weights[..., None] * densities(law, points)
            return np.asarray(joint[0] / np.maximum(joint.sum(axis=0), NARROWEST))

        joint = weights * densities(self.law, points).mean(axis=1)
        density = joint.sum(axis=0)
        values = joint[0] / np.maximum(density, NARROWEST)
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
        if self.shifted or self.alternatives:
            reference = quantity(self._first)[0]
            bars += sum(np.abs(quantity(law)[0] - reference) for law in self.shifted)
            others = [np.abs(quantity(law)[0] - reference) for law in self.alternatives]
            bars += np.max(others, axis=0, initial=0.0)
        return bars

    @cached_property
    def _first(self) -> ScoreLaw:
        return first_replicate(self.law)

    def _levels(self, name: str, given: Iterable[float] | None, side: int) -> Array:
        if given is not None:
            return _checked(f"{name}s", given, 0.0, 1.0)
        # Evenly spaced in the normal quantile, where a curve of two normal laws is straight, down
        # to where a tenth of the rarer class is left, or fewer.
        least = min(0.001, 0.1 * self._class_weights.min()) if side else 0.001
        return np.asarray(ndtr(np.linspace(ndtri(least), ndtri(0.999), _CURVE_POINTS)))

    def _operating_points(self, levels: Array, side: int) -> list[OperatingPoint]:
        return self._points(thresholds_at(self.law, levels, side), side)

    def _points(self, thresholds: Array, side: int | None) -> list[OperatingPoint]:
        """Return operating points; the rate of class `side` is given, and has no error bar."""
        centre = rates(self.law, thresholds).mean(axis=1)
        slopes = np.maximum(densities(self.law, thresholds).mean(axis=1), NARROWEST)
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

    @cached_property
    def _integrals(self) -> dict[str, tuple[float, float]]:
        """AUC and average precision with their error bars."""
        moved = (self._first, *self.shifted) if self.shifted else ()
        return ranking_integrals(self.law, self.replicated, moved, self._class_weights)


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

        Parameters
        ----------
        recall : float in (0, 1)

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

        Parameters
        ----------
        rate : float in (0, 1)

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

        Parameters
        ----------
        false_alarm_rates : iterable of float in (0, 1), optional

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

        Parameters
        ----------
        recalls : iterable of float in (0, 1), optional

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

        Parameters
        ----------
        scores : iterable of float, optional
            Where; by default 61 values over the range that holds 99.8 % of all scores.

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
    values = validation.several(name, given, "numbers")
    return np.array(
        [validation.real(name, one, low=low, high=high, inclusive=inclusive) for one in values]
    )


def _balanced(rates: Array) -> Array:
    return np.asarray(0.5 * (1 - rates[0] + rates[1]))


def _precision(rates: Array, weights: Array) -> Array:
    """Return the precision from rates (2, ...); 1 where nothing is called positive."""
    hits, alarms = weights[0] * rates[0], weights[1] * rates[1]
    total = hits + alarms
    return np.asarray(np.divide(hits, total, out=np.ones_like(hits), where=total > 0))
