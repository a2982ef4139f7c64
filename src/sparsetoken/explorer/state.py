"""The whole state of the page, as a typed record that lives in the address bar.

A state is a view and the settings it shows. `to_address()` writes it as the query of an address,
only what differs from the defaults; `from_address()` reads and checks it. Controls are described
by `controls()`, from the fields of `Task`, `Training` and `Query` themselves, so that a new field
appears on the page by itself.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, asdict, dataclass, field, fields
from typing import Any
from urllib.parse import parse_qsl, urlencode

from sparsetoken import validation
from sparsetoken.records import is_number
from sparsetoken.task import Query, Task, Training
from sparsetoken.theory.laws import LAWS
from sparsetoken.validation import ParameterError

__all__ = [
    "LIMITS",
    "QUANTITIES",
    "SIMULATED",
    "VERSION",
    "VIEWS",
    "State",
    "axis_range",
    "controls",
    "field_title",
]

VERSION = 1

# What one client may ask for. Beyond it the command line and Python have no such limit.
LIMITS = {
    "length": 100_000,
    "points": 60,
    "dimension": 2000,
    "trials": 200,
    "address": 6000,
    "pins": 3,
    "file": 20 * 2**20,
}


@dataclass(frozen=True)
class ViewKind:
    """One view of the theory: what it is called, what can be on its axes.

    Attributes
    ----------
    title, question : what the page shows above it
    over : the field on the x axis at first
    quantities : what can be on the y axis, the first at first
    classifiers : which lines can be drawn
    at_first : which of them are drawn at first; all of them if it is empty
    most : how many of them at once, at most; 0 for all
    second : the field on the y axis of a map at first
    logarithmic, logarithmic_y : whether the axes are so at first
    idle : settings that change nothing in it
    """

    title: str
    question: str
    over: str
    quantities: tuple[str, ...]
    classifiers: tuple[str, ...] = ()
    at_first: tuple[str, ...] = ()
    most: int = 0
    second: str = ""
    logarithmic: bool = True
    logarithmic_y: bool = False
    idle: tuple[str, ...] = ()


_READOUT = ("alpha1", "ridge")

# What can be on the y axis, in words.
QUANTITIES = {
    "test_error": "test error",
    "auc": "AUC",
    "train_loss": "training loss",
    "train_error": "training error",
    "error": "error",
    "alignment": "cosine with the signal (γ)",
    "sharpness": "sharpness (κ)",
    "readout_cosine": "cosine of the first readout step",
    "rate_constant": "rate constant C, in γ = 1 - C/α0",
    "strength": "required strength (θ)",
    "alpha": "capacity (samples per dimension)",
    "weight": "attention weight",
}

# With those of modules that were imported before.
_TRAINED = tuple(LAWS)
_ANY_LENGTH = tuple(name for name, law in LAWS.items() if not law.fixed_length)
VIEWS: dict[str, ViewKind] = {
    "learning": ViewKind(
        "Learning curves",
        "How does the error fall with more data, and who wins?",
        "alpha1",
        ("test_error", "auc", "train_loss", "train_error"),
        (*_TRAINED, "floor"),
    ),
    "query": ViewKind(
        "The query",
        "Do two gradient steps find the signal?",
        "alpha0",
        ("alignment", "sharpness", "readout_cosine", "rate_constant"),
        ("attention",),
        idle=(*_READOUT, "given_query", "alignment", "sharpness"),
    ),
    "turning": ViewKind(
        "Anti-alignment",
        "Where does the query point away from the signal?",
        "positive_rate",
        ("alignment",),
        ("attention",),
        second="bias_step",
        logarithmic=False,
        idle=(*_READOUT, "given_query", "alignment", "sharpness"),
    ),
    "strength": ViewKind(
        "Required strength",
        "How strong must the signal be, as sequences grow?",
        "length",
        ("strength",),
        ("attention", "pooled", "bayes"),
        logarithmic_y=True,
        idle=(
            "strength",
            *(item.name for kind in (Training, Query) for item in fields(kind)),
            "given_query",
        ),
    ),
    "capacity": ViewKind(
        "Capacity",
        "How many samples can be separated without error?",
        "strength",
        ("alpha",),
        _TRAINED,
        logarithmic=False,
        logarithmic_y=True,
        idle=_READOUT,
    ),
    "map": ViewKind(
        "Phase map",
        "Who wins where?",
        "strength",
        ("test_error",),
        _TRAINED,
        at_first=("attention", "pooled"),
        most=2,  # their difference is what is drawn
        second="alpha1",
        logarithmic=False,
    ),
    "shift": ViewKind(
        "Length shift",
        "Trained on short sequences, used on long ones: what is left?",
        "at_length",
        ("test_error",),
        _ANY_LENGTH,
    ),
    "inside": ViewKind(
        "Inside",
        "What does attention look at, in one sequence?",
        "token",
        ("weight",),
        ("attention",),
        idle=_READOUT,
    ),
}

# Views whose lines can have simulated dots.
SIMULATED = ("learning", "query")

# How many times longer than in training sequences are at test time, at most, unless asked for.
_LONGER = 1000.0

# Where sliders begin and end, and whether they step by factors. A field that is not here gets a
# range around its default.
_RANGES: dict[str, tuple[float, float, bool]] = {
    "length": (2, 10_000, True),
    "informative": (1, 50, True),
    "strength": (0.1, 15, False),
    "positive_rate": (0.01, 0.99, False),
    "alpha0": (0.1, 100, True),
    "alpha1": (0.1, 100, True),
    "alpha": (0.2, 200, True),
    "ridge": (1e-6, 10, True),
    "readout_step": (0.01, 100, True),
    "bias_step": (0, 20, False),
    "query_step": (0.1, 1000, True),
    "inverse_temperature": (0.1, 10, True),
    "alignment": (-1, 1, False),
    "sharpness": (0, 10, False),
}

# What the page shows first: the setting of the paper's figure of errors.
_FIRST: dict[str, Any] = {
    "length": 10,
    "informative": 1,
    "strength": 5.0,
    "alpha0": 4.0,
    "alpha1": 4.0,
    "ridge": 1e-5,
    "query_step": 50.0,
    "alignment": 0.9,
    "sharpness": 1.5,
}


def _setting(description: str, default: Any) -> Any:
    return field(default=default, metadata={"description": description})


@dataclass(frozen=True)
class State:
    """What the page shows.

    Attributes
    ----------
    view : str
    task, training, query : the settings; `query` is used where `given_query` is True, and then
        nothing is reused
    over, start, stop, points, logarithmic : the x axis; start and stop are None for the usual range
    logarithmic_y : the y axis of lines
    second, second_start, second_stop : the y axis of a map
    quantity, classifiers : what is drawn
    error : the wanted error, for the required strength
    dimension, trials : of simulated points
    draw : number of the drawn sequence, for the view inside
    pins : addresses of states whose lines stay for comparison
    """

    view: str = "learning"
    task: Task = field(default_factory=lambda: Task(**_first(Task)))
    training: Training = field(default_factory=lambda: Training(**_first(Training)))
    query: Query = field(default_factory=lambda: Query(**_first(Query)))
    given_query: bool = _setting("use the query given here instead of the learnt one", False)
    over: str = _setting("field on the x axis", "")
    start: float | None = _setting("first value of the x axis", None)
    stop: float | None = _setting("last value of the x axis", None)
    points: int = _setting("points of a line", 25)
    logarithmic: bool | None = _setting("logarithmic x axis", None)
    logarithmic_y: bool | None = _setting("logarithmic y axis", None)
    second: str = _setting("field on the y axis of a map", "")
    second_start: float | None = _setting("first value of the map's y axis", None)
    second_stop: float | None = _setting("last value of the map's y axis", None)
    quantity: str = _setting("what is drawn", "")
    classifiers: tuple[str, ...] = _setting("lines to draw", ())
    error: float = _setting("wanted error, for the required strength", 0.05)
    dimension: int = _setting("dimension d of simulated points", 200)
    trials: int = _setting("trials of a simulated point", 8)
    draw: int = _setting("number of the drawn sequence", 0)
    pins: tuple[str, ...] = _setting("addresses of lines that stay for comparison", ())

    def __post_init__(self) -> None:
        validation.choice("view", self.view, VIEWS)
        self._fill_from_view()
        self._check_lines()
        self._check_sizes()
        if self.given_query:  # no samples were used for it
            self._fill("training", self.training.replace(reuse=False))
        self._check_axes()
        self._check_pins()

    def pinned(self) -> list["State"]:
        """Return the states whose lines stay for comparison."""
        return [State.from_address(address) for address in self.pins]

    def _fill(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _fill_from_view(self) -> None:
        """Take from the view what is not given."""
        kind = VIEWS[self.view]
        self._fill("over", self.over or kind.over)
        self._fill("second", self.second or kind.second)
        self._fill("quantity", self.quantity or kind.quantities[0])
        self._fill("classifiers", self.classifiers or kind.at_first or kind.classifiers)
        for name in ("logarithmic", "logarithmic_y"):
            if getattr(self, name) is None:
                self._fill(name, getattr(kind, name))

    def _check_lines(self) -> None:
        kind = VIEWS[self.view]
        validation.choice("quantity", self.quantity, kind.quantities)
        for name in self.classifiers:
            validation.choice("classifiers", name, kind.classifiers)
        if self.quantity != "test_error" and set(self.classifiers) == {"floor"}:
            raise ParameterError("classifiers", self.classifiers, "one more: the floor is an error")
        if kind.most and len(self.classifiers) > kind.most:
            accepted = f"at most {kind.most}: this view draws their difference"
            raise ParameterError("classifiers", self.classifiers, accepted)

    def _check_sizes(self) -> None:
        _at_most("length", self.task.length)
        for name, low in (("points", 2), ("dimension", 2), ("trials", 1), ("draw", 0)):
            self._fill(name, validation.integer(name, getattr(self, name), low=low))
        for name in ("points", "dimension", "trials"):
            _at_most(name, getattr(self, name))
        validation.real("error", self.error, low=0, high=0.5, inclusive=False)

    def _check_pins(self) -> None:
        if len(self.pins) > LIMITS["pins"]:
            raise ParameterError("pins", len(self.pins), f"at most {LIMITS['pins']}")
        for state in self.pinned():
            if state.pins:
                raise ParameterError("pins", state.pins, "addresses without pins of their own")

    def _check_axes(self) -> None:
        if self.view == "inside":
            return
        known = _varied(self.given_query)
        if self.view == "shift":
            known = ("at_length",)
        if self.view == "learning":
            known = (*known, "alpha")
        validation.choice("over", self.over, known)
        if self.view in ("map", "turning"):
            validation.choice("second", self.second, known)
            if self.second == self.over:
                raise ParameterError("second", self.second, "another field than over")
            if self.training.reuse and {self.over, self.second} == {"alpha0", "alpha1"}:
                accepted = "another field: with the same samples for both, over is this one too"
                raise ParameterError("second", self.second, accepted)
        for name in ("start", "stop", "second_start", "second_stop"):
            if getattr(self, name) is not None:
                self._fill(name, validation.real(name, getattr(self, name)))

    def to_address(self) -> str:
        """Return the state as the query of an address, without what is as usual."""
        usual = State(view=self.view)
        parts: list[tuple[str, Any]] = [("v", VERSION), ("view", self.view)]
        for name, value in _flat(self).items():
            if value != _flat(usual)[name]:
                text = _separator(name).join(value) if isinstance(value, tuple) else _text(value)
                parts.append((name, text))
        return urlencode(parts)

    @classmethod
    def from_address(cls, text: str) -> "State":
        """Read a state from the query of an address, or from the whole of a link, and check it."""
        if len(text) > LIMITS["address"]:
            raise ParameterError("address", f"{text[:20]}…", f"at most {LIMITS['address']} letters")
        text = text.rpartition("#")[2].lstrip("?")
        values = dict(parse_qsl(text, keep_blank_values=True))
        version = values.pop("v", str(VERSION))
        if version != str(VERSION):
            raise ParameterError("v", version, f"{VERSION}, the version that this page knows")
        return cls.from_values(values)

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> "State":
        """Make a state from values by name, texts or numbers; the rest is as usual."""
        view = str(values.get("view", "learning"))
        usual = _flat(cls(view=validation.choice("view", view, VIEWS)))
        unknown = [name for name in values if name not in usual and name != "view"]
        if unknown:
            raise ParameterError("address", unknown[0], "one of " + ", ".join(usual))
        flat = dict(usual)
        for name, value in values.items():
            if name != "view":
                flat[name] = _typed(name, value, usual[name])
        parts = {kind.__name__.lower(): _made(kind, flat) for kind in (Task, Training, Query)}
        own = {item.name: flat[item.name] for item in _own_fields()}
        return cls(view=view, **parts, **own)

    def present(self, name: str) -> Any:
        """Return the present value of a field of the settings, or of all samples ("alpha")."""
        flat = {**self.task.to_dict(), **self.training.to_dict(), **self.query.to_dict()}
        return {**flat, "alpha": self.training.alpha}[name]

    def settings(self) -> dict[str, Any]:
        """Return what decides the view's values and is on none of its axes, for a caption."""
        kind = VIEWS[self.view]
        axes = {self.over, self.second} if kind.second else {self.over}
        tied = {"alpha0", "alpha1"} if self.training.reuse else set()
        hidden = axes | (set(kind.idle) - tied) | (tied if axes & tied else set())
        flat: dict[str, Any] = {"error": self.error} if self.view == "strength" else {}
        flat |= {**self.task.to_dict(), **self.training.to_dict()}
        if self.given_query:
            flat |= self.query.to_dict()
        return {
            name: value for name, value in flat.items() if name not in hidden and value is not False
        }


