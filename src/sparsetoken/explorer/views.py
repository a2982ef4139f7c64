"""What each view shows: from a state to lines, from lines to batches of points, and to pieces.

A view is a list of `Line`s: over the x axis, or the rows of a map. A `Picture` knows which points
of them are known, what to ask for next (few points first, then more, then at the default accuracy),
and how the page is told: by pieces, plain dictionaries of the kinds "line", "map", "tokens",
"numbers" (at the present settings) and "note".
"""

import math
import pickle
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np

from sparsetoken.arrays import Array
from sparsetoken.explorer.computing import (
    Batch,
    Point,
    Source,
    Stale,
    compute,
    takes_query,
)
from sparsetoken.explorer.state import LIMITS, State, axis_range
from sparsetoken.numerics.memory import Results
from sparsetoken.records import with_error
from sparsetoken.task import ALL_SAMPLES, Query, Task, Training, spaced, vary
from sparsetoken.theory.chosen_query import LEARNING

__all__ = [
    "DEFAULT",
    "FINAL",
    "FIRST",
    "MAP",
    "SCREEN",
    "Known",
    "Picture",
    "Piece",
    "Stage",
    "Stale",
    "axis_values",
    "given_query",
    "lines_of",
    "map_axes",
    "pieces",
    "repairs",
]

Piece = dict[str, Any]


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

# Views whose lines begin where they were also at the default accuracy.
_FOLLOWED = ("strength", "map", "shift")

# Points of one batch. Each begins where the one before it ended, so that a whole line costs little
# more than a few points; a dear one is shared by two workers.
_AT_ONCE = 13
_CAPACITIES = 3
_WHOLE = 100

# What is kept of each kind: tens of thousands of points, thousands of what they begin from.
_KEPT_BYTES = 2**24


class Known:
    """Points that are known, and what was learnt last at each place; shared by all tabs.

    Attributes
    ----------
    points : by the settings that decide them
    memories : what the next point at a place of the screen begins from, some kilobytes each
    bends : how far a solution at a place of a map was from what its neighbours let expect
    """

    def __init__(self) -> None:
        self.points: Results[Point] = Results(_KEPT_BYTES)
        self.memories: Results[bytes] = Results(_KEPT_BYTES)
        self.bends: Results[Array] = Results(_KEPT_BYTES)


Kept = TypeVar("Kept", Point, bytes, Array)


def _keep(results: Results[Kept], key: Hashable, value: Kept) -> None:
    """Keep a value, by the size of all that it holds and of its key."""
    results.put(key, value, len(pickle.dumps((key, value))))


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


def pieces(state: State, stage: Stage, check: Callable[[], None]) -> Iterator[Piece]:
    """Compute what the view shows at a stage, here and now; `check` raises `Stale` to end it."""
    picture = Picture(state, Known())
    for batch in picture.batches(stage):
        picture.put(batch, compute(picture.begun(batch), check))
    yield from picture.pieces()


