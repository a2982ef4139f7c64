"""Make .venv and install the package with the named extra: `python3 tools/install.py [extra]`.

Called by the Makefile. All that comes from elsewhere, pip and the build's own tools included, has
the version and one of the hashes in requirements/. Written for any Python 3, so that an old one
gets a message rather than a syntax error.
"""

import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VENV = os.path.join(ROOT, ".venv")
PYTHON = os.path.join(VENV, "bin", "python")
LOCKED = os.path.join(ROOT, "requirements")
PIP = ("--require-hashes", "-r", "requirements/pip.txt")
OLDEST = (3, 11)


def main(extra):
    """Install unless the stamp of an earlier installation is newer than what it depends on."""
    if sys.version_info < OLDEST:
        sys.exit(
            "sparsetoken needs Python {}.{} or newer, and {} is Python {}.{}. "
            "Name another one: make PYTHON=python3.12 ...".format(
                *OLDEST, sys.executable, *sys.version_info[:2]
            )
        )
    locked = {name[:-4] for name in os.listdir(LOCKED) if name.endswith(".txt")}
    extras = sorted(locked - {"base", "pip"})
    if extra and extra not in extras:
        sys.exit("There is no extra {!r}; there are {}.".format(extra, ", ".join(extras)))
    stamp = os.path.join(VENV, ".installed" + ("-" + extra if extra else ""))
    with Lock(VENV + ".lock"):
        if is_fresh(stamp):
            return
        print("Making .venv and installing sparsetoken into it, once; this takes a minute or two.")
        sys.stdout.flush()
        if not works():
            make_environment()
        install(*PIP)
        install("--require-hashes", "-r", "requirements/{}.txt".format(extra or "base"))
        install("--no-deps", "--no-build-isolation", "-e", ".")
        for path in {stamp, os.path.join(VENV, ".installed")}:
            with open(path, "w"):
                pass


class Lock:
    """Let one installation run at a time; the others wait and then find it done."""

    def __init__(self, path):
        self.file = open(path, "w")

    def __enter__(self):
        import fcntl

        fcntl.flock(self.file, fcntl.LOCK_EX)

    def __exit__(self, *error):
        self.file.close()


def is_fresh(stamp):
    """Tell whether the stamp exists, is at least as new as its sources, and was made here."""
    sources = [os.path.join(LOCKED, name) for name in os.listdir(LOCKED)]
    sources.append(os.path.join(ROOT, "pyproject.toml"))
    return (
        os.path.exists(stamp)
        and all(os.path.getmtime(stamp) >= os.path.getmtime(source) for source in sources)
        and made_here()
    )


def made_here():
    """Tell whether .venv was made in this folder, by what it says itself.

    Copied or moved, its commands and the package lead back to the folder that it was made in.
    """
    try:
        with open(os.path.join(VENV, "pyvenv.cfg"), encoding="utf-8") as file:
            made_by = [line for line in file if line.startswith("command = ")]
    except OSError:
        return True
    return not made_by or made_by[0].rstrip().endswith(VENV)


def works():
    """Tell whether .venv was made here and has a Python with pip.

    An interrupted attempt may have left less, and a moved clone one that belongs elsewhere.
    """
    command = [PYTHON, "-m", "pip", "--version"]
    return (
        made_here()
        and os.path.exists(PYTHON)
        and subprocess.call(command, stdout=subprocess.DEVNULL) == 0
    )


def make_environment():
    """Make .venv, also where Python comes without ensurepip, as Debian's does."""
    command = [sys.executable, "-m", "venv", "--clear", VENV]
    if subprocess.call(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
        subprocess.check_call([*command, "--without-pip"])
        outside = [sys.executable, "-m", "pip", "--python", PYTHON, "install", "--quiet"]
        subprocess.check_call([*outside, *PIP], cwd=ROOT)


def install(*what):
    """Run pip in the root of the project, so that no path in it can have a space."""
    command = [PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if subprocess.call([*command, *what], cwd=ROOT):
        sys.exit("pip could not install sparsetoken; its messages are above.")


if __name__ == "__main__":
    main(*(sys.argv[1:] or [""]))
