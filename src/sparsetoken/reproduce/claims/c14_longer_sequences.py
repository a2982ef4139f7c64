"""Claim 14: trained attention works at lengths at which the trained pooled classifier has failed."""

import numpy as np

from sparsetoken.plotting import (
    caption,
    draw_boundary,
    draw_reference,
    look_of,
    new_figure,
    shared_legend,
)
from sparsetoken.plotting.style import SERIES
from sparsetoken.reproduce.claim import Claim, Drawing, Quantity, Settings, Table, Verdict
from sparsetoken.reproduce.evidence import AGREES, agreement, crossing, decide, power_law, within
from sparsetoken.reproduce.kinds import compared
from sparsetoken.reproduce.measurement import Measurement
from sparsetoken.reproduce.panels import label_axes, line_over_dots
from sparsetoken.task import Query, Task, Training
from sparsetoken.theory.alignment import with_sharpness

__all__ = ["CLAIM"]

TASK = {"informative": 1, "strength": 5.0, "positive_rate": 0.5}
COMMON = {**TASK, "sharpness": 2.0, "ridge": 1e-3, "failed": 0.25}
CLASSIFIERS = ("pooled", "attention")


def measurements(settings: Settings) -> list[Measurement]:
    """Ask for errors against the length, with several amounts of data."""
    made: list[Measurement] = []
    for total in settings["totals"]:

        def problem(length: float, total: float = total) -> tuple[Task, Training, Query | None]:
            task = Task(int(length), *(settings[name] for name in TASK))
            training = Training(total / 2, total / 2, ridge=settings["ridge"])
            return task, with_sharpness(task, training, settings["sharpness"]), None

        simulated = settings["simulated_lengths"] if total == settings["simulated_total"] else []
        for classifier in CLASSIFIERS:
            made += compared(
                "length",
                settings["lengths"],
                simulated,
                problem,
                settings,
                classifier,
                total=total,
            )
    return made


def reach(table: Table, classifier: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the totals, and the length at which the predicted error reaches `failed` in each."""
    theory = table.select(source="theory", classifier=classifier)
    totals = sorted(theory.distinct("total"))
    found = []
    for total in totals:
        rows = theory.select(total=total).ordered("length")
        gap = table.settings["failed"] - rows.column("test_error")
        place = crossing(np.log(rows.column("length")), gap)
        found.append(np.nan if place is None else float(np.exp(place)))
    return np.array(totals), np.array(found)


def judge(table: Table) -> Verdict:
    """Compare the lengths up to which the two work, and how they grow with the data."""
    totals, attention = reach(table, "attention")
    _, pooled = reach(table, "pooled")
    slope = power_law(totals, attention)
    farther = Quantity(float(attention[0] / pooled[0]))
    gained = Quantity(float(pooled[-1] / pooled[0]))
    conditions = [
        within("attention's reach over pooling's, with the least data", farther, low=5),
        within("log-log slope of attention's reach against the data", slope, 0.8, 1.2),
        within("pooling's reach with the most data over that with the least", gained, high=3),
    ]
    at = table.select(total=table.settings["simulated_total"])
    for classifier in CLASSIFIERS:
        rows = at.select(classifier=classifier)
        conditions.append(agreement(f"error of {classifier}", rows, "test_error", ("length",)))
    numbers = {
        f"length at which {name} errs as often as 1 in 4, (n0 + n1)/d = {total:g}": Quantity(place)
        for name, places in (("attention", attention), ("pooling", pooled))
        for total, place in zip(totals, places.tolist(), strict=True)
    }
    return decide(conditions, {**numbers, "slope of attention's reach": slope})


def draw(table: Table) -> dict[str, Drawing]:
    """Draw errors against length, and the reach against the data."""
    settings = table.settings
    figure, (left, right) = new_figure(columns=2)
    for classifier in CLASSIFIERS:
        rows = table.select(total=settings["simulated_total"], classifier=classifier)
        line_over_dots(left, rows, "length", "test_error", look_of(classifier))
    draw_boundary(left, settings["failed"], vertical=False, label="error of 1 in 4", color="grey")
    title = f"(n0 + n1)/d = {settings['simulated_total']:g}"
    label_axes(left, "tokens L", "test error", title, log_x=True)
    left.set_ylim(0, 0.5)
    for classifier in CLASSIFIERS:
        totals, places = reach(table, classifier)
        look = look_of(classifier)
        right.plot(totals, places, color=look.colour, marker=".")
    draw_reference(right, totals, 10 * totals, label="slope 1", color=SERIES[3].colour)
    label_axes(right, "data (n0 + n1)/d", "length with an error of 1 in 4", log_x=True, log_y=True)
    shared_legend(figure, columns=4)
    names = (*TASK, "sharpness", "ridge", "dimension")
    text = caption(
        "Left: test error of trained classifiers against the sequence length at a fixed signal "
        "strength. Right: predicted length at which the error reaches 1 in 4. Half of attention's "
        "data train the query; its step is set for the sharpness (logistic loss)",
        {name: settings[name] for name in names},
        settings["trials"],
    )
    return {"lengths": Drawing(figure, text)}


CLAIM = Claim(
    number=14,
    name="longer-sequences",
    title="Trained attention reaches lengths where trained pooling fails, in proportion to the data",
    statement=(
        "At a fixed signal strength trained attention works at lengths where the trained pooled "
        "classifier fails, and more data extend its reach, but not that of pooling."
    ),
    meaning=(
        "Twice the examples let attention cope with texts twice as long. Plain averaging gives up "
        "early, and no amount of examples changes that."
    ),
    criterion=(
        "Reach is the length at which the predicted error is 1/4. Attention's is at least 5 times "
        "pooling's with the least data, grows with the data with a log-log slope of 1 ± 0.2, and "
        "pooling's at most triples over the same range. The simulated error of each classifier "
        f"against the length {AGREES}."
    ),
    settings={
        "full": {
            **COMMON,
            "tolerance": 1e-3,
            "lengths": [4, 6, 10, 16, 25, 40, 63, 100, 160, 250, 400, 630, 1000, 1600],
            "totals": [4.0, 8.0, 16.0, 32.0, 64.0],
            "simulated_total": 16.0,
            "simulated_lengths": [10, 16, 25, 40, 63, 160],
            "dimension": 400,
            "trials": 320,
            "noticed": 0.01,
        },
        "quick": {
            **COMMON,
            "tolerance": 2e-3,
            "lengths": [5, 10, 20, 40, 80, 160, 320, 640],
            "totals": [4.0, 16.0, 32.0],
            "simulated_total": 16.0,
            "simulated_lengths": [10, 40],
            "dimension": 200,
            "trials": 160,
            "noticed": 0.03,
        },
        "tiny": {
            **COMMON,
            "tolerance": 4e-3,
            "lengths": [5, 10, 20, 40, 80, 160, 320],
            "totals": [4.0, 16.0],
            "simulated_total": 16.0,
            "simulated_lengths": [10, 40],
            "dimension": 80,
            "trials": 12,
            "noticed": 2.0,
        },
    },
    measurements=measurements,
    judge=judge,
    draw=draw,
)
