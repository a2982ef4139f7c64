"""The readout's solvers, held to their optimality conditions rather than to stored numbers."""

import numpy as np
import pytest
from scipy.optimize import linprog, minimize

from sparsetoken import Loss, ParameterError, Status, separability
from sparsetoken.learning.examples import Examples
from sparsetoken.learning.interior_point import minimise_hinge
from sparsetoken.learning.readout import fit_readout
from sparsetoken.losses import Hinge, Logistic, Square, SquaredHinge, get_loss

SHAPES = [(60, 20), (20, 60), (41, 40), (200, 30)]
SMOOTH = ["logistic", "square", "squared_hinge"]


def draw(n, d, seed=0, shift=1.0, rate=0.4):
    rng = np.random.default_rng(seed)
    labels = np.where(rng.random(n) < rate, 1, -1)
    labels[:2] = 1, -1
    features = rng.standard_normal((n, d)) * rng.uniform(0.2, 1.5, (n, 1))
    features[labels > 0, 0] += shift
    return features, labels


def gradient_norm(features, labels, loss, ridge, readout, weights=None):
    weights = np.full(len(labels), 1 / len(labels)) if weights is None else weights
    margins = labels * (features @ readout.weights + readout.bias)
    slopes = weights * labels * loss.slope(margins)
    return np.hypot(np.linalg.norm(slopes @ features + ridge * readout.weights), slopes.sum())


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize("ridge", [1e-7, 1e-5, 1e-2, 1.0, 1e4])
def test_smooth_losses_reach_a_zero_gradient(shape, name, ridge):
    features, labels = draw(*shape)
    readout = fit_readout(features, labels, loss=get_loss(name), ridge=ridge)
    assert readout.solution.converged, readout.solution.message
    assert gradient_norm(features, labels, get_loss(name), ridge, readout) <= 1.1e-8
    assert readout.solution.residual <= 1e-8


@pytest.mark.parametrize("shape", [(90, 140), (150, 120), (320, 120), (700, 120)])
@pytest.mark.parametrize("ridge", [1e-7, 1e-5, 1e-2])
def test_many_dimensions_take_the_first_order_steps_first(shape, ridge):
    features, labels = draw(*shape)
    readout = fit_readout(features, labels, loss=Logistic(), ridge=ridge)
    assert readout.solution.converged, readout.solution.message
    assert gradient_norm(features, labels, Logistic(), ridge, readout) <= 1.1e-8


@pytest.mark.parametrize("name", SMOOTH)
def test_without_ridge_above_capacity_the_gradient_vanishes(name):
    features, labels = draw(300, 20)
    readout = fit_readout(features, labels, loss=get_loss(name), ridge=0.0)
    assert readout.solution.converged
    assert readout.margin is None
    assert gradient_norm(features, labels, get_loss(name), 0.0, readout) <= 1.1e-8


@pytest.mark.parametrize("shape", [(30, 30), (20, 60)])
def test_square_loss_without_ridge_interpolates_with_the_least_norm(shape):
    features, labels = draw(*shape)
    readout = fit_readout(features, labels, loss=Square(), ridge=0.0)
    assert labels * (features @ readout.weights + readout.bias) == pytest.approx(1, abs=1e-9)
    # The norm is least when w has no part that the (centred) features do not see.
    centred = features - features.mean(axis=0)
    seen = np.linalg.pinv(centred, rcond=1e-12) @ (centred @ readout.weights)
    assert readout.weights == pytest.approx(seen, abs=1e-8)


@pytest.mark.parametrize("count", [45, 50, 51, 60])
@pytest.mark.parametrize("damage", ["none", "same column", "same row", "low rank"])
def test_square_loss_without_ridge_has_the_least_norm_on_degenerate_features(count, damage):
    features, labels = draw(count, 50)
    if damage == "same column":
        features[:, 1] = features[:, 0]
    elif damage == "same row":
        features[1], labels[1] = features[0], labels[0]
    elif damage == "low rank":
        features[:, 20:] = features[:, :20] @ np.random.default_rng(1).standard_normal((20, 30))
    readout = fit_readout(features, labels, loss=Square(), ridge=0.0)
    centred = features - features.mean(axis=0)
    best = np.linalg.pinv(centred, rcond=1e-11) @ (labels - labels.mean())
    assert readout.solution.converged
    assert readout.weights == pytest.approx(best, abs=1e-8)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("ridge", [1e-4, 1e-2, 1.0, 100.0])
