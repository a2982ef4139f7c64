"""Errors of the classifiers over two settings: who wins where, and the lines that people ask for."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from sparsetoken import __version__, validation
from sparsetoken.arrays import Array
from sparsetoken.limits import MOST_WORKERS
from sparsetoken.numerics.memory import path_memory
from sparsetoken.numerics.threads import one_thread
from sparsetoken.planning.checkpoint import Checkpoint
from sparsetoken.planning.parallel import finished
from sparsetoken.records import preformatted, share_text, to_frame
from sparsetoken.task import ALL_SAMPLES, Task, Training, vary
from sparsetoken.theory.capacity import capacity
from sparsetoken.theory.chosen_query import prediction_fields, query_fields
from sparsetoken.theory.laws import LAWS
from sparsetoken.theory.predictor import Predictor
from sparsetoken.theory.usage import Usage
from sparsetoken.validation import ParameterError

__all__ = ["PhaseMap", "phase_map"]

TOLERANCE = 2e-3
# The error whose line is drawn and told.
_LEVEL = 0.05

MapAxis = tuple[str, Sequence[float] | Array]
_ACROSS: MapAxis = ("strength", np.linspace(1, 7, 25))
_UPWARDS: MapAxis = (ALL_SAMPLES, np.geomspace(0.5, 32, 25))


@dataclass(frozen=True)
class PhaseMap:
    """What `phase_map` found.

    Attributes
    ----------
    task, training
        What stays fixed.
    x, y : str
        The two settings; "alpha" is all samples per dimension.
    x_values, y_values : arrays of shape (X,), (Y,)
    errors : dict of str to array of shape (Y, X)
        Test error of each classifier; NaN where no solution was found.
    winners : array of shape (Y, X)
        Name of the classifier of least error.
    capacities : array of shape (Y, X) or None
        Capacity of attention over its readout's samples per dimension: training data are separable
        where it is above 1. None if it was not wanted.
    unsolved : int
        How many predictions did not converge.
    tolerance : float
        Numerical error of the errors, as it was wanted.

    Examples
    --------
    >>> from sparsetoken import Task, Training, phase_map
    >>> axes = {"x": ("strength", [3.0, 6.0]), "y": ("alpha", [1.0, 8.0])}
    >>> found = phase_map(Task(10, 1, 4.0), Training(1.0, 3.0), **axes, classifiers=["pooled"])
    >>> found.errors["pooled"].shape, found.unsolved
    ((2, 2), 0)
    """

    task: Task
    training: Training
    x: str
    y: str
    x_values: Array
    y_values: Array
    errors: dict[str, Array]
    winners: Array
    capacities: Array | None
    unsolved: int
    tolerance: float

    def to_rows(self) -> list[dict[str, Any]]:
        """Return a flat dictionary for each cell: the two settings, the errors, the winner.

        Returns
        -------
        list of dict

        Examples
        --------
        >>> from sparsetoken import Task, Training, phase_map
        >>> found = phase_map(
        ...     Task(6, 1, 4.0), Training(4.0, 4.0), x=("strength", [3, 4]), y=("alpha", [1, 4, 16])
        ... )
        >>> len(found.to_rows())
        6
        """
        return [
            {
                self.x: float(across),
                self.y: float(up),
                **{
                    f"{name}_test_error": float(values[j, i])
                    for name, values in self.errors.items()
                },
                "winner": str(self.winners[j, i]),
                **(
                    {}
                    if self.capacities is None
                    else {"capacity_ratio": float(self.capacities[j, i])}
                ),
            }
            for j, up in enumerate(self.y_values)
            for i, across in enumerate(self.x_values)
        ]

    def to_frame(self) -> Any:
        """Return a data frame with a row for each cell.

        Returns
        -------
        DataFrame

        Examples
        --------
        >>> from sparsetoken import Task, Training, phase_map
        >>> found = phase_map(
        ...     Task(6, 1, 4.0), Training(4.0, 4.0), x=("strength", [3, 4]), y=("alpha", [1, 4])
        ... )
        >>> len(found.to_frame())
        4
        """
        return to_frame(self.to_rows())

    def crossings(self, level: float = _LEVEL, classifier: str = "attention") -> Array:
        """Return for each value of x the least y at which the error is at most `level`; NaN if none.

        Between two values of y by linear interpolation. The least value of y where that is enough:
        less may be, too.

        Parameters
        ----------
        level : float in [0, 1], default 0.05
            A test error.
        classifier : str, default "attention"
            One of those of the map.

        Returns
        -------
        array with a number for each value of x

        Examples
        --------
        >>> from sparsetoken import Task, Training, phase_map
        >>> found = phase_map(
        ...     Task(6, 1, 4.0), Training(4.0, 4.0), x=("strength", [3, 4]), y=("alpha", [1, 4, 16])
        ... )
        >>> found.crossings(0.2).shape
        (2,)
        """
        level = validation.real("level", level, low=0, high=1)
        validation.choice("classifier", classifier, self.errors)
        return _first_crossings(self.errors[classifier] - level, self.y_values)

    def equality(self, rival: str = "pooled") -> Array:
        """Return for each value of x the least y from which attention is no worse than a rival.

        Parameters
        ----------
        rival : str, default "pooled"
            Another classifier of the map.

        Returns
        -------
        array with a number for each value of x

        Examples
        --------
        >>> from sparsetoken import Task, Training, phase_map
        >>> found = phase_map(
        ...     Task(6, 1, 4.0), Training(4.0, 4.0), x=("strength", [3, 4]), y=("alpha", [1, 4, 16])
        ... )
        >>> found.equality("pooled").shape
        (2,)
        """
        validation.choice("rival", rival, self.errors)
        if "attention" not in self.errors:
            accepted = "'attention' among them, which is compared with the rival"
            raise ParameterError("classifiers", tuple(self.errors), accepted)
        return _first_crossings(self.errors["attention"] - self.errors[rival], self.y_values)

    def __repr__(self) -> str:
        return f"<PhaseMap of {self.winners.size:,} cells over {self.x} and {self.y}>"

    def __str__(self) -> str:
        return "\n".join(_lines(self))

    def _repr_html_(self) -> str:
        return preformatted(str(self))

    def plot(self, *, level: float = _LEVEL, figure: Any = None) -> Any:
        """Draw a panel for each classifier and one of the winners; return the figure.

        Parameters
        ----------
        level : float in [0, 1], default 0.05
            The error along which to draw a line.
        figure : matplotlib Figure or SubFigure, optional
            Where to draw, side by side; in a new one if not given.

        Returns
        -------
        matplotlib Figure

        Examples
        --------
        >>> from sparsetoken import Task, Training, phase_map
        >>> found = phase_map(
        ...     Task(6, 1, 4.0), Training(4.0, 4.0), x=("strength", [3, 4]), y=("alpha", [1, 4])
        ... )
        >>> len(found.plot().axes) > 0
        True
        """
        level = validation.real("level", level, low=0, high=1)
        from sparsetoken.planning.phase_figure import draw_phase_map

        return draw_phase_map(self, level, figure)


@path_memory()
def phase_map(
    task: Task,
    training: Training,
    *,
    x: MapAxis = _ACROSS,
    y: MapAxis = _UPWARDS,
    classifiers: Sequence[str] | None = None,
    with_capacity: bool = False,
    tolerance: float = TOLERANCE,
    workers: int = 1,
    checkpoint: str | Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> PhaseMap:
    """Predict the error of each classifier over a grid of two settings.

    Classifiers without a query are given all samples, attention shares them out as in `training`.

    Parameters
    ----------
    task : Task
    training : Training
        What does not vary.
    x, y : (name, values)
        Two fields of the task and the training that a classifier of the map reads, or "alpha": all
        samples per dimension, shared out between query and readout as in `training`.
    classifiers : sequence of str, optional
        Some of "attention", "pooled", "vectorised" and other entries of `theory.laws.LAWS`; by
        default all.
    with_capacity : bool
        Whether to find the capacity of attention in each cell, too; takes as long again.
    tolerance : float
        Wanted numerical error.
    workers : int
        Processes, each doing a row of the map at a time.
    checkpoint : path, optional
        A file that keeps every finished row. The same call goes on from it after an interruption; a
        file of another map is refused.
    progress : callable, optional
        Called as progress(finished, total) after each row of each classifier.

    Returns
    -------
    PhaseMap

    Examples
    --------
    >>> from sparsetoken import Task, Training, phase_map
    >>> found = phase_map(
    ...     Task(10, 1, 4.0),
    ...     Training(alpha0=1.0, alpha1=3.0, query_step=60, ridge=0.1),
    ...     x=("strength", [3.0, 6.0]),
    ...     y=("alpha", [1.0, 8.0]),
    ... )
    >>> found.winners.tolist()
    [['pooled', 'attention'], ['attention', 'attention']]
    """
    validation.instance("task", task, Task)
    validation.instance("training", training, Training)
    chosen = list(LAWS) if classifiers is None else classifiers
    asked = validation.several("classifiers", chosen, "classifiers")
    names = [validation.choice("classifiers", name, LAWS) for name in asked]
    if not names:
        raise ParameterError("classifiers", classifiers, "at least one")
    with_capacity = validation.boolean("with_capacity", with_capacity)
    axes = [_checked(name, axis, task, training) for name, axis in (("x", x), ("y", y))]
    _check_axes(axes[0][0], axes[1][0], training)
    for side, (name, _) in zip("xy", axes, strict=True):
        _check_read(side, name, names, with_capacity)
    workers = validation.integer("workers", workers, low=1, high=MOST_WORKERS)
    tolerance = validation.real("tolerance", tolerance, low=0, inclusive=False)
    validation.callback("progress", progress)
    work = partial(_row, task, training, axes[0], axes[1][0], tolerance)
    kinds = [*names, *(["capacity"] if with_capacity else [])]
    jobs = [(kind, float(value)) for kind in kinds for value in axes[1][1]]
    with Checkpoint(checkpoint, _identity(task, training, axes, tolerance)) as kept:
        missing = [job for job in jobs if job not in kept.rows]
        calls = [partial(work, *job) for job in missing]
        before = len(jobs) - len(missing)
        for done, (index, row) in enumerate(finished(calls, workers), before + 1):
            kept.keep(missing[index], row)
            if progress is not None:
                progress(done, len(jobs))
    tables = {kind: np.array([kept.rows[kind, float(v)] for v in axes[1][1]]) for kind in kinds}
    capacities = tables.pop("capacity", None)
    stacked = np.array([tables[name] for name in names])
    best = np.argmin(np.where(np.isnan(stacked), np.inf, stacked), axis=0)
    return PhaseMap(
        task=task,
        training=training,
        x=axes[0][0],
        y=axes[1][0],
        x_values=axes[0][1],
        y_values=axes[1][1],
        errors=tables,
        winners=np.array(names)[best],
        capacities=capacities,
        unsolved=int(np.isnan(stacked).sum()),
        tolerance=tolerance,
    )


def _identity(
    task: Task, training: Training, axes: list[tuple[str, Array]], tolerance: float
) -> dict[str, Any]:
    """Return what a row depends on besides its classifier and its value of y."""
    (x, values), (y, _) = axes
    return {
        "version": __version__,
        "task": task.to_dict(),
        "training": training.to_dict(),
        "x": x,
        "x_values": values.tolist(),
        "y": y,
        "tolerance": tolerance,
    }


def _checked(side: str, axis: Any, task: Task, training: Training) -> tuple[str, Array]:
    """Return a setting and its values, increasing, each of them checked."""
    if not (isinstance(axis, tuple | list) and len(axis) == 2 and isinstance(axis[0], str)):
        raise ParameterError(side, axis, "a pair (name, values)")
    name = axis[0]
    values = validation.rectangular(f"values of {side}", axis[1])
    # Numbers beyond 64 bits come as objects; whether the setting takes them is asked below.
    numbers = values.dtype.kind in "iuf" or all(isinstance(v, Real) for v in values.flat)
    if not numbers or values.ndim != 1 or len(values) < 2 or np.any(np.diff(values) <= 0):
        raise ParameterError(f"values of {side}", axis[1], "at least two numbers, increasing")
    for value in values.tolist():
        try:
            _settings(name, value, task, training)
        except ParameterError as error:
            if error.parameter != "over":
                raise
            raise ParameterError(side, name, f"{error.accepted}, {ALL_SAMPLES}") from None
    return name, values


def _check_axes(x: str, y: str, training: Training) -> None:
    """Refuse two axes of which one would change what the other says."""
    parts = ("alpha0", "alpha1")
    tied = {*parts, ALL_SAMPLES} if training.reuse else {ALL_SAMPLES}
    if x == y:
        raise ParameterError("y", y, f"another setting than x, {x}")
    if {x, y} <= {*parts, ALL_SAMPLES} and {x, y} & tied:
        accepted = f"a setting that leaves x, {x}, as it is: both say how many samples there are"
        raise ParameterError("y", y, accepted)


def _check_read(side: str, name: str, classifiers: Sequence[str], with_capacity: bool) -> None:
    """Refuse an axis over which nothing on the map would change."""
    read = {ALL_SAMPLES, "alpha0"}  # a readout without a query has the samples of both
    for classifier in classifiers:
        read |= set(prediction_fields(classifier, None))
    if with_capacity:
        read |= set(query_fields("attention", None))
    if name not in read:
        accepted = f"a setting that {' or '.join(classifiers)} reads: " + ", ".join(sorted(read))
        raise ParameterError(side, name, accepted)


def _settings(name: str, value: Any, task: Task, training: Training) -> tuple[Task, Training]:
    """Return the settings with one of them changed."""
    if name != ALL_SAMPLES:
        varied = vary(name, value, task, training)
        return varied[0], varied[1]
    return task, training.share_out(value)


def _row(
    task: Task,
    training: Training,
    x: tuple[str, Array],
    y: str,
    tolerance: float,
    kind: str,
    up: float,
) -> list[float]:
    """Return one row of the map, for a classifier or for the capacity, each begun from the last."""
    whole = isinstance({**task.to_dict(), **training.to_dict()}.get(y), int)
    task, training = _settings(y, int(up) if whole else up, task, training)
    row = [_settings(x[0], value, task, training) for value in x[1].tolist()]
    if kind == "capacity":
        return [_capacity_ratio(*settings) for settings in row]
    if not LAWS[kind].takes_query:
        row = [(task, training.all_for_the_readout()) for task, training in row]
    path = Predictor(kind, None, Usage(), tolerance)
    with one_thread:
        predictions = [path.predict(*settings) for settings in row]
    return [one.test_error if one.solution.converged else np.nan for one in predictions]


def _capacity_ratio(task: Task, training: Training) -> float:
    return float(capacity(task, training=training).alpha / training.alpha1)


def _first_crossings(gaps: Array, values: Array) -> Array:
    """Return for each column of gaps (Y, X) the value of y at which it first is at most 0."""
    found = np.full(gaps.shape[1], np.nan)
    for column, gap in enumerate(gaps.T):
        below = np.flatnonzero(gap <= 0)
        if not len(below):
            continue
        first = int(below[0])
        if first == 0:
            found[column] = values[0]
            continue
        found[column] = _between(gap, values, first - 1)
    return found


def _lines(found: PhaseMap) -> Iterator[str]:
    yield (
        f"Map over {found.x} ({found.x_values[0]:g} to {found.x_values[-1]:g}) and {found.y} "
        f"({found.y_values[0]:g} to {found.y_values[-1]:g}), {found.winners.size:,} cells, "
        f"errors ± {found.tolerance:g}"
    )
    for name in found.errors if len(found.errors) > 1 else ():
        share = float(np.mean(found.winners == name))
        yield f"  {name:12} wins in {share_text(share)}"
    if found.unsolved:
        yield f"  {found.unsolved} predictions did not converge and are left out"
    if found.capacities is not None:
        share = float(np.mean(found.capacities >= 1))
        yield f"  attention separates its training samples in {share_text(share)} (below capacity)"
    if "attention" not in found.errors:
        return
    errors = found.errors["attention"]
    columns, words = (
        [errors - _LEVEL],
        f"{found.y} where attention errs at most {share_text(_LEVEL)}",
    )
    if "pooled" in found.errors:
        columns.append(errors - found.errors["pooled"])
        words += ", and where no more than pooling"
    yield f"  {found.x:>12}  {words}"
    for i in np.unique(np.linspace(0, len(found.x_values) - 1, 7).astype(int)):
        ends = [_range_text(gaps[:, i], found.y_values) for gaps in columns]
        yield f"  {found.x_values[i]:>12.4g}" + "".join(f"  {end:>16}" for end in ends)


def _range_text(gaps: Array, values: Array) -> str:
    """Return in words where gaps (Y,) first are at most 0: from where, and up to where."""
    inside = gaps <= 0
    if not inside.any() or inside.all():
        return "everywhere here" if inside.all() else "nowhere here"
    first = int(np.argmax(inside))
    start = "" if first == 0 else f"from {_first_crossings(gaps[:, None], values)[0]:.3g}"
    if inside[first:].all():
        return start
    last = first + int(np.argmin(inside[first:])) - 1
    return f"{start} up to {_between(gaps, values, last):.3g}".lstrip()


def _between(gaps: Array, values: Array, below: int) -> float:
    """Return where gaps cross 0 between a value and the next: at the one that is known, of NaN."""
    before, after = gaps[below : below + 2]
    share = before / (before - after) if np.isfinite([before, after]).all() else np.isnan(before)
    return float(values[below] + share * (values[below + 1] - values[below]))
