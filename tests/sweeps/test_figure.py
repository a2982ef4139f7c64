"""The figure shows the numbers of the store."""

import itertools
import statistics
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparsetoken.sweeps import Store, SweepError, run_cells
from sparsetoken.sweeps.figure import draw_store, summarise
from sparsetoken.uncertainty import z_scores


def trial(settings: dict[str, Any], number: int) -> dict[str, Any]:
    """Give nothing to draw at d = 30, and one number at x = 3."""
    if settings.get("dimension") == 30 or (settings["x"] == 3 and number > 0):
        return {"y": None}
    return {"y": settings["x"] + 0.1 * number}


def theory(settings: dict[str, Any]) -> dict[str, Any]:
    return {"y": float(settings["x"]) if settings.get("classifier") != "pooled" else None}


def filled(path: Path, trials: int = 4, **lists: list[Any]) -> Path:
    grid = [dict(zip(lists, values, strict=True)) for values in itertools.product(*lists.values())]
    with ThreadPoolExecutor(1) as executor:
        run_cells(grid, path, function=trial, trials=trials, theory=theory, executor=executor)
    return path


def test_summaries_are_means_and_standard_errors(tmp_path: Path) -> None:
    with Store(filled(tmp_path / "a", x=[1, 3])) as store:
        first, second = summarise(store, "y")
    assert (first.settings, first.compared.theory, first.trials) == ({"x": 1}, 1.0, 4)
    assert first.compared.mean == pytest.approx(1.15)
    error = statistics.stdev([0, 0.1, 0.2, 0.3]) / 2
    assert first.compared.standard_error == pytest.approx(error)
    assert first.compared.z == pytest.approx(float(z_scores(0.15, error, freedom=3)))
    assert second == ({"x": 3}, 1, (3.0, None, 0, 3.0, None))


def test_lines_are_theory_and_dots_are_means_with_bars(tmp_path: Path) -> None:
    with Store(filled(tmp_path / "a", x=[2, 1])) as store:
        figure = draw_store(store, y="y", scale="loglog", title="Words")
    [axes] = figure.axes
    line, dots = axes.lines
    assert line.get_linestyle() == "-"
    assert np.array_equal(line.get_xydata(), [[1, 1], [2, 2]])
    assert dots.get_linestyle() == "None"
    assert np.allclose(dots.get_xydata(), [[2, 2.15], [1, 1.15]])
    [_, bars] = axes.collections
    error = statistics.stdev([0, 0.1, 0.2, 0.3]) / 2
    assert np.allclose(sorted(np.ptp(segment[:, 1]) for segment in bars.get_segments()), 2 * error)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("x", "y")
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert figure.legends[0].get_title().get_text() == "Words"


def test_classifiers_dimensions_and_panels(tmp_path: Path) -> None:
    path = filled(
        tmp_path / "a", x=[1, 2, 4], alpha1=[1, 2], classifier=["attention", "pooled"],
        dimension=[10, 20, 30],
    )  # fmt: skip
    with Store(path) as store:
        figure = draw_store(store, y="y")
    assert [axes.get_title() for axes in figure.axes] == ["α1 = 1", "α1 = 2"]
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert sorted(labels) == [
        "attention", "attention, d = 10", "attention, d = 20",
        "pooled linear, d = 10", "pooled linear, d = 20",
    ]  # fmt: skip


def test_a_setting_at_test_time_that_only_follows_makes_no_panels(tmp_path: Path) -> None:
    path = tmp_path / "a"
    grid = [{"x": x, "at_x": x, "at_length": length} for x in (2, 3, 5) for length in (10, 20)]
    with ThreadPoolExecutor(1) as executor:
        run_cells(grid, path, function=trial, trials=2, theory=theory, executor=executor)
    with Store(path) as store:
        titles = [axes.get_title() for axes in draw_store(store, x="x", y="y").axes]
    assert titles == ["at length = 10", "at length = 20"]


def test_settings_that_run_along_with_the_abscissa_make_no_panels(tmp_path: Path) -> None:
    path = tmp_path / "a"
    pairs = [(1, 10), (2, 20), (4, 20)]
    grid = [{"x": x, "alpha0": along, "length": length} for x, along in pairs for length in (5, 6)]
    with ThreadPoolExecutor(1) as executor:
        run_cells(grid, path, function=trial, trials=2, theory=theory, executor=executor)
    with Store(path) as store:
        figure = draw_store(store, y="y")
        assert [axes.get_title() for axes in figure.axes] == ["L = 5", "L = 6"]
        assert {axes.get_xlabel() for axes in figure.axes} == {"x, with alpha0 (α0)"}
        assert all(len(axes.lines[0].get_xdata()) == 3 for axes in figure.axes)
        # The other way round it does not tell which x there was.
        titles = [axes.get_title() for axes in draw_store(store, "alpha0", "y").axes]
        assert titles[:2] == ["x = 1, L = 5", "x = 1, L = 6"]


def test_an_abscissa_that_does_not_vary_is_refused_where_others_do(tmp_path: Path) -> None:
    refused = pytest.raises(SweepError, match=r"'length' is not .* different numbers; .*: x$")
    with Store(filled(tmp_path / "a", x=[1, 2], length=[7])) as store, refused:
        draw_store(store, "length", "y")
    with Store(filled(tmp_path / "b", x=[1])) as store:
        assert draw_store(store, "x", "y").axes


def test_the_bar_of_theory_is_a_band(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with ThreadPoolExecutor(1) as executor:
        run_cells(
            [{"x": 1}, {"x": 2}], path, function=trial, trials=0, theory=with_bar, executor=executor
        )
    with Store(path) as store:
        [axes] = draw_store(store, y="y").axes
    [band] = axes.collections
    assert band.get_datalim(axes.transData).intervaly == pytest.approx([0.75, 2.25])


def with_bar(settings: dict[str, Any]) -> dict[str, Any]:
    return {"y": float(settings["x"]), "y_uncertainty": 0.25}


def test_theory_alone_is_drawn_without_dots(tmp_path: Path) -> None:
    with Store(filled(tmp_path / "a", trials=0, x=[1, 2])) as store:
        [axes] = draw_store(store, y="y").axes
    assert len(axes.lines) == 1


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        ({"x": [1]}, "no setting takes different numbers"),
        ({"x": [1, 2], "alpha1": list(range(1, 15))}, "14 panels are too many"),
    ],
)
def test_what_cannot_be_drawn_is_refused(
    tmp_path: Path, lists: dict[str, list[Any]], message: str
) -> None:
    with Store(filled(tmp_path / "a", **lists)) as store, pytest.raises(SweepError, match=message):
        draw_store(store, None if len(lists) == 1 else "x", "y")


def test_a_title_with_a_bad_formula_is_one_message(tmp_path: Path) -> None:
    with Store(filled(tmp_path / "a", x=[2, 1])) as store:
        assert draw_store(store, y="y", title=r"error against $\alpha_1$, 3 $")
        with pytest.raises(SweepError, match=r"the title .* cannot be set: "):
            draw_store(store, y="y", title=r"$\nonsense{$")


def test_a_short_logarithmic_axis_has_plain_numbers(tmp_path: Path) -> None:
    with Store(filled(tmp_path / "a", x=[2, 4, 7])) as store:
        figure = draw_store(store, y="y", scale="logx")
    figure.draw_without_rendering()
    shown = {text.get_text() for text in figure.axes[0].get_xticklabels()}
    assert {"2", "4", "6"} <= shown
