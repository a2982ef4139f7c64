"""Means over trials with their standard errors."""

from collections.abc import Mapping, Sequence

from sparsetoken.uncertainty import mean_and_error

__all__ = ["averages"]


def averages(
    rows: Sequence[Mapping[str, float]],
) -> tuple[dict[str, float], dict[str, float | None]]:
    """Return the mean of every quantity over trials, and its standard error, None for one trial."""
    found = {name: mean_and_error([row[name] for row in rows]) for name in rows[0]}
    means = {name: mean for name, (mean, _) in found.items() if mean is not None}
    return means, {name: error for name, (_, error) in found.items()}
