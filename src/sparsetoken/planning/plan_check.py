"""A plan in simulated studies: how often it works at a finite dimension."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparsetoken.planning.best_training import METRICS, enlarged, total_samples
from sparsetoken.records import Record
from sparsetoken.simulation.trials import Simulation, simulate
from sparsetoken.task import Task, Training

__all__ = ["Assurance", "check_plan"]

# Each step to more samples, and to how many times the planned number at the most.
_STEP = 1.15
_MOST = 4.0
# Theory and simulation disagree from this many standard errors on, if it also matters.
_CLEAR = 3.0
_MATTERS = 0.1


@dataclass(frozen=True)
class Assurance(Record):
    """What simulated studies at the user's dimension say about a plan.

    Attributes
    ----------
    trials : int
        Simulated studies for each number of samples.
    simulated, simulated_uncertainty : float
        Mean outcome of the planned study, and its standard error.
    low, high : float
        Between which 80 % of the studies fall.
    assurance : float
        The wanted share of studies that reach the target.
    reached : float or None
        The share that do as planned.
    assured_samples : int or None
        The least number of samples at which the wanted share does; None if more than four times the
        planned number would be needed.
    disagreement : str or None
        Says so if the limit of high dimension does not hold at this one.
    """

    trials: int
    simulated: float
    simulated_uncertainty: float
    low: float
    high: float
    assurance: float
    reached: float | None
    assured_samples: int | None
    disagreement: str | None

    def lines(self) -> Iterator[str]:
        """Yield the check in words."""
        yield (
            f"{self.trials} simulated studies: {self.simulated:.4f} ± "
            f"{self.simulated_uncertainty:.4f}, 80 % of them from {self.low:.4f} to {self.high:.4f}"
        )
        if self.reached is None:
            return
        share = f"{self.reached:.0%} of them reach the target"
        if self.assured_samples is None:
            yield f"{share}; {self.assurance:.0%} do not with {_MOST:g} times the samples"
        else:
            yield f"{share}; {self.assurance:.0%} do with {self.assured_samples:,} samples"


def check_plan(
    task: Task,
    training: Training,
    dimension: int,
    predicted: float,
    wanted: tuple[str, float | None, float],
    one_more: Callable[[], None],
    options: dict[str, Any],
) -> Assurance:
    """Simulate the planned study, and larger ones until enough of them reach the target."""
    metric, target, assurance = wanted
    field, smaller = METRICS[metric]

    def outcomes(multiple: float) -> np.ndarray[Any, Any]:
        result: Simulation = simulate(
            task,
            enlarged(training, multiple),
            dimension=dimension,
            check_separable=False,
            metrics=() if field == "test_error" else (field,),
            progress=lambda *_: one_more(),
            **options,
        )
        return np.array(result.values(field))

    def share(values: np.ndarray[Any, Any]) -> float:
        assert target is not None
        return float(np.mean(values <= target if smaller else values >= target))

    planned = outcomes(1.0)
    reached = None if target is None else share(planned)
    assured = None
    if reached is not None:
        assured = _assured(reached, lambda multiple: share(outcomes(multiple)), assurance)
    samples = total_samples(training, dimension)
    mean, error = float(planned.mean()), float(planned.std(ddof=1) / np.sqrt(len(planned)))
    low, high = np.quantile(planned, (0.1, 0.9))
    return Assurance(
        trials=len(planned),
        simulated=mean,
        simulated_uncertainty=error,
        low=float(low),
        high=float(high),
        assurance=assurance,
        reached=reached,
        assured_samples=None if assured is None else int(np.ceil(assured * samples)),
        disagreement=_disagreement(mean, error, predicted, dimension),
    )


def _assured(reached: float, share: Callable[[float], float], assurance: float) -> float | None:
    """Return the multiple of the planned samples at which the wanted share reaches the target.

    Between the last two multiples that were tried, by interpolation of the share over factors.
    """
    multiple, last = 1.0, reached
    if reached >= assurance:
        return 1.0
    step = _STEP
    while multiple * step <= _MOST:
        new = share(multiple * step)
        if new >= assurance:
            part = (assurance - last) / (new - last)
            return float(multiple * step**part)
        multiple, last = multiple * step, max(new, last)
        step *= _STEP**0.5
    return None


def _disagreement(mean: float, error: float, predicted: float, dimension: int) -> str | None:
    gap = mean - predicted
    if abs(gap) <= _CLEAR * error or abs(gap) <= _MATTERS * predicted:
        return None
    return (
        f"At {dimension} dimensions the limit of high dimension does not quite hold: simulated "
        f"{mean:.4f} ± {error:.4f}, predicted {predicted:.4f}. Trust the simulated studies."
    )
