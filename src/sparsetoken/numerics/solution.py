"""What every solver returns beside its answer: one status, with advice, for all of them."""

from dataclasses import dataclass
from enum import Enum
from typing import Any

__all__ = ["Solution", "Status"]


class Status(Enum):
    """How a solver ended, and what to do next unless all is well.

    Examples
    --------
    >>> from sparsetoken import Task, capacity
    >>> capacity(Task(10, 1, 5.0), classifier="pooled").solution.status
    <Status.CONVERGED: ('converged', '')>
    """

    CONVERGED = ("converged", "")
    TOLERANCE_NOT_REACHED = (
        "converged, but the wanted tolerance is not reached",
        "the error bar says what was reached",
    )
    NOT_UNIQUE = (
        "converged, but the answer is not unique",
        "the error bar covers the range; use another loss or a smaller ridge",
    )
    NEAR_THRESHOLD = (
        "converged, but too close to a threshold to be sure of the side",
        "use ridge > 0, or move the sample ratio away",
    )
    BEYOND_REACH = (
        "converged, but the answer is beyond what the points of the law can tell",
        "read it as a bound",
    )
    AMPLIFIED = (
        "converged, but the recursion amplifies small deviations",
        "take smaller steps, or read the numbers as one possible path",
    )
    STEP_LIMIT = (
        "not converged: the limit of steps was reached",
        "allow more steps, or raise the ridge",
    )
    DEGENERATE = (
        "not converged: the equations are nearly degenerate here",
        "raise the ridge, or move the sample ratio away from a threshold",
    )

    STALLED = (
        "not converged: stalled at rounding error",
        "standardise the features, or raise the ridge",
    )
    NO_MINIMUM = ("not converged: there is no finite minimum", "use ridge > 0")

    def __init__(self, text: str, advice: str) -> None:
        self.text = text
        self.advice = advice

    @property
    def converged(self) -> bool:
        """Whether the answer solves its equations."""
        return self not in _FAILED


_FAILED = (Status.STEP_LIMIT, Status.DEGENERATE, Status.STALLED, Status.NO_MINIMUM)


@dataclass(frozen=True)
class Solution:
    """How a numerical solution was reached.

    Attributes
    ----------
    status : Status
    residual : float
        Relative size of the last correction: how far the answer still is from a solution.
    steps : int
        Number of steps, over all stages.
    detail : str
        What is special about this solution, in words.

    Examples
    --------
    >>> from sparsetoken import Status
    >>> from sparsetoken.numerics.solution import Solution
    >>> found = Solution(Status.STEP_LIMIT, residual=0.1, steps=50)
    >>> found.converged
    False
    """

    status: Status
    residual: float
    steps: int
    detail: str = ""

    @property
    def converged(self) -> bool:
        """Whether the answer solves its equations."""
        return self.status.converged

    @property
    def all_well(self) -> bool:
        """Whether there is nothing to say about the answer."""
        return self.status is Status.CONVERGED

    @property
    def message(self) -> str:
        """The status in words, with the details and what to do next."""
        parts = (self.status.text, self.detail, self.status.advice)
        return "; ".join(part for part in parts if part)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values: the status by its name, and the whole message.

        Returns
        -------
        dict

        Examples
        --------
        >>> from sparsetoken import Solution, Status
        >>> Solution(Status.CONVERGED, residual=0.0, steps=3).to_dict()["status"]
        'converged'
        """
        return {
            "converged": self.converged,
            "status": self.status.name.lower(),
            "message": self.message,
            "residual": self.residual,
            "steps": self.steps,
        }
