from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import pytest

from sparsetoken.reproduce.claim import Claim, Job, Table
from sparsetoken.reproduce.execution import execute
from sparsetoken.reproduce.jobs import tabulate
from sparsetoken.reproduce.registry import select_claims
from sparsetoken.reproduce.run import settings_of
from sparsetoken.sweeps.worker import RESERVED_COLUMNS


class InProcess(Executor):
    """Runs every call at once, in this process: no time is lost on starting workers."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


class Bench:
    """Measures claims in the tiny profile, and remembers the results of jobs."""

    def __init__(self) -> None:
        self.known: dict[str, dict[str, float]] = {}

    def claim(self, number: int) -> Claim:
        return select_claims([number])[0]

    def measure(self, number: int, change: Callable[[Job], Job] | None = None) -> Table:
        """Measure a claim, with every job changed as a test wishes."""
        claim = self.claim(number)
        settings = settings_of(claim, "tiny", seed=0)
        jobs = [change(job) if change else job for job in claim.jobs(settings)]
        for job in jobs:
            if job.key not in self.known:
                self.known[job.key] = execute(job.kind, job.arguments)
                assert not RESERVED_COLUMNS & set(self.known[job.key]), "the store would refuse it"
        return tabulate(jobs, [self.known[job.key] for job in jobs], settings)


@pytest.fixture(scope="session")
def bench() -> Bench:
    return Bench()


@pytest.fixture
def in_process() -> InProcess:
    return InProcess()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "reproduction"
