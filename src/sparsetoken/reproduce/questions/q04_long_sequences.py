"""Question 4: does the theory hold when sequences grow with the dimension?"""

import numpy as np

from sparsetoken.plotting import caption, draw_boundary, draw_simulation, new_figure
from sparsetoken.plotting.style import SERIES
from sparsetoken.reproduce.claim import Claim, Drawing, Quantity, Settings, Table, Verdict
from sparsetoken.reproduce.claims.c14_longer_sequences import with_sharpness
from sparsetoken.reproduce.evidence import Condition, compare, decide, within
from sparsetoken.reproduce.kinds import prediction, trial
from sparsetoken.reproduce.measurement import Measurement
from sparsetoken.reproduce.panels import label_axes
from sparsetoken.task import Task, Training

__all__ = ["CLAIM"]

COMMON = {"informative": 1, "positive_rate": 0.5, "alpha1": 4.0, "ridge": 1e-3, "sharpness": 1.5}
FIELDS = ("test_error", "train_loss")


def problem(settings: Settings, length: int) -> tuple[Task, Training]:
    """Return a task that gets no harder with the length: θ and α0 grow as they have to."""
    strength = 2.2 * float(np.sqrt(2 * np.log(length)))
    task = Task(length, settings["informative"], strength, settings["positive_rate"])
    training = Training(max(4.0, length / 4), settings["alpha1"], ridge=settings["ridge"])
    return task, with_sharpness(task, training, settings["sharpness"])


def measurements(settings: Settings) -> list[Measurement]:
    """Ask for theory at each length, and for trials with that ratio of length and dimension."""
    made: list[Measurement] = []
    for ratio, large in settings["ratios"]:
        for dimension in (large, large // 4):
            length = max(2, round(ratio * dimension))
            task, training = problem(settings, length)
            labels = {"ratio": ratio, "length": length}
            made.append(
                prediction.ask(
                    task, training, tolerance=settings["tolerance"], dimension=dimension, **labels
                )
            )
            made += trial.ask_trials(
                settings["trials"],
                task,
                training,
                dimension=dimension,
                seed=settings["seed"],
                **labels,
            )
    return made


def deviations(table: Table, ratio: float, name: str) -> tuple[list[int], list[Quantity]]:
    """Return dimensions, and the relative deviation of simulation from theory at each."""
    rows = table.select(ratio=ratio)
    dimensions = sorted(rows.distinct("dimension"))
    found = []
    for dimension in dimensions:
        one = compare(rows.select(dimension=dimension), name, ("length",))
        scale = float(one.theory[0])
        found.append(Quantity(float(one.limit[0]) / scale - 1, float(one.error[0]) / abs(scale)))
    return dimensions, found


def judge(table: Table) -> Verdict:
    """Extrapolate the deviation at a fixed L/d to large d."""
    conditions: list[Condition] = []
    numbers: dict[str, Quantity] = {}
    for ratio, _ in table.settings["ratios"]:
        for name in FIELDS:
            dimensions, (small, large) = deviations(table, ratio, name)
            factor = dimensions[1] / dimensions[0]
            limit = Quantity(
                (factor * large.value - small.value) / (factor - 1),
                float(
                    np.hypot(factor * (large.uncertainty or 0.0), small.uncertainty or 0.0)
                    / (factor - 1)
                ),
            )
            what = f"L/d = {ratio:g}: {name.replace('_', ' ')}"
            numbers[f"{what}, deviation at d = {dimensions[1]}"] = large
            numbers[f"{what}, extrapolated"] = limit
            bound = table.settings["bound"]
            conditions.append(within(f"{what}, extrapolated deviation", limit, -bound, bound))
    return decide(conditions, numbers)


def draw(table: Table) -> dict[str, Drawing]:
    """Draw the relative deviation from theory against the dimension, for each ratio."""
    settings = table.settings
    figure, panels = new_figure(columns=2)
    for panel, name in zip(panels, FIELDS, strict=True):
        for look, (ratio, _) in zip(SERIES, settings["ratios"], strict=False):
            dimensions, found = deviations(table, ratio, name)
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
        label_axes(panel, "dimension d", f"{name.replace('_', ' ')}: deviation (%)", log_x=True)
    panels[0].legend()
    text = caption(
        "Relative deviation of simulation from the theory for the same length, when the length "
        "grows with the dimension (θ = 2.2√(2 log L), α0 = max(4, L/4), logistic loss). Markers: "
        "mean and standard error",
        {name: settings[name] for name in (*COMMON, "trials")},
    )
    return {"growth": Drawing(figure, text)}


CLAIM = Claim(
    series="question",
    number=4,
    name="long-sequences",
    title="Does the theory hold when L grows with d? As far as can be seen",
    statement=(
        "Yes: with L/d fixed, from 0.01 to 4, the theory for the actual L describes test error and "
        "training loss, and what is left vanishes as d grows."
    ),
    meaning=(
        "The formulas assume short sequences of long vectors. They work just as well when sequences "
        "are four times as long as the vectors are wide."
    ),
    criterion=(
        "For each L/d the relative deviation of simulated test error and training loss from theory "
        "at the same L, extrapolated in 1/d from two dimensions with that ratio, lies within 10 % "
        "(quick version: 20 %) by two standard errors."
    ),
    settings={
        "full": {
            **COMMON,
            "ratios": [[0.01, 800], [0.1, 200], [1.0, 200], [4.0, 200]],
            "trials": 80,
            "tolerance": 5e-4,
            "bound": 0.1,
        },
        "quick": {
            **COMMON,
            "ratios": [[0.1, 120], [1.0, 120], [4.0, 120]],
            "trials": 40,
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
