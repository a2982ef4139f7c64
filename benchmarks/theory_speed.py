"""Time the theory on one thread, and compare it with a straightforward scipy version.

    python benchmarks/theory_speed.py [--repeats 3] [--json]

CPU seconds of the process, the best of several repeats. Each repeat draws its laws of features
anew, except in the rows that say so, which are one path. Each row has its target and a verdict.
"""

import argparse
import json
import os

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

import resource
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass

import numpy as np
from naive_theory import AGREEMENT, SOLVERS, agree, naive_predict

from sparsetoken import Prediction, Query, Task, Training, curve, oracle, predict
from sparsetoken.numerics.memory import path_memory

TASK = Task(length=10, informative=1, strength=5.0)
TRAINING = Training(alpha0=4.0, alpha1=2.0)
ALPHAS = np.geomspace(0.2, 10, 20)
QUERY = Query(alignment=0.9, sharpness=1.5)
LENGTHS = (10, 100, 1000, 10_000)
LONG = Task(length=10**6, informative=1, strength=5.0)


@dataclass(frozen=True)
class Row:
    """A measurement: a value that must be at most (or at least) its target."""

    name: str
    value: float
    unit: str
    target: float | None = None
    at_least: bool = False

    @property
    def verdict(self) -> str:
        """Whether the target is reached; empty without one."""
        if self.target is None:
            return ""
        good = self.value >= self.target if self.at_least else self.value <= self.target
        return "reached" if good else "not reached"

    def as_table_row(self) -> str:
        """Return the row in Markdown."""
        sign = ">=" if self.at_least else "<="
        target = "" if self.target is None else f"{sign} {self.target:g} {self.unit}"
        return f"| {self.name} | {self.value:.3g} {self.unit} | {target} | {self.verdict} |"


def seconds(function: Callable[[], object], repeats: int, keep: bool = False) -> float:
    """Return the least CPU time of a call, without the laws of calls before unless `keep`."""
    times = []
    with path_memory() if keep else nullcontext():
        for _ in range(repeats):
            begin = time.process_time()
            function()
            times.append(time.process_time() - begin)
    return min(times)


def learning_curve(
    task: Task, classifier: str = "attention", query: Query | None = None
) -> list[Prediction]:
    return curve(task, TRAINING, over="alpha1", values=ALPHAS, classifier=classifier, query=query)


def oracles() -> list[Row]:
    """Time the oracles first: the peak memory is that of the whole process so far."""
    rows = []
    for classifier in ("attention", "bayes", "elementwise"):
        spent = seconds(
            lambda classifier=classifier: oracle(LONG, classifier=classifier), repeats=1
        )
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        rows.append(Row(f"oracle, {classifier}, L = 10^6", spent, "s", 10))
        rows.append(Row(f"oracle, {classifier}, L = 10^6: peak memory", memory, "GB", 1))
    return rows


def curves(repeats: int) -> list[Row]:
    rows = []
    for classifier, target in (("attention", 2.0), ("pooled", 0.1), ("vectorised", 0.1)):
        spent = seconds(lambda classifier=classifier: learning_curve(TASK, classifier), repeats)
        rows.append(Row(f"20-point curve, {classifier}, L = 10", spent, "s", target))
    spent = seconds(lambda: learning_curve(TASK, query=QUERY), repeats)
    rows.append(Row("20-point curve, attention with a given query, L = 10", spent, "s", 2.0))
    return rows


def lengths(repeats: int) -> list[Row]:
    rows = []
    for name, query in (("learnt query", None), ("given query", QUERY)):
        spent = [
            seconds(
                lambda length=length, query=query: learning_curve(
                    TASK.replace(length=length), query=query
                ),
                repeats,
            )
            for length in LENGTHS
        ]
        rows += [
            Row(f"attention curve, {name}, L = {length} over L = 10", value / spent[0], "x", 3)
            for length, value in zip(LENGTHS[1:], spent[1:], strict=True)
        ]
    return rows


def reuse(repeats: int) -> list[Row]:
    first = seconds(lambda: predict(TASK, TRAINING), repeats)
    again = seconds(lambda: predict(TASK, TRAINING), repeats, keep=True)
    return [
        Row("attention predict, first call", first, "s"),
        Row("attention predict, first over repeated call", first / again, "x"),
    ]


def against_naive(repeats: int) -> list[Row]:
    own = seconds(lambda: predict(TASK, TRAINING, classifier="pooled"), 20 * repeats)
    path = seconds(lambda: learning_curve(TASK, "pooled"), repeats) / len(ALPHAS)
    rows = [
        Row("pooled predict", own * 1e3, "ms"),
        Row("pooled curve, per point", path * 1e3, "ms"),
    ]
    for solver in SOLVERS:
        difference = agree(TASK, TRAINING, solver)
        naive = seconds(lambda solver=solver: naive_predict(TASK, TRAINING, solver), 1)
        rows += [
            Row(f"naive pooled predict, {solver}", naive, "s"),
            Row(f"naive ({solver}): largest difference", difference, "", AGREEMENT),
            Row(f"naive ({solver}) over pooled predict", naive / own, "x", 1000, at_least=True),
            Row(f"naive ({solver}) over a point of a pooled curve", naive / path, "x"),
        ]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="Print JSON instead of a table.")
    options = parser.parse_args()
    repeats = options.repeats
    rows = oracles() + curves(repeats) + lengths(repeats) + reuse(repeats) + against_naive(repeats)
    if options.json:
        print(json.dumps([{**asdict(row), "verdict": row.verdict} for row in rows], indent=2))
        return
    print("| measurement | value | target | verdict |\n|---|---|---|---|")
    for row in rows:
        print(row.as_table_row())


if __name__ == "__main__":
    main()
