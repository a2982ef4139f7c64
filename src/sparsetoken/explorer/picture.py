"""What is known of a view, what to ask for next, and how the page is told.

A `Picture` turns the lines of a view into batches of points (few first, then more, then at the default
accuracy), and what is known of them into pieces: plain dictionaries of the kinds "line", "map",
"tokens", "numbers" (at the present settings) and "note".
"""

import math
import pickle
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple, TypeVar

import numpy as np

from sparsetoken.arrays import Array
from sparsetoken.explorer.computing import Batch, Point, Source, compute, takes_query
from sparsetoken.explorer.state import State
from sparsetoken.explorer.views import (
    CAPACITY_RATIO,
    FINAL,
    FIRST,
    SCREEN,
    Line,
    Stage,
    lines_of,
    map_axes,
    numbers_here,
)
from sparsetoken.numerics.memory import Results
from sparsetoken.records import with_error

__all__ = ["Known", "Picture", "Piece", "pieces"]

Piece = dict[str, Any]

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
        self._here = numbers_here(state, self.lines)
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
