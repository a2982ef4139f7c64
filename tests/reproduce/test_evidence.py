import numpy as np
import pytest

from sparsetoken.reproduce.claim import Quantity, Table
from sparsetoken.reproduce.evidence import (
    Check,
    agreement,
    crossing,
    decide,
    lowest,
    power_law,
    within,
    z_scores,
)


@pytest.mark.parametrize(
    ("value", "uncertainty", "expected"),
    [
        (0.5, 0.0, True),
        (0.5, 0.009, True),
        (0.5, 0.02, None),
        (0.525, 0.01, None),
        (0.56, 0.01, False),
        (0.4, None, False),
        (float("nan"), None, False),
    ],
)
def test_a_bound_is_judged_by_twice_the_uncertainty(
    value: float, uncertainty: float | None, expected: bool | None
) -> None:
    assert within("slope", Quantity(value, uncertainty), 0.48, 0.52).holds is expected


def test_one_failure_refutes_and_one_open_check_leaves_undecided() -> None:
    good, bad, open_ = Check("a", True), Check("b", False), Check("c", None)
    assert decide([good, good]).outcome == "confirmed"
    assert decide([good, open_]).outcome == "undecided"
    verdict = decide([good, open_, bad])
    assert verdict.outcome == "refuted"
    assert verdict.seen == "b: FAILS; c: open; a: holds"


def test_the_slope_of_a_power_law_and_its_error() -> None:
    x = np.geomspace(1, 100, 9)
    assert power_law(x, 3 * x**-0.5).value == pytest.approx(-0.5, abs=1e-12)
    rng = np.random.default_rng(1)
    y = 3 * x**-0.5
    slopes = []
    for _ in range(400):
        slope = power_law(x, y * (1 + 0.02 * rng.standard_normal(9)), 0.02 * y)
        slopes.append((slope.value + 0.5) / (slope.uncertainty or np.nan))
    # The error is the larger of two estimates, so that the ratio's spread is somewhat below 1.
    assert abs(np.mean(slopes)) < 4 / np.sqrt(400)
    assert 0.75 < np.std(slopes) < 1.1


def table(mean: np.ndarray, error: np.ndarray, trials: int) -> Table:
    rows = [
        {"value": m, "value_error": e, "trials": trials, "theory": 0.0, "theory_error": 0.0}
        for m, e in zip(mean, error, strict=True)
    ]
    return Table(rows, {})


def test_z_scores_of_few_trials_are_standard_normal() -> None:
    samples = np.random.default_rng(2).standard_normal((4000, 4))
    error = samples.std(axis=1, ddof=1) / 2
    z = z_scores(table(samples.mean(axis=1), error, 4), "value")
    # 4000 values: the mean square's standard error is √(2/4000) = 0.022; accept 4 of them.
    assert np.mean(z**2) == pytest.approx(1, abs=0.09)
    assert np.mean(np.abs(z) > 3) < 0.0027 + 4 * np.sqrt(0.0027 / 4000)


def test_z_scores_add_the_allowance_to_the_standard_error() -> None:
    z = z_scores(table(np.array([1.0, -3.0]), np.ones(2), 10**6), "value", allowance=np.sqrt(3))
    assert z == pytest.approx([0.5, -1.5], abs=1e-5)
    exact = z_scores(table(np.array([0.0, 1.0]), np.zeros(2), 4), "value")
    assert exact[0] == 0
    assert exact[1] > 30


def test_agreement_fails_on_one_outlier_and_on_many_small_deviations() -> None:
    assert agreement("x", [0.5, -1.0, 1.5]).holds
    assert not agreement("x", [0.0] * 20 + [4.5]).holds
    assert not agreement("x", [1.6, -1.6, 1.6, 1.6]).holds


def test_crossing_and_lowest_interpolate() -> None:
    x = np.linspace(0, 1, 6)
    assert crossing(x, 0.31 - x) == pytest.approx(0.31)
    assert crossing(x, x + 1) is None
    place, value = lowest(x, (x - 0.37) ** 2 + 2)
    assert (place, value) == (pytest.approx(0.37), pytest.approx(2))
    assert lowest(x, x) == (0, 0)
