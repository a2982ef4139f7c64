"""Claim 8: test error and training loss follow the self-consistent equations."""

import numpy as np

from sparsetoken.arrays import Array
from sparsetoken.losses import Loss, loss_names, register_loss
from sparsetoken.plotting import (
    caption,
    draw_reference,
    draw_simulation,
    look_of,
    new_figure,
    shared_legend,
)
from sparsetoken.reproduce.claim import Claim, Drawing, Quantity, Settings, Table, Verdict
from sparsetoken.reproduce.evidence import (
    AGREES,
    against_theory,
    agreement,
    decide,
    power_law,
    within,
)
from sparsetoken.reproduce.kinds import compared, prediction, trial
from sparsetoken.reproduce.measurement import Measurement
from sparsetoken.reproduce.panels import label_axes, line_over_dots
from sparsetoken.task import Query, Task, Training

__all__ = ["CLAIM", "HuberHinge", "prediction", "trial"]

CLASSIFIERS = ("pooled", "vectorised", "attention")
LOSSES = ("logistic", "square")
OTHER_LOSSES = ("hinge", "squared_hinge", "huber_hinge")
OTHER_CLASSIFIERS = ("pooled", "attention")
FIELDS = {"test_error": "test error", "train_loss": "training loss"}
TASK = {"length": 10, "informative": 1, "strength": 5.0, "positive_rate": 0.5}
COMMON = {
    **TASK,
    "alpha0": 4.0,
    "ridge": 1e-5,
    # Large enough that attention, too, has a training loss to compare under a hinge.
    "other_ridge": 0.1,
    "query_step": 50.0,
    "size_ratio": 2.0,
}


class HuberHinge(Loss):
    """A squared hinge that grows like a line below a margin of -1: a loss that a user might make."""

    name = "huber_hinge"
    minimisers = (1.0, np.inf)
    breakpoints = (-1.0, 1.0)
    piecewise_quadratic = True

    def value(self, margin: Array) -> Array:
        """Return gap²/2 for a gap of at most 2 below a margin of 1, and 2 gap - 2 beyond."""
        gap = np.maximum(1 - margin, 0.0)
        return np.asarray(np.where(gap <= 2, 0.5 * gap**2, 2 * gap - 2))

    def slope(self, margin: Array) -> Array:
        """Return the first derivative."""
        return np.asarray(np.clip(margin - 1, -2.0, 0.0))

    def curvature(self, margin: Array) -> Array:
        """Return the second derivative."""
        return np.asarray(np.where((margin > -1) & (margin < 1), 1.0, 0.0))


def _know_own_loss() -> None:
    if HuberHinge.name not in loss_names():
        register_loss(HuberHinge())


# Processes that compute this claim's measurements import this module, and so know the loss.
_know_own_loss()


def measurements(settings: Settings) -> list[Measurement]:
    """Ask for classifiers and losses against the sample ratio; then growing dimensions."""
    _know_own_loss()
    task = Task.from_dict({name: settings[name] for name in TASK})

    def training(loss: str, ridge: float, alpha1: float) -> Training:
        rest = {"ridge": ridge, "query_step": settings["query_step"]}
        return Training(settings["alpha0"], alpha1, loss=loss, **rest)

    def curve(
        loss: str, ridge: float, classifier: str, points: list[float], simulated: list[float]
    ) -> list[Measurement]:
        def problem(alpha1: float) -> tuple[Task, Training, Query | None]:
            return task, training(loss, ridge, alpha1), None

        labels = {"loss": loss, "part": "curve"}
        return compared(
            "alpha1", points, simulated, problem, settings, classifier, __name__, **labels
        )

    made: list[Measurement] = []
    for loss in LOSSES:
        for classifier in CLASSIFIERS:
            points = settings["theory_ratios" if classifier == "attention" else "linear_ratios"]
            simulated = "vectorised_ratios" if classifier == "vectorised" else "simulated_ratios"
            made += curve(loss, settings["ridge"], classifier, points, settings[simulated])
    for loss in OTHER_LOSSES:
        for classifier in OTHER_CLASSIFIERS:
            points, simulated = settings["other_theory_ratios"], settings["other_ratios"]
            made += curve(loss, settings["other_ridge"], classifier, points, simulated)
    size = training("logistic", settings["ridge"], settings["size_ratio"])
    for dimension in settings["dimensions"]:
        trials = trial.ask_trials(
            settings["size_trials"],
            task,
            size,
            dimension=dimension,
            seed=settings["seed"],
            part="size",
        )
        # One row for each trial, so that its distance from theory can be squared and averaged.
        made += [one.labelled(trial=number) for number, one in enumerate(trials)]
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
    conditions, numbers = [], {}
    for loss in (*LOSSES, *OTHER_LOSSES):
        rows = table.select(part="curve", loss=loss)
        for name, what in FIELDS.items():
            keys = ("classifier", "alpha1")
            conditions.append(agreement(f"{loss}, {what}", rows, name, keys))
            found = against_theory(rows, name, keys)
            gap = np.abs(found.limit - found.theory)
            numbers[f"{loss}: largest distance of {what} from theory"] = Quantity(float(gap.max()))
    dimensions, distance, error = finite_size(table)
    slope = power_law(dimensions, distance, error)
    conditions.append(within("log-log slope of one trial's distance against d", slope, high=-0.1))
    numbers["slope of one trial's distance from theory against d"] = slope
    numbers[f"that distance at d = {dimensions[-1]}"] = Quantity(
        float(distance[-1]), float(error[-1])
    )
    return decide(conditions, numbers)


