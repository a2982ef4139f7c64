"""Question 8: how far is all this from what is possible?"""

import numpy as np
from matplotlib.colors import LogNorm

from sparsetoken.plotting import COLOURS, caption, new_figure, shared_legend
from sparsetoken.reproduce.claim import Claim, Drawing, Quantity, Settings, Table, Verdict
from sparsetoken.reproduce.evidence import decide, within
from sparsetoken.reproduce.kinds import floor_errors, prediction
from sparsetoken.reproduce.measurement import Measurement
from sparsetoken.reproduce.panels import grid, label_axes
from sparsetoken.task import Task, Training
from sparsetoken.theory.alignment import with_sharpness

__all__ = ["CLAIM"]

COMMON = {
    "informative": 1,
    "positive_rate": 0.5,
    "short": 10,
    "long": 1000,
    "share": 0.4,
    "sharpness": 1.5,
    "ridge": 0.02,
}


def measurements(settings: Settings) -> list[Measurement]:
    """Ask for the floor at two lengths, and for trained attention at the shorter one."""
    made: list[Measurement] = []
    for length in (settings["short"], settings["long"]):
        for strength in settings[f"strengths_{length}"]:
            task = Task(length, settings["informative"], strength, settings["positive_rate"])
            for total in settings["totals"]:
                labels = {"length": length, "strength": strength, "total": total}
                made.append(floor_errors.ask(task, total, use="floor", **labels))
                if length == settings["short"]:
                    share, ridge = settings["share"], settings["ridge"]
                    ways = {
                        "split": Training(share * total, (1 - share) * total, ridge=ridge),
                        "no split": Training(total, total, ridge=ridge, reuse=True),
                    }
                    made += [
                        prediction.ask(
                            task,
                            with_sharpness(task, training, settings["sharpness"]),
                            tolerance=settings["tolerance"],
                            use=use,
                            **labels,
                        )
                        for use, training in ways.items()
                    ]
    return made


def ratios(table: Table, use: str) -> np.ndarray:
    """Return the error of trained attention over the floor, at every point of the short map."""
    rows = table.select(length=table.settings["short"])
    _, _, floor = grid(rows.select(use="floor"), "total", "strength", "test_error")
    _, _, found = grid(rows.select(use=use), "total", "strength", "test_error")
    return found / floor


def judge(table: Table) -> Verdict:
    """Look for hard phases, and compare trained attention with the floor."""
    settings = table.settings
    hard = {
        length: table.select(length=length, use="floor").column("hard")
        for length in (settings["short"], settings["long"])
    }
    split, whole = ratios(table, "split"), ratios(table, "no split")
    short, long = (Quantity(float(hard[length].mean())) for length in hard)
    conditions = [
        within(f"hard points of the map at L = {settings['short']}", short, high=0.0),
        within(f"hard points of the map at L = {settings['long']}", long, low=0.05),
        within(
            "least error of trained attention over the floor",
            Quantity(float(min(split.min(), whole.min()))),
            low=1.0,
        ),
        within(
            "median error without a split over the floor",
            Quantity(float(np.median(whole))),
            high=2.0,
        ),
        within(
            "median error with a split over the floor", Quantity(float(np.median(split))), high=3.0
        ),
    ]
    numbers = {
        f"hard share of the map, L = {settings['short']}": short,
        f"hard share of the map, L = {settings['long']}": long,
        "error over the floor, split, median": Quantity(float(np.median(split))),
        "error over the floor, split, largest": Quantity(float(split.max())),
        "error over the floor, no split, median": Quantity(float(np.median(whole))),
        "error over the floor, no split, largest": Quantity(float(whole.max())),
    }
    return decide(conditions, numbers)


def draw(table: Table) -> dict[str, Drawing]:
    """Draw the ratio to the floor, and the phases of long sequences."""
    settings = table.settings
    figure, (left, right) = new_figure(columns=2, panel_height=3.0)
    short = table.select(length=settings["short"], use="floor")
    x, y, _ = grid(short, "total", "strength", "test_error")
    shown = left.pcolormesh(x, y, ratios(table, "no split"), norm=LogNorm(vmin=1))
    figure.colorbar(shown, ax=left, label="trained error over the floor")
    title = f"L = {settings['short']}, no split"
    label_axes(left, "samples n/d", "signal strength θ", title, log_x=True)
    long = table.select(length=settings["long"], use="floor")
    x, y, overlap = grid(long, "total", "strength", "reachable_overlap")
    shown = right.pcolormesh(x, y, overlap, vmin=0, vmax=1)
    figure.colorbar(shown, ax=right, label="overlap reached by message passing")
    hard = long.where(lambda row: row["hard"] > 0)
    right.plot(
        hard.column("total"),
        hard.column("strength"),
        "x",
        color=COLOURS["vermilion"],
        label="hard: possible, but not found",
    )
    label_axes(right, "samples n/d", "signal strength θ", f"L = {settings['long']}", log_x=True)
    shared_legend(figure, columns=1)
    text = caption(
        "Left: predicted error of attention trained on all data, over the least possible one. Right: "
        "squared cosine with the signal that the best known efficient algorithm reaches; crosses: "
        "points where a better estimate exists",
        {name: settings[name] for name in ("informative", "positive_rate", "sharpness", "ridge")},
    )
    return {"phases": Drawing(figure, text)}


CLAIM = Claim(
    series="question",
    number=8,
    name="possible",
    title="How far from what is possible? Mostly a factor of 2 at most; long sequences have a hard phase",
    statement=(
        "In most problems trained attention without a split errs at most twice as often as the best "
        "possible classifier, with little data more often; for short sequences no problem is hard, "
        "for long ones there is a phase in which the signal can be learnt in principle but not by "
        "any known efficient algorithm."
    ),
    meaning=(
        "On short texts two steps of training already come close to the best that anyone could do. "
        "On very long ones there is a region where the examples contain the clue and yet no known "
        "method finds it in reasonable time."
    ),
    criterion=(
        "Over signal strength and data: no hard point at L = 10 and at least 5 % at L = 1000; the "
        "error of trained attention is nowhere below the floor, and in the median at most 2 times "
        "the floor without a split and 3 times with one."
    ),
    settings={
        "full": {
            **COMMON,
            "strengths_10": [2.0, 3.0, 4.0, 5.0, 6.0],
            "strengths_1000": [3.0, 3.5, 4.0, 4.5, 5.0, 5.5, 6.0],
            "totals": np.geomspace(0.5, 16, 6).tolist(),
            "tolerance": 1e-3,
        },
        "quick": {
            **COMMON,
            "strengths_10": [2.0, 4.0, 6.0],
            "strengths_1000": [3.0, 4.0, 5.0, 6.0],
            "totals": [1.0, 3.0, 9.0],
            "tolerance": 2e-3,
        },
        "tiny": {
            **COMMON,
            "strengths_10": [3.0, 5.0],
            "strengths_1000": [4.0, 6.0],
            "totals": [1.0, 5.0],
            "tolerance": 4e-3,
        },
    },
    measurements=measurements,
    judge=judge,
    draw=draw,
)
