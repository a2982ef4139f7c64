"""What scores tell about places: closed forms, other methods, and each part of the error bar."""

import itertools

import numpy as np
import pytest
from scipy.special import expit, logsumexp

from sparsetoken.arrays import Array
from sparsetoken.theory.places import (
    PlacesLaw,
    _tilt,
    exact_overlap,
    places_law,
    sampled_overlap,
)
from sparsetoken.theory.replicates import replicate_error
from sparsetoken.validation import ParameterError


def enumerated(length: int, informative: int, signal: float, noise: Array) -> tuple[Array, Array]:
    """Return ⟨v̂, v⟩ and the log of the mean likelihood for drawn noise, by listing all subsets."""
    subsets = list(itertools.combinations(range(length), informative))
    shared = np.array([len(set(subset) & set(range(informative))) for subset in subsets])
    sums = np.stack([noise[:, list(subset)].sum(axis=1) for subset in subsets], axis=1)
    exponents = signal**2 * shared + signal * sums
    weights = np.exp(exponents - exponents.max(axis=1, keepdims=True))
    overlap = weights @ shared / weights.sum(axis=1)
    potential = logsumexp(exponents, axis=1) - np.log(len(subsets))
    return overlap, potential - 0.5 * informative * signal**2


@pytest.mark.parametrize("signal", [0.05, 0.5, 1.0, 3.0, 6.0])
def test_two_tokens_are_one_normal_integral(signal: float) -> None:
    # The difference of the two scores is all that counts: e = E σ(s² + s√2 G).
    grid = np.linspace(-12, 12, 20_001)
    weights = np.exp(-0.5 * grid**2)
    closed = weights @ expit(signal**2 + signal * np.sqrt(2) * grid) / weights.sum()
    assert exact_overlap(2, signal) == pytest.approx(closed, abs=1e-12)


def largest_with_noise(length: int, signal: float) -> float:
    """Return E log Σ exp(s x_l): of the largest of s x_l and Gumbel noise, less Euler's constant."""
    z, weights = np.polynomial.hermite_e.hermegauss(120)
    weights /= weights.sum()
    y = np.linspace(-9 * signal - 6, signal**2 + 9 * signal + 50 + np.log(length), 8001)
    others, true = (
        np.exp(-np.exp(-(y[:, None] - signal * z - shift))) @ weights for shift in (0.0, signal**2)
    )
    below = true * others ** (length - 1)
    mean = y[-1] - np.trapezoid(below, y)
    return float(mean - np.euler_gamma)


@pytest.mark.parametrize("length", [2, 30, 1000, 10**4])
def test_the_potential_of_one_token_is_the_mean_log_likelihood(length: int) -> None:
    law = PlacesLaw(length, 1, log2_points=8)
    for signal in (0.3, 1.5, 4.0):
        likelihood = largest_with_noise(length, signal) - np.log(length) - 0.5 * signal**2
        assert law.potential(np.array([signal]))[0, 0] == pytest.approx(likelihood, abs=1e-8)


@pytest.mark.parametrize("length", [10, 500])
def test_integral_and_points_agree_for_one_token(length: int) -> None:
    for signal in (0.5, 2.0, 4.0):
        drawn = sampled_overlap(length, 1, signal, 8)
        assert abs(drawn.mean() - exact_overlap(length, signal)) <= replicate_error(drawn)


@pytest.mark.parametrize(("length", "informative"), [(6, 2), (7, 3), (6, 4), (6, 5)])
def test_overlap_and_potential_against_listing_all_subsets(length: int, informative: int) -> None:
    law = PlacesLaw(length, informative, log2_points=10)
    noise = np.random.default_rng(3).standard_normal((200_000, length))
    for signal in (0.4, 1.3, 2.6):
        drawn = enumerated(length, informative, signal, noise)
        for values, mine in zip(drawn, (law.overlap, law.potential), strict=True):
            found = mine(np.array([signal]))[:, 0]
            error = values.std() / np.sqrt(len(values))
            # Four standard errors of 200,000 draws, and the law's own bar.
            assert abs(found.mean() - values.mean()) <= 4 * error + replicate_error(found)


