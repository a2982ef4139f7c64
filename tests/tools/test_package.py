import subprocess
import sys
from pathlib import Path

TOOL = Path(__file__).parents[2] / "tools" / "package.py"


def test_help_shows_what_it_does_and_builds_nothing() -> None:
    command = [sys.executable, TOOL, "--help"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert "Build wheel and sdist" in shown.stdout
    assert "hatchling" not in shown.stdout + shown.stderr
