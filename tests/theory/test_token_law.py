import numpy as np
import pytest
from scipy.special import softmax
from scipy.stats import ks_2samp, kstest

from sparsetoken.theory.token_law import EXPLICIT, draw_tokens, exponential_sums


def plain_triple(
    rng: np.random.Generator, sizes: tuple[int, int], sharpness: float, shift: float, count: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(A, B, S) by drawing every token."""
    marked, plain = sizes
    u = rng.standard_normal((count, marked + plain))
    logits = sharpness * u
    logits[:, :marked] += shift
    p = softmax(logits, axis=1)
    return p[:, :marked].sum(axis=1), (p * u).sum(axis=1), np.linalg.norm(p, axis=1)


def test_largest_tokens_have_the_law_of_order_statistics() -> None:
    (group,) = draw_tokens((5,), 12, (1,))
    assert group.rest == 0
    assert np.all(np.diff(group.values, axis=1) <= 0)
    # Together the five are five independent standard normals: KS statistic at level 1e-4.
    assert kstest(group.values.ravel(), "norm").pvalue > 1e-4
    # The largest has distribution function Φ⁵.
    from scipy.stats import norm

    assert kstest(group.values[:, 0], lambda x: norm.cdf(x) ** 5).pvalue > 1e-4


def test_only_so_many_tokens_are_drawn_one_by_one() -> None:
    (group,) = draw_tokens((10**6,), 4, (0,))
    assert group.values.shape == (16, EXPLICIT)
    assert group.rest == 10**6 - EXPLICIT
    assert draw_tokens((10**6,), 4, (0,)) is draw_tokens((10**6,), 4, (0,))


# KS tests at level 1e-3 each, 3 per setting: Bonferroni level 2 % over all; seeds fixed.
@pytest.mark.parametrize(
    ("sizes", "sharpness", "shift"),
    [
        ((1, 9), 1.0, 3.0),
        ((3, 7), 0.0, 0.0),
        ((2, 150), 0.7, 2.0),
        ((2, 150), 2.5, 4.0),
        ((60, 200), 1.2, -1.0),
        ((1, 600), 4.0, 12.0),
    ],
)
def test_softmax_triple_agrees_with_drawing_every_token(
    sizes: tuple[int, int], sharpness: float, shift: float
) -> None:
    rng = np.random.default_rng(7)
    expected = plain_triple(rng, sizes, sharpness, shift, 4000)
    found = exponential_sums(draw_tokens(sizes, 12, (3,)), sharpness, (shift, 0.0)).softmax_triple()
    for plain, fast in zip(expected, found, strict=True):
        if np.ptp(plain) < 1e-12:
            np.testing.assert_allclose(fast, plain[0], rtol=1e-12)
        else:
            assert ks_2samp(plain, fast).pvalue > 1e-3


@pytest.mark.parametrize("sharpness", [0.0, 1e-6, 1.0, 30.0, 1e4])
def test_sums_are_finite_for_any_sharpness(sharpness: float) -> None:
    tokens = draw_tokens((40, 5000), 6, (5,))
    a, b, s = exponential_sums(tokens, sharpness, (sharpness * 3, 0.0)).softmax_triple()
    assert np.all((a >= 0) & (a <= 1))
    assert np.all(np.isfinite(b))
    assert np.all((s > 0) & (s <= 1 + 1e-12))


def test_without_sharpness_all_tokens_weigh_the_same() -> None:
    tokens = draw_tokens((3, 997), 8, (6,))
    a, b, s = exponential_sums(tokens, 0.0, (0.0, 0.0)).softmax_triple()
    np.testing.assert_allclose(a, 3 / 1000)
    np.testing.assert_allclose(s, 1000**-0.5)
    # B is a mean of 1000 normals: standard deviation 1/√1000, mean 0 (z < 4).
    assert abs(b.mean()) < 4 / np.sqrt(1000 * len(b))
    assert b.std() == pytest.approx(1000**-0.5, rel=0.2)
