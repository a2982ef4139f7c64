"""The Makefile, tools/install.py and the locked versions: what is installed, when, and how."""

import hashlib
import os
import re
import runpy
import shutil
import subprocess
import sys
import threading
import time
import tomllib
import zipfile
from collections.abc import Callable
from contextlib import nullcontext
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
INSTALL = ROOT / "tools" / "install.py"
BASE = ["requirements/pip.txt", "requirements/base.txt", "."]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Return a folder with all that the Makefile reads, and an environment that is up to date."""
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements")
    for name in ("Makefile", "pyproject.toml", "tools/install.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / ".installed").touch()
    return tmp_path


@pytest.fixture
def installed(copy: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[str]]:
    """Return what runs the tool for an extra and says what it would have installed."""

    def run(extra: str) -> list[str]:
        made: list[str] = []
        tool = runpy.run_path(str(copy / "tools" / "install.py"))
        for name, stand_in in (
            ("install", lambda *what: made.append(what[-1])),
            ("make_environment", lambda: made.append("environment")),
        ):
            monkeypatch.setitem(tool["main"].__globals__, name, stand_in)
        tool["main"](extra)
        return made

    return run


@pytest.mark.parametrize("extra", ["nonsense", "--help", "pip"])
def test_an_extra_that_is_not_locked_is_refused(
    installed: Callable[[str], list[str]], extra: str
) -> None:
    with pytest.raises(SystemExit, match=f"no extra '{extra}'; there are browser, dev, docs,"):
        installed(extra)


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
    assert installed("dev")[-3:] == ["requirements/pip.txt", "requirements/dev.txt", "."]
    assert installed("dev") == []


@pytest.mark.parametrize("name", ["pyproject.toml", "requirements/base.txt"])
def test_a_change_of_what_is_needed_installs_again(
    copy: Path, name: str, installed: Callable[[str], list[str]]
) -> None:
    later = time.time() + 10
    os.utime(copy / name, (later, later))
    assert installed("")[-3:] == BASE


def test_an_environment_that_was_made_elsewhere_is_made_anew(
    copy: Path, installed: Callable[[str], list[str]]
) -> None:
    here = f"command = python -m venv --clear {copy / '.venv'}\n"
    (copy / ".venv" / "pyvenv.cfg").write_text(here)
    assert installed("") == []
    (copy / ".venv" / "pyvenv.cfg").write_text(here.replace("/.venv", "/old/.venv"))
    assert installed("") == ["environment", *BASE]


def test_pip_checks_hashes_in_a_folder_with_a_space(tmp_path: Path) -> None:
    """Run the real pip on a package of our own: a right hash, then a wrong one."""
    folder = tmp_path / "a folder"
    (folder / "tools").mkdir(parents=True)
    (folder / "requirements").mkdir()
    shutil.copy(INSTALL, folder / "tools" / "install.py")
    wheel = folder / "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(
            "tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0"
        )
        archive.writestr("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any")
        archive.writestr("tiny-1.0.dist-info/RECORD", "")
    tool = runpy.run_path(str(folder / "tools" / "install.py"))
    tool["install"].__globals__["PYTHON"] = sys.executable
    asked = ("--dry-run", "--no-index", "--find-links=.", *tool["PIP"])
    right = hashlib.sha256(wheel.read_bytes()).hexdigest()
    for given in (right, right[::-1]):
        (folder / "requirements" / "pip.txt").write_text(f"tiny==1.0 --hash=sha256:{given}\n")
        with nullcontext() if given == right else pytest.raises(SystemExit, match="pip could not"):
            tool["install"](*asked)


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


def locked(extra: str) -> dict[str, str]:
    """Return the versions of all that an extra installs, and check that each has a hash."""
    found: dict[str, str] = {}
    text = (ROOT / "requirements" / f"{extra}.txt").read_text().replace("\\\n", "")
    for line in text.splitlines():
        if line.startswith("-r "):
            found |= locked(line.removeprefix("-r ").removesuffix(".txt"))
        elif not line.startswith("#"):
            requirement = Requirement(line.partition(" --hash")[0])
            if requirement.marker and not requirement.marker.evaluate():
                continue  # for another Python or platform
            name, version = line.split()[0].split("==")
            assert name not in found
            assert re.search(r" --hash=sha256:[0-9a-f]{64}\b", line), f"{name} has no hash"
            found[name] = version
    return found


def asked(extra: str) -> list[Requirement]:
    """Return what pyproject.toml asks for with an extra, those that it contains included."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    texts = project["optional-dependencies"][extra] if extra != "base" else project["dependencies"]
    found = asked("base") if extra != "base" else []
    for requirement in map(Requirement, texts):
        inner = sorted(requirement.extras) if requirement.name == "sparsetoken" else []
        found += [one for name in inner for one in asked(name)] if inner else [requirement]
    return found


EXTRAS = ["base", "explorer", "dev", "browser", "docs", "lock"]


@pytest.mark.parametrize("extra", EXTRAS)
def test_the_locked_versions_are_what_the_project_asks_for(extra: str) -> None:
    versions = locked(extra)
    for requirement in asked(extra):
        version = versions[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), f"{requirement}: {version} (make lock)"
    assert {"hatchling", "editables"} <= set(versions)  # what builds the package itself
    assert "torch" not in versions


def test_nothing_that_a_locked_package_needs_is_missing() -> None:
    versions = locked("dev")
    for name in versions:
        try:
            needed = metadata.requires(name) or []
        except metadata.PackageNotFoundError:  # for another Python or platform
            continue
        for requirement in map(Requirement, needed):
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                assert canonicalize_name(requirement.name) in versions, f"{name}: {requirement}"


def test_every_extra_that_make_installs_is_locked() -> None:
    text = (ROOT / "Makefile").read_text()
    assert set(re.findall(r"\.installed-(\w+)", text)) | {"base"} == set(EXTRAS)
    assert {path.stem for path in (ROOT / "requirements").iterdir()} == {*EXTRAS, "pip"}