def test_hinge_meets_the_conditions_of_optimality(shape, ridge):
    # w = Σ a_i y_i f_i / λ with 0 <= a_i <= 1/n, and a_i at a bound unless the margin is 1: found
    # here by least squares on the samples at the margin, independently of the solver's multipliers.
    features, labels = draw(*shape)
    n = len(labels)
    readout = fit_readout(features, labels, loss=Hinge(), ridge=ridge)
    assert readout.solution.converged, readout.solution.message
    margins = labels * (features @ readout.weights + readout.bias)
    inside, at = margins < 1 - 1e-4, np.abs(margins - 1) <= 1e-4
    signed = labels[:, None] * np.column_stack([features, np.ones(n)])
    target = np.append(ridge * readout.weights, 0.0) - signed[inside].sum(axis=0) / n
    multipliers, *_ = np.linalg.lstsq(signed[at].T, target, rcond=None)
    assert signed[at].T @ multipliers == pytest.approx(target, abs=1e-6)
    assert multipliers.min() >= -1e-5 / n - 1e-7
    assert multipliers.max() <= 1 / n + 1e-6


def test_hinge_without_ridge_solves_the_linear_program():
    features, labels = draw(120, 10)
    n, d = features.shape
    readout = fit_readout(features, labels, loss=Hinge(), ridge=0.0)
    signed = labels[:, None] * np.column_stack([features, np.ones(n)])
    cost = np.concatenate([np.zeros(d + 1), np.full(n, 1 / n)])
    program = linprog(
        cost,
        A_ub=-np.hstack([signed, np.eye(n)]),
        b_ub=-np.ones(n),
        bounds=[(None, None)] * (d + 1) + [(0, None)] * n,
    )
    assert readout.train_loss == pytest.approx(program.fun, abs=1e-7)


@pytest.mark.parametrize("name", ["logistic", "hinge", "squared_hinge"])
@pytest.mark.parametrize("shape", [(20, 60), (60, 50)])
def test_without_ridge_separable_data_give_the_maximum_margin(name, shape):
    features, labels = draw(*shape)
    readout = fit_readout(features, labels, loss=get_loss(name), ridge=0.0)
    assert readout.solution.converged, readout.solution.message
    assert "maximum-margin" in readout.solution.message
    margins = labels * (features @ readout.weights + readout.bias)
    assert margins.min() == pytest.approx(1, abs=1e-6)
    assert readout.margin == pytest.approx(1 / np.linalg.norm(readout.weights), rel=1e-6)
    assert readout.train_loss == 0
    # Optimality: w is a non-negative combination of the samples at the margin.
    at = margins < 1 + 1e-5
    signed = labels[at, None] * np.column_stack([features[at], np.ones(at.sum())])
    multipliers, *_ = np.linalg.lstsq(signed.T, np.append(readout.weights, 0.0), rcond=None)
    assert signed.T @ multipliers == pytest.approx(np.append(readout.weights, 0), abs=1e-5)
    assert multipliers.min() > -1e-5 * multipliers.max()


def test_small_ridges_tend_to_the_maximum_margin():
    features, labels = draw(40, 60)
    limit = fit_readout(features, labels, loss=Logistic(), ridge=0.0)
    near = fit_readout(features, labels, loss=SquaredHinge(), ridge=1e-7)
    cosine = limit.weights @ near.weights / np.linalg.norm(limit.weights)
    assert cosine / np.linalg.norm(near.weights) > 1 - 1e-6


@pytest.mark.parametrize("name", ["logistic", "hinge"])
def test_sample_weights_count_like_repeats(name):
    features, labels = draw(50, 10)
    repeats = np.random.default_rng(1).integers(0, 4, 50)
    weighted = fit_readout(features, labels, loss=get_loss(name), ridge=1e-2, sample_weight=repeats)
    repeated = fit_readout(
        np.repeat(features, repeats, axis=0),
        np.repeat(labels, repeats),
        loss=get_loss(name),
        ridge=1e-2,
    )
    assert weighted.weights == pytest.approx(repeated.weights, abs=1e-5)
    assert weighted.objective == pytest.approx(repeated.objective, abs=1e-7)
    assert weighted.train_error == pytest.approx(repeated.train_error)


def test_weighted_square_loss_without_ridge():
    features, labels = draw(50, 10)
    weights = np.random.default_rng(1).random(50)
    readout = fit_readout(features, labels, loss=Square(), ridge=0.0, sample_weight=weights)
    norm = gradient_norm(features, labels, Square(), 0.0, readout, weights / weights.sum())
    assert norm <= 1e-8


def test_single_precision_features_are_still_solved_in_double():
    features, labels = draw(150, 40)
    rounded = features.astype(np.float32)
    readout = fit_readout(rounded, labels, loss=Logistic(), ridge=1e-4)
    assert readout.solution.converged
    exact = rounded.astype(float)
    assert gradient_norm(exact, labels, Logistic(), 1e-4, readout) <= 1.1e-8
    double = fit_readout(exact, labels, loss=Logistic(), ridge=1e-4)
    assert readout.weights == pytest.approx(double.weights, abs=1e-4)


