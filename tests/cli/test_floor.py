import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from sparsetoken import Task, floor, hard_phase
from sparsetoken.cli import main


def run(*arguments: str) -> str:
    result = CliRunner().invoke(main, ["floor", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_prints_what_python_gives() -> None:
    options = ("--length", "300", "--strength", "4", "--alpha", "0.6", "--transitions")
    found = json.loads(run(*options, "--json"))
    task = Task(300, 1, 4.0)
    expected, phase = floor(task, 0.6), hard_phase(task)
    assert phase is not None
    values = found["result"]
    assert values["test_error"] == expected.test_error
    assert values["reachable_overlap"] == expected.reachable_overlap
    assert values["phase"] == "hard"
    assert values["test_error_uncertainty"] == expected.uncertainty.test_error
    assert values["hard_phase_begins"] == phase.begins
    assert values["hard_phase_ends_uncertainty"] == phase.uncertainty["ends"]
    table = run(*options)
    assert "reachable test error" in table
    assert "hard" in table


def test_a_curve_as_table_json_and_picture(tmp_path: Path) -> None:
    picture = tmp_path / "floor.svg"
    curve = ("--over", "alpha", "--from", "0.5", "--to", "8", "--points", "3", "--log")
    found = json.loads(run(*curve, "--json", "--plot", str(picture)))
    assert [row["alpha"] for row in found["results"]] == pytest.approx([0.5, 2, 8])
    errors = [row["test_error"] for row in found["results"]]
    assert errors == sorted(errors, reverse=True)
    assert picture.read_text().startswith("<?xml")
    assert "phase" in run(*curve)


def test_another_field_varies_at_one_alpha() -> None:
    found = json.loads(run("--over", "strength", "--points", "2", "--alpha", "2", "--json"))
    assert found["results"][1]["test_error"] == floor(Task(10, 1, 10.0), 2.0).test_error
    assert found["settings"]["alpha"] == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--alpha", "0"], "alpha = 0.0"),
        (["--over", "ridge"], "a field that matters here: alpha, length"),
        (["--from", "1"], "--from is for a curve"),
        (["--over", "alpha", "--transitions"], "--transitions is for one task"),
        (["--over", "alpha", "--plot", "x.bmp"], "plot = 'x.bmp'"),
        (["--length", "5000", "--informative", "2"], "symmetric polynomials"),
    ],
)
def test_user_errors_give_one_message_and_exit_code_two(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(main, ["floor", *arguments])
    assert result.exit_code == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr
