"""Question 1: does it pay to split the data between query and readout?"""

import math

import numpy as np

from sparsetoken.plotting import COLOURS, Look, caption, draw_boundary, new_figure, shared_legend
from sparsetoken.plotting.style import SERIES
from sparsetoken.reproduce.claim import Claim, Drawing, Quantity, Settings, Table, Verdict
from sparsetoken.reproduce.evidence import AGREES, agreement, decide, within
from sparsetoken.reproduce.kinds import at_two_sizes, floor_errors, prediction, trial
from sparsetoken.reproduce.measurement import Measurement
from sparsetoken.reproduce.panels import label_axes
from sparsetoken.task import Task, Training
from sparsetoken.theory.alignment import with_sharpness

__all__ = ["CLAIM"]

COMMON = {
    "length": 10,
    "informative": 1,
    "positive_rate": 0.5,
    "ridge": 0.02,
    "sharpness": 1.5,
}


def measurements(settings: Settings) -> list[Measurement]:
    """Ask for errors without a split and with several, at equal total."""
    made: list[Measurement] = []
    tolerance = settings["tolerance"]
    for loss in settings["losses"]:
        for strength in settings["strengths"]:
            task = Task(
                settings["length"], settings["informative"], strength, settings["positive_rate"]
            )
            for total in settings["totals"]:
                labels = {"strength": strength, "total": total}

                def training(
                    alpha0: float,
                    alpha1: float,
                    reuse: bool,
                    task: Task = task,
                    loss: str = loss,
                ) -> Training:
                    options = {"loss": loss, "ridge": settings["ridge"], "reuse": reuse}
                    made_so = Training(alpha0, alpha1, **options)
                    return with_sharpness(task, made_so, settings["sharpness"])

                made += [
                    prediction.ask(
                        task,
                        training(share * total, (1 - share) * total, False),
                        tolerance=tolerance,
                        loss=loss,
                        share=share,
                        **labels,
                    )
                    for share in settings["shares"]
                ]
                whole = training(total, total, True)
                named = {"loss": loss, "share": "none", **labels}
                made.append(prediction.ask(task, whole, tolerance=tolerance, **named))
                if [strength, total] in settings["simulated"]:
                    made += at_two_sizes(settings, trial, task, whole, **named)
                made.append(floor_errors.ask(task, total, part="floor", **labels))
    return made


def best_split(table: Table) -> list[dict[str, float | str]]:
    """Return, for each problem, the error without a split, with the best one, and the floor."""
    found = []
    theory = table.select(source="theory")
    for row in theory.select(share="none").rows:
        labels = {name: row[name] for name in ("strength", "total")}
        splits = theory.select(loss=row["loss"], share=tuple(table.settings["shares"]), **labels)
        floor = theory.select(part="floor", **labels)
        found.append(
            {
                **labels,
                "loss": row["loss"],
                "whole": row["test_error"],
                "split": float(splits.column("test_error").min()),
                "floor": float(floor.rows[0]["test_error"]),
            }
        )
    return found


def at_the_peak(problem: dict[str, float | str]) -> bool:
    """Return whether as many samples as dimensions meet the square loss: it interpolates there."""
    return problem["loss"] == "square" and problem["total"] == 1


def judge(table: Table) -> Verdict:
    """Compare the error without a split with that of the best one."""
    problems = best_split(table)
    ratios = np.array([float(one["whole"]) / float(one["split"]) for one in problems])
    peak = np.array([at_the_peak(one) for one in problems])
    over_floor = np.array([float(one["whole"]) / float(one["floor"]) for one in problems])
    split_over = np.array([float(one["split"]) / float(one["floor"]) for one in problems])
    conditions = [
        within(
            "problems in which no split beats the best split, the peak of interpolation left out",
            Quantity(float(np.mean(ratios[~peak] < 1))),
            low=1.0,
        ),
        within(
            "median error without a split over the best split's",
            Quantity(float(np.median(ratios))),
            high=0.9,
        ),
        agreement(
            "error without a split",
            table.select(share="none"),
            "test_error",
            ("loss", "strength", "total"),
        ),
    ]
    numbers = {
        "median error without a split over the best split's": Quantity(float(np.median(ratios))),
        "least of these ratios": Quantity(float(ratios.min())),
        "largest of these ratios": Quantity(float(ratios.max())),
        "median error over the floor, no split": Quantity(float(np.median(over_floor))),
        "median error over the floor, best split": Quantity(float(np.median(split_over))),
    }
    if peak.any():
        name = "largest ratio at the peak of interpolation"
        numbers[name] = Quantity(float(ratios[peak].max()))
    return decide(conditions, numbers)


