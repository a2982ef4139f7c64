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

from sparsetoken.sweeps.errors import SweepError
from sparsetoken.sweeps.work import Attempt, attempt
from sparsetoken.sweeps.writer import Outcome

__all__ = ["Backend", "Engine", "Job"]

_TICK_SECONDS = 0.2


class Job(NamedTuple):
    """A trial to run, or (trial None) the theory of a cell to compute."""

    cell: int
    trial: int | None
    function: Callable[..., Mapping[str, Any]]
    settings: dict[str, Any]


@dataclass(frozen=True)
class Backend:
    """An executor and what the engine must know of it.

    Attributes
    ----------
    executor : Executor
    window : callable
        Returns how many calls may be in flight.
    death : tuple of exception types
        What a future raises if the process that ran the call died, or one that might have run it.
    """

    executor: Executor
    window: Callable[[], int]
    death: tuple[type[BaseException], ...] = ()


@dataclass
class Engine:
    """Run jobs to the end, whatever happens to single ones.

    A job that fails is tried again at most `retries` times. One whose worker died is set aside and
    tried again at the end, alone: if the job is the cause it can then harm no other and is counted
    as failed for its own doing; if memory was short, it then has all there is.

    Parameters
    ----------
    backend : Backend
    save : callable
        Stores a list of outcomes.
    tick : callable
        Called several times a second.
    retries : int
    """

    backend: Backend
    save: Callable[[list[Outcome]], None]
    tick: Callable[[], None]
    retries: int
    _running: dict[Future[Attempt], Job] = field(default_factory=dict)
    _ended: queue.SimpleQueue[Future[Attempt]] = field(default_factory=queue.SimpleQueue)
    _failures: dict[tuple[int, int | None], int] = field(default_factory=dict)
    _again: deque[Job] = field(default_factory=deque)
    _suspects: deque[Job] = field(default_factory=deque)
    _alone: bool = False
    _unsaved: list[Outcome] = field(default_factory=list)

    def run(self, jobs: Iterator[Job]) -> None:
        """Run all jobs. On Ctrl-C, save what has finished and raise KeyboardInterrupt."""
        try:
            while self._submit(jobs):
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

    def _submit(self, jobs: Iterator[Job]) -> bool:
        """Fill the window; return whether anything is in flight."""
        while len(self._running) < self.backend.window() and not self._alone:
            job = self._again.popleft() if self._again else next(jobs, None)
            if job is None:
                break
            self._start(job)
        if not self._running and self._suspects:
            self._alone = True
            self._start(self._suspects.popleft())
        elif not self._running:
            self._alone = False
        return bool(self._running)

    def _start(self, job: Job) -> None:
        try:
            future = self.backend.executor.submit(attempt, job.function, job.settings, job.trial)
        except BrokenExecutor as error:
            raise SweepError(f"the executor broke: {error}. Run again to go on") from error
        self._running[future] = job
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

    def _judge(self, job: Job, future: "Future[Attempt]") -> None:
        try:
            done = future.result()
        except (BrokenExecutor, CancelledError) as error:
            reason = str(error) or "calls were cancelled, as if the cluster had gone"
            raise SweepError(
                f"lost the workers: {reason}. What has finished is stored; run again to go on"
            ) from error
        except self.backend.death as error:
            if not self._alone:
                self._suspects.append(job)
                return
            done = Attempt(None, (), f"{type(error).__name__}: {error}", 0.0)
        except Exception as error:  # noqa: BLE001 (one failed call, for instance not picklable)
            done = Attempt(None, (), f"{type(error).__name__}: {error}", 0.0)
        key = job.cell, job.trial
        attempts = self._failures.pop(key, 0) + 1
        if done.error is not None and attempts <= self.retries:
            self._failures[key] = attempts
            (self._suspects if self._alone else self._again).append(job)
            return
        self._unsaved.append(
            Outcome(
                job.cell, job.trial, done.result, done.error, done.columns, attempts, done.seconds
            )
        )

    def _save(self) -> None:
        self.save(self._unsaved)
        self._unsaved.clear()
