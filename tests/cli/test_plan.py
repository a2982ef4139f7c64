import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from sparsetoken import read_study
from sparsetoken.cli import main


def invoke(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, [*arguments], catch_exceptions=False)
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.slow
def test_a_plan_as_json_with_a_study_and_a_picture(tmp_path: Path) -> None:
    study, picture = tmp_path / "study.toml", tmp_path / "plan.svg"
    code, output, _ = invoke(
        *("plan", "--samples", "200", "--dimension", "40", "--trials", "3", "--workers", "1"),
        *("--json", "--save", str(study), "--plot", str(picture)),
    )
    assert code == 0
    result = json.loads(output)["result"]
    assert result["samples"] == 200
    assert 0 < result["test_error"] < 0.5
    assert result["training"]["loss"] in ("logistic", "square")
    assert len(read_study(study).cells()) == 10
    assert picture.stat().st_size > 1000


def test_a_target_out_of_reach_is_said_and_writes_nothing(tmp_path: Path) -> None:
    study = tmp_path / "study.toml"
    code, output, _ = invoke(
        *("plan", "--length", "20", "--strength", "4", "--error", "0.001", "--save", str(study))
    )
    assert code == 0
    assert "cannot reach error 0.001" in output
    assert not study.exists()


def test_bad_options_are_one_message_with_code_2(tmp_path: Path) -> None:
    code, _, errors = invoke("plan")
    assert code == 2
    assert "give one of --error, --auc (a target) and --samples (a budget)" in errors
    code, _, errors = invoke("plan", "--error", "0.1", "--plot", str(tmp_path / "x.txt"))
    assert code == 2
    code, _, errors = invoke("map", "--x", "strength", "a", "b")
    assert code == 2
    assert "two finite numbers" in errors
    mine = tmp_path / "mine.csv"
    for text in ("a,b\n", "trial,fresh_test_error,auc\n0,0.1,0.9\n"):  # the second is of trials
        mine.write_text(text)
        code, _, _ = invoke("map", "--points", "2", "--csv", str(mine))
        assert code == 2
        assert mine.read_text() == text


def test_a_map_as_text_json_csv_and_picture(tmp_path: Path) -> None:
    table, picture = tmp_path / "map.csv", tmp_path / "map.png"
    options = ("map", "--points", "2", "--workers", "1", "--x", "length", "5", "9")
    code, output, _ = invoke(*options, "--csv", str(table), "--plot", str(picture), "--json")
    assert code == 0
    rows = json.loads(output)["results"]
    assert [row["length"] for row in rows] == [5, 9, 5, 9]
    assert table.read_text().startswith("length,alpha,attention_test_error")
    assert picture.stat().st_size > 1000
    code, output, _ = invoke(*options, "--csv", str(table))  # over a map of its own
    assert code == 0
    assert "wins in" in output
