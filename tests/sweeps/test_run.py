"""The engine with real processes and cheap functions."""

import functools
import os
import sqlite3
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import sweep_functions as functions

from sparsetoken import __version__
from sparsetoken.sweeps import (
    Progress,
    Store,
    StoreError,
    StudyCounts,
    StudyError,
    SweepError,
    run,
    run_cells,
)
from sparsetoken.sweeps.writer import StoredRow, StoreWriter
from sparsetoken.validation import ParameterError


def cells(count: int = 3, **settings: Any) -> list[dict[str, Any]]:
    return [{"slope": float(slope), **settings} for slope in range(1, count + 1)]


def results(path: Path) -> list[tuple[Any, ...]]:
    with Store(path, check=True) as store:
        return [row[:4] for row in store.trials()]


def undisturbed(path: Path, grid: list[dict[str, Any]], trials: int) -> list[tuple[Any, ...]]:
    """Return what the store must hold, computed in this process."""
    with ThreadPoolExecutor(1) as executor:
        run_cells(grid, path, function=functions.noisy, trials=trials, executor=executor)
    return results(path)


@pytest.mark.parametrize(("took", "pause"), [(0.0, 0.2), (0.5, 10.0)])
def test_progress_comes_a_pause_after_the_last_and_takes_a_twentieth_of_the_time(
    monkeypatch: pytest.MonkeyPatch, took: float, pause: float
) -> None:
    now, reported = 1000.0, []

    class Slow:
        def counts(self) -> StudyCounts:
            nonlocal now
            now += took
            return StudyCounts(2, 0, 20, 8, 2, 0, 0)

    def report(progress: Progress) -> None:
        reported.append(now)
        assert progress.seconds == pytest.approx(now - took - 1000.0)

    monkeypatch.setattr(run.time, "monotonic", lambda: now)
    tracker = run._Tracker(Slow(), None, report, lambda: "")  # type: ignore[arg-type]
    start = now - took
    for later in (0.9, 1.1, 1.9):
        now = start + later * pause
        tracker.tick()
    assert reported == [start + took, start + 1.1 * pause + took]


def test_the_rate_of_a_run_and_the_time_that_is_left() -> None:
    counts = StudyCounts(2, 0, 20, 8, 2, 0, 0)
    assert Progress(counts, 5, 0.5).rate == 10.0
    assert Progress(counts, 5, 0.5).seconds_left == 1.0
    at_once = Progress(counts, 5, 0.0)
    assert (at_once.rate, at_once.seconds_left) == (0.0, None)