def test_a_users_loss_is_fitted_like_the_others():
    class Exponential(Loss):
        name = "readout-test-exponential"
        minimisers = (np.inf, np.inf)

        def value(self, margin):
            return np.exp(-margin)

        def slope(self, margin):
            return -np.exp(-margin)

        def curvature(self, margin):
            return np.exp(-margin)

    features, labels = draw(80, 10)
    readout = fit_readout(features, labels, loss=Exponential(), ridge=1e-3)
    assert readout.solution.converged

    def objective(point):
        margins = labels * (features @ point[:-1] + point[-1])
        return np.exp(-margins).mean() + 0.5e-3 * point[:-1] @ point[:-1]

    other = minimize(objective, np.zeros(11), method="BFGS")
    assert readout.objective <= other.fun + 1e-10


def dependent(kind, n, d):
    features, labels = draw(n, d, shift=0.7)
    if kind == "same column":
        features[:, 1] = features[:, 0]
    elif kind == "constant column":
        features[:, -1] = 1.0
    elif kind == "one of three":
        features = np.eye(3)[np.random.default_rng(1).integers(0, 3, n)]
    elif kind == "rank one":
        features = features[:, :1] * np.random.default_rng(1).standard_normal(d)
    return features, labels


# The hinge loss, piecewise linear, has several minima on three points for other reasons.
DEPENDENT = [
    (kind, name)
    for kind in ("same column", "constant column", "one of three", "rank one")
    for name in ("logistic", "square", "squared_hinge", "hinge")
    if (kind, name) != ("one of three", "hinge")
]


@pytest.mark.parametrize(("kind", "name"), DEPENDENT)
@pytest.mark.parametrize("shape", [(60, 6), (300, 3), (400, 120)])
def test_without_ridge_dependent_features_get_the_limit_of_small_ridges(kind, shape, name):
    features, labels = dependent(kind, *shape)
    limit, near = (fit_readout(features, labels, loss=name, ridge=r) for r in (0.0, 1e-8))
    assert limit.solution.converged, limit.solution.message
    size = np.linalg.norm(near.weights)
    assert limit.weights == pytest.approx(near.weights, abs=1e-4 * size + 1e-7)
    assert limit.bias == pytest.approx(near.bias, abs=1e-4)
    assert limit.train_loss <= near.train_loss + 1e-12


def test_without_ridge_features_of_very_different_sizes_all_count():
    features, labels = draw(300, 6)
    sizes = 10.0 ** np.array([-6, -3, 0, 0, 3, 6])
    plain, scaled = (
        fit_readout(data, labels, loss="square", ridge=0.0) for data in (features, features * sizes)
    )
    assert scaled.train_loss == pytest.approx(plain.train_loss, rel=1e-9)


@pytest.mark.parametrize("unit", [1e-9, 1.0, 1e3])
def test_a_finite_minimum_is_found_in_any_unit(unit):
    features, labels = draw(60, 5)
    found = fit_readout(unit * features, labels, loss="logistic", ridge=0.0)
    assert found.solution.converged, found.solution.message
    plain = fit_readout(features, labels, loss="logistic", ridge=0.0)
    assert unit * found.weights == pytest.approx(plain.weights, rel=1e-5)


def test_that_there_is_no_finite_minimum_is_told_where_a_linear_program_says_so():
    # Margins >= 0, and one > 0: the logistic loss falls for ever along them. Ones and zeros, with ties.
    told = []
    for seed in range(120):
        rng = np.random.default_rng(seed)
        features = rng.integers(-1, 2, (rng.integers(6, 16), rng.integers(1, 4))).astype(float)
        labels = np.where(rng.random(len(features)) < 0.5, 1, -1)
        n, d = features.shape
        if abs(labels.sum()) == n or separability(features, labels).separable:
            continue
        signed = labels[:, None] * np.column_stack([features, np.ones(n)])
        program = linprog(
            np.repeat([0.0, -1.0], [d + 1, n]),
            A_ub=np.hstack([-signed, np.eye(n)]),
            b_ub=np.zeros(n),
            bounds=[(None, None)] * (d + 1) + [(0, 1)] * n,
        )
        found = fit_readout(features, labels, loss="logistic", ridge=0.0).solution
        endless = program.fun < -0.5
        assert found.status is (Status.NO_MINIMUM if endless else Status.CONVERGED), seed
        told.append(endless)
    assert len(told) > 80
    assert 0.1 < np.mean(told) < 0.6


def test_features_of_rank_one_by_rounding_have_a_minimum():
    rng = np.random.default_rng(7)
    direction = rng.standard_normal((5, 30))
    labels = np.array([1, -1, 1, -1, 1])
    features = (labels * [1.0, 2.0, -1.0, 0.5, 1.5])[:, None] * direction[0]
    found = fit_readout(features, labels, loss="logistic", ridge=0.0)
    assert found.solution.converged, found.solution.message


