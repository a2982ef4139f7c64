"""Redo the check of theory by simulation with code that shares nothing with the package.

    python tools/audit.py                 # go on with an unfinished audit, or begin one
    python tools/audit.py --settings 50 --minutes 20 --seed 7
    python tools/audit.py --page docs/audit.md   # show a complete audit there as well

Settings are drawn at random from the valid range, with a new seed for each audit. For each one plain
arrays of sequences are drawn, the query is learnt by its definition, the readout is fitted by
scikit-learn, and errors are counted on fresh sequences; nothing here imports the package's
simulation, its learning or its losses. Beside the four stages, with fresh samples for the readout or
without a split, it redoes maximum margins, capacities, joint descent, and message passing, which
reaches the Bayes floor that no trained classifier may fall below. Two dimensions, d and d/4, give the shift of order 1/d, which
is removed. The z-scores of what theory says must be what chance gives: per quantity their mean, mean
square and largest value. The exit code is 1 if they are not. The table says which deviation, common to
all settings, the mean would show.

Results are kept as they come, one line a setting: an audit that was stopped goes on.
"""

import argparse
import itertools
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import linprog
from scipy.special import chdtri, expit, ndtri, softmax
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import roc_auc_score
from sklearn.svm import SVC, LinearSVC

from sparsetoken import Query, Step, Task, Training, align, capacity, descend, floor, predict
from sparsetoken.numerics.solution import Status
from sparsetoken.uncertainty import error_of_difference, z_scores

Array = np.ndarray[Any, np.dtype[Any]]

# How often chance alone fails an audit, all tests of its table together.
FALSE_ALARMS = 0.01
# How surely a deviation is noticed that the table says would be: 1.64 standard errors above its bound.
SURELY = 1.64
SMALLER = 4
FRESH = 4000
FEW = 100
ROUNDING = 1e-6
BLOCK = 2**22

# Where the page of the documents begins to be that of one audit.
HEADING = "## The last audit"


class Score(NamedTuple):
    """How simulation compares with theory: z-score, and standard error relative to theory's value."""

    z: float
    resolution: float


@dataclass(frozen=True)
class Setting:
    """A problem drawn at random, as plain data."""

    task: dict[str, Any]
    training: dict[str, Any]
    classifier: str
    query: dict[str, float] | None
    dimension: int
    trials: int