def draw(table: Table) -> dict[str, Drawing]:
    """Draw the main figure, all losses, and the finite-size error."""
    return {
        "main": _draw_main(table),
        "losses": _draw_losses(table, LOSSES, CLASSIFIERS, "ridge"),
        "other-losses": _draw_losses(table, OTHER_LOSSES, OTHER_CLASSIFIERS, "other_ridge"),
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


def _draw_losses(
    table: Table, losses: tuple[str, ...], classifiers: tuple[str, ...], ridge: str
) -> Drawing:
    figure, panels = new_figure(columns=len(losses), rows=2, panel_height=2.4)
    places = [(loss, name) for name in FIELDS for loss in losses]
    for panel, (loss, name) in zip(panels, places, strict=True):
        rows = table.select(part="curve", loss=loss)
        for classifier in classifiers:
            chosen = rows.select(classifier=classifier)
            line_over_dots(panel, chosen, "alpha1", name, look_of(classifier))
        title = f"{loss.replace('_', ' ')} loss"
        label_axes(panel, "sample ratio α1 = n1/d", FIELDS[name], title, log_x=True)
        panel.set_ylim(0, None)
    shared_legend(figure)
    shown = {**_settings_text(table.settings), "ridge": table.settings[ridge]}
    text = caption(
        "Test error and training loss of trained classifiers", shown, table.settings["trials"]
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
        "For logistic and square loss with three classifiers, and hinge, squared hinge and a "
        "user-made loss with two, the simulated test error of each loss, and its training loss, "
        f"{AGREES}; and the distance of one trial from theory shrinks with d: log-log slope below "
        "-0.1 by two standard errors."
    ),
    settings={
        "full": {
            **COMMON,
            "tolerance": 5e-4,
            "theory_ratios": np.geomspace(0.25, 16, 25).tolist(),
            "linear_ratios": np.geomspace(0.25, 16, 61).tolist(),
            "simulated_ratios": [0.5, 0.75, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0],
            "vectorised_ratios": [0.5, 1.0, 2.0, 4.0],
            "dimension": 400,
            "trials": 88,
            "noticed": 0.01,
            "other_theory_ratios": np.geomspace(0.5, 16, 11).tolist(),
            "other_ratios": [1.0, 2.0, 4.0, 8.0],
            "dimensions": [125, 250, 500, 1000],
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
            "trials": 48,
            "noticed": 0.03,
            "other_theory_ratios": [0.5, 1.0, 2.0, 4.0, 8.0],
            "other_ratios": [2.0, 8.0],
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
            "dimension": 80,
            "trials": 12,
            "noticed": 2.0,
            "other_theory_ratios": [2.0],
            "other_ratios": [2.0],
            "dimensions": [20, 160],
            "size_trials": 16,
        },
    },
    measurements=measurements,
    judge=judge,
    draw=draw,
)
