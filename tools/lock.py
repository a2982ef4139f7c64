"""Write the exact versions and hashes of all that is installed: `make lock`, or `--upgrade`.

One resolution for all extras and all Pythons from the oldest on, so that a package has one version
in all of them; then one file for each extra in requirements/, with the hashes of every file of a
release. A file names only what the one that it builds on lacks. Versions stay as they are unless
pyproject.toml asks for others or `--upgrade` is given. Torch stays outside: its builds differ by
machine, and only benchmarks use it.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "requirements"
# An extra and the file that its own builds on; "base" stands for no extra.
BUILDS_ON: dict[str, str | None] = {
    "base": None,
    "explorer": "base",
    "dev": "explorer",
    "browser": "dev",
    "docs": "base",
    "lock": "base",
}
# What builds the package itself, with pip's isolation off, so that hashes cover it too.
BUILD = "hatchling\neditables\n"
PIP = "pip\n"  # installed first; it installs the rest
HEADER = "# Made by `make lock`: do not edit.\n"


def resolve(output: Path, asked: str, *options: str) -> None:
    """Let uv resolve for Python 3.11 and all later ones, on every platform."""
    command = [sys.executable, "-m", "uv", "pip", "compile", "-", "--quiet"]
    command += ["--universal", "--python-version=3.11", "--fork-strategy=fewest"]
    command += ["--no-header", "--no-annotate", "--no-emit-package=sparsetoken"]
    command += [f"--output-file={output}", *options]
    subprocess.run(command, cwd=ROOT, input=asked, text=True, check=True)


def entries(text: str) -> dict[str, str]:
    """Return the entries of a file of requirements by package: version, marker and hashes.

    A package of which no version suits all Pythons has an entry for each range of them.
    """
    found: dict[str, str] = {}
    for entry in re.findall(r"^\w.*(?:\n .*)*\n", text, flags=re.MULTILINE):
        name = entry.partition("==")[0]
        if entry not in found.get(name, ""):
            found[name] = found.get(name, "") + entry
    return found


def main() -> None:
    """Resolve everything at once, then write each extra's share of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions")
    upgrade = parser.parse_args().upgrade
    extras = [f"--extra={extra}" for extra in BUILDS_ON if extra != "base"]
    with tempfile.TemporaryDirectory() as folder:
        everything, share = Path(folder, "everything.txt"), Path(folder, "share.txt")
        if not upgrade:  # uv keeps the versions that it finds in its output file
            old = "".join(path.read_text() for path in FOLDER.glob("*.txt"))
            everything.write_text("".join(entries(old).values()))
        resolve(everything, BUILD + PIP, "pyproject.toml", *extras)
        hashed = ("--generate-hashes", f"--constraints={everything}")
        resolve(share, PIP, *hashed)
        (FOLDER / "pip.txt").write_text(HEADER + share.read_text())
        written: dict[str, set[str]] = {}
        for extra, below in BUILDS_ON.items():
            share.unlink()
            named = [f"--extra={extra}"] if below else []
            resolve(share, BUILD, "pyproject.toml", *hashed, *named)
            found = entries(share.read_text())
            written[extra] = set(found)
            first = f"-r {below}.txt\n" if below else ""
            own = [found[name] for name in found if name not in written.get(below or "", ())]
            (FOLDER / f"{extra}.txt").write_text(HEADER + first + "".join(own))


if __name__ == "__main__":
    main()
