"""Measurements: what a claim asks for, how it is computed, and the table that the results make.

A kind of measurement is one function with a decorator::

    @measures("theory", shown=("classifier",))
    def oracle_error(task: Task, classifier: str) -> dict[str, float]:
        return {"test_error": oracle(task, classifier).test_error}

The function computes: plain arguments in, numbers by name out. `oracle_error.ask(task, "pooled",
part="floor")` makes the `Measurement` that asks for it, with what is not an argument of the
function as labels; `ask_trials` asks for as many with trial = 0, 1, ... A measurement holds nothing
but plain data and the function's module and name, so that it can be stored, resumed and sent to
another process, which imports the function by its name.
"""

import inspect
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import numpy as np

from sparsetoken.reproduce.claim import Result, Row, Settings, Table
from sparsetoken.task import Query, Task, Training
from sparsetoken.uncertainty import mean_and_error
from sparsetoken.validation import ParameterError

__all__ = [
    "Kind",
    "Measurement",
    "as_argument",
    "compute_cell",
    "compute_measurement",
    "measures",
    "tabulate",
]

_OBJECTS: dict[str, Any] = {"task": Task, "training": Training, "query": Query, "at": Task}


@dataclass(frozen=True)
class Measurement:
    """One number or several that a claim asks for: by which function, of what, and its labels.

    Measurements with the same labels are trials of one simulated point, one row of the table.
    """

    kind: str
    arguments: Mapping[str, Any]
    labels: Mapping[str, Any]

    @property
    def key(self) -> str:
        """The same text for the same computation, whatever it is labelled."""
        return json.dumps({"kind": self.kind, **self.arguments}, sort_keys=True)

    def labelled(self, **labels: Any) -> "Measurement":
        """Return the same measurement with more labels."""
        return replace(self, labels={**self.labels, **labels})

    @property
    def cell(self) -> dict[str, Any]:
        """The computation as settings of the sweep engine."""
        return {"kind": self.kind, "arguments": dict(self.arguments)}


def as_argument(value: Any) -> Any:
    """Return settings as a dictionary, and other values as they are.

    `reuse` is left out unless it is set, so that what was measured before there was such a field
    keeps its name and its random numbers.
    """
    if not isinstance(value, Task | Training | Query):
        return value
    return {name: part for name, part in value.to_dict().items() if name != "reuse" or part}


@dataclass(frozen=True)
class Kind:
    """A function that computes measurements, and what asks for them.

    Attributes
    ----------
    function : plain arguments, `Task`, `Training`, `Query` -> numbers by name
    source : "theory" or "simulation", a label of every measurement
    shown : arguments that are labels too
    home : the module in which a process looks for the function; the one that defines it if empty.
        A module that imports the function and registers a loss may name itself.
    """

    function: Callable[..., Mapping[str, Any]]
    source: str
    shown: tuple[str, ...] = ()
    home: str = ""

    @property
    def name(self) -> str:
        """Where a process finds the function: module and name."""
        return f"{self.home or self.function.__module__}:{self.function.__name__}"

    def ask(self, *values: Any, **named: Any) -> Measurement:
        """Ask for one measurement. What is no argument of the function is a label."""
        signature = inspect.signature(self.function)
        given = {name: named.pop(name) for name in list(named) if name in signature.parameters}
        bound = signature.bind(*values, **given)
        bound.apply_defaults()
        arguments = {name: value for name, value in bound.arguments.items() if value is not None}
        labels = {"source": self.source, **{name: arguments[name] for name in self.shown}, **named}
        described = {name: as_argument(value) for name, value in arguments.items()}
        return Measurement(self.name, described, labels)

    def ask_trials(self, count: int, *values: Any, **named: Any) -> list[Measurement]:
        """Ask for trials 0 to `count` - 1 of a function with an argument `trial`."""
        return [self.ask(*values, trial=trial, **named) for trial in range(count)]

    def __call__(self, **arguments: Any) -> Result:
        """Compute, from plain arguments; the results that are finite numbers, by name."""
        made = {
            name: _OBJECTS[name].from_dict(value) if name in _OBJECTS else value
            for name, value in arguments.items()
        }
        return {
            name: float(value)
            for name, value in self.function(**made).items()
            if isinstance(value, int | float | np.number) and math.isfinite(value)
        }


def measures(
    source: str, shown: tuple[str, ...] = ()
) -> Callable[[Callable[..., Mapping[str, Any]]], Kind]:
    """Make a function a kind of measurement; see `Kind` for the parameters."""
    return lambda function: Kind(function, source, shown)


def compute_measurement(measurement: Measurement) -> Result:
    """Compute one measurement."""
    module, _, name = measurement.kind.partition(":")
    kind = getattr(import_module(module), name, None)
    if not isinstance(kind, Kind):
        accepted = "module:function, the function decorated with `measures`"
        raise ParameterError("kind", measurement.kind, accepted)
    return kind(**measurement.arguments)


def compute_cell(settings: Mapping[str, Any], trial: int) -> Result:  # noqa: ARG001
    """Compute the measurement of one cell of a store; its trial, if any, is an argument."""
    return compute_measurement(Measurement(settings["kind"], settings["arguments"], {}))


def tabulate(
    measurements: Sequence[Measurement], results: Sequence[Result], settings: Settings
) -> Table:
    """Make one row of all trials with the same labels, and one of each other measurement."""
    groups: dict[str, list[tuple[Measurement, Result]]] = {}
    for measurement, result in zip(measurements, results, strict=True):
        key = repr(sorted(measurement.labels.items()))
        groups.setdefault(key, []).append((measurement, result))
    rows: list[Row] = []
    for group in groups.values():
        labels, found = group[0][0].labels, [result for _, result in group]
        if labels["source"] == "theory" or "trials" in found[0]:
            rows.extend({**labels, **result} for result in found)
        else:
            rows.append({**labels, **_summary(found)})
    return Table(rows, settings)


def _summary(found: Sequence[Result]) -> Result:
    """Return mean, standard error and spread of every field that all trials have."""
    summary: Result = {"trials": len(found)}
    for name in found[0]:
        # The error of one trial's own integration is far below the spread of the trials.
        if name.endswith("_uncertainty") or not all(name in result for result in found):
            continue
        values = [result[name] for result in found]
        mean, error = mean_and_error(values)
        assert mean is not None
        error = float("nan") if error is None else error
        summary[name] = mean
        summary[f"{name}_uncertainty"] = error
        summary[f"{name}_spread"] = error * math.sqrt(len(found))
    return summary
