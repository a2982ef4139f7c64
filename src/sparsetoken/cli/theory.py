"""`sparsetoken predict`, `align`, `capacity` and `oracle`: exact theory on the command line."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import click

from sparsetoken.cli.options import (
    at_options,
    curve_options,
    curve_values,
    json_option,
    query_options,
    read_at,
    read_query,
    read_task,
    read_training,
    refuse_curve_options,
    task_options,
    training_options,
)
from sparsetoken.cli.output import (
    Measured,
    check_picture,
    draw_curve,
    print_curve,
    print_json,
    print_record,
)
from sparsetoken.task import Query, Task, Training, vary
from sparsetoken.validation import ParameterError

__all__ = ["align", "capacity", "oracle", "predict", "prediction_record"]

Record = dict[str, Measured]
Settings = tuple[Task | Training | Query | None, ...]
Evaluate = Callable[..., Record]

_ORDER_PARAMETERS = ("along", "across", "bias", "rest", "susceptibility")
# The fields that matter to what: a curve over another one would be flat.
_TASK = tuple(item.name for item in fields(Task))
_QUERY = tuple(item.name for item in fields(Query))
_LEARNING = ("alpha0", "readout_step", "bias_step", "query_step", "inverse_temperature")
_READOUT = ("alpha1", "ridge")

_PREDICT_WORDS = """\b
Words in the table, of the trained readout:
  along           its part along the query
  across          its part along what the query misses of the signal
  rest            the norm of all else in it
  susceptibility  how far a training sample moves its own output, per unit slope of the loss
"""
_ALIGN_WORDS = """\b
Words in the table:
  rate constant  C in |alignment| = 1 - C/alpha0, for large alpha0
  anti aligned   whether the query points away from the signal; cause and cure then say why, and
                 which step turns it: a larger --bias-step helps only if positives are rare
"""
_CAPACITY_WORDS = """\b
Words in the table:
  alpha  samples per dimension (n1/d) up to which the classes can be separated without error
