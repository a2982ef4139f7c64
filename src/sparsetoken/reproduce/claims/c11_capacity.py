"""Claim 11: data sets stop being separable at a sharp sample ratio."""

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from sparsetoken.plotting import (
    caption,
    draw_boundary,
    draw_simulation,
    look_of,
    new_figure,
    shared_legend,
)
from sparsetoken.plotting.style import SERIES
from sparsetoken.reproduce.claim import Claim, Drawing, Job, Quantity, Settings, Table, Verdict
from sparsetoken.reproduce.evidence import crossing, decide, holds, within
from sparsetoken.reproduce.jobs import capacity_job, capacity_trials
from sparsetoken.reproduce.panels import label_axes
from sparsetoken.task import Query, Task

__all__ = ["CLAIM"]

TASK = {"length": 10, "informative": 1, "strength": 3.0, "positive_rate": 0.5}
COMMON = {**TASK, "alignment": 0.8, "sharpness": 1.5}
CLASSIFIERS = ("pooled", "vectorised", "attention")


def jobs(settings: Settings) -> list[Job]:
    """Ask for the three capacities, and for data sets below and above them in several d."""
    task = Task.from_dict({name: settings[name] for name in TASK})
    given = Query(settings["alignment"], settings["sharpness"])
    made: list[Job] = []
    for classifier in CLASSIFIERS:
        query = given if classifier == "attention" else None
        made.append(capacity_job(task, classifier, query))
        for dimension in settings["dimensions"][classifier]:
            for ratio in settings["ratios"]:
                made += capacity_trials(
                    settings["trials"],
                    task,
                    dimension,
                    ratio,
                    classifier,
                    query,
                    settings["seed"],
                )
    return made


def transition(rows: Table) -> tuple[Quantity, Quantity]:
    """Fit the separable share as 1/(1 + exp((ratio - centre)/width)); return centre and width.

    Maximum likelihood; the uncertainties come from the curvature of the log-likelihood. Without a
    step from more to less than half in the range, there is no number.
    """
    if crossing(rows.column("ratio"), rows.column("separable") - 0.5) is None:
        return Quantity(float("nan")), Quantity(float("nan"))
    ratio, share, trials = (rows.column(name) for name in ("ratio", "separable", "trials"))

    def surprise(point: np.ndarray) -> float:
        score = (point[0] - ratio) / np.exp(point[1])
        outside = np.logaddexp(0, -score) * share + np.logaddexp(0, score) * (1 - share)
        # A weak prior on the width (one factor e) keeps a perfect step from width zero.
        return float(np.sum(trials * outside) + 0.5 * (point[1] - np.log(0.05)) ** 2)

    fit = minimize(surprise, np.array([1.0, np.log(0.05)]), method="Nelder-Mead")
    centre, width = fit.x[0], float(np.exp(fit.x[1]))
    chance = expit((centre - ratio) / width)
    weight = trials * chance * (1 - chance)
    distance = (ratio - centre) / width
    information = np.array(
        [
            [np.sum(weight), np.sum(weight * distance)],
            [np.sum(weight * distance), np.sum(weight * distance**2) + 1.0],
        ]
    )
    covariance = np.linalg.inv(information / np.array([[width**2, width], [width, 1.0]]))
    return (
        Quantity(float(centre), float(np.sqrt(covariance[0, 0]))),
        Quantity(width, float(np.sqrt(covariance[1, 1])) * width),
    )


def judge(table: Table) -> Verdict:
    """Compare the places and widths of the transitions, and the order of the capacities."""
    theory = table.select(source="theory")
    alpha = {
        classifier: Quantity(
            float(theory.select(classifier=classifier).column("alpha")[0]),
            float(theory.select(classifier=classifier).column("alpha_error")[0]),
        )
        for classifier in CLASSIFIERS
    }
    numbers = {f"{classifier}: capacity": value for classifier, value in alpha.items()}
    checks = [
        holds(
            "capacities are vectorised > attention > pooled",
            alpha["vectorised"].value > alpha["attention"].value > alpha["pooled"].value,
        ),
        within(
            "vectorised capacity over L times pooled",
            Quantity(
                alpha["vectorised"].value / (table.settings["length"] * alpha["pooled"].value)
            ),
            0.999,
            1.001,
        ),
    ]
    for classifier in CLASSIFIERS:
        rows = table.select(source="simulation", classifier=classifier).ordered("ratio")
        dimensions = sorted(rows.distinct("dimension"))
        fits = {size: transition(rows.select(dimension=size)) for size in dimensions}
        centre = fits[dimensions[-1]][0]
        numbers[f"{classifier}: measured over predicted capacity, d = {dimensions[-1]}"] = centre
        checks.append(within(f"{classifier}: measured over predicted capacity", centre, 0.9, 1.1))
        if len(dimensions) > 1:
            small, large = fits[dimensions[0]][1], fits[dimensions[-1]][1]
            relative = np.hypot(
                (small.uncertainty or 0) / small.value, (large.uncertainty or 0) / large.value
            )
            ratio = large.value / small.value
            narrowing = Quantity(ratio, float(ratio * relative))
            name = f"{classifier}: width at d = {dimensions[-1]} over d = {dimensions[0]}"
            numbers[name] = narrowing
            checks.append(within(name, narrowing, high=1.0))
    rows = table.select(source="simulation", classifier="attention").ordered("dimension")
    rows = rows.select(dimension=rows.distinct("dimension")[-1])
    below = Table([row for row in rows.rows if row["ratio"] <= 0.7], table.settings)
    above = Table([row for row in rows.rows if row["ratio"] >= 1.3], table.settings)
    largest, least = below.column("train_loss").max(), above.column("train_loss").min()
    numbers["largest training loss at most 0.7 of capacity"] = Quantity(float(largest))
    numbers["least training loss at least 1.3 of capacity"] = Quantity(float(least))
    checks.append(
        within(
            "least training loss above capacity over the largest below",
            Quantity(float(least / max(largest, 1e-12))),
            low=10,
        )
    )
    return decide(checks, numbers)


