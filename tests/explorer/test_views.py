"""What the views show is what the public functions give, and a stale request ends."""

import inspect
from typing import Any

import numpy as np
import pytest

from sparsetoken import (
    align,
    capacity_curve,
    curve,
    floor_curve,
    phase_map,
    predict,
    required_strength,
    shift,
    strength_curve,
)
from sparsetoken.explorer.computing import Batch, Stale, compute
from sparsetoken.explorer.looks import line_looks
from sparsetoken.explorer.picture import Known, Picture, pieces
from sparsetoken.explorer.state import VIEWS, State
from sparsetoken.explorer.views import (
    CAPACITY,
    DEFAULT,
    FINAL,
    FIRST,
    FLOOR,
    MAP,
    SCREEN,
    SHIFT,
    STRENGTH,
    Stage,
    lines_of,
)
from sparsetoken.task import vary


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


def test_small_numbers_are_told_with_the_digits_that_their_error_leaves() -> None:
    values = {"given_query": 1, "alignment": 1, "sharpness": 5, "strength": 12, "ridge": 0.01}
    state = State.from_values({**values, "classifiers": ["attention"], "points": 2})
    (numbers,) = [piece for piece in answer(state, FINAL) if piece["kind"] == "numbers"]
    (row,) = numbers["rows"]
    shown = float(row["text"].split(" ±")[0])
    assert 0 < shown < 1e-6
    assert shown == pytest.approx(row["value"], abs=max(row["bar"], 1e-5 * row["value"]))


def test_the_query_and_why_it_turns() -> None:
    state = State.from_values({"view": "query", "positive_rate": 0.02, "strength": 2, "points": 3})
    found = {piece["kind"]: piece for piece in answer(state)}
    here = align(state.task, state.training)
    assert here.anti_aligned
    assert found["numbers"]["rows"][0]["value"] == here.alignment
    assert here.cause in found["note"]["text"]


def test_a_query_that_turns_is_told_where_its_cause_is_not_asked_for() -> None:
    values = {"classifiers": ["attention"], "length": 30, "strength": 3, "positive_rate": 0.1}
    shown = str(list(answer(State.from_values({**values, "points": 3}))))
    assert "The query points away from the signal" in shown
    assert "Cure: None" not in shown


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


@pytest.mark.parametrize("view", VIEWS)
def test_every_line_has_a_look_of_its_own(view: str) -> None:
    looks = line_looks()
    names = [line.name for line in lines_of(State.from_values({"view": view})) if line.row is None]
    drawn = [tuple(looks[name].items()) for name in dict.fromkeys(names)]
    assert len(set(drawn)) == len(drawn)


def test_known_points_take_no_more_memory_than_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparsetoken.explorer.picture._KEPT_BYTES", 20_000)
    known = Known()
    for draw in range(6):  # each a sequence of 200 tokens
        state = State.from_values({"view": "inside", "length": 200, "draw": draw})
        picture = Picture(state, known)
        for batch in picture.batches(FIRST):
            picture.put(batch, compute(picture.begun(batch), lambda: None))
        assert list(picture.pieces())
    assert 0 < known.points.size <= 20_000


def test_what_does_not_matter_to_a_line_is_not_computed_again() -> None:
    known = Known()

    def asked(**values) -> int:
        picture = Picture(
            State.from_values({"classifiers": ["pooled"], "points": 3, **values}), known
        )
        return sum(len(batch.values) for batch in computed(picture, SCREEN))

    assert asked() == 3 + 1
    assert asked(alpha0=7.0, query_step=3.0) == 0
    assert asked(alpha1=2.0) == 1  # the number at the present settings alone
    assert asked(strength=4.0) == 3 + 1
    required = {"view": "strength"}
    assert asked(**required) > 0
    assert asked(**required, strength=9.0, ridge=0.1) == 0


