"""Ranking and localisation measured without a test set, against counting on one."""

import math

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score

from sparsetoken import ParameterError, Query, Task, Training, predict, run_trial, simulate
from sparsetoken.records import METRICS
from sparsetoken.simulation.draws import DRAWS
from sparsetoken.simulation.geometry import AttentionGeometry, PooledGeometry, VectorisedGeometry
from sparsetoken.simulation.measures import ScorePoints

TASK = Task(length=8, informative=2, strength=3.0, positive_rate=0.1)
TRAINING = Training(alpha0=4, alpha1=3, ridge=0.05)
SCORES = METRICS[:3]
GEOMETRIES = {
    "attention": AttentionGeometry(0.8, 1.5, 1.0, 0.3, 0.8, -1.0),
    "hard": AttentionGeometry(0.8, math.inf, 1.0, 0.3, 0.8, -1.0),
    "pooled": PooledGeometry(0.8, 1.5, -0.4),
    "vectorised": VectorisedGeometry(np.linspace(-0.5, 1.0, 8), 1.2, -0.6),
}


def drawn(geometry, task, count, rng):
    labels = np.where(rng.random(count) < task.positive_rate, 1, -1)
    mean, spread = geometry._scores(task, labels > 0, rng)
    return labels, mean + spread * rng.standard_normal(count)


def test_features_of_a_sample_have_a_number_for_each_dimension_of_each_token() -> None:
    task = Task(7, 2, 3.0)
    sizes = {name: DRAWS[name].columns(task, 11) for name in ("attention", "pooled", "vectorised")}
    assert sizes == {"attention": 11, "pooled": 11, "vectorised": 77}


@pytest.mark.parametrize("name", GEOMETRIES)
def test_against_scikit_learn_on_fresh_scores(name):
    """z-scores below 4 with 2.4 10⁵ scores: deviations of 0.025 would be noticed."""
    geometry, rng = GEOMETRIES[name], np.random.default_rng(3)
    found = geometry.points(TASK, rng).measure(SCORES, rng)
    counted = {metric: [] for metric in SCORES}
    for _ in range(8):
        labels, scores = drawn(geometry, TASK, 30_000, rng)
        counted["auc"].append(roc_auc_score(labels, scores))
        counted["average_precision"].append(average_precision_score(labels, scores))
        wrong = np.sign(scores) != labels
        rates = [wrong[labels == label].mean() for label in (1, -1)]
        counted["balanced_error"].append(np.mean(rates))
    for metric, values in counted.items():
        value, error = found[metric]
        spread = math.hypot(np.std(values, ddof=1) / math.sqrt(8), error)
        assert spread < 0.006
        assert abs(np.mean(values) - value) < 4 * spread


def test_localisation_is_counted():
    """z-scores below 4 with 40,000 sequences: deviations of 0.01 would be noticed."""
    rng = np.random.default_rng(0)
    scores = rng.standard_normal((40_000, 8))
    scores[:, :2] += 3.0 * 0.8
    weights = np.exp(1.5 * scores)
    exact = {
        "hit_rate": scores.argmax(axis=1) < 2,
        "attended_mass": weights[:, :2].sum(axis=1) / weights.sum(axis=1),
    }
    found = GEOMETRIES["attention"].points(TASK, rng).measure(exact, rng)
    for name, values in exact.items():
        spread = math.hypot(values.std() / 200, found[name][1])
        assert abs(values.mean() - found[name][0]) < 4 * spread


def test_recalibration_finds_the_least_error():
    points = GEOMETRIES["attention"].points(TASK, np.random.default_rng(1))
    best, added = points.recalibrated()
    assert best.test_error[0] < points.test_error[0]
    for change in (-0.2, 0.2):
        moved = AttentionGeometry(0.8, 1.5, 1.0, 0.3, 0.8, -1.0 + added + change)
        other = moved.points(TASK, np.random.default_rng(1)).test_error[0]
        assert other > best.test_error[0]


