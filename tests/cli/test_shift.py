"""`sparsetoken shift`, and how a trained classifier is used in `predict` and `simulate`."""

import json
import math

import pytest
from click.testing import CliRunner

from sparsetoken import Query, Task, Training, predict, shift
from sparsetoken.cli import main

SETTING = ["--length", "20", "--alpha1", "8", "--ridge", "0.01"]
LEARNT = [*SETTING, "--alpha0", "8", "--query-step", "40"]
TASK = Task(20, 1, 5.0)
TRAINING = Training(8, 8, ridge=0.01, query_step=40)


def run(*arguments, code=0):
    result = CliRunner().invoke(main, list(arguments))
    assert result.exit_code == code, result.output
    return result


def test_shift_shows_every_way_of_use_and_says_what_repairs_it():
    options = ["--to", "500", "--points", "2", "--at-sharpness", "2", "--at-sharpness", "inf"]
    text = run("shift", *LEARNT, *options).output
    for words in (
        "trained best bias",
        "sharpness 2 best bias",
        "hard best bias",
        "best pair",
        "oracle",
    ):
        assert words in text
    assert "two numbers, it errs in 0.077" in text


def test_lengths_are_shown_whole():
    options = ["--from", "10001", "--to", "10002", "--points", "2", "--tolerance", "0.05"]
    text = run("shift", *LEARNT, *options, "--at-sharpness", "inf").output
    assert "10001" in text.split("trained")[0]  # the head of the table


def test_shift_as_json_and_as_a_picture(tmp_path):
    picture = tmp_path / "shift.svg"
    options = ["--to", "60", "--points", "2", "--json", "--plot", str(picture)]
    given = ["--alignment", "0.9", "--sharpness", "1"]
    found = json.loads(run("shift", *SETTING, *given, *options).stdout)
    assert [row["at_length"] for row in found["results"]] == [20, 60]
    row = found["results"][1]
    expected = predict(
        TASK, TRAINING, query=Query(0.9, 1.0), at=TASK.replace(length=60), tolerance=1e-3
    )
    assert row["trained_test_error"] == pytest.approx(expected.test_error, abs=2e-3)
    assert (
        row["best_pair_test_error"]
        <= min(
            value
            for name, value in row.items()
            if name.endswith("_test_error") and name != "oracle_test_error"
        )
        + 2e-3
    )
    assert row["oracle_test_error"] < row["best_pair_test_error"]
    assert picture.read_text().startswith("<?xml")


def test_shift_over_another_field_in_python():
    found = shift(
        *(TASK, TRAINING),
        over="strength",
        values=[4.0],
        query=Query(0.9, 1.0),
        sharpness=(3.0,),
    )
    (only,) = found
    assert found.over == "at_strength"
    assert only.best in only.ways
    assert only.ways["sharpness_3_best_bias"].test_error <= only.ways["sharpness_3"].test_error


def test_shift_without_a_floor_within_reach():
    long = Task(20, 2, 5.0)
    (only,) = shift(*(long, TRAINING), values=[5000], query=Query(0.9, 2.0), tolerance=0.1)
    assert only.oracle_test_error is None
    assert "oracle_test_error" not in only.to_dict()


def test_predict_with_metrics_sharpness_and_bias():
    text = run(
        *("predict", *SETTING, "--alignment", "0.9", "--sharpness", "1", "--json"),
        *("--metric", "average_precision", "--metric", "hit_rate"),
        *("--at-sharpness", "inf", "--recalibrate", "--at-length", "50"),
    ).stdout
    found = json.loads(text)["result"]
    expected = predict(
        *(TASK, TRAINING),
        query=Query(0.9, 1.0),
        at=TASK.replace(length=50),
        at_sharpness=math.inf,
        recalibrate=True,
    )
    assert found["test_error"] == expected.test_error
    assert found["average_precision"] == expected.average_precision
    assert found["hit_rate_uncertainty"] > 0
    assert found["at_sharpness"] == "inf"
    assert found["at_bias"] == expected.at_bias


def test_a_curve_of_a_metric_is_drawn(tmp_path):
    picture = tmp_path / "auc.svg"
    run(
        *("predict", "--classifier", "pooled", "--metric", "auc", "--plot", str(picture)),
        *("--over", "alpha1", "--points", "3"),
    )
    assert picture.stat().st_size > 5000


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("roc", "recall"),
        ("precision_recall", "precision"),
        ("calibration", "probability"),
        ("free_response", "hit_rate"),
    ],
)
def test_curves_of_scores(tmp_path, name, column):
    given = ["--alignment", "0.9", "--sharpness", "1", "--tolerance", "0.1"]
    picture = tmp_path / f"{name}.svg"
    text = run("predict", *given, "--metric", name, "--json", "--plot", str(picture)).stdout
    rows = json.loads(text)["results"]
    assert len(rows) == 61
    assert all(0 <= row[column] <= 1 + 1e-12 for row in rows)
    assert picture.exists()


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        ("metric", ["predict", "--metric", "accuracy"]),
        ("metric", ["predict", "--metric", "hit_rate", "--classifier", "pooled"]),
        ("metric", ["predict", "--metric", "roc", "--metric", "auc"]),
        ("metric", ["predict", "--metric", "free_response", "--classifier", "pooled"]),
        ("at_sharpness", ["predict", "--at-sharpness", "sharp"]),
        ("at_sharpness", ["predict", "--at-sharpness", "-1"]),
        ("'best' is not a valid float", ["simulate", "--at-sharpness", "best"]),
        ("metrics", ["simulate", "--metric", "accuracy"]),
        ("sharpness", ["shift", "--at-sharpness", "-1"]),
        ("length", ["shift", "--from", "1", "--points", "2"]),
    ],
)
def test_what_does_not_apply_is_refused(words, arguments):
    output = run(*arguments, code=2).output
    assert words in output
    assert "Traceback" not in output


def test_simulate_compares_metrics_with_theory():
    text = run(
        *("simulate", "--dimension", "60", "--trials", "4", "--json"),
        *("--alignment", "0.9", "--sharpness", "1", "--positive-rate", "0.1"),
        *("--metric", "hit_rate", "--at-sharpness", "3", "--recalibrate"),
    ).stdout
    found = json.loads(text)
    assert abs(found["z"]["auc"]) < 6
    assert found["theory"]["hit_rate"] == pytest.approx(found["result"]["hit_rate"], abs=0.02)
    assert found["settings"]["at_sharpness"] == 3


def test_a_curve_of_shifts_knows_what_stays_fixed():
    known = Query(0.9, 1.0)
    found = shift(TASK, TRAINING, values=[20], query=known, tolerance=1e-2)
    fixed = {**TASK.to_dict(), **TRAINING.to_dict(), **known.to_dict()}
    assert found.settings == {"classifier": "attention", **fixed}
