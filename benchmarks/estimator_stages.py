"""Cost of the estimators' first stages, and of a fit on a memory map larger than memory allows.

python benchmarks/estimator_stages.py speed     # stages 1 to 3 against their matrix products
python benchmarks/estimator_stages.py memory    # n = 100,000, L = 50, d = 64 as a memory map
python benchmarks/estimator_stages.py cluster --folder DATA --count 1000000
                                                # files of 50 × 64, on one and two Dask workers,
                                                # and with one of them killed
"""

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

import argparse
import hashlib
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from sparsetoken import AttentionClassifier, get_loss
from sparsetoken.estimators.query import balanced_weights, first_coefficients, query_pass
from sparsetoken.estimators.scaling import first_pass
from sparsetoken.estimators.sequences import as_sequences


def draw(count: int, length: int, dimension: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return bags with one token of each positive moved by 5 along the first axis."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((count, length, dimension), dtype=np.float32)
    y = rng.permutation(np.arange(count) % 2)
    rows = np.flatnonzero(y)
    X[rows, rng.integers(length, size=len(rows)), 0] += 5
    return X, y


def speed() -> None:
    print("shape, milliseconds of three matrix products and of stages 1 to 3, ratio of speeds")
    X, y = draw(8000, 50, 64, 0)
    report("n = 8000, L = 50, d = 64, float32 (goal: at least 0.50)", X, y)
    report("the same, all tokens moved by 5", X + np.float32(5), y)
    report("the same, float64", X.astype(float), y)
    lengths = np.random.default_rng(0).integers(1, 100, size=len(X))
    stacked = X.reshape(-1, X.shape[2])[: lengths.sum()]
    bags = np.split(stacked, np.cumsum(lengths)[:-1])
    report("the same, 1 to 99 tokens, a list", bags, y, stacked)
    report("n = 10000, L = 10, d = 256, float32", *draw(10_000, 10, 256, 0))
    report("n = 8000, L = 200, d = 16, float32", *draw(8000, 200, 16, 0))


def report(name: str, X: Any, y: np.ndarray, stacked: np.ndarray | None = None) -> None:
    """Print the times for X; `stacked` is the memory that holds a list's tokens."""
    labels, loss = 2.0 * y[None] - 1, get_loss("logistic")
    weights = np.full((1, len(X)), 1 / len(X))
    # The same memory, not a copy: two copies would drive each other out of the cache.
    tokens = X.reshape(-1, X.shape[2]) if stacked is None else stacked
    row, column = np.ones(len(tokens), tokens.dtype), np.ones(tokens.shape[1], tokens.dtype)

    def products() -> None:
        row @ tokens  # Σ y f̄
        tokens @ column  # X w
        row @ tokens  # Σ h Xᵀ P X w

    def stages() -> None:
        sequences = as_sequences(X)
        coefficients = first_coefficients(labels, balanced_weights(labels, weights), loss)
        scaler, firsts = first_pass(sequences, weights[0], coefficients)
        query_pass(sequences, labels, weights, scaler, firsts, loss)

    bare, ours = best_of(products, stages)
    print(f"{name}: {1e3 * bare:.1f}, {1e3 * ours:.1f}, {bare / ours:.2f}", flush=True)


def best_of(*calls: Callable[[], Any], repeats: int = 50) -> list[float]:
    """Return the least CPU seconds of each call; they take turns, to meet the same conditions."""
    times = np.empty((repeats, len(calls)))
    for repeat in range(repeats):
        for index, call in enumerate(calls):
            start = time.process_time()
            call()
            times[repeat, index] = time.process_time() - start
    return [float(least) for least in times.min(axis=0)]


def memory() -> None:
    # Processes of their own: a process starts with the peak of the one that started it.
    with tempfile.TemporaryDirectory() as folder:
        for step in ("write", "fit"):
            subprocess.run([sys.executable, __file__, step, folder], check=True)


def write(folder: str, count: int = 100_000, length: int = 50, dimension: int = 64) -> None:
    path = Path(folder) / "X.npy"
    mapped = np.lib.format.open_memmap(path, "w+", np.float32, (count, length, dimension))
    labels = []
    for start in range(0, count, 10_000):
        part, y = draw(min(10_000, count - start), length, dimension, start)
        mapped[start : start + len(part)] = part
        labels.append(y)
    mapped.flush()
    np.save(Path(folder) / "y.npy", np.concatenate(labels))
    print(f"memory map of {mapped.nbytes / 1e9:.2f} GB")


def fit(folder: str) -> None:
    X = np.load(Path(folder) / "X.npy", mmap_mode="r")
    y = np.load(Path(folder) / "y.npy")
    start = time.perf_counter()
    model = AttentionClassifier(random_state=0).fit(X, y)
    seconds = time.perf_counter() - start
    accuracy = model.score(X, y)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"fit in {seconds:.0f} s, {model.n_iter_} iterations, accuracy {accuracy:.3f}")
    print(f"peak resident memory {peak / 1e9:.2f} GB (goal: under 1 GB)")


