"""Make .venv and install the package with the named extra: `python3 tools/install.py [extra]`.

Called by the Makefile. Written for any Python 3, so that an old one gets a message rather than a
syntax error.
"""

import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VENV = os.path.join(ROOT, ".venv")
PYTHON = os.path.join(VENV, "bin", "python")
SOURCES = [os.path.join(ROOT, name) for name in ("pyproject.toml", "constraints.txt")]
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
    stamp = os.path.join(VENV, ".installed" + ("-" + extra if extra else ""))
    with Lock(VENV + ".lock"):
        if is_fresh(stamp):
            return
        print("Making .venv and installing sparsetoken into it, once; this takes a minute or two.")
        sys.stdout.flush()
        if not works():
            make_environment()
        install("-e", ROOT + ("[" + extra + "]" if extra else ""))
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
    """Tell whether the stamp exists and is at least as new as its sources."""
    return os.path.exists(stamp) and all(
        os.path.getmtime(stamp) >= os.path.getmtime(source) for source in SOURCES
    )


def works():
    """Tell whether .venv has a Python with pip; an interrupted attempt may have left less."""
    command = [PYTHON, "-m", "pip", "--version"]
    return os.path.exists(PYTHON) and subprocess.call(command, stdout=subprocess.DEVNULL) == 0


def make_environment():
    """Make .venv, also where Python comes without ensurepip, as Debian's does."""
    command = [sys.executable, "-m", "venv", "--clear", VENV]
    if subprocess.call(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
        subprocess.check_call([*command, "--without-pip"])
        subprocess.check_call(
            [sys.executable, "-m", "pip", "--python", PYTHON, "install", "--quiet", "pip"]
        )


def install(*what):
    """Run pip with the versions of constraints.txt, those of the build's own tools included."""
    constraints = os.path.join(ROOT, "constraints.txt")
    environment = dict(
        os.environ,
        PIP_CONSTRAINT=constraints,
        PIP_BUILD_CONSTRAINT=constraints,
        PIP_DISABLE_PIP_VERSION_CHECK="1",
    )
    command = [PYTHON, "-m", "pip", "install", "--quiet", *what]
    if subprocess.call(command, env=environment):
        sys.exit("pip could not install sparsetoken; its messages are above.")


if __name__ == "__main__":
    main(*(sys.argv[1:] or [""]))
