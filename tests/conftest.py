"""Settings of all tests."""

import signal
from collections.abc import Iterator

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
