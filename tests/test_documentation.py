"""Every Python example in the README and the documentation pages runs and prints what it shows."""

import doctest
import inspect
import os
import re
import runpy
import subprocess
import sys
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

import sparsetoken
from sparsetoken import ParameterError, PoissonCount, Query, Status, Task, Training
from sparsetoken.theory import laws

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OUTPUT = re.compile(r"\A\s*^```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)

NUMBER = re.compile(r"-?\d+\.\d+")


MARK = "end of an example"

# What the examples find in their folder.
STUDY = """
classifiers = ["pooled"]
dimensions = 20
trials = 2
[task]
length = 4
informative = 1
strength = 2
[training]
alpha0 = 2
alpha1 = 2
"""


def assert_same_text(printed: str, shown: str, tolerance: float = 0.002) -> None:
    """Compare word by word, and numbers up to what another machine's rounding may change."""
    assert NUMBER.sub("#", printed) == NUMBER.sub("#", shown)
    numbers = [[float(number) for number in NUMBER.findall(text)] for text in (printed, shown)]
    assert numbers[0] == pytest.approx(numbers[1], abs=tolerance)


@pytest.mark.parametrize(
    "page", [page for page in PAGES if EXAMPLE.search(page.read_text())], ids=lambda page: page.name
)
def test_examples_run_and_print_what_is_shown(page: Path, tmp_path: Path) -> None:
    text = page.read_text()
    examples = list(EXAMPLE.finditer(text))
    # One script for a page, since its examples build on each other; worker processes import it.
    mark = f'\nif __name__ == "__main__":\n    print("{MARK}")\n'
    (tmp_path / "script.py").write_text(mark.join([*(example[1] for example in examples), ""]))
    (tmp_path / "study.toml").write_text(STUDY)
    result = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    outputs = result.stdout.split(f"{MARK}\n")
    for example, printed in zip(examples, outputs, strict=False):
        shown = OUTPUT.match(text[example.end() :])
        if shown:
            assert_same_text(printed, shown[1])


def test_readme_has_an_example_and_its_output() -> None:
    text = (ROOT / "README.md").read_text()
    example = EXAMPLE.search(text)
    assert example
    assert OUTPUT.match(text[example.end() :])


@pytest.mark.parametrize("settings", [Task, Training, Query])
def test_notation_table_has_every_field(settings: type) -> None:
    notation = (ROOT / "README.md").read_text().split("## Notation")[1]
    for name in settings.__dataclass_fields__:
        assert f"`{name}`" in notation


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_links_to_files_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)[^)]*\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_sections_of_the_theory_that_the_code_cites_exist() -> None:
    theory = (ROOT / "docs/theory.md").read_text()
    headings = re.findall(r"^#+ (\d+(?:\.\d)?)\.? ", theory, re.MULTILINE)
    sources = " ".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    cited = set(re.findall(r"docs/theory\.md,\s+section\s+(\d+(?:\.\d)?)", sources))
    assert {"2", "5", "5.1", "7"} <= cited
    assert cited <= set(headings)


def test_names_that_the_theory_gives_to_its_symbols_are_those_of_the_code() -> None:
    known = {status.name.lower() for status in Status}
    for folder in ("src", "tests", "examples", "benchmarks"):
        for path in (ROOT / folder).rglob("*.py"):
            known.add(path.stem)
            known.update(re.findall(r"\w+", path.read_text()) if folder == "src" else ())
    theory = re.sub(r"```.*?```", "", (ROOT / "docs/theory.md").read_text(), flags=re.DOTALL)
    shown = re.findall(r"`([^`\n]+)`", theory)
    names = {name for text in shown for name in re.findall(r"[A-Za-z_]\w{2,}", text)}
    assert len(names) > 100
    assert not names - known


def test_the_reference_names_everything_public() -> None:
    listed = set(
        re.findall(
            r"^\.\. auto\w+:: sparsetoken\.(\w+)$", (ROOT / "docs/api.md").read_text(), re.MULTILINE
        )
    )
    assert listed == set(sparsetoken.__all__)


@pytest.mark.parametrize("name", sparsetoken.__all__)
def test_every_public_docstring_has_an_example_that_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    documented = getattr(sparsetoken, name)
    text = inspect.cleandoc(documented.__doc__)
    if inspect.isfunction(documented) and documented.__annotations__["return"] is not None:
        assert "\nReturns\n-------\n" in text
    assert_has_example(text)
    monkeypatch.chdir(tmp_path)
    run_example(text, name)


def assert_has_example(text: str) -> None:
    """Assert that a docstring has an example, or names a public function that shows one for it."""
    elsewhere = re.search(r"There is an example in `(\w+)`\.", text)
    if elsewhere:  # where it runs under that name
        text = inspect.cleandoc(getattr(sparsetoken, elsewhere[1]).__doc__)
    assert "\nExamples\n--------\n>>> " in text


