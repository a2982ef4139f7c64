"""Standard errors and z-scores: one meaning in the whole package.

A mean over trials has a standard error. A theory value has a bar, the estimated numerical error,
made to cover the truth with a probability of about 98 %: three standard deviations of a mean of few
replicates. `error_of_difference` is the one place where the two meet, and `joined` the one that
puts a row of simulation beside a row of theory.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri, stdtr

from sparsetoken.arrays import Array
from sparsetoken.records import UNCERTAINTY

__all__ = [
    "DEVIATIONS_IN_A_BAR",
    "Joined",
    "error_of_difference",
    "joined",
    "mean_and_error",
    "standard_error",
    "z_scores",
]

# theory/replicates.py makes its bars of so many standard deviations: for the mean of 8 replicates, the
# 98 % quantile of Student's law with 7 degrees of freedom.
DEVIATIONS_IN_A_BAR = 3.0

# Beyond this the probability underflows; nothing that large needs telling apart.
_LARGEST = 37.0


def standard_error(values: Sequence[float] | Array, *, shared: float = 0.0) -> float:
    """Return s √(1/n + shared), the standard error of the mean of at least two values.

    Independent values have 0 in common. Of folds it is the ratio of test to training samples (Nadeau
    and Bengio, 2003): their training samples are largely the same.
    """
    count = len(values)
    if count > 1 and np.ptp(values) == 0:  # whose mean, rounded, would differ from each
        return 0.0
    return float(np.std(values, ddof=1)) / math.sqrt(count) * math.sqrt(1 + count * shared)


def mean_and_error(values: Sequence[float]) -> tuple[float | None, float | None]:
    """Return the mean and its standard error s/√n; None where there are too few values."""
    count = len(values)
    if count == 0:
        return None, None
    mean = math.fsum(values) / count
    if count == 1:
        return mean, None
    return mean, standard_error(values)


def error_of_difference(standard_error: ArrayLike, bar: ArrayLike) -> Array:
    """Return the standard error of a simulated mean minus a theory value with its bar."""
    return np.hypot(standard_error, np.asarray(bar, dtype=float) / DEVIATIONS_IN_A_BAR)


def z_scores(
    difference: ArrayLike,
    standard_error: ArrayLike,
    *,
    freedom: ArrayLike = np.inf,
    bar: ArrayLike = 0.0,
) -> Array:
    """Return differences as standard normal deviates.

    Parameters
    ----------
    difference : array
        Simulation minus theory.
    standard_error : array
        Of the simulated mean.
    freedom : array
        Degrees of freedom of that standard error: one less than the trials. The error of few trials
        is itself uncertain, so that the ratio follows Student's law; each ratio is turned into the
        normal deviate of the same probability.
    bar : array
        Theory's bar (see `DEVIATIONS_IN_A_BAR`).
    """
    gap = np.asarray(difference, dtype=float)
    scale = error_of_difference(standard_error, bar)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(gap == 0, 0.0, gap / scale)
    # Beyond 1e8 degrees Student's law is the normal one to the last digit.
    tail = stdtr(np.minimum(freedom, 1e8), -np.abs(ratio))
    with np.errstate(divide="ignore"):
        deviate = np.minimum(-ndtri(tail), _LARGEST)
    return np.asarray(np.sign(ratio) * deviate)


class Joined(NamedTuple):
    """One quantity in simulation and in theory; None where one of them does not have it.

    Attributes
    ----------
    mean, standard_error : float or None
        Of the trials.
    freedom : float
        Degrees of freedom of the standard error: one less than the trials.
    theory, bar : float or None
        Theory's value and its numerical error.
    """

    mean: float | None
    standard_error: float | None
    freedom: float
    theory: float | None
    bar: float | None

    @property
    def z(self) -> float | None:
        """The difference as a standard normal deviate; None without both, or without an error."""
        if self.mean is None or self.theory is None or not self.standard_error:
            return None
        bar = self.bar or 0.0
        gap = self.mean - self.theory
        return float(z_scores(gap, self.standard_error, freedom=self.freedom, bar=bar))


def joined(
    name: str, simulated: Mapping[str, Any], theory: Mapping[str, Any], *, trials: int
) -> Joined:
    """Return a quantity of a row of simulation beside the same one of a row of theory.

    Both are flat records: a value under its name, its error under name_uncertainty, which is the
    standard error of a mean over `trials` in the one and the numerical error in the other.
    """
    bar = name + UNCERTAINTY
    return Joined(
        simulated.get(name), simulated.get(bar), trials - 1, theory.get(name), theory.get(bar)
    )
