import itertools

import numpy as np
import pytest
from scipy import integrate
from scipy.stats import norm

from sparsetoken import get_loss, loss_names
from sparsetoken.theory.moments import GRADIENT_MOMENTS, MOMENTS, margin_moments, moments_on_grid

CASES = [(0.3, 1.0, 0.5), (-4.0, 2.0, 3.0), (6.0, 0.2, 40.0), (0.9, 3.0, 1e-3), (2.0, 0.05, 5.0)]


def by_quad(name: str, centre: float, noise: float, step: float) -> dict[str, float]:
    """The moments by adaptive quadrature over G, with the prox as the losses give it."""
    loss = get_loss(name)

    def quantities(g: float) -> dict[str, float]:
        omega = np.array([centre + noise * g])
        r = loss.prox(omega, step)
        p = float((omega - r)[0] / step)
        d = float((1 - loss.prox_slope(omega, step))[0] / step)
        value = float(loss.value(r)[0])
        return {
            "loss": value, "p": p, "pG": p * g, "pp": p * p, "D": d, "DG": d * g, "DGG": d * g * g,
            "pD": p * d, "pDG": p * d * g, "ppD": p * p * d,
        }  # fmt: skip

    kinks = []
    for point in loss.breakpoints:
        for side in (-1e-9, 1e-9):
            slope = float(loss.slope(np.array([point + side]))[0])
            kinks.append((point + step * slope - centre) / noise)
    cuts = np.sort(np.clip([-9.0, *kinks, 9.0], -9, 9))
    return {
        name: sum(
            integrate.quad(lambda g, n=name: quantities(g)[n] * norm.pdf(g), a, b)[0]
            for a, b in itertools.pairwise(cuts)
            if b - a > 1e-12
        )
        for name in ("p", "pG", "pp", "D", "pD", "loss", "ppD")
    }


@pytest.mark.parametrize("name", loss_names())
@pytest.mark.parametrize("case", CASES[:3])
def test_moments_agree_with_adaptive_quadrature(
    name: str, case: tuple[float, float, float]
) -> None:
    found = margin_moments(get_loss(name), *(np.array([value]) for value in case))[0]
    for key, expected in by_quad(name, *case).items():
        assert found[MOMENTS.index(key)] == pytest.approx(expected, rel=2e-6, abs=2e-8), key


@pytest.mark.parametrize("name", ["hinge", "square", "squared_hinge"])
def test_closed_forms_agree_with_panels(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    centre, noise = rng.uniform(-5, 5, 200), 10 ** rng.uniform(-1, 1, 200)
    step = 10 ** rng.uniform(-3, 3, 200)
    closed = margin_moments(get_loss(name), centre, noise, step)
    monkeypatch.setattr(type(get_loss(name)), "piecewise_quadratic", False)
    panels = margin_moments(get_loss(name), centre, noise, step, order=24)
    scale = np.maximum(np.abs(closed).max(axis=0), 1e-3)
    np.testing.assert_allclose(closed / scale, panels / scale, atol=1e-9)


@pytest.mark.parametrize("name", loss_names())
def test_moments_are_derivatives_of_the_envelope(name: str) -> None:
    loss = get_loss(name)
    z = np.array([0.4, 1.3, 2.0])

    def envelope(point: np.ndarray) -> float:
        moments = margin_moments(loss, *(np.array([value]) for value in point))[0]
        return float(moments[0] + 0.5 * point[2] * moments[3])

    def first(point: np.ndarray) -> np.ndarray:
        moments = margin_moments(loss, *(np.array([value]) for value in point))[0]
        return np.array([moments[1], moments[2], -0.5 * moments[3]])

    steps = 1e-5 * np.eye(3)
    slopes = [(envelope(z + e) - envelope(z - e)) / 2e-5 for e in steps]
    np.testing.assert_allclose(first(z), slopes, rtol=1e-5, atol=1e-8)
    bends = np.array([(first(z + e) - first(z - e)) / 2e-5 for e in steps])
    _, _, _, _, d, dg, dgg, pd, pdg, ppd = margin_moments(loss, *(np.array([v]) for v in z))[0]
    expected = [[d, dg, -pd], [dg, dgg, -pdg], [-pd, -pdg, ppd]]
    np.testing.assert_allclose(bends, expected, rtol=1e-5, atol=1e-7)


def test_short_kink_intervals_keep_their_digits() -> None:
    """A small prox step makes the hinge's resting interval tiny; p there still lies in [-1, 0]."""
    centre, noise = np.array([1.0, 0.2]), np.array([1.0, 0.5])
    found = margin_moments(get_loss("hinge"), centre, noise, np.full(2, 1e-10))
    below = norm.cdf((1 - centre) / noise)
    np.testing.assert_allclose(found[:, MOMENTS.index("pp")], below, rtol=1e-6)
    density = norm.pdf((1 - centre) / noise) / noise
    np.testing.assert_allclose(found[:, MOMENTS.index("D")], density, rtol=1e-6)


@pytest.mark.parametrize(
    ("noise", "step"), [(0.3, 1.0), (3.3, 275.0), (8.0, 2.5e5), (30.0, 1e5), (50.0, 1e8)]
)
def test_the_usual_order_of_quadrature_is_enough(noise: float, step: float) -> None:
    centre = np.linspace(-10, 50, 200) * max(1, noise / 5)
    noises, steps = np.full(200, noise), np.full(200, step)
    usual, fine = (
        margin_moments(get_loss("logistic"), centre, noises, steps, order) for order in (8, 60)
    )
    deviation = np.abs(usual - fine).max(axis=0) / np.abs(fine).max(axis=0)
    assert np.all(deviation[:4] < 1e-5)


@pytest.mark.parametrize("name", ["logistic", "hinge"])
@pytest.mark.parametrize(
    ("noise", "step", "span"),
    [(0.4, 1.0, (-2, 5)), (3.0, 60.0, (-12, 12)), (40.0, 1e5, (-300, 400)), (0.02, 1.0, (-2, 5))],
)
def test_moments_on_a_grid_are_those_of_its_points(
    name: str, noise: float, step: float, span: tuple[float, float]
) -> None:
    centre, scale = np.linspace(*span, 15), np.array([0.5, 0.7, 1.0])
    noises, steps = noise * scale, step * scale**2
    columns = np.broadcast_arrays(centre[:, None], noises, steps)
    loss = get_loss(name)
    expected = margin_moments(loss, *(column.ravel() for column in columns), order=16)
    expected = expected.reshape(15, 3, -1)
    size = np.abs(expected).max(axis=(0, 1))
    found = moments_on_grid(loss, centre, noises, steps)
    assert np.all(np.abs(found - expected).max(axis=(0, 1)) <= 1e-6 * size)
    few = moments_on_grid(loss, centre, noises, steps, count=GRADIENT_MOMENTS)
    np.testing.assert_allclose(few, found[:, :, :GRADIENT_MOMENTS], rtol=1e-9, atol=1e-12)


def test_moments_on_a_grid_where_nothing_is_a_number_are_none() -> None:
    with np.errstate(all="ignore"):
        found = moments_on_grid(
            get_loss("logistic"), np.array([0.0, np.nan]), np.ones(2), np.array([1.0, np.inf])
        )
    assert found.shape == (2, 2, len(MOMENTS))
    assert np.all(np.isnan(found[1, :, 1]))
