"""The same engine on a Dask cluster of two worker processes."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask
import pytest
import sweep_functions as functions
from click.testing import CliRunner
from distributed import LocalCluster

import sparsetoken.sweeps.cluster
from sparsetoken.cli import main
from sparsetoken.sweeps import Progress, Store, SweepError, run_cells
from sparsetoken.sweeps.cluster import WorkersGone, _passing_to, _VersionedExecutor


@pytest.fixture
def cluster(started: LocalCluster) -> LocalCluster:
    started.wait_for_workers(2, timeout=60)  # of which the test before may have killed some
    return started


@pytest.fixture(scope="module")
def started() -> Iterator[LocalCluster]:
    # Dask itself runs a call again when its worker dies; here it must leave that to the engine.
    settings = {"distributed.scheduler.allowed-failures": 0}
    with (
        dask.config.set(settings),
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
            silence_logs="CRITICAL",
        ) as running,
    ):
        yield running


def results(path: Path) -> list[tuple[Any, ...]]:
    with Store(path, check=True) as store:
        return [row[:4] for row in store.trials()]


def test_a_worker_killed_mid_trial_loses_nothing_and_stores_nothing_twice(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    traces = tmp_path / "traces"
    traces.mkdir()
    grid = [{"slope": float(s), "sleep": 0.2, "traces": str(traces)} for s in range(1, 4)]
    killed: list[Path] = []

    def kill_once(_: Progress) -> None:
        for trace in [] if killed else traces.iterdir():
            if len(pids := trace.read_text().split()) == 1:  # begun, not done
                os.kill(int(pids[0]), signal.SIGKILL)
                killed.append(trace)
                return

    end = run_cells(
        grid, tmp_path / "a", function=functions.traced, trials=5,
        dask=cluster.scheduler_address, progress=kill_once,
    )  # fmt: skip
    assert (end.counts.done, end.counts.failed) == (15, 0)
    [trace] = killed
    assert trace.read_text().split()[-1] == "done"
    assert len(trace.read_text().split()) >= 3  # begun twice, done once
    with ThreadPoolExecutor(1) as executor:
        run_cells(grid, tmp_path / "b", function=functions.traced, trials=5, executor=executor)
    assert results(tmp_path / "a") == results(tmp_path / "b")


def test_the_command_gives_the_same_rows_on_a_cluster_as_locally(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    study = tmp_path / "study.toml"
    study.write_text(
        "trials = 2\ndimensions = 20\n[task]\nlength = 4\ninformative = 1\nstrength = 2\n"
        '[training]\nalpha0 = 2\nalpha1 = 2\nloss = "square"\nridge = 0.1\n'
    )
    stores = tmp_path / "cluster.sqlite", tmp_path / "local.sqlite"
    for store, place in zip(
        stores, (["--dask", cluster.scheduler_address], ["--workers", "1"]), strict=True
    ):
        command = ["sweep", "run", str(study), "--store", str(store), *place]
        result = CliRunner().invoke(main, command)
        assert result.exit_code == 0, result.output
    assert results(stores[0]) == results(stores[1])
    with Store(stores[0]) as one, Store(stores[1]) as two:
        assert list(one.theory()) == list(two.theory())


def test_a_trial_that_kills_every_worker_fails_alone(cluster: LocalCluster, tmp_path: Path) -> None:
    grid = [{"slope": 1.0, "bad": 2, "times": 99, "traces": str(tmp_path)}]
    end = run_cells(
        grid,
        tmp_path / "a",
        function=functions.dies,
        trials=8,
        retries=0,
        dask=cluster.scheduler_address,
    )
    assert (end.counts.done, end.counts.failed) == (7, 1)
    with Store(tmp_path / "a") as store:
        [(_, trial, error)] = store.errors()
    assert trial == 2
    assert error.startswith("KilledWorker")


def test_a_cluster_with_another_version_is_refused(
    cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sparsetoken.sweeps.cluster, "__version__", "9.9")
    with pytest.raises(SweepError, match=r"has sparsetoken .*, not 9\.9"):
        run_cells(
            [{"slope": 1.0}], tmp_path / "a", function=functions.noisy, trials=1,
            dask=cluster.scheduler_address,
        )  # fmt: skip


DOCTORED = """
import sparsetoken, sparsetoken.sweeps.cluster, sparsetoken.sweeps.worker
for module in (sparsetoken, sparsetoken.sweeps.cluster, sparsetoken.sweeps.worker):
    module.__version__ = "0.0.doctored"
