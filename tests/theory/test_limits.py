"""Limits in which the answer is known without solving anything (docs/theory.md, section 8)."""

import numpy as np
import pytest
from scipy.optimize import brentq, minimize_scalar
from scipy.special import ndtr

from sparsetoken import Query, Task, Training, align, capacity, get_loss, oracle, predict
from sparsetoken.arrays import Array
from sparsetoken.numerics.solution import Status
from sparsetoken.theory import limit
from sparsetoken.theory.attention_law import attention_law
from sparsetoken.theory.feature_law import FeatureLaw
from sparsetoken.theory.laws import pooled_law
from sparsetoken.theory.potential import Potential
from sparsetoken.theory.reuse import reused_law
from sparsetoken.theory.saddle import Saddle, solve_saddle

TASK = Task(length=10, informative=1, strength=5.0)
UNBALANCED = Task(length=10, informative=2, strength=4.0, positive_rate=0.4)
TRAINING = Training(alpha0=2, alpha1=2, ridge=1e-2)
QUERY = Query(alignment=0.8, sharpness=1.0)


def error_of(law: FeatureLaw, weights: Array, rest: float) -> float:
    """Return E Φ(-y m/(Sρ)) for weights (μ_q, μ_e, b) and ν."""
    margin = law.label * (law.coordinates @ weights[:2] + weights[2])
    return float(law.weight @ ndtr(-margin / (law.scale * np.hypot(rest, weights[1]))))


@pytest.mark.parametrize("alignment", [0.0, 0.7, 1.0])
def test_attention_without_sharpness_is_pooling(alignment: float) -> None:
    query = Query(alignment, 0.0)
    attention = predict(UNBALANCED, TRAINING, query=query)
    pooled = predict(UNBALANCED, TRAINING, classifier="pooled")
    assert abs(attention.test_error - pooled.test_error) <= attention.uncertainty.test_error
    assert abs(attention.train_loss - pooled.train_loss) <= attention.uncertainty.train_loss
    found = capacity(UNBALANCED, query=query)
    assert abs(found.alpha - capacity(UNBALANCED, classifier="pooled").alpha) <= found.uncertainty


def test_endless_sharpness_takes_one_token() -> None:
    law = attention_law(TASK, Query(0.6, 1e6), 6)
    assert np.all(law.scale == 1)
    # c_e = θ√(1-γ²) A with A 0 or 1.
    assert set(np.round(law.coordinates[:, 1], 12)) == {0.0, 4.0}


def test_a_query_without_alignment_only_adds_noise() -> None:
    law = attention_law(TASK, Query(0.0, 1.0), 12)
    assert np.all(law.scale > 1 / np.sqrt(TASK.length))
    positive = law.label > 0
    amplitude = law.coordinates[positive, 1].mean() / TASK.strength
    assert amplitude == pytest.approx(TASK.informative / TASK.length, rel=1e-3)


def test_the_training_task_at_test_time_changes_nothing() -> None:
    plain = predict(UNBALANCED, TRAINING, query=QUERY)
    again = predict(UNBALANCED, TRAINING, query=QUERY, at=UNBALANCED)
    allowed = plain.uncertainty.test_error + again.uncertainty.test_error
    assert abs(plain.test_error - again.test_error) <= allowed


@pytest.mark.parametrize("loss", ["logistic", "square"])
def test_with_many_samples_attention_reaches_its_oracle_up_to_the_threshold(loss: str) -> None:
    query = Query(1.0, 2.0)
    best = oracle(TASK, sharpness=2.0)
    training = TRAINING.replace(loss=loss, alpha1=1e4, ridge=0.0)
    found = predict(TASK, training, query=query).test_error
    assert best.test_error - best.uncertainty <= found <= best.test_error + 0.005


@pytest.mark.parametrize("alignment", [0.0, 0.5, 1.0])
def test_capacity_of_pure_noise_is_two(alignment: float) -> None:
    noise = TASK.replace(strength=0.0)
    assert capacity(noise, query=Query(alignment, 1.0)).alpha == pytest.approx(2, rel=1e-4)
    assert capacity(noise, classifier="pooled").alpha == pytest.approx(2, rel=1e-12)
    assert capacity(noise, classifier="vectorised").alpha == pytest.approx(20, rel=1e-12)


