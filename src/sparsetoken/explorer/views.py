"""What each view shows: from a state to lines over the x axis, or to the rows of a map."""

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

from sparsetoken.explorer.computing import Source, takes_query
from sparsetoken.explorer.state import LIMITS, State, axis_range
from sparsetoken.task import ALL_SAMPLES, Query, Task, Training, spaced, vary
from sparsetoken.theory.chosen_query import LEARNING

__all__ = [
    "CAPACITY_RATIO",
    "DEFAULT",
    "FINAL",
    "FIRST",
    "MAP",
    "SCREEN",
    "Line",
    "Stage",
    "axis_values",
    "given_query",
    "lines_of",
    "map_axes",
    "numbers_here",
    "repairs",
]


@dataclass(frozen=True)
class Stage:
    """How fine an answer is.

    Attributes
    ----------
    name : str
    points : of a line, at most
    side : points of the side of a map; `fine_side` where they cost little
    accuracy : what the page calls it
    """

    name: str
    points: int
    side: int
    fine_side: int
    accuracy: str


# What the eye needs while a slider moves, more of it, then the package's default accuracy. Grids are
# nested: what is known is not asked for again.
FIRST = Stage("first", 4, 5, 9, "screen")
SCREEN = Stage("screen", 13, 9, 17, "screen")
FINAL = Stage("final", LIMITS["points"], 17, 33, "final")


class Accuracy(NamedTuple):
    """The tolerance of a line while a slider moves, and when it rests."""

    screen: float
    final: float


DEFAULT = Accuracy(5e-3, 1e-4)
# Those of other functions of the package, and what the eye can tell where that takes too long.
FLOOR = Accuracy(5e-3, 1e-3)
SHIFT = Accuracy(5e-3, 1e-3)
# A map from where it was a moment ago costs no more at the finer one.
MAP = Accuracy(2e-3, 2e-3)
CAPACITY = Accuracy(0.2, 1e-2)
# The contour of a map comes at once as it stays.
CONTOUR = Accuracy(1e-2, 1e-2)
STRENGTH = Accuracy(0.05, 2e-3)

# In a map beside the classifiers: training data are separable where it is above 1.
CAPACITY_RATIO = "capacity_ratio"


@dataclass(frozen=True)
class Line:
    """A line or a row of a map: values of one source.

    Attributes
    ----------
    name : what the page calls it
    source : Source
    x : places on the x axis
    asked : the value of the source's field at each of them
    accuracy : Accuracy
    pin : number of the pin whose line it is, or None
    row : number of the row of a map, or None
    scale : what values are divided by at each place, or None
    """

    name: str
    source: Source
    x: tuple[float, ...]
    asked: tuple[float, ...]
    accuracy: Accuracy = DEFAULT
    pin: int | None = None
    row: int | None = None
    scale: tuple[float, ...] | None = None

    @property
    def place(self) -> Hashable:
        """Which line of the screen it is, whatever the settings are."""
        source = self.source
        return (source.kind, source.classifier, source.over, source.options, self.row, self.pin)

    def divisor(self, index: int) -> float:
        """Return what the value at a place is divided by."""
        return 1.0 if self.scale is None else self.scale[index]

    @property
    def dear(self) -> bool:
        """Whether half of the points must do: each searches for the best sharpness."""
        return ("at_sharpness", "best") in self.source.options

    @cached_property
    def keys(self) -> tuple[Hashable, ...]:
        """What decides the answer at each place, and nothing else."""
        return tuple(map(self.source.key, self.asked))


def lines_of(state: State) -> list[Line]:
    """Return the lines of a view, or the rows of a map."""
    return _VIEWS[state.view](state)


def axis_values(state: State) -> list[float]:
    """Return the values along the x axis."""
    start, stop = axis_range(state, state.over, state.start, state.stop)
    by_factors = bool(state.logarithmic) and start > 0
    return spaced(state.over, start, stop, state.points, by_factors=by_factors)


def given_query(state: State, classifier: str) -> Query | None:
    """Return the given query, if there is one and the classifier takes it."""
    return state.query if state.given_query and takes_query(classifier) else None


def _simple(
    state: State,
    kind: str,
    classifier: str,
    quantity: str,
    options: tuple[tuple[str, Any], ...] = (),
    accuracy: Accuracy = DEFAULT,
) -> Line:
    """Return a line over the x axis of a state."""
    query = given_query(state, classifier)
    source = Source(
        kind, classifier, state.task, state.training, query, state.over, quantity, options
    )
    x = tuple(axis_values(state))
    return Line(classifier, source, x, x, accuracy)


def _learning(state: State) -> list[Line]:
    return [
        line
        for classifier in state.classifiers
        if (line := _learning_line(state, classifier)) is not None
    ]


def _learning_line(state: State, classifier: str) -> Line | None:
    if classifier == "floor":
        return _floor_line(state) if state.quantity == "test_error" else None
    line = _simple(state, "predict", classifier, state.quantity)
    return _flat(line) if _is_flat(line.source) else line


def _is_flat(source: Source) -> bool:
    """Whether predictions vary along a query that the line has not, or that is not learnt."""
    given = source.query is not None
    return source.over in (LEARNING if given else Query.__dataclass_fields__)


def _flat(line: Line) -> Line:
    """Return a line that has one value, that of the present training."""
    source = replace(line.source, over="alpha1")
    return replace(line, source=source, asked=(source.training.alpha1,) * len(line.x))


