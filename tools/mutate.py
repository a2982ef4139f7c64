"""Change the source in small ways and see which tests notice: `python tools/mutate.py --notes FOLDER`.

A mutant is one change of one expression in one module: an operator swapped, a comparison turned, a
number moved, a condition negated, a statement dropped. Mutants are drawn at random with a seed, every
one with the same chance. First the tests run once, unchanged, and it is noted which lines each
executes and how long it takes. A mutant then runs, in a copy of the source, the tests that execute
its statement, those of the file with the module's name first, those that start processes last, and
among these the quickest first, until one fails or a budget of time is used up. The table says what
became of each mutant when it was first tried, and what at last. A survivor is a change that no test
notices, or, where somebody has written `equivalent` for its state and why, one that means the same.

A run that was stopped goes on: the notes have a part for each file of tests, which is made again if
the file or the source has changed, and the table a row for each mutant of the sample; another
version of the source needs another table. `--again` tries the survivors again, after new tests or
with a larger budget. Limits are CPU seconds, so that a busy machine kills no mutant.
"""

import argparse
import ast
import contextlib
import copy
import csv
import hashlib
import importlib
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import coverage
import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "sparsetoken"
ROOMS = ("theory", "simulation", "learning", "estimators", "sweeps")
TESTED = (*ROOMS, "planning", "numerics", ".")  # the last: tests of the package as a whole
COLUMNS = ("module", "line", "column", "change", "first", "state", "by", "reason")
SWAPPED: dict[type, type] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.And: ast.Or,
    ast.Or: ast.And,
}


class Mutant(NamedTuple):
    """One change: where it is, and what it is."""

    module: Path
    line: int
    column: int
    change: str
    node: int
    lines: range  # of the statement around it; none if that is executed at import

    @property
    def name(self) -> tuple[str, ...]:
        """What tells it from the others, as in the table."""
        inside = self.module.relative_to(SOURCE)
        return (str(inside), str(self.line), str(self.column), self.change)

    def text(self) -> str:
        """Return the source with the change."""
        tree = ast.parse(self.module.read_text())
        old = next(node for number, node in enumerate(ast.walk(tree)) if number == self.node)
        new = next(new for change, new in changes(old) if change == self.change)
        return ast.unparse(ast.fix_missing_locations(_Replace(old, new).visit(tree)))


def changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield the changes of one node, as a description and the new node."""
    if isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in SWAPPED:
        if isinstance(node, ast.BinOp) and any(
            isinstance(side, ast.Constant | ast.JoinedStr) and not _is_number(side)
            for side in (node.left, node.right)
        ):
            return
        other = copy.deepcopy(node)
        other.op = SWAPPED[type(node.op)]()
        yield f"{type(node.op).__name__} -> {type(other.op).__name__}", other
    elif isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPPED:
        turned = copy.deepcopy(node)
        turned.ops[0] = SWAPPED[type(node.ops[0])]()
        yield f"{type(node.ops[0]).__name__} -> {type(turned.ops[0]).__name__}", turned
    elif _is_number(node):
        value = node.value  # type: ignore[attr-defined]
        moved = value + 1 if isinstance(value, int) else value * 1.5 + (value == 0)
        yield f"{value!r} -> {moved!r}", ast.Constant(moved)
    elif isinstance(node, ast.IfExp | ast.If | ast.While):
        negated = copy.deepcopy(node)
        negated.test = ast.UnaryOp(ast.Not(), negated.test)
        yield "condition negated", negated
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Not):
        yield f"{type(node.op).__name__} dropped", copy.deepcopy(node.operand)
    elif isinstance(node, ast.AugAssign | ast.Expr) and not _is_docstring(node):
        yield "statement dropped", ast.Pass()
    elif isinstance(node, ast.Call) and _name(node.func) in ("max", "min", "maximum", "minimum"):
        swapped = copy.deepcopy(node)
        pairs = {"max": "min", "min": "max", "maximum": "minimum", "minimum": "maximum"}
        if isinstance(swapped.func, ast.Name):
            swapped.func.id = pairs[swapped.func.id]
        elif isinstance(swapped.func, ast.Attribute):
            swapped.func.attr = pairs[swapped.func.attr]
        yield f"{_name(node.func)} -> {_name(swapped.func)}", swapped


def _is_number(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Constant)
        and isinstance(node.value, int | float)
        and not isinstance(node.value, bool)
    )


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")


class _Replace(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        if node is self.old:
            return ast.copy_location(self.new, node)
        return self.generic_visit(node)


def mutants(module: Path) -> list[Mutant]:
    """Return all mutants of a module."""
    tree = ast.parse(module.read_text())
    above = {child: parent for parent in ast.walk(tree) for child in ast.iter_child_nodes(parent)}
    return [
        Mutant(module, node.lineno, node.col_offset, change, number, _lines(node, above))
        for number, node in enumerate(ast.walk(tree))
        for change, _ in changes(node)
    ]


def _lines(node: ast.AST, above: dict[ast.AST, ast.AST]) -> range:
    """Return the lines that are executed with a node: its statement's, in a function's body."""
    while not isinstance(node, ast.stmt):
        node = above[node]
    if isinstance(node, ast.FunctionDef):  # a default value: with any line of the body
        return range(node.body[0].lineno, (node.end_lineno or node.lineno) + 1)
    body = getattr(node, "body", None)
    end = body[0].lineno - 1 if body else node.end_lineno
    lines = range(node.lineno, max(node.lineno, end or node.lineno) + 1)
    while node in above:
        node = above[node]
        if isinstance(node, ast.FunctionDef):
            return lines
    return range(0)


class Observer:
    """A plugin of pytest that notes each test's CPU seconds, also of its processes."""

    def __init__(self, measured: coverage.Coverage) -> None:
        self.measured = measured
        self.seconds: dict[str, tuple[float, float]] = {}
        self.failed: set[str] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Note the lines of one test under its name."""
        self.measured.switch_context(item.nodeid)
        begin = os.times()
        yield
        used = [now - then for now, then in zip(os.times(), begin, strict=True)]
        self.seconds[item.nodeid] = (used[0] + used[1], used[2] + used[3])
        self.measured.switch_context("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Leave out what fails unchanged."""
        if report.failed:
            self.failed.add(report.nodeid)


class FirstFailure:
    """A plugin of pytest that keeps the first test that fails."""

    name = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the first failure."""
        if report.failed and not self.name:
            self.name = report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a module that cannot be imported any more."""
        if report.failed and not self.name:
            self.name = f"import of {report.nodeid}"