def _first(kind: type) -> dict[str, Any]:
    return {item.name: _FIRST[item.name] for item in fields(kind) if item.name in _FIRST}


def _own_fields() -> list[Field[Any]]:
    return [
        item for item in fields(State) if item.name not in ("view", "task", "training", "query")
    ]


def _flat(state: State) -> dict[str, Any]:
    flat = {**state.task.to_dict(), **state.training.to_dict(), **state.query.to_dict()}
    return flat | {item.name: getattr(state, item.name) for item in _own_fields()}


def _made(kind: type, flat: Mapping[str, Any]) -> Any:
    return kind(**{item.name: flat[item.name] for item in fields(kind)})


def _separator(name: str) -> str:
    return "|" if name == "pins" else ","


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    return repr(value) if isinstance(value, float) else str(value)


def _typed(name: str, value: Any, usual: Any) -> Any:
    """Return a text or number as the type of the usual value."""
    optional = name in ("start", "stop", "second_start", "second_stop")
    if optional and value in (None, ""):
        return None
    if name == "informative" and isinstance(value, str) and ":" in value:
        return value  # a law of their number
    try:
        if isinstance(usual, bool):
            return {"1": True, "0": False, "true": True, "false": False}[str(value).lower()]
        if isinstance(usual, tuple):
            parts = value.split(_separator(name)) if isinstance(value, str) else list(value)
            return tuple(str(part) for part in parts if part)
        if isinstance(usual, int):
            number = float(value)
            if number != int(number):
                raise ValueError
            return int(number)
        if isinstance(usual, float) or optional:
            return float(value)
    except (ValueError, KeyError, TypeError, OverflowError):
        kind = "a number" if optional else f"a value such as {_text(usual)!r}"
        raise ParameterError(name, value, kind) from None
    return value if not isinstance(usual, str) else str(value)


