"""Measure and judge claims, on the sweep engine, so that a run goes on where it stopped."""

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparsetoken import __version__
from sparsetoken.reproduce.claim import Claim, Drawing, Job, Result, Settings, Table, Verdict
from sparsetoken.reproduce.execution import run_cell
from sparsetoken.reproduce.jobs import tabulate
from sparsetoken.sweeps import Progress, Store, run_cells
from sparsetoken.sweeps.errors import SweepError

__all__ = ["Finding", "JobsFailed", "examine", "measure", "settings_of"]


class JobsFailed(RuntimeError):
    """Some of a claim's jobs raised an error, so that it cannot be judged."""


@dataclass(frozen=True)
class Finding:
    """What came of one claim. Either `error` says what broke, or all else is there."""

    claim: Claim
    settings: Settings
    seconds: float
    table: Table | None = None
    verdict: Verdict | None = None
    drawings: dict[str, Drawing] | None = None
    error: str | None = None


def settings_of(claim: Claim, profile: str, seed: int) -> Settings:
    """Return the claim's settings in a profile, with the seed of the simulation."""
    return {**claim.settings[profile], "seed": seed}


def examine(claim: Claim, settings: Settings, folder: Path, **options: Any) -> Finding:
    """Measure, judge and draw one claim. An error becomes part of the finding.

    The parameters are those of `measure`.
    """
    begin = time.perf_counter()
    try:
        table = measure(claim, settings, folder, **options)
        verdict, drawings = claim.judge(table), claim.figures(table)
    except (JobsFailed, SweepError, ArithmeticError, LookupError, ValueError, TypeError) as error:
        message = f"{type(error).__name__}: {error}"
        return Finding(claim, settings, time.perf_counter() - begin, error=message)
    return Finding(claim, settings, time.perf_counter() - begin, table, verdict, drawings)


def measure(
    claim: Claim,
    settings: Settings,
    folder: Path,
    *,
    workers: int = 1,
    executor: Executor | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Table:
    """Do the claim's jobs that no earlier run has done, and tabulate the results of all.

    Parameters
    ----------
    claim : Claim
    settings : mapping
        From `settings_of`.
    folder : path
        Where the stores of finished jobs are kept.
    workers : int
        Processes to share the work.
    executor : Executor, optional
        What runs the jobs; local processes if not given.
    progress : callable, optional
        Called as progress(finished, jobs).
    """
    jobs = claim.jobs(settings)
    unique = {job.key: job for job in jobs}
    cells = [{"kind": job.kind, "arguments": dict(job.arguments)} for job in unique.values()]
    path = _store_path(claim, list(unique), folder)
    path.parent.mkdir(parents=True, exist_ok=True)

    def report(state: Progress) -> None:
        if progress is not None:
            progress(state.counts.done + state.counts.failed, len(cells))

    # Jobs depend on nothing but their arguments: to try a failed one again cannot help.
    run_cells(
        path,
        cells,
        run_cell,
        trials=1,
        workers=workers,
        executor=executor,
        retries=0,
        retry_failed=True,
        progress=report,
    )
    return tabulate(jobs, _results(path, jobs, list(unique)), settings)


def _results(path: Path, jobs: Sequence[Job], keys: Sequence[str]) -> list[Result]:
    results: dict[str, Result] = {}
    with Store(path) as store:
        failures = store.errors(3)
        if failures:
            told = "; ".join(
                f"{keys[cell]}: {str(error).strip().splitlines()[-1]}"
                for cell, _, error in failures
            )
            raise JobsFailed(f"{store.counts().failed} of {len(keys)} jobs failed: {told}")
        for cell, _, result, *_ in store.trials():
            found: dict[str, Any] = json.loads(result or "{}")
            results[keys[cell]] = {name: float(value) for name, value in found.items()}
    return [results[job.key] for job in jobs]


def _store_path(claim: Claim, keys: Sequence[str], folder: Path) -> Path:
    # A store belongs to its jobs and to a version of the package: changed ones get a new store.
    digest = hashlib.sha256(json.dumps([__version__, keys]).encode()).hexdigest()
    return folder / f"{claim.stem}-{digest[:12]}.sqlite"
