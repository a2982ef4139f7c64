"""Claim 7: a weak first stage leaves the query useless."""

import numpy as np

from sparsetoken.plotting import caption, draw_boundary, look_of, new_figure, shared_legend
from sparsetoken.reproduce.claim import Claim, Drawing, Quantity, Settings, Table, Verdict
from sparsetoken.reproduce.evidence import AGREES, Condition, agreement, decide, within
from sparsetoken.reproduce.kinds import alignment, compared, prediction
from sparsetoken.reproduce.measurement import Measurement
from sparsetoken.reproduce.panels import label_axes, line_over_dots
from sparsetoken.task import Query, Task, Training

__all__ = ["CLAIM"]

TASK = {"length": 10, "informative": 1, "strength": 5.0, "positive_rate": 0.5}
COMMON = {
    **TASK,
    "alpha0": 8.0,
    "alpha1": 4.0,
    "ridge": 1e-3,
    "readout_step": 0.5,
    "query_step": 50.0,
}
SWEEPS = {"alpha0": "sample ratio α0 = n0/d", "readout_step": "readout step η_w"}


def measurements(settings: Settings) -> list[Measurement]:
    """Ask for alignment and final error, once against the data and once against the rate of stage 1."""
    task = Task.from_dict({name: settings[name] for name in TASK})
    base = Training(
        settings["alpha0"],
        settings["alpha1"],
        ridge=settings["ridge"],
        readout_step=settings["readout_step"],
        query_step=settings["query_step"],
    )
    made = [prediction.ask(task, base, "pooled", sweep="none")]
    for sweep in SWEEPS:

        def problem(value: float, sweep: str = sweep) -> tuple[Task, Training, Query | None]:
            return task, base.replace(**{sweep: value}), None

        points, simulated = settings[f"theory_{sweep}"], settings[f"simulated_{sweep}"]
        made += compared("value", points, simulated, problem, settings, sweep=sweep)
        for value in sorted({*points, *simulated}):
            made.append(alignment.ask(*problem(value)[:2], sweep=sweep, value=value, part="cosine"))
    return made


def judge(table: Table) -> Verdict:
    """Compare cosines and errors at the weak end of each sweep."""
    pooled = float(table.select(sweep="none").column("test_error")[0])
    conditions: list[Condition] = []
    numbers = {"error of the pooled classifier": Quantity(pooled)}
    weak = {}
    for sweep in SWEEPS:
        rows = table.select(sweep=sweep)
        error = rows.select(source="theory", classifier="attention").ordered("value")
        cosine = rows.select(part="cosine").ordered("value")
        weak[sweep] = (error.rows[0], cosine.rows[0])
        numbers[f"smallest {sweep}: final error"] = Quantity(error.rows[0]["test_error"])
        numbers[f"smallest {sweep}: cosine of the readout"] = Quantity(
            cosine.rows[0]["readout_cosine"]
        )
        numbers[f"smallest {sweep}: cosine of the query"] = Quantity(cosine.rows[0]["alignment"])
    swept = table.select(classifier="attention", sweep=tuple(SWEEPS))
    conditions.append(agreement("final error", swept, "test_error", ("sweep", "value")))
    few_error, few_cosine = weak["alpha0"]
    slow_error, slow_cosine = weak["readout_step"]
    conditions += [
        within("few samples: readout's cosine", Quantity(few_cosine["readout_cosine"]), high=0.3),
        within("few samples: query's cosine", Quantity(abs(few_cosine["alignment"])), high=0.3),
        within(
            "few samples: final error over the pooled classifier's",
            Quantity(few_error["test_error"] / pooled),
            low=1.0,
        ),
        within("small rate: readout's cosine", Quantity(slow_cosine["readout_cosine"]), high=0.3),
        within(
            "small rate: final error over the pooled classifier's",
            Quantity(slow_error["test_error"] / pooled),
            low=0.98,
        ),
    ]
    return decide(conditions, numbers)


def draw(table: Table) -> dict[str, Drawing]:
    """Draw cosines and final errors against both sweeps."""
    settings = table.settings
    figure, panels = new_figure(columns=2, rows=2, panel_height=2.3)
    pooled = float(table.select(sweep="none").column("test_error")[0])
    for (sweep, label), top, bottom in zip(SWEEPS.items(), panels[:2], panels[2:], strict=True):
        rows = table.select(sweep=sweep)
        cosines = Table(
            [*rows.select(part="cosine").rows, *rows.select(source="simulation").rows], settings
        )
        line_over_dots(top, cosines, "value", "alignment", look_of("query"))
        line_over_dots(top, cosines, "value", "readout_cosine", look_of("readout"))
        label_axes(top, "", "cosine with the signal", log_x=True)
        top.set_ylim(-0.05, 1.05)
        attention = rows.select(classifier="attention")
        line_over_dots(bottom, attention, "value", "test_error", look_of("attention"), label=None)
        draw_boundary(bottom, pooled, vertical=False, label="pooled linear, error")
        label_axes(bottom, label, "final test error", log_x=True)
        bottom.set_ylim(0, None)
    shared_legend(figure, columns=3)
    names = (*COMMON, "dimension")
    text = caption(
        "Cosines after two steps (top) and final error (bottom) against the data and the rate of "
        "the first stage, the other one fixed",
        {name: settings[name] for name in names},
        settings["trials"],
    )
    return {"weak": Drawing(figure, text)}


CLAIM = Claim(
    number=7,
    name="weak-first-stage",
    title="Too little data or too small a rate at first leaves the query useless",
    statement=(
        "Too few samples or too small a learning rate in the first stage leave the readout "
        "dominated by noise and the query useless."
    ),
    meaning=(
        "If the very first learning step sees too few samples, attention is pointed at noise and "
        "does worse than no attention at all. A small rate is another matter: the first readout "
        "points the same way at any rate, so that the query still finds the signal; it is only so "
        "weak that attention stays spread evenly over all words, as in pooling."
    ),
    criterion=(
        "At the smallest α0: cosines of readout and query below 0.3 and final error at least the "
        "pooled classifier's. At the smallest η_w: cosine of the readout below 0.3 (dominated by "
        "noise) and final error at least 0.98 of the pooled classifier's (query useless). "
        f"The simulated error of both sweeps {AGREES}."
    ),
    settings={
        "full": {
            **COMMON,
            "tolerance": 5e-4,
            "theory_alpha0": np.geomspace(0.03, 30, 13).tolist(),
            "simulated_alpha0": [0.1, 0.3, 1.0, 3.0, 10.0],
            "theory_readout_step": np.geomspace(3e-4, 10, 13).tolist(),
            "simulated_readout_step": [0.01, 0.1, 0.5, 2.0],
            "dimension": 200,
            "trials": 270,
            "noticed": 0.01,
        },
        "quick": {
            **COMMON,
            "tolerance": 1e-3,
            "theory_alpha0": np.geomspace(0.03, 30, 10).tolist(),
            "simulated_alpha0": [0.3, 1.0, 10.0],
            "theory_readout_step": np.geomspace(3e-4, 10, 10).tolist(),
            "simulated_readout_step": [0.01, 0.1, 1.0],
            "dimension": 200,
            "trials": 40,
            "noticed": 0.03,
        },
        "tiny": {
            **COMMON,
            "tolerance": 2e-3,
            "theory_alpha0": [0.03, 1.0],
            "simulated_alpha0": [1.0],
            "theory_readout_step": [3e-4, 0.5],
            "simulated_readout_step": [0.5],
            "dimension": 80,
            "trials": 12,
            "noticed": 2.0,
        },
    },
    measurements=measurements,
    judge=judge,
    draw=draw,
)