def test_capacity_of_unbalanced_noise_is_that_of_a_bias() -> None:
    def hinged(x: float) -> float:
        return float((x**2 + 1) * ndtr(x) + x * np.exp(-0.5 * x**2) / np.sqrt(2 * np.pi))

    least = minimize_scalar(lambda b: 0.3 * hinged(-b) + 0.7 * hinged(b)).fun
    noise = TASK.replace(strength=0.0, positive_rate=0.3)
    assert capacity(noise, classifier="pooled").alpha == pytest.approx(1 / least, rel=1e-9)


def test_no_signal_no_alignment_and_no_better_than_chance() -> None:
    noise = UNBALANCED.replace(strength=0.0)
    assert align(noise, TRAINING).alignment == 0
    for classifier in ("attention", "pooled", "bayes"):
        assert oracle(noise, classifier=classifier).test_error == pytest.approx(0.4, abs=1e-3)
    found = predict(TASK.replace(strength=0.0), TRAINING, query=QUERY)
    assert found.test_error == pytest.approx(0.5, abs=1e-4)


@pytest.mark.parametrize("loss", ["logistic", "square", "squared_hinge", "hinge"])
def test_vectorised_is_pooled_with_fewer_samples_and_ridge(loss: str) -> None:
    many = TRAINING.replace(loss=loss, alpha1=20, ridge=1e-2)
    few = many.replace(alpha1=2, ridge=1e-3)
    vectorised = predict(UNBALANCED, many, classifier="vectorised")
    pooled = predict(UNBALANCED, few, classifier="pooled")
    assert vectorised.test_error == pytest.approx(pooled.test_error, abs=1e-9)
    assert vectorised.train_loss == pytest.approx(pooled.train_loss, abs=1e-9)


@pytest.mark.parametrize("rate", [0.5, 0.2])
def test_with_many_samples_pooling_reaches_its_oracle_at_rate_one(rate: float) -> None:
    task = UNBALANCED.replace(positive_rate=rate)
    best = oracle(task, classifier="pooled").test_error
    excess = [
        predict(task, TRAINING.replace(alpha1=ratio, ridge=0.0), classifier="pooled").test_error
        - best
        for ratio in (1e3, 1e4)
    ]
    assert excess[1] > 0
    assert excess[0] / excess[1] == pytest.approx(10, rel=0.05)


@pytest.mark.parametrize("loss", ["logistic", "square"])
def test_alignment_reaches_one_at_the_stated_rate(loss: str) -> None:
    found = align(UNBALANCED, TRAINING.replace(loss=loss, alpha0=1e6))
    assert 1e6 * (1 - abs(found.alignment)) == pytest.approx(found.rate_constant, rel=1e-4)


@pytest.mark.parametrize("factor", [0.99, 1.01])
def test_small_steps_anti_align_below_the_stated_rate(factor: float) -> None:
    length, informative, strength = 10, 3, 2.0
    spread = informative - informative**2 / length
    boundary = (length - 1) / (strength**2 * spread + 2 * (length - 1))
    task = Task(length, informative, strength, positive_rate=factor * boundary)
    found = align(task, TRAINING.replace(readout_step=1e-4, bias_step=1e-4, alpha0=1e5))
    assert found.anti_aligned == (factor < 1)


@pytest.mark.parametrize("loss", ["logistic", "square", "squared_hinge"])
def test_a_heavy_ridge_gives_the_sum_of_signed_features(loss: str) -> None:
    ratio = 2.0
    found = predict(TASK, TRAINING.replace(loss=loss, alpha1=ratio, ridge=1e6), query=QUERY)
    law = attention_law(TASK, QUERY, 12)
    slope = abs(float(get_loss(loss).slope(np.zeros(1))[0]))
    along, across = (slope * float(law.weight @ (law.label * part)) for part in law.coordinates.T)
    rest = slope * np.sqrt(law.weight @ law.scale**2 / ratio)
    centre = law.weight @ (law.coordinates @ [along, across])
    bias = -centre - slope / ratio * (law.weight @ (law.label * law.scale**2))
    expected = error_of(law, np.array([along, across, bias]), rest)
    assert found.test_error == pytest.approx(expected, abs=2e-4)
    assert 1e6 * found.order_parameters.rest == pytest.approx(rest, rel=1e-3)


def test_a_heavy_ridge_on_unbalanced_labels_always_says_the_frequent_one() -> None:
    found = predict(UNBALANCED, TRAINING.replace(ridge=1e5), query=QUERY)
    assert found.test_error == pytest.approx(0.4, abs=1e-6)


