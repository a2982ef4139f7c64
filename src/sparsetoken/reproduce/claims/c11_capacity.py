"""Claim 11: data sets stop being separable at a sharp sample ratio."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from scipy.optimize import minimize
from scipy.special import expit

from sparsetoken.plotting import (
    COLOURS,
    caption,
    draw_boundary,
    draw_simulation,
    look_of,
    new_figure,
    shared_legend,
)
from sparsetoken.plotting.style import SERIES
from sparsetoken.reproduce.claim import Claim, Drawing, Quantity, Settings, Table, Verdict
from sparsetoken.reproduce.evidence import Condition, crossing, decide, ratio_of, within
from sparsetoken.reproduce.kinds import capacity, capacity_trial
from sparsetoken.reproduce.measurement import Measurement
from sparsetoken.reproduce.panels import grid, label_axes
from sparsetoken.task import Query, Task

__all__ = ["CLAIM"]

TASK = {"length": 10, "informative": 1, "strength": 3.0, "positive_rate": 0.5}
COMMON = {**TASK, "alignment": 0.8, "sharpness": 1.5}
CLASSIFIERS = ("pooled", "vectorised", "attention")


def measurements(settings: Settings) -> list[Measurement]:
    """Ask for capacities and data sets around them, and for a map over alignment and strength."""
    task = Task.from_dict({name: settings[name] for name in TASK})
    given = Query(settings["alignment"], settings["sharpness"])
    made: list[Measurement] = []
    for classifier in CLASSIFIERS:
        query = given if classifier == "attention" else None
        made.append(capacity.ask(task, classifier, query, part="sharp"))
        for dimension in settings["dimensions"][classifier]:
            for ratio in settings["ratios"]:
                made += capacity_trial.ask_trials(
                    settings["trials"],
                    task,
                    dimension,
                    ratio,
                    classifier=classifier,
                    query=query,
                    seed=settings["seed"],
                    part="sharp",
                )
    return made + _map_measurements(settings, task)


def _map_measurements(settings: Settings, task: Task) -> list[Measurement]:
    """Ask for the map, and for data sets at points of it where the order should be another one."""
    made: list[Measurement] = []
    for strength in settings["map_strengths"]:
        stronger = task.replace(strength=strength)
        made += [
            capacity.ask(stronger, classifier, part="map", strength=strength)
            for classifier in ("pooled", "vectorised")
        ]
        for gamma in settings["map_alignments"]:
            query = Query(gamma, settings["sharpness"])
            labels = {"part": "map", "strength": strength, "gamma": gamma}
            made.append(capacity.ask(stronger, "attention", query, **labels))
    for gamma, strength in settings["map_simulated"]:
        for ratio in settings["map_ratios"]:
            made += capacity_trial.ask_trials(
                settings["map_trials"],
                task.replace(strength=strength),
                settings["map_dimension"],
                ratio,
                query=Query(gamma, settings["sharpness"]),
                seed=settings["seed"],
                part="map",
                strength=strength,
                gamma=gamma,
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
    conditions, numbers = _judge_transitions(table.select(part="sharp"))
    more, found = _judge_order(table.select(part="map"))
    return decide([*conditions, *more], {**numbers, **found})


def _judge_transitions(table: Table) -> tuple[list[Condition], dict[str, Quantity]]:
    theory = table.select(source="theory")
    alpha = {name: theory.select(classifier=name).quantity("alpha") for name in CLASSIFIERS}
    numbers = {f"{classifier}: capacity": value for classifier, value in alpha.items()}
    times = alpha["vectorised"].value / (table.settings["length"] * alpha["pooled"].value)
    conditions = [within("vectorised capacity over L times pooled", Quantity(times), 0.999, 1.001)]
    for classifier in CLASSIFIERS:
        rows = table.select(source="simulation", classifier=classifier).ordered("ratio")
        dimensions = sorted(rows.distinct("dimension"))
        fits = {size: transition(rows.select(dimension=size)) for size in dimensions}
        centre = fits[dimensions[-1]][0]
        numbers[f"{classifier}: measured over predicted capacity, d = {dimensions[-1]}"] = centre
        conditions.append(
            within(f"{classifier}: measured over predicted capacity", centre, 0.9, 1.1)
        )
        if len(dimensions) > 1:
            name = f"{classifier}: width at d = {dimensions[-1]} over d = {dimensions[0]}"
            numbers[name] = ratio_of(fits[dimensions[-1]][1], fits[dimensions[0]][1])
            conditions.append(within(name, numbers[name], high=1.0))
    rows = table.select(source="simulation", classifier="attention").largest("dimension")
    largest = rows.where(lambda row: row["ratio"] <= 0.7).column("train_loss").max()
    least = rows.where(lambda row: row["ratio"] >= 1.3).column("train_loss").min()
    numbers["largest training loss at most 0.7 of capacity"] = Quantity(float(largest))
    numbers["least training loss at least 1.3 of capacity"] = Quantity(float(least))
    step = Quantity(float(least / max(largest, 1e-12)))
    conditions.append(
        within("least training loss above capacity over the largest below", step, low=10)
    )
    return conditions, numbers


def order_map(table: Table) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return alignments, strengths, and attention's capacity over pooled and over vectorised."""
    theory = table.select(part="map", source="theory")
    gammas, strengths, attention = grid(
        theory.select(classifier="attention"), "gamma", "strength", "alpha"
    )
    pooled, vectorised = (
        theory.select(classifier=name).ordered("strength").column("alpha")[:, None]
        for name in ("pooled", "vectorised")
    )
    return gammas, strengths, attention / pooled, attention / vectorised


