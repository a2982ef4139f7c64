"""What the mutation run changes, and which lines it looks for in the tests."""

import ast
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

PATH = Path(__file__).parents[2] / "tools" / "mutate.py"
TEXT = '''"""A module."""

LIMIT = 3


def clipped(value, low=0.5):
    """Return a value between two limits."""
    if not low < value:
        return -low
    return min(
        value,
        LIMIT + 1,
    )
'''


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("mutate", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "SOURCE", tmp_path)
    (tmp_path / "clipped.py").write_text(TEXT)
    return module


def test_each_mutant_is_one_change_of_its_own(tool: ModuleType) -> None:
    found = tool.mutants(tool.SOURCE / "clipped.py")
    assert {mutant.name[1:] for mutant in found} == {
        ("3", "8", "3 -> 4"),
        ("6", "23", "0.5 -> 0.75"),
        ("8", "4", "condition negated"),
        ("8", "7", "Not dropped"),
        ("8", "11", "Lt -> GtE"),
        ("9", "15", "USub dropped"),
        ("10", "11", "min -> max"),
        ("12", "8", "Add -> Sub"),
        ("12", "16", "1 -> 2"),
    }
    texts = [mutant.text() for mutant in found]
    assert len({ast.unparse(ast.parse(TEXT)), *texts}) == len(texts) + 1


def test_tests_are_found_by_the_statement_around_a_change(tool: ModuleType) -> None:
    lines = {m.name[1]: list(m.lines) for m in tool.mutants(tool.SOURCE / "clipped.py")}
    assert lines["3"] == []  # executed at import
    assert lines["6"] == [7, 8, 9, 10, 11, 12, 13]  # a default value: the whole body
    assert lines["8"] == [8]
    assert lines["12"] == [10, 11, 12, 13]


def test_the_summary_counts_what_was_noticed_first_and_at_last(tool: ModuleType) -> None:
    states = [("killed", "killed")] * 6 + [("survived", "killed")] * 2
    states += [("survived", "equivalent"), ("survived", "survived")]
    rows = [{"first": first, "state": last} for first, last in states]
    assert tool.summary(rows).splitlines() == [
        "10 mutants, 1 of them equivalent",
        "killed when first tried: 6, 60% of all, 67% of others",
        "killed at last: 8, 80% of all, 89% of others",
    ]
