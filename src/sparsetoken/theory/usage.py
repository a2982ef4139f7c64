"""How a trained classifier is used: on which task, how sharp, with which bias.

The trained readout stays what it is. Its scores on other sequences, or with another sharpness of the
softmax, are exact as well (docs/theory.md, section 12.3), and so is the choice of a better sharpness
and a better bias: two numbers.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import ndtr

from sparsetoken import validation
from sparsetoken.arrays import Array
from sparsetoken.task import Query, Task, vary
from sparsetoken.theory.feature_law import FeatureLaw, ScoreLaw, score_law
from sparsetoken.theory.ranking import Ranking
from sparsetoken.theory.thresholds import best_threshold, replicate_shifts
from sparsetoken.theory.trained_readout import LimitReadout
from sparsetoken.validation import ParameterError

__all__ = ["Tested", "Usage", "best_sharpness", "recalibrated"]

BEST = "best"

# Place of the bias among the weights of a readout.
BIAS = -2

# Where the best sharpness is looked for, beside the trained one and infinity, and with how many
# points a class and replicate, as a power of two. A query that points away from the signal is best
# left out, by a sharpness of 0.
_SHARPNESS_GRID = np.array([0.0, *np.geomspace(0.03, 30.0, 10)])
_LEAST_SHARPNESS = 1e-3
_SEARCH_SIZE = 7
# Around a best sharpness that is known from a similar problem: steps of the logarithm, and where else
# another least error would show. One parabola alone is 3 % off, which without a new bias is several
# error bars.
_NEAR_STEPS = (0.3, 0.05)
_FAR_SHARPNESSES = (0.0, 0.1, 0.5, 2.0, 8.0, np.inf)
# The error is flat around the best sharpness: this much of its logarithm changes nothing.
_LOG_ACCURACY = 0.02


@dataclass(frozen=True)
class Usage:
    """How a trained classifier is used.

    Attributes
    ----------
    at : Task or None
        The task that it is tested on; None for that of training.
    sharpness : float, "best" or None
        Sharpness κ of the softmax, infinite for the largest score alone; the one of least error;
        or that of training.
    recalibrate : bool
        Whether the bias is the one of least error, instead of that of training.
    """

    at: Task | None = None
    sharpness: float | str | None = None
    recalibrate: bool = False

    def __post_init__(self) -> None:
        validation.instance("at", self.at, Task, optional=True)
        validation.boolean("recalibrate", self.recalibrate)
        if isinstance(self.sharpness, str):
            if self.sharpness != BEST:
                accepted = f"a number >= 0, infinity or {BEST!r}"
                raise ParameterError("at_sharpness", self.sharpness, accepted)
        elif self.sharpness is not None:
            validation.real("at_sharpness", self.sharpness, low=0, infinite=True)

    @property
    def differs(self) -> bool:
        """Whether the law of the features is another one than in training."""
        return self.at is not None or self.sharpness is not None

    def varied(self, name: str, value: Any, task: Task) -> "Usage":
        """Return the usage with another sharpness, or with a field of the task at test time changed.

        That task is the one of training unless another was given.
        """
        if name == "sharpness":
            return replace(self, sharpness=value)
        (at,) = vary(name, value, self.at or task)
        return replace(self, at=at)

    def check(self, takes_query: bool, classifier: str) -> None:
        """Refuse a sharpness for a classifier without a query."""
        if self.sharpness is not None and not takes_query:
            accepted = f"None: a {classifier} classifier has no softmax"
            raise ParameterError("at_sharpness", self.sharpness, accepted)


@dataclass(frozen=True, eq=False)
class Tested:
    """A readout and the law of the features that it meets, which is made again when needed.

    Attributes
    ----------
    law : callable
        Gives the `FeatureLaw`.
    weights : array of shape (k + 2,)
        (μ_1 … μ_k, b, ν).
    replicate_weights : array of shape (replicates, k + 2)
        The same from each replicate of the training law.
    weights_error : array of shape (k + 2,)
        Numerical error of the weights.
    alternatives : array of shape (m, k + 2), or None
        Other weights that are as good.
    """

    law: Callable[[], FeatureLaw]
    weights: Array
    replicate_weights: Array
    weights_error: Array
    alternatives: Array | None = None

    def ranking(self) -> Ranking:
        """Return the ranking quantities of the scores."""
        law = self.law()
        replicates = self.replicate_weights if law.replicates > 1 else self.weights
        moved = self.weights + np.diag(self.weights_error)[self.weights_error > 0]
        others = () if self.alternatives is None else self.alternatives
        first = law.first_replicate
        return Ranking(
            score_law(law, self.weights),
            score_law(law, replicates),
            tuple(score_law(first, row) for row in moved),
            tuple(score_law(first, row) for row in others),
        )


def recalibrated(readout: LimitReadout, law: FeatureLaw) -> LimitReadout:
    """Return the readout with the bias of least error on features with this law.

    Each replicate has its own; a bias that training left open is settled.
    """
    change = best_threshold(score_law(law, readout.weights))
    weights, replicates = readout.weights.copy(), readout.replicate_weights.copy()
    weights[BIAS] -= change
    replicates[:, BIAS] -= change
    if law.replicates > 1:
        replicates[:, BIAS] -= replicate_shifts(score_law(law, replicates), 0.0)
    return replace(readout, weights=weights, replicate_weights=replicates, alternatives=None)


def best_sharpness(
    law: Callable[[Query, int], FeatureLaw],
    weights: Array,
    query: Query,
    *,
    recalibrate: bool,
    near: float | None = None,
) -> float:
    """Return the sharpness of least error for a readout, with its own bias or the best one.

    Parameters
    ----------
    law : callable
        law(query, log2_points) gives the law of the features.
    near : float, optional
        The best sharpness of a similar problem: it is looked for around that first, and everywhere
        only if it is not there, or one far from it is better.
    """

    def error(sharpness: float) -> float:
        seen = law(query.replace(sharpness=sharpness), _SEARCH_SIZE)
        scores = score_law(seen, weights)
        threshold = best_threshold(scores, rough=True) if recalibrate else 0.0
        return _error(scores, threshold)

    if near is not None and 0 < near < np.inf:
        found = _around(error, near)
        if found is not None:
            return found
    grid = np.union1d(_SHARPNESS_GRID, [query.sharpness])
    grid = grid[np.isfinite(grid)]
    errors = [error(float(value)) for value in grid]
    best = int(np.argmin(errors))
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    from scipy import optimize  # takes longer to load than all of theory

    found = optimize.minimize_scalar(
        lambda logarithm: error(float(np.exp(logarithm))),
        bounds=np.log(np.maximum([low, high], [_LEAST_SHARPNESS, 2 * _LEAST_SHARPNESS])),
        method="bounded",
        options={"maxiter": 14, "xatol": _LOG_ACCURACY},
    )
    value, least = float(np.exp(found.x)), float(found.fun)
    if errors[best] <= least:
        value, least = float(grid[best]), errors[best]
    return np.inf if error(np.inf) < least else value


def _around(error: Callable[[float], float], near: float) -> float | None:
    """Return the sharpness of least error around another, None if the least error is elsewhere.

    The lowest point of a parabola, and of a narrower one there; a few far ones show that it is the lowest.
    """
    value = near
    for step in _NEAR_STEPS:
        places = value * np.exp(step * np.array([-1.0, 0.0, 1.0]))
        errors = [error(float(place)) for place in places]
        curvature, slope = errors[0] - 2 * errors[1] + errors[2], errors[2] - errors[0]
        if not abs(slope) < 2 * curvature:
            return None
        value *= float(np.exp(-0.5 * step * slope / curvature))
    least = error(value)
    reach = float(np.exp(2 * _NEAR_STEPS[0]))
    far = [other for other in _FAR_SHARPNESSES if not value / reach <= other <= value * reach]
    return value if least <= min(*errors, *map(error, far)) else None


def _error(scores: ScoreLaw, threshold: float) -> float:
    excess = scores.label * (threshold - scores.mean)
    return float(scores.weight @ ndtr(excess / scores.spread))
