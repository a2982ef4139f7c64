"""The explorer as people use it, in a real browser."""

import csv
import json
import re
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from browsing import Server, Tab
from playwright.sync_api import Browser
from websockets.sync.client import connect

from sparsetoken import align, floor_curve, predict, required_strength
from sparsetoken.explorer.computing import ALL_SAMPLES, share_out
from sparsetoken.explorer.presets import PRESETS, TOUR
from sparsetoken.explorer.server import _MOST_CLIENTS
from sparsetoken.explorer.snapshot import write_snapshot
from sparsetoken.explorer.state import VIEWS, State

LIGHT = "v=1&view=learning&classifiers=pooled%2Cvectorised&points=6&ridge=0.01"


@pytest.mark.parametrize("view", sorted(VIEWS))
def test_every_view_opens_without_a_complaint(tab: Tab, view: str) -> None:
    lighter = "&classifiers=pooled" if view in ("strength", "capacity", "map", "shift") else ""
    tab.open(f"v=1&view={view}{lighter}&points=8")
    assert tab.settle().endswith(("screen", "final"))
    assert tab.page.inner_text("#question") == VIEWS[view].question
    assert tab.page.evaluate("document.getElementById('plot').data.length") > 0
    assert not tab.complaints


def test_a_map_is_of_two_classifiers_and_says_which_is_better(tab: Tab) -> None:
    tab.open("v=1&view=map&classifiers=pooled%2Cvectorised&ridge=0.1")
    tab.settle("final")
    told = tab.page.inner_text("#status")
    assert told.startswith("Orange: pooled linear is better. 17 × 17 settings")
    # A third takes the place of the last.
    tab.act(lambda: tab.page.locator("#lines label", has_text="attention").locator("input").check())
    state = State.from_address(tab.page.evaluate("location.hash"))
    assert state.classifiers == ("attention", "pooled")
    assert not tab.complaints


def test_a_slider_moves_the_lines_and_the_address(tab: Tab) -> None:
    tab.open(LIGHT)
    before = tab.lines()["pooled linear"]
    slider = tab.page.locator("#field-strength-slider")
    tab.act(lambda: slider.press("PageUp"))
    after = tab.lines()["pooled linear"]
    assert max(after) < max(before)
    state = State.from_address(tab.page.evaluate("location.hash"))
    assert state.task.strength > 5
    assert not tab.complaints


def test_numbers_are_those_of_the_package(tab: Tab) -> None:
    tab.open(LIGHT)
    tab.settle("final")
    state = State.from_address(LIGHT)
    for name in ("pooled", "vectorised"):
        expected = predict(state.task, state.training, classifier=name).test_error
        cell = tab.page.locator(f"#numbers td[data-name={name}]")
        assert float(cell.get_attribute("data-value") or "nan") == pytest.approx(expected, abs=1e-7)
        assert f"{expected:.4g}"[:5] in cell.inner_text()
        assert "±" in cell.inner_text()


def test_the_whole_state_is_in_the_address(tab: Tab, browser: Browser, server: Server) -> None:
    tab.open(LIGHT)
    tab.act(lambda: tab.page.locator("#field-length").fill("30") or tab.page.keyboard.press("Tab"))
    tab.act(lambda: tab.page.locator("#field-loss").select_option("square"))
    address = tab.page.evaluate("location.hash")
    state = State.from_address(address)
    assert (state.task.length, state.training.loss) == (30, "square")
    other = Tab(browser.new_page(), server.url)
    other.open(address.lstrip("#"))
    other.settle("final")
    tab.settle("final")
    assert other.lines() == tab.lines()
    assert other.page.input_value("#field-length") == "30"
    other.page.close()


def test_back_and_undo_return_to_the_last_settings(tab: Tab) -> None:
    tab.open(LIGHT)
    tab.act(lambda: tab.page.locator("#field-loss").select_option("square"))
    tab.act(lambda: tab.page.locator("#field-loss").select_option("hinge"))
    tab.act(lambda: tab.page.go_back())
    assert tab.page.input_value("#field-loss") == "square"
    tab.act(lambda: tab.page.click("#undo"))
    assert tab.page.input_value("#field-loss") == "logistic"
    tab.act(lambda: tab.page.click("#reset"))
    assert tab.page.evaluate("location.hash") == "#v=1&view=learning"


