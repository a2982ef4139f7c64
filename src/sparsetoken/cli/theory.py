"""`sparsetoken predict`, `align`, `capacity` and `oracle`: exact theory on the command line."""

import functools
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any

import click

from sparsetoken import validation
from sparsetoken.cli.options import (
    NamesOption,
    at_options,
    classifier_option,
    curve_options,
    curve_values,
    json_option,
    metric_option,
    query_options,
    read_at,
    read_query,
    read_sharpness,
    read_task,
    read_training,
    refuse_curve_options,
    refuse_learning,
    task_options,
    tolerance_option,
    training_options,
    usage_options,
)
from sparsetoken.cli.output import (
    check_picture,
    draw_curve,
    print_curve,
    print_json,
    print_record,
    print_settings,
    refuse_unread_options,
    tracked,
)
from sparsetoken.records import METRICS, Curve, Record
from sparsetoken.task import Query, Task, Training, check_matters, vary
from sparsetoken.validation import ParameterError

__all__ = ["align", "capacity", "oracle", "predict"]

Described = Task | Training | Query | None

_ORDER_PARAMETERS = ("along", "across", "bias", "rest", "susceptibility")
_TASK = tuple(item.name for item in fields(Task))
_TRAINING = tuple(item.name for item in fields(Training))
_QUERY = tuple(item.name for item in fields(Query))
_AFTER_THE_QUERY = ("alpha1", "ridge", "reuse")

_PREDICT_WORDS = """\b
Words in the table, of the trained readout:
  along           its part along the query
  across          its part along what the query misses of the signal
  rest            the norm of all else in it
  susceptibility  how far a training sample moves its own output,
                  per unit slope of the loss
Metrics, on the task at test time:
  auc, average_precision, balanced_error  how well scores rank sequences
  attended_mass, hit_rate                 how often attention sees the signal
  roc, precision_recall, calibration, free_response
                                          a curve, to read or to --plot
"""
_ALIGN_WORDS = """\b
Words in the table:
  rate constant  C in |alignment| = 1 - C/alpha0, for large alpha0
  anti aligned   whether the query points away from the signal; cause and cure
                 then say why, and which step turns it: a larger --bias-step
                 helps only if positives are rare
"""
_CAPACITY_WORDS = """\b
Words in the table:
  alpha  samples per dimension (n1/d) up to which the classes can be separated
         without error
"""
# Left out of the table of a curve, for room.
_NOT_IN_CURVES = (
    *_ORDER_PARAMETERS,
    *("query_norm", "readout_cosine", "rate_constant", "cause", "cure", "message"),
)


@click.command(
    epilog=_PREDICT_WORDS, short_help="Predict test error, training loss and training error."
)
@task_options
@training_options
@query_options
@classifier_option
@at_options
@usage_options
@metric_option(
    "Show also auc, average_precision, balanced_error, attended_mass or hit_rate; or one of "
    "the curves roc, precision_recall, calibration, free_response. May be repeated.",
)
@tolerance_option(1e-4, "numerical error of the test error")
@curve_options("alpha1")
@json_option
def predict(classifier: str, tolerance: float, metrics: tuple[str, ...], **options: Any) -> None:
    """Predict test error, training loss and training error after training."""
    from sparsetoken.theory.chosen_query import prediction_fields
    from sparsetoken.theory.predictor import curve, settings_of_test
    from sparsetoken.theory.predictor import predict as predict_once

    task, training, query = read_task(options), read_training(options), read_query(options)
    at = read_at(options, task)
    refuse_learning(classifier, query)

    choices: dict[str, Any] = {
        "classifier": classifier,
        "query": query,
        "at": at,
        "at_sharpness": read_sharpness(options["at_sharpness"]),
        "recalibrate": options["recalibrate"],
        "tolerance": tolerance,
    }
    for name in metrics:
        validation.choice("metric", name, (*METRICS, *_SCORE_CURVES))
    drawn = [name for name in metrics if name in _SCORE_CURVES]
    if drawn:
        if len(metrics) > 1 or options["over"] is not None:
            raise ParameterError("metric", drawn[0], "a curve alone, and without --over")
        _show_score_curve(drawn[0], (task, training), choices, options)
        return
    of_test = settings_of_test(at, choices["at_sharpness"], choices["recalibrate"])

    def along(over: str, values: Iterable[float]) -> Sequence[Record]:
        found = curve(task, training, over=over, values=values, **choices)
        return [_Selected(item, metrics) for item in found]

    def once() -> Record:
        return _Selected(predict_once(task, training, **choices), metrics)

    matter = prediction_fields(classifier, query)
    shown = ("test_error", *(metrics or ("train_loss",)))
    known = _known(task, training, query) | of_test
    _show(classifier, known, options, once, along, shown, matter)


