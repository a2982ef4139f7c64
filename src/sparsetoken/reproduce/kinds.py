"""The measurements that the package's claims are made of, each one function."""

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.special import logsumexp, softmax

from sparsetoken import validation
from sparsetoken.arrays import Array
from sparsetoken.reproduce.claim import Settings
from sparsetoken.reproduce.measurement import Kind, Measurement, as_argument, measures
from sparsetoken.simulation.random_streams import stream
from sparsetoken.simulation.reduced import QueryState, reduced_query
from sparsetoken.simulation.trials import Trial, run_trial
from sparsetoken.task import Query, Task, Training
from sparsetoken.theory.alignment import align
from sparsetoken.theory.capacity import Capacity
from sparsetoken.theory.capacity import capacity as find_capacity
from sparsetoken.theory.floor import floor
from sparsetoken.theory.oracle import Oracle, oracle, required_strength
from sparsetoken.theory.predictor import predict
from sparsetoken.uncertainty import mean_and_error
from sparsetoken.validation import ParameterError

__all__ = [
    "alignment",
    "at_two_sizes",
    "capacity",
    "capacity_trial",
    "compared",
    "counted_error",
    "drawn_query",
    "floor_errors",
    "oracle_error",
    "prediction",
    "query_trial",
    "strength",
    "trained_capacity_trial",
    "trial",
]

BLOCK_ENTRIES = 2**21

# The smaller of the two dimensions that a curve is simulated at, as a part of the larger one.
SMALLER = 4


@measures("theory")
def alignment(task: Task, training: Training) -> dict[str, Any]:
    """Compute theory of the query after two gradient steps."""
    found = align(task, training)
    return {**found.to_dict(), "misalignment": 1 - abs(found.alignment)}


@measures("theory", shown=("classifier",))
def prediction(
    task: Task,
    training: Training,
    classifier: str = "attention",
    query: Query | None = None,
    tolerance: float = 1e-4,
    at: Task | None = None,
    at_sharpness: float | str | None = None,
    recalibrate: bool | None = None,
) -> dict[str, Any]:
    """Compute theory of the trained classifier, on its own task or on another one."""
    found = predict(
        task,
        training,
        classifier=classifier,
        query=query,
        at=at,
        at_sharpness=at_sharpness,
        recalibrate=bool(recalibrate),
        tolerance=tolerance,
    )
    if not found.solution.converged:
        raise ArithmeticError(f"theory did not converge: {found.solution.message}")
    return found.to_dict()


@measures("theory", shown=("classifier",))
def capacity(
    task: Task, classifier: str = "attention", query: Query | None = None
) -> dict[str, Any]:
    """Compute theory of the largest separable sample ratio."""
    return _known_capacity(task, classifier, query).to_dict()


@lru_cache(maxsize=64)
def _known_capacity(task: Task, classifier: str, query: Query | None) -> Capacity:
    return find_capacity(task, query=query, classifier=classifier, tolerance=1e-6)


@measures("theory", shown=("classifier",))
def oracle_error(task: Task, classifier: str) -> dict[str, Any]:
    """Compute theory of the least error of a classifier that knows the signal."""
    found = oracle(task, classifier=classifier)
    return {"test_error": found.test_error, "test_error_uncertainty": found.uncertainty}


@measures("theory")
def floor_errors(task: Task, alpha: float) -> dict[str, Any]:
    """Compute what any learner could reach with α samples per dimension, and what is efficient."""
    found = floor(task, alpha)
    return {
        "test_error": found.test_error,
        "test_error_uncertainty": found.uncertainty.test_error,
        "reachable_test_error": found.reachable_test_error,
        "reachable_test_error_uncertainty": found.uncertainty.reachable_test_error,
        "overlap": found.overlap,
        "reachable_overlap": found.reachable_overlap,
        "hard": float(found.phase == "hard"),
    }


@measures("theory", shown=("classifier",))
def strength(
    task: Task,
    error: float,
    classifier: str,
    nonlinearity: str = "sigmoid",
    sharpness: float | None = None,
) -> dict[str, Any]:
    """Compute theory of the least strength for an error, at the best or at a given sharpness."""
    return required_strength(
        task, error=error, classifier=classifier, nonlinearity=nonlinearity, sharpness=sharpness
    ).to_dict()


