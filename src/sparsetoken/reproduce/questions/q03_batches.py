"""Question 3: how many steps are enough, and how should a budget be cut into batches?"""

from typing import Any

import numpy as np

from sparsetoken.plotting import COLOURS, caption, draw_boundary, new_figure, shared_legend
from sparsetoken.plotting.style import SERIES
from sparsetoken.reproduce.claim import Claim, Drawing, Quantity, Settings, Table, Verdict
from sparsetoken.reproduce.evidence import AGREES, Condition, agreement, decide, within
from sparsetoken.reproduce.joint_training import tuned_query, tuned_query_trial
from sparsetoken.reproduce.kinds import alignment, at_two_sizes
from sparsetoken.reproduce.measurement import Measurement
from sparsetoken.reproduce.panels import label_axes, line_over_dots
from sparsetoken.task import Task, Training
from sparsetoken.theory.descent import AMPLIFIED

__all__ = ["CLAIM"]

COMMON = {
    "length": 10,
    "informative": 1,
    "positive_rate": 0.5,
    "share": 0.5,
    "ridge": 0.2,
    "sharpness": 2.0,
    "enough": 8,
}


def measurements(settings: Settings) -> list[Measurement]:
    """Ask for the query after T joint steps on a fixed amount of data, and for its readout."""
    made: list[Measurement] = []
    for strength, total in settings["problems"]:
        task = Task(
            settings["length"], settings["informative"], strength, settings["positive_rate"]
        )
        labels = {"strength": strength, "total": total}
        first = settings["share"] * total
        training = Training(first, total - first, ridge=settings["ridge"])
        made.append(alignment.ask(task, training, part="same data", **labels))
        for batches in settings["batches"]:
            asked = {"batches": batches, "sharpness": settings["sharpness"], **labels}
            made.append(
                tuned_query.ask(
                    task, training, tolerance=settings["tolerance"], part="fresh", **asked
                )
            )
            if batches in settings["simulated_batches"]:
                made += at_two_sizes(
                    settings, tuned_query_trial, task, training, part="fresh", **asked
                )
    return made


def curve(table: Table, name: str, **labels: Any) -> dict[int, float]:
    """Return a predicted quantity for each number of batches."""
    rows = table.select(part="fresh", source="theory", **labels).rows
    return {int(row["batches"]): float(row[name]) for row in rows}


def judge(table: Table) -> Verdict:
    """Compare numbers of batches with each other and with two steps on the same data."""
    conditions: list[Condition] = []
    numbers: dict[str, Quantity] = {}
    settings = table.settings
    enough, most = settings["enough"], max(settings["batches"])
    for strength, total in settings["problems"]:
        labels = {"strength": strength, "total": total}
        cosine, error = (curve(table, name, **labels) for name in ("alignment", "test_error"))
        best = max(cosine.values())
        same = table.select(part="same data", **labels).quantity("alignment").value
        name = f"θ = {strength:g}, α = {total:g}"
        for said, value, low, high in (
            ("cosine after 2 fresh batches over the best", cosine[2] / best, -np.inf, 0.85),
            (f"cosine after {enough} fresh batches over the best", cosine[enough] / best, 0.95, 1),
            (f"cosine after {most} fresh batches over the best", cosine[most] / best, 0.95, 1),
            ("cosine after two steps on the same data over the best", same / best, 0.9, 1.1),
            (f"error with {enough} batches over that with 2", error[enough] / error[2], 0, 0.85),
        ):
            numbers[f"{name}: {said}"] = Quantity(value)
            conditions.append(within(f"{name}: {said}", Quantity(value), low, high))
    growth = table.select(part="fresh", source="theory").column("amplification").max()
    said = "largest growth of a small deviation"
    numbers[said] = Quantity(float(growth))
    conditions.append(within(said, numbers[said], high=AMPLIFIED))
    keys = ("strength", "total", "batches")
    fresh = table.select(part="fresh")
    conditions += [
        agreement("cosine", fresh, "alignment", keys),
        agreement("error of the fitted readout", fresh, "test_error", keys),
    ]
    return decide(conditions, numbers)


def draw(table: Table) -> dict[str, Drawing]:
    """Draw cosine and error against the number of batches."""
    settings = table.settings
    figure, (left, right) = new_figure(columns=2)
    for look, (strength, total) in zip(SERIES, settings["problems"], strict=False):
        labels = {"strength": strength, "total": total}
        rows = table.select(part="fresh", **labels)
        label = f"θ = {strength:g}, α = {total:g}"
        line_over_dots(left, rows, "batches", "alignment", look, label)
        line_over_dots(right, rows, "batches", "test_error", look, None)
        same = table.select(part="same data", **labels).quantity("alignment").value
        draw_boundary(left, same, vertical=False, color=look.colour, linestyle=":")
    left.plot([], [], ":", color=COLOURS["grey"], label="two steps on the same data")
    for panel, name in ((left, "cosine of query and signal"), (right, "test error")):
        label_axes(panel, "fresh batches", name, log_x=True)
        panel.set_xticks(settings["batches"], [str(count) for count in settings["batches"]])
        panel.minorticks_off()
        panel.set_ylim(0, None)
    shared_legend(figure, columns=2)
    text = caption(
        "Query after joint steps on T fresh batches that share half of the data, at the best query "
        "step, and test error of a readout fitted to it on the other half (logistic loss)",
        {name: settings[name] for name in (*list(COMMON)[:-1], "dimension")},
        settings["trials"],
    )
    return {"batches": Drawing(figure, text)}


CLAIM = Claim(
    series="question",
    number=3,
    name="batches",
    title="How many steps are enough? Eight on fresh batches, or two on the same data",
    statement=(
        "About eight: with the data of the query cut into 8 fresh batches its cosine with the signal "
        "is within 5 % of the best, finer cuts neither help nor hurt at the best query step, and two "
        "steps that both see all of these data do as well."
    ),
    meaning=(
        "Cutting the data into two halves, one for each step, wastes them: the first step sees too "
        "little. Eight small steps, or two steps that look at the same data twice, get all there is."
    ),
    criterion=(
        "In every problem, at the query step that aligns best: after 2 fresh batches the predicted "
        "cosine is at most 0.85 of the best number's, after 8 and after the most batches at least "
        "0.95 of it, after two steps on the same data between 0.9 and 1.1 of it; a readout fitted "
        "after 8 batches errs at most 0.85 times as often as after 2. No deviation grows more than "
        f"fivefold. Cosine and error of trials {AGREES} (here: 3 %, quick version 10 %)."
    ),
    settings={
        "full": {
            **COMMON,
            "problems": [[3.0, 4.0], [4.0, 2.0], [5.0, 1.0]],
            "batches": [2, 3, 4, 6, 8, 12, 16, 32],
            "simulated_batches": [2, 4, 8, 16],
            "tolerance": 2e-3,
            "dimension": 800,
            "trials": 40,
            "noticed": 0.03,
        },
        "quick": {
            **COMMON,
            "problems": [[4.0, 2.0]],
            "batches": [2, 4, 8, 16],
            "simulated_batches": [2, 8],
            "tolerance": 4e-3,
            "dimension": 800,
            "trials": 16,
            "noticed": 0.1,
        },
        "tiny": {
            **COMMON,
            "problems": [[4.0, 2.0]],
            "batches": [2, 4, 8],
            "simulated_batches": [8],
            "tolerance": 8e-3,
            "dimension": 400,
            "trials": 40,
            "noticed": 1.0,
        },
    },
    measurements=measurements,
    judge=judge,
    draw=draw,
)
