"""A random number of informative tokens: samplers against each other and against theory."""

import itertools
import math

import numpy as np
import pytest

from sparsetoken import (
    CountTable,
    ParameterError,
    Step,
    Task,
    Training,
    descend,
    floor,
    predict,
    sample,
    simulate,
    simulate_descent,
    simulate_message_passing,
)
from sparsetoken.simulation.geometry import AttentionGeometry, PooledGeometry, VectorisedGeometry
from sparsetoken.simulation.measures import ScorePoints
from sparsetoken.simulation.message_passing import _log_priors, mixed_place_means
from sparsetoken.simulation.reduced import attention_triples

LAW = CountTable({0: 0.15, 1: 0.35, 2: 0.2, 6: 0.3})
TASK = Task(6, LAW, 3.0, 0.4)
TRAINING = Training(4.0, 3.0, ridge=0.05, query_step=30.0)


def test_plain_sequences_have_their_numbers() -> None:
    """20,000 sequences: every share within 4 standard errors, 0.014 at most."""
    drawn = sample(TASK, 20_000, dimension=2, rng=np.random.default_rng(0))
    numbers = drawn.positions.sum(axis=1)
    assert not numbers[drawn.y < 0].any()
    positive = drawn.y > 0
    for number, chance in TASK.counts:
        share = float(np.mean(numbers[positive] == number))
        assert abs(share - chance) < 4 * math.sqrt(chance * (1 - chance) / positive.sum())
    # All places are alike.
    places = drawn.positions[positive].mean(axis=0)
    assert np.ptp(places) < 6 * math.sqrt(0.25 / positive.sum())
    with pytest.raises(ParameterError, match="not possible here"):
        sample(TASK, 5, dimension=2, rng=np.random.default_rng(0), positions=[0.5] * 6)


def test_triples_by_number_are_those_of_each_number() -> None:
    rng = np.random.default_rng(1)
    noise = rng.standard_normal((40, 6))
    numbers = rng.choice([0, 1, 3, 6], size=40)
    positive = rng.random(40) < 0.7
    for sharpness in (0.0, 1.2, math.inf):
        found = np.stack(attention_triples(TASK, 0.8, sharpness, noise, positive, numbers))
        for row in range(40):
            marked = (np.arange(6) < numbers[row]) & positive[row]
            scores = noise[row] + 3.0 * 0.8 * marked
            if math.isinf(sharpness):
                p = (scores == scores.max()).astype(float)
            else:
                p = np.exp(sharpness * scores)
                p /= p.sum()
            wanted = [p @ marked, p @ noise[row], math.sqrt(p @ p)]
            np.testing.assert_allclose(found[:, row], wanted, atol=1e-12)


@pytest.mark.parametrize(
    "geometry",
    [
        AttentionGeometry(0.8, 1.0, 0.9, 0.4, 0.8, -0.7),
        PooledGeometry(1.0, 1.6, -0.7),
        VectorisedGeometry(np.array([0.5, 0.4, 0.6, 0.3, 0.5, 0.7]), 1.6, -1.0),
    ],
)
def test_errors_without_a_test_set_are_those_on_one(
    geometry: AttentionGeometry | PooledGeometry | VectorisedGeometry,
) -> None:
    """60,000 fresh samples: |z| < 4, a deviation of 0.008."""
    error, bar = geometry.test_error(TASK, np.random.default_rng(2))
    fresh = geometry.fresh_error(TASK, 60_000, np.random.default_rng(3))
    assert abs(fresh - error) < 4 * math.hypot(bar, math.sqrt(error * (1 - error) / 60_000))


def test_weights_of_points_count() -> None:
    rng = np.random.default_rng(4)
    weight = np.array([0.5, 0.3, 0.2])
    mean, spread = np.array([[0.1, 0.9, 2.0]]), np.array([[0.4, 0.5, 0.6]])
    negative = (np.array([[-0.5]]), np.array([[0.5]]))
    weighted = ScorePoints((mean, spread), negative, 0.3, weight=weight)
    repeated = ScorePoints(
        (np.repeat(mean, [5, 3, 2], axis=1), np.repeat(spread, [5, 3, 2], axis=1)), negative, 0.3
    )
    assert weighted.test_error == pytest.approx(repeated.test_error)
    names = ("auc", "average_precision", "balanced_error")
    found, wanted = weighted.measure(names, rng), repeated.measure(names, rng)
    for name in names:
        assert found[name][0] == pytest.approx(wanted[name][0], abs=5e-4)
    assert weighted.recalibrated()[1] == pytest.approx(repeated.recalibrated()[1], abs=1e-4)


