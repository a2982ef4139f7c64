"""Another task, sharpness or bias at test time, against draws that share nothing with theory."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtr

from sparsetoken import ParameterError, Query, Task, Training, curve, oracle, predict
from sparsetoken.theory import usage as usages
from sparsetoken.theory.attention_law import attention_law
from sparsetoken.theory.feature_law import score_law
from sparsetoken.theory.shift import _named
from sparsetoken.theory.usage import _around, best_sharpness

TASK = Task(length=20, informative=1, strength=5.0)
TRAINING = Training(alpha0=8, alpha1=8, ridge=1e-2, query_step=40)


def drawn_error(
    prediction, task: Task, sharpness: float, bias: float, count: int = 40_000
) -> float:
    """Draw token scores and features in the frame of the query, and count wrong labels."""
    rng = np.random.default_rng(0)
    gamma, readout = prediction.query.alignment, prediction.order_parameters
    wrong = 0
    for label in (1, -1):
        noise = rng.standard_normal((count, task.length))
        marks = np.zeros(task.length)
        if label > 0:
            marks[: task.informative] = 1.0
        scores = noise + task.strength * gamma * marks
        if math.isinf(sharpness):
            weights = scores == scores.max(axis=1, keepdims=True)
        else:
            weights = np.exp(sharpness * (scores - scores.max(axis=1, keepdims=True)))
        weights = weights / weights.sum(axis=1, keepdims=True)
        along = (weights * scores).sum(axis=1)
        across = task.strength * math.sqrt(1 - gamma**2) * (weights @ marks)
        rest = np.sqrt((weights**2).sum(axis=1)) * rng.standard_normal((2, count))
        value = readout.along * along + readout.across * (across + rest[0]) + bias
        value += readout.rest * rest[1]
        share = task.positive_rate if label > 0 else 1 - task.positive_rate
        wrong += share * np.mean(label * value <= 0)
    return float(wrong)


@pytest.mark.parametrize("sharpness", [0.2, 2.0, math.inf])
@pytest.mark.parametrize("recalibrate", [False, True])
def test_error_with_another_sharpness_against_draws(sharpness, recalibrate):
    """A z-score below 4 with 80,000 sequences: deviations of 0.007 would be noticed."""
    at = TASK.replace(length=60, informative=2, positive_rate=0.4)
    found = predict(TASK, TRAINING, at=at, at_sharpness=sharpness, recalibrate=recalibrate)
    assert found.at_sharpness == sharpness
    bias = found.at_bias if recalibrate else found.order_parameters.bias
    drawn = drawn_error(found, at, sharpness, bias)
    error = math.hypot(0.5 / math.sqrt(80_000), found.uncertainty.test_error / 3)
    assert abs(drawn - found.test_error) < 4 * error


def test_two_numbers_repair_a_length_shift():
    """The errors of a classifier trained at L = 20 and used at L = 500."""
    at = TASK.replace(length=500)
    options = {"at": at, "tolerance": 1e-3}
    assert predict(TASK, TRAINING).test_error == pytest.approx(0.063, abs=1e-3)
    assert predict(TASK, TRAINING, **options).test_error == pytest.approx(0.5, abs=1e-3)
    biased = predict(TASK, TRAINING, recalibrate=True, **options)
    assert biased.test_error == pytest.approx(0.301, abs=3e-3)
    sharp = predict(TASK, TRAINING, at_sharpness=2.0, **options)
    assert sharp.test_error == pytest.approx(0.5, abs=1e-3)
    pair = predict(TASK, TRAINING, at_sharpness=2.0, recalibrate=True, **options)
    assert pair.test_error == pytest.approx(0.078, abs=1e-3)
    best = predict(TASK, TRAINING, at_sharpness="best", recalibrate=True, **options)
    assert best.test_error < pair.test_error + best.uncertainty.test_error
    assert best.test_error > oracle(at, classifier="bayes").test_error


@pytest.mark.parametrize(
    ("given", "name"), [(0.0, "sharpness_0"), (0.5, "sharpness_0.5"), (math.inf, "hard")]
)
def test_a_shift_names_the_sharpnesses_that_were_asked_for(given, name):
    assert _named(given) == name


def test_a_curve_over_what_changes_at_test_time():
    lengths = [20, 60]
    found = curve(TASK, TRAINING, over="at_length", values=lengths, recalibrate=True)
    for length, record in zip(lengths, found, strict=True):
        alone = predict(TASK, TRAINING, at=TASK.replace(length=length), recalibrate=True)
        bar = record.uncertainty.test_error + alone.uncertainty.test_error
        assert record.test_error == pytest.approx(alone.test_error, abs=bar)
    assert found.to_rows()[1]["at_length"] == 60
    sharp = curve(TASK, TRAINING, over="at_sharpness", values=[0.5, math.inf], tolerance=1e-3)
    assert [record.at_sharpness for record in sharp] == [0.5, math.inf]
    with pytest.raises(ParameterError, match="one of length"):
        curve(TASK, TRAINING, over="at_alpha1", values=[1.0])


def test_best_is_no_worse_than_any_other():
    at = TASK.replace(length=100)
    best = predict(TASK, TRAINING, at=at, at_sharpness="best", recalibrate=True)
    for sharpness in (0.5, 1.0, 2.0, 4.0, math.inf):
        other = predict(TASK, TRAINING, at=at, at_sharpness=sharpness, recalibrate=True)
        bars = best.uncertainty.test_error + other.uncertainty.test_error
        assert best.test_error <= other.test_error + bars


@pytest.mark.parametrize("recalibrate", [False, True])
def test_a_query_that_points_away_is_best_left_out(recalibrate):
    task, training = Task(4, 1, 4.5), Training(4.0, 4.0, ridge=0.01)
    options = {"query": Query(-0.6, 0.3), "recalibrate": recalibrate, "tolerance": 1e-3}
    best = predict(task, training, at_sharpness="best", **options)
    pooled = predict(task, training, at_sharpness=0.0, **options)
    assert best.test_error <= pooled.test_error + 1e-9
    assert best.at_sharpness == 0.0


def test_what_the_best_bias_decides_is_as_sure_as_that_bias():
    """Where the error is flat the best bias is known far less well than the scores."""
    task, training = Task(51, 1, 1.2687), Training(4.0, 0.85, loss="square", ridge=0.1)
    options = {"query": Query(0.862, 0.6714), "at": task.replace(length=55), "recalibrate": True}
    found = [predict(task, training, tolerance=bar, **options) for bar in (1e-2, 1e-3, 1e-5)]
    *rough, fine = [one.at_recall(0.9) for one in found]
    for point in rough:
        bar = point.uncertainty["threshold"]
        assert point.threshold == pytest.approx(fine.threshold, abs=bar)
        assert bar < 0.1


def test_the_best_sharpness_along_a_curve_is_that_of_each_point_alone():
    lengths = [50, 100, 200, 2000]
    options = {"at_sharpness": "best", "recalibrate": True, "tolerance": 1e-3}
    found = curve(TASK, TRAINING, over="at_length", values=lengths, **options)
    for length, record in zip(lengths, found, strict=True):
        alone = predict(TASK, TRAINING, at=TASK.replace(length=length), **options)
        # The error is flat there: a tenth of the logarithm changes it by less than 1e-4.
        assert abs(math.log(record.at_sharpness / alone.at_sharpness)) < 0.1
        assert record.uncertainty.test_error <= 1e-3
        bars = record.uncertainty.test_error + alone.uncertainty.test_error
        assert record.test_error == pytest.approx(alone.test_error, abs=bars)


def test_the_best_sharpness_along_a_curve_costs_no_part_of_the_bar():
    """Without a new bias the error is not flat: a sharpness 3 % off cost four bars."""
    task = Task(10, 2, 4.0)
    training = Training(4.0, 0.7, loss="hinge", ridge=0.01, query_step=5.0)
    options = {"at_sharpness": "best", "tolerance": 1e-4}
    _, found = curve(task, training, over="at_length", values=[12, 40], **options)
    alone = predict(task, training, at=task.replace(length=40), **options)
    assert found.test_error == pytest.approx(
        alone.test_error, abs=0.2 * alone.uncertainty.test_error
    )


@pytest.mark.parametrize("near", [0.05, 0.4, 20.0])
def test_a_neighbour_far_from_the_best_sharpness_does_not_mislead(near):
    at = TASK.replace(length=200)
    found = predict(TASK, TRAINING, at=at, recalibrate=True, tolerance=1e-3)
    weights = found._tested.weights

    def law(query, log2_points):
        return attention_law(at, query, log2_points, 1)

    alone = best_sharpness(law, weights, found.query, recalibrate=True)
    led = best_sharpness(law, weights, found.query, recalibrate=True, near=near)
    assert abs(math.log(led / alone)) < 0.1


@pytest.mark.parametrize("recalibrate", [False, True])
def test_the_best_sharpness_is_that_of_the_bias_that_is_used(recalibrate):
    """The least error on a grid, with the readout's own bias or with the best one."""
    at, query = TASK.replace(length=60, positive_rate=0.3), Query(0.9, 1.0)
    weights = np.array([1.0, 0.4, -1.4, 0.3])  # along, across, bias, rest

    def law(query, log2_points):
        return attention_law(at, query, log2_points, 1)

    def error(sharpness):
        scores = score_law(law(query.replace(sharpness=sharpness), 7), weights)
        levels = np.linspace(-3, 3, 121)[:, None] if recalibrate else np.zeros((1, 1))
        wrong = ndtr(scores.label * (levels - scores.mean) / scores.spread)
        return float((wrong @ scores.weight).min())

    best, other = (
        best_sharpness(law, weights, query, recalibrate=flag)
        for flag in (recalibrate, not recalibrate)
    )
    least = min(error(sharpness) for sharpness in np.geomspace(0.2, 20, 21))
    assert error(best) <= least + 2e-4
    assert error(other) > least + 1e-3