def expected(state: State, name: str) -> float:
    """Return what the package gives for a number beside the plot."""
    if name == "floor":
        (found,) = floor_curve(state.task, values=[state.training.alpha])
        return found.test_error
    if state.view == "query":
        return align(state.task, state.training).alignment
    if state.view == "strength":
        return required_strength(state.task, error=state.error, classifier=name).strength
    training = state.training
    if state.over == ALL_SAMPLES:
        training = share_out(training, name, training.alpha)
    query = state.query if state.given_query and name == "attention" else None
    return predict(state.task, training, classifier=name, query=query).test_error


@pytest.mark.parametrize(
    "number",
    range(len(PRESETS)),
    ids=lambda number: State.from_address(PRESETS[number].address).view,
)
def test_every_preset_shows_the_numbers_of_the_package(tab: Tab, number: int) -> None:
    tab.open("v=1&view=inside")
    tab.act(lambda: tab.page.select_option("#presets", str(number)), "final")
    state = State.from_address(tab.page.evaluate("location.hash"))
    assert state == State.from_address(PRESETS[number].address)
    cells = tab.page.locator("#numbers td")
    assert cells.count() == (0 if state.view == "map" else len(state.classifiers))
    for cell in cells.all():
        shown, _, bar = cell.inner_text().partition("\u00a0±\u00a0")
        digits = len(shown.strip().partition(".")[2])
        wanted = expected(state, cell.get_attribute("data-name") or "")
        assert float(shown) == pytest.approx(wanted, abs=0.51 * 10.0**-digits), cell.inner_text()
        assert bar or state.view == "query"
    assert not tab.complaints


def test_axes_become_logarithmic_and_the_pointer_reads_values(tab: Tab) -> None:
    tab.open(LIGHT)
    tab.settle("final")
    for name, axis in (("log x", "xaxis"), ("log y", "yaxis")):
        box = tab.page.get_by_label(name)
        before = box.is_checked()
        tab.act(box.click)
        kinds = {True: "log", False: "linear"}
        tab.wait(
            f"document.getElementById('plot')._fullLayout.{axis}.type === {kinds[not before]!r}"
        )
    tab.settle("final")
    read = text_under_pointer(tab, "[plot.data.at(-1).x[3], plot.data.at(-1).y[3]]")
    assert "±" in read
    assert not tab.complaints


def text_under_pointer(tab: Tab, point: str) -> str:
    """Return what the plot shows at a point of its data, [x, y] in JavaScript."""
    place = tab.page.evaluate(
        f"(() => {{ const plot = document.getElementById('plot'), [x, y] = {point};"
        " const { xaxis, yaxis } = plot._fullLayout, box = plot.getBoundingClientRect();"
        " return [box.left + xaxis._offset + xaxis.d2p(x),"
        " box.top + yaxis._offset + yaxis.d2p(y)]; })()"
    )
    tab.page.mouse.move(place[0] - 3, place[1])
    tab.page.mouse.move(*place)
    tab.wait("document.querySelector('#plot .hoverlayer .hovertext') !== null")
    return tab.page.locator("#plot .hoverlayer").text_content() or ""


def test_the_pointer_reads_a_map_and_not_the_lines_upon_it(tab: Tab) -> None:
    tab.open("v=1&view=map")
    tab.settle("final")
    read = text_under_pointer(tab, "[plot.data[0].x[8], plot.data[0].y[8]]")
    value = tab.page.evaluate("document.getElementById('plot').data[0].z[8][8]")
    assert re.search(r"pooled − attention ([\d.−]+)$", read), read
    assert float(read.split(" ")[-1].replace("−", "-")) == pytest.approx(value, rel=1e-3)


def test_the_tools_of_a_plot_are_named_reached_and_send_nothing(tab: Tab) -> None:
    tab.open(LIGHT)
    tools = tab.page.locator("#plot .modebar-btn")
    names = [tools.nth(number).get_attribute("aria-label") for number in range(tools.count())]
    assert "Zoom in" in names
    assert not [
        name for name in names if not name or re.search("cloud|share|send", name, re.IGNORECASE)
    ]
    span = "(() => { const [low, high] = document.getElementById('plot')._fullLayout.yaxis.range; return high - low; })()"
    before = tab.page.evaluate(span)
    tab.page.get_by_role("button", name="Zoom in", exact=True).focus()
    tab.page.keyboard.press("Enter")
    tab.wait(f"{span} < 0.9 * {before}")
    assert not tab.complaints


