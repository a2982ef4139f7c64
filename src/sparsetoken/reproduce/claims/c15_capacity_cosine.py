"""Claim 15: the cosine of the query with the signal governs the capacity."""

import numpy as np

from sparsetoken.plotting import (
    caption,
    draw_boundary,
    draw_simulation,
    draw_theory,
    look_of,
    new_figure,
    shared_legend,
)
from sparsetoken.plotting.style import SERIES
from sparsetoken.reproduce.claim import Claim, Drawing, Quantity, Settings, Table, Verdict
from sparsetoken.reproduce.claims.c11_capacity import transition
from sparsetoken.reproduce.evidence import decide, within
from sparsetoken.reproduce.kinds import capacity, trained_capacity_trial
from sparsetoken.reproduce.measurement import Measurement
from sparsetoken.reproduce.panels import label_axes
from sparsetoken.task import Query, Task, Training
from sparsetoken.theory.alignment import align, with_sharpness

__all__ = ["CLAIM"]

TASK = {"length": 10, "informative": 1, "strength": 4.0, "positive_rate": 0.5}
COMMON = {**TASK, "trained_sharpness": 1.5}


def measurements(settings: Settings) -> list[Measurement]:
    """Ask for capacities against cosine and sharpness, and of queries trained in several ways."""
    task = Task.from_dict({name: settings[name] for name in TASK})
    made = [
        capacity.ask(task, "attention", Query(gamma, kappa), gamma=gamma, kappa=kappa)
        for kappa in settings["sharpnesses"]
        for gamma in settings["alignments"]
    ]
    made.append(capacity.ask(task, "pooled"))
    for way, options in settings["ways"].items():
        training = Training(alpha1=1.0, **options)
        training = with_sharpness(task, training, settings["trained_sharpness"])
        learnt = align(task, training)
        labels = {"way": way, "gamma": learnt.alignment, "kappa": learnt.sharpness}
        query = learnt.query
        made.append(capacity.ask(task, "attention", query, **labels))
        for ratio in settings["ratios"]:
            made += trained_capacity_trial.ask_trials(
                settings["trials"],
                task,
                training,
                dimension=settings["dimension"],
                ratio=ratio,
                seed=settings["seed"],
                **labels,
            )
    return made


def judge(table: Table) -> Verdict:
    """Compare the effect of the cosine with that of the sharpness, and trained queries with both."""
    given = table.select(source="theory", classifier="attention", way=None)
    pooled = table.select(classifier="pooled").quantity("alpha").value
    by_kappa = [
        given.select(kappa=k).ordered("gamma").column("alpha") for k in given.distinct("kappa")
    ]
    curves = np.log(np.array(by_kappa))
    cosine = Quantity(float(np.min(np.ptp(curves, axis=1))))
    sharpness = Quantity(float(np.max(np.ptp(curves, axis=0))))
    conditions = [
        within(
            "least rise of the capacity from one cosine to the next, relative",
            Quantity(float(np.exp(np.diff(curves, axis=1).min()) - 1)),
            low=0.0,
        ),
        within(
            "effect of the cosine over that of the sharpness (ranges of log capacity)",
            Quantity(cosine.value / sharpness.value),
            low=3,
        ),
        within(
            "capacity of a random query over pooling's, at most",
            Quantity(float(np.exp(curves[:, 0].max()) / pooled)),
            high=1.0,
        ),
    ]
    numbers = {
        "least factor in capacity between no and full alignment": Quantity(
            float(np.exp(cosine.value))
        ),
        "largest factor in capacity between the sharpnesses": Quantity(
            float(np.exp(sharpness.value))
        ),
        "pooled capacity": Quantity(pooled),
    }
    for way in table.settings["ways"]:
        rows = table.select(way=way)
        theory = rows.select(source="theory")
        centre = transition(rows.select(source="simulation").ordered("ratio"))[0]
        conditions.append(
            within(f"trained, {way}: measured over predicted capacity", centre, 0.85, 1.15)
        )
        numbers[f"trained, {way}: cosine"] = Quantity(float(theory.rows[0]["gamma"]))
        numbers[f"trained, {way}: measured over predicted capacity"] = centre
    return decide(conditions, numbers)


