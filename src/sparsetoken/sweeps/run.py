"""Start or resume a sweep: `run_cells` for any function, `run_sweep` for a study file."""

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparsetoken import validation
from sparsetoken.sweeps.cluster import dask_backend
from sparsetoken.sweeps.engine import Backend, Engine, Job
from sparsetoken.sweeps.errors import StudyError
from sparsetoken.sweeps.local import LocalExecutor, WorkerDied
from sparsetoken.sweeps.spec import Study
from sparsetoken.sweeps.store import Counts
from sparsetoken.sweeps.trial import predict_cell, simulate_trial
from sparsetoken.sweeps.work import RESERVED_COLUMNS
from sparsetoken.sweeps.writer import Outcome, StoreWriter

__all__ = ["Progress", "fingerprint", "run_cells", "run_sweep", "study_fingerprint"]

Settings = Mapping[str, Any]

_REPORT_SECONDS = 0.2


@dataclass(frozen=True)
class Progress:
    """How far a sweep is, and how fast.

    Attributes
    ----------
    counts : Counts
        What the store holds.
    ran : int
        Trials that this run has finished, failed ones included.
    seconds : float
        Since this run began.
    """

    counts: Counts
    ran: int
    seconds: float

    @property
    def rate(self) -> float:
        """Trials a second in this run."""
        return self.ran / self.seconds if self.seconds > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        """Time left at that rate, or None if nothing has finished yet."""
        left = self.counts.trials - self.counts.done - self.counts.failed
        return left / self.rate if self.rate > 0 else None


