"""What each view shows: from a state to pieces that the page draws, by the public API.

A piece is a plain dictionary: a "line" with its error bars, the rows of a "map", the "tokens" of
one sequence, or the "numbers" at the present settings. Views are generators; where a new request
makes one stale, the iterable of values that it hands out raises `Stale`.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparsetoken.explorer.state import LIMITS, State, axis_range
from sparsetoken.records import Curve, Record, measured
from sparsetoken.task import Query, Task, Training, vary

__all__ = ["FINAL", "SCREEN", "Accuracy", "Stale", "axis_values", "pieces"]

Piece = dict[str, Any]


class Stale(Exception):
    """A newer request has made this one pointless."""


@dataclass(frozen=True)
class Accuracy:
    """How fine an answer is: points of a line, numerical tolerance, points of a map's side."""

    name: str
    tolerance: float
    points: int
    map_points: int


# In the rows of a map beside the classifiers: training data are separable where it is above 1.
CAPACITY_RATIO = "capacity_ratio"

# First what the eye needs while a slider moves, then the package's default accuracy.
SCREEN = Accuracy("screen", 5e-3, 12, 8)
FINAL = Accuracy("final", 1e-4, LIMITS["points"], 20)


def pieces(state: State, accuracy: Accuracy, check: Callable[[], None]) -> Iterator[Piece]:
    """Yield what the view shows; `check` is called often and raises `Stale` to end it."""
    yield from _VIEWS[state.view](state, accuracy, check)
    for number, pinned in enumerate(state.pinned()):
        if pinned.view == state.view:
            for piece in _VIEWS[state.view](pinned, accuracy, check):
                if piece["kind"] == "line":
                    yield {**piece, "pin": number}


def axis_values(state: State, accuracy: Accuracy) -> list[float]:
    """Return the values along the x axis."""
    start, stop = axis_range(state, state.over, state.start, state.stop)
    count = min(state.points, accuracy.points)
    return _spaced(state.over, start, stop, count, bool(state.logarithmic))


def _spaced(name: str, start: float, stop: float, count: int, logarithmic: bool) -> list[float]:
    positive = start > 0 and stop > 0
    values = (np.geomspace if logarithmic and positive else np.linspace)(start, stop, count)
    if name in ("length", "informative", "at_length"):
        return [int(value) for value in np.unique(np.round(values))]
    return [float(value) for value in values]


def _checked(values: Iterable[float], check: Callable[[], None]) -> Iterator[float]:
    for value in values:
        check()
        yield value


def _query(state: State, classifier: str = "attention") -> Query | None:
    return state.query if state.given_query and classifier == "attention" else None


def _line(name: str, curve: Curve[Any], quantity: str) -> Piece:
    rows = curve.to_rows()
    entries = [_entry(record, quantity) for record in curve]
    return {
        "kind": "line",
        "name": name,
        "x": list(curve.values),
        "y": [_finite(value) for value, _ in entries],
        "bar": [_finite(bar) for _, bar in entries],
        "notes": [_note(row) for row in rows],
    }


def _entry(record: Record, quantity: str) -> tuple[Any, float | None]:
    """Return a quantity of a result with its error bar; some are computed only when asked for."""
    known = measured(record.to_dict())
    if quantity not in known and hasattr(record, "metrics"):
        known = measured(record.metrics(quantity))
    return known.get(quantity, (None, None))


def _note(row: dict[str, Any]) -> str:
    return "" if row.get("status", "converged") == "converged" else str(row["message"])


def _finite(value: Any) -> float | None:
    return float(value) if value is not None and math.isfinite(value) else None


def _numbers(rows: Sequence[tuple[str, str, Record]]) -> Piece:
    """Return values at the present settings: (line, quantity, result)."""
    shown = []
    for name, quantity, record in rows:
        row = record.to_dict()
        value, bar = _entry(record, quantity)
        shown.append(
            {"name": name, "quantity": quantity, "value": _finite(value), "bar": _finite(bar)}
            | {"note": _note(row)}
        )
    return {"kind": "numbers", "rows": shown}


def _learning(state: State, accuracy: Accuracy, check: Callable[[], None]) -> Iterator[Piece]:
    from sparsetoken.theory.prediction import curve, predict

    values = axis_values(state, accuracy)
    now = []
    for classifier in state.classifiers:
        if classifier == "floor":
            if state.quantity == "test_error":
                yield _line("floor", _floor_curve(state, values, accuracy, check), "error")
            continue
        options: dict[str, Any] = {
            "classifier": classifier,
            "query": _query(state, classifier),
        }
        options["tolerance"] = accuracy.tolerance
        if options["query"] is None and state.over in ("alignment", "sharpness"):
            flat = predict(state.task, state.training, **options)
            found = Curve(state.over, tuple(values), (flat,) * len(values), state.settings())
        else:
            checked = _checked(values, check)
            found = curve(state.task, state.training, over=state.over, values=checked, **options)
        yield _line(classifier, found, state.quantity)
        check()
        now.append((classifier, state.quantity, predict(state.task, state.training, **options)))
    yield _numbers(now)