class Picture:
    """What is known of a state's view, and what is still to be computed."""

    def __init__(self, state: State, known: Known) -> None:
        self.state = state
        self._known = known
        self._stage = FIRST
        self.lines = lines_of(state)
        self._rows = max((line.row or 0 for line in self.lines), default=0) + 1
        self._here = _numbers_here(state, self.lines)
        for number, pinned in enumerate(state.pinned()):
            if pinned.view == state.view and state.view not in ("map", "turning", "inside"):
                self.lines += [replace(line, pin=number) for line in lines_of(pinned)]
        # What costs little comes first, and rows of a map before those between them.
        self.lines.sort(key=lambda line: (line.pin is not None, _cost(line), -_spacing(line.row)))
        self._map_rows = {
            (line.name, line.row): line for line in self.lines if line.source.kind == "predict"
        }
        self._capacities = {line.row: line for line in self.lines if line.name == CAPACITY_RATIO}

    def batches(self, stage: Stage) -> list[Batch]:
        """Go to a stage, and return what is still to be computed for it, in the order of use."""
        self._stage = stage
        self._asked: set[Hashable] = set()
        # At the default accuracy the numbers beside the plot come first; before, with their lines.
        found = [batch for line in self._here for batch in self._of(stage, line, exactly=True)]
        lines = list(self.lines)
        if stage is FIRST:  # what costs little is seen first
            lines = [line for line in lines if line.name != CAPACITY_RATIO]
        elif self.state.view == "map":  # capacities differ most in what they cost
            lines.sort(key=lambda line: line.name != CAPACITY_RATIO)
        elif stage is FINAL:  # what costs most begins, so that workers end together
            lines.reverse()
        for line in lines:
            found += self._of(
                stage, line, *(other for other in self._here if other.source == line.source)
            )
        return found

    def _of(self, stage: Stage, *lines: Line, exactly: bool = False) -> Iterator[Batch]:
        """Yield what a stage still needs of lines that have one source."""
        if exactly and stage is not FINAL:
            return
        source, accuracy = lines[0].source, lines[0].accuracy
        tolerance = accuracy.final if stage is FINAL else accuracy.screen
        missing = [
            value for line in lines for value in self._missing(stage, line, tolerance, exactly)
        ]
        # Searches for a strength begin at any accuracy where the last one ended.
        place = (lines[0].place, None if source.kind == "strength" else tolerance)
        # From where a point was a moment ago; numbers and learning curves at last as the package
        # computes them.
        follow = source.kind in ("predict", "strength") and not exactly
        follow = follow and (stage is not FINAL or self.state.view in _FOLLOWED)
        size = _batch_size(source, stage) if lines[0].name != CAPACITY_RATIO else _CAPACITIES
        for values in _shared_out(sorted(missing), size, evenly=source.over == "at_length"):
            memories = (b"",) * len(values) if follow else None
            yield Batch(source, values, tolerance, place, lines[0].row, memories)

    def _missing(
        self, stage: Stage, line: Line, tolerance: float, exactly: bool
    ) -> Iterator[float]:
        """Yield the values at which a stage still needs a line, each once for all lines."""
        for index in self.chosen(line, stage):
            if stage is FINAL and self._on_one_side(line, index):
                continue
            key = line.keys[index]
            point = self._known.points.find(key)
            good = point is not None and point.good_for(tolerance, line.source.relative, exactly)
            if key not in self._asked and not good:
                self._asked.add(key)
                yield line.asked[index]

    def begun(self, batch: Batch) -> Batch:
        """Return a batch with what is known by now to begin its points from."""
        if batch.memories is None:
            return batch
        memories, expected = [], []
        for value in batch.values:
            memory = self._known.memories.find((batch.place, value))
            beside = self._beside(batch, value)
            near = _between(beside)
            bend = self._known.bends.find((batch.place, value))
            if near is not None and bend is not None and bend.shape == near.shape:
                near = near + bend
            if memory is None and near is not None:
                memory = next((item.memory for item in beside if abs(item.steps) == 1), None)
            memories.append(memory or b"")
            expected.append(() if near is None else tuple(map(float, near)))
        return replace(batch, memories=tuple(memories), expected=tuple(expected))

    def put(self, batch: Batch, points: Sequence[Point]) -> None:
        """Keep what was computed."""
        for value, point in zip(batch.values, points, strict=True):
            _keep(self._known.points, batch.source.key(value), point._replace(memory=b""))
            if point.memory:
                _keep(self._known.memories, (batch.place, value), point.memory)
            near = _between(self._beside(batch, value)) if point.solution else None
            if near is not None and len(near) == len(point.solution):
                _keep(self._known.bends, (batch.place, value), np.array(point.solution) - near)

    def _beside(self, batch: Batch, value: float) -> list["_Beside"]:
        """Return the solutions between which a point of a map lies, if all of them are known."""
        line = self._map_rows.get((batch.source.classifier, batch.row))
        if batch.row is None or line is None:
            return []
        row, column = batch.row, line.asked.index(value)
        # Points of a coarser grid are on both sides in its row; above and below where that is new.
        vertical = _spacing(row) <= _spacing(column)
        step, place = min(_spacing(row), _spacing(column)), row if vertical else column
        count = self._rows if vertical else len(line.x)
        found = []
        for steps in (-3, -1, 1, 3):
            other = place + steps * step
            if not 0 <= other < count:
                if abs(steps) == 1:
                    return []
                continue
            beside = self._map_rows[line.name, other] if vertical else line
            index = column if vertical else other
            point = self._known.points.find(beside.keys[index])
            if point is None or not point.solution:
                return []
            known = ((beside.place, batch.place[1]), beside.asked[index])
            found.append(_Beside(steps, point.solution, self._known.memories.find(known) or b""))
        return found

    def pieces(self) -> Iterator[Piece]:
        """Yield what can be shown now, whole lines only at first."""
        if self.state.view in ("map", "turning"):
            # Its contour of capacities comes at last.
            if all(self._is_whole(line) for line in self.lines if line.name != CAPACITY_RATIO):
                yield self._map()
            return
        for line in filter(self._is_whole, self.lines):
            point = self._known.points.find(line.keys[0])
            if point is not None and point.extra is not None:
                yield {"kind": "tokens", **point.extra}
            else:
                yield _line_piece(line, self._points(line))
        yield from self._numbers()

    def _is_whole(self, line: Line) -> bool:
        """Return whether all points are known that the first stage asks for."""
        return all(self._known.points.find(line.keys[i]) for i in self.chosen(line, FIRST))

    def chosen(self, line: Line, stage: Stage) -> tuple[int, ...]:
        """Return which points of a line a stage asks for."""
        if line.row is None:
            wanted = min(stage.points, len(line.x))
            return _some(len(line.x), wanted // 2 + 1 if line.dear else wanted)
        side = self._side(stage)
        return _some(len(line.x), side) if line.row in _some(self._rows, side) else ()

    def _on_one_side(self, line: Line, index: int) -> bool:
        """Return whether the contour of capacities does not pass by a point, seen from a coarser grid."""
        if line.name != CAPACITY_RATIO:
            return False
        assert line.row is not None
        rows = _around(line.row, _some(self._rows, self._side(SCREEN)))
        columns = _around(index, _some(len(line.x), self._side(SCREEN)))
        if line.row in rows and index in columns:
            return False
        sides = set()
        for row in rows:
            other = self._capacities[row]
            for column in columns:
                point = self._known.points.find(other.keys[column])
                if point is None:
                    return False
                sides.add(point.y is None or point.y > other.divisor(column))
        return len(sides) == 1

    def _side(self, stage: Stage | None = None) -> int:
        """Return how many points the side of a map has, at most."""
        stage = stage or self._stage
        return stage.fine_side if self.state.view == "turning" else stage.side

    def _points(self, line: Line) -> list[Point | None]:
        """Return the points of the present stage that are known, None for all others."""
        chosen = set(self.chosen(line, self._stage))
        return [
            self._known.points.find(line.keys[index]) if index in chosen else None
            for index in range(len(line.x))
        ]

    def _map(self) -> Piece:
        across, up, log = map_axes(self.state)
        values: dict[str, list[list[float | None]]] = {
            name: [[None] * len(across) for _ in up]
            for name in (*self.state.classifiers, CAPACITY_RATIO)
        }
        for line in self.lines:
            assert line.row is not None
            grid = values[line.name]
            grid[line.row] = [
                None if point is None or point.y is None else point.y / line.divisor(column)
                for column, point in enumerate(self._points(line))
            ]
        side = len(_some(len(across), self._side())), len(_some(len(up), self._side()))
        accuracy = self.lines[0].accuracy
        tolerance = accuracy.final if self._stage is FINAL else accuracy.screen
        shown = {"side": side, "tolerance": tolerance if self.state.view == "map" else 0.0}
        return {"kind": "map", "x": across, "y": up, "log": log, "values": values, **shown}

    def _numbers(self) -> Iterator[Piece]:
        """Yield the values at the present settings, and what is to be said about them."""
        rows = []
        for line in self._here:
            (point,) = self._points(line)
            if point is not None:
                text = with_error(point.y, point.bar)
                shown = {"value": point.y, "bar": point.bar, "text": text}
                note = "" if line.source.kind == "align" else point.note
                rows.append({"name": line.name, "quantity": line.source.quantity, **shown})
                rows[-1] |= {"note": note, "x": line.x[0]}
                if line.source.kind == "align" and point.note:
                    yield {"kind": "note", "text": point.note}
        if rows:
            yield {"kind": "numbers", "rows": rows}


class _Beside(NamedTuple):
    """A solution beside a point of a map: so many steps away, and what to begin from."""

    steps: int
    solution: tuple[float, ...]
    memory: bytes


def _between(known: Sequence[_Beside]) -> Array | None:
    """Return where the solution between others may be: on the polynomial through them."""
    if len({len(item.solution) for item in known}) != 1:
        return None
    places = [item.steps for item in known]
    weights = [
        math.prod(other / (other - place) for other in places if other != place) for place in places
    ]
    return np.asarray(weights @ np.array([item.solution for item in known]))


def _spacing(place: int | None) -> int:
    """Return the spacing of the coarsest nested grid that has a place."""
    return place & -place if place else 2**30


def _line_piece(line: Line, points: Sequence[Point | None]) -> Piece:
    shown = [(x, point) for x, point in zip(line.x, points, strict=True) if point is not None]
    piece: Piece = {
        "kind": "line",
        "name": line.name,
        "x": [x for x, _ in shown],
        "y": [point.y for _, point in shown],
        "bar": [point.bar for _, point in shown],
        "notes": [point.note for _, point in shown],
    }
    return piece if line.pin is None else {**piece, "pin": line.pin}


def _cost(line: Line) -> int:
    order = {"": 0, "floor": 3, "bayes": 4}  # linear classifiers lie in between
    classifier = line.source.classifier
    cost = 5 if takes_query(classifier) else order.get(classifier, 1)
    return cost + 10 * (line.name == CAPACITY_RATIO)


def _batch_size(source: Source, stage: Stage) -> int:
    """Return how many points are asked for at once."""
    dear = takes_query(source.classifier)
    if stage is FIRST and source.kind in ("predict", "capacity", "strength"):
        return 3 if dear else 5
    return _AT_ONCE if dear else _WHOLE


def _shared_out(
    values: Sequence[float], most: int, evenly: bool = False
) -> Iterator[tuple[float, ...]]:
    """Yield parts of nearly equal size, none larger than `most`; neighbours, or `evenly` spread."""
    parts = math.ceil(len(values) / most)
    for part in range(parts):
        share = slice(part * len(values) // parts, (part + 1) * len(values) // parts)
        yield tuple(values[part::parts] if evenly else values[share])


def _around(place: int, coarse: Sequence[int]) -> list[int]:
    """Return the places of a coarser grid next to a place; with it, if that is one of them."""
    below = [other for other in coarse if other < place]
    above = [other for other in coarse if other > place]
    return [*below[-1:], *(other for other in coarse if other == place), *above[:1]]


@cache
def _some(count: int, wanted: int) -> tuple[int, ...]:
    """Return about so many of `count` places, evenly; those of fewer are among those of more."""
    step = 1
    while (count - 1) / step + 1 > wanted and step < count:
        step *= 2
    return tuple(sorted({*range(0, count, step), max(count - 1, 0)})) if count else ()


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


def _numbers_here(state: State, lines: Sequence[Line]) -> list[Line]:
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
