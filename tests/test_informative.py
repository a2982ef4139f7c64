import math
import pickle
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

from sparsetoken import (
    BinomialCount,
    CountTable,
    KeptCount,
    ParameterError,
    PoissonCount,
    Task,
)
from sparsetoken.informative import MOST_NUMBERS, CountLaw, _probabilities, as_informative, counts
from sparsetoken.numerics.memory import kept_results, path_memory

TEXTS = [
    "binomial:0.1",
    "binomial:0.25:least=1",
    "poisson:2",
    "poisson:0.5:least=1",
    "table:0:0.1,1:0.5,3:0.4",
    "kept:40:3",
    "kept:40:poisson:2.5:least=1",
]


@pytest.mark.parametrize("text", TEXTS)
def test_a_law_is_its_text(text: str) -> None:
    task = Task(10, text, 3.0)
    law = task.informative
    assert isinstance(law, CountLaw)
    assert str(law) == text
    assert Task.from_dict(task.to_dict()) == task
    assert task.to_dict()["informative"] == text
    assert pickle.loads(pickle.dumps(task)) == task
    assert hash(task) == hash(Task(10, as_informative(text), 3.0))


def expected(text: str, length: int) -> np.ndarray:
    """Return the probabilities of 0 ... length, from the formulas of another package."""
    numbers = np.arange(length + 1)
    if text == "binomial:0.1":
        return stats.binom.pmf(numbers, length, 0.1)
    if text.startswith("binomial"):
        found = stats.binom.pmf(numbers, length, 0.25) * (numbers > 0)
    elif text == "poisson:2":
        found = stats.poisson.pmf(numbers, 2)
    elif text.startswith("poisson"):
        found = stats.poisson.pmf(numbers, 0.5) * (numbers > 0)
    elif text.startswith("table"):
        found = np.zeros(length + 1)
        found[[0, 1, 3]] = 0.1, 0.5, 0.4
    elif text == "kept:40:3":
        found = stats.hypergeom.pmf(numbers, 40, 3, length)
    else:
        before = stats.poisson.pmf(np.arange(1, 41), 2.5)
        rows = [stats.hypergeom.pmf(numbers, 40, number, length) for number in range(1, 41)]
        found = before @ np.array(rows) / before.sum()
    return np.asarray(found / found.sum())


@pytest.mark.parametrize("text", TEXTS)
def test_probabilities_are_those_of_the_law(text: str) -> None:
    known = Task(10, text, 3.0).counts
    found = np.zeros(11)
    found[known.values] = known.probability
    np.testing.assert_allclose(found, expected(text, 10), rtol=1e-10, atol=1e-16)
    assert known.mean == pytest.approx(np.arange(11) @ expected(text, 10))


@pytest.mark.parametrize("text", TEXTS)
def test_draws_follow_the_law(text: str) -> None:
    """Chi-square at 20,000 draws, p > 1e-4: it notices a probability of 0.1 that is off by 0.01."""
    law = as_informative(text)
    assert isinstance(law, CountLaw)
    drawn = np.bincount(law.draw(10, 20_000, np.random.default_rng(3)), minlength=11)
    wanted = 20_000 * expected(text, 10)
    common = wanted > 5
    assert drawn[wanted == 0].sum() == 0
    statistic = float(np.sum((drawn[common] - wanted[common]) ** 2 / wanted[common]))
    assert stats.chi2.sf(statistic, common.sum() - 1) > 1e-4


def test_a_table_with_one_number_is_that_number() -> None:
    one = Task(10, CountTable({3: 1.0}), 2.0).counts
    assert list(one) == list(Task(10, 3, 2.0).counts) == [(3, 1.0)]


def test_keeping_tokens() -> None:
    task = Task(12, 2, 3.0, 0.3)
    assert task.keep(12) is task
    kept = task.keep(5)
    assert kept == Task(5, KeptCount(12, 2), 3.0, 0.3)
    # All ways to keep 5 of 12 tokens, of which the first two are informative, at random.
    rng = np.random.default_rng(0)
    left = [(rng.permutation(12)[:5] < 2).sum() for _ in range(4000)]
    shares = np.bincount(left, minlength=3) / 4000
    np.testing.assert_allclose(shares, kept.counts.probability, atol=4 * math.sqrt(0.25 / 4000))
    assert kept.silent_rate == pytest.approx(math.comb(10, 5) / math.comb(12, 5))


