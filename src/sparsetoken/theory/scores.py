"""Scores of sequences for a classifier that knows the signal (docs/theory.md, section 2).

Only the projections x_l = ⟨X_l, ξ⟩ = θ v_l + u_l of the tokens matter, with u_l standard normal.
Scores come for both labels at the same quasi-random points whatever θ and κ, so that errors are
smooth functions of both.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, gammaln

from sparsetoken.arrays import Array
from sparsetoken.numerics.quadrature import normal_density
from sparsetoken.task import Task
from sparsetoken.theory.replicates import REPLICATES
from sparsetoken.theory.token_law import TokenGroup, draw_tokens, exponential_sums
from sparsetoken.validation import ParameterError

__all__ = [
    "NONLINEARITIES",
    "Scores",
    "attention_scores",
    "elementwise_scores",
    "likelihood_ratio_scores",
]

NONLINEARITIES = ("sigmoid", "tanh", "linear", "exp")

# Up to this length every token is drawn for sums that the largest tokens do not dominate.
_ALL_TOKENS = 256
_SOME_TOKENS = 64


@dataclass(frozen=True)
class Scores:
    """Scores of positive and negative sequences, each of shape (replicates, points)."""

    positive: Array
    negative: Array


def _both_labels(
    task: Task,
    log2_points: int,
    score: Callable[[tuple[TokenGroup, ...], float], Array],
    most: int,
) -> Scores:
    """Apply score(token groups, signal) to sequences of either label, replicate by replicate."""
    counts = {
        1: (task.informative, task.length - task.informative),
        -1: (0, task.length),
    }
    columns = [
        np.stack(
            [
                score(draw_tokens(groups, log2_points, (2, index, label + 1), most), task.strength)
                for index in range(REPLICATES)
            ]
        )
        for label, groups in counts.items()
    ]
    return Scores(*columns)


def attention_scores(task: Task, sharpness: float, log2_points: int) -> Scores:
    """Return T = Σ_l softmax(κx)_l x_l."""

    def score(tokens: tuple[TokenGroup, ...], strength: float) -> Array:
        sums = exponential_sums(tokens, sharpness, (sharpness * strength, 0.0))
        marked, noise, _ = sums.softmax_triple()
        return np.asarray(strength * marked + noise)

    return _both_labels(task, log2_points, score, most=_SOME_TOKENS // 2)


def elementwise_scores(task: Task, sharpness: float, nonlinearity: str, log2_points: int) -> Scores:
    """Return (1/L) Σ_l σ(κ x_l) x_l; for exp its logarithm, which orders sequences alike."""
    if nonlinearity == "exp":
        return _both_labels(task, log2_points, _log_exponential_score(task, sharpness), most=32)
    functions: dict[str, Callable[[Array], Array]] = {
        "sigmoid": lambda x: expit(sharpness * x) * x,
        "tanh": lambda x: np.tanh(sharpness * x) * x,
        "linear": lambda x: x**2,
    }
    function = functions[nonlinearity]

    def score(tokens: tuple[TokenGroup, ...], strength: float) -> Array:
        total = np.zeros(len(tokens[0].values))
        for group, shift in zip(tokens, (strength, 0.0), strict=True):
            total += function(group.values + shift).sum(axis=1)
            if group.rest:
                total += _rest_sum(function, group, shift)
        return np.asarray(total / task.length)

    most = _ALL_TOKENS if task.length <= _ALL_TOKENS else _SOME_TOKENS
    return _both_labels(task, log2_points, score, most)


def _log_exponential_score(
    task: Task, sharpness: float
) -> Callable[[tuple[TokenGroup, ...], float], Array]:
    def score(tokens: tuple[TokenGroup, ...], strength: float) -> Array:
        sums = exponential_sums(tokens, sharpness, (sharpness * strength, 0.0))
        total = (sums.first + strength * sums.marked) / task.length
        # A sum below zero, with every token negative, comes last in any order.
        logarithm = np.log(np.where(total > 0, total, 1.0))
        return np.asarray(np.where(total > 0, sums.peak + logarithm, -np.inf))

    return score


def _rest_sum(function: Callable[[Array], Array], group: TokenGroup, shift: float) -> Array:
    """Return the sum of function(u + shift) over tokens below the last kept, to normal accuracy."""
    grid = np.linspace(-9.0, 9.0, 8001)
    spacing = grid[1] - grid[0]
    values, density = function(grid + shift), normal_density(grid)
    columns = np.stack([np.ones_like(grid), values, values**2]) * density
    below = np.cumsum(columns, axis=1) * spacing - 0.5 * spacing * columns
    top = group.values[:, -1]
    mass, first, second = (np.interp(top, grid, column) for column in below)
    mean = first / mass
    variance = np.maximum(second / mass - mean**2, 0.0)
    return np.asarray(group.rest * mean + np.sqrt(group.rest * variance) * group.normals[:, 0])


def likelihood_ratio_scores(task: Task, log2_points: int) -> Scores:
    """Return the log-likelihood ratio, of positive against negative.

    It is the log of the mean over R-subsets of exp(θ Σ x - Rθ²/2): an elementary symmetric
    polynomial of the exp(θx_l).
    """
    if task.informative == 1:
        return _both_labels(task, log2_points, _one_token_ratio(task), most=_SOME_TOKENS // 2)
    if task.length > 4096:
        raise ParameterError("length", task.length, "at most 4096 for 'bayes' with informative > 1")
    return _both_labels(task, log2_points, _subset_ratio(task), most=task.length)


def _one_token_ratio(task: Task) -> Callable[[tuple[TokenGroup, ...], float], Array]:
    def score(tokens: tuple[TokenGroup, ...], strength: float) -> Array:
        sums = exponential_sums(tokens, strength, (strength**2, 0.0))
        return np.asarray(sums.peak + np.log(sums.total) - np.log(task.length) - 0.5 * strength**2)

    return score


def _subset_ratio(task: Task) -> Callable[[tuple[TokenGroup, ...], float], Array]:
    order, length = task.informative, task.length
    subsets = gammaln(length + 1) - gammaln(order + 1) - gammaln(length - order + 1)

    def score(tokens: tuple[TokenGroup, ...], strength: float) -> Array:
        exponents = np.concatenate(
            [
                strength * (group.values + shift)
                for group, shift in zip(tokens, (strength, 0.0), strict=True)
            ],
            axis=1,
        )
        return np.asarray(
            _log_symmetric_polynomial(exponents.T, order) - subsets - 0.5 * order * strength**2
        )

    return score


def _log_symmetric_polynomial(exponents: Array, order: int) -> Array:
    """Return log e_order(exp(exponents)) over the first axis, in O(L R) and without overflow."""
    logs = np.full((order + 1, exponents.shape[1]), -np.inf)
    logs[0] = 0.0
    for index, exponent in enumerate(exponents):
        top = min(index + 1, order)
        # From the highest degree down: e_j ← e_j + exp(exponent) e_{j-1}.
        logs[1 : top + 1] = np.logaddexp(logs[1 : top + 1], exponent + logs[:top])
    return np.asarray(logs[order])
