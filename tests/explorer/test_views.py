"""What the views show is what the public functions give, and a stale request ends."""

import numpy as np
import pytest

from sparsetoken import align, phase_map, predict, required_strength
from sparsetoken.explorer.computing import compute
from sparsetoken.explorer.state import State
from sparsetoken.explorer.views import FINAL, FIRST, SCREEN, Known, Picture, Stale, pieces


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


def test_a_map_is_coarse_first() -> None:
    state = State.from_values({"view": "turning"})
    (found,) = answer(state)
    grid = found["values"]["attention"]
    known = [value for row in grid for value in row if value is not None]
    assert (len(grid), len(grid[0]), len(known)) == (33, 33, 17 * 17)
    x, y, value = found["x"][4], found["y"][6], grid[6][4]
    changed = align(
        state.task.replace(positive_rate=x), state.training.replace(bias_step=y)
    ).alignment
    assert value == pytest.approx(changed)


def test_required_strength_of_a_linear_classifier() -> None:
    state = State.from_values({"view": "strength", "classifiers": ["pooled"]})
    line, numbers = answer(state)
    assert numbers["rows"][0]["x"] == state.task.length
    task = state.task.replace(length=line["x"][-1])
    expected = required_strength(task, error=state.error, classifier="pooled").strength
    assert line["y"][-1] == pytest.approx(expected)


def test_inside_a_sequence_weights_sum_to_one_and_the_signal_is_marked() -> None:
    state = State.from_values({"view": "inside", "length": 50, "informative": 3})
    (tokens,) = answer(state)
    assert sum(tokens["informative"]) == 3
    assert tokens["mass"] == pytest.approx(np.dot(tokens["weights"], tokens["informative"]))
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


def test_what_does_not_matter_to_a_line_is_not_computed_again() -> None:
    known = Known()

    def batches(**values) -> int:
        picture = Picture(
            State.from_values({"classifiers": ["pooled"], "points": 3, **values}), known
        )
        asked = picture.batches(SCREEN)
        for batch in asked:
            picture.put(batch, compute(batch, lambda: None))
        return len(asked)

    assert batches() > 0
    assert batches(alpha0=7.0, query_step=3.0) == 0
    assert batches(alpha1=2.0) == 1  # the number at the present settings alone
    assert batches(strength=4.0) > 1
    required = {"view": "strength"}
    assert batches(**required) > 0
    assert batches(**required, strength=9.0, ridge=0.1) == 0


@pytest.mark.parametrize("view", ["learning", "turning"])
def test_grids_of_the_stages_are_nested(view: str) -> None:
    picture = Picture(State.from_values({"view": view}), Known())
    places = {
        stage.name: {
            (line.name, line.row, index)
            for line in picture.lines
            for index in picture.chosen(line, stage)
        }
        for stage in (FIRST, SCREEN, FINAL)
    }
    assert places["first"] < places["screen"] < places["final"]


def test_a_pooled_readout_has_all_samples_in_a_map_as_in_phase_map() -> None:
    values = {"view": "map", "classifiers": ["pooled"], "ridge": 0.1, "alpha0": 2.0}
    (found,) = answer(State.from_values(values))
    state = State.from_values(values)
    i, j = 4, 8
    expected = phase_map(
        state.task,
        state.training,
        x=("strength", found["x"][j : j + 2]),
        y=("alpha1", found["y"][i : i + 2]),
        classifiers=["pooled"],
    )
    assert found["values"]["pooled"][i][j] == pytest.approx(
        expected.errors["pooled"][0, 0], abs=1e-6
    )


def test_a_law_of_informative_tokens_is_a_setting() -> None:
    state = State.from_values({"informative": "poisson:2", "classifiers": ["pooled"], "points": 2})
    (line, _) = answer(state)
    task = state.task
    assert str(task.informative) == "poisson:2"
    expected = predict(task, state.training.replace(alpha1=line["x"][0]), classifier="pooled")
    assert line["y"][0] == pytest.approx(expected.test_error, abs=1e-6)
