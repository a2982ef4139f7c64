"""Error bars from independent replicates of a quasi-random law."""

import numpy as np

from sparsetoken.arrays import Array
from sparsetoken.uncertainty import DEVIATIONS_IN_A_BAR

__all__ = ["REPLICATES", "replicate_error"]

# Sets of points that are scrambled independently: few, so that each has many points, and enough for
# a spread (of 7 degrees of freedom, see `DEVIATIONS_IN_A_BAR`).
REPLICATES = 8

# How many shares of the largest point are missing where replicates differ as much as their mean.
_UNSEEN = 10.0
# Sums of some 10^4 numbers leave this of their mean; the bar of a mean of 0 is still a number.
_ROUNDING = 1e-13
_LEAST = 1e-16


def replicate_error(replicates: Array, largest: float = 0.0) -> float:
    """Return the error of the mean of independent replicates; rounding level for an exact law.

    If replicates differ as much as their mean, a few points of the law carry it and some like them
    were not drawn: `largest`, the largest share of a point, is then added several times.
    """
    mean = float(np.mean(np.abs(replicates)))
    rounding = max(_ROUNDING * mean, _LEAST)
    if len(replicates) == 1:
        return rounding
    deviation = float(np.std(replicates, ddof=1))
    unseen = _UNSEEN * largest * deviation / mean if mean > 0 else 0.0
    return float(DEVIATIONS_IN_A_BAR * deviation / np.sqrt(len(replicates)) + unseen + rounding)
