"""Time and memory of the reduced sampler, at d = 1000 and α0 = α1 = 4.

    python benchmarks/reduced_sampler.py

CPU seconds of one thread: set OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1. The results are in
benchmarks/README.md.
"""

import time
import tracemalloc
from collections.abc import Callable

import numpy as np

from sparsetoken import Task, Training, run_trial, sample
from sparsetoken.learning.stages import first_step, query_step
from sparsetoken.simulation.reduced import reduced_query

DIMENSION = 1000
TASK = Task(length=10, informative=1, strength=5.0, positive_rate=0.5)
TRAINING = Training(alpha0=4.0, alpha1=4.0, ridge=1e-5, query_step=20.0)


def plain_query(task: Task, rng: np.random.Generator) -> None:
    data = sample(task, 4 * DIMENSION, DIMENSION, rng)
    weights, bias = first_step(data.X, data.y, TRAINING)
    query_step(data.X, data.y, weights, bias, TRAINING)


def best_time(function: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        begin = time.process_time()
        function()
        times.append(time.process_time() - begin)
    return min(times)


def main() -> None:
    rng = np.random.default_rng(0)
    plain = best_time(lambda: plain_query(TASK, rng), 3)
    count = 4 * DIMENSION
    reduced = best_time(lambda: reduced_query(TASK, TRAINING, count, DIMENSION, rng), 20)
    print(
        f"Stages 1 to 3 at L = 10: plain {plain:.2f} s, reduced {1000 * reduced:.2f} ms, ", end=""
    )
    print(f"ratio {plain / reduced:.0f}", flush=True)
    print("\n| L | loss | one trial [s] | peak memory / (n1 × d matrix) |\n|---|---|---|---|")
    matrix = 8 * 4 * DIMENSION**2
    for loss, ridge in (("logistic", 1e-5), ("logistic", 1e-2), ("square", 1e-2)):
        for length in (10, 1000):
            task = TASK.replace(length=length)
            training = TRAINING.replace(loss=loss, ridge=ridge)
            numbers = iter(range(10))
            seconds = best_time(
                lambda task=task, training=training, numbers=numbers: run_trial(
                    task, training, DIMENSION, next(numbers)
                ),
                3,
            )
            tracemalloc.start()
            run_trial(task, training, DIMENSION, 0)
            peak = tracemalloc.get_traced_memory()[1] / matrix
            tracemalloc.stop()
            print(f"| {length} | {loss}, λ={ridge:g} | {seconds:.2f} | {peak:.2f} |", flush=True)


if __name__ == "__main__":
    main()