@pytest.mark.parametrize("replicates", [1, 2, 8])
def test_each_replicate_of_a_law_meets_its_own_readout(replicates):
    law = replace(attention_law(TASK, Query(0.9, 1.0), 5, 1), replicates=replicates)
    weights = np.array([1.0, 0.4, -1.4, 0.3])
    rows = weights + 0.1 * np.arange(max(replicates, 2))[:, None]
    ranking = usages.Tested(lambda: law, weights, rows, np.zeros(4)).ranking()
    own = rows if replicates > 1 else weights[None]  # a law of one piece meets the readout itself
    np.testing.assert_array_equal(ranking.law.mean, score_law(law, weights).mean)
    for found, row in zip(ranking.replicated.mean.reshape(replicates, -1), own, strict=True):
        expected = score_law(law, row).mean.reshape(replicates, -1)
        assert np.any(np.all(np.isclose(found, expected), axis=1))


def test_recalibration_never_hurts_and_keeps_the_ranking():
    # At this tolerance both take the same points.
    options = {"at": TASK.replace(length=60, positive_rate=0.1), "tolerance": 2e-3}
    before, after = (predict(TASK, TRAINING, recalibrate=flag, **options) for flag in (False, True))
    assert after.test_error <= min(before.test_error, 0.1) + 1e-9
    assert after.auc == pytest.approx(before.auc, abs=1e-5)
    assert after.order_parameters == before.order_parameters
    assert before.at_bias is None
    assert "at_bias" not in before.to_dict()
    assert after.to_dict()["at_bias"] == after.at_bias


