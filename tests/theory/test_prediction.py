import tracemalloc
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import optimize
from scipy.special import ndtr

from sparsetoken import (
    Loss,
    ParameterError,
    Query,
    Task,
    Training,
    align,
    capacity,
    curve,
    loss_names,
    oracle,
    predict,
    register_loss,
)
from sparsetoken.numerics.memory import kept_results, path_memory
from sparsetoken.theory import misclassification, predictor
from sparsetoken.theory.attention_law import attention_law
from sparsetoken.theory.chosen_query import LEARNING
from sparsetoken.theory.feature_law import FeatureLaw
from sparsetoken.theory.laws import LAWS, ClassifierLaw, pooled_law, vectorised_law
from sparsetoken.theory.predictor import FIRST_SIZE, LEAST_SIZE, ROUGH_SIZE
from sparsetoken.theory.trained_readout import misclassified
from sparsetoken.theory.usage import Usage

TASK, TRAINING = Task(10, 1, 5.0), Training(4.0, 2.0)
QUERY = Query(0.8, 1.0)


def square_algebra(law: FeatureLaw, alpha: float, ridge: float) -> tuple[float, float]:
    """Test error and training loss of the square loss: one scalar equation, then linear algebra.

    The prox is r = (ω + t)/(1 + t), so that ℓ'(r) = (ω - 1)/(1 + t) with t = χS².
    """
    alpha = alpha / law.dimension_ratio
    w, square = law.weight, law.scale**2

    def condition(log_chi: float) -> float:
        chi = np.exp(log_chi)
        return 1 - chi * (alpha * ridge + alpha * w @ (square / (1 + chi * square)))

    chi = np.exp(optimize.brentq(condition, -40, 40, xtol=1e-14))
    damp = 1 / (1 + chi * square)
    columns = np.column_stack([law.coordinates, np.ones_like(w)])
    gram = alpha * columns.T @ (columns * (w * damp)[:, None])
    right = alpha * columns.T @ (w * damp * law.label)
    penalty = [1 / chi if noisy else alpha * ridge for noisy in law.noisy]
    weights = np.linalg.solve(gram + np.diag([*penalty, 0]), right)
    own = weights[-2] ** 2
    m = columns @ weights
    misfit = (law.label * m - 1) ** 2
    # ν² = χ²α E[S² ((ym - 1)² + S²ρ²) damp²], ρ² = ν² + μ_e²: linear in ν².
    a = chi**2 * alpha * w @ (square * damp**2 * misfit)
    b = chi**2 * alpha * w @ (square**2 * damp**2)
    rest2 = (a + b * own) / (1 - b)
    rho = np.sqrt(rest2 + own)
    error = w @ ndtr(-law.label * m / (law.scale * rho))
    loss = 0.5 * w @ (damp**2 * (misfit + square * rho**2))
    return float(error), float(loss)


@pytest.mark.parametrize("alpha", [0.3, 0.99, 1.01, 5.0, 300.0])
@pytest.mark.parametrize("ridge", [1e-6, 0.1, 10.0])
@pytest.mark.parametrize("rate", [0.5, 0.1])
def test_square_loss_against_its_algebra(alpha: float, ridge: float, rate: float) -> None:
    task, training = (
        TASK.replace(positive_rate=rate),
        Training(1.0, alpha, loss="square", ridge=ridge),
    )
    for classifier, law in (("pooled", pooled_law(task)), ("vectorised", vectorised_law(task))):
        found = predict(task, training, classifier=classifier)
        error, loss = square_algebra(law, alpha, ridge)
        assert found.test_error == pytest.approx(error, abs=1e-7)
        assert found.train_loss == pytest.approx(loss, rel=1e-6, abs=1e-9)
    found = predict(task, training, query=QUERY, tolerance=1.0)
    error, loss = square_algebra(attention_law(task, QUERY, ROUGH_SIZE), alpha, ridge)
    assert found.test_error == pytest.approx(error, abs=2e-5)
    assert found.train_loss == pytest.approx(loss, abs=2e-5)


