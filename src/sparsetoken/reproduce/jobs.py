"""Jobs, and the table that their results make.

A job can be stored, resumed and sent to another process, because it holds nothing but plain data.
`sparsetoken.reproduce.execution` does the work.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from sparsetoken.reproduce.claim import Job, Result, Row, Settings, Table
from sparsetoken.task import Query, Task, Training

__all__ = [
    "alignment_job",
    "capacity_job",
    "capacity_trials",
    "compared_jobs",
    "counting_job",
    "oracle_job",
    "prediction_job",
    "query_trials",
    "strength_job",
    "tabulate",
    "trial_jobs",
]


def alignment_job(task: Task, training: Training, **labels: Any) -> Job:
    """Ask for theory of the query after two gradient steps."""
    return _theory("alignment", labels, task=task, training=training)


def prediction_job(
    task: Task,
    training: Training,
    classifier: str = "attention",
    query: Query | None = None,
    tolerance: float = 1e-4,
    **labels: Any,
) -> Job:
    """Ask for theory of the trained classifier."""
    labels = {"classifier": classifier, **labels}
    return _theory(
        "prediction",
        labels,
        task=task,
        training=training,
        classifier=classifier,
        query=query,
        tolerance=tolerance,
    )


def capacity_job(
    task: Task, classifier: str = "attention", query: Query | None = None, **labels: Any
) -> Job:
    """Ask for theory of the largest separable sample ratio."""
    labels = {"classifier": classifier, **labels}
    return _theory("capacity", labels, task=task, classifier=classifier, query=query)


def oracle_job(task: Task, classifier: str, **labels: Any) -> Job:
    """Ask for theory of the least error of a classifier that knows the signal."""
    return _theory("oracle", {"classifier": classifier, **labels}, task=task, classifier=classifier)


def strength_job(
    task: Task,
    error: float,
    classifier: str,
    nonlinearity: str = "sigmoid",
    sharpness: float | None = None,
    **labels: Any,
) -> Job:
    """Ask for theory of the least strength for an error, at the best sharpness or at a given one."""
    labels = {"classifier": classifier, **labels}
    return _theory(
        "strength",
        labels,
        task=task,
        error=error,
        classifier=classifier,
        nonlinearity=nonlinearity,
        sharpness=sharpness,
    )


def trial_jobs(
    count: int,
    task: Task,
    training: Training,
    dimension: int,
    classifier: str = "attention",
    query: Query | None = None,
    seed: int = 0,
    **labels: Any,
) -> list[Job]:
    """Ask for simulated data sets on which the classifier is trained through all four stages."""
    return _trials(
        "trial",
        count,
        {"classifier": classifier, "dimension": dimension, **labels},
        task=task,
        training=training,
        dimension=dimension,
        classifier=classifier,
        query=query,
        seed=seed,
    )


def compared_jobs(
    over: str,
    theory_points: Iterable[float],
    simulated_points: Iterable[float],
    problem: Callable[[float], tuple[Task, Training, Query | None]],
    settings: Settings,
    classifier: str = "attention",
    **labels: Any,
) -> list[Job]:
    """Ask for theory on all points of a curve, and trials at some, both labelled `over` = point.

    `problem` gives task, training and query at a point; `settings` has theory's tolerance, the
    dimension, the number of trials and the seed.
    """
    simulated = list(simulated_points)
    made: list[Job] = []
    for point in sorted({*theory_points, *simulated}):
        task, training, query = problem(point)
        named = {**labels, over: point}
        tolerance = settings["tolerance"]
        made.append(prediction_job(task, training, classifier, query, tolerance, **named))
        if point in simulated:
            made += trial_jobs(
                settings["trials"],
                task,
                training,
                settings["dimension"],
                classifier,
                query,
                settings["seed"],
                **named,
            )
    return made


def query_trials(
    count: int, task: Task, training: Training, dimension: int, seed: int = 0, **labels: Any
) -> list[Job]:
    """Ask for simulated data sets on which only the query is trained (stages 1 to 3)."""
    return _trials(
        "query_trial",
        count,
        {"dimension": dimension, **labels},
        task=task,
        training=training,
        dimension=dimension,
        seed=seed,
    )


def capacity_trials(
    count: int,
    task: Task,
    dimension: int,
    ratio: float,
    classifier: str = "attention",
    query: Query | None = None,
    seed: int = 0,
    **labels: Any,
) -> list[Job]:
    """Ask for simulated data sets with `ratio` times as many samples as the predicted capacity."""
    return _trials(
        "capacity_trial",
        count,
        {"classifier": classifier, "dimension": dimension, "ratio": ratio, **labels},
        task=task,
        dimension=dimension,
        ratio=ratio,
        classifier=classifier,
        query=query,
        seed=seed,
    )


def counting_job(
    count: int,
    task: Task,
    error: float,
    classifier: str,
    samples: int,
    seed: int = 0,
    **labels: Any,
) -> Job:
    """Ask for errors counted on drawn sequences at the strength that theory says gives `error`.

    All trials are one job, so that theory is asked only once.
    """
    plain = _plain(
        {
            "task": task,
            "error": error,
            "classifier": classifier,
            "samples": samples,
            "trials": count,
            "seed": seed,
        }
    )
    return Job("counting", plain, {"source": "simulation", "classifier": classifier, **labels})


def tabulate(jobs: Sequence[Job], results: Sequence[Result], settings: Settings) -> Table:
    """Make one row of all trials with the same labels, and one of each other job."""
    groups: dict[str, list[tuple[Job, Result]]] = {}
    for job, result in zip(jobs, results, strict=True):
        groups.setdefault(repr(sorted(job.labels.items())), []).append((job, result))
    rows: list[Row] = []
    for group in groups.values():
        labels, measured = group[0][0].labels, [result for _, result in group]
        if labels["source"] == "theory" or "trials" in measured[0]:
            rows.extend({**labels, **result} for result in measured)
        else:
            rows.append({**labels, **_summary(measured)})
    return Table(rows, settings)


def _summary(measured: Sequence[Result]) -> Result:
    count = len(measured)
    summary: Result = {"trials": count}
    for name in measured[0]:
        if not all(name in result for result in measured):
            continue
        values = np.array([result[name] for result in measured], dtype=float)
        spread = float(values.std(ddof=1)) if count > 1 else float("nan")
        summary[name] = float(values.mean())
        summary[f"{name}_error"] = spread / float(np.sqrt(count))
        summary[f"{name}_spread"] = spread
    return summary


def _plain(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value.to_dict() if isinstance(value, Task | Training | Query) else value
        for name, value in arguments.items()
        if value is not None
    }


def _theory(kind: str, labels: Mapping[str, Any], **arguments: Any) -> Job:
    return Job(kind, _plain(arguments), {"source": "theory", **labels})


def _trials(kind: str, count: int, labels: Mapping[str, Any], **arguments: Any) -> list[Job]:
    plain = _plain(arguments)
    named = {"source": "simulation", **labels}
    return [Job(kind, {**plain, "trial": trial}, named) for trial in range(count)]
