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
from sparsetoken.extensions import imported_extensions
from sparsetoken.limits import MOST_RETRIES, MOST_TRIALS, MOST_WORKERS
from sparsetoken.sweeps.cells import THEORY_IGNORES, predict_cell, simulate_trial
from sparsetoken.sweeps.cluster import dask_backend
from sparsetoken.sweeps.engine import Backend, Call, Engine
from sparsetoken.sweeps.errors import StudyError
from sparsetoken.sweeps.grid import Grid, Settings, Sharing, names_of, share
from sparsetoken.sweeps.local import LocalExecutor, WorkerDied
from sparsetoken.sweeps.spec import Study
from sparsetoken.sweeps.store import StudyCounts
from sparsetoken.sweeps.worker import RESERVED_COLUMNS
from sparsetoken.sweeps.writer import StoredRow, StoreWriter

__all__ = ["Progress", "fingerprint", "run_cells", "run_sweep", "study_fingerprint"]


_REPORT_SECONDS = 0.2


@dataclass(frozen=True)
class Progress:
    """How far a sweep is, and how fast.

    Attributes
    ----------
    counts : StudyCounts
        What the store holds.
    ran : int
        Trials that this run has finished, failed ones included.
    seconds : float
        Since this run began.
    note : str
        What a person should know of the workers now; empty as a rule.
    """

    counts: StudyCounts
    ran: int
    seconds: float
    note: str = ""

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
    """Run what is missing of a study.

    Parameters
    ----------
    study : Study
        What to compute, as `read_study` reads it.
    store : path
        The store, made if there is none. That of another study is refused.
    workers : int
        Local processes, or how many there are in the executor.
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
        How it ended.

    Examples
    --------
    >>> from sparsetoken import run_sweep
    >>> from sparsetoken.sweeps.spec import parse_study
    >>> study = parse_study('''
    ... classifiers = ["pooled"]
    ... dimensions = 20
    ... trials = 2
    ... task = {length = [4, 8], informative = 1, strength = 2}
    ... training = {alpha0 = 2, alpha1 = [2, 4]}
    ... ''')
    >>> run_sweep(study, "study.sqlite").counts.done
    8
    """
    validation.instance("study", study, Study)
    return run_cells(
        study.cells(),
        store,
        function=simulate_trial,
        trials=study.trials,
        theory=_theory(study),
        theory_ignores=THEORY_IGNORES if study.theory else (),
        imports=study.imports,
        workers=workers,
        dask=dask,
        executor=executor,
        retries=retries,
        retry_failed=retry_failed,
        progress=progress,
    )


def study_fingerprint(study: Study) -> str:
    """Return the fingerprint that a store of the study has."""
    return fingerprint(study.cells(), simulate_trial, _theory(study), study.imports)


def _theory(study: Study) -> Callable[[dict[str, Any]], Settings] | None:
    return predict_cell if study.theory else None


