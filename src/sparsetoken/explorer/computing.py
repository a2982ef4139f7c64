"""What a worker computes: some points of one line, by the public API.

A `Source` is all that a line's values depend on but the place on its x axis; a `Batch` asks for
some of these at an accuracy. `Source.key` is the same wherever the answer is the same, so that a
slider that does not matter for a line costs nothing.

While a slider moves, a point begins where the last one at its place on the screen ended: what to
begin from travels with the batch, so that it does not matter which worker takes it.
"""

import math
import pickle
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from sparsetoken.learning.features import attention_weights
from sparsetoken.numerics.memory import path_memory
from sparsetoken.numerics.threads import one_thread
from sparsetoken.records import Record, measured
from sparsetoken.simulation.sampling import sample
from sparsetoken.task import ALL_SAMPLES, Query, Task, Training, vary
from sparsetoken.theory.alignment import align, learnt_alignment
from sparsetoken.theory.capacity import capacity, capacity_curve
from sparsetoken.theory.chosen_query import LEARNING
from sparsetoken.theory.floor import floor_curve
from sparsetoken.theory.laws import LAWS
from sparsetoken.theory.oracle import RequiredStrength, required_strength
from sparsetoken.theory.prediction import Prediction
from sparsetoken.theory.predictor import Predictor, curve, predict
from sparsetoken.theory.usage import Usage

__all__ = [
    "Batch",
    "Point",
    "Source",
    "Stale",
    "compute",
    "finite",
    "share_out",
    "takes_query",
]

_SAMPLES = ("alpha0", "alpha1")
_FIELDS = {item.name for kind in (Task, Training, Query) for item in fields(kind)}

# Of a longer sequence only so many tokens are shown.
_SHOWN_TOKENS = 200

# A sharpness beyond which the softmax is a maximum to the last digit.
_HARD = 1e9


class Stale(Exception):
    """A newer request has made this one pointless."""


class Point(NamedTuple):
    """A value with its error bar, what to know about it, and the accuracy that was asked for.

    `extra` holds what is more than a number: the tokens of a drawn sequence. `memory` is what a
    point nearby can begin from, for a worker to read, and `solution` what changes smoothly between
    points, so that one between others can begin close to where it ends.
    """

    y: float | None
    bar: float | None
    note: str = ""
    tolerance: float = 0.0
    extra: Mapping[str, Any] | None = None
    memory: bytes = b""
    solution: tuple[float, ...] = ()

    def good_for(self, tolerance: float, relative: bool = False, exactly: bool = False) -> bool:
        """Return whether nothing would be gained by asking at this accuracy.

        A small error bar is as good as a fine tolerance, unless `exactly` the numbers that the
        package gives at this tolerance are wanted.
        """
        if self.tolerance <= tolerance or self.y is None or self.bar is None:
            return self.tolerance <= tolerance
        return not exactly and self.bar <= tolerance * (abs(self.y) if relative else 1.0)


