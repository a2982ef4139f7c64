"""A plan in simulated studies: how often it works at a finite dimension."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_ndtr, ndtri

from sparsetoken.arrays import Array
from sparsetoken.planning.best_training import FEWEST_SAMPLES, GOALS, enlarged, total_samples
from sparsetoken.records import Record, rate_text, share_text, with_error
from sparsetoken.simulation.trials import Simulation, simulate
from sparsetoken.task import Task, Training
from sparsetoken.uncertainty import standard_error

__all__ = ["MOST_SIZES", "Assurance", "check_plan"]

# How many times the planned number of samples are tried, or as often fewer.
_FACTORS = (1.15, 1.4, 1.9, 2.7, 4.0)
# Further numbers of samples, where the wanted share seems to be: studies elsewhere tell less of it.
_NEAR = 4
# Numbers of samples that are simulated, at the most.
MOST_SIZES = 1 + len(_FACTORS) + _NEAR
# One size more than needed, so that the share is enclosed in spite of its noise.
_BEYOND = 2
# More samples help, by so much at the least.
_LEAST_SLOPE = 0.2
# Theory and simulation disagree from this many standard errors on, if it also matters.
_CLEAR = 3.0
_MATTERS = 0.1


@dataclass(frozen=True)
class Assurance(Record):
    """What simulated studies at the user's dimension say about a plan.

    Attributes
    ----------
    trials, seed : int
        Simulated studies for each number of samples, and their seed.
    simulated, simulated_uncertainty : float
        Mean outcome of the planned study, and its standard error.
    low, high : float
        Between which 80 % of the studies fall.
    assurance : float
        The wanted share of studies that reach the target.
    reached : float or None
        The share that do as planned.
    assured_samples : int or None
        The least number of samples at which the wanted share does, read off a probit curve through
        all simulated studies; None if more than four times the planned number would be needed.
    disagreement : str or None
        Says so if the limit of high dimension does not hold at this one.
    """

    trials: int
    seed: int
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
            f"{self.trials} simulated studies: "
            f"{with_error(self.simulated, self.simulated_uncertainty)}, 80 % of them from "
            f"{rate_text(self.low)} to {rate_text(self.high)}"
        )
        if self.reached is None:
            return
        # A count says by itself how sure the share is.
        share = f"{round(self.reached * self.trials)} of the {self.trials} reach the target"
        if self.assured_samples is None:
            yield f"{share}; {share_text(self.assurance)} do not with {_FACTORS[-1]:g} times the samples"
        else:
            yield f"{share}; {share_text(self.assurance)} do with {self.assured_samples:,} samples"


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
    field, smaller = GOALS[metric]

    def outcomes(multiple: float) -> Array:
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

    def reaching(multiple: float) -> Array:
        values = planned if multiple == 1.0 else outcomes(multiple)
        return np.asarray(values <= target if smaller else values >= target)

    planned = outcomes(1.0)
    reached = assured = None
    if target is not None:
        reached = float(reaching(1.0).mean())
        assured = _assured(reaching, assurance)
    samples = total_samples(training, dimension)
    mean, error = float(planned.mean()), standard_error(planned)
    low, high = np.quantile(planned, (0.1, 0.9), method="weibull")
    return Assurance(
        trials=len(planned),
        seed=options["seed"],
        simulated=mean,
        simulated_uncertainty=error,
        low=float(low),
        high=float(high),
        assurance=assurance,
        reached=reached,
        assured_samples=None
        if assured is None
        else max(int(np.ceil(assured * samples)), FEWEST_SAMPLES),
        disagreement=_disagreement(mean, error, predicted, dimension),
    )


def _assured(reaching: Callable[[float], Array], assurance: float) -> float | None:
    """Return the multiple of the planned samples at which the wanted share reaches the target.

    `reaching` tells which studies do with a multiple. Multiples are tried, more or fewer samples,
    until the share is crossed, and one more; then some where all studies together put it, which say
    again where it is.
    """
    tried = {1.0: reaching(1.0)}
    upwards = tried[1.0].mean() < assurance
    beyond = 0
    for factor in _FACTORS:
        multiple = factor if upwards else 1 / factor
        tried[multiple] = reaching(multiple)
        beyond += (tried[multiple].mean() >= assurance) == upwards
        if beyond == _BEYOND:
            break
    if not beyond:
        return None if upwards else min(tried)
    for _ in range(_NEAR):
        near = _probit_crossing(tried, assurance)
        if near not in tried:
            tried[near] = reaching(near)
    return _probit_crossing(tried, assurance)


def _probit_crossing(tried: dict[float, Array], share: float) -> float:
    """Return the multiple m at which Φ(a + b log m) is a share, a and b by maximum likelihood.

    It is not sought beyond the multiples that were tried. It has three decimals: draws depend on all
    digits of a multiple, and the last ones of a maximum are those of the machine.
    """
    logs = np.concatenate([np.full(len(hits), np.log(m)) for m, hits in tried.items()])
    signs = np.where(np.concatenate(list(tried.values())), 1.0, -1.0)

    def unlikely(point: Array) -> float:
        return -float(log_ndtr(signs * (point[0] + point[1] * logs)).sum())

    bounds = ((None, None), (_LEAST_SLOPE, None))
    constant, slope = minimize(unlikely, np.array([0.0, 4.0]), bounds=bounds).x
    crossing = round(float(np.exp((ndtri(share) - constant) / slope)), 3)
    return float(np.clip(crossing, min(tried), max(tried)))


def _disagreement(mean: float, error: float, predicted: float, dimension: int) -> str | None:
    gap = mean - predicted
    if abs(gap) <= _CLEAR * error or abs(gap) <= _MATTERS * predicted:
        return None
    return (
        f"At {dimension} dimensions the limit of high dimension does not quite hold: simulated "
        f"{with_error(mean, error)}, predicted {rate_text(predicted)}. Trust the simulated studies."
    )
