"""A claim goes through the sweep engine, resumes, and turns errors into findings."""

from concurrent.futures import Executor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparsetoken.reproduce.claim import Claim, Table
from sparsetoken.reproduce.examination import examine, settings_of
from sparsetoken.reproduce.measurement import Measurement
from sparsetoken.reproduce.registry import select_claims
from sparsetoken.validation import ParameterError


@pytest.fixture
def claim() -> Claim:
    return select_claims([4])[0]


def test_a_second_run_does_no_work_again(claim: Claim, folder: Path, in_process: Any) -> None:
    settings = settings_of(claim, "tiny", seed=0)
    seen: list[tuple[int, int]] = []
    first = examine(
        claim, settings, folder, executor=in_process, progress=lambda *s: seen.append(s)
    )
    assert first.error is None
    assert first.verdict is not None
    assert first.verdict.ruling == "confirmed"
    total = len({one.key for one in claim.measurements(settings)})
    assert seen[0] == (0, total)

    class Idle(Executor):
        def submit(self, *_: Any) -> None:
            pytest.fail("finished work was done again")

    again = examine(claim, settings, folder, executor=Idle())
    assert again.table == first.table


def test_a_stopped_run_goes_on_where_it_stopped(
    claim: Claim, folder: Path, in_process: Any
) -> None:
    settings = settings_of(claim, "tiny", seed=0)

    class Stops(type(in_process)):  # type: ignore[misc]
        calls = 0

        def submit(self, *args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            if self.calls > 7:
                raise KeyboardInterrupt
            return super().submit(*args, **kwargs)

    with pytest.raises(KeyboardInterrupt):
        examine(claim, settings, folder, executor=Stops())

    class Counts(type(in_process)):  # type: ignore[misc]
        calls = 0

        def submit(self, *args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            return super().submit(*args, **kwargs)

    counts = Counts()
    assert examine(claim, settings, folder, executor=counts).error is None
    total = len({one.key for one in claim.measurements(settings)})
    assert 0 < counts.calls <= total - 4, "at most the last window's work is repeated"


def test_another_seed_has_other_trials_and_its_own_store(
    claim: Claim, folder: Path, in_process: Any
) -> None:
    tables = [
        examine(claim, settings_of(claim, "tiny", seed), folder, executor=in_process).table
        for seed in (0, 1)
    ]
    cosines = [t.select(source="simulation").column("alignment")[0] for t in tables if t]
    assert cosines[0] != cosines[1]
    assert len(list(folder.glob("*.sqlite"))) == 2


def test_a_failing_measurement_is_reported_with_its_reason(
    claim: Claim, folder: Path, in_process: Any
) -> None:
    def measurements(settings: Any) -> list[Measurement]:
        good = claim.measurements(settings)
        bad = Measurement("sparsetoken.reproduce.kinds:prediction", {"task": {"length": 0}}, {})
        return [*good, replace(bad, labels=good[0].labels)]

    broken = replace(claim, measurements=measurements)
    finding = examine(broken, settings_of(claim, "tiny", 0), folder, executor=in_process)
    assert finding.verdict is None
    assert finding.error is not None
    assert "1 of" in finding.error
    assert "values for informative" in finding.error


def test_a_judge_that_breaks_is_reported(claim: Claim, folder: Path, in_process: Any) -> None:
    def judge(table: Table) -> Any:
        return table.column("no such field")

    broken = replace(claim, judge=judge)
    finding = examine(broken, settings_of(claim, "tiny", 0), folder, executor=in_process)
    assert finding.error == "KeyError: 'no such field'"


def test_unknown_claims_are_refused() -> None:
    assert [claim.number for claim in select_claims([11, 5])] == [5, 11]
    assert len(select_claims([])) == 16
    with pytest.raises(ParameterError, match="one of 1, 2"):
        select_claims([0])
