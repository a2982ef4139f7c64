import doctest
from collections.abc import Iterator
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsetoken import (
    Loss,
    ParameterError,
    Training,
    check_loss,
    get_loss,
    loss_names,
    losses,
    register_loss,
    unregister_loss,
)
from sparsetoken.arrays import Array
from sparsetoken.losses import Logistic, SquaredHinge

SMOOTH = [name for name in loss_names() if get_loss(name).smooth]
MAGNITUDES = np.logspace(-12, 12, 49)
MARGINS = np.concatenate([-MAGNITUDES[::-1], [0.0], MAGNITUDES])
every_loss = pytest.mark.parametrize("name", loss_names())


class Exponential(Loss):
    """exp(-t): a user's loss that gives only what it must."""

    name = "exponential"
    minimisers = (np.inf, np.inf)

    def value(self, margin: Array) -> Array:
        return np.exp(-margin)

    def slope(self, margin: Array) -> Array:
        return -np.exp(-margin)

    def curvature(self, margin: Array) -> Array:
        return np.exp(-margin)


@pytest.fixture
def exponential() -> Iterator[Exponential]:
    loss = Exponential()
    register_loss(loss)
    yield loss
    unregister_loss(loss.name)


def away_from_kinks(loss: Loss, grid: Array, distance: Array | float) -> Array:
    gaps = np.abs(np.subtract.outer(grid, np.array(loss.breakpoints)))
    return grid[np.all(gaps > np.expand_dims(distance, -1), axis=-1)]


@every_loss
def test_slope_and_curvature_are_numerical_derivatives(name: str) -> None:
    loss = get_loss(name)
    # Central differences of step h err by h² times a third derivative, at most 1/6 here.
    h = 1e-4
    grid = away_from_kinks(loss, np.linspace(-40, 40, 1601), 2 * h)
    by_value = (loss.value(grid + h) - loss.value(grid - h)) / (2 * h)
    np.testing.assert_allclose(loss.slope(grid), by_value, rtol=1e-8, atol=2e-9)
    by_slope = (loss.slope(grid + h) - loss.slope(grid - h)) / (2 * h)
    np.testing.assert_allclose(loss.curvature(grid), by_slope, rtol=1e-8, atol=2e-9)


@every_loss
@given(a=st.floats(-1e12, 1e12), b=st.floats(-1e12, 1e12), weight=st.floats(0, 1))
def test_convexity(name: str, a: float, b: float, weight: float) -> None:
    loss = get_loss(name)
    between = weight * a + (1 - weight) * b
    at_a, at_b, at_between = loss.value(np.array([a, b, between]))
    chord = weight * at_a + (1 - weight) * at_b
    assert at_between <= chord + 1e-12 * (1 + abs(chord) + abs(at_a) + abs(at_b))
    slopes = loss.slope(np.sort([a, b]))
    assert slopes[0] <= slopes[1]


@every_loss
def test_extreme_margins_are_finite_and_accurate(name: str) -> None:
    loss = get_loss(name)
    for function in (loss.value, loss.slope, loss.curvature):
        assert np.all(np.isfinite(function(MARGINS)))
    assert np.all(loss.value(MARGINS) >= 0)
    assert np.all(loss.curvature(MARGINS) >= 0)
    far = np.array([-1e12])
    expected = {"square": 0.5 * (1e12 + 1) ** 2, "squared_hinge": 0.5 * (1e12 + 1) ** 2}
    np.testing.assert_allclose(loss.value(far), expected.get(name, 1e12), rtol=2e-12)


def test_logistic_tails_keep_their_relative_accuracy() -> None:
    loss = get_loss("logistic")
    far = np.array([40.0, 300.0, 700.0])
    np.testing.assert_allclose(loss.value(far), np.exp(-far), rtol=1e-15)
    np.testing.assert_allclose(loss.slope(far), -np.exp(-far), rtol=1e-15)
    np.testing.assert_allclose(loss.curvature(far), np.exp(-far), rtol=1e-15)
    np.testing.assert_allclose(loss.curvature(-far), np.exp(-far), rtol=1e-15)
    np.testing.assert_allclose(loss.value(-far), far, rtol=1e-15)


def test_square_losses_at_small_margins_keep_their_relative_accuracy() -> None:
    tiny = np.array([1e-12, -1e-12])
    for name in ("square", "squared_hinge"):
        np.testing.assert_allclose(get_loss(name).slope(1 + tiny)[1], -1e-12, rtol=1e-3)
        np.testing.assert_allclose(get_loss(name).slope(tiny), tiny - 1, rtol=0)