@pytest.mark.parametrize("name", ["logistic", "hinge", "squared_hinge"])
def test_features_lost_in_rounding_stall_without_a_warning(name):
    # Warnings are errors here. Digits beyond the thirteenth are all that differs.
    rng = np.random.default_rng(1)
    features = rng.standard_normal((12, 6)) + 1e13
    labels = np.where(rng.random(12) < 0.5, 1, -1)
    found = fit_readout(features, labels, loss=name, ridge=0.0)
    assert found.solution.status is Status.STALLED
    assert np.isfinite(found.weights).all()


def test_features_that_are_all_zero_leave_the_bias():
    labels = np.array([1, -1, 1])
    for name in ("logistic", "square", "hinge", "squared_hinge"):
        for ridge in (0.0, 0.1):
            found = fit_readout(np.zeros((3, 4)), labels, loss=name, ridge=ridge)
            assert found.solution.converged, name
            assert np.all(found.weights == 0)
            assert found.train_error == pytest.approx(1 / 3)


@pytest.mark.parametrize("name", ["logistic", "square", "squared_hinge"])
def test_few_features_in_single_precision_are_solved_in_double_too(name):
    features, labels = draw(20, 60)
    rounded = features.astype(np.float32)
    found = fit_readout(rounded, labels, loss=name, ridge=1e-2)
    exact = rounded.astype(float)
    assert gradient_norm(exact, labels, get_loss(name), 1e-2, found) <= 1.1e-8


def test_one_class_gives_a_constant_readout():
    features, _ = draw(10, 4)
    for name in ("logistic", "square", "hinge"):
        readout = fit_readout(features, -np.ones(10), loss=get_loss(name), ridge=1e-3)
        assert np.all(readout.weights == 0)
        assert readout.bias < 0
        assert readout.train_loss == 0


def test_bad_input_is_named():
    features, labels = draw(10, 4)
    with pytest.raises(ParameterError, match="ridge"):
        fit_readout(features, labels, loss=Logistic(), ridge=-1.0)
    for weights in (np.ones(9), np.zeros(10), -np.ones(10), np.full(10, np.nan)):
        with pytest.raises(ParameterError, match="sample_weight"):
            fit_readout(features, labels, loss=Logistic(), ridge=1.0, sample_weight=weights)

    class Other(Loss):
        name = "absolute"
        minimisers = (1.0, 1.0)
        smooth = False
        value = slope = curvature = Hinge.value

    with pytest.raises(ParameterError, match="absolute"):
        fit_readout(features, labels, loss=Other(), ridge=1.0)


@pytest.mark.parametrize("ridge", [0.1, 1.0])
def test_the_limit_of_steps_of_the_hinge_loss_is_told_from_a_stall(ridge):
    features, labels = draw(60, 20)
    program = minimise_hinge(Examples.of(features, labels), ridge, tolerance=1e-8, max_steps=3)
    assert program.solution.status is Status.STEP_LIMIT


def test_the_limit_of_steps_is_reported():
    features, labels = draw(60, 20)
    readout = fit_readout(features, labels, loss=Logistic(), ridge=1e-5, max_steps=2)
    assert not readout.solution.converged
    assert "limit of steps" in readout.solution.message


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_products_agree_with_plain_ones(dtype):
    features, labels = draw(700, 500)
    features = features.astype(dtype)
    examples = Examples.of(features, labels)
    coefficients = np.random.default_rng(3).random(700) * (np.arange(700) % 3 > 0)
    exact = features.astype(float)
    tolerance = {"rel": 1e-12, "abs": 1e-11}
    full = np.column_stack([exact, np.ones(700)])
    expected = (full * coefficients[:, None]).T @ full
    point = np.random.default_rng(5).standard_normal(501)
    assert examples.gram_times(coefficients, point) == pytest.approx(
        expected @ point, rel=1e-12, abs=1e-10
    )
    expected[:-1, :-1] += 2 * np.eye(500)
    solution = examples.factor(coefficients, 2.0, 0.0).solve(point[:-1], point[-1])
    assert np.append(*solution) == pytest.approx(np.linalg.solve(expected, point), abs=1e-11)
    total, last = examples.signed_total(coefficients)
    assert total == pytest.approx((coefficients * labels) @ exact, **tolerance)
    assert last == pytest.approx(coefficients @ labels)
    weights = np.random.default_rng(4).standard_normal(500)
    assert examples.margins(weights, 0.5) == pytest.approx(
        labels * (exact @ weights + 0.5), **tolerance
    )


def test_one_sample_is_one_class() -> None:
    found = fit_readout(np.array([[1.0, 2.0]]), np.array([-1]), loss="logistic", ridge=0.1)
    assert found.bias < 0
    assert found.train_error == 0
