"""Limited-memory BFGS for many problems at once, which share every pass over the data.

The problems are independent: each has its own steps, memory and end. They only wait for each other,
so that one product of the tokens with many vectors serves them all.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from sparsetoken.arrays import Array
from sparsetoken.numerics.solution import Solution, Status

__all__ = ["Descents", "Objectives", "minimise_together"]

# Steps that are remembered, as many as by default in SciPy.
MEMORY = 10
# A step is accepted if it lowers the value by this share of what the slope promises.
SUFFICIENT = 1e-4
# Small decreases in a row after which a problem has converged: one alone may be a poor step.
IN_A_ROW = 2
# Losses and features are of the order of 1: such a gradient, or such a step, changes no digit shown.
SMALLEST_GRADIENT = 1e-6
SMALLEST_STEP = 1e-9

# From points (A, m) and the numbers of their problems (A,) to values (A,) and gradients (A, m).
Objectives = Callable[[Array, Array], tuple[Array, Array]]


@dataclass(frozen=True)
class Descents:
    """Where P descents ended, and how.

    Attributes
    ----------
    points : array of shape (P, m)
    values : array of shape (P,)
    solutions : P of them
        The residual is the largest entry of the gradient.
    """

    points: Array
    values: Array
    solutions: list[Solution]

    @property
    def most_steps(self) -> int:
        """The number of steps of the longest descent."""
        return max(one.steps for one in self.solutions)


def minimise_together(
    objectives: Objectives,
    starts: Array,
    *,
    max_steps: int,
    tolerance: float,
    progress: Callable[[int, Array], None] | None = None,
) -> Descents:
    """Minimise P functions from the rows of `starts` (P, m).

    A problem has converged when two steps in a row lower its value by less than `tolerance` times
    the larger of the value and 1, or when no entry of its gradient exceeds 1e-6.

    Parameters
    ----------
    progress : called with the number of evaluations and the values, after each of them
    """
    run = _Run(objectives, np.array(starts, dtype=float), max_steps, tolerance)
    evaluations = 1
    while run.active.any():
        run.advance()
        evaluations += 1
        if progress is not None:
            progress(evaluations, run.best_values)
    return run.ends()


class _Run:
    """The state of the descents that have not ended, and where all of them are so far."""

    def __init__(
        self, objectives: Objectives, points: Array, max_steps: int, tolerance: float
    ) -> None:
        count, size = points.shape
        self.objectives, self.max_steps, self.tolerance = objectives, max_steps, tolerance
        values, self.gradients = objectives(points, np.arange(count))
        self.best_points, self.best_values = points.copy(), values.copy()
        self.residuals = np.abs(self.gradients).max(axis=1)
        self.steps = np.zeros(count, dtype=int)
        flat = self.residuals <= SMALLEST_GRADIENT
        self.converged = flat
        # From here on, arrays have a row for each problem that goes on; `rows` says which it is.
        self.rows = np.arange(count)
        self.active = ~flat & np.isfinite(values)
        self.points, self.values = points, values
        self.pairs = np.zeros((count, 2 * MEMORY, size))  # steps, then changes of the gradient
        self.products = np.zeros((count, 2 * MEMORY, 2 * MEMORY))
        self.inverse = np.zeros((count, MEMORY))
        self.scale = np.ones(count)
        self.slot = 0
        self.small = np.zeros(count, dtype=int)
        self.directions, self.slopes = -self.gradients, -_dots(self.gradients, self.gradients)
        self.lengths = 1 / np.maximum(np.sqrt(-self.slopes), 1.0)
        self._compact()

    def advance(self) -> None:
        """Evaluate every problem once at the end of its present step."""
        trial = self.points + self.lengths[:, None] * self.directions
        with np.errstate(over="ignore", invalid="ignore"):
            values, gradients = self.objectives(trial, self.rows)
        promised = self.lengths * self.slopes
        enough = values <= self.values + SUFFICIENT * promised
        self._shorten(~enough, values)
        self._remember(enough, trial, gradients)
        gains = self.values - values
        little = gains <= self.tolerance * np.maximum(np.abs(values), 1.0)
        self.small = np.where(enough, np.where(little, self.small + 1, 0), self.small)
        self.points = np.where(enough[:, None], trial, self.points)
        self.values = np.where(enough, values, self.values)
        self.gradients = np.where(enough[:, None], gradients, self.gradients)
        self._turn(enough)
        self._finish(enough)

    def _remember(self, enough: Array, trial: Array, gradients: Array) -> None:
        """Keep the accepted steps, with the changes of the gradient along them."""
        moved = np.where(enough[:, None], trial - self.points, 0.0)
        turned = np.where(enough[:, None], gradients - self.gradients, 0.0)
        products, squares = _dots(moved, turned), _dots(turned, turned)
        curved = enough & (products > 1e-12 * squares)  # else the pair would spoil the memory
        self.pairs[:, self.slot], self.pairs[:, MEMORY + self.slot] = moved, turned
        self.inverse[:, self.slot] = np.where(curved, 1 / np.where(curved, products, 1.0), 0.0)
        self.scale = np.where(curved, products / np.where(curved, squares, 1.0), self.scale)
        both = self.pairs @ np.stack([moved, turned], axis=2)
        for column, place in enumerate((self.slot, MEMORY + self.slot)):
            self.products[:, place] = self.products[:, :, place] = both[:, :, column]
        self.slot = (self.slot + 1) % MEMORY

    def _shorten(self, too_far: Array, values: Array) -> None:
        """Shorten steps that went too far, to the minimum of a parabola within bounds."""
        with np.errstate(over="ignore", invalid="ignore"):
            bend = values - self.values - self.lengths * self.slopes
            best = -0.5 * self.slopes * self.lengths / bend
        share = np.where(np.isfinite(best), np.clip(best, 0.1, 0.5), 0.1)
        self.lengths = np.where(too_far, self.lengths * share, self.lengths)

    def _turn(self, enough: Array) -> None:
        """Set the next direction, slope and first length of the problems that moved."""
        directions = -self._times_inverse_hessian()
        slopes = _dots(directions, self.gradients)
        uphill = ~(slopes < 0)
        directions = np.where(uphill[:, None], -self.gradients, directions)
        slopes = np.where(uphill, -_dots(self.gradients, self.gradients), slopes)
        lengths = np.where(uphill, 1 / np.maximum(np.sqrt(-slopes), 1.0), 1.0)
        self.directions = np.where(enough[:, None], directions, self.directions)
        self.slopes = np.where(enough, slopes, self.slopes)
        self.lengths = np.where(enough, lengths, self.lengths)

    def _times_inverse_hessian(self) -> Array:
        """Return the two loops of limited-memory BFGS, on coefficients of the pairs alone."""
        along = (self.pairs @ self.gradients[:, :, None])[:, :, 0]
        shares = np.zeros_like(self.inverse)
        of_pairs = np.zeros_like(along)
        order = [(self.slot - age) % MEMORY for age in range(1, MEMORY + 1)]
        for place in order:
            overlap = along[:, place] + _dots(self.products[:, place], of_pairs)
            shares[:, place] = self.inverse[:, place] * overlap
            of_pairs[:, MEMORY + place] = -shares[:, place]
        of_pairs *= self.scale[:, None]
        for place in reversed(order):
            row = MEMORY + place
            overlap = self.scale * along[:, row] + _dots(self.products[:, row], of_pairs)
            of_pairs[:, place] += shares[:, place] - self.inverse[:, place] * overlap
        combined = (of_pairs[:, None] @ self.pairs)[:, 0]
        return np.asarray(self.scale[:, None] * self.gradients + combined)

    def _finish(self, enough: Array) -> None:
        """Write down the problems' places, and end those that have converged."""
        self.steps[self.rows] += enough
        self.best_points[self.rows], self.best_values[self.rows] = self.points, self.values
        self.residuals[self.rows] = np.abs(self.gradients).max(axis=1)
        flat = self.residuals[self.rows] <= SMALLEST_GRADIENT
        # No step downhill is left at the precision of the numbers: this is a minimum.
        stuck = self.lengths < SMALLEST_STEP
        done = flat | stuck | (self.small >= IN_A_ROW)
        self.converged[self.rows] = done
        self.active = ~done & (self.steps[self.rows] < self.max_steps)
        self._compact()

    def ends(self) -> Descents:
        """Return where all descents are, and how they got there."""
        solutions = []
        for residual, steps, done in zip(self.residuals, self.steps, self.converged, strict=True):
            # What has neither converged nor taken all steps had no finite value to begin with.
            failed = Status.STEP_LIMIT if steps >= self.max_steps else Status.DEGENERATE
            status = Status.CONVERGED if done else failed
            solutions.append(Solution(status, float(residual), int(steps)))
        return Descents(self.best_points, self.best_values, solutions)

    def _compact(self) -> None:
        """Drop the problems that have ended."""
        if self.active.all():
            return
        kept = self.active
        for name in (
            *("rows", "points", "values", "gradients", "pairs", "products", "inverse"),
            *("scale", "small", "directions", "slopes", "lengths", "active"),
        ):
            setattr(self, name, getattr(self, name)[kept])


def _dots(left: Array, right: Array) -> Array:
    """Return the inner products of rows."""
    return np.asarray(np.vecdot(left, right))
