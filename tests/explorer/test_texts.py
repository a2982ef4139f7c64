"""Programs, commands and studies that the page hands out do what the page shows."""

import ast
import json
import runpy
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from sparsetoken import ParameterError
from sparsetoken.cli import main
from sparsetoken.explorer import texts, views
from sparsetoken.explorer.picture import pieces
from sparsetoken.explorer.presets import PRESETS, TOUR
from sparsetoken.explorer.state import State
from sparsetoken.explorer.texts import as_command, as_python, as_study
from sparsetoken.explorer.views import FINAL, FIRST
from sparsetoken.sweeps.spec import parse_study


def run_python(state: State, folder: Path, **changes: str) -> dict[str, Any]:
    """Run the program of a state, with some words changed; return all that it knows at its end."""
    path, text = folder / "program.py", as_python(state)
    for word, other in changes.items():
        text = text.replace(f"in {word}", f"in {other}")
    path.write_text(text, encoding="utf-8")
    return runpy.run_path(str(path))


# Every kind of line, with as little work as possible.
LIGHT = [
    {"classifiers": ["pooled", "floor"], "ridge": 0.01},
    {"classifiers": ["pooled", "floor"], "ridge": 0.01, "over": "strength", "logarithmic": 0},
    {"classifiers": ["pooled"], "ridge": 0.01, "quantity": "auc"},
    {"classifiers": ["attention", "pooled", "floor"], "ridge": 0.1, "over": "alpha", "stop": 8},
    {"classifiers": ["pooled"], "ridge": 0.01, "informative": "poisson:2"},
    {"classifiers": ["attention", "pooled"], "ridge": 0.1, "given_query": 1, "over": "sharpness"},
    {"classifiers": ["attention", "pooled"], "ridge": 0.1, "given_query": 1, "over": "alpha0"},
    {"view": "capacity", "classifiers": ["attention"], "given_query": 1, "over": "alpha0"},
    {"classifiers": ["attention"], "ridge": 0.1, "given_query": 1, "sharpness": "inf"},
    {"classifiers": ["floor"], "reuse": 1, "over": "ridge"},
    {"view": "query", "reuse": 1},
    {"view": "query", "reuse": 1, "over": "alpha1"},
    {"view": "query", "over": "ridge"},
    {"view": "capacity", "classifiers": ["attention"], "reuse": 1, "over": "alpha0"},
    {"classifiers": ["attention"], "ridge": 0.1, "reuse": 1, "alpha0": 6, "alpha1": 6, "stop": 8},
    {"classifiers": ["attention", "pooled"], "ridge": 0.1, "given_query": 1, "reuse": 1, "stop": 8},
    {"view": "query", "quantity": "rate_constant", "over": "strength"},
    {"view": "strength", "classifiers": ["pooled"], "error": 0.1},
    {"view": "capacity", "classifiers": ["pooled", "vectorised"]},
    {"view": "shift", "classifiers": ["pooled"], "ridge": 0.1},
]


@pytest.mark.parametrize("values", LIGHT, ids=str)
def test_python_computes_what_the_page_shows(values: dict, tmp_path: Path, capsys) -> None:
    state = State.from_values({"points": 2, **values})
    run_python(state, tmp_path)
    rows = [row.partition(" [") for row in capsys.readouterr().out.splitlines()]
    printed = {name: ast.literal_eval("[" + values) for name, _, values in rows}
    lines = {piece["name"]: piece for piece in pieces(state, FINAL, none) if "y" in piece}
    assert set(printed) == set(lines)
    for name, numbers in printed.items():
        flat = len(numbers) == 1
        expected = lines[name]["y"][:1] if flat else lines[name]["y"]
        assert numbers == pytest.approx(
            expected, abs=3 * max(bar or 0 for bar in lines[name]["bar"]) + 1e-9
        )


def none() -> None:
    """Nothing makes these computations stale."""


def test_python_of_maps_and_of_one_sequence(tmp_path: Path, capsys) -> None:
    turning = State.from_values({"view": "turning"})
    run_python(turning, tmp_path, across="across[:32:16]", up="up[:32:16]")
    (piece,) = pieces(turning, FIRST, none)
    expected = [row[:32:16] for row in piece["values"]["attention"][:32:16]]
    assert ast.literal_eval(capsys.readouterr().out) == expected
    inside = State.from_values({"view": "inside", "draw": 3})
    known = run_python(inside, tmp_path)
    (piece,) = pieces(inside, FINAL, none)
    assert list(known["scores"]) == pytest.approx(piece["scores"])
    weights = known["weights"] / known["weights"].sum()
    assert list(weights) == pytest.approx(piece["weights"])