def test_rows_hold_settings_and_results_and_theory_is_stored_once_a_cell(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    seen: list[Progress] = []
    end = run_cells(
        cells(),
        path,
        function=functions.noisy,
        trials=4,
        theory=functions.doubled,
        workers=2,
        progress=seen.append,
    )
    assert (end.counts.done, end.counts.trials, end.counts.cells_done) == (12, 12, 3)
    assert (end.ran, end.counts.theory_done) == (12, 3)
    assert end.rate == pytest.approx(12 / end.seconds)
    assert end.seconds_left == 0
    assert seen[0].counts.done == 0
    assert seen[0].seconds_left is None
    with Store(path) as store:
        rows = list(store.rows())
        assert [(row["cell"], row["trial"]) for row in rows] == [
            (cell, trial) for cell in range(3) for trial in range(4)
        ]
        expected = functions.noisy({"slope": 3.0}, 2)
        assert rows[10] == {
            "cell": 2, "trial": 2, "slope": 3.0, **expected, "error": None
        }  # fmt: skip
        assert [row["value"] for row in store.theory_rows()] == [2.0, 4.0, 6.0]
        assert store.columns("trials") == ["value", "positive", "none"]
        assert store.versions() == [__version__]


def test_only_what_is_missing_runs_again_and_trials_can_be_raised(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    run_cells(cells(), path, function=functions.noisy, trials=2)
    assert run_cells(cells(), path, function=functions.noisy, trials=2).ran == 0
    assert run_cells(cells(), path, function=functions.noisy, trials=5).ran == 9
    assert run_cells(cells(), path, function=functions.noisy, trials=1).counts.trials == 3
    assert [row[1] for row in results(path)] == [0, 0, 0]  # the others are kept, but not shown
    assert run_cells(cells(), path, function=functions.noisy, trials=5).ran == 0
    assert results(path) == undisturbed(tmp_path / "b.sqlite", cells(), 5)
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM trials WHERE cell = 1 AND trial = 3")
    connection.close()
    assert run_cells(cells(), path, function=functions.noisy, trials=5).ran == 1
    assert results(path) == results(tmp_path / "b.sqlite")


def test_a_sweep_covers_the_whole_grid_before_it_repeats_anything(tmp_path: Path) -> None:
    order: list[tuple[float, int | None]] = []

    def theory(settings: dict[str, Any]) -> dict[str, Any]:
        order.append((settings["slope"], None))
        return {}

    def trial(settings: dict[str, Any], number: int) -> dict[str, Any]:
        order.append((settings["slope"], number))
        return {}

    with ThreadPoolExecutor(1) as executor:
        run_cells(
            cells(), tmp_path / "a", function=trial, trials=2, theory=theory, executor=executor
        )
    assert order == [(slope, number) for number in (None, 0, 1) for slope in (1.0, 2.0, 3.0)]


def test_cells_that_differ_in_what_theory_ignores_share_one_call(
    tmp_path: Path,
) -> None:
    calls = []

    def theory(settings: dict[str, Any]) -> dict[str, Any]:
        calls.append(settings)
        return {"value": settings["slope"]}

    grid = [{"slope": slope, "dimension": d} for slope in (1, 2) for d in (10, 20)]
    with ThreadPoolExecutor(1) as executor:
        run_cells(
            grid,
            tmp_path / "a",
            function=functions.nothing,
            trials=0,
            theory=theory,
            theory_ignores=("dimension",),
            executor=executor,
        )
    assert [call["slope"] for call in calls] == [1, 2]
    with Store(tmp_path / "a") as store:
        assert [row["value"] for row in store.theory_rows()] == [1, 1, 2, 2]
        assert store.counts().cells_done == 4


@pytest.mark.parametrize(("times", "attempts"), [(1, 2), (2, 3)])
def test_a_trial_that_fails_is_tried_again(tmp_path: Path, times: int, attempts: int) -> None:
    path = tmp_path / "a.sqlite"
    grid = cells(2, bad=1, times=times, traces=str(tmp_path))
    end = run_cells(grid, path, function=functions.fails, trials=3, retries=2)
    assert end.counts.failed == 0
    with Store(path) as store:
        assert [row[4] for row in store.trials()] == [1, attempts, 1] * 2


def test_a_trial_that_always_fails_is_recorded_and_the_sweep_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    grid = cells(2, bad=1, times=3, traces=str(tmp_path))
    end = run_cells(grid, path, function=functions.fails, trials=3, retries=1)
    assert (end.counts.failed, end.counts.done) == (2, 4)
    with Store(path) as store:
        row = list(store.rows())[1]
        assert row["error"].startswith("RuntimeError: deliberately bad (sweep_functions.py:")
        assert "value" not in row
        assert [error[:2] for error in store.errors()] == [(0, 1), (1, 1)]
    assert run_cells(grid, path, function=functions.fails, trials=3, retries=1).ran == 0
    again = run_cells(grid, path, function=functions.fails, trials=3, retries=1, retry_failed=True)
    assert (again.ran, again.counts.failed, again.counts.done) == (2, 0, 6)
    assert [row[:3] for row in results(path)] == [
        row[:3] for row in undisturbed(tmp_path / "b", grid, 3)
    ]


def test_a_worker_that_dies_is_replaced_and_nothing_is_lost_or_stored_twice(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    grid = cells(2, bad=1, times=1, traces=str(tmp_path))
    end = run_cells(grid, path, function=functions.dies, trials=5, workers=2)
    assert (end.ran, end.counts.done, end.counts.failed) == (10, 10, 0)
    assert results(path) == undisturbed(tmp_path / "b.sqlite", grid, 5)


def test_a_trial_that_kills_every_worker_fails_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    grid = cells(1, bad=1, times=99, traces=str(tmp_path))
    end = run_cells(grid, path, function=functions.dies, trials=12, workers=2, retries=1)
    assert (end.counts.done, end.counts.failed) == (11, 1)
    with Store(path) as store:
        assert store.errors() == [(0, 1, "WorkerDied: worker process died (exit code -9)")]
        assert {row[4] for row in store.trials() if row[3] is None} == {1}
        assert [row[5] for row in store.trials() if row[3] is not None] == [0.0]
    # Once in company, which is not held against it, and then alone.
    assert len((tmp_path / "1.0-1").read_text().split()) == 3


def test_workers_have_one_thread_and_are_the_number_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    run_cells(cells(1), path, function=functions.process, trials=40, workers=2)
    with Store(path) as store:
        rows = list(store.rows())
    assert {row["threads"] for row in rows} == {"1"}
    assert len({row["pid"] for row in rows}) <= 2
    assert os.getpid() not in {row["pid"] for row in rows}


def test_failed_theory_is_recorded_and_does_no_harm(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as executor:
        end = run_cells(
            [{"intercept": 1.0}],
            tmp_path / "a",
            function=functions.nothing,
            trials=1,
            theory=functions.doubled,
            executor=executor,
        )
    assert (end.counts.theory_failed, end.counts.done, end.counts.failed) == (1, 1, 0)
    with Store(tmp_path / "a") as store:
        [row] = store.theory_rows()
        assert row["error"].startswith("KeyError: 'slope'")
        assert store.errors()[0][:2] == (0, None)


@pytest.mark.parametrize(
    ("result", "error"),
    [
        ({"slope": 1.0}, "result fields slope have names of settings or of the store"),
        ({"trial": 1.0}, "result fields trial have names"),
        ({"value": object()}, "TypeError: Object of type object is not JSON serializable"),
        (None, "AttributeError"),
    ],
)
def test_results_that_cannot_be_stored_are_failures(
    tmp_path: Path, result: Any, error: str
) -> None:
    with ThreadPoolExecutor(1) as executor:
        run_cells(cells(1), tmp_path / "a", function=lambda *_: result, trials=1, executor=executor)
    with Store(tmp_path / "a") as store:
        assert error in store.errors()[0][2]


def test_numbers_of_numpy_are_stored_and_those_that_are_not_finite_become_none(
    tmp_path: Path,
) -> None:
    import numpy as np

    result = {"a": np.float64(0.1), "b": np.int64(3), "c": np.True_, "d": np.inf, "e": np.nan}
    with ThreadPoolExecutor(1) as executor:
        run_cells(cells(1), tmp_path / "a", function=lambda *_: result, trials=1, executor=executor)
    assert results(tmp_path / "a")[0][2] == '{"a":0.1,"b":3,"c":true,"d":null,"e":null}'


@pytest.mark.parametrize(
    ("grid", "problem"),
    [
        ([], "there are none"),
        ([{"a": 1}, {"a": 1}], "number 1 is the same as number 0"),
        ([{"trial": 1}], "the name 'trial' belongs to the store"),
    ],
)
def test_bad_cells_are_refused_before_a_store_is_made(
    tmp_path: Path, grid: list[dict[str, Any]], problem: str
) -> None:
    with pytest.raises(StudyError, match=problem):
        run_cells(grid, tmp_path / "a", function=functions.nothing, trials=1)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "bad",
    [
        {"trials": -1},
        {"workers": 0},
        {"retries": -1},
        {"trials": 1.5},
        {"dask": "tcp://here", "executor": ThreadPoolExecutor(1)},
        {"workers": 2, "dask": "tcp://here"},
    ],
)
def test_bad_arguments_are_refused(tmp_path: Path, bad: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match=next(iter(bad))):
        run_cells(cells(), tmp_path / "a", function=functions.nothing, **{"trials": 1, **bad})
    assert not list(tmp_path.iterdir())


def test_other_cells_or_functions_are_another_study(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    with ThreadPoolExecutor(1) as executor:
        run_cells(cells(), path, function=functions.nothing, trials=1, executor=executor)
        before = path.read_bytes()
        with pytest.raises(StoreError, match="belongs to another study"):
            run_cells(cells(2), path, function=functions.nothing, trials=1, executor=executor)
        with pytest.raises(StoreError, match="belongs to another study"):
            run_cells(cells(), path, function=functions.noisy, trials=1, executor=executor)
    assert path.read_bytes() == before


class Breaking(Executor):
    """Finish a few calls and lose the others, as a cluster does whose scheduler dies."""

    def __init__(self, good: int) -> None:
        self.good = good

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        self.good -= 1
        if self.good >= 0:
            future.set_result(fn(*args, **kwargs))
        else:
            future.cancel()
            future.set_running_or_notify_cancel()
        return future


def test_losing_all_workers_stops_the_sweep_and_keeps_what_has_finished(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    with pytest.raises(SweepError, match=r"lost the workers.*run again to go on"):
        run_cells(cells(), path, function=functions.noisy, trials=5, executor=Breaking(7))
    assert len(results(path)) == 7
    run_cells(cells(), path, function=functions.noisy, trials=5, executor=Breaking(99))
    assert results(path) == undisturbed(tmp_path / "b.sqlite", cells(), 5)


def test_the_number_of_calls_in_flight_is_bounded(tmp_path: Path) -> None:
    class Counting(ThreadPoolExecutor):
        most = 0

        def submit(self, *args: Any, **kwargs: Any) -> "Future[Any]":
            future = super().submit(*args, **kwargs)
            self.most = max(self.most, self._work_queue.qsize())
            return future

    with Counting(1) as executor:
        run_cells(
            cells(), tmp_path / "a", function=functions.nothing, trials=100, executor=executor
        )
        assert 0 < executor.most <= 4


def test_an_executor_that_is_broken_stops_the_sweep(tmp_path: Path) -> None:
    class Broken(Executor):
        def submit(self, *_: Any, **__: Any) -> "Future[Any]":
            raise BrokenExecutor("no processes left")

    with pytest.raises(SweepError, match=r"the executor broke: no processes left\. Run again"):
        run_cells(cells(), tmp_path / "a", function=functions.nothing, trials=1, executor=Broken())


def test_processes_that_cannot_start_stop_the_sweep_and_blame_no_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def out_of_memory() -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr("sparsetoken.sweeps.local._Worker", out_of_memory)
    with pytest.raises(SweepError, match=r"cannot start a worker process: .*allocate memory"):
        run_cells(cells(), tmp_path / "a", function=functions.nothing, trials=1)
    assert results(tmp_path / "a") == []


def test_an_interruption_while_saving_keeps_what_has_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = StoreWriter.save
    interruptions = iter([KeyboardInterrupt])

    def interrupted(self: StoreWriter, outcomes: list[StoredRow]) -> None:
        if outcomes and (error := next(interruptions, None)):
            raise error
        save(self, outcomes)

    monkeypatch.setattr(StoreWriter, "save", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_cells(
            cells(), tmp_path / "a", function=functions.noisy, trials=5, executor=Breaking(99)
        )
    assert len(results(tmp_path / "a")) >= 1


@pytest.mark.parametrize("bad", [functools.partial(functions.noisy), 3, None])
def test_what_workers_cannot_import_is_refused_before_a_store_is_made(
    tmp_path: Path, bad: Any
) -> None:
    with pytest.raises(ParameterError, match=r"function = .* expected a function of a module"):
        run_cells(cells(), tmp_path / "a", function=bad, trials=1)
    assert not (tmp_path / "a").exists()
