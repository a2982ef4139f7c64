"""The sweep command, in this process; tests/sweeps has the tests with trouble."""

import csv
import json
import os
import pty
import subprocess
import sys
from concurrent.futures import Future
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sparsetoken.cli import main
from sparsetoken.sweeps import Store, parse_study, read_study
from sparsetoken.sweeps.run import study_fingerprint

STUDY = """
title = "A small study"
classifiers = ["attention", "pooled"]
dimensions = [20, 30]
trials = 2
[task]
length = 4
informative = 1
strength = 3
[training]
alpha0 = 2
alpha1 = [1, 2]
loss = "square"
ridge = 0.1
"""


def sweep(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["sweep", *map(str, arguments)])


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sweep") / "study.toml"
    path.write_text(STUDY)
    result = sweep("run", path, "--workers", 1)
    assert result.exit_code == 0, result.output
    assert "cells 8/8, theory of 8, trials 16/16; 16 trials in" in result.output
    return path


def test_init_writes_a_valid_study_and_never_overwrites(tmp_path: Path) -> None:
    path = tmp_path / "new.toml"
    assert sweep("init", path).exit_code == 0
    assert f"sparsetoken sweep run {path}" in path.read_text()
    assert len(read_study(path).cells()) == 24
    path.write_text("mine")
    result = sweep("init", path)
    assert (result.exit_code, path.read_text()) == (2, "mine")
    assert result.output == f"Error: {path} cannot be written: File exists\n"


def test_trials_and_theory_agree_on_names_and_roughly_on_numbers(study: Path) -> None:
    with Store(study.with_suffix(".sqlite")) as store:
        assert set(store.columns("theory")) & set(store.columns("trials")) >= {
            "alignment", "sharpness", "test_error", "train_loss", "train_error", "margin"
        }  # fmt: skip
        theory = {row["cell"]: row["test_error"] for row in store.theory_rows()}
        for row in store.rows():
            assert row["error"] is None
            assert abs(row["test_error"] - theory[row["cell"]]) < 0.2


def test_another_number_of_trials_counts_before_the_next_run(study: Path, tmp_path: Path) -> None:
    store, file = ("--store", study.with_suffix(".sqlite")), tmp_path / "trials.csv"
    for trials, status in (
        (1, "cells 8/8, theory of 8, trials 8/8"),
        (3, "cells 0/8, theory of 8, trials 16/24"),
    ):
        other = tmp_path / "other.toml"
        other.write_text(STUDY.replace("trials = 2", f"trials = {trials}"))
        assert sweep("status", other, *store).output == f"{status}\n"
        assert sweep("export", other, file, *store, "--force").exit_code == 0
        assert len(file.read_text().splitlines()) == 1 + 8 * min(trials, 2)


def test_status_for_people_and_machines(study: Path) -> None:
    assert sweep("status", study).output == "cells 8/8, theory of 8, trials 16/16\n"
    facts = json.loads(sweep("status", study, "--json").output)
    assert (facts["cells"], facts["trials"], facts["done"], facts["failed"]) == (8, 16, 16, 0)
    assert "created" in facts


@pytest.mark.parametrize("kind", ["csv", "json", "parquet"])
def test_export_has_a_row_for_each_trial(study: Path, tmp_path: Path, kind: str) -> None:
    file = tmp_path / f"out.{kind}"
    result = sweep("export", study, f"--{kind}", file)
    assert (result.exit_code, result.output) == (0, f"Wrote 16 rows to {file}\n")
    other = tmp_path / f"by its ending.{kind}"
    assert sweep("export", study, other).exit_code == 0
    if kind != "parquet":
        assert other.read_bytes() == file.read_bytes()
    if kind == "csv":
        with file.open(newline="") as opened:
            rows = list(csv.DictReader(opened))
        assert len(rows) == 16
        assert {"alpha1", "classifier", "dimension", "seed", "test_error"} <= rows[0].keys()
        assert float(rows[0]["theory_test_error"]) > 0


@pytest.mark.parametrize("formats", [(), ("--csv", "--json")])
def test_export_needs_one_format(study: Path, tmp_path: Path, formats: tuple[str, ...]) -> None:
    result = sweep("export", study, *formats, tmp_path / "out")
    assert result.exit_code == 2
    assert "say which format: --csv, --parquet or --json" in result.output


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_plot_draws_lines_over_dots(study: Path, tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"out.{ending}"
    result = sweep("plot", study, "--output", file, "--scale", "loglog")
    assert (result.exit_code, result.output) == (0, f"Wrote {file}\n")
    assert file.stat().st_size > 1000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--x", "loss"],
            "'loss' is not a setting that takes different numbers; those that do: alpha",
        ),
        (["--y", "happiness"], "there is no field 'happiness' to draw; there are alignment,"),
        (["--y", "status"], "no trial has a number 'status' to draw; there are alignment,"),
        (["--y", "fresh_test_error"], "no trial has a number 'fresh_test_error' to draw"),
        (["--output", "figure.doc"], "output = 'figure.doc' is not valid"),
    ],
)
def test_plot_refuses_what_it_cannot_draw(study: Path, options: list[str], message: str) -> None:
    result = sweep("plot", study, *options)
    assert result.exit_code == 2
    assert message in result.output
    offered = result.output.partition("there are ")[2].strip().split(", ")
    assert "status" not in offered
    assert len(set(offered)) == len(offered)