@pytest.mark.parametrize("over", ["alpha1", "alpha", "length"])
def test_points_that_follow_a_slider_are_those_of_predict(over: str) -> None:
    known, followed = Known(), 0
    # Forth, further, and then another slider.
    for moved in ({}, {"strength": 5.1}, {"strength": 5.2}, {"strength": 5.3}, {"ridge": 2e-3}):
        values = {
            "classifiers": ["attention"],
            "points": 3,
            "over": over,
            "stop": 30,
            "ridge": 1e-3,
        }
        state = State.from_values({**values, **moved})
        picture = Picture(state, known)
        followed = sum(
            bool(memory) for batch in computed(picture, FIRST) for memory in batch.memories
        )
        line, numbers = picture.pieces()
        (number,) = numbers["rows"]
        points = [*zip(line["x"], line["y"], strict=True), (number["x"], number["value"])]
        for x, y in points:
            task, training = state.task, state.training
            if over == "alpha":
                training = training.replace(alpha0=x / 2, alpha1=x / 2)
            else:
                task, training = vary(over, x, task, training)
            assert y == pytest.approx(predict(task, training, tolerance=5e-3).test_error, abs=1e-4)
    assert followed == len(line["x"]) + 1


@pytest.mark.parametrize(
    ("view", "moved"),
    [
        ("strength", {"positive_rate": 0.3}),
        ("map", {"query_step": 20.0}),
        ("shift", {"strength": 4.0}),
    ],
)
def test_what_follows_a_slider_to_the_default_accuracy_is_what_is_found_without_one(
    view: str, moved: dict[str, float]
) -> None:
    lighter = {"view": view, "points": 3, "stop": 6 if view == "map" else 2000}
    known = Known()
    stage = FIRST if view == "map" else FINAL  # its accuracy is the same, and its last stage long

    def final(known: Known, **values: float) -> dict[Any, tuple[float, float]]:
        picture = Picture(State.from_values({**lighter, **values}), known)
        computed(picture, stage)
        return points_of(picture, stage)

    final(known)
    followed, anew = final(known, **moved), final(Known(), **moved)
    assert followed.keys() == anew.keys()
    for place, (y, bar) in followed.items():
        other, other_bar = anew[place]
        assert y == pytest.approx(other, abs=bar + other_bar), place


def points_of(picture: Picture, stage: Stage) -> dict[Any, tuple[float, float]]:
    return {
        (line.name, line.row, index): (point.y, point.bar)
        for line in picture.lines
        for index in picture.chosen(line, stage)
        if (point := picture._known.points.find(line.keys[index])) is not None
        and point.y is not None
        and point.bar is not None
    }


def test_a_setting_moves_the_keys_of_the_lines_that_it_matters_to() -> None:
    """Names of fields against lines: a field without influence leaves what is known as it is."""

    def keys(**values: Any) -> dict[str, Any]:
        state = State.from_values({"points": 3, **values})
        return {line.name: list(line.keys[:3]) for line in Picture(state, Known()).lines}

    def moved(change: dict[str, Any], **values: Any) -> set[str]:
        before, after = keys(**values), keys(**{**values, **change})
        return {name for name in before if before[name] != after[name]}

    everyone = {"attention", "pooled", "vectorised", "floor"}
    assert moved({"length": 20}) == everyone
    assert moved({"ridge": 0.1}) == everyone - {"floor"}
    assert moved({"query_step": 3.0}) == {"attention"}
    assert moved({"alpha1": 3.0}) == set()  # it is on the axis
    assert moved({"alpha1": 3.0}, over="strength") == everyone
    assert moved({"alpha0": 3.0}, over="strength") == {"attention", "floor"}
    assert moved({"alpha0": 3.0}, over="alpha") == {"attention"}  # how samples are shared
    assert moved({"query_step": 3.0}, given_query=True) == set()
    assert moved({"reuse": True}, given_query=True) == set()
    assert moved({"alpha0": 3.0, "alpha1": 3.0}, reuse=True) == set()
    (flat,) = {tuple(points) for points in [keys(over="query_step")["pooled"]]}
    assert len(set(flat)) == 1
    assert moved({"strength": 2.0, "ridge": 1.0}, view="strength") == set()
    assert moved({"error": 0.01}, view="strength") == {"attention", "pooled", "bayes"}
    assert moved({"alpha1": 1.0, "ridge": 1.0}, view="query") == set()
    assert moved({"alpha0": 1.0}, view="capacity") == {"attention"}


