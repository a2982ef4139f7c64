"""The reduced sampler's pieces: shapes, memory, and the triangular factor's law."""

import itertools
import tracemalloc
from functools import partial

import numpy as np
import pytest
from scipy.stats import ks_2samp, kstest

from sparsetoken import Loss, Query, Task, Training, register_loss, run_trial
from sparsetoken.simulation.reduced import (
    attention_triples,
    gaussian_columns,
    reduced_attention,
    reduced_pooled,
    reduced_query,
    reduced_vectorised,
    token_noise,
)
from sparsetoken.simulation.reused import reduced_reused

TASK = Task(length=6, informative=2, strength=3.0, positive_rate=0.4)
FREQUENT = Task(length=6, informative=3, strength=3.0, positive_rate=0.95)


@pytest.mark.parametrize(("count", "dimension"), [(30, 10), (10, 30), (5, 2), (40, 3)])
def test_no_more_columns_than_samples_can_see(count, dimension):
    rng = np.random.default_rng(0)
    features, labels = reduced_attention(TASK, 0.5, 1.0, count, dimension, rng)
    assert features.shape == (count, min(dimension, count + 2))
    assert set(labels) <= {-1, 1}
    features, _ = reduced_pooled(TASK, count, dimension, rng)
    assert features.shape == (count, min(dimension, count + 1))
    features, _ = reduced_vectorised(TASK, count, dimension, rng)
    assert features.shape == (count, 6 + min(6 * (dimension - 1), count))


