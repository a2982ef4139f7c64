"""Claim 1: how strong a signal each classifier needs as sequences grow."""

import numpy as np

from sparsetoken.plotting import (
    caption,
    draw_boundary,
    draw_reference,
    draw_simulation,
    look_of,
    new_figure,
    shared_legend,
)
from sparsetoken.reproduce.claim import Claim, Drawing, Quantity, Settings, Table, Verdict
from sparsetoken.reproduce.evidence import AGREES, Condition, agreement, decide, power_law, within
from sparsetoken.reproduce.kinds import counted_error, strength
from sparsetoken.reproduce.measurement import Measurement
from sparsetoken.reproduce.panels import draw_floor, label_axes, line_over_dots
from sparsetoken.task import Task

__all__ = ["CLAIM"]

CLASSIFIERS = ("pooled", "vectorised", "attention", "bayes")
COMMON = {"informative": 1, "positive_rate": 0.5, "error": 0.05}


def measurements(settings: Settings) -> list[Measurement]:
    """Ask for the required strength at every length, and count errors at it where that is cheap."""
    made: list[Measurement] = []
    for length in settings["lengths"]:
        task = Task(length, settings["informative"], 1.0, settings["positive_rate"])
        for classifier in CLASSIFIERS:
            made.append(strength.ask(task, settings["error"], classifier, length=length))
            if length in settings["counted_lengths"] and classifier != "vectorised":
                made.append(
                    counted_error.ask(
                        task,
                        settings["error"],
                        classifier,
                        settings["samples"],
                        settings["trials"],
                        settings["seed"],
                        length=length,
                    )
                )
    return made


def judge(table: Table) -> Verdict:
    """Compare slopes of the required strength, and its ratio to √(2 log L)."""
    theory = table.select(source="theory").ordered("length")
    conditions, numbers = [], {}
    for classifier in ("pooled", "vectorised"):
        rows = theory.select(classifier=classifier)
        slope = power_law(rows.column("length"), rows.column("strength"))
        numbers[f"{classifier}: log-log slope"] = slope
        conditions.append(within(f"{classifier}: log-log slope", slope, 0.48, 0.52))
    rows = theory.select(classifier="attention")
    length, strength = rows.column("length"), rows.column("strength")
    unit = np.sqrt(2 * np.log(length))
    ratio = strength / unit
    last = Quantity(
        float(np.log(strength[-1] / strength[-2]) / np.log(length[-1] / length[-2])),
        float(np.hypot(*(rows.column("strength_uncertainty") / strength)[-2:]))
        / float(np.log(length[-1] / length[-2])),
    )
    growth = Quantity(
        float(ratio[-1] / ratio[0]), float(rows.column("strength_uncertainty")[-1] / strength[-1])
    )
    numbers["attention: last log-log slope"] = last
    numbers["attention: strength / √(2 log L), longest against shortest"] = growth
    floor = theory.select(classifier="bayes").column("strength")
    numbers["attention: strength / Bayes floor at the longest"] = Quantity(
        float(strength[-1] / floor[-1])
    )
    conditions.append(within("attention: log-log slope of the last step", last, high=0.15))
    conditions.append(
        within("attention: strength/√(2 log L) at the longest over the shortest", growth, high=1.0)
    )
    conditions.append(_counted(table))
    return decide(conditions, numbers)


def _counted(table: Table) -> Condition:
    """Compare the errors counted on drawn sequences with what theory says of that strength."""
    counted = table.select(source="simulation").rows
    said = [
        {
            "source": "theory",
            "classifier": row["classifier"],
            "length": row["length"],
            "test_error": row["predicted_error"],
            "test_error_uncertainty": row["predicted_error_uncertainty"],
        }
        for row in counted
    ]
    both = Table([*counted, *said], table.settings)
    return agreement("errors counted there", both, "test_error", ("classifier", "length"))


def draw(table: Table) -> dict[str, Drawing]:
    """Draw required strength against length, and the counted errors."""
    settings = table.settings
    figure, (left, right) = new_figure(columns=2)
    theory = table.select(source="theory")
    draw_floor(left, theory.select(classifier="bayes"), "length", "strength")
    for classifier in ("pooled", "attention"):
        look = look_of(classifier)
        if classifier == "pooled":
            look = look.named("linear (pooled and vectorised)")
        line_over_dots(left, theory.select(classifier=classifier), "length", "strength", look)
    length = np.array(settings["lengths"], dtype=float)
    draw_reference(left, length, np.sqrt(2 * np.log(length)), label="√(2 log L)")
    label_axes(left, "tokens L", "signal strength θ needed", log_x=True, log_y=True)
    counted = table.select(source="simulation")
    for shift, classifier in zip((0.9, 1.0, 1.1), ("pooled", "attention", "bayes"), strict=True):
        rows = counted.select(classifier=classifier)
        draw_simulation(
            right,
            rows.column("length") * shift,
            100 * rows.column("test_error"),
            100 * rows.column("test_error_uncertainty"),
            look_of(classifier),
        )
    draw_boundary(right, 100 * settings["error"], vertical=False, label="error asked for")
    label_axes(right, "tokens L", "error counted at that θ (%)", log_x=True)
    right.set_ylim(0, 200 * settings["error"])
    shared_legend(figure, columns=3)
    text = caption(
        f"Left: least signal strength for an error of {100 * settings['error']:g} %, signal known, "
        "against sequence length. Right: error counted on drawn sequences at that strength",
        {name: settings[name] for name in ("informative", "positive_rate")},
        settings["trials"],
    )
    return {"strength": Drawing(figure, text)}


CLAIM = Claim(
    number=1,
    name="required-strength",
    title="Attention needs θ of order √(log L), linear classifiers √L",
    statement=(
        "Attention reaches vanishing error with a signal strength of order √(log L), while linear "
        "classifiers, pooled or vectorised, need order √L."
    ),
    meaning=(
        "The longer a text, the stronger a hidden clue must be for a classifier to notice it. "
        "With attention the clue hardly needs to grow; without it, a text a hundred times longer "
        "needs a clue ten times stronger."
    ),
    criterion=(
        "Least θ for 5 % error between the shortest and the longest L: log-log slope 0.5 ± 0.02 "
        "for both linear classifiers; for attention a slope of at most 0.15 over the last step and "
        "θ/√(2 log L) no larger at the longest L than at the shortest; the error counted on drawn "
        f"sequences at these θ {AGREES} (no d enters here)."
    ),
    settings={
        "full": {
            **COMMON,
            "lengths": [10, 30, 100, 300, 1000, 10**4, 10**5, 10**6],
            "counted_lengths": [10, 30, 100],
            "samples": 40000,
            "trials": 16,
            "noticed": 0.01,
        },
        "quick": {
            **COMMON,
            "lengths": [10, 100, 1000, 10**4, 10**5, 10**6],
            "counted_lengths": [10, 100],
            "samples": 20000,
            "trials": 8,
            "noticed": 0.03,
        },
        "tiny": {
            **COMMON,
            "lengths": [10, 100, 1000],
            "counted_lengths": [10, 100],
            "samples": 4000,
            "trials": 6,
            "noticed": 0.3,
        },
    },
    measurements=measurements,
    judge=judge,
    draw=draw,
)
