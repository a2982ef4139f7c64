"""Phase maps: every cell is a prediction, and the lines lie where errors cross."""

import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparsetoken import ParameterError, Task, Training, capacity, phase_map, predict
from sparsetoken.planning.parallel import finished
from sparsetoken.planning.phase_map import _first_crossings, _range_text

TASK = Task(10, 1, 4.0)
TRAINING = Training(alpha0=1.0, alpha1=3.0, query_step=60, ridge=0.1)
STRENGTHS = np.array([3.0, 4.0, 6.0])
RATIOS = np.array([1.0, 8.0])


def test_cells_are_predictions_and_pooling_has_all_samples() -> None:
    found = phase_map(TASK, TRAINING, x=("strength", STRENGTHS), y=("alpha", RATIOS))
    task = TASK.replace(strength=4.0)
    attention = predict(task, TRAINING.replace(alpha0=2.0, alpha1=6.0)).test_error
    assert found.errors["attention"][1, 1] == pytest.approx(attention, abs=0.004)
    pooled = predict(task, TRAINING.replace(alpha1=8.0), classifier="pooled").test_error
    assert found.errors["pooled"][1, 1] == pytest.approx(pooled, abs=0.004)
    assert found.winners.shape == (2, 3)
    for j, row in enumerate(found.winners):
        for i, winner in enumerate(row):
            assert found.errors[winner][j, i] == min(e[j, i] for e in found.errors.values())
    assert found.unsolved == 0
    rows = found.to_rows()
    assert len(rows) == 6
    assert rows[4]["strength"] == 4.0
    assert rows[4]["attention_test_error"] == found.errors["attention"][1, 1]
    assert "attention" in str(found)
    # A map says nothing of what lies beyond it: not "never".
    assert np.isnan(found.crossings()[0])
    assert "nowhere here" in str(found)


def test_any_two_settings_workers_and_capacity() -> None:
    options: dict[str, Any] = {
        "x": ("length", [6, 12]),
        "y": ("ridge", [0.01, 0.1]),
        "classifiers": ("attention", "pooled"),
        "with_capacity": True,
    }
    calls: list[tuple[int, int]] = []
    one = phase_map(TASK, TRAINING, progress=lambda *counts: calls.append(counts), **options)
    two = phase_map(TASK, TRAINING, workers=2, **options)
    for name, values in one.errors.items():
        assert np.array_equal(values, two.errors[name])
    assert calls == [(i + 1, 6) for i in range(6)]
    assert one.capacities is not None
    expected = capacity(TASK.replace(length=12), training=TRAINING).alpha / 3.0
    assert one.capacities[0, 1] == pytest.approx(expected)
    crossed = replace(one, capacities=np.array([[0.5, 2.0], [0.5, 2.0]]))
    figure = crossed.plot()
    (panel,) = (axes for axes in figure.axes if axes.get_title() == "who wins")
    labels = [text.get_text() for text in panel.get_legend().get_texts()]
    assert "capacity of attention" in labels
    assert "attention = pooling" not in labels  # they cross nowhere here
    assert "capacity_ratio" in one.to_rows()[0]
    share = np.mean([row["capacity_ratio"] >= 1 for row in one.to_rows()])
    assert f"attention separates its training samples in {100 * share:.0f} % (below" in str(one)


