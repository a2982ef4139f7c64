"""Message passing: its parts against enumeration, its two samplers against each other."""

import itertools

import numpy as np
import pytest

from sparsetoken import Query, Task, Training, features, fit_readout, get_loss, sample, simulate
from sparsetoken.simulation.message_passing import (
    _ReducedTokens,
    learn_direction,
    place_means,
    simulate_message_passing,
)
from sparsetoken.validation import ParameterError


@pytest.mark.parametrize("informative", [1, 2, 3, 4, 5])
def test_place_means_against_listing_all_subsets(informative: int) -> None:
    scores = 3 * np.random.default_rng(0).standard_normal((4, 6))
    subsets = list(itertools.combinations(range(6), informative))
    inside = np.array([[place in subset for place in range(6)] for subset in subsets])
    weights = np.exp(scores @ inside.T)
    expected = weights @ inside / weights.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(place_means(scores, informative), expected, rtol=1e-12)


def test_products_with_reduced_tokens_are_those_of_one_matrix() -> None:
    # ⟨v, X x⟩ = ⟨Xᵀv, x⟩ for all vectors asked for so far, though X was never drawn.
    rng = np.random.default_rng(1)
    tokens = _ReducedTokens(Task(4, 2, 3.0), 5, 7, rng)
    rights, lefts = rng.standard_normal((3, 7)), rng.standard_normal((3, 5, 4))
    scores, sums = [], []
    for x, v in zip(rights, lefts, strict=True):
        scores.append(tokens.scores(x))
        sums.append(tokens.sums(v))
    for (x, score), (v, total) in itertools.product(
        zip(rights, scores, strict=True), zip(lefts, sums, strict=True)
    ):
        assert np.sum(v * score) == pytest.approx(total @ x, rel=1e-10)
    np.testing.assert_allclose(tokens.scores(rights[0] + rights[2]), scores[0] + scores[2])


def test_reduced_tokens_have_the_law_of_drawn_ones() -> None:
    # Second products see the conditioning: mean and variance of ⟨X x, X x'⟩ over 4000 draws.
    rng = np.random.default_rng(2)
    task = Task(3, 1, 2.0)
    x, other = np.array([1.0, 0.5, 0.0, -1.0]), np.array([0.5, 1.0, 1.0, 0.0])
    reduced, plain = [], []
    for _ in range(4000):
        tokens = _ReducedTokens(task, 2, 4, rng)
        back = tokens.sums(tokens.scores(x))
        reduced.append(float(back @ other + np.sum(tokens.scores(other))))
        rows = rng.standard_normal((2, 3, 4))
        rows[:, 0, 0] += task.strength
        drawn = rows.reshape(6, 4)
        plain.append(float(drawn @ x @ drawn @ other + np.sum(drawn @ other)))
    for power in (1, 2):
        a, b = np.array(reduced) ** power, np.array(plain) ** power
        z = (a.mean() - b.mean()) / np.hypot(a.std(), b.std()) * np.sqrt(4000)
        assert abs(z) < 3.5


@pytest.mark.parametrize(
    ("task", "alpha"), [(Task(10, 1, 4.0, 0.5), 0.5), (Task(8, 3, 2.0, 0.4), 1.0)]
)
def test_samplers_agree(task: Task, alpha: float) -> None:
    found = [
        simulate_message_passing(task, alpha, dimension=120, trials=24, sampler=sampler)
        for sampler in ("reduced", "plain")
    ]
    for name in ("overlap", "estimated_overlap", "test_error"):
        errors = [item.uncertainty[name] for item in found]
        gap = getattr(found[0], name) - getattr(found[1], name)
        # About 0.03 in the overlap would be noticed.
        assert abs(gap) < 3.5 * np.hypot(*errors)