def in_a_process(work: Callable[[], Any], seconds: float | None = None) -> Any:
    """Return what the work returns in a fork of this process; None if it broke or took too long.

    What is imported already, which is most of the time of a short test, is shared.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.setpgrp()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if seconds is not None:
            resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 5))
        quiet = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(quiet, stream)
        with os.fdopen(writing, "w") as file:
            json.dump(work(), file)
        os._exit(0)
    os.close(writing)
    try:
        with os.fdopen(reading) as file:
            answer = file.read()
    finally:
        with contextlib.suppress(ProcessLookupError):  # what a broken test has left running
            os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return json.loads(answer) if answer else None


def run_pytest(tests: list[str], plugin: object, *options: str) -> None:
    """Run tests in this process."""
    always = ["-q", "--no-header", "--no-showlocals", "--tb=no", "-p", "no:cacheprovider"]
    # Plugins of pytest are imported before it starts, so that forks share them.
    always += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    pytest.main([*always, f"--rootdir={ROOT}", *options, *tests], plugins=[plugin])


def import_from(source: Path) -> None:
    """Import the package from there, here and in processes that start later."""
    sys.path.insert(0, str(source))
    os.environ["PYTHONPATH"] = str(source)


def observe(file: Path) -> dict[str, Any]:
    """Run a file's tests unchanged; return each test's seconds and the lines it executes."""

    def work() -> dict[str, Any]:
        import_from(SOURCE.parent)
        measured = coverage.Coverage(source=[str(SOURCE)], data_file=None, config_file=False)
        observer = Observer(measured)
        measured.start()
        run_pytest([str(file)], observer, "-m", "not slow")
        measured.stop()
        data, lines = measured.get_data(), {}
        for path in data.measured_files():
            found = data.contexts_by_lineno(path)
            inside = str(Path(path).relative_to(SOURCE))
            lines[inside] = {str(line): list(names) for line, names in found.items()}
        seconds = {k: v for k, v in observer.seconds.items() if k not in observer.failed}
        return {"seconds": seconds, "failed": sorted(observer.failed), "lines": lines}

    found = in_a_process(work)
    if not found:
        sys.exit(f"{file} does not run unchanged")
    for name in found["failed"]:
        print(f"{name} fails unchanged, and is left out", flush=True)
    return dict(found)


def digest(*files: Path) -> str:
    """Return a name for what is in files."""
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()


class Notes:
    """Which tests execute a line, the quickest first."""

    def __init__(self, folder: Path) -> None:
        self.seconds: dict[str, tuple[float, float]] = {}
        self._lines: dict[tuple[str, int], set[str]] = defaultdict(set)
        self._modules: dict[str, set[str]] = defaultdict(set)
        source = sorted(SOURCE.rglob("*.py"))
        for room in TESTED:
            for file in sorted((ROOT / "tests" / room).glob("test_*.py")):
                note = folder / "-".join([*Path(room).parts, f"{file.stem}.json"])
                self._add(note, file, digest(file, *source))

    def _add(self, note: Path, file: Path, version: str) -> None:
        """Add what one file's tests execute, from its note if that is of this version."""
        found = json.loads(note.read_text()) if note.exists() else {}
        if found.get("version") != version:
            found = {"version": version, **observe(file)}
            note.parent.mkdir(parents=True, exist_ok=True)
            note.write_text(json.dumps(found))
        self.seconds |= found["seconds"]
        for module, lines in found["lines"].items():
            for line, names in lines.items():
                self._lines[module, int(line)].update(names)
                self._modules[module].update(names)

    def tests_of(self, mutant: Mutant, budget: float) -> list[str]:
        """Return the tests of a mutant's statement, or of its module if no test executes that."""
        module = mutant.name[0]
        names = set().union(*(self._lines[module, line] for line in mutant.lines))
        if not names:  # also where only processes that tests start execute it
            names = self._modules[module]
        chosen, total = [], 0.0
        for name in sorted(names & set(self.seconds), key=lambda name: self._rank(mutant, name)):
            total += sum(self.seconds[name])
            if chosen and total > budget:
                break
            chosen.append(name)
        return chosen

    def _rank(self, mutant: Mutant, name: str) -> tuple[bool, bool, float]:
        own, of_processes = self.seconds[name]
        elsewhere = not name.partition("::")[0].endswith(f"test_{mutant.module.stem}.py")
        return of_processes > 0, elsewhere, own + of_processes