def run_example(text: str, name: str) -> None:
    example = doctest.DocTestParser().get_doctest(text, {}, name, None, 0)
    told: list[str] = []
    assert doctest.DocTestRunner(verbose=False).run(example, out=told.append).failed == 0, told


def public_methods() -> dict[str, Any]:
    """Return the methods of public classes by their full names, each once, where it is written."""
    found = {}
    for kind in (getattr(sparsetoken, name) for name in sparsetoken.__all__):
        for owner in inspect.getmro(kind) if inspect.isclass(kind) else ():
            if owner.__module__.startswith("sparsetoken."):
                found |= {
                    f"{owner.__name__}.{name}": method
                    for name, method in inspect.getmembers(owner, inspect.isroutine)
                    if not name.startswith("_")
                    and name in vars(owner)
                    and not isinstance(method, cached_property)
                }
    return found


METHODS = public_methods()


@pytest.mark.parametrize("name", METHODS)
def test_every_public_method_says_what_it_gives(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = inspect.getdoc(METHODS[name]) or ""
    assert text
    if inspect.signature(METHODS[name]).return_annotation is not None:
        assert "\nReturns\n-------\n" in text
    monkeypatch.chdir(tmp_path)
    run_example(text, name)


WRITTEN_HERE = [
    name
    for name, method in METHODS.items()
    if getattr(inspect.unwrap(method), "__module__", "sparsetoken").startswith("sparsetoken")
]


def test_only_what_scikit_learn_makes_is_written_elsewhere() -> None:
    assert len(WRITTEN_HERE) > 100
    others = set(METHODS) - set(WRITTEN_HERE)
    assert all(re.fullmatch(r"\w+\.set_\w+_request", name) for name in others)


@pytest.mark.parametrize("name", WRITTEN_HERE)
def test_every_public_method_has_an_example(name: str) -> None:
    assert_has_example(inspect.getdoc(METHODS[name]) or "")


@pytest.mark.parametrize("name", WRITTEN_HERE)
def test_every_public_method_says_what_data_may_be(name: str) -> None:
    text = inspect.getdoc(METHODS[name]) or ""
    for one in inspect.signature(METHODS[name]).parameters.values():
        if one.annotation is Any and one.name in ("X", "y", "mask", "sample_weight", "groups"):
            assert re.search(rf"^(\w+, )*{one.name}(, \w+)* : ", text, re.MULTILINE), one.name


def test_help_of_simulate_names_what_goes_through_its_options() -> None:
    named = inspect.signature(sparsetoken.simulate).parameters
    passed = set(inspect.signature(sparsetoken.run_trial).parameters) - set(named) - {"trial"}
    assert passed == {"metrics", "fresh_test", "dtype", "check_separable", "threads"}
    text = inspect.getdoc(sparsetoken.simulate) or ""
    assert passed <= set(re.findall(r"\w+", text.partition("**options")[2].partition("Returns")[0]))


# Commands whose output a page shows, by page and text; those that take long are named here.
COMMAND = re.compile(r"^```sh\n([^`]*?)^```\n\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LONG_COMMANDS = ("sparsetoken plan ",)


def shown_commands() -> list[Any]:
    return [
        pytest.param(
            commands,
            shown,
            marks=[pytest.mark.slow] if commands.startswith(LONG_COMMANDS) else [],
            id=f"{page.name}: {commands.strip()}",
        )
        for page in [*PAGES, ROOT / "CONTRIBUTING.md"]
        for commands, shown in COMMAND.findall(page.read_text())
    ]


@pytest.mark.parametrize(("commands", "shown"), shown_commands())
def test_commands_print_what_the_page_shows(commands: str, shown: str, tmp_path: Path) -> None:
    """Words are the same; numbers, whole ones too, up to what another machine's rounding changes."""
    (tmp_path / "study.toml").write_text(STUDY)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    result = subprocess.run(
        ["sh", "-e", "-c", commands],
        cwd=tmp_path,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    number = re.compile(r"\d[\d,]*(?:\.\d+)?(?:e[+-]\d+)?")
    words, numbers = [], []
    for text in (result.stdout, shown):
        words.append(number.sub("#", text.strip()))
        numbers.append([float(found.replace(",", "")) for found in number.findall(text)])
    assert words[0] == words[1]
    assert numbers[0] == pytest.approx(numbers[1], rel=0.03, abs=0.001)


def test_some_page_shows_what_a_command_prints() -> None:
    assert shown_commands()


def test_the_classifier_of_the_page_refuses_a_random_number_of_informative_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(laws, "LAWS", dict(laws.LAWS))
    example = EXAMPLE.search((ROOT / "docs/extending-classifiers.md").read_text())
    assert example
    (tmp_path / "page.py").write_text(example[1])
    names = runpy.run_path(str(tmp_path / "page.py"))
    with pytest.raises(ParameterError, match="informative = 'poisson:2' is not valid"):
        names["summed_law"](Task(8, PoissonCount(2), 4.0), None, 4, 0)
