"""`sparsetoken descend`: joint gradient descent, step by step."""

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sparsetoken import validation
from sparsetoken.cli.options import (
    import_option,
    json_option,
    plot_option,
    read_step,
    read_task,
    seed_option,
    step_options,
    task_options,
    tolerance_option,
)
from sparsetoken.cli.output import (
    check_picture,
    force_option,
    print_curve,
    print_json,
    print_settings,
    refuse_unread_options,
    tell_written,
)
from sparsetoken.limits import MOST_STEPS
from sparsetoken.records import UNCERTAINTY
from sparsetoken.task import Step, Task
from sparsetoken.validation import ParameterError

if TYPE_CHECKING:
    from sparsetoken.records import Curve
    from sparsetoken.simulation.descent import DescentTrials
    from sparsetoken.theory.descent import DescentState

__all__ = ["descend"]

_TITLE = "joint descent"
_DRAWN = ("test_error", "alignment", "readout_cosine")
_NOT_IN_TABLE = tuple(
    name + suffix for name in ("query_norm", "readout_norm", "bias") for suffix in ("", UNCERTAINTY)
)
_WORDS = """\b
Words:
  alignment       cosine of the query with the signal
  readout cosine  cosine of the readout with the signal
  sharpness       inverse temperature times the query's norm
  amplification   to what the chance of a batch has grown, in units of 1/√d;
                  well above 1 a finite dimension takes paths of its own
"""


@click.command(
    epilog=_WORDS, short_help="Predict joint gradient descent of query, readout and bias."
)
@task_options
@step_options
@click.option("--steps", type=int, default=6, show_default=True, help="How many equal steps.")
@click.option(
    "--schedule",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="A JSON file instead: a list of steps, each with the names of the options above.",
)
@click.option("--loss", default="logistic", show_default=True, help="Loss of the margin.")
@tolerance_option(1e-3, "numerical error of the test errors")
@click.option("--trials", type=int, default=0, help="Also simulate so many trials.")
@click.option("--dimension", type=int, default=500, show_default=True, help="Of the trials.")
@seed_option("the trials")
@plot_option()
@force_option
@import_option
@json_option
def descend(
    loss: str,
    tolerance: float,
    trials: int,
    dimension: int,
    seed: int,
    plot: Path | None,
    as_json: bool,
    force: bool,
    **options: Any,
) -> None:
    """Predict gradient descent of query, readout and bias together, a fresh batch a step."""
    from sparsetoken.theory.descent import descend as descend_along

    if not trials:
        refuse_unread_options(("dimension", "seed"), "nothing is simulated without --trials")
    task, schedule = read_task(options), _schedule(options)
    if plot is not None:
        check_picture("plot", plot, inputs=filter(None, [options["schedule"]]), force=force)
    found = descend_along(task, schedule, loss=loss, tolerance=tolerance)
    simulated = _simulated(task, schedule, loss, trials, dimension, seed) if trials else None
    settings = {**found.settings, "steps": [step.to_dict() for step in schedule]}
    if as_json:
        rows = found.to_rows()
        for row, trial in zip(rows, simulated or (), strict=False):
            row["simulation"] = trial.to_dict()
        print_json(settings, rows)
    else:
        print_curve(_TITLE, found, hidden=(*_NOT_IN_TABLE, "amplification"))
        click.echo(f"Amplification: at most {max(found.column('amplification')):.2f}")
        equal = schedule[0].to_dict() if len(set(schedule)) == 1 else {}
        print_settings({**found.settings, **equal})
        if simulated:
            hidden = (*_NOT_IN_TABLE, "dimension", "trials")
            title = f"simulation, d = {dimension}, {trials} trials"
            print_curve(title, simulated, hidden=hidden)
    if plot is not None:
        _draw(plot, schedule, found, simulated)


def _schedule(options: dict[str, Any]) -> list[Step]:
    import json

    path = options["schedule"]
    if path is None:
        count = validation.integer("steps", options["steps"], low=1, high=MOST_STEPS)
        return [read_step(options)] * count
    refuse_unread_options(
        ("steps", *(item.name for item in fields(Step))), "--schedule has the steps"
    )
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ParameterError("schedule", str(path), f"a JSON file ({error})") from None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows) or not rows:
        raise ParameterError("schedule", str(path), "a list of steps, each an object")
    return [Step.from_dict(row) for row in rows]


def _simulated(
    task: Task, schedule: Sequence[Step], loss: str, trials: int, dimension: int, seed: int
) -> "Curve[DescentTrials]":
    from rich.console import Console
    from rich.progress import Progress

    from sparsetoken.simulation.descent import simulate_descent

    with Progress(console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("Simulating", total=trials)
        return simulate_descent(
            task,
            schedule,
            loss=loss,
            dimension=dimension,
            trials=trials,
            seed=seed,
            progress=lambda done, _: progress.update(bar, completed=done),
        )


def _draw(
    path: Path,
    schedule: Sequence[Step],
    found: "Curve[DescentState]",
    simulated: "Curve[DescentTrials] | None",
) -> None:
    from sparsetoken.plotting import (
        caption,
        draw_band,
        draw_simulation,
        look_of,
        named,
        new_figure,
        save_figure,
    )

    figure, panels = new_figure(columns=len(_DRAWN))
    looks = ("attention", "query", "readout")
    for axes, name, look in zip(panels, _DRAWN, looks, strict=True):
        bars = found.column(name + UNCERTAINTY)
        draw_band(axes, found.values, found.column(name), bars, look_of(look))
        if simulated:
            errors = [trial.uncertainty[name] or 0.0 for trial in simulated]
            draw_simulation(axes, simulated.values, simulated.column(name), errors, look_of(look))
        axes.set(xlabel="step", ylabel=named(name))
    settings = dict((simulated or found).settings)
    if len(set(schedule)) == 1:
        settings |= schedule[0].to_dict()
    trials = simulated[0].trials if simulated else None
    figure.suptitle(caption("Joint descent", settings, trials), fontsize=6, wrap=True)
    save_figure(figure, path.with_suffix(""), [path.suffix.lstrip(".")])
    tell_written(path)
