"""What the commands on a person's own data share: the file, the progress, the answer."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from sparsetoken.cli.options import (
    json_option,
    plot_option,
    seed_option,
)
from sparsetoken.cli.output import (
    check_picture,
    force_option,
    print_json,
    print_text,
    tell_written,
)
from sparsetoken.validation import ParameterError
from sparsetoken.validation import shown as shown_value

__all__ = ["answer_from_data", "data_options"]

Function = TypeVar("Function", bound=Callable[..., Any])


def data_options(function: Function) -> Function:
    """Add the file with the data, and how the answer is shown."""
    for decorate in reversed(
        (
            click.argument("data", type=click.Path(path_type=Path, dir_okay=False)),
            seed_option("draws"),
            json_option,
            plot_option(),
            force_option,
        )
    ):
        function = decorate(function)
    return function


def answer_from_data(
    ask: Callable[..., Any], what: str, shown: dict[str, Any], asked: dict[str, Any]
) -> None:
    """Ask about the data under a progress bar, then draw and print the answer.

    Parameters
    ----------
    ask : called with X, y, the settings `asked` and `progress`
    what : what the progress bar says
    shown : the options of `data_options`
    """
    data, plot = shown["data"], shown["plot"]
    if plot is not None:
        check_picture("plot", plot, inputs=[data], force=shown["force"])

    from rich.console import Console
    from rich.progress import Progress

    from sparsetoken.estimators.archive import read_labelled

    try:
        X, y = read_labelled(data)
    except ParameterError as error:
        if error.parameter != "file":
            raise
        accepted = f"{error.accepted}, but it has {shown_value(error.value)}"
        raise ParameterError("DATA", str(data), accepted) from None
    with Progress(console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task(what, total=None)
        found = ask(
            X,
            y,
            progress=lambda done, total: progress.update(bar, completed=done, total=total),
            **asked,
        )
    if plot is not None:
        from sparsetoken.plotting import save_figure

        drawn = found.plot()
        figure = getattr(drawn, "figure", None) or drawn
        save_figure(figure, plot.with_suffix(""), [plot.suffix.lstrip(".")])
        tell_written(plot)
    if shown["as_json"]:
        print_json({"data": str(data), **asked}, found.to_dict())
    else:
        print_text(str(found))
