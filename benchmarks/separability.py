"""Time the separability certificate against scipy's HiGHS linear program on the same data.

    python benchmarks/separability.py [--dimension 1000] [--samples 2000]

Pure noise has its capacity at n = 2d, the hardest place; half and twice as many samples are shown
beside it. CPU seconds of one thread: set OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1.
"""

import argparse
import time

import numpy as np
from scipy.optimize import linprog

from sparsetoken import separability


def linear_program(features: np.ndarray, labels: np.ndarray) -> bool:
    n, d = features.shape
    signed = labels[:, None] * np.column_stack([features, np.ones(n)])
    found = linprog(
        np.zeros(d + 1),
        A_ub=-signed,
        b_ub=-np.ones(n),
        bounds=[(None, None)] * (d + 1),
        method="highs",
    )
    return found.status == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dimension", type=int, default=1000)
    parser.add_argument("--samples", type=int, nargs="+", default=[1000, 2000, 4000])
    parser.add_argument("--no-program", action="store_true", help="Time the certificate alone.")
    options = parser.parse_args()
    print("| n | d | separable | certificate [s] | steps | residual | HiGHS [s] | ratio |")
    print("|---|---|---|---|---|---|---|---|")
    for n in options.samples:
        rng = np.random.default_rng(n)
        features = rng.standard_normal((n, options.dimension))
        labels = np.where(rng.random(n) < 0.5, 1, -1)
        begin = time.process_time()
        verdict = separability(features, labels)
        own = time.process_time() - begin
        row = f"| {n} | {options.dimension} | {verdict.separable} | {own:.2f} | {verdict.solution.steps} "
        row += f"| {verdict.solution.residual:.1e} "
        if options.no_program:
            print(row + "| | |", flush=True)
            continue
        begin = time.process_time()
        agreed = linear_program(features, labels)
        other = time.process_time() - begin
        assert agreed == verdict.separable
        print(row + f"| {other:.1f} | {other / own:.0f} |", flush=True)


if __name__ == "__main__":
    main()
