"""Question 6: do several heads or a second layer help at equal data?"""

import numpy as np

from sparsetoken.plotting import COLOURS, Look, caption, draw_boundary, new_figure, shared_legend
from sparsetoken.reproduce.claim import Claim, Drawing, Quantity, Settings, Table, Verdict
from sparsetoken.reproduce.evidence import Condition, decide, ratio_of, within
from sparsetoken.reproduce.kinds import prediction
from sparsetoken.reproduce.measurement import Measurement
from sparsetoken.reproduce.networks import NETWORKS, network_trial
from sparsetoken.reproduce.panels import label_axes
from sparsetoken.task import Task, Training
from sparsetoken.theory.alignment import with_sharpness

__all__ = ["CLAIM"]

COMMON = {
    "length": 10,
    "informative": 1,
    "positive_rate": 0.5,
    # Number of signals, their strength, samples per dimension.
    "problems": [[1, 4.0, 4.0], [4, 6.0, 8.0]],
    "ridge": 0.2,
    "sharpness": 2.0,
}
# Signals, network, the one that it is compared with, and the bounds of the ratio of their errors.
COMPARED = (
    (1, "four heads", "one head", 0.6, 1.1),
    (1, "two layers", "one head", 0.8, np.inf),
    (1, "max pooling", "one head", 0.5, 1.1),
    (1, "mean pooling", "one head", 2.0, np.inf),
    (1, "recurrent", "one head", 1.5, np.inf),
    (4, "four heads", "one head", 0.0, 0.5),
    (4, "two layers", "four heads", 1.3, np.inf),
    (4, "max pooling", "one head", 0.0, 0.7),
    (4, "recurrent", "four heads", 2.0, np.inf),
)
LOOKS = {
    1: Look("one signal", COLOURS["vermilion"], "o"),
    4: Look("four signals, one in each positive", COLOURS["blue"], "s"),
}


def measurements(settings: Settings) -> list[Measurement]:
    """Ask for trials of every network on the same data, and for the exact staged theory."""
    made: list[Measurement] = []
    for (signals, strength, total), trials in zip(
        settings["problems"], settings["trials"], strict=True
    ):
        task = Task(
            settings["length"], settings["informative"], strength, settings["positive_rate"]
        )
        for network in NETWORKS:
            made += network_trial.ask_trials(
                trials,
                task,
                total,
                network,
                settings["ridges"],
                settings["most_rounds"],
                settings["fresh"],
                dimension=settings["dimension"],
                signals=signals,
                seed=settings["seed"],
            )
        if signals == 1:
            training = Training(total, total, ridge=settings["ridge"], reuse=True)
            training = with_sharpness(task, training, settings["sharpness"])
            made.append(prediction.ask(task, training, tolerance=1e-3, part="staged"))
    return made


def judge(table: Table) -> Verdict:
    """Compare the networks' errors."""
    seen = {
        (int(row["signals"]), row["network"]): Table([row], table.settings).quantity("test_error")
        for row in table.select(source="simulation").rows
    }
    numbers = {
        f"{network}, {LOOKS[signals].label}: error": error
        for (signals, network), error in seen.items()
    }
    staged = table.select(part="staged").quantity("test_error")
    numbers["exact theory of two steps without a split, one signal: error"] = staged
    conditions: list[Condition] = []
    for signals, network, other, low, high in COMPARED:
        ratio = ratio_of(seen[signals, network], seen[signals, other])
        said = f"{LOOKS[signals].label}: error of {network} over that of {other}"
        conditions.append(within(said, ratio, low, high))
    best = min((error for (count, _), error in seen.items() if count == 1), key=lambda e: e.value)
    ratio = ratio_of(Quantity(staged.value), best)
    said = "one signal: exact error of two steps without a split over that of the best network"
    conditions.append(within(said, ratio, high=1.0))
    return decide(conditions, numbers)


def draw(table: Table) -> dict[str, Drawing]:
    """Draw the errors of all networks."""
    settings = table.settings
    figure, (panel,) = new_figure(panel_height=3.0)
    for shift, (signals, look) in zip((-0.1, 0.1), LOOKS.items(), strict=True):
        rows = table.select(source="simulation", signals=signals)
        panel.errorbar(
            rows.column("test_error"),
            np.arange(len(rows)) + shift,
            xerr=rows.column("test_error_uncertainty"),
            fmt=look.marker,
            color=look.colour,
            label=look.label,
        )
    staged = table.select(part="staged").quantity("test_error").value
    label = "two steps without a split, exact, one signal"
    draw_boundary(panel, staged, color=LOOKS[1].colour, linestyle=":", label=label)
    names = table.select(source="simulation", signals=1).distinct("network")
    panel.set_yticks(range(len(names)), names)
    panel.invert_yaxis()
    label_axes(panel, "test error", "", log_x=True)
    shared_legend(figure, columns=1)
    text = caption(
        "Test error of networks trained on the same data, with ridge and stopping chosen on a quarter "
        "of them. One signal: θ = 4, n/d = 4; four signals: θ = 6, n/d = 8. Bars: standard errors",
        {name: settings[name] for name in (*list(COMMON)[:3], "dimension", "trials")},
    )
    return {"networks": Drawing(figure, text)}


CLAIM = Claim(
    series="question",
    number=6,
    name="architectures",
    title="Do several heads or a second layer help? Heads do if there are several signals",
    statement=(
        "With one signal four heads or a second layer with keys and values help little; "
        "with four signals four heads make less than half the errors of one, and a second layer does "
        "not replace them. Max pooling of linear features does as well as heads, a recurrent network "
        "fails, and the exact two-step training beats them all where there is one signal."
    ),
    meaning=(
        "What counts is to have as many searchlights as there are kinds of clues; more machinery only "
        "finds more to learn by heart. Simple training in two steps is better than each of these "
        "networks as long as there is a single kind of clue."
    ),
    criterion=(
        "Mean errors on the same data, by two standard errors. One signal: four heads err 0.6 to 1.1 "
        "times as often as one head, two layers at least 0.8 times, max pooling 0.5 to 1.1 times, mean "
        "pooling at least 2 times, a recurrent network at least 1.5 times; the exact error of two "
        "steps without a split is below that of the best network. Four signals: four heads err at most "
        "0.5 times as often as one, max pooling at most 0.7 times; two layers at least 1.3 times as "
        "often as four heads, a recurrent network at least twice as often."
    ),
    settings={
        "full": {
            **COMMON,
            "ridges": [0.003, 0.01, 0.03, 0.1],
            "most_rounds": 60,
            "fresh": 5000,
            "dimension": 64,
            "trials": [20, 10],
        },
        "quick": {
            **COMMON,
            "ridges": [0.02],
            "most_rounds": 30,
            "fresh": 3000,
            "dimension": 48,
            "trials": [12, 4],
        },
        "tiny": {
            **COMMON,
            "ridges": [0.02],
            "most_rounds": 20,
            "fresh": 1000,
            "dimension": 24,
            "trials": [2, 2],
        },
    },
    measurements=measurements,
    judge=judge,
    draw=draw,
    needs=("torch", "bench"),
)