def computed(picture: Picture, stage: Stage, kind: str = "") -> list[Batch]:
    begun = []
    for batch in picture.batches(stage):
        if batch.source.kind == kind or not kind:
            begun.append(picture.begun(batch))
            picture.put(batch, compute(begun[-1], lambda: None))
    return begun


def test_points_of_a_map_begin_between_their_neighbours_and_end_where_predict_does() -> None:
    known = Known()
    for ridge in (1e-3, 1.1e-3):
        values = {"view": "map", "classifiers": ["attention"], "start": 1, "stop": 6}
        state = State.from_values({**values, "ridge": ridge, "second_start": 1})
        picture = Picture(state, known)
        computed(picture, FIRST, "predict")
        batches = computed(picture, SCREEN, "predict")
    expected = [bool(near) for batch in batches for near in batch.expected]
    assert len(expected) == 9**2 - 5**2
    assert sum(expected) > 0.9 * len(expected)
    (shown,) = picture.pieces()
    # On a row of the coarse grid, between its rows, and between both.
    for row, column in ((4, 6), (6, 4), (10, 14)):
        task, training = vary("strength", shown["x"][column], state.task, state.training)
        training = training.replace(alpha1=shown["y"][row])
        found, other = shown["values"]["attention"][row][column], predict(task, training)
        assert found == pytest.approx(
            other.test_error, abs=MAP.final + other.uncertainty.test_error
        )
    expected_at = [near for batch in batches for near in batch.expected if near]
    reached = [
        picture._known.points.find(batch.source.key(value)).solution
        for batch in batches
        for value, near in zip(batch.values, batch.expected, strict=True)
        if near
    ]
    # As far from the middle of its neighbours as it was before: to a percent.
    assert np.median(np.abs(np.subtract(expected_at, reached))[:, -3:].max(axis=1)) < 0.01


def test_capacities_are_left_out_where_their_contour_does_not_pass() -> None:
    values = {"view": "map", "classifiers": ["attention"], "start": 1, "stop": 8}

    def ratios(known: Known, *stages: Stage) -> tuple[int, np.ndarray]:
        picture = Picture(State.from_values(values), known)
        asked = sum(len(b.values) for stage in stages for b in computed(picture, stage, "capacity"))
        grid = picture._map()["values"]["capacity_ratio"]
        return asked, np.array(grid, dtype=float)

    some, left_out = ratios(Known(), SCREEN, FINAL)
    every, whole = ratios(Known(), FINAL)
    assert some < every
    known = np.isfinite(left_out)
    np.testing.assert_allclose(left_out[known], whole[known], rtol=0.02)
    # What changes sides to its right or above is there.
    for axis in (0, 1):
        changes = np.diff(whole > 1, axis=axis)
        ends = [np.take(known, range(*part), axis=axis) for part in ((0, 16), (1, 17))]
        assert np.all(ends[0][changes] & ends[1][changes])
        assert changes.any()


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


@pytest.mark.parametrize(
    ("function", "accuracy"),
    [
        (curve, DEFAULT),
        (capacity_curve, CAPACITY),
        (strength_curve, STRENGTH),
        (floor_curve, FLOOR),
        (phase_map, MAP),
        (shift, SHIFT),
    ],
)
def test_numbers_at_rest_are_as_accurate_as_those_of_the_package(function: Any, accuracy: Any):
    assert inspect.signature(function).parameters["tolerance"].default == accuracy.final