def test_recalibration_of_an_exact_law():
    found = predict(TASK, TRAINING, classifier="pooled", recalibrate=True)
    law = found.ranking.law
    gap, spread = law.mean[0] - law.mean[1], law.spread[0]
    exact = 0.5 * math.erfc(gap / (2 * spread) / math.sqrt(2))
    assert found.test_error == pytest.approx(exact, abs=1e-9)


def test_the_trained_sharpness_changes_nothing():
    trained = predict(TASK, TRAINING)
    same = predict(TASK, TRAINING, at_sharpness=trained.query.sharpness)
    bars = trained.uncertainty.test_error + same.uncertainty.test_error
    assert same.test_error == pytest.approx(trained.test_error, abs=bars)


def test_hard_attention_can_be_trained_too():
    hard = predict(TASK, TRAINING, query=Query(0.9, math.inf))
    sharp = predict(TASK, TRAINING, query=Query(0.9, 1e3))
    bars = hard.uncertainty.test_error + sharp.uncertainty.test_error
    assert hard.test_error == pytest.approx(sharp.test_error, abs=bars + 1e-4)


@pytest.mark.parametrize("value", [-1.0, math.nan, "sharp", True])
def test_wrong_sharpness_is_refused(value):
    with pytest.raises(ParameterError, match="at_sharpness"):
        predict(TASK, TRAINING, at_sharpness=value)


def test_a_text_for_a_sharpness_is_told_that_numbers_are_accepted_too():
    with pytest.raises(ParameterError, match=r"'bset' .* a number >= 0, infinity or 'best'"):
        predict(TASK, TRAINING, at_sharpness="bset")


def test_a_sharpness_beside_a_curve_over_it_is_refused():
    with pytest.raises(ParameterError, match=r"at_sharpness = 3.0 .* None: it varies"):
        curve(TASK, TRAINING, over="at_sharpness", values=[0.5, 1.0], at_sharpness=3.0)


def test_sharpness_is_refused_without_a_softmax():
    with pytest.raises(ParameterError, match="at_sharpness"):
        predict(TASK, TRAINING, classifier="pooled", at_sharpness=1.0)


def test_a_sharpness_beyond_all_digits_is_a_hard_maximum() -> None:
    task, training, query = Task(10, 1, 5.0), Training(4.0, 3.0), Query(0.9, 2.0)
    for sharpness in (1e20, 1e300):
        for usage in ({"at_sharpness": sharpness}, {"query": query.replace(sharpness=sharpness)}):
            hard = {name: math.inf if name == "at_sharpness" else query.replace(sharpness=math.inf)
                    for name in usage}  # fmt: skip
            found = predict(task, training, **{"query": query, **usage})
            assert (
                found.test_error == predict(task, training, **{"query": query, **hard}).test_error
            )
            assert found.localisation is not None
            assert found.localisation.attended_mass == found.localisation.hit_rate


@pytest.mark.parametrize("near", [1.7, 2.0, 2.3])
def test_a_neighbour_of_the_best_sharpness_leads_there_at_once(near):
    asked = []

    def error(sharpness):
        asked.append(sharpness)
        # A parabola, whose least value is at 2.
        return min(math.log(sharpness / 2) ** 2, 1.0) if sharpness else 1.0

    assert _around(error, near) == pytest.approx(2.0)
    assert len(asked) <= 12  # twice three, there, and five far away
