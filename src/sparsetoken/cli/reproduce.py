"""`sparsetoken reproduce`."""

import click

__all__ = ["reproduce"]


@click.command()
@click.option("--quick", is_flag=True, help="Smaller dimension and fewer trials.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the simulation.")
def reproduce(quick: bool, seed: int) -> None:
    """Test error of each classifier on simulated data at L=10, R=1, π=0.5, θ=5."""
    import numpy as np
    from rich.console import Console
    from rich.progress import track
    from rich.table import Table

    from sparsetoken.learning.features import CLASSIFIERS
    from sparsetoken.learning.stages import train
    from sparsetoken.simulation.sampling import sample
    from sparsetoken.task import Task, Training

    dimension, trials = (100, 5) if quick else (250, 10)
    task = Task(length=10, informative=1, strength=5.0, positive_rate=0.5)
    training = Training(alpha0=8.0, alpha1=8.0, ridge=1e-2, query_step=20.0)
    console = Console()
    errors: dict[str, list[float]] = {name: [] for name in CLASSIFIERS}
    for trial in track(range(trials), "Training", console=console, transient=True):
        rng = np.random.default_rng([seed, trial])
        first = sample(task, round(training.alpha0 * dimension), dimension, rng)
        second = sample(
            task, round(training.alpha1 * dimension), dimension, rng, signal=first.signal
        )
        test = sample(task, 2000, dimension, rng, signal=first.signal)
        for name in CLASSIFIERS:
            model = train((first.X, first.y), (second.X, second.y), training, name)
            errors[name].append(float(np.mean(model.predict(test.X) != test.y)))
    table = Table(title=f"L=10, R=1, π=0.5, θ=5; d={dimension}, α0=α1=8, {trials} trials")
    table.add_column("classifier")
    table.add_column("test error ± standard error", justify="right")
    for name, values in errors.items():
        spread = np.std(values, ddof=1) / np.sqrt(trials)
        table.add_row(name, f"{np.mean(values):.4f} ± {spread:.4f}")
    console.print(table)
