"""BLAS really runs in one thread inside, and as before outside; asked in processes of their own."""

from collections.abc import Callable

ASK = """
import threading
import numpy, scipy.linalg
from threadpoolctl import threadpool_info, threadpool_limits
from sparsetoken.numerics.threads import one_thread

def threads():
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}

threadpool_limits(3, user_api="blas")
if threads() != {3}:
    print("one core")
    raise SystemExit
"""


def test_inside_there_is_one_thread_and_outside_as_many_as_before(
    answer: Callable[[str], str],
) -> None:
    program = """
@one_thread
def inner():
    return threads()
with one_thread:
    inside = threads(), inner(), threads()
print(inside == ({1}, {1}, {1}), threads() == {3}, inner() == {1}, threads() == {3})
"""
    assert answer(ASK + program) == "True True True True\n"


def test_an_error_lifts_the_limit(answer: Callable[[str], str]) -> None:
    program = """
try:
    with one_thread:
        raise ValueError
except ValueError:
    print(threads() == {3})
"""
    assert answer(ASK + program) == "True\n"


def test_threads_of_a_program_that_overlap_neither_lift_nor_keep_the_limit(
    answer: Callable[[str], str],
) -> None:
    program = """
entered, left = threading.Event(), threading.Event()
def other():
    with one_thread:
        entered.set()
        left.wait()
        seen.append(threads())
seen = []
with one_thread:
    thread = threading.Thread(target=other)
    thread.start()
    entered.wait()
seen.append(threads())
left.set()
thread.join()
print(seen == [{1}, {1}], threads() == {3})
"""
    assert answer(ASK + program) == "True True\n"


def test_no_library_that_threadpoolctl_knows_is_passed_over(answer: Callable[[str], str]) -> None:
    """In a process of its own: others may make their libraries known, as scipy.io does."""
    program = """
import threadpoolctl
from sparsetoken.numerics.threads import THREADED, thread_pools
kept = thread_pools()  # loads SciPy's libraries: those that are known are asked for after it
known = threadpoolctl.ThreadpoolController()
paths = [[pool.filepath for pool in found.lib_controllers] for found in (known, kept)]
prefixes = getattr(threadpoolctl, "_ALL_PREFIXES", ())
print(paths[0] == paths[1] or paths, all(any(part in one for part in THREADED) for one in prefixes))
"""
    assert answer(ASK + program) == "True True\n"