@pytest.mark.parametrize("alpha", [0.4, 3.0])
@pytest.mark.parametrize("classifier", ["attention", "pooled"])
@pytest.mark.parametrize("name", loss_names())
def test_no_ridge_is_the_limit_of_a_small_one(name: str, classifier: str, alpha: float) -> None:
    query = QUERY if classifier == "attention" else None
    # Pooled data at α = 3 are just inseparable, attention's are separable.
    training = Training(1.0, alpha, loss=name, ridge=0.0)
    limit = predict(TASK, training, classifier=classifier, query=query, tolerance=1.0)
    near = predict(
        TASK, training.replace(ridge=1e-8), classifier=classifier, query=query, tolerance=1.0
    )
    # The logistic loss approaches the maximum margin only logarithmically.
    slow = name == "logistic" and limit.margin is not None
    assert limit.test_error == pytest.approx(near.test_error, abs=1e-2 if slow else 2e-4)
    assert limit.train_loss == pytest.approx(near.train_loss, abs=1e-3 if slow else 1e-4)
    separable = name != "square" and not (classifier == "pooled" and alpha == 3.0)
    assert (limit.margin is not None) == separable


def test_maximum_margin_is_the_same_for_all_its_losses() -> None:
    found = [
        predict(TASK, Training(1.0, 1.0, loss=name, ridge=0.0), classifier="pooled")
        for name in ("hinge", "logistic", "squared_hinge")
    ]
    assert len({item.test_error for item in found}) == 1
    assert found[0].margin == found[1].margin
    assert found[0].order_parameters.susceptibility == np.inf


def test_thresholds_without_ridge_say_so() -> None:
    training = Training(1.0, 1.0, loss="square", ridge=0.0)
    with pytest.raises(ParameterError, match=r"alpha1 = 1\.0 .* threshold 1.* ridge > 0"):
        predict(TASK, training, classifier="pooled")
    with pytest.raises(ParameterError, match="threshold 10"):
        predict(TASK, training.replace(alpha1=10.0), classifier="vectorised")
    # χ diverges there: the error peaks on either side.
    ratios = [0.5, 0.9, 0.99, 1.01, 1.1, 2.0]
    errors = [
        predict(TASK, training.replace(alpha1=a), classifier="pooled").test_error for a in ratios
    ]
    assert np.argmax(errors) in (2, 3)


@pytest.mark.parametrize("name", ["logistic", "square"])
def test_without_sharpness_attention_is_pooling(name: str) -> None:
    training = Training(1.0, 2.0, loss=name, ridge=0.01)
    pooled = predict(TASK, training, classifier="pooled")
    flat = predict(TASK, training, query=Query(0.3, 0.0))
    assert flat.test_error == pytest.approx(pooled.test_error, abs=flat.uncertainty.test_error)
    assert flat.train_loss == pytest.approx(pooled.train_loss, abs=flat.uncertainty.train_loss)


def test_without_a_signal_the_error_is_a_coin_flip() -> None:
    for classifier in ("attention", "pooled", "vectorised"):
        query = QUERY if classifier == "attention" else None
        found = predict(
            TASK.replace(strength=0.0), Training(1.0, 2.0), classifier=classifier, query=query
        )
        assert found.test_error == pytest.approx(0.5, abs=1e-4)


def test_rare_labels_are_ignored_in_the_limit() -> None:
    training = Training(1.0, 2.0, ridge=0.1)
    for rate in (1e-5, 1 - 1e-5):
        found = predict(TASK.replace(positive_rate=rate), training, classifier="pooled")
        assert found.test_error == pytest.approx(1e-5, rel=0.01)


def test_an_orthogonal_query_sees_noise_only() -> None:
    """γ = 0: with the query's own direction unused, B is noise and the signal is in c_e alone."""
    found = predict(TASK, Training(1.0, 1e4, ridge=1e-6), query=Query(0.0, 1.0))
    pooled = predict(TASK, Training(1.0, 1e4, ridge=1e-6), classifier="pooled")
    assert found.test_error > pooled.test_error
    assert abs(found.order_parameters.along) < 0.05 * found.order_parameters.across


