"""Claim 3: the softmax's normalisation over tokens is what makes attention strong."""

import numpy as np

from sparsetoken.plotting import (
    caption,
    draw_reference,
    draw_theory,
    look_of,
    new_figure,
    shared_legend,
)
from sparsetoken.reproduce.claim import Claim, Drawing, Settings, Table, Verdict
from sparsetoken.reproduce.evidence import decide, power_law, within
from sparsetoken.reproduce.kinds import strength
from sparsetoken.reproduce.measurement import Measurement
from sparsetoken.reproduce.panels import UNDERLAY, label_axes
from sparsetoken.task import Task

__all__ = ["CLAIM"]

BOUNDED = ("sigmoid", "tanh")
NONLINEARITIES = (*BOUNDED, "linear", "exp")
COMMON = {"informative": 1, "positive_rate": 0.5, "error": 0.05, "fixed_sharpness": 1.0}


def measurements(settings: Settings) -> list[Measurement]:
    """Ask for every non-linearity's required strength at its best sharpness and at a fixed one."""
    made: list[Measurement] = []
    for length in settings["lengths"]:
        task = Task(length, settings["informative"], 1.0, settings["positive_rate"])
        error = settings["error"]
        made.append(strength.ask(task, error, "attention", length=length, sharpness_is="best"))
        for name in NONLINEARITIES:
            labels = {"nonlinearity_is": name, "length": length}
            made.append(
                strength.ask(task, error, "elementwise", name, sharpness_is="best", **labels)
            )
            if name in BOUNDED:
                made.append(
                    strength.ask(
                        task,
                        error,
                        "elementwise",
                        name,
                        settings["fixed_sharpness"],
                        sharpness_is="fixed",
                        **labels,
                    )
                )
    return made


def judge(table: Table) -> Verdict:
    """Compare the slopes over long sequences."""
    long = table.select(length=tuple(n for n in table.distinct("length") if n >= 100))
    long = long.ordered("length")
    conditions, numbers = [], {}

    def slope_of(name: str, rows: Table, low: float = -np.inf, high: float = np.inf) -> None:
        slope = power_law(rows.column("length"), rows.column("strength"))
        numbers[f"{name}: log-log slope"] = slope
        if np.isfinite(low) or np.isfinite(high):
            conditions.append(within(f"{name}: log-log slope", slope, low, high))

    best = long.select(sharpness_is="best")
    slope_of("softmax attention", best.select(classifier="attention"), high=0.15)
    for name in NONLINEARITIES:
        rows = best.select(nonlinearity_is=name)
        slope_of(f"{name}, best sharpness", rows, low=0.2 if name in BOUNDED else -np.inf)
    fixed = long.select(sharpness_is="fixed")
    for name in BOUNDED:
        slope_of(f"{name}, fixed sharpness", fixed.select(nonlinearity_is=name), 0.45, 0.55)
    return decide(conditions, numbers)


def draw(table: Table) -> dict[str, Drawing]:
    """Draw required strength against length."""
    settings = table.settings
    figure, (left, right) = new_figure(columns=2, sharey=True)
    panels = {"best": left, "fixed": right}
    for kind, panel in panels.items():
        for name in ("attention", *NONLINEARITIES):
            rows = table.select(sharpness_is=kind, nonlinearity_is=name)
            if name == "attention":
                rows = table.select(classifier="attention")
            # At its best sharpness tanh does what linear does, and exp what softmax does.
            style = UNDERLAY if kind == "best" and name in ("attention", "tanh") else {}
            if len(rows):
                x, y = rows.column("length"), rows.column("strength")
                draw_theory(panel, x, y, look_of(name), **style)
    length = np.array(settings["lengths"], dtype=float)
    for panel in panels.values():
        draw_reference(panel, length, 2 * np.sqrt(length), label="slope 1/2")
        label_axes(panel, "tokens L", "", log_x=True, log_y=True)
    draw_reference(left, length, 2.5 * length**0.25, label="slope 1/4", linestyle="-.")
    left.set_ylabel("signal strength θ needed")
    left.set_title("best sharpness for each L")
    right.set_title(f"fixed sharpness κ = {settings['fixed_sharpness']:g}")
    shared_legend(figure, columns=3, axes=(right, left))
    text = caption(
        f"Least signal strength for an error of {100 * settings['error']:g} %, signal known, when "
        "the softmax is replaced by a non-linearity that acts on each token alone. All lines are "
        "theory",
        {name: settings[name] for name in ("informative", "positive_rate")},
    )
    return {"elementwise": Drawing(figure, text)}


CLAIM = Claim(
    number=3,
    name="elementwise",
    title="An element-wise non-linearity loses the logarithmic advantage",
    statement=(
        "Replacing the softmax by a bounded non-linearity that acts on each token alone loses the "
        "logarithmic advantage."
    ),
    meaning=(
        "Attention is strong because words compete for it: one that stands out silences the "
        "others. Scoring every word alone, without competition, lets the noise of all the "
        "other words through."
    ),
    criterion=(
        "Least θ for 5 % error over L >= 100: log-log slope 0.5 ± 0.05 for sigmoid and tanh at a "
        "fixed sharpness; at the best sharpness for each L still a power of L, slope at least "
        "0.2; softmax attention's slope at most 0.15. Linear and exp are shown, not judged."
    ),
    settings={
        "full": {**COMMON, "lengths": [10, 100, 1000, 10**4, 10**5, 10**6]},
        "quick": {**COMMON, "lengths": [100, 10**4, 10**6]},
        "tiny": {**COMMON, "lengths": [100, 1000, 10**4]},
    },
    measurements=measurements,
    judge=judge,
    draw=draw,
)
