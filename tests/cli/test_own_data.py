"""The commands on a person's own data: forecast and diagnose."""

import io
import json
import os
import zipfile
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
        assert name == "mask.npz" or f"DATA = '{tmp_path / name}'" in errors
    assert "but it has ['a']" in invoke(command, str(tmp_path / "other.npz"))[2]
    (tmp_path / "text.npz").write_text("hello")
    np.save(tmp_path / "single.npy", X)
    for name in ("text.npz", "single.npy", "missing.npz"):
        code, _, errors = invoke(command, str(tmp_path / name))
        assert code == 2
        assert name in errors or ".npz file" in errors
        assert "unsafe" not in errors  # numpy's advice for what it takes for a pickle


def forged(path: Path, X: bytes, y: np.ndarray) -> Path:
    """Write an .npz file whose X is made of these bytes."""
    written = io.BytesIO()
    np.save(written, y)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("X.npy", X)
        archive.writestr("y.npy", written.getvalue())
    return path


def test_hostile_files_are_one_message_with_code_2(data: Path, tmp_path: Path) -> None:
    """Encrypted, of another compression, with broken headers, or larger than any memory."""
    raw, y = data.read_bytes(), np.arange(160) % 2
    central, local = raw.index(b"PK\x01\x02"), raw.index(b"PK\x03\x04")
    encrypted, method = bytearray(raw), bytearray(raw)
    encrypted[central + 8] |= 1
    encrypted[local + 6] |= 1
    method[central + 10] = 99
    (tmp_path / "encrypted.npz").write_bytes(encrypted)
    (tmp_path / "method.npz").write_bytes(method)
    start = b"\x93NUMPY\x01\x00v\x00{'descr': '<f8', 'fortran_order': False, 'shape': (160, "
    forged(tmp_path / "open.npz", start.ljust(127) + b"\n", y)
    forged(tmp_path / "huge.npz", (start + b"10**9, 2), }").ljust(127) + b"\n", y)
    forged(tmp_path / "vast.npz", (start + b"9" * 15 + b", 2), }").ljust(127) + b"\n", y)
    rng = np.random.default_rng(1)
    for number in range(30):
        damaged = bytearray(raw)
        for place in rng.integers(len(raw), size=5):
            damaged[place] = rng.integers(256)
        damaged[local + 30 + rng.integers(200)] = rng.integers(256)
        (tmp_path / f"damaged{number}.npz").write_bytes(damaged)
    for path in sorted(tmp_path.iterdir()):
        code, output, errors = invoke("diagnose", str(path), "--cv", "99")
        assert (code, output) == (2, ""), path
        assert errors.count("Error:") == 1, path


def test_a_file_that_memory_cannot_hold_is_refused_before_it_is_read(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 2}.get)
    code, _, errors = invoke("diagnose", str(data))
    assert code == 2
    assert "the file needs 3.4e-05 GB; this machine has 8.19e-06 GB" in errors


@pytest.mark.parametrize("command", ["forecast", "diagnose"])
@pytest.mark.parametrize("labels", ["continuous", "nan", "complex"])
def test_labels_that_are_no_classes_are_one_message(
    data: Path, tmp_path: Path, command: str, labels: str
) -> None:
    n = 160
    y = {
        "continuous": np.linspace(0, 1, n),
        "nan": np.where(np.arange(n) % 2, np.nan, 1.0),
        "complex": (np.arange(n) % 2) * 1j,
    }[labels]
    np.savez(tmp_path / "mine.npz", X=np.load(data)["X"], y=y)
    code, output, errors = invoke(command, str(tmp_path / "mine.npz"))
    assert (code, output) == (2, "")
    assert "y = array" in errors
    assert "labels of classes" in errors


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
