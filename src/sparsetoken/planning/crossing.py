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
    low, high = np.log(bounds)
    here = float(np.clip(np.log(start), low, high))
    gap = _gap(curve, here, level)
    enough, short = (here, None) if gap <= 0 else (None, here)
    gaps = {here: gap}
    step = np.log(first_step)
    while (enough is None or short is None) and len(gaps) < most:
        before = here
        here = float(np.clip(here - step if enough is not None else here + step, low, high))
        if here == before:
            return None if enough is None else float(np.exp(enough))
        gaps[here] = _gap(curve, here, level)
        enough, short = (here, short) if gaps[here] <= 0 else (enough, here)
        step *= 2.0
    while enough is not None and short is not None and len(gaps) < most:
        width = enough - short
        if width <= np.log1p(accuracy):
            break
        chord = gaps[short] - gaps[enough]
        share = gaps[short] / chord if np.isfinite(chord) else 0.5
        # A little beyond the chord's end, on the side that was not met last, to enclose it.
        beyond = (-1 if here == enough else 1) * accuracy / (3 * width)
        # Where one end stays for long the chord is drawn to it: no closer than a tenth.
        here = short + width * float(np.clip(share + beyond, 0.1, 0.9))
        gaps[here] = _gap(curve, here, level)
        enough, short = (here, short) if gaps[here] <= 0 else (enough, here)
    return None if enough is None else float(np.exp(enough))


def _gap(curve: Callable[[float], float], log_size: float, level: float) -> float:
    """Return how far the curve lies above the level, by logarithms."""
    value = curve(float(np.exp(log_size)))
    return float(np.log(max(value, 1e-300)) - np.log(level))
