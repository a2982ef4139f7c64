"""One thread of linear algebra, so that results do not depend on the machine.

The number of threads decides how BLAS splits its sums, and so their last bits. The matrices here
are mostly too small for threads to gain anything; work runs side by side in processes instead.
"""

import sys
import threading
from collections.abc import Iterable
from contextlib import ContextDecorator
from functools import cache
from pathlib import PurePath
from typing import Any

__all__ = ["one_thread", "thread_pools"]

_Sizes = list[tuple[Any, int]]


def thread_pools() -> Any:
    """Return the `threadpoolctl.ThreadpoolController` of NumPy's and SciPy's BLAS.

    To look for the libraries takes milliseconds: once is enough, when both are loaded.
    """
    import scipy.special  # noqa: F401 (brings SciPy's own BLAS, and loads faster than scipy.linalg)

    # Should scipy.linalg have brought another one, it is found when that is loaded.
    return _controllers("scipy.linalg" in sys.modules)


# What is in the name of every library that has threads to control: OpenBLAS, BLIS, MKL, FlexiBLAS,
# and the OpenMP of GCC (libgomp), Clang, Intel and Microsoft.
THREADED = ("blas", "blis", "mkl", "omp")


@cache
def _controllers(_: bool) -> Any:
    from threadpoolctl import ThreadpoolController

    class Controller(ThreadpoolController):  # type: ignore[misc]
        """A controller that asks for the true path of a library only if its name is of interest.

        There are a hundred others, and that is what takes the time.
        """

        def _make_controller_from_path(self, filepath: str) -> None:
            if any(part in PurePath(filepath).name.lower() for part in THREADED):
                super()._make_controller_from_path(filepath)

    return Controller()


class _OneThread(ContextDecorator):
    """Limits BLAS to one thread while any thread of the program is inside.

    Most pools of threads belong to the process: the first who enters limits them, the last who
    leaves lifts the limit. Those of OpenMP belong to the thread that calls.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads_inside = 0
        self._process_before: _Sizes = []
        self._thread = threading.local()

    def __enter__(self) -> None:
        depth = getattr(self._thread, "depth", 0)
        if depth == 0:
            self._thread.before = _limit_pools(of_thread=True)
            with self._lock:
                if self._threads_inside == 0:
                    self._process_before = _limit_pools(of_thread=False)
                self._threads_inside += 1
        self._thread.depth = depth + 1

    def __exit__(self, *_: object) -> None:
        self._thread.depth -= 1
        if self._thread.depth == 0:
            with self._lock:
                self._threads_inside -= 1
                if self._threads_inside == 0:
                    _restore_pools(self._process_before)
            _restore_pools(self._thread.before)


def _limit_pools(*, of_thread: bool) -> _Sizes:
    """Limit the pools that belong to the thread, or to the process; return their sizes before."""
    pools = [
        pool
        for pool in thread_pools().lib_controllers
        if pool.user_api == "blas"
        and (getattr(pool, "threading_layer", None) == "openmp") == of_thread
    ]
    before = [(pool, pool.get_num_threads()) for pool in pools]
    _restore_pools((pool, 1) for pool in pools)
    return before


def _restore_pools(sizes: Iterable[tuple[Any, int]]) -> None:
    for pool, size in sizes:
        # threadpoolctl's own way does nothing in a thread while another one has set a limit.
        getattr(pool, "_real_set_num_threads", pool.set_num_threads)(size)


one_thread = _OneThread()
"""``with one_thread:`` or ``@one_thread``: linear algebra in one thread, at any depth of calls.

Not for generator functions, whose body runs after the decorated call has returned.
"""
