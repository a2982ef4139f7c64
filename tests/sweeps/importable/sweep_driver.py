"""Start a sweep in its own process, on a machine in a chosen kind of trouble."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

PATIENCE = 120  # seconds; only a hang takes so long, however busy the machine is


def small_files(size: str) -> None:
    """Let no file grow beyond `size` bytes, as if the disk were full."""
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (int(size), int(size)))


def no_privileges() -> None:
    """Make file permissions count for root too, by giving up all of its capabilities."""
    if os.geteuid() == 0:
        header = (ctypes.c_uint32 * 2)(0x20080522, 0)
        assert ctypes.CDLL(None, use_errno=True).capset(header, (ctypes.c_uint32 * 6)()) == 0


TROUBLES: dict[str, Callable[..., None]] = {"small": small_files, "plain": no_privileges}


class Driver:
    """A running `sparsetoken sweep ARGUMENTS`, in a session of its own.

    With "cells" or "long" as the first argument it is a call of `run_cells` instead, with trials
    that are cheap, or long.
    """

    def __init__(self, *arguments: object, trouble: str = "") -> None:
        command = [sys.executable, __file__, trouble, *map(str, arguments)]
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._seen: set[psutil.Process] = set()

    def descendants(self) -> set[psutil.Process]:
        """Return all processes that it has been seen to start."""
        with contextlib.suppress(psutil.NoSuchProcess):
            self._seen.update(psutil.Process(self.process.pid).children(recursive=True))
        return self._seen

    def wait_until(self, condition: Callable[[], bool]) -> bool:
        """Wait for a condition, or until the process ends; return whether the condition holds."""
        deadline = time.monotonic() + PATIENCE
        while self.process.poll() is None:
            self.descendants()
            if condition():
                return True
            assert time.monotonic() < deadline, "the driver hangs"
            time.sleep(0.01)
        return condition()

    def kill(self) -> None:
        self.descendants()
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate(timeout=PATIENCE)

    def press_ctrl_c(self) -> None:
        """Do what a terminal does: signal the whole group."""
        self.descendants()
        os.killpg(self.process.pid, signal.SIGINT)

    def end(self) -> tuple[int, str]:
        """Return exit code and output."""
        output, _ = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, output

    def assert_nothing_is_left(self) -> None:
        gone, alive = psutil.wait_procs(self._seen, timeout=PATIENCE / 4)
        assert not alive
        assert gone


def sweep(*arguments: object, trouble: str = "") -> tuple[int, str]:
    """Run the command to its end; return exit code and output."""
    return Driver(*arguments, trouble=trouble).end()


def run_cheap_cells(store: str | Path, workers: int | str) -> None:
    """Run 200 trials of 10 ms, and theory."""
    import sweep_functions as functions

    from sparsetoken.sweeps import run_cells

    cells = [{"slope": float(slope), "sleep": 0.01} for slope in range(1, 5)]
    theory = functions.doubled
    run_cells(
        cells, store, function=functions.noisy, trials=50, theory=theory, workers=int(workers)
    )


def run_long_trials(store: str, traces: str) -> None:
    """Run two trials of ten minutes, which leave traces when they begin."""
    import sweep_functions as functions

    from sparsetoken.sweeps import run_cells

    cells = [{"slope": 1.0, "sleep": 600, "traces": traces}]
    run_cells(cells, store, function=functions.traced, trials=2, workers=2)


if __name__ == "__main__":
    trouble, command, *rest = sys.argv[1:]
    if trouble:
        name, *values = trouble.split()
        TROUBLES[name](*values)
    if command == "cells":
        run_cheap_cells(*rest)
    elif command == "long":
        run_long_trials(*rest)
    else:
        from sparsetoken.cli import main

        main(["sweep", command, *rest])