def draw(table: Table) -> dict[str, Drawing]:
    """Draw the ratio of the two errors against the data."""
    settings = table.settings
    columns = min(2, len(settings["losses"]))
    rows = math.ceil(len(settings["losses"]) / columns)
    figure, panels = new_figure(columns, rows, panel_height=2.4, sharey=True)
    problems = best_split(table)
    for panel, loss in zip(panels, settings["losses"], strict=True):
        for look, strength in zip(SERIES, settings["strengths"], strict=False):
            chosen = [one for one in problems if (one["loss"], one["strength"]) == (loss, strength)]
            panel.plot(
                [float(one["total"]) for one in chosen],
                [float(one["whole"]) / float(one["split"]) for one in chosen],
                color=look.colour,
                marker=look.marker,
                label=f"θ = {strength:g}",
            )
        draw_boundary(panel, 1.0, vertical=False, color=Look("", COLOURS["grey"], "").colour)
        title = f"{loss.replace('_', ' ')} loss"
        label_axes(panel, "samples n/d", "", title, log_x=True)
        panel.set_ylim(0, 1.3)
    for panel in panels[::columns]:
        panel.set_ylabel("no split over best split")
    shared_legend(figure, columns=4)
    text = caption(
        "Predicted test error when all data serve query and readout, over that of the best split of "
        "the same data",
        {name: settings[name] for name in COMMON},
    )
    return {"split": Drawing(figure, text)}


CLAIM = Claim(
    series="question",
    number=1,
    name="no-split",
    title="Does splitting the data pay? No, but at the peak of interpolation",
    statement=(
        "No: using all data for the query and again for the readout beats every split of the same "
        "data, at every signal strength, amount of data and loss that was tried, except where the "
        "square loss has as many samples as dimensions."
    ),
    meaning=(
        "The paper keeps two separate sets of examples so that its proofs work. In practice using "
        "every example twice is better, and the price of keeping them apart can be calculated."
    ),
    criterion=(
        "At equal total the predicted error without a split is below that of the best of the splits "
        "in every problem of the list, and at most 0.9 of it in the median. Left out of the first, "
        "after all losses had been looked at: the square loss at n = d, where a readout that "
        "interpolates has its peak and fewer samples are better than more. The simulated error "
        f"without a split {AGREES} (here: 5 %, quick version 15 %)."
    ),
    settings={
        "full": {
            **COMMON,
            "losses": ["logistic", "square", "hinge", "squared_hinge"],
            "strengths": [3.0, 4.0, 5.0],
            "totals": [1.0, 2.0, 4.0, 8.0],
            "shares": [0.1, 0.2, 0.35, 0.5, 0.65],
            "simulated": [[3.0, 2.0], [4.0, 2.0]],
            "tolerance": 1e-3,
            "dimension": 200,
            "trials": 40,
            "noticed": 0.05,
        },
        "quick": {
            **COMMON,
            "losses": ["logistic"],
            "strengths": [3.0, 5.0],
            "totals": [2.0, 8.0],
            "shares": [0.2, 0.4, 0.6],
            "simulated": [[3.0, 2.0]],
            "tolerance": 2e-3,
            "dimension": 120,
            "trials": 20,
            "noticed": 0.15,
        },
        "tiny": {
            **COMMON,
            "losses": ["logistic"],
            "strengths": [3.0, 5.0],
            "totals": [2.0],
            "shares": [0.2, 0.4, 0.6],
            "simulated": [[3.0, 2.0]],
            "tolerance": 4e-3,
            "dimension": 80,
            "trials": 10,
            "noticed": 1.0,
        },
    },
    measurements=measurements,
    judge=judge,
    draw=draw,
)
