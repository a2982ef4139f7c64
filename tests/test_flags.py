"""Arguments that are True or False take nothing else, whichever function has them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparsetoken import (
    AttentionClassifier,
    ParameterError,
    PooledClassifier,
    Step,
    Store,
    Task,
    Training,
    curve,
    forecast,
    phase_map,
    predict,
    run_cells,
    run_trial,
    simulate,
    simulate_descent,
)

TASK, TRAINING = Task(6, 1, 4.0), Training(2.0, 2.0, ridge=0.1)
X, Y = np.arange(400.0).reshape(100, 2, 2), np.arange(100) % 2
STEP = Step(alpha=2.0, readout_step=1.0, bias_step=1.0, query_step=1.0)
SMALL: dict[str, Any] = {"dimension": 10, "classifier": "pooled"}


def nothing(_settings: dict[str, Any], _trial: int) -> dict[str, Any]:
    return {}


def drawn(value: Any) -> Any:
    return curve(TASK, TRAINING, values=[1.0], classifier="pooled").plot(logarithmic=value)


FLAGS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "Training": ("reuse", lambda value: TRAINING.replace(reuse=value)),
    "predict": ("recalibrate", lambda value: predict(TASK, TRAINING, recalibrate=value)),
    "simulate": (
        "recalibrate",
        lambda v: simulate(TASK, TRAINING, **SMALL, trials=1, recalibrate=v),
    ),
    "run_trial": (
        "check_separable",
        lambda value: run_trial(TASK, TRAINING, **SMALL, trial=0, check_separable=value),
    ),
    "simulate_descent": (
        "reuse",
        lambda value: simulate_descent(TASK, [STEP], dimension=10, sampler="plain", reuse=value),
    ),
    "phase_map": ("with_capacity", lambda value: phase_map(TASK, TRAINING, with_capacity=value)),
    "forecast": ("backtest", lambda value: forecast(PooledClassifier(), X, Y, backtest=value)),
    "fit": ("verbose", lambda value: AttentionClassifier(verbose=value).fit(X, Y)),
    "plot": ("logarithmic", drawn),
    "run_cells": (
        "retry_failed",
        lambda value: run_cells(
            [{"a": 1}], "s.sqlite", function=nothing, trials=1, retry_failed=value
        ),
    ),
    "Store": ("check", lambda value: Store("s.sqlite", check=value)),
}


@pytest.mark.parametrize("value", ["no", "", 1, None], ids=repr)
@pytest.mark.parametrize("function", FLAGS)
def test_what_is_neither_true_nor_false_is_refused(
    function: str, value: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    parameter, call = FLAGS[function]
    with pytest.raises(ParameterError, match=f"{parameter} = .* expected .*True or False"):
        call(value)
    assert not list(tmp_path.iterdir())


def test_the_truth_values_of_numpy_are_accepted_and_kept_as_plain_ones() -> None:
    for function in ("Training", "run_trial", "simulate_descent", "plot"):
        FLAGS[function][1](np.True_)
    usual = predict(TASK, TRAINING, classifier="pooled", recalibrate=True)
    given = predict(TASK, TRAINING, classifier="pooled", recalibrate=np.True_)
    assert (given.test_error, given.at_bias) == (usual.test_error, usual.at_bias)
    found = FLAGS["simulate"][1](np.True_)
    assert json.loads(json.dumps(found.settings()))["recalibrate"] is True


def test_the_trials_that_are_wanted_of_a_store_are_a_number() -> None:
    with pytest.raises(ParameterError, match=r"trials = '3' .* an integer"):
        Store("s.sqlite", trials="3")  # type: ignore[arg-type]
