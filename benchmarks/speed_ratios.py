"""Compare CPU time with that of an earlier commit, in one run: one table of ratios, old against new.

    python benchmarks/speed_ratios.py [--commit 44950e9] [--repeats 3]

Each measurement runs in a process of its own, old and new by turns, without any environment variable
for threads; the least CPU time of the repeats counts. What takes longer than 10 s is not repeated.
The earlier commit is checked out into a temporary folder, which is removed at the end; what it does
not know has no ratio.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]

# Seconds from which on a measurement is not repeated.
LONG = 10.0

SETTING = """
import time
begin = time.process_time()
from sparsetoken import predict
loaded = time.process_time() - begin
import numpy as np
import sparsetoken
from sparsetoken import Query, Task, Training, capacity, curve, oracle, predict, required_strength
task, training, query = Task(10, 1, 5.0), Training(4.0, 2.0), Query(0.9, 1.5)
alphas = np.geomspace(0.2, 10, 20)
begin = time.process_time()
"""

# Before the clock starts: 3000 bags of 20 tokens, one of which carries the signal in every second bag.
BAGS = """
from sparsetoken import AttentionClassifier, PooledClassifier, simulate
rng = np.random.default_rng(0)
X, y = rng.standard_normal((3000, 20, 64)), np.arange(3000) % 2
X[y == 1, rng.integers(20, size=1500), 0] += 4.0
begin = time.process_time()
"""
CURVE = 'curve(task, training, over="alpha1", values=alphas, {query}tolerance={tolerance:g})'
MAP = """
for value in np.geomspace(0.5, 5, 40):
    curve(task, training.replace(alpha0=value), over="alpha1", values=np.geomspace(0.2, 10, 40),
          tolerance=2e-3)
"""
CAPACITIES = """
values = np.geomspace(1, 8, 25)
if hasattr(sparsetoken, "capacity_curve"):
    sparsetoken.capacity_curve(task, query=query, values=values)
else:
    [capacity(task.replace(strength=value), query=query) for value in values]
"""
ROW = "curve(task, training, values=np.geomspace(0.2, 10, {points}), {options})"
CALLS = {
    "import of theory": None,
    "first predict of a process, 1e-4": "predict(task, training)",
    **{
        f"20-point curve, {name} query, {tolerance:g}": CURVE.format(
            query=text, tolerance=tolerance
        )
        for tolerance in (1e-2, 2e-3, 1e-4, 1e-6)
        for name, text in (("learnt", ""), ("given", "query=query, "))
    },
    "25-point curve, learnt query, 0.0001": ROW.format(points=25, options="tolerance=1e-4"),
    **{
        f"40-point curve, {name}": ROW.format(points=40, options=f'classifier="{name}"')
        for name in ("pooled", "vectorised")
    },
    "40 × 40 map, attention, 2e-3": MAP,
    "capacity": "capacity(task, query=query)",
    "25 capacities": CAPACITIES,
    "oracle, attention": "oracle(task)",
    "oracle, Bayes": 'oracle(task, classifier="bayes")',
    "strength for an error of 5 %": "required_strength(task, error=0.05)",
    "the same, sums of sigmoids, L = 100": (
        'required_strength(Task(100, 1, 1.0), error=0.05, classifier="elementwise")'
    ),
    "floor, L = 1000, easy phase": "sparsetoken.floor(Task(1000, 1, 5.0), 8.0)",
    "floor, L = 1000, hard phase": "sparsetoken.floor(Task(1000, 1, 4.0), 2.0)",
    "floor, L = 200, R = 3": "sparsetoken.floor(Task(200, 3, 3.0), 4.0)",
    "predict with AUC and average precision, 1e-4": (
        'predict(task, training, query=query).metrics("auc", "average_precision")'
    ),
    "the same predict alone": "predict(task, training, query=query)",
    "10 trials, d = 500": BAGS + "simulate(task, training, dimension=500, trials=10)",
    "fit of PooledClassifier, 3000 bags of 20 × 64": BAGS + "PooledClassifier().fit(X, y)",
    "fit of AttentionClassifier, the same": BAGS + "AttentionClassifier(random_state=0).fit(X, y)",
    "the same without refinement": (
        BAGS + "AttentionClassifier(refine=False, random_state=0).fit(X, y)"
    ),
}


def seconds(source: Path, call: str | None) -> float:
    """Return the CPU seconds of a call in a fresh process that imports from `source`.

    Not a number if it fails: the earlier version may not know it.
    """
    program = SETTING + (f"{call}\nprint(time.process_time() - begin)" if call else "print(loaded)")
    environment = {name: text for name, text in os.environ.items() if "NUM_THREADS" not in name}
    environment["PYTHONPATH"] = str(source / "src")
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=source == ROOT,
        env=environment,
    )
    return float(done.stdout) if done.returncode == 0 else float("nan")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--commit", default="44950e9", help="The earlier version.")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", default="", help="Measurements whose name contains this.")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        old = Path(folder) / "old"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--detach", str(old), options.commit], check=True)
        try:
            print(f"| measurement | {options.commit} [s] | now [s] | ratio |\n|---|---|---|---|")
            for name, call in CALLS.items():
                if options.only not in name:
                    continue
                pairs = [(seconds(old, call), seconds(ROOT, call))]
                while len(pairs) < options.repeats and not max(pairs[0]) > LONG:
                    pairs.append((seconds(old, call), seconds(ROOT, call)))
                before, now = (min(times) for times in zip(*pairs, strict=True))
                known = (
                    [f"{before:.3f}", f"{before / now:.1f}"] if np.isfinite(before) else ["", ""]
                )
                print(f"| {name} | {known[0]} | {now:.3f} | {known[1]} |", flush=True)
        finally:
            subprocess.run([*git, "remove", "--force", str(old)], check=True)


if __name__ == "__main__":
    main()
