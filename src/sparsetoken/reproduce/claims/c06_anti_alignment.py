"""Claim 6: a bias step that does not fit the label balance turns the query away."""

import numpy as np

from sparsetoken.plotting import COLOURS, caption, look_of, new_figure
from sparsetoken.reproduce.claim import Claim, Drawing, Job, Quantity, Settings, Table, Verdict
from sparsetoken.reproduce.evidence import decide, within
from sparsetoken.reproduce.jobs import alignment_job, query_trials
from sparsetoken.reproduce.panels import label_axes
from sparsetoken.task import Task, Training

__all__ = ["CLAIM"]

COMMON = {
    "length": 10,
    "informative": 1,
    "strength": 2.0,
    "alpha0": 20.0,
    "readout_step": 0.5,
    "loss": "logistic",
}


def jobs(settings: Settings) -> list[Job]:
    """Ask for theory on a fine grid of label balance and bias step, trials on a coarse one."""
    made: list[Job] = []
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
        made.append(alignment_job(task, training, mapped=int((rate, step) in fine), **labels))
        if (rate, step) in simulated:
            made += query_trials(
                settings["trials"],
                task,
                training,
                settings["dimension"],
                settings["seed"],
                **labels,
            )
    return made


def judge(table: Table) -> Verdict:
    """Compare signs wherever the predicted cosine stands out of the noise of one trial."""
    pairs = table.paired("alignment", ("positive_rate", "bias_step"))
    predicted = pairs.column("theory")
    clear = np.abs(predicted) * np.sqrt(table.settings["dimension"]) > 4
    towards = pairs.column("positive")
    right = np.where(predicted > 0, towards, 1 - towards)[clear]
    share = float(np.mean(right))
    trials = table.settings["trials"] * int(clear.sum())
    correct = Quantity(share, float(np.sqrt(max(share * (1 - share), 0.0) / trials)))
    away = float(np.mean(predicted[clear] < 0))
    cured = [
        rate
        for rate in table.distinct("positive_rate")
        if _turns(pairs.select(positive_rate=rate).ordered("bias_step"))
    ]
    checks = [
        within("trials with the predicted sign, where it is clear", correct, low=0.98),
        within("clear points that point away", Quantity(away), 0.1, 0.9),
        within(
            "label balances at which a larger bias step turns a query that points away",
            Quantity(len(cured)),
            low=1,
        ),
    ]
    numbers = {
        "share of trials with the predicted sign": correct,
        "share of clear points that point away": Quantity(away),
        "clear points": Quantity(int(clear.sum())),
    }
    return decide(checks, numbers)


def _turns(rows: Table) -> bool:
    """Whether most trials point away at one bias step and towards at a larger one."""
    towards = rows.column("positive") > 0.5
    return bool(np.any(towards & (np.cumsum(~towards) > 0)))


def draw(table: Table) -> dict[str, Drawing]:
    """Draw the simulated signs and the predicted boundary."""
    settings = table.settings
    figure, (panel,) = new_figure(panel_height=3.2)
    theory = table.select(source="theory", mapped=1)
    rates = np.array(sorted(theory.distinct("positive_rate")))
    steps = np.array(sorted(theory.distinct("bias_step")))
    cosine = np.empty((len(steps), len(rates)))
    for row in theory.rows:
        place = (
            np.searchsorted(steps, row["bias_step"]),
            np.searchsorted(rates, row["positive_rate"]),
        )
        cosine[place] = row["alignment"]
    panel.contourf(
        rates,
        steps,
        cosine,
        levels=[-1, 0, 1],
        colors=[COLOURS["sky"], COLOURS["yellow"]],
        alpha=0.3,
    )
    panel.contour(rates, steps, cosine, levels=[0], colors="black", linewidths=1.4)
    simulated = table.select(source="simulation")
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
        {name: settings[name] for name in (*COMMON, "dimension", "trials")},
    )
    return {"map": Drawing(figure, text)}


CLAIM = Claim(
    number=6,
    name="anti-alignment",
    title="A bias step that does not fit the label balance turns the query away",
    statement=(
        "If the bias's learning rate does not fit the label balance, the query anti-aligns: it "
        "points away from the signal."
    ),
    meaning=(
        "If clues are rare and the classifier does not first learn how rare, attention learns to "
        "look away from them. The theory draws the border between the two."
    ),
    criterion=(
        "Where the predicted cosine is at least 4 standard deviations of a random one (4/√d), at "
        "least 98 % of the trials have the predicted sign; both signs make up 10 to 90 % of these "
        "points; and for some label balance a larger bias step turns the simulated query round."
    ),
    settings={
        "full": {
            **COMMON,
            "theory_rates": np.linspace(0.03, 0.75, 37).tolist(),
            "theory_steps": np.linspace(0.0, 12.0, 33).tolist(),
            "simulated_rates": [0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7],
            "simulated_steps": [0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0, 12.0],
            "dimension": 1000,
            "trials": 5,
        },
        "quick": {
            **COMMON,
            "theory_rates": np.linspace(0.03, 0.75, 25).tolist(),
            "theory_steps": np.linspace(0.0, 12.0, 21).tolist(),
            "simulated_rates": [0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7],
            "simulated_steps": [0.0, 2.0, 4.0, 6.0, 9.0, 12.0],
            "dimension": 500,
            "trials": 3,
        },
        "tiny": {
            **COMMON,
            "theory_rates": [0.05, 0.3, 0.6],
            "theory_steps": [0.0, 6.0, 12.0],
            "simulated_rates": [0.05, 0.3, 0.6],
            "simulated_steps": [0.0, 6.0, 12.0],
            "dimension": 300,
            "trials": 3,
        },
    },
    jobs=jobs,
    judge=judge,
    draw=draw,
)