@pytest.mark.parametrize(
    ("classifier", "options"),
    [
        ("attention", {"query": Query(0.8, 1.0)}),
        ("attention", {"query": Query(0.8, 1.0), "at_sharpness": 4.0, "recalibrate": True}),
        ("attention", {"query": Query(0.8, 1.0), "at_sharpness": math.inf}),
        ("pooled", {"recalibrate": True}),
        ("vectorised", {}),
    ],
)
def test_trials_agree_with_theory(classifier, options):
    """z-scores below 4 with 16 trials at d = 300: deviations of 0.03 would be noticed."""
    metrics = METRICS if classifier == "attention" else SCORES
    found = simulate(
        *(TASK, TRAINING),
        dimension=300,
        trials=16,
        classifier=classifier,
        metrics=metrics,
        check_separable=False,
        **options,
    )
    theory = predict(TASK, TRAINING, classifier=classifier, **options)
    for name in metrics:
        error = math.hypot(found.standard_error(name), 1e-3)
        assert error < 0.01
        assert abs(found.mean(name) - theory.metrics(name)[name]) < 4 * error
    if options.get("recalibrate"):
        assert found.mean("at_bias") == pytest.approx(theory.at_bias, rel=0.1)


@pytest.mark.parametrize("sampler", ["reduced", "plain"])
def test_the_auc_is_measured_where_positives_are_rare(sampler):
    options = {"dimension": 20, "trial": 0, "sampler": sampler}
    assert run_trial(TASK, TRAINING, **options).auc is not None
    common = run_trial(TASK.replace(positive_rate=0.4), TRAINING, **options)
    assert common.auc is None
    assert common.hit_rate is None


def test_metrics_change_nothing_else():
    options = {"dimension": 30, "trial": 1}
    plain, more = (run_trial(TASK, TRAINING, metrics=m, **options) for m in ((), METRICS))
    assert more.test_error == plain.test_error
    assert more.bias == plain.bias
    assert more.average_precision is not None


def test_fresh_data_see_the_sharpness_at_test_time():
    """A z-score below 4 with 20,000 samples."""
    found = run_trial(*(TASK, TRAINING), dimension=50, trial=0, at_sharpness=5.0, fresh_test=20_000)
    spread = math.sqrt(found.test_error * (1 - found.test_error) / 20_000)
    assert abs(found.fresh_test_error - found.test_error) < 4 * spread


@pytest.mark.parametrize(
    ("parameter", "options"),
    [
        ("metrics", {"metrics": ["accuracy"]}),
        ("metrics", {"metrics": ["hit_rate"], "classifier": "pooled"}),
        ("at_sharpness", {"at_sharpness": 1.0, "classifier": "pooled"}),
        ("at_sharpness", {"at_sharpness": -1.0}),
        ("recalibrate", {"recalibrate": 1}),
        ("fresh_test", {"recalibrate": True, "fresh_test": 10}),
        ("sharpness", {"query": Query(0.5, math.inf), "sampler": "plain"}),
    ],
)
def test_what_does_not_apply_is_refused(parameter, options):
    with pytest.raises(ParameterError) as caught:
        run_trial(TASK, TRAINING, dimension=20, trial=0, **options)
    assert caught.value.parameter == parameter


def test_another_sharpness_is_refused_by_name_where_the_geometry_knows_none(monkeypatch):
    """A classifier from outside may have a query without a softmax, and bring its own geometry."""

    class Weighed(type(DRAWS["attention"])):
        def reduced_geometry(self, readout, *_):
            return PooledGeometry(float(readout.weights[0]), 1.0, readout.bias)

    monkeypatch.setitem(DRAWS, "weighed", Weighed())
    options = {"dimension": 10, "trial": 0, "classifier": "weighed"}
    assert run_trial(TASK, TRAINING, **options).test_error > 0
    with pytest.raises(ParameterError, match=r"at_sharpness = 2.0 .*PooledGeometry"):
        run_trial(TASK, TRAINING, at_sharpness=2.0, **options)


@pytest.mark.parametrize("rate", [0.001, 0.999])
def test_the_best_bias_is_no_worse_than_one_label_for_all(rate: float) -> None:
    """Also where a few points of one class are far beyond all of the other."""
    far, near = np.append(np.zeros(99), 1000.0)[None], np.zeros((1, 100))
    sides = (-far, near) if rate > 0.5 else (near, far)
    spread = np.ones((1, 100))
    points = ScorePoints((sides[0], spread), (sides[1], spread), rate)
    error, _ = points.recalibrated()[0].test_error
    assert error <= min(rate, 1 - rate) + 1e-12
