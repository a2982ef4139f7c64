"""Claim 4: two gradient steps align the query with the signal."""

import numpy as np

from sparsetoken.plotting import caption, draw_boundary, look_of, new_figure
from sparsetoken.reproduce.claim import Claim, Drawing, Quantity, Settings, Table, Verdict
from sparsetoken.reproduce.evidence import AGREES, agreement, decide, within
from sparsetoken.reproduce.kinds import alignment, at_two_sizes, query_trial
from sparsetoken.reproduce.measurement import Measurement
from sparsetoken.reproduce.panels import label_axes, line_over_dots
from sparsetoken.task import Task, Training

__all__ = ["CLAIM", "PAPER_STEPS", "PAPER_TASK"]

PAPER_TASK = {"length": 10, "informative": 3, "strength": 6.0, "positive_rate": 0.2}
PAPER_STEPS = {"readout_step": 0.5, "bias_step": 0.5, "query_step": 0.5}
COMMON = {**PAPER_TASK, **PAPER_STEPS, "loss": "logistic"}


def problem(settings: Settings, alpha0: float) -> tuple[Task, Training]:
    """Return the task and training at a sample ratio."""
    task = Task.from_dict({name: settings[name] for name in PAPER_TASK})
    steps = {name: settings[name] for name in PAPER_STEPS}
    return task, Training(alpha0, 1.0, loss=settings["loss"], **steps)


def measurements(settings: Settings) -> list[Measurement]:
    """Ask for theory on a fine grid of sample ratios, trials on a coarse one."""
    made: list[Measurement] = []
    simulated = settings["simulated_ratios"]
    for alpha0 in sorted({*settings["theory_ratios"], *simulated}):
        task, training = problem(settings, alpha0)
        made.append(alignment.ask(task, training, alpha0=alpha0))
        if alpha0 in simulated:
            made += at_two_sizes(settings, query_trial, task, training, alpha0=alpha0)
    return made


def judge(table: Table) -> Verdict:
    """Compare simulation with theory, and the query's cosine with that of a random vector."""
    conditions, numbers = [], {}
    for name, what in (("alignment", "query"), ("readout_cosine", "readout")):
        conditions.append(agreement(f"cosine of the {what}", table, name, ("alpha0",)))
    chance = 1 / np.sqrt(table.settings["dimension"])
    simulated = table.select(source="simulation").largest("dimension").ordered("alpha0")
    simulated = simulated.where(lambda row: row["alpha0"] >= 1)
    cosine, error = simulated.column("alignment"), simulated.column("alignment_uncertainty")
    least = int(np.argmin(cosine))
    weakest = Quantity(float(cosine[least] / chance), float(error[least] / chance))
    conditions.append(within("least cosine of the query for α0 >= 1, over chance", weakest, low=5))
    numbers["cosine of the query at the smallest α0 >= 1"] = Quantity(
        float(cosine[0]), float(error[0])
    )
    numbers["cosine of the query at the largest α0"] = Quantity(float(cosine[-1]), float(error[-1]))
    return decide(conditions, numbers)


def draw(table: Table) -> dict[str, Drawing]:
    """Draw both cosines against the sample ratio."""
    settings = table.settings
    figure, (panel,) = new_figure()
    query, readout = look_of("query"), look_of("readout")
    line_over_dots(panel, table, "alpha0", "alignment", query.named("query, two steps"))
    line_over_dots(panel, table, "alpha0", "readout_cosine", readout.named("readout, one step"))
    chance = 1 / np.sqrt(settings["dimension"])
    draw_boundary(panel, chance, vertical=False, label="random direction")
    label_axes(panel, "sample ratio α0 = n0/d", "cosine with the signal", log_x=True)
    panel.set_ylim(0, 1.02)
    panel.legend()
    text = caption(
        "Cosine with the signal after two gradient steps",
        {name: settings[name] for name in (*COMMON, "dimension")},
        settings["trials"],
    )
    return {"alignment": Drawing(figure, text)}


CLAIM = Claim(
    number=4,
    name="alignment",
    title="Two gradient steps align the query with the signal",
    statement="Two gradient steps give the query a non-trivial alignment with the hidden signal.",
    meaning=(
        "Training does not need long to find out where to look: two small corrections already "
        "point attention at the hidden clue. The theory says how well, for any amount of data."
    ),
    criterion=(
        f"The simulated cosine of the query with the signal {AGREES}; so does the readout's; and "
        "the query's is at least 5 times that of a random direction (1/√d) for all α0 >= 1."
    ),
    settings={
        "full": {
            **COMMON,
            "theory_ratios": np.geomspace(0.1, 100, 61).tolist(),
            "simulated_ratios": [0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0],
            "dimension": 1000,
            "trials": 40,
            "noticed": 0.01,
        },
        "quick": {
            **COMMON,
            "theory_ratios": np.geomspace(0.1, 100, 31).tolist(),
            "simulated_ratios": [0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0],
            "dimension": 1000,
            "trials": 20,
            "noticed": 0.03,
        },
        "tiny": {
            **COMMON,
            "theory_ratios": [0.3, 1.0, 10.0],
            "simulated_ratios": [1.0, 10.0],
            "dimension": 400,
            "trials": 8,
            "noticed": 0.3,
        },
    },
    measurements=measurements,
    judge=judge,
    draw=draw,
)