@pytest.mark.parametrize("count", [2, 40])
@pytest.mark.parametrize(
    ("draw", "degrees", "variance"),
    [
        (partial(reduced_attention, Task(3, 1, 0.0), 0.5, 0.0), 6, 1 / 3),
        (partial(reduced_pooled, Task(3, 1, 0.0)), 6, 1 / 3),
        (partial(reduced_vectorised, Task(3, 1, 0.0)), 18, 1.0),
    ],
    ids=["attention", "pooled", "vectorised"],
)
def test_features_have_as_many_degrees_of_freedom_as_there_are_coordinates(
    draw, degrees, variance, count
):
    """Without a signal squares are chi-squares: 4 standard errors are 0.3 of a degree, or less."""
    rng = np.random.default_rng(0)
    rows = [draw(count, 6, rng)[0] for _ in range(6000 // count)]
    squares = (np.concatenate(rows) ** 2).sum(axis=1) / variance
    assert abs(squares.mean() - degrees) < 4 * np.sqrt(2 * degrees / len(squares)) < 0.5
    assert squares.var() == pytest.approx(2 * degrees, rel=0.15)


def test_the_triangular_factor_has_the_gram_matrix_of_a_gaussian_matrix():
    # The determinant of a Wishart matrix is a product of independent chi-squares; compare with
    # matrices drawn in full (two moments and the whole law of a ratio of entries).
    rng = np.random.default_rng(1)
    factors = np.array([gaussian_columns(3, 0, 7, rng, float) for _ in range(4000)])
    full = rng.standard_normal((4000, 3, 7))
    assert np.all(np.triu(factors[0], 1) == 0)
    grams = factors @ factors.transpose(0, 2, 1)
    expected = full @ full.transpose(0, 2, 1)
    for entry in ((0, 0), (2, 2), (0, 2), (1, 2)):
        index = (slice(None), *entry)
        assert kstest(grams[index], expected[index]).pvalue > 1e-3 / 5
    assert kstest(np.linalg.det(grams), np.linalg.det(expected)).pvalue > 1e-3 / 5


@pytest.mark.parametrize(
    ("task", "dimension", "reuse"),
    [
        (TASK, 2, False),
        (Task(6, 2, 1.5, positive_rate=0.9), 2, False),
        (TASK, 3, False),
        (TASK, 4, False),
        (TASK, 3, True),
        (FREQUENT, 3, False),
        (FREQUENT, 3, True),
    ],
)
def test_queries_have_the_law_of_the_stages_done_on_drawn_tokens(task, dimension, reuse):
    """Do stages 1 to 3 on arrays (draws, n, L, d), for 4,000 draws of either kind.

    One degree of a chi more or less changes every law at these dimensions by far more than the
    distance of 0.05 that the test notices; 28 comparisons share a level of 1e-3. Where nearly all
    are positive, what tokens share along the signal and along the readout decides the spread of
    the query along the signal. In two dimensions there is nothing outside the plane of signal and
    readout: 20,000 draws, which notice 0.022, see whether the noise in it is orthogonal to the readout.
    """
    draws = 20_000 if dimension == 2 else 4000
    count, steps = 6, {"readout_step": 2.0, "bias_step": 1.0, "query_step": 3.0}
    training = Training(count / dimension, 1.0, loss="logistic", **steps)
    rng = np.random.default_rng(7)
    found = [
        reduced_reused(task, training, count, dimension, rng)[0]
        if reuse
        else reduced_query(task, training, count, dimension, rng)
        for _ in range(draws)
    ]
    y = np.where(rng.random((draws, count)) < task.positive_rate, 1.0, -1.0)
    tokens = rng.standard_normal((draws, count, task.length, dimension))
    tokens[:, :, : task.informative, 0] += task.strength * (y > 0)[..., None]
    mean = tokens.mean(axis=2)
    readout = steps["readout_step"] / 2 * np.einsum("tn,tnd->td", y, mean) / count
    bias = steps["bias_step"] / 2 * y.mean(axis=1)
    margins = y * (np.einsum("tnd,td->tn", mean, readout) + bias[:, None])
    pull = y / (1 + np.exp(margins))
    scores = np.einsum("tnld,td->tnl", tokens - mean[:, :, None], readout)
    query = np.einsum("tn,tnl,tnld->td", pull, scores, tokens) / (count * task.length)
    norm = steps["query_step"] * np.linalg.norm(query, axis=1)
    compared = {
        "norm": norm,
        "alignment": steps["query_step"] * query[:, 0] / norm,
        "along the signal": steps["query_step"] * query[:, 0],
        "readout_cosine": readout[:, 0] / np.linalg.norm(readout, axis=1),
    }
    for name, expected in compared.items():
        drawn = [
            state.alignment * state.norm if name == "along the signal" else getattr(state, name)
            for state in found
        ]
        assert ks_2samp(drawn, expected).pvalue > 1e-3 / 28, name


def test_single_precision_features():
    rng = np.random.default_rng(0)
    for features, _ in (
        reduced_attention(TASK, 0.5, 1.0, 40, 10, rng, "float32"),
        reduced_pooled(TASK, 5, 10, rng, "float32"),
        reduced_vectorised(TASK, 20, 10, rng, "float32"),
    ):
        assert features.dtype == np.float32


def test_the_law_of_attention_is_that_of_its_definition():
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((50, 6))
    positive = rng.random(50) < 0.5
    v = (np.arange(6) < 2) * positive[:, None]
    p = np.exp(1.7 * (3.0 * -0.6 * v + noise))
    p /= p.sum(axis=1, keepdims=True)
    on_signal, along, spread = attention_triples(TASK, -0.6, 1.7, noise, positive)
    assert on_signal == pytest.approx((v * p).sum(axis=1))
    assert along == pytest.approx((noise * p).sum(axis=1))
    assert spread == pytest.approx(np.linalg.norm(p, axis=1))


def test_both_labels_can_share_the_work():
    noise = token_noise(20, 6, np.random.default_rng(0))
    both = attention_triples(TASK, 0.4, 2.0, noise, np.array([[True], [False]]))
    for row, label in enumerate((True, False)):
        alone = attention_triples(TASK, 0.4, 2.0, noise, np.full(20, label))
        for shared, single in zip(both, alone, strict=True):
            assert shared[row] == pytest.approx(single)


def test_attention_does_not_overflow_at_any_sharpness():
    noise = token_noise(50, 6, np.random.default_rng(0))
    for alignment, sharpness in itertools.product((-1.0, 1.0), (1e6, 1e38, 1e300)):
        on_signal, along, spread = attention_triples(TASK, alignment, sharpness, noise, True)
        scores = noise.astype(float) + TASK.strength * alignment * (np.arange(6) < 2)
        chosen = scores.argmax(axis=1)
        assert on_signal == pytest.approx((chosen < 2).astype(float))
        assert along == pytest.approx(noise[np.arange(50), chosen])
        assert spread == pytest.approx(1)


def test_token_noise_is_standard_normal():
    # 10 comparisons of seeded draws: |z| <= 4 has a chance of less than 1e-3 to fail in all.
    noise = token_noise(1001, 2999, np.random.default_rng(0)).astype(float)
    assert noise.shape == (1001, 2999)
    values = noise.ravel()
    pairs = (values.size + 1) // 2
    normal = {1: 0, 2: 1, 3: 0, 4: 3, 5: 0, 6: 15}
    squares = {1: 1, 2: 3, 3: 15, 4: 105, 5: 945, 6: 10395}
    for power, expected in normal.items():
        error = np.sqrt((squares[power] - expected**2) / values.size)
        assert abs(np.mean(values**power) - expected) <= 4 * error
    for first, second in ((values[:-pairs], values[pairs:]), (values[1:], values[:-1])):
        # The two of a pair, and neighbours, are independent: so are their squares.
        assert abs(np.mean(first * second)) <= 4 / np.sqrt(first.size)
        assert abs(np.mean((first**2 - 1) * (second**2 - 1))) <= 8 / np.sqrt(first.size)
    assert kstest(values, "norm").pvalue > 1e-3


def test_a_loss_that_is_flat_at_0_learns_no_query():
    class Flat(Loss):
        name = "reduced-test-flat"
        minimisers = (0.0, 0.0)

        def value(self, margin):
            return 0.5 * margin**2

        def slope(self, margin):
            return margin * 1.0

        def curvature(self, margin):
            return np.ones_like(margin)

    register_loss(Flat())
    training = Training(2.0, 3.0, loss="reduced-test-flat")
    query = reduced_query(TASK, training, 20, 10, np.random.default_rng(0))
    assert (query.alignment, query.norm) == (0.0, 0.0)
    for sampler in ("reduced", "plain"):
        trial = run_trial(TASK, training, dimension=10, trial=0, sampler=sampler)
        assert trial.sharpness == 0


@pytest.mark.parametrize("loss", ["logistic", "square", "squared_hinge", "hinge"])
@pytest.mark.parametrize(("ratio", "ridge"), [(0.5, 0.0), (0.75, 1e-3), (2.0, 1e-3), (4.0, 1e-3)])
def test_memory_stays_within_one_and_a_half_feature_matrices(loss, ratio, ridge):
    dimension = 400
    training = Training(4.0, ratio, loss=loss, ridge=ridge)
    query = Query(0.8, 1.0)
    run_trial(
        TASK, training, dimension=10, trial=0, query=query
    )  # what is imported and cached once is not counted
    tracemalloc.start()
    try:
        run_trial(TASK, training, dimension=dimension, trial=0, query=query)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= 1.5 * 8 * ratio * dimension**2