def killer(mutant: Mutant, tests: list[str], seconds: float) -> str:
    """Run tests against a copy of the source with the change; return what noticed it, or ""."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        copied = Path(folder) / "src" / "sparsetoken"
        shutil.copytree(SOURCE, copied)  # with what is compiled, which knows the time of a change
        (copied / mutant.module.relative_to(SOURCE)).write_text(mutant.text())

        def work() -> str:
            import_from(copied.parent)
            first = FirstFailure()
            run_pytest(tests, first, "-x", "--timeout=300")  # one that waits for ever
            return first.name

        found = in_a_process(work, seconds)
    return "time limit" if found is None else str(found)


def noticed(mutant: Mutant, tests: list[str], seconds: float) -> str:
    """Return the first test that fails, and does so alone as well, not only after others; or ""."""
    while tests:
        by = killer(mutant, tests, seconds)
        if by not in tests or killer(mutant, [by], seconds):
            return by
        tests = tests[tests.index(by) + 1 :]
    return ""


def main() -> None:
    """Draw mutants, try them, and write what became of each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=160)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rooms", nargs="*", default=ROOMS)
    parser.add_argument("--budget", type=float, default=30.0, help="CPU seconds of tests")
    parser.add_argument("--again", action="store_true", help="try the survivors again")
    parser.add_argument("--table", type=Path, default=ROOT / "benchmarks" / "mutants.csv")
    parser.add_argument("--notes", type=Path, required=True, help="folder for what each test runs")
    options = parser.parse_args()
    os.chdir(ROOT)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # and end what was started
    share_imports()
    notes = Notes(options.notes)
    modules = [path for room in options.rooms for path in sorted((SOURCE / room).rglob("*.py"))]
    everything = [mutant for module in modules for mutant in mutants(module)]
    drawn = random.Random(options.seed).sample(everything, min(options.count, len(everything)))
    print(f"{len(drawn)} of {len(everything)} mutants, {len(notes.seconds)} tests", flush=True)
    names, known = {mutant.name for mutant in drawn}, read(options.table)
    table = {name: row for name, row in known.items() if name in names}
    for mutant in drawn:
        before = table.get(mutant.name, {})
        if before.get("state") == "killed" or (before and not options.again):
            continue
        tests = notes.tests_of(mutant, options.budget)
        by = noticed(mutant, tests, 3 * options.budget + 30)
        row = {"state": "survived", "reason": "", **before, "by": by}
        if by:
            row |= {"state": "killed", "reason": ""}
        row = {"first": row["state"]} | row
        table[mutant.name] = dict(zip(COLUMNS, mutant.name, strict=False)) | row
        write(options.table, table)
        place = f"[{len(table)}/{len(drawn)}]"
        print(f"{place} {row['state']:8} {':'.join(mutant.name)} ({len(tests)} tests)", flush=True)
    print(summary(list(table.values())))


def summary(rows: list[dict[str, str]]) -> str:
    """Return how many were killed, when first tried and at last, of all and of the meaningful."""
    same = sum(row["state"] == "equivalent" for row in rows)
    lines = [f"{len(rows)} mutants, {same} of them equivalent"]
    for name in ("first", "state"):
        killed = sum(row[name] == "killed" for row in rows)
        shares = [killed / max(1, count) for count in (len(rows), len(rows) - same)]
        when = "when first tried" if name == "first" else "at last"
        lines.append(f"killed {when}: {killed}, {shares[0]:.0%} of all, {shares[1]:.0%} of others")
    return "\n".join(lines)


def share_imports() -> None:
    """Import what tests need, so that forks have it; nothing of the package itself."""
    for name in ("distributed", "hypothesis", "matplotlib.pyplot", "pydantic", "scipy.integrate"):
        importlib.import_module(name)
    for name in ("scipy.optimize", "scipy.stats", "sklearn.utils.estimator_checks"):
        importlib.import_module(name)


def read(table: Path) -> dict[tuple[str, ...], dict[str, str]]:
    """Return the rows of the table by the mutant's name."""
    if not table.exists():
        return {}
    with table.open(newline="") as file:
        return {tuple(row[name] for name in COLUMNS[:4]): row for row in csv.DictReader(file)}


def write(table: Path, rows: dict[tuple[str, ...], dict[str, str]]) -> None:
    """Write the whole table, sorted, so that a run changes only what it changes."""
    ordered = sorted(rows.values(), key=lambda row: (row["module"], int(row["line"])))
    with table.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(ordered)


if __name__ == "__main__":
    main()