def test_an_interrupted_map_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "map.json"
    options: dict[str, Any] = {"x": ("strength", STRENGTHS), "classifiers": ("attention",)}

    def interrupt(done: int, _: int) -> None:
        if done == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        phase_map(
            TASK, TRAINING, y=("alpha", RATIOS), checkpoint=path, progress=interrupt, **options
        )
    calls: list[tuple[int, int]] = []
    went_on = phase_map(
        TASK,
        TRAINING,
        y=("alpha", RATIOS),
        checkpoint=path,
        progress=lambda *counts: calls.append(counts),
        **options,
    )
    assert calls == [(2, 2)]
    whole = phase_map(TASK, TRAINING, y=("alpha", RATIOS), **options)
    assert np.array_equal(went_on.errors["attention"], whole.errors["attention"])
    with pytest.raises(ParameterError, match="a file of this map"):
        phase_map(
            TASK.replace(length=11), TRAINING, y=("alpha", RATIOS), checkpoint=path, **options
        )
    kept = path.read_text()
    digit = kept.rindex(str(went_on.errors["attention"][1, 2])) + 4
    other_digit = kept[:digit] + str((int(kept[digit]) + 1) % 10) + kept[digit + 1 :]
    nested = kept[: kept.index("rows")] + 'rows": ' + "[" * 10**5 + "]" * 10**5 + "}"
    for damaged in (kept[:-30], other_digit, nested, kept.replace('"kind"', '"kinds"')):
        path.write_text(damaged)
        with pytest.raises(ParameterError, match="undamaged"):
            phase_map(TASK, TRAINING, y=("alpha", RATIOS), checkpoint=path, **options)
        assert path.read_text() == damaged
    path.write_text("my own notes")
    with pytest.raises(ParameterError, match="not what this command writes") as refused:
        phase_map(TASK, TRAINING, y=("alpha", RATIOS), checkpoint=path, **options)
    assert "--force" not in str(refused.value)  # which replaces other outputs alone
    assert path.read_text() == "my own notes"


def test_a_second_map_does_not_drop_the_rows_of_the_first(tmp_path: Path) -> None:
    path, link = tmp_path / "map.json", tmp_path / "link.json"
    link.symlink_to(path)
    options: dict[str, Any] = {"x": ("strength", STRENGTHS), "y": ("alpha", RATIOS)}

    def draw(progress: Any = None, **where: Path) -> Any:
        return phase_map(
            TASK, TRAINING, classifiers=["pooled"], progress=progress, **options, **where
        )

    def second(*_: int) -> None:
        kept = path.read_text()
        for place in (path, link):
            with pytest.raises(ParameterError, match="no other map writes to: wait for that one"):
                draw(checkpoint=place)
        assert path.read_text() == kept

    one = draw(second, checkpoint=path)
    again: list[tuple[int, int]] = []
    other = draw(lambda *counts: again.append(counts), checkpoint=link)  # the lock has ended
    assert again == []
    np.testing.assert_array_equal(one.errors["pooled"], other.errors["pooled"])


def test_work_that_nobody_waits_for_ends_without_a_warning() -> None:
    results = finished([partial(time.sleep, 0.05)] * 20, workers=2)
    assert next(results)[1] is None
    results.close()  # a warning is an error here


def test_lines_lie_where_errors_cross() -> None:
    found = phase_map(
        TASK,
        TRAINING,
        x=("strength", np.array([2.0, 6.0])),
        y=("alpha", np.geomspace(0.5, 16, 5)),
        classifiers=("attention", "pooled"),
    )
    at = found.crossings(0.05)
    assert np.isnan(at[0])
    errors = found.errors["attention"][:, 1]
    assert np.interp(-0.05, -errors, found.y_values) == pytest.approx(at[1])
    equal = found.equality()
    assert equal[0] > equal[1]


def test_a_map_without_attention_names_no_line_of_it() -> None:
    axes: dict[str, Any] = {"x": ("strength", STRENGTHS), "y": ("alpha", RATIOS)}
    found = phase_map(TASK, TRAINING, classifiers=["pooled"], **axes)
    with pytest.raises(
        ParameterError, match=r"classifiers = \('pooled',\).*'attention' among them"
    ):
        found.equality()
    # One classifier alone wins nothing.
    assert [panel.get_title() for panel in found.plot().axes] == ["pooled linear", ""]
    assert not {"attention", "wins"} & set(str(found).split())


