"""`sparsetoken simulate`: trials on finite data, with theory beside them."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sparsetoken.cli.options import (
    at_options,
    classifier_option,
    json_option,
    metric_option,
    query_options,
    read_at,
    read_query,
    read_task,
    read_training,
    recalibrate_option,
    refuse_learning,
    seed_option,
    task_options,
    training_options,
    workers_option,
)
from sparsetoken.cli.output import (
    Row,
    check_writable,
    force_option,
    json_text,
    print_settings,
    tell_written,
    write_rows,
)
from sparsetoken.records import LOCALISATION, METRICS, RANKING, UNCERTAINTY, with_error

if TYPE_CHECKING:
    from sparsetoken.simulation.trials import Simulation, Trial
    from sparsetoken.uncertainty import Joined

__all__ = ["simulate"]

# What is compared, in this order.
_SHOWN = (
    *("test_error", "fresh_test_error", *RANKING),
    *("train_loss", "train_error", "separable", "margin"),
    *(*LOCALISATION, "at_bias"),
    *("alignment", "query_norm", "sharpness", "readout_cosine"),
)


@click.command(short_help="Train on drawn data, and compare with theory.")
@task_options
@training_options
@query_options
@classifier_option
@at_options
@click.option(
    "--at-sharpness",
    type=float,
    help="Sharpness of the softmax (κ) at test time: a number, or inf for a hard maximum.",
)
@recalibrate_option
@metric_option("Measure also auc, average_precision, balanced_error, attended_mass or hit_rate.")
@click.option("--dimension", type=int, default=500, show_default=True, help="Dimension d.")
@click.option("--trials", type=int, default=8, show_default=True, help="Number of trials.")
@workers_option
@seed_option("the trials")
@click.option(
    "--sampler",
    default="reduced",
    show_default=True,
    help="reduced (few numbers) or plain (whole sequences); both have the same law.",
)
@click.option(
    "--dtype",
    default="float64",
    show_default=True,
    help="Of the features: float64, or float32 for large d, which are other draws.",
)
@click.option("--fresh-test", type=int, default=0, help="Also test on this many fresh samples.")
@json_option
@click.option(
    "--csv", "csv_path", type=click.Path(path_type=Path), help="Write a row for every trial."
)
@force_option
def simulate(
    dimension: int,
    trials: int,
    workers: int,
    as_json: bool,
    csv_path: Path | None,
    force: bool,
    **options: Any,
) -> None:
    """Train classifiers on data drawn from a task, and compare with theory.

    z is (simulation - theory) / standard error: a few units at most, if both are right and the
    dimension is large. Ctrl-C ends early and shows the trials that have finished.
    """
    if csv_path is not None:
        check_writable(csv_path, _is_csv, force=force)
    task, query = read_task(options), read_query(options)
    refuse_learning(options["classifier"], query)
    problem = {
        "task": task,
        "training": read_training(options),
        "dimension": dimension,
        "classifier": options["classifier"],
        "query": query,
        "at": read_at(options, task),
        "at_sharpness": options["at_sharpness"],
        "recalibrate": options["recalibrate"],
        "sampler": options["sampler"],
        "seed": options["seed"],
    }
    extra = {name: options[name] for name in ("dtype", "fresh_test", "metrics")}
    found, interrupted = _run({**problem, **extra, "trials": trials, "workers": workers})
    if not found:
        raise click.Abort
    from sparsetoken.simulation.trials import Simulation

    result = Simulation(**problem, trials=tuple(found))
    theory = _theory(result)
    if csv_path is not None:
        write_rows(csv_path, [trial.to_dict() for trial in result.trials])
        tell_written(csv_path)
    if as_json:
        _print_json(result, theory, trials, interrupted)
    else:
        _print_table(result, theory, trials)
    if interrupted:
        raise SystemExit(130)


def _run(options: dict[str, Any]) -> tuple[list["Trial"], bool]:
    """Run the trials under a progress bar; an interrupt keeps those that have finished."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    from sparsetoken.simulation.trials import iterate_trials

    found, interrupted = [], False
    columns = ("Trials", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("trials", total=options["trials"])
        try:
            for trial in iterate_trials(**options):
                found.append(trial)
                progress.advance(bar)
        except KeyboardInterrupt:
            interrupted = True
        except MemoryError as error:
            advice = "use --sampler reduced" if options["sampler"] == "plain" else ""
            raise MemoryError(": ".join(filter(None, (str(error), advice)))) from None
    return found, interrupted


def _theory(result: "Simulation") -> Row:
    """Return theory's flat record: the names of a trial's fields, and their numerical errors."""
    from sparsetoken.theory.prediction import known_metrics
    from sparsetoken.theory.predictor import predict

    prediction = predict(
        result.task,
        result.training,
        classifier=result.classifier,
        query=result.query,
        at=result.at,
        at_sharpness=result.at_sharpness,
        recalibrate=result.recalibrate,
    )
    asked = [name for name in METRICS if result.mean(name) is not None]
    flat = prediction.to_dict(*known_metrics(prediction, asked))
    # What is given needs no comparison.
    given = () if result.query is None else result.query.to_dict()
    known = {name: value for name, value in flat.items() if value is not None and name not in given}
    if result.mean("fresh_test_error") is not None:
        known["fresh_test_error"] = known["test_error"]
        known["fresh_test_error" + UNCERTAINTY] = known["test_error" + UNCERTAINTY]
    return known


def _compared(result: "Simulation", theory: Row) -> "dict[str, Joined]":
    """Return what is measured of the trials, beside theory where it says something of it."""
    from sparsetoken.uncertainty import joined

    simulated = result.to_dict()
    return {
        name: joined(name, simulated, theory, trials=len(result.values(name)))
        for name in _SHOWN
        if name in simulated
    }


def _print_table(result: "Simulation", theory: Row, wanted: int) -> None:
    from rich.console import Console
    from rich.table import Table

    done, d = len(result.trials), result.dimension
    title = f"{result.classifier}, d = {d}, {done} of {wanted} trials ({result.sampler} sampler)"
    table = Table(title=title, title_justify="left")
    table.add_column("quantity")
    for name in ("simulation", "theory", "z"):
        table.add_column(name, justify="right")
    for name, one in _compared(result, theory).items():
        table.add_row(
            name.replace("_", " "),
            with_error(one.mean, one.standard_error or None),
            "" if one.theory is None else with_error(one.theory, one.bar),
            "" if one.z is None else f"{one.z:+.2f}",
        )
    console = Console()
    console.print(table)
    _print_settings(result)
    largest = max(result.values("residual"))
    console.print(f"Solver: largest gradient norm or KKT residual {largest:.1e}")
    failed = [trial for trial in result.trials if not trial.converged]
    if failed:
        console.print(f"{len(failed)} trials did not converge: {failed[0].message}")


def _print_settings(result: "Simulation") -> None:
    from sparsetoken.theory.chosen_query import prediction_fields
    from sparsetoken.theory.predictor import settings_of_test

    given = {**result.training.to_dict(), **(result.query.to_dict() if result.query else {})}
    read = {*prediction_fields(result.classifier, result.query), "loss", "reuse"}
    of_test = settings_of_test(result.at, result.at_sharpness, result.recalibrate)
    print_settings({**result.task.to_dict(), **given, **of_test}, given.keys() - read)


def _print_json(result: "Simulation", theory: Row, wanted: int, interrupted: bool) -> None:
    text = {
        "settings": {**result.settings(), "trials": wanted},
        "interrupted": interrupted,
        "result": result.to_dict(),
        "theory": theory,
        "z": {name: one.z for name, one in _compared(result, theory).items()},
        "trials": [trial.to_dict() for trial in result.trials],
    }
    click.echo(json_text(text))


def _is_csv(content: bytes) -> bool:
    return content.startswith(b"trial,alignment,query_norm,")