def test_square_loss_closes_algebraically() -> None:
    ratio, ridge = 2.0, 1e-2
    law = attention_law(UNBALANCED, QUERY, 12)
    square = law.scale**2
    step = brentq(
        lambda x: 1 / x - ratio * ridge - ratio * (law.weight @ (square / (1 + x * square))),
        1e-6,
        1e6,
    )
    weight = ratio * law.weight / (1 + step * square)
    columns = np.stack([*law.coordinates.T, np.ones_like(square)])
    matrix = columns * weight @ columns.T + np.diag([ratio * ridge, 1 / step, 0.0])
    weights = np.linalg.solve(matrix, columns @ (weight * law.label))
    shrunk = step**2 * weight * square / (1 + step * square)
    misfit = shrunk @ (columns.T @ weights - law.label) ** 2
    own = shrunk @ square
    rest = np.sqrt((misfit + own * weights[1] ** 2) / (1 - own))
    found = predict(UNBALANCED, TRAINING.replace(loss="square", alpha1=ratio), query=QUERY)
    assert found.order_parameters.susceptibility == pytest.approx(step, rel=1e-3)
    assert found.order_parameters.rest == pytest.approx(rest, rel=1e-3)
    assert found.test_error == pytest.approx(error_of(law, weights, rest), abs=2e-4)


@pytest.mark.parametrize("ratio", [1.5, 3.0])
def test_square_loss_without_ridge_has_its_susceptibility(ratio: float) -> None:
    training = TRAINING.replace(loss="square", alpha1=ratio, ridge=0.0)
    found = predict(TASK, training, classifier="pooled").order_parameters.susceptibility
    assert found == pytest.approx(TASK.length / (ratio - 1), rel=1e-9)


@pytest.mark.parametrize(("loss", "ratio"), [("square", 0.6), ("logistic", 2.0)])
def test_no_ridge_is_the_limit_of_small_ridges(loss: str, ratio: float) -> None:
    """Interpolation for the square loss; the maximum margin, by another loss, for the logistic."""
    training = TRAINING.replace(loss=loss, alpha1=ratio, ridge=0.0)
    limit = predict(TASK, training, query=QUERY)
    small = training.replace(ridge=1e-6)
    if loss == "logistic":
        small = small.replace(loss="squared_hinge", ridge=1e-7)
    near = predict(TASK, small, query=QUERY)
    assert near.test_error == pytest.approx(limit.test_error, abs=1e-5)
    assert near.order_parameters.rest == pytest.approx(limit.order_parameters.rest, rel=1e-3)


def test_the_margin_vanishes_at_capacity() -> None:
    threshold = capacity(TASK, classifier="pooled").alpha
    margins = [
        predict(
            TASK, TRAINING.replace(alpha1=share * threshold, ridge=0.0), classifier="pooled"
        ).margin
        for share in (0.9, 0.99, 0.999)
    ]
    assert margins[0] / margins[1] == pytest.approx(10, rel=0.15)
    assert margins[1] / margins[2] == pytest.approx(10, rel=0.03)


@pytest.mark.parametrize(
    ("task", "training", "classifier"),
    [
        (Task(10, 1, 4.0), Training(6, 3, ridge=10, query_step=20.0, loss="hinge"), "attention"),
        (Task(100, 1, 4.0), Training(6, 3, ridge=0.1, loss="hinge"), "pooled"),
        # A surplus far below what any data resolve changes nothing.
        (Task(100, 1, 4.0, 0.5 + 1e-9), Training(6, 3, ridge=0.1, loss="hinge"), "pooled"),
    ],
)
def test_a_bias_that_the_loss_does_not_determine_is_said_to_be_free(
    task: Task, training: Training, classifier: str
) -> None:
    """All margins on the straight part of the hinge: simulation gives 0.4999 at d = 400."""
    found = predict(task, training, classifier=classifier)
    assert found.solution.status is Status.NOT_UNIQUE
    bar = found.ranking.uncertainty["balanced_error"]
    assert bar == pytest.approx(found.uncertainty.test_error, rel=0.1)
    assert "any bias from" in found.solution.message
    assert abs(found.test_error - 0.4999) < 1e-3
    # The bar reaches to the error of the best bias, which was once given as the answer.
    best = 0.2349 if classifier == "attention" else 0.4739
    assert found.test_error - found.uncertainty.test_error <= best + 1e-3
    # So does that of the training error, which is below the test error of the same readout.
    assert found.train_error - found.uncertainty.train_error <= best + 1e-3
    # It is how far the errors differ, and no more.
    assert found.uncertainty.train_error < 0.5
    # With a surplus of a label that is not small the bias is determined, and so is all else.
    tilted = predict(task.replace(positive_rate=0.4), training, classifier=classifier)
    assert tilted.solution.status is not Status.NOT_UNIQUE
    assert tilted.test_error == pytest.approx(0.4, abs=1e-3)


