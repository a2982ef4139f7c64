"""Claim 16: the rates decide; a map of them, and rules that a user can apply."""

import numpy as np
from matplotlib.colors import BoundaryNorm

from sparsetoken.plotting import COLOURS, caption, new_figure
from sparsetoken.reproduce.claim import Claim, Drawing, Quantity, Settings, Table, Verdict
from sparsetoken.reproduce.evidence import AGREES, Condition, agreement, decide, within
from sparsetoken.reproduce.kinds import alignment, at_two_sizes, prediction, query_trial
from sparsetoken.reproduce.measurement import Measurement
from sparsetoken.reproduce.panels import grid, label_axes
from sparsetoken.task import Task, Training
from sparsetoken.theory.alignment import balanced_bias_step, with_sharpness

__all__ = ["CLAIM"]

STRONG = 0.8
COMMON = {
    "length": 10,
    "informative": 1,
    "strength": 4.0,
    "alpha0": 20.0,
    "largest_readout_step": 0.5,
    "share": 0.4,
    "sharpness": 1.0,
    "ridge": 1e-3,
}


def measurements(settings: Settings) -> list[Measurement]:
    """Ask for three maps: of the steps, of the rest of the rates, and of split and sharpness."""
    return [*_steps(settings), *_rest(settings), *_random_tasks(settings), *_finals(settings)]


def _task(settings: Settings, rate: float) -> Task:
    return Task(settings["length"], settings["informative"], settings["strength"], rate)


def _steps(settings: Settings) -> list[Measurement]:
    """Ask for the cosine over readout step and bias step, with trials at some of the points."""
    made: list[Measurement] = []
    for rate in settings["rates"]:
        task = _task(settings, rate)
        simulated = [
            (w, b)
            for w in settings["simulated_readout_steps"]
            for b in settings["simulated_bias_steps"]
        ]
        fine = [(w, b) for w in settings["readout_steps"] for b in settings["bias_steps"]]
        for pair in dict.fromkeys([*fine, *simulated]):
            readout_step, bias_step = pair
            training = Training(
                settings["alpha0"], 1.0, readout_step=readout_step, bias_step=bias_step
            )
            labels = {
                "part": "steps",
                "rate": rate,
                "readout_step": readout_step,
                "bias_step": bias_step,
            }
            made.append(alignment.ask(task, training, mapped=int(pair in fine), **labels))
            if pair in simulated:
                made += at_two_sizes(settings, query_trial, task, training, **labels)
    return made


def _rest(settings: Settings) -> list[Measurement]:
    """Ask for the cosine over query step and inverse temperature."""
    return [
        alignment.ask(
            _task(settings, settings["rates"][0]),
            Training(settings["alpha0"], 1.0, query_step=step, inverse_temperature=beta),
            part="rest",
            scale=step * beta**2,
        )
        for step in settings["query_steps"]
        for beta in settings["inverse_temperatures"]
    ]


