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
from sparsetoken.reproduce.claim import Claim, Drawing, Result, Settings, Table, Verdict
from sparsetoken.reproduce.measurement import Measurement, compute_cell, tabulate
from sparsetoken.sweeps import Progress, Store, run_cells
from sparsetoken.sweeps.errors import SweepError

__all__ = ["Examination", "MeasurementsFailed", "examine", "measure", "settings_of"]


class MeasurementsFailed(RuntimeError):
    """Some of a claim's measurements raised an error, so that it cannot be judged."""


@dataclass(frozen=True)
class Examination:
    """What came of one claim. Either `error` says what broke, or all else is there.

    What was not measured has a verdict, but neither table nor drawings.
    """

    claim: Claim
    settings: Settings
    seconds: float
    table: Table | None = None
    verdict: Verdict | None = None
    drawings: dict[str, Drawing] | None = None
    error: str | None = None

    @property
    def ruling(self) -> str:
        """What became of the claim in one word: its verdict's ruling, or "broken"."""
        return self.verdict.ruling if self.verdict else "broken"


def settings_of(claim: Claim, profile: str, seed: int) -> Settings:
    """Return the claim's settings in a profile, with the seed of the simulation."""
    return {**claim.settings[profile], "seed": seed}


def examine(claim: Claim, settings: Settings, folder: Path, **options: Any) -> Examination:
    """Measure, judge and draw one claim. An error becomes part of the finding.

    Without a package that it needs, the verdict is "not measured" and says what to install. The
    parameters are those of `measure`.
    """
    begin = time.perf_counter()
    missing = claim.missing()
    if missing:
        return Examination(claim, settings, 0.0, verdict=Verdict("not measured", missing))
    try:
        table = measure(claim, settings, folder, **options)
        verdict, drawings = claim.judge(table), claim.figures(table)
    except (
        MeasurementsFailed,
        SweepError,
        ArithmeticError,
        LookupError,
        ValueError,
        TypeError,
    ) as error:
        message = f"{type(error).__name__}: {error}"
        return Examination(claim, settings, time.perf_counter() - begin, error=message)
    return Examination(claim, settings, time.perf_counter() - begin, table, verdict, drawings)


def measure(
    claim: Claim,
    settings: Settings,
    folder: Path,
    *,
    workers: int = 1,
    executor: Executor | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Table:
    """Compute what no earlier run has of the claim's measurements, and tabulate all of them.

    Parameters
    ----------
    claim : Claim
    settings : mapping
        From `settings_of`.
    folder : path
        Where the stores of finished measurements are kept.
    workers : int
        Processes to share the work.
    executor : Executor, optional
        What computes them; local processes if not given.
    progress : callable, optional
        Called as progress(finished, all).
    """
    asked = claim.measurements(settings)
    unique = {measurement.key: measurement for measurement in asked}
    cells = [measurement.cell for measurement in unique.values()]
    path = _store_path(claim, list(unique), folder)
    path.parent.mkdir(parents=True, exist_ok=True)

    def report(state: Progress) -> None:
        if progress is not None:
            progress(state.counts.done + state.counts.failed, len(cells))

    # They depend on nothing but their arguments: to try a failed one again cannot help.
    run_cells(
        cells,
        path,
        function=compute_cell,
        trials=1,
        workers=workers,
        executor=executor,
        retries=0,
        retry_failed=True,
        progress=report,
    )
    return tabulate(asked, _results(path, asked, list(unique)), settings)


def _results(path: Path, asked: Sequence[Measurement], keys: Sequence[str]) -> list[Result]:
    results: dict[str, Result] = {}
    with Store(path) as store:
        failures = store.errors(3)
        if failures:
            told = "; ".join(
                f"{keys[cell]}: {str(error).strip().splitlines()[-1]}"
                for cell, _, error in failures
            )
            raise MeasurementsFailed(
                f"{store.counts().failed} of {len(keys)} measurements failed: {told}"
            )
        for cell, _, result, *_ in store.trials():
            found: dict[str, Any] = json.loads(result or "{}")
            results[keys[cell]] = {name: float(value) for name, value in found.items()}
    return [results[measurement.key] for measurement in asked]


def _store_path(claim: Claim, keys: Sequence[str], folder: Path) -> Path:
    # A store belongs to its measurements and to a version of the package: others get a new store.
    digest = hashlib.sha256(json.dumps([__version__, keys]).encode()).hexdigest()
    return folder / f"{claim.stem}-{digest[:12]}.sqlite"
