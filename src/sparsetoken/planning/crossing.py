"""Where a falling curve meets a level: how many samples are just enough."""

from collections.abc import Callable

import numpy as np

__all__ = ["least_enough"]


def least_enough(
    curve: Callable[[float], float],
    level: float,
    start: float,
    *,
    bounds: tuple[float, float],
    accuracy: float,
    most: int,
    first_step: float = 2.0,
) -> float | None:
    """Return the least size within `bounds` at which a positive, falling curve is at most `level`.

    Sizes are stepped over by growing factors from `first_step` on until they enclose the crossing, then chords of the
    logarithms close in on it from both sides. The answer is enough, and no larger than the least
    by the factor 1 + `accuracy`, unless `most` evaluations were not enough for that. It is the lower
    bound where that is enough, and None where the upper one is not, or was not reached.
    """
    found = _Bracket(curve, level, most)
    low, high = np.log(bounds)
    found.add(float(np.clip(np.log(start), low, high)))
    step = np.log(first_step)
    while not found.closed and found.has_calls_left:
        before = found.last
        here = float(
            np.clip(before - step if found.enough is not None else before + step, low, high)
        )
        if here == before:
            break
        found.add(here)
        step *= 2.0
    while found.closed and found.width > np.log1p(accuracy) and found.has_calls_left:
        found.add(found.on_chord(accuracy))
    return None if found.enough is None else float(np.exp(found.enough))


class _Bracket:
    """Logarithms of the least size known to be `enough` and of the largest known to be too `short`."""

    def __init__(self, curve: Callable[[float], float], level: float, most: int) -> None:
        self._curve, self._level, self._most = curve, level, most
        # By the logarithm of a size, how far the curve lies above the level, by logarithms.
        self._gaps: dict[float, float] = {}
        self.enough: float | None = None
        self.short: float | None = None
        self.last = np.nan

    @property
    def closed(self) -> bool:
        return self.enough is not None and self.short is not None

    @property
    def has_calls_left(self) -> bool:
        return len(self._gaps) < self._most

    @property
    def width(self) -> float:
        assert self.enough is not None
        assert self.short is not None
        return self.enough - self.short

    def add(self, here: float) -> None:
        value = self._curve(float(np.exp(here)))
        gap = float(np.log(max(value, 1e-300)) - np.log(self._level))
        self._gaps[here], self.last = gap, here
        if gap <= 0:
            self.enough = here
        else:
            self.short = here

    def on_chord(self, accuracy: float) -> float:
        """Return where the chord crosses the level, or a little beyond, on the side not met last."""
        assert self.enough is not None
        assert self.short is not None
        chord = self._gaps[self.short] - self._gaps[self.enough]
        share = self._gaps[self.short] / chord if np.isfinite(chord) else 0.5
        beyond = (-1 if self.last == self.enough else 1) * accuracy / (3 * self.width)
        # Where one end stays for long the chord is drawn to it: no closer than a tenth.
        return self.short + self.width * float(np.clip(share + beyond, 0.1, 0.9))
