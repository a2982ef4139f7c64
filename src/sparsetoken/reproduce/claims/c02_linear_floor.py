"""Claim 2: no amount of data saves a linear classifier when the signal grows too slowly."""

import numpy as np

from sparsetoken.plotting import caption, draw_boundary, look_of, new_figure, shared_legend
from sparsetoken.reproduce.claim import Claim, Drawing, Quantity, Settings, Table, Verdict
from sparsetoken.reproduce.evidence import AGREES, agreement, decide, holds, within
from sparsetoken.reproduce.kinds import compared, oracle_error
from sparsetoken.reproduce.measurement import Measurement
from sparsetoken.reproduce.panels import draw_floor, label_axes, line_over_dots
from sparsetoken.task import Task, Training

__all__ = ["CLAIM"]

COMMON = {"informative": 1, "positive_rate": 0.3, "data_length": 100, "ridge": 1e-7}


def slow_task(settings: Settings, length: int) -> Task:
    """Return the task with θ = 2√(2 log L), which attention can solve."""
    strength = 2 * float(np.sqrt(2 * np.log(length)))
    return Task(length, settings["informative"], strength, settings["positive_rate"])


def measurements(settings: Settings) -> list[Measurement]:
    """Ask for least errors against length, and for the pooled error against the data."""
    made: list[Measurement] = []
    for length in settings["lengths"]:
        task = slow_task(settings, length)
        made += [
            oracle_error.ask(task, classifier, part="length", length=length)
            for classifier in ("pooled", "attention", "bayes")
        ]
    task = slow_task(settings, settings["data_length"])
    made.append(oracle_error.ask(task, "pooled", part="floor"))
    made += compared(
        "alpha1",
        settings["theory_ratios"],
        settings["simulated_ratios"],
        lambda alpha1: (task, Training(1.0, alpha1, ridge=settings["ridge"]), None),
        settings,
        "pooled",
        part="data",
    )
    return made


def judge(table: Table) -> Verdict:
    """Compare errors at the longest sequences, and the error with the most data to its floor."""
    rare = min(table.settings["positive_rate"], 1 - table.settings["positive_rate"])
    by_length = table.select(part="length").ordered("length")
    pooled = by_length.select(classifier="pooled")
    attention = by_length.select(classifier="attention")
    linear_end = Quantity(
        float(pooled.column("test_error")[-1]), float(pooled.column("test_error_uncertainty")[-1])
    )
    attention_end = Quantity(
        float(attention.column("test_error")[-1]),
        float(attention.column("test_error_uncertainty")[-1]),
    )
    floor = float(table.select(part="floor").column("test_error")[0])
    data = table.select(part="data", source="theory").ordered("alpha1")
    most = Quantity(
        float(data.column("test_error")[-1]), float(data.column("test_error_uncertainty")[-1])
    )
    conditions = [
        within("linear error at the longest L", linear_end, rare - 0.01, rare + 1e-9),
        within("attention's error at the longest L", attention_end, high=0.01),
        holds(
            "attention's error falls at every step of L",
            bool(np.all(np.diff(attention.column("test_error")) < 0)),
        ),
        within(
            "pooled error with the most data over its floor",
            Quantity(most.value / floor, (most.uncertainty or 0) / floor),
            0.999,
            1.002,
        ),
        within("that floor", Quantity(floor), low=0.05),
        agreement("pooled error", table.select(part="data"), "test_error", ("alpha1",)),
    ]
    numbers = {
        "linear error at the longest L": linear_end,
        "attention's error at the longest L": attention_end,
        "pooled error with the most data": most,
        "its floor": Quantity(floor),
    }
    return decide(conditions, numbers)


def draw(table: Table) -> dict[str, Drawing]:
    """Draw errors against length, and against data."""
    settings = table.settings
    figure, (left, right) = new_figure(columns=2)
    by_length = table.select(part="length")
    draw_floor(left, by_length.select(classifier="bayes"), "length", "test_error")
    for classifier in ("pooled", "attention"):
        look = look_of(classifier)
        line_over_dots(left, by_length.select(classifier=classifier), "length", "test_error", look)
    rare = min(settings["positive_rate"], 1 - settings["positive_rate"])
    draw_boundary(left, rare, vertical=False, label="always the common label")
    label_axes(left, "tokens L", "least test error", log_x=True, log_y=True)
    left.set_title("θ = 2√(2 log L), signal known")
    line_over_dots(
        right, table.select(part="data"), "alpha1", "test_error", look_of("pooled"), label=None
    )
    floor = float(table.select(part="floor").column("test_error")[0])
    draw_boundary(right, floor, vertical=False, label="linear floor", linestyle="-.")
    draw_boundary(right, rare, vertical=False)
    label_axes(right, "sample ratio n/d", "test error", log_x=True)
    right.set_title(f"L = {settings['data_length']}, pooled linear, trained")
    shared_legend(figure, columns=3)
    names = ("informative", "positive_rate", "ridge", "dimension")
    text = caption(
        "Left: least error when θ = 2√(2 log L). Right: the pooled classifier trained on more and "
        "more data (logistic loss)",
        {name: settings[name] for name in names},
        settings["trials"],
    )
    return {"floor": Drawing(figure, text)}


CLAIM = Claim(
    number=2,
    name="linear-floor",
    title="Linear classifiers keep failing however much data they get",
    statement=(
        "If θR/√L does not grow, the error of a linear classifier stays away from zero however "
        "much data it is trained on."
    ),
    meaning=(
        "Averaging over all words drowns a rare clue in noise, and more examples do not help "
        "because the clue is lost before learning starts. Attention, which picks words before it "
        "averages, does better and better at the same signal."
    ),
    criterion=(
        "At θ = 2√(2 log L) and the longest L: linear error within 0.01 of min(π, 1-π), "
        "attention's below 0.01 and falling at every step of L. At fixed L the trained pooled "
        "classifier's error with the most data lies within 0.2 % of its floor, the floor is above "
        f"0.05, and its simulated error {AGREES}."
    ),
    settings={
        "full": {
            **COMMON,
            "tolerance": 5e-4,
            "lengths": [10, 30, 100, 300, 1000, 10**4, 10**5, 10**6],
            "theory_ratios": np.geomspace(0.5, 1e5, 25).tolist(),
            "simulated_ratios": [1.0, 2.0, 4.0, 8.0, 16.0, 32.0],
            "dimension": 400,
            "trials": 24,
            "noticed": 0.01,
        },
        "quick": {
            **COMMON,
            "tolerance": 1e-3,
            "lengths": [10, 100, 1000, 10**4, 10**5, 10**6],
            "theory_ratios": np.geomspace(0.5, 1e5, 13).tolist(),
            "simulated_ratios": [1.0, 4.0, 16.0],
            "dimension": 200,
            "trials": 24,
            "noticed": 0.03,
        },
        "tiny": {
            **COMMON,
            "tolerance": 2e-3,
            "lengths": [100, 10**4, 10**5],
            "theory_ratios": [1.0, 8.0, 1e5],
            "simulated_ratios": [1.0, 8.0],
            "dimension": 80,
            "trials": 12,
            "noticed": 0.3,
        },
    },
    measurements=measurements,
    judge=judge,
    draw=draw,
)
