"""`sparsetoken plan`: how many samples, which training, and how surely."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sparsetoken.cli.options import (
    json_option,
    plot_option,
    read_task,
    seed_option,
    task_options,
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
)
from sparsetoken.files import write_text
from sparsetoken.planning.defaults import ASSURANCE, TRIALS

if TYPE_CHECKING:
    from sparsetoken.planning.plan import Plan

__all__ = ["plan"]


@click.command(short_help="Plan a study: the fewest samples, the best settings.")
@task_options
@click.option("--dimension", type=int, default=256, show_default=True, help="Dimension d.")
@click.option("--error", type=float, help="Target: the test error to reach.")
@click.option("--auc", type=float, help="Target: the area under the ROC curve to reach.")
@click.option("--samples", type=int, help="A budget instead: the best that so many samples give.")
@click.option(
    "--assurance",
    type=float,
    default=ASSURANCE,
    show_default=True,
    help="Share of repeated studies that should reach the target.",
)
@click.option(
    "--trials",
    type=int,
    default=TRIALS,
    show_default=True,
    help="Simulated studies for each number of samples; 0 for none.",
)
@workers_option
@seed_option("the studies")
@json_option
@plot_option()
@click.option(
    "--save", type=click.Path(path_type=Path), help="Write a study that checks it (.toml)."
)
@force_option
def plan(as_json: bool, plot: Path | None, save: Path | None, workers: int, **options: Any) -> None:
    """Plan a study with attention: the fewest samples for a target, or the best for a budget.

    Give one of --error, --auc and --samples. The plan is checked by simulated studies at the given
    dimension.
    """
    check_different({"plot": plot, "save": save})
    if plot is not None:
        check_picture("plot", plot, force=options["force"])
    if save is not None:
        check_writable(save, _is_study, force=options["force"])
    if sum(options[name] is not None for name in ("error", "auc", "samples")) != 1:
        raise click.UsageError("give one of --error, --auc (a target) and --samples (a budget)")
    if not options["trials"]:
        refuse_unread_options(("assurance", "seed"), "no study is simulated with --trials 0")
    task = read_task(options)
    names = ("dimension", "error", "auc", "samples", "assurance", "trials", "seed")
    asked = {name: options[name] for name in names}
    found = _planned(task, {**asked, "workers": workers})
    if save is not None and found.training is not None:
        write_text(save, found.study())
        tell_written(save)
    if plot is not None and found.training is not None:
        from sparsetoken.plotting import save_figure

        save_figure(found.plot().figure, plot.with_suffix(""), [plot.suffix.lstrip(".")])
        tell_written(plot)
    if as_json:
        print_json({**task.to_dict(), **asked}, found.to_dict())
    else:
        print_text(str(found))


def _is_study(content: bytes) -> bool:
    return content.startswith(b'title = "Check of a plan')


def _planned(task: Any, asked: dict[str, Any]) -> "Plan":
    """Make the plan under a progress bar, on the stream that is not for results."""
    from rich.console import Console
    from rich.progress import Progress

    from sparsetoken.planning.plan import plan as make_plan

    with Progress(console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("Predictions and simulated studies", total=None)
        return make_plan(
            task,
            progress=lambda done, total: progress.update(bar, completed=done, total=total),
            **asked,
        )