@dataclass(frozen=True)
class _Selected(Record):
    """A prediction that shows more of its quantities."""

    prediction: Any
    metrics: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        flat: dict[str, Any] = self.prediction.to_dict(*self.metrics)
        return flat


# What is drawn in the curves of one prediction.
_SCORE_CURVES = {
    "roc": ("recall",),
    "precision_recall": ("precision",),
    "calibration": ("probability", "stated_probability"),
    "free_response": ("hit_rate",),
}


def _show_score_curve(
    name: str,
    settings: tuple[Task, Training],
    choices: Mapping[str, Any],
    options: Mapping[str, Any],
) -> None:
    """Print or draw a curve of one prediction."""
    from sparsetoken.theory.chosen_query import prediction_fields
    from sparsetoken.theory.predictor import predict as predict_once
    from sparsetoken.theory.predictor import settings_of_test

    plot = options["plot"]
    refuse_curve_options({**options, "plot": None})
    if plot is not None:
        check_picture("plot", plot, force=options["force"])
    prediction = predict_once(*settings, **choices)
    source = prediction.localisation if name == "free_response" else prediction
    if source is None:
        accepted = f"a curve of scores: the law of {choices['classifier']} localises no tokens"
        raise ParameterError("metric", name, accepted)
    found = getattr(source, name)()
    classifier, query = choices["classifier"], choices["query"]
    test = (choices[name] for name in ("at", "at_sharpness", "recalibrate"))
    known = _known(*settings, query) | settings_of_test(*test)
    found = replace(found, settings={"classifier": classifier, **known})
    if options["as_json"]:
        print_json(found.settings, found.to_rows())
    elif options["plot"] is None:
        print_curve(classifier, found)
        print_settings(known, _unread(prediction_fields(classifier, query)))
    if options["plot"] is not None:
        drawn = _SCORE_CURVES[name]
        logarithmic = name == "free_response"
        draw_curve(options["plot"], found, drawn, classifier, logarithmic)


@click.command(epilog=_ALIGN_WORDS, short_help="Predict the query after two gradient steps.")
@task_options
@training_options
@curve_options("alpha0")
@json_option
def align(**options: Any) -> None:
    """Predict the query after two gradient steps: its cosine with the signal, and its size."""
    from sparsetoken.theory.alignment import align as align_once
    from sparsetoken.theory.chosen_query import LEARNING

    refuse_unread_options(_AFTER_THE_QUERY, "the query is learnt before the readout is trained")
    settings = (read_task(options), read_training(options))
    shown = ("alignment", "readout_cosine")
    _show_each("attention", settings, options, align_once, shown, (*_TASK, *LEARNING))


@click.command(
    epilog=_CAPACITY_WORDS, short_help="Predict how many samples a classifier can separate."
)
@task_options
@training_options
@query_options
@classifier_option
@tolerance_option(1e-2, "relative error of the capacity")
@curve_options("strength")
@json_option
def capacity(classifier: str, tolerance: float, **options: Any) -> None:
    """Predict how many samples per dimension a classifier can separate."""
    from sparsetoken.theory.capacity import capacity as capacity_once
    from sparsetoken.theory.capacity import capacity_curve, capacity_fields
    from sparsetoken.theory.chosen_query import LEARNING, query_fields

    task, training, query = read_task(options), read_training(options), read_query(options)
    learnt = training if query_fields(classifier, query) == LEARNING else None
    if learnt is None:
        refuse_unread_options(
            _TRAINING, "no query is learnt, and the capacity reads nothing else of it"
        )
    else:
        samples = ("alpha0", "alpha1") if learnt.reuse else ("alpha1",)
        refuse_unread_options(
            ("ridge", *samples), "whether data can be separated does not depend on it"
        )
    choices: dict[str, Any] = {"classifier": classifier, "query": query, "tolerance": tolerance}

    def once() -> Record:
        return capacity_once(task, learnt, **choices)

    def along(over: str, values: Iterable[float]) -> Sequence[Record]:
        return capacity_curve(task, learnt, over=over, values=values, **choices)

    matter = capacity_fields(learnt, classifier, query)
    known = _known(task, training, query)
    _show(classifier, known, options, once, along, ("alpha",), matter)


def _known_to_oracles() -> Iterable[str]:
    from sparsetoken.theory.oracle import ORACLES

    return ORACLES


def _nonlinearities() -> Iterable[str]:
    from sparsetoken.theory.token_sums import NONLINEARITIES

    return NONLINEARITIES