def _floor_curve(
    state: State, values: Sequence[float], accuracy: Accuracy, check: Callable[[], None]
) -> Curve[Any]:
    """Return the floor for as many samples as the whole training has."""
    from sparsetoken.theory.floor import floor_curve

    tolerance = max(accuracy.tolerance, 1e-3)
    alpha = _samples(state.training)
    if state.over in state.task.to_dict():
        return floor_curve(
            state.task,
            over=state.over,
            values=_checked(values, check),
            alpha=alpha,
            tolerance=tolerance,
        )
    varied = (vary(state.over, value, state.task, state.training, state.query) for value in values)
    totals = [_samples(training) for _, training, _ in varied]
    distinct = sorted(set(totals))
    found = floor_curve(state.task, values=_checked(distinct, check), tolerance=tolerance)
    known = dict(zip(distinct, found, strict=True))
    records = tuple(known[total] for total in totals)
    return Curve(state.over, tuple(values), records, state.settings())


def _samples(training: Training) -> float:
    """Return all samples per dimension: of both parts of the data, or of the one for both."""
    if getattr(training, "reuse", False):
        return training.alpha1
    return training.alpha0 + training.alpha1


def _query_view(state: State, accuracy: Accuracy, check: Callable[[], None]) -> Iterator[Piece]:
    from sparsetoken.theory.alignment import align

    records, values = [], axis_values(state, accuracy)
    for value in _checked(values, check):
        task, training, _ = vary(state.over, value, state.task, state.training, state.query)
        records.append(align(task, training))
    yield _line(
        "attention",
        Curve(state.over, tuple(values), tuple(records), state.settings()),
        state.quantity,
    )
    found = align(state.task, state.training)
    yield _numbers([("attention", state.quantity, found)])
    if found.anti_aligned:
        yield {"kind": "note", "text": f"The query points away: {found.cause}. Cure: {found.cure}."}


def _turning(state: State, accuracy: Accuracy, check: Callable[[], None]) -> Iterator[Piece]:
    from sparsetoken.theory.alignment import learnt_alignment

    def row(training_task: tuple[Task, Training], values: Sequence[float]) -> dict[str, Any]:
        found = [
            learnt_alignment(*vary(state.over, value, *training_task)).alignment for value in values
        ]
        return {"alignment": found}

    yield from _rows(state, accuracy, check, row, finer=3)


