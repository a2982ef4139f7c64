"""Write the results of a run into a folder."""

import csv
import json
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from sparsetoken.files import replacing, write_text
from sparsetoken.plotting import save_figure
from sparsetoken.reproduce.claim import Table
from sparsetoken.reproduce.examination import Examination
from sparsetoken.reproduce.report.html import page

__all__ = ["read_table", "run_description", "verdicts", "write_results"]

PACKAGES = ("sparsetoken", "numpy", "scipy", "scikit-learn", "matplotlib")
FORMATS = ("svg", "pdf")


def write_results(
    findings: Sequence[Examination], folder: Path, profile: str, seed: int, command: str
) -> Path:
    """Write figures, tables, `verdicts.json` and `report.html`; return the report's path."""
    folder.mkdir(parents=True, exist_ok=True)
    pictures: dict[str, str] = {}
    for finding in findings:
        if finding.table is not None:
            _write_table(finding.table, folder / "numbers" / f"{finding.claim.stem}.csv")
        for name, drawing in (finding.drawings or {}).items():
            stem = f"{finding.claim.stem}-{name}"
            svg, *_ = save_figure(drawing.figure, folder / "figures" / stem, FORMATS)
            pictures[stem] = svg.read_text(encoding="utf-8")
    run = run_description(profile, seed, command)
    entries = {f"{series}s": verdicts(findings, series) for series in ("claim", "question")}
    text = json.dumps({**run, **entries}, indent=2, ensure_ascii=False)
    write_text(folder / "verdicts.json", text + "\n")
    report = folder / "report.html"
    write_text(report, page(findings, pictures, run))
    return report


def run_description(profile: str, seed: int, command: str) -> dict[str, Any]:
    """Return what a run depends on: command, profile, seed and versions."""
    versions = {name: version(name) for name in PACKAGES}
    versions["python"] = platform.python_version()
    return {"command": command, "profile": profile, "seed": seed, "versions": versions}


def verdicts(findings: Sequence[Examination], series: str) -> list[dict[str, Any]]:
    """Return one plain dictionary for each claim, or question, of a series."""
    return [_verdict(finding) for finding in findings if finding.claim.series == series]


def _verdict(finding: Examination) -> dict[str, Any]:
    claim, verdict = finding.claim, finding.verdict
    entry: dict[str, Any] = {
        claim.series: claim.number,
        "title": claim.title,
        "statement": claim.statement,
        "criterion": claim.criterion,
        "verdict": finding.ruling,
        "seen": verdict.seen if verdict else finding.error,
        "settings": dict(finding.settings),
        "seed": finding.settings["seed"],
        "numbers": {},
        "figures": [
            f"figures/{claim.stem}-{name}.{suffix}"
            for name in finding.drawings or {}
            for suffix in FORMATS
        ],
    }
    if verdict:
        entry["numbers"] = {
            name: {"value": quantity.value, "uncertainty": quantity.uncertainty}
            for name, quantity in verdict.numbers.items()
        }
    if finding.table is not None:
        entry["table"] = f"numbers/{claim.stem}.csv"
    return entry


def _write_table(table: Table, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = list(dict.fromkeys(name for row in table.rows for name in row))
    with replacing(path) as file:
        writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(table.rows)


def read_table(folder: Path, entry: Mapping[str, Any]) -> Table:
    """Return the numbers of an entry of a folder's `verdicts.json` as they were judged."""
    with (folder / entry["table"]).open(newline="", encoding="utf-8") as file:
        rows = [
            {name: _number_or_text(value) for name, value in row.items() if value}
            for row in csv.DictReader(file)
        ]
    return Table(rows, entry["settings"])


def _number_or_text(text: str) -> float | str:
    try:
        return int(text) if text.isdigit() else float(text)
    except ValueError:
        return text
