"""Options that commands share, made from the fields of `Task`, `Training` and `Query`."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from sparsetoken import validation
from sparsetoken.cli.output import Function, force_option, refuse_unread_options
from sparsetoken.limits import MOST_WORKERS, usable_cores
from sparsetoken.task import Query, Step, Task, Training, spaced
from sparsetoken.validation import ParameterError

__all__ = [
    "NamesOption",
    "at_options",
    "classifier_names",
    "classifier_option",
    "curve_options",
    "curve_values",
    "import_option",
    "json_option",
    "metric_option",
    "plot_option",
    "query_options",
    "read_at",
    "read_query",
    "read_sharpness",
    "read_step",
    "read_task",
    "read_training",
    "recalibrate_option",
    "refuse_curve_options",
    "refuse_learning",
    "seed_option",
    "step_options",
    "task_options",
    "tolerance_option",
    "training_options",
    "usage_options",
    "workers_option",
]

# The setting of the paper's main figure, so that every command runs without options, with a query
# step at which attention is near its best.
_DEFAULTS: dict[str, Any] = {
    "length": 10,
    "informative": 1,
    "strength": 5.0,
    "alpha0": 4.0,
    "alpha1": 4.0,
    "query_step": 20.0,
}
# Steps small enough that the classifier does not overshoot at once.
_STEP_DEFAULTS = {"alpha": 2.0, "readout_step": 1.0, "bias_step": 0.5, "query_step": 2.0}
_MOST_POINTS = 10_000


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _field_options(
    settings: type,
    prefix: str = "",
    optional: bool = False,
    note: str = "",
    defaults: Mapping[str, Any] = _DEFAULTS,
) -> Callable[[Function], Function]:
    """Return a decorator that adds an option for every field, named after it."""

    def decorate(function: Function) -> Function:
        for item in reversed(fields(settings)):
            default = None if optional else defaults.get(item.name, item.default)
            if item.type is bool:
                function = click.option(
                    f"--{prefix}{item.name.replace('_', '-')}",
                    is_flag=True,
                    help=_sentence(item.metadata["description"] + note),
                )(function)
                continue
            function = click.option(
                f"--{prefix}{item.name.replace('_', '-')}",
                type={int: int, float: float}.get(item.type, str),
                default=default,
                show_default=not optional,
                help=_sentence(item.metadata["description"] + note),
            )(function)
        return function

    return decorate


def _keep_option(prefix: str, note: str) -> Callable[[Function], Function]:
    return click.option(
        f"--{prefix}keep",
        type=int,
        help=f"Keep only this many tokens of each sequence, at random{note}.",
    )


def task_options(function: Function) -> Function:
    """Add the options of the task."""
    return _field_options(Task)(_keep_option("", "")(function))


def training_options(function: Function) -> Function:
    """Add the options of the training, and one for modules that make further losses known."""
    return import_option(_field_options(Training)(function))


query_options = _field_options(Query, optional=True)
step_options = _field_options(Step, defaults=_STEP_DEFAULTS)


def at_options(function: Function) -> Function:
    """Add the options of the task at test time."""
    note = ", at test time instead"
    kept = _keep_option("at-", ", at test time")(function)
    return _field_options(Task, prefix="at-", optional=True, note=note)(kept)


def _import_modules(_: click.Context, __: click.Parameter, modules: tuple[str, ...]) -> None:
    from sparsetoken.extensions import import_extensions

    import_extensions(modules)


# First of all, so that what the modules register is known to the other options.
import_option = click.option(
    "--import",
    "imports",
    metavar="MODULE",
    multiple=True,
    is_eager=True,
    expose_value=False,
    callback=_import_modules,
    help="Import a module that adds losses, classifiers, claims or questions; may be repeated.",
)


def usage_options(function: Function) -> Function:
    """Add the options of how a trained classifier is used."""
    text = "Sharpness of the softmax (κ) at test time: a number, inf for a hard maximum, or best."
    return click.option("--at-sharpness", help=text)(recalibrate_option(function))


recalibrate_option = click.option(
    "--recalibrate", is_flag=True, help="Test with the bias that errs least on the test task."
)
json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON instead of tables or text."
)


class _Workers(click.IntRange):
    """How many processes: a number, or all cores that this one may use."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number."""
        if value == "all":
            return usable_cores()
        try:
            number = int(value)
        except ValueError:
            self.fail(f"{value!r} is neither a number nor all.", param, ctx)
        return int(super().convert(number, param, ctx))


workers_option = click.option(
    "--workers",
    type=_Workers(min=1, max=MOST_WORKERS),
    metavar="NUMBER|all",
    default=1,
    show_default=True,
    help="Processes to share the work; all: one for each core that may be used.",
)


