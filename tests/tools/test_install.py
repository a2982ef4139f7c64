"""The Makefile and tools/install.py: what is installed, when, and what an old Python is told."""

import os
import runpy
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
INSTALL = ROOT / "tools" / "install.py"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Return a folder with all that the Makefile reads, and an environment that is up to date."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt", "tools/install.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / ".installed").touch()
    return tmp_path


def plan(folder: Path, target: str) -> str:
    """Return what make would run."""
    return subprocess.run(
        ["make", "--dry-run", target], cwd=folder, capture_output=True, text=True, check=True
    ).stdout


def test_a_second_call_installs_nothing(copy: Path) -> None:
    assert "install.py" not in plan(copy, "reproduce")
    assert "sparsetoken reproduce" in plan(copy, "reproduce")


def test_tests_after_only_a_reproduction_install_their_own_tools(copy: Path) -> None:
    assert "install.py dev" in plan(copy, "test")
    (copy / ".venv" / ".installed-dev").touch()
    assert "install.py" not in plan(copy, "test")


@pytest.mark.parametrize("name", ["pyproject.toml", "constraints.txt"])
def test_a_change_of_what_is_needed_installs_again(copy: Path, name: str) -> None:
    later = time.time() + 10
    os.utime(copy / name, (later, later))
    assert "install.py" in plan(copy, "reproduce")


def test_an_old_python_is_told_which_one_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    install = runpy.run_path(str(INSTALL))
    monkeypatch.setattr(sys, "version_info", (3, 10, 2))
    with pytest.raises(SystemExit, match=r"needs Python 3.11 or newer, and .* is Python 3.10"):
        install["main"]("")


def test_one_installation_waits_for_the_other(copy: Path) -> None:
    install = runpy.run_path(str(copy / "tools" / "install.py"))
    # The stamp is old; the other installation, which holds the lock, renews it.
    stamp = copy / ".venv" / ".installed"
    os.utime(stamp, (0, 0))
    with install["Lock"](str(copy / ".venv.lock")):
        second = threading.Thread(target=install["main"], args=("",))
        second.start()
        second.join(timeout=0.3)
        assert second.is_alive()
        stamp.touch()
    second.join(timeout=30)
    assert not second.is_alive()
    # Having found it done, the second did not install: there still is no Python in .venv.
    assert not (copy / ".venv" / "bin").exists()


def test_an_installation_says_what_it_does(
    copy: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    main = runpy.run_path(str(copy / "tools" / "install.py"))["main"]
    main("")
    assert capsys.readouterr().out == ""
    monkeypatch.setitem(main.__globals__, "works", lambda: True)
    monkeypatch.setitem(main.__globals__, "install", lambda *_: None)
    main("dev")
    assert "Making .venv and installing" in capsys.readouterr().out
    assert (copy / ".venv" / ".installed-dev").exists()
