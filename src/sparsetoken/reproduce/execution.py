"""Do the jobs that claims are made of: from plain arguments to plain numbers."""

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import logsumexp, softmax

from sparsetoken.arrays import Array
from sparsetoken.reproduce.claim import Result
from sparsetoken.simulation.reduced import reduced_query
from sparsetoken.simulation.streams import stream
from sparsetoken.simulation.trials import run_trial
from sparsetoken.task import Query, Task, Training
from sparsetoken.theory.alignment import align
from sparsetoken.theory.capacity import capacity
from sparsetoken.theory.oracle import Oracle, oracle, required_strength
from sparsetoken.theory.prediction import predict
from sparsetoken.validation import ParameterError, choice

__all__ = ["execute", "run_cell"]

BLOCK_ENTRIES = 2**21


def run_cell(settings: Mapping[str, Any], trial: int) -> Result:  # noqa: ARG001
    """Do the job of one cell of a store; the trial's number, if any, is among its arguments."""
    return execute(settings["kind"], settings["arguments"])


def execute(kind: str, arguments: Mapping[str, Any]) -> Result:
    """Do one job and return its results by name, all finite numbers."""
    values = dict(arguments)
    made_by: dict[str, Any] = {"task": Task, "training": Training, "query": Query}
    for name, maker in made_by.items():
        if name in values:
            values[name] = maker.from_dict(values[name])
    return _numbers(_KINDS[choice("kind", kind, _KINDS)](**values))


def _alignment(task: Task, training: Training) -> dict[str, Any]:
    found = align(task, training)
    return {
        "alignment": found.alignment,
        "misalignment": 1 - abs(found.alignment),
        "readout_cosine": found.readout_cosine,
        "sharpness": found.sharpness,
        "rate_constant": found.rate_constant,
    }


def _prediction(
    task: Task,
    training: Training,
    classifier: str,
    tolerance: float,
    query: Query | None = None,
) -> dict[str, Any]:
    found = predict(task, training, classifier=classifier, query=query, tolerance=tolerance)
    if not found.solution.converged:
        raise ArithmeticError(f"theory did not converge: {found.solution.message}")
    return {
        "test_error": found.test_error,
        "test_error_error": found.uncertainty.test_error,
        "train_loss": found.train_loss,
        "train_loss_error": found.uncertainty.train_loss,
        "chi": found.order_parameters.susceptibility,
        "residual": found.solution.residual,
    }


def _capacity(task: Task, classifier: str, query: Query | None = None) -> dict[str, Any]:
    alpha, uncertainty = _known_capacity(task, classifier, query)
    return {"alpha": alpha, "alpha_error": uncertainty}


@lru_cache(maxsize=64)
def _known_capacity(task: Task, classifier: str, query: Query | None) -> tuple[float, float]:
    found = capacity(task, query=query, classifier=classifier)
    return found.alpha, found.uncertainty


def _oracle(task: Task, classifier: str) -> dict[str, Any]:
    found = oracle(task, classifier=classifier)
    return {"least_error": found.error, "least_error_error": found.uncertainty}


def _strength(
    task: Task, error: float, classifier: str, nonlinearity: str, sharpness: float | None = None
) -> dict[str, Any]:
    if sharpness is not None:
        return _strength_at(task, error, classifier, nonlinearity, sharpness)
    found = required_strength(task, error=error, classifier=classifier, nonlinearity=nonlinearity)
    return {"strength": found.strength, "strength_error": found.uncertainty}


def _strength_at(
    task: Task, error: float, classifier: str, nonlinearity: str, sharpness: float
) -> dict[str, Any]:
    """Return the least strength for an error at a given sharpness instead of the best one."""

    def at(log_strength: float) -> Oracle:
        known = task.replace(strength=math.exp(log_strength))
        return oracle(known, classifier=classifier, nonlinearity=nonlinearity, sharpness=sharpness)

    low, high = 0.0, 1.0
    while at(high).error > error:
        low, high = high, high + 1
    found = brentq(lambda value: at(value).error - error, low, high, xtol=1e-3)
    step = 0.02
    slope = (at(found + step).error - at(found - step).error) / (2 * step)
    strength = math.exp(found)
    return {
        "strength": strength,
        "strength_error": strength * (at(found).uncertainty / abs(slope) + 1e-3),
    }


def _trial(
    task: Task,
    training: Training,
    dimension: int,
    trial: int,
    classifier: str,
    seed: int,
    query: Query | None = None,
) -> dict[str, Any]:
    found = run_trial(
        task,
        training,
        dimension=dimension,
        trial=trial,
        classifier=classifier,
        query=query,
        seed=seed,
        check_separable=False,
    )
    return _converged(found.to_dict())


