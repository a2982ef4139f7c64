import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sparsetoken.reproduce import kinds
from sparsetoken.reproduce.claim import Quantity, Table
from sparsetoken.reproduce.kinds import (
    alignment,
    capacity_trial,
    compared,
    counted_error,
    prediction,
    query_trial,
    strength,
    trial,
)
from sparsetoken.reproduce.measurement import (
    Measurement,
    compute_cell,
    compute_measurement,
    tabulate,
)
from sparsetoken.simulation.trials import Trial, run_trial
from sparsetoken.task import Query, Task, Training
from sparsetoken.validation import ParameterError

TASK = Task(10, 1, 5.0, 0.5)
TRAINING = Training(4.0, 2.0)


def test_measurements_are_plain_data_and_their_key_ignores_the_labels() -> None:
    one = prediction.ask(TASK, TRAINING, "attention", Query(0.8, 1.0), part="a")
    two = prediction.ask(TASK, TRAINING, "attention", Query(0.8, 1.0), part="b")
    assert one.key == two.key
    assert one.key != prediction.ask(TASK, TRAINING, "attention", Query(0.7, 1.0)).key
    assert json.loads(json.dumps(one.arguments)) == one.arguments
    assert one.labels == {"source": "theory", "classifier": "attention", "part": "a"}


def test_trials_of_a_point_become_its_mean_error_and_spread() -> None:
    labels = {"source": "simulation", "point": 1}
    trials = [Measurement("trial", {"trial": k}, labels) for k in range(3)]
    theory = Measurement("prediction", {}, {"source": "theory", "point": 1})
    results = [{"value": 1.0}, {"value": 2.0, "margin": 0.1}, {"value": 6.0}, {"value": 3.5}]
    table = tabulate([*trials, theory], results, {})
    row = table.select(source="simulation").rows[0]
    assert row["trials"] == 3
    assert row["value"] == 3
    assert row["value_spread"] == pytest.approx(np.std([1, 2, 6], ddof=1))
    assert row["value_uncertainty"] == pytest.approx(row["value_spread"] / np.sqrt(3))
    assert "margin" not in row, "a mean over some of the trials would mislead"
    [(found, compared)] = table.paired("value", ("point",))
    assert found is row
    assert (compared.mean, compared.freedom, compared.theory) == (3, 2, 3.5)


def test_compared_points_have_theory_wherever_they_have_trials_at_two_sizes() -> None:
    settings = {"trials": 2, "dimension": 20, "seed": 0, "tolerance": 1e-3}
    asked = compared("x", [1.0, 2.0], [3.0], lambda x: (TASK, Training(1.0, x), None), settings)
    points = [(one.labels["source"], one.labels["x"], one.labels.get("dimension")) for one in asked]
    assert points == [
        ("theory", 1.0, None),
        ("theory", 2.0, None),
        ("theory", 3.0, None),
        *[("simulation", 3.0, 20)] * 2,
        *[("simulation", 3.0, 5)] * 2,
    ]


def test_trials_repeat_and_differ_by_number_and_seed() -> None:
    first, second = trial.ask_trials(2, TASK, TRAINING, 30, query=Query(0.8, 1.0))
    (other_seed,) = trial.ask_trials(1, TASK, TRAINING, 30, query=Query(0.8, 1.0), seed=1)
    errors = [compute_measurement(one)["test_error"] for one in (first, second, other_seed)]
    assert len(set(errors)) == 3
    assert compute_cell(first.cell, 0)["test_error"] == errors[0]
    cosines = [
        compute_measurement(one)["alignment"]
        for one in query_trial.ask_trials(2, TASK, TRAINING, 50)
    ]
    assert cosines[0] != cosines[1]


def test_the_query_alone_has_the_law_of_the_whole_training() -> None:
    only, whole = (
        [compute_measurement(one)["alignment"] for one in kind.ask_trials(40, TASK, TRAINING, 60)]
        for kind in (query_trial, trial)
    )
    error = np.hypot(np.std(only), np.std(whole)) / np.sqrt(40)
    assert abs(np.mean(only) - np.mean(whole)) < 4 * error
    theory = compute_measurement(alignment.ask(TASK, TRAINING))
    assert theory["misalignment"] == pytest.approx(1 - theory["alignment"])


@pytest.mark.parametrize("classifier", ["pooled", "attention", "bayes"])
def test_errors_counted_at_the_required_strength_are_those_asked_for(classifier: str) -> None:
    # 16000 labels: the standard error of a share of 5 % is 0.17 %; accept 4 of them.
    asked = counted_error.ask(Task(20, 1, 1.0, 0.4), 0.05, classifier, samples=4000, trials=4)
    counted = compute_measurement(asked)
    assert counted["test_error"] == pytest.approx(0.05, abs=4 * 0.0017)
    (row,) = tabulate([asked], [counted], {}).rows
    assert row["trials"] == 4
    assert row["test_error_uncertainty"] == pytest.approx(0.0017, rel=1)


def test_separated_data_count_even_if_their_margin_is_not_found_to_the_last_digit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def imprecise(*arguments: Any, **options: Any) -> Trial:
        return replace(run_trial(*arguments, **options), converged=False, residual=2e-8)

    monkeypatch.setattr(kinds, "run_trial", imprecise)
    task, query = Task(10, 1, 3.0, 0.5), Query(0.8, 1.5)
    (asked,) = capacity_trial.ask_trials(1, task, 50, 0.5, query=query)
    found = compute_measurement(asked)
    assert found["separable"] == 1
    assert found["train_loss"] == 0


def test_a_strength_at_fixed_sharpness_is_at_least_the_best_and_known_as_well() -> None:
    task = Task(30, 1, 1.0, 0.5)
    best, fixed = (
        compute_measurement(one)
        for one in (
            strength.ask(task, 0.05, "elementwise", "tanh"),
            strength.ask(task, 0.05, "elementwise", "tanh", 3.0),
        )
    )
    assert fixed["strength"] > best["strength"]
    assert fixed["sharpness"] == 3.0
    assert fixed["strength_uncertainty"] < 1e-3 * fixed["strength"]


def test_unknown_work_is_refused() -> None:
    with pytest.raises(ParameterError, match="kind"):
        compute_measurement(Measurement("sparsetoken.reproduce.kinds:compared", {}, {}))
    asked = counted_error.ask(Task(20, 2, 1.0, 0.4), 0.05, "bayes", samples=100, trials=2)
    with pytest.raises(ParameterError, match="R = 1"):
        compute_measurement(asked)
    asked = counted_error.ask(Task(20, 1, 1.0, 0.4), 0.05, "vectorised", samples=100, trials=2)
    with pytest.raises(ParameterError, match="'bayes', 'pooled'"):
        compute_measurement(asked)


def test_a_table_selects_orders_and_lists() -> None:
    table = Table([{"a": 2, "b": "x"}, {"a": 1, "b": "y"}, {"a": 3}], {})
    assert list(table.ordered("a").column("a")) == [1, 2, 3]
    assert table.distinct("b") == ["x", "y"]
    assert len(table.select(b=("x", "y"))) == 2
    assert len(table.select(b="x", a=1)) == 0


def test_quantities_show_two_digits_of_their_uncertainty() -> None:
    assert str(Quantity(0.123456, 0.00123)) == "0.1235 ± 0.0012"
    assert str(Quantity(12.3456, 1.5)) == "12.3 ± 1.5"
    assert str(Quantity(0.123456)) == "0.1235"
    assert str(Quantity(0.499999987, 7e-9)) == "0.5 ± 7e-09"
