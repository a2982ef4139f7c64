"""`sparsetoken simulate`: the table, JSON and CSV, errors, and an interrupt."""

import csv
import json

import pytest
from click.testing import CliRunner

from sparsetoken import Task, Training, run_trial, simulate
from sparsetoken.cli import main
from sparsetoken.simulation import trials as trials_module
from sparsetoken.uncertainty import z_scores

SMALL = ["simulate", "--dimension", "30", "--trials", "4"]


def run(*arguments):
    return CliRunner().invoke(main, [*SMALL, *arguments])


def test_shows_theory_beside_simulation():
    result = run()
    assert result.exit_code == 0, result.output
    for text in ("test error", "train loss", "alignment", "theory", "4 of 4 trials"):
        assert text in result.stdout


def test_json_holds_the_trials_and_their_z_scores():
    result = run("--json", "--ridge", "0.01", "--seed", "3", "--at-length", "20")
    record = json.loads(result.stdout)
    task = Task(10, 1, 5.0)
    training = Training(4.0, 4.0, ridge=0.01, query_step=20.0)
    same = simulate(task, training, dimension=30, trials=4, at=task.replace(length=20), seed=3)
    assert [t["test_error"] for t in record["trials"]] == [t.test_error for t in same.trials]
    assert record["interrupted"] is False
    row, bar = record["result"], record["theory"]["test_error_uncertainty"]
    difference = row["test_error"] - record["theory"]["test_error"]
    expected = z_scores(difference, row["test_error_uncertainty"], freedom=3, bar=bar)
    assert record["z"]["test_error"] == pytest.approx(float(expected))
    assert record["settings"]["at"]["length"] == 20


def test_csv_has_a_row_for_every_trial(tmp_path):
    path = tmp_path / "trials.csv"
    result = run("--csv", str(path), "--classifier", "pooled", "--fresh-test", "20")
    assert result.exit_code == 0, result.output
    assert f"Wrote {path}" in result.stderr
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert [int(row["trial"]) for row in rows] == [0, 1, 2, 3]
    expected = run_trial(
        Task(10, 1, 5.0),
        Training(4.0, 4.0, query_step=20.0),
        dimension=30,
        trial=2,
        classifier="pooled",
    )
    assert float(rows[2]["train_loss"]) == expected.train_loss


@pytest.mark.parametrize(
    "wrong",
    [
        ("--ridge", "-1"),
        ("--dimension", "1"),
        ("--trials", "0"),
        ("--sampler", "magic"),
        ("--classifier", "vectorised", "--at-length", "12"),
        ("--alignment", "0.5"),
    ],
)
def test_bad_values_are_one_message_and_exit_code_2(wrong):
    result = run(*wrong)
    assert result.exit_code == 2
    assert "Traceback" not in result.output
    assert result.stderr.count("Error") == 1


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("missing/trials.csv", "missing does not exist"),
        ("file/trials.csv", "file is not a folder"),
        (".", "is a folder, not a file"),
    ],
)
def test_a_table_that_cannot_be_written_is_refused_before_the_trials(
    tmp_path, monkeypatch, place, message
):
    def never(*_, **__):
        raise AssertionError

    monkeypatch.setattr(trials_module, "run_trial", never)
    (tmp_path / "file").touch()
    result = run("--csv", str(tmp_path / place))
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.count("Error") == 1


def test_too_little_memory_for_whole_sequences_points_to_the_other_sampler(monkeypatch):
    def full(*_, **__):
        raise MemoryError

    monkeypatch.setattr(trials_module, "run_trial", full)
    result = run("--sampler", "plain")
    assert result.exit_code == 2
    assert "use --sampler reduced" in result.stderr


def test_too_little_memory_is_told_with_the_dimension_and_the_gigabytes():
    result = CliRunner().invoke(main, ["simulate", "--dimension", "9000000", "--trials", "1"])
    assert result.exit_code == 2
    assert "not enough memory for this: dimension = 9000000, for the features" in result.stderr
    assert "GB" in result.stderr


def test_an_interrupt_shows_what_has_finished(monkeypatch):
    def interrupted(*arguments, **options):
        if options["trial"] == 2:
            raise KeyboardInterrupt
        return run_trial(*arguments, **options)

    monkeypatch.setattr(trials_module, "run_trial", interrupted)
    result = run()
    assert result.exit_code == 130
    assert "2 of 4 trials" in result.stdout
    assert "test error" in result.stdout


def test_an_interrupt_before_the_first_trial_shows_nothing(monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(trials_module, "run_trial", interrupted)
    result = run()
    assert result.exit_code == 1
    assert "test error" not in result.stdout


def test_trials_that_did_not_converge_are_told(monkeypatch):
    from dataclasses import replace

    def failed(*arguments, **options):
        return replace(run_trial(*arguments, **options), converged=False, message="stuck: do this")

    monkeypatch.setattr(trials_module, "run_trial", failed)
    assert "4 trials did not converge: stuck: do this" in run().stdout
