"""The file of a study that checks a plan."""

from sparsetoken.planning.defaults import TRIALS
from sparsetoken.task import Task, Training

__all__ = ["study_text", "toml_value"]

_MULTIPLES = (0.5, 0.75, 1.0, 1.5, 2.0)


def study_text(
    task: Task,
    training: Training,
    dimension: int,
    aim: tuple[str, float | None],
    seed: int,
) -> str:
    """Return a study over the planned number of samples and some smaller and larger ones.

    `aim` is the metric and the target, if there is one. Its draws are those of `seed`.
    """
    metric, target = aim
    goal = "" if target is None else f", {metric} {target:g}"
    ranked = metric == "auc"
    lines = [
        f'title = "Check of a plan{goal}"',
        'classifiers = ["attention", "pooled"]',
        f"dimensions = {dimension}",
        f"trials = {TRIALS}",
        f"seed = {seed}",
        *(['metrics = ["auc"]'] if ranked else []),
        'zip = [["training.alpha0", "training.alpha1"]]',
        "",
        "[task]",
        *(f"{name} = {toml_value(value)}" for name, value in task.to_dict().items()),
        "",
        "[training]",
    ]
    for name, value in training.to_dict().items():
        if name in ("alpha0", "alpha1"):
            value = [float(f"{multiple * value:.6g}") for multiple in _MULTIPLES]
        lines.append(f"{name} = {toml_value(value)}")
    lines += [
        "",
        "[plot]",
        'x = "alpha1"',
        *(['y = "auc"'] if ranked else []),
        'scale = "logx"',
        "",
    ]
    return "\n".join(lines)


def toml_value(value: object) -> str:
    """Return a setting, or a list of numbers, as a study file has it."""
    return f'"{value}"' if isinstance(value, str) else str(value).lower()