def run_cells(
    cells: Sequence[Settings],
    store: str | Path,
    *,
    function: Callable[[dict[str, Any], int], Settings],
    trials: int,
    theory: Callable[[dict[str, Any]], Settings] | None = None,
    theory_ignores: Sequence[str] = (),
    imports: Sequence[str] = (),
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
    cells : sequence of mappings
        The settings of each cell: names to what JSON can hold, all different.
    store : path
        The store, made if there is none. One made with other cells or functions is refused.
    function : callable
        Takes the settings of a cell and the number of the trial, and returns the results by name:
        numbers, texts, booleans or None (numbers that are not finite are stored as None). It must
        be importable in a worker process, and depend on its arguments alone.
    trials : int
        Trials of each cell. It may be changed when a sweep is resumed; those beyond a smaller
        number stay in the store and are not shown.
    theory : callable, optional
        Takes the settings and returns results that are stored once a cell.
    theory_ignores : sequence of str
        Settings that theory does not read: cells that differ in these alone share one call.
    imports : sequence of str
        Modules that worker processes import first, for what they register. So they do with those
        that `--import` or a study have imported here; these are not part of what the store is
        bound to.
    workers : int
        Local processes, or how many there are in the executor.
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

    Examples
    --------
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> from sparsetoken import run_cells
    >>> def half(settings, trial):
    ...     return {"value": settings["size"] / 2 + trial}
    >>> with ThreadPoolExecutor(1) as pool:
    ...     ended = run_cells(
    ...         [{"size": 4}], "half.sqlite", function=half, trials=2, executor=pool
    ...     )
    >>> ended.counts.done
    2
    """
    trials = validation.integer("trials", trials, low=0, high=MOST_TRIALS)
    retries = validation.integer("retries", retries, low=0, high=MOST_RETRIES)
    retry_failed = validation.boolean("retry_failed", retry_failed)
    validation.integer("workers", workers, low=1, high=MOST_WORKERS)
    validation.instance("executor", executor, Executor, optional=True)
    validation.callback("progress", progress)
    for name, given in (("function", function), ("theory", theory)):
        if not (callable(given) and hasattr(given, "__qualname__")) and (
            given is not None or name == "function"
        ):
            raise validation.ParameterError(name, given, "a function of a module")
    if executor is not None and dask is not None:
        raise validation.ParameterError(
            "dask", dask, "None beside an executor, which does the same work"
        )
    if dask is not None and workers != 1:
        raise validation.ParameterError("workers", workers, "1 beside dask, which has its own")
    imports = tuple(validation.several("imports", imports, "modules"))
    theory_ignores = tuple(validation.several("theory_ignores", theory_ignores, "settings"))
    if theory_ignores and theory is None:
        accepted = "none without theory, which alone could ignore settings"
        raise validation.ParameterError("theory_ignores", theory_ignores, accepted)
    store = validation.path("store", store)
    _check_cells(cells, trials)
    known_as = fingerprint(cells, function, theory, imports)
    with StoreWriter(store, known_as, cells, trials) as writer:
        sharing = share(cells, theory_ignores)
        with _backend(workers, dask, executor) as backend:
            tracker = _Tracker(writer, sharing, progress, backend.note)
            missing = _missing(writer, len(cells), theory, sharing, trials, retry_failed)
            work = {True: theory or function, False: function}
            # What a module has registered in this process, the others must know as well.
            known = tuple(dict.fromkeys((*imports, *imported_extensions())))
            calls = (
                Call(cell, trial, work[trial is None], dict(cells[cell]), known)
                for cell, trial in missing
            )
            Engine(backend, tracker.save, tracker.tick, retries).run(calls)
        return tracker.report()


def fingerprint(
    cells: Sequence[Settings],
    function: Callable[..., Any],
    theory: Callable[..., Any] | None = None,
    imports: Sequence[str] = (),
) -> str:
    """Return a hash of all that decides what a row of the store means."""
    names = [None if f is None else f"{f.__module__}.{f.__qualname__}" for f in (function, theory)]
    listed = cells.to_json() if isinstance(cells, Grid) else [dict(cell) for cell in cells]
    text = json.dumps([names, listed, list(imports)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _check_cells(cells: Any, trials: int) -> None:
    if not isinstance(cells, Grid):
        given: Any = cells
        if not (isinstance(given, Sequence) and all(isinstance(one, Mapping) for one in given)):
            accepted = "a list of dictionaries, the settings of each cell"
            raise validation.ParameterError("cells", cells, accepted)
    problems = []
    if not cells:
        problems.append("cells: there are none")
    reserved = sorted(RESERVED_COLUMNS.intersection(names_of(cells)))
    problems += [f"cells: the name {name!r} belongs to the store" for name in reserved]
    if len(cells) * trials > MOST_TRIALS:
        problems.append(
            f"trials: {trials} of each of {len(cells)} cells are more than {MOST_TRIALS}"
        )
    if not isinstance(cells, Grid):  # whose axes hold no value twice
        problems += _repetitions(cells)
    if problems:
        raise StudyError("the study", problems)


def _repetitions(cells: Sequence[Settings]) -> Iterator[str]:
    seen: dict[str, int] = {}
    for number, cell in enumerate(cells):
        first = seen.setdefault(json.dumps(dict(cell), sort_keys=True), number)
        if first != number:
            yield f"cells: number {number} is the same as number {first}"


def _missing(
    writer: StoreWriter,
    cells: int,
    theory: Callable[..., Settings] | None,
    sharing: Sharing,
    trials: int,
    retry_failed: bool,
) -> Iterator[tuple[int, int | None]]:
    """Yield (cell, trial) of what the store lacks, with None as the trial of a cell's theory.

    First all theory, then one trial of every cell after another: in this order a sweep that is
    stopped early still covers the whole grid.
    """
    if theory is not None:
        known = writer.finished_theory(retry_failed=retry_failed)
        for cell in range(cells):
            if sharing.first(cell) == cell and not known.issuperset(sharing.members(cell)):
                yield cell, None
    done = bytearray(cells * trials)
    for cell, trial in writer.finished(retry_failed=retry_failed):
        done[cell * trials + trial] = 1
    for trial in range(trials):
        for cell in range(cells):
            if not done[cell * trials + trial]:
                yield cell, trial


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
    """Save what has finished and tell how far the sweep is."""

    def __init__(
        self,
        writer: StoreWriter,
        sharing: Sharing,
        progress: Callable[[Progress], None] | None,
        note: Callable[[], str],
    ) -> None:
        self._writer = writer
        self._sharing = sharing
        self._progress = progress
        self._note = note
        self._start = time.monotonic()
        self._ran = 0
        self._next_report = self._start
        self.tick()

    def save(self, found: list[StoredRow]) -> None:
        """Store rows, those of theory for every cell that shares it."""
        rows: list[StoredRow] = []
        for row in found:
            cells = [row.cell] if row.trial is not None else self._sharing.members(row.cell)
            rows += [row._replace(cell=cell) for cell in cells]
        self._writer.save(rows)
        self._ran += sum(row.trial is not None for row in found)

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
        seconds = time.monotonic() - self._start
        return Progress(self._writer.counts(), self._ran, seconds, self._note())
