"""From numbers to a verdict: slopes, z-scores, crossings, and conditions that can fail.

A condition has three outcomes. It holds or fails if twice the uncertainty lies on one side of its
bound, and is open otherwise. A claim is confirmed if all its conditions hold, refuted if one fails,
and undecided if none fails but one is open.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import chdtri

from sparsetoken.arrays import Array
from sparsetoken.reproduce.claim import Quantity, Row, Ruling, Table, Verdict
from sparsetoken.uncertainty import Joined, error_of_difference, z_scores

__all__ = [
    "AGREES",
    "AgainstTheory",
    "Condition",
    "against_theory",
    "agreement",
    "crossing",
    "decide",
    "holds",
    "lowest",
    "power_law",
    "ratio_of",
    "within",
]

# How rarely chance alone may fail a test, and the normal deviate that it exceeds as rarely.
RARE = 1e-3
COMMON_WITHIN = 3.3
WORST = 4.0

# What `agreement` asks for, to be said in a criterion.
AGREES = (
    "agrees with theory once the shift of order 1/d, measured at d and d/4, is removed: no |z| "
    "reaches 4, mean square and common deviation lie within what chance exceeds once in 1,000 "
    "times, and a common deviation of 1 % (quick version: 3 %) would be noticed"
)


@dataclass(frozen=True)
class Condition:
    """One condition of a criterion: what was seen, and whether it holds (None: open)."""

    seen: str
    holds: bool | None


def within(name: str, quantity: Quantity, low: float = -np.inf, high: float = np.inf) -> Condition:
    """Check that a quantity lies in [low, high], by twice its uncertainty."""
    margin = 2 * (quantity.uncertainty or 0.0)
    bottom, top = quantity.value - margin, quantity.value + margin
    verdict: bool | None = None
    if low <= bottom and top <= high:
        verdict = True
    elif not (low <= top and bottom <= high):  # also true of a value that is not a number
        verdict = False
    return Condition(f"{name} {quantity} ({_bounds(low, high)})", verdict)


def holds(seen: str, verdict: bool | None) -> Condition:
    """Check a condition without a number of its own."""
    return Condition(seen, None if verdict is None else bool(verdict))


def decide(
    conditions: Sequence[Condition], numbers: Mapping[str, Quantity] | None = None
) -> Verdict:
    """Combine conditions into a verdict that says what was seen, the failures first."""
    words = {True: "holds", False: "FAILS", None: "open"}
    ruling: Ruling = "confirmed"
    if any(condition.holds is False for condition in conditions):
        ruling = "refuted"
    elif any(condition.holds is None for condition in conditions):
        ruling = "undecided"
    order = {False: 0, None: 1, True: 2}
    ranked = sorted(conditions, key=lambda condition: order[condition.holds])
    seen = "; ".join(f"{condition.seen}: {words[condition.holds]}" for condition in ranked)
    return Verdict(ruling, seen, dict(numbers or {}))


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


@dataclass(frozen=True)
class AgainstTheory:
    """Simulated points against theory, all arrays of one length.

    Attributes
    ----------
    limit, error : the simulated value and its standard error, extrapolated to endless d
    freedom : degrees of freedom of `error`
    theory, bar : the predicted value and its numerical error
    """

    limit: Array
    error: Array
    freedom: Array
    theory: Array
    bar: Array

    @property
    def z(self) -> Array:
        """The differences as standard normal deviates."""
        return z_scores(self.limit - self.theory, self.error, freedom=self.freedom, bar=self.bar)

    @property
    def common(self) -> Quantity:
        """The common relative deviation from theory, all points weighted by their precision."""
        some = self.theory != 0
        theory = self.theory[some]
        scale = error_of_difference(self.error, self.bar)[some] / np.abs(theory)
        weight = 1 / np.maximum(scale, 1e-12) ** 2
        deviation = float(np.average(self.limit[some] / theory - 1, weights=weight))
        return Quantity(deviation, float(1 / np.sqrt(weight.sum())))


def against_theory(table: Table, name: str, on: Iterable[str]) -> AgainstTheory:
    """Set simulated rows against theory rows that have the same labels `on`.

    The mean at a finite dimension differs from its limit by a shift of order 1/d. Where there are
    trials at two dimensions d > d', the shift is measured and removed: with r = d/d' the limit is
    (r x(d) - x(d'))/(r - 1).
    """
    keys = tuple(on)
    points: dict[tuple[Any, ...], list[tuple[Row, Joined]]] = {}
    for row, one in table.paired(name, keys):
        points.setdefault(tuple(row.get(key) for key in keys), []).append((row, one))
    columns = np.array([_limit(pairs) for pairs in points.values()], dtype=float).reshape(-1, 5)
    return AgainstTheory(*columns.T)


def _limit(pairs: Sequence[tuple[Row, Joined]]) -> tuple[float, ...]:
    """Return limit, error, degrees of freedom, theory and bar of one point."""
    large, *small = sorted(pairs, key=lambda pair: -pair[0].get("dimension", 0))
    parts, weights = [large], np.array([1.0])
    if small:
        ratio = large[0]["dimension"] / small[-1][0]["dimension"]
        parts, weights = [large, small[-1]], np.array([ratio, -1.0]) / (ratio - 1)
    compared = np.array([one for _, one in parts], dtype=float)  # what is None is not a number
    means, errors, freedoms, theory, bars = compared.T
    squares = (weights * errors) ** 2
    # Welch and Satterthwaite's degrees of freedom of a sum of two estimated variances.
    total, spent = np.sum(squares), np.sum(squares**2 / freedoms)
    freedom = total**2 / spent if spent > 0 else freedoms[0]
    limit = np.sum(weights * means)
    return limit, np.sqrt(total), freedom, theory[0], np.nan_to_num(bars[0])


def agreement(
    what: str, table: Table, name: str, on: Iterable[str], noticed: float | None = None
) -> Condition:
    """Check that simulated values of a field are theory's, by three tests that chance fails rarely.

    No |z| reaches 4; the mean of z² stays below, and the common relative deviation of all points
    within, what chance exceeds once in 1,000 times. A common deviation of `noticed` (by default
    the table's setting of that name) must be large enough for the last test to see it, five times
    out of six; otherwise the condition is open. The text says what would be seen.
    """
    found = against_theory(table, name, on)
    if len(found.limit) == 0:
        return Condition(f"{what}: no simulated point has a prediction", False)
    z, common = found.z, found.common
    largest, square = float(np.max(np.abs(z))), float(np.mean(z**2))
    wide = float(chdtri(len(z), RARE)) / len(z)
    smallest = (COMMON_WITHIN + 1) * (common.uncertainty or 0.0)
    agrees = largest < WORST and square < wide
    agrees = agrees and abs(common.value) < COMMON_WITHIN * (common.uncertainty or 0.0)
    seen = (
        f"{what}: {len(z)} points, largest |z| {largest:.1f}, mean square {square:.2f} (chance: "
        f"below {wide:.2f}), common deviation {_percent(common)}, one of {100 * smallest:.2g} % "
        "would be noticed"
    )
    allowed = table.settings.get("noticed", np.inf) if noticed is None else noticed
    if agrees and not smallest <= allowed:
        return Condition(f"{seen}, wanted {100 * allowed:g} %", None)
    return Condition(seen, bool(agrees))


def _percent(quantity: Quantity) -> str:
    return f"({Quantity(100 * quantity.value, 100 * (quantity.uncertainty or 0.0))}) %"


def ratio_of(above: Quantity, below: Quantity) -> Quantity:
    """Return the ratio of two independent quantities with its uncertainty."""
    ratio = above.value / below.value
    relative = np.hypot(
        (above.uncertainty or 0.0) / above.value, (below.uncertainty or 0.0) / below.value
    )
    return Quantity(ratio, float(abs(ratio) * relative))


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