"""
# Left out of the table of a curve, for room.
_NOT_IN_CURVES = (*_ORDER_PARAMETERS, "status", "cause", "cure")


def prediction_record(prediction: Any) -> Record:
    """Return the quantities of a `Prediction` with their errors."""
    uncertainty, parameters = prediction.uncertainty, prediction.order_parameters
    record: Record = {
        "test_error": (prediction.test_error, uncertainty.test_error),
        "train_loss": (prediction.train_loss, uncertainty.train_loss),
        "train_error": (prediction.train_error, uncertainty.train_error),
    }
    if prediction.margin is not None:
        record["margin"] = (prediction.margin, uncertainty.margin)
    if prediction.query is not None:
        record["alignment"] = (prediction.query.alignment, None)
        record["sharpness"] = (prediction.query.sharpness, None)
    for name in _ORDER_PARAMETERS:
        record[name] = (getattr(parameters, name), None)
    record["status"] = (prediction.solution.message, None)
    return record


@click.command(epilog=_PREDICT_WORDS)
@task_options
@training_options
@query_options
@click.option(
    "--classifier", default="attention", show_default=True, help="attention, pooled or vectorised."
)
@at_options
@click.option(
    "--tolerance",
    type=float,
    default=1e-4,
    show_default=True,
    help="Wanted numerical error of the test error.",
)
@curve_options("alpha1")
@json_option
def predict(classifier: str, tolerance: float, **options: Any) -> None:
    """Predict test error, training loss and training error after training."""
    from sparsetoken.theory.prediction import curve
    from sparsetoken.theory.prediction import predict as predict_once

    task, training, query = read_task(options), read_training(options), read_query(options)
    at = read_at(options, task)

    def along(over: str, values: Iterable[float]) -> list[Record]:
        found = curve(task, training, over, values, classifier, query, at, tolerance)
        return [prediction_record(item) for item in found]

    def once() -> Record:
        return prediction_record(predict_once(task, training, classifier, query, at, tolerance))

    matter = (*_TASK, *_READOUT, *_query_fields(classifier, query))
    shown = ("test_error", "train_loss")
    _show(classifier, (task, training, query), options, once, along, shown, matter)


@click.command(epilog=_ALIGN_WORDS)
@task_options
@training_options
@curve_options("alpha0")
@json_option
def align(**options: Any) -> None:
    """Predict the query after two gradient steps: its cosine with the signal, and its size."""
    from dataclasses import asdict

    from sparsetoken.theory.alignment import align as align_once

    def evaluate(task: Task, training: Training) -> Record:
        found = asdict(align_once(task, training))
        return {name: (value, None) for name, value in found.items() if value is not None}

    settings = (read_task(options), read_training(options))
    shown = ("alignment", "readout_cosine")
    _show_each("attention", settings, options, evaluate, shown, (*_TASK, *_LEARNING))


@click.command(epilog=_CAPACITY_WORDS)
@task_options
@training_options
@query_options
@click.option(
    "--classifier", default="attention", show_default=True, help="attention, pooled or vectorised."
)
@curve_options("strength")
@json_option
def capacity(classifier: str, **options: Any) -> None:
    """Predict how many samples per dimension a classifier can separate."""
    from sparsetoken.theory.capacity import capacity as capacity_once

    def evaluate(task: Task, training: Training, query: Query | None) -> Record:
        found = capacity_once(task, query, training, classifier)
        record: Record = {"alpha": (found.alpha, found.uncertainty)}
        if found.query is not None:
            record["alignment"] = (found.query.alignment, None)
            record["sharpness"] = (found.query.sharpness, None)
        record["status"] = (found.solution.message, None)
        return record

    settings = (read_task(options), read_training(options), read_query(options))
    matter = (*_TASK, *_query_fields(classifier, settings[2]))
    _show_each(classifier, settings, options, evaluate, ("alpha",), matter)


def _query_fields(classifier: str, query: Query | None) -> tuple[str, ...]:
    """Return the fields that the query depends on."""
    if classifier != "attention":
        return ()
    return _LEARNING if query is None else _QUERY


@click.command()
@task_options
@click.option(
    "--classifier",
    default="attention",
    show_default=True,
    help="attention, pooled, vectorised, elementwise or bayes.",
)
@click.option(
    "--nonlinearity",
    default="sigmoid",
    show_default=True,
    help="For elementwise: sigmoid, tanh, linear or exp.",
)
@click.option("--sharpness", type=float, help="A fixed sharpness (κ) instead of the best.")
@click.option("--error", type=float, help="Ask instead for the strength that reaches this error.")
@curve_options("strength or length")
@json_option
def oracle(
    classifier: str, nonlinearity: str, sharpness: float | None, error: float | None, **options: Any
) -> None:
    """Predict the least error of a classifier that knows the signal."""
    from sparsetoken.theory.oracle import oracle as oracle_once
    from sparsetoken.theory.oracle import required_strength

    def evaluate(task: Task) -> Record:
        if error is not None:
            needed = required_strength(task, error, classifier, nonlinearity)
            return {
                "required_strength": (needed.strength, needed.uncertainty),
                "sharpness": (needed.sharpness, None),
            }
        found = oracle_once(task, classifier, nonlinearity, sharpness)
        return {
            "error": (found.error, found.uncertainty),
            "sharpness": (found.sharpness, None),
            "threshold": (found.threshold, None),
        }

    shown = ("error",) if error is None else ("required_strength",)
    matter = [name for name in _TASK if error is None or name != "strength"]
    _show_each(classifier, (read_task(options),), options, evaluate, shown, matter)


def _show_each(
    classifier: str,
    settings: Settings,
    options: Mapping[str, Any],
    evaluate: Evaluate,
    drawn: Sequence[str],
    matter: Sequence[str],
) -> None:
    """Show a quantity that is computed for each value of a curve on its own."""

    def along(over: str, values: Iterable[float]) -> list[Record]:
        return [evaluate(*vary(over, value, *settings)) for value in values]

    _show(classifier, settings, options, lambda: evaluate(*settings), along, drawn, matter)


def _show(
    classifier: str,
    settings: Settings,
    options: Mapping[str, Any],
    once: Callable[[], Record],
    along: Callable[[str, Iterable[float]], list[Record]],
    drawn: Sequence[str],
    matter: Sequence[str],
) -> None:
    """Print one result or a curve, as a table or as JSON, and draw the curve if asked.

    A curve is refused over a field that is not among those that `matter`.
    """
    known = {
        name: value
        for item in settings
        if item is not None
        for name, value in item.to_dict().items()
    }
    over = options["over"]
    if over is None:
        refuse_curve_options(options)
        record = once()
        if options["as_json"]:
            print_json({"classifier": classifier, **known}, [record])
        else:
            print_record(classifier, record)
        return
    if over not in matter:
        raise ParameterError("over", over, "a field that matters here: " + ", ".join(matter))
    if options["plot"] is not None:
        check_picture("plot", options["plot"])
    values = curve_values(over, options, read_task(dict(options)))
    records = along(over, _tracked(values))
    fixed = {name: value for name, value in known.items() if name != over}
    if options["as_json"]:
        print_json({"classifier": classifier, **fixed}, records, over, values)
    else:
        narrow = [
            {name: record[name] for name in record if name not in _NOT_IN_CURVES}
            for record in records
        ]
        print_curve(classifier, over, values, narrow)
        for status in sorted({record["status"][0] for record in records if "status" in record}):
            if status != "converged":
                click.echo(f"note: {status}", err=True)
    if options["plot"] is not None:
        curves = {name: [record[name] for record in records] for name in drawn}
        draw_curve(options["plot"], over, values, curves, classifier, fixed, options["logarithmic"])


def _tracked(values: Sequence[float]) -> Iterable[float]:
    """Return the values, with a progress bar on a terminal."""
    from rich.console import Console
    from rich.progress import track

    return track(values, "Solving", console=Console(stderr=True), transient=True)