def draw_setting(
    rng: np.random.Generator, dimension: int = 160, trials: int = 20, *, reuse: bool = False
) -> Setting:
    """Draw a setting: log-uniform where a quantity spans decades, uniform elsewhere.

    With `reuse` it is attention that learns its query from the samples of the readout.
    """

    def between(low: float, high: float) -> float:
        return float(np.exp(rng.uniform(np.log(low), np.log(high))))

    length = int(between(2, 33))
    task = Task(
        length,
        int(rng.integers(1, max(2, length // 2))),
        between(0.5, 8),
        float(rng.uniform(0.2, 0.8)),
    )
    training = Training(
        between(0.4, 8),
        between(0.4, 6),
        loss=str(rng.choice(["logistic", "square", "hinge", "squared_hinge"])),
        ridge=between(3e-3, 1),
        readout_step=between(0.05, 5),
        bias_step=float(rng.uniform(0, 6)),
        inverse_temperature=between(0.3, 3),
    )
    classifier = str(rng.choice(["attention", "attention", "given", "pooled", "vectorised"]))
    if reuse:
        classifier, training = "attention", training.replace(alpha0=training.alpha1, reuse=True)
    # The query step that gives a sharpness at which the softmax is neither flat nor hard.
    step = between(0.2, 4) / align(task, training).sharpness
    query = None
    if classifier == "given":
        classifier = "attention"
        query = {"alignment": float(rng.uniform(-1, 1)), "sharpness": between(0.1, 5)}
    training = training.replace(query_step=step)
    return Setting(task.to_dict(), training.to_dict(), classifier, query, dimension, trials)


# --- simulation by definition -------------------------------------------------------------------


def sequences(
    task: Task, count: int, signal: Array, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Draw X of shape (n, L, d) and y of ±1: noise, and θξ added to R random tokens of positives.

    Labels that are all the same train nothing. They are drawn again, which few samples need rarely.
    """
    y = np.where(rng.random(count) < task.positive_rate, 1.0, -1.0)
    while count > 1 and len(set(y)) < 2:
        y = np.where(rng.random(count) < task.positive_rate, 1.0, -1.0)
    x = rng.standard_normal((count, task.length, len(signal)))
    for i in np.flatnonzero(y > 0):
        x[i, rng.choice(task.length, task.informative, replace=False)] += task.strength * signal
    return x, y


# ℓ and ℓ' of the margin, written out anew.
LOSS: dict[str, Callable[[Array], Array]] = {
    "logistic": lambda t: np.logaddexp(0, -t),
    "square": lambda t: (1 - t) ** 2 / 2,
    "hinge": lambda t: np.maximum(0, 1 - t),
    "squared_hinge": lambda t: np.maximum(0, 1 - t) ** 2 / 2,
}
SLOPE: dict[str, Callable[[Array], Array]] = {
    "logistic": lambda t: -expit(-t),
    "square": lambda t: t - 1,
    "hinge": lambda t: -(t < 1).astype(float),
    "squared_hinge": lambda t: -np.maximum(0, 1 - t),
}


def learn_query(x: Array, y: Array, training: Training) -> tuple[Array, Array]:
    """Take the two gradient steps; return the query and the readout after the first."""
    slope = SLOPE[training.loss]
    pooled = x.mean(axis=1)
    start = float(slope(np.zeros(1))[0])
    w = -training.readout_step * start * (y @ pooled) / len(y)
    b = -training.bias_step * start * y.mean()
    h = y * slope(y * (pooled @ w + b))
    centred = x - pooled[:, None]
    gradient = np.einsum("i,ild,il->d", h, centred, centred @ w) / x.shape[1]
    return -training.query_step * training.inverse_temperature * gradient / len(y), w


def features(x: Array, classifier: str, scores: Array | None) -> Array:
    """Return what the readout sees of each sequence."""
    if classifier == "pooled":
        return np.asarray(x.mean(axis=1))
    if classifier == "vectorised":
        return x.reshape(len(x), -1)
    return np.einsum("il,ild->id", softmax(scores, axis=1), x)


def fit(f: Array, y: Array, loss: str, ridge: float) -> tuple[Array, float]:
    """Minimise mean loss + (ridge/2)‖w‖² by scikit-learn's solver for that loss, the bias free."""
    strength = 1 / (len(y) * ridge)
    if loss == "logistic":
        model = LogisticRegression(C=strength, tol=1e-8, max_iter=5000)
    elif loss == "square":
        model = Ridge(alpha=len(y) * ridge, solver="cholesky")
    elif loss == "hinge":
        model = SVC(C=strength, kernel="linear", tol=1e-6)
    else:
        # liblinear puts a penalty on the bias; a large scale of the constant makes it negligible.
        model = LinearSVC(C=strength / 2, dual=False, intercept_scaling=100.0, tol=1e-8)
    model.fit(f, y)
    return np.ravel(model.coef_), float(np.ravel(model.intercept_)[0])


def with_cosine(signal: Array, cosine: float, rng: np.random.Generator) -> Array:
    """Return a random unit vector that has this cosine with the signal."""
    other = rng.standard_normal(len(signal))
    other -= (other @ signal) * signal
    return cosine * signal + math.sqrt(1 - cosine**2) * other / np.linalg.norm(other)


def one_trial(setting: Setting, dimension: int, rng: np.random.Generator) -> dict[str, float]:
    """Draw data, train through all stages and measure."""
    task, training = Task(**setting.task), Training(**setting.training)
    signal = with_cosine(np.eye(dimension)[0], float(rng.uniform(-0.9, 0.9)), rng)
    seen: dict[str, float] = {}
    beta = training.inverse_temperature
    query, first = np.zeros(dimension), None
    if setting.classifier == "attention" and setting.query is None:
        first = sequences(task, round(training.alpha0 * dimension), signal, rng)
        query, readout = learn_query(*first, training)
        norm = float(np.linalg.norm(query))
        seen["alignment"] = float(query @ signal) / norm
        seen["sharpness"] = beta * norm
        seen["readout_cosine"] = float(readout @ signal) / float(np.linalg.norm(readout))
    elif setting.query is not None:
        query = with_cosine(signal, setting.query["alignment"], rng)
        query *= setting.query["sharpness"] / beta

    def seen_by_readout(x: Array) -> Array:
        return features(x, setting.classifier, beta * (x @ query))

    fresh = first is None or not training.reuse
    x, y = sequences(task, round(training.alpha1 * dimension), signal, rng) if fresh else first
    f = seen_by_readout(x)
    w, b = fit(f, y, training.loss, training.ridge)
    margins = y * (f @ w + b)
    seen["train_loss"] = float(LOSS[training.loss](margins).mean())
    seen["train_error"] = float(np.mean(margins < 0))
    scores, labels = [], []
    for size in _blocks(FRESH, task.length * dimension):
        x, y = sequences(task, size, signal, rng)
        scores.append(seen_by_readout(x) @ w + b)
        labels.append(y)
    score, label = np.concatenate(scores), np.concatenate(labels)
    seen["test_error"] = float(np.mean(score * label < 0))
    seen["auc"] = float(roc_auc_score(label, score))
    return seen


def _blocks(count: int, entries: int) -> Iterator[int]:
    size = max(1, BLOCK // entries)
    while count > 0:
        yield min(size, count)
        count -= size


def separable_samples(
    task: Task, query: Query, dimension: int, most: int, rng: np.random.Generator
) -> float:
    """Return, per dimension, how many samples of one data set stay separable, by linear programs."""
    signal = with_cosine(np.eye(dimension)[0], 0.5, rng)
    direction = query.sharpness * with_cosine(signal, query.alignment, rng)
    x, y = sequences(task, most, signal, rng)
    rows = y[:, None] * np.column_stack([features(x, "attention", x @ direction), np.ones(most)])

    def separable(count: int) -> bool:
        free = linprog(
            np.zeros(rows.shape[1]), A_ub=-rows[:count], b_ub=-np.ones(count), bounds=(None, None)
        )
        return bool(free.status == 0)

    low, high = 1, most
    if separable(most):
        return most / dimension
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if separable(middle) else (low, middle)
    # The first count that fails and the last that does not are equally far from the threshold.
    return (low + high) / 2 / dimension


# --- comparison ---------------------------------------------------------------------------------


def theory_of(setting: Setting) -> dict[str, tuple[float, float]]:
    """Return value and error bar of everything that theory says about the setting."""
    task, training = Task(**setting.task), Training(**setting.training)
    query = None if setting.query is None else Query(**setting.query)
    found = predict(task, training, classifier=setting.classifier, query=query, tolerance=1e-4)
    record = found.to_dict("auc")
    if setting.classifier == "attention" and query is None:
        record |= align(task, training).to_dict()
    names = (
        "test_error",
        "train_loss",
        "train_error",
        "auc",
        "alignment",
        "sharpness",
        "readout_cosine",
    )
    return {
        name: (float(record[name]), float(record.get(f"{name}_uncertainty") or 0.0))
        for name in names
        if record.get(name) is not None
    }


def compare(values: dict[int, Array], theory: float, bar: float) -> Score:
    """Compare simulated values at two dimensions, extrapolated to endless d, with theory."""
    large, small = sorted(values, reverse=True)
    ratio = large / small
    weights = {large: ratio / (ratio - 1), small: -1 / (ratio - 1)}
    limit = sum(weights[d] * values[d].mean() for d in values)
    squares = {d: weights[d] ** 2 * values[d].var(ddof=1) / len(values[d]) for d in values}
    total = sum(squares.values())
    spent = sum(squares[d] ** 2 / (len(values[d]) - 1) for d in values)
    freedom = total**2 / spent if spent > 0 else math.inf
    z = float(z_scores(limit - theory, math.sqrt(total), freedom=freedom, bar=bar))
    size, scale = abs(theory), float(error_of_difference(math.sqrt(total), bar))
    return Score(z, scale / size if size > 0 else math.inf)


def audit_setting(setting: Setting, rng: np.random.Generator) -> dict[str, Score]:
    """Return a score for each quantity of a setting that theory gives."""
    theory = theory_of(setting)
    sizes = (setting.dimension, setting.dimension // SMALLER)
    trials = {d: [one_trial(setting, d, rng) for _ in range(setting.trials)] for d in sizes}
    scores = {}
    kind = "no split: " if setting.training.get("reuse") else ""
    for name, (value, bar) in theory.items():
        if not all(name in seen for runs in trials.values() for seen in runs):
            continue
        values = {d: np.array([seen[name] for seen in runs]) for d, runs in trials.items()}
        # Means of few counted errors are not normal, a loss of 0 is one of rounding, and what never
        # varies has no standard error.
        counted = setting.training["alpha1"] * sizes[-1]
        samples = {"test_error": FRESH, "train_error": counted}
        if setting.training["loss"] == "hinge":  # that of most samples is 0
            samples["train_loss"] = FEW * counted
        if name in samples and value * samples[name] * setting.trials < FEW:
            continue
        if name == "train_loss" and value < ROUNDING:
            continue
        if all(column.std() > 0 for column in values.values()):
            scores[kind + name] = compare(values, value, bar)
    return scores


def audit_capacity(rng: np.random.Generator, trials: int = 40) -> tuple[dict[str, Any], Score]:
    """Return a random task and query, and the score of its capacity."""
    while True:
        length = int(rng.integers(3, 16))
        informative = int(rng.integers(1, max(2, length // 2)))
        task = Task(length, informative, float(rng.uniform(0.5, 4)), float(rng.uniform(0.3, 0.7)))
        query = Query(float(rng.uniform(-1, 1)), float(rng.uniform(0.2, 3)))
        found = capacity(task, query=query)
        if found.alpha < 6:
            break
    values = {
        d: np.array(
            [
                separable_samples(task, query, d, int(2.5 * found.alpha * d), rng)
                for _ in range(trials)
            ]
        )
        for d in (48, 12)
    }
    settings = {"task": task.to_dict(), "query": query.to_dict()}
    return settings, compare(values, found.alpha, float(found.uncertainty))


def audit_descent(
    rng: np.random.Generator, dimension: int = 160, trials: int = 20
) -> tuple[dict[str, Any], dict[str, Score]]:
    """Return a random schedule of joint descent, and z-scores of the state after its last step."""
    while True:
        length = int(rng.integers(3, 17))
        task = Task(length, 1, float(rng.uniform(2, 6)), float(rng.uniform(0.3, 0.7)))
        step = Step(
            float(rng.uniform(1, 4)),
            readout_step=float(rng.uniform(0.2, 1)),
            bias_step=float(rng.uniform(0, 1)),
            query_step=float(rng.uniform(0.5, 4)),
        )
        steps = [step] * int(rng.integers(2, 5))
        state = descend(task, steps, tolerance=1e-4)[-1]
        if state.solution.status is Status.CONVERGED:
            break
    record = state.to_dict()
    names = ("test_error", "alignment", "readout_cosine", "query_norm", "bias")
    sizes = (dimension, dimension // SMALLER)
    runs = {d: [descend_once(task, steps, d, rng) for _ in range(trials)] for d in sizes}
    scores = {
        f"descent: {name}": compare(
            {d: np.array([one[name] for one in runs[d]]) for d in sizes},
            record[name],
            record.get(f"{name}_uncertainty") or 0.0,
        )
        for name in names
    }
    settings = {"task": task.to_dict(), "steps": [step.to_dict() for step in steps]}
    return settings, scores


def descend_once(
    task: Task, steps: list[Step], dimension: int, rng: np.random.Generator
) -> dict[str, float]:
    """Take joint gradient steps of the logistic loss from 0, each on a fresh batch, and measure."""
    signal = with_cosine(np.eye(dimension)[0], 0.5, rng)
    w, q, b = np.zeros(dimension), np.zeros(dimension), 0.0

    def looked_at(x: Array, beta: float) -> tuple[Array, Array, Array]:
        weights = softmax(beta * (x @ q), axis=1)
        along = x @ w
        return weights, along, np.einsum("il,il->i", weights, along)

    for step in steps:
        x, y = sequences(task, round(step.alpha * dimension), signal, rng)
        weights, along, mean = looked_at(x, step.inverse_temperature)
        h = y * SLOPE["logistic"](y * (mean + b)) / len(y)
        pull = weights * (along - mean[:, None])
        to_w = np.einsum("i,il,ild->d", h, weights, x)
        to_q = step.inverse_temperature * np.einsum("i,il,ild->d", h, pull, x)
        w, q, b = (
            w - step.readout_step * to_w,
            q - step.query_step * to_q,
            b - step.bias_step * h.sum(),
        )
    wrong = 0
    for size in _blocks(FRESH, task.length * dimension):
        x, y = sequences(task, size, signal, rng)
        mean = looked_at(x, steps[-1].inverse_temperature)[2]
        wrong += int(np.sum(y * (mean + b) < 0))
    return {
        "test_error": wrong / FRESH,
        "alignment": float(q @ signal / np.linalg.norm(q)),
        "readout_cosine": float(w @ signal / np.linalg.norm(w)),
        "query_norm": float(np.linalg.norm(q)),
        "bias": float(b),
    }


def audit_margin(
    rng: np.random.Generator, dimension: int = 160, trials: int = 20
) -> tuple[dict[str, Any], dict[str, Score]]:
    """Return a random separable problem, and z-scores of its maximum-margin classifier."""
    length = int(rng.integers(3, 16))
    informative = int(rng.integers(1, max(2, length // 2)))
    task = Task(length, informative, float(rng.uniform(0.5, 5)), float(rng.uniform(0.3, 0.7)))
    query = Query(float(rng.uniform(-1, 1)), float(rng.uniform(0.2, 3)))
    # Far enough below the capacity that no small data set is beyond it by chance.
    alpha = float(rng.uniform(0.1, 0.55)) * min(capacity(task, query=query).alpha, 6.0)
    found = predict(task, Training(1.0, alpha, ridge=0.0), query=query, tolerance=1e-4)
    sizes = (dimension, dimension // SMALLER)
    runs = {d: [widest_once(task, query, alpha, d, rng) for _ in range(trials)] for d in sizes}
    record, scores = found.to_dict(), {}
    for name in ("margin", "test_error"):
        value, bar = record[name], record[f"{name}_uncertainty"]
        if name == "test_error" and value * FRESH * trials < FEW:
            continue
        values = {d: np.array([one[name] for one in runs[d]]) for d in sizes}
        scores[f"widest margin: {name}"] = compare(values, value, bar)
    return {"task": task.to_dict(), "query": query.to_dict(), "alpha1": alpha}, scores


def widest_once(
    task: Task, query: Query, alpha: float, dimension: int, rng: np.random.Generator
) -> dict[str, float]:
    """Return the largest margin of one data set by a support vector machine, and its test error."""
    signal = with_cosine(np.eye(dimension)[0], 0.5, rng)
    direction = query.sharpness * with_cosine(signal, query.alignment, rng)

    def drawn(count: int) -> tuple[Array, Array]:
        x, y = sequences(task, count, signal, rng)
        return features(x, "attention", x @ direction), y

    f, y = drawn(round(alpha * dimension))
    while len(np.unique(y)) < 2:
        f, y = drawn(len(y))
    machine = SVC(C=1e8, kernel="linear", tol=1e-6).fit(f, y)
    wrong = 0
    for size in _blocks(FRESH, task.length * dimension):
        fresh, labels = drawn(size)
        wrong += int(np.sum(machine.predict(fresh) != labels))
    return {
        "margin": 1 / float(np.linalg.norm(machine.coef_)),
        "test_error": wrong / FRESH,
    }


def audit_floor(
    rng: np.random.Generator, dimension: int = 320, trials: int = 20
) -> tuple[dict[str, Any], dict[str, Score]]:
    """Return a random task, and z-scores of message passing against the Bayes floor.

    A trained classifier may be anywhere above the floor: its score is 0 there, and negative below.
    """
    while True:
        length = int(rng.integers(3, 13))
        task = Task(
            length,
            int(rng.integers(1, 1 + min(3, length - 1))),
            float(rng.uniform(1, 5)),
            float(rng.uniform(0.3, 0.7)),
        )
        alpha = float(rng.uniform(0.5, 3))
        least = floor(task, alpha, tolerance=1e-4)
        if least.phase == "easy":
            break
    record = least.to_dict()
    sizes = (dimension, dimension // SMALLER)
    runs = {d: [floor_once(task, alpha, d, rng) for _ in range(trials)] for d in sizes}

    def values(name: str) -> dict[int, Array]:
        return {d: np.array([one[name] for one in runs[d]]) for d in sizes}

    scores = {}
    for name, theirs in (("overlap", "reachable_overlap"), ("test_error", "reachable_test_error")):
        if name == "overlap" or record[theirs] * FRESH * trials >= FEW:
            found = (record[theirs], record[f"{theirs}_uncertainty"])
            scores[f"floor: {name}"] = compare(values(name), *found)
    trained = values("trained")[dimension]
    error = float(trained.std(ddof=1)) / math.sqrt(trials)
    below = z_scores(
        float(trained.mean()) - record["test_error"],
        error,
        freedom=trials - 1,
        bar=record["test_error_uncertainty"],
    )
    scores["floor: trained classifier below it"] = Score(min(float(below), 0.0), math.inf)
    return {"task": task.to_dict(), "alpha": alpha}, scores


def floor_once(
    task: Task, alpha: float, dimension: int, rng: np.random.Generator
) -> dict[str, float]:
    """Learn the signal by message passing and a classifier by all stages; measure both."""
    signal = with_cosine(np.eye(dimension)[0], 0.5, rng)
    x, y = sequences(task, round(alpha * dimension), signal, rng)
    training = Training(alpha, alpha, query_step=20.0, reuse=True)
    estimate = pass_messages(task, x[y > 0])
    query, _ = learn_query(x, y, training)
    w, b = fit(features(x, "attention", x @ query), y, "logistic", 0.02)
    odds = math.log(task.positive_rate / (1 - task.positive_rate))
    subsets = all_subsets(task)
    wrong = {"test_error": 0, "trained": 0}
    for size in _blocks(FRESH, task.length * dimension):
        x, y = sequences(task, size, signal, rng)
        evidence = (
            task.strength * (x @ estimate) - task.strength**2 * float(estimate @ estimate) / 2
        )
        ratio = np.logaddexp.reduce(evidence @ subsets.T, axis=1) - math.log(len(subsets))
        wrong["test_error"] += int(np.sum(y * (ratio + odds) < 0))
        score = features(x, "attention", x @ query) @ w + b
        wrong["trained"] += int(np.sum(y * score < 0))
    cosine = float(estimate @ signal) / float(np.linalg.norm(estimate))
    return {"overlap": cosine**2, **{name: count / FRESH for name, count in wrong.items()}}


def all_subsets(task: Task) -> Array:
    """Return every choice of R of L places, as rows of 0 and 1."""
    chosen = list(itertools.combinations(range(task.length), task.informative))
    rows = np.zeros((len(chosen), task.length))
    for row, places in zip(rows, chosen, strict=True):
        row[list(places)] = 1
    return rows


def pass_messages(task: Task, x: Array, rounds: int = 60) -> Array:
    """Return the posterior mean of the signal from positive sequences, by message passing.

    It alternates between the signal, given expected places v̂, and the posterior of the places over
    all subsets, given scores along the signal; both subtract what they sent a round before.
    """
    subsets, theta, d = all_subsets(task), task.strength, x.shape[2]
    places = np.full(x.shape[:2], task.informative / task.length)
    variance = np.zeros_like(places)
    estimate = np.zeros(d)
    for _ in range(rounds):
        precision = theta**2 * float((places**2).sum()) / d
        field = theta * np.einsum("il,ild->d", places, x)
        field -= theta**2 * float(variance.sum()) * estimate
        last, estimate = estimate, field / d / (1 + precision)
        if np.linalg.norm(estimate - last) < 1e-9:
            break
        scores = theta * (x @ estimate) - theta**2 / (1 + precision) * places
        level = theta**2 * float(estimate @ estimate) / 2
        chances = softmax((scores - level) @ subsets.T, axis=1)
        places = chances @ subsets
        variance = places * (1 - places)
    return estimate


def audit_one(number: int, rng: np.random.Generator) -> tuple[dict[str, Any], dict[str, Score]]:
    """Audit a problem whose kind goes by its number; return it and its z-scores."""
    kind = number % 8
    if kind == 2:
        return audit_descent(rng)
    if kind == 5:
        described, score = audit_capacity(rng)
        return described, {"capacity": score}
    if kind == 6:
        return audit_margin(rng)
    if kind == 7:
        return audit_floor(rng)
    setting = draw_setting(rng, reuse=kind == 3)
    return asdict(setting), audit_setting(setting, rng)


def version() -> str:
    """Return the commit of the checkout, marked if files differ from it."""
    git = [
        "git",
        "-C",
        str(Path(__file__).parent),
        "describe",
        "--always",
        "--exclude=*",
        "--dirty",
    ]
    found = subprocess.run(git, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of an audit; a line that was cut off when it was written is taken away."""
    whole = [line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
    path.write_text("".join(whole))
    return [json.loads(line) for line in whole[1:]]


def run(path: Path, seed: int, settings: int, deadline: float) -> list[dict[str, Any]]:
    """Audit settings that the file does not hold yet, until all are done or time is up."""
    rows, audited = read_rows(path), version()
    for number in range(len(rows), settings):
        if time.monotonic() > deadline:
            break
        begun = time.process_time()
        described, scores = audit_one(number, np.random.default_rng([seed, number]))
        row = {
            "number": number,
            "version": audited,
            "seconds": time.process_time() - begun,
            "setting": described,
            "scores": scores,
        }
        rows.append(row)
        with path.open("a") as file:
            file.write(json.dumps(row) + "\n")
        worst = max((abs(score.z) for score in scores.values()), default=0.0)
        print(f"{number + 1} of {settings}: largest |z| {worst:.1f}", file=sys.stderr, flush=True)
    return rows


def summarise(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one line a quantity: how many, mean, mean square, largest, and what is not chance."""
    by_name: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        for name, score in row["scores"].items():
            by_name.setdefault(name, []).append(score)
    return [_judged(name, np.array(by_name[name]), len(by_name)) for name in sorted(by_name)]


def _judged(name: str, scores: Array, quantities: int) -> dict[str, Any]:
    z, resolution = scores.T
    count, rare = len(z), FALSE_ALARMS / (3 * quantities)
    limits = {
        "mean": -float(ndtri(rare / 2)) / math.sqrt(count),
        "mean square": float(chdtri(count, rare)) / count,
        "largest": -float(ndtri(rare / (2 * count))),
    }
    seen = {
        "mean": float(z.mean()),
        "mean square": float(np.mean(z**2)),
        "largest": float(np.abs(z).max()),
    }
    failed = [what for what in seen if not abs(seen[what]) < limits[what]]
    # A deviation by this factor of the value moves every z by the factor over its resolution.
    leverage = float(np.mean(1 / resolution))
    notices = (limits["mean"] + SURELY / math.sqrt(count)) / leverage if leverage else math.inf
    return {
        "quantity": name,
        "settings": count,
        **seen,
        "limits": limits,
        "notices": notices,
        "failed": failed,
    }


def show(table: list[dict[str, Any]]) -> str:
    """Return the table in Markdown."""
    lines = [
        "| quantity | settings | mean z | mean square | largest abs z | notices | verdict |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in table:
        cells = [
            f"{row[what]:.2f} (chance: {row['limits'][what]:.2f})"
            for what in ("mean", "mean square", "largest")
        ]
        cells.append(f"{100 * row['notices']:.2g} %" if math.isfinite(row["notices"]) else "–")
        verdict = "not chance: " + ", ".join(row["failed"]) if row["failed"] else "chance"
        lines.append(f"| {row['quantity']} | {row['settings']} | {' | '.join(cells)} | {verdict} |")
    return "\n".join(lines)


def report(seed: int, settings: int, rows: list[dict[str, Any]]) -> str:
    """Return in Markdown what was audited, and the table."""
    versions = ", ".join(sorted({row["version"] for row in rows})) or version()
    minutes = sum(row["seconds"] for row in rows) / 60
    return (
        f"Seed {seed}, commit {versions}: {len(rows)} of {settings} settings in {minutes:.0f} minutes "
        f"of processor time.\n\n{show(summarise(rows))}\n"
    )


def write_page(page: Path, text: str) -> None:
    """Put the report of an audit in the place of the last one."""
    before, found, _ = page.read_text().partition(HEADING + "\n")
    if not found:
        raise SystemExit(f"{page} has no line {HEADING!r} to write under.")
    page.write_text(f"{before}{found}\n{text}")


def unfinished(folder: Path) -> tuple[Path, int, int] | None:
    """Return file, seed and settings of the latest audit in the folder that is not finished."""
    for path in sorted(folder.glob("audit-*.jsonl"), reverse=True):
        described = json.loads(path.read_text().splitlines()[0])
        if len(read_rows(path)) < described["settings"]:
            return path, described["seed"], described["settings"]
    return None


def main() -> int:
    """Run, resume and judge an audit."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--settings", type=int, default=300)
    parser.add_argument("--minutes", type=float, default=55.0)
    parser.add_argument("--seed", type=int, help="by default a new one")
    parser.add_argument("--folder", type=Path, default=Path("audit"))
    parser.add_argument("--page", type=Path, help="a page that shows the audit once it is complete")
    options = parser.parse_args()
    options.folder.mkdir(exist_ok=True)
    before = None if options.seed is not None else unfinished(options.folder)
    if before is not None:
        path, seed, settings = before
    else:
        seed = int(time.time()) if options.seed is None else options.seed
        path, settings = options.folder / f"audit-{seed}.jsonl", options.settings
        if not path.exists():
            path.write_text(json.dumps({"seed": seed, "settings": settings}) + "\n")
    rows = run(path, seed, settings, time.monotonic() + 60 * options.minutes)
    text = report(seed, settings, rows)
    print(text)
    if len(rows) < settings:
        print("Time is up; the same command goes on.")
    elif options.page is not None:
        write_page(options.page, text)
    return 1 if any(row["failed"] for row in summarise(rows)) else 0


if __name__ == "__main__":
    sys.exit(main())
