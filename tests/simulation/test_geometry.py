"""Test errors without a test set: closed forms, limits, and honest error bars."""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import norm

from sparsetoken import ParameterError, Task
from sparsetoken.simulation import geometry
from sparsetoken.simulation.geometry import AttentionGeometry, PooledGeometry, VectorisedGeometry

TASK = Task(length=8, informative=2, strength=3.0, positive_rate=0.3)


def generator():
    return np.random.default_rng(0)


def test_pooled_is_closed():
    readout = PooledGeometry(on_signal=0.8, norm=1.5, bias=-0.4)
    error, uncertainty = readout.test_error(TASK, generator())
    spread = 1.5 / math.sqrt(8)
    missed = norm.cdf(-(3.0 * 2 / 8 * 0.8 - 0.4) / spread)
    alarms = norm.cdf(-0.4 / spread)
    assert error == pytest.approx(0.3 * missed + 0.7 * alarms)
    assert uncertainty == 0


def test_attention_without_sharpness_is_pooling():
    for alignment in (-0.5, 0.0, 1.0):
        across = math.sqrt(1 - alignment**2)
        readout = AttentionGeometry(alignment, 0.0, 0.7, 0.4, 0.9, -0.3)
        pooled = PooledGeometry(alignment * 0.7 + across * 0.4, math.hypot(0.7, 0.9), -0.3)
        error, uncertainty = readout.test_error(TASK, generator())
        expected, _ = pooled.test_error(TASK, generator())
        assert abs(error - expected) <= 4 * uncertainty + 1e-6


def test_attention_with_endless_sharpness_takes_one_token():
    # For a negative sequence the token is the largest of L normals.
    readout = AttentionGeometry(0.9, 1e6, 1.0, 0.0, 0.5, -1.5)
    task = TASK.replace(positive_rate=1e-9)
    error, uncertainty = readout.test_error(task, generator())
    largest = np.random.default_rng(1).standard_normal((400_000, 8)).max(axis=1)
    values = norm.cdf((largest - 1.5) / 0.5)
    spread = math.hypot(uncertainty, values.std() / math.sqrt(len(values)))
    assert abs(error - values.mean()) <= 4 * spread
    assert np.isfinite(error)


def test_the_stated_error_is_the_spread_between_seeds():
    readout = AttentionGeometry(0.8, 1.5, 1.0, 0.3, 0.8, -1.0)
    found = np.array([readout.test_error(TASK, np.random.default_rng(s)) for s in range(40)])
    spread, stated = found[:, 0].std(ddof=1), np.sqrt(np.mean(found[:, 1] ** 2))
    assert 0.6 < stated / spread < 1.6  # 40 seeds: the spread is known to about 11 %
    assert stated < 1e-3


def test_vectorised_averages_over_all_places():
    on_signal = np.linspace(-0.5, 1.0, 8)
    readout = VectorisedGeometry(on_signal, 1.2, -0.6)
    error, uncertainty = readout.test_error(TASK, generator())
    sums = [on_signal[list(s)].sum() for s in itertools.combinations(range(8), 2)]
    missed = np.mean(norm.cdf(-(3.0 * np.array(sums) - 0.6) / 1.2))
    assert error == pytest.approx(0.3 * missed + 0.7 * norm.cdf(-0.6 / 1.2))
    assert uncertainty == 0


def test_vectorised_with_many_places_draws_them(monkeypatch):
    readout = VectorisedGeometry(np.linspace(-0.5, 1.0, 8), 1.2, -0.6)
    exact, _ = readout.test_error(TASK, generator())
    monkeypatch.setattr(geometry, "MOST_SUBSETS", 20)
    drawn = np.array([readout.test_error(TASK, np.random.default_rng(s)) for s in range(200)])
    assert drawn[:, 1].min() > 0
    z = (drawn[:, 0].mean() - exact) / (drawn[:, 0].std(ddof=1) / math.sqrt(200))
    assert abs(z) <= 3.5
    assert np.mean(drawn[:, 1]) == pytest.approx(drawn[:, 0].std(ddof=1), rel=0.2)


def test_vectorised_has_one_length():
    readout = VectorisedGeometry(np.zeros(5), 1.0, 0.0)
    with pytest.raises(ParameterError, match=r"at\.length"):
        readout.test_error(TASK, generator())
    with pytest.raises(ParameterError, match=r"at\.length"):
        readout.fresh_error(TASK, 10, generator())


def test_a_constant_readout_errs_on_one_label():
    for bias, expected in ((1.0, 0.7), (-1.0, 0.3)):
        assert PooledGeometry(0.0, 0.0, bias).test_error(TASK, generator())[0] == pytest.approx(
            expected
        )
        readout = AttentionGeometry(0.5, 1.0, 0.0, 0.0, 0.0, bias)
        assert readout.test_error(TASK, generator())[0] == pytest.approx(expected)


def test_long_sequences_take_fewer_points_of_the_law():
    long, short = geometry._sobol(1000), geometry._sobol(10)
    assert len(short) == 1024
    assert long.size <= geometry.LAW_ENTRIES // geometry.REPLICATES


@pytest.mark.parametrize("count", [1, 3, 10, 23])
def test_every_fresh_sample_counts_and_none_twice(count, monkeypatch):
    # One readout that is always wrong and one that is always right, in blocks of ten samples.
    monkeypatch.setattr("sparsetoken.simulation.geometry.BLOCK_ENTRIES", 20)
    task, rng = Task(2, 1, 10.0), np.random.default_rng(0)
    for sign, error in ((-1.0, 1.0), (1.0, 0.0)):
        geometry = PooledGeometry(on_signal=sign, norm=1e-9, bias=-0.5 * sign)
        assert geometry.fresh_error(task, count, rng) == error
