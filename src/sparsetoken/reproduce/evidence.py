"""From numbers to a verdict: slopes, z-scores, crossings, and checks that can fail.

A check has three outcomes. It holds or fails if twice the uncertainty lies on one side of its
bound, and is open otherwise. A claim is confirmed if all its checks hold, refuted if one fails, and
undecided if none fails but one is open.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from sparsetoken.arrays import Array
from sparsetoken.reproduce.claim import Outcome, Quantity, Table, Verdict

__all__ = [
    "Check",
    "agreement",
    "crossing",
    "decide",
    "holds",
    "lowest",
    "power_law",
    "within",
    "z_scores",
]


@dataclass(frozen=True)
class Check:
    """One condition of a criterion: what was seen, and whether it holds (None: open)."""

    seen: str
    holds: bool | None


def within(name: str, quantity: Quantity, low: float = -np.inf, high: float = np.inf) -> Check:
    """Check that a quantity lies in [low, high], by twice its uncertainty."""
    margin = 2 * (quantity.uncertainty or 0.0)
    bottom, top = quantity.value - margin, quantity.value + margin
    verdict: bool | None = None
    if low <= bottom and top <= high:
        verdict = True
    elif not (low <= top and bottom <= high):  # also true of a value that is not a number
        verdict = False
    return Check(f"{name} {quantity} ({_bounds(low, high)})", verdict)


def holds(seen: str, verdict: bool | None) -> Check:
    """Check a condition without a number of its own."""
    return Check(seen, None if verdict is None else bool(verdict))


def decide(checks: Sequence[Check], numbers: Mapping[str, Quantity] | None = None) -> Verdict:
    """Combine checks into a verdict that says what was seen, the failures first."""
    words = {True: "holds", False: "FAILS", None: "open"}
    outcome: Outcome = "confirmed"
    if any(check.holds is False for check in checks):
        outcome = "refuted"
    elif any(check.holds is None for check in checks):
        outcome = "undecided"
    order = {False: 0, None: 1, True: 2}
    ranked = sorted(checks, key=lambda check: order[check.holds])
    seen = "; ".join(f"{check.seen}: {words[check.holds]}" for check in ranked)
    return Verdict(outcome, seen, dict(numbers or {}))


def power_law(x: ArrayLike, y: ArrayLike, y_error: ArrayLike | None = None) -> Quantity:
    """Return the slope of log y against log x and its standard error.

    With `y_error` the points are weighted by it, and the slope's error follows from it or from the
    scatter about the line, whichever is larger.
    """
    log_x, log_y = np.log(np.asarray(x, dtype=float)), np.log(np.asarray(y, dtype=float))
    weights = np.ones_like(log_x)
    if y_error is not None:
        weights = (np.asarray(y) / np.asarray(y_error)) ** 2
    centred = log_x - np.average(log_x, weights=weights)
    curvature = float(np.sum(weights * centred**2))
    slope = float(np.sum(weights * centred * log_y)) / curvature
    residual = log_y - np.average(log_y, weights=weights) - slope * centred
    freedom = max(len(log_x) - 2, 1)
    scatter = float(np.sum(weights * residual**2)) / freedom
    if y_error is not None:
        scatter = max(scatter, 1.0)
    return Quantity(slope, float(np.sqrt(scatter / curvature)))


def z_scores(pairs: Table, name: str, allowance: float | Array = 0.0) -> Array:
    """Return (simulation - theory) as z-scores.

    The standard error of few trials is itself uncertain, so that the ratio follows Student's
    distribution; each ratio is turned into the normal deviate of the same probability. `allowance`
    is the shift that a finite dimension may cause. It and theory's numerical error are added to the
    standard error, in squares.
    """
    mean, error = pairs.column(name), pairs.column(f"{name}_error")
    theory, numerical = pairs.column("theory"), pairs.column("theory_error")
    difference = mean - theory
    uncertainty = np.sqrt(error**2 + numerical**2 + np.square(allowance))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(difference == 0, 0.0, difference / uncertainty)
    tail = stats.t.logsf(np.abs(ratio), df=pairs.column("trials") - 1)
    return np.asarray(np.sign(ratio) * _normal_deviate(tail))


def _normal_deviate(log_tail: Array) -> Array:
    # Beyond 37 the probability underflows; nothing that large needs telling apart.
    return np.asarray(stats.norm.isf(np.exp(np.maximum(log_tail, -690.0))))


def agreement(what: str, z: ArrayLike, worst: float = 4.0, mean_square: float = 2.0) -> Check:
    """Check that all |z| are below `worst` and their mean square is below `mean_square`."""
    scores = np.asarray(z, dtype=float)
    largest, square = float(np.max(np.abs(scores))), float(np.mean(scores**2))
    seen = f"{what}: {len(scores)} points, largest |z| {largest:.1f}, mean square {square:.2f}"
    return Check(seen, bool(largest < worst and square < mean_square))


def crossing(x: ArrayLike, difference: ArrayLike) -> float | None:
    """Return where a difference changes sign from plus to minus, by linear interpolation."""
    at, gap = np.asarray(x, dtype=float), np.asarray(difference, dtype=float)
    turns = np.flatnonzero((gap[:-1] > 0) & (gap[1:] <= 0))
    if len(turns) == 0:
        return None
    k = turns[0]
    return float(at[k] + (at[k + 1] - at[k]) * gap[k] / (gap[k] - gap[k + 1]))


def lowest(x: ArrayLike, y: ArrayLike) -> tuple[float, float]:
    """Return place and value of the least of a smooth curve: a parabola through three points."""
    at, value = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    k = int(np.argmin(value))
    if k in (0, len(at) - 1):
        return float(at[k]), float(value[k])
    a, b, c = np.polyfit(at[k - 1 : k + 2] - at[k], value[k - 1 : k + 2], 2)
    return float(at[k] - b / (2 * a)), float(c - b * b / (4 * a))


def _bounds(low: float, high: float) -> str:
    if np.isfinite(low) and np.isfinite(high):
        return f"wanted {low:g} to {high:g}"
    return f"wanted >= {low:g}" if np.isfinite(low) else f"wanted <= {high:g}"
