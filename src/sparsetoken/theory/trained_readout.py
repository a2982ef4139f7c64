"""A trained readout in the limit of high dimension: its order parameters, and how they were found."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from scipy.special import ndtr

from sparsetoken.arrays import Array
from sparsetoken.numerics.solution import Solution, Status
from sparsetoken.theory.feature_law import FeatureLaw, score_law
from sparsetoken.theory.interpolation import Shape

__all__ = [
    "ALL_WELL",
    "AT_ONCE",
    "LimitReadout",
    "LimitState",
    "Note",
    "fresh_weights",
    "misclassified",
    "noted_solution",
]

# How a solution that converges is to be read, and what is special about it.
Note = tuple[Status, str]
ALL_WELL: Note = (Status.CONVERGED, "")
# Of a point that is the solution as it stands.
AT_ONCE = Solution(Status.CONVERGED, residual=0.0, steps=1)


@dataclass(frozen=True)
class LimitState:
    """Where a solver ended, to start the next problem of a path from.

    Attributes
    ----------
    kind : which equations were solved
    point : array
    shapes : sizes of the tables for the coarse and the fine law
    offset : array
        What the correction on the fine law added to `point`.
    """

    kind: str
    point: Array
    shapes: tuple[Mapping[int, Shape], Mapping[int, Shape]] = field(
        default_factory=lambda: ({}, {})
    )
    offset: Array | None = None

    @property
    def solution(self) -> Array:
        """The variables of the fine law's solution."""
        return self.point if self.offset is None else self.point + self.offset


@dataclass(frozen=True)
class LimitReadout:
    """A trained readout: its order parameters and its quantities on the training data.

    Attributes
    ----------
    weights : array of shape (k + 2,)
        (μ_1 … μ_k, b, ν) for the k coordinates of fresh features, as `score_law` takes them.
    susceptibility : float
        χ; infinite where the training loss is zero at ridge 0.
    replicate_weights : array of shape (replicates, k + 2)
        The same from each replicate of the law alone, to first order.
    weights_error : array of shape (k + 2,)
        Numerical error of `weights`, apart from the law's.
    train_loss, train_error : float
    replicate_train_loss, replicate_train_error : arrays of shape (replicates,)
    train_loss_error : float
        Numerical error of the training loss, apart from the law's.
    margin, replicate_margins : float and array, or None
        Margin of the unit-norm readout, for the maximum-margin classifier.
    alternatives : array of shape (m, k + 2), or None
        Other readouts that are as good, if the solution is not unique.
    train_error_range : float
        How far the training error of the alternatives differs, or that without the smoothing.
    state : LimitState
    solution : Solution
    """

    weights: Array
    susceptibility: float
    replicate_weights: Array
    weights_error: Array
    train_loss: float
    train_error: float
    replicate_train_loss: Array
    replicate_train_error: Array
    train_loss_error: float
    state: LimitState
    solution: Solution
    margin: float | None = None
    replicate_margins: Array | None = None
    alternatives: Array | None = None
    train_error_range: float = 0.0


def misclassified(law: FeatureLaw, weights: Array, shift: Array | float = 0.0) -> Array:
    """Return P(y m + SρG < shift) at each point of the law, (n,).

    `weights` are (μ_1 … μ_k, b, ν), or one such row for each replicate.
    """
    scores = score_law(law, weights)
    return np.asarray(ndtr((shift - scores.label * scores.mean) / scores.spread))


def fresh_weights(law: FeatureLaw, points: Array) -> Array:
    """Return (μ, b, ν) for fresh features from rows (μ, b, a, ν, …) for features with this law."""
    count = len(law.noisy)
    kept = count - law.spurious
    rest = points[..., len(law.lost)]
    spurious = points[..., kept:count]
    norm = np.sqrt(rest**2 + (spurious**2).sum(axis=-1))
    return np.concatenate(
        [points[..., :kept], points[..., count : count + 1], norm[..., None]], axis=-1
    )


def noted_solution(converged: bool, note: Note, residual: float, steps: int) -> Solution:
    """Return how the equations were solved, with what is special about a solution that converged."""
    status, detail = note if converged else (Status.DEGENERATE, "")
    return Solution(status, residual, steps, detail)
