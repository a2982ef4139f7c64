"""Put the results of `sparsetoken reproduce` into docs/reproduction, and its tables into the pages.

    python tools/record_run.py FOLDER [FOLDER ...]

Each folder is the output of a run, of all claims or of some. What it measured replaces what is
recorded of the same claims and questions; the rest stays. Verdicts, figures and the report are made
anew from the recorded numbers, so that they fit the present code.
"""

import argparse
import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from sparsetoken.reproduce.claim import Series
from sparsetoken.reproduce.examination import Examination
from sparsetoken.reproduce.registry import select_claims
from sparsetoken.reproduce.report import write_results
from sparsetoken.reproduce.report.folder import read_table
from sparsetoken.reproduce.report.markdown import verdict_table

ROOT = Path(__file__).parents[1]
RECORDED = ROOT / "docs" / "reproduction"
COMMAND = "sparsetoken reproduce"
SERIES: tuple[Series, ...] = ("claim", "question")


def read_run(folder: Path) -> dict[str, Any]:
    """Return what a folder's `verdicts.json` says."""
    return dict(json.loads((folder / "verdicts.json").read_text(encoding="utf-8")))


def findings_of(
    folder: Path, known: Collection[tuple[Series, int]] = ()
) -> dict[tuple[Series, int], Examination]:
    """Judge and draw the numbers of a folder again, by series and number, but for known ones.

    Numbers that others replace may be of an earlier form, which the present code cannot judge.
    """
    run = read_run(folder)
    if (run["profile"], run["seed"]) != ("full", 0):
        raise SystemExit(f"{folder}: a full run with seed 0 is wanted")
    found = {}
    for series in SERIES:
        for entry in run[f"{series}s"]:
            if "table" not in entry or (series, entry[series]) in known:
                continue
            (claim,) = select_claims([entry[series]], series)
            table = read_table(folder, entry)
            found[series, claim.number] = Examination(
                claim, entry["settings"], 0.0, table, claim.judge(table), claim.figures(table)
            )
    return found


def main(folders: list[Path]) -> None:
    """Merge the folders into the recorded run."""
    before = read_run(RECORDED)
    found: dict[tuple[Series, int], Examination] = {}
    for folder in folders:
        found.update(findings_of(folder))
    found.update(findings_of(RECORDED, found.keys()))
    write_results([found[key] for key in sorted(found)], RECORDED, "full", 0, COMMAND)
    after = read_run(RECORDED)
    for page in (ROOT / "README.md", ROOT / "docs" / "reproduction.md"):
        text = page.read_text(encoding="utf-8")
        for series in SERIES:
            old, new = (verdict_table(run[f"{series}s"], series) for run in (before, after))
            text = text.replace(old, new)
        page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=str(__doc__), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, nargs="+", help="output of a full run with seed 0")
    folders = parser.parse_args().folder
    for folder in folders:
        if not (folder / "verdicts.json").is_file():
            parser.error(f"{folder} is not the output of a run: it has no verdicts.json")
    main(folders)
