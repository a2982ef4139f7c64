"""The loop that keeps an executor busy and hands what it finishes to the store.

It knows nothing of processes, clusters or SQLite: it submits to a `concurrent.futures.Executor`, a
bounded number of calls at a time, and passes outcomes to a function that saves them.
"""

import queue
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sparsetoken import __version__
from sparsetoken.sweeps.errors import SweepError
from sparsetoken.sweeps.worker import Attempt, attempt
from sparsetoken.sweeps.writer import StoredRow

__all__ = ["Backend", "Call", "Engine"]

_TICK_SECONDS = 0.2


class Call(NamedTuple):
    """A trial to run, or (trial None) the theory of a cell to compute."""

    cell: int
    trial: int | None
    function: Callable[..., Mapping[str, Any]]
    settings: dict[str, Any]
    imports: tuple[str, ...] = ()


@dataclass(frozen=True)
class Backend:
    """An executor and what the engine must know of it.

    Attributes
    ----------
    executor : Executor
    window : callable
        Returns how many calls may be in flight.
    death : tuple of exception types
        What a future raises if the process that ran the call died.
    gone : tuple of exception types
        What a future raises if its processes went before they ran the call: never its own fault.
    note : callable
        Returns what a person should know of the workers now, for instance that there are none.
    """

    executor: Executor
    window: Callable[[], int]
    death: tuple[type[BaseException], ...] = ()
    gone: tuple[type[BaseException], ...] = ()
    note: Callable[[], str] = lambda: ""


@dataclass
class Engine:
    """Run calls to the end, whatever happens to single ones.

    A call that fails is tried again at most `retries` times. One whose worker died is set aside and
    tried again at the end, alone: if the call is the cause it can then harm no other and is counted
    as failed for its own doing; if memory was short, it then has all there is.

    Parameters
    ----------
    backend : Backend
    save : callable
        Stores a list of rows.
    tick : callable
        Called several times a second.
    retries : int
    """

    backend: Backend
    save: Callable[[list[StoredRow]], None]
    tick: Callable[[], None]
    retries: int
    _running: dict[Future[Attempt], Call] = field(default_factory=dict)
    _ended: queue.SimpleQueue[Future[Attempt]] = field(default_factory=queue.SimpleQueue)
    _failures: dict[tuple[int, int | None], int] = field(default_factory=dict)
    _again: deque[Call] = field(default_factory=deque)
    _suspects: deque[Call] = field(default_factory=deque)
    _alone: bool = False
    _unsaved: list[StoredRow] = field(default_factory=list)

    def run(self, calls: Iterator[Call]) -> None:
        """Run all calls. On Ctrl-C, save what has finished and raise KeyboardInterrupt."""
        try:
            while self._submit(calls):
                try:
                    self._collect(wait=True)
                finally:
                    self._save()
                self.tick()
        except KeyboardInterrupt:
            # `save` may have been cut short, but nothing is harmed by storing an outcome twice.
            self._collect(wait=False)
            self._save()
            raise

    def _submit(self, calls: Iterator[Call]) -> bool:
        """Fill the window; return whether anything is in flight."""
        while len(self._running) < self.backend.window() and not self._alone:
            call = self._again.popleft() if self._again else next(calls, None)
            if call is None:
                break
            self._start(call)
        if not self._running and self._suspects:
            self._alone = True
            self._start(self._suspects.popleft())
        elif not self._running:
            self._alone = False
        return bool(self._running)

    def _start(self, call: Call) -> None:
        try:
            future = self.backend.executor.submit(
                attempt, call.function, call.settings, call.trial, call.imports
            )
        except BrokenExecutor as error:
            raise SweepError(f"the executor broke: {error}. Run again to go on") from error
        self._running[future] = call
        future.add_done_callback(self._ended.put)

    def _collect(self, wait: bool) -> None:
        """Deal with all futures that have ended, waiting a moment for the first."""
        try:
            future = self._ended.get(timeout=_TICK_SECONDS) if wait else self._ended.get_nowait()
            while True:
                self._judge(self._running.pop(future), future)
                future = self._ended.get_nowait()
        except queue.Empty:
            return

    def _judge(self, call: Call, future: "Future[Attempt]") -> None:
        try:
            done = future.result()
        except (BrokenExecutor, CancelledError) as error:
            reason = str(error) or "calls were cancelled, as if the cluster had gone"
            raise SweepError(
                f"lost the workers: {reason}. What has finished is stored; run again to go on"
            ) from error
        except self.backend.gone:
            self._suspects.append(call)
            return
        except self.backend.death as error:
            if not self._alone:
                self._suspects.append(call)
                return
            done = Attempt(None, (), f"{type(error).__name__}: {error}", 0.0, __version__)
        except Exception as error:  # noqa: BLE001 (one failed call, for instance not picklable)
            done = Attempt(None, (), f"{type(error).__name__}: {error}", 0.0, __version__)
        if done.version != __version__:
            raise SweepError(
                f"a worker has sparsetoken {done.version}, not {__version__}: nothing of its work "
                "is stored. Stop it and run again to go on"
            )
        key = call.cell, call.trial
        attempts = self._failures.pop(key, 0) + 1
        if done.error is not None and attempts <= self.retries:
            self._failures[key] = attempts
            (self._suspects if self._alone else self._again).append(call)
            return
        self._unsaved.append(
            StoredRow(
                call.cell,
                call.trial,
                done.result,
                done.error,
                done.columns,
                attempts,
                done.seconds,
                done.version,
            )
        )

    def _save(self) -> None:
        self.save(self._unsaved)
        self._unsaved.clear()
