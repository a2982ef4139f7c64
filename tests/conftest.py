"""Settings of all tests."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from hypothesis import settings

# A shell starts what runs in the background with Ctrl-C ignored, and processes of tests inherit it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples on every run, and no time limit for one example: a slow machine is no failure.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("repeatable")


@pytest.fixture(autouse=True)
def losses_of_a_test_end_with_it() -> Iterator[None]:
    """Remove the losses that a test registered: others check the list of known ones."""
    from sparsetoken import loss_names, unregister_loss

    before = set(loss_names())
    yield
    for name in set(loss_names()) - before:
        unregister_loss(name)


@pytest.fixture(scope="session")
def answer() -> Callable[[str], str]:
    """Return what a program prints in a process of its own, with BLAS' own number of threads."""

    def ask(program: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=False,
            env={name: text for name, text in os.environ.items() if "NUM_THREADS" not in name},
        )
        assert done.returncode == 0, done.stderr
        if done.stdout == "one core\n":
            pytest.skip("this BLAS has one thread only")
        return done.stdout

    return ask
