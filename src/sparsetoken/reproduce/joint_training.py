"""Measurements of training all parameters together, and of the staged training beside it."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar

from sparsetoken.losses import get_loss
from sparsetoken.numerics.threads import one_thread
from sparsetoken.reproduce.claim import Settings, Table
from sparsetoken.reproduce.kinds import floor_errors, prediction
from sparsetoken.reproduce.measurement import Measurement, measures
from sparsetoken.simulation.descent import descent_trial
from sparsetoken.simulation.joint import joint_trial
from sparsetoken.simulation.trials import run_trial
from sparsetoken.task import Query, Step, Task, Training
from sparsetoken.theory.alignment import with_sharpness
from sparsetoken.theory.descent import descend, glance
from sparsetoken.theory.predictor import predict

__all__ = [
    "ask_staged",
    "best_staged",
    "converged_trial",
    "fresh_batches",
    "fresh_batches_trial",
    "full_batch_trial",
    "tuned_query",
    "tuned_query_trial",
]

# A readout so small that the loss is still straight: the query then is taught best.
SMALL_READOUT_STEP = 0.05
QUERY_STEPS = np.geomspace(0.03, 4000, 11)


@measures("theory", shown=("total",))
def fresh_batches(
    task: Task, total: float, rates: Sequence[float], batches: int, tolerance: float
) -> dict[str, Any]:
    """Compute theory of `batches` joint steps, each on as many fresh samples."""
    state = descend(task, _equal_steps(total, rates, batches), tolerance=tolerance).records[-1]
    if not state.solution.converged:
        raise ArithmeticError(f"theory of the descent: {state.solution.message}")
    return state.to_dict()


@measures("simulation", shown=("total", "dimension"))
def fresh_batches_trial(
    task: Task,
    total: float,
    rates: Sequence[float],
    batches: int,
    dimension: int,
    trial: int,
    seed: int = 0,
) -> dict[str, Any]:
    """Take the same steps on drawn data."""
    steps = _equal_steps(total, rates, batches)
    return descent_trial(task, steps, dimension, trial, get_loss("logistic"), seed=seed)[-1]


@measures("simulation", shown=("total", "dimension"))
@one_thread
def full_batch_trial(
    task: Task,
    total: float,
    rates: Sequence[float],
    checkpoints: Sequence[int],
    dimension: int,
    trial: int,
    seed: int = 0,
) -> dict[str, Any]:
    """Take joint steps that all see the same data; errors after some of them."""
    steps = (_step(total, rates),) * max(checkpoints)
    loss = get_loss("logistic")
    path = descent_trial(task, steps, dimension, trial, loss, "plain", reuse=True, seed=seed)
    return {f"error_after_{number}": path[number - 1]["test_error"] for number in checkpoints}


@measures("simulation", shown=("dimension", "start", "query_ridge"))
@one_thread
def converged_trial(
    task: Task,
    training: Training,
    start: str,
    query_ridge: float,
    dimension: int,
    trial: int,
    seed: int = 0,
) -> dict[str, Any]:
    """Minimise the loss with ridges over all parameters, from a start, on one drawn data set."""
    found, solution = joint_trial(task, training, dimension, trial, start, query_ridge, seed=seed)
    if not solution.converged:
        raise ArithmeticError(f"joint training: {solution.message}")
    return found


@measures("theory", shown=("batches",))
def tuned_query(
    task: Task, training: Training, batches: int, sharpness: float, tolerance: float
) -> dict[str, Any]:
    """Compute theory of a query after `batches` joint steps at the best rate, and of its readout.

    The steps share alpha0 d fresh samples; alpha1 d more fit the readout, at a given sharpness.
    """
    steps = tuned_steps(task, training.alpha0, batches)
    state = descend(task, steps, tolerance=tolerance).records[-1]
    query = Query(state.alignment, sharpness)
    fitted = predict(task, training, query=query, tolerance=tolerance)
    return {
        "alignment": state.alignment,
        "alignment_uncertainty": state.uncertainty["alignment"],
        "amplification": state.amplification,
        "query_step": steps[0].query_step,
        "test_error": fitted.test_error,
        "test_error_uncertainty": fitted.uncertainty.test_error,
    }


@measures("simulation", shown=("batches", "dimension"))
def tuned_query_trial(
    task: Task,
    training: Training,
    batches: int,
    sharpness: float,
    dimension: int,
    trial: int,
    seed: int = 0,
) -> dict[str, Any]:
    """Do the same on drawn data."""
    steps = tuned_steps(task, training.alpha0, batches)
    state = descent_trial(task, steps, dimension, trial, get_loss("logistic"), seed=seed)[-1]
    query = Query(state["alignment"], sharpness)
    fitted = run_trial(
        task,
        training,
        dimension=dimension,
        trial=trial,
        query=query,
        seed=seed,
        check_separable=False,
    )
    return {"alignment": state["alignment"], "test_error": fitted.test_error}


@lru_cache(maxsize=64)
def tuned_steps(task: Task, total: float, batches: int) -> tuple[Step, ...]:
    """Return `batches` equal steps that share all samples, with the query step that aligns best."""

    def steps(log_rate: float) -> tuple[Step, ...]:
        return _equal_steps(total, (SMALL_READOUT_STEP, 0.0, float(np.exp(log_rate))), batches)

    def misalignment(log_rate: float) -> float:
        return -glance(task, steps(log_rate))["alignment"]

    tried = np.log(QUERY_STEPS)
    best = int(np.argmin([misalignment(rate) for rate in tried]))
    bounds = (tried[max(best - 1, 0)], tried[min(best + 1, len(tried) - 1)])
    found = minimize_scalar(misalignment, bounds=bounds, method="bounded", options={"xatol": 0.03})
    return steps(found.x)


def _equal_steps(total: float, rates: Sequence[float], batches: int) -> tuple[Step, ...]:
    """Return `batches` steps with rates (η_w, η_b, η_q) that share all samples."""
    return (_step(total / batches, rates),) * batches


def _step(alpha: float, rates: Sequence[float]) -> Step:
    readout, bias, query = rates
    return Step(alpha, readout_step=readout, bias_step=bias, query_step=query)


def ask_staged(settings: Settings, task: Task, total: float, **labels: Any) -> list[Measurement]:
    """Ask for theory of the staged training over its settings, with and without a split, and floor.

    `settings` has "staged_ridges", "staged_sharpnesses", "shares" and theory's "tolerance".
    """
    labels["total"] = total
    made = [floor_errors.ask(task, total, part="floor", **labels)]
    for share in (None, *settings["shares"]):
        first, second = (total, total) if share is None else (share * total, (1 - share) * total)
        made += [
            prediction.ask(
                task,
                with_sharpness(
                    task, Training(first, second, ridge=ridge, reuse=share is None), kappa
                ),
                tolerance=settings["tolerance"],
                part="no split" if share is None else "split",
                share=share or 0.0,
                ridge=ridge,
                kappa=kappa,
                **labels,
            )
            for ridge in settings["staged_ridges"]
            for kappa in settings["staged_sharpnesses"]
        ]
    return made


def best_staged(table: Table, part: str, **labels: Any) -> float:
    """Return the least predicted error of the staged training ("split" or "no split")."""
    return float(table.select(source="theory", part=part, **labels).column("test_error").min())
