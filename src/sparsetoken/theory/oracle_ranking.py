"""How well a classifier that knows the signal ranks sequences (docs/theory.md, section 2)."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import optimize
from scipy.special import ndtr

from sparsetoken import validation
from sparsetoken.arrays import Array
from sparsetoken.numerics.memory import path_memory
from sparsetoken.numerics.threads import one_thread
from sparsetoken.task import Task
from sparsetoken.theory.replicates import replicate_error
from sparsetoken.theory.scores import (
    Scores,
    TokenSample,
    attention_scores,
    likelihood_ratio_scores,
)

__all__ = ["RANKINGS", "BestRanking", "best_ranking"]

# Points a label and replicate, as powers of two: to choose the sharpness, and for the answer, from
# other points than those.
_SEARCH_SIZE, _SIZE = 9, 13
_SEARCH_STREAM, _STREAM = 5, 6
_SHARPNESSES = np.geomspace(1e-2, 100.0, 17)
# Below this points that reach far into the tails are worth their price.
_RARE = 0.01
# Of the likelihood ratio with several informative tokens: products of points and tokens.
_BAYES_BUDGET = 1e7


@dataclass(frozen=True)
class BestRanking:
    """The least share of pairs, a positive and a negative sequence, in the wrong order: 1 - AUC.

    Attributes
    ----------
    misranked : float
    sharpness : float or None
        The best κ, for attention.
    uncertainty : float
        Numerical error bar.
    """

    misranked: float
    sharpness: float | None
    uncertainty: float


@one_thread
@path_memory()
def best_ranking(task: Task, classifier: str) -> BestRanking:
    """Return 1 - AUC of "attention" at its best sharpness, of "pooled", "vectorised" or "bayes"."""
    ranking = RANKINGS[validation.choice("classifier", classifier, RANKINGS)]
    found = ranking(task, False)
    return ranking(task, True) if found.misranked < _RARE else found


def _linear(task: Task, _rare: bool) -> BestRanking:
    # Scores are N(0, 1) or N(Δ, 1), Δ = θR/√L.
    shifts = task.strength * task.counts.values / np.sqrt(task.length)
    return BestRanking(float(task.counts.probability @ ndtr(-shifts / np.sqrt(2))), None, 0.0)


def _attention(task: Task, rare: bool) -> BestRanking:
    few = TokenSample(task, _SEARCH_SIZE, stream=_SEARCH_STREAM, rare=rare)

    def misranked(log_sharpness: float) -> float:
        scores = attention_scores(few, task.strength, float(np.exp(log_sharpness)))
        return float(_misranked(scores).mean())

    grid = np.log(_SHARPNESSES)
    best = int(np.argmin([misranked(value) for value in grid]))
    bounds = (grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)])
    found = optimize.minimize_scalar(misranked, bounds=bounds, method="bounded")
    sharpness = float(np.exp(found.x))
    many = TokenSample(task, _SIZE, stream=_STREAM, rare=rare)
    return _ranking(attention_scores(many, task.strength, sharpness), sharpness)


def _bayes(task: Task, rare: bool) -> BestRanking:
    most = int(task.counts.values[-1])
    work = task.length * most if most > 1 else 1
    size = int(np.clip(np.log2(_BAYES_BUDGET / work), 5, _SIZE))
    points = TokenSample(task, size, stream=_STREAM, rare=rare)
    return _ranking(likelihood_ratio_scores(points, task.strength), None)


# For a task, on points that reach far into the tails or not.
RANKINGS: dict[str, Callable[[Task, bool], BestRanking]] = {
    "attention": _attention,
    "pooled": _linear,
    "vectorised": _linear,
    "bayes": _bayes,
}


def _ranking(scores: Scores, sharpness: float | None) -> BestRanking:
    replicates = _misranked(scores)
    return BestRanking(float(replicates.mean()), sharpness, replicate_error(replicates))


def _misranked(scores: Scores) -> Array:
    """Return the weight of pairs in which the negative's score is the larger, in each replicate."""
    shares = []
    for positive, weight, negative, other in zip(
        scores.positive,
        scores.positive_weight,
        scores.negative,
        scores.negative_weight,
        strict=True,
    ):
        order = np.argsort(negative)
        # Summed from the top, so that small shares keep their digits.
        above = np.append(np.cumsum(other[order][::-1])[::-1], 0.0) / len(other)
        places = np.searchsorted(negative[order], positive)
        shares.append(float(np.mean(weight * above[places])))
    return np.array(shares)