@pytest.mark.parametrize(
    "training",
    [
        Training(1.0, 2.0, ridge=0.1),
        Training(1.0, 0.5, ridge=0.0),
        Training(1.0, 0.5, ridge=0.0, loss="square"),
        Training(1.0, 3.0, ridge=0.1, loss="hinge"),
    ],
    ids=["saddle", "margin", "interpolation", "kinks"],
)
@pytest.mark.parametrize("directions", [[0.6, 0.8], [2 / 3, 1 / 3, -2 / 3], [0.5, 0.5, 0.1, 0.7]])
def test_a_law_may_have_any_number_of_coordinates(
    monkeypatch: pytest.MonkeyPatch, directions: list[float], training: Training
) -> None:
    """The signal of pooled features, seen along several directions instead of its own."""

    def turned(task: Task, *_: object) -> FeatureLaw:
        law = pooled_law(task)
        return replace(
            law, coordinates=law.coordinates * directions, noisy=(True,) * len(directions)
        )

    monkeypatch.setitem(LAWS, "turned", ClassifierLaw(turned))
    found, pooled = (predict(TASK, training, classifier=name) for name in ("turned", "pooled"))
    for name in ("test_error", "train_loss", "train_error", "auc"):
        assert getattr(found, name) == pytest.approx(getattr(pooled, name), abs=1e-6), name
    assert found.margin == pytest.approx(pooled.margin, abs=1e-6)
    parts = found.order_parameters
    expected = pooled.order_parameters.across * np.array(directions)
    assert [parts.along, parts.across, *parts.further] == pytest.approx(list(expected), abs=1e-4)
    assert found.to_dict().keys() == pooled.to_dict().keys()
    reached = [capacity(TASK, classifier=name).alpha for name in ("turned", "pooled")]
    assert reached[0] == pytest.approx(reached[1], rel=1e-6)


