"""The Makefile and tools/install.py: what is installed, when, and what an old Python is told."""

import os
import runpy
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

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


@pytest.fixture
def installed(copy: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[str]]:
    """Return what runs the tool for an extra and says what it would have given to pip."""

    def run(extra: str) -> list[str]:
        made: list[str] = []
        tool = runpy.run_path(str(copy / "tools" / "install.py"))
        for name, stand_in in (
            ("install", lambda *what: made.extend(what)),
            ("make_environment", lambda: made.append("environment")),
        ):
            monkeypatch.setitem(tool["main"].__globals__, name, stand_in)
        tool["main"](extra)
        return made

    return run


def test_make_asks_the_tool_every_time(copy: Path) -> None:
    for target, extra in (("reproduce", ""), ("test", " dev"), ("docs", " docs")):
        shown = subprocess.run(
            ["make", "--dry-run", target], cwd=copy, capture_output=True, text=True, check=True
        ).stdout
        assert f"tools/install.py{extra}\n" in shown


def test_a_second_call_installs_nothing(installed: Callable[[str], list[str]]) -> None:
    assert installed("") == []


def test_tests_after_only_a_reproduction_install_their_own_tools(
    installed: Callable[[str], list[str]],
) -> None:
    assert installed("dev")[-2:] == ["-e", ".[dev]"]
    assert installed("dev") == []


@pytest.mark.parametrize("name", ["pyproject.toml", "constraints.txt"])
def test_a_change_of_what_is_needed_installs_again(
    copy: Path, name: str, installed: Callable[[str], list[str]]
) -> None:
    later = time.time() + 10
    os.utime(copy / name, (later, later))
    assert installed("")[-2:] == ["-e", "."]


def test_an_environment_that_was_made_elsewhere_is_made_anew(
    copy: Path, installed: Callable[[str], list[str]]
) -> None:
    here = f"command = python -m venv --clear {copy / '.venv'}\n"
    (copy / ".venv" / "pyvenv.cfg").write_text(here)
    assert installed("") == []
    (copy / ".venv" / "pyvenv.cfg").write_text(here.replace("/.venv", "/old/.venv"))
    assert installed("") == ["environment", "-e", "."]


def test_pip_is_given_no_path_that_a_space_could_split(tmp_path: Path) -> None:
    """Run the real pip, in a folder with a space, on a package that needs nothing."""
    folder = tmp_path / "a folder"
    (folder / "tools").mkdir(parents=True)
    shutil.copy(INSTALL, folder / "tools" / "install.py")
    (folder / "constraints.txt").write_text("never-needed==1.0\n")
    tool = runpy.run_path(str(folder / "tools" / "install.py"))
    asked: list[tuple[dict[str, str], str]] = []

    def call(_: list[str], env: dict[str, str], cwd: str) -> int:
        asked.append((env, cwd))
        checked = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--no-index"]
        return subprocess.call([*checked, "pip"], env=env, cwd=cwd)

    tool["install"].__globals__["subprocess"] = SimpleNamespace(call=call)
    tool["install"]("-e", ".")
    [(environment, place)] = asked
    assert " " not in environment["PIP_CONSTRAINT"]
    assert place == str(folder)


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