def _floor_line(state: State) -> Line:
    """Return the floor for as many samples as the whole training has."""
    options: tuple[tuple[str, Any], ...] = ()
    x = tuple(axis_values(state))
    over, asked = state.over, x
    if state.over in state.task.to_dict():
        options = (("alpha", state.training.alpha),)
    elif state.over != ALL_SAMPLES:
        varied = [vary(state.over, value, state.task, state.training, state.query) for value in x]
        over, asked = ALL_SAMPLES, tuple(training.alpha for _, training, _ in varied)
    source = Source("floor", "floor", state.task, state.training, None, over, "test_error", options)
    return Line("floor", source, x, asked, FLOOR)


def _query_view(state: State) -> list[Line]:
    line = _simple(state, "align", "attention", state.quantity)
    return [replace(line, source=replace(line.source, query=None))]


def _strength(state: State) -> list[Line]:
    options = (("error", state.error),)
    return [
        _simple(state, "strength", classifier, "strength", options, STRENGTH)
        for classifier in state.classifiers
    ]


def _capacity(state: State) -> list[Line]:
    return [
        _simple(state, "capacity", classifier, "alpha", accuracy=CAPACITY)
        for classifier in state.classifiers
    ]


def _shift(state: State) -> list[Line]:
    return [
        replace(_simple(state, "predict", classifier, "test_error", options, SHIFT), name=name)
        for classifier in state.classifiers
        for name, options in repairs(classifier)
    ]


def repairs(classifier: str) -> list[tuple[str, tuple[tuple[str, Any], ...]]]:
    """Return the ways in which a trained classifier can be used on other lengths."""
    moved = (("recalibrate", True),)
    ways: list[tuple[str, tuple[tuple[str, Any], ...]]] = [
        (classifier, ()),
        (f"{classifier}, bias moved", moved),
    ]
    if takes_query(classifier):
        ways += [
            (f"{classifier}, hard maximum, bias moved", (("at_sharpness", math.inf), *moved)),
            (f"{classifier}, best sharpness and bias", (("at_sharpness", "best"), *moved)),
        ]
    return ways


def _inside(state: State) -> list[Line]:
    query = state.query if state.given_query else None
    source = Source("tokens", "attention", state.task, state.training, query, "draw", "weight")
    return [Line("attention", source, (state.draw,), (state.draw,))]


def map_axes(state: State) -> tuple[list[float], list[float], list[bool]]:
    """Return the values along both axes of a map, and whether these are logarithmic."""
    side = FINAL.fine_side if state.view == "turning" else FINAL.side
    start, stop = axis_range(state, state.over, state.start, state.stop)
    low, high = axis_range(state, state.second, state.second_start, state.second_stop)
    by_factors = [bool(state.logarithmic) and start > 0, low > 0]
    across = spaced(state.over, start, stop, side, by_factors=by_factors[0])
    up = spaced(state.second, low, high, side, by_factors=by_factors[1])
    return across, up, by_factors


def _turning(state: State) -> list[Line]:
    return _rows(state, "turning", ("attention",), "alignment")


def _map(state: State) -> list[Line]:
    """Return the rows of a map as `phase_map` has them: without a query, a readout has all samples."""
    rows = []
    for row in _rows(state, "predict", state.classifiers, state.quantity, MAP):
        source, training = row.source, row.source.training
        if not takes_query(source.classifier):
            asked, over = row.x, state.over
            if over in ("alpha0", "alpha1"):
                at = [vary(over, value, training)[0] for value in row.x]
                asked, over = tuple(item.alpha for item in at), "alpha1"
            source = replace(source, training=training.all_for_the_readout(), over=over)
            row = replace(row, source=source, asked=asked)
        rows.append(_flat(row) if _is_flat(row.source) else row)
    if "attention" not in state.classifiers:
        return rows
    for row in _rows(state, "capacity", ("attention",), "alpha", CONTOUR):
        training = row.source.training
        tied = ("alpha0", "alpha1") if training.reuse else ("alpha1",)
        scale = row.x if state.over in tied else (training.alpha1,) * len(row.x)
        rows.append(replace(row, name=CAPACITY_RATIO, scale=scale))
    return rows


def _rows(
    state: State,
    kind: str,
    classifiers: Sequence[str],
    quantity: str,
    accuracy: Accuracy = DEFAULT,
) -> list[Line]:
    """Return the rows of a map, the coarse ones first."""
    across, up, _ = map_axes(state)
    settings: list[tuple[Task, Training, Query]] = [
        vary(state.second, value, state.task, state.training, state.query) for value in up
    ]
    return [
        Line(
            classifier,
            Source(
                kind,
                classifier,
                *settings[row][:2],
                settings[row][2] if given_query(state, classifier) else None,
                state.over,
                quantity,
            ),
            tuple(across),
            tuple(across),
            accuracy,
            row=row,
        )
        for row in range(len(up))
        for classifier in classifiers
    ]


def numbers_here(state: State, lines: Sequence[Line]) -> list[Line]:
    """Return the lines of a view at the present settings alone."""
    if state.view not in ("learning", "query", "strength", "capacity"):
        return []
    value = state.present(state.over)
    if isinstance(value, str):
        return []  # a law of the number of informative tokens has no place on an axis
    found = []
    for line in lines:
        asked = value
        if line.source.over == ALL_SAMPLES:
            asked = state.training.alpha
        elif line.source.over != state.over:
            asked = line.asked[0]
        found.append(replace(line, x=(value,), asked=(asked,)))
    return found


_VIEWS: dict[str, Callable[[State], list[Line]]] = {
    "learning": _learning,
    "query": _query_view,
    "turning": _turning,
    "strength": _strength,
    "capacity": _capacity,
    "map": _map,
    "shift": _shift,
    "inside": _inside,
}
