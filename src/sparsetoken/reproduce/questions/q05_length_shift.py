"""Question 5: does a classifier trained on short sequences work on long ones?"""

from sparsetoken.plotting import (
    COLOURS,
    Look,
    caption,
    draw_theory,
    look_of,
    new_figure,
    shared_legend,
)
from sparsetoken.reproduce.claim import Claim, Drawing, Quantity, Settings, Table, Verdict
from sparsetoken.reproduce.evidence import AGREES, agreement, decide, within
from sparsetoken.reproduce.kinds import at_two_sizes, oracle_error, prediction, trial
from sparsetoken.reproduce.measurement import Measurement
from sparsetoken.reproduce.panels import label_axes, line_over_dots
from sparsetoken.task import Task, Training
from sparsetoken.theory.alignment import with_sharpness

__all__ = ["CLAIM"]

TASK = {"length": 10, "informative": 1, "strength": 5.0, "positive_rate": 0.5}
COMMON = {**TASK, "alpha0": 4.0, "alpha1": 4.0, "ridge": 1e-2, "sharpness": 1.5}
REPAIRS = {
    "bias": Look("threshold chosen anew", COLOURS["green"], "^"),
    "sharpness": Look("threshold and softmax chosen anew", COLOURS["sky"], "v"),
}


def measurements(settings: Settings) -> list[Measurement]:
    """Ask for errors on longer sequences: as trained, repaired, and trained there."""
    task = Task.from_dict({name: settings[name] for name in TASK})
    plain = Training(settings["alpha0"], settings["alpha1"], ridge=settings["ridge"])
    training = with_sharpness(task, plain, settings["sharpness"])
    tolerance = settings["tolerance"]
    made: list[Measurement] = []
    for length in settings["lengths"]:
        there = task.replace(length=length)
        labels = {"at_length": length}
        made.append(
            prediction.ask(task, training, tolerance=tolerance, at=there, use="as it is", **labels)
        )
        own = with_sharpness(there, plain, settings["sharpness"])
        made.append(prediction.ask(there, own, tolerance=tolerance, use="trained there", **labels))
        made.append(oracle_error.ask(there, "attention", use="oracle", **labels))
        made += [
            prediction.ask(
                task,
                training,
                tolerance=tolerance,
                at=there,
                at_sharpness="best" if repair == "sharpness" else None,
                recalibrate=True,
                use=repair,
                **labels,
            )
            for repair in REPAIRS
        ]
        if length in settings["simulated_lengths"]:
            made += at_two_sizes(
                settings, trial, task, training, at=there, use="as it is", **labels
            )
    return made


def judge(table: Table) -> Verdict:
    """Compare the uses at the longest length, and simulation with theory."""
    longest = max(table.settings["lengths"])
    rows = table.select(at_length=longest, source="theory")
    as_it_is = rows.select(use="as it is").quantity("test_error").value
    there = rows.select(use="trained there").quantity("test_error").value
    bias, both = (rows.select(use=name).quantity("test_error").value for name in REPAIRS)
    best = rows.select(use="oracle").quantity("test_error").value
    trained = table.select(at_length=table.settings["length"], use="as it is", source="theory")
    own = trained.quantity("test_error").value
    conditions = [
        within(
            "error on the longest over that on the training length", Quantity(as_it_is / own), 3
        ),
        within(
            "error on the longest over that of a classifier trained there",
            Quantity(as_it_is / there),
            high=1.0,
        ),
        within(
            "with a new threshold, over the error as it is", Quantity(bias / as_it_is), high=0.7
        ),
        within("with a new threshold, over the oracle's error", Quantity(bias / best), high=1.5),
        within("a new softmax too, over a new threshold", Quantity(both / bias), low=0.8),
        agreement(
            "error on longer sequences",
            table.select(use="as it is"),
            "test_error",
            ("at_length",),
        ),
    ]
    numbers = {
        "error on the training length": Quantity(own),
        f"error at L = {longest}, as it is": Quantity(as_it_is),
        f"error at L = {longest}, threshold chosen anew": Quantity(bias),
        f"error at L = {longest}, threshold and softmax chosen anew": Quantity(both),
        f"error at L = {longest}, trained there with as many samples": Quantity(there),
        f"error at L = {longest}, attention that knows the signal": Quantity(best),
    }
    return decide(conditions, numbers)


def draw(table: Table) -> dict[str, Drawing]:
    """Draw errors against the length at test time."""
    settings = table.settings
    figure, (panel,) = new_figure(panel_height=3.5)
    as_it_is = table.select(use="as it is")
    look = look_of("attention").named("as it is")
    line_over_dots(panel, as_it_is, "at_length", "test_error", look)
    for repair, look in REPAIRS.items():
        rows = table.select(use=repair)
        draw_theory(panel, rows.column("at_length"), rows.column("test_error"), look)
    there = table.select(use="trained there")
    look = Look("trained on that length", COLOURS["purple"], "P")
    draw_theory(panel, there.column("at_length"), there.column("test_error"), look)
    oracle = table.select(use="oracle")
    look = Look("signal known", COLOURS["black"], "*")
    draw_theory(panel, oracle.column("at_length"), oracle.column("test_error"), look)
    label_axes(panel, "tokens L at test time", "test error", log_x=True, log_y=True)
    shared_legend(figure, columns=2)
    text = caption(
        f"Test error of attention trained on sequences of {settings['length']} tokens and used on "
        "longer ones (logistic loss)",
        {name: settings[name] for name in (*COMMON, "dimension")},
        settings["trials"],
    )
    return {"shift": Drawing(figure, text)}


CLAIM = Claim(
    series="question",
    number=5,
    name="length-shift",
    title="Does training on short sequences serve long ones? Better than training on long ones",
    statement=(
        "Yes: it errs more often on long sequences than on short ones, but less often than a "
        "classifier trained on as many long ones, and a new threshold repairs most of the loss."
    ),
    meaning=(
        "Clues are easier to learn from short texts, where they are not buried, so that it pays to "
        "train on short texts even if long ones are meant. Before use on long texts the threshold "
        "should be set anew; sharpening the attention adds little."
    ),
    criterion=(
        "At the longest L the predicted error of a classifier trained on short sequences is at "
        "least 3 times that on its own length, below that of one trained there with as many "
        "samples, at most 0.7 of itself and 1.5 of the oracle's with a new threshold, of which a "
        "new softmax takes off at most a fifth more. The simulated error on longer sequences "
        f"{AGREES} (here: 5 %, quick version 20 %)."
    ),
    settings={
        "full": {
            **COMMON,
            "lengths": [10, 18, 30, 56, 100, 180, 300],
            "simulated_lengths": [10, 30, 100, 300],
            "tolerance": 5e-4,
            "dimension": 200,
            "trials": 60,
            "noticed": 0.05,
        },
        "quick": {
            **COMMON,
            "lengths": [10, 30, 100, 300],
            "simulated_lengths": [30, 300],
            "tolerance": 1e-3,
            "dimension": 200,
            "trials": 16,
            "noticed": 0.2,
        },
        "tiny": {
            **COMMON,
            "lengths": [10, 200],
            "simulated_lengths": [200],
            "tolerance": 2e-3,
            "dimension": 80,
            "trials": 12,
            "noticed": 1.0,
        },
    },
    measurements=measurements,
    judge=judge,
    draw=draw,
)