@every_loss
@pytest.mark.parametrize("step", [1e-12, 1e-6, 1.0, 1e6, 1e12])
def test_prox_satisfies_its_optimality_condition(name: str, step: float) -> None:
    loss = get_loss(name)
    r = loss.prox(MARGINS, step)
    # (centre - r)/step is a subgradient at r: it lies between the slopes just beside r, up to the
    # change of the slope, and of (centre - r)/step, over a few units in the last place of r.
    beside = 8 * np.spacing(np.abs(r)) + 8 * np.spacing(np.abs(MARGINS))
    rounding = beside / step + 1e-15
    subgradient = (MARGINS - r) / step
    assert np.all(loss.slope(r - beside) <= subgradient + rounding)
    assert np.all(loss.slope(r + beside) >= subgradient - rounding)


@every_loss
def test_prox_is_monotone_and_does_not_expand(name: str) -> None:
    loss = get_loss(name)
    for step in MAGNITUDES[::6]:
        r = loss.prox(MARGINS, step)
        growth, gap = np.diff(r), np.diff(MARGINS)
        slack = 4 * np.spacing(np.abs(r[1:])) + 4 * np.spacing(np.abs(r[:-1]))
        assert np.all(growth >= -slack)
        assert np.all(growth <= gap + slack)


@every_loss
def test_prox_broadcasts(name: str) -> None:
    loss = get_loss(name)
    centre, step = np.linspace(-3, 3, 5)[:, None], np.array([0.1, 1.0, 10.0])
    table = loss.prox(centre, step)
    assert table.shape == (5, 3)
    assert loss.prox_slope(centre, step).shape == (5, 3)
    assert table[1, 2] == pytest.approx(float(loss.prox(centre[1, 0], step[2])), rel=1e-15)


@pytest.mark.parametrize("name", SMOOTH)
def test_prox_of_a_general_loss_agrees_with_the_closed_ones(name: str) -> None:
    loss = get_loss(name)
    centre, step = MARGINS[:, None], MAGNITUDES[::8]
    general = Loss.prox(loss, centre, step)
    exact = loss.prox(centre, step)
    # The general method solves r + step ℓ'(r) = centre as it stands: its error is that of rounding
    # the terms, over the derivative of the left side.
    slack = (np.abs(centre) + step) / (1 + step * loss.curvature(exact))
    assert np.all(np.abs(general - exact) <= 8 * np.finfo(float).eps * (slack + np.abs(exact)))


def logistic_prox_with_50_digits(centre: float, step: float) -> Decimal:
    omega, tau = Decimal(centre), Decimal(step)

    def too_high(r: Decimal) -> bool:
        if abs(r) > 300:  # beyond the reach of the 50 digits
            return r - omega > (tau if r < 0 else 0)
        return r - omega - tau / (1 + r.exp()) > 0

    low, high = omega, omega + tau
    while high - low > Decimal("1e-40") * max(abs(low), abs(high)):
        middle = (low + high) / 2
        low, high = (low, middle) if too_high(middle) else (middle, high)
    return (low + high) / 2


def test_logistic_prox_is_accurate_to_two_units_in_the_last_place() -> None:
    rng = np.random.default_rng(0)
    count = 90
    step = 10 ** rng.uniform(-12, 12, count)
    anywhere = rng.choice([-1, 1], count) * 10 ** rng.uniform(-12, 12, count)
    nearly = 1 + rng.standard_normal(count) * 10 ** rng.uniform(-14, -2, count)
    # The hard cases: centre and step cancel, or centre and half of the step (a root next to 0).
    centre = np.concatenate([anywhere, -step * nearly, -0.5 * step * nearly])
    step = np.tile(step, 3)
    found = get_loss("logistic").prox(centre, step)
    with localcontext(prec=60):
        for r, omega, tau in zip(found.tolist(), centre.tolist(), step.tolist(), strict=True):
            exact = logistic_prox_with_50_digits(omega, tau)
            error = abs(Decimal(r) - exact) / abs(exact)
            assert error <= Decimal(2 * np.finfo(float).eps), (omega, tau, r, exact)


@every_loss
def test_prox_slope_is_the_derivative_of_prox(name: str) -> None:
    loss = get_loss(name)
    for step in (1e-3, 1.0, 1e3):
        kinks = np.array([1.0, 1 - step])
        centre = np.linspace(-5, 5, 401)
        centre = centre[np.all(np.abs(np.subtract.outer(centre, kinks)) > 1e-3, axis=1)]
        h = 1e-5
        difference = (loss.prox(centre + h, step) - loss.prox(centre - h, step)) / (2 * h)
        np.testing.assert_allclose(loss.prox_slope(centre, step), difference, rtol=1e-6, atol=1e-9)


