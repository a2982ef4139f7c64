"""Claim 9: how well attention does depends on the query's alignment."""

import numpy as np

from sparsetoken.plotting import caption, draw_boundary, look_of, new_figure, shared_legend
from sparsetoken.reproduce.claim import Claim, Drawing, Quantity, Settings, Table, Verdict
from sparsetoken.reproduce.evidence import AGREES, agreement, crossing, decide, within
from sparsetoken.reproduce.kinds import compared, prediction
from sparsetoken.reproduce.measurement import Measurement
from sparsetoken.reproduce.panels import draw_pooled_level, label_axes, line_over_dots
from sparsetoken.task import Query, Task, Training

__all__ = ["CLAIM"]

TASK = {"length": 10, "informative": 1, "strength": 5.0, "positive_rate": 0.5}
COMMON = {**TASK, "sharpness": 1.5, "ridge": 1e-4, "many": 1e5, "alpha1": 20.0, "away": -0.4}


def measurements(settings: Settings) -> list[Measurement]:
    """Ask for errors against the alignment of a given query, with endless and with finite data."""
    task = Task.from_dict({name: settings[name] for name in TASK})
    made: list[Measurement] = []
    for part, alpha1 in (("endless", settings["many"]), ("finite", settings["alpha1"])):
        training = Training(1.0, alpha1, ridge=settings["ridge"])
        simulated = settings["simulated_alignments"] if part == "finite" else []

        def problem(
            alignment: float, training: Training = training
        ) -> tuple[Task, Training, Query | None]:
            return task, training, Query(alignment, settings["sharpness"])

        made += compared(
            "alignment_given",
            [*settings["theory_alignments"], settings["away"], 0.0, 1.0],
            simulated,
            problem,
            settings,
            part=part,
        )
        made.append(prediction.ask(task, training, "pooled", part=part))
    return made


def judge(table: Table) -> Verdict:
    """Find the crossing with the pooled classifier, and compare simulation with theory."""
    endless = table.select(part="endless")
    pooled = float(endless.select(classifier="pooled").column("test_error")[0])
    attention = endless.select(classifier="attention").ordered("alignment_given")
    error = dict(
        zip(attention.column("alignment_given"), attention.column("test_error"), strict=True)
    )
    found = crossing(list(error), np.array(list(error.values())) - pooled)
    at = Quantity(float("nan") if found is None else found)
    away = table.settings["away"]
    finite = table.select(part="finite", classifier="attention")
    simulated = finite.select(source="simulation").largest("dimension")
    turned, random = (
        simulated.select(alignment_given=value).quantity("test_error") for value in (away, 0.0)
    )
    worse = Quantity(
        turned.value - random.value,
        float(np.hypot(turned.uncertainty or 0.0, random.uncertainty or 0.0)),
    )
    conditions = [
        within("alignment at which attention meets pooling", at, 0.05, 0.95),
        within("attention's error over pooling's, no alignment", Quantity(error[0] / pooled), 1.05),
        within(
            "attention's error over pooling's, full alignment",
            Quantity(error[1] / pooled),
            high=0.5,
        ),
        within(
            f"error at γ = {away:g} over that of a random query, endless data",
            Quantity(error[away] / error[0]),
            1.1,
        ),
        within(f"simulated error at γ = {away:g} above that of a random query", worse, low=0.0),
        agreement("test error", finite, "test_error", ("alignment_given",)),
    ]
    numbers = {
        "alignment at the crossing": at,
        "error of the pooled classifier": Quantity(pooled),
        "attention's error without alignment": Quantity(float(error[0])),
        "attention's error with full alignment": Quantity(float(error[1])),
        f"attention's error at γ = {away:g}": Quantity(float(error[away])),
        f"simulated, finite data: error at γ = {away:g}": turned,
        "simulated, finite data: error of a random query": random,
    }
    return decide(conditions, numbers)


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
        panel.set_xticks(np.linspace(-1, 1, 5))
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
    title="A badly aligned query is worse than none, and an anti-aligned one worse still",
    statement=(
        "The alignment of the query governs the outcome: with little alignment attention is worse "
        "than the pooled linear classifier, with much it is far better, and a query that points away "
        "from the signal is worse than a random one."
    ),
    meaning=(
        "Attention that looks in the wrong place throws away words that it should have kept. "
        "There is a point of accuracy beyond which it pays, and the theory says where."
    ),
    criterion=(
        "With endless data attention's error crosses the pooled classifier's at an alignment "
        "between 0.05 and 0.95, is at least 5 % larger without alignment and at most half with "
        "full alignment; at γ = -0.4 it is at least 10 % above that of a random query (γ = 0), and "
        "so it is, by two standard errors, in simulation at finite data, where the error "
        f"{AGREES}."
    ),
    settings={
        "full": {
            **COMMON,
            "tolerance": 5e-4,
            "theory_alignments": np.linspace(-1, 1, 31).tolist(),
            "simulated_alignments": [-0.8, -0.4, 0.0, 0.2, 0.4, 0.6, 0.8, 1.0],
            "dimension": 200,
            "trials": 40,
            "noticed": 0.01,
        },
        "quick": {
            **COMMON,
            "tolerance": 1e-3,
            "theory_alignments": np.linspace(-1, 1, 16).tolist(),
            "simulated_alignments": [-0.4, 0.0, 0.5, 1.0],
            "dimension": 200,
            "trials": 16,
            "noticed": 0.03,
        },
        "tiny": {
            **COMMON,
            "tolerance": 2e-3,
            "theory_alignments": [-0.8, 0.0, 0.3, 0.6, 1.0],
            "simulated_alignments": [-0.4, 0.0, 1.0],
            "dimension": 80,
            "trials": 12,
            "noticed": 0.3,
        },
    },
    measurements=measurements,
    judge=judge,
    draw=draw,
)
