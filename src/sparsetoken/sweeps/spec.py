"""The file that describes a study: strict TOML, read into a `Study`.

Every field of the task, the training, the query and the task at test time may be one value, a list
of values, or a range ``{ from = 1, to = 8, count = 4, scale = "log" }``. The cells of the study are
the product of all lists; those named together under ``zip`` run side by side instead.
"""

import difflib
import itertools
import math
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    create_model,
    model_validator,
)

from sparsetoken import validation
from sparsetoken.sweeps.errors import StudyError
from sparsetoken.sweeps.trial import Problem, problem
from sparsetoken.task import Query, Task, Training
from sparsetoken.validation import ParameterError

__all__ = ["Study", "parse_study", "read_study"]

# Valid on their own with any valid value of one field, so that each field can be checked alone.
_NEUTRAL: dict[type, dict[str, Any]] = {
    Task: {"length": 2**62, "informative": 1, "strength": 1.0},
    Training: {"alpha0": 1.0, "alpha1": 1.0},
    Query: {"alignment": 0.0, "sharpness": 1.0},
}
_SHOWN_CELLS = 5
_CLASSIFIERS = ("attention", "pooled", "vectorised")

Axis = tuple[Any, ...]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def _axis(check: Callable[[Any], Any], *, whole: bool = False) -> BeforeValidator:
    """Return what makes a tuple of checked values of a value, a list or a range."""

    def parse(given: Any) -> Axis:
        if isinstance(given, dict):
            values = _range(given, whole)
        else:
            values = tuple(given) if isinstance(given, list) else (given,)
        if not values:
            raise ValueError("an empty list: give one value or more")
        try:
            checked = tuple(check(value) for value in values)
        except ParameterError as error:
            raise ValueError(f"{error.value!r} is not valid: expected {error.accepted}") from None
        if len(set(checked)) < len(checked):
            raise ValueError("a value is listed twice")
        return checked

    return BeforeValidator(parse)


def _range(given: Mapping[str, Any], whole: bool) -> Axis:
    """Return the values of { from, to, count, scale }, both ends included."""
    accepted = '{ from = NUMBER, to = NUMBER, count = INTEGER, scale = "linear" or "log" }'
    if not {"from", "to", "count"} <= given.keys() <= {"from", "to", "count", "scale"}:
        raise ValueError(f"a range must be {accepted}")
    scale = validation.choice("scale", given.get("scale", "linear"), ["linear", "log"])
    low = 0.0 if scale == "log" else -math.inf
    start = validation.real("from", given["from"], low=low, inclusive=scale == "linear")
    stop = validation.real("to", given["to"], low=low, inclusive=scale == "linear")
    count = validation.integer("count", given["count"], low=2)
    steps = [i / (count - 1) for i in range(count)]
    if scale == "log":
        values = [start * (stop / start) ** step for step in steps]
    else:
        values = [start + (stop - start) * step for step in steps]
    if whole:
        return tuple(dict.fromkeys(round(value) for value in values))
    # To 12 digits, so that 1 to 8 by factors of 2 holds 2 and 4 exactly; the ends as given.
    return (start, *(float(f"{value:.12g}") for value in values[1:-1]), stop)


def _table(name: str, kind: type, *, partial: bool = False) -> type[_Strict]:
    """Return the model of a table with the fields of `kind`; with `partial`, none is required."""

    def checked(field: str) -> Callable[[Any], Any]:
        return lambda value: getattr(kind(**{**_NEUTRAL[kind], field: value}), field)

    columns: dict[str, Any] = {}
    for item in fields(kind):
        axis = Annotated[Axis, _axis(checked(item.name), whole=item.type is int)]
        if partial:
            columns[item.name] = (axis | None, None)
        elif item.default is MISSING:
            columns[item.name] = (axis, ...)
        else:
            columns[item.name] = (axis, (item.default,))
    return create_model(name, __base__=_Strict, **columns)


if TYPE_CHECKING:
    _TaskTable = _Strict
    _TrainingTable = _Strict
    _QueryTable = _Strict
    _TestTaskTable = _Strict
else:
    _TaskTable = _table("task", Task)
    _TrainingTable = _table("training", Training)
    _QueryTable = _table("query", Query)
    _TestTaskTable = _table("at", Task, partial=True)


def _classifier(value: Any) -> str:
    return validation.choice("classifiers", value, _CLASSIFIERS)


def _dimension(value: Any) -> int:
    return validation.integer("dimensions", value, low=2)


class PlotTable(_Strict):
    """What `sweep plot` draws unless told otherwise."""

    x: str | None = None
    y: str = "test_error"
    scale: Literal["linear", "logx", "logy", "loglog"] = "linear"


