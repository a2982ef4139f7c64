"""Localisation against counting, and in limits where it is known."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import log_ndtr, softmax
from scipy.stats import norm

from sparsetoken import ParameterError, Query, Task, Training, localise, predict
from sparsetoken.theory.attention_law import attention_law
from sparsetoken.theory.laws import LAWS, ClassifierLaw
from sparsetoken.theory.localisation import hit_rate
from sparsetoken.theory.prediction import known_metrics

COUNT = 40_000


def token_scores(task: Task, alignment: float, seed: int) -> np.ndarray:
    scores = np.random.default_rng(seed).standard_normal((COUNT, task.length))
    scores[:, : task.informative] += task.strength * alignment
    return scores


def z_score(counted: np.ndarray, exact: float) -> float:
    return (counted.mean() - exact) / math.sqrt(max(exact * (1 - exact), 1e-6) / len(counted))


@pytest.mark.parametrize(
    ("length", "informative", "strength", "alignment"),
    [
        (10, 1, 3.0, 0.9),
        (30, 3, 2.0, 0.7),
        (12, 11, 1.0, 1.0),
        (25, 4, 2.0, -0.5),
        (2, 1, 0.0, 1.0),
    ],
)
def test_hit_rates_against_counting(length, informative, strength, alignment):
    """z below 4 with 40,000 sequences: deviations of 0.01 would be noticed."""
    task = Task(length, informative, strength)
    order = np.argsort(-token_scores(task, alignment, seed=1), axis=1)
    for count in (1, 2, 5):
        hits = (order[:, :count] < informative).any(axis=1)
        exact = hit_rate(task, alignment, count)
        assert abs(z_score(hits, exact)) < 4


@pytest.mark.parametrize("sharpness", [0.0, 0.7, 3.0, 30.0])
def test_attended_mass_against_drawn_softmax_weights(sharpness):
    """z below 4 with 40,000 sequences: deviations of 0.008 would be noticed."""
    task, query = Task(15, 2, 3.0), Query(0.8, sharpness)
    scores = token_scores(task, query.alignment, seed=2)
    weights = np.exp(sharpness * (scores - scores.max(axis=1, keepdims=True)))
    mass = weights[:, :2].sum(axis=1) / weights.sum(axis=1)
    found = localise(task, query=query)
    error = math.hypot(mass.std() / math.sqrt(COUNT), found.uncertainty["attended_mass"] / 3)
    assert abs(mass.mean() - found.attended_mass) < 4 * error + 1e-9


@pytest.mark.parametrize("length", [2, 100, 10**5, 10**6])
@pytest.mark.parametrize("strength", [0.5, 5.0, 12.0])
def test_hit_rate_of_one_token_by_another_quadrature(length, strength):
    def integrand(u):
        return norm.pdf(u) * math.exp((length - 1) * norm.logcdf(u + strength))

    exact, _ = quad(integrand, -9, 9, epsabs=1e-13, limit=400, points=[4.8 - strength])
    assert hit_rate(Task(length, 1, strength), 1.0) == pytest.approx(exact, abs=1e-10)


@pytest.mark.parametrize(("length", "informative"), [(10, 1), (1000, 7), (10, 9), (10**6, 10**5)])
def test_without_signal_every_token_is_as_likely(length, informative):
    exact = informative / length
    assert hit_rate(Task(length, informative, 0.0), 1.0) == pytest.approx(exact, rel=1e-9)
    assert hit_rate(Task(length, informative, 5.0), 0.0) == pytest.approx(exact, rel=1e-9)


def test_hard_attention_puts_its_mass_where_it_hits():
    task = Task(20, 2, 3.0)
    hard = localise(task, query=Query(0.9, math.inf))
    assert hard.attended_mass == hard.hit_rate
    nearly = localise(task, query=Query(0.9, 1e4))
    bar = 2 * nearly.uncertainty["attended_mass"]
    assert nearly.attended_mass == pytest.approx(hard.hit_rate, abs=bar)
    assert localise(task, query=Query(0.9, 0.0)).attended_mass == pytest.approx(0.1, abs=1e-9)


def test_top_hit_rate_rises_to_one():
    found = localise(Task(10, 2, 2.0), query=Query(0.6, 1.0))
    rates = [found.top(count) for count in range(1, 11)]
    assert rates[0] == found.hit_rate
    assert all(np.diff(rates) >= 0)
    assert rates[7] < rates[8] == 1.0


def test_free_response_against_counting():
    """z below 4 with 40,000 sequences: deviations of 0.01 would be noticed."""
    task, query = Task(12, 3, 2.0, positive_rate=0.3), Query(0.8, 1.0)
    scores = token_scores(task, query.alignment, seed=3)
    blank = np.random.default_rng(4).standard_normal((COUNT, task.length))
    for point in localise(task, query=query).free_response([0.05, 0.5, 3.0]):
        called = scores > point.threshold
        alarms = 0.3 * called[:, 3:].sum(axis=1) + 0.7 * (blank > point.threshold).sum(axis=1)
        error = alarms.std() / math.sqrt(COUNT)
        assert abs(alarms.mean() - point.false_alarms) < 4 * error
        assert abs(z_score(called[:, :3].any(axis=1), point.hit_rate)) < 4
        assert called[:, :3].mean() == pytest.approx(point.token_recall, abs=0.01)


def test_localisation_of_a_learnt_query_at_another_task():
    task, training = Task(10, 1, 5.0), Training(alpha0=4, alpha1=4, query_step=20)
    near = localise(task, training)
    far = localise(task, training, at=task.replace(length=1000), at_sharpness=4.0)
    assert far.query.alignment == near.query.alignment
    assert far.query.sharpness == 4.0
    assert far.hit_rate < near.hit_rate


def test_localise_refuses_wrong_arguments():
    with pytest.raises(ParameterError, match="query"):
        localise(Task(10, 1, 5.0))
    with pytest.raises(ParameterError, match="count"):
        localise(Task(10, 1, 5.0), query=Query(0.5, 1.0)).top(0)
    with pytest.raises(ParameterError, match="sharpness"):
        localise(Task(10, 1, 5.0), query=Query(0.5, 1.0), at_sharpness=-1.0)
    with pytest.raises(ParameterError, match=r"training = .* the query is given"):
        localise(Task(10, 1, 5.0), Training(4.0, 2.0), query=Query(0.5, 1.0))


@pytest.mark.parametrize("length", [10, 10**6, 10**9])
@pytest.mark.parametrize("shift", [0.0, 3.0, 6.0, 12.0])
def test_hit_rates_of_any_length_keep_their_digits(length: int, shift: float) -> None:
    """The trapezoidal rule is exact to rounding for a smooth integrand that vanishes at both ends."""
    spacing = 1e-4
    nodes = spacing * np.arange(-120_000, 120_001)
    others = length - 1
    density = np.exp(-0.5 * nodes**2) / np.sqrt(2 * np.pi)
    expected = spacing * float(density @ np.exp(others * log_ndtr(nodes + shift)))
    assert hit_rate(Task(length, 1, shift), 1.0) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("wrong", ["best", -1.0])
def test_a_bad_sharpness_at_test_time_is_named(wrong: object) -> None:
    with pytest.raises(ParameterError, match=r"^at_sharpness = "):
        localise(Task(10, 1, 5.0), query=Query(0.9, 3.0), at_sharpness=wrong)  # type: ignore[arg-type]


def half_as_sharp(query: Query) -> Query:
    return query.replace(sharpness=query.sharpness / 2)


def test_a_classifier_from_outside_localises_as_its_law_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Against softmax attention over tokens that are drawn (z < 4), not against the built-in law's."""
    law = ClassifierLaw(
        lambda task, query, log2_points, seed: attention_law(
            task, half_as_sharp(query), log2_points, seed
        ),
        takes_query=True,
        exact=False,
        localise=lambda task, query: localise(task, query=half_as_sharp(query)),
    )
    monkeypatch.setitem(LAWS, "halved", law)
    monkeypatch.setitem(LAWS, "silent", replace(law, localise=None))
    task, training, query = Task(10, 1, 5.0), Training(4.0, 2.0), Query(0.9, 2.0)
    scores = token_scores(task, query.alignment, seed=5)
    for sharpness in (2.0, 0.8):
        at_sharpness = None if sharpness == 2.0 else sharpness
        halved, silent = (
            predict(
                *(task, training),
                classifier=name,
                query=query,
                at_sharpness=at_sharpness,
                tolerance=0.1,
            )
            for name in ("halved", "silent")
        )
        assert halved.test_error == silent.test_error
        drawn = softmax(sharpness / 2 * scores, axis=1)[:, 0]
        error = drawn.std() / math.sqrt(COUNT)
        assert halved.localisation is not None
        assert abs(drawn.mean() - halved.localisation.attended_mass) < 4 * error
        assert silent.localisation is None
        assert known_metrics(silent, ["auc", "hit_rate"]) == ["auc"]
        assert known_metrics(halved, ["auc", "hit_rate"]) == ["auc", "hit_rate"]
        with pytest.raises(ParameterError, match=r"attended_mass.*silent classifier localises no"):
            silent.metrics("attended_mass")
