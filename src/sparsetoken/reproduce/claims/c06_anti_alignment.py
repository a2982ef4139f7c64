"""Claim 6: a bias step that does not fit the label balance turns the query away."""

import numpy as np

from sparsetoken.plotting import COLOURS, caption, draw_boundary, look_of, new_figure
from sparsetoken.reproduce.claim import Claim, Drawing, Quantity, Settings, Table, Verdict
from sparsetoken.reproduce.evidence import AGREES, agreement, decide, ratio_of, within
from sparsetoken.reproduce.kinds import alignment, compared, prediction, query_trial
from sparsetoken.reproduce.measurement import Measurement
from sparsetoken.reproduce.panels import draw_pooled_level, grid, label_axes, line_over_dots
from sparsetoken.task import Query, Task, Training
from sparsetoken.theory.alignment import align

__all__ = ["CLAIM"]

COMMON = {
    "length": 10,
    "informative": 1,
    "strength": 2.0,
    "alpha0": 20.0,
    "readout_step": 0.5,
    "loss": "logistic",
}
# Where the query turns with the bias step and the error that it leads to is easy to tell apart.
ERRORS = {
    "error_task": {"length": 20, "informative": 1, "strength": 4.0, "positive_rate": 0.3},
    "error_training": {"alpha0": 20.0, "alpha1": 20.0, "query_step": 200.0, "ridge": 1e-3},
}


def measurements(settings: Settings) -> list[Measurement]:
    """Ask for theory on a fine grid of label balance and bias step, trials on a coarse one."""
    made: list[Measurement] = []
    simulated = [(p, b) for p in settings["simulated_rates"] for b in settings["simulated_steps"]]
    fine = [(p, b) for p in settings["theory_rates"] for b in settings["theory_steps"]]
    for rate, step in dict.fromkeys([*fine, *simulated]):
        task = Task(settings["length"], settings["informative"], settings["strength"], rate)
        training = Training(
            settings["alpha0"],
            1.0,
            loss=settings["loss"],
            readout_step=settings["readout_step"],
            bias_step=step,
        )
        labels = {"positive_rate": rate, "bias_step": step}
        made.append(alignment.ask(task, training, mapped=int((rate, step) in fine), **labels))
        if (rate, step) in simulated:
            made += query_trial.ask_trials(
                settings["map_trials"],
                task,
                training,
                settings["map_dimension"],
                seed=settings["seed"],
                **labels,
            )
    return made + _error_measurements(settings)


def _error_measurements(settings: Settings) -> list[Measurement]:
    """Ask for the final error against the bias step, and for those of pooling and a random query."""
    task = Task.from_dict(settings["error_task"])
    training = Training.from_dict(settings["error_training"])

    def problem(step: float) -> tuple[Task, Training, Query | None]:
        return task, training.replace(bias_step=step), None

    turned = problem(0.0)[1]
    random = Query(0.0, align(task, turned).sharpness)
    tolerance = settings["tolerance"]
    return [
        *compared(
            "bias_step",
            settings["error_steps"],
            settings["simulated_error_steps"],
            problem,
            settings,
            part="error",
        ),
        prediction.ask(task, training, "pooled", tolerance=tolerance, part="error"),
        prediction.ask(task, turned, query=random, tolerance=tolerance, part="random"),
    ]


def judge(table: Table) -> Verdict:
    """Compare signs wherever the predicted cosine stands out of the noise of one trial."""
    pairs = table.select(part=None).paired("alignment", ("positive_rate", "bias_step"))
    rows = Table([row for row, _ in pairs], table.settings)
    predicted = np.array([one.theory for _, one in pairs], dtype=float)
    clear = np.abs(predicted) * np.sqrt(table.settings["map_dimension"]) > 4
    towards = rows.column("positive")
    right = np.where(predicted > 0, towards, 1 - towards)[clear]
    share = float(np.mean(right))
    trials = table.settings["map_trials"] * int(clear.sum())
    correct = Quantity(share, float(np.sqrt(max(share * (1 - share), 0.0) / trials)))
    away = float(np.mean(predicted[clear] < 0))
    cured = [
        rate
        for rate in rows.distinct("positive_rate")
        if _turns(rows.select(positive_rate=rate).ordered("bias_step"))
    ]
    errors = table.select(part="error", classifier="attention")
    away_error = errors.select(source="simulation", bias_step=0.0).largest("dimension")
    turned = away_error.quantity("test_error")
    random = table.select(part="random").quantity("test_error")
    pooled = table.select(part="error", classifier="pooled").quantity("test_error")
    conditions = [
        within("trials with the predicted sign, where it is clear", correct, low=0.98),
        within("clear points that point away", Quantity(away), 0.1, 0.9),
        within(
            "label balances at which a larger bias step turns a query that points away",
            Quantity(len(cured)),
            low=1,
        ),
        within(
            "simulated error of a query that points away over a random one's",
            ratio_of(turned, random),
            low=1.03,
        ),
        within(
            "and over the pooled classifier's",
            ratio_of(turned, pooled),
            low=1.05,
        ),
        agreement("final error", errors, "test_error", ("bias_step",)),
    ]
    numbers = {
        "share of trials with the predicted sign": correct,
        "share of clear points that point away": Quantity(away),
        "clear points": Quantity(int(clear.sum())),
        "simulated error, query pointing away (no bias step)": turned,
        "error of a random query of the same sharpness": random,
        "error of the pooled classifier": pooled,
    }
    return decide(conditions, numbers)


def _turns(rows: Table) -> bool:
    """Whether most trials point away at one bias step and towards at a larger one."""
    towards = rows.column("positive") > 0.5
    return bool(np.any(towards & (np.cumsum(~towards) > 0)))