class NamesOption(click.Option):
    """An option whose help tells the names that it takes, looked up when its help is shown."""

    def __init__(self, *args: Any, names: Callable[[], Iterable[str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._names = names

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return the option and its help, with the names after the text."""
        record = super().get_help_record(ctx)
        if record is None:
            return None
        *first, last = self._names()
        names = f"{', '.join(first)} or {last}" if first else last
        option, text = record
        return option, text.replace(self.help or "", f"{self.help} {names}.", 1)


def classifier_names() -> list[str]:
    """Return the names of all classifiers, those of imported modules too."""
    from sparsetoken.theory.laws import LAWS

    return list(LAWS)


classifier_option = click.option(
    "--classifier",
    cls=NamesOption,
    names=classifier_names,
    default="attention",
    show_default=True,
    help="Classifier:",
)


def tolerance_option(default: float, of_what: str) -> Callable[[Function], Function]:
    """Return the option of the numerical error that is wanted."""
    return click.option(
        "--tolerance", type=float, default=default, show_default=True, help=f"Wanted {of_what}."
    )


def metric_option(text: str) -> Callable[[Function], Function]:
    """Return the option of quantities beside the error, with its help."""
    return click.option("--metric", "metrics", multiple=True, help=text)


def seed_option(of_what: str) -> Callable[[Function], Function]:
    """Return the option of the seed."""
    return click.option(
        "--seed", type=int, default=0, show_default=True, help=f"Seed of {of_what}."
    )


def plot_option(what: str = "it") -> Callable[[Function], Function]:
    """Return the option of a picture."""
    return click.option(
        "--plot", type=click.Path(path_type=Path), help=f"Draw {what} (.svg, .pdf or .png)."
    )


def curve_options(example: str) -> Callable[[Function], Function]:
    """Return a decorator that adds the options that ask for a curve, and for its picture."""
    fits = "0.2, or what fits the field", "10, or what fits the field"
    options = [
        click.option("--over", help=f"Field to vary, for a curve (such as {example})."),
        click.option("--from", "start", type=float, help=f"First value.  [default: {fits[0]}]"),
        click.option("--to", "stop", type=float, help=f"Last value.  [default: {fits[1]}]"),
        click.option("--points", type=int, help="How many values.  [default: 20]"),
        click.option("--log", "logarithmic", is_flag=True, help="Space the values by factors."),
        plot_option("the curve"),
        force_option,
    ]

    def decorate(function: Function) -> Function:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def refuse_curve_options(options: Mapping[str, Any]) -> None:
    """Refuse the options that only a curve has, where no field varies."""
    for name in ("from", "to", "points", "log", "plot"):
        value = options[{"from": "start", "to": "stop", "log": "logarithmic"}.get(name, name)]
        if value is not None and value is not False:
            raise click.UsageError(f"--{name} is for a curve: say which field varies with --over")


def refuse_learning(classifier: str, query: Query | None) -> None:
    """Refuse the options that only a query to be learnt reads, where there is none."""
    from sparsetoken.theory.chosen_query import LEARNING, query_fields

    if query_fields(classifier, query) != LEARNING:
        given = "the query is given, not learnt"
        because = f"{classifier} has no query to learn" if query is None else given
        refuse_unread_options((*LEARNING, "reuse"), because)


def curve_values(over: str, options: Mapping[str, Any], task: Task) -> list[float]:
    """Return the values of the varied field; whole numbers if the field is one."""
    law = task.informative
    shortest, longest = (law + 1, 5 * task.length) if isinstance(law, int) else law.lengths
    longest = min(longest, 5 * task.length)
    low, high = {
        "length": (shortest, longest),
        "informative": (1, task.length - 1),
        "positive_rate": (0.05, 0.95),
        "alignment": (0.1, 1.0),
    }.get(over, (0.2, 10.0))
    start = validation.real("from", low if options["start"] is None else options["start"])
    stop = validation.real("to", high if options["stop"] is None else options["stop"])
    points = 20 if options["points"] is None else options["points"]
    logarithmic = options["logarithmic"]
    points = validation.integer("points", points, low=2, high=_MOST_POINTS)
    if logarithmic and not (start > 0 and stop > 0):
        raise ParameterError("from, to", (start, stop), "numbers > 0 with --log")
    return spaced(over, start, stop, points, by_factors=logarithmic)


def _picked(options: dict[str, Any], settings: type, prefix: str = "") -> dict[str, Any]:
    return {item.name: options[prefix + item.name] for item in fields(settings)}


def read_task(options: dict[str, Any]) -> Task:
    """Return the task that the options describe."""
    task = Task.from_dict(_picked(options, Task))
    return task if options["keep"] is None else task.keep(options["keep"])


def read_training(options: dict[str, Any]) -> Training:
    """Return the training that the options describe."""
    return Training.from_dict(_picked(options, Training))


def read_step(options: dict[str, Any]) -> Step:
    """Return the step that the options describe."""
    return Step.from_dict(_picked(options, Step))


def read_query(options: dict[str, Any]) -> Query | None:
    """Return the query that the options describe, or None if they do not.

    A field that varies along a curve need not be given: it is 1 until then.
    """
    given = _picked(options, Query)
    if _none_given(given.values()):
        return None
    if options.get("over") in given and given[options["over"]] is None:
        given[options["over"]] = 1.0
    return Query.from_dict(_complete(given))


def _complete(given: dict[str, Any]) -> dict[str, Any]:
    for name, other in (("alignment", "sharpness"), ("sharpness", "alignment")):
        if given[other] is None:
            accepted = f"it together with {other}: --{name} needs --{other}"
            raise ParameterError(name, given[name], accepted)
    return given


def read_sharpness(text: str | None) -> float | str | None:
    """Return the sharpness at test time: a number, "best", or None if it is that of training."""
    if text is None or text == "best":
        return text
    try:
        return float(text)
    except ValueError:
        raise ParameterError("at_sharpness", text, "a number >= 0, inf or best") from None


def read_at(options: dict[str, Any], task: Task) -> Task | None:
    """Return the task to test on, the training task with some fields changed, or None."""
    given, keep = _picked(options, Task, prefix="at_"), options["at_keep"]
    if _none_given([*given.values(), keep]):
        return None
    try:
        at = task.replace(**{name: value for name, value in given.items() if value is not None})
        return at if keep is None else at.keep(keep)
    except ParameterError as error:
        raise ParameterError(f"at_{error.parameter}", error.value, error.accepted) from None


def _none_given(values: Iterable[Any]) -> bool:
    return all(value is None for value in values)
