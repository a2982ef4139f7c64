"""`sparsetoken diagnose`: why attention is, or is not, better, from an .npz file."""

from typing import Any

import click

from sparsetoken.cli.data import answer_from_data, data_options

__all__ = ["diagnose"]


@click.command(short_help="Say why attention is, or is not, better on your data.")
@data_options
@click.option("--cv", type=int, default=5, show_default=True, help="Folds for the errors.")
@click.option("--repeats", type=int, default=1, show_default=True, help="Repeats of the folds.")
@click.option(
    "--splits", type=int, default=2, show_default=True, help="Halvings to estimate the signal."
)
def diagnose(**options: Any) -> None:
    """Say why attention is, or is not, better than pooling on two classes.

    DATA is an .npz file with arrays X (n, tokens, dimension) and y (n,), and perhaps mask (n,
    tokens), True where a token is. It is read without pickle.
    """

    def ask(X: Any, y: Any, **settings: Any) -> Any:
        import sparsetoken

        return sparsetoken.diagnose(X, y, **settings)

    asked = {name: options[name] for name in ("cv", "repeats", "splits", "seed")}
    answer_from_data(ask, "Comparison and fits on halves", options, asked)
