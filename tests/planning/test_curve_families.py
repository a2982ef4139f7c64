"""Families of learning curves, and the sampler that fits them."""

import numpy as np
import pytest

from sparsetoken import Task, oracle
from sparsetoken.planning.curve_families import (
    _EFFECTIVE,
    PowerLaw,
    SparseSignal,
    _oracle_table,
    families,
)
from sparsetoken.planning.curve_posterior import fit_curves, weighted_quantile
from sparsetoken.planning.learning_curve import LearningCurve

SIZES = np.array([10, 20, 40, 80, 160, 320, 640])
BALANCED = np.array([0.5, 0.5])
KNOWN = (0.5, 0.5, 10.0, 640.0)


def measured(errors: np.ndarray, standard_error: float = 0.004, first: int = 7) -> LearningCurve:
    covariance = np.eye(first) * standard_error**2
    sizes = SIZES[:first]
    return LearningCurve(int(sizes[-1] * 5 / 4), sizes, errors[:first], covariance, BALANCED)


@pytest.mark.parametrize("length", [2, 20, 128])
@pytest.mark.parametrize("strength", [1.5, 3.0, 5.0])
def test_the_table_has_the_error_of_the_bayes_oracle(length: int, strength: float) -> None:
    # 2^18 tokens are drawn for the table: at length 128 its standard error is below 0.004.
    _, errors = _oracle_table(length)
    found = np.interp(strength, _EFFECTIVE, errors)
    assert found == pytest.approx(
        oracle(Task(length, 1, strength), classifier="bayes").test_error, abs=0.012
    )


def test_signal_curve_solves_its_fixed_point() -> None:
    """m = Λe/(1 + Λe) with Λ = (n/d)θ²/2, found here by iterating from m = 0."""
    family = SparseSignal(*KNOWN, length=20)
    cube = np.array([[0.6, 0.5, 0.0, 0.0, 0.0]])
    strength, half_way = family.strength(cube)[0], family.half_way(cube)[0]
    weight, error = _oracle_table(20)

    def solved(ratio: float) -> float:
        overlap = 0.0
        for _ in range(500):
            part = ratio * strength**2 / 2 * np.interp(strength * overlap**0.5, _EFFECTIVE, weight)
            overlap = part / (1 + part)
        return float(np.interp(strength * overlap**0.5, _EFFECTIVE, error))

    limit = np.interp(strength, _EFFECTIVE, error)
    ratios = np.geomspace(0.05, 50, 200)
    errors = np.array([solved(ratio) for ratio in ratios])
    dimension = half_way / np.interp(-(0.5 + limit) / 2, -errors, ratios)
    sizes = np.array([20.0, 60.0, 150.0, 400.0, 2000.0])
    expected = [solved(size / dimension) for size in sizes]
    assert family.curves(cube, sizes)[0] == pytest.approx(expected, abs=0.02)


def test_curves_start_at_chance_fall_and_end_at_their_limit() -> None:
    cube = np.random.default_rng(0).random((200, 5))
    sizes = np.concatenate([np.geomspace(1e-6, 1e9, 60), [np.inf]])
    for family in (PowerLaw(*KNOWN), SparseSignal(*KNOWN, 2), SparseSignal(*KNOWN, 50)):
        curves = family.curves(cube[:, : len(family.parameters)], sizes)
        assert np.all(np.diff(curves, axis=1) <= 1e-12)
        assert np.all((curves >= 0) & (curves <= 1))
    signal = SparseSignal(*KNOWN).curves(cube, np.array([1e-9, np.inf]))
    assert signal[:, 0] == pytest.approx(0.5, abs=1e-3)
    assert np.all(signal[:, 1] < 0.5)


def test_imbalanced_data_may_start_between_chance_and_guessing() -> None:
    cube = np.array([[0.5, 0.5, 0.0, 0.0, 0.0], [0.5, 0.5, 0.0, 1.0, 0.0]])
    start = SparseSignal(0.2, 0.32, 10.0, 640.0).curves(cube, np.array([1e-9]))[:, 0]
    assert start == pytest.approx([0.2, 0.32])


def test_a_power_law_is_recovered() -> None:
    errors = 0.1 + 0.3 * (SIZES / SIZES[0]) ** -0.7
    posterior = fit_curves(measured(errors), families(measured(errors), 1), seed=0)
    low, middle, high = posterior.quantiles(np.array([2560.0]), np.array([0.1, 0.5, 0.9]))[:, 0]
    truth = 0.1 + 0.3 * 256**-0.7
    assert low < truth < high
    assert middle == pytest.approx(truth, abs=0.015)


def test_a_band_below_one_wrong_sample_begins_at_zero() -> None:
    errors = 0.3 * (SIZES / SIZES[0]) ** -1.0
    seen = measured(errors, standard_error=0.003)
    posterior = fit_curves(seen, families(seen, 1), seed=0)
    later = np.array([SIZES[-1], 100.0 * seen.samples])
    low, middle, high = posterior.quantiles(later, np.array([0.1, 0.5, 0.9]))
    assert low[0] > 1 / seen.samples
    assert low[1] == 0
    assert 0 < middle[1] < high[1]


def test_only_the_sparse_shape_describes_a_sudden_drop() -> None:
    family = SparseSignal(*KNOWN, length=50)
    errors = family.curves(np.array([[0.62, 0.66, 0.2, 0.0, 0.0]]), np.append(SIZES, 2560.0))[0]
    seen = measured(errors, first=6)
    assert errors[3] > 0.4
    assert errors[5] < 0.3  # the drop is under way
    posterior = fit_curves(seen, families(seen, 50), seed=0)
    assert posterior.shares[-1] > 0.8
    low, _, high = posterior.quantiles(np.array([2560.0]), np.array([0.1, 0.5, 0.9]))[:, 0]
    assert low < errors[-1] < high
    alone = fit_curves(seen, families(seen, 50)[:1], seed=0)
    described = alone.quantiles(SIZES[:6], np.array([0.5]))[0]
    assert np.abs(described - errors[:6]).max() > 0.05  # a power law has no such drop


def test_evidence_is_the_mean_likelihood_over_the_prior() -> None:
    """The sampler's shares against plain averages over 100,000 draws of the prior."""
    errors = np.array([0.45, 0.40, 0.36, 0.31, 0.28, 0.24, 0.22])
    seen = measured(errors, standard_error=0.03)
    known = families(seen, 20)
    posterior = fit_curves(seen, known, seed=1)
    rng = np.random.default_rng(2)
    misfit = 0.03 * (1 + 0.5 * np.log2(SIZES[-1] / SIZES)) * errors
    variance = 1.15 * 0.03**2 + misfit**2 + 1e-8
    means = []
    for family in known:
        cube = rng.random((100_000, len(family.parameters)))
        gap = family.curves(cube, SIZES) - errors
        means.append(np.exp(-0.5 * (gap**2 / variance).sum(axis=1)).mean())
    roots = np.sqrt(means)
    assert posterior.shares == pytest.approx(roots / roots.sum(), abs=0.05)


def test_weighted_quantile() -> None:
    values = np.array([3.0, 1.0, np.inf, 2.0])
    weights = np.array([0.25, 0.25, 0.25, 0.25])
    assert weighted_quantile(values, weights, np.array([0.25, 0.5, 0.76])).tolist() == [
        1,
        2,
        np.inf,
    ]
