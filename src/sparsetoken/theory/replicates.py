"""Error bars from independent replicates of a quasi-random law."""

import numpy as np

from sparsetoken.arrays import Array

__all__ = ["REPLICATES", "replicate_error"]

REPLICATES = 8

# Of the mean of 8 replicates: the 98 % quantile of Student's law with 7 degrees of freedom.
_COVERAGE = 3.0
_UNSEEN = 10.0
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
    return float(_COVERAGE * deviation / np.sqrt(len(replicates)) + unseen + rounding)
