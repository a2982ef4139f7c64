import numpy as np
import pytest

from sparsetoken.reproduce.claim import Quantity, Table
from sparsetoken.reproduce.evidence import (
    Condition,
    against_theory,
    agreement,
    crossing,
    decide,
    lowest,
    power_law,
    within,
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
    good, bad, open_ = Condition("a", True), Condition("b", False), Condition("c", None)
    assert decide([good, good]).ruling == "confirmed"
    assert decide([good, open_]).ruling == "undecided"
    verdict = decide([good, open_, bad])
    assert verdict.ruling == "refuted"
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


def simulated(
    mean: np.ndarray, error: float, trials: int, theory: float = 1.0, noticed: float = np.inf
) -> Table:
    """Points with a known theory value, simulated at one dimension."""
    rows = []
    for point, value in enumerate(mean):
        rows += [
            {"source": "theory", "point": point, "x": theory, "x_uncertainty": 0.0},
            {
                "source": "simulation",
                "point": point,
                "x": value,
                "x_uncertainty": error,
                "trials": trials,
            },
        ]
    return Table(rows, {"noticed": noticed})


def test_agreement_fails_on_an_outlier_on_scatter_and_on_a_common_deviation() -> None:
    def holds(z: list[float]) -> bool | None:
        return agreement("x", simulated(1 + 0.01 * np.array(z), 0.01, 10**6), "x", ["point"]).holds

    assert holds([0.5, -1.0, 1.5])
    assert not holds([0.0] * 20 + [4.5])
    assert not holds([1.9, -1.9] * 8), "the mean square 3.6 of 16 is beyond what chance gives"
    assert not holds([0.9] * 16), "16 times 0.9 in one direction are 3.6 standard errors"
    assert not agreement("x", Table([], {}), "x", ["point"]).holds


def test_agreement_is_open_if_it_would_not_notice_the_wanted_deviation() -> None:
    # 16 points of 1 %: 0.25 % together, so that 4.3 times that, 1.1 %, would be noticed.
    points = np.ones(16)
    condition = agreement("x", simulated(points, 0.01, 10**6, noticed=0.02), "x", ["point"])
    assert condition.holds
    assert "one of 1.1 % would be noticed" in condition.seen
    assert (
        agreement("x", simulated(points, 0.01, 10**6, noticed=0.01), "x", ["point"]).holds is None
    )


def test_agreement_notices_what_it_says_it_would() -> None:
    # A deviation of the size that is told fails five times out of six; 200 runs: ± 4 x 2.6 %.
    rng = np.random.default_rng(4)
    failed = sum(
        not agreement(
            "x",
            simulated(1 + 0.043 / 4 + 0.01 * rng.standard_normal(16), 0.01, 10**6),
            "x",
            ["point"],
        ).holds
        for _ in range(200)
    )
    assert 0.84 - 0.11 < failed / 200 < 0.84 + 0.11


def test_the_shift_of_order_one_over_d_is_removed_and_its_error_counted() -> None:
    limit, shift, rng = 0.3, 2.0, np.random.default_rng(5)
    deviates = []
    for _ in range(300):
        rows: list[dict[str, object]] = [{"source": "theory", "x": limit, "x_uncertainty": 0.0}]
        for dimension in (400, 100):
            values = limit + shift / dimension + rng.standard_normal(12) / np.sqrt(dimension)
            rows.append(
                {
                    "source": "simulation",
                    "dimension": dimension,
                    "x": values.mean(),
                    "x_uncertainty": values.std(ddof=1) / np.sqrt(12),
                    "trials": 12,
                }
            )
        deviates.append(against_theory(Table(rows, {}), "x", []).z[0])
    # Standard errors 0.058 of the mean and 0.041 of the spread; accept 4 of them.
    assert abs(np.mean(deviates)) < 4 * 0.058
    assert abs(np.std(deviates) - 1) < 4 * 0.041


def test_crossing_and_lowest_interpolate() -> None:
    x = np.linspace(0, 1, 6)
    assert crossing(x, 0.31 - x) == pytest.approx(0.31)
    assert crossing(x, x + 1) is None
    place, value = lowest(x, (x - 0.37) ** 2 + 2)
    assert (place, value) == (pytest.approx(0.37), pytest.approx(2))
    assert lowest(x, x) == (0, 0)
