import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from sparsetoken.cli import main
from sparsetoken.reproduce import registry
from sparsetoken.reproduce.claim import Claim
from sparsetoken.reproduce.measurement import Measurement


@pytest.fixture
def runner() -> CliRunner:
    return CliRunner(env={"COLUMNS": "200"})


def test_the_list_has_a_line_for_every_claim_and_question(runner: CliRunner) -> None:
    result = runner.invoke(main, ["reproduce", "--list"])
    assert result.exit_code == 0
    listed = [*registry.claims(), *registry.claims("question")]
    lines = result.output.splitlines()
    assert lines[:-1] == [f"{claim.short:>3}  {claim.title}" for claim in listed]
    assert "reproduce NUMBER --list" in lines[-1]


def test_the_list_of_numbers_has_what_each_says_and_its_criterion(runner: CliRunner) -> None:
    result = runner.invoke(main, ["reproduce", "4", "q3", "--list"])
    assert result.exit_code == 0
    words = " ".join(result.output.replace("│", " ").split())
    for claim in (*registry.select_claims([4]), *registry.select_claims([3], "question")):
        assert claim.statement.split(".")[0][:30] in words
        assert claim.criterion[:30] in words


def test_the_list_for_machines(runner: CliRunner) -> None:
    result = runner.invoke(main, ["reproduce", "11", "5", "--list", "--json"])
    assert [entry["number"] for entry in json.loads(result.stdout)] == [5, 11]


def test_chosen_claims_leave_a_report_and_a_second_run_only_reads(
    runner: CliRunner, tmp_path: Path
) -> None:
    command = ["reproduce", "4", "--quick", "--workers", "1", "--output", str(tmp_path)]
    first = runner.invoke(main, command)
    assert first.exit_code == 0, first.output
    assert "confirmed" in first.output
    assert f"Report: {tmp_path / 'report.html'}" in first.output
    verdicts = (tmp_path / "verdicts.json").read_text()
    assert [entry["claim"] for entry in json.loads(verdicts)["claims"]] == [4]
    stores = {path: path.read_bytes() for path in (tmp_path / "store").glob("*.sqlite")}
    assert len(stores) == 1
    second = runner.invoke(main, [*command, "--json"])
    assert second.exit_code == 0
    assert second.stdout == verdicts
    assert (tmp_path / "verdicts.json").read_text() == verdicts
    assert {path: path.read_bytes() for path in stores} == stores


def test_something_that_breaks_is_told_and_the_exit_code_is_1(
    runner: CliRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (claim,) = registry.select_claims([4])

    def measurements(_: Any) -> list[Measurement]:
        kind = "sparsetoken.reproduce.kinds:alignment"
        return [Measurement(kind, {"task": {"length": 1}}, {"source": "theory"})]

    broken = replace(claim, measurements=measurements)
    fine = registry_claims()[3]

    def two(series: str = "claim") -> list[Claim]:
        return [broken, replace(fine, number=5)] if series == "claim" else []

    monkeypatch.setattr(registry, "claims", two)
    command = ["reproduce", "--quick", "--workers", "1", "--output", str(tmp_path)]
    result = runner.invoke(main, command)
    assert result.exit_code == 1
    assert "Claim 4 broke" in result.output
    entries = json.loads((tmp_path / "verdicts.json").read_text())["claims"]
    assert [entry["verdict"] for entry in entries] == ["broken", "confirmed"]


registry_claims = registry.claims


def test_what_cannot_be_measured_without_a_package_says_what_to_install(
    runner: CliRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparsetoken.reproduce.claim.find_spec", lambda _: None)
    result = runner.invoke(main, ["reproduce", "Q6", "--quick", "--output", str(tmp_path)])
    assert result.exit_code == 0
    assert "not measured" in result.stdout
    told = (
        "not measured: it needs the package torch, which the extra 'bench' brings: in a clone, "
        "pip install '.[bench]'"
    )
    assert f"Question Q6 was {told}" in result.stderr
    (entry,) = json.loads((tmp_path / "verdicts.json").read_text())["questions"]
    assert (entry["verdict"], entry["seen"]) == ("not measured", told)
    assert entry["figures"] == []
    assert "it needs the package torch" in (tmp_path / "report.html").read_text()


def test_a_stopped_run_says_how_to_go_on(
    runner: CliRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sparsetoken.reproduce.examination.run_cells", stop)
    result = runner.invoke(main, ["reproduce", "4", "--quick", "--output", str(tmp_path)])
    assert result.exit_code == 130
    assert "The same command goes on" in result.output
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["99"], "claim = 99"),
        (["0"], "claim = 0"),
        (["one"], "the number of a claim, or Q and that of a question"),
        (["Q99"], "question = 99"),
        (["4", "--questions"], "no NUMBERS with --questions"),
        (["--import", "no_such_module"], "no_such_module"),
        (["--workers", "0"], "--workers"),
        (["--seed", "-1"], "--seed"),
        (["4", "--quick", "--output", "/proc/new"], "/proc/new: No such file or directory"),
    ],
)
def test_bad_arguments_are_refused_in_one_message(
    runner: CliRunner, arguments: list[str], told: str
) -> None:
    result = runner.invoke(main, ["reproduce", *arguments])
    assert result.exit_code == 2
    assert told in result.output
    assert "Traceback" not in result.output


@pytest.mark.slow
def test_a_run_of_some_claims_has_a_folder_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["reproduce", "5", "--quick", "--workers", "1"])
    assert result.exit_code == 0, result.output
    assert (tmp_path / "reproduction" / "quick" / "claims-5" / "report.html").exists()


@pytest.mark.slow
def test_a_second_reproduction_in_the_same_folder_is_refused_and_harms_nothing(
    runner: CliRunner, tmp_path: Path
) -> None:
    command = ["reproduce", "4", "--quick", "--workers", "1", "--output", str(tmp_path)]
    words = [sys.executable, "-m", "sparsetoken", *command]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as first:
        deadline = time.monotonic() + 100
        while not list(tmp_path.glob("store/*.sqlite")) and time.monotonic() < deadline:
            time.sleep(0.02)
        second = runner.invoke(main, command)
        assert first.wait(timeout=100) == 0
    assert second.exit_code == 2
    assert f"another reproduction is running in {tmp_path}" in second.output
    [entry] = json.loads((tmp_path / "verdicts.json").read_text())["claims"]
    assert entry["verdict"] == "confirmed"


def test_a_report_that_is_not_ours_is_replaced_by_force_alone(
    runner: CliRunner, tmp_path: Path
) -> None:
    (tmp_path / "report.html").write_text("<p>my report</p>")
    result = runner.invoke(main, ["reproduce", "4", "--quick", "--output", str(tmp_path)])
    assert (result.exit_code, "--force" in result.output) == (2, True)
    assert (tmp_path / "report.html").read_text() == "<p>my report</p>"
