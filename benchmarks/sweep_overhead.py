"""What a sweep costs beside its trials, and how a large store behaves.

Run as ``python benchmarks/sweep_overhead.py [--rows 1000000]``. It prints

- the time per trial with trials that do nothing, for one and two local workers (wanted: <= 10 ms);
- how much faster two workers are than one on trials that keep a core busy (wanted: 1.8 on 2 free
  cores);
- the time of `status` (wanted: < 2 s) and the rates of `export` (wanted: >= 10⁵ rows a second) on
  a store of --rows trials.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sparsetoken.sweeps import Store, parse_study, run_cells
from sparsetoken.sweeps.export import FORMATS
from sparsetoken.sweeps.run import study_fingerprint
from sparsetoken.sweeps.writer import StoredRow, StoreWriter

CELLS = [{"slope": float(slope)} for slope in range(10)]

STUDY = """
trials = {trials}
dimensions = 100
[task]
length = 10
informative = 1
strength = {{ from = 1, to = 5, count = 100 }}
[training]
alpha0 = 8
alpha1 = {{ from = 1, to = 8, count = 10 }}
"""


def nothing(_settings: dict[str, Any], _trial: int) -> dict[str, Any]:
    return {}


def busy(_settings: dict[str, Any], _trial: int) -> dict[str, Any]:
    """Take 0.1 s of processor time."""
    start = time.process_time()
    while time.process_time() - start < 0.1:
        pass
    return {}


def seconds_per_trial(folder: Path, function: Callable[..., Any], workers: int, each: int) -> float:
    """Return the time per trial once the workers run, from the rate between two reports."""
    reports: list[tuple[float, int]] = []
    run_cells(
        CELLS,
        folder / f"{function.__name__}-{workers}.sqlite",
        function=function,
        trials=each,
        workers=workers,
        progress=lambda now: reports.append((now.seconds, now.ran)),
    )
    begun = [report for report in reports if report[1] > 0]
    (start, before), (end, after) = begun[0], begun[-1]
    return (end - start) / (after - before)


def fill(path: Path, study: Any, rows: int) -> None:
    """Make a store with random results, as large as those of real trials."""
    rng = random.Random(0)
    columns = tuple(f"field_{number}" for number in range(12))
    cells = study.cells()
    each = rows // len(cells)
    with StoreWriter(path, study_fingerprint(study), cells, each) as store:
        for cell in range(len(cells)):
            outcomes = []
            for trial in range(each):
                result = json.dumps({name: rng.random() for name in columns}, separators=(",", ":"))
                outcomes.append(StoredRow(cell, trial, result, None, columns, 1, 0.1))
            store.save(outcomes)


def timed(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for workers in (1, 2):
            cost = seconds_per_trial(folder, nothing, workers, 1000)
            print(f"overhead with {workers} worker(s): {1000 * cost:.2f} ms a trial", flush=True)
        one, two = (seconds_per_trial(folder, busy, workers, 10) for workers in (1, 2))
        print(f"two workers are {one / two:.2f} times as fast as one (0.1 s trials)", flush=True)
        text = STUDY.format(trials=rows // 1000)
        (folder / "large.toml").write_text(text)
        path = folder / "large.sqlite"
        took = timed(lambda: fill(path, parse_study(text), rows))
        size = path.stat().st_size / 2**20
        print(f"store of {rows} trials: {size:.0f} MiB, filled in {took:.1f} s", flush=True)
        command = [sys.executable, "-m", "sparsetoken", "sweep", "status", folder / "large.toml"]
        took = timed(lambda: subprocess.run(command, check=True))
        print(f"status: {took:.2f} s for the whole command", flush=True)
        for kind, write in FORMATS.items():
            with Store(path) as store:
                took = timed(lambda: write(store, folder / "out"))  # noqa: B023
            print(f"export --{kind}: {rows / took:.0f} rows a second", flush=True)


if __name__ == "__main__":
    main()
