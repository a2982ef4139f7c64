"""The commands on a person's own data: forecast and diagnose."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from sparsetoken.cli import main


def invoke(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, [*arguments], catch_exceptions=False)
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sequences of six tokens, one of which carries a strong signal if y is "yes"."""
    rng = np.random.default_rng(0)
    X, positive = rng.standard_normal((160, 6, 4)), np.arange(160) % 2 == 1
    X[positive, 2] += 2.0
    path = tmp_path_factory.mktemp("data") / "mine.npz"
    np.savez(path, X=X, y=np.where(positive, "yes", "no"), mask=np.ones((160, 6), dtype=bool))
    return path


def test_a_forecast_as_json_with_a_picture(data: Path, tmp_path: Path) -> None:
    picture = tmp_path / "forecast.svg"
    code, output, errors = invoke(
        *("forecast", str(data), "--target", "0.1", "--model", "pooled", "--repeats", "1"),
        *("--no-backtest", "--workers", "1", "--json", "--plot", str(picture)),
    )
    assert code == 0
    answer = json.loads(output)
    assert answer["settings"]["target"] == 0.1
    assert answer["settings"]["model"] == "pooled"
    assert answer["result"]["model"] == "PooledClassifier"
    assert answer["result"]["samples"] == 160
    assert answer["result"]["required_verdict"] in ("reached", "needed", "cannot say")
    assert picture.stat().st_size > 1000
    assert "Wrote" in errors


def test_a_forecast_in_words(data: Path) -> None:
    code, output, _ = invoke(
        *("forecast", str(data), "--model", "pooled", "--repeats", "1", "--no-backtest"),
        *("--workers", "1"),
    )
    assert code == 0
    assert "PooledClassifier" in output


def test_a_diagnosis_in_words_with_a_picture_and_as_json(data: Path, tmp_path: Path) -> None:
    picture = tmp_path / "diagnosis.png"
    options = ("diagnose", str(data), "--cv", "2", "--splits", "1")
    code, output, _ = invoke(*options, "--plot", str(picture))
    assert code == 0
    assert "160 sequences of 6 tokens in 4 dimensions" in output
    assert "strength" in output
    assert picture.stat().st_size > 1000
    code, as_json, _ = invoke(*options, "--json")
    assert code == 0
    result = json.loads(as_json)["result"]
    assert result["samples"] == 160
    assert result["findings"][0] in output


@pytest.mark.parametrize("command", ["forecast", "diagnose"])
def test_bad_files_are_one_message_with_code_2(command: str, tmp_path: Path) -> None:
    X, y = np.zeros((40, 3, 2)), np.arange(40) % 2
    files = {
        "other.npz": ({"a": X}, "arrays named X and y"),
        "short.npz": ({"X": X, "y": y[:-1]}, "y (n,)"),
        "texts.npz": ({"X": X.astype(str), "y": y}, "of numbers"),
        "pickled.npz": ({"X": np.array([{}] * 40), "y": y}, "plain arrays"),
        "mask.npz": ({"X": X, "y": y, "mask": np.ones((40, 2), dtype=bool)}, "mask"),
    }
    for name, (arrays, message) in files.items():
        np.savez(tmp_path / name, **arrays)
        code, output, errors = invoke(command, str(tmp_path / name))
        assert (code, output) == (2, ""), name
        assert message in errors, name
    (tmp_path / "text.npz").write_text("hello")
    np.save(tmp_path / "single.npy", X)
    for name in ("text.npz", "single.npy", "missing.npz"):
        code, _, errors = invoke(command, str(tmp_path / name))
        assert code == 2
        assert name in errors or ".npz file" in errors


def test_bad_options_are_refused_before_any_work(data: Path, tmp_path: Path) -> None:
    for options, message in (
        (("--target", "0.9"), "target"),
        (("--model", "forest"), "forest"),
        (("--plot", str(tmp_path / "x.txt")), ".svg"),
        (("--plot", str(data)), ".svg"),
    ):
        code, output, errors = invoke("forecast", str(data), *options)
        assert (code, output) == (2, "")
        assert message in errors
