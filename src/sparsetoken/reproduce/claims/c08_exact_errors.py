"""Claim 8: test error and training loss follow the self-consistent equations."""

import numpy as np

from sparsetoken.plotting import (
    caption,
    draw_reference,
    draw_simulation,
    look_of,
    new_figure,
    shared_legend,
)
from sparsetoken.reproduce.claim import Claim, Drawing, Job, Quantity, Settings, Table, Verdict
from sparsetoken.reproduce.evidence import agreement, decide, power_law, within, z_scores
from sparsetoken.reproduce.jobs import compared_jobs, trial_jobs
from sparsetoken.reproduce.panels import label_axes, line_over_dots
from sparsetoken.task import Query, Task, Training

__all__ = ["CLAIM"]

CLASSIFIERS = ("pooled", "vectorised", "attention")
LOSSES = ("logistic", "square")
FIELDS = {"test_error": "test error", "train_loss": "training loss"}
TASK = {"length": 10, "informative": 1, "strength": 5.0, "positive_rate": 0.5}
COMMON = {**TASK, "alpha0": 4.0, "ridge": 1e-5, "query_step": 50.0, "size_ratio": 2.0}


def jobs(settings: Settings) -> list[Job]:
    """Ask for three classifiers and two losses against the sample ratio; then growing dimensions."""
    task = Task.from_dict({name: settings[name] for name in TASK})
    made: list[Job] = []
    for loss in LOSSES:

        def problem(alpha1: float, loss: str = loss) -> tuple[Task, Training, Query | None]:
            options = {"ridge": settings["ridge"], "query_step": settings["query_step"]}
            return task, Training(settings["alpha0"], alpha1, loss=loss, **options), None

        for classifier in CLASSIFIERS:
            made += compared_jobs(
                "alpha1",
                settings["theory_ratios" if classifier == "attention" else "linear_ratios"],
                settings["vectorised_ratios" if classifier == "vectorised" else "simulated_ratios"],
                problem,
                settings,
                classifier,
                loss=loss,
                part="curve",
            )
    task, training, _ = problem(settings["size_ratio"], "logistic")
    for dimension in settings["dimensions"]:
        for trial_job in trial_jobs(
            settings["size_trials"], task, training, dimension, seed=settings["seed"], part="size"
        ):
            # One row for each trial, so that its distance from theory can be squared and averaged.
            labels = {**trial_job.labels, "trial": trial_job.arguments["trial"]}
            made.append(Job(trial_job.kind, trial_job.arguments, labels))
    return made


def finite_size(table: Table) -> tuple[list[int], np.ndarray, np.ndarray]:
    """Return dimensions, root-mean-square distance of one trial from theory, and its error."""
    theory = table.select(
        source="theory",
        part="curve",
        classifier="attention",
        loss="logistic",
        alpha1=table.settings["size_ratio"],
    )
    predicted = float(theory.column("test_error")[0])
    sizes = table.select(part="size")
    dimensions = sorted(sizes.distinct("dimension"))
    squares = [
        (sizes.select(dimension=dimension).column("test_error") - predicted) ** 2
        for dimension in dimensions
    ]
    distance = np.array([np.sqrt(square.mean()) for square in squares])
    # The relative error of a root mean square of n normal values is 1/√(2n).
    error = distance / np.sqrt([2 * len(square) for square in squares])
    return dimensions, distance, error


def judge(table: Table) -> Verdict:
    """Compare all simulated points with theory, and their distance with the dimension."""
    allowance = 0.5 / table.settings["dimension"]
    checks, numbers = [], {}
    for loss in LOSSES:
        for name, what in FIELDS.items():
            pairs = table.select(part="curve", loss=loss).paired(name, ("classifier", "alpha1"))
            checks.append(agreement(f"{loss}, {what}", z_scores(pairs, name, allowance)))
            gap = np.abs(pairs.column(name) - pairs.column("theory"))
            numbers[f"{loss}: largest distance of {what} from theory"] = Quantity(float(gap.max()))
    dimensions, distance, error = finite_size(table)
    slope = power_law(dimensions, distance, error)
    checks.append(within("log-log slope of one trial's distance against d", slope, high=-0.1))
    numbers["slope of one trial's distance from theory against d"] = slope
    numbers[f"that distance at d = {dimensions[-1]}"] = Quantity(
        float(distance[-1]), float(error[-1])
    )
    return decide(checks, numbers)


def draw(table: Table) -> dict[str, Drawing]:
    """Draw the main figure, all losses, and the finite-size error."""
    return {
        "main": _draw_main(table),
        "losses": _draw_losses(table),
        "finite-size": _draw_sizes(table),
    }


def _settings_text(settings: Settings) -> dict[str, object]:
    return {name: settings[name] for name in (*TASK, "alpha0", "ridge", "query_step", "dimension")}


