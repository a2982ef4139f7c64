"""`sparsetoken map`: errors of the classifiers over two settings."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sparsetoken import validation
from sparsetoken.cli.options import (
    NamesOption,
    classifier_names,
    json_option,
    plot_option,
    read_task,
    read_training,
    task_options,
    training_options,
    workers_option,
)
from sparsetoken.cli.output import (
    check_different,
    check_picture,
    check_writable,
    force_option,
    print_json,
    print_text,
    refuse_unread_options,
    tell_written,
    write_rows,
)
from sparsetoken.task import ALL_SAMPLES, spaced
from sparsetoken.validation import ParameterError

if TYPE_CHECKING:
    from sparsetoken.planning.phase_map import PhaseMap

__all__ = ["phase_map"]

_MOST_POINTS = 1000  # a million cells, each a prediction of every classifier


@click.command("map", short_help="Predict errors over a grid of two settings.")
@task_options
@training_options
@click.option(
    "--x",
    "x_axis",
    nargs=3,
    default=("strength", "1", "7"),
    show_default=True,
    help="Field, first and last value, across.",
)
@click.option(
    "--y",
    "y_axis",
    nargs=3,
    default=("alpha", "0.5", "32"),
    show_default=True,
    help="Field, first and last value, upwards; alpha is all samples per dimension, split as "
    "--alpha0 and --alpha1.",
)
@click.option(
    "--classifier",
    "classifiers",
    multiple=True,
    cls=NamesOption,
    names=classifier_names,
    show_default="all",
    help="Classifier to map; may be repeated:",
)
@click.option("--points", type=int, default=25, show_default=True, help="Values of each field.")
@click.option("--log-x", is_flag=True, help="Space the values across by factors.")
@click.option("--log-y/--linear-y", default=True, show_default=True, help="The same upwards.")
@click.option("--capacity", "with_capacity", is_flag=True, help="Find the capacity, too.")
@workers_option
@click.option(
    "--checkpoint",
    type=click.Path(path_type=Path),
    help="Keep every finished row in this file, and go on from it after an interruption.",
)
@json_option
@click.option("--csv", "csv_path", type=click.Path(path_type=Path), help="Write a row a cell.")
@plot_option()
@force_option
def phase_map(as_json: bool, csv_path: Path | None, plot: Path | None, **options: Any) -> None:
    """Predict the error of each classifier over a grid of two settings."""
    check_different({"checkpoint": options["checkpoint"], "csv": csv_path, "plot": plot})
    if plot is not None:
        check_picture("plot", plot, force=options["force"])
    if csv_path is not None:
        check_writable(csv_path, _is_map, force=options["force"])
    task, training = read_task(options), read_training(options)
    points = validation.integer("points", options["points"], low=2, high=_MOST_POINTS)
    axes = {
        side: _axis(side, options[f"{side}_axis"], points, options[f"log_{side}"])
        for side in ("x", "y")
    }
    _refuse_unread({name for name, _ in axes.values()}, options)
    found = _mapped(task, training, axes, options)
    if csv_path is not None:
        write_rows(csv_path, found.to_rows())
        tell_written(csv_path)
    if plot is not None:
        from sparsetoken.plotting import save_figure

        save_figure(found.plot(), plot.with_suffix(""), [plot.suffix.lstrip(".")])
        tell_written(plot)
    if as_json:
        print_json({**task.to_dict(), **training.to_dict()}, found.to_rows())
    else:
        print_text(str(found))


def _refuse_unread(varied: set[str], options: dict[str, Any]) -> None:
    """Refuse options that no cell of the map reads."""
    from sparsetoken.theory.chosen_query import LEARNING, query_fields

    shared = {"alpha0", "alpha1"}
    tied = shared if options["reuse"] and varied & {ALL_SAMPLES, *shared} else set()
    refuse_unread_options(varied | tied, "it is what an axis of the map varies")
    learnt = any(query_fields(name, None) for name in options["classifiers"] or classifier_names())
    if not (learnt or options["with_capacity"]):
        # A readout without a query has all samples: their parts are read unless their sum varies.
        sharing = {*shared, "reuse"}
        unread = set(LEARNING) - sharing | (sharing if ALL_SAMPLES in varied else set())
        refuse_unread_options(unread, "no classifier of the map has a query to learn")


def _axis(side: str, given: tuple[str, str, str], points: int, by_factors: bool) -> Any:
    name, *ends = given
    try:
        start, stop = (validation.real(name, float(end)) for end in ends)
    except ValueError:
        raise ParameterError(f"{side} of {name}", " ".join(ends), "two finite numbers") from None
    if not start < stop:
        raise ParameterError(f"{side} of {name}", " ".join(ends), "first the smaller number")
    if by_factors and not (start > 0 and stop > 0):
        raise ParameterError(
            f"{side} of {name}", " ".join(ends), "two numbers > 0 for values by factors"
        )
    return name, spaced(name, start, stop, points, by_factors=by_factors)


def _mapped(task: Any, training: Any, axes: dict[str, Any], options: dict[str, Any]) -> "PhaseMap":
    """Make the map under a progress bar, on the stream that is not for results."""
    from rich.console import Console
    from rich.progress import Progress

    from sparsetoken.planning.phase_map import phase_map as make_map

    with Progress(console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("Rows of the map", total=None)
        return make_map(
            task,
            training,
            **axes,
            classifiers=options["classifiers"] or None,
            with_capacity=options["with_capacity"],
            workers=options["workers"],
            checkpoint=options["checkpoint"],
            progress=lambda done, total: progress.update(bar, completed=done, total=total),
        )


def _is_map(content: bytes) -> bool:
    return b"_test_error,winner" in content.split(b"\n", 1)[0]
