"""`sparsetoken floor`: what any learner could reach, and what message passing does."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sparsetoken.cli.options import (
    curve_options,
    curve_values,
    json_option,
    read_task,
    refuse_curve_options,
    task_options,
)
from sparsetoken.cli.output import (
    check_picture,
    print_curve,
    print_json,
    print_record,
    tell_written,
)
from sparsetoken.records import measured
from sparsetoken.task import Task
from sparsetoken.validation import ParameterError

if TYPE_CHECKING:
    from sparsetoken.theory.floor import Floor

__all__ = ["floor"]

_TITLE = "Bayes floor"
_VARIED = ("alpha", *(item.name for item in fields(Task)))
_IN_CURVES = ("overlap", "error", "reachable_overlap", "reachable_error", "phase")
_WORDS = """\b
Words in the table:
  overlap      squared cosine of the best estimate of the signal with the signal
  error        test error of the best classifier there is
  reachable    the same for message passing, the best efficient algorithm known
  phase        hard where message passing falls short of the best estimate
  free energy  per dimension; the solution with the larger one is the truth
"""


@click.command(epilog=_WORDS)
@task_options
@click.option(
    "--alpha",
    type=float,
    default=8.0,
    show_default=True,
    help="Samples per dimension (n/d), all of them: alpha0 + alpha1 of a training that splits.",
)
@click.option(
    "--tolerance",
    type=float,
    default=1e-3,
    show_default=True,
    help="Wanted numerical error of the overlaps.",
)
@click.option("--transitions", is_flag=True, help="Also say where the hard phase begins and ends.")
@curve_options("alpha")
@json_option
def floor(alpha: float, tolerance: float, transitions: bool, **options: Any) -> None:
    """Predict the least test error of any learner, when the signal is unknown."""
    from sparsetoken.theory.floor import floor as floor_once

    task, over = read_task(options), options["over"]
    settings = {**task.to_dict(), "alpha": alpha}
    if over is None:
        refuse_curve_options(options)
        record = _record(floor_once(task, alpha, tolerance=tolerance))
        if transitions:
            record |= _transitions(task)
        if options["as_json"]:
            print_json(settings, [record])
        else:
            print_record(_TITLE, record)
        return
    if transitions:
        raise click.UsageError("--transitions is for one task: leave --over out")
    if over not in _VARIED:
        raise ParameterError("over", over, "a field that matters here: " + ", ".join(_VARIED))
    if options["plot"] is not None:
        check_picture("plot", options["plot"])
    values = curve_values(over, options, task)
    found = _along(task, over, values, alpha, tolerance)
    del settings[over]
    _show_curve(found, over, values, settings, options)


def _record(found: "Floor") -> dict[str, Any]:
    flat = measured(found.to_dict())
    kept = {name: flat[name] for name in (*_IN_CURVES, "free_energy", "reachable_free_energy")}
    return kept | {"status": (found.solution.message, None)}


def _transitions(task: Task) -> dict[str, Any]:
    from sparsetoken.theory.floor import hard_phase

    found = hard_phase(task)
    names = {"begins": "hard_phase_begins", "ends": "hard_phase_ends"}
    if found is None:
        return dict.fromkeys(names.values(), (None, None))
    return {label: (getattr(found, name), found.uncertainty[name]) for name, label in names.items()}


def _along(
    task: Task, over: str, values: Sequence[float], alpha: float, tolerance: float
) -> "list[Floor]":
    from rich.console import Console
    from rich.progress import track

    from sparsetoken.theory.floor import floor_curve

    fixed = None if over == "alpha" else alpha
    shown = track(values, "Solving", console=Console(stderr=True), transient=True)
    return [
        floor_curve(task, over=over, values=[value], alpha=fixed, tolerance=tolerance)[0]
        for value in shown
    ]


def _show_curve(
    found: "Sequence[Floor]",
    over: str,
    values: Sequence[float],
    settings: Mapping[str, Any],
    options: Mapping[str, Any],
) -> None:
    records = [_record(item) for item in found]
    if options["as_json"]:
        print_json(settings, records, over, values)
    else:
        narrow = [{name: record[name] for name in _IN_CURVES} for record in records]
        print_curve(_TITLE, over, values, narrow)
        for message in sorted({item.solution.message for item in found} - {"converged"}):
            click.echo(f"note: {message}", err=True)
    if options["plot"] is not None:
        _draw(options["plot"], over, values, records, settings, options["logarithmic"])


def _draw(
    path: Path,
    over: str,
    values: Sequence[float],
    records: Sequence[Mapping[str, Any]],
    settings: Mapping[str, Any],
    logarithmic: bool,
) -> None:
    """Draw the best and the reachable overlap and error, with their error bands."""
    from sparsetoken.plotting import (
        describe,
        draw_band,
        look_of,
        named,
        new_figure,
        save_figure,
        shared_legend,
        tidy_log_ticks,
    )

    figure, panels = new_figure(columns=2)
    for axes, name in zip(panels, ("error", "overlap"), strict=True):
        for prefix, look in (("", "bayes"), ("reachable_", "message_passing")):
            entries = [record[prefix + name] for record in records]
            heights, bars = zip(*entries, strict=True)
            style = {"linestyle": "--"} if prefix else {}
            draw_band(axes, values, heights, bars, look_of(look), **style)
        axes.set(xlabel=named(over), ylabel=f"test {name}" if name == "error" else name)
        if logarithmic:
            axes.set_xscale("log")
            tidy_log_ticks(axes)
    shared_legend(figure, columns=2)
    figure.supxlabel(describe(settings), fontsize=6)
    save_figure(figure, path.with_suffix(""), [path.suffix.lstrip(".")])
    tell_written(path)