def _draw_main(table: Table) -> Drawing:
    figure, (panel,) = new_figure(panel_height=3.0)
    rows = table.select(part="curve", loss="logistic")
    for classifier in CLASSIFIERS:
        chosen = rows.select(classifier=classifier)
        line_over_dots(panel, chosen, "alpha1", "test_error", look_of(classifier))
    label_axes(panel, "sample ratio α1 = n1/d", "test error", log_x=True)
    panel.set_ylim(0, 0.5)
    panel.legend()
    text = caption(
        "Test error of the three classifiers after training with the logistic loss; attention has "
        "learnt its query from α0 d other samples",
        _settings_text(table.settings),
        table.settings["trials"],
    )
    return Drawing(figure, text)


def _draw_losses(table: Table) -> Drawing:
    figure, panels = new_figure(columns=2, rows=2, panel_height=2.4)
    places = [(loss, name) for name in FIELDS for loss in LOSSES]
    for panel, (loss, name) in zip(panels, places, strict=True):
        rows = table.select(part="curve", loss=loss)
        for classifier in CLASSIFIERS:
            chosen = rows.select(classifier=classifier)
            line_over_dots(panel, chosen, "alpha1", name, look_of(classifier))
        label_axes(panel, "sample ratio α1 = n1/d", FIELDS[name], f"{loss} loss", log_x=True)
        panel.set_ylim(0, None)
    shared_legend(figure)
    text = caption(
        "Test error and training loss of the three classifiers",
        _settings_text(table.settings),
        table.settings["trials"],
    )
    return Drawing(figure, text)


def _draw_sizes(table: Table) -> Drawing:
    figure, (panel,) = new_figure()
    dimensions, distance, error = finite_size(table)
    look = look_of("attention")
    draw_simulation(panel, dimensions, distance, error, look, label="attention, simulation")
    guide = distance[-1] * np.sqrt(dimensions[-1] / np.array(dimensions, dtype=float))
    draw_reference(panel, dimensions, guide, label="slope -1/2")
    label_axes(panel, "dimension d", "distance of one trial from theory", log_x=True, log_y=True)
    panel.set_xticks(dimensions, [str(dimension) for dimension in dimensions], minor=False)
    panel.minorticks_off()
    panel.legend()
    settings = table.settings
    shown = {**_settings_text(settings), "alpha1": settings["size_ratio"]}
    shown["dimension"] = dimensions
    text = caption(
        "Root-mean-square distance of one trial's test error from theory against the dimension "
        f"(logistic loss, {settings['size_trials']} trials each, bars: standard error)",
        shown,
    )
    return Drawing(figure, text)


CLAIM = Claim(
    number=8,
    name="exact-errors",
    title="Theory gives the exact test error and training loss",
    statement=(
        "For any convex loss, test error and training loss after the last stage converge to the "
        "solution of the self-consistent equations as the dimension grows."
    ),
    meaning=(
        "Five equations predict, before any training, how many mistakes each classifier will make. "
        "The dots are real trainings; they fall on the predicted lines."
    ),
    criterion=(
        "For logistic and square loss and three classifiers, simulated test error and training "
        "loss agree with theory at every sample ratio (all |z| < 4, mean square < 2, 0.5/d added "
        "to the standard error), and the distance of one trial from theory shrinks with d: log-log "
        "slope below -0.1 by two standard errors."
    ),
    settings={
        "full": {
            **COMMON,
            "tolerance": 5e-4,
            "theory_ratios": np.geomspace(0.25, 16, 25).tolist(),
            "linear_ratios": np.geomspace(0.25, 16, 61).tolist(),
            "simulated_ratios": [0.5, 0.75, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0],
            "vectorised_ratios": [0.5, 1.0, 2.0, 4.0],
            "dimension": 1000,
            "trials": 8,
            "dimensions": [250, 500, 1000, 2000],
            "size_trials": 24,
        },
        "quick": {
            **COMMON,
            "tolerance": 1e-3,
            "theory_ratios": np.geomspace(0.25, 16, 19).tolist(),
            "linear_ratios": np.geomspace(0.25, 16, 43).tolist(),
            "simulated_ratios": [0.5, 2.0, 4.0, 8.0],
            "vectorised_ratios": [0.5, 1.0, 2.0],
            "dimension": 200,
            "trials": 6,
            "dimensions": [50, 150, 450],
            "size_trials": 60,
        },
        "tiny": {
            **COMMON,
            "tolerance": 2e-3,
            "theory_ratios": [0.5, 2.0],
            "linear_ratios": [0.5, 2.0],
            "simulated_ratios": [2.0],
            "vectorised_ratios": [0.5],
            "dimension": 60,
            "trials": 4,
            "dimensions": [20, 160],
            "size_trials": 16,
        },
    },
    jobs=jobs,
    judge=judge,
    draw=draw,
)
