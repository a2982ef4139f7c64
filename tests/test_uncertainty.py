import numpy as np
import pytest

from sparsetoken.uncertainty import (
    DEVIATIONS_IN_A_BAR,
    joined,
    mean_and_error,
    standard_error,
    z_scores,
)


def test_mean_and_standard_error() -> None:
    mean, error = mean_and_error([1.0, 2.0, 6.0])
    assert mean == 3
    assert error == pytest.approx(np.std([1, 2, 6], ddof=1) / np.sqrt(3))
    assert mean_and_error([2.0]) == (2.0, None)
    assert mean_and_error([]) == (None, None)


def test_equal_values_have_no_standard_error_not_even_a_rounded_one() -> None:
    assert np.std([1 - 0.6] * 3, ddof=1) > 0  # the mean is rounded
    assert standard_error([1 - 0.6] * 3) == 0
    assert standard_error(np.full(3, 1 - 0.6), shared=0.5) == 0


def test_z_scores_of_few_trials_are_standard_normal() -> None:
    samples = np.random.default_rng(2).standard_normal((4000, 4))
    z = z_scores(samples.mean(axis=1), samples.std(axis=1, ddof=1) / 2, freedom=3)
    # 4000 values: the mean square's standard error is √(2/4000) = 0.022; accept 4 of them.
    assert np.mean(z**2) == pytest.approx(1, abs=0.09)
    assert np.mean(np.abs(z) > 3) < 0.0027 + 4 * np.sqrt(0.0027 / 4000)


def test_a_bar_counts_as_so_many_standard_deviations() -> None:
    z = z_scores([1.0, -3.0], 1.0, bar=np.sqrt(3) * DEVIATIONS_IN_A_BAR)
    assert z == pytest.approx([0.5, -1.5], abs=1e-6)


def test_exact_values_either_agree_or_do_not() -> None:
    exact = z_scores([0.0, 1.0, -1.0], 0.0, freedom=3)
    assert exact[0] == 0
    assert exact[1] > 30
    assert exact[2] < -30


def test_a_row_of_simulation_meets_one_of_theory() -> None:
    simulated = {"error": 0.3, "error_uncertainty": 0.01, "loss": 1.0, "only": 2.0}
    theory = {"error": 0.27, "error_uncertainty": 0.02, "loss": 0.5, "known": 4.0}
    one = joined("error", simulated, theory, trials=8)
    assert one == (0.3, 0.01, 7, 0.27, 0.02)
    assert one.z == pytest.approx(float(z_scores(0.03, 0.01, freedom=7, bar=0.02)))
    assert joined("loss", simulated, theory, trials=8).z is None, "no standard error"
    assert joined("only", simulated, theory, trials=8) == (2.0, None, 7, None, None)
    assert joined("known", simulated, theory, trials=8).z is None