def draw(table: Table) -> dict[str, Drawing]:
    """Draw the map of signs, and the errors that follow."""
    return {"map": _draw_map(table), "errors": _draw_errors(table)}


def _draw_errors(table: Table) -> Drawing:
    settings = table.settings
    figure, (panel,) = new_figure()
    rows = table.select(part="error")
    attention = rows.select(classifier="attention")
    line_over_dots(panel, attention, "bias_step", "test_error", look_of("attention"))
    draw_pooled_level(panel, rows.select(classifier="pooled").quantity("test_error").value)
    random = table.select(part="random").quantity("test_error").value
    draw_boundary(panel, random, vertical=False, label="random query, same sharpness")
    label_axes(panel, "bias step η_b", "final test error")
    panel.set_ylim(0, None)
    panel.legend()
    shown = {**settings["error_task"], **settings["error_training"]}
    text = caption(
        "Test error of trained attention against the bias step (logistic loss). Without a bias step "
        "the query points away from the signal",
        {**shown, "dimension": settings["dimension"]},
        settings["trials"],
    )
    return Drawing(figure, text)


def _draw_map(table: Table) -> Drawing:
    settings = table.settings
    figure, (panel,) = new_figure(panel_height=3.2)
    theory = table.select(source="theory", mapped=1)
    rates, steps, cosine = grid(theory, "positive_rate", "bias_step", "alignment")
    panel.contourf(
        rates,
        steps,
        cosine,
        levels=[-1, 0, 1],
        colors=[COLOURS["sky"], COLOURS["yellow"]],
        alpha=0.3,
    )
    panel.contour(rates, steps, cosine, levels=[0], colors="black", linewidths=1.4)
    simulated = table.select(source="simulation", part=None)
    kinds = (
        ("towards the signal", 0.5, 1.01, look_of("attention")),
        ("away from it", -0.01, 0.5, look_of("pooled")),
    )
    for label, low, high, look in kinds:
        share = simulated.column("positive")
        chosen = (share > low) & (share <= high)
        panel.plot(
            simulated.column("positive_rate")[chosen],
            simulated.column("bias_step")[chosen],
            look.marker,
            color=look.colour,
            label=f"most trials {label}",
            clip_on=False,
            zorder=3,
        )
    panel.plot([], [], color="black", label="predicted boundary")
    label_axes(panel, "label balance π", "bias step η_b")
    panel.grid(visible=False)
    figure.legend(loc="outside upper center", ncols=1)
    text = caption(
        "Sign of the cosine of query and signal after two gradient steps. Shading and line: theory",
        {**{name: settings[name] for name in COMMON}, "dimension": settings["map_dimension"]},
    )
    return Drawing(figure, text)


CLAIM = Claim(
    number=6,
    name="anti-alignment",
    title="A bias step that does not fit the label balance turns the query away",
    statement=(
        "If the bias's learning rate does not fit the label balance, the query anti-aligns: it "
        "points away from the signal, and the trained classifier is worse than with a random query."
    ),
    meaning=(
        "If clues are rare and the classifier does not first learn how rare, attention learns to "
        "look away from them. The theory draws the border between the two."
    ),
    criterion=(
        "Where the predicted cosine is at least 4 standard deviations of a random one (4/√d), at "
        "least 98 % of the trials have the predicted sign; both signs make up 10 to 90 % of these "
        "points; and for some label balance a larger bias step turns the simulated query round. "
        "Where it points away, the simulated final error is at least 3 % above that of a random "
        "query of the same sharpness and 5 % above the pooled classifier's, and the final error "
        f"against the bias step {AGREES}."
    ),
    settings={
        "full": {
            **COMMON,
            **ERRORS,
            "theory_rates": np.linspace(0.03, 0.75, 37).tolist(),
            "theory_steps": np.linspace(0.0, 12.0, 33).tolist(),
            "simulated_rates": [0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7],
            "simulated_steps": [0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0, 12.0],
            "map_dimension": 1000,
            "map_trials": 5,
            "error_steps": np.linspace(0, 8, 17).tolist(),
            "simulated_error_steps": [0.0, 1.0, 2.0, 4.0, 8.0],
            "tolerance": 5e-4,
            "dimension": 200,
            "trials": 40,
            "noticed": 0.01,
        },
        "quick": {
            **COMMON,
            **ERRORS,
            "theory_rates": np.linspace(0.03, 0.75, 25).tolist(),
            "theory_steps": np.linspace(0.0, 12.0, 21).tolist(),
            "simulated_rates": [0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7],
            "simulated_steps": [0.0, 2.0, 4.0, 6.0, 9.0, 12.0],
            "map_dimension": 500,
            "map_trials": 3,
            "error_steps": np.linspace(0, 8, 9).tolist(),
            "simulated_error_steps": [0.0, 2.0, 4.0],
            "tolerance": 1e-3,
            "dimension": 200,
            "trials": 16,
            "noticed": 0.03,
        },
        "tiny": {
            **COMMON,
            **ERRORS,
            "theory_rates": [0.05, 0.3, 0.6],
            "theory_steps": [0.0, 6.0, 12.0],
            "simulated_rates": [0.05, 0.3, 0.6],
            "simulated_steps": [0.0, 6.0, 12.0],
            "map_dimension": 300,
            "map_trials": 3,
            "error_steps": [0.0, 4.0],
            "simulated_error_steps": [0.0, 4.0],
            "tolerance": 2e-3,
            "dimension": 120,
            "trials": 16,
            "noticed": 0.3,
        },
    },
    measurements=measurements,
    judge=judge,
    draw=draw,
)