def draw(table: Table) -> dict[str, Drawing]:
    """Draw capacity against cosine, for several sharpnesses, with trained queries as markers."""
    settings = table.settings
    figure, (panel,) = new_figure(panel_height=3.5)
    given = table.select(source="theory", classifier="attention", way=None)
    for look, kappa in zip(SERIES, given.distinct("kappa"), strict=False):
        rows = given.select(kappa=kappa)
        draw_theory(
            panel,
            rows.column("gamma"),
            rows.column("alpha"),
            look.named(f"sharpness κ = {kappa:g}"),
        )
    look = look_of("attention").named("trained queries, measured")
    for way in settings["ways"]:
        rows = table.select(way=way)
        predicted = rows.select(source="theory").quantity("alpha").value
        gamma = float(rows.rows[0]["gamma"])
        centre = transition(rows.select(source="simulation").ordered("ratio"))[0]
        bar = predicted * (centre.uncertainty or 0.0)
        draw_simulation(panel, [gamma], [predicted * centre.value], [bar], look, label="")
    pooled = table.select(classifier="pooled").quantity("alpha").value
    draw_boundary(
        panel, pooled, vertical=False, label="pooled linear", color=look_of("pooled").colour
    )
    label_axes(panel, "cosine γ of query and signal", "capacity n/d", log_y=True)
    shared_legend(figure, columns=2)
    text = caption(
        "Capacity against the cosine of query and signal at several sharpnesses (lines: theory), and "
        "the sample ratio at which half of the data sets are separable with queries trained in "
        f"different ways at κ = {settings['trained_sharpness']:g} (markers with standard errors)",
        {name: settings[name] for name in (*TASK, "dimension", "trials")},
    )
    return {"cosine": Drawing(figure, text)}


WAYS = {
    "much data": {"alpha0": 20.0},
    "little data": {"alpha0": 0.7},
    "large readout step": {"alpha0": 4.0, "readout_step": 30.0},
    "square loss": {"alpha0": 1.5, "loss": "square"},
}
CLAIM = Claim(
    number=15,
    name="capacity-cosine",
    title="The query's cosine with the signal governs the capacity",
    statement=(
        "The capacity of attention is governed by the cosine of its query with the signal, however "
        "the query came about."
    ),
    meaning=(
        "How many examples attention can learn by heart depends on whether it looks the right way, "
        "and hardly on how sharply. It does not matter either how it was taught to look there."
    ),
    criterion=(
        "At every sharpness the predicted capacity rises with the cosine; from no to full alignment "
        "it changes, in logarithms, at least three times as much as between the sharpnesses at any "
        "cosine; a random query's is below pooling's. For queries trained with different data, "
        "rates and losses half of the simulated data sets are separable within 15 % of the capacity "
        "that the predicted cosine and sharpness give."
    ),
    settings={
        "full": {
            **COMMON,
            "alignments": np.linspace(0, 1, 11).tolist(),
            "sharpnesses": [0.7, 1.5, 3.0, 6.0],
            "ways": WAYS,
            "ratios": [0.6, 0.8, 0.9, 1.0, 1.1, 1.2, 1.4],
            "dimension": 100,
            "trials": 30,
        },
        "quick": {
            **COMMON,
            "alignments": [0.0, 0.25, 0.5, 0.75, 1.0],
            "sharpnesses": [0.7, 1.5, 6.0],
            "ways": {name: WAYS[name] for name in ("much data", "little data")},
            "ratios": [0.6, 0.8, 1.0, 1.2, 1.4],
            "dimension": 100,
            "trials": 60,
        },
        "tiny": {
            **COMMON,
            "alignments": [0.0, 0.5, 1.0],
            "sharpnesses": [0.7, 3.0],
            "ways": {"much data": WAYS["much data"]},
            "ratios": [0.6, 0.8, 1.0, 1.2, 1.4],
            "dimension": 80,
            "trials": 60,
        },
    },
    measurements=measurements,
    judge=judge,
    draw=draw,
)
