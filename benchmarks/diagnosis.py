"""Estimates of `diagnose` on the Gaussian task, where the truth is known, with their coverage.

    python benchmarks/diagnosis.py [--draws 6] [--workers 2] [--store FILE.json]

A grid of strength θ, informative tokens R, length L and samples n, in d = 24 dimensions. For each draw
the estimates of θ, R and the effective dimension are compared with the truth in units of their
standard errors: correct ones have z-scores of mean 0 and deviation 1, within 1 in 68 % and within 2
in 95 % of the draws. "Seen" is the share of draws in which there is an estimate of the signal at all.
"""

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

import argparse
import json
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from sparsetoken import Task, sample
from sparsetoken.planning.signal_estimate import Tokens, estimate_signal

STRENGTHS, INFORMATIVE, LENGTHS, SAMPLES = (2.5, 3.5, 5.0), (1, 3), (10, 30), (200, 800)
DIMENSION = 24
NAMES = {"strength": "θ", "informative": "R", "effective_dimension": "effective dimension"}

Setting = tuple[float, int, int, int]


def estimated(setting: Setting, draw: int) -> dict[str, Any]:
    """Return estimates and standard errors from one draw; None where nothing is seen."""
    strength, informative, length, samples = setting
    rng = np.random.default_rng([draw, length, samples, informative, int(10 * strength)])
    drawn = sample(Task(length, informative, strength), samples, dimension=DIMENSION, rng=rng)
    values = drawn.X.reshape(-1, DIMENSION)
    values = (values - values.mean(axis=0)) / values.std(axis=0)
    tokens = Tokens(values, np.repeat(np.arange(samples), length), drawn.y > 0)
    found, _ = estimate_signal(tokens, splits=2, seed=0)
    bars = {f"{name}_uncertainty": found.uncertainty.get(name) for name in NAMES}
    return {
        "setting": setting,
        "draw": draw,
        **{name: getattr(found, name) for name in NAMES},
        **bars,
    }


def truth(setting: list[Any], name: str) -> float:
    known = {"strength": setting[0], "informative": setting[1], "effective_dimension": DIMENSION}
    return float(known[name])


def z_scores(records: list[dict[str, Any]], name: str) -> np.ndarray:
    return np.array(
        [
            (record[name] - truth(record["setting"], name)) / record[f"{name}_uncertainty"]
            for record in records
            if record[name] is not None
        ]
    )


def table(records: list[dict[str, Any]]) -> str:
    """Return a row for each value of each setting, the others pooled, and one for all."""
    lines = [
        "| draws with | seen | " + " | ".join(f"{n}: mean z, within 1, 2" for n in NAMES.values()),
        "|---|---|---|---|---|",
    ]
    groups: list[tuple[str, list[dict[str, Any]]]] = [
        (f"{symbol} = {value:g}", [r for r in records if r["setting"][place] == value])
        for place, (symbol, values) in enumerate(
            (("θ", STRENGTHS), ("R", INFORMATIVE), ("L", LENGTHS), ("n", SAMPLES))
        )
        for value in values
    ]
    for name, some in [*groups, ("all", records)]:
        if not some:
            continue
        cells = [f"{np.mean([r['strength'] is not None for r in some]):.2f}"]
        for quantity in NAMES:
            z = z_scores(some, quantity)
            within = [np.mean(np.abs(z) < bound) if len(z) else np.nan for bound in (1, 2)]
            mean = z.mean() if len(z) else np.nan
            cells.append(f"{mean:+.2f}, {within[0]:.2f}, {within[1]:.2f}")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def errors(records: list[dict[str, Any]]) -> str:
    """Return the median relative error and standard error of each quantity, where it is seen."""
    lines = []
    for name, shown in NAMES.items():
        some = [r for r in records if r[name] is not None]
        off = [abs(r[name] / truth(r["setting"], name) - 1) for r in some]
        bars = [r[f"{name}_uncertainty"] / truth(r["setting"], name) for r in some]
        lines.append(
            f"{shown}: off by {np.median(off):.1%}, standard error {np.median(bars):.1%} (medians)"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=6, help="of each setting")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--store", type=Path, help="keep estimates here, and go on from them")
    options = parser.parse_args()
    records: list[dict[str, Any]] = []
    if options.store and options.store.exists():
        records = json.loads(options.store.read_text())
    done = {(tuple(r["setting"]), r["draw"]) for r in records}
    jobs = [
        (setting, draw)
        for draw in range(options.draws)
        for setting in product(STRENGTHS, INFORMATIVE, LENGTHS, SAMPLES)
        if (setting, draw) not in done
    ]
    with ProcessPoolExecutor(options.workers) as pool:
        for count, record in enumerate(pool.map(estimated, *zip(*jobs, strict=True)), 1):
            records.append(record)
            if options.store:
                options.store.write_text(json.dumps(records))
            if count % 24 == 0:
                print(f"{count} of {len(jobs)}", flush=True)
    print(table(records))
    print(errors(records))


if __name__ == "__main__":
    main()
