"""A few hundred cheap attempts to break the package; `make attack` makes many more."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ATTACK = Path(__file__).parents[2] / "tools" / "attack.py"


def test_nothing_breaks_in_the_quick_attack(tmp_path: Path) -> None:
    # Into a file: idle workers of what was attacked may outlive the attack, and keep a pipe open.
    printed = tmp_path / "printed.txt"
    with printed.open("w") as file:
        done = subprocess.run(
            [sys.executable, ATTACK, "--quick", "--seed", "1"],
            stdout=file,
            stderr=subprocess.STDOUT,
            check=False,
            timeout=500,
        )
    assert done.returncode == 0, printed.read_text()
    assert "| commands | 60 | 0 |" in printed.read_text()


def test_the_attack_notices_what_breaks(tmp_path: Path) -> None:
    """Break a command, a store and an inequality on purpose."""
    program = f"""
import runpy, random
from pathlib import Path
attack = runpy.run_path({str(ATTACK)!r})
folder = Path({str(tmp_path)!r})
import sparsetoken.cli.theory, sparsetoken.sweeps.store, sparsetoken, sparsetoken.theory.oracle
from sparsetoken.cli import main
import click

def broken(*_, **__):
    raise KeyError("broken")
for command in main.commands.values():
    if not isinstance(command, click.Group):
        command.callback = broken
found = [attack["commands"](random.Random(n), folder) for n in range(60)]
assert any(text and "KeyError" in text for text in found), found

sparsetoken.sweeps.store.seal_of = lambda identity: lambda table, values: Everything()
class Everything:
    __hash__ = None
    def __eq__(self, other): return True
    def __ne__(self, other): return False
found = []
for n in range(400):
    try:
        found.append(attack["stores"](random.Random(n), folder))
    except Exception as error:
        found.append(repr(error))
assert any(found), found
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr


def test_every_kind_has_a_share_and_a_quick_part() -> None:
    attack = runpy.run_path(str(ATTACK))
    assert attack["KINDS"].keys() == attack["SHARE"].keys() == attack["QUICK"].keys()
