import csv
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from sparsetoken.plotting import draw_theory, look_of, new_figure
from sparsetoken.reproduce.claim import Drawing, Quantity, Table, Verdict
from sparsetoken.reproduce.examination import Examination
from sparsetoken.reproduce.registry import select_claims
from sparsetoken.reproduce.report import write_results

VOID = {"meta", "img", "br"}


class Outline(HTMLParser):
    """Collects what a browser would fetch, and checks that tags are closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []
        self.headings: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        self.fetched += [value or "" for name, value in attrs if name == "src"]
        self.fetched += [value or "" for name, value in attrs if name == "href" and tag != "a"]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "h2":
            self.headings.append(data)
        self.text.append(data)


def finding(number: int, outcome: str = "confirmed") -> Examination:
    claim = select_claims([number])[0]
    settings = {"length": 10, "seed": 3}
    if outcome == "broken":
        return Examination(
            claim, settings, 1.0, error="MeasurementsFailed: <2> of 3 measurements failed"
        )
    figure, (panel,) = new_figure()
    draw_theory(panel, [1, 2], [1, number], look_of("attention"))
    return Examination(
        claim,
        settings,
        1.0,
        Table([{"source": "theory", "x": 1.0}, {"source": "simulation", "y": 2.0}], settings),
        Verdict(outcome, "slope < 1: holds", {"slope": Quantity(0.5, 0.01)}),  # type: ignore[arg-type]
        {"curve": Drawing(figure, f"Figure of claim {number}, L = 10.")},
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report")
    findings = [finding(5), finding(8, "refuted"), finding(11, "undecided"), finding(13, "broken")]
    report = write_results(findings, path, "quick", 3, "sparsetoken reproduce 5 8 11 13 --quick")
    assert report == path / "report.html"
    return path


@pytest.fixture(scope="module")
def outline(folder: Path) -> Outline:
    parser = Outline()
    parser.feed((folder / "report.html").read_text())
    return parser


def test_the_report_is_whole_and_fetches_nothing(outline: Outline) -> None:
    assert outline.open == []
    assert len(outline.fetched) == 4, "the main figure and one for each claim that has one"
    assert all(address.startswith("data:image/svg+xml;base64,") for address in outline.fetched)


def test_verdicts_come_first_then_the_main_figure_then_claims_then_method(
    folder: Path, outline: Outline
) -> None:
    text = (folder / "report.html").read_text()
    places = [text.index(mark) for mark in ("<table>", "<figure", 'id="claim-5"', 'id="method"')]
    assert places == sorted(places)
    assert "Figure of claim 8" in text[: places[2]]
    assert [heading[:2] for heading in outline.headings] == ["5.", "8.", "11", "13", "Me"]
    for outcome in ("confirmed", "refuted", "undecided", "broken"):
        assert text.count(f'class="badge {outcome}"') == 2


def test_each_claim_says_what_was_seen_and_how_to_run_it(outline: Outline) -> None:
    text = "".join(outline.text)
    assert "slope < 1: holds" in text
    assert "<2> of 3 measurements failed" in text
    assert "0.500 ± 0.010" in text
    assert "sparsetoken reproduce 11 --quick" in text
    assert select_claims([11])[0].meaning in text


@pytest.mark.parametrize(
    ("command", "alone"),
    [
        ("sparsetoken reproduce", "sparsetoken reproduce 5"),
        ("sparsetoken reproduce 5 8 --quick --seed 3", "sparsetoken reproduce 5 --quick --seed 3"),
        ("sparsetoken reproduce --questions --quick", "sparsetoken reproduce 5 --quick"),
    ],
)
def test_the_command_for_one_claim_has_the_options_of_the_run(
    tmp_path: Path, command: str, alone: str
) -> None:
    report = write_results([finding(5)], tmp_path, "quick", 3, command)
    assert f"Just this one: <code>{alone}</code>" in report.read_text()


def test_verdicts_hold_all_that_a_machine_needs(folder: Path) -> None:
    data = json.loads((folder / "verdicts.json").read_text())
    assert data["seed"] == 3
    assert data["command"].endswith("--quick")
    assert {"sparsetoken", "python", "numpy"} <= set(data["versions"])
    first, *_, last = data["claims"]
    assert first["verdict"] == "confirmed"
    assert first["numbers"]["slope"] == {"value": 0.5, "uncertainty": 0.01}
    assert first["settings"]["length"] == 10
    assert first["criterion"] == select_claims([5])[0].criterion
    assert all((folder / name).is_file() for name in [*first["figures"], first["table"]])
    assert {Path(name).suffix for name in first["figures"]} == {".svg", ".pdf"}
    assert last["verdict"] == "broken"
    assert last["figures"] == []


def test_numbers_are_a_table_with_all_columns(folder: Path) -> None:
    (path,) = (folder / "numbers").glob("claim-05-*.csv")
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows[0] == {"source": "theory", "x": "1.0", "y": ""}
    assert rows[1]["y"] == "2.0"


def test_the_same_findings_give_the_same_files(folder: Path, tmp_path: Path) -> None:
    findings = [finding(5), finding(8, "refuted"), finding(11, "undecided"), finding(13, "broken")]
    write_results(findings, tmp_path, "quick", 3, "sparsetoken reproduce 5 8 11 13 --quick")
    for path in sorted(folder.rglob("*.*")):
        assert path.read_bytes() == (tmp_path / path.relative_to(folder)).read_bytes(), path.name


def test_the_report_is_for_phones_and_both_colour_schemes(folder: Path) -> None:
    text = (folder / "report.html").read_text()
    assert re.search(r'name="viewport" content="width=device-width', text)
    assert "color-scheme: light dark" in text