@click.command()
@task_options
@click.option(
    "--classifier",
    cls=NamesOption,
    names=_known_to_oracles,
    default="attention",
    show_default=True,
    help="Classifier:",
)
@click.option(
    "--nonlinearity",
    cls=NamesOption,
    names=_nonlinearities,
    default="sigmoid",
    show_default=True,
    help="For elementwise:",
)
@click.option("--sharpness", type=float, help="A fixed sharpness (κ) instead of the best.")
@click.option("--error", type=float, help="Ask instead for the strength that reaches this error.")
@curve_options("strength or length")
@json_option
def oracle(
    classifier: str,
    nonlinearity: str,
    sharpness: float | None,
    error: float | None,
    **options: Any,
) -> None:
    """Predict the least error of a classifier that knows the signal."""
    from sparsetoken.theory.oracle import oracle as oracle_once
    from sparsetoken.theory.oracle import required_strength, strength_curve

    task = read_task(options)
    kind: dict[str, Any] = {
        "classifier": classifier,
        "nonlinearity": nonlinearity,
        "sharpness": sharpness,
    }
    # A fixed sharpness is among the results.
    of_the_rule = {"nonlinearity": nonlinearity} if classifier == "elementwise" else {}
    if error is None:
        _show_each(
            *(classifier, (task,), options),
            lambda task: oracle_once(task, **kind),
            *(("test_error",), _TASK),
            more=of_the_rule,
        )
        return
    refuse_unread_options(["strength"], "the strength is what --error asks for")

    def once() -> Record:
        return required_strength(task, error=error, **kind)

    def along(over: str, values: Iterable[float]) -> Sequence[Record]:
        return strength_curve(task, over=over, values=values, error=error, **kind)

    matter = [name for name in _TASK if name != "strength"]
    known = _known(task) | of_the_rule | {"error": error}
    _show(classifier, known, options, once, along, ("strength",), matter)


def _show_each(
    classifier: str,
    settings: tuple[Described, ...],
    options: Mapping[str, Any],
    evaluate: Callable[..., Record],
    drawn: Sequence[str],
    matter: Sequence[str],
    more: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Show a quantity that is computed for each value of a curve on its own.

    `more` are settings to tell that are not of those.
    """

    def along(over: str, values: Iterable[float]) -> Sequence[Record]:
        return [evaluate(*vary(over, value, *settings)) for value in values]

    once = functools.partial(evaluate, *settings)
    known = {**_known(*settings), **more}
    _show(classifier, known, options, once, along, drawn, matter)


def _known(*settings: Described) -> dict[str, Any]:
    described = (item.to_dict() for item in settings if item is not None)
    return {name: value for fields in described for name, value in fields.items()}


def _unread(matter: Sequence[str]) -> set[str]:
    """Return the settings of which a result reads nothing."""
    unread = {*_TASK, *_TRAINING, *_QUERY}.difference(matter)
    # Where a rate or a sample ratio counts, so do these two.
    return unread if unread.issuperset(_TRAINING) else unread - {"loss", "reuse"}


def _show(
    classifier: str,
    known: Mapping[str, Any],
    options: Mapping[str, Any],
    once: Callable[[], Record],
    along: Callable[[str, Iterable[float]], Sequence[Record]],
    drawn: Sequence[str],
    matter: Sequence[str],
) -> None:
    """Print one result or a curve, as a table or as JSON, and draw the curve if asked.

    A curve is refused over a field that is not among those that `matter`.
    """
    unread = _unread(matter)
    if options["over"] is None:
        refuse_curve_options(options)
        _show_one(classifier, known, once(), unread, as_json=options["as_json"])
        return
    found = _asked_curve(known, options, along, matter)
    if options["as_json"]:
        print_json({"classifier": classifier, **found.settings}, found.to_rows())
    else:
        print_curve(classifier, found, hidden=_NOT_IN_CURVES)
        print_settings(found.settings, unread)
    if options["plot"] is not None:
        draw_curve(options["plot"], found, drawn, classifier, options["logarithmic"])


def _show_one(
    classifier: str,
    known: Mapping[str, Any],
    record: Record,
    unread: Container[str],
    *,
    as_json: bool,
) -> None:
    """Print one result with its settings; those that nothing reads are in JSON alone."""
    if as_json:
        print_json({"classifier": classifier, **known}, record.to_dict())
    else:
        print_record(classifier, record.to_dict())
        print_settings(known, unread)


def _asked_curve(
    known: Mapping[str, Any],
    options: Mapping[str, Any],
    along: Callable[[str, Iterable[float]], Sequence[Record]],
    matter: Sequence[str],
) -> Curve[Record]:
    """Return the curve that is asked for, once nothing can refuse it any more."""
    over = options["over"]
    check_matters(over, matter)
    samples = ("alpha0", "alpha1")
    tied = samples if options.get("reuse") and over in samples else (over,)
    refuse_unread_options(tied, "it is what --over varies")
    if options["plot"] is not None:
        check_picture("plot", options["plot"], force=options["force"])
    values = curve_values(over, options, read_task(dict(options)))
    fixed = {name: value for name, value in known.items() if name != over}
    return Curve(over, tuple(values), tuple(along(over, tracked(values))), fixed)
