"""The committed full run: its verdicts follow from its numbers, and the pages show them."""

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from altering import altered
from matplotlib.axes import Axes

from sparsetoken.reproduce.claim import Table
from sparsetoken.reproduce.examination import Examination
from sparsetoken.reproduce.registry import claims, select_claims
from sparsetoken.reproduce.report.folder import read_table, verdicts
from sparsetoken.reproduce.report.html import page
from sparsetoken.reproduce.report.markdown import verdict_table

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "reproduction"
RUN = json.loads((FOLDER / "verdicts.json").read_text(encoding="utf-8"))
ENTRIES = {entry["claim"]: entry for entry in RUN["claims"]}


def recorded(number: int) -> Table:
    """Return the committed numbers of a claim."""
    return read_table(FOLDER, ENTRIES[number])


def ruling(number: int, table: Table) -> str:
    return select_claims([number])[0].judge(table).ruling


@pytest.mark.parametrize("number", range(1, 17))
def test_committed_verdicts_follow_from_the_committed_numbers(number: int) -> None:
    claim, entry = select_claims([number])[0], ENTRIES[number]
    verdict = claim.judge(recorded(number))
    assert verdict.ruling == entry["verdict"]
    assert verdict.seen == entry["seen"]
    assert claim.criterion == entry["criterion"]
    assert claim.title == entry["title"]
    for name, quantity in verdict.numbers.items():
        assert quantity.value == pytest.approx(entry["numbers"][name]["value"], rel=1e-9)


@pytest.mark.parametrize("number", range(1, 17))
def test_committed_settings_are_those_of_the_full_profile(number: int) -> None:
    entry = ENTRIES[number]
    expected = {**select_claims([number])[0].settings["full"], "seed": RUN["seed"]}
    assert entry["settings"] == json.loads(json.dumps(expected))


def test_committed_figures_are_there_and_small() -> None:
    for entry in [*RUN["claims"], *RUN["questions"]]:
        assert entry["figures"]
        for name in entry["figures"]:
            assert 0 < (FOLDER / name).stat().st_size < 200_000, name


QUESTIONS = {entry["question"]: entry for entry in RUN["questions"]}


@pytest.mark.parametrize("number", [question.number for question in claims("question")])
def test_committed_answers_follow_from_the_committed_numbers(number: int) -> None:
    question, entry = select_claims([number], "question")[0], QUESTIONS[number]
    verdict = question.judge(read_table(FOLDER, entry))
    assert (verdict.ruling, verdict.seen) == (entry["verdict"], entry["seen"])
    assert (question.criterion, question.title) == (entry["criterion"], entry["title"])
    expected = {**question.settings["full"], "seed": RUN["seed"]}
    assert entry["settings"] == json.loads(json.dumps(expected))


def test_the_page_shows_the_committed_answers() -> None:
    table = verdict_table(RUN["questions"], "question")
    assert table in (ROOT / "docs/reproduction.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", ["README.md", "docs/reproduction.md"])
def test_pages_show_the_verdicts_of_the_committed_run(page: str) -> None:
    assert verdict_table(RUN["claims"]) in (ROOT / page).read_text(encoding="utf-8")


def test_1_attention_that_needs_the_square_root_is_refuted() -> None:
    def needs_more(row: dict[str, Any]) -> None:
        row["strength"] = 3.3 * np.sqrt(row["length"])

    table = recorded(1)
    broken = altered(table, needs_more, source="theory", classifier="attention")
    assert ruling(1, broken) == "refuted"

    def needs_less(row: dict[str, Any]) -> None:
        row["strength"] = row["length"] ** 0.4

    broken = altered(table, needs_less, source="theory", classifier="vectorised")
    assert ruling(1, broken) == "refuted"


def test_1_errors_counted_at_a_wrong_strength_are_noticed() -> None:
    def counted(row: dict[str, Any]) -> None:
        row["test_error"] = 0.08

    broken = altered(recorded(1), counted, source="simulation", classifier="attention")
    assert ruling(1, broken) == "refuted"