@dataclass(frozen=True)
class Source:
    """What a line shows, for any place on its x axis.

    Attributes
    ----------
    kind : a key of `_KINDS`
    classifier : its name; "" where there is none
    task, training, query : the settings; query is None where it is learnt
    over : the field that varies
    quantity : the field of the result
    options : what else the function takes
    """

    kind: str
    classifier: str
    task: Task
    training: Training
    query: Query | None
    over: str
    quantity: str
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def relative(self) -> bool:
        """Whether its accuracy is relative to the value."""
        return self.kind in ("capacity", "strength")

    def key(self, value: float) -> Hashable:
        """Return what decides the answer at a value of the varied field, and nothing else."""
        fixed, varies = self._decisive
        return (*fixed, self.over, value) if varies else fixed

    @cached_property
    def _decisive(self) -> tuple[tuple[Hashable, ...], bool]:
        """Return what decides the answers beside the varied field, and whether that one does."""
        settings = self.settings()
        matters = any(name in settings for name in self.varied)
        fixed: list[Hashable] = [item for item in settings.items() if item[0] not in self.varied]
        if self.over == ALL_SAMPLES and takes_query(self.classifier):
            fixed.append(share_out(self.training, self.classifier, 1.0))
        own = self.over not in _FIELDS
        head = (self.kind, self.classifier, self.quantity, self.options)
        return (*head, *fixed), matters or own

    @property
    def varied(self) -> tuple[str, ...]:
        """The fields of the settings that change along the x axis."""
        samples = self.training.reuse or self.over == ALL_SAMPLES
        return _SAMPLES if samples and self.over in (*_SAMPLES, ALL_SAMPLES) else (self.over,)

    def settings(self) -> dict[str, Any]:
        """Return the fields of task, training and query that decide the answer, and no others."""
        settings = {**self.task.to_dict(), **self._training()}
        if self.query is not None:
            settings |= self.query.to_dict()
        if self.kind == "strength":
            del settings["strength"]
        return settings

    def _training(self) -> dict[str, Any]:
        """Return the fields of training that matter."""
        if self.kind in ("floor", "strength"):
            return {}
        values = self.training.to_dict()
        learns = takes_query(self.classifier) and self.query is None
        if self.kind in ("align", "turning", "tokens"):
            unread: tuple[str, ...] = ("alpha1", "ridge", "reuse")
        elif self.kind == "capacity":
            unread = ("ridge", *(_SAMPLES if self.training.reuse else ("alpha1",)))
            unread = unread if learns else tuple(values)
        else:
            unread = () if learns else (*LEARNING, "reuse")
        return {name: value for name, value in values.items() if name not in unread}


@dataclass(frozen=True)
class Batch:
    """Some points of one line, at an accuracy.

    Attributes
    ----------
    source : Source
    values : of its field
    tolerance : float
    place : which line of the screen it is, whatever the settings are, and at which accuracy
    row : of a map
    memories : what each point begins from, b"" for nothing; None to compute them as the package does
    expected : where the solution of each point may be, () for unknown
    """

    source: Source
    values: tuple[float, ...]
    tolerance: float
    place: tuple[Hashable, ...] = ()
    row: int | None = None
    memories: tuple[bytes, ...] | None = None
    expected: tuple[tuple[float, ...], ...] = ()


def takes_query(classifier: str) -> bool:
    """Return whether a classifier, or another line's name, has a query to be learnt or given."""
    return classifier in LAWS and LAWS[classifier].takes_query


def share_out(training: Training, classifier: str, alpha: float) -> Training:
    """Return a training with α = n/d samples in all, shared out as before.

    Where no query is learnt the readout has all of them.
    """
    if takes_query(classifier):
        return training.share_out(alpha)
    return training.replace(reuse=False, alpha1=alpha)


@one_thread
@path_memory()
def compute(batch: Batch, check: Callable[[], None]) -> list[Point]:
    """Return the points that are asked for; `check` is called before each and may raise."""

    def checked() -> Iterator[float]:
        for value in batch.values:
            check()
            yield value

    return _KINDS[batch.source.kind](batch, checked())


def _varied(
    source: Source, values: Iterator[float]
) -> Iterator[tuple[Task, Training, Query | None]]:
    for value in values:
        yield vary(source.over, value, source.task, source.training, source.query)


def _points(batch: Batch, records: Sequence[Record]) -> list[Point]:
    """Return one field of results with its error bars; some are computed only when asked for."""
    found = []
    for record in records:
        flat = record.to_dict()
        known = measured(flat)
        quantity = batch.source.quantity
        if quantity not in known and hasattr(record, "metrics"):
            known = measured(record.metrics(quantity))
        value, bar = known.get(quantity, (None, None))
        solution = getattr(record, "solution", None)
        note = "" if solution is None or solution.all_well else solution.message
        if flat.get("anti_aligned"):
            reason = f": {flat['cause']}. Cure: {flat['cure']}" if flat.get("cause") else ""
            note = f"The query points away from the signal{reason}."
        found.append(Point(finite(value), finite(bar), note, batch.tolerance))
    return found


