"""The package as a whole: its public names, its files, and who may import whom."""

import ast
import re
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import sparsetoken

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "sparsetoken"
MODULES = sorted(
    ".".join(path.relative_to(SOURCE).with_suffix("").parts) for path in SOURCE.rglob("*.py")
)
ADDRESS_OF_A_REGISTRY = re.compile(
    r"https?://[^\s/]*(?:pypi|pythonhosted|artifactory|nexus|conda|devpi)[^\s/]*|index[-_]url"
)
ABSOLUTE_PATH = re.compile(r"""(?<![\w./:<-])/(?:home|root|work|tmp|Users|mnt|opt|srv|var)/\w""")


@cache
def tracked_files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    names = listed.stdout.split("\0")[:-1]
    if listed.returncode != 0:  # an unpacked archive rather than a clone
        names = [str(path) for folder in ("src", "tests") for path in (ROOT / folder).rglob("*.*")]
    return [ROOT / name for name in names if (ROOT / name).is_file()]


def test_public_names_resolve_and_the_tables_agree() -> None:
    assert sorted(sparsetoken.__all__) == sorted(sparsetoken._HOME_OF)
    assert len(set(sparsetoken.__all__)) == len(sparsetoken.__all__)
    for name in sparsetoken.__all__:
        value = getattr(sparsetoken, name)
        home = sys.modules[f"sparsetoken.{sparsetoken._HOME_OF[name]}"]
        assert value is getattr(home, name)
        assert name in home.__all__, f"{name} is public, but not in {home.__name__}.__all__"
        assert value.__doc__
    assert set(dir(sparsetoken)) == {*sparsetoken.__all__, "__version__"}


def test_names_for_type_checkers_are_the_public_names() -> None:
    tree = ast.parse((SOURCE / "__init__.py").read_text())
    guarded = next(node for node in tree.body if isinstance(node, ast.If))
    homes = {
        alias.name: node.module
        for node in guarded.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert homes == {name: f"sparsetoken.{home}" for name, home in sparsetoken._HOME_OF.items()}


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'sparsetoken' has no attribute 'attend'"):
        _ = sparsetoken.attend


def test_importing_the_package_is_light() -> None:
    program = "import sys, sparsetoken; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_package_is_typed_and_versions_agree() -> None:
    assert (SOURCE / "py.typed").is_file()
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {sparsetoken.__version__}\n" in citation
    assert "arXiv:2509.25153" in citation


@pytest.mark.parametrize("pattern", [ADDRESS_OF_A_REGISTRY, ABSOLUTE_PATH])
def test_no_file_names_a_registry_or_a_place_on_one_machine(pattern: re.Pattern[str]) -> None:
    found = []
    for path in tracked_files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:  # a picture
            continue
        if path != Path(__file__):
            found += [f"{path.name}: {match[0]}" for match in pattern.finditer(text)]
    assert not found


def test_the_patterns_above_find_what_they_look_for() -> None:
    # Put together here, so that no such text stands in the tree.
    for text in (
        "https://pypi.org" + "/simple",
        "http://artifactory" + ".local/x",
        "--index-url x",
    ):
        assert ADDRESS_OF_A_REGISTRY.search(text)
    for text in ("/home" + "/me/x", '"/tmp' + '/x"', "see /work" + "/notes"):
        assert ABSOLUTE_PATH.search(text)
    for text in ("https://example.org/home/page", "docs/tmp/x", "../var/x"):
        assert not ABSOLUTE_PATH.search(text)


# Who may import whom: a room may import itself and what stands here.
FOUNDATION = {
    "limits",
    "validation",
    "arrays",
    "extensions",
    "records",
    "uncertainty",
    "numerics",
    "losses",
    "informative",
    "task",
}
BELOW_LEARNING = FOUNDATION | {"learning"}
MAY_IMPORT = {
    "validation": set(),
    "arrays": set(),
    "limits": set(),
    "files": set(),
    "extensions": {"validation"},
    "uncertainty": {"arrays", "records"},
    "records": {"validation", "plotting"},
    "numerics": {"arrays", "validation"},
    "losses": {"arrays", "validation", "numerics", "extensions"},
    "informative": {"arrays", "validation", "numerics"},
    "task": {"arrays", "validation", "numerics", "losses", "informative"},
    "plotting": {"arrays", "validation", "files"},
    "learning": FOUNDATION,
    "theory": FOUNDATION,
    "simulation": BELOW_LEARNING,
    "estimators": BELOW_LEARNING | {"plotting"},
    "planning": BELOW_LEARNING | {"theory", "simulation", "estimators", "plotting", "files"},
}
MAY_IMPORT["sweeps"] = MAY_IMPORT["planning"]
MAY_IMPORT["reproduce"] = MAY_IMPORT["sweeps"] | {"sweeps"}
LEAVES = {"cli", "explorer", "__main__"}


def test_every_room_has_its_rule() -> None:
    rooms = {room_of(module) for module in MODULES} - {"__init__"}
    assert rooms <= set(MAY_IMPORT) | LEAVES


def test_the_list_of_rooms_goes_up_from_what_others_are_built_on() -> None:
    listed = re.findall(
        r"^\| ((?:`\w+`(?:, )?)+)", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE
    )
    rows = [set(re.findall(r"\w+", row)) for row in listed]
    assert set.union(*rows) - LEAVES == set(MAY_IMPORT)
    for place, row in enumerate(rows):
        below = set.union(set(), *rows[: place + 1])
        assert all(MAY_IMPORT.get(room, set()) <= below for room in row), row


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("from sparsetoken import AttentionClassifier", "matplotlib"),
        ("from sparsetoken import predict", "matplotlib"),
        ("from sparsetoken import diagnose, forecast, phase_map, plan", "matplotlib"),
        ("from sparsetoken import predict", "sklearn"),
        ("from sparsetoken import simulate", "scipy.stats"),
        ("import sparsetoken.cli", "numpy"),
    ],
)
def test_an_import_loads_no_more_than_it_needs(statement: str, absent: str) -> None:
    program = f"import sys; {statement}; sys.exit({absent!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def room_of(module: str) -> str:
    return module.split(".")[0]