def test_places_without_signal_mirror_those_with_it() -> None:
    mirrored = PlacesLaw(9, 6, log2_points=9).overlap(np.array([1.7])).mean()
    direct = sampled_overlap(9, 6, 1.7, 9)
    assert abs(mirrored - direct.mean()) <= 2 * replicate_error(direct)


@pytest.mark.parametrize(("length", "informative"), [(2, 1), (10**4, 1), (12, 4), (40, 39)])
def test_ends(length: int, informative: int) -> None:
    law = PlacesLaw(length, informative)
    ends = law.overlap(np.array([0.0, 50.0])).mean(axis=0)
    assert ends[0] == pytest.approx(informative**2 / length, rel=1e-6)
    assert ends[1] == informative
    signal = np.array([0.0, 30.0, 40.0])
    potential = law.potential(signal).mean(axis=0)
    assert potential[0] == pytest.approx(0, abs=1e-13)
    # Beyond the last panel the overlap is R, and ψ grows by R s²/2.
    assert potential[2] - potential[1] == pytest.approx(0.5 * informative * 700, rel=1e-12)


def deviation(law: PlacesLaw, top: float) -> float:
    """Return the largest relative deviation from the exact overlap of one token, up to s = top."""
    signal = np.linspace(0.01, top, 60)
    exact = np.array([exact_overlap(law.length, s, 0.2) for s in signal])
    return float(np.max(np.abs(law.overlap(signal)[0] / exact - 1)))


def test_the_bar_covers_a_coarse_grid() -> None:
    law = PlacesLaw(1000, 1, spacing=1.0)
    assert 1e-6 < deviation(law, 4.0) < law.relative_error(4.0)


def test_the_bar_covers_few_nodes() -> None:
    law = PlacesLaw(1000, 1, nodes=6)
    assert 1e-5 < deviation(law, 4.0) < law.relative_error(4.0)


def test_the_bar_of_the_default_is_small_and_covers() -> None:
    for length in (2, 100, 10**4):
        law = PlacesLaw(length, 1)
        assert deviation(law, 7.0) < law.relative_error(7.0) + 1e-12
        assert law.relative_error(7.0) < 1e-5


def test_the_bar_covers_few_points() -> None:
    signal = 2.0
    exact = PlacesLaw(15, 3, log2_points=11).overlap(np.array([signal])).mean()
    covered = 0
    for seed in range(1, 31):
        values = PlacesLaw(15, 3, log2_points=4, seed=seed).overlap(np.array([signal]))[:, 0]
        covered += abs(values.mean() - exact) <= replicate_error(values)
    # 98 % are expected; below 26 of 30 has a chance of 2e-4.
    assert covered >= 26


def test_beyond_the_polynomials_is_refused() -> None:
    with pytest.raises(ParameterError, match="symmetric polynomials"):
        places_law(5000, 2, 7)
    with pytest.raises(ParameterError, match="informative = 1000"):
        places_law(4000, 1000, 7)


@pytest.mark.parametrize("count", [2, 5])
def test_tilted_weights_expect_about_as_many_ones_as_there_are(count: int) -> None:
    """Nothing would overflow or vanish at the mode; a factor of 1.5 is what six halvings leave."""
    weights = np.exp(4 * np.random.default_rng(0).standard_normal((30, 50)))
    expected = (weights / (weights + _tilt(weights, count))).sum(axis=0)
    assert np.all(expected > count / 1.5)
    assert np.all(expected < count * 1.5)


@pytest.mark.parametrize("length", [2, 30, 1000, 10**4])
def test_places_are_taken_as_known_where_no_digit_is_left_of_doubt(length: int) -> None:
    assert 1 - exact_overlap(length, PlacesLaw(length, 1).known) < 1e-13


@pytest.mark.parametrize("informative", [1, 3])
def test_the_size_of_a_law_is_that_of_all_its_panels(informative: int) -> None:
    law = PlacesLaw(12, informative)
    expected = law.nbytes
    law.potential(np.array([law.known]))
    held = [array for panel in law._panels for array in (panel.overlap, panel.integral)]
    assert sum(array.nbytes for array in [*held, *law._integrals]) == pytest.approx(
        expected, rel=0.1
    )