@pytest.mark.parametrize("sharpness", ["best", "fixed"])
def test_3_an_elementwise_advantage_is_noticed(sharpness: str) -> None:
    def logarithmic(row: dict[str, Any]) -> None:
        row["strength"] = 2 * np.sqrt(2 * np.log(row["length"]))

    broken = altered(recorded(3), logarithmic, nonlinearity_is="sigmoid", sharpness_is=sharpness)
    assert ruling(3, broken) == "refuted"


@pytest.mark.parametrize(
    ("network", "signals", "factor"),
    [("four heads", 1, 0.4), ("four heads", 4, 4), ("two layers", 1, 0.5), ("recurrent", 4, 0.1)],
)
def test_question_6_networks_that_do_otherwise_are_refuted(
    network: str, signals: int, factor: float
) -> None:
    def otherwise(row: dict[str, Any]) -> None:
        row["test_error"] *= factor

    table = read_table(FOLDER, QUESTIONS[6])
    changed = altered(table, otherwise, network=network, signals=signals)
    assert select_claims([6], "question")[0].judge(changed).ruling == "refuted"


@pytest.fixture(scope="module")
def findings() -> list[Examination]:
    """What the present code makes of the committed numbers."""
    found = []
    for series in ("claim", "question"):
        for entry in RUN[f"{series}s"]:
            (claim,) = select_claims([entry[series]], series)
            table = read_table(FOLDER, entry)
            judged, drawn = claim.judge(table), claim.figures(table)
            found.append(Examination(claim, entry["settings"], 0.0, table, judged, drawn))
    return found


def to_ten_digits(value: Any) -> Any:
    """Return what JSON holds of it, without the digits that depend on how a library was compiled."""
    return json.loads(json.dumps(value), parse_float=lambda text: float(f"{float(text):.10g}"))


def test_the_committed_report_is_what_the_code_makes_of_the_committed_numbers(
    findings: list[Examination],
) -> None:
    # The pictures are taken as they are: their bytes depend on the version of matplotlib.
    pictures = {path.stem: path.read_text() for path in (FOLDER / "figures").glob("*.svg")}
    assert page(findings, pictures, RUN) == (FOLDER / "report.html").read_text(encoding="utf-8")
    for series in ("claim", "question"):
        assert to_ten_digits(verdicts(findings, series)) == to_ten_digits(RUN[f"{series}s"])


def test_nothing_in_a_committed_figure_collides_or_is_cut(findings: list[Examination]) -> None:
    for finding in findings:
        for name, drawing in (finding.drawings or {}).items():
            what = f"{finding.claim.short}, {name}"
            figure = drawing.figure
            figure.draw_without_rendering()
            for legend in figure.legends:
                extent = legend.get_window_extent()
                assert extent.x0 >= 0, what
                assert extent.x1 <= figure.bbox.width, what
            for panel in figure.axes:
                assert panel.has_data(), what
                assert not collisions(panel), what
                assert not cut_markers(panel), what


def collisions(panel: Axes) -> list[tuple[list[float], list[float]]]:
    """Return the pairs of tick labels that touch, as their spans along the axis."""
    touching = []
    for side, axis in enumerate((panel.xaxis, panel.yaxis)):
        labels = [one for one in axis.get_ticklabels(which="both") if one.get_text()]
        spans = [one.get_window_extent().get_points()[:, side].tolist() for one in labels]
        low, high = panel.bbox.get_points()[:, side]
        shown = sorted(span for span in spans if low - 1 <= sum(span) / 2 <= high + 1)
        touching += [pair for pair in itertools.pairwise(shown) if pair[1][0] <= pair[0][1] + 1]
    return touching


def cut_markers(panel: Axes) -> list[str]:
    """Return the lines of which the frame cuts a marker through."""
    found = []
    for line in panel.get_lines():
        if line.get_marker() in ("None", "", None) or not line.get_clip_on():
            continue
        places = panel.transData.transform(line.get_xydata())
        low, high = panel.bbox.get_points()
        reach = line.get_markersize() / 2 * panel.get_figure().dpi / 72
        beyond = np.maximum(low - places, places - high).max(axis=1)
        if np.any(np.abs(beyond) < reach / 2):
            found.append(str(line.get_label()))
    return found
