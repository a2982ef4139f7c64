"""Time and memory of the reduced sampler, at d = 1000 and α0 = 4; times at α1 = 4.

    python benchmarks/reduced_sampler.py

CPU seconds of one thread: set OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1. The results are in
benchmarks/README.md.
"""

import time
import tracemalloc
from collections.abc import Callable
from statistics import fmean

import numpy as np

from sparsetoken import Task, Training, run_trial, sample
from sparsetoken.learning.stages import first_step, query_step
from sparsetoken.simulation.reduced import reduced_query

DIMENSION = 1000
TRIALS = 5
RATIOS = (0.25, 0.5, 0.75, 1.0, 1.33, 2.0, 4.0)
TASK = Task(length=10, informative=1, strength=5.0, positive_rate=0.5)
TRAINING = Training(alpha0=4.0, alpha1=4.0, ridge=1e-5, query_step=20.0)


def plain_query(task: Task, rng: np.random.Generator) -> None:
    data = sample(task, 4 * DIMENSION, dimension=DIMENSION, rng=rng)
    weights, bias = first_step(data.X, data.y, TRAINING)
    query_step(data.X, data.y, weights, bias, TRAINING)


def best_time(function: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        begin = time.process_time()
        function()
        times.append(time.process_time() - begin)
    return min(times)


def stages() -> None:
    rng = np.random.default_rng(0)
    plain = best_time(lambda: plain_query(TASK, rng), 3)
    count = 4 * DIMENSION
    reduced = best_time(lambda: reduced_query(TASK, TRAINING, count, DIMENSION, rng), 20)
    print(
        f"Stages 1 to 3 at L = 10: plain {plain:.2f} s, reduced {1000 * reduced:.2f} ms, ", end=""
    )
    print(f"ratio {plain / reduced:.0f}\n", flush=True)


def times() -> None:
    print("| loss | L=10 [s] | L=1000 [s] | ratio |\n|---|---|---|---|")
    for loss, ridge in (("logistic", 1e-5), ("logistic", 1e-2), ("square", 1e-2)):
        training = TRAINING.replace(loss=loss, ridge=ridge)
        short, long = (trial_time(TASK.replace(length=L), training) for L in (10, 1000))
        print(
            f"| {loss}, ridge {ridge:g} | {short:.3f} | {long:.3f} | {long / short:.2f} |",
            flush=True,
        )


def trial_time(task: Task, training: Training) -> float:
    """Return the mean over trials, since some take more steps, of the best time of each."""
    run_trial(task, training, dimension=10, trial=0)  # what is cached once is not counted
    return fmean(
        best_time(
            lambda number=number: run_trial(task, training, dimension=DIMENSION, trial=number), 3
        )
        for number in range(TRIALS)
    )


def memory() -> None:
    print("\n| loss, α1 = | " + " | ".join(f"{ratio:g}" for ratio in RATIOS) + " |")
    print("|---" * (1 + len(RATIOS)) + "|")
    for loss in ("logistic", "square", "squared_hinge", "hinge"):
        for ridge in (0.0, 1e-5, 1e-2):
            peaks = (
                peak_memory(TASK, TRAINING.replace(loss=loss, ridge=ridge, alpha1=ratio))
                for ratio in RATIOS
            )
            row = " | ".join(f"{peak:.2f}" for peak in peaks)
            print(f"| {loss}, ridge {ridge:g} | {row} |", flush=True)


def peak_memory(task: Task, training: Training) -> float:
    """Return the peak of a trial over the memory of an n1 × d matrix."""
    tracemalloc.start()
    run_trial(task, training, dimension=DIMENSION, trial=0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / (8 * round(training.alpha1 * DIMENSION) * DIMENSION)


def main() -> None:
    stages()
    times()
    memory()


if __name__ == "__main__":
    main()
