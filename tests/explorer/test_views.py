"""What the views show is what the public functions give, and a stale request ends."""

import numpy as np
import pytest

from sparsetoken import align, predict, required_strength
from sparsetoken.explorer.state import State
from sparsetoken.explorer.views import FINAL, SCREEN, Stale, pieces


def answer(state: State, accuracy=SCREEN) -> list[dict]:
    return list(pieces(state, accuracy, lambda: None))


def test_learning_curves_and_numbers_are_those_of_predict() -> None:
    state = State.from_values({"classifiers": ["pooled", "floor"], "points": 4, "ridge": 0.01})
    found = answer(state, FINAL)
    lines = {piece["name"]: piece for piece in found if piece["kind"] == "line"}
    assert set(lines) == {"pooled", "floor"}
    for x, y, bar in zip(*(lines["pooled"][key] for key in ("x", "y", "bar")), strict=True):
        expected = predict(state.task, state.training.replace(alpha1=x), classifier="pooled")
        assert y == pytest.approx(expected.test_error, abs=1e-8)
        assert bar >= 0
    assert all(
        low <= high for low, high in zip(lines["floor"]["y"], lines["pooled"]["y"], strict=True)
    )
    (numbers,) = [piece for piece in found if piece["kind"] == "numbers"]
    here = predict(state.task, state.training, classifier="pooled")
    assert numbers["rows"][0]["value"] == pytest.approx(here.test_error, abs=1e-8)


def test_the_query_and_why_it_turns() -> None:
    state = State.from_values({"view": "query", "positive_rate": 0.02, "strength": 2, "points": 3})
    found = {piece["kind"]: piece for piece in answer(state)}
    here = align(state.task, state.training)
    assert here.anti_aligned
    assert found["numbers"]["rows"][0]["value"] == here.alignment
    assert here.cause in found["note"]["text"]


def test_a_map_comes_row_by_row() -> None:
    state = State.from_values({"view": "turning"})
    axes, *rows = answer(state)
    assert len(rows) == len(axes["y"])
    x, y, value = axes["x"][3], axes["y"][5], rows[5]["values"]["alignment"][3]
    changed = align(
        state.task.replace(positive_rate=x), state.training.replace(bias_step=y)
    ).alignment
    assert value == pytest.approx(changed)


def test_required_strength_of_a_linear_classifier() -> None:
    state = State.from_values({"view": "strength", "classifiers": ["pooled"]})
    (line,) = answer(state)
    task = state.task.replace(length=line["x"][-1])
    expected = required_strength(task, error=state.error, classifier="pooled").strength
    assert line["y"][-1] == pytest.approx(expected)


def test_inside_a_sequence_weights_sum_to_one_and_the_signal_is_marked() -> None:
    state = State.from_values({"view": "inside", "length": 50, "informative": 3})
    (tokens,) = answer(state)
    assert len(tokens["informative"]) == 3
    assert sum(tokens["weights"]) == pytest.approx(1)
    scores = np.array(tokens["scores"])
    weights = np.exp(tokens["sharpness"] * (scores - scores.max()))
    assert tokens["weights"] == pytest.approx(list(weights / weights.sum()))
    again = State.from_values({"view": "inside", "length": 50, "informative": 3, "draw": 1})
    assert answer(again)[0]["scores"] != tokens["scores"]


def test_pinned_lines_come_with_their_number() -> None:
    pin = State.from_values({"classifiers": ["pooled"], "points": 2, "strength": 3}).to_address()
    state = State.from_values({"classifiers": ["pooled"], "points": 2, "pins": [pin]})
    lines = [piece for piece in answer(state) if piece["kind"] == "line"]
    assert [line.get("pin") for line in lines] == [None, 0]
    assert lines[0]["y"] != lines[1]["y"]


def test_a_stale_request_ends_at_its_next_point() -> None:
    calls = []

    def check() -> None:
        calls.append(1)
        if len(calls) == 3:
            raise Stale

    with pytest.raises(Stale):
        list(pieces(State.from_values({"classifiers": ["pooled"]}), FINAL, check))
    assert len(calls) == 3
