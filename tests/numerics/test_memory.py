"""Results are kept up to a number of bytes, the latest ones."""

import numpy as np

from sparsetoken import Query, Task
from sparsetoken.numerics.memory import bounded_cache
from sparsetoken.theory.laws import attention_law


def test_the_latest_results_are_kept_as_far_as_they_fit() -> None:
    calls = []

    @bounded_cache(limit=3 * 800)
    def zeros(count: int) -> tuple[np.ndarray, int]:
        calls.append(count)
        return np.zeros(count), count

    assert zeros(100) is zeros(100)
    zeros(101), zeros(98)  # 299 numbers: all three fit
    zeros(100)
    assert calls == [100, 101, 98]
    zeros(50)  # the least recent, 101, has to go
    zeros(98), zeros(100)
    assert calls == [100, 101, 98, 50]
    zeros(101)
    assert calls[-1] == 101
    assert zeros.size <= 3 * 800
    assert zeros(1000) is not zeros(1000)
    zeros.cache_clear()
    assert (zeros.size, zeros.hits) == (0, 0)


def test_laws_of_many_queries_stay_within_their_bytes() -> None:
    """Forty laws of 2^12 points a class would take more than 100 MB."""
    attention_law.cache_clear()
    for index in range(40):
        attention_law(Task(4, 1, 3.0), Query(0.5, 0.5 + 0.1 * index), 12)
    assert 0 < attention_law.size <= 64e6
    assert attention_law.misses == 40