def finite(value: Any) -> float | None:
    """Return a number that JSON can hold, or None."""
    return float(value) if value is not None and math.isfinite(value) else None


@dataclass
class _Follower:
    """Predictions at one place of the screen while a setting moves, each from the last."""

    predictor: Predictor
    settings: dict[str, Any]
    moving: str = ""

    def predict(
        self,
        task: Task,
        training: Training,
        query: Query | None,
        expected: tuple[float, ...] = (),
    ) -> Prediction:
        """Predict at settings that are close to the last ones."""
        settings = {**task.to_dict(), **training.to_dict(), **(query.to_dict() if query else {})}
        changed = [name for name, value in settings.items() if value != self.settings.get(name)]
        moving = changed[0] if len(changed) == 1 else ""
        # A path along another field begins anew, at the last solution.
        place = settings.get(moving) if moving == self.moving else None
        self.predictor.position = None if isinstance(place, str | None) else float(place)
        self.predictor.query, self.settings, self.moving = query, settings, moving
        self.predictor.expected = np.array(expected) if expected else None
        found = self.predictor.predict(task, training)
        self.predictor.expected = None
        return found

    def again(self, task: Task, training: Training, _: Query | None) -> Prediction:
        """Predict at the last settings, in another way of use."""
        return self.predictor.predict(task, training)


def _followed(batch: Batch, values: Iterator[float]) -> list[Point]:
    """Predict from what is known of the place, or else from the point before."""
    source = batch.source
    assert batch.memories is not None
    path = Predictor(source.classifier, source.query, Usage(), batch.tolerance)
    last = pickle.dumps(_Follower(path, {}))
    found = []
    expected = batch.expected or ((),) * len(batch.values)
    for value, memory, near in zip(values, batch.memories, expected, strict=True):
        follower: _Follower = pickle.loads(memory or last)
        record = follower.predict(*_settings(source, value), near)
        (point,) = _points(batch, [record])
        last = pickle.dumps(follower)
        solution = follower.predictor.solution if record.solution.converged else None
        reached = () if solution is None else tuple(map(float, solution))
        found.append(point._replace(memory=last, solution=reached))
    return found


def _used(batch: Batch, values: Iterator[float]) -> list[Point]:
    """Predict for other lengths at test time: trained once, from where it was a moment ago."""
    source = batch.source
    assert batch.memories is not None
    settings = source.task, source.training, source.query
    ways = {name.removeprefix("at_"): value for name, value in source.options}
    path = Predictor(source.classifier, source.query, Usage(), batch.tolerance)
    memory = next(filter(None, batch.memories), b"")
    follower: _Follower = pickle.loads(memory) if memory else _Follower(path, {})
    found = []
    for number, value in enumerate(values):
        follower.predictor.usage = Usage(**ways).varied("length", value, source.task)
        record = follower.predict(*settings) if number == 0 else follower.again(*settings)
        found += _points(batch, [record])
    memory = pickle.dumps(follower)
    return [point._replace(memory=memory) for point in found]


def _settings(source: Source, value: float) -> tuple[Task, Training, Query | None]:
    """Return the settings at a place of the x axis."""
    if source.over == ALL_SAMPLES:
        return source.task, share_out(source.training, source.classifier, value), source.query
    return vary(source.over, value, source.task, source.training, source.query)


def _predictions(batch: Batch, values: Iterator[float]) -> list[Point]:
    source = batch.source
    if batch.memories is not None:
        return (_used if source.over == "at_length" else _followed)(batch, values)
    if source.over == ALL_SAMPLES:
        name = source.classifier
        ask = partial(predict, classifier=name, query=source.query, tolerance=batch.tolerance)
        trainings = (share_out(source.training, name, value) for value in values)
        return _points(batch, [ask(source.task, training) for training in trainings])
    asked = {**_asked(batch, values), **dict(source.options)}
    return _points(batch, curve(source.task, source.training, **asked))