@pytest.mark.parametrize(
    "wrong",
    [
        {"weight": np.ones(2)},
        {"label": np.array([1.0, 0.0])},
        {"noisy": (True, True)},
        {"coordinates": np.zeros((3, 1))},
        {"removed": np.empty((0, 0))},
        {"replicates": 3},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_a_law_that_is_not_one_is_refused(
    monkeypatch: pytest.MonkeyPatch, wrong: dict[str, object]
) -> None:
    law = ClassifierLaw(lambda task, *_: replace(pooled_law(task), **wrong))
    monkeypatch.setitem(LAWS, "wrong", law)
    for ask in (
        lambda: predict(TASK, TRAINING, classifier="wrong"),
        lambda: capacity(TASK, classifier="wrong"),
    ):
        with pytest.raises(ParameterError, match=r"classifier = 'wrong' .* weights that sum"):
            ask()


def test_a_law_may_have_no_coordinate_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a signal there is nothing to see along its direction either."""

    def blind(task: Task, *_: object) -> FeatureLaw:
        return replace(pooled_law(task), coordinates=np.empty((2, 0)), noisy=())

    monkeypatch.setitem(LAWS, "blind", ClassifierLaw(blind))
    task, training = Task(10, 1, 0.0, 0.3), Training(1.0, 2.0, ridge=0.1)
    found, pooled = (predict(task, training, classifier=name) for name in ("blind", "pooled"))
    assert found.test_error == pytest.approx(pooled.test_error, abs=1e-6)


@pytest.mark.parametrize("rate", [0.5, 0.2])
def test_many_samples_reach_the_oracle_of_the_linear_classifier(rate: float) -> None:
    task = TASK.replace(positive_rate=rate)
    best = oracle(task, classifier="pooled").test_error
    for classifier in ("pooled", "vectorised"):
        found = predict(task, Training(1.0, 1e6, ridge=0.0), classifier=classifier)
        assert found.test_error == pytest.approx(best, abs=1e-5)


def test_many_samples_reach_the_oracle_of_the_same_query() -> None:
    """With q along the signal the features are one number; the loss, not 0-1 error, sets b."""
    best = oracle(TASK, sharpness=2.0)
    found = predict(TASK, Training(1.0, 1e6, ridge=0.0), query=Query(1.0, 2.0), tolerance=1e-3)
    assert best.test_error - 3e-3 < found.test_error < best.test_error + 6e-3


def test_excess_error_falls_as_one_over_alpha() -> None:
    def error(alpha: float) -> float:
        training = Training(1.0, alpha, loss="square", ridge=0.0)
        return predict(TASK, training, classifier="pooled").test_error

    limit = error(1e6)
    slope = np.log((error(1e4) - limit) / (error(1e3) - limit)) / np.log(10)
    assert slope == pytest.approx(-1, abs=0.01)


def test_few_samples_teach_nothing() -> None:
    assert predict(TASK, Training(1.0, 1e-4, ridge=1e-3), classifier="pooled").test_error > 0.48


def test_every_informative_token_but_one() -> None:
    """R = L - 1: nearly all tokens are informative, and pooling is all one needs."""
    task = Task(5, 4, 2.0)
    training = Training(1.0, 1e5, ridge=1e-6)
    pooled = predict(task, training, classifier="pooled")
    found = predict(task, training, query=Query(1.0, 0.01), tolerance=1e-3)
    assert found.test_error == pytest.approx(pooled.test_error, abs=1e-3)
    assert pooled.test_error == pytest.approx(
        oracle(task, classifier="pooled").test_error, abs=1e-4
    )


@pytest.mark.parametrize("classifier", ["attention", "pooled", "vectorised"])
def test_shift_to_the_same_task_changes_nothing(classifier: str) -> None:
    training = Training(4.0, 2.0, query_step=10.0)
    plain = predict(TASK, training, classifier=classifier)
    shifted = predict(TASK, training, classifier=classifier, at=TASK)
    assert shifted.test_error == pytest.approx(
        plain.test_error, abs=2 * plain.uncertainty.test_error + 1e-12
    )
    assert shifted.train_loss == pytest.approx(plain.train_loss, rel=1e-3)


def test_shift_keeps_the_readout_and_changes_the_law() -> None:
    training = Training(4.0, 8.0, query_step=20.0)
    plain = predict(TASK, training, tolerance=1e-3)
    longer = predict(TASK, training, at=TASK.replace(length=40), tolerance=1e-3)
    stronger = predict(TASK, training, at=TASK.replace(strength=8.0), tolerance=1e-3)
    assert longer.test_error > plain.test_error > stronger.test_error
    assert longer.order_parameters.bias == pytest.approx(plain.order_parameters.bias, rel=1e-2)
    # Pooled, in closed form: the same order parameters with the other task's two points.
    pooled = predict(TASK, training, classifier="pooled", at=Task(20, 3, 2.0, 0.3))
    p = pooled.order_parameters
    noise = np.hypot(p.across, p.rest) / np.sqrt(20)
    expected = 0.3 * ndtr(-(p.across * 2 * 3 / 20 + p.bias) / noise) + 0.7 * ndtr(p.bias / noise)
    assert pooled.test_error == pytest.approx(expected, rel=1e-9)
    with pytest.raises(ParameterError, match=r"at\.length = 20"):
        predict(TASK, training, classifier="vectorised", at=TASK.replace(length=20))


def test_without_a_query_the_learnt_one_is_used() -> None:
    training = Training(2.0, 2.0, query_step=5.0)
    found = predict(TASK, training, tolerance=1e-2)
    assert found.query == align(TASK, training).query
    assert found.test_error == predict(TASK, training, query=found.query, tolerance=1e-2).test_error
    with pytest.raises(ParameterError, match="pooled"):
        predict(TASK, training, classifier="pooled", query=QUERY)
    with pytest.raises(ParameterError, match="classifier"):
        predict(TASK, training, classifier="elementwise")


@pytest.mark.parametrize(
    ("over", "values"),
    [
        ("alpha1", [0.5, 1.0, 2.0]),
        ("strength", [2.0, 4.0]),
        ("length", [5, 9]),
        ("ridge", [1.0, 1e-4]),
    ],
)
@pytest.mark.parametrize("classifier", ["attention", "pooled", "vectorised"])
def test_a_curve_is_its_points(over: str, values: list[float], classifier: str) -> None:
    training = Training(3.0, 1.5, query_step=8.0)
    found = curve(TASK, training, over=over, values=values, classifier=classifier, tolerance=1e-2)
    for value, point in zip(values, found, strict=True):
        settings_pair = (
            (TASK.replace(**{over: value}), training)
            if over in TASK.to_dict()
            else (TASK, training.replace(**{over: value}))
        )
        alone = predict(*settings_pair, classifier=classifier, tolerance=1e-2)
        # They begin elsewhere and stop within a small part of the error bar.
        allowed = 0.05 * alone.uncertainty.test_error + 2e-6
        assert point.test_error == pytest.approx(alone.test_error, abs=allowed)


@pytest.mark.parametrize(("classifier", "loss"), [("pooled", "logistic"), ("vectorised", "square")])
def test_a_point_of_an_exact_curve_is_off_by_no_more_than_its_bars(
    classifier: str, loss: str
) -> None:
    """Without a bar of the law, what the solver leaves is all of the bar."""
    task, values = Task(10, 1, 4.0), np.linspace(1.0, 8.0, 10)
    training = Training(4.0, 4.0, loss=loss, ridge=1e-3)
    for value, point in zip(
        values, curve(task, training, values=values, classifier=classifier), strict=True
    ):
        alone = predict(task, training.replace(alpha1=value), classifier=classifier)
        bars = point.uncertainty.test_error + alone.uncertainty.test_error
        assert abs(point.test_error - alone.test_error) <= bars
        assert bars < 1e-6


def test_a_curve_over_the_query_and_over_nothing_known() -> None:
    found = curve(
        TASK, Training(1.0, 2.0), over="alignment", values=[0.2, 0.9], query=QUERY, tolerance=1e-2
    )
    assert found[0].query == Query(0.2, 1.0)
    assert found[0].test_error > found[1].test_error
    for name in ("loss", "colour"):
        with pytest.raises(ParameterError, match=f"over = '{name}'.*alpha1"):
            curve(TASK, Training(1.0, 2.0), over=name, values=[1.0])


def test_a_curve_over_what_a_given_query_does_not_depend_on_is_refused() -> None:
    training = Training(1.0, 2.0, ridge=0.1)
    for name in LEARNING:
        with pytest.raises(ParameterError, match=f"over = '{name}'.*matters here: length"):
            curve(TASK, training, over=name, values=[1.0, 2.0], query=QUERY)
    # Without a query there may be one of another line, which this is compared with.
    flat = curve(TASK, training, over="alpha0", values=[1.0, 2.0], classifier="pooled")
    assert flat[0].test_error == pytest.approx(flat[1].test_error, rel=1e-12)


def test_a_looser_tolerance_begins_with_fewer_points() -> None:
    usage = Usage(None, None, recalibrate=False)
    sizes = [
        predictor.Predictor("attention", None, usage, tolerance)._first_size
        for tolerance in (1e-6, 1e-4, 3e-4, 1e-3, 2e-3, 1e-2)
    ]
    assert sizes == [FIRST_SIZE, FIRST_SIZE, 9, LEAST_SIZE, LEAST_SIZE, ROUGH_SIZE]


def test_points_grow_by_what_is_missing_and_fall_by_what_is_spare() -> None:
    growth = predictor._growth
    assert growth({10: 1e-4 * 2**0.79}, 1e-4) == 1
    assert growth({10: 1e-4 * 2**1.59}, 1e-4) == 2
    assert growth({10: 1e-4 * 2**-1.61}, 1e-4) == -2
    # One bar of few points says little of how many it takes; two say how it falls.
    assert growth({7: 0.1}, 1e-3) == 4
    assert growth({5: 0.4, 7: 0.1}, 1e-3) == 9
    # What fell more slowly than hoped for takes more, and each further try at least one more.
    assert growth({8: 4e-4, 10: 2e-4}, 1e-4) == 2
    assert growth({8: 4e-4, 9: 3e-4, 10: 1.01e-4}, 1e-4) == 2


def test_the_slope_of_the_error_in_the_readout_is_that_of_differences() -> None:
    law = replace(attention_law(TASK, Query(0.8, 1.5), 6), further=None)
    law = replace(law, further=0.3 * law.scale)
    weights = np.array([0.7, 0.4, -0.2, 1.1])

    def error(moved: np.ndarray) -> float:
        return float(law.weight @ misclassified(law, moved))

    step = 1e-5
    slopes = [
        (error(weights + one) - error(weights - one)) / (2 * step) for one in step * np.eye(4)
    ]
    found = misclassification._sensitivity(law, weights)
    assert found == pytest.approx(np.abs(slopes), rel=1e-6)


def test_a_tighter_tolerance_is_met_or_said_not_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training(1.0, 2.0, ridge=0.01)
    loose, tight = (predict(TASK, training, query=QUERY, tolerance=t) for t in (1e-2, 3e-5))
    assert tight.uncertainty.test_error <= 3e-5 < loose.uncertainty.test_error
    deviation = abs(tight.test_error - loose.test_error)
    assert deviation <= loose.uncertainty.test_error + tight.uncertainty.test_error
    monkeypatch.setattr(predictor, "LAST_SIZE", FIRST_SIZE)
    vain = predict(TASK, training, query=QUERY, tolerance=1e-9)
    assert "not reached" in vain.solution.message
    with pytest.raises(ParameterError, match="tolerance"):
        predict(TASK, training, query=QUERY, tolerance=0.0)


def test_uncertainty_covers_the_deviation_from_a_finer_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A seeded part of benchmarks/theory_uncertainty.py: at least 8 of 10 within the bar."""
    rng = np.random.default_rng(3)
    inside = []
    for _ in range(10):
        length = int(rng.integers(2, 60))
        task = Task(length, int(rng.integers(1, length)), rng.uniform(1, 6), rng.uniform(0.2, 0.8))
        training = Training(
            1.0, 10 ** rng.uniform(-0.5, 1), loss=str(rng.choice(loss_names())), ridge=1e-2
        )
        query = Query(rng.uniform(0, 1), rng.uniform(0.1, 4))
        rough = predict(task, training, query=query, tolerance=1.0)
        monkeypatch.setattr(predictor, "LEAST_SIZE", FIRST_SIZE + 1)
        fine = predict(task, training, query=query, tolerance=1.0)
        monkeypatch.setattr(predictor, "LEAST_SIZE", LEAST_SIZE)
        inside.append(
            abs(rough.test_error - fine.test_error) <= rough.uncertainty.test_error
            and abs(rough.train_loss - fine.train_loss) <= rough.uncertainty.train_loss
        )
    assert sum(inside) >= 8


@path_memory()
def test_the_law_of_features_is_kept_for_the_next_prediction_of_a_path() -> None:
    predict(TASK, Training(1.0, 2.0), query=QUERY, tolerance=1.0)
    predict(TASK, Training(1.0, 3.0, loss="square"), query=QUERY, tolerance=1.0)
    assert kept_results(attention_law).misses == 1
    assert kept_results(attention_law).hits > 1
    assert attention_law(TASK, QUERY, LEAST_SIZE) is attention_law(TASK, QUERY, LEAST_SIZE)


@pytest.mark.parametrize("metrics", [False, True], ids=["curve", "metrics"])
def test_after_a_curve_nothing_large_is_left(metrics: bool) -> None:
    """Its laws and tokens take 6 MB; what stays are its points, and small tables."""

    def ask(tolerance: float) -> object:
        found = curve(TASK, Training(4.0, 2.0), values=[1.0, 2.0], tolerance=tolerance)
        return [point.metrics("auc", "hit_rate") for point in found] if metrics else found

    ask(1.0)  # for the constants
    tracemalloc.start()
    kept = ask(3e-5)
    left, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept
    assert most > 5e6
    assert left < 1e5


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
@given(data=st.data())
def test_never_fails_silently(data: st.DataObject) -> None:
    length = data.draw(st.integers(2, 200))
    task = Task(
        length,
        data.draw(st.integers(1, length - 1)),
        data.draw(st.one_of(st.just(0.0), st.floats(1e-9, 20))),
        data.draw(st.floats(1e-3, 1 - 1e-3)),
    )
    training = Training(
        data.draw(st.floats(0.05, 100)),
        data.draw(st.floats(0.05, 100)),
        loss=data.draw(st.sampled_from(loss_names())),
        ridge=data.draw(st.one_of(st.just(0.0), st.floats(1e-8, 10))),
        query_step=data.draw(st.floats(0.1, 100)),
    )
    classifier = data.draw(st.sampled_from(["attention", "pooled", "vectorised"]))
    query = None
    if classifier == "attention" and data.draw(st.booleans()):
        query = Query(data.draw(st.floats(-1, 1)), data.draw(st.floats(0, 50)))
    try:
        found = predict(task, training, classifier=classifier, query=query, tolerance=1.0)
    except ParameterError as error:
        assert error.parameter == "alpha1"  # noqa: PT017 - exactly at a threshold
        return
    numbers = [found.test_error, found.train_loss, found.train_error]
    numbers += [found.uncertainty.test_error, found.uncertainty.train_loss]
    assert np.all(np.isfinite(numbers))
    assert 0 <= found.test_error <= 1
    assert found.solution.converged or "ridge" in found.solution.message


class Exponential(Loss):
    """A user's loss: value, slope and curvature only."""

    name = "exponential"
    minimisers = (np.inf, np.inf)
    breakpoints = (-4.0, -2.0, 0.0, 3.0, 8.0)

    def value(self, margin):
        return np.exp(-margin)

    def slope(self, margin):
        return -np.exp(-margin)

    def curvature(self, margin):
        return np.exp(-margin)


def test_a_loss_of_the_users_own_works_unchanged() -> None:
    register_loss(Exponential())
    training = Training(2.0, 3.0, loss="exponential", ridge=0.05)
    pooled = predict(TASK, training, classifier="pooled")
    attention = predict(TASK, training, query=QUERY, tolerance=1e-2)
    for found in (pooled, attention):
        assert found.solution.converged
        assert found.uncertainty.test_error < 1e-2
    logistic = predict(TASK, training.replace(loss="logistic"), classifier="pooled")
    assert abs(pooled.test_error - logistic.test_error) < 0.03
    assert -1 <= align(TASK, training).alignment <= 1
    assert capacity(TASK, training=training).alpha > 2
    margin = predict(TASK, training.replace(ridge=0.0, alpha1=1.0), classifier="pooled")
    assert margin.margin == pytest.approx(
        predict(TASK, Training(2.0, 1.0, loss="hinge", ridge=0.0), classifier="pooled").margin
    )


class Tube(Exponential):
    """Least on an interval: without a ridge its readout is not unique."""

    name = "tube"
    minimisers = (1.0, 2.0)
    breakpoints = (1.0, 2.0)

    def value(self, margin):
        return 0.5 * self.slope(margin) ** 2

    def slope(self, margin):
        return np.minimum(margin - 1, 0) + np.maximum(margin - 2, 0)

    def curvature(self, margin):
        return ((margin < 1) | (margin > 2)).astype(float)


def test_a_loss_that_is_least_on_an_interval_needs_a_ridge() -> None:
    register_loss(Tube())
    training = Training(1.0, 0.8, loss="tube", ridge=0.0)
    with pytest.raises(ParameterError, match=r"ridge = 0\.0 .*'tube'"):
        predict(TASK, training, classifier="pooled")
    assert predict(TASK, training.replace(ridge=1e-6), classifier="pooled").solution.converged


def test_a_collapsed_hinge_says_what_happened() -> None:
    """Rare positives and no ridge: the hinge prefers to ignore them, at w = 0."""
    found = predict(
        Task(73, 1, 5.0, 0.04), Training(1.0, 38.0, loss="hinge", ridge=0.0), classifier="pooled"
    )
    assert found.test_error == pytest.approx(0.04, abs=1e-6)
    assert found.train_loss == pytest.approx(0.08, abs=found.uncertainty.train_loss)
    assert "smoothed" in found.solution.message


def test_a_long_sequence_needs_no_curve_to_start_from() -> None:
    task, training = TASK.replace(length=10_000), Training(4.0, 2.0)
    query = Query(0.9, 1.5)
    alone = predict(task, training, query=query, tolerance=1e-2)
    _, after = curve(task, training, over="alpha1", values=[1.0, 2.0], query=query, tolerance=1e-2)
    assert alone.solution.converged
    assert alone.test_error == pytest.approx(after.test_error, abs=alone.uncertainty.test_error)
    assert alone.order_parameters.rest == pytest.approx(after.order_parameters.rest, rel=1e-2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: predict(TRAINING, TASK), "training = Task"),  # type: ignore[arg-type]
        (lambda: predict(TASK, TRAINING, query=(0.9, 2)), "query = .* a Query"),  # type: ignore[arg-type]
        (lambda: predict(TASK, TRAINING, at=3), "at = 3 .* a Task"),  # type: ignore[arg-type]
        (lambda: curve(5, TRAINING, over="alpha1", values=[1.0]), "task = 5 .* a Task"),  # type: ignore[arg-type]
        (lambda: align(TASK, 5), "training = 5 .* a Training"),  # type: ignore[arg-type]
        (lambda: capacity(TASK, training=5), "training = 5 .* a Training"),  # type: ignore[arg-type]
        (lambda: oracle(5), "task = 5 .* a Task"),  # type: ignore[arg-type]
    ],
)
def test_objects_of_another_class_are_refused_by_name(
    call: Callable[[], object], message: str
) -> None:
    with pytest.raises(ParameterError, match=message):
        call()