def test_a_snapshot_opens_without_a_server(browser: Browser, tmp_path: Path) -> None:
    for view in ("learning", "inside", "turning"):
        path = tmp_path / f"{view}.html"
        lighter = "&classifiers=pooled&points=4" if view == "learning" else ""
        write_snapshot(State.from_address(f"view={view}{lighter}"), path)
        alone = browser.new_context(offline=True)
        tab = Tab(alone.new_page(), "")
        tab.page.goto(path.as_uri())
        tab.wait("(document.getElementById('plot').data ?? []).length > 0")
        said = {"learning": "bands of numerical", "inside": "attention is on", "turning": "33 × 33"}
        assert said[view] in tab.page.inner_text("#said")
        assert not tab.complaints
        alone.close()


def test_the_tour_tells_five_steps(tab: Tab) -> None:
    tab.open("v=1&view=inside")
    tab.page.click("#tour")
    for stop in TOUR:
        assert tab.page.inner_text("#words").startswith(stop.name)
        assert (
            tab.page.inner_text("#question")
            == VIEWS[State.from_address(stop.address).view].question
        )
        tab.page.click("#tour-next")
    assert len(TOUR) == 5
    assert tab.page.is_hidden("#words")


def test_simulated_dots_come_onto_the_lines(tab: Tab) -> None:
    tab.open(LIGHT + "&dimension=40&trials=4")
    tab.page.click("#simulate")
    tab.wait(
        "document.getElementById('plot').data.filter((t) => t.mode === 'markers').length === 2"
    )
    dots = tab.page.evaluate(
        "document.getElementById('plot').data.filter((t) => t.mode === 'markers')"
        ".map((t) => [t.x[0], t.y[0], t.error_y.array[0]])"
    )
    assert all(x == 4 and 0 < y < 0.6 and bar > 0 for x, y, bar in dots)
    tab.wait("!document.getElementById('simulate').disabled")
    assert not tab.complaints


def test_a_simulation_can_be_cancelled(tab: Tab) -> None:
    tab.open(LIGHT + "&dimension=1500&trials=200")
    tab.page.click("#simulate")
    tab.page.click("#cancel")
    tab.wait("!document.getElementById('simulate').disabled")
    assert tab.page.is_hidden("#cancel")


def test_pinned_lines_stay_for_comparison(tab: Tab) -> None:
    tab.open(LIGHT)
    tab.act(lambda: tab.page.click("#pin"))
    tab.act(lambda: tab.page.locator("#field-strength-slider").press("PageUp"), "final")
    lines = tab.lines()
    assert lines["pooled linear, pinned 1"] != lines["pooled linear"]
    tab.act(lambda: tab.page.click("#unpin"))
    assert "pooled linear, pinned 1" not in tab.lines()


def test_copies_and_downloads(tab: Tab) -> None:
    tab.open(LIGHT)
    tab.settle("final")
    tab.page.click("[data-copy=python]")
    tab.wait("document.getElementById('copied').dataset.language === 'python'")
    assert "curve(task, training" in tab.page.inner_text("#copied")
    with tab.page.expect_download() as download:
        tab.page.click("#csv")
    rows = list(csv.DictReader(Path(download.value.path()).read_text().splitlines()))
    assert {row["line"] for row in rows} == {"pooled", "vectorised"}
    assert all(float(row["uncertainty"]) >= 0 for row in rows)
    with tab.page.expect_download() as picture:
        tab.page.click("[data-save=svg]")
    assert "<svg" in Path(picture.value.path()).read_text()
    with tab.page.expect_download() as pixels:
        tab.page.click("[data-save=png]")
    assert Path(pixels.value.path()).read_bytes().startswith(b"\x89PNG")
    tab.page.click("#link")
    tab.wait("document.getElementById('copied').dataset.language === 'link'")
    assert tab.page.inner_text("#copied") == tab.page.evaluate("location.href")
    with tab.page.expect_download() as study:
        tab.page.click("[data-copy=study]")
    assert "[training]" in Path(study.value.path()).read_text()


