"""The file that describes a study: strict TOML, read into a `Study`.

Every field of the task, the training, the query and the task at test time may be one value, a list
of values, or a range ``{ from = 1, to = 8, count = 4, scale = "log" }``. The cells of the study are
the product of all lists; those named together under ``zip`` run side by side instead.
"""

import difflib
import math
import stat
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    create_model,
    model_validator,
)

from sparsetoken import validation
from sparsetoken.extensions import import_extensions
from sparsetoken.informative import as_informative
from sparsetoken.limits import MOST_CELLS, MOST_STUDY_BYTES, MOST_TRIALS, MOST_VALUES
from sparsetoken.records import LOCALISATION, METRICS, UNCERTAINTY
from sparsetoken.sweeps.errors import StudyError
from sparsetoken.sweeps.grid import Axis, Grid
from sparsetoken.task import Query, Task, Training, check_reuse
from sparsetoken.validation import ParameterError

__all__ = ["Study", "parse_study", "read_study"]

# Valid on their own with any valid value of one field, so that each field can be checked alone.
_NEUTRAL: dict[type, dict[str, Any]] = {
    Task: {"length": 10**9, "informative": 1, "strength": 1.0},
    Training: {"alpha0": 1.0, "alpha1": 1.0},
    Query: {"alignment": 0.0, "sharpness": 1.0},
}


Values = tuple[Any, ...]
_SHOWN_CELLS = 5


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def _axis(check: Callable[[Any], Any], *, whole: bool = False) -> BeforeValidator:
    """Return what makes a tuple of checked values of a value, a list or a range."""

    def parse(given: Any) -> Values:
        if isinstance(given, dict):
            values = _range(given, whole)
        else:
            values = tuple(given) if isinstance(given, list) else (given,)
        if not values:
            raise ValueError("an empty list: give one value or more")
        if len(values) > MOST_VALUES:
            raise ValueError(f"{len(values)} values: at most {MOST_VALUES} are accepted")
        try:
            checked = tuple(check(value) for value in values)
        except ParameterError as error:
            value = validation.shown(error.value)
            raise ValueError(f"{value} is not valid: expected {error.accepted}") from None
        if len(set(checked)) < len(checked):
            raise ValueError("a value is listed twice")
        # A column of the exported table has one type.
        return tuple(map(str, checked)) if any(isinstance(v, str) for v in checked) else checked

    return BeforeValidator(parse)


def _range(given: Mapping[str, Any], whole: bool) -> Values:
    """Return the values of { from, to, count, scale }, both ends included."""
    accepted = '{ from = NUMBER, to = NUMBER, count = INTEGER, scale = "linear" or "log" }'
    if not {"from", "to", "count"} <= given.keys() <= {"from", "to", "count", "scale"}:
        raise ValueError(f"a range must be {accepted}")
    scale = validation.choice("scale", given.get("scale", "linear"), ["linear", "log"])
    low = 0.0 if scale == "log" else -math.inf
    start = validation.real("from", given["from"], low=low, inclusive=scale == "linear")
    stop = validation.real("to", given["to"], low=low, inclusive=scale == "linear")
    count = validation.integer("count", given["count"], low=2, high=MOST_VALUES)
    if not math.isfinite(stop - start) or (scale == "log" and not 0 < stop / start < math.inf):
        raise ValueError("from and to are too far apart for a range")
    steps = [i / (count - 1) for i in range(count)]
    if scale == "log":
        values = [start * (stop / start) ** step for step in steps]
    else:
        values = [start + (stop - start) * step for step in steps]
    if whole:
        return tuple(dict.fromkeys(round(value) for value in values))
    # To 12 digits, so that 1 to 8 by factors of 2 holds 2 and 4 exactly; the ends as given.
    return (start, *(float(f"{value:.12g}") for value in values[1:-1]), stop)


def _informative(value: Any) -> int | str:
    """Return a number of informative tokens or the text of its law, whatever the length."""
    found = as_informative(value)
    return found if isinstance(found, int) else str(found)