@pytest.mark.parametrize(
    ("field", "title"),
    [("test_error", "A small study"), ("train_loss", "train loss, study.toml")],
)
def test_the_title_fits_what_is_drawn(study: Path, tmp_path: Path, field: str, title: str) -> None:
    file = tmp_path / "out.svg"
    assert sweep("plot", study, "--output", file, "--y", field).exit_code == 0
    assert f"<!-- {title} -->" in file.read_text()


@pytest.mark.parametrize(
    "command",
    [("run", "--store"), ("plot", "--output"), ("export", "--csv")],
    ids=lambda words: words[0],
)
def test_a_missing_folder_is_refused(study: Path, tmp_path: Path, command: tuple[str, str]) -> None:
    name, option = command
    result = sweep(name, study, option, tmp_path / "missing" / "file.png")
    assert result.exit_code == 2
    assert f"the folder {tmp_path / 'missing'} does not exist" in result.output
    assert not (tmp_path / "missing").exists()


def test_failed_trials_are_shown_and_give_exit_code_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "study.toml"
    copy.write_text(STUDY.replace("trials = 2", "trials = 1"))
    monkeypatch.setattr("sparsetoken.sweeps.run.LocalExecutor", _Failing)
    result = sweep("run", copy, "--retries", 0)
    assert result.exit_code == 1
    assert "trials 8/8 (8 failed)" in result.output
    assert "cell 0, trial 0: RuntimeError: out of luck" in result.output
    monkeypatch.undo()
    assert "(8 failed)" in sweep("status", copy).output
    errors = json.loads(sweep("status", copy, "--json").output)["errors"]
    assert errors[0] == {"cell": 0, "trial": 0, "error": "RuntimeError: out of luck"}
    assert sweep("run", copy, "--workers", 1).exit_code == 1
    assert sweep("run", copy, "--workers", 1, "--retry-failed").exit_code == 0


def test_theory_alone_that_fails_gives_exit_code_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "study.toml"
    copy.write_text(STUDY.replace("trials = 2", "trials = 0"))
    monkeypatch.setattr("sparsetoken.sweeps.run.LocalExecutor", _Failing)
    result = sweep("run", copy, "--retries", 0)
    assert "(failed in 8), trials 0/0; 0 trials in" in result.output
    assert result.exit_code == 1


def test_a_terminal_gets_a_bar_and_a_file_gets_lines(study: Path) -> None:
    command = [sys.executable, "-m", "sparsetoken", "sweep", "run", study, "--workers", "1"]
    log = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert log == "cells 8/8, theory of 8, trials 16/16, 0/s\n"
    terminal, other_end = pty.openpty()
    with os.fdopen(terminal, "rb", closefd=True), os.fdopen(other_end, "wb") as screen:
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=screen, check=True)
        shown = os.read(terminal, 100_000).decode()
    assert "━" in shown
    assert "trials 16/16" in shown
    assert "100 %" in shown


def test_a_note_says_when_versions_differ(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "versions" not in sweep("run", study, "--workers", 1).output
    monkeypatch.setattr("sparsetoken.sweeps.writer.__version__", "99.0")
    result = sweep("run", study, "--workers", 1)
    assert "Note: the trials are of several versions of sparsetoken: " in result.output
    assert "99.0" in result.output


def test_a_store_of_another_study_is_refused(study: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text(STUDY.replace("strength = 3", "strength = 4"))
    for command in (["run"], ["status"], ["plot"], ["export", "--csv", tmp_path / "out"]):
        name, *rest = command
        result = sweep(name, other, "--store", study.with_suffix(".sqlite"), *rest)
        assert result.exit_code == 2
        assert "belongs to another study" in result.output


def test_the_number_of_trials_and_the_plot_are_not_part_of_what_a_study_is(study: Path) -> None:
    more = parse_study(STUDY.replace("trials = 2", "trials = 9") + '[plot]\nx = "alpha1"\n')
    assert study_fingerprint(more) == study_fingerprint(read_study(study))
    assert study_fingerprint(parse_study("seed = 1\n" + STUDY)) != study_fingerprint(more)


class _Failing:
    """An executor whose calls all fail, as if the function were broken."""

    def __init__(self, *_: object) -> None:
        pass

    def submit(self, *_: object) -> Future[None]:
        future: Future[None] = Future()
        future.set_exception(RuntimeError("out of luck"))
        return future

    def shutdown(self, **_: object) -> None:
        pass


def test_workers_beside_a_cluster_are_refused(study: Path) -> None:
    result = sweep("run", study, "--dask", "tcp://127.0.0.1:1", "--workers", 2)
    assert result.exit_code == 2
    assert "--workers has no meaning with --dask" in result.output
    assert "cannot reach" in sweep("run", study, "--dask", "tcp://127.0.0.1:1").output
