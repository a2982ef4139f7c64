"""What a study computes: one simulated trial, and the theory of one cell.

The settings of a cell are flat, so that each is a column of the exported table: the fields of the
task and of the training by their names, those of a given query and of the task at test time with
the prefixes "query_" and "at_", and classifier, dimension, sampler and seed. Where the study asks for
them there are also at_sharpness, at_recalibrate and metrics, the names of further quantities.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, NamedTuple

from sparsetoken.records import LOCALISATION
from sparsetoken.task import Query, Task, Training

__all__ = ["THEORY_IGNORES", "Cell", "predict_cell", "read_cell", "simulate_trial"]

# Theory is about infinite dimension: it is the same whatever the simulation is made with.
THEORY_IGNORES = ("dimension", "sampler", "seed")

# Of a trial's record: what is not a result, and is kept by the store itself.
_NOT_RESULTS = ("trial", "seconds")


class Cell(NamedTuple):
    """The objects that the settings of a cell describe.

    `query` is None if it is learnt, `at` if the task at test time is that of training.
    """

    task: Task
    training: Training
    query: Query | None
    at: Task | None


def read_cell(settings: Mapping[str, Any]) -> Cell:
    """Return the objects that the settings of a cell describe."""
    given = "query_alignment" in settings
    return Cell(
        Task(**_fields_of(Task, settings)),
        Training(**_fields_of(Training, settings)),
        Query(**_fields_of(Query, settings, "query_")) if given and _attends(settings) else None,
        Task(**_fields_of(Task, settings, "at_")) if "at_length" in settings else None,
    )


def _fields_of(kind: type, settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    return {item.name: settings[prefix + item.name] for item in fields(kind)}


def _attends(settings: Mapping[str, Any]) -> bool:
    """Tell whether the classifier has a query and a softmax; what is said of them is for those."""
    from sparsetoken.simulation.draws import DRAWS

    return DRAWS[settings["classifier"]].takes_query


def _usage(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return how the trained classifier is used at test time, where it is not as trained."""
    sharpness = settings.get("at_sharpness") if _attends(settings) else None
    return {
        "at_sharpness": None if sharpness is None else float(sharpness),
        "recalibrate": settings.get("at_recalibrate", False),
    }


def _metrics(settings: Mapping[str, Any]) -> list[str]:
    """Return the further quantities that were asked for and that the classifier has."""
    asked = settings.get("metrics", "").split()
    return [name for name in asked if name not in LOCALISATION or _attends(settings)]


def simulate_trial(settings: dict[str, Any], trial: int) -> dict[str, Any]:
    """Run one trial of a cell; its random numbers depend on the settings and `trial` alone."""
    from sparsetoken import run_trial

    task, training, query, at = read_cell(settings)
    record = run_trial(
        task,
        training,
        dimension=settings["dimension"],
        trial=trial,
        classifier=settings["classifier"],
        query=query,
        sampler=settings["sampler"],
        at=at,
        seed=settings["seed"],
        metrics=_metrics(settings),
        **_usage(settings),
    )
    return {name: value for name, value in record.to_dict().items() if name not in _NOT_RESULTS}


def predict_cell(settings: dict[str, Any]) -> dict[str, Any]:
    """Compute what theory says of a cell, under the names that a trial has for the same thing."""
    from sparsetoken.theory.prediction import known_metrics
    from sparsetoken.theory.predictor import predict

    task, training, query, at = read_cell(settings)
    prediction = predict(
        task,
        training,
        classifier=settings["classifier"],
        query=query,
        at=at,
        **_usage(settings),
    )
    found = prediction.to_dict(*known_metrics(prediction, _metrics(settings)))
    found.pop("at_sharpness", None)  # a setting, not a result
    return found