def text_of(module: str) -> str:
    return (SOURCE / Path(*module.split("."))).with_suffix(".py").read_text()


def imported_names(text: str) -> list[str]:
    """Return the full names that a module imports, anywhere in its text, and by literals too."""
    names: list[str] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide the direction"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else node.func
            called = called.id if isinstance(called, ast.Name) else called
            arguments = [*node.args, *(given.value for given in node.keywords)]
            if called in ("import_module", "__import__"):
                literals = [one.value for one in arguments if isinstance(one, ast.Constant)]
                names += [one for one in literals if isinstance(one, str)]
    assert "sparsetoken" not in names, "to import the whole package hides what is used of it"
    return names


def imported_rooms(module: str) -> set[str]:
    """Return the rooms of the package that a module imports."""
    rooms = set()
    for name in imported_names(text_of(module)):
        package, _, rest = name.partition(".")
        if package == "sparsetoken" and rest:
            first = rest.split(".")[0]
            rooms.add(room_of(sparsetoken._HOME_OF.get(first, first)))
    return rooms - {room_of(module), "__version__"}


@pytest.mark.parametrize(
    "text",
    [
        "import sparsetoken.cli",
        "def f():\n    from sparsetoken.cli import main",
        "importlib.import_module('sparsetoken.cli')",
        "import_module(name='sparsetoken.cli')",
        "__import__('sparsetoken.cli')",
    ],
)
def test_an_import_is_seen_however_it_is_written(text: str) -> None:
    (name,) = imported_names(text)
    assert name.startswith("sparsetoken.cli")


def test_the_modules_of_theory_import_one_way() -> None:
    before: dict[str, set[str]] = {}
    for module in MODULES:
        if room_of(module) == "theory":
            names = [name.removeprefix("sparsetoken.") for name in imported_names(text_of(module))]
            homes = {".".join(name.split(".")[:2]) for name in names}
            before[module] = homes & set(MODULES)
    order = list(TopologicalSorter(before).static_order())  # a CycleError if there is none
    assert order.index("theory.feature_law") < order.index("theory.laws")


@pytest.mark.parametrize("module", [name for name in MODULES if room_of(name) in MAY_IMPORT])
def test_imports_go_one_way(module: str) -> None:
    assert imported_rooms(module) <= MAY_IMPORT[room_of(module)]


@pytest.mark.parametrize("module", [m for m in MODULES if room_of(m) not in LEAVES | {"__init__"}])
def test_nothing_imports_a_leaf(module: str) -> None:
    assert not imported_rooms(module) & LEAVES


def test_every_module_says_what_it_is_and_what_it_exports() -> None:
    for module in MODULES:
        assert ast.get_docstring(ast.parse(text_of(module))), f"{module} has no docstring"
