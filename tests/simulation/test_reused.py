"""Data that train query and readout: the reduced sampler has the law of the plain one."""

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
from sparsetoken.simulation.samplers import SAMPLERS

TASK = Task(5, 2, 2.5, 0.4)
TRAINING = Training(2.0, 2.0, ridge=0.05, readout_step=1.0, query_step=30.0, reuse=True)
FIELDS = ("alignment", "query_norm", "readout_cosine", "test_error", "train_loss", "readout_norm",
          "bias")  # fmt: skip


@pytest.mark.parametrize("dimension", [3, 12])
def test_reduced_and_plain_have_the_same_law(dimension: int) -> None:
    """Kolmogorov-Smirnov on 300 trials each: p > 1e-3 for every quantity; notices shifts of 0.33 sd.

    At such dimensions any mistake of one degree of freedom is far larger than in the limit.
    """
    draws = {
        name: simulate(
            TASK, TRAINING, dimension=dimension, trials=300, sampler=name, check_separable=False,
            seed=3,
        )
        for name in ("plain", "reduced")
    }  # fmt: skip
    for field in FIELDS:
        found = ks_2samp(draws["plain"].values(field), draws["reduced"].values(field))
        assert found.pvalue > 1e-3, field


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
    for choice in ({"classifier": "pooled"}, {"query": Query(0.8, 1.0)}):
        for sampler in ("plain", "reduced"):
            ours, theirs = (
                simulate(TASK, each, dimension=60, trials=40, sampler=sampler, **choice)
                for each in (TRAINING, split)
            )
            difference = ours.mean("train_loss") - theirs.mean("train_loss")
            error = np.hypot(ours.standard_error("train_loss"), theirs.standard_error("train_loss"))
            assert abs(difference) <= 4 * error


def test_what_cannot_be_drawn_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ParameterError, match=r"dimension = 2 .*plain"):
        run_trial(TASK, TRAINING, dimension=2, trial=0)
    kind = type(SAMPLERS["attention"])
    other = type("Other", (kind,), {"reused": kind.__mro__[1].reused})
    monkeypatch.setitem(SAMPLERS, "other", other())
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
