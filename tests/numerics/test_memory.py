"""Large results are kept while a path lasts, up to a number of bytes, and freed when it ends."""

import gc
import weakref
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

from sparsetoken import Query, Task, Training, floor, predict
from sparsetoken.numerics import memory
from sparsetoken.numerics.memory import Results, kept_on_path, kept_results, path_memory
from sparsetoken.theory.attention_law import attention_law
from sparsetoken.theory.feature_law import FeatureLaw

LAW = (Task(4, 1, 3.0), Query(0.5, 1.0), 5)


@path_memory()
def test_the_latest_results_are_kept_as_far_as_they_fit() -> None:
    calls = []

    @kept_on_path(limit=3 * 800)
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
    assert 0 < kept_results(zeros).size <= 3 * 800
    assert zeros(1000) is not zeros(1000)


def test_results_are_found_by_key_and_bounded_by_what_they_are_said_to_take() -> None:
    kept: Results[str] = Results(10)
    for name, size in (("a", 4), ("b", 4), ("c", 20)):
        kept.put(name, name, size)
    assert (kept.find("a"), kept.find("c"), kept.size) == ("a", None, 8)
    kept.put("d", "d", 4)  # the least recent, b, has to go
    assert (kept.find("b"), kept.find("d"), kept.size) == (None, "d", 8)
    kept.put("d", "e", 6)  # in its place
    assert (kept.find("d"), kept.find("a"), kept.size) == ("e", "a", 10)


def test_results_are_freed_with_the_path_that_keeps_them() -> None:
    with path_memory():
        law = weakref.ref(attention_law(*LAW))
        assert attention_law(*LAW) is law()
    gc.collect()
    assert law() is None


def test_nothing_is_kept_without_a_path() -> None:
    assert attention_law(*LAW) is not attention_law(*LAW)
    assert kept_results(attention_law).size == 0


def test_nested_paths_share_the_outermost_ones_results() -> None:
    with path_memory():
        with path_memory():
            law = attention_law(*LAW)
        assert attention_law(*LAW) is law


def test_a_path_that_fails_frees_its_results() -> None:
    with suppress(ZeroDivisionError), path_memory():
        attention_law(*LAW)
        raise ZeroDivisionError
    assert kept_results(attention_law).size == 0


@pytest.mark.parametrize("lost", [0, 2])
@pytest.mark.parametrize("further", [False, True])
def test_the_size_of_a_law_has_all_that_it_will_hold(lost: int, further: bool) -> None:
    law = attention_law(*LAW)
    size = len(law.scale)
    noise = np.ones(size) if further else None
    law = replace(law, removed=np.ones((size, lost)), further=noise)
    parts = [law.coordinates, law.scale, law.label, law.weight, law.removed]
    parts += [law.signed, law.per_scale, *([] if noise is None else [noise])]
    parts += [array for part in law.scale_ranges for array in (part.points, part.unit)]
    assert law.nbytes == sum(part.nbytes for part in parts)
    assert isinstance(law, FeatureLaw)


@path_memory()
def test_what_a_path_may_keep_in_all_is_bounded() -> None:
    training = Training(2.0, 2.0)
    for task in (Task(12, 2, 4.0), Task(20, "poisson:2", 4.0)):
        predict(task, training, tolerance=1e-2)
        predict(task, training.replace(reuse=True), tolerance=1e-2)
        floor(task, 2.0)
    path = memory._PATH.get()
    assert path is not None
    assert len(path) > 5
    assert sum(results.limit for results in path.values()) < 600e6


@path_memory()
def test_laws_of_many_queries_stay_within_their_bytes() -> None:
    """Sixty laws of 2^12 points a class would take more than 400 MB."""
    for index in range(60):
        attention_law(Task(4, 1, 3.0), Query(0.5, 0.5 + 0.1 * index), 12)
    found = kept_results(attention_law)
    assert 2**26 < found.size <= 2**27
    assert found.misses == 60