def _at_most(name: str, value: float) -> None:
    if value > LIMITS[name]:
        accepted = f"at most {LIMITS[name]} on this page; Python and the command line go further"
        raise ParameterError(name, value, accepted)


def _varied(given_query: bool) -> tuple[str, ...]:
    """Return the numeric fields that can be on an axis."""
    kinds: Sequence[type] = (Task, Training, Query) if given_query else (Task, Training)
    return tuple(
        name
        for kind in kinds
        for name, value in kind(**_first(kind)).to_dict().items()
        if is_number(value)
    )


def axis_range(
    state: State, name: str, start: float | None, stop: float | None
) -> tuple[float, float]:
    """Return the ends of an axis: those asked for, or the usual ones of the field."""
    if name == "at_length":
        high = min(float(LIMITS["length"]), _LONGER * state.task.length)
        low = min(float(state.task.length), high / 10)
    else:
        low, high, _ = _RANGES[name] if name in _RANGES else _usual_range(_described()[name])
    if name == "length":
        informative = state.task.informative
        needed = informative + 1 if isinstance(informative, int) else informative.lengths[0]
        low = max(low, needed)
    if name == "informative":
        high = min(high, state.task.length - 1)
    if name == "positive_rate":
        low, high = 0.02, 0.98
    if name == "strength" and state.view == "capacity":
        high = 10.0  # beyond it attention separates any number of samples
    first = low if start is None else start
    last = high if stop is None else stop
    if not first < last:
        raise ParameterError("start, stop", (first, last), "two numbers, the first one smaller")
    return first, last


