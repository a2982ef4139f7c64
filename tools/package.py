"""Build wheel and sdist into dist/, and check that each works with runtime dependencies alone.

Called by `make package`. Each distribution is installed into an environment of its own, without
any extra, and asked for a prediction, a fit and its help.
"""

import argparse
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"

PROGRAM = """
import importlib.util, sys
import numpy as np
import sparsetoken
from sparsetoken import PooledClassifier, Task, Training, predict, read_study
for name in ("pytest", "distributed", "pyarrow", "plotly", "starlette", "torch"):
    assert importlib.util.find_spec(name) is None, name + " is installed: not runtime alone"
found = predict(Task(10, 1, 5.0), Training(4.0, 4.0), classifier="pooled")
assert 0 < found.test_error < 0.5
X = np.random.default_rng(0).standard_normal((40, 5, 3))
PooledClassifier().fit(X, np.repeat([0, 1], 20))
print("sparsetoken", sparsetoken.__version__, "works without extras")
"""


def run(*command: str) -> None:
    """Run a command, or end with its exit code."""
    print("+", " ".join(command[-3:]), flush=True)
    done = subprocess.run(command, cwd=tempfile.gettempdir(), check=False)
    if done.returncode:
        sys.exit(done.returncode)


def check(distribution: Path) -> None:
    """Install a distribution into a fresh environment and use it."""
    with tempfile.TemporaryDirectory(prefix="package ") as folder:
        environment = Path(folder) / "env"
        venv.create(environment)  # without pip, which some systems ship apart
        python = str(environment / "bin" / "python")
        pip = (sys.executable, "-m", "pip", "--python", python)
        run(*pip, "install", "--quiet", str(distribution))
        run(python, "-c", PROGRAM)
        run(str(environment / "bin" / "sparsetoken"), "--version")
        run(str(environment / "bin" / "sparsetoken"), "sweep", "--help")


def main() -> None:
    """Build both distributions and check them."""
    argparse.ArgumentParser(description=__doc__.split("\n\n")[0]).parse_args()
    for old in DIST.glob("sparsetoken-*"):
        old.unlink()
    build = [sys.executable, "-m", "hatchling", "build"]
    if subprocess.run(build, cwd=ROOT, check=False).returncode:
        sys.exit(1)
    made = sorted(DIST.glob("sparsetoken-*"))
    kinds = {path.suffix for path in made}
    if kinds != {".whl", ".gz"}:
        sys.exit(f"expected a wheel and an sdist, got {[path.name for path in made]}")
    for path in made:
        check(path)


if __name__ == "__main__":
    main()
