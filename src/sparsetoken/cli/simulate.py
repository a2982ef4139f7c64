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
from sparsetoken.cli.output import check_writable, force_option, json_text, tell_written, write_csv
from sparsetoken.records import METRICS, measured, with_error

if TYPE_CHECKING:
    from sparsetoken.simulation.trials import Simulation, Trial

__all__ = ["simulate"]

# A value and its numerical error, None if it has none.
ValueAndBar = tuple[Any, float | None]


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
@click.option("--trials", type=int, default=20, show_default=True, help="Number of trials.")
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
        write_csv(csv_path, [trial.to_dict() for trial in result.trials])
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


def _theory(result: "Simulation") -> dict[str, ValueAndBar]:
    """Return theory's values with their numerical errors, by the names of a trial's fields."""
    from sparsetoken.theory.prediction import known_metrics, predict

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
    flat = measured(prediction.to_dict(*known_metrics(prediction, asked)))
    values = {name: entry for name, entry in flat.items() if entry[0] is not None}
    if result.query is not None:  # what is given needs no comparison
        values = {
            name: entry for name, entry in values.items() if name not in result.query.to_dict()
        }
    return {**values, "fresh_test_error": values["test_error"]}


def _z_score(result: "Simulation", field: str, theory: dict[str, ValueAndBar]) -> float | None:
    from sparsetoken.uncertainty import z_scores

    mean, error = result.mean(field), result.standard_error(field)
    if mean is None or not error or field not in theory:
        return None
    value, bar = theory[field]
    freedom = len(result.values(field)) - 1
    return float(z_scores(mean - value, error, freedom=freedom, bar=bar or 0.0))


def _fields(result: "Simulation") -> list[str]:
    names = (
        *("test_error", "fresh_test_error", "auc", "average_precision", "balanced_error"),
        *(
            "train_loss",
            "train_error",
            "separable",
            "margin",
            "attended_mass",
            "hit_rate",
            "at_bias",
        ),
        *("alignment", "query_norm", "sharpness", "readout_cosine"),
    )
    return [name for name in names if result.mean(name) is not None]


def _print_table(result: "Simulation", theory: dict[str, ValueAndBar], wanted: int) -> None:
    from rich.console import Console
    from rich.table import Table

    done, d = len(result.trials), result.dimension
    title = f"{result.classifier}, d = {d}, {done} of {wanted} trials ({result.sampler} sampler)"
    table = Table(title=title, title_justify="left")
    table.add_column("quantity")
    for name in ("simulation", "theory", "z"):
        table.add_column(name, justify="right")
    for name in _fields(result):
        z = _z_score(result, name, theory)
        table.add_row(
            name.replace("_", " "),
            with_error(result.mean(name), result.standard_error(name) or None),
            with_error(*theory[name]) if name in theory else "",
            "" if z is None else f"{z:+.2f}",
        )
    console = Console()
    console.print(table)
    largest = max(result.values("residual"))
    console.print(f"Solver: largest gradient norm or KKT residual {largest:.1e}")
    failed = [trial for trial in result.trials if not trial.converged]
    if failed:
        console.print(f"{len(failed)} trials did not converge: {failed[0].message}")


def _print_json(
    result: "Simulation", theory: dict[str, ValueAndBar], wanted: int, interrupted: bool
) -> None:
    text = {
        "settings": {**result.settings(), "trials": wanted},
        "interrupted": interrupted,
        "result": result.to_dict(),
        "theory": {name: entry[0] for name, entry in theory.items()},
        "theory_uncertainty": {name: entry[1] for name, entry in theory.items() if entry[1]},
        "z": {name: _z_score(result, name, theory) for name in _fields(result)},
        "trials": [trial.to_dict() for trial in result.trials],
    }
    click.echo(json_text(text))


def _is_csv(content: bytes) -> bool:
    return content.startswith(b"trial,alignment,query_norm,")
