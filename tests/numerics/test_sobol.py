import subprocess
import sys

import numpy as np
from scipy.stats import qmc

from sparsetoken.numerics.sobol import LARGEST_DIMENSION, plain_sobol_points, sobol_points


def test_without_scrambling_the_points_are_those_of_scipy() -> None:
    for dimension, log2_points in ((1, 0), (3, 4), (LARGEST_DIMENSION, 8)):
        known = qmc.Sobol(dimension, scramble=False).random_base2(log2_points)
        np.testing.assert_array_equal(plain_sobol_points(dimension, log2_points), known)


def test_every_interval_and_box_holds_its_points() -> None:
    points = sobol_points(20, 8, np.random.default_rng(1))
    assert points.min() > 0
    assert points.max() < 1
    for column in points.T:
        assert np.array_equal(np.sort(np.floor(256 * column)), np.arange(256))
    # The first two dimensions are a net: one point in each box of 16 × 16.
    boxes = np.floor(16 * points[:, :2]) @ [16, 1]
    assert np.array_equal(np.sort(boxes), np.arange(256))


def test_scramblings_are_unbiased_and_far_better_than_random_points() -> None:
    def mean(seed: int) -> float:
        points = sobol_points(8, 10, np.random.default_rng(seed))
        return float(np.prod(1 + 0.8 * (points - 0.5), axis=1).mean())

    means = np.array([mean(seed) for seed in range(40)])
    error = means.std(ddof=1) / np.sqrt(40)
    # z < 4. Random points would have a deviation of 0.02: the scrambled ones have a tenth of it.
    assert abs(means.mean() - 1) < 4 * error
    assert means.std(ddof=1) < 0.003


def test_more_dimensions_than_the_table_has() -> None:
    points = sobol_points(LARGEST_DIMENSION + 1, 6, np.random.default_rng(2))
    assert points.shape == (64, LARGEST_DIMENSION + 1)
    assert 0 < points.min() < points.max() < 1


def test_theory_loads_no_statistics_library() -> None:
    program = "import sys; from sparsetoken import predict; print('scipy.stats' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"