@measures("simulation", shown=("classifier", "dimension"))
def trial(
    task: Task,
    training: Training,
    dimension: int,
    trial: int,
    classifier: str = "attention",
    query: Query | None = None,
    seed: int = 0,
    at: Task | None = None,
) -> dict[str, Any]:
    """Train a classifier through all four stages on a simulated data set."""
    found = run_trial(
        task,
        training,
        dimension=dimension,
        trial=trial,
        classifier=classifier,
        query=query,
        at=at,
        seed=seed,
        check_separable=False,
    )
    return _record(found, converged=found.converged)


def drawn_query(
    only: str, task: Task, training: Training, dimension: int, trial: int, seed: int
) -> QueryState:
    """Draw the query of stages 1 to 3; `only` says what for, and has random numbers of its own."""
    settings = {"only": only, "task": task.to_dict(), "training": as_argument(training)}
    rng = stream(seed, {**settings, "dimension": dimension}, trial)
    count = max(1, round(training.alpha0 * dimension))
    return reduced_query(task, training, count, dimension, rng)


@measures("simulation", shown=("dimension",))
def query_trial(
    task: Task, training: Training, dimension: int, trial: int, seed: int = 0
) -> dict[str, Any]:
    """Train the query alone (stages 1 to 3) on a simulated data set."""
    found = drawn_query("query", task, training, dimension, trial, seed)
    return {
        "alignment": found.alignment,
        "misalignment": 1 - abs(found.alignment),
        "readout_cosine": found.readout_cosine,
        "positive": float(found.alignment > 0),
    }


