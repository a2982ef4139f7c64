"""Results as flat records, and curves that draw themselves."""

import html
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from sparsetoken import (
    Curve,
    ParameterError,
    PooledClassifier,
    Query,
    Solution,
    Status,
    Step,
    Task,
    Training,
    capacity_curve,
    compare,
    curve,
    descend,
    diagnose,
    floor_curve,
    forecast,
    localise,
    phase_map,
    plan,
    predict,
    sample,
    shift,
    simulate,
    simulate_descent,
    strength_curve,
)
from sparsetoken.records import is_noteworthy, readable, table_cells, to_frame

TASK, TRAINING = Task(10, 1, 4.0), Training(4.0, 4.0)
STEPS = [Step(2.0, readout_step=0.5, bias_step=0.5, query_step=5.0)] * 2
CURVES: dict[str, Callable[[], Curve[Any]]] = {
    "test_error": lambda: curve(TASK, TRAINING, values=[1.0, 2.0], classifier="pooled"),
    "alpha": lambda: capacity_curve(TASK, values=[2.0, 3.0], classifier="pooled"),
    "strength": lambda: strength_curve(TASK, values=[5, 10], error=0.1, classifier="pooled"),
    "test_error of the floor": lambda: floor_curve(TASK, values=[1.0, 2.0]),
    "trained_test_error": lambda: shift(TASK, TRAINING, values=[10, 20], tolerance=1e-2),
    "test_error of a descent": lambda: descend(TASK, STEPS),
    "test_error of trials": lambda: simulate_descent(TASK, STEPS, dimension=20, trials=2),
    "recall": lambda: predict(TASK, TRAINING, classifier="pooled").roc(),
    "precision": lambda: predict(TASK, TRAINING, classifier="pooled").precision_recall(),
    "probability": lambda: predict(TASK, TRAINING, classifier="pooled").calibration(),
    "token_recall": lambda: localise(TASK, query=Query(0.8, 2.0)).free_response(),
}


@pytest.mark.parametrize("what", CURVES)
def test_every_curve_draws_what_it_is_about(what: str) -> None:
    found = CURVES[what]()
    name = what.split(" of ")[0]
    axes = found.plot()
    line = axes.get_lines()[0]
    np.testing.assert_allclose(line.get_xdata(), found.values)
    np.testing.assert_allclose(line.get_ydata(), found.column(name))
    assert axes.get_ylabel().startswith(name.replace("_", " "))
    assert axes.get_xlabel().startswith(found.over.replace("_", " "))


X, Y = sample(Task(4, 1, 4.0), 80, dimension=5, rng=0)[:2]
LARGE: dict[str, Callable[[], Any]] = {
    "Plan of 99 samples in 9 dimensions": lambda: plan(
        Task(4, 1, 4.0), dimension=9, samples=99, trials=0
    ),
    "Plan out of reach in 9 dimensions": lambda: plan(
        Task(4, 1, 4.0), dimension=9, error=0.01, trials=0
    ),
    "PhaseMap of 4 cells over strength and alpha": lambda: phase_map(
        TASK, TRAINING, x=("strength", [1, 4]), y=("alpha", [1, 2]), tolerance=0.1
    ),
    "Forecast for PooledClassifier from 80 samples": lambda: forecast(
        PooledClassifier(ridge=0.1), X, Y, repeats=1, backtest=False
    ),
    "Diagnosis of 80 samples: ": lambda: diagnose(X, Y, cv=2, splits=1),
    "Comparison of pooled, max-pooled": lambda: compare(X, Y, cv=2, repeats=1),
}


@pytest.mark.parametrize("line", LARGE)
def test_results_of_many_parts_are_one_line_and_in_notebooks_what_is_printed(line: str) -> None:
    found = LARGE[line]()
    assert repr(found).startswith(f"<{line}")
    assert len(repr(found)) < 200
    shown = found._repr_html_()
    assert shown.startswith("<pre>")
    assert html.unescape(shown.removeprefix("<pre>").removesuffix("</pre>")) == str(found)


def test_a_simulation_is_one_line_however_many_trials_it_has() -> None:
    found = simulate(TASK, TRAINING, dimension=10, trials=30, classifier="pooled")
    assert repr(found) == "<Simulation of 30 trials of pooled in 10 dimensions>"


def test_a_curve_names_what_it_can_draw() -> None:
    found = CURVES["alpha"]()
    with pytest.raises(ParameterError, match=r"quantity = 'test_error' .* one of 'alpha'"):
        found.plot("test_error")
    with pytest.raises(ParameterError, match=r"quantity = 'status'"):
        found.plot("status")


def test_a_table_says_nothing_of_the_error_of_its_own_axis() -> None:
    head, *body = table_cells(
        "rate", [{"rate": 0.1, "rate_uncertainty": 1e-16, "recall": 0.5, "recall_uncertainty": 0.1}]
    )
    assert head == ["rate", "recall"]
    assert body == [["0.1", "0.5 ± 0.1"]]


def test_frames_of_pandas_and_of_polars_alone_hold_every_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the first hundred rows leave out, and a fraction after whole numbers, is not lost."""
    rows = [{"length": 1, "margin": None}] * 101 + [{"length": 1.5, "margin": 0.2, "note": "x"}]
    lengths = np.arange(5, 7)
    found = curve(TASK, TRAINING, over="length", values=lengths, classifier="pooled")
    for library in ("pandas", "polars"):
        frame = to_frame(rows)
        assert type(frame).__module__.partition(".")[0] == library
        assert list(frame.columns) == ["length", "margin", "note"]
        assert [frame[name].to_list()[-1] for name in frame.columns] == [1.5, 0.2, "x"]
        assert found.to_frame()["length"].to_list() == [5, 6]
        assert found[0].to_frame().shape == (1, len(found[0].to_dict()))
        monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ImportError, match="pandas or polars"):
        to_frame(rows)


@pytest.mark.parametrize("status", Status)
def test_a_row_is_noteworthy_by_the_status_of_its_solution(status: Status) -> None:
    row = Solution(status, residual=0.0, steps=1).to_dict()
    assert is_noteworthy(row) == (status is not Status.CONVERGED) == ("message" in readable(row))
    assert not is_noteworthy({"test_error": 0.1})


def test_a_logarithmic_axis_has_plain_numbers() -> None:
    found = curve(TASK, TRAINING, values=[0.2, 1.0, 10.0], classifier="pooled", tolerance=1e-2)
    axes = found.plot(logarithmic=True)
    axes.figure.canvas.draw()
    assert {"1", "10"} <= {label.get_text() for label in axes.get_xticklabels()}