@pytest.mark.parametrize("ridge", [30.0, 100.0, 300.0, 1000.0])
@pytest.mark.parametrize("classifier", ["pooled", "attention"])
def test_a_ridge_that_leaves_hardly_any_readout_has_a_free_bias_too(
    ridge: float, classifier: str
) -> None:
    """Margins vary less than any smoothing of the hinge; these once were degenerate."""
    task = Task(10, 1, 5.0)
    training = Training(4, 2, ridge=ridge, query_step=20.0, loss="hinge")
    found = predict(task, training, classifier=classifier)
    assert found.solution.status is Status.NOT_UNIQUE
    assert "any bias from" in found.solution.message
    assert found.test_error == pytest.approx(0.5, abs=1e-6)
    assert 0.2 < found.uncertainty.test_error < 0.5
    if classifier == "pooled":
        # w is the sum of y f over nλ: the mean margin is ‖E yf‖²/λ + E S²/(αλ), the loss 1 less that.
        assert found.train_loss == pytest.approx(1 - (0.25**2 + 0.05) / ridge, abs=1e-9)
    if ridge >= 100:
        # A surplus far below that of 10^5 samples determines nothing.
        tilted = predict(task.replace(positive_rate=0.5 + 5e-4), training, classifier=classifier)
        assert tilted.solution.status is Status.NOT_UNIQUE


def test_a_hinge_that_bends_enough_has_one_bias() -> None:
    found = predict(
        Task(100, 1, 4.0), Training(6, 3, ridge=0.005, loss="hinge"), classifier="pooled"
    )
    assert found.solution.status is Status.CONVERGED
    assert found.uncertainty.test_error < 1e-8


def test_interpolation_leaves_nothing_on_the_training_data() -> None:
    found = predict(
        Task(5, 1, 3.0), Training(2.0, 0.5, loss="square", ridge=0.0), classifier="pooled"
    )
    assert (found.train_loss, found.train_error) == (0.0, 0.0)
    assert 0 < found.test_error < 0.5


def test_separable_data_are_fitted_without_an_error() -> None:
    found = predict(
        Task(5, 1, 3.0), Training(2.0, 0.5, loss="logistic", ridge=0.0), classifier="pooled"
    )
    assert (found.train_loss, found.train_error) == (0.0, 0.0)
    assert found.margin > 0


def test_a_surplus_moves_the_share_of_positives_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The bias that a loss leaves free is decided by a few more samples of one label."""
    potential = Potential(pooled_law(Task(6, 1, 3.0, 0.3)), get_loss("hinge"), 2.0)
    solved = []

    def record(tilted: Potential, *arguments: object) -> Saddle:
        solved.append(tilted)
        return solve_saddle(tilted, *arguments)

    monkeypatch.setattr(limit, "solve_saddle", record)
    straight = solve_saddle(potential, 0.1).result
    limit._tilted_solution(potential, 0.1, 0.02, straight)
    [tilted] = solved
    assert tilted.law.weight.sum() == pytest.approx(1.0, rel=1e-12)
    assert tilted.law.weight[tilted.law.label > 0].sum() == pytest.approx(0.32, rel=1e-12)


def test_a_coarse_law_that_begins_leaves_the_solution_of_the_fine_one() -> None:
    """The bias is next to free, and corrections with the coarse law's Hessian shrink slowly."""
    task = Task(24, 23, 5.61, 0.45)
    training = Training(
        12.2, 12.2, loss="hinge", ridge=10.0, readout_step=2.1, bias_step=0.14, query_step=2.4,
        inverse_temperature=0.117, reuse=True,
    )  # fmt: skip
    law = reused_law(task, training, 10)
    loss = get_loss(training.loss)
    begun, alone = (
        limit.limit_readout((coarse, law), loss, training.alpha1, training.ridge)
        for coarse in (law.compressed, law)
    )
    assert begun.solution.converged
    assert alone.solution.converged
    assert begun.train_loss == pytest.approx(alone.train_loss, abs=1e-5)
    assert begun.weights == pytest.approx(alone.weights, rel=1e-3)
