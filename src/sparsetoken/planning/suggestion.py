"""Settings of two-step training by a few rules, nearly as good as a search."""

from dataclasses import replace

import numpy as np

from sparsetoken import validation
from sparsetoken.losses import get_loss
from sparsetoken.numerics.threads import one_thread
from sparsetoken.planning.best_training import VariedTraining
from sparsetoken.task import Task, Training
from sparsetoken.theory.alignment import balanced_bias_step, learnt_alignment
from sparsetoken.theory.predictor import curve

__all__ = [
    "BIAS_FACTORS",
    "READOUT_STEP",
    "RIDGES",
    "bias_steps",
    "suggest",
    "suggested_sharpness",
]

READOUT_STEP = 0.2
# Tried: multiples of the step that makes the first bias the log odds of the labels, and ridges.
BIAS_FACTORS = (0.0, 0.25, 0.5, 1.0, 2.0)
RIDGES = (0.3, 0.1, 0.03, 0.01, 0.003, 0.001)


def suggested_sharpness(task: Task) -> float:
    """Return κ = 0.55 log(1 + L/R²): sharp where the mean of all tokens tells little, else soft."""
    return float(0.55 * np.log1p(task.length / max(task.counts.mean, 1.0) ** 2))


def suggest(
    task: Task, alpha: float, *, loss: str = "logistic", tolerance: float = 1e-3
) -> Training:
    """Return settings of two-step training without a split, by the rules of docs/training-guide.md.

    The query step follows from the sharpness κ = 0.55 log(1 + L/R²), the bias step is that of five
    which aligns the query best, and the ridge that of six which gives the least test error. That takes
    some tenths of a second; `plan` searches all of them.

    Parameters
    ----------
    task : Task
    alpha : float
        All samples, per dimension.
    loss : str
    tolerance : float
        Wanted numerical error of the six test errors.

    Returns
    -------
    Training

    Examples
    --------
    >>> from sparsetoken import Task, Training, predict, suggest
    >>> task = Task(10, 1, 5.0)
    >>> training = suggest(task, 2.0)
    >>> training.reuse, training.readout_step
    (True, 0.2)
    >>> predict(task, training).test_error < predict(task, Training(1.0, 1.0)).test_error / 3
    True
    """
    validation.instance("task", task, Task)
    alpha = validation.real("alpha", alpha, low=1e-6, high=1e6)  # as the ratios of a training
    first = VariedTraining(
        alpha,
        sharpness=suggested_sharpness(task),
        loss=get_loss(loss).name,
        readout_step=READOUT_STEP,
        schedule="no split",
    )
    training = _best_aligned(task, first).training(task)
    with one_thread:
        found = curve(task, training, over="ridge", values=RIDGES, tolerance=tolerance)
    errors = [one.test_error if one.solution.converged else np.inf for one in found]
    return training.replace(ridge=RIDGES[int(np.argmin(errors))])


def _best_aligned(task: Task, first: VariedTraining) -> VariedTraining:
    """Return the candidate with the bias step that aligns its query best."""
    steps = bias_steps(task, first.loss)
    options = [replace(first, bias_step=step) for step in steps]
    cosines = [learnt_alignment(task, option.training(task)).alignment for option in options]
    return options[int(np.argmax(cosines))]


def bias_steps(task: Task, loss: str = "logistic") -> tuple[float, ...]:
    """Return the bias steps to try: b1 = -η_b ℓ'(0)(2π - 1) becomes a multiple of the log odds."""
    slope = -float(get_loss(loss).slope(np.zeros(1))[0])
    balanced = balanced_bias_step(task.positive_rate) / (2 * slope)
    return tuple(factor * balanced for factor in BIAS_FACTORS)