def _judge_order(table: Table) -> tuple[list[Condition], dict[str, Quantity]]:
    """Judge the order vectorised > attention > pooled at every point of the map."""
    gammas, strengths, over_pooled, over_vectorised = order_map(table)
    ordered = (over_pooled > 1) & (over_vectorised < 1)
    share = float(np.mean(ordered))
    numbers = {"map: share of points with vectorised > attention > pooled": Quantity(share)}
    for row, strength in enumerate(strengths):
        for against, ratio in (("pooled", over_pooled), ("vectorised", over_vectorised)):
            place = crossing(gammas, 1 - ratio[row])
            if place is not None:
                name = f"map, θ = {strength:g}: alignment beyond which attention exceeds {against}"
                numbers[name] = Quantity(place)
    conditions = [
        within("points of the map with vectorised > attention > pooled", Quantity(share), low=1.0)
    ]
    simulated = table.select(source="simulation")
    for gamma, strength in table.settings["map_simulated"]:
        rows = simulated.select(gamma=gamma, strength=strength).ordered("ratio")
        centre = transition(rows)[0]
        what = f"map, γ = {gamma:g}, θ = {strength:g}: measured over predicted capacity"
        numbers[what] = centre
        conditions.append(within(what, centre, 0.85, 1.15))
    return conditions, numbers


def draw(table: Table) -> dict[str, Drawing]:
    """Draw the transition, and the map of the order."""
    return {"capacity": _draw_transition(table.select(part="sharp")), "map": _draw_map(table)}


def _draw_map(table: Table) -> Drawing:
    figure, (panel,) = new_figure(panel_height=3.0)
    gammas, strengths, over_pooled, over_vectorised = order_map(table)
    region = (over_pooled > 1).astype(int) + (over_vectorised > 1)
    colours = [COLOURS["sky"], COLOURS["yellow"], COLOURS["vermilion"]]
    panel.pcolormesh(
        gammas, strengths, region, cmap=ListedColormap(colours), vmin=0, vmax=2, alpha=0.3
    )
    texts = ("below pooled", "between pooled and vectorised", "above vectorised")
    for text, colour in zip(texts, colours, strict=True):
        panel.plot([], [], "s", color=colour, alpha=0.5, markersize=8, label=f"attention {text}")
    for ratio, style in ((over_pooled, "-"), (over_vectorised, "--")):
        panel.contour(
            gammas, strengths, np.log(ratio), levels=[0], colors="black", linestyles=style
        )
    places = np.array(table.settings["map_simulated"])
    panel.plot(*places.T, "ko", markerfacecolor="white", label="simulated", zorder=4)
    label_axes(panel, "alignment γ of the query", "signal strength θ")
    panel.grid(visible=False)
    shared_legend(figure, columns=1)
    names = ("length", "informative", "positive_rate", "sharpness")
    text = caption(
        "Where attention's predicted capacity lies between the other two, below or above both; lines: "
        "predicted boundaries, circles: points at which data sets were simulated",
        {name: table.settings[name] for name in names},
    )
    return Drawing(figure, text)


def _draw_transition(table: Table) -> Drawing:
    settings = table.settings
    figure, (left, middle, right) = new_figure(columns=3)
    _draw_attention(left, table, "separable")
    _draw_attention(middle, table, "train_loss")
    for classifier in CLASSIFIERS:
        _draw_largest(right, table, classifier)
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
    return Drawing(figure, text)


