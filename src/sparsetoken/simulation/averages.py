"""Trials one after another, and means over them with their standard errors."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from sparsetoken import validation
from sparsetoken.uncertainty import mean_and_error

__all__ = ["averages", "repeated"]

_T = TypeVar("_T")


def repeated(
    trial: Callable[[int], _T], trials: int, progress: Callable[[int, int], None] | None
) -> list[_T]:
    """Return what trials 0, 1, ... give; progress(finished, trials) is called after each."""
    validation.callback("progress", progress)
    found = []
    for number in range(trials):
        found.append(trial(number))
        if progress is not None:
            progress(number + 1, trials)
    return found


def averages(
    rows: Sequence[Mapping[str, float]],
) -> tuple[dict[str, float], dict[str, float | None]]:
    """Return the mean of every quantity over trials, and its standard error, None for one trial."""
    found = {name: mean_and_error([row[name] for row in rows]) for name in rows[0]}
    means = {name: mean for name, (mean, _) in found.items() if mean is not None}
    return means, {name: error for name, (_, error) in found.items()}