def _map(state: State, accuracy: Accuracy, check: Callable[[], None]) -> Iterator[Piece]:
    from sparsetoken.theory.prediction import curve

    capacities = _CapacityRatios(state)

    def row(pair: tuple[Task, Training], values: Sequence[float]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for classifier in state.classifiers:
            line = curve(
                *pair,
                over=state.over,
                values=_checked(values, check),
                classifier=classifier,
                query=_query(state, classifier),
                tolerance=max(accuracy.tolerance, 1e-3),
            )
            found[classifier] = [_finite(value) for value in line.column(state.quantity)]
        return found

    def ratios(pair: tuple[Task, Training], values: Sequence[float]) -> dict[str, Any]:
        at = [vary(state.over, value, *pair) for value in _checked(values, check)]
        return {CAPACITY_RATIO: [capacities.at(*settings) for settings in at]}

    yield from _rows(state, accuracy, check, row)
    if accuracy is FINAL and "attention" in state.classifiers:
        again = _rows(state, accuracy, check, ratios)
        yield from (piece for piece in again if piece["kind"] == "row")


class _CapacityRatios:
    """Capacities of attention over its readout's samples, each found once."""

    def __init__(self, state: State) -> None:
        self._query = _query(state)
        self._known: dict[tuple[Task, Training], float] = {}

    def at(self, task: Task, training: Training) -> float | None:
        from sparsetoken.theory.capacity import capacity

        # Neither the readout's own samples nor its ridge change what can be separated.
        alike = training if training.reuse else training.replace(alpha1=1.0, ridge=1.0)
        if (task, alike) not in self._known:
            self._known[task, alike] = capacity(task, alike, query=self._query).alpha
        return _finite(self._known[task, alike] / training.alpha1)


def _rows(
    state: State,
    accuracy: Accuracy,
    check: Callable[[], None],
    row: Callable[[tuple[Task, Training], Sequence[float]], dict[str, Any]],
    finer: int = 1,
) -> Iterator[Piece]:
    """Yield a map row by row: its two axes, then a row of values for each line."""
    count = min(finer * accuracy.map_points, LIMITS["map_points"])
    start, stop = axis_range(state, state.over, state.start, state.stop)
    across = _spaced(state.over, start, stop, count, bool(state.logarithmic))
    start, stop = axis_range(state, state.second, state.second_start, state.second_stop)
    up = _spaced(state.second, start, stop, count, start > 0)
    yield {"kind": "axes", "x": across, "y": up, "log": [state.logarithmic, start > 0]}
    for number, value in enumerate(_checked(up, check)):
        pair = vary(state.second, value, state.task, state.training)
        yield {"kind": "row", "index": number, "values": row(pair, across)}


def _strength(state: State, accuracy: Accuracy, check: Callable[[], None]) -> Iterator[Piece]:
    from sparsetoken.theory.oracle import required_strength

    values = [
        value for value in axis_values(state, accuracy) if value > state.task.fixed_informative
    ]
    count = 6 if accuracy is SCREEN else 12
    values = values[:: max(1, len(values) // count)] if state.over == "length" else values
    for classifier in state.classifiers:
        records = []
        for value in _checked(values, check):
            (task,) = vary(state.over, value, state.task)
            records.append(required_strength(task, error=state.error, classifier=classifier))
        found = Curve(state.over, tuple(values), tuple(records), state.settings())
        yield _line(classifier, found, "strength")


def _capacity(state: State, accuracy: Accuracy, check: Callable[[], None]) -> Iterator[Piece]:
    from sparsetoken.theory.capacity import capacity

    values, now = axis_values(state, accuracy), []
    for classifier in state.classifiers:
        records = []
        for value in _checked(values, check):
            task, training, query = vary(state.over, value, state.task, state.training, state.query)
            given = query if state.given_query and classifier == "attention" else None
            records.append(capacity(task, training, classifier=classifier, query=given))
        found = Curve(state.over, tuple(values), tuple(records), state.settings())
        yield _line(classifier, found, "alpha")
        given = _query(state, classifier)
        here = capacity(state.task, state.training, classifier=classifier, query=given)
        now.append((classifier, "alpha", here))
    yield _numbers(now)


def _shift(state: State, accuracy: Accuracy, check: Callable[[], None]) -> Iterator[Piece]:
    from sparsetoken.theory.prediction import curve

    values = axis_values(state, accuracy)
    for classifier in state.classifiers:
        for name, options in _repairs(classifier):
            found = curve(
                state.task,
                state.training,
                over="at_length",
                values=_checked(values, check),
                classifier=classifier,
                query=_query(state, classifier),
                tolerance=max(accuracy.tolerance, 1e-3),
                **options,
            )
            yield _line(name, found, "test_error")


def _repairs(classifier: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the ways in which a trained classifier can be used on other lengths."""
    ways: list[tuple[str, dict[str, Any]]] = [
        (classifier, {}),
        (f"{classifier}, bias moved", {"recalibrate": True}),
    ]
    if classifier == "attention":
        hard = {"at_sharpness": math.inf, "recalibrate": True}
        best = {"at_sharpness": "best", "recalibrate": True}
        ways += [("hard maximum, bias moved", hard), ("attention, best sharpness and bias", best)]
    return ways


def _inside(state: State, accuracy: Accuracy, check: Callable[[], None]) -> Iterator[Piece]:
    """Draw one positive sequence in the plane of the signal and the query, which is all that counts."""
    from sparsetoken.learning.features import attention_weights
    from sparsetoken.simulation.sampling import sample
    from sparsetoken.theory.alignment import align

    check()
    del accuracy
    query = state.query if state.given_query else align(state.task, state.training).query
    shown = state.task.replace(length=min(state.task.length, 200))
    rng = np.random.default_rng(state.draw)
    signal = np.array([1.0, 0.0])
    drawn = sample(shown.replace(positive_rate=0.999999), 1, dimension=2, rng=rng, signal=signal)
    direction = np.array([query.alignment, math.sqrt(max(0.0, 1 - query.alignment**2))])
    weights = attention_weights(drawn.X, query.sharpness * direction, 1.0)[0]
    yield {
        "kind": "tokens",
        "scores": [float(value) for value in drawn.X[0] @ direction],
        "weights": [float(value) for value in weights],
        "informative": [int(place) for place in np.flatnonzero(drawn.positions[0])],
        "alignment": query.alignment,
        "sharpness": query.sharpness,
        "cut": state.task.length > shown.length,
    }


_VIEWS: dict[str, Callable[[State, Accuracy, Callable[[], None]], Iterator[Piece]]] = {
    "learning": _learning,
    "query": _query_view,
    "turning": _turning,
    "strength": _strength,
    "capacity": _capacity,
    "map": _map,
    "shift": _shift,
    "inside": _inside,
}