def _asked(batch: Batch, values: Iterator[float]) -> dict[str, Any]:
    """Return what every curve of a classifier is asked for."""
    source = batch.source
    return {
        "over": source.over,
        "values": values,
        "classifier": source.classifier,
        "query": source.query,
        "tolerance": batch.tolerance,
    }


def _floors(batch: Batch, values: Iterator[float]) -> list[Point]:
    source = batch.source
    options = {**dict(source.options), "tolerance": batch.tolerance}
    return _points(batch, floor_curve(source.task, over=source.over, values=values, **options))


def _strengths(batch: Batch, values: Iterator[float]) -> list[Point]:
    source = batch.source
    options = {
        **dict(source.options),
        "classifier": source.classifier,
        "tolerance": batch.tolerance,
    }
    memories = batch.memories or (b"",) * len(batch.values)
    found: list[Point] = []
    last: RequiredStrength | None = None
    for value, memory in zip(values, memories, strict=True):
        task = source.task
        if source.over in task.to_dict() and source.over != "strength":
            (task,) = vary(source.over, value, task)
        near = pickle.loads(memory) if memory else last
        last = required_strength(task, near=near, **options)
        (point,) = _points(batch, [last])
        found.append(point._replace(memory=pickle.dumps(last)))
    return found


def _capacities(batch: Batch, values: Iterator[float]) -> list[Point]:
    source = batch.source
    learnt = source.query is None and takes_query(source.classifier)
    settings = source.task, source.training if learnt else None
    asked = _asked(batch, values)
    if source.over not in source.settings():
        del asked["over"], asked["values"]
        flat = capacity(*settings, **asked)
        return _points(batch, [flat for _ in values])
    return _points(batch, capacity_curve(*settings, **asked))


def _queries(batch: Batch, values: Iterator[float]) -> list[Point]:
    at = _varied(batch.source, values)
    return _points(batch, [align(task, training) for task, training, _ in at])


def _turns(batch: Batch, values: Iterator[float]) -> list[Point]:
    at = _varied(batch.source, values)
    cosines = [learnt_alignment(task, training).alignment for task, training, _ in at]
    return [Point(finite(cosine), 0.0) for cosine in cosines]


def _sequences(batch: Batch, values: Iterator[float]) -> list[Point]:
    """Draw positive sequences in the plane of the signal and the query, which is all that counts."""
    source = batch.source
    query = source.query or align(source.task, source.training).query
    always = source.task.replace(positive_rate=1 - 1e-9)
    direction = np.array([query.alignment, math.sqrt(max(0.0, 1 - query.alignment**2))])
    sharpness = min(query.sharpness, _HARD)
    found = []
    for seed in values:
        rng = np.random.default_rng(int(seed))
        drawn = sample(always, 1, dimension=2, rng=rng, signal=[1.0, 0.0])
        weights = attention_weights(drawn.X, sharpness * direction, 1.0)[0]
        informative = drawn.positions[0]
        # Of a long sequence, the tokens that carry the signal and those that get most attention.
        order = np.lexsort((-weights, ~informative))[:_SHOWN_TOKENS]
        shown = np.sort(order)
        tokens = {
            "places": [int(place) + 1 for place in shown],
            "scores": [float(value) for value in (drawn.X[0] @ direction)[shown]],
            "weights": [float(value) for value in weights[shown]],
            "informative": [bool(value) for value in informative[shown]],
            "mass": float(weights[informative].sum()),
            "alignment": query.alignment,
            "sharpness": finite(query.sharpness),
            "given": source.query is not None,
            "length": source.task.length,
        }
        found.append(Point(None, None, extra=tokens))
    return found


_KINDS: dict[str, Callable[[Batch, Iterator[float]], list[Point]]] = {
    "predict": _predictions,
    "floor": _floors,
    "strength": _strengths,
    "capacity": _capacities,
    "align": _queries,
    "turning": _turns,
    "tokens": _sequences,
}
