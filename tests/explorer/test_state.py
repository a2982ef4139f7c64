"""The state of the page: addresses round trip, bad ones are refused by name."""

from dataclasses import field, fields, make_dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparsetoken import ParameterError, Task
from sparsetoken.explorer.presets import PRESETS, TOUR
from sparsetoken.explorer.state import LIMITS, VIEWS, State, _usual_range, axis_range, controls


@settings(max_examples=60, deadline=None)
@given(
    view=st.sampled_from(sorted(VIEWS)),
    length=st.integers(5, 5000),
    strength=st.floats(0.1, 20),
    ridge=st.floats(1e-8, 10),
    given_query=st.booleans(),
    points=st.integers(2, LIMITS["points"]),
    start=st.none() | st.floats(0.5, 1.0),
)
def test_an_address_round_trips(view, length, strength, ridge, given_query, points, start) -> None:
    values = {"view": view, "length": length, "strength": strength, "ridge": ridge}
    values |= {"given_query": given_query, "points": points, "start": start}
    state = State.from_values(values)
    assert state.task == Task(length, 1, strength)
    assert State.from_address(state.to_address()) == state
    assert State.from_address("#" + state.to_address()) == state


def test_an_address_holds_only_what_differs() -> None:
    assert State().to_address() == "v=1&view=learning"
    changed = State.from_values({"view": "map", "length": 30, "classifiers": ["pooled"]})
    assert changed.to_address() == "v=1&view=map&length=30&classifiers=pooled"


def test_pins_are_addresses_of_their_own() -> None:
    pin = State.from_values({"length": 30, "classifiers": "attention,pooled"}).to_address()
    state = State.from_values({"pins": [pin]})
    assert State.from_address(state.to_address()) == state
    assert state.pinned()[0].task.length == 30
    with pytest.raises(ParameterError, match="pins"):
        State.from_values({"pins": [pin] * 4})
    with pytest.raises(ParameterError, match="pins"):
        State.from_values({"pins": [state.to_address()]})


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("v=2", "v = '2'"),
        ("view=nowhere", "view"),
        ("length=ten", "length = 'ten'"),
        ("length=10.5", "length"),
        ("length=1e9", "at most 100000 on this page"),
        ("positive_rate=2", "positive_rate"),
        ("given_query=maybe", "given_query"),
        ("over=colour", "over"),
        ("view=map&over=alpha1", "another field than over"),
        ("points=1000", "points"),
        ("colour=red", "address = 'colour'"),
        ("classifiers=magic", "classifiers"),
        ("view=shift&classifiers=vectorised", "classifiers = 'vectorised'"),
        ("view=map&classifiers=attention,pooled,vectorised", "at most 2: this view draws"),
        ("quantity=beauty", "quantity"),
        ("classifiers=floor&quantity=auc", "one more: the floor is an error"),
        ("view=map&reuse=1&over=alpha0&second=alpha1", "second = 'alpha1'"),
        ("start=abc", "start"),
        ("x=" + "1" * 7000, "at most"),
    ],
)
def test_bad_addresses_are_refused_by_name(address: str, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        State.from_address(address)


@pytest.mark.parametrize("preset", [*PRESETS, *TOUR], ids=lambda preset: preset.name)
def test_presets_are_valid_addresses(preset) -> None:
    state = State.from_address(preset.address)
    assert State.from_address(state.to_address()) == state
    assert preset.words


def test_a_whole_link_is_an_address() -> None:
    state = State.from_values({"view": "query", "length": 30})
    for before in ("#", "?", "http://127.0.0.1:8719/#"):
        assert State.from_address(before + state.to_address()) == state


@pytest.mark.parametrize(
    ("address", "said", "unsaid"),
    [
        ("view=learning", {"alpha0", "ridge"}, {"alpha1", "reuse", "sharpness"}),
        ("view=learning&reuse=1", {"ridge", "reuse"}, {"alpha0", "alpha1"}),
        ("view=query&over=strength&reuse=1", {"alpha0", "alpha1"}, {"strength", "ridge"}),
        ("view=map", {"alpha0", "ridge"}, {"strength", "alpha1"}),
        ("view=strength", {"error", "informative"}, {"strength", "length", "alpha0", "ridge"}),
        ("view=inside&given_query=1", {"sharpness", "length"}, {"alpha1", "ridge"}),
    ],
)
def test_a_caption_has_what_decides_the_values_and_no_axis(
    address: str, said: set[str], unsaid: set[str]
) -> None:
    settings = set(State.from_address(address).settings())
    assert said <= settings
    assert not unsaid & settings


def test_controls_come_from_the_fields() -> None:
    found = controls()
    names = {field["name"] for group in found["groups"].values() for field in group}
    assert {"length", "strength", "alpha0", "loss", "alignment"} <= names
    for group in found["groups"].values():
        for control in group:
            assert control["description"]
            if control["kind"] in ("number", "whole"):
                assert control["low"] <= control["usual"] <= control["high"]


@pytest.mark.parametrize(
    ("default", "limits", "expected"),
    [
        (0.5, {"low": 0.0, "high": 1.0}, (0.005, 1.0, True)),
        (2.0, {}, (0.02, 200.0, True)),
        (0.0, {"low": 0.0, "high": 3.0}, (0.0, 3.0, False)),
        (0.0, {}, (-10.0, 10.0, False)),
    ],
)
def test_the_slider_of_a_new_field_stays_within_its_limits(
    default: float, limits: dict[str, float], expected: tuple[float, float, bool]
) -> None:
    made = make_dataclass("New", [("new", float, field(default=default, metadata=limits))])
    (item,) = fields(made)
    assert _usual_range(item) == expected


def test_a_classifier_of_long_sequences_can_be_used_on_shorter_ones() -> None:
    state = State.from_values({"view": "shift", "length": LIMITS["length"]})
    start, stop = axis_range(state, state.over, None, None)
    assert start < stop == state.task.length