def _test_sharpness(value: Any) -> float | str:
    """Return a sharpness at test time; a hard maximum as the text "inf", which JSON can hold."""
    found = validation.real("sharpness", value, low=0, infinite=True)
    return found if math.isfinite(found) else str(found)


def _recalibrate(value: Any) -> bool:
    return validation.boolean("recalibrate", value)


def _table(
    name: str,
    kind: type,
    *,
    partial: bool = False,
    further: Mapping[str, Callable[[Any], Any]] | None = None,
) -> type[_Strict]:
    """Return the model of a table with the fields of `kind`; with `partial`, none is required.

    `further` has optional fields that `kind` has not, with what checks their values.
    """

    def checked(field: str) -> Callable[[Any], Any]:
        if field == "informative":
            return _informative
        return lambda value: getattr(kind(**{**_NEUTRAL[kind], field: value}), field)

    columns: dict[str, Any] = {}
    for item in fields(kind):
        whole = item.type is int or item.name == "informative"
        axis = Annotated[Values, _axis(checked(item.name), whole=whole)]
        if partial:
            columns[item.name] = (axis | None, None)
        elif item.default is MISSING:
            columns[item.name] = (axis, ...)
        else:
            columns[item.name] = (axis, (item.default,))
    for field, check in (further or {}).items():
        columns[field] = (Annotated[Values, _axis(check)] | None, None)
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
    _TestTaskTable = _table(
        "at",
        Task,
        partial=True,
        further={"sharpness": _test_sharpness, "recalibrate": _recalibrate},
    )


def _classifier(value: Any) -> str:
    # Imported here, so that a study can be looked at without loading NumPy.
    from sparsetoken.simulation.draws import DRAWS

    return validation.choice("classifiers", value, DRAWS)


def _metric(value: Any) -> str:
    return validation.choice("metrics", value, METRICS)


def _dimension(value: Any) -> int:
    return validation.integer("dimensions", value, low=2)


def _title(given: str) -> str:
    """Refuse a title that no figure can show, before anything is computed for it."""
    if "$" in given:  # the parser of formulas is slow to import
        from sparsetoken.plotting.formulas import formula_problem

        problem = formula_problem(given)
        if problem:
            raise ValueError(f"{validation.shown(given)} cannot be set: {problem}")
    return given


_USUAL_Y = "test_error"


class PlotTable(_Strict):
    """What `sweep plot` draws unless told otherwise."""

    x: str | None = None
    y: str = _USUAL_Y
    scale: Literal["linear", "logx", "logy", "loglog"] = "linear"


