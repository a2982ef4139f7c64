"""Whether attention looks at the right token (docs/theory.md, section 12.2).

The score of a token along the query is θγ + N(0, 1) if it is informative and N(0, 1) if not, so that
ranks among tokens are integrals over two normal laws. They depend on the query's alignment γ alone;
how much weight the softmax puts on the informative tokens depends on its sharpness too.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from scipy.special import betaincc, log_ndtr, ndtr, ndtri

from sparsetoken import validation
from sparsetoken.numerics.memory import path_memory
from sparsetoken.numerics.quadrature import panels
from sparsetoken.records import Curve, Record
from sparsetoken.task import Query, Task, Training
from sparsetoken.theory.alignment import align
from sparsetoken.theory.attention_law import softmax_triples
from sparsetoken.theory.mixture import label_strata
from sparsetoken.theory.replicates import REPLICATES, replicate_error
from sparsetoken.theory.token_law import draw_tokens
from sparsetoken.validation import ParameterError

__all__ = ["FreeResponse", "Localisation", "hit_rate", "localise"]

# Points a replicate for the attended mass, as a power of two.
_SIZE = 12

# A hit rate is one integral of a smooth function: panels and their nodes, which leave its rounding.
_PANELS = 24
_ORDER = 16
_ROUNDING = 1e-12
# Twenty for each factor of ten of false alarms.
_CURVE_POINTS = 61


@dataclass(frozen=True)
class FreeResponse(Record):
    """What calling every token with a score ⟨x, q̂⟩ above a threshold gives.

    Attributes
    ----------
    threshold : float
    false_alarms : float
        Tokens called without reason, per sequence.
    token_recall : float
        Fraction of the informative tokens that are called.
    hit_rate : float
        Fraction of the positive sequences with at least one informative token called.

    Examples
    --------
    >>> from sparsetoken import Query, Task, localise
    >>> found = localise(Task(10, 1, 5.0), query=Query(alignment=0.9, sharpness=3.0))
    >>> point = found.free_response([0.1])[0]
    >>> point
    FreeResponse(threshold=2.307039259392826, false_alarms=0.1, token_recall=0.985844896103331, hit_rate=0.985844896103331)
    """

    threshold: float
    false_alarms: float
    token_recall: float
    hit_rate: float


@dataclass(frozen=True)
class Localisation(Record):
    """How well a query finds the informative tokens of a positive sequence.

    Attributes
    ----------
    attended_mass : float
        Mean weight of the softmax on the informative tokens together; none in a positive without.
    hit_rate : float
        Probability that the most attended token of a positive is informative.
    uncertainty : dict
        Numerical error bars.
    query : Query
    task : Task
        What the sequences are drawn from.

    Examples
    --------
    >>> from sparsetoken import Query, Task, localise
    >>> found = localise(Task(10, 1, 5.0), query=Query(alignment=0.9, sharpness=3.0))
    >>> found.top(3) > found.hit_rate
    True
    """

    attended_mass: float
    hit_rate: float
    uncertainty: dict[str, float]
    query: Query = field(repr=False)
    task: Task = field(repr=False)

    def top(self, count: int) -> float:
        """Return the probability that one of the `count` most attended tokens is informative.

        Parameters
        ----------
        count : int >= 1

        Returns
        -------
        float

        Examples
        --------
        >>> from sparsetoken import Query, Task, localise
        >>> found = localise(Task(10, 1, 5.0), query=Query(alignment=0.5, sharpness=3.0))
        >>> round(found.top(1), 3), round(found.top(3), 3)
        (0.809, 0.961)
        """
        return hit_rate(self.task, self.query.alignment, count)

    def free_response(self, false_alarms: Iterable[float] | None = None) -> Curve[FreeResponse]:
        """Return hits against false alarms per sequence, at the given numbers of false alarms.

        Parameters
        ----------
        false_alarms : iterable of float, optional
            Numbers per sequence: more than 0, less than there are tokens without signal.

        Returns
        -------
        Curve of FreeResponse

        Examples
        --------
        >>> from sparsetoken import Query, Task, localise
        >>> found = localise(Task(10, 1, 5.0), query=Query(alignment=0.9, sharpness=3.0))
        >>> [round(one, 3) for one in found.free_response([0.01, 0.1]).column("hit_rate")]
        [0.923, 0.986]
        """
        task = self.task
        known = task.counts
        others = task.length - task.positive_rate * known.mean
        if false_alarms is None:
            values = np.geomspace(1e-3, 0.5 * others, _CURVE_POINTS)
        else:
            values = np.array(
                [
                    validation.real("false_alarms", value, low=0, high=others, inclusive=False)
                    for value in validation.several("false_alarms", false_alarms, "numbers")
                ]
            )
        thresholds = -ndtri(values / others)
        shift = task.strength * self.query.alignment
        recall = ndtr(shift - thresholds)
        missed = np.multiply.outer(known.values, log_ndtr(thresholds - shift))
        hits = -known.probability @ np.expm1(missed)
        points = [
            FreeResponse(*map(float, point))
            for point in zip(thresholds, values, recall, hits, strict=True)
        ]
        settings = {**task.to_dict(), **self.query.to_dict()}
        return Curve(
            "false_alarms", tuple(map(float, values)), tuple(points), settings, "token_recall"
        )


@path_memory()
def localise(
    task: Task,
    training: Training | None = None,
    *,
    query: Query | None = None,
    at: Task | None = None,
    at_sharpness: float | None = None,
) -> Localisation:
    """Predict how well attention finds the informative tokens.

    Parameters
    ----------
    task : Task
    training : Training, optional
        How the query is learnt; refused together with a query.
    query : Query, optional
    at : Task, optional
        Where to look: sequences of another task than that of training.
    at_sharpness : float, optional
        Another sharpness κ of the softmax; infinity picks the largest score.

    Returns
    -------
    Localisation

    Examples
    --------
    >>> from sparsetoken import Query, Task, localise
    >>> found = localise(Task(10, 1, 5.0), query=Query(alignment=0.9, sharpness=3.0))
    >>> round(found.hit_rate, 3), round(found.attended_mass, 3)
    (0.994, 0.986)
    """
    validation.instance("task", task, Task)
    validation.instance("training", training, Training, optional=True)
    validation.instance("query", query, Query, optional=True)
    validation.instance("at", at, Task, optional=True)
    if at_sharpness is not None:
        validation.real("at_sharpness", at_sharpness, low=0, infinite=True)
    if query is not None and training is not None:
        raise ParameterError("training", training, "None: the query is given")
    if query is None:
        if training is None:
            raise ParameterError("query", None, "a Query, or a Training to learn it with")
        query = align(task, training).query
    seen = at or task
    used = query if at_sharpness is None else query.replace(sharpness=at_sharpness)
    hits = hit_rate(seen, used.alignment)
    mass, bar = (hits, _ROUNDING) if used.is_hard else _attended_mass(seen, used)
    bars = {"attended_mass": bar, "hit_rate": _ROUNDING}
    return Localisation(mass, hits, bars, query=used, task=seen)


def _attended_mass(task: Task, query: Query) -> tuple[float, float]:
    """Return E₊ A, the mean over quasi-random points, and its error."""
    means = np.zeros(REPLICATES)
    for part in label_strata(task, 1, _SIZE):
        for index in range(REPLICATES):
            tokens = draw_tokens(part.counts, part.log2_points, (4, index, *part.stream))
            means[index] += part.weight * softmax_triples(task, query, tokens)[0].mean()
    return float(means.mean()), replicate_error(means)


def hit_rate(task: Task, alignment: float, count: int = 1) -> float:
    """Return the probability that one of the `count` highest token scores is an informative one's.

    A mean over the numbers R of informative tokens; there is none to hit for R = 0. The highest of R informative scores is θγ + u with a density R φ(u) Φ(u)^(R-1); of the L - R
    others, each is above it with probability Φ(-θγ - u), and fewer than `count` may be.
    """
    alignment = validation.real("alignment", alignment, low=-1, high=1)
    count = validation.integer("count", count, low=1)
    shift = task.strength * alignment
    return sum(
        chance * _hit_rate(number, task.length - number, shift, count)
        for number, chance in task.counts
    )


def _hit_rate(informative: int, others: int, shift: float, count: int) -> float:
    """Return the hit rate with a given number of informative tokens."""
    if informative == 0 or count > others:
        return float(informative > 0)
    # The density of the highest is cut where its distribution function is 1e-17 from its ends,
    # and the other factor rises within a few units of where `count` others are expected above.
    ends = ndtri(np.exp(np.log([1e-17, 0.5]) / informative))[0], -ndtri(1e-17 / informative)
    rise = -ndtri(min(count / others, 0.5)) - shift
    cuts = np.concatenate(
        [np.linspace(*ends, _PANELS + 1), np.clip(rise + np.linspace(-8, 4, _PANELS), *ends)]
    )
    nodes, weights = panels(np.sort(cuts), _ORDER)
    density = informative * np.exp(-0.5 * nodes**2 + (informative - 1) * log_ndtr(nodes))
    density /= np.sqrt(2 * np.pi)
    fewer = betaincc(count, others - count + 1, ndtr(-nodes - shift))
    return float(np.clip(weights @ (density * fewer), 0.0, 1.0))
