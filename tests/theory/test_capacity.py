from typing import Any

import numpy as np
import pytest
from scipy import integrate, optimize
from scipy.special import softmax
from scipy.stats import norm

from sparsetoken import (
    ParameterError,
    Query,
    Task,
    Training,
    align,
    capacity,
    capacity_curve,
    predict,
)
from sparsetoken.task import vary
from sparsetoken.theory import capacity as capacity_module
from sparsetoken.theory.attention_law import attention_law
from sparsetoken.theory.laws import pooled_law
from sparsetoken.theory.margin import Hinged, WidestMargin, least_excess
from sparsetoken.theory.reuse import reused_law


@pytest.mark.parametrize("classifier", ["pooled", "attention"])
def test_pure_noise_has_capacity_two(classifier: str) -> None:
    query = Query(0.5, 1.0) if classifier == "attention" else None
    found = capacity(Task(10, 1, 0.0), query=query, classifier=classifier)
    assert found.alpha == pytest.approx(2, abs=1e-6)
    assert found.solution.converged


def test_a_root_on_few_points_is_corrected_on_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a split: 2^5 points leave the load 1 % from where 2^9 have it, the corrections nothing."""
    monkeypatch.setattr(capacity_module, "_COARSE_SIZE", 5)
    monkeypatch.setattr(capacity_module, "_SIZE", 9)
    task, training = Task(6, 2, 2.5, 0.4), Training(3.0, 3.0, reuse=True, query_step=40.0)
    coarse, fine = (capacity_module._Load(task, training, "attention", size) for size in (5, 9))
    assert abs(fine(optimize.brentq(coarse, 1.0, 3.0))) > 5e-3
    assert abs(fine(np.log(capacity(task, training=training).alpha))) < 1e-4


def test_pooled_capacity_against_direct_minimisation() -> None:
    task = Task(10, 2, 3.0, 0.3)

    def excess(x: np.ndarray) -> float:
        across, bias = x
        sigma = np.sqrt(1 + across**2)
        total = 0.0
        for label, rate, shift in ((1, 0.3, 3 * 2 / 10), (-1, 0.7, 0.0)):
            centre = label * (across * shift + bias) * np.sqrt(10)
            total += rate * integrate.quad(
                lambda g, c=centre: max(sigma * g - c, 0) ** 2 * norm.pdf(g), -9, 9,
                points=[np.clip(centre / sigma, -9, 9)],
            )[0]  # fmt: skip
        return total

    best = optimize.minimize(
        excess, [0.3, 0.0], method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-12}
    )
    found = capacity(task, classifier="pooled")
    assert found.alpha == pytest.approx(1 / best.fun, rel=1e-8)
    assert capacity(task, classifier="vectorised").alpha == pytest.approx(10 * found.alpha)


def test_usual_order_of_capacities() -> None:
    task = Task(10, 1, 5.0)
    attention = capacity(task, query=Query(0.8, 1.0))
    pooled, vectorised = (capacity(task, classifier=name) for name in ("pooled", "vectorised"))
    assert vectorised.alpha > attention.alpha + attention.uncertainty
    assert attention.alpha - attention.uncertainty > pooled.alpha


def test_a_useless_query_is_no_better_than_pooling() -> None:
    task = Task(10, 1, 5.0)
    flat = capacity(task, query=Query(0.3, 0.0))
    assert flat.alpha == pytest.approx(capacity(task, classifier="pooled").alpha, rel=1e-3)


def test_query_is_learnt_if_not_given() -> None:
    task, training = Task(10, 1, 5.0), Training(4.0, 1.0, query_step=20.0)
    found = capacity(task, training=training)
    assert found.query == align(task, training).query
    assert found.alpha == capacity(task, query=found.query).alpha
    with pytest.raises(ParameterError, match="query = None"):
        capacity(task)
    with pytest.raises(ParameterError, match="pooled"):
        capacity(task, query=Query(1.0, 1.0), classifier="pooled")


def test_margin_vanishes_at_capacity() -> None:
    task = Task(10, 1, 5.0)
    threshold = capacity(task, classifier="pooled").alpha

    def at(ratio: float):
        return predict(
            task, Training(1.0, ratio * threshold, ridge=0.0, loss="hinge"), classifier="pooled"
        )

    assert at(0.99).margin == pytest.approx(0, abs=2e-3)
    assert at(0.99).margin > at(0.999).margin > 0
    assert at(0.99).train_loss == 0
    assert at(1.01).margin is None
    assert at(1.01).train_loss > 0
    with pytest.raises(ParameterError, match="capacity"):
        at(1.0)


def test_perfectly_separable_data_have_no_finite_capacity() -> None:
    found = capacity(Task(10, 1, 20.0), query=Query(1.0, 5.0))
    assert found.alpha == np.inf
    assert "beyond" in found.solution.message


@pytest.mark.parametrize(
    ("law", "linear"),
    [
        (pooled_law(Task(6, 2, 2.0, 0.4)), [0.5, -0.2]),
        (attention_law(Task(6, 2, 2.0, 0.4), Query(0.6, 1.0), 4), [0.3, 0.5, -0.2]),
        (
            reused_law(Task(6, 2, 2.0, 0.4), Training(2.0, 2.0, query_step=20.0, reuse=True), 4),
            [0.3, 0.5, -0.2, -0.4, 0.3, -0.1],
        ),
    ],
)
def test_derivatives_of_the_hinged_mean(law, linear: list[float]) -> None:
    point = np.array([*linear, 1.1, 0.4])
    at = Hinged.evaluate(law, point)
    for index in range(len(point)):
        step = 1e-6 * np.eye(len(point))[index]
        above, below = Hinged.evaluate(law, point + step), Hinged.evaluate(law, point - step)
        assert at.gradient[index] == pytest.approx((above.value - below.value) / 2e-6, abs=1e-7)
        np.testing.assert_allclose(
            at.hessian[index], (above.gradient - below.gradient) / 2e-6, atol=1e-6
        )
        margin = WidestMargin.evaluate(law, 1.3, point)
        slope = (
            WidestMargin.evaluate(law, 1.3, point + step).gradient
            - WidestMargin.evaluate(law, 1.3, point - step).gradient
        ) / 2e-6
        np.testing.assert_allclose(margin.hessian[:, index], slope, atol=1e-6)


def test_the_least_excess_is_a_minimum() -> None:
    whole = attention_law(Task(10, 1, 4.0, 0.3), Query(0.7, 1.0), 6)
    for law in (whole, whole.compressed):  # from a point nearby, and from 0
        result = least_excess(law)
        np.testing.assert_allclose(result.evaluation.gradient, 0, atol=1e-10)
        assert np.all(np.linalg.eigvalsh(result.evaluation.hessian) > 0)


def test_a_large_capacity_agrees_with_plain_draws() -> None:
    # At the minimum an error of the point does not matter. 4e5 draws of tokens tell the excess to
    # 3 %; z-score accepted: 4.
    task, query, draws = Task(10, 1, 7.0), Query(0.95, 3.0), 400_000
    point = least_excess(attention_law(task, query, 12, rare=True)).point
    rng, excess = np.random.default_rng(5), []
    for label in (1, -1):
        u = rng.standard_normal((draws, 10))
        signal = task.strength * (label > 0) * (np.arange(10) < task.informative)
        weights = softmax(query.sharpness * (u + query.alignment * signal), axis=1)
        strength, scale = weights @ signal, np.sqrt((weights**2).sum(axis=1))
        along = query.alignment * strength + (weights * u).sum(axis=1)
        across = np.sqrt(1 - query.alignment**2) * strength
        mean = point[0] * along + point[1] * across + point[2]
        noise = np.sqrt(1 + point[1] ** 2) * rng.standard_normal(draws)
        excess.append(np.maximum(noise - label * mean / scale, 0.0) ** 2)
    drawn = 0.5 * sum(np.mean(part) for part in excess)
    error = 0.5 * np.sqrt(sum(np.var(part) / draws for part in excess))
    found = capacity(task, query=query)
    assert found.uncertainty < 0.01 * found.alpha
    assert abs(1 / found.alpha - drawn) < 4 * (error + found.uncertainty / found.alpha**2)


def test_the_tolerance_decides_how_accurate_a_capacity_is() -> None:
    task, query = Task(10, 1, 5.0), Query(0.9, 1.5)
    rough, fine = (capacity(task, query=query, tolerance=value) for value in (0.2, 3e-3))
    assert 3e-3 * fine.alpha >= fine.uncertainty < rough.uncertainty <= 0.2 * rough.alpha
    assert abs(fine.alpha - rough.alpha) <= fine.uncertainty + rough.uncertainty


def test_a_capacity_beyond_the_points_of_a_law_is_not_called_infinite_for_sure() -> None:
    task, query = Task(10, 1, 9.0), Query(0.99553, 3.8722)
    found = capacity(task.replace(strength=15.0), query=query)
    assert (found.alpha, found.uncertainty) == (np.inf, np.inf)
    assert "capacity is beyond" in found.solution.message
    exact = capacity(task.replace(strength=60.0), classifier="pooled")
    assert (exact.alpha, exact.uncertainty) == (np.inf, 0.0)
    below, above = (
        predict(task, Training(4.0, alpha1, ridge=0.0), query=query) for alpha1 in (100.0, 2e5)
    )
    assert below.solution.converged
    assert below.margin is not None
    # The points in the tails see what is beyond the capacity, 38,000.
    assert above.solution.converged
    assert above.margin is None
    assert 0 < above.uncertainty.test_error < 0.3 * above.test_error


@pytest.mark.parametrize("over", ["strength", "alpha0", "alignment"])
def test_a_curve_of_capacities_agrees_with_its_points(over: str) -> None:
    task = Task(10, 1, 5.0)
    training = Training(4.0, 2.0, query_step=20.0) if over == "alpha0" else None
    query = None if over == "alpha0" else Query(0.9, 1.5)
    # The second value is beyond what the points of the law can tell, if it is a strength.
    values = [3.0, 30.0, 5.0, 6.0] if over == "strength" else [0.5, 0.8, 0.9]
    found = capacity_curve(task, training, over=over, values=values, query=query)
    assert (found.over, found.values) == (over, tuple(values))
    assert over not in found.settings
    for value, record in zip(values, found, strict=True):
        varied_task, varied_training, varied_query = vary(over, value, task, training, query)
        alone = capacity(varied_task, varied_training, query=varied_query)
        assert record.alpha == pytest.approx(alone.alpha, rel=1e-8)
        assert record.uncertainty == pytest.approx(alone.uncertainty, rel=1e-4)
        assert record.query == alone.query


@pytest.mark.parametrize(
    ("over", "settings"),
    [
        ("alpha0", {"classifier": "pooled"}),
        ("alpha0", {"query": Query(0.9, 1.5)}),
        ("ridge", {"training": Training(4.0, 2.0)}),
        ("alpha1", {"training": Training(4.0, 2.0)}),
        ("alpha0", {"training": Training(2.0, 2.0, reuse=True)}),
        ("alignment", {"training": Training(4.0, 2.0)}),
    ],
)
def test_a_curve_of_capacities_refuses_fields_that_do_not_matter(over: str, settings: Any) -> None:
    with pytest.raises(ParameterError, match=f"over = '{over}' .* a field that matters here"):
        capacity_curve(Task(10, 1, 5.0), over=over, values=[0.5, 1.0], **settings)


@pytest.mark.parametrize("given", [{"classifier": "pooled"}, {"query": Query(0.9, 1.5)}])
def test_a_training_that_nothing_reads_is_refused(given: dict[str, Any]) -> None:
    task, training = Task(10, 1, 5.0), Training(4.0, 2.0)
    for call in (
        lambda: capacity(task, training, **given),
        lambda: capacity_curve(task, training, values=[3.0], **given),
        lambda: capacity_curve(task, training, over="alpha0", values=[1.0, 2.0], **given),
    ):
        with pytest.raises(ParameterError, match=r"training = .* nothing else reads it"):
            call()
