"""Build wheel and sdist into dist/, and check that each works with runtime dependencies alone.

Called by `make package`. Each distribution is installed into an environment of its own, without
any extra, and asked for a prediction, a fit and its help. A package index shows the README apart
from the repository: a release gives `--address`, where the repository is, and all links lead there.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
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


# What a build reads, beside the package itself.
BUILT_FROM = ("pyproject.toml", "README.md", "CHANGELOG.md", "CITATION.cff", "LICENSE")
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?![a-z]+:|#)([^)]*)\)")


def with_addresses(readme: str, address: str, tag: str) -> str:
    """Return a README whose relative links lead to the repository at `address`, at a tag."""

    def absolute(link: re.Match[str]) -> str:
        picture, text, path = link.groups()
        return f"{picture}[{text}]({address}/{'raw' if picture else 'blob'}/{tag}/{path})"

    return LINK.sub(absolute, readme)


def addressed(folder: Path, address: str) -> Path:
    """Copy what is built into the folder, as a repository that knows its own address."""
    for name in BUILT_FROM:
        shutil.copy(ROOT / name, folder)
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    project, readme = folder / "pyproject.toml", folder / "README.md"
    version = tomllib.loads(project.read_text())["project"]["version"]
    readme.write_text(with_addresses(readme.read_text(), address, f"v{version}"))
    pages = {"Source": "", "Changelog": f"/blob/v{version}/CHANGELOG.md", "Issues": "/issues"}
    lines = "".join(f'{name} = "{address}{path}"\n' for name, path in pages.items())
    project.write_text(project.read_text().replace("[project.urls]\n", "[project.urls]\n" + lines))
    return folder


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
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--address", help="where the repository is, for links of the README")
    address = parser.parse_args().address
    for old in DIST.glob("sparsetoken-*"):
        old.unlink()
    with tempfile.TemporaryDirectory() as folder:
        source = ROOT if address is None else addressed(Path(folder), address.rstrip("/"))
        build = [sys.executable, "-m", "hatchling", "build", "--directory", str(DIST)]
        if subprocess.run(build, cwd=source, check=False).returncode:
            sys.exit(1)
    made = sorted(DIST.glob("sparsetoken-*"))
    kinds = {path.suffix for path in made}
    if kinds != {".whl", ".gz"}:
        sys.exit(f"expected a wheel and an sdist, got {[path.name for path in made]}")
    for path in made:
        check(path)


if __name__ == "__main__":
    main()