class Study(_Strict):
    """A study: a grid of problems, with the theory and a number of simulated trials of each.

    Made by `read_study` or `parse_study`; the fields are the keys of the file, with every field of
    the tables as a tuple of values.
    """

    title: str = ""
    task: _TaskTable
    training: _TrainingTable
    query: _QueryTable | None = None
    at: _TestTaskTable | None = None
    classifiers: Annotated[Axis, _axis(_classifier)] = ("attention",)
    dimensions: Annotated[Axis, _axis(_dimension, whole=True)] | None = None
    sampler: Literal["reduced", "plain"] = "reduced"
    trials: int = Field(ge=0)
    seed: int = Field(default=0, ge=0)
    theory: bool = True
    zip: list[list[str]] = Field(default=[])
    plot: PlotTable = PlotTable()

    @model_validator(mode="after")
    def _check_as_a_whole(self) -> "Study":
        problems = [*self._zip_problems(), *self._extent_problems()]
        problems = problems or list(self._cell_problems())
        if problems:
            raise ValueError("\n".join(problems))
        return self

    @cached_property
    def axes(self) -> dict[str, Axis]:
        """The values of every setting, by its key in the file."""
        axes: dict[str, Axis] = {}
        for table in ("task", "training", "query", "at"):
            for name, values in getattr(self, table) or ():
                if values is not None:
                    axes[f"{table}.{name}"] = values
        if self.dimensions is not None:
            axes["dimensions"] = self.dimensions
        axes["classifiers"] = self.classifiers
        return axes

    def cells(self) -> list[dict[str, Any]]:
        """Return the settings of each cell, as flat dictionaries."""
        return [_settings(problem(raw), raw) for raw in self._raw_cells()]

    def _raw_cells(self) -> Iterator[dict[str, Any]]:
        """Yield the product of the axes, zipped ones side by side, with the names of columns."""
        together = {key: tuple(group) for group in self.zip for key in group}
        groups = list(dict.fromkeys(together.get(key, (key,)) for key in self.axes))
        choices = [list(zip(*(self.axes[key] for key in group), strict=True)) for group in groups]
        keys = [key for group in groups for key in group]
        for picked in itertools.product(*choices):
            values = dict(zip(keys, itertools.chain(*picked), strict=True))
            raw = {_column(key): values[key] for key in self.axes}
            if self.at is not None:
                raw |= {f"at_{f.name}": raw.get(f"at_{f.name}", raw[f.name]) for f in fields(Task)}
            yield raw | {"sampler": self.sampler, "seed": self.seed}

    def _zip_problems(self) -> Iterator[str]:
        known = [key for key, values in self.axes.items() if len(values) > 1]
        named = [key for group in self.zip for key in group]
        for key in dict.fromkeys(named):
            if key not in known:
                yield f"zip: {key!r} is not a key with several values{_guess(key, known)}"
            elif named.count(key) > 1:
                yield f"zip: {key!r} is named twice"
        for group in self.zip:
            lengths = [f"{key} has {len(self.axes[key])}" for key in group if key in known]
            if len({len(self.axes[key]) for key in group if key in known}) > 1:
                yield f"zip: lists of different lengths: {', '.join(lengths)}"

    def _extent_problems(self) -> Iterator[str]:
        if self.trials > 0 and self.dimensions is None:
            yield "dimensions: needed for trials (trials = 0 gives theory alone)"
        if self.trials == 0 and not self.theory:
            yield "trials: 0 without theory leaves nothing to do"
        columns = [_column(key) for key in self.axes]
        if self.plot.x is not None and self.plot.x not in columns:
            yield f"plot.x: {self.plot.x!r} is not a setting{_guess(self.plot.x, columns)}"

    def _cell_problems(self) -> Iterator[str]:
        bad = 0
        for number, raw in enumerate(self._raw_cells()):
            try:
                problem(raw)
            except ParameterError as error:
                bad += 1
                if bad <= _SHOWN_CELLS:
                    yield f"cell {number} ({self._varied(raw)}): {error}"
        if bad > _SHOWN_CELLS:
            yield f"... and {bad - _SHOWN_CELLS} more cells"

    def _varied(self, raw: Mapping[str, Any]) -> str:
        """Return what sets a cell apart from others."""
        varied = [_column(key) for key, values in self.axes.items() if len(values) > 1]
        return ", ".join(f"{name} = {raw[name]}" for name in varied) or "the only one"


_COLUMNS = {"dimensions": "dimension", "classifiers": "classifier"}
_PREFIXES = {"task": "", "training": "", "query": "query_", "at": "at_"}


def _column(key: str) -> str:
    """Return the column of the exported table for a key of the file."""
    if key in _COLUMNS:
        return _COLUMNS[key]
    table, name = key.split(".")
    return _PREFIXES[table] + name


def _settings(parts: Problem, raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with every value as the validated objects have it."""
    exact = {**parts.task.to_dict(), **parts.training.to_dict()}
    for prefix, part in (("query_", parts.query), ("at_", parts.at)):
        exact |= {prefix + name: value for name, value in (part.to_dict() if part else {}).items()}
    return {**raw, **exact}


def read_study(path: str | Path) -> Study:
    """Read a study from a TOML file.

    Raises
    ------
    StudyError
        With everything that is wrong with the file, not only the first mistake.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise StudyError(str(path), [f"cannot be read: {reason}"]) from None
    return parse_study(text, str(path))


def parse_study(text: str, source: str = "the study") -> Study:
    """Read a study from the text of a TOML file; `source` names it in errors."""
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise StudyError(source, [f"is not TOML: {error}"]) from None
    try:
        return Study.model_validate(values)
    except ValidationError as error:
        problems = [line for item in error.errors() for line in _explain(item)]
        raise StudyError(source, problems) from None


def _explain(item: Any) -> list[str]:
    """Return one of pydantic's errors as lines that begin with the key in the file."""
    key = ".".join(str(part) for part in item["loc"])
    if item["type"] == "extra_forbidden":
        table, dot, name = key.rpartition(".")
        known = list(_TABLES[table].model_fields)
        return [f"{key}: unknown key{_guess(name, known, table + dot)}"]
    if item["type"] == "missing":
        return [f"{key}: missing"]
    message = item["msg"].removeprefix("Value error, ")
    if not key:
        return str(message).split("\n")
    return [f"{key}: {message}"]


_TABLES: dict[str, type[_Strict]] = {
    "": Study,
    "task": _TaskTable,
    "training": _TrainingTable,
    "query": _QueryTable,
    "at": _TestTaskTable,
    "plot": PlotTable,
}


def _guess(word: str, known: list[str], prefix: str = "") -> str:
    close = difflib.get_close_matches(word, known, n=1)
    return f" (did you mean {prefix + close[0]!r}?)" if close else ""
