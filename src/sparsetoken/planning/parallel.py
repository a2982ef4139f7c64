"""Independent calls, one after another or in worker processes, and how much of the work is done."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from sparsetoken import validation
from sparsetoken.extensions import additions, make_known
from sparsetoken.numerics.memory import path_memory

__all__ = ["Count", "finished"]

T = TypeVar("T")


class Count:
    """Counts what is done for the caller's progress, which is called as progress(done, total)."""

    def __init__(self, progress: Callable[[int, int], None] | None, total: int) -> None:
        validation.callback("progress", progress)
        self.total = total
        self._progress = progress
        self._done = 0

    def one_more(self) -> None:
        """Count one."""
        self.more(1)

    def more(self, count: int) -> None:
        """Count several at once."""
        self._done += count
        if self._progress is not None:
            self._progress(min(self._done, self.total), self.total)


def finished(calls: Sequence[Callable[[], T]], workers: int) -> Iterator[tuple[int, T]]:
    """Yield the index and the result of every call, in the order in which they end."""
    if workers == 1 or len(calls) < 2:
        for index, call in enumerate(calls):
            yield index, call()
        return
    from joblib import Parallel, delayed, parallel_config

    with parallel_config("loky", inner_max_num_threads=1):
        pool = Parallel(n_jobs=min(workers, len(calls)), return_as="generator_unordered")
        added = additions()
        jobs = (delayed(_in_worker)(added, index, call) for index, call in enumerate(calls))
        results = pool(jobs)
        try:
            for result in results:  # noqa: UP028
                yield result
        finally:
            with warnings.catch_warnings():  # whoever stops listening knows that work is left
                warnings.filterwarnings(
                    "ignore", message=".*tasks which were still being processed"
                )
                results.close()


def _in_worker(added: bytes, index: int, call: Callable[[], T]) -> tuple[int, T]:
    """Make known what the caller's program has added; return the index and the result.

    In a process of its own a call is a path of its own.
    """
    make_known(added)
    with path_memory():
        return index, call()
