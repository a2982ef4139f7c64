"""Joint gradient descent on fresh batches, from draws (docs/theory.md, section 11.3).

"plain" builds every batch of sequences and takes gradients of arrays. "reduced" has the same law at
any dimension and draws three coordinates of each token, in the span of signal, readout and query;
what the batch adds outside of it is Gaussian, with a covariance that those coordinates fix.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from sparsetoken import validation
from sparsetoken.arrays import Array
from sparsetoken.learning.gradient import batch_sums
from sparsetoken.limits import MOST_DIMENSIONS, MOST_TRIALS
from sparsetoken.losses import Loss, get_loss
from sparsetoken.records import Curve, Record
from sparsetoken.simulation.averages import averages, repeated
from sparsetoken.simulation.geometry import AttentionGeometry
from sparsetoken.simulation.random_streams import stream
from sparsetoken.simulation.sampling import SAMPLERS, Sample, first_places, sample, sample_labels
from sparsetoken.task import Step, Task
from sparsetoken.validation import ParameterError

__all__ = ["DescentTrials", "descent_trial", "describe_classifier", "simulate_descent"]

# Entries of one block of tokens.
_BLOCK_ENTRIES = 2**18


@dataclass(frozen=True)
class DescentTrials(Record):
    """Means over trials of the classifier after some steps; see `DescentState` for the names.

    Attributes
    ----------
    test_error, alignment, query_norm, sharpness, readout_cosine, readout_norm, bias : float
    uncertainty : dict
        Standard errors of the means; None with one trial.
    dimension, trials : int

    Examples
    --------
    >>> from sparsetoken import Step, Task, simulate_descent
    >>> step = Step(alpha=8.0, readout_step=2.0, bias_step=1.0, query_step=2.0)
    >>> first = simulate_descent(Task(6, 1, 5.0), [step], dimension=60, trials=2)[0]
    >>> first.trials, 0.5 < first.readout_cosine < 1
    (2, True)
    """

    sampled: ClassVar[bool] = True

    test_error: float
    alignment: float
    query_norm: float
    sharpness: float
    readout_cosine: float
    readout_norm: float
    bias: float
    uncertainty: dict[str, float | None]
    dimension: int
    trials: int


def simulate_descent(
    task: Task,
    steps: Sequence[Step],
    *,
    dimension: int,
    trials: int = 8,
    loss: str = "logistic",
    sampler: str = "reduced",
    reuse: bool = False,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Curve[DescentTrials]:
    """Take joint gradient steps on batches drawn from a task; means over trials after each step.

    Parameters
    ----------
    task : Task
    steps : sequence of Step
        As for `descend`.
    dimension : int >= 5
    trials : int
    loss : str
    sampler : "reduced" or "plain"
    reuse : bool
        Every step sees the same batch (full-batch descent), instead of a fresh one. There is no
        theory of it, and it needs the "plain" sampler.
    seed : int
    progress : callable, optional
        Called as progress(finished, trials) after every trial.

    Returns
    -------
    Curve over "step" of DescentTrials

    Examples
    --------
    >>> from sparsetoken import Step, Task, simulate_descent
    >>> step = Step(alpha=8.0, readout_step=2.0, bias_step=1.0, query_step=2.0)
    >>> path = simulate_descent(Task(6, 1, 5.0), [step, step], dimension=60, trials=2)
    >>> path.values, path[1].alignment > 0.5
    ((1, 2), True)
    """
    validation.instance("task", task, Task)
    chosen = tuple(validation.several("steps", steps, "Step"))
    if not chosen or not all(isinstance(step, Step) for step in chosen):
        raise ParameterError("steps", steps, "one Step or more")
    dimension = validation.integer("dimension", dimension, low=5, high=MOST_DIMENSIONS)
    trials = validation.integer("trials", trials, low=1, high=MOST_TRIALS)
    seed = validation.integer("seed", seed, low=0)
    validation.choice("sampler", sampler, SAMPLERS)
    _check_reuse(reuse, sampler, chosen)
    slope = get_loss(loss)

    def one(trial: int) -> list[dict[str, float]]:
        return descent_trial(task, chosen, dimension, trial, slope, sampler, reuse, seed)

    paths = repeated(one, trials, progress)
    records = []
    for rows in zip(*paths, strict=True):
        means, errors = averages(rows)
        records.append(
            DescentTrials(**means, uncertainty=errors, dimension=dimension, trials=trials)
        )
    known = {**task.to_dict(), "loss": slope.name, "dimension": dimension}
    return Curve("step", tuple(range(1, len(chosen) + 1)), tuple(records), known)


def descent_trial(
    task: Task,
    steps: Sequence[Step],
    dimension: int,
    trial: int,
    loss: Loss,
    sampler: str = "reduced",
    reuse: bool = False,
    seed: int = 0,
) -> list[dict[str, float]]:
    """Take the steps once and return what is reported after each of them."""
    settings = {
        "stage": "descent",
        "task": task.to_dict(),
        "steps": [step.to_dict() for step in steps],
        "loss": loss.name,
        "dimension": dimension,
        "sampler": sampler,
        **({"reuse": True} if reuse else {}),
    }
    rng = stream(seed, settings, trial)
    state = _DESCENDING["full batch" if reuse else sampler](task, dimension, rng)
    return [_after(task, loss, step, state, rng) for step in steps]


def _check_reuse(reuse: bool, sampler: str, steps: Sequence[Step]) -> None:
    validation.boolean("reuse", reuse)
    if reuse and sampler != "plain":
        raise ParameterError("sampler", sampler, "'plain' with reuse")
    if reuse and len({step.alpha for step in steps}) > 1:
        found = [step.alpha for step in steps]
        raise ParameterError("alpha", found, "the same in all steps with reuse: one batch")


class _Descending(Protocol):
    """A classifier that takes steps, and its vectors in coordinates whose first is the signal."""

    bias: float

    def advance(self, step: Step, loss: Loss) -> None:
        """Take one step on a fresh batch."""

    def vectors(self) -> tuple[Array, Array]:
        """Return the readout and the query."""


def _after(
    task: Task, loss: Loss, step: Step, state: _Descending, rng: np.random.Generator
) -> dict[str, float]:
    """Take a step and return what is reported."""
    state.advance(step, loss)
    readout, query = state.vectors()
    return describe_classifier(task, readout, query, state.bias, step.inverse_temperature, rng)


def describe_classifier(
    task: Task, readout: Array, query: Array, bias: float, beta: float, rng: np.random.Generator
) -> dict[str, float]:
    """Return what is reported of a classifier, in coordinates whose first is the signal."""
    query_norm, readout_norm = float(np.linalg.norm(query)), float(np.linalg.norm(readout))
    sharpness = beta * query_norm
    # A query of 0 has no direction, and any will do: that of the signal.
    unit = query / query_norm if query_norm > 0 else np.eye(1, len(query))[0]
    alignment, along = float(unit[0]), float(unit @ readout)
    slant = math.sqrt(max(0.0, 1 - alignment**2))
    across = (float(readout[0]) - alignment * along) / slant if slant > 1e-7 else 0.0
    rest = math.sqrt(max(readout_norm**2 - along**2, 0.0))
    seen = AttentionGeometry(alignment, sharpness, along, across, rest, bias)
    return {
        "test_error": seen.test_error(task, rng)[0],
        "alignment": alignment if query_norm > 0 else 0.0,
        "query_norm": query_norm,
        "sharpness": sharpness,
        "readout_cosine": float(readout[0]) / readout_norm if readout_norm > 0 else 0.0,
        "readout_norm": readout_norm,
        "bias": bias,
    }


class _Plain:
    """Vectors of all d coordinates, and batches of whole sequences."""

    def __init__(self, task: Task, dimension: int, rng: np.random.Generator) -> None:
        self._task, self._rng, self._dimension = task, rng, dimension
        self._signal = np.eye(1, dimension)[0]
        self._readout, self._query, self.bias = np.zeros(dimension), np.zeros(dimension), 0.0

    def advance(self, step: Step, loss: Loss) -> None:
        count = max(1, round(step.alpha * self._dimension))
        batch = self._batch(count)
        beta = step.inverse_temperature
        sums = batch_sums(batch.X, batch.y, self._readout, self._query, self.bias, beta, loss)
        self._readout = self._readout - step.readout_step / count * sums.readout
        self._query = self._query - step.query_step * beta / count * sums.query
        self.bias -= step.bias_step / count * sums.bias

    def _batch(self, count: int) -> Sample:
        return sample(
            self._task, count, dimension=self._dimension, rng=self._rng, signal=self._signal
        )

    def vectors(self) -> tuple[Array, Array]:
        return self._readout, self._query


class _FullBatch(_Plain):
    """The same, with one batch for all steps."""

    _kept: Sample | None = None

    def _batch(self, count: int) -> Sample:
        if self._kept is None:
            self._kept = super()._batch(count)
        return self._kept


class _Reduced:
    """Vectors in a frame of three axes: the signal, the rest of the readout, the rest of the query."""

    def __init__(self, task: Task, dimension: int, rng: np.random.Generator) -> None:
        self._task, self._rng, self._dimension = task, rng, dimension
        self._readout, self._query, self.bias = np.zeros(3), np.zeros(3), 0.0

    def advance(self, step: Step, loss: Loss) -> None:
        count = max(1, round(step.alpha * self._dimension))
        beta = step.inverse_temperature
        readout, query, slope = np.zeros(3), np.zeros(3), 0.0
        squares = np.zeros((2, 2))
        size = max(1, _BLOCK_ENTRIES // (3 * self._task.length))
        for start in range(0, count, size):
            X, y = self._tokens(min(size, count - start))
            sums = batch_sums(X, y, self._readout, self._query, self.bias, beta, loss)
            readout += sums.readout
            query += sums.query
            slope += sums.bias
            squares += sums.squares
        rates = np.array([step.readout_step, step.query_step * beta]) / count
        outside = rates[:, None] * (_factor(squares) @ self._wishart_factor())
        self._readout = self._readout - rates[0] * readout
        self._query = self._query - rates[1] * query
        self.bias -= step.bias_step / count * slope
        self._turn(-outside)

    def _tokens(self, count: int) -> tuple[Array, Array]:
        """Draw the three coordinates of each token, the signal in the first R tokens."""
        y = sample_labels(self._task, count, self._rng)
        X = self._rng.standard_normal((count, self._task.length, 3))
        places = first_places(self._task, count, self._rng) & (y > 0)[:, None]
        X[:, :, 0] += self._task.strength * places
        return X, y

    def _wishart_factor(self) -> Array:
        """Draw T with T Tᵀ a 2 x 2 Wishart matrix of d - 3 degrees (Bartlett)."""
        degrees = self._dimension - 3
        first, second = np.sqrt(
            [2 * self._rng.standard_gamma((degrees - index) / 2) for index in range(2)]
        )
        return np.array([[first, 0.0], [self._rng.standard_normal(), second]])

    def _turn(self, outside: Array) -> None:
        """Add the parts outside the frame and turn to the frame of the new vectors."""
        pair = np.vstack([np.append(self._readout, outside[0]), np.append(self._query, outside[1])])
        rest = pair[:, 1:]
        triangle = _factor(rest @ rest.T)
        self._readout = np.array([pair[0, 0], *triangle[0]])
        self._query = np.array([pair[1, 0], *triangle[1]])

    def vectors(self) -> tuple[Array, Array]:
        return self._readout, self._query


def _factor(square: Array) -> Array:
    """Return the lower triangular factor of a 2 x 2 matrix, which may be singular."""
    first = math.sqrt(max(float(square[0, 0]), 0.0))
    shared = float(square[1, 0]) / first if first > 0 else 0.0
    return np.array([[first, 0.0], [shared, math.sqrt(max(float(square[1, 1]) - shared**2, 0.0))]])


_DESCENDING: dict[str, Callable[[Task, int, np.random.Generator], _Descending]] = {
    "reduced": _Reduced,
    "plain": _Plain,
    "full batch": _FullBatch,
}
