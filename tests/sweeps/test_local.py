"""The executor of local processes on its own."""

import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from sweep_functions import tell_blocked_signals

from sparsetoken.sweeps import LocalExecutor, WorkerDied, local
from sparsetoken.validation import ParameterError


def test_results_and_exceptions_come_back_in_their_futures() -> None:
    with LocalExecutor(2) as executor:
        futures = [executor.submit(pow, 2, power) for power in range(20)]
        error = executor.submit(divmod, 1, 0)
        assert [future.result() for future in futures] == [2**power for power in range(20)]
        with pytest.raises(ZeroDivisionError):
            error.result()
        assert list(executor.map(abs, [-1, 2])) == [1, 2]
    with pytest.raises(RuntimeError, match="shut down"):
        executor.submit(abs, 1)


def test_what_cannot_be_pickled_harms_its_own_call_only() -> None:
    with LocalExecutor(1) as executor:
        with pytest.raises((AttributeError, pickle.PicklingError), match="pickle"):
            executor.submit(eval, "lambda: 1").result()
        with pytest.raises((AttributeError, pickle.PicklingError), match="pickle"):
            executor.submit(lambda: 1)
        assert executor.submit(abs, -3).result() == 3


def test_ctrl_c_waits_while_a_worker_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_work", tell_blocked_signals)
    worker = local._Worker()
    assert worker.connection.recv() == {signal.SIGINT}
    worker.process.join()
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set()
    with LocalExecutor(1) as executor:
        monkeypatch.undo()
        assert executor.submit(signal.pthread_sigmask, signal.SIG_BLOCK, ()).result() == set()
        assert executor.submit(signal.getsignal, signal.SIGINT).result() == signal.SIG_IGN


def test_a_killed_process_fails_its_own_call_and_is_replaced() -> None:
    with LocalExecutor(2) as executor:
        sleeper = executor.submit(time.sleep, 0.5)
        doomed = executor.submit(signal.raise_signal, signal.SIGKILL)
        with pytest.raises(WorkerDied, match="exit code -9"):
            doomed.result()
        assert sleeper.exception() is None
        assert executor.submit(abs, -1).result() == 1


def test_no_process_is_left_when_the_executor_ends() -> None:
    with LocalExecutor(1) as executor:
        worker = executor.submit(os.getpid).result()
    assert not psutil.pid_exists(worker)


def test_a_process_killed_while_idle_harms_no_call() -> None:
    with LocalExecutor(1) as executor:
        victim = executor.submit(os.getpid).result()
        os.kill(victim, signal.SIGKILL)
        [process] = executor._processes
        process.join(timeout=60)
        assert executor.submit(os.getpid).result() != victim


def test_shutting_down_at_once_ends_busy_processes() -> None:
    executor = LocalExecutor(2)
    pids = [executor.submit(os.getpid).result()]
    futures = [executor.submit(time.sleep, 100) for _ in range(6)]
    start = time.monotonic()
    executor.shutdown(cancel_futures=True)
    assert time.monotonic() - start < 30
    assert all(future.done() for future in futures)
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_the_number_of_workers_is_checked() -> None:
    with pytest.raises(ParameterError, match="workers = 0 is not valid"):
        LocalExecutor(0)


def test_an_unguarded_script_is_told_what_to_do(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from sparsetoken.sweeps import run_cells\n"
        "run_cells([{'slope': 1}], 'a.sqlite', function=divmod, trials=1)\n"
    )
    done = subprocess.run(
        [sys.executable, script],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=tmp_path,
    )
    assert done.returncode == 1
    assert "SweepError: lost the workers: worker processes end as soon as they start" in done.stderr
    assert "if __name__ ==" in done.stderr
    assert "bootstrapping" not in done.stderr, "the driver speaks, not its workers"
