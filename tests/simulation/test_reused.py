"""Data that train query and readout: the reduced sampler has the law of the plain one."""

from dataclasses import asdict

import numpy as np
import pytest
from scipy.stats import ks_2samp

from sparsetoken import (
    ParameterError,
    Query,
    Task,
    Training,
    capacity,
    predict,
    run_trial,
    simulate,
)
from sparsetoken.arrays import Array
from sparsetoken.simulation.draws import DRAWS
from sparsetoken.simulation.protocol import WAYS, Protocol
from sparsetoken.simulation.random_streams import stream

TASK = Task(5, 2, 2.5, 0.4)
TRAINING = Training(
    2.0,
    2.0,
    ridge=0.05,
    readout_step=1.0,
    query_step=20.0,
    inverse_temperature=1.5,
    reuse=True,
)


def trained(sampler: str, dimension: int, trials: int) -> dict[str, Array]:
    """Return the numbers that decide the test error, and the training loss, of each trial.

    They take a third of the time that the test error itself takes.
    """
    protocol = Protocol(TASK, TRAINING, dimension, "attention", check_separable=False)
    results = [WAYS[sampler](protocol, stream(3, {"way": sampler}, k)) for k in range(trials)]
    rows = [
        {**asdict(each.query), **asdict(each.geometry), "train_loss": each.readout.train_loss}
        for each in results
    ]
    known = [name for name, value in rows[0].items() if value is not None]
    return {name: np.array([row[name] for row in rows]) for name in known}


@pytest.mark.parametrize("dimension", [3, 12])
def test_reduced_and_plain_have_the_same_law(dimension: int) -> None:
    """520 trials each: |z| <= 4 between means, which notices shifts of 0.25 sd, and the same shape.

    The shape by Kolmogorov-Smirnov with p > 1e-3. At such dimensions any mistake of one degree of
    freedom is far larger than in the limit.
    """
    trials = 520
    plain, reduced = (trained(sampler, dimension, trials) for sampler in ("plain", "reduced"))
    assert len(plain) == 9
    for name, values in plain.items():
        difference = values.mean() - reduced[name].mean()
        assert abs(difference) <= 4 * np.sqrt(2 / trials) * values.std(), name
        assert ks_2samp(values, reduced[name]).pvalue > 1e-3, name


def test_reduced_simulation_meets_the_theory() -> None:
    """|z| <= 4 and 1 % for the dimension."""
    found = simulate(TASK, TRAINING, dimension=300, trials=40, check_separable=False, seed=1)
    theory = predict(TASK, TRAINING)
    for field in ("test_error", "train_loss", "train_error"):
        value, mean, error = getattr(theory, field), found.mean(field), found.standard_error(field)
        assert mean is not None
        assert error is not None
        assert abs(mean - value) <= 4 * error + 0.01 * value, field


def test_reuse_changes_nothing_without_a_learnt_query() -> None:
    split = TRAINING.replace(reuse=False)
    for sampler in ("plain", "reduced"):
        ours, theirs = (
            simulate(
                TASK,
                each,
                dimension=60,
                trials=40,
                sampler=sampler,
                check_separable=False,
                classifier="pooled",
            )
            for each in (TRAINING, split)
        )
        difference = ours.mean("train_loss") - theirs.mean("train_loss")
        error = np.hypot(ours.standard_error("train_loss"), theirs.standard_error("train_loss"))
        assert abs(difference) <= 4 * error


def test_a_given_query_leaves_nothing_to_reuse() -> None:
    options = {"dimension": 20, "query": Query(0.8, 1.0)}
    with pytest.raises(ParameterError, match=r"reuse = True .* False with a given query"):
        simulate(TASK, TRAINING, trials=1, **options)
    with pytest.raises(ParameterError, match=r"reuse = True .* False with a given query"):
        run_trial(TASK, TRAINING, trial=0, **options)


def test_what_cannot_be_drawn_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ParameterError, match=r"dimension = 2 .*plain"):
        run_trial(TASK, TRAINING, dimension=2, trial=0)
    kind = type(DRAWS["attention"])
    other = type("Other", (kind,), {"reused": kind.__mro__[1].reused})
    monkeypatch.setitem(DRAWS, "other", other())
    with pytest.raises(ParameterError, match=r"sampler = 'reduced' .* 'plain'"):
        run_trial(TASK, TRAINING, dimension=10, trial=0, classifier="other")


def test_capacity_without_a_split_is_where_data_cease_to_be_separable() -> None:
    """Pure noise, d = 100: the transition is 6 % wide, and 13 % away on either side it is over.

    12 trials: 97 % of them expected on the right side, 8 of 12 accepted (z = -6). With the capacity
    2 of a split both sides would be inseparable.
    """
    noise = Task(10, 1, 0.0)
    training = Training(2.0, 2.0, loss="squared_hinge", ridge=0.0, query_step=60.0, reuse=True)
    limit = capacity(noise, training).alpha
    assert 0.87 * limit > 2.3
    for ratio, separable in ((0.87, True), (1.13, False)):
        at = training.replace(alpha0=ratio * limit, alpha1=ratio * limit)
        found = [run_trial(noise, at, dimension=100, trial=k).separable for k in range(12)]
        assert found.count(separable) >= 8
