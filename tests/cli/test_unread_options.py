"""Options that a call would not read are refused, as arguments are in Python."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from sparsetoken.cli import main

UNREAD = {
    "floor --over alpha --alpha 5": "--alpha",
    "predict --over alpha1 --alpha1 5": "--alpha1",
    "capacity --classifier pooled --loss hinge": "--loss",
    "capacity --classifier pooled --query-step 9": "--query-step",
    "capacity --alignment 0.5 --sharpness 2 --alpha0 3": "--alpha0",
    **{
        f"{command} {option}": option.split()[0]
        for command in (
            "predict --classifier pooled",
            "predict --classifier vectorised --over alpha1",
            "predict --alignment 0.9 --sharpness 2",
            "predict --over alignment --sharpness 2",
            "shift --alignment 0.9 --sharpness 2",
            "simulate --classifier pooled",
            "simulate --alignment 0.9 --sharpness 2",
            "map --classifier pooled --classifier vectorised",
        )
        for option in (
            "--alpha0 3",
            "--readout-step 9",
            "--bias-step 9",
            "--query-step 9",
            "--inverse-temperature 9",
            "--reuse",
        )
    },
    "map --classifier pooled --alpha1 3": "--alpha1",
    "map --classifier pooled --x strength 1 5 --y length 5 9 --query-step 9": "--query-step",
    "map --reuse --alpha0 3 --alpha1 3": "--alpha0",
    "map --reuse --x strength 1 5 --y alpha0 1 5 --alpha1 3 --alpha0 3": "--alpha0",
    "predict --reuse --over alpha0 --alpha1 3 --alpha0 3": "--alpha0",
    "capacity --ridge 3": "--ridge",
    "capacity --alpha1 3": "--alpha1",
    "capacity --reuse --alpha0 4": "--alpha0",
    "map --x strength 1 5 --strength 3": "--strength",
    "predict --over sharpness --alignment 0.9 --sharpness 2": "--sharpness",
    "align --ridge 3": "--ridge",
    "align --reuse": "--reuse",
    "oracle --error 0.1 --strength 9": "--strength",
    "oracle --error 0.1 --over length --length 7": "--length",
    "descend --schedule schedule.json --steps 2": "--steps",
    "descend --schedule schedule.json --query-step 9": "--query-step",
    "descend --dimension 100": "--dimension",
    "descend --seed 4": "--seed",
    "plan --error 0.1 --trials 0 --assurance 0.9": "--assurance",
    "plan --error 0.1 --trials 0 --seed 3": "--seed",
    "sweep check study.toml --workers 3": "--workers",
    "explore --export page.html --port 99": "--port",
    "explore --export page.html --no-browser": "--no-browser",
    "reproduce --list --seed 4": "--seed",
    "reproduce --list --force": "--force",
    **{
        f"{command} --force": "--force"
        for command in (
            "predict",
            "floor",
            "map",
            "plan",
            "simulate",
            "shift",
            "descend",
            "explore",
        )
    },
    "forecast data.npz --force": "--force",
    "diagnose data.npz --force": "--force",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    step = {"alpha": 2.0, "readout_step": 1.0, "bias_step": 0.5, "query_step": 2.0}
    (tmp_path / "schedule.json").write_text(json.dumps([step]))
    (tmp_path / "data.npz").write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("call", UNREAD)
def test_what_is_not_read_is_refused_by_name(call: str, folder: Path) -> None:
    before = sorted(folder.iterdir())
    result = CliRunner().invoke(main, call.split())
    assert result.exit_code == 2
    assert f"{UNREAD[call]} has no effect here: " in result.output
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize(
    "call",
    [
        "floor --over alpha --points 2",
        "capacity --classifier pooled --strength 3",
        "capacity --query-step 9",
        "predict --over sharpness --alignment 0.9 --points 2 --from 1",
        "predict --classifier pooled --alpha1 3 --ridge 0.1 --loss square",
        "predict --over alpha1 --points 2 --alpha0 3 --query-step 9 --tolerance 0.1",
        "simulate --classifier pooled --alpha1 3 --dimension 20 --trials 1",
        "simulate --query-step 9 --reuse --dimension 20 --trials 1",
        "map --classifier pooled --y length 5 9 --alpha0 3 --alpha1 3 --reuse --points 2",
        "map --classifier pooled --capacity --query-step 9 --points 2 --ridge 1",
        "align --alpha0 3",
        "oracle --classifier pooled --error 0.1 --over length --points 2",
        "descend --steps 1 --query-step 1 --tolerance 0.1",
        "reproduce --list --questions",
    ],
)
def test_what_is_read_is_not_refused(call: str) -> None:
    result = CliRunner().invoke(main, call.split())
    assert result.exit_code == 0, result.output


def test_the_ends_of_a_map_are_named_not_its_values() -> None:
    result = CliRunner().invoke(main, ["map", "--x", "strength", "5", "5"])
    assert result.exit_code == 2
    assert "x of strength = '5 5' is not valid: expected first the smaller number" in result.output


def test_an_axis_that_no_classifier_of_a_map_reads_is_refused() -> None:
    call = ["map", "--classifier", "pooled", "--x", "query_step", "1", "5", "--points", "2"]
    result = CliRunner().invoke(main, call)
    assert result.exit_code == 2
    assert "x = 'query_step' is not valid: expected a setting that pooled reads" in result.output
