"""The self-consistent equations are derivatives of one potential."""

import numpy as np
import pytest

from sparsetoken import Query, Task, Training, get_loss, loss_names
from sparsetoken.theory.attention_law import attention_law
from sparsetoken.theory.feature_law import FeatureLaw
from sparsetoken.theory.laws import pooled_law, vectorised_law
from sparsetoken.theory.potential import Potential
from sparsetoken.theory.reuse import reused_law
from sparsetoken.theory.saddle import solve_saddle

TASK = Task(10, 2, 4.0, 0.4)
REUSED = Training(2.0, 2.0, query_step=30.0, reuse=True)
LAWS = {
    "attention": attention_law(TASK, Query(0.7, 1.0), 7),
    "few points": attention_law(TASK, Query(0.7, 1.0), 3),
    "pooled": pooled_law(TASK),
    "vectorised": vectorised_law(TASK),
    "reused": reused_law(TASK, REUSED, 3),
}
# μ, b, a, and then ν, τ, β.
LINEAR = {
    "attention": [0.7, 0.4, -1.0],
    "few points": [0.7, 0.4, -1.0],
    "pooled": [0.4, -1.0],
    "vectorised": [0.4, -1.0],
    "reused": [0.7, 0.4, -0.3, -1.0, -0.2, 0.4],
}
RIDGE = 0.1


def point_for(law: str) -> np.ndarray:
    return np.array([*LINEAR[law], 0.6, 0.5, 0.9])


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("name", loss_names())
@pytest.mark.parametrize("smoothing", [0.0, 0.5])
def test_gradient_and_hessian_are_derivatives(law: str, name: str, smoothing: float) -> None:
    potential = Potential(LAWS[law], get_loss(name), 2.0)
    point = point_for(law)
    at = potential.second_order(point, RIDGE, smoothing)
    for index in range(len(point)):
        step = 1e-5 * np.eye(len(point))[index]
        above = potential.second_order(point + step, RIDGE, smoothing)
        below = potential.second_order(point - step, RIDGE, smoothing)
        slope = (above.value - below.value) / 2e-5
        assert at.gradient[index] == pytest.approx(slope, rel=1e-6, abs=1e-7), index
        bend = (above.gradient - below.gradient) / 2e-5
        np.testing.assert_allclose(at.hessian[index], bend, rtol=1e-5, atol=1e-6)
        growth = (above.train_loss.mean() - below.train_loss.mean()) / 2e-5
        assert at.train_loss_gradient[index] == pytest.approx(growth, rel=1e-5, abs=1e-7)


def test_first_order_agrees_with_second_order() -> None:
    potential = Potential(LAWS["attention"], get_loss("logistic"), 2.0)
    point = point_for("attention")
    first, second = potential.first_order(point, RIDGE), potential.second_order(point, RIDGE)
    # The two may be taken from tables of different sizes.
    np.testing.assert_allclose(first.gradient, second.gradient, rtol=1e-9)
    np.testing.assert_allclose(first.replicate_gradients.mean(axis=0), first.gradient)


def equations(
    law: FeatureLaw, name: str, ratio: float, ridge: float, point: np.ndarray
) -> list[float]:
    """The five equations as they are written in the docs, relative, by a fine sum over G."""
    loss = get_loss(name)
    mean, bias = point[: len(law.noisy)], point[len(law.noisy)]
    rest, width, dual = point[-3:]
    chi, rho = width / dual, np.sqrt(rest**2 + np.sum(mean[np.array(law.noisy)] ** 2))
    g = np.linspace(-9, 9, 6001 if len(law.scale) > 2 else 300001)
    weight = law.weight[:, None] * np.exp(-0.5 * g**2) / np.sqrt(2 * np.pi) * (g[1] - g[0])
    m = law.coordinates @ mean + bias
    omega = (law.label * m)[:, None] + (law.scale * rho)[:, None] * g
    square = (law.scale**2)[:, None]
    r = loss.prox(omega, chi * square)
    slope = (omega - r) / (chi * square)
    stiff = (1 - loss.prox_slope(omega, chi * square)) / (chi * square)
    signed = np.sum(weight * law.label[:, None] * slope, axis=1)
    penalty = ratio * ridge
    return [
        (part + chi * ratio * signed @ column) / rho
        if noisy
        else penalty * part + ratio * signed @ column
        for part, column, noisy in zip(mean, law.coordinates.T, law.noisy, strict=True)
    ] + [
        float(np.sum(signed)),
        1 - chi**2 * ratio * np.sum(weight * square * slope**2) / rest**2,
        1 - chi * (penalty + ratio * np.sum(weight * square * stiff)),
    ]