@every_loss
def test_every_loss_keeps_the_rules(name: str) -> None:
    check_loss(get_loss(name))


def test_a_users_loss_works_everywhere_by_its_name(exponential: Exponential) -> None:
    check_loss(exponential, margins=np.linspace(-5, 5, 101))
    assert "exponential" in loss_names()
    assert Training(1, 1, loss="exponential").loss == "exponential"
    # r = step exp(-r) has the root Ω, the omega constant, at step 1 and centre 0.
    assert exponential.prox(0.0, 1.0) == pytest.approx(0.5671432904097838, rel=1e-15)
    # A first explicit step of exp(1000) overflows and must do no harm: r - 1000... = -1000.
    r = float(exponential.prox(-1000.0, 1.0))
    assert r - np.exp(-r) == pytest.approx(-1000.0, rel=1e-12)
    register_loss(exponential)  # again: no harm


def test_registry_refuses_what_it_must() -> None:
    class Impostor(Logistic):
        pass

    with pytest.raises(ParameterError, match=r"loss.name = 'logistic' .* not taken"):
        register_loss(Impostor())
    with pytest.raises(ParameterError, match="an instance of a class derived from Loss"):
        register_loss(Exponential)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="loss = 'logistic'"):
        unregister_loss("logistic")
    with pytest.raises(ParameterError, match="one of 'hinge', 'logistic'"):
        get_loss("exponential")


class WrongSlope(Logistic):
    def slope(self, margin: Array) -> Array:
        return 0.9 * super().slope(margin)


class WrongCurvature(Logistic):
    def curvature(self, margin: Array) -> Array:
        return 1.1 * super().curvature(margin)


class NotConvex(Loss):
    name = "sine"
    minimisers = (np.inf, np.inf)

    def value(self, margin: Array) -> Array:
        return np.sin(margin)

    def slope(self, margin: Array) -> Array:
        return np.cos(margin)

    def curvature(self, margin: Array) -> Array:
        return -np.sin(margin)


class WrongProx(Logistic):
    def prox(self, centre: object, step: object) -> Array:
        return super().prox(centre, 1.01 * np.asarray(step))  # type: ignore[arg-type]


class WrongProxSlope(Logistic):
    def prox_slope(self, centre: object, step: object) -> Array:
        return 0.99 * super().prox_slope(centre, step)  # type: ignore[arg-type]


class WrongMinimisers(SquaredHinge):
    minimisers = (np.inf, np.inf)


class NotFinite(Logistic):
    def value(self, margin: Array) -> Array:
        return super().value(margin) * np.nan


@pytest.mark.parametrize(
    ("broken", "rule"),
    [
        (WrongSlope(), "slope differs from the derivative of value"),
        (WrongCurvature(), "curvature differs from the derivative of slope"),
        (NotConvex(), "not convex"),
        (WrongProx(), "prox breaks its optimality condition"),
        (WrongProxSlope(), "prox_slope is not the derivative of prox"),
        (WrongMinimisers(), "slope does not change sign at minimisers"),
        (NotFinite(), "slope differs"),
    ],
)
def test_check_loss_says_which_rule_is_broken(broken: Loss, rule: str) -> None:
    with pytest.raises(ValueError, match=f"loss '{broken.name}': .*{rule}"):
        check_loss(broken)


def test_repr() -> None:
    assert repr(get_loss("squared_hinge")) == "SquaredHinge()"


def test_examples_in_the_documentation_run() -> None:
    try:
        result = doctest.testmod(losses)
    finally:
        unregister_loss("exponential")
    assert result.attempted > 4
    assert result.failed == 0


def test_a_loss_needs_a_name() -> None:
    class Nameless(Logistic):
        name = ""

    with pytest.raises(ParameterError, match="not empty"):
        register_loss(Nameless())


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"minimisers": (1.0, 1.0)}, "loss.name = None"),
        ({"name": "", "minimisers": (1.0, 1.0)}, "loss.name = ''"),
        ({"name": "halved"}, "loss.minimisers = None"),
        ({"name": "halved", "minimisers": 1.0}, "loss.minimisers = 1.0"),
        ({"name": "halved", "minimisers": (2.0, 1.0)}, r"loss.minimisers = \(2.0, 1.0\)"),
    ],
)
def test_a_loss_that_does_not_say_what_it_is_is_refused(
    parts: dict[str, Any], message: str
) -> None:
    square = get_loss("square")
    methods = {name: getattr(type(square), name) for name in ("value", "slope", "curvature")}
    loss = type("Halved", (Loss,), {**methods, **parts})()
    for use in (register_loss, check_loss):
        with pytest.raises(ParameterError, match=message):
            use(loss)
    assert "halved" not in loss_names()