def run_sweep(
    study: Study,
    store: str | Path,
    *,
    workers: int = 1,
    dask: str | None = None,
    executor: Executor | None = None,
    retries: int = 2,
    retry_failed: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> Progress:
    """Run what is missing of a study; see `run_cells` for the parameters."""
    return run_cells(
        store,
        study.cells(),
        simulate_trial,
        trials=study.trials,
        theory=_theory(study),
        workers=workers,
        dask=dask,
        executor=executor,
        retries=retries,
        retry_failed=retry_failed,
        progress=progress,
    )


def study_fingerprint(study: Study) -> str:
    """Return the fingerprint that a store of the study has."""
    return fingerprint(study.cells(), simulate_trial, _theory(study))


def _theory(study: Study) -> Callable[[dict[str, Any]], Settings] | None:
    return predict_cell if study.theory else None


def run_cells(
    store: str | Path,
    cells: Sequence[Settings],
    function: Callable[[dict[str, Any], int], Settings],
    *,
    trials: int,
    theory: Callable[[dict[str, Any]], Settings] | None = None,
    workers: int = 1,
    dask: str | None = None,
    executor: Executor | None = None,
    retries: int = 2,
    retry_failed: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> Progress:
    """Call function(settings, trial) for every cell and trial that the store does not hold yet.

    Parameters
    ----------
    store : path
        The store, made if there is none. One made with other cells or functions is refused.
    cells : sequence of mappings
        The settings of each cell: names to what JSON can hold, all different.
    function : callable
        Takes the settings of a cell and the number of the trial, and returns the results by name:
        numbers, texts, booleans or None (numbers that are not finite are stored as None). It must
        be importable in a worker process, and depend on its arguments alone.
    trials : int
        Trials of each cell. It may be raised when a sweep is resumed.
    theory : callable, optional
        Takes the settings and returns results that are stored once a cell. If it has an attribute
        `ignores`, a tuple of names of settings, cells that differ in these alone share one call.
    workers : int
        Local processes.
    dask : str, optional
        Address of a Dask scheduler to use instead.
    executor : Executor, optional
        Anything else to use instead; the caller shuts it down.
    retries : int
        How often a failed trial is tried again before it is recorded as failed.
    retry_failed : bool
        Whether to run trials again that the store has as failed.
    progress : callable, optional
        Called with a `Progress` at the start and then several times a second.

    Returns
    -------
    Progress
        How it ended. `counts.failed` trials are in the store with their error.

    Raises
    ------
    SweepError
        If the sweep cannot start or go on. What had finished by then is in the store.
    KeyboardInterrupt
        On Ctrl-C, after what had finished was stored and the local processes were ended.
    """
    trials = validation.integer("trials", trials, low=0)
    retries = validation.integer("retries", retries, low=0)
    validation.integer("workers", workers, low=1)
    _check_cells(cells)
    with StoreWriter(store, fingerprint(cells, function, theory), cells, trials) as writer:
        sharing = _sharing(cells, theory)
        tracker = _Tracker(writer, sharing, progress)
        jobs = _jobs(writer, cells, function, theory, sharing, trials, retry_failed)
        with _backend(workers, dask, executor) as backend:
            Engine(backend, tracker.save, tracker.tick, retries).run(jobs)
        return tracker.report()


def fingerprint(
    cells: Sequence[Settings],
    function: Callable[..., Any],
    theory: Callable[..., Any] | None = None,
) -> str:
    """Return a hash of all that decides what a row of the store means."""
    names = [None if f is None else f"{f.__module__}.{f.__qualname__}" for f in (function, theory)]
    text = json.dumps([names, [dict(cell) for cell in cells]], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _check_cells(cells: Sequence[Settings]) -> None:
    problems = []
    if not cells:
        problems.append("cells: there are none")
    reserved = sorted({name for cell in cells for name in cell} & RESERVED_COLUMNS)
    problems += [f"cells: the name {name!r} belongs to the store" for name in reserved]
    seen: dict[str, int] = {}
    for number, cell in enumerate(cells):
        first = seen.setdefault(json.dumps(dict(cell), sort_keys=True), number)
        if first != number:
            problems.append(f"cells: number {number} is the same as number {first}")
    if problems:
        raise StudyError("the study", problems)


def _sharing(cells: Sequence[Settings], theory: Callable[..., Any] | None) -> dict[int, list[int]]:
    """Map the first cell of each group that shares its theory to the whole group."""
    if theory is None:
        return {}
    ignored = getattr(theory, "ignores", ())
    groups: dict[str, list[int]] = {}
    for number, cell in enumerate(cells):
        key = {name: value for name, value in cell.items() if name not in ignored}
        groups.setdefault(json.dumps(key, sort_keys=True), []).append(number)
    return {group[0]: group for group in groups.values()}


def _jobs(
    writer: StoreWriter,
    cells: Sequence[Settings],
    function: Callable[..., Settings],
    theory: Callable[..., Settings] | None,
    sharing: Mapping[int, list[int]],
    trials: int,
    retry_failed: bool,
) -> Iterator[Job]:
    """Yield what the store lacks: first all theory, then one trial of every cell after another.

    In this order a sweep that is stopped early still covers the whole grid.
    """
    if theory is not None:
        known = writer.finished_theory(retry_failed=retry_failed)
        for first, group in sharing.items():
            if not known.issuperset(group):
                yield Job(first, None, theory, dict(cells[first]))
    done = bytearray(len(cells) * trials)
    for cell, trial in writer.finished(retry_failed=retry_failed):
        if trial < trials:
            done[cell * trials + trial] = 1
    for trial in range(trials):
        for cell, settings in enumerate(cells):
            if not done[cell * trials + trial]:
                yield Job(cell, trial, function, dict(settings))


@contextmanager
def _backend(workers: int, dask: str | None, executor: Executor | None) -> Iterator[Backend]:
    if executor is not None:
        yield Backend(executor, lambda: 4 * workers)
    elif dask is not None:
        with dask_backend(dask) as backend:
            yield backend
    else:
        local = LocalExecutor(workers)
        try:
            yield Backend(local, lambda: 4 * workers, (WorkerDied,))
        except BaseException:
            local.shutdown(cancel_futures=True)
            raise
        local.shutdown()


class _Tracker:
    """Save outcomes and tell how far the sweep is."""

    def __init__(
        self,
        writer: StoreWriter,
        sharing: Mapping[int, list[int]],
        progress: Callable[[Progress], None] | None,
    ) -> None:
        self._writer = writer
        self._sharing = sharing
        self._progress = progress
        self._start = time.monotonic()
        self._ran = 0
        self._next_report = self._start
        self.tick()

    def save(self, outcomes: list[Outcome]) -> None:
        """Store outcomes, those of theory for every cell that shares it."""
        rows = []
        for outcome in outcomes:
            group = [outcome.cell] if outcome.trial is not None else self._sharing[outcome.cell]
            rows += [outcome._replace(cell=cell) for cell in group]
        self._writer.save(rows)
        self._ran += sum(outcome.trial is not None for outcome in outcomes)

    def tick(self) -> None:
        """Report progress if it is time."""
        begin = time.monotonic()
        if self._progress is not None and begin >= self._next_report:
            self._progress(self.report())
            # Counting a large store takes a while; spend at most a twentieth of the time on it.
            took = time.monotonic() - begin
            self._next_report = begin + max(_REPORT_SECONDS, 20 * took)

    def report(self) -> Progress:
        """Count what is stored."""
        return Progress(self._writer.counts(), self._ran, time.monotonic() - self._start)