def test_a_bad_address_is_told_and_the_page_lives(tab: Tab) -> None:
    tab.open("v=1&view=learning&strength=-3&classifiers=pooled&points=4")
    assert "strength" in tab.page.inner_text("#status")
    tab.act(lambda: tab.page.locator("#field-strength").fill("4") or tab.page.keyboard.press("Tab"))
    assert "error" not in tab.settle()


@pytest.mark.parametrize(
    ("address", "view", "told"),
    [
        ("v=0&view=query&strength=2", "query", "v=0"),
        ("v=1&view=constructor", "learning", "view=constructor"),
        ("v=1&view=query&__proto__=1&gone=2", "query", "gone=2"),
    ],
)
def test_what_an_address_has_of_another_page_is_told_and_left_out(
    tab: Tab, address: str, view: str, told: str
) -> None:
    tab.open(address)
    assert tab.settle().endswith(("screen", "final"))
    assert tab.page.inner_text("#question") == VIEWS[view].question
    assert told in tab.page.inner_text("#words")
    assert tab.page.input_value("#field-strength") == "5"
    tab.act(lambda: tab.page.locator("#field-strength-slider").press("PageUp"))
    assert tab.page.is_hidden("#words")
    assert not tab.complaints


def test_what_was_drawn_goes_with_an_address_that_is_refused(tab: Tab) -> None:
    tab.open("v=1&view=query&points=4")
    assert tab.lines()
    refused = "location.hash = 'v=1&view=learning&strength=banana'"
    tab.act(lambda: tab.page.evaluate(refused), "error")
    assert "strength = 'banana'" in tab.page.inner_text("#status")
    assert not tab.lines()


def test_a_very_long_address_is_told(tab: Tab) -> None:
    tab.open("v=1&view=query&strength=" + "1" * 70_000)
    assert tab.settle("final")
    assert "6000 letters" in tab.page.inner_text("#words")
    assert tab.page.input_value("#field-strength") == "5"
    assert not tab.complaints


def test_one_tab_too_many_is_told(browser: Browser) -> None:
    crowded = Server()
    own = f"127.0.0.1:{crowded.port}"
    tab = Tab(browser.new_page(), crowded.url)
    with ExitStack() as others:
        for _ in range(_MOST_CLIENTS):
            others.enter_context(connect(f"ws://{own}/socket", origin=f"http://{own}"))
        tab.page.goto(f"{crowded.url}#{LIGHT}")
        tab.wait("document.getElementById('status').textContent.includes('Too many tabs')")
    tab.settle("final")
    tab.page.close()
    crowded.stop()


def test_two_tabs_do_not_disturb_each_other(tab: Tab, browser: Browser, server: Server) -> None:
    other = Tab(browser.new_page(), server.url)
    tab.open(LIGHT)
    other.open(LIGHT.replace("ridge=0.01", "ridge=1"))
    tab.settle("final")
    other.settle("final")
    assert tab.lines() != other.lines()
    other.page.close()


def test_the_page_returns_when_the_server_does(browser: Browser) -> None:
    first = Server()
    tab = Tab(browser.new_page(), first.url)
    tab.open(LIGHT)
    first.stop()
    tab.wait("document.getElementById('status').textContent.includes('server is not there')")
    again = Server(first.port)
    tab.wait("!document.getElementById('status').classList.contains('error')")
    tab.settle("final")
    tab.page.close()
    again.stop()


def test_own_data_are_compared(tab: Tab, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 4, 3))
    X[30:, 0, 0] += 4
    np.savez(tmp_path / "mine.npz", X=X, y=np.repeat([0, 1], 30))
    tab.open(LIGHT)
    tab.page.click("#own summary")
    tab.page.set_input_files("#file", str(tmp_path / "mine.npz"))
    tab.wait("(document.getElementById('own-plot').data ?? []).length > 0")
    assert "pooled" in tab.page.inner_text("#own-text").lower()


