"""`sparsetoken shift`: what a classifier trained on short sequences does on long ones."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sparsetoken.cli.options import (
    curve_values,
    json_option,
    plot_option,
    query_options,
    read_query,
    read_task,
    read_training,
    refuse_learning,
    task_options,
    tolerance_option,
    training_options,
)
from sparsetoken.cli.output import (
    check_picture,
    force_option,
    print_json,
    print_settings,
    print_text,
    tell_written,
    tracked,
)

if TYPE_CHECKING:
    from sparsetoken.records import Curve
    from sparsetoken.theory.shift import Shift

__all__ = ["shift"]

_FIELDS = ("length", "informative", "strength", "positive_rate")
_WORDS = """\b
Words in the table:
  trained    the softmax as it was trained
  hard       all weight on the token with the largest score
  best bias  with the bias of least error on the task at test time
  best pair  with the best sharpness and the best bias: two numbers
  oracle     no classifier does better, not even one that knows the signal
"""


@click.command(
    epilog=_WORDS, short_help="Predict attention trained on one task and used on another."
)
@task_options
@training_options
@query_options
@click.option(
    "--over",
    type=click.Choice(_FIELDS),
    default="length",
    show_default=True,
    help="Field of the task at test time that varies.",
)
@click.option("--from", "start", type=float, help="First value.  [default: that of training]")
@click.option(
    "--to", "stop", type=float, help="Last value.  [default: 10^5, or what fits the field]"
)
@click.option("--points", type=int, default=6, show_default=True, help="How many values.")
@click.option(
    "--log/--linear", "logarithmic", default=None, help="Spacing.  [default: log for length]"
)
@click.option(
    "--at-sharpness",
    type=float,
    multiple=True,
    default=(2.0, float("inf")),
    show_default="2 and inf",
    help="Sharpness at test time to try, inf for a hard maximum; may be repeated.",
)
@tolerance_option(1e-3, "accuracy")
@plot_option("errors")
@force_option
@json_option
def shift(
    over: str,
    at_sharpness: tuple[float, ...],
    tolerance: float,
    plot: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Predict attention trained on one task and used on another, and what repairs it.

    The trained softmax, sharper ones and a hard maximum, each with the trained bias and with the
    best one, and the best sharpness of all.
    """
    from sparsetoken.theory.shift import shift as shift_of

    task, training, query = read_task(options), read_training(options), read_query(options)
    refuse_learning("attention", query)
    if plot is not None:
        check_picture("plot", plot, force=options["force"])
    if options["logarithmic"] is None:
        options["logarithmic"] = over == "length"
    if over == "length":
        options["start"] = task.length if options["start"] is None else options["start"]
        options["stop"] = 1e5 if options["stop"] is None else options["stop"]
    values = curve_values(over, options, task)
    found = shift_of(
        *(task, training),
        over=over,
        values=tracked(values),
        query=query,
        sharpness=at_sharpness,
        tolerance=tolerance,
    )
    if as_json:
        print_json(found.settings, found.to_rows())
    else:
        _print(found)
    if plot is not None:
        _draw(plot, found, options["logarithmic"])


def _print(found: "Curve[Shift]") -> None:
    """Print a row for each way of use and a column for each value, and the gist in words."""
    from rich.console import Console
    from rich.table import Table

    rows = found.to_rows()
    names = [name for name in rows[0] if not name.endswith("_uncertainty")]
    table = Table(title="test error of attention", title_justify="left")
    for name in names:
        cells = [_cell(name, row[name]) for row in rows]
        if name == found.over:
            table.add_column(name.replace("_", " "))
            for cell in cells:
                table.add_column(cell, justify="right")
        else:
            table.add_row(name.removesuffix("_test_error").replace("_", " "), *cells)
    Console().print(table)
    bars = [row[name] for row in rows for name in row if name.endswith("_uncertainty")]
    click.echo(f"Numerical errors are below {max(bars):.1g}.")
    last, pair = rows[-1], found.records[-1].ways["best_pair"]
    print_text(
        f"At {found.over.removeprefix('at_')} {found.values[-1]:g} the trained classifier errs in "
        f"{last['trained_test_error']:.3g} of cases, with the best bias in "
        f"{last['trained_best_bias_test_error']:.3g}. With sharpness {pair.at_sharpness:.3g} and bias "
        f"{pair.at_bias:.3g}, two numbers, it errs in {pair.test_error:.3g}."
    )
    print_settings(found.settings)


def _cell(name: str, value: float | None) -> str:
    if value is None:
        return "-"
    if isinstance(value, int):
        return str(value)
    return f"{value:.4f}" if name.endswith("_test_error") else f"{value:.4g}"


def _draw(path: Path, found: "Curve[Shift]", logarithmic: bool) -> None:
    from sparsetoken.plotting import (
        LOOKS,
        describe,
        draw_band,
        named,
        new_figure,
        save_figure,
        shared_legend,
        tidy_log_ticks,
    )
    from sparsetoken.plotting.style import SERIES

    figure, (axes,) = new_figure(panel_height=3.2)
    rows = found.to_rows()
    drawn = [name for name in rows[0] if name.endswith("_test_error")]
    fixed = {"trained_test_error": LOOKS["attention"], "oracle_test_error": LOOKS["bayes"]}
    others = iter((*SERIES[:3], LOOKS["vectorised"], LOOKS["pooled"], *SERIES[4:]))
    for name in drawn:
        if name.startswith(("hard_test_error", "sharpness_")) and not name.endswith(
            "best_bias_test_error"
        ):
            continue  # without a fitting bias they are as bad as the trained one
        look = fixed.get(name) or next(others)
        heights = [row[name] for row in rows]
        bars = [row[name + "_uncertainty"] for row in rows]
        label = name.removesuffix("_test_error").replace("_", " ")
        line = "--" if name == "oracle_test_error" else "-"
        draw_band(axes, found.values, heights, bars, look.named(label), linestyle=line)
    axes.set_xlabel(named(found.over.removeprefix("at_")) + " at test time")
    axes.set_ylabel(named("test_error"))
    if logarithmic:
        axes.set_xscale("log")
        tidy_log_ticks(axes)
    shared_legend(figure, columns=2)
    axes.set_title(describe(found.settings), fontsize=5, wrap=True)
    save_figure(figure, path.with_suffix(""), [path.suffix.lstrip(".")])
    tell_written(path)
