"""Claim 9: how well attention does depends on the query's alignment."""

import numpy as np

from sparsetoken.plotting import caption, draw_boundary, look_of, new_figure, shared_legend
from sparsetoken.reproduce.claim import Claim, Drawing, Job, Quantity, Settings, Table, Verdict
from sparsetoken.reproduce.evidence import agreement, crossing, decide, within, z_scores
from sparsetoken.reproduce.jobs import compared_jobs, prediction_job
from sparsetoken.reproduce.panels import draw_pooled_level, label_axes, line_over_dots
from sparsetoken.task import Query, Task, Training

__all__ = ["CLAIM"]

TASK = {"length": 10, "informative": 1, "strength": 5.0, "positive_rate": 0.5}
COMMON = {**TASK, "sharpness": 1.5, "ridge": 1e-6, "many": 1e5, "alpha1": 20.0}


def jobs(settings: Settings) -> list[Job]:
    """Ask for errors against the alignment of a given query, with endless and with finite data."""
    task = Task.from_dict({name: settings[name] for name in TASK})
    made: list[Job] = []
    for part, alpha1 in (("endless", settings["many"]), ("finite", settings["alpha1"])):
        training = Training(1.0, alpha1, ridge=settings["ridge"])
        simulated = settings["simulated_alignments"] if part == "finite" else []

        def problem(
            alignment: float, training: Training = training
        ) -> tuple[Task, Training, Query | None]:
            return task, training, Query(alignment, settings["sharpness"])

        made += compared_jobs(
            "alignment_given",
            settings["theory_alignments"],
            simulated,
            problem,
            settings,
            part=part,
        )
        made.append(prediction_job(task, training, "pooled", part=part))
    return made


def judge(table: Table) -> Verdict:
    """Find the crossing with the pooled classifier, and compare simulation with theory."""
    endless = table.select(part="endless")
    pooled = float(endless.select(classifier="pooled").column("test_error")[0])
    attention = endless.select(classifier="attention").ordered("alignment_given")
    error = attention.column("test_error")
    found = crossing(attention.column("alignment_given"), error - pooled)
    at = Quantity(float("nan") if found is None else found)
    pairs = table.select(part="finite", classifier="attention")
    pairs = pairs.paired("test_error", ("alignment_given",))
    allowance = 0.5 / table.settings["dimension"]
    checks = [
        within("alignment at which attention meets pooling", at, 0.05, 0.95),
        within("attention's error over pooling's, no alignment", Quantity(error[0] / pooled), 1.05),
        within(
            "attention's error over pooling's, full alignment",
            Quantity(error[-1] / pooled),
            high=0.5,
        ),
        agreement("simulated errors", z_scores(pairs, "test_error", allowance)),
    ]
    numbers = {
        "alignment at the crossing": at,
        "error of the pooled classifier": Quantity(pooled),
        "attention's error without alignment": Quantity(float(error[0])),
        "attention's error with full alignment": Quantity(float(error[-1])),
    }
    return decide(checks, numbers)


def draw(table: Table) -> dict[str, Drawing]:
    """Draw errors against alignment."""
    settings = table.settings
    figure, panels = new_figure(columns=2, sharey=True)
    titles = {"endless": "endless data", "finite": f"α1 = {settings['alpha1']:g}"}
    for panel, (part, title) in zip(panels, titles.items(), strict=True):
        rows = table.select(part=part)
        attention = rows.select(classifier="attention")
        line_over_dots(panel, attention, "alignment_given", "test_error", look_of("attention"))
        pooled = float(rows.select(classifier="pooled").column("test_error")[0])
        draw_pooled_level(panel, pooled)
        theory = attention.select(source="theory").ordered("alignment_given")
        found = crossing(theory.column("alignment_given"), theory.column("test_error") - pooled)
        if found is not None:
            draw_boundary(panel, found, label="crossing")
        label_axes(panel, "alignment γ of the query", "", title)
    panels[0].set_ylabel("test error")
    panels[0].set_ylim(0, None)
    shared_legend(figure)
    text = caption(
        "Test error against the cosine of query and signal (logistic loss), with endless data "
        f"(α1 = {settings['many']:g}) and with finite data",
        {name: settings[name] for name in (*TASK, "sharpness", "alpha1", "ridge", "dimension")},
        settings["trials"],
    )
    return {"alignment": Drawing(figure, text)}


CLAIM = Claim(
    number=9,
    name="alignment-governs",
    title="A badly aligned query is worse than none",
    statement=(
        "The alignment of the query governs the outcome: with little alignment attention is worse "
        "than the pooled linear classifier, with much it is far better."
    ),
    meaning=(
        "Attention that looks in the wrong place throws away words that it should have kept. "
        "There is a point of accuracy beyond which it pays, and the theory says where."
    ),
    criterion=(
        "With endless data attention's error crosses the pooled classifier's at an alignment "
        "between 0.05 and 0.95, is at least 5 % larger without alignment and at most half with "
        "full alignment; simulated errors at finite data agree with theory (all |z| < 4, mean "
        "square < 2, 0.5/d added to the standard error)."
    ),
    settings={
        "full": {
            **COMMON,
            "tolerance": 5e-4,
            "theory_alignments": np.linspace(0, 1, 16).tolist(),
            "simulated_alignments": [0.0, 0.2, 0.4, 0.6, 0.8, 1.0],
            "dimension": 500,
            "trials": 8,
        },
        "quick": {
            **COMMON,
            "tolerance": 1e-3,
            "theory_alignments": np.linspace(0, 1, 11).tolist(),
            "simulated_alignments": [0.0, 0.5, 1.0],
            "dimension": 200,
            "trials": 6,
        },
        "tiny": {
            **COMMON,
            "tolerance": 2e-3,
            "theory_alignments": [0.0, 0.3, 0.6, 1.0],
            "simulated_alignments": [0.0, 1.0],
            "dimension": 60,
            "trials": 4,
        },
    },
    jobs=jobs,
    judge=judge,
    draw=draw,
)
