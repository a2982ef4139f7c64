"""Question 9: what if each positive sequence carries one of several signals?"""

import numpy as np

from sparsetoken.plotting import (
    caption,
    draw_simulation,
    draw_theory,
    look_of,
    new_figure,
    shared_legend,
)
from sparsetoken.reproduce.claim import Claim, Drawing, Quantity, Settings, Table, Verdict
from sparsetoken.reproduce.evidence import Condition, decide, ratio_of, within
from sparsetoken.reproduce.kinds import prediction
from sparsetoken.reproduce.measurement import Measurement
from sparsetoken.reproduce.panels import label_axes
from sparsetoken.reproduce.plain_data import plain_trial
from sparsetoken.task import Task, Training
from sparsetoken.theory.alignment import with_sharpness

__all__ = ["CLAIM"]

TASK = {"length": 10, "informative": 1, "strength": 6.0, "positive_rate": 0.5}
COMMON = {**TASK, "alpha0": 4.0, "alpha1": 4.0, "ridge": 1e-2, "sharpness": 1.5}
FIELDS = {"attention": "test_error", "pooled": "pooled_error"}


def measurements(settings: Settings) -> list[Measurement]:
    """Ask for trials with K signals, and for theory of one signal that is √K times weaker."""
    task = Task.from_dict({name: settings[name] for name in TASK})
    training = Training(settings["alpha0"], settings["alpha1"], ridge=settings["ridge"])
    training = with_sharpness(task, training, settings["sharpness"])
    made: list[Measurement] = []
    for count in settings["directions"]:
        weaker = task.replace(strength=task.strength / float(np.sqrt(count)))
        made += [
            prediction.ask(weaker, training, classifier, tolerance=1e-3, signals=count)
            for classifier in FIELDS
        ]
        made += plain_trial.ask_trials(
            settings["trials"],
            task,
            training,
            dimension=settings["dimension"],
            directions=count,
            fresh=settings["fresh"],
            seed=settings["seed"],
            signals=count,
        )
    return made


def judge(table: Table) -> Verdict:
    """Compare errors with K signals with the theory of one weaker signal."""
    conditions: list[Condition] = []
    numbers: dict[str, Quantity] = {}
    bound = table.settings["bound"]
    for count in table.settings["directions"]:
        for classifier, name in FIELDS.items():
            seen = table.select(source="simulation", signals=count).quantity(name)
            theory = table.select(source="theory", signals=count, classifier=classifier)
            predicted = theory.quantity("test_error").value
            gap = Quantity(seen.value - predicted, seen.uncertainty)
            said = f"{count} signals: {classifier}'s error minus that of one {count}^½ times weaker"
            numbers[f"{count} signals: {classifier}'s error"] = seen
            numbers[f"one signal {count}^½ times weaker: {classifier}'s error, predicted"] = (
                Quantity(predicted)
            )
            conditions.append(within(said, gap, -bound, bound))
    most = max(table.settings["directions"])
    rows = table.select(source="simulation", signals=most)
    gain = ratio_of(rows.quantity("test_error"), rows.quantity("pooled_error"))
    conditions.append(within(f"attention's error over pooling's, {most} signals", gain, low=0.8))
    return decide(conditions, numbers)


def draw(table: Table) -> dict[str, Drawing]:
    """Draw both errors against the number of signals."""
    settings = table.settings
    figure, (panel,) = new_figure()
    simulated = table.select(source="simulation")
    for classifier, name in FIELDS.items():
        look = look_of(classifier)
        rows = table.select(source="theory", classifier=classifier)
        draw_theory(panel, rows.column("signals"), rows.column("test_error"), look)
        draw_simulation(
            panel,
            simulated.column("signals"),
            simulated.column(name),
            simulated.column(f"{name}_uncertainty"),
            look,
        )
    label_axes(panel, "signals K", "test error", log_x=True)
    panel.set_xticks(settings["directions"], [str(count) for count in settings["directions"]])
    panel.minorticks_off()
    panel.set_ylim(0, 0.5)
    shared_legend(figure, columns=2)
    text = caption(
        "Test error when each positive sequence carries one of K orthogonal signals (logistic loss). "
        "Lines: theory of one signal that is √K times weaker. Markers: plain sequences, mean and "
        "standard error",
        {name: settings[name] for name in (*COMMON, "dimension", "trials")},
    )
    return {"signals": Drawing(figure, text)}


CLAIM = Claim(
    series="question",
    number=9,
    name="several-signals",
    title="What do several hidden signals cost? As much as one that is √K times weaker",
    statement=(
        "With K orthogonal signals, one of them in each positive sequence, attention with one query "
        "does as well as with a single signal of strength θ/√K, and its advantage is soon gone."
    ),
    meaning=(
        "One searchlight cannot follow several kinds of clues: it points between them and sees each "
        "a little. Four kinds already cost as much as halving the clue."
    ),
    criterion=(
        "For each K the mean error of attention and of pooling on plain sequences lies within 0.03 "
        "(quick version: 0.06) of the predicted error of one signal of strength θ/√K, by two "
        "standard errors; with the most signals attention's error is at least 0.8 of pooling's."
    ),
    settings={
        "full": {
            **COMMON,
            "directions": [1, 2, 4, 8, 16],
            "dimension": 100,
            "trials": 40,
            "fresh": 3000,
            "bound": 0.03,
        },
        "quick": {
            **COMMON,
            "directions": [1, 2, 4, 16],
            "dimension": 60,
            "trials": 16,
            "fresh": 3000,
            "bound": 0.06,
        },
        "tiny": {
            **COMMON,
            "directions": [1, 4, 16],
            "dimension": 60,
            "trials": 6,
            "fresh": 1500,
            "bound": 0.12,
        },
    },
    measurements=measurements,
    judge=judge,
    draw=draw,
)
