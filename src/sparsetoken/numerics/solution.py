"""What every solver returns beside its answer."""

from dataclasses import dataclass

__all__ = ["Solution"]


@dataclass(frozen=True)
class Solution:
    """How a numerical solution was reached.

    Attributes
    ----------
    converged : bool
    status : str
        What happened and, unless all is well, what to do next.
    residual : float
        Relative size of the last Newton correction: how far the answer still is from a solution.
    steps : int
        Number of Newton steps, over all stages.
    """

    converged: bool
    status: str
    residual: float
    steps: int