def cluster(
    folder: str, count: int, numbers: list[int], length: int = 50, dimension: int = 64
) -> None:
    """Fit files of sequences on so many workers; files that are there are used again.

    The last fit is repeated, and one of its workers killed after a third of that fit's time.
    """
    paths, y = write_parts(Path(folder), count, length, dimension)
    results, seconds = [], 0.0
    for workers, killed in [*((number, False) for number in numbers), (numbers[-1], True)]:
        queries, seconds = fit_on(workers, paths, y, kill_after=seconds / 3 if killed else None)
        results.append(queries)
    digest = hashlib.sha256(results[0].tobytes()).hexdigest()[:12]
    same = all(np.array_equal(results[0], one) for one in results)
    print(f"the same to the last bit: {same}; queries {digest}")


def fit_on(
    workers: int, paths: list[Path], y: np.ndarray, kill_after: float | None
) -> tuple[np.ndarray, float]:
    """Fit on a cluster of its own; return the queries and the seconds."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=":0"
        ) as local,
        Client(local) as client,
    ):
        before = client.run(os.getpid)
        if kill_after is not None:
            victim = next(iter(before.values()))
            timer = threading.Timer(kill_after, os.kill, (victim, signal.SIGKILL))
            timer.start()
        start_time, start_used = time.perf_counter(), time.process_time()
        model = AttentionClassifier(refine=True, tied=True, sharpness=1.0, ridge=0.01)
        model.fit(paths, y, client=client)
        seconds, here = time.perf_counter() - start_time, time.process_time() - start_used
        after, peaks, used = (client.run(f) for f in (os.getpid, _peak, time.process_time))
    if kill_after is not None:
        timer.join()
        assert victim not in after.values(), "the fit had ended before the kill"
        print(f"a worker killed after {kill_after:.1f} s:")
    print(
        f"{workers} workers: {seconds:.1f} s, CPU seconds of each "
        f"{[round(one) for one in used.values()]}, here {here:.0f}, {model.n_iter_} iterations, "
        "accuracy on a "
        f"part {np.mean(model.predict([paths[0]]) == y[: len(np.load(paths[0], 'r'))]):.4f}, "
        f"peak memory of a worker {max(peaks.values()) / 1e9:.2f} GB, here "
        f"{_peak() / 1e9:.2f} GB",
        flush=True,
    )
    return model.queries_, seconds


def write_parts(
    folder: Path, count: int, length: int, dimension: int, size: int = 20_000
) -> tuple[list[Path], np.ndarray]:
    """Return files of at most `size` sequences, written if they are not there, and the labels."""
    folder.mkdir(parents=True, exist_ok=True)
    paths, labels = [], []
    for start in range(0, count, size):
        path, of_labels = folder / f"X{start}.npy", folder / f"y{start}.npy"
        if not of_labels.exists():
            X, y = draw(min(size, count - start), length, dimension, start)
            np.save(path, X)
            np.save(of_labels, y)
        paths.append(path)
        labels.append(np.load(of_labels))
    return paths, np.concatenate(labels)


def _peak() -> int:
    """Return the largest resident memory of this program; getrusage has its parent's as well."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("VmHWM")).split()[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("speed", "memory", "cluster", "write", "fit"))
    parser.add_argument("folder", nargs="?", help="where `write` and `fit` keep the data")
    parser.add_argument("--folder", dest="files", default="cluster-data", help="of `cluster`")
    parser.add_argument("--count", type=int, default=1_000_000, help="sequences of `cluster`")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2], help="of `cluster`")
    options = parser.parse_args()
    if options.what == "cluster":
        cluster(options.files, options.count, options.workers)
        return
    steps = {"speed": speed, "memory": memory}
    if options.what in steps:
        steps[options.what]()
    else:
        {"write": write, "fit": fit}[options.what](options.folder)


if __name__ == "__main__":
    main()
