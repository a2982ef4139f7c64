import numpy as np
import pytest
from scipy.special import ndtr, softmax
from scipy.stats import ks_2samp, kstest

from sparsetoken import Query, Task
from sparsetoken.theory import attention_law as attention_module
from sparsetoken.theory.attention_law import attention_law
from sparsetoken.theory.feature_law import score_law
from sparsetoken.theory.replicates import replicate_error
from sparsetoken.theory.token_law import (
    EXPLICIT,
    Tail,
    draw_tokens,
    draw_weighted_tokens,
    exponential_sums,
    mean_given_sums,
)


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


@pytest.mark.parametrize("rare", [False, True])
@pytest.mark.parametrize("tail", ["low", "high", None])
def test_weights_make_up_for_more_points_in_a_tail(tail: Tail | None, rare: bool) -> None:
    ((group,), weight) = draw_weighted_tokens((5,), 12, (2,), tail, rare=rare)
    assert weight.max() <= 2
    mean = (weight * group.values[:, 0]).mean()
    # The mean of the largest of five normals, in closed form; a change of 0.05 % is noticed.
    assert mean / weight.mean() == pytest.approx(1.1629644736, rel=5e-4)
    assert weight.mean() == pytest.approx(1, abs=2e-3)
    if tail is not None:
        beyond = group.values[:, 0] < -0.5 if tail == "low" else group.values[:, 0] > 3.5
        (plain,) = draw_tokens((5,), 12, (2,))
        usual = plain.values[:, 0] < -0.5 if tail == "low" else plain.values[:, 0] > 3.5
        assert beyond.mean() > 5 * usual.mean()


def test_where_attention_finds_the_signal_points_in_the_tails_make_means_accurate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def error() -> float:
        law = attention_law(Task(10, 1, 5.0), Query(0.9, 1.5), 8)
        confused = (law.label > 0) * np.exp(-law.coordinates[:, 0])
        return replicate_error(law.by_replicate(confused))

    skewed = error()
    monkeypatch.setattr(attention_module, "_FOUND", np.inf)
    even = error()
    # It is 8 times as accurate; the error of 8 replicates is uncertain by a quarter.
    assert even > 3 * skewed


@pytest.mark.parametrize("sharpness", [0.0, 1e-7, 1e-5, 1e-3, 0.05, 0.99])
@pytest.mark.parametrize("sizes", [(2, 18), (1, 299), (40, 5000)])
def test_the_mean_of_all_tokens_given_the_sums(sizes: tuple[int, int], sharpness: float) -> None:
    """Its mean is 0 and its variance 1/L (z < 4 with 4096 points: 9 % would be noticed)."""
    mean, left = mean_given_sums(draw_tokens(sizes, 12, (7,)), sharpness)
    length = sum(sizes)
    assert abs(mean.mean()) < 4 / np.sqrt(length * len(mean))
    assert length * (mean.var() + left.mean()) == pytest.approx(1, abs=4 * np.sqrt(2 / len(mean)))
    # The sums of e, u e and e² do not tell the mean of u where e is far from linear in it.
    assert np.all(left >= 0)
    assert np.all(left > 0) or sharpness < 0.05 or length <= 2 * EXPLICIT


@pytest.mark.parametrize("length", [20, 100, 1000])
def test_a_law_without_the_mean_of_the_tokens_is_the_same_and_more_accurate(length: int) -> None:
    task, query, readout = Task(length, 1, 5.0), Query(0.95, 0.3), np.array([1.0, 0.3, -0.3, 0.4])

    def error(smooth: bool) -> tuple[float, float]:
        law = attention_law(task, query, 10, 1, smooth=smooth)
        scores = score_law(law, readout)
        wrong = law.by_replicate(ndtr(-scores.label * scores.mean / scores.spread))
        return float(wrong.mean()), replicate_error(wrong)

    (plain, bar), (smooth, smaller) = error(False), error(True)
    assert smooth == pytest.approx(plain, abs=bar + smaller)
    # By 5 to 15 times; the error of 8 replicates is uncertain by a quarter.
    assert bar > 2 * smaller
