"""Question 7: is Gaussian noise essential?"""

import numpy as np

from sparsetoken.plotting import COLOURS, caption, draw_boundary, look_of, new_figure, shared_legend
from sparsetoken.reproduce.claim import Claim, Drawing, Quantity, Settings, Table, Verdict
from sparsetoken.reproduce.evidence import Condition, decide, ratio_of, within
from sparsetoken.reproduce.measurement import Measurement
from sparsetoken.reproduce.panels import label_axes
from sparsetoken.reproduce.plain_data import NOISES, plain_trial
from sparsetoken.task import Task, Training
from sparsetoken.theory.alignment import with_sharpness

__all__ = ["CLAIM"]

TASK = {"length": 10, "informative": 1, "strength": 4.0, "positive_rate": 0.5}
COMMON = {**TASK, "alpha0": 4.0, "alpha1": 4.0, "ridge": 1e-2, "sharpness": 1.5}
UNCORRELATED = ("rademacher", "student", "digits, whitened")
CORRELATED = ("correlated tokens", "correlated coordinates", "digits")


def measurements(settings: Settings) -> list[Measurement]:
    """Ask for trials with each kind of noise, all of unit variance."""
    task = Task.from_dict({name: settings[name] for name in TASK})
    training = Training(settings["alpha0"], settings["alpha1"], ridge=settings["ridge"])
    training = with_sharpness(task, training, settings["sharpness"])
    return [
        one
        for noise in NOISES
        for one in plain_trial.ask_trials(
            settings["trials"],
            task,
            training,
            dimension=settings["dimension"],
            noise=noise,
            fresh=settings["fresh"],
            seed=settings["seed"],
            noise_is=noise,
        )
    ]


def ratio_to_gaussian(table: Table, noise: str, name: str) -> Quantity:
    """Return the mean error with a noise over that with Gaussian noise."""
    found = table.select(noise_is=noise).quantity(name)
    usual = table.select(noise_is="gaussian").quantity(name)
    return ratio_of(found, usual)


def judge(table: Table) -> Verdict:
    """Compare errors with those of Gaussian noise of the same dimension."""
    bound = table.settings["bound"]
    conditions: list[Condition] = []
    numbers: dict[str, Quantity] = {
        f"{noise}: attention's error": table.select(noise_is=noise).quantity("test_error")
        for noise in NOISES
    }
    for noise in UNCORRELATED:
        for name, what in (("test_error", "attention"), ("pooled_error", "pooling")):
            ratio = ratio_to_gaussian(table, noise, name)
            said = f"{noise}: error of {what} over that with Gaussian noise"
            numbers[said] = ratio
            conditions.append(within(said, ratio, 1 - bound, 1 + bound))
    for noise in CORRELATED:
        ratios = [ratio_to_gaussian(table, noise, name) for name in ("test_error", "pooled_error")]
        change = max(ratios, key=lambda ratio: abs(ratio.value - 1))
        said = f"{noise}: the larger change of an error, relative"
        numbers[said] = Quantity(abs(change.value - 1), change.uncertainty)
        conditions.append(within(said, numbers[said], low=table.settings["change"]))
    return decide(conditions, numbers)


def draw(table: Table) -> dict[str, Drawing]:
    """Draw both errors for each noise."""
    settings = table.settings
    figure, (panel,) = new_figure(panel_height=3.0)
    order = ("gaussian", *UNCORRELATED, *CORRELATED)
    for shift, name, classifier in (
        (-0.1, "test_error", "attention"),
        (0.1, "pooled_error", "pooled"),
    ):
        look = look_of(classifier)
        found = [table.select(noise_is=noise).quantity(name) for noise in order]
        panel.errorbar(
            [one.value for one in found],
            np.arange(len(order)) + shift,
            xerr=[one.uncertainty or 0.0 for one in found],
            fmt=look.marker,
            color=look.colour,
            label=look.label,
        )
        draw_boundary(panel, found[0].value, color=look.colour, linestyle=":")
    panel.axhline(len(UNCORRELATED) + 0.5, color=COLOURS["grey"], linewidth=0.8)
    panel.set_yticks(range(len(order)), order)
    panel.invert_yaxis()
    label_axes(panel, "test error", "", log_x=True)
    shared_legend(figure, columns=2)
    text = caption(
        "Test error on plain sequences with noise of several laws, all of unit variance (logistic "
        "loss); dotted: Gaussian noise; below the line: correlated noise. Bars: standard errors",
        {name: settings[name] for name in (*COMMON, "dimension", "trials")},
    )
    return {"noise": Drawing(figure, text)}


def _wanted(bound: float, change: float | None = None) -> Settings:
    """Return by how much errors may differ without correlation, and must with it."""
    return {"bound": bound, "change": bound if change is None else change}


CLAIM = Claim(
    series="question",
    number=7,
    name="noise",
    title="Is Gaussian noise essential? No, but uncorrelated noise is",
    statement=(
        "No: with noise of the same mean and variance but another law, even digits' images once "
        "whitened, errors are the same; correlation between tokens or coordinates changes them."
    ),
    meaning=(
        "What the noise looks like hardly matters, since many small disturbances add up to the same "
        "thing. What matters is whether they are independent: real embeddings should be whitened "
        "before the theory is applied to them."
    ),
    criterion=(
        "Errors of attention and of pooling with Rademacher noise, Student's t with 5 degrees and "
        "whitened images lie within 15 % (quick version: 20 %) of those with Gaussian noise, by two "
        "standard errors; with correlated tokens, correlated coordinates and raw images at least one "
        "of the two changes by more than that."
    ),
    settings={
        "full": {**COMMON, "dimension": 100, "trials": 40, "fresh": 3000, **_wanted(0.15)},
        "quick": {**COMMON, "dimension": 60, "trials": 20, "fresh": 3000, **_wanted(0.2)},
        "tiny": {**COMMON, "dimension": 60, "trials": 10, "fresh": 1500, **_wanted(0.35, 0.15)},
    },
    measurements=measurements,
    judge=judge,
    draw=draw,
)
