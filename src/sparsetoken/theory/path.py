"""Where solutions go along a path of problems."""

from dataclasses import dataclass, field

import numpy as np

from sparsetoken.arrays import Array
from sparsetoken.theory.potential import POSITIVE
from sparsetoken.theory.trained_readout import LimitState

__all__ = ["Trail", "from_path", "on_path"]

# Solutions that a parabola goes through, and how far ahead of them it is believed, in units of the
# last step.
_KEPT = 3
_REACH = 1.5


def on_path(state: LimitState) -> Array | None:
    """Return the variables of a solution that change smoothly along paths, None if it has none.

    (μ, b, a, log ν, log τ, log β): the last three are positive.
    """
    if state.kind != "saddle":
        return None
    point = state.solution.copy()
    point[POSITIVE] = np.log(point[POSITIVE])
    return point


def from_path(point: Array) -> Array:
    """Return the solution with these variables."""
    solution = point.copy()
    solution[POSITIVE] = np.exp(np.minimum(solution[POSITIVE], 700.0))
    return solution


@dataclass
class Trail:
    """The last solutions of a path, by position."""

    _positions: list[float] = field(default_factory=list)
    _points: list[Array] = field(default_factory=list)

    def add(self, position: float | None, state: LimitState) -> None:
        """Append a solution; other equations, or a position unknown or infinite, begin a new path."""
        known = position is not None and np.isfinite(position)
        point = on_path(state) if known else None
        if position is None or point is None:
            self._positions, self._points = [], []
            return
        if position in self._positions or (self._points and len(point) != len(self._points[0])):
            self._positions, self._points = [], []
        self._positions = [*self._positions, position][-_KEPT:]
        self._points = [*self._points, point][-_KEPT:]

    def ahead(self, position: float | None) -> Array | None:
        """Return where the next solution may be, if it is near: on a line or parabola of the last."""
        if position is None or len(self._positions) < 2:
            return None
        places = np.array([*self._positions, position])
        if np.all(places > 0):
            places = np.log(places)
        *known, wanted = places
        steps = np.diff(places)
        if np.ptp(np.sign(steps)) > 0 or abs(steps[-1]) > _REACH * abs(steps[-2]):
            return None
        point = np.zeros_like(self._points[0])
        for index, here in enumerate(known):
            others = np.array(known[:index] + known[index + 1 :])
            point += np.prod((wanted - others) / (here - others)) * self._points[index]
        return from_path(point)
