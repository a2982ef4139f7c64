import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "package.py"


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("package_tool", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_help_shows_what_it_does_and_builds_nothing() -> None:
    command = [sys.executable, TOOL, "--help"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert "Build wheel and sdist" in shown.stdout
    assert "hatchling" not in shown.stdout + shown.stderr


def test_a_release_links_to_its_repository_from_outside(tool: ModuleType, tmp_path: Path) -> None:
    tool.addressed(tmp_path, "https://example.org/here")
    readme = (tmp_path / "README.md").read_text()
    targets = re.findall(r"\]\(([^)]*)\)", readme)
    assert all(target.startswith(("https://", "#")) for target in targets)
    assert "](https://example.org/here/raw/v0.1.0/docs/figures/limits.svg)" in readme
    assert "](https://example.org/here/blob/v0.1.0/docs/planning.md)" in readme
    assert "](https://arxiv.org/abs/2509.25153)" in readme
    for target in targets:  # nothing is linked to that is not there
        if target.startswith("https://example.org/here/"):
            assert (TOOL.parents[1] / target.split("/v0.1.0/")[1].partition("#")[0]).exists()
    project = tomllib.loads((tmp_path / "pyproject.toml").read_text())["project"]
    assert project["urls"]["Source"] == "https://example.org/here"
    assert project["urls"]["Paper"] == "https://arxiv.org/abs/2509.25153"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("[a](b.md)", "[a](H/blob/v1/b.md)"),
        ("![a](b.svg)", "![a](H/raw/v1/b.svg)"),
        ("[a](https://b)", "[a](https://b)"),
        ("[a](#b)", "[a](#b)"),
    ],
)
def test_links_of_all_kinds(tool: ModuleType, before: str, after: str) -> None:
    assert tool.with_addresses(before, "H", "v1") == after
