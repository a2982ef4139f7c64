"""All parameters trained together on all data, to convergence, from draws.

No theory is known for this: the samples of every step are those of the steps before.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.optimize import minimize

from sparsetoken import validation
from sparsetoken.arrays import Array
from sparsetoken.learning.features import attention_features
from sparsetoken.learning.gradient import batch_sums
from sparsetoken.learning.readout import fit_readout
from sparsetoken.learning.stages import first_step, query_step
from sparsetoken.limits import MOST_DIMENSIONS, MOST_TRIALS
from sparsetoken.losses import get_loss
from sparsetoken.numerics.solution import Solution, Status
from sparsetoken.numerics.threads import one_thread
from sparsetoken.records import Record
from sparsetoken.simulation.averages import averages, repeated
from sparsetoken.simulation.descent import describe_classifier
from sparsetoken.simulation.random_streams import stream
from sparsetoken.simulation.sampling import Sample, sample
from sparsetoken.task import Task, Training
from sparsetoken.validation import ParameterError

__all__ = ["STARTS", "JointTrials", "joint_trial", "simulate_joint", "train_together"]

# Relative decrease of the objective in one step, and largest entry of the gradient, at the end.
SMALLEST_DECREASE = 1e-11
SMALLEST_GRADIENT = 1e-6
# Beyond this entry of the gradient the end is no minimum.
LARGEST_GRADIENT = 1e-3
# Steps that limited-memory BFGS remembers.
MEMORY = 20
# How scipy calls an end at the limit of steps or evaluations.
_LIMIT_REACHED = 1


@dataclass(frozen=True)
class JointTrials(Record):
    """Means over trials of attention whose parameters were trained together on the same data.

    Attributes
    ----------
    test_error : float
    train_loss, train_error : float
        Mean loss (without ridges) and share of wrong labels on the training data.
    alignment, query_norm, sharpness, readout_cosine, readout_norm, bias : float
        As for `descend`: of the query and the readout at the end.
    objective : float
        Mean loss with both ridges, which training makes small; it compares starts.
    uncertainty : dict
        Standard errors of the means; None with one trial.
    start : str
    dimension, trials : int
    solution : Solution
        Of the worst trial.

    Examples
    --------
    >>> from sparsetoken import Task, Training, simulate_joint
    >>> training = Training(3, 3, ridge=0.02, query_step=20.0, reuse=True)
    >>> found = simulate_joint(Task(6, 1, 5.0), training, dimension=40, trials=2, start="two-step")
    >>> found.start, found.trials, found.train_error < 0.2
    ('two-step', 2, True)
    """

    sampled: ClassVar[bool] = True

    test_error: float
    train_loss: float
    train_error: float
    alignment: float
    query_norm: float
    sharpness: float
    readout_cosine: float
    readout_norm: float
    bias: float
    objective: float
    uncertainty: dict[str, float | None]
    start: str
    dimension: int
    trials: int
    solution: Solution


@one_thread
def simulate_joint(
    task: Task,
    training: Training,
    *,
    dimension: int,
    trials: int = 8,
    start: str = "zero",
    query_ridge: float | None = None,
    max_steps: int = 2000,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> JointTrials:
    """Train query, readout and bias together on all data by limited-memory BFGS; means over trials.

    The objective is (1/n) Σ ℓ(y(⟨f_q(X), w⟩ + b)) + (λ/2)‖w‖² + (λ_q/2)‖q‖², which is not convex.
    The trials of all starts see the same data.

    Parameters
    ----------
    task : Task
    training : Training
        With `reuse=True`; its sample ratio, smooth loss, ridge λ and inverse temperature. Its rates
        matter for the start "two-step" only, and for the norm of "random".
    dimension : int >= 2
    trials : int
    start : "zero", "two-step" or "random"
        Everything 0; the query after two gradient steps with the readout fitted to it; a query of
        random direction, of the two-step query's norm, with the readout fitted to it.
    query_ridge : float >= 0, optional
        λ_q; that of the readout if not given.
    max_steps : int
        Most steps of a trial.
    seed : int
    progress : callable, optional
        Called as progress(finished, trials) after every trial.

    Returns
    -------
    JointTrials

    Examples
    --------
    >>> from sparsetoken import Task, Training, simulate_joint
    >>> training = Training(3, 3, ridge=0.02, query_step=20.0, reuse=True)
    >>> found = simulate_joint(Task(6, 1, 5.0), training, dimension=40, trials=2)
    >>> bool(found.test_error < 0.3), found.solution.converged
    (True, True)
    """
    validation.instance("task", task, Task)
    validation.instance("training", training, Training)
    loss = get_loss(training.loss)
    if not loss.smooth:
        raise ParameterError("training.loss", loss.name, "a loss with a continuous slope")
    if not training.reuse:
        raise ParameterError("training.reuse", False, "True: one data set serves all parameters")
    dimension = validation.integer("dimension", dimension, low=2, high=MOST_DIMENSIONS)
    trials = validation.integer("trials", trials, low=1, high=MOST_TRIALS)
    max_steps = validation.integer("max_steps", max_steps, low=1)
    seed = validation.integer("seed", seed, low=0)
    validation.choice("start", start, STARTS)
    ridge = training.ridge if query_ridge is None else query_ridge
    ridge = validation.real("query_ridge", ridge, low=0)

    def one(trial: int) -> tuple[dict[str, float], Solution]:
        return joint_trial(task, training, dimension, trial, start, ridge, max_steps, seed)

    rows, solutions = zip(*repeated(one, trials, progress), strict=True)
    means, errors = averages(rows)
    worst = max(solutions, key=lambda one: (not one.converged, one.residual))
    return JointTrials(
        **means,
        uncertainty=errors,
        start=start,
        dimension=dimension,
        trials=trials,
        solution=worst,
    )


def joint_trial(
    task: Task,
    training: Training,
    dimension: int,
    trial: int,
    start: str,
    query_ridge: float,
    max_steps: int = 2000,
    seed: int = 0,
) -> tuple[dict[str, float], Solution]:
    """Draw one data set, train on it, and return what is reported."""
    settings = {
        "stage": "joint",
        "task": task.to_dict(),
        "training": training.to_dict(),
        "dimension": dimension,
    }
    rng = stream(seed, settings, trial)
    count = max(2, round(training.alpha1 * dimension))
    data = sample(task, count, dimension=dimension, rng=rng, signal=np.eye(1, dimension)[0])
    beginning = STARTS[start](data, training, rng)
    point, solution = train_together(data, training, beginning, query_ridge, max_steps)
    readout, query, bias = point[:dimension], point[dimension:-1], float(point[-1])
    beta = training.inverse_temperature
    sums = batch_sums(data.X, data.y, readout, query, bias, beta, get_loss(training.loss))
    penalty = training.ridge * float(readout @ readout) + query_ridge * float(query @ query)
    return {
        **describe_classifier(task, readout, query, bias, beta, rng),
        "train_loss": sums.loss / count,
        "train_error": sums.errors / count,
        "objective": sums.loss / count + penalty / 2,
    }, solution


def train_together(
    data: Sample, training: Training, start: Array, query_ridge: float, max_steps: int
) -> tuple[Array, Solution]:
    """Minimise the joint objective from a point (w, q, b) of length 2 d + 1; return where it ends."""
    count, dimension = len(data.y), data.X.shape[2]
    loss, beta = get_loss(training.loss), training.inverse_temperature
    ridges = np.repeat([training.ridge, query_ridge, 0.0], [dimension, dimension, 1])

    def objective(point: Array) -> tuple[float, Array]:
        readout, query, bias = point[:dimension], point[dimension:-1], float(point[-1])
        sums = batch_sums(data.X, data.y, readout, query, bias, beta, loss)
        gradient = np.concatenate([sums.readout, beta * sums.query, [sums.bias]]) / count
        value = sums.loss / count + 0.5 * float(ridges @ point**2)
        return value, gradient + ridges * point

    found = minimize(
        objective,
        start,
        jac=True,
        method="L-BFGS-B",
        options={
            "maxiter": max_steps,
            "maxfun": 10 * max_steps,
            "ftol": SMALLEST_DECREASE,
            "gtol": SMALLEST_GRADIENT,
            "maxcor": MEMORY,
        },
    )
    residual = float(np.abs(found.jac).max())
    if found.status == _LIMIT_REACHED:
        status = Status.STEP_LIMIT
    elif training.ridge == 0 and np.isinf(loss.minimisers[0]) and _separates(found.x, data, beta):
        status = Status.NO_MINIMUM  # a larger readout has a smaller loss, for ever
    else:
        status = Status.CONVERGED if residual < LARGEST_GRADIENT else Status.STALLED
    return found.x, Solution(status, residual, int(found.nit))


def _separates(point: Array, data: Sample, beta: float) -> bool:
    """Return whether the point (w, q, b) has all labels right, with margins of any size."""
    dimension = data.X.shape[2]
    mapped = attention_features(data.X, point[dimension:-1], beta)
    return bool(np.all(data.y * (mapped @ point[:dimension] + point[-1]) > 0))


def _zero(data: Sample, training: Training, rng: np.random.Generator) -> Array:  # noqa: ARG001
    return np.zeros(2 * data.X.shape[2] + 1)


def _two_step(data: Sample, training: Training, rng: np.random.Generator) -> Array:  # noqa: ARG001
    return _fitted(data, training, _staged_query(data, training))


def _random(data: Sample, training: Training, rng: np.random.Generator) -> Array:
    direction = rng.standard_normal(data.X.shape[2:])
    direction *= np.linalg.norm(_staged_query(data, training)) / np.linalg.norm(direction)
    return _fitted(data, training, direction)


def _staged_query(data: Sample, training: Training) -> Array:
    weights, bias = first_step(data.X, data.y, training)
    return query_step(data.X, data.y, weights, bias, training)


def _fitted(data: Sample, training: Training, query: Array) -> Array:
    """Return the point (w, q, b) of a query and the readout fitted to it."""
    mapped = attention_features(data.X, query, training.inverse_temperature)
    readout = fit_readout(mapped, data.y, loss=get_loss(training.loss), ridge=training.ridge)
    return np.concatenate([readout.weights, query, [readout.bias]])


STARTS: dict[str, Callable[[Sample, Training, np.random.Generator], Array]] = {
    "zero": _zero,
    "two-step": _two_step,
    "random": _random,
}
