"""The state of the page: addresses round trip, bad ones are refused by name."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparsetoken import ParameterError, Task
from sparsetoken.explorer.presets import PRESETS, TOUR
from sparsetoken.explorer.state import LIMITS, VIEWS, State, controls


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
        ("quantity=beauty", "quantity"),
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


def test_controls_come_from_the_fields() -> None:
    found = controls()
    names = {field["name"] for group in found["groups"].values() for field in group}
    assert {"length", "strength", "alpha0", "loss", "alignment"} <= names
    for group in found["groups"].values():
        for field in group:
            assert field["description"]
            if field["kind"] in ("number", "whole"):
                assert field["low"] <= field["usual"] <= field["high"]
