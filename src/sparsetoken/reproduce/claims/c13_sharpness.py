"""Claim 13: the softmax must be neither too soft nor too sharp."""

import numpy as np

from sparsetoken.plotting import caption, new_figure, shared_legend
from sparsetoken.reproduce.claim import Claim, Drawing, Quantity, Settings, Table, Verdict
from sparsetoken.reproduce.evidence import AGREES, agreement, decide, lowest, within
from sparsetoken.reproduce.kinds import compared, prediction
from sparsetoken.reproduce.measurement import Measurement
from sparsetoken.reproduce.panels import error_with_optimum, label_axes
from sparsetoken.task import Query, Task, Training

__all__ = ["CLAIM"]

TASK = {"length": 10, "informative": 1, "strength": 5.0, "positive_rate": 0.5}
COMMON = {**TASK, "alignment": 0.8, "alpha1": 4.0, "ridge": 1e-3}


def measurements(settings: Settings) -> list[Measurement]:
    """Ask for the final error against the sharpness of a given query."""
    task = Task.from_dict({name: settings[name] for name in TASK})
    training = Training(1.0, settings["alpha1"], ridge=settings["ridge"])

    def problem(sharpness: float) -> tuple[Task, Training, Query | None]:
        return task, training, Query(settings["alignment"], sharpness)

    made = compared(
        "kappa", settings["theory_sharpness"], settings["simulated_sharpness"], problem, settings
    )
    made.append(prediction.ask(task, training, "pooled"))
    return made


def optimum(table: Table) -> tuple[float, float]:
    """Return the predicted best sharpness and the error there."""
    theory = table.select(classifier="attention", source="theory").ordered("kappa")
    place, least = lowest(np.log(theory.column("kappa")), theory.column("test_error"))
    return float(np.exp(place)), least


def judge(table: Table) -> Verdict:
    """Compare both ends of the curve with the pooled classifier and with the optimum."""
    attention = table.select(classifier="attention")
    theory = attention.select(source="theory").ordered("kappa")
    error = theory.column("test_error")
    best, least = optimum(table)
    pooled = float(table.select(classifier="pooled").column("test_error")[0])
    inside = theory.column("kappa")[[0, -1]]
    conditions = [
        within(
            "error at the lowest sharpness over pooling's", Quantity(error[0] / pooled), 0.99, 1.01
        ),
        within("best sharpness", Quantity(best), 2 * inside[0], inside[1] / 2),
        within("error at the best sharpness over pooling's", Quantity(least / pooled), high=0.9),
        within("error at the highest sharpness over the best", Quantity(error[-1] / least), 1.1),
        agreement("final error", attention, "test_error", ("kappa",)),
    ]
    numbers = {
        "best sharpness": Quantity(best),
        "error at the best sharpness": Quantity(least),
        "error at the lowest sharpness": Quantity(float(error[0])),
        "error at the highest sharpness": Quantity(float(error[-1])),
        "error of the pooled classifier": Quantity(pooled),
    }
    return decide(conditions, numbers)


def draw(table: Table) -> dict[str, Drawing]:
    """Draw the final error against the sharpness."""
    settings = table.settings
    figure, (panel,) = new_figure(panel_height=3.0)
    error_with_optimum(panel, table, "kappa", optimum(table)[0])
    label_axes(panel, "sharpness κ = β‖q‖", "final test error", log_x=True)
    shared_legend(figure, columns=2)
    text = caption(
        "Final test error against the sharpness of the softmax (logistic loss)",
        {name: settings[name] for name in (*COMMON, "dimension")},
        settings["trials"],
    )
    return {"sharpness": Drawing(figure, text)}


CLAIM = Claim(
    number=13,
    name="sharpness",
    title="The softmax must be neither too soft nor too sharp",
    statement=(
        "With too low an inverse temperature attention is average pooling, with too high a one it "
        "is unstable."
    ),
    meaning=(
        "Attention that spreads evenly over all words is a plain average, and attention that bets "
        "everything on one word loses when the bet is wrong. The best lies between, and the "
        "theory says where."
    ),
    criterion=(
        "The predicted error is within 1 % of the pooled classifier's at the lowest sharpness, at "
        "least 10 % lower at an optimum in between, and at least 10 % above that optimum at the "
        "highest sharpness; the simulated error "
        f"{AGREES}."
    ),
    settings={
        "full": {
            **COMMON,
            "tolerance": 5e-4,
            "theory_sharpness": np.geomspace(1e-3, 100, 21).tolist(),
            "simulated_sharpness": [0.01, 0.1, 0.3, 1.0, 2.0, 4.0, 10.0, 30.0],
            "dimension": 200,
            "trials": 120,
            "noticed": 0.01,
        },
        "quick": {
            **COMMON,
            "tolerance": 1e-3,
            "theory_sharpness": np.geomspace(1e-3, 100, 16).tolist(),
            "simulated_sharpness": [0.1, 1.0, 4.0, 20.0],
            "dimension": 200,
            "trials": 40,
            "noticed": 0.03,
        },
        "tiny": {
            **COMMON,
            "tolerance": 2e-3,
            "theory_sharpness": [1e-3, 0.3, 1.0, 3.0, 100.0],
            "simulated_sharpness": [1.0],
            "dimension": 80,
            "trials": 12,
            "noticed": 0.3,
        },
    },
    measurements=measurements,
    judge=judge,
    draw=draw,
)
