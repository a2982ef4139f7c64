import subprocess
import sys
from pathlib import Path

import matplotlib as mpl
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from sparsetoken.plotting import (
    COLOURS,
    LOOKS,
    caption,
    describe,
    draw_boundary,
    draw_reference,
    draw_simulation,
    draw_theory,
    look_of,
    new_figure,
    save_figure,
    shared_legend,
    show_whole_markers,
    styled,
    tidy_log_ticks,
)
from sparsetoken.validation import ParameterError


def drawn() -> Figure:
    figure, axes = new_figure(columns=2)
    for panel in axes:
        for name in ("attention", "pooled"):
            draw_theory(panel, [3, 1, 2], [9, 1, 4], look_of(name))
            draw_simulation(panel, [1, 2, 3], [1.1, 4.1, 8.9], [0.1, 0.1, 0.1], look_of(name))
        draw_reference(panel, [1, 3], [1, 3], label="slope 1")
        draw_boundary(panel, 2.0, label="optimum")
    shared_legend(figure)
    return figure


def test_theory_is_a_solid_sorted_line_and_simulation_markers_with_bars() -> None:
    figure = drawn()
    panel = figure.axes[0]
    theory = panel.get_lines()[0]
    assert theory.get_linestyle() == "-"
    assert theory.get_marker() == "None"
    assert list(theory.get_xdata()) == [1, 2, 3]
    assert list(theory.get_ydata()) == [1, 4, 9]
    assert to_hex(theory.get_color()).upper() == COLOURS["vermilion"]
    markers, _, bars = panel.containers[0]
    assert markers.get_linestyle() == "None"
    assert markers.get_marker() == LOOKS["attention"].marker
    segments = bars[0].get_segments()
    assert tuple(segments[0][:, 1]) == pytest.approx((1.0, 1.2))


def test_the_legend_names_each_thing_once() -> None:
    labels = [text.get_text() for text in drawn().legends[0].get_texts()]
    assert labels == ["attention", "pooled linear", "slope 1", "optimum"]


def test_a_legend_too_wide_for_the_figure_gets_fewer_columns() -> None:
    figure, (panel,) = new_figure()
    for number in range(4):
        draw_theory(panel, [1, 2], [number, 1], look_of("attention"), label=f"line {number}, " * 4)
    shared_legend(figure, columns=3)
    figure.draw_without_rendering()
    (legend,) = figure.legends
    extent = legend.get_window_extent()
    assert extent.x0 >= 0
    assert extent.x1 <= figure.bbox.width
    assert [text.get_text()[:6] for text in legend.get_texts()] == [f"line {n}" for n in range(4)]


def test_markers_on_the_frame_are_whole_and_those_beyond_it_hidden() -> None:
    _, panels = new_figure(columns=3)
    for panel, heights in zip(panels, ([0, 1], [0.5, 0.6], [0, 3]), strict=True):
        draw_theory(panel, [1, 2], heights, look_of("attention"))
        draw_simulation(panel, [1, 2], heights, None, look_of("attention"))
        panel.set(xlim=(0, 3), ylim=(0, 1))
        show_whole_markers(panel)
    clipped = [[line.get_clip_on() for line in panel.get_lines()] for panel in panels]
    assert clipped == [[True, False], [True, True], [True, True]]


def test_classifiers_differ_in_colour_and_in_marker() -> None:
    looks = [LOOKS[name] for name in ("attention", "pooled", "vectorised", "bayes", "sigmoid")]
    assert len({look.colour for look in looks}) == len({look.marker for look in looks}) == 5
    assert all(look.colour in COLOURS.values() for look in LOOKS.values())
    outside = look_of("from_outside")
    assert outside == look_of("from_outside")
    assert outside.label == "from outside"
    assert outside.colour in COLOURS.values()


def test_files_are_the_same_in_every_run(tmp_path: Path) -> None:
    first = save_figure(drawn(), tmp_path / "one" / "figure", ("svg", "pdf", "png"))
    second = save_figure(drawn(), tmp_path / "two" / "figure", ("svg", "pdf", "png"))
    assert [path.suffix for path in first] == [".svg", ".pdf", ".png"]
    for before, after in zip(first, second, strict=True):
        assert before.read_bytes() == after.read_bytes()
    with pytest.raises(ParameterError, match="format"):
        save_figure(drawn(), tmp_path / "figure", ("gif",))


def test_the_callers_style_is_left_alone_and_not_used() -> None:
    with mpl.rc_context({"lines.linewidth": 9.0, "font.size": 30.0}):
        before = dict(mpl.rcParams)
        panel = drawn().axes[0]
        assert panel.get_lines()[0].get_linewidth() == 1.6
        assert panel.xaxis.label.get_fontsize() == 9
        assert dict(mpl.rcParams) == before

    @styled
    def fails() -> None:
        raise RuntimeError

    before = dict(mpl.rcParams)
    with pytest.raises(RuntimeError):
        fails()
    assert dict(mpl.rcParams) == before


def test_drawing_needs_no_pyplot(tmp_path: Path) -> None:
    program = (
        "import sys; from sparsetoken.plotting import new_figure, save_figure;"
        "save_figure(new_figure()[0], 'empty'); print('matplotlib.pyplot' in sys.modules)"
    )
    command = [sys.executable, "-c", program]
    run = subprocess.run(command, check=True, capture_output=True, cwd=tmp_path)
    assert run.stdout.decode().strip() == "False"


def test_captions_name_settings_by_symbol() -> None:
    text = caption(
        "Test error against sample ratio.",
        {"length": 10, "strength": 5.0, "ridge": 1e-5, "query": None, "dimension": [250, 500]},
        trials=8,
    )
    assert text == (
        "Test error against sample ratio. L = 10, θ = 5, λ = 1e-05, d = (250, 500). "
        "Lines: theory. Markers: simulation, mean and standard error of 8 trials."
    )
    assert describe({"bias_step": 0.5}) == "η_b = 0.5"
    assert describe({"strength": 5.0, "reuse": False}) == "θ = 5"
    nested = {"dimensions": {"pooled": [200], "attention": [50, 100]}, "trials": 8}
    assert describe(nested) == "dimensions = pooled: (200); attention: (50, 100), trials = 8"


def test_short_logarithmic_axes_have_plain_labels() -> None:
    figure, (panel,) = new_figure()
    panel.plot([0.5, 8], [1e-6, 1])
    panel.set_xscale("log")
    panel.set_yscale("log")
    tidy_log_ticks(panel)
    figure.canvas.draw()
    shown = [text.get_text() for text in panel.get_xticklabels()]
    assert {"0.5", "1", "2", "5"} <= set(shown)
    assert not any("10" in text and "{" in text for text in shown)
    assert any("{-4}" in text.get_text() for text in panel.get_yticklabels())


def test_an_axis_of_less_than_a_factor_of_five_has_several_numbers() -> None:
    figure, (panel,) = new_figure()
    panel.plot([1.8, 7.3], [0.28, 0.47])
    panel.set(xscale="log", yscale="log")
    tidy_log_ticks(panel)
    figure.draw_without_rendering()
    for axis, (low, high) in ((panel.xaxis, panel.get_xlim()), (panel.yaxis, panel.get_ylim())):
        places = [place for place in axis.get_majorticklocs() if low <= place <= high]
        assert len(places) >= 3
        assert all(f"{place:g}" == text.get_text() for place, text in zip(
            axis.get_majorticklocs(), axis.get_majorticklabels(), strict=True
        ))  # fmt: skip
