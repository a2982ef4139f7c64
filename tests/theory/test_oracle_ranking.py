"""The best ranking by a classifier that knows the signal, against drawn sequences and theory."""

import numpy as np
import pytest
from scipy.special import log_ndtr, ndtr, softmax
from scipy.stats import rankdata

from sparsetoken import ParameterError, PoissonCount, Query, Task, Training, predict
from sparsetoken.theory.oracle import ORACLES
from sparsetoken.theory.oracle_ranking import RANKINGS, best_ranking


def drawn_misranked(task: Task, sharpness: float, count: int, seed: int) -> float:
    """Count pairs in the wrong order among drawn projections: own code, all pairs."""
    rng = np.random.default_rng(seed)
    scores = []
    for label in (1, 0):
        x = rng.standard_normal((count, task.length))
        x[:, : task.informative] += label * task.strength
        scores.append(np.sum(softmax(sharpness * x, axis=1) * x, axis=1))
    places = rankdata(np.concatenate(scores))[:count]
    return 1 - float(places.sum() - count * (count + 1) / 2) / count**2


@pytest.mark.parametrize("task", [Task(20, 1, 4.0), Task(20, 5, 2.0), Task(6, 2, 1.0, 0.2)])
def test_the_share_of_misranked_pairs_is_that_of_drawn_ones(task: Task) -> None:
    """20 000 sequences of either label: z below 4, that is, a deviation of 0.005 is noticed."""
    found = best_ranking(task, "attention")
    assert found.sharpness is not None
    means = [drawn_misranked(task, found.sharpness, 2000, seed) for seed in range(10)]
    error = np.std(means, ddof=1) / np.sqrt(10)
    assert error < 0.0025
    assert abs(np.mean(means) - found.misranked) < 4 * error + found.uncertainty


@pytest.mark.slow
@pytest.mark.parametrize("task", [Task(20, 1, 4.0), Task(20, PoissonCount(2), 4.0)])
def test_theory_comes_down_to_it_with_ever_more_samples_and_not_below(task: Task) -> None:
    found = best_ranking(task, "attention")
    assert found.sharpness is not None
    for factor in (0.5, 1.0, 2.0):
        training = Training(1.0, 2000.0, ridge=1e-6)
        query = Query(1.0, factor * found.sharpness)
        reached = predict(task, training, query=query, tolerance=1e-3)
        bar = reached.ranking.uncertainty["auc"] + found.uncertainty
        assert 1 - reached.auc > found.misranked - bar
        if factor == 1:
            assert 1 - reached.auc == pytest.approx(found.misranked, rel=0.02)


def test_linear_classifiers_have_two_normal_laws() -> None:
    task = Task(16, 2, 3.0)
    for classifier in ("pooled", "vectorised"):
        found = best_ranking(task, classifier)
        assert found.misranked == pytest.approx(ndtr(-3 * 2 / 4 / np.sqrt(2)))
        training = Training(1.0, 3000.0, ridge=1e-6)
        if classifier == "pooled":
            reached = predict(task, training, classifier=classifier)
            assert 1 - reached.auc == pytest.approx(found.misranked, rel=0.01)


@pytest.mark.parametrize("name", ["atention", "elementwise", "gentle", ["bayes"]])
def test_other_classifiers_are_refused(name: str) -> None:
    with pytest.raises(ParameterError, match=r"classifier = .* 'attention', 'bayes', 'pooled'"):
        best_ranking(Task(16, 2, 3.0), name)


def test_every_rule_that_knows_the_signal_has_a_ranking_but_elementwise_attention() -> None:
    assert {*RANKINGS, "elementwise"} == set(ORACLES)


def test_rare_pairs_keep_their_digits() -> None:
    """At θ = 8 a pair is misranked if the largest of 20 noise tokens passes the informative one."""
    grid = np.linspace(-9, 17, 40001)
    density = np.exp(-((grid - 8) ** 2) / 2) / np.sqrt(2 * np.pi)
    # A positive is its informative token here, a negative its largest: the others play no part.
    above = -np.expm1(20 * log_ndtr(grid))
    bound = float(np.trapezoid(density * above, grid))
    found = best_ranking(Task(20, 1, 8.0), "attention")
    assert found.misranked == pytest.approx(bound, rel=0.1)
    assert found.uncertainty < 0.05 * found.misranked


def test_without_a_signal_nothing_is_ranked() -> None:
    found = best_ranking(Task(4, 1, 0.0), "attention")
    assert found.misranked == pytest.approx(0.5, abs=found.uncertainty + 1e-3)
    assert best_ranking(Task(4, 1, 0.0), "pooled").misranked == 0.5