class Study(_Strict):
    """A study: a grid of problems, with the theory and a number of simulated trials of each.

    Made by `read_study` or `parse_study`; the fields are the keys of the file, with every field of
    the tables as a tuple of values.

    Examples
    --------
    >>> from sparsetoken.sweeps.spec import parse_study
    >>> study = parse_study('''
    ... classifiers = ["pooled"]
    ... dimensions = 20
    ... trials = 2
    ... task = {length = [4, 8], informative = 1, strength = 2}
    ... training = {alpha0 = 2, alpha1 = [2, 4]}
    ... ''')
    >>> len(list(study.cells())), study.task.length
    (4, (4, 8))
    """

    title: Annotated[str, AfterValidator(_title)] = ""
    task: _TaskTable
    training: _TrainingTable
    query: _QueryTable | None = None
    at: _TestTaskTable | None = None
    classifiers: Annotated[Values, _axis(_classifier)] = ("attention",)
    dimensions: Annotated[Values, _axis(_dimension, whole=True)] | None = None
    metrics: Annotated[Values, _axis(_metric)] = ()
    sampler: Literal["reduced", "plain"] = "reduced"
    trials: int = Field(ge=0)
    seed: int = Field(default=0, ge=0, lt=2**63)
    theory: bool = True
    imports: list[str] = Field(default=[])
    zip: list[list[str]] = Field(default=[])
    plot: PlotTable = PlotTable()

    @model_validator(mode="after")
    def _check_as_a_whole(self) -> "Study":
        problems = [*self._zip_problems(), *self._extent_problems(), *self._unread_problems()]
        problems = problems or list(self._size_problems()) or list(self._cell_problems())
        problems = problems or list(islice(self._reuse_problems(), _SHOWN_CELLS))
        if problems:
            raise ValueError("\n".join(problems))
        return self

    @cached_property
    def axes(self) -> dict[str, Values]:
        """The values of every setting, by its key in the file.

        Examples
        --------
        >>> from sparsetoken.sweeps.spec import parse_study
        >>> study = parse_study('''
        ... classifiers = ["pooled"]
        ... dimensions = 20
        ... trials = 1
        ... task = {length = [4, 8], informative = 1, strength = 2}
        ... training = {alpha0 = 2, alpha1 = 2}
        ... ''')
        >>> study.axes["task.length"]
        (4, 8)
        """
        axes: dict[str, Values] = {}
        for table in ("task", "training", "query", "at"):
            for name, values in getattr(self, table) or ():
                if values is not None:
                    axes[f"{table}.{name}"] = values
        if self.dimensions is not None:
            axes["dimensions"] = self.dimensions
        axes["classifiers"] = self.classifiers
        return axes

    def cells(self) -> Grid:
        """Return the settings of each cell, as flat dictionaries: a sequence, made when asked.

        Returns
        -------
        sequence of dict

        Examples
        --------
        >>> from sparsetoken.sweeps.spec import parse_study
        >>> study = parse_study('''
        ... classifiers = ["pooled"]
        ... dimensions = 20
        ... trials = 1
        ... task = {length = [4, 8], informative = 1, strength = 2}
        ... training = {alpha0 = 2, alpha1 = 2}
        ... ''')
        >>> len(study.cells())
        2
        """
        return self._grid

    @cached_property
    def _grid(self) -> Grid:
        """The product of the axes, zipped ones side by side, with the names of columns."""
        together = {key: tuple(group) for group in self.zip for key in group}
        groups = list(dict.fromkeys(together.get(key, (key,)) for key in self.axes))
        axes = tuple(
            Axis(
                tuple(map(_column, group)),
                tuple(zip(*(self.axes[key] for key in group), strict=True)),
            )
            for group in groups
        )
        names = [_column(key) for key in self.axes]
        at = [f"at_{item.name}" for item in fields(Task)] if self.at is not None else []
        copies = {name: name.removeprefix("at_") for name in at if name not in names}
        fixed: dict[str, Any] = {"sampler": self.sampler, "seed": self.seed}
        if self.metrics:
            fixed["metrics"] = " ".join(self.metrics)
        return Grid(axes, tuple(dict.fromkeys([*names, *at, *fixed])), copies, fixed)

    def _zip_problems(self) -> Iterator[str]:
        known = [key for key, values in self.axes.items() if len(values) > 1]
        named = [key for group in self.zip for key in group]
        for key in dict.fromkeys(named):
            if key not in known:
                yield f"zip: {key!r} is not a key with several values{_guess(key, known)}"
            elif named.count(key) > 1:
                yield f"zip: {key!r} is named twice"
        for group in self.zip:
            if len(group) < 2:
                yield f"zip: {validation.shown(group)} is not valid: expected two keys or more"
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
        if self.plot.y != _USUAL_Y and self.plot.y not in (known := _results()):
            yield f"plot.y: {self.plot.y!r} is not a number of the results{_guess(self.plot.y, known)}"

    def _unread_problems(self) -> Iterator[str]:
        """Look for what only cells with a query read, where there are none."""
        keys = [f"metrics: {name!r}" for name in self.metrics if name in LOCALISATION]
        keys += ["query"] if self.query is not None else []
        keys += ["at.sharpness"] if "at.sharpness" in self.axes else []
        if not keys:
            return
        from sparsetoken.simulation.draws import DRAWS

        if not any(DRAWS[name].takes_query for name in self.classifiers):
            yield from (f"{key} has no effect here: no classifier has a query" for key in keys)

    def _size_problems(self) -> Iterator[str]:
        cells = math.prod(len(axis.values) for axis in self._grid.axes)
        if cells > MOST_CELLS:
            long = {key: len(values) for key, values in self.axes.items() if len(values) > 1}
            product = ", ".join(f"{key} has {count}" for key, count in long.items())
            yield f"{cells} cells are too many, at most {MOST_CELLS} are accepted: {product}"
        elif cells * self.trials > MOST_TRIALS:
            yield (
                f"trials: {self.trials} of each of {cells} cells are too many, at most "
                f"{MOST_TRIALS} in all are accepted"
            )

    def _cell_problems(self) -> Iterator[str]:
        """Look at the values that must fit together: each was checked alone already."""
        bad = 0
        for kind, prefix, names in self._fitting():
            for number, values in self._grid.combinations([prefix + name for name in names]):
                given = {name: values[prefix + name] for name in names}
                try:
                    kind(**{**_NEUTRAL[kind], **given})
                except ParameterError as error:
                    bad += 1
                    if bad <= _SHOWN_CELLS:
                        named = ParameterError(
                            prefix + error.parameter, error.value, error.accepted
                        )
                        yield f"cell {number} ({self._varied(self._grid[number])}): {named}"
        if bad > _SHOWN_CELLS:
            yield f"... and {bad - _SHOWN_CELLS} more combinations"

    def _reuse_problems(self) -> Iterator[str]:
        """Look for cells that would reuse the samples of a query that is given."""
        if self.query is None or not any(self.axes["training.reuse"]):
            return
        from sparsetoken.simulation.draws import DRAWS

        for number, values in self._grid.combinations(["reuse", "classifier"]):
            given = self.query if DRAWS[values["classifier"]].takes_query else None
            try:
                check_reuse(values["reuse"], given)
            except ParameterError as error:
                yield f"cell {number} ({self._varied(self._grid[number])}): {error}"

    def _fitting(self) -> Iterator[tuple[type, str, tuple[str, ...]]]:
        """Yield the fields of an object that must fit together, where they might not."""
        axes = self.axes
        lengths, informative = axes["task.length"], axes["task.informative"]
        if _may_not_fit(lengths, informative):
            yield Task, "", ("length", "informative")
        if self.at is not None:
            lengths = axes.get("at.length", lengths)
            informative = axes.get("at.informative", informative)
            if _may_not_fit(lengths, informative):
                yield Task, "at_", ("length", "informative")
        if any(axes["training.reuse"]):
            yield Training, "", ("alpha0", "alpha1", "reuse")

    def _varied(self, cell: Mapping[str, Any]) -> str:
        """Return what sets a cell apart from others."""
        varied = [_column(key) for key, values in self.axes.items() if len(values) > 1]
        return ", ".join(f"{name} = {cell[name]}" for name in varied) or "the only one"