def _query_trial(
    task: Task, training: Training, dimension: int, trial: int, seed: int
) -> dict[str, Any]:
    settings = {
        "only": "query",
        "task": task.to_dict(),
        "training": training.to_dict(),
        "dimension": dimension,
    }
    count = round(training.alpha0 * dimension)
    found = reduced_query(task, training, count, dimension, stream(seed, settings, trial))
    return {
        "alignment": found.alignment,
        "misalignment": 1 - abs(found.alignment),
        "readout_cosine": found.readout_cosine,
        "positive": float(found.alignment > 0),
    }


def _capacity_trial(
    task: Task,
    dimension: int,
    ratio: float,
    trial: int,
    classifier: str,
    seed: int,
    query: Query | None = None,
) -> dict[str, Any]:
    alpha, _ = _known_capacity(task, classifier, query)
    training = Training(1.0, ratio * alpha, loss="squared_hinge", ridge=0.0)
    found = run_trial(
        task,
        training,
        dimension=dimension,
        trial=trial,
        classifier=classifier,
        query=query,
        seed=seed,
    )
    if found.separable is None:
        raise ArithmeticError(f"separable or not could not be decided: {found.status}")
    # Separated data have no loss, however precisely their maximum margin was found.
    return _converged(found.to_dict() | {"converged": found.converged or found.separable})


def _converged(record: dict[str, Any]) -> dict[str, Any]:
    if not record["converged"]:
        raise ArithmeticError(f"the readout did not converge: {record['status']}")
    return {name: value for name, value in record.items() if name not in ("trial", "seconds")}


def _counting(
    task: Task, error: float, classifier: str, samples: int, trials: int, seed: int
) -> dict[str, Any]:
    """Count errors of a classifier that knows the signal, at the strength that theory asks for."""
    needed = required_strength(task, error=error, classifier=classifier)
    known = task.replace(strength=needed.strength)
    rule = oracle(known, classifier=classifier, sharpness=needed.sharpness)
    settings = {"only": "counting", "task": task.to_dict(), "classifier": classifier}
    shares = [
        _count(known, classifier, rule, samples, stream(seed, settings, trial)) / samples
        for trial in range(trials)
    ]
    spread = float(np.std(shares, ddof=1))
    return {
        "test_error": float(np.mean(shares)),
        "test_error_error": spread / math.sqrt(trials),
        "test_error_spread": spread,
        "trials": trials,
    }


def _count(
    task: Task, classifier: str, rule: Oracle, samples: int, rng: np.random.Generator
) -> int:
    positive = round(samples * task.positive_rate)
    threshold = _threshold(task, classifier, rule)
    wrong = 0
    for shift, count in ((task.strength, positive), (0.0, samples - positive)):
        left = count
        while left:
            size = min(left, max(1, BLOCK_ENTRIES // task.length))
            tokens = rng.standard_normal((size, task.length))
            tokens[:, : task.informative] += shift
            above = _score(tokens, task, classifier, rule) > threshold
            wrong += int(np.sum(above != (shift > 0)))
            left -= size
    return wrong


def _score(tokens: Array, task: Task, classifier: str, rule: Oracle) -> Array:
    """Return the score of each row of projections ⟨X_l, ξ⟩ (docs/theory.md, section 2)."""
    if classifier == "pooled":
        return np.asarray(tokens.sum(axis=1) / math.sqrt(task.length))
    if classifier == "attention":
        weights = softmax(rule.sharpness * tokens, axis=1)
        return np.asarray((weights * tokens).sum(axis=1))
    if classifier == "bayes" and task.informative == 1:
        exponent = task.strength * tokens - task.strength**2 / 2
        return np.asarray(logsumexp(exponent, axis=1) - math.log(task.length))
    raise ParameterError("classifier", classifier, "'pooled', 'attention', or 'bayes' with R = 1")


def _threshold(task: Task, classifier: str, rule: Oracle) -> float:
    """Return the least-error threshold, in the units of `_score`."""
    odds = math.log((1 - task.positive_rate) / task.positive_rate)
    if classifier == "bayes":
        return odds
    if classifier == "pooled":
        shift = task.strength * task.informative / math.sqrt(task.length)
        return shift / 2 + odds / shift
    return float(rule.threshold)


def _numbers(record: Mapping[str, Any]) -> Result:
    return {
        name: float(value)
        for name, value in record.items()
        if isinstance(value, int | float | np.number) and math.isfinite(value)
    }


_KINDS: dict[str, Callable[..., dict[str, Any]]] = {
    "alignment": _alignment,
    "prediction": _prediction,
    "capacity": _capacity,
    "oracle": _oracle,
    "strength": _strength,
    "trial": _trial,
    "query_trial": _query_trial,
    "capacity_trial": _capacity_trial,
    "counting": _counting,
}
