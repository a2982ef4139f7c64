"""Estimates and reasons of `diagnose` where the truth is known.

    python benchmarks/diagnosis.py [--draws 6] [--workers 2] [--store FILE.json]
    python benchmarks/diagnosis.py --reasons [--draws 2] [--workers 2]

A grid of strength θ, informative tokens R, length L and samples n, in d = 24 dimensions. For each draw
the estimates of θ, R and the effective dimension are compared with the truth in units of their
standard errors: correct ones have z-scores of mean 0 and deviation 1, within 1 in 68 % and within 2
in 95 % of the draws. "Seen" is the share of draws in which there is an estimate of the signal at all.

With `--reasons` each of the six reasons is put into data on purpose, in three tasks that were not used to
design it, and the table tells the main reason that `diagnose` names ("attention pays" apart, which is no
reason).
"""

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

import argparse
import json
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from sparsetoken import AttentionClassifier, Task, diagnose, sample
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


Drawn = tuple[np.ndarray, np.ndarray]


def gaussian(task: Task, samples: int, dimension: int, rng: np.random.Generator) -> Drawn:
    drawn = sample(task, samples, dimension=dimension, rng=rng)
    return drawn.X, drawn.y


def dense(
    length: int, strength: float, samples: int, dimension: int, rng: np.random.Generator
) -> Drawn:
    """Draw sequences whose tokens are all shifted, or none."""
    y = rng.random(samples) < 0.5
    signal = strength * rng.standard_normal(dimension) / np.sqrt(dimension)
    return rng.standard_normal((samples, length, dimension)) + y[:, None, None] * signal, y


def shuffled(draw: Callable[[np.random.Generator], Drawn], rng: np.random.Generator) -> Drawn:
    X, y = draw(rng)
    return X, rng.permutation(y)


def two_steps(**settings: Any) -> AttentionClassifier:
    return AttentionClassifier(refine=False, tied=False, random_state=0, **settings)


# Reason: what is drawn, and attention with settings that cause it.
REASONS: dict[str, list[tuple[str, Callable[[np.random.Generator], Drawn], Any]]] = {
    "too few samples": [
        ("L=15 θ=4.5 d=80, n=70", partial(gaussian, Task(15, 1, 4.5), 70, 80), None),
        ("L=40 θ=5 d=150, n=60", partial(gaussian, Task(40, 1, 5.0), 60, 150), None),
        ("L=12 R=2 θ=3 d=120, n=100", partial(gaussian, Task(12, 2, 3.0), 100, 120), None),
    ],
    "the signal is too weak": [
        ("L=25 θ=1.5 d=8, n=1500", partial(gaussian, Task(25, 1, 1.5), 1500, 8), None),
        ("L=60 θ=2.2 d=10, n=1000", partial(gaussian, Task(60, 1, 2.2), 1000, 10), None),
        ("L=12 θ=1.3 d=6, n=1200", partial(gaussian, Task(12, 1, 1.3), 1200, 6), None),
    ],
    "attention is too soft": [
        ("L=25 θ=5, κ=0.1", partial(gaussian, Task(25, 1, 5.0), 500, 20), two_steps(sharpness=0.1)),
        ("L=50 θ=5, κ=0.2", partial(gaussian, Task(50, 1, 5.0), 400, 10), two_steps(sharpness=0.2)),
        (
            "L=40 R=2 θ=4.5, κ=0.1",
            partial(gaussian, Task(40, 2, 4.5), 500, 16),
            two_steps(sharpness=0.1),
        ),
    ],
    "the query is misaligned": [
        (
            "L=25 θ=5, 3 % for it",
            partial(gaussian, Task(25, 1, 5.0), 600, 30),
            two_steps(split=0.03),
        ),
        (
            "L=15 θ=4.5, 2 % for it",
            partial(gaussian, Task(15, 1, 4.5), 900, 32),
            two_steps(split=0.02),
        ),
        (
            "L=20 R=2 θ=4, 3 % for it",
            partial(gaussian, Task(20, 2, 4.0), 600, 40),
            two_steps(split=0.03),
        ),
    ],
    "the signal is not sparse": [
        ("all of 10 tokens, θ=0.7", partial(dense, 10, 0.7, 400, 16), None),
        ("7 of 8 tokens, θ=1.2", partial(gaussian, Task(8, 7, 1.2), 400, 12), None),
        ("all of 25 tokens, θ=0.4", partial(dense, 25, 0.4, 500, 10), None),
    ],
    "nothing to tell the classes apart": [
        (
            "labels shuffled, L=15 θ=5",
            partial(shuffled, partial(gaussian, Task(15, 1, 5.0), 500, 16)),
            None,
        ),
        (
            "labels shuffled, all of 10 tokens",
            partial(shuffled, partial(dense, 10, 0.7, 500, 12)),
            None,
        ),
        ("no signal, L=12", partial(gaussian, Task(12, 1, 0.0), 400, 16), None),
    ],
}


def reason_named(reason: str, place: int, draw: int) -> str:
    _, drawn, attention = REASONS[reason][place]
    rng = np.random.default_rng([draw, place, list(REASONS).index(reason), 2])
    found = diagnose(*drawn(rng), attention=attention)
    causes = [finding.cause for finding in found.findings if finding.cause != "attention pays"]
    return causes[0] if causes else "attention pays"


def reasons_table(draws: int, workers: int) -> str:
    """Return how often the reason that was put into the data is the main one that is named."""
    jobs = [
        (reason, place, draw)
        for reason, cases in REASONS.items()
        for place in range(len(cases))
        for draw in range(draws)
    ]
    with ProcessPoolExecutor(workers) as pool:
        named = dict(zip(jobs, pool.map(reason_named, *zip(*jobs, strict=True)), strict=True))
    lines = ["| reason in the data | task | right | otherwise |", "|---|---|---|---|"]
    for reason, cases in REASONS.items():
        for place, (text, _, _) in enumerate(cases):
            found = [named[reason, place, draw] for draw in range(draws)]
            others = ", ".join(sorted({cause for cause in found if cause != reason}))
            lines.append(f"| {reason} | {text} | {found.count(reason)} of {draws} | {others} |")
    right = sum(cause == reason for (reason, _, _), cause in named.items())
    return "\n".join([*lines, f"right: {right} of {len(jobs)}"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=6, help="of each setting")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--store", type=Path, help="keep estimates here, and go on from them")
    parser.add_argument("--reasons", action="store_true", help="which reasons are named")
    options = parser.parse_args()
    if options.reasons:
        print(reasons_table(options.draws, options.workers))
        return
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