def test_first_crossing_of_each_column() -> None:
    gaps = np.array([[1.0, -1.0, 1.0, np.nan], [-1.0, 1.0, 1.0, -1.0]])
    found = _first_crossings(gaps, np.array([2.0, 4.0]))
    assert found[:2].tolist() == [3.0, 2.0]
    assert np.isnan(found[2])
    assert found[3] == 4.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": "strength"}, "x = 'strength' .* a pair"),
        ({"x": ("strength", [1.0])}, "values of x"),
        ({"x": ("strength", [2.0, 1.0])}, "values of x .* increasing"),
        (
            {"x": ("strenght", [1.0, 2.0])},
            "x = 'strenght' is not valid: expected one of length, .*, alpha$",
        ),
        ({"x": ("alpha", [0.0, 2.0])}, "alpha = 0.0"),
        ({"y": ("strength", [1.0, 2.0])}, "another setting than x"),
        ({"x": ("alpha0", [1.0, 2.0])}, "y = 'alpha' .* leaves x, alpha0, as it is"),
        (
            {"x": ("query_step", [1.0, 2.0]), "classifiers": ["pooled", "vectorised"]},
            "x = 'query_step' .* that pooled or vectorised reads: alpha, .*, strength$",
        ),
        ({"classifiers": ()}, "classifiers"),
        ({"classifiers": ("bayes",)}, "classifiers = 'bayes'"),
    ],
)
def test_bad_input_is_refused_by_name(change: dict[str, Any], message: str) -> None:
    options = {"x": ("strength", STRENGTHS), "y": ("alpha", RATIOS), **change}
    with pytest.raises(ParameterError, match=message):
        phase_map(TASK, TRAINING, **options)


def test_samples_that_are_reused_are_one_axis() -> None:
    reused = Training(2.0, 2.0, reuse=True)
    axes: dict[str, Any] = {"x": ("alpha0", RATIOS), "y": ("alpha1", RATIOS)}
    with pytest.raises(ParameterError, match=r"y = 'alpha1' .* leaves x, alpha0, as it is"):
        phase_map(TASK, reused, **axes)
    apart = phase_map(TASK, TRAINING, classifiers=["pooled"], **axes)
    # All samples, those for a query too, are the readout's that has none.
    both = predict(TASK, TRAINING.replace(alpha1=9.0), classifier="pooled").test_error
    assert apart.errors["pooled"][1, 0] == pytest.approx(both, abs=2 * apart.tolerance)
    assert str(apart).startswith("Map over alpha0 (1 to 8) and alpha1 (1 to 8), 4 cells, errors ± ")


def test_an_axis_that_the_capacity_alone_reads_is_drawn() -> None:
    found = phase_map(
        TASK,
        TRAINING,
        x=("query_step", [5.0, 60.0]),
        y=("strength", [3.0, 6.0]),
        classifiers=["pooled"],
        with_capacity=True,
    )
    assert found.capacities is not None
    assert np.all(np.diff(found.capacities, axis=1) != 0)


@pytest.mark.parametrize(
    ("gaps", "words"),
    [
        ([1, 1, 1, 1], "nowhere here"),
        ([-1, -1, 0, -1], "everywhere here"),
        ([1, -1, -1, -1], "from 1.5"),
        ([-1, -1, 1, 1], "up to 3"),
        ([0, -1, 1, 1], "up to 3"),
        ([1, -1, 1, 1], "from 1.5 up to 3"),
        ([np.nan, -1, np.nan, 1], "from 2 up to 2"),
    ],
)
def test_where_a_line_is_crossed_is_told_in_either_direction(gaps: list[float], words: str) -> None:
    """An error that grows with the setting is small up to a value, not from one on."""
    assert _range_text(np.array(gaps), np.array([1.0, 2.0, 4.0, 8.0])) == words


def test_a_number_beyond_what_a_length_may_be_is_refused_as_a_length() -> None:
    with pytest.raises(ParameterError, match="length = "):
        phase_map(TASK, TRAINING, x=("length", [2, 10**30]), y=("alpha", [1.0, 2.0]))