def test_at_the_width_of_a_phone_nothing_sticks_out(browser: Browser, server: Server) -> None:
    page = browser.new_page(viewport={"width": 360, "height": 740})
    tab = Tab(page, server.url)
    tab.open(LIGHT)
    width = page.evaluate("document.documentElement.scrollWidth")
    assert width <= 360, json.dumps(width)
    assert page.evaluate("document.getElementById('plot').getBoundingClientRect().width") > 300
    for view in ("query", "inside"):
        tab.open(f"v=1&view={view}&points=5")
        tab.wait("document.querySelectorAll('#plot text').length > 5")
        assert page.evaluate(OVERLAPPING) == []
        left, right = page.evaluate(
            "(({ left, right }) => [left, right])(document.querySelector("
            "'#views [aria-selected=true]').getBoundingClientRect())"
        )
        assert left >= 0
        assert right <= 360
    page.close()


# Texts of a plot that hide each other, or are cut off at its edge.
OVERLAPPING = """(() => {
  const frame = document.getElementById("plot").getBoundingClientRect();
  const texts = [...document.querySelectorAll("#plot text")].filter((e) => e.textContent.trim());
  const boxes = texts.map((e) => [e.textContent, e.getBoundingClientRect()]);
  const apart = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) < 3
    || Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) < 3;
  const cut = boxes.filter(([, r]) => r.left < frame.left - 1 || r.right > frame.right + 1
    || r.top < frame.top - 1 || r.bottom > frame.bottom + 1).map(([text]) => text);
  const hidden = boxes.flatMap(([text, a], i) => boxes.slice(i + 1)
    .filter(([, b]) => !apart(a, b)).map(([other]) => `${text} / ${other}`));
  return [...cut, ...hidden];
})()"""


def test_everything_can_be_reached_and_is_named(tab: Tab) -> None:
    tab.open(LIGHT)
    unnamed = tab.page.evaluate(
        "[...document.querySelectorAll('button, input, select')].filter((e) => !e.hidden &&"
        " !(e.innerText || '').trim() && !e.getAttribute('aria-label') && !(e.labels ?? []).length)"
        ".map((e) => e.outerHTML)"
    )
    assert unnamed == []
    tab.page.keyboard.press("Tab")
    assert tab.page.evaluate("document.activeElement.className") == "skip"
    tab.page.keyboard.press("Tab")
    assert tab.page.evaluate("document.activeElement.dataset.view") == "learning"
    tab.act(lambda: tab.page.keyboard.press("ArrowRight"))
    assert tab.page.evaluate("document.activeElement.dataset.view") == "query"
    assert tab.page.inner_text("#question") == VIEWS["query"].question
    tab.page.click("#tour")
    tab.page.keyboard.press("Escape")
    assert tab.page.is_hidden("#words")


def test_laws_and_shared_samples_are_settings_too(tab: Tab) -> None:
    tab.open("v=1&view=query&points=5")
    informative = tab.page.locator("#field-informative")
    tab.act(lambda: informative.fill("poisson:2") or tab.page.keyboard.press("Tab"))
    tab.act(lambda: tab.page.locator("#field-reuse").check())
    samples = tab.page.locator("#field-alpha0")
    tab.act(lambda: samples.fill("7") or tab.page.keyboard.press("Tab"), "final")
    state = State.from_address(tab.page.evaluate("location.hash"))
    assert str(state.task.informative) == "poisson:2"
    assert (state.training.alpha0, state.training.alpha1) == (7, 7)
    cell = tab.page.locator("#numbers td[data-name=attention]")
    expected = align(state.task, state.training).alignment
    assert float(cell.get_attribute("data-value") or "nan") == pytest.approx(expected)
    assert not tab.complaints


def test_lines_follow_while_a_slider_is_dragged(tab: Tab) -> None:
    tab.open(LIGHT)
    tab.settle("final")
    slider = tab.page.locator("#field-strength-slider")
    box = slider.bounding_box()
    assert box is not None
    seen = set()
    tab.page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + box["height"] / 2)
    tab.page.mouse.down()
    for step in range(60):
        share = 0.3 + 0.4 * step / 60
        tab.page.mouse.move(box["x"] + share * box["width"], box["y"] + box["height"] / 2)
        tab.page.wait_for_timeout(50)
        lines = tab.page.evaluate(
            "document.getElementById('plot').data.filter((t) => t.name).map((t) => t.y.at(-1))"
        )
        seen.add(tuple(lines))
        if len(seen) > 4:
            break
    tab.page.mouse.up()
    assert len(seen) > 2  # drawn while it moved, not only when it rested
