import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from sparsetoken import Step, Task, descend
from sparsetoken.cli import main


def run(*arguments: str) -> str:
    result = CliRunner().invoke(main, ["descend", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_prints_what_python_gives(tmp_path: Path) -> None:
    picture = tmp_path / "path.svg"
    options = ("--steps", "2", "--length", "6", "--trials", "2", "--dimension", "20")
    found = json.loads(run(*options, "--json", "--plot", str(picture)))
    expected = descend(
        Task(6, 1, 5.0), [Step(2.0, readout_step=1.0, bias_step=0.5, query_step=2.0)] * 2
    )
    assert [row["test_error"] for row in found["results"]] == expected.column("test_error")
    assert found["results"][1]["simulation"]["trials"] == 2
    assert len(found["settings"]["steps"]) == 2
    assert picture.read_text().startswith("<?xml")
    table = run(*options)
    assert f"Amplification: at most {max(expected.column('amplification')):.2f}" in table
    assert "simulation" in table


def test_a_schedule_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "steps.json"
    rows = [{"alpha": 2, "readout_step": 1, "bias_step": 0, "query_step": 0}]
    path.write_text(json.dumps(rows))
    found = json.loads(run("--schedule", str(path), "--json"))
    assert len(found["results"]) == 1
    assert found["results"][0]["bias"] == 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "a JSON file"),
        ("[]", "a list of steps"),
        ('[{"alpha": 1}]', "values for readout_step"),
    ],
)
def test_a_bad_schedule_is_named(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "steps.json"
    path.write_text(content)
    result = CliRunner().invoke(main, ["descend", "--schedule", str(path)])
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--steps", "0"], "steps = 0"),
        (["--alpha", "-1"], "alpha = -1"),
        (["--plot", "x.bmp"], "plot = 'x.bmp'"),
        (["--trials", "1", "--dimension", "3"], "dimension = 3"),
    ],
)
def test_user_errors_give_one_message_and_exit_code_two(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(main, ["descend", *arguments])
    assert result.exit_code == 2
    assert message in result.stderr
