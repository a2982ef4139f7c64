"""Claim 12: data for the query and data for the readout compete."""

import numpy as np
from scipy.special import expit

from sparsetoken.plotting import caption, new_figure, shared_legend
from sparsetoken.reproduce.claim import Claim, Drawing, Quantity, Settings, Table, Verdict
from sparsetoken.reproduce.evidence import AGREES, agreement, decide, lowest, within
from sparsetoken.reproduce.kinds import compared, prediction
from sparsetoken.reproduce.measurement import Measurement
from sparsetoken.reproduce.panels import error_with_optimum, label_axes
from sparsetoken.task import Query, Task, Training

__all__ = ["CLAIM"]

TASK = {"length": 10, "informative": 1, "strength": 5.0, "positive_rate": 0.5}
COMMON = {**TASK, "total": 8.0, "ridge": 1e-3, "query_step": 50.0}


def measurements(settings: Settings) -> list[Measurement]:
    """Ask for the final error against the share of the data that trains the query."""
    task = Task.from_dict({name: settings[name] for name in TASK})
    options = {"ridge": settings["ridge"], "query_step": settings["query_step"]}
    total = settings["total"]

    def problem(share: float) -> tuple[Task, Training, Query | None]:
        return task, Training(share * total, (1 - share) * total, **options), None

    made = compared(
        "share", settings["theory_shares"], settings["simulated_shares"], problem, settings
    )
    made.append(prediction.ask(task, Training(1.0, total, ridge=settings["ridge"]), "pooled"))
    return made


def optimum(table: Table) -> tuple[float, float]:
    """Return the predicted best share and the error there."""
    theory = table.select(classifier="attention", source="theory").ordered("share")
    return lowest(theory.column("share"), theory.column("test_error"))


def judge(table: Table) -> Verdict:
    """Find the predicted optimum, and compare it with the simulated errors."""
    attention = table.select(classifier="attention")
    theory = attention.select(source="theory").ordered("share")
    best, least = optimum(table)
    ends = theory.column("test_error")[[0, -1]]
    simulated = attention.select(source="simulation").largest("dimension").ordered("share")
    mean, error = simulated.column("test_error"), simulated.column("test_error_uncertainty")
    nearest = int(np.argmin(np.abs(simulated.column("share") - best)))
    lowest_seen = int(np.argmin(mean))
    gap = Quantity(
        float(mean[nearest] - mean[lowest_seen]),
        float(np.hypot(error[nearest], error[lowest_seen])),
    )
    conditions = [
        within("predicted best share for the query", Quantity(best), 0.05, 0.95),
        within(
            "error with the least data for the query over the best", Quantity(ends[0] / least), 1.1
        ),
        within(
            "error with the most data for the query over the best", Quantity(ends[1] / least), 1.1
        ),
        within(
            "simulated error nearest the predicted optimum above the lowest simulated one",
            Quantity(gap.value - 2 * (gap.uncertainty or 0.0)),
            high=0.0,
        ),
        agreement("final error", attention, "test_error", ("share",)),
    ]
    numbers = {
        "best share for the query": Quantity(best),
        "error at the best share": Quantity(least),
        "error with the least data for the query": Quantity(float(ends[0])),
        "error with the most data for the query": Quantity(float(ends[1])),
        "pooled error with all the data": Quantity(
            float(table.select(classifier="pooled").column("test_error")[0])
        ),
    }
    return decide(conditions, numbers)


def draw(table: Table) -> dict[str, Drawing]:
    """Draw the final error against the split."""
    settings = table.settings
    figure, (panel,) = new_figure(panel_height=3.0)
    error_with_optimum(panel, table, "share", optimum(table)[0], "pooled linear, all data")
    label_axes(panel, "share of the data for the query, α0/(α0+α1)", "final test error")
    panel.set_xlim(0, 1)
    shared_legend(figure, columns=2)
    text = caption(
        f"Final test error at α0 + α1 = {settings['total']:g} (logistic loss)",
        {name: settings[name] for name in (*TASK, "ridge", "query_step", "dimension")},
        settings["trials"],
    )
    return {"split": Drawing(figure, text)}


CLAIM = Claim(
    number=12,
    name="split",
    title="Data for the query and data for the readout compete",
    statement=(
        "At a fixed total, more data for the query align it better and leave less for the readout: "
        "there is a best split."
    ),
    meaning=(
        "Learning where to look and learning what to conclude draw on the same supply of examples. "
        "The theory says how to share them out."
    ),
    criterion=(
        "The predicted final error is least at a share between 0.05 and 0.95 and at least 10 % "
        "larger at both ends; the simulated error nearest that optimum exceeds the lowest "
        "simulated one by at most two standard errors; the simulated error "
        f"{AGREES}."
    ),
    settings={
        "full": {
            **COMMON,
            "tolerance": 5e-4,
            "theory_shares": expit(np.linspace(-4, 4, 25)).tolist(),
            "simulated_shares": [0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9],
            "dimension": 400,
            "trials": 320,
            "noticed": 0.01,
        },
        "quick": {
            **COMMON,
            "tolerance": 1e-3,
            "theory_shares": expit(np.linspace(-4, 4, 17)).tolist(),
            "simulated_shares": [0.1, 0.3, 0.5, 0.7, 0.9],
            "dimension": 200,
            "trials": 120,
            "noticed": 0.03,
        },
        "tiny": {
            **COMMON,
            "tolerance": 2e-3,
            "theory_shares": [0.02, 0.2, 0.4, 0.6, 0.98],
            "simulated_shares": [0.4],
            "dimension": 80,
            "trials": 12,
            "noticed": 0.3,
        },
    },
    measurements=measurements,
    judge=judge,
    draw=draw,
)