"""


def test_a_worker_that_joins_later_with_another_version_gets_no_work(
    cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sparsetoken.sweeps.cluster, "_RECOUNT_SECONDS", 0.2)
    (tmp_path / "doctored.py").write_text(DOCTORED)
    words = [sys.executable, "-m", "distributed.cli.dask_worker", cluster.scheduler_address]
    words += ["--no-nanny", "--no-dashboard", "--nthreads", "8", "--preload"]
    words += [str(tmp_path / "doctored.py"), "--local-directory", str(tmp_path)]
    started: list[subprocess.Popen[bytes]] = []
    notes: set[str] = set()

    def join(now: Progress) -> None:
        notes.add(now.note)
        if not started and now.ran:
            started.append(subprocess.Popen(words, stderr=subprocess.DEVNULL))
        if any("doctored" in note for note in notes) and len(started) == 1:
            started.append(started[0])  # seen: let it be there for a while

    grid = [{"slope": float(slope), "sleep": 0.15} for slope in range(1, 6)]
    try:
        end = run_cells(
            grid, tmp_path / "a", function=functions.noisy, trials=40,
            dask=cluster.scheduler_address, progress=join,
        )  # fmt: skip
    finally:
        for process in started[:1]:
            process.terminate()
            process.wait(timeout=60)
    assert end.counts.done == 200
    assert any("is not used: it has sparsetoken 0.0.doctored" in note for note in notes)
    with Store(tmp_path / "a", check=True) as store:
        assert {row[6] for row in store.trials()} == {sparsetoken.__version__}


def test_work_of_another_version_is_never_stored(tmp_path: Path) -> None:
    class Doctored(ThreadPoolExecutor):
        def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
            return super().submit(lambda: fn(*args, **kwargs)._replace(version="0.0.doctored"))

    with (
        Doctored(1) as executor,
        pytest.raises(SweepError, match=r"a worker has sparsetoken 0\.0\.doctored, not"),
    ):
        run_cells(
            [{"slope": 1.0}], tmp_path / "a", function=functions.noisy, trials=3, executor=executor
        )
    assert results(tmp_path / "a") == []


def test_without_workers_there_is_a_hint_and_then_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sparsetoken.sweeps.cluster, "_RECOUNT_SECONDS", 0.1)
    monkeypatch.setattr(sparsetoken.sweeps.cluster, "_PATIENCE_SECONDS", 1.0)
    notes = []
    with (
        LocalCluster(
            n_workers=0, processes=True, dashboard_address=":0", silence_logs="CRITICAL"
        ) as empty,
        pytest.raises(SweepError, match="no workers yet: start some with `dask worker"),
    ):
        run_cells(
            [{"slope": 1.0}], tmp_path / "a", function=functions.noisy, trials=1,
            dask=empty.scheduler_address, progress=lambda now: notes.append(now.note),
        )  # fmt: skip
    assert any("no workers yet" in note for note in notes)


@pytest.mark.parametrize(
    "address", ["nonsense", "", "tls://127.0.0.1:8786", "tcp://127.0.0.1", "http://x", "a b:1",
                "tcp://127.0.0.1:99999"]
)  # fmt: skip
def test_what_is_no_address_ends_at_once(tmp_path: Path, address: str) -> None:
    begin = time.monotonic()
    with pytest.raises(SweepError, match=r"expected tcp://HOST:PORT"):
        run_cells(
            [{"slope": 1.0}], tmp_path / "a", function=functions.noisy, trials=1, dask=address
        )
    assert time.monotonic() - begin < 30


def test_a_scheduler_that_is_not_there_is_a_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sparsetoken.sweeps.cluster, "_CONNECT_SECONDS", 1)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(SweepError, match=f"cannot reach a Dask scheduler at {address}"):
            run_cells(
                [{"slope": 1.0}], tmp_path / "a", function=functions.noisy, trials=1, dask=address
            )


def test_without_the_package_the_error_says_what_to_install(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['distributed'] = None\n"
        "from sparsetoken.sweeps import run_cells\n"
        "run_cells([{'slope': 1}], 'a', function=divmod, trials=1, dask='tcp://127.0.0.1:1')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert "pip install '.[cluster]'" in done.stderr


def test_calls_whose_workers_have_gone_are_given_up_at_the_second_look() -> None:
    executor = _VersionedExecutor(None, "")  # type: ignore[arg-type]
    kept, lost, done = Future[int](), Future[int](), Future[int]()
    done.set_result(3)
    executor._threads = {"here": 1}
    executor._sent = {kept: frozenset(["here", "gone"]), lost: frozenset(["gone"])}
    executor._sent[done] = frozenset(["gone"])
    executor._give_up_orphans()
    assert [future.done() for future in (kept, lost, done)] == [False, False, True]
    executor._give_up_orphans()
    assert isinstance(lost.exception(), WorkersGone)
    assert done.result() == 3
    assert not kept.done()


def test_a_call_that_the_cluster_cancels_is_cancelled_here() -> None:
    future: Future[None] = Future()
    _passing_to(future)(SimpleNamespace(status="cancelled"))
    assert future.cancelled()
    with pytest.raises(CancelledError):
        future.result(timeout=1)