@pytest.mark.parametrize("classifier", ["attention", "pooled", "vectorised"])
def test_trials_agree_with_theory(classifier: str) -> None:
    """Twelve trials at d = 150, ridge and few samples: |z| < 4."""
    metrics = ("auc", "average_precision", "balanced_error")
    settings = {"classifier": classifier, "dimension": 150, "trials": 12, "metrics": metrics}
    found = simulate(TASK, TRAINING, **settings).to_dict()  # type: ignore[arg-type]
    wanted = predict(TASK, TRAINING, classifier=classifier, tolerance=1e-3)
    flat = {**wanted.to_dict(), **wanted.metrics(*metrics)}
    for name in ("test_error", "train_loss", "train_error", *metrics):
        assert abs(found[name] - flat[name]) < 4 * found[f"{name}_uncertainty"] + 3e-3, name


@pytest.mark.parametrize("reuse", [False, True])
def test_plain_and_reduced_samplers_agree(reuse: bool) -> None:
    """Twenty trials each at d = 30: |z| < 4, a deviation of 0.03 in the test error."""
    training = TRAINING.replace(alpha1=4.0, reuse=reuse)
    found = [
        simulate(TASK, training, dimension=30, trials=20, sampler=sampler).to_dict()
        for sampler in ("plain", "reduced")
    ]
    for name in ("test_error", "train_loss", "alignment", "readout_norm", "sharpness"):
        gap = found[0][name] - found[1][name]
        bar = math.hypot(*(part[f"{name}_uncertainty"] for part in found))
        assert abs(gap) < 4 * bar, name


def test_reuse_agrees_with_theory() -> None:
    training = TRAINING.replace(alpha1=4.0, reuse=True)
    found = simulate(TASK, training, dimension=150, trials=12).to_dict()
    wanted = predict(TASK, training, tolerance=1e-3).to_dict()
    for name in ("test_error", "train_loss"):
        assert abs(found[name] - wanted[name]) < 4 * found[f"{name}_uncertainty"] + 3e-3, name


def test_another_number_at_test_time() -> None:
    at = Task(12, 2, 3.0, 0.4).keep(6)
    found = simulate(TASK, TRAINING, dimension=150, trials=10, at=at).to_dict()
    wanted = predict(TASK, TRAINING, at=at, tolerance=1e-3).test_error
    assert abs(found["test_error"] - wanted) < 4 * found["test_error_uncertainty"] + 3e-3


def test_descent_agrees_with_theory() -> None:
    """Six trials at d = 200, and plain against reduced at d = 40: |z| < 4."""
    steps = [Step(2.0, readout_step=1.0, bias_step=0.5, query_step=2.0)] * 3
    theory = descend(TASK, steps, tolerance=1e-2)[-1]
    found = simulate_descent(TASK, steps, dimension=200, trials=6)[-1]
    for name in ("test_error", "alignment", "sharpness", "readout_cosine", "bias"):
        bar = found.uncertainty[name]
        assert bar is not None
        assert abs(getattr(found, name) - getattr(theory, name)) < 4 * bar + 5e-3, name
    ways = [
        simulate_descent(TASK, steps, dimension=40, trials=20, sampler=sampler)[-1]
        for sampler in ("plain", "reduced")
    ]
    bars = [way.uncertainty["alignment"] or 0.0 for way in ways]
    assert abs(ways[0].alignment - ways[1].alignment) < 4 * math.hypot(*bars)


def test_place_means_list_all_sets() -> None:
    rng = np.random.default_rng(7)
    scores = 2 * rng.standard_normal((5, 6))
    table = dict(TASK.counts)
    sets = [
        chosen
        for k in range(7)
        for chosen in itertools.combinations(range(6), k)
        if len(chosen) in table
    ]
    members = np.array([[place in chosen for place in range(6)] for chosen in sets], dtype=float)
    priors = np.array([table[len(c)] / math.comb(6, len(c)) for c in sets])
    weights = np.exp(scores @ members.T) * priors
    wanted = weights @ members / weights.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(mixed_place_means(scores, _log_priors(TASK)), wanted, rtol=1e-10)


def test_message_passing_agrees_with_the_floor() -> None:
    """Eight trials at d = 300: |z| < 4.5 of the overlap and of the error."""
    task = Task(8, CountTable({0: 0.2, 1: 0.5, 2: 0.3}), 3.0, 0.5)
    found = simulate_message_passing(task, 1.0, dimension=300, trials=8)
    wanted = floor(task, 1.0)
    for name, value in (("overlap", wanted.overlap), ("test_error", wanted.test_error)):
        bar = found.uncertainty[name]
        assert bar is not None
        assert abs(getattr(found, name) - value) < 4.5 * bar, name
    ways = [
        simulate_message_passing(task, 1.0, dimension=50, trials=10, sampler=sampler)
        for sampler in ("plain", "reduced")
    ]
    bars = [way.uncertainty["overlap"] or 0.0 for way in ways]
    assert abs(ways[0].overlap - ways[1].overlap) < 4 * math.hypot(*bars)
