"""Programs, commands and studies that the page hands out do what the page shows."""

import ast
import json
import runpy
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from sparsetoken import ParameterError
from sparsetoken.cli import main
from sparsetoken.explorer.presets import PRESETS, TOUR
from sparsetoken.explorer.state import State
from sparsetoken.explorer.texts import as_command, as_python, as_study
from sparsetoken.explorer.views import FINAL, FIRST, pieces
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
    {"view": "query", "reuse": 1},
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
    wide = {"view": "map", "classifiers": ["pooled"], "ridge": 0.1}
    compile(as_python(State.from_values(wide)), "page", "exec")
    assert "phase_map" in as_python(State.from_values(wide))


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
        quantity = "error" if "sparsetoken floor" in command else quantity
        shown = [y for line in lines.values() for y in line["y"]]
        for row in rows:
            near = min(abs(row[quantity] - y) for y in shown if y is not None)
            present = len(rows) == 1 and state.over in ("alpha", "alpha1")
            assert near < 1e-3 or present, (command, row[quantity], shown)


def test_a_study_is_one_that_sweep_accepts() -> None:
    study = parse_study(as_study(State()))
    assert len(list(study.cells())) == 3 * 8
    with pytest.raises(ParameterError, match="view"):
        as_study(State(view="map"))