def _draw_attention(panel: Axes, table: Table, name: str) -> None:
    """Draw a field of attention's trials at each dimension, in units of the capacity."""
    attention = table.select(source="simulation", classifier="attention").ordered("ratio")
    for look, dimension in zip(SERIES, attention.distinct("dimension"), strict=False):
        rows = attention.select(dimension=dimension)
        draw_simulation(
            panel,
            rows.column("ratio"),
            rows.column(name),
            rows.column(f"{name}_uncertainty"),
            look.named(f"d = {dimension}"),
            label="",
            linestyle=":",
            linewidth=0.8,
        )
    draw_boundary(panel, 1.0, label="predicted capacity")


def _draw_largest(panel: Axes, table: Table, classifier: str) -> None:
    """Draw the share of separable data sets at a classifier's largest dimension."""
    rows = table.select(source="simulation", classifier=classifier).largest("dimension")
    rows = rows.ordered("ratio")
    alpha = float(table.select(source="theory", classifier=classifier).column("alpha")[0])
    look = look_of(classifier)
    draw_boundary(panel, alpha, color=look.colour)
    draw_simulation(
        panel,
        alpha * rows.column("ratio"),
        rows.column("separable"),
        rows.column("separable_uncertainty"),
        look,
        label="",
    )


CLAIM = Claim(
    number=11,
    name="capacity",
    title="A sharp capacity, in the order vectorised > attention > pooled",
    statement=(
        "The training loss passes sharply from zero to positive at a capacity α*; the vectorised "
        "classifier's is largest, then attention's, then the pooled one's, which is the "
        "vectorised one's divided by L."
    ),
    meaning=(
        "Up to a certain number of examples a classifier can learn all of them by heart, beyond it "
        "it cannot; the border is sharp and predictable. Attention moves it up only if it looks the "
        "right way: with a bad query it holds less than plain averaging, with a good one and a "
        "strong clue more than a classifier with ten times its parameters."
    ),
    criterion=(
        "Vectorised = L x pooled within 0.1 %; for each classifier half of the simulated data sets "
        "are separable within 10 % of the predicted capacity at the largest d; attention's "
        "transition is narrower at the largest d than at the smallest; its training loss there "
        "above 1.3 of capacity is at least 10 times that below 0.7. The order of the predicted "
        "capacities is vectorised > attention > pooled at every point of a map over alignment and "
        "strength, and at the points of the map that were simulated the measured capacity is "
        "within 15 % of the predicted one."
    ),
    settings={
        "full": {
            **COMMON,
            "dimensions": {"pooled": [200], "vectorised": [50], "attention": [50, 100, 200]},
            "ratios": [0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4],
            "trials": 24,
            "map_alignments": np.linspace(0, 1, 13).tolist(),
            "map_strengths": np.linspace(1.0, 7.0, 9).tolist(),
            "map_simulated": [[0.0, 4.0], [0.2, 3.0], [0.6, 6.0], [0.97, 6.0]],
            "map_ratios": [0.7, 0.85, 1.0, 1.15, 1.3],
            "map_dimension": 60,
            "map_trials": 24,
        },
        "quick": {
            **COMMON,
            "dimensions": {"pooled": [100], "vectorised": [20], "attention": [25, 50, 100, 200]},
            "ratios": [0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3],
            "trials": 20,
            "map_alignments": [0.0, 0.15, 0.3, 0.5, 0.7, 0.9, 1.0],
            "map_strengths": [1.5, 3.0, 4.5, 6.0],
            "map_simulated": [[0.0, 4.5], [0.9, 6.0]],
            "map_ratios": [0.7, 0.85, 1.0, 1.15, 1.3],
            "map_dimension": 60,
            "map_trials": 20,
        },
        "tiny": {
            **COMMON,
            "dimensions": {"pooled": [40], "vectorised": [10], "attention": [10, 80]},
            "ratios": [0.7, 0.85, 1.0, 1.15, 1.3],
            "trials": 20,
            "map_alignments": [0.0, 0.5, 1.0],
            "map_strengths": [2.0, 6.0],
            "map_simulated": [[0.0, 6.0]],
            "map_ratios": [0.7, 0.85, 1.0, 1.15, 1.3],
            "map_dimension": 50,
            "map_trials": 20,
        },
    },
    measurements=measurements,
    judge=judge,
    draw=draw,
)