def test_the_direction_learnt_on_arrays_classifies_and_serves_as_a_query() -> None:
    task, rng = Task(10, 1, 5.0, 0.5), np.random.default_rng(5)
    train = sample(task, 400, dimension=200, rng=rng)
    test = sample(task, 1500, dimension=200, rng=rng, signal=train.signal)
    learnt = learn_direction(task, train.X, train.y)
    assert learnt.solution.converged
    overlap = float(learnt.direction @ train.signal) ** 2
    assert overlap > 0.93
    assert learnt.estimated_overlap == pytest.approx(overlap, abs=0.12)
    error = float(np.mean(learnt.predict(task, test.X) != test.y))
    assert error < 0.04
    query = 2 * learnt.direction
    readout = fit_readout(
        features(train.X, "attention", query=query), train.y, loss=get_loss("logistic"), ridge=0.01
    )
    scores = features(test.X, "attention", query=query) @ readout.weights + readout.bias
    # The readout needs samples of its own: it does worse than the known ratio, better than chance.
    assert error < float(np.mean(np.sign(scores) != test.y)) < 0.15


def test_the_alignment_serves_as_a_query_of_simulate() -> None:
    task, training = Task(10, 1, 5.0), Training(2.0, 2.0, ridge=0.01, query_step=20.0)
    learnt = simulate_message_passing(task, 2.0, dimension=200, trials=2)
    query = Query(learnt.alignment, 2.0)
    better = simulate(task, training, dimension=200, trials=4, query=query).mean("test_error")
    assert better is not None
    usual = simulate(task, training, dimension=200, trials=4).mean("test_error")
    assert usual is not None
    assert better < usual


def test_nothing_to_learn_from() -> None:
    task = Task(5, 1, 0.0)
    found = simulate_message_passing(task, 1.0, dimension=50, trials=3)
    assert (found.overlap, found.test_error) == (0.0, 0.5)
    only_negatives = sample(Task(5, 1, 2.0), 20, dimension=10, rng=np.random.default_rng(0))
    learnt = learn_direction(Task(5, 1, 2.0), only_negatives.X, -np.ones(20))
    assert learnt.estimated_overlap == 0
    assert not learnt.direction.any()
    # The tokens then say nothing: the more frequent label is the best guess.
    for rate, label in ((0.6, 1), (0.4, -1)):
        guessed = learnt.predict(Task(5, 1, 2.0, rate), only_negatives.X)
        assert set(guessed.tolist()) == {label}


def test_the_same_seed_gives_the_same_trials() -> None:
    runs = [
        simulate_message_passing(Task(5, 1, 3.0), 1.0, dimension=40, trials=2, seed=s)
        for s in (1, 1, 2)
    ]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def test_bad_input_is_named() -> None:
    task = Task(5, 1, 3.0)
    with pytest.raises(ParameterError, match="sampler = 'magic'"):
        simulate_message_passing(task, 1.0, dimension=10, sampler="magic")
    with pytest.raises(ParameterError, match="alpha = 0"):
        simulate_message_passing(task, 0, dimension=10)
    with pytest.raises(ParameterError, match="tokens in X = 4"):
        learn_direction(task, np.zeros((3, 4, 2)), np.ones(3))
    with pytest.raises(ParameterError, match="values -1 and"):
        learn_direction(task, np.zeros((3, 5, 2)), np.zeros(3))
    damaged = np.full((3, 5, 2), np.nan)
    learnt = learn_direction(task, np.ones((3, 5, 2)), np.ones(3))
    with pytest.raises(ParameterError, match="X = 'NaN or infinity'"):
        learn_direction(task, damaged, np.ones(3))
    with pytest.raises(ParameterError, match="X = 'NaN or infinity'"):
        learnt.predict(task, damaged)
    with pytest.raises(ParameterError, match="tolerance = -1"):
        learn_direction(task, np.zeros((3, 5, 2)), np.ones(3), tolerance=-1)


def test_every_trial_is_told_when_it_is_done() -> None:
    told: list[tuple[int, int]] = []
    simulate_message_passing(
        Task(4, 1, 4.0),
        2.0,
        dimension=8,
        trials=3,
        max_steps=1,
        progress=lambda *at: told.append(at),
    )
    assert told == [(1, 3), (2, 3), (3, 3)]
