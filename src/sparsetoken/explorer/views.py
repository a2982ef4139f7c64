"""What each view shows: from a state to lines, from lines to batches of points, and to pieces.

A view is a list of `Line`s: over the x axis, or the rows of a map. A `Picture` knows which points
of them are known, what to ask for next (few points first, then more, then at the default accuracy),
and how the page is told: by pieces, plain dictionaries of the kinds "line", "map", "tokens",
"numbers" (at the present settings) and "note".
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from sparsetoken.explorer.computing import ALL_SAMPLES, Batch, Point, Source, Stale, compute
from sparsetoken.explorer.state import LIMITS, State, axis_range, total_samples
from sparsetoken.task import Query, Task, Training, vary

__all__ = [
    "FINAL",
    "FIRST",
    "SCREEN",
    "Known",
    "Picture",
    "Piece",
    "Stage",
    "Stale",
    "axis_values",
    "line_points",
    "lines_of",
    "map_axes",
    "pieces",
]

Piece = dict[str, Any]


@dataclass(frozen=True)
class Stage:
    """How fine an answer is.

    Attributes
    ----------
    name : str
    tolerance : wanted numerical error
    points : of a line, at most
    side : points of the side of a map; `fine_side` where they cost little
    accuracy : what the page calls it
    """

    name: str
    tolerance: float
    points: int
    side: int
    fine_side: int
    accuracy: str


# What the eye needs while a slider moves, more of it, then the package's default accuracy. Grids are
# nested: what is known is not asked for again.
FIRST = Stage("first", 5e-3, 4, 5, 9, "screen")
SCREEN = Stage("screen", 5e-3, 13, 9, 17, "screen")
FINAL = Stage("final", 1e-4, LIMITS["points"], 17, 33, "final")

# The tolerance of `phase_map`.
MAP_TOLERANCE = 2e-3

# In a map beside the classifiers: training data are separable where it is above 1.
CAPACITY_RATIO = "capacity_ratio"

# Points of one batch, such that none takes much more than a twentieth of a second where it can.
_AT_ONCE = {"attention": 3, "pooled": 16, "vectorised": 16, "floor": 3, "bayes": 1, "": 100}


class Known:
    """Points that are known, the last ones used; shared by all tabs."""

    def __init__(self, most: int = 20_000) -> None:
        self._points: OrderedDict[Hashable, Point] = OrderedDict()
        self._most = most

    def get(self, key: Hashable) -> Point | None:
        """Return a point if it is known."""
        if key in self._points:
            self._points.move_to_end(key)
        return self._points.get(key)

    def put(self, key: Hashable, point: Point) -> None:
        """Keep a point, and forget the one that was not used for longest."""
        self._points[key] = point
        self._points.move_to_end(key)
        if len(self._points) > self._most:
            self._points.popitem(last=False)


@dataclass(frozen=True)
class Line:
    """A line or a row of a map: values of one source.

    Attributes
    ----------
    name : what the page calls it
    source : Source
    x : places on the x axis
    asked : the value of the source's field at each of them
    tolerance : the finest that is worth asking for
    pin : number of the pin whose line it is, or None
    row : number of the row of a map, or None
    scale : what values are divided by at each place, or None
    """

    name: str
    source: Source
    x: tuple[float, ...]
    asked: tuple[float, ...]
    tolerance: float = 0.0
    pin: int | None = None
    row: int | None = None
    scale: tuple[float, ...] | None = None

    @cached_property
    def _keys(self) -> dict[int, Hashable]:
        return {}

    def key(self, index: int) -> Hashable:
        """Return the key of a point; those of a fine map take a while, and most are not needed."""
        if index not in self._keys:
            self._keys[index] = self.source.key(self.asked[index])
        return self._keys[index]


def pieces(state: State, stage: Stage, check: Callable[[], None]) -> Iterator[Piece]:
    """Compute what the view shows at a stage, here and now; `check` raises `Stale` to end it."""
    picture = Picture(state, Known())
    for batch in picture.batches(stage):
        picture.put(batch, compute(batch, check))
    yield from picture.pieces()


class Picture:
    """What is known of a state's view, and what is still to be computed."""

    def __init__(self, state: State, known: Known) -> None:
        self.state = state
        self._known = known
        self._stage = FIRST
        self.lines = lines_of(state)
        self._here = _numbers_here(state, self.lines)
        for number, pinned in enumerate(state.pinned()):
            if pinned.view == state.view and state.view not in ("map", "turning", "inside"):
                self.lines += [replace(line, pin=number) for line in lines_of(pinned)]
        # What costs little comes first.
        self.lines.sort(key=lambda line: (line.pin is not None, _cost(line)))

    def batches(self, stage: Stage) -> list[Batch]:
        """Go to a stage, and return what is still to be computed for it, in the order of use."""
        self._stage = stage
        found: list[Batch] = []
        asked: set[Hashable] = set()
        # At the default accuracy the numbers beside the plot come first.
        lines = [*self._here, *self.lines] if stage is FINAL else [*self.lines, *self._here]
        for place, line in enumerate(lines):
            if line.name == CAPACITY_RATIO and stage is not FINAL:
                continue
            exactly = stage is FINAL and place < len(self._here)
            tolerance = max(stage.tolerance, line.tolerance)
            missing = []
            chosen = self.chosen(line, stage)
            # At last in one go: each point of a curve begins where the one before it ended.
            for index in chosen if stage is FINAL else _coarse_first(chosen):
                key = line.key(index)
                point = self._known.get(key)
                if key not in asked and not (point and point.good_for(tolerance, exactly)):
                    asked.add(key)
                    missing.append(line.asked[index])
            size = _batch_size(line.source, stage)
            found += [
                Batch(line.source, tuple(missing[begin : begin + size]), tolerance)
                for begin in range(0, len(missing), size)
            ]
        return found

    def put(self, batch: Batch, points: Sequence[Point]) -> None:
        """Keep what was computed."""
        for value, point in zip(batch.values, points, strict=True):
            self._known.put(batch.source.key(value), point)

    def pieces(self) -> Iterator[Piece]:
        """Yield what can be shown now, whole lines only at first."""
        if self.state.view in ("map", "turning"):
            yield self._map()
        for line in self.lines if self.state.view not in ("map", "turning") else ():
            if line.source.kind == "tokens":
                point = self._known.get(line.key(0))
                if point is not None and point.extra is not None:
                    yield {"kind": "tokens", **point.extra}
                continue
            found = self._points(line)
            if all(found[index] is not None for index in self.chosen(line, FIRST)):
                yield _line_piece(line, found)
        yield from self._numbers()

    def chosen(self, line: Line, stage: Stage) -> list[int]:
        """Return which points of a line a stage asks for."""
        if line.row is None:
            slow = line.source.kind == "strength" and line.source.classifier == "attention"
            return _some(len(line.x), (stage.points + 1) // 2 if slow else stage.points)
        fine = line.source.kind == "turning"
        rows = max(other.row or 0 for other in self.lines) + 1
        side = stage.fine_side if fine else stage.side
        return _some(len(line.x), side) if line.row in _some(rows, side) else []

    def _points(self, line: Line) -> list[Point | None]:
        """Return the points of the present stage that are known, None for all others."""
        chosen = set(self.chosen(line, self._stage))
        return [
            self._known.get(line.key(index)) if index in chosen else None
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
            scale = line.scale or (1.0,) * len(across)
            grid[line.row] = [
                None if point is None or point.y is None else point.y / part
                for point, part in zip(self._points(line), scale, strict=True)
            ]
        return {"kind": "map", "x": across, "y": up, "log": log, "values": values}

    def _numbers(self) -> Iterator[Piece]:
        """Yield the values at the present settings, and what is to be said about them."""
        rows = []
        for line in self._here:
            (point,) = self._points(line)
            if point is not None:
                shown = {"value": point.y, "bar": point.bar}
                note = "" if line.source.kind == "align" else point.note
                rows.append({"name": line.name, "quantity": line.source.quantity, **shown})
                rows[-1] |= {"note": note, "x": line.x[0]}
                if line.source.kind == "align" and point.note:
                    yield {"kind": "note", "text": point.note}
        if rows:
            yield {"kind": "numbers", "rows": rows}


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
    order = ["", "pooled", "vectorised", "floor", "bayes", "attention"]
    return order.index(line.source.classifier) + 10 * (line.name == CAPACITY_RATIO)


def _batch_size(source: Source, stage: Stage) -> int:
    """Return how many points are asked for at once; few while all workers wait for a first line."""
    if source.kind in ("align", "turning", "tokens") or (
        source.kind == "strength" and source.classifier == "pooled"
    ):
        return _AT_ONCE[""]
    if stage is FIRST:
        return 2
    if source.over == "at_length":
        return 4 if source.options else 16
    if source.classifier == "attention" and source.kind == "strength":
        return 1
    if source.kind == "predict" and stage is FINAL:
        return 7
    return _AT_ONCE[source.classifier]


def _coarse_first(places: list[int]) -> list[int]:
    """Return places in an order in which a line looks whole from early on."""
    order: list[int] = []
    for wanted in (2, 3, 5, 9, 17, len(places)):
        order += [place for i in _some(len(places), wanted) if (place := places[i]) not in order]
    return order


def _some(count: int, wanted: int) -> list[int]:
    """Return about so many of `count` places, evenly; those of fewer are among those of more."""
    step = 1
    while (count - 1) / step + 1 > wanted and step < count:
        step *= 2
    return sorted({*range(0, count, step), max(count - 1, 0)}) if count else []


def lines_of(state: State) -> list[Line]:
    """Return the lines of a view, or the rows of a map."""
    return _VIEWS[state.view](state)


def line_points(state: State) -> int:
    """Return how many points a line has."""
    # A required strength takes seconds.
    return min(state.points, SCREEN.points) if state.view == "strength" else state.points


def axis_values(state: State) -> list[float]:
    """Return the values along the x axis."""
    start, stop = axis_range(state, state.over, state.start, state.stop)
    return _spaced(state.over, start, stop, line_points(state), bool(state.logarithmic))


def _spaced(name: str, start: float, stop: float, count: int, logarithmic: bool) -> list[float]:
    positive = start > 0 and stop > 0
    values = (np.geomspace if logarithmic and positive else np.linspace)(start, stop, count)
    if name in ("length", "informative", "at_length"):
        return [int(value) for value in np.unique(np.round(values))]
    return [float(value) for value in values]


def _given(state: State, classifier: str) -> Query | None:
    return state.query if state.given_query and classifier == "attention" else None


def _simple(
    state: State,
    kind: str,
    classifier: str,
    quantity: str,
    options: tuple[tuple[str, Any], ...] = (),
    tolerance: float = 0.0,
) -> Line:
    """Return a line over the x axis of a state."""
    query = _given(state, classifier)
    source = Source(
        kind, classifier, state.task, state.training, query, state.over, quantity, options
    )
    x = tuple(axis_values(state))
    return Line(classifier, source, x, x, tolerance)


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
    if line.source.query is None and state.over in Query.__dataclass_fields__:
        # Without a query of its own the line is flat.
        flat = replace(line.source, over="alpha1")
        return replace(line, source=flat, asked=(state.training.alpha1,) * len(line.x))
    return line


def _floor_line(state: State) -> Line:
    """Return the floor for as many samples as the whole training has."""
    options: tuple[tuple[str, Any], ...] = ()
    x = tuple(axis_values(state))
    over, asked = state.over, x
    if state.over in state.task.to_dict():
        options = (("alpha", total_samples(state.training)),)
    elif state.over != ALL_SAMPLES:
        varied = [vary(state.over, value, state.task, state.training, state.query) for value in x]
        over, asked = ALL_SAMPLES, tuple(total_samples(training) for _, training, _ in varied)
    source = Source("floor", "floor", state.task, state.training, None, over, "error", options)
    return Line("floor", source, x, asked, 1e-3)


def _query_view(state: State) -> list[Line]:
    line = _simple(state, "align", "attention", state.quantity)
    return [replace(line, source=replace(line.source, query=None))]


def _strength(state: State) -> list[Line]:
    options = (("error", state.error),)
    return [
        _simple(state, "strength", classifier, "strength", options, 1.0)
        for classifier in state.classifiers
    ]


def _capacity(state: State) -> list[Line]:
    return [
        _simple(state, "capacity", classifier, "alpha", tolerance=1.0)
        for classifier in state.classifiers
    ]


def _shift(state: State) -> list[Line]:
    return [
        replace(_simple(state, "predict", classifier, "test_error", options, 1e-3), name=name)
        for classifier in state.classifiers
        for name, options in _repairs(classifier)
    ]


def _repairs(classifier: str) -> list[tuple[str, tuple[tuple[str, Any], ...]]]:
    """Return the ways in which a trained classifier can be used on other lengths."""
    moved = (("recalibrate", True),)
    ways: list[tuple[str, tuple[tuple[str, Any], ...]]] = [
        (classifier, ()),
        (f"{classifier}, bias moved", moved),
    ]
    if classifier == "attention":
        ways += [
            ("hard maximum, bias moved", (("at_sharpness", math.inf), *moved)),
            ("attention, best sharpness and bias", (("at_sharpness", "best"), *moved)),
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
    across = _spaced(state.over, start, stop, side, bool(state.logarithmic))
    low, high = axis_range(state, state.second, state.second_start, state.second_stop)
    up = _spaced(state.second, low, high, side, low > 0)
    return across, up, [bool(state.logarithmic) and start > 0, low > 0]


def _turning(state: State) -> list[Line]:
    return _rows(state, "turning", ("attention",), "alignment")


def _map(state: State) -> list[Line]:
    """Return the rows of a map as `phase_map` has them: without a query, a readout has all samples."""
    rows = []
    for row in _rows(state, "predict", state.classifiers, state.quantity, MAP_TOLERANCE):
        source, training = row.source, row.source.training
        if source.classifier != "attention":
            whole = training.replace(reuse=False, alpha1=total_samples(training))
            asked, over = row.x, state.over
            if over in ("alpha0", "alpha1"):
                at = [vary(over, value, training)[0] for value in row.x]
                asked, over = tuple(total_samples(item) for item in at), "alpha1"
            source = replace(source, training=whole, over=over)
            row = replace(row, source=source, asked=asked)
        rows.append(row)
    if "attention" not in state.classifiers:
        return rows
    for row in _rows(state, "capacity", ("attention",), "alpha", 1.0):
        varied = [vary(state.over, value, *_settings_of(row)) for value in row.x]
        scale = tuple(training.alpha1 for _, training, _ in varied)
        rows.append(replace(row, name=CAPACITY_RATIO, scale=scale))
    return rows


def _settings_of(line: Line) -> tuple[Task, Training, Query | None]:
    return line.source.task, line.source.training, line.source.query


def _rows(
    state: State, kind: str, classifiers: Sequence[str], quantity: str, tolerance: float = 0.0
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
                settings[row][2] if state.given_query and classifier == "attention" else None,
                state.over,
                quantity,
            ),
            tuple(across),
            tuple(across),
            tolerance,
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
            asked = total_samples(state.training)
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