def test_keeping_twice_is_keeping_once() -> None:
    task = Task(30, PoissonCount(3.0), 3.0)
    assert task.keep(20).keep(7) == task.keep(7)
    # Tokens that are informative on their own do not care how many of them there are.
    binomial = Task(30, BinomialCount(0.2), 3.0)
    before, after = binomial.replace(length=7).counts, binomial.keep(7).counts
    np.testing.assert_allclose(after.probability, before.probability, rtol=1e-9)


@pytest.mark.parametrize("function", [np.cos, np.sqrt, lambda x: np.exp(-x)])
@pytest.mark.parametrize(
    ("law", "length"),
    [(BinomialCount(0.3), 10**6), (PoissonCount(1e5), 10**9), (KeptCount(10**9, 10**8), 10**6)],
)
def test_a_law_of_many_numbers_is_interpolated(
    law: CountLaw, length: int, function: Callable[[np.ndarray], np.ndarray]
) -> None:
    full, few = _probabilities(law, length), counts(law, length)
    assert len(full.values) > MOST_NUMBERS >= len(few.values)
    assert few.mean == pytest.approx(full.mean, rel=1e-12)
    spread = math.sqrt(full.probability @ (full.values - full.mean) ** 2)

    def mean(known: object) -> float:
        return float(known.probability @ function(3 + (known.values - full.mean) / spread / 4))  # type: ignore[attr-defined]

    assert mean(few) == pytest.approx(mean(full), rel=1e-7)


def test_an_uneven_law_keeps_its_mean() -> None:
    law = KeptCount(10**6, CountTable({1: 0.5, 10**5: 0.5}))
    full, few = _probabilities(law, 10**4), counts(law, 10**4)
    assert few.mean == pytest.approx(full.mean, rel=1e-12)
    assert min(few.probability) > 0
    assert all(low < high for low, high in pairwise(few.values))


def test_limits_of_a_poisson_law() -> None:
    tiny = Task(10, PoissonCount(1e-6), 3.0)
    assert tiny.silent_rate == pytest.approx(1 - 1e-6)
    one = Task(10, PoissonCount(1e-6, least=1), 3.0).counts
    np.testing.assert_allclose(one.probability[0], 1 - 0.5e-6, rtol=1e-9)
    full = Task(10, PoissonCount(1e9), 3.0).counts
    np.testing.assert_allclose(full.mean, 10, rtol=1e-6)


@pytest.mark.parametrize(
    "bad",
    [
        "poisson",
        "poisson:-1",
        "poisson:2:least=2",
        "poisson:nan",
        "binomial:1",
        "table:0:1",
        "table:1:0.4",
        "table:1:0.5,1:0.5",
        "table:11:1",
        "table:-1:1",
        "kept:5:2",
        "kept:20:20",
        "other:3",
        "",
        "1.5",
        0,
        10,
        1.5,
        True,
        None,
    ],
)
def test_what_is_no_law_is_refused(bad: object) -> None:
    with pytest.raises(ParameterError, match="informative = "):
        Task(10, bad, 3.0)  # type: ignore[arg-type]


def test_one_number_where_a_law_is_not_possible() -> None:
    assert Task(10, 2, 3.0).fixed_informative == 2
    with pytest.raises(ParameterError, match="poisson:2"):
        _ = Task(10, "poisson:2", 3.0).fixed_informative  # type: ignore[arg-type]
    for keep in (1, 11, 2.5):
        with pytest.raises(ParameterError, match="keep"):
            Task(10, 2, 3.0).keep(keep)  # type: ignore[arg-type]


def test_large_laws_are_kept_for_a_path_within_bytes_and_not_beyond() -> None:
    laws = [BinomialCount(chance) for chance in (0.3, 0.4, 0.5)]
    with path_memory():
        for law in laws:
            assert _probabilities(law, 10**9) is _probabilities(law, 10**9)
        kept = kept_results(_probabilities)
        assert (kept.hits, kept.misses) == (3, 3)
        assert 4e6 < kept.size <= kept.limit == 8e6
    assert _probabilities(laws[0], 10) is not _probabilities(laws[0], 10)