def _results() -> list[str]:
    """Return the names of the numbers that a trial or theory can give."""
    # Imported here, so that a study can be looked at without loading NumPy.
    from sparsetoken.numerics.solution import Solution
    from sparsetoken.simulation.trials import Trial
    from sparsetoken.theory.alignment import Alignment
    from sparsetoken.theory.prediction import OrderParameters, Prediction

    kinds = (Trial, Prediction, OrderParameters, Alignment, Solution)
    numbers = (int, float, bool, float | None, bool | None)
    named = [item.name for kind in kinds for item in fields(kind) if item.type in numbers]
    not_kept = ("trial", "seconds", "at_sharpness")
    known = [name for name in dict.fromkeys(named) if name not in not_kept]
    return [*known, *(name + UNCERTAINTY for name in known if not name.endswith(UNCERTAINTY))]


def _may_not_fit(lengths: Values, informative: Values) -> bool:
    return isinstance(informative[0], str) or max(informative) >= min(lengths)


_COLUMNS = {"dimensions": "dimension", "classifiers": "classifier"}
_PREFIXES = {"task": "", "training": "", "query": "query_", "at": "at_"}


def _column(key: str) -> str:
    """Return the column of the exported table for a key of the file."""
    if key in _COLUMNS:
        return _COLUMNS[key]
    table, name = key.split(".")
    return _PREFIXES[table] + name


