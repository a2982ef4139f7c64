"""The examples and the benchmark run, and show what they say they show."""

import os
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest

from sparsetoken import DigitBags, ParameterError, digit_bags

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
FIGURES = {
    "plot_bag_length": 1,
    "plot_digit_bags": 1,
    "plot_grid_search": 1,
    "plot_recalibration": 1,
    "plot_sensor_windows": 2,
}
OTHERS = sorted({path.stem for path in (ROOT / "examples").glob("plot_*.py")} - FIGURES.keys())


@pytest.fixture(autouse=True)
def _no_display() -> Iterator[None]:
    backend = mpl.get_backend()
    plt.switch_backend("Agg")
    yield
    plt.close("all")
    plt.switch_backend(backend)


def run(name: str) -> dict[str, object]:
    return runpy.run_path(str(ROOT / "examples" / f"{name}.py"))


def test_bag_length() -> None:
    errors = run("plot_bag_length")["errors"]
    assert len(plt.get_fignums()) == FIGURES["plot_bag_length"]
    assert errors["attention"][-1].mean() < errors["pooled"][-1].mean() - 0.2


def test_digit_bags(capsys: pytest.CaptureFixture[str]) -> None:
    names = run("plot_digit_bags")
    assert len(plt.get_fignums()) == FIGURES["plot_digit_bags"]
    assert names["model"].score(names["test"].X, names["test"].y) > 0.9
    assert "most attended image" in capsys.readouterr().out


def test_grid_search(capsys: pytest.CaptureFixture[str]) -> None:
    names = run("plot_grid_search")
    assert len(plt.get_fignums()) == FIGURES["plot_grid_search"]
    best = names["search"].cv_results_
    gamma, ridge = (list(names["grid"][key]) for key in names["grid"])
    for score, parameters in zip(best["mean_test_score"], best["params"], strict=True):
        row = gamma.index(parameters["features__transformer__gamma"])
        column = ridge.index(parameters["attention__ridge"])
        assert names["scores"][row, column] == score, "the picture has its axes the right way"
    assert "cross-validated accuracy" in capsys.readouterr().out


def test_recalibration(capsys: pytest.CaptureFixture[str]) -> None:
    errors = run("plot_recalibration")["errors"]
    assert len(plt.get_fignums()) == FIGURES["plot_recalibration"]
    # 0.223 as trained, 0.117 and 0.157: each with a standard error of 0.02.
    for how, share in (("100 labels", 0.6), ("rate known", 0.8)):
        assert errors[f"recalibrated, {how}"][-1] < share * errors["as trained"][-1]
    assert "sharpness" in capsys.readouterr().out


def test_sensor_windows(capsys: pytest.CaptureFixture[str]) -> None:
    names = run("plot_sensor_windows")
    assert len(plt.get_fignums()) == FIGURES["plot_sensor_windows"]
    assert names["comparison"].advice.startswith("Attention pays")
    assert "Attention pays" in capsys.readouterr().out


@pytest.mark.parametrize("name", OTHERS)
def test_every_other_example_runs_and_draws(name: str) -> None:
    run(name)
    assert plt.get_fignums()


def test_benchmark_of_digit_bags(tmp_path: Path) -> None:
    arguments = ["--seeds", "2", "--lengths", "5", "--without-network"]
    finished = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "digit_bags.py"), *arguments],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env=os.environ | {"MPLBACKEND": "Agg"},
    )
    for model in ("mean pooling", "max pooling", "attention"):
        assert f"| 5 | {model} |" in finished.stdout


def test_digit_bags_hold_one_wanted_digit_and_share_no_image() -> None:
    train, test = digit_bags(7, train=60, test=80, digit=3, seed=1)
    for bags, count in ((train, 60), (test, 80)):
        assert isinstance(bags, DigitBags)
        assert bags.X.shape == (count, 7, 64)
        assert bags.y.sum() == count // 2
        assert ((bags.positions >= 0) == (bags.y == 1)).all()
    seen = {image.tobytes() for image in train.X.reshape(-1, 64)}
    assert not seen & {image.tobytes() for image in test.X.reshape(-1, 64)}
    _, longer = digit_bags(30, train=2, test=80, digit=3, seed=1, halves_of=7)
    assert not seen & {image.tobytes() for image in longer.X.reshape(-1, 64)}
    _, other = digit_bags(30, train=2, test=80, digit=3, seed=1)
    assert seen & {image.tobytes() for image in other.X.reshape(-1, 64)}, "halves of their own"
    for argument in ("length", "train", "test", "halves_of"):
        with pytest.raises(ParameterError, match=f"^{argument} = 0 is not valid"):
            digit_bags(**{"length": 7, argument: 0})


@pytest.mark.parametrize("digit", [10, -1, "9", [3, 11]])
def test_digits_that_do_not_exist_are_refused(digit: object) -> None:
    with pytest.raises(ParameterError, match="digit = "):
        digit_bags(4, digit=digit)  # type: ignore[arg-type]