def controls() -> dict[str, Any]:
    """Return what the page needs to build its controls: groups of fields, views and limits."""
    from sparsetoken.losses import loss_names

    groups = {
        kind.__name__.lower(): [_control(item, loss_names()) for item in fields(kind)]
        for kind in (Task, Training, Query)
    }
    views = {name: {**asdict(kind), "simulated": name in SIMULATED} for name, kind in VIEWS.items()}
    own = [{**_control(item, []), "usual": _plain(item.default)} for item in _own_fields()]
    return {
        "version": VERSION,
        "groups": groups,
        "page": own,
        "views": views,
        "varied": _varied(given_query=True),
        "quantities": QUANTITIES,
        "axes": _OTHER_AXES,
        "limits": LIMITS,
    }


_OTHER_AXES = {
    "at_length": "tokens in a sequence at test time",
    "alpha": "all samples per dimension (α)",
}


def _described() -> dict[str, Field[Any]]:
    return {item.name: item for kind in (Task, Training, Query) for item in fields(kind)}


def field_title(name: str) -> str:
    """Return a field's name with the symbol at the end of its description, for an axis."""
    described = _described()
    words = name.replace("_", " ")
    if name not in described:
        return _OTHER_AXES.get(name, words)
    symbol = re.search(r"\(([^()]*)\)", described[name].metadata["description"])
    return f"{words} ({symbol[1]})" if symbol else words


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _control(item: Field[Any], losses: Sequence[str]) -> dict[str, Any]:
    default = _FIRST.get(item.name, None if item.default is MISSING else item.default)
    control: dict[str, Any] = {
        "name": item.name,
        "description": item.metadata["description"],
        "title": field_title(item.name),
        "usual": _plain(default),
    }
    if item.name == "loss":
        return {**control, "kind": "choice", "options": list(losses)}
    if isinstance(default, bool):
        return {**control, "kind": "switch"}
    if not isinstance(default, int | float):
        return {**control, "kind": "text"}
    low, high, logarithmic = _usual_range(item)
    kind = "whole" if isinstance(default, int) else "number"
    scale = {"low": low, "high": high, "logarithmic": logarithmic}
    return {**control, "kind": kind, "text": item.type not in (int, float), **scale}


def _usual_range(item: Field[Any]) -> tuple[float, float, bool]:
    """Return where a slider begins and ends, and whether it steps by factors.

    That of a new field lies around its default, within the field's own limits.
    """
    if item.name in _RANGES:
        return _RANGES[item.name]
    default = _FIRST.get(item.name, item.default)
    around = (default / 100, default * 100) if default > 0 else (-10.0, 10.0)
    low = max(around[0], item.metadata.get("low", -math.inf))
    high = min(around[1], item.metadata.get("high", math.inf))
    return low, high, low > 0
