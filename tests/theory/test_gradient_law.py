"""Means of the gradient: against plain draws, and as derivatives of the mean loss."""

import numpy as np
import pytest

from sparsetoken import Task, get_loss
from sparsetoken.arrays import Array
from sparsetoken.losses import Loss
from sparsetoken.numerics.quadrature import normal_panels
from sparsetoken.theory.gradient_law import (
    FrameReadout,
    Gradient,
    _group_sums,
    _means,
    _SoftmaxSums,
    draw_sequences,
    mean_gradient,
    sequence_scores,
)
from sparsetoken.theory.token_law import TokenGroup

CASES = [
    (Task(8, 2, 3.0, 0.3), FrameReadout(0.7, 0.9, 0.8, 0.5, 0.6, -0.2), "logistic"),
    (Task(5, 1, 4.0, 0.6), FrameReadout(-0.3, 2.0, 0.3, -0.8, 0.4, 0.5), "hinge"),
    (Task(80, 3, 3.0, 0.4), FrameReadout(0.9, 1.5, 1.2, 0.3, 0.9, -0.5), "squared_hinge"),
]


def flat(gradient: Gradient) -> Array:
    noise = (gradient.readout_noise, gradient.cross_noise, gradient.query_noise)
    return np.array([*gradient.readout, *gradient.query, gradient.bias, *noise])


def draws_of(task: Task, size: int, mild: bool = False) -> list:  # type: ignore[type-arg]
    return [draw_sequences(task, size, (0, index), mild) for index in range(8)]


def plain(task: Task, loss: Loss, readout: FrameReadout, count: int) -> Array:
    """Return the ten quantities of each of `count` sequences drawn in the frame (q̂, e, rest)."""
    rng = np.random.default_rng(7)
    y = np.where(rng.random(count) < task.positive_rate, 1, -1)
    x = rng.standard_normal((count, task.length, 3))
    signal = np.array([readout.alignment, np.sqrt(1 - readout.alignment**2), 0.0])
    x[:, : task.informative] += task.strength * (y > 0)[:, None, None] * signal
    p = np.exp(readout.sharpness * x[..., 0])
    p /= p.sum(axis=1, keepdims=True)
    t = x @ np.array([readout.along, readout.across, readout.rest])
    mean = (p * t).sum(axis=1)
    h = y * loss.slope(y * (mean + readout.bias))
    k = p * (t - mean[:, None])
    return np.array(
        [
            *(h[:, None] * np.einsum("nl,nlc->nc", p, x)).T,
            *(h[:, None] * np.einsum("nl,nlc->nc", k, x)).T,
            h,
            h**2 * (p * p).sum(axis=1),
            h**2 * (p * k).sum(axis=1),
            h**2 * (k * k).sum(axis=1),
        ]
    )


@pytest.mark.parametrize(("task", "readout", "loss"), CASES)
def test_means_against_plain_draws(task: Task, readout: FrameReadout, loss: str) -> None:
    count = 200_000 if task.length < 50 else 30_000
    drawn = plain(task, get_loss(loss), readout, count)
    found = flat(mean_gradient(task, get_loss(loss), readout, draws_of(task, 9)))
    z = (drawn.mean(axis=1) - found) / (drawn.std(axis=1) / np.sqrt(count))
    # The largest of ten; 1 % of a quantity's standard deviation would show as z = 4.5 or 1.7.
    assert np.abs(z).max() < 3.5


def mean_loss(task: Task, loss: Loss, readout: FrameReadout, draws: list) -> float:  # type: ignore[type-arg]
    law = sequence_scores(task, readout, draws)
    margin, noise = law.label * law.mean, law.spread
    edges = (np.array(loss.breakpoints)[None] - margin[:, None]) / noise[:, None]
    nodes, weights = normal_panels(edges, 8)
    values = loss.value(margin[:, None] + noise[:, None] * nodes)
    return float(law.weight @ (weights * values).sum(axis=1))


@pytest.mark.parametrize(("task", "readout", "loss"), CASES)
def test_the_readouts_gradient_is_the_derivative_of_the_mean_loss(
    task: Task, readout: FrameReadout, loss: str
) -> None:
    draws = draws_of(task, 8)
    found = mean_gradient(task, get_loss(loss), readout, draws)
    for name, value in zip(
        ("along", "across", "rest", "bias"), (*found.readout, found.bias), strict=True
    ):
        step, sides = 1e-5, []
        for sign in (1, -1):
            changed = {**vars(readout), name: getattr(readout, name) + sign * step}
            sides.append(mean_loss(task, get_loss(loss), FrameReadout(**changed), draws))
        assert (sides[0] - sides[1]) / (2 * step) == pytest.approx(value, abs=2e-6)