@measures("simulation", shown=("classifier", "dimension", "ratio"))
def capacity_trial(
    task: Task,
    dimension: int,
    ratio: float,
    trial: int,
    classifier: str = "attention",
    query: Query | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """Try to separate a data set with `ratio` times as many samples as the predicted capacity."""
    samples = ratio * _known_capacity(task, classifier, query).alpha
    training = Training(1.0, samples, loss="squared_hinge", ridge=0.0)
    return _separate(
        run_trial(
            task,
            training,
            dimension=dimension,
            trial=trial,
            classifier=classifier,
            query=query,
            seed=seed,
        )
    )


@measures("simulation", shown=("dimension", "ratio"))
def trained_capacity_trial(
    task: Task, training: Training, dimension: int, ratio: float, trial: int, seed: int = 0
) -> dict[str, Any]:
    """Try to separate as many times the capacity that theory predicts for a query to be trained."""
    learnt = align(task, training)
    known = _known_capacity(task, "attention", learnt.query)
    training = training.replace(alpha1=ratio * known.alpha, ridge=0.0)
    # Whether data are separable does not depend on the loss, but the query does: first train it.
    query = drawn_query("trained", task, training, dimension, trial, seed).seen(training)
    fit = Training(1.0, training.alpha1, loss="squared_hinge", ridge=0.0)
    return _separate(run_trial(task, fit, dimension=dimension, trial=trial, query=query, seed=seed))


def _separate(found: Trial) -> dict[str, Any]:
    if found.separable is None:
        raise ArithmeticError(f"separable or not could not be decided: {found.message}")
    # Separated data have no loss, however precisely their maximum margin was found.
    return _record(found, converged=found.converged or found.separable)


def _record(found: Trial, *, converged: bool) -> dict[str, Any]:
    if not converged:
        raise ArithmeticError(f"the readout did not converge: {found.message}")
    record = found.to_dict()
    return {name: record[name] for name in record if name not in ("trial", "seconds")}


def compared(
    over: str,
    theory_points: Iterable[float],
    simulated_points: Iterable[float],
    problem: Callable[[float], tuple[Task, Training, Query | None]],
    settings: Settings,
    classifier: str = "attention",
    home: str = "",
    **labels: Any,
) -> list[Measurement]:
    """Ask for theory on all points of a curve, and trials at some, both labelled `over` = point.

    `problem` gives task, training and query at a point; `settings` has theory's tolerance, the
    dimension, the number of trials and the seed. Trials are made at `settings["dimension"]` and at
    a quarter of it, so that the shift of order 1/d is measured (`evidence.against_theory`). `home` is that
    of `Kind`.
    """
    theory, simulation = replace(prediction, home=home), replace(trial, home=home)
    simulated = list(simulated_points)
    made: list[Measurement] = []
    for point in sorted({*theory_points, *simulated}):
        task, training, query = problem(point)
        named = {**labels, over: point}
        made.append(theory.ask(task, training, classifier, query, settings["tolerance"], **named))
        if point in simulated:
            made += at_two_sizes(
                settings, simulation, task, training, classifier=classifier, query=query, **named
            )
    return made


def at_two_sizes(settings: Settings, kind: Kind, *values: Any, **named: Any) -> list[Measurement]:
    """Ask for trials of a kind at `settings["dimension"]` and at a quarter of it."""
    large = settings["dimension"]
    return [
        asked
        for dimension in (large, large // SMALLER)
        for asked in kind.ask_trials(
            settings["trials"], *values, dimension=dimension, seed=settings["seed"], **named
        )
    ]


@measures("simulation", shown=("classifier",))
def counted_error(
    task: Task, error: float, classifier: str, samples: int, trials: int, seed: int = 0
) -> dict[str, Any]:
    """Count errors on drawn sequences at the strength that theory says gives `error`.

    All trials are one measurement, so that theory is asked only once.
    """
    needed = required_strength(task, error=error, classifier=classifier)
    known = task.replace(strength=needed.strength)
    rule = oracle(known, classifier=classifier, sharpness=needed.sharpness)
    settings = {"only": "counting", "task": task.to_dict(), "classifier": classifier}
    shares = [
        _count(known, classifier, rule, samples, stream(seed, settings, number)) / samples
        for number in range(trials)
    ]
    mean, uncertainty = mean_and_error(shares)
    return {
        "test_error": mean,
        "test_error_uncertainty": uncertainty,
        "trials": trials,
        "predicted_error": rule.test_error,
        "predicted_error_uncertainty": rule.uncertainty,
    }


def _count(
    task: Task, classifier: str, rule: Oracle, samples: int, rng: np.random.Generator
) -> int:
    positive = round(samples * task.positive_rate)
    score, threshold = _COUNTED[validation.choice("classifier", classifier, _COUNTED)](task, rule)
    wrong = 0
    for shift, count in ((task.strength, positive), (0.0, samples - positive)):
        left = count
        while left:
            size = min(left, max(1, BLOCK_ENTRIES // task.length))
            tokens = rng.standard_normal((size, task.length))
            tokens[:, : task.fixed_informative] += shift
            wrong += int(np.sum((score(tokens) > threshold) != (shift > 0)))
            left -= size
    return wrong


# The score of each row of projections ⟨X_l, ξ⟩, and the threshold of least error for it
# (docs/theory.md, section 2).
_Scoring = tuple[Callable[[Array], Array], float]


def _pooled(task: Task, rule: Oracle) -> _Scoring:  # noqa: ARG001
    root = math.sqrt(task.length)
    shift = task.strength * task.fixed_informative / root
    return lambda tokens: tokens.sum(axis=1) / root, shift / 2 + _log_odds(task) / shift


def _attention(task: Task, rule: Oracle) -> _Scoring:  # noqa: ARG001
    def score(tokens: Array) -> Array:
        return np.asarray((softmax(rule.sharpness * tokens, axis=1) * tokens).sum(axis=1))

    return score, float(rule.threshold)


def _bayes(task: Task, rule: Oracle) -> _Scoring:  # noqa: ARG001
    if task.informative != 1:
        raise ParameterError("informative", task.informative, "R = 1 for 'bayes'")

    def score(tokens: Array) -> Array:
        exponent = task.strength * tokens - task.strength**2 / 2
        return np.asarray(logsumexp(exponent, axis=1) - math.log(task.length))

    return score, _log_odds(task)


def _log_odds(task: Task) -> float:
    return math.log((1 - task.positive_rate) / task.positive_rate)


_COUNTED: dict[str, Callable[[Task, Oracle], _Scoring]] = {
    "pooled": _pooled,
    "attention": _attention,
    "bayes": _bayes,
}
