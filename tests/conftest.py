"""Settings of all tests."""

from hypothesis import settings

# The same examples on every run, and no time limit for one example: a slow machine is no failure.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("repeatable")
