"""Claim 10: square loss without ridge: rate 1/α1, and a peak at the interpolation threshold."""

import numpy as np

from sparsetoken.plotting import (
    caption,
    draw_boundary,
    draw_reference,
    draw_theory,
    look_of,
    new_figure,
    shared_legend,
)
from sparsetoken.reproduce.claim import Claim, Drawing, Quantity, Settings, Table, Verdict
from sparsetoken.reproduce.evidence import AGREES, agreement, decide, power_law, within
from sparsetoken.reproduce.kinds import compared
from sparsetoken.reproduce.measurement import Measurement
from sparsetoken.reproduce.panels import label_axes, line_over_dots
from sparsetoken.task import Query, Task, Training

__all__ = ["CLAIM"]

CLASSIFIERS = ("pooled", "vectorised", "attention")
TASK = {"length": 10, "informative": 1, "strength": 5.0, "positive_rate": 0.5}
COMMON = {**TASK, "alignment": 0.8, "sharpness": 1.5, "ridge": 1e-7, "largest": 1e5}


def threshold(classifier: str, settings: Settings) -> float:
    """Return the sample ratio n/d at which the data can just be interpolated."""
    return float(settings["length"]) if classifier == "vectorised" else 1.0


def measurements(settings: Settings) -> list[Measurement]:
    """Ask for errors over the peak and far beyond it, in units of the threshold."""
    task = Task.from_dict({name: settings[name] for name in TASK})
    given = Query(settings["alignment"], settings["sharpness"])
    made: list[Measurement] = []
    for classifier in CLASSIFIERS:
        unit = threshold(classifier, settings)
        query = given if classifier == "attention" else None

        def problem(
            ratio: float, unit: float = unit, query: Query | None = query
        ) -> tuple[Task, Training, Query | None]:
            training = Training(1.0, ratio * unit, loss="square", ridge=settings["ridge"] / unit)
            return task, training, query

        made += compared(
            "ratio",
            [
                *settings["near_ratios"],
                *settings["far_ratios"],
                settings["largest"] / 2,
                settings["largest"],
            ],
            [] if classifier == "vectorised" else settings["simulated_ratios"],
            problem,
            settings,
            classifier,
        )
    return made


def excess(table: Table, classifier: str) -> tuple[np.ndarray, np.ndarray]:
    """Return sample ratios far beyond the threshold and the error above its limit there."""
    rows = table.select(source="theory", classifier=classifier).ordered("ratio")
    # Of an error a + b/α the limit a, from the two largest sample ratios.
    half, largest = rows.column("test_error")[-2:]
    limit = 2 * largest - half
    far = rows.select(ratio=tuple(table.settings["far_ratios"]))
    return far.column("ratio"), far.column("test_error") - limit


def judge(table: Table) -> Verdict:
    """Compare the slope of the excess error, the place of the peak, and simulation."""
    conditions, numbers = [], {}
    for classifier in CLASSIFIERS:
        slope = power_law(*excess(table, classifier))
        numbers[f"{classifier}: slope of the excess error"] = slope
        conditions.append(within(f"{classifier}: slope of the excess error", slope, -1.05, -0.95))
        near = table.select(source="theory", classifier=classifier).ordered("ratio")
        near = near.select(ratio=tuple(table.settings["near_ratios"]))
        peak = Quantity(float(near.column("ratio")[np.argmax(near.column("test_error"))]))
        numbers[f"{classifier}: peak, in units of the threshold"] = peak
        conditions.append(within(f"{classifier}: peak over threshold", peak, 0.9, 1.1))
        above = near.where(lambda row: 1 < row["ratio"] < 1.5)
        blow_up = power_law(above.column("ratio") - 1, above.column("susceptibility"))
        numbers[f"{classifier}: slope of χ against distance from the threshold"] = blow_up
        conditions.append(
            within(f"{classifier}: slope of χ near the threshold", blow_up, -1.2, -0.8)
        )
    conditions.append(agreement("test error", table, "test_error", ("classifier", "ratio")))
    return decide(conditions, numbers)


def draw(table: Table) -> dict[str, Drawing]:
    """Draw the peak and the rate."""
    settings = table.settings
    figure, (left, right) = new_figure(columns=2)
    shown = table.where(lambda row: row["ratio"] <= 12)
    for classifier in ("pooled", "attention"):
        look = look_of(classifier)
        if classifier == "pooled":
            look = look.named("linear (pooled = vectorised)")
        line_over_dots(left, shown.select(classifier=classifier), "ratio", "test_error", look)
        ratio, above = excess(table, classifier)
        draw_theory(right, ratio, above, look, label=None)
    draw_reference(right, ratio, 2 * above[0] * ratio[0] / ratio, label="slope -1")
    draw_boundary(left, 1.0, label="interpolation threshold")
    label_axes(left, "sample ratio over threshold", "test error", log_x=True)
    label_axes(
        right, "sample ratio over threshold", "error above its limit", log_x=True, log_y=True
    )
    left.set_ylim(0, 0.55)
    shared_legend(figure)
    names = (*TASK, "alignment", "sharpness", "ridge", "dimension")
    text = caption(
        "Square loss, all but without ridge: the peak at the threshold (n = d; n = Ld for the "
        "vectorised classifier, whose curve is the pooled one's in these units), and the error "
        "above its limit far beyond it",
        {name: settings[name] for name in names},
        settings["trials"],
    )
    return {"square": Drawing(figure, text)}


NEAR = [0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 1.0, 1.05, 1.1, 1.15, 1.2, 1.3, 1.4]
CLAIM = Claim(
    number=10,
    name="square-loss",
    title="Square loss: rate 1/α1, and a peak at the interpolation threshold",
    statement=(
        "With the square loss and no ridge every classifier reaches its limit error at rate 1/α1, "
        "and χ diverges at the interpolation threshold."
    ),
    meaning=(
        "Twice the data halve the distance to the best that a classifier can do. But with about "
        "as many examples as parameters it does worst of all: more data hurt before they help."
    ),
    criterion=(
        "For all three classifiers: log-log slope of the excess error -1 ± 0.05 far beyond the "
        "threshold; largest error within 10 % of the threshold; χ grows as the inverse distance "
        "from it (slope -1 ± 0.2). The simulated error away from the peak "
        f"{AGREES}."
    ),
    settings={
        "full": {
            **COMMON,
            "tolerance": 5e-4,
            "near_ratios": [*NEAR, 1.6, 1.8, 2.0, 2.5, 3.0, 4.0, 6.0, 8.0, 12.0],
            "far_ratios": np.geomspace(100, 1e4, 9).tolist(),
            "simulated_ratios": [0.3, 0.5, 1.6, 2.0, 3.0, 4.0, 6.0],
            "dimension": 200,
            "trials": 60,
            "noticed": 0.01,
        },
        "quick": {
            **COMMON,
            "tolerance": 1e-3,
            "near_ratios": [*NEAR, 2.0, 3.0, 4.0, 8.0],
            "far_ratios": np.geomspace(100, 1e4, 5).tolist(),
            "simulated_ratios": [0.5, 2.0, 4.0],
            "dimension": 200,
            "trials": 24,
            "noticed": 0.03,
        },
        "tiny": {
            **COMMON,
            "tolerance": 2e-3,
            "near_ratios": [0.5, 0.95, 1.0, 1.05, 1.1, 1.2, 1.4, 4.0],
            "far_ratios": [100.0, 1000.0, 10000.0],
            "simulated_ratios": [4.0],
            "dimension": 80,
            "trials": 12,
            "noticed": 0.3,
        },
    },
    measurements=measurements,
    judge=judge,
    draw=draw,
)
