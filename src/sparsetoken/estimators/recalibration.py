"""Another length of sequences: a new sharpness and bias for a fitted query and readout.

Attention that was trained on short sequences is too blunt for long ones: the share of one token
among L with weights of spread s falls like 1/L. Sharpness and bias must move together; the
directions of query and readout stay (docs/estimators.md).
"""

from collections.abc import Callable

import numpy as np
from scipy.optimize import minimize_scalar

from sparsetoken.arrays import Array
from sparsetoken.losses import Loss

__all__ = ["recalibrated_to_labels", "recalibrated_to_rate"]

# Factors on the trained sharpness that are tried; the last is nearly the maximum.
FACTORS = tuple(float(factor) for factor in 2.0 ** np.arange(-2, 6.5, 0.5))


def recalibrated_to_labels(
    decisions: Callable[[float], Array], labels: Array, loss: Loss, *, fewest_errors: bool
) -> tuple[float, float]:
    """Return the factor on the queries, and the bias, of least mean loss, or of fewest errors.

    Both differ: decisions without signal are the largest of many tokens, with a long tail to one
    side, which the loss follows. Where several factors make as few errors, the loss decides.

    Parameters
    ----------
    decisions : from a factor to decisions without bias, of shape (n,)
    labels : array of shape (n,), values -1 and +1
    """

    def fitted(values: Array) -> tuple[float, float]:
        reach = float(np.abs(values).max()) + 10.0
        found = minimize_scalar(
            lambda bias: float(np.mean(loss.value(labels * (values + bias)))),
            bounds=(-reach, reach),
            method="bounded",
        )
        return float(found.fun), float(found.x)

    results = []
    for factor in FACTORS:
        values = decisions(factor)
        least, bias = fitted(values)
        errors = 0
        if fewest_errors:
            errors, bias = _cut(values, labels)
        results.append((errors, least, bias, factor))
    _, _, bias, factor = min(results)
    return factor, bias


def _cut(values: Array, labels: Array) -> tuple[int, float]:
    """Return the fewest errors of a bias, and the middle one of the biases that make them."""
    order = np.argsort(values, kind="stable")
    values, positive = values[order], labels[order] > 0
    missed = np.r_[0, np.cumsum(positive)]
    errors = missed + (~positive).sum() - np.r_[0, np.cumsum(~positive)]
    apart = np.r_[True, values[1:] > values[:-1], True]  # equal values are on one side
    fewest = int(errors[apart].min())
    best = np.flatnonzero(apart & (errors == fewest))
    reach = values[-1] - values[0] + 1.0
    ends = np.r_[values[0] - reach, values, values[-1] + reach]
    place = best[len(best) // 2]
    return fewest, -0.5 * float(ends[place] + ends[place + 1])


def recalibrated_to_rate(decisions: Callable[[float], Array], rate: float) -> tuple[float, float]:
    """Return the factor and bias from unlabelled sequences with a known rate of positives.

    The bias makes that share of the decisions positive. The factor is the one at which the two
    sides are farthest apart for their spread: (m₊ - m₋)²/(π v₊ + (1 - π) v₋). Softer attention is
    not tried: its decisions are sums of many tokens, and the two halves of a normal law look far
    apart (a contrast of 7) without telling the classes apart.
    """
    best = (-np.inf, 1.0, 0.0)
    for factor in (factor for factor in FACTORS if factor >= 1):
        values = np.sort(decisions(factor))
        cut = min(max(round((1 - rate) * len(values)), 1), len(values) - 1)
        low, high = values[:cut], values[cut:]
        within = (1 - rate) * low.var() + rate * high.var()
        contrast = float((high.mean() - low.mean()) ** 2 / max(within, 1e-300))
        if contrast > best[0]:
            best = (contrast, factor, -0.5 * float(low[-1] + high[0]))
    return best[1], best[2]
