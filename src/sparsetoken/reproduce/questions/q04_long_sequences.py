"""Question 4: does the theory hold when sequences grow with the dimension?"""

from collections.abc import Callable
from typing import Any

import numpy as np

from sparsetoken.plotting import (
    caption,
    draw_boundary,
    draw_simulation,
    new_figure,
    shared_legend,
)
from sparsetoken.plotting.style import SERIES
from sparsetoken.reproduce.claim import Claim, Drawing, Quantity, Settings, Table, Verdict
from sparsetoken.reproduce.evidence import Condition, against_theory, decide, within
from sparsetoken.reproduce.kinds import drawn_query, prediction
from sparsetoken.reproduce.measurement import Measurement, measures
from sparsetoken.reproduce.panels import label_axes
from sparsetoken.simulation.trials import run_trial
from sparsetoken.task import Task, Training
from sparsetoken.theory.alignment import align, with_sharpness
from sparsetoken.theory.predictor import predict
from sparsetoken.uncertainty import error_of_difference

__all__ = ["CLAIM", "balanced_trial"]

COMMON = {"informative": 1, "positive_rate": 0.5, "alpha1": 4.0, "ridge": 1e-3, "sharpness": 1.5}
FIELDS = ("test_error", "train_loss")


def problem(settings: Settings, length: int) -> tuple[Task, Training]:
    """Return a task that gets no harder with the length: θ and α0 grow as they have to."""
    strength = 2.2 * float(np.sqrt(2 * np.log(length)))
    task = Task(length, settings["informative"], strength, settings["positive_rate"])
    training = Training(max(4.0, length / 4), settings["alpha1"], ridge=settings["ridge"])
    return task, with_sharpness(task, training, settings["sharpness"])


@measures("simulation", shown=("dimension",))
def balanced_trial(
    task: Task, training: Training, dimension: int, trial: int, tolerance: float, seed: int = 0
) -> dict[str, Any]:
    """Train a classifier, and predict the same for the labels that its query has seen.

    Of n0 samples, a share of π ± √(π(1-π)/n0) is positive. Long sequences amplify that surplus in
    the query (docs/theory.md, section 4), so that theory is asked for the query that follows from
    the share of positives in this trial: `expected_` is its answer, and `excess_` what simulation
    has above it.
    """
    state = drawn_query("balance", task, training, dimension, trial, seed)
    assert state.positive_share is not None
    found = run_trial(
        task,
        training,
        dimension=dimension,
        trial=trial,
        query=state.seen(training),
        seed=seed,
        check_separable=False,
    )
    learnt = align(task.replace(positive_rate=state.positive_share), training)
    expected = predict(task, training, query=learnt.query, tolerance=tolerance)
    if not (found.converged and expected.solution.converged):
        raise ArithmeticError(f"{found.message}; {expected.solution.message}")
    simulated, theory = found.to_dict(), expected.to_dict()
    record = {"positive_share": state.positive_share, "sharpness": found.sharpness}
    for name in FIELDS:
        record[name] = simulated[name]
        record[f"expected_{name}"] = theory[name]
        record[f"expected_{name}_bar"] = theory[f"{name}_uncertainty"]
        record[f"excess_{name}"] = simulated[name] - theory[name]
    return record


