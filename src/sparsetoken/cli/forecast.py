"""`sparsetoken forecast`: what more data would give, from an .npz file."""

from typing import Any

import click

from sparsetoken.cli.data import answer_from_data, data_options
from sparsetoken.cli.options import workers_option
from sparsetoken.planning.defaults import ASSURANCE

__all__ = ["forecast"]

_MODELS = {
    "attention": "AttentionClassifier",
    "pooled": "PooledClassifier",
    "vectorised": "VectorisedClassifier",
}


@click.command()
@data_options
@click.option(
    "--model",
    type=click.Choice(list(_MODELS)),
    default="attention",
    show_default=True,
    help="Classifier, with its defaults.",
)
@click.option("--target", type=float, help="The error to reach: how many samples does it take?")
@click.option(
    "--horizon",
    type=float,
    default=8,
    show_default=True,
    help="Up to how many times the data to look.",
)
@click.option(
    "--assurance",
    type=float,
    default=ASSURANCE,
    show_default=True,
    help="How sure to be of the target.",
)
@click.option("--repeats", type=int, default=3, show_default=True, help="Repeats of five folds.")
@click.option(
    "--backtest/--no-backtest",
    default=True,
    show_default=True,
    help="Make the same forecast from half of the data, and compare.",
)
@workers_option
def forecast(model: str, workers: int, **options: Any) -> None:
    """Forecast a classifier's error with 2, 4 and 8 times the data.

    DATA is an .npz file with arrays X (n, tokens, dimension) and y (n,), and perhaps mask (n,
    tokens), True where a token is. It is read without pickle.
    """

    def ask(X: Any, y: Any, **settings: Any) -> Any:
        import sparsetoken

        classifier = getattr(sparsetoken, _MODELS[settings.pop("model")])()
        return sparsetoken.forecast(classifier, X, y, workers=workers, **settings)

    names = ("target", "horizon", "assurance", "repeats", "backtest", "seed")
    asked = {"model": model, **{name: options[name] for name in names}}
    answer_from_data(ask, "Fits on subsamples", options, asked)
