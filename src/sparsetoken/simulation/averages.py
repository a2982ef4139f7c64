"""Means over trials with their standard errors."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

__all__ = ["averages"]


def averages(
    rows: Sequence[Mapping[str, float]],
) -> tuple[dict[str, float], dict[str, float | None]]:
    """Return the mean of every quantity over trials, and its standard error, None for one trial."""
    columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    means = {name: float(column.mean()) for name, column in columns.items()}
    errors = {
        name: float(column.std(ddof=1)) / math.sqrt(len(column)) if len(column) > 1 else None
        for name, column in columns.items()
    }
    return means, errors