def measurements(settings: Settings) -> list[Measurement]:
    """Ask for theory at each length, and for trials with that ratio of length and dimension."""
    made: list[Measurement] = []
    tolerance = settings["tolerance"]
    for ratio, large in settings["ratios"]:
        for dimension in (large, large // 4):
            length = max(2, round(ratio * dimension))
            task, training = problem(settings, length)
            labels = {"ratio": ratio, "length": length}
            made.append(
                prediction.ask(task, training, tolerance=tolerance, dimension=dimension, **labels)
            )
            made += balanced_trial.ask_trials(
                settings["trials"],
                task,
                training,
                dimension=dimension,
                tolerance=tolerance,
                seed=settings["seed"],
                **labels,
            )
    return made


def from_task(table: Table, name: str) -> Quantity:
    """Return the relative deviation of trials from theory, at one length and dimension."""
    one = against_theory(table, name, ("length",))
    scale = float(one.theory[0])
    return Quantity(float(one.limit[0]) / scale - 1, float(one.error[0]) / abs(scale))


def from_labels(table: Table, name: str) -> Quantity:
    """Return the same from theory for the share of positives that each trial has drawn."""
    (row,) = table.select(source="simulation").rows
    error = error_of_difference(row[f"excess_{name}_uncertainty"], row[f"expected_{name}_bar"])
    scale = row[f"expected_{name}"]
    return Quantity(row[f"excess_{name}"] / scale, float(error) / scale)


def deviations(
    table: Table, ratio: float, deviation: Callable[[Table, str], Quantity], name: str
) -> tuple[list[int], list[Quantity]]:
    """Return dimensions, and the relative deviation of simulation from theory at each."""
    rows = table.select(ratio=ratio)
    dimensions = sorted(rows.distinct("dimension"))
    return dimensions, [deviation(rows.select(dimension=d), name) for d in dimensions]


def judge(table: Table) -> Verdict:
    """Extrapolate the deviation at a fixed L/d to large d."""
    conditions: list[Condition] = []
    numbers: dict[str, Quantity] = {}
    for ratio, _ in table.settings["ratios"]:
        for name in FIELDS:
            dimensions, (small, large) = deviations(table, ratio, from_labels, name)
            _, (_, plainly) = deviations(table, ratio, from_task, name)
            factor = dimensions[1] / dimensions[0]
            limit = Quantity(
                (factor * large.value - small.value) / (factor - 1),
                float(
                    np.hypot(factor * (large.uncertainty or 0.0), small.uncertainty or 0.0)
                    / (factor - 1)
                ),
            )
            what = f"L/d = {ratio:g}: {name.replace('_', ' ')}"
            at = f"at d = {dimensions[1]}"
            numbers[f"{what}, deviation from theory for the task {at}"] = plainly
            numbers[f"{what}, deviation from theory for the labels drawn {at}"] = large
            numbers[f"{what}, the latter extrapolated"] = limit
            bound = table.settings["bound"]
            conditions.append(within(f"{what}, extrapolated deviation", limit, -bound, bound))
    return decide(conditions, numbers)


def draw(table: Table) -> dict[str, Drawing]:
    """Draw the relative deviation from theory against the dimension, for each ratio."""
    settings = table.settings
    figure, panels = new_figure(columns=2, rows=2, panel_height=2.4)
    theories = {"theory for the task": from_task, "theory for the labels drawn": from_labels}
    places = [(title, name) for title in theories for name in FIELDS]
    for panel, (title, name) in zip(panels, places, strict=True):
        for look, (ratio, _) in zip(SERIES, settings["ratios"], strict=False):
            dimensions, found = deviations(table, ratio, theories[title], name)
            draw_simulation(
                panel,
                dimensions,
                [100 * one.value for one in found],
                [100 * (one.uncertainty or 0.0) for one in found],
                look.named(f"L/d = {ratio:g}"),
                label="",
                linestyle=":",
            )
        draw_boundary(panel, 0.0, vertical=False)
        label_axes(
            panel, "dimension d", f"{name.replace('_', ' ')}: deviation (%)", title, log_x=True
        )
    shared_legend(figure, columns=4)
    text = caption(
        "Relative deviation of simulation from the theory for the same length, when the length "
        "grows with the dimension (θ = 2.2√(2 log L), α0 = max(4, L/4), logistic loss). Above: "
        "theory with a share π of positives. Below: with the share of positives that the query's "
        "samples have. Markers: mean and standard error",
        {name: settings[name] for name in (*COMMON, "trials")},
    )
    return {"growth": Drawing(figure, text)}


CLAIM = Claim(
    series="question",
    number=4,
    name="long-sequences",
    title="Does the theory hold when L grows with d? Yes, for the labels that were drawn",
    statement=(
        "With L/d fixed, from 0.01 to 4, the theory for the actual L describes test error and "
        "training loss, if it is told the share of positives among the query's samples: long "
        "sequences amplify the chance surplus of one label, which a larger d does not remove."
    ),
    meaning=(
        "The formulas assume short sequences of long vectors. They also work when sequences are "
        "four times as long as the vectors are wide, but there it matters whether the labels of "
        "the training data happen to be balanced."
    ),
    criterion=(
        "For each L/d the relative deviation of simulated test error and training loss from theory "
        "at the same L, for the query that follows from each trial's own share of positives, "
        "extrapolated in 1/d from two dimensions with that ratio, lies within 10 % (quick version: "
        "20 %) by two standard errors."
    ),
    settings={
        "full": {
            **COMMON,
            "ratios": [[0.01, 800], [0.1, 200], [1.0, 200], [4.0, 200]],
            "trials": 400,
            "tolerance": 1e-4,
            "bound": 0.1,
        },
        "quick": {
            **COMMON,
            "ratios": [[0.1, 120], [4.0, 120]],
            "trials": 150,
            "tolerance": 1e-3,
            "bound": 0.2,
        },
        "tiny": {
            **COMMON,
            "ratios": [[1.0, 80]],
            "trials": 20,
            "tolerance": 2e-3,
            "bound": 0.5,
        },
    },
    measurements=measurements,
    judge=judge,
    draw=draw,
)