def read_study(path: str | Path) -> Study:
    """Read a study from a TOML file.

    Parameters
    ----------
    path : path
        The file.

    Returns
    -------
    Study

    Raises
    ------
    StudyError
        With everything that is wrong with the file, not only the first mistake.

    Examples
    --------
    >>> from pathlib import Path
    >>> from sparsetoken import read_study
    >>> text = '''
    ... classifiers = ["pooled"]
    ... dimensions = 20
    ... trials = 2
    ... task = {length = [4, 8], informative = 1, strength = 2}
    ... training = {alpha0 = 2, alpha1 = [2, 4]}
    ... '''
    >>> _ = Path("study.toml").write_text(text)
    >>> study = read_study("study.toml")
    >>> study.trials, study.task.length
    (2, (4, 8))
    """
    path = validation.path("path", path)
    try:
        # To open a named pipe would wait for a writer.
        if not stat.S_ISREG(path.stat().st_mode):
            raise OSError("it is not a regular file")
        with path.open("rb") as file:
            content = file.read(MOST_STUDY_BYTES + 1)
        text = content.decode("utf-8-sig")  # some editors begin a file with a mark
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise StudyError(str(path), [f"cannot be read: {reason}"]) from None
    if len(content) > MOST_STUDY_BYTES:
        raise StudyError(str(path), [f"is longer than {MOST_STUDY_BYTES} bytes"])
    return parse_study(text, str(path))


def parse_study(text: str, source: str = "the study") -> Study:
    """Read a study from the text of a TOML file; `source` names it in errors.

    The modules that the study names under `imports` are imported, looked for in the folder of the
    file too.
    """
    validation.instance("text", text, str)
    try:
        values = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else error
        raise StudyError(source, [f"is not TOML: {reason}"]) from None
    try:
        if isinstance(values.get("imports"), list):
            import_extensions(values["imports"], Path(source).parent)
        return Study.model_validate(values)
    except ParameterError as error:
        raise StudyError(source, [str(error)]) from None
    except ValidationError as error:
        problems = [line for item in error.errors() for line in _explain(item)]
        raise StudyError(source, problems) from None


def _explain(item: Any) -> list[str]:
    """Return one of pydantic's errors as lines that begin with the key in the file."""
    *path, name = [str(part) for part in item["loc"]] or [""]
    table = ".".join(path)
    key = f"{table}.{name}" if table else name
    if item["type"] == "extra_forbidden":
        known = list(_TABLES[table].model_fields)
        return [f"{validation.shown(key)[1:-1]}: unknown key{_guess(name, known, table)}"]
    if item["type"] == "missing":
        return [f"{key}: missing"]
    message = item["msg"].removeprefix("Value error, ")
    if item["type"] in _ACCEPTED:
        accepted = _ACCEPTED[item["type"]].format(**item.get("ctx", {}))
        message = f"{validation.shown(item['input'])} is not valid: expected {accepted}"
    if not key:
        return str(message).split("\n")
    return [f"{key}: {message}"]


# What is accepted where pydantic itself refuses a value, by the type of its error.
_ACCEPTED = {
    "bool_type": "true or false",
    "greater_than_equal": "an integer >= {ge}",
    "int_type": "an integer",
    "less_than": "an integer < {lt}",
    "list_type": "a list",
    "literal_error": "{expected}",
    "model_type": "a table",
    "string_type": "a text",
}
_TABLES: dict[str, type[_Strict]] = {
    "": Study,
    "task": _TaskTable,
    "training": _TrainingTable,
    "query": _QueryTable,
    "at": _TestTaskTable,
    "plot": PlotTable,
}


def _guess(word: str, known: list[str], table: str = "") -> str:
    close = difflib.get_close_matches(word[:100], known, n=1)
    return f" (did you mean {f'{table}.' * bool(table) + close[0]!r}?)" if close else ""
