"""Change the source in small ways and see which tests notice: `python tools/mutate.py --count 150`.

A mutant is one change of one expression in one module: an operator swapped, a comparison turned, a
number moved, a condition negated, a statement dropped. Mutants are drawn at random with a seed, the
same number of lines having the same chance. Each runs the tests of its room in a copy of the
source, first those of its own module, until one fails. The table says which mutants survived; a
survivor is a change that no test notices, or one that means the same.
"""

import argparse
import ast
import copy
import csv
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "sparsetoken"
ROOMS = ("theory", "simulation", "learning", "estimators", "sweeps", "numerics", "planning")
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
    """One change: where it is, what it is, and the source with it."""

    module: Path
    line: int
    change: str
    text: str


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
    text = module.read_text()
    found = []
    for number, node in enumerate(ast.walk(ast.parse(text))):
        for change, new in changes(node):
            tree = ast.parse(text)
            old = next(other for k, other in enumerate(ast.walk(tree)) if k == number)
            changed = ast.fix_missing_locations(_Replace(old, new).visit(tree))
            line = getattr(node, "lineno", 0)
            found.append(Mutant(module, line, change, ast.unparse(changed)))
    return found


def tests_of(module: Path) -> list[str]:
    """Return the test files of a module's room, those named after the module first."""
    room = module.relative_to(SOURCE).parts[0]
    folder = ROOT / "tests" / room
    files = sorted(folder.glob("test_*.py"))
    files.sort(key=lambda path: module.stem not in path.stem)
    more = {"learning": "simulation", "numerics": "theory"}.get(room)
    if more:
        files += sorted((ROOT / "tests" / more).glob("test_*.py"))
    return [str(path) for path in files]


def is_killed(mutant: Mutant, seconds: float) -> tuple[bool, str]:
    """Run the tests against a copy of the source with the change; tell whether one failed."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        copied = Path(folder) / "src" / "sparsetoken"
        shutil.copytree(SOURCE, copied, ignore=shutil.ignore_patterns("__pycache__"))
        (copied / mutant.module.relative_to(SOURCE)).write_text(mutant.text)
        environment = {
            **os.environ,
            "PYTHONPATH": str(copied.parent),
            "PYTHONDONTWRITEBYTECODE": "1",
            "OMP_NUM_THREADS": "1",
        }
        command = [sys.executable, "-m", "pytest", "-q", "-x", "--no-header", "--no-showlocals"]
        command += ["-p", "no:cacheprovider", *tests_of(mutant.module)]
        try:
            done = subprocess.run(
                command,
                cwd=ROOT,
                env=environment,
                capture_output=True,
                text=True,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return True, "too slow"
        failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
        return done.returncode != 0, failed[0][:120] if failed else ""


def main() -> None:
    """Draw mutants, try them, and write what became of each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rooms", nargs="*", default=ROOMS)
    parser.add_argument("--seconds", type=float, default=900.0, help="for one mutant")
    parser.add_argument("--table", type=Path, default=ROOT / "benchmarks" / "mutants.csv")
    options = parser.parse_args()
    modules = [path for room in options.rooms for path in sorted((SOURCE / room).rglob("*.py"))]
    everything = [mutant for module in modules for mutant in mutants(module)]
    rng = random.Random(options.seed)
    drawn = rng.sample(everything, min(options.count, len(everything)))
    known = _known(options.table)
    for number, mutant in enumerate(drawn, 1):
        name = (str(mutant.module.relative_to(SOURCE)), str(mutant.line), mutant.change)
        if name in known:
            continue
        begin = time.perf_counter()
        killed, by = is_killed(mutant, options.seconds)
        known[name] = "killed" if killed else "survived"
        _append(options.table, [*name, known[name], by])
        took = time.perf_counter() - begin
        print(
            f"[{number}/{len(drawn)}] {known[name]:8} {':'.join(name)} ({took:.0f} s)", flush=True
        )
    killed_count = sum(state == "killed" for state in known.values())
    print(f"{killed_count} of {len(known)} mutants killed ({killed_count / len(known):.0%})")


def _known(table: Path) -> dict[tuple[str, str, str], str]:
    if not table.exists():
        return {}
    with table.open(newline="") as file:
        return {(row[0], row[1], row[2]): row[3] for row in list(csv.reader(file))[1:]}


def _append(table: Path, row: list[str]) -> None:
    new = not table.exists()
    with table.open("a", newline="") as file:
        writer = csv.writer(file)
        if new:
            writer.writerow(["module", "line", "change", "state", "by"])
        writer.writerow(row)


if __name__ == "__main__":
    main()