@pytest.mark.parametrize("law", ["few points", "pooled", "vectorised"])
@pytest.mark.parametrize("name", ["logistic", "square", "squared_hinge"])
@pytest.mark.parametrize("ridge", [1e-3, 1.0])
def test_the_saddle_point_solves_the_self_consistent_equations(
    law: str, name: str, ridge: float
) -> None:
    potential = Potential(LAWS[law], get_loss(name), 3.0)
    result = solve_saddle(potential, ridge).result
    assert result.converged
    correction = np.linalg.lstsq(result.evaluation.hessian, result.evaluation.gradient, rcond=None)
    point = result.point - correction[0]
    assert point[-3] == pytest.approx(point[-2], rel=1e-4)
    # The jumps of the squared hinge's curvature leave the sum an error of a few 1e-5.
    np.testing.assert_allclose(equations(LAWS[law], name, 3.0, ridge, point), 0, atol=5e-5)


def test_a_start_near_the_solution_saves_steps() -> None:
    potential = Potential(LAWS["attention"], get_loss("logistic"), 2.0)
    cold = solve_saddle(potential, 1e-4).result
    nearby = Potential(LAWS["attention"], get_loss("logistic"), 2.2)
    warm = solve_saddle(nearby, 1e-4, cold.point).result
    assert warm.converged
    assert warm.solution.steps < cold.solution.steps / 3


def test_a_bad_start_is_recovered_from() -> None:
    potential = Potential(LAWS["pooled"], get_loss("logistic"), 2.0)
    expected = solve_saddle(potential, 1e-2).result
    found = solve_saddle(potential, 1e-2, np.array([1e6, -1e6, 1e-8, 1e8, 1e-9])).result
    assert found.converged
    np.testing.assert_allclose(found.point, expected.point, rtol=1e-4)


@pytest.mark.parametrize("law", ["attention", "reused"])
def test_a_replicate_is_a_law(law: str) -> None:
    whole, part = LAWS[law], LAWS[law].first_replicate
    assert part.weight.sum() == pytest.approx(1)
    for sign in (-1, 1):
        share = whole.weight[whole.label == sign].sum()
        assert part.weight[part.label == sign].sum() == pytest.approx(share)


@pytest.mark.parametrize("moment", [0, 1, 2, 3])
def test_errors_are_what_wrong_moments_do_to_the_gradient(
    moment: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each moment too large by as much everywhere, at points whose coordinates have one sign."""
    law = LAWS["vectorised"]
    potential, point = Potential(law, get_loss("square"), 2.0), point_for("vectorised")
    wrong = 1e-3 * np.eye(4)[moment]
    first = potential.first_order(point, RIDGE)
    monkeypatch.setattr(Potential, "_quadrature_error", lambda *_: wrong)
    of_gradient, of_loss = potential.errors(point)
    original = Potential._gradients

    def moved(self: Potential, moments: np.ndarray, chain: object) -> object:
        return original(self, moments + np.pad(wrong, (0, moments.shape[1] - 4)), chain)

    monkeypatch.setattr(Potential, "_gradients", moved)
    after = potential.first_order(point, RIDGE)
    assert of_loss == pytest.approx(abs(after.train_loss.mean() - first.train_loss.mean()))
    change = np.abs(after.gradient - first.gradient)
    assert np.all(change <= of_gradient + 1e-12)
    assert change[-1] == pytest.approx(of_gradient[-1], abs=1e-9)