@pytest.mark.parametrize(("task", "readout", "loss"), CASES)
def test_the_querys_gradient_is_the_derivative_of_the_mean_loss(
    task: Task, readout: FrameReadout, loss: str
) -> None:
    draws = draws_of(task, 10)
    found = mean_gradient(task, get_loss(loss), readout, draws)
    vectors = np.array([[readout.alignment, np.sqrt(1 - readout.alignment**2), 0.0]])
    w = np.array([readout.along, readout.across, readout.rest])
    for axis in range(3):
        step, sides = 1e-3, []
        for sign in (1, -1):
            q = np.array([readout.sharpness, 0.0, 0.0])
            q[axis] += sign * step
            unit = q / np.linalg.norm(q)
            alignment = float(vectors[0] @ unit)
            along = float(w @ unit)
            across = (float(w @ vectors[0]) - alignment * along) / np.sqrt(1 - alignment**2)
            rest = np.sqrt(w @ w - along**2 - across**2)
            moved = FrameReadout(
                alignment, float(np.linalg.norm(q)), along, across, rest, readout.bias
            )
            sides.append(mean_loss(task, get_loss(loss), moved, draws))
        # The same points, but one side by Stein's identity: equal up to their quadrature.
        assert (sides[0] - sides[1]) / (2 * step) == pytest.approx(found.query[axis], abs=4e-3)


def test_mild_and_sharp_points_agree() -> None:
    task, readout = Task(9, 2, 3.0, 0.4), FrameReadout(0.6, 0.15, 0.4, 0.3, 0.5, -0.1)
    mild, sharp = (
        flat(mean_gradient(task, get_loss("logistic"), readout, draws_of(task, 9, kind)))
        for kind in (True, False)
    )
    np.testing.assert_allclose(mild, sharp, atol=1e-3)


def test_sums_over_many_tokens_that_do_not_deviate_are_their_means() -> None:
    rng, sharpness, kept = np.random.default_rng(0), 0.8, 6
    values = np.sort(rng.standard_normal((5, kept)) + 1.5)[:, ::-1]
    offset = rng.standard_normal(5)
    group = TokenGroup(values, 40, np.zeros((5, 3)))
    found = _group_sums(group, sharpness, offset)
    assert sorted(found) == [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2), (3, 0), (3, 1), (4, 0)]
    for (power, degree), sums in found.items():
        for k, last in enumerate(values[:, -1]):

            def each(u: Array, k: int = k, power: int = power, degree: int = degree) -> Array:
                return u**degree * np.exp(power * (sharpness * u + offset[k]))

            nodes, weights = normal_panels(np.array([[last]]), 40)
            below = nodes < last
            mean = (weights * each(nodes))[below].sum() / weights[below].sum()
            assert sums[k] == pytest.approx(each(values[k]).sum() + 40 * mean, rel=1e-9)


@pytest.mark.parametrize("label", [1, -1])
@pytest.mark.parametrize(("task", "readout", "loss"), [CASES[0], (*CASES[1][:2], "logistic")])
def test_means_of_known_scores_are_integrals_over_one_normal(
    task: Task, readout: FrameReadout, loss: str, label: int
) -> None:
    """Token by token, given a and v: g_l = p_l G/s + what is independent of G, s² = Σ p²."""
    a = 1.5 * np.random.default_rng(1).standard_normal(task.length)
    v = (np.arange(task.length) < task.informative) * (label > 0)
    p = np.exp(readout.sharpness * a)
    p /= p.sum()
    powers = {power: p**power for power in range(1, 5)}

    def sums(factor: Array | float) -> dict[int, Array]:
        return {power: np.array([np.sum(each * factor)]) for power, each in powers.items()}

    known = _SoftmaxSums(sums(1.0), sums(v), sums(a), sums(a**2), sums(a * v))
    found = _means(task, get_loss(loss), readout, known, label, 16)
    shift = task.strength * np.sqrt(1 - readout.alignment**2)
    rho, s = readout.spread, np.sqrt(np.sum(p**2))
    fixed = readout.along * a + readout.across * shift * v
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    weights = weights / weights.sum()
    expected = np.zeros(11)
    for g, weight in zip(nodes, weights, strict=True):
        h = label * get_loss(loss).slope(
            np.array([label * (p @ fixed + rho * s * g + readout.bias)])
        )
        # Mean and square of each token's noise given G, and of k_l/p_l = t_l - t̄.
        noise, noise_square = p * g / s, 1 + (p / s) ** 2 * (g**2 - 1)
        k = fixed - p @ fixed + rho * (noise - s * g)
        k_noise = (fixed - p @ fixed - rho * s * g) * noise + rho * noise_square
        k_square = k**2 + rho**2 * (noise_square - noise**2)
        e, rest = readout.across / rho, readout.rest / rho
        columns = [
            *(p @ a, p @ (shift * v + e * noise), rest * p @ noise),
            *((p * k) @ a, (p * k) @ (shift * v) + e * p @ k_noise, rest * p @ k_noise, 1.0),
            *(h[0] * p @ p, h[0] * (p * p) @ k, h[0] * (p * p) @ k_square, h[0]),
        ]
        expected += weight * h[0] * np.array(columns)
    np.testing.assert_allclose(found, expected, atol=1e-6)
