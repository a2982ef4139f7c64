"""What any learner could reach, and what is known to be reachable (docs/theory.md, section 10).

The signal ξ is unknown; n = αd labelled sequences tell about it. The squared cosine m of the best
estimate with ξ solves m = Λe/(1 + Λe) with Λ = απθ² and e = e(θ√m), the overlap of `places`. Of
several solutions the statistical one has the largest free energy; message passing, the best known
efficient algorithm, reaches the smallest one. Where they differ the phase is hard.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np
from scipy.optimize import brentq, minimize_scalar
from scipy.special import expit

from sparsetoken import validation
from sparsetoken.arrays import Array
from sparsetoken.numerics.memory import path_memory
from sparsetoken.numerics.solution import Solution, Status
from sparsetoken.numerics.threads import one_thread
from sparsetoken.records import Curve, Record
from sparsetoken.task import Task
from sparsetoken.theory.oracle import Oracle, oracle
from sparsetoken.theory.places import PlacesLaw, places_law
from sparsetoken.theory.replicates import replicate_error
from sparsetoken.validation import ParameterError

__all__ = [
    "Floor",
    "FloorUncertainty",
    "HardPhase",
    "floor",
    "floor_curve",
    "hard_phase",
    "learnable_overlaps",
]

# Points of the law of several places, as powers of two: where to begin and where to end.
_FIRST_SIZE = 7
_LAST_SIZE = 12
# Scores of all replicates that are held at once, for R > 1.
_MOST_SCORES = 2**22
# Where fixed points are looked for: two that are closer than a cell of this grid have all but merged.
_GRID = 320
# An error of e is tried as a change of it by at most this share, since e is positive.
_LARGEST_SHIFT = 0.9
# First wanted accuracy of an error, as a fraction of it.
_ROUGH = 0.03
# Solutions closer than this, in log m/(1-m), are one.
_SAME = 1e-6


@dataclass(frozen=True)
class FloorUncertainty:
    """Numerical error bars of the numbers of a `Floor`."""

    overlap: float
    test_error: float
    reachable_overlap: float
    reachable_test_error: float
    free_energy: float
    reachable_free_energy: float


@dataclass(frozen=True)
class Floor(Record):
    """The least error with an unknown signal, in the limit of high dimension.

    Attributes
    ----------
    overlap : float
        Squared cosine of the best estimate with the signal.
    test_error : float
        Error of the best classifier, the Bayes floor.
    reachable_overlap, reachable_test_error : float
        The same for message passing that starts without information.
    phase : "easy" or "hard"
        Hard where message passing falls short of the best estimate.
    free_energy, reachable_free_energy : float
        Free energy of the two solutions, per dimension; the larger one is the truth.
    alpha : float
        Samples per dimension, all of them.
    uncertainty : FloorUncertainty
    solution : Solution

    Examples
    --------
    >>> from sparsetoken import Task, floor
    >>> found = floor(Task(10, 1, 4.0), alpha=4.0)
    >>> found.reachable_test_error >= found.test_error, round(found.overlap, 2)
    (True, 0.97)
    """

    overlap: float
    test_error: float
    reachable_overlap: float
    reachable_test_error: float
    phase: str
    free_energy: float
    reachable_free_energy: float
    alpha: float
    uncertainty: FloorUncertainty
    solution: Solution


@dataclass(frozen=True)
class HardPhase(Record):
    """Where the signal can be learnt but message passing does not find it.

    Attributes
    ----------
    begins : float
        The α at which the best estimate jumps to a large overlap.
    ends : float
        The α at which message passing does.
    appears : float
        The α from which a second solution exists, though not yet the better one.
    uncertainty : dict
        Numerical error bars of the three.
    solution : Solution

    Examples
    --------
    >>> from sparsetoken import Task, hard_phase
    >>> found = hard_phase(Task(100, 1, 5.0), tolerance=0.1)
    >>> found.begins < found.ends
    True
    """

    begins: float
    ends: float
    appears: float
    uncertainty: dict[str, float]
    solution: Solution


@one_thread
@path_memory()
def floor(task: Task, alpha: float, *, tolerance: float = 1e-3) -> Floor:
    """Return the least error that any learner can reach with α = n/d labelled sequences.

    Compare it with α0 + α1 of a training that splits its samples, and with α of one that does not.

    Parameters
    ----------
    task : Task
        Any length for one informative token (or one without signal); otherwise up to 4096 tokens
        and as far as the symmetric polynomials go.
    alpha : float > 0
        Samples per dimension.
    tolerance : float
        Wanted numerical error of the overlaps. If it cannot be reached, the uncertainty and the
        status say so.

    Returns
    -------
    Floor

    Examples
    --------
    >>> from sparsetoken import Task, floor
    >>> found = floor(Task(10, 1, 4.0), alpha=4.0)
    >>> round(found.test_error, 3), found.phase
    (0.065, 'easy')
    """
    validation.instance("task", task, Task)
    alpha = validation.real("alpha", alpha, low=0, inclusive=False)
    tolerance = validation.real("tolerance", tolerance, low=0, inclusive=False)
    return _states(task, alpha, tolerance).summary(tolerance)


@one_thread
def learnable_overlaps(task: Task, alpha: float, *, tolerance: float) -> dict[str, float]:
    """Return `overlap` and `reachable_overlap` of a `Floor` without its errors, which cost most."""
    values = _states(task, alpha, tolerance).values
    return {name: values[name] for name in ("overlap", "reachable_overlap")}


def _states(task: Task, alpha: float, tolerance: float) -> "_States":
    """Return the two solutions, with as many points as the tolerance of the overlaps takes."""
    size = _FIRST_SIZE
    while True:
        law = places_law(task.length, task.informative, size)
        states = _States(task, law, alpha)
        if states.largest_bar <= tolerance or not _can_grow(law):
            return states
        size += 1


@path_memory()
def floor_curve(
    task: Task,
    *,
    over: str = "alpha",
    values: Iterable[float],
    alpha: float | None = None,
    tolerance: float = 1e-3,
) -> Curve[Floor]:
    """Return the floor along a path; all points share one law of the places.

    Parameters
    ----------
    task : Task
    over : "alpha" or a field of `Task`
    values : iterable of float
        Its values, in the order in which results are returned.
    alpha : float, for another field than alpha
    tolerance : float
        As for `floor`.

    Returns
    -------
    Curve of Floor

    Examples
    --------
    >>> from sparsetoken import Task, floor_curve
    >>> found = floor_curve(Task(10, 1, 4.0), values=[1.0, 4.0])
    >>> [round(error, 2) for error in found.column("test_error")]
    [0.08, 0.07]
    """
    validation.instance("task", task, Task)
    names = [item.name for item in fields(Task)]
    validation.choice("over", over, ["alpha", *names])
    if (alpha is None) != (over == "alpha"):
        accepted = (
            "None: it varies" if over == "alpha" else "a number > 0, with over = a task field"
        )
        raise ParameterError("alpha", alpha, accepted)
    chosen, records = [], []
    for value in validation.several("values", values, "numbers"):
        varied = (task, value) if alpha is None else (task.replace(**{over: value}), alpha)
        records.append(floor(*varied, tolerance=tolerance))
        chosen.append(value)
    settings = {
        name: value for name, value in {**task.to_dict(), "alpha": alpha}.items() if name != over
    }
    return Curve(over, tuple(chosen), tuple(records), settings, "test_error")


@one_thread
@path_memory()
def hard_phase(task: Task, *, tolerance: float = 1e-2) -> HardPhase | None:
    """Return where the hard phase begins and ends in α, or None if there is none.

    Parameters
    ----------
    task : Task
    tolerance : float
        Wanted relative error of the three values of α.

    Returns
    -------
    HardPhase or None

    Examples
    --------
    >>> from sparsetoken import Task, hard_phase
    >>> print(hard_phase(Task(4, 1, 3.0), tolerance=0.1))
    None
    """
    validation.instance("task", task, Task)
    tolerance = validation.real("tolerance", tolerance, low=0, inclusive=False)
    if task.strength == 0:
        return None
    size = _FIRST_SIZE
    while True:
        law = places_law(task.length, task.informative, size)
        found = _transitions(task, law)
        if found is None:
            return None
        worst = max(bar / getattr(found, name) for name, bar in found.uncertainty.items())
        if worst <= tolerance or not _can_grow(law):
            break
        size += 1
    if worst <= tolerance:
        return found
    detail = f"relative error {worst:.2g} where {tolerance:g} was wanted"
    solution = Solution(Status.TOLERANCE_NOT_REACHED, worst, 0, detail)
    return HardPhase(found.begins, found.ends, found.appears, found.uncertainty, solution)


def _can_grow(law: PlacesLaw) -> bool:
    scores = law.length * law.replicates * 2 ** (law.log2_points + 1)
    return not law.exact and law.log2_points < _LAST_SIZE and scores <= _MOST_SCORES


class _Landscape:
    """Fixed points and free energies for one replicate of the law of places, or for its mean.

    States are held as t = log m/(1-m): m = Λe/(1 + Λe) reads t = log Λ + log e(θ√m). `scale`
    multiplies e and ψ, to see what their errors do.
    """

    def __init__(
        self, task: Task, law: PlacesLaw, replicate: int | None = None, scale: float = 1.0
    ) -> None:
        self.task, self.law, self.replicate, self.scale = task, law, replicate, scale

    def _column(self, values: Array) -> Array:
        chosen = values.mean(axis=0) if self.replicate is None else values[self.replicate]
        return np.asarray(self.scale * chosen)

    @cached_property
    def turns(self) -> list[float]:
        """States at which log Λ turns, in rising order: maxima and minima in turn."""
        # Beyond, e = R and log Λ only rises.
        top = min(self.task.strength, self.law.known)
        signal = np.linspace(0, top, _GRID + 2)[1:-1]
        square = (signal / self.task.strength) ** 2
        states = np.log(square) - np.log1p(-square)
        rising = np.diff(self.log_ratio(states)) > 0
        corners = np.flatnonzero(rising[1:] != rising[:-1]) + 1
        return [
            float(
                minimize_scalar(
                    lambda t, sign=1 - 2 * rising[index - 1]: sign * self.log_ratio(t),
                    bounds=(states[index - 1], states[index + 1]),
                    method="bounded",
                    options={"xatol": 1e-9},
                ).x
            )
            for index in corners
        ]

    def signal(self, state: Array) -> Array:
        """Return s = θ√m."""
        return np.asarray(self.task.strength * np.sqrt(expit(state)))

    def log_ratio(self, state: Array) -> Array:
        """Return the log Λ at which a state is a fixed point."""
        return np.asarray(state - np.log(self._column(self.law.overlap(self.signal(state)))))

    def fixed_points(self, log_ratio: float) -> list[float]:
        """Return all states that are fixed points at a given log Λ, in rising order."""
        informative = self.task.counts.mean
        scaled = log_ratio + np.log(self.scale)
        # (E R)²/L <= e <= E R, but for the errors of a law of few points.
        low = scaled + np.log(informative**2 / self.task.length) - 1
        high = scaled + np.log(informative) + 1
        # Two solutions next to each other lie on both sides of an extremum.
        turns = [state for state in self.turns if low < state < high]
        grid = np.sort([*np.linspace(low, high, _GRID), *turns])
        excess = self.log_ratio(grid) - log_ratio
        roots = []
        for index in np.flatnonzero((excess[:-1] <= 0) != (excess[1:] <= 0)):
            root = brentq(
                lambda t: float(self.log_ratio(np.array([t]))[0]) - log_ratio,
                grid[index],
                grid[index + 1],
                xtol=1e-13,
                rtol=1e-14,
            )
            roots.append(float(root))
        return roots

    def free_energy(self, alpha: float, state: float) -> float:
        """Return φ = (m + log(1-m))/2 + απψ(θ√m), its value at a fixed point."""
        signal = self.signal(np.array([state]))
        potential = float(self._column(self.law.potential(signal))[0])
        entropy = 0.5 * (expit(state) - np.logaddexp(0.0, state))
        return float(entropy + alpha * self.task.positive_rate * potential)

    def states(self, alpha: float) -> tuple[float, float]:
        """Return the state of message passing and the best one."""
        log_ratio = np.log(alpha * self.task.positive_rate * self.task.strength**2)
        found = self.fixed_points(log_ratio)
        return found[0], max(found, key=lambda state: self.free_energy(alpha, state))


class _States:
    """The two solutions at one α, with the spread that errors of the law give them."""

    def __init__(self, task: Task, law: PlacesLaw, alpha: float) -> None:
        self.task, self.law, self.alpha = task, law, alpha
        if task.strength == 0:
            self.values = dict.fromkeys(("overlap", "reachable_overlap"), 0.0)
            self.values |= dict.fromkeys(("free_energy", "reachable_free_energy"), 0.0)
            self.bars = dict.fromkeys(self.values, 0.0)
            self.hard, self.sure = False, True
            return
        self.values, self.hard = self._solve(_Landscape(task, law))
        relative = min(law.relative_error(task.strength), _LARGEST_SHIFT)
        shifted = [
            self._solve(_Landscape(task, law, scale=1 + sign * relative)) for sign in (1, -1)
        ]
        drawn = []
        if law.replicates > 1:
            drawn = [self._solve(_Landscape(task, law, index)) for index in range(law.replicates)]
        self.sure = all(hard == self.hard for _, hard in (*shifted, *drawn))
        self.bars = {
            name: max(abs(values[name] - value) for values, _ in shifted)
            + (replicate_error(np.array([values[name] for values, _ in drawn])) if drawn else 1e-13)
            for name, value in self.values.items()
        }

    def _solve(self, landscape: _Landscape) -> tuple[dict[str, float], bool]:
        reached, best = landscape.states(self.alpha)
        values = {
            "overlap": float(expit(best)),
            "reachable_overlap": float(expit(reached)),
            "free_energy": landscape.free_energy(self.alpha, best),
            "reachable_free_energy": landscape.free_energy(self.alpha, reached),
        }
        return values, best - reached > _SAME

    @property
    def largest_bar(self) -> float:
        return max(self.bars["overlap"], self.bars["reachable_overlap"])

    def summary(self, tolerance: float) -> Floor:
        found = {"": self._best("overlap", tolerance)}
        found["reachable_"] = self._best("reachable_overlap", tolerance) if self.hard else found[""]
        bars = FloorUncertainty(
            **self.bars, **{f"{name}test_error": best.uncertainty for name, best in found.items()}
        )
        return Floor(
            **self.values,
            **{f"{name}test_error": best.test_error for name, best in found.items()},
            phase="hard" if self.hard else "easy",
            alpha=self.alpha,
            uncertainty=bars,
            solution=self._solution(tolerance, [best.solution for best in found.values()]),
        )

    def _best(self, name: str, tolerance: float) -> Oracle:
        """Return the best classifier at an overlap, the bar with what the overlap's bar moves.

        Moving the R informative tokens by δ each changes the law of a positive by at most
        δ√R/√(2π) in total variation, and so the error by π times that.
        """
        overlap, strength = self.values[name], self.task.strength
        known = self.task.replace(strength=strength * np.sqrt(overlap))
        found = oracle(known, classifier="bayes", tolerance=_ROUGH)
        if found.uncertainty > tolerance and found.test_error > 0:
            found = oracle(known, classifier="bayes", tolerance=tolerance / found.test_error)
        high = min(overlap + self.bars[name], 1.0)
        shift = strength * (np.sqrt(high) - np.sqrt(overlap))
        low = max(overlap - self.bars[name], 0.0)
        shift = max(shift, strength * (np.sqrt(overlap) - np.sqrt(low)))
        moved = self.task.positive_rate * shift * np.sqrt(self.task.counts.mean / (2 * np.pi))
        return replace(found, uncertainty=float(found.uncertainty + moved))

    def _solution(self, tolerance: float, errors: Sequence[Solution]) -> Solution:
        residual = self.largest_bar
        if not self.sure:
            return Solution(Status.NEAR_THRESHOLD, residual, 0, "near an end of the hard phase")
        if residual > tolerance:
            detail = f"the overlap is known to ± {residual:.2g}, {tolerance:g} was wanted"
            return Solution(Status.TOLERANCE_NOT_REACHED, residual, 0, detail)
        for found in errors:
            if found.status is Status.BEYOND_REACH:
                return replace(found, residual=residual)
        return Solution(Status.CONVERGED, residual, 0)


def _transitions(task: Task, law: PlacesLaw) -> HardPhase | None:
    """Return the ends of the hard phase with the spread that errors of the law give them."""
    values = _ends(_Landscape(task, law))
    if values is None:
        return None
    relative = min(law.relative_error(task.strength), _LARGEST_SHIFT)
    shifted = [_ends(_Landscape(task, law, scale=1 + sign * relative)) for sign in (1, -1)]
    drawn = []
    if law.replicates > 1:
        drawn = [_ends(_Landscape(task, law, index)) for index in range(law.replicates)]
    names = ("begins", "ends", "appears")
    bars = dict.fromkeys(names, np.inf)
    # A replicate without a hard phase says that there may be none.
    whole = [item for item in (*shifted, *drawn) if item is not None]
    if len(whole) == len(shifted) + len(drawn):
        near, spread = np.array(whole[:2]), np.array(whole[2:])
        for index, name in enumerate(names):
            bars[name] = (
                float(np.max(np.abs(near[:, index] - values[index]))) + 1e-9 * values[index]
            )
            if drawn:
                bars[name] += replicate_error(spread[:, index])
    return HardPhase(*values, uncertainty=bars, solution=Solution(Status.CONVERGED, 0.0, 0))


def _ends(landscape: _Landscape) -> tuple[float, float, float] | None:
    """Return (begins, ends, appears) in α, or None where every α has one fixed point.

    The log Λ of a fixed point rises with its state except between a maximum and the next minimum:
    the highest maximum is where the small states end, the lowest minimum where large ones appear.
    """
    turns = landscape.turns
    if len(turns) < 2:
        return None
    scale = landscape.task.positive_rate * landscape.task.strength**2
    high = float(landscape.log_ratio(np.array(turns[::2])).max())
    low = float(landscape.log_ratio(np.array(turns[1::2])).min())

    def gain(log_ratio: float) -> float:
        """Return how much more free energy the largest state has than the smallest."""
        alpha = float(np.exp(log_ratio)) / scale
        found = landscape.fixed_points(log_ratio)
        return landscape.free_energy(alpha, found[-1]) - landscape.free_energy(alpha, found[0])

    inner = 1e-7 * (high - low)
    begins = brentq(gain, low + inner, high - inner, xtol=1e-10)
    ends = (float(np.exp(value)) / scale for value in (begins, high, low))
    return next(ends), next(ends), next(ends)