@pytest.fixture
def small_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let maps have three settings a side, on the page and in what it hands out."""
    small = replace(FINAL, side=3)
    monkeypatch.setattr(views, "FINAL", small)
    monkeypatch.setattr(texts, "FINAL", small)


# The tolerance of both, and what each leaves: their points begin elsewhere.
MAP_AGREES = 2 * views.MAP.final


@pytest.mark.usefixtures("small_maps")
@pytest.mark.parametrize("over", ["strength", "alpha0"])
def test_the_program_of_a_phase_map_gives_its_errors_and_capacities(over: str, tmp_path) -> None:
    values = {"view": "map", "ridge": 0.1, "over": over, "start": 2, "stop": 6, "second_start": 1}
    state = State.from_values(values)
    found = run_python(state, tmp_path)["found"]
    (piece,) = pieces(state, views.FINAL, none)
    for name in ("attention", "pooled"):
        shown = np.array(piece["values"][name])
        assert shown.shape == found.errors[name].shape == (3, 3)
        assert shown == pytest.approx(found.errors[name], abs=MAP_AGREES)
    # Samples that can be separated over those that there are: 1 on the contour.
    ratios = np.array(piece["values"]["capacity_ratio"])
    assert ratios == pytest.approx(found.capacities, rel=0.02)
    result = CliRunner().invoke(main, [*shlex.split(as_command(state))[1:], "--json"])
    assert result.exit_code == 0, result.output
    errors = [row["attention_test_error"] for row in json.loads(result.stdout)["results"]]
    assert errors == pytest.approx(found.errors["attention"].ravel().tolist(), abs=MAP_AGREES)


@pytest.mark.usefixtures("small_maps")
@pytest.mark.parametrize("over", ["alignment", "alpha0"])
def test_the_program_of_a_map_with_a_given_query_gives_its_errors(
    over: str, tmp_path: Path, capsys
) -> None:
    values = {"view": "map", "ridge": 0.1, "given_query": 1, "over": over, "start": 0.5}
    state = State.from_values({**values, "stop": 0.9, "second_start": 1, "logarithmic": 0})
    run_python(state, tmp_path)
    (piece,) = pieces(state, views.FINAL, none)
    printed = np.array(ast.literal_eval(capsys.readouterr().out))
    assert printed == pytest.approx(np.array(piece["values"]["attention"]), abs=MAP_AGREES)


@pytest.mark.parametrize("preset", [*PRESETS, *TOUR], ids=lambda preset: preset.name)
def test_every_preset_has_a_program_and_commands(preset) -> None:
    state = State.from_address(preset.address)
    compile(as_python(state), "page", "exec")
    for line in as_command(state).splitlines():
        words = shlex.split(line)
        assert words[0] == "sparsetoken"
        assert main.commands[words[1]].make_context(words[1], words[2:])


@pytest.mark.parametrize("values", LIGHT, ids=str)
def test_commands_give_what_the_page_shows(values: dict) -> None:
    state = State.from_values({"points": 2, **values})
    lines = {piece["name"]: piece for piece in pieces(state, FINAL, none) if "y" in piece}
    commands = as_command(state).splitlines()
    assert len(commands) == len(lines)
    for command in commands:
        result = CliRunner().invoke(main, [*shlex.split(command)[1:], "--json"])
        assert result.exit_code == 0, result.output
        printed = json.loads(result.stdout)
        rows = printed["results"] if "results" in printed else [printed["result"]]
        names = {"strength": "strength", "capacity": "alpha"}
        quantity = names.get(state.view, state.quantity)
        quantity = "test_error" if "sparsetoken floor" in command else quantity
        shown = [y for line in lines.values() for y in line["y"]]
        for row in rows:
            near = min(abs(row[quantity] - y) for y in shown if y is not None)
            present = len(rows) == 1 and state.over in ("alpha", "alpha1")
            assert near < 1e-3 or present, (command, row[quantity], shown)


@pytest.mark.parametrize("over", ["ridge", "alpha1"])
def test_the_command_of_a_map_whose_axis_changes_nothing_leaves_it_out(over: str) -> None:
    command = as_command(State.from_values({"view": "turning", "over": over}))
    assert "--over" not in command
    result = CliRunner().invoke(main, shlex.split(command)[1:])
    assert result.exit_code == 0, result.output


def test_a_study_is_one_that_sweep_accepts() -> None:
    study = parse_study(as_study(State()))
    assert len(list(study.cells())) == 3 * 8
    varied = {"given_query": 1, "over": "sharpness", "quantity": "auc"}
    study = parse_study(as_study(State.from_values(varied)))
    assert (study.plot.x, study.plot.y, study.metrics) == ("query_sharpness", "auc", ("auc",))
    hard = State.from_values({"given_query": 1, "sharpness": "inf"})
    assert parse_study(as_study(hard)).query.sharpness == (np.inf,)
    pooled = parse_study(as_study(State.from_values({**varied, "classifiers": ["pooled"]})))
    assert (pooled.plot.x, pooled.query) == (None, None)
    with pytest.raises(ParameterError, match="view"):
        as_study(State(view="map"))
