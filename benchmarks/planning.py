"""How long a plan and a map take, as a user meets them: a fresh process each, defaults, no variables.

Run as ``python benchmarks/planning.py [--repeats 3]``. It prints wall and CPU seconds of

- a plan at L = 20, d = 256 before its simulated check (wanted: 10 s on two free cores);
- a 40 × 40 map of three classifiers (wanted: 60 s on two free cores).
"""

import argparse
import os
import resource
import subprocess
import sys
import time

COMMANDS = {
    "plan, error 0.05": "plan --length 20 --strength 5 --dimension 256 --error 0.05 --trials 0",
    "plan, budget of 1,000": "plan --length 20 --strength 4 --dimension 256 --samples 1000 --trials 0",
    "map, 40 x 40": "map --length 20 --points 40 --json",
}


def measure(command: str) -> tuple[float, float]:
    """Return the wall and the CPU seconds of a command, its worker processes included."""
    free = {name: value for name, value in os.environ.items() if "NUM_THREADS" not in name}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "sparsetoken", *command.split()],
        check=True,
        env=free,
        stdout=subprocess.DEVNULL,
    )
    wall = time.perf_counter() - begin
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    print("| command | wall [s] | CPU [s] |\n|---|---|---|")
    for name, command in COMMANDS.items():
        walls, times = zip(*(measure(command) for _ in range(repeats)), strict=True)
        print(f"| {name} | {min(walls):.1f} | {min(times):.1f} |", flush=True)


if __name__ == "__main__":
    main()
