import sys
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import pytest

from sparsetoken.reproduce.claim import Claim, Series, Table
from sparsetoken.reproduce.examination import settings_of
from sparsetoken.reproduce.measurement import Measurement, compute_measurement, tabulate
from sparsetoken.reproduce.registry import select_claims
from sparsetoken.sweeps.worker import RESERVED_COLUMNS

sys.path.insert(0, str(Path(__file__).parent))  # for `altering`


class InProcess(Executor):
    """Runs every call at once, in this process: no time is lost on starting workers."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


class Bench:
    """Measures claims in the tiny profile, and remembers what was measured."""

    def __init__(self) -> None:
        self.known: dict[str, dict[str, float]] = {}

    def claim(self, number: int, series: Series = "claim") -> Claim:
        return select_claims([number], series)[0]

    def measure(
        self,
        number: int,
        change: Callable[[Measurement], Measurement] | None = None,
        series: Series = "claim",
    ) -> Table:
        """Measure a claim, with every measurement changed as a test wishes."""
        claim = self.claim(number, series)
        settings = settings_of(claim, "tiny", seed=0)
        asked = [change(one) if change else one for one in claim.measurements(settings)]
        for one in asked:
            if one.key not in self.known:
                self.known[one.key] = compute_measurement(one)
                assert not RESERVED_COLUMNS & set(self.known[one.key]), "the store would refuse it"
        return tabulate(asked, [self.known[one.key] for one in asked], settings)


@pytest.fixture(scope="session")
def bench() -> Bench:
    return Bench()


@pytest.fixture
def in_process() -> InProcess:
    return InProcess()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "reproduction"
