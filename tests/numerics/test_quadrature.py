import numpy as np
import pytest
from scipy import integrate
from scipy.stats import norm

from sparsetoken.numerics.quadrature import legendre, normal_panels, panels


def test_moments_of_the_normal_law() -> None:
    nodes, weights = normal_panels(np.empty((1, 0)))
    for power, expected in {0: 1, 1: 0, 2: 1, 4: 3, 6: 15}.items():
        assert weights[0] @ nodes[0] ** power == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize("edge", [-3.0, 0.1, 2.0])
def test_a_kink_at_an_edge_costs_no_accuracy(edge: float) -> None:
    nodes, weights = normal_panels(np.array([edge]))
    exact = norm.pdf(edge) - edge * norm.sf(edge)
    assert weights @ np.maximum(nodes - edge, 0) == pytest.approx(exact, abs=1e-9)
    # Without the edge the same rule is far off, so the panels do the work.
    nodes, weights = normal_panels(np.empty(0))
    assert abs(weights @ np.maximum(nodes - edge, 0) - exact) > 1e-8


def test_edges_beyond_the_line_are_ignored() -> None:
    nodes, weights = normal_panels(np.array([[-1e9, 1e9]]))
    assert weights.sum() == pytest.approx(1, abs=1e-9)
    assert np.all(np.abs(nodes) < 9)


def test_panels_integrate_polynomials_exactly() -> None:
    nodes, weights = panels(np.array([0.0, 0.5, 0.5, 2.0]), order=4)
    assert weights @ nodes**7 == pytest.approx(2**8 / 8, rel=1e-14)
    assert legendre(5)[1].sum() == pytest.approx(1)


def test_error_falls_with_the_order() -> None:
    def error(order: int) -> float:
        nodes, weights = normal_panels(np.array([0.0]), order)
        exact = integrate.quad(lambda g: np.cos(9 * g) * norm.pdf(g), -9, 9, epsabs=1e-14)[0]
        return float(abs(weights @ np.cos(9 * nodes) - exact))

    assert error(16) < 1e-3 * error(8) + 1e-14