def _random_tasks(settings: Settings) -> list[Measurement]:
    """Ask for the cosine at the balanced bias step, and at others, on tasks drawn at random."""
    rng = np.random.default_rng(20250925)
    made: list[Measurement] = []
    for number in range(settings["random_tasks"]):
        length = int(np.exp(rng.uniform(np.log(3), np.log(200))))
        task = Task(
            length,
            int(rng.integers(1, max(2, length // 3))),
            float(np.exp(rng.uniform(np.log(0.5), np.log(8)))),
            float(rng.uniform(0.03, 0.97)),
        )
        training = Training(
            float(np.exp(rng.uniform(np.log(0.5), np.log(100)))),
            1.0,
            readout_step=float(
                np.exp(rng.uniform(np.log(1e-3), np.log(settings["largest_readout_step"])))
            ),
        )
        balanced = balanced_bias_step(task.positive_rate)
        made += [
            alignment.ask(
                task,
                training.replace(bias_step=step),
                part="random",
                task_number=number,
                rule=int(step == balanced),
                bias_step=step,
            )
            for step in (balanced, *settings["other_bias_steps"])
        ]
    return made


def _finals(settings: Settings) -> list[Measurement]:
    """Ask for the final error over split and sharpness, at the balanced bias step."""
    made: list[Measurement] = []
    for number, (length, informative, strength, rate, total) in enumerate(settings["tasks"]):
        task = Task(length, informative, strength, rate)
        for share in settings["shares"]:
            training = Training(
                share * total,
                (1 - share) * total,
                ridge=settings["ridge"],
                bias_step=balanced_bias_step(rate),
            )
            made += [
                prediction.ask(
                    task,
                    with_sharpness(task, training, sharpness),
                    tolerance=settings["tolerance"],
                    part="final",
                    task_number=number,
                    share=share,
                    kappa=sharpness,
                )
                for sharpness in settings["sharpnesses"]
            ]
    return made


def judge(table: Table) -> Verdict:
    """Look for both regions, and put the rules to the test."""
    conditions, numbers = _judge_regions(table)
    more, found = _judge_rules(table)
    return decide([*conditions, *more], {**numbers, **found})


def _judge_regions(table: Table) -> tuple[list[Condition], dict[str, Quantity]]:
    fine = table.select(part="steps", source="theory", mapped=1)
    strong = Quantity(float(np.mean(fine.column("alignment") > STRONG)))
    away = Quantity(float(np.mean(fine.column("alignment") < 0)))
    rest = table.select(part="rest")
    spread = Quantity(float(np.ptp(rest.column("alignment"))))
    scaled = rest.column("sharpness") / rest.column("scale")
    conditions = [
        within("points of the map with a cosine above 0.8", strong, low=0.05),
        within("points of the map where the query points away", away, low=0.05),
        within("change of the cosine with query step and inverse temperature", spread, high=1e-9),
        within(
            "change of sharpness/(η_q β²) with them, relative",
            Quantity(float(np.ptp(scaled) / scaled.mean())),
            high=1e-9,
        ),
        agreement(
            "cosine over the map",
            table.select(part="steps"),
            "alignment",
            ("rate", "readout_step", "bias_step"),
        ),
    ]
    numbers = {"share of the map with strong alignment": strong}
    return conditions, {**numbers, "share of the map with anti-alignment": away}


def _judge_rules(table: Table) -> tuple[list[Condition], dict[str, Quantity]]:
    random = table.select(part="random")
    ruled = random.select(rule=1).ordered("task_number").column("alignment")
    tasks = sorted(random.distinct("task_number"))
    best = np.array([random.select(task_number=n).column("alignment").max() for n in tasks])
    away = float(np.mean([row["alignment"] < 0 for row in random.select(bias_step=0.0).rows]))
    final = table.select(part="final")
    losses, worst = [], []
    for number in sorted(final.distinct("task_number")):
        rows = final.select(task_number=number)
        least = rows.column("test_error").min()
        chosen = rows.select(share=table.settings["share"], kappa=table.settings["sharpness"])
        losses.append(chosen.column("test_error")[0] / least)
        worst.append(rows.column("test_error").max() / least)
    numbers = {
        "random tasks where the query points away without a bias step": Quantity(away),
        "random tasks where it points away at the balanced bias step": Quantity(
            float(np.mean(ruled < 0))
        ),
        "median cosine lost to the best bias step": Quantity(float(np.median(best - ruled))),
        "largest error by the rules over the best of the map": Quantity(float(max(losses))),
        "median error by the rules over the best of the map": Quantity(float(np.median(losses))),
        "largest error on the map over the best": Quantity(float(max(worst))),
    }
    conditions = [
        within("least cosine at the balanced bias step", Quantity(float(ruled.min())), low=0.0),
        within(
            "median cosine lost to the best bias step",
            numbers["median cosine lost to the best bias step"],
            high=0.1,
        ),
        within(
            "largest error by the rules over the best of the map",
            numbers["largest error by the rules over the best of the map"],
            high=1.5,
        ),
    ]
    return conditions, numbers


def draw(table: Table) -> dict[str, Drawing]:
    """Draw the cosine over the steps, and the final error over split and sharpness."""
    settings = table.settings
    rates = settings["rates"]
    figure, panels = new_figure(columns=len(rates) + 1, panel_height=3.0)
    for panel, rate in zip(panels, rates, strict=False):
        fine = table.select(part="steps", source="theory", mapped=1, rate=rate)
        x, y, cosine = grid(fine, "readout_step", "bias_step", "alignment")
        panel.contourf(
            x,
            y,
            cosine,
            levels=[-1, 0, STRONG, 1],
            colors=[COLOURS["sky"], "white", COLOURS["yellow"]],
            alpha=0.4,
        )
        panel.contour(x, y, cosine, levels=[0, STRONG], colors="black", linewidths=1.0)
        simulated = table.select(part="steps", source="simulation", rate=rate).largest("dimension")
        for marker, low, high in (("x", -1, 0), (".", 0, STRONG), ("o", STRONG, 1)):
            cosine = simulated.column("alignment")
            chosen = (cosine > low) & (cosine <= high)
            places = (simulated.column(name)[chosen] for name in ("readout_step", "bias_step"))
            panel.plot(*places, f"k{marker}", zorder=3)
        panel.axhline(balanced_bias_step(rate), color=COLOURS["green"])
        label_axes(panel, "readout step η_w", "bias step η_b", f"cosine, π = {rate:g}", log_x=True)
        panel.grid(visible=False)
    right = panels[-1]
    x, y, error = grid(table.select(part="final", task_number=0), "kappa", "share", "test_error")
    levels = [1, 1.1, 1.2, 1.5, 2, 3, 10]
    # Each band a colour of its own: by their heights, the first three would look the same.
    shown = right.contourf(x, y, error / error.min(), levels=levels, norm=BoundaryNorm(levels, 256))
    figure.colorbar(shown, ax=right, label="error over the best")
    right.plot(
        settings["sharpness"],
        settings["share"],
        "*",
        color=COLOURS["vermilion"],
        markeredgecolor="white",
        markersize=10,
    )
    label_axes(right, "sharpness κ", "share of the data for the query", "final error", log_x=True)
    names = ("length", "informative", "strength", "alpha0", "dimension", "trials")
    task = dict(zip(("L", "R", "θ", "π", "total α"), settings["tasks"][0], strict=True))
    text = caption(
        "Cosine of the query over the first steps: yellow above 0.8, blue below 0, green line: the "
        "balanced bias step. Markers: simulated cosines, o above 0.8, dot between, x below 0. "
        "Right: predicted final error at the balanced step, star: the rule",
        {**{name: settings[name] for name in names}, "right": task},
    )
    return {"map": Drawing(figure, text)}


TASKS = [
    [10, 1, 5.0, 0.5, 4.0],
    [10, 1, 5.0, 0.5, 16.0],
    [10, 1, 4.0, 0.3, 4.0],
    [10, 1, 4.0, 0.3, 16.0],
    [30, 1, 6.0, 0.5, 4.0],
    [20, 3, 3.0, 0.4, 4.0],
    [20, 3, 3.0, 0.4, 16.0],
    [50, 2, 5.0, 0.5, 16.0],
    [10, 1, 3.0, 0.7, 16.0],
]
CLAIM = Claim(
    number=16,
    name="rates-map",
    title="The rates decide between strong alignment and anti-alignment, and simple rules find them",
    statement=(
        "Depending on the learning rates, the inverse temperature and the split, the same data give "
        "a strongly aligned query or one that points away; rules that need no search choose well."
    ),
    meaning=(
        "A careless choice of learning rates makes attention look away from the clue. Setting the "
        "bias's rate by the share of positives, two fifths of the data for the query and a softmax "
        "of sharpness 1 avoids that and comes close to the best choice everywhere that was tried."
    ),
    criterion=(
        "Over readout step and bias step both a cosine above 0.8 and one below 0 take at least 5 % "
        "of the map; query step and inverse temperature leave the cosine alone and enter the "
        "sharpness as η_q β²; the simulated cosine over the map "
        f"{AGREES}. With η_b = 2 log((1-π)/π)/(1-2π) and η_w <= 0.5 the query points away on none "
        "of the random tasks, with a median cosine at most 0.1 below the best bias step's; with two "
        "fifths of the data for it and sharpness 1 the final error is at most 1.5 times the best "
        "over split and sharpness, on every task of the list."
    ),
    settings={
        "full": {
            **COMMON,
            "rates": [0.3, 0.7],
            "readout_steps": np.geomspace(0.1, 300, 25).tolist(),
            "bias_steps": np.linspace(0, 12, 25).tolist(),
            "simulated_readout_steps": [0.3, 3.0, 30.0, 200.0],
            "simulated_bias_steps": [0.0, 2.0, 4.0, 8.0, 12.0],
            "query_steps": [0.1, 1.0, 10.0, 100.0],
            "inverse_temperatures": [0.1, 1.0, 10.0],
            "random_tasks": 400,
            "other_bias_steps": [0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0],
            "tasks": TASKS,
            "shares": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8],
            "sharpnesses": [0.3, 0.6, 1.0, 1.5, 2.5, 5.0, 10.0],
            "tolerance": 2e-3,
            "dimension": 400,
            "trials": 10,
            "noticed": 0.01,
        },
        "quick": {
            **COMMON,
            "rates": [0.3, 0.7],
            "readout_steps": np.geomspace(0.1, 300, 13).tolist(),
            "bias_steps": np.linspace(0, 12, 13).tolist(),
            "simulated_readout_steps": [0.3, 3.0, 200.0],
            "simulated_bias_steps": [0.0, 4.0, 12.0],
            "query_steps": [0.1, 10.0],
            "inverse_temperatures": [0.1, 10.0],
            "random_tasks": 60,
            "other_bias_steps": [0.0, 1.0, 4.0, 16.0],
            "tasks": [TASKS[1], TASKS[6]],
            "shares": [0.2, 0.4, 0.6],
            "sharpnesses": [0.5, 1.0, 2.0, 5.0],
            "tolerance": 4e-3,
            "dimension": 500,
            "trials": 8,
            "noticed": 0.03,
        },
        "tiny": {
            **COMMON,
            "rates": [0.3],
            "readout_steps": [0.1, 10.0, 100.0],
            "bias_steps": [0.0, 4.0, 12.0],
            "simulated_readout_steps": [0.3, 200.0],
            "simulated_bias_steps": [0.0, 12.0],
            "query_steps": [0.1, 10.0],
            "inverse_temperatures": [0.1, 10.0],
            "random_tasks": 15,
            "other_bias_steps": [0.0, 4.0, 16.0],
            "tasks": [TASKS[1]],
            "shares": [0.2, 0.4],
            "sharpnesses": [0.5, 1.0, 5.0],
            "tolerance": 8e-3,
            "dimension": 200,
            "trials": 8,
            "noticed": 0.3,
        },
    },
    measurements=measurements,
    judge=judge,
    draw=draw,
)
