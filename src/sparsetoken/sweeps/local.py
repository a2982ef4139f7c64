"""An executor of local processes in which the death of one harms nothing but its own call.

`concurrent.futures.ProcessPoolExecutor` breaks as a whole when a worker is killed, for instance for
want of memory, and cannot say whose call did it. Here each worker process has its own pipe and its
own thread in the driver, which starts another process when the first one dies.
"""

import multiprocessing
import os
import pickle
import queue
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any

from sparsetoken import validation
from sparsetoken.numerics.memory import path_memory
from sparsetoken.sweeps.worker import use_one_thread

__all__ = ["LocalExecutor", "WorkerDied"]

# Several in a row: a process may also be killed by chance while it starts.
_STARTS = 3


class WorkerDied(RuntimeError):
    """The process that ran a call ended before the call did."""


class LocalExecutor(Executor):
    """Run calls in `workers` processes, started when needed and again whenever one dies.

    A call whose process dies raises `WorkerDied`; other calls do not notice. The processes use one
    thread for linear algebra, leave Ctrl-C to the driver, and end when the driver does, even if it
    is killed. Functions, arguments and results must be picklable; a script that uses it must do so
    under ``if __name__ == "__main__":``.
    """

    def __init__(self, workers: int) -> None:
        self.workers = validation.integer("workers", workers, low=1)
        if getattr(multiprocessing.current_process(), "_inheriting", False):
            # A worker that runs a script without the guard again: the driver says so, once.
            sys.exit(1)
        self._calls: queue.SimpleQueue[tuple[Future[Any], bytes] | None] = queue.SimpleQueue()
        self._closed = False
        self._lock = threading.Lock()
        self._processes: set[multiprocessing.process.BaseProcess] = set()
        self._threads = [
            threading.Thread(target=self._serve, name=f"sweep-worker-{i}", daemon=True)
            for i in range(workers)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Schedule fn(*args, **kwargs) and return its future."""
        if self._closed:
            raise RuntimeError("cannot submit to an executor that is shut down")
        future: Future[Any] = Future()
        self._calls.put((future, pickle.dumps((fn, args, kwargs))))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the processes; after the calls that are queued, or at once with `cancel_futures`."""
        self._closed = True
        if cancel_futures:
            self._cancel_queued()
            with self._lock:
                for process in self._processes:
                    process.kill()
        for _ in self._threads:
            self._calls.put(None)
        if wait:
            for thread in self._threads:
                thread.join()

    def _cancel_queued(self) -> None:
        while True:
            try:
                item = self._calls.get_nowait()
            except queue.Empty:
                return
            if item is not None:
                item[0].cancel()

    def _serve(self) -> None:
        """Hand calls to one process, one at a time, and replace it when it dies."""
        if hasattr(signal, "pthread_sigmask"):
            # Processes inherit the mask of the thread that starts them: Ctrl-C in a terminal goes
            # to all, and must not hit a worker before it has told Python to ignore it.
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        worker: _Worker | None = None
        while (item := self._calls.get()) is not None:
            future, call = item
            if not future.set_running_or_notify_cancel():
                continue
            if worker is not None and not worker.process.is_alive():
                self._forget(worker)  # it died with nothing to do, so no call is to blame
                worker = None
            try:
                worker = worker or self._start()
                succeeded, value = worker.run(call)
            except WorkerDied as error:
                self._forget(worker)
                worker = None
                future.set_exception(error)
            except BaseException as error:  # noqa: BLE001 (belongs to the caller)
                future.set_exception(error)
            else:
                (future.set_result if succeeded else future.set_exception)(value)
        self._forget(worker)

    def _start(self) -> "_Worker":
        for _ in range(_STARTS):
            with self._lock:
                if self._closed:
                    raise WorkerDied("the executor is shut down")
                try:
                    worker = _Worker()
                except Exception as error:
                    raise BrokenExecutor(f"cannot start a worker process: {error}") from error
                self._processes.add(worker.process)
            if worker.is_ready():
                return worker
            self._forget(worker)
        raise BrokenExecutor(
            f"worker processes end as soon as they start (exit code {worker.process.exitcode}); in "
            'a script, start the sweep under `if __name__ == "__main__":`'
        )

    def _forget(self, worker: "_Worker | None") -> None:
        if worker is not None:
            worker.connection.close()
            worker.process.join()
            with self._lock:
                self._processes.discard(worker.process)


class _Worker:
    """A process and the driver's end of the pipe to it."""

    def __init__(self) -> None:
        # Not fork: the driver has threads, and may have loaded a multi-threaded BLAS.
        context = multiprocessing.get_context("spawn")
        self.connection, other_end = context.Pipe()
        self.process = context.Process(target=_work, args=(other_end,), daemon=True)
        # A Ctrl-C reaches the workers too, and Python would answer with a traceback while it starts.
        resource_tracker.ensure_running()  # to start it would lift the block
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self.process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        # Now the process alone holds the other end, so that its death ends the pipe.
        other_end.close()

    def is_ready(self) -> bool:
        try:
            return bool(self.connection.recv())
        except (EOFError, OSError):
            return False

    def run(self, call: bytes) -> tuple[bool, Any]:
        try:
            self.connection.send_bytes(call)
            answer = self.connection.recv_bytes()
        except (EOFError, OSError):
            self.process.join()
            raise WorkerDied(f"worker process died (exit code {self.process.exitcode})") from None
        succeeded, value = pickle.loads(answer)
        return succeeded, value


def _work(connection: Connection) -> None:
    """Serve calls until the driver closes the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    use_one_thread()
    threading.Thread(target=_end_with_the_driver, daemon=True).start()
    connection.send(True)
    with path_memory():  # cells share laws: all that a worker computes is one path
        _serve(connection)


def _serve(connection: Connection) -> None:
    while True:
        try:
            call = connection.recv_bytes()
        except (EOFError, OSError):
            return
        try:
            function, args, kwargs = pickle.loads(call)
            answer = pickle.dumps((True, function(*args, **kwargs)))
        except Exception as error:  # noqa: BLE001 (belongs to the caller)
            answer = _pickled_error(error)
        try:
            connection.send_bytes(answer)
        except OSError:
            return


def _pickled_error(error: Exception) -> bytes:
    try:
        answer = pickle.dumps((False, error))
        pickle.loads(answer)
    except Exception:  # noqa: BLE001 (any class may fail to pickle in its own way)
        answer = pickle.dumps((False, RuntimeError(f"{type(error).__name__}: {error}")))
    return answer


def _end_with_the_driver() -> None:
    # The pipe behind the sentinel is held open by the driver alone; it ends however the driver
    # does, also while this process is busy with a call.
    driver = multiprocessing.parent_process()
    assert driver is not None
    wait([driver.sentinel])
    os._exit(1)
