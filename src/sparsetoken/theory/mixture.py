"""How the points of a drawn law are shared among the numbers of informative tokens.

Where R is a law, positive sequences are a mixture over R (docs/theory.md, section 13.2): each number
gets points of its own, about as many as it has probability, and weights make up for the difference.
"""

from dataclasses import dataclass

import numpy as np

from sparsetoken.task import Task

__all__ = ["Stratum", "label_strata"]

# The fewest points of a number, as a power of two.
_FEWEST = 4


@dataclass(frozen=True)
class Stratum:
    """Sequences with the same number of informative tokens.

    Attributes
    ----------
    counts : (R, L - R)
    weight : float
        Probability of R among sequences of this label.
    log2_points : int
    stream : tuple of int
        What sets its random stream apart from those of other numbers.
    """

    counts: tuple[int, int]
    weight: float
    log2_points: int
    stream: tuple[int, ...] = ()

    @property
    def points(self) -> int:
        """How many points it has."""
        return 1 << self.log2_points


def label_strata(task: Task, label: int, log2_points: int) -> list[Stratum]:
    """Return the strata of one label, with about 2^log2_points points together.

    One with exactly so many for negatives, and for positives with a fixed number.
    """
    if label < 0:
        return [Stratum((0, task.length), 1.0, log2_points)]
    known = list(task.counts)
    if len(known) == 1:
        number = known[0][0]
        return [Stratum((number, task.length - number), 1.0, log2_points)]
    return [
        Stratum(
            (number, task.length - number),
            chance,
            int(np.clip(log2_points + np.round(np.log2(chance)), _FEWEST, log2_points)),
            (number,),
        )
        for number, chance in known
    ]