def draw(table: Table) -> dict[str, Drawing]:
    """Draw the separable share and the training loss against the sample ratio over capacity."""
    settings = table.settings
    figure, (left, middle, right) = new_figure(columns=3)
    simulated = table.select(source="simulation")
    attention = simulated.select(classifier="attention").ordered("ratio")
    for look, dimension in zip(SERIES, attention.distinct("dimension"), strict=False):
        rows = attention.select(dimension=dimension)
        named = look.named(f"d = {dimension}")
        style = {"linestyle": ":", "linewidth": 0.8}
        for panel, name in ((left, "separable"), (middle, "train_loss")):
            draw_simulation(
                panel,
                rows.column("ratio"),
                rows.column(name),
                rows.column(f"{name}_error"),
                named,
                label="",
                **style,
            )
    for classifier in CLASSIFIERS:
        rows = simulated.select(classifier=classifier).ordered("dimension")
        rows = rows.select(dimension=rows.distinct("dimension")[-1]).ordered("ratio")
        alpha = float(table.select(source="theory", classifier=classifier).column("alpha")[0])
        look = look_of(classifier)
        draw_boundary(right, alpha, color=look.colour)
        draw_simulation(
            right,
            alpha * rows.column("ratio"),
            rows.column("separable"),
            rows.column("separable_error"),
            look,
            label="",
        )
    for panel in (left, middle):
        draw_boundary(panel, 1.0, label="predicted capacity")
    label_axes(left, "sample ratio over capacity", "separable data sets", "attention")
    label_axes(middle, "sample ratio over capacity", "training loss", "attention")
    label_axes(right, "sample ratio n/d", "separable data sets", "all three", log_x=True)
    shared_legend(figure, columns=4)
    names = (*TASK, "alignment", "sharpness", "trials")
    sizes = {f"d ({name})": sizes for name, sizes in settings["dimensions"].items()}
    text = caption(
        "Share of linearly separable data sets and training loss (squared hinge) against the "
        "sample ratio in units of the predicted capacity, with growing dimension; right: the "
        "three classifiers at their largest dimension, dashed lines: predicted capacities. Bars: "
        "standard errors",
        {**{name: settings[name] for name in names}, **sizes},
    )
    return {"capacity": Drawing(figure, text)}


CLAIM = Claim(
    number=11,
    name="capacity",
    title="A sharp capacity: vectorised > attention > pooled",
    statement=(
        "The training loss passes sharply from zero to positive at a capacity α*; the vectorised "
        "classifier's is largest, then attention's, then the pooled one's, which is the "
        "vectorised one's divided by L."
    ),
    meaning=(
        "Up to a certain number of examples a classifier can learn all of them by heart, beyond it "
        "it cannot. The border is sharp and predictable, and attention moves it up without any "
        "more parameters."
    ),
    criterion=(
        "Predicted capacities are in that order, and vectorised = L x pooled within 0.1 %; for "
        "each classifier half of the simulated data sets are separable within 10 % of the "
        "predicted capacity at the largest d; attention's transition is narrower at the largest d "
        "than at the smallest; its training loss there above 1.3 of capacity is at least 10 times "
        "that below 0.7."
    ),
    settings={
        "full": {
            **COMMON,
            "dimensions": {"pooled": [200], "vectorised": [50], "attention": [50, 100, 200, 400]},
            "ratios": [0.6, 0.7, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2, 1.3, 1.4],
            "trials": 24,
        },
        "quick": {
            **COMMON,
            "dimensions": {"pooled": [100], "vectorised": [20], "attention": [25, 50, 100, 200]},
            "ratios": [0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3],
            "trials": 20,
        },
        "tiny": {
            **COMMON,
            "dimensions": {"pooled": [50], "vectorised": [20], "attention": [10, 100]},
            "ratios": [0.7, 0.85, 1.0, 1.15, 1.3],
            "trials": 40,
        },
    },
    jobs=jobs,
    judge=judge,
    draw=draw,
)
