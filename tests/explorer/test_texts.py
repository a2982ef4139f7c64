"""Programs, commands and studies that the page hands out do what the page shows."""

import shlex
import subprocess
import sys

import pytest
from click.testing import CliRunner

from sparsetoken import ParameterError, curve
from sparsetoken.cli import main
from sparsetoken.explorer.presets import PRESETS, TOUR
from sparsetoken.explorer.state import State
from sparsetoken.explorer.texts import as_command, as_python, as_study
from sparsetoken.explorer.views import FINAL, axis_values
from sparsetoken.sweeps.spec import parse_study

POOLED = State.from_values({"classifiers": ["pooled"], "points": 3, "ridge": 0.01})


def test_python_computes_what_the_page_shows() -> None:
    program = [sys.executable, "-c", as_python(POOLED)]
    shown = subprocess.run(program, capture_output=True, text=True, check=True).stdout
    values = [round(value, 6) for value in axis_values(POOLED, FINAL)]
    expected = curve(POOLED.task, POOLED.training, values=values, classifier="pooled")
    assert shown.strip() == str(expected.column("test_error"))


@pytest.mark.parametrize("preset", [*PRESETS, *TOUR], ids=lambda preset: preset.name)
def test_every_preset_has_a_program_and_a_command(preset) -> None:
    state = State.from_address(preset.address)
    compile(as_python(state), "page", "exec")
    words = shlex.split(as_command(state))
    command = main.commands[words[1]]
    assert command.make_context(words[1], words[2:])


def test_a_command_runs() -> None:
    state = State.from_values({"view": "query", "points": 3})
    result = CliRunner().invoke(main, shlex.split(as_command(state))[1:])
    assert result.exit_code == 0, result.output
    assert "alignment" in result.output


def test_a_study_is_one_that_sweep_accepts() -> None:
    study = parse_study(as_study(State()))
    assert len(list(study.cells())) == 3 * 8
    with pytest.raises(ParameterError, match="view"):
        as_study(State(view="map"))
