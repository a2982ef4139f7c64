"""`sparsetoken floor`: what any learner could reach, and what message passing does."""

from collections.abc import Sequence
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
    tolerance_option,
)
from sparsetoken.cli.output import (
    check_picture,
    print_curve,
    print_json,
    print_record,
    print_settings,
    refuse_unread_options,
    tell_written,
    tracked,
)
from sparsetoken.records import UNCERTAINTY
from sparsetoken.task import Task
from sparsetoken.validation import ParameterError

if TYPE_CHECKING:
    from sparsetoken.records import Curve
    from sparsetoken.theory.floor import Floor

__all__ = ["floor"]

_TITLE = "Bayes floor"
_VARIED = ("alpha", *(item.name for item in fields(Task)))
# Left out of the table of a curve, for room.
_NOT_IN_CURVES = tuple(
    f"{prefix}free_energy{suffix}" for prefix in ("", "reachable_") for suffix in ("", UNCERTAINTY)
)
_WORDS = """\b
Words in the table:
  overlap      squared cosine of the signal with its best estimate
  error        test error of the best classifier there is
  reachable    of message passing, the best efficient algorithm known
  phase        hard where message passing falls short of the best estimate
  free energy  per dimension; the solution with the larger one is the truth
"""


@click.command(epilog=_WORDS, short_help="Predict the least test error that any learner can reach.")
@task_options
@click.option(
    "--alpha",
    type=float,
    default=8.0,
    show_default=True,
    help="Samples per dimension (n/d), all of them: alpha0 + alpha1 of a training that splits.",
)
@tolerance_option(1e-3, "numerical error of the overlaps")
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
        row = floor_once(task, alpha, tolerance=tolerance).to_dict()
        if transitions:
            row |= _transitions(task)
        if options["as_json"]:
            print_json(settings, row)
        else:
            print_record(_TITLE, {name: row[name] for name in row if name != "alpha"})
            print_settings(settings)
        return
    if transitions:
        raise click.UsageError("--transitions is for one task: leave --over out")
    if over not in _VARIED:
        raise ParameterError("over", over, "a field that matters here: " + ", ".join(_VARIED))
    refuse_unread_options([over], "it is what --over varies")
    if options["plot"] is not None:
        check_picture("plot", options["plot"], force=options["force"])
    found = _along(task, over, curve_values(over, options, task), alpha, tolerance)
    if options["as_json"]:
        print_json(dict(found.settings), found.to_rows())
    else:
        print_curve(_TITLE, found, hidden=_NOT_IN_CURVES)
        print_settings(found.settings)
    if options["plot"] is not None:
        _draw(options["plot"], found, options["logarithmic"])


def _transitions(task: Task) -> dict[str, Any]:
    """Return the ends of the hard phase with their errors, None where there is none."""
    from sparsetoken.theory.floor import hard_phase

    found = hard_phase(task)
    row: dict[str, Any] = {}
    for name in ("begins", "ends"):
        row[f"hard_phase_{name}"] = getattr(found, name) if found else None
        if found:
            row[f"hard_phase_{name}_uncertainty"] = found.uncertainty[name]
    return row


def _along(
    task: Task, over: str, values: Sequence[float], alpha: float, tolerance: float
) -> "Curve[Floor]":
    from sparsetoken.theory.floor import floor_curve

    return floor_curve(
        task,
        over=over,
        values=tracked(values),
        alpha=None if over == "alpha" else alpha,
        tolerance=tolerance,
    )


def _draw(path: Path, found: "Curve[Floor]", logarithmic: bool) -> None:
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
    for axes, name in zip(panels, ("test_error", "overlap"), strict=True):
        for prefix, look in (("", "bayes"), ("reachable_", "message_passing")):
            draw_band(
                axes,
                found.values,
                found.column(prefix + name),
                found.column(f"{prefix}{name}_uncertainty"),
                look_of(look),
                linestyle="--" if prefix else "-",
            )
        axes.set(xlabel=named(found.over), ylabel=named(name))
        if logarithmic:
            axes.set_xscale("log")
            tidy_log_ticks(axes)
    shared_legend(figure, columns=2)
    figure.supxlabel(describe(found.settings), fontsize=6)
    save_figure(figure, path.with_suffix(""), [path.suffix.lstrip(".")])
    tell_written(path)
