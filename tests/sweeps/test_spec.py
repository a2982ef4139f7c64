"""The study file: what it means and what it refuses."""

import math
import os
import time
from dataclasses import fields
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsetoken import Query, Task, Training, predict, run_trial
from sparsetoken.sweeps import StudyError, parse_study, read_study
from sparsetoken.sweeps.cells import predict_cell, read_cell, simulate_trial
from sparsetoken.sweeps.grid import Grid, share

HEAD = "trials = 1\ndimensions = 10\n"
TASK = "[task]\nlength = 10\ninformative = 1\nstrength = 2\n"
TRAINING = "[training]\nalpha0 = 1\nalpha1 = 2\n"
PLAIN = HEAD + TASK + TRAINING
RANGE = (
    "training.ridge: a range must be { from = NUMBER, to = NUMBER, count = INTEGER, "
    'scale = "linear" or "log" }'
)
LOSSES = (
    "training.loss: 'cubic' is not valid: expected one of 'hinge', 'logistic', 'square', "
    "'squared_hinge', or a loss that `register_loss` made known in this process"
)


def problems(text: str) -> list[str]:
    with pytest.raises(StudyError) as caught:
        parse_study(text)
    return caught.value.problems


def values(text: str, name: str) -> list[Any]:
    return [cell[name] for cell in parse_study(text).cells()]


def test_a_plain_study_is_one_cell_with_every_setting() -> None:
    [cell] = parse_study(PLAIN).cells()
    assert cell == {
        **Task(10, 1, 2.0).to_dict(),
        **Training(1.0, 2.0).to_dict(),
        "dimension": 10,
        "classifier": "attention",
        "sampler": "reduced",
        "seed": 0,
    }
    assert isinstance(cell["strength"], float)
    assert read_cell(cell) == (Task(10, 1, 2.0), Training(1.0, 2.0), None, None)


def test_every_field_of_the_objects_can_be_a_list() -> None:
    lists = {
        "length": "[10, 20]", "informative": "[1, 2]", "strength": "[1, 2]",
        "positive_rate": "[0.2, 0.4]", "loss": '["logistic", "square"]',
        "reuse": "[false, true]",
    }  # fmt: skip
    for kind, head in (
        (Task, HEAD + TRAINING + "[task]\n"),
        (Training, HEAD + TASK + "[training]\n"),
    ):
        required = {"length": 10, "informative": 1, "strength": 2, "alpha0": 1, "alpha1": 1}
        for item in fields(kind):
            lines = {f.name: required[f.name] for f in fields(kind) if f.name in required}
            lines[item.name] = lists.get(item.name, "[1, 2]")  # type: ignore[assignment]
            text = head + "".join(f"{name} = {value}\n" for name, value in lines.items())
            assert len(set(values(text, item.name))) == 2, item.name


def test_a_study_without_a_split_pairs_the_sample_ratios() -> None:
    ratios = "[training]\nreuse = true\nalpha0 = [1, 2]\nalpha1 = [1, 2]\n"
    with pytest.raises(StudyError, match="as alpha0"):
        parse_study(HEAD + TASK + ratios)
    paired = 'zip = [["training.alpha0", "training.alpha1"]]\n' + HEAD + TASK + ratios
    assert [cell["alpha1"] for cell in parse_study(paired).cells()] == [1.0, 2.0]
    assert all(cell["reuse"] is True for cell in parse_study(paired).cells())


def test_a_study_does_not_reuse_samples_that_a_given_query_never_used() -> None:
    given = "[query]\nalignment = 0.9\nsharpness = 1.5\n"
    training = "[training]\nreuse = [false, true]\nalpha0 = 1\nalpha1 = 1\n"
    both = 'classifiers = ["pooled", "attention"]\n' + HEAD + TASK + training + given
    with pytest.raises(StudyError, match=r"reuse = True, classifier = attention\): reuse = True"):
        parse_study(both)
    assert len(parse_study(both.replace(', "attention"', "").replace(given, "")).cells()) == 2
    assert len(parse_study(both.replace(given, "")).cells()) == 4


def test_cells_are_the_product_in_the_order_of_the_lists() -> None:
    text = HEAD.replace("10", "[10, 20]") + 'classifiers = ["attention", "pooled"]\n' + TASK
    text += "[training]\nalpha0 = [1, 2]\nalpha1 = 1\n"
    cells = [(c["alpha0"], c["dimension"], c["classifier"]) for c in parse_study(text).cells()]
    assert cells == [
        (a, d, c) for a in (1, 2) for d in (10, 20) for c in ("attention", "pooled")
    ]  # fmt: skip


def test_zipped_lists_run_side_by_side() -> None:
    text = 'zip = [["task.strength", "training.alpha1", "dimensions"]]\n'
    text += "trials = 1\ndimensions = [10, 20, 30]\n"
    text += "[task]\nlength = [5, 6]\ninformative = 1\nstrength = [1, 2, 3]\n"
    text += "[training]\nalpha0 = 1\nalpha1 = { from = 4, to = 6, count = 3 }\n"
    cells = parse_study(text).cells()
    assert [(c["length"], c["strength"], c["alpha1"], c["dimension"]) for c in cells] == [
        (length, strength, strength + 3, 10 * strength)
        for length in (5, 6)
        for strength in (1, 2, 3)
    ]


@given(
    start=st.floats(1e-3, 1e3),
    stop=st.floats(1e-3, 1e3),
    count=st.integers(2, 50),
    scale=st.sampled_from(["linear", "log"]),
)
def test_ranges_hold_both_ends_and_even_steps(
    start: float, stop: float, count: int, scale: str
) -> None:
    if math.isclose(start, stop, rel_tol=1e-9):
        return
    given_range = f'{{ from = {start!r}, to = {stop!r}, count = {count}, scale = "{scale}" }}'
    found = values(HEAD + TASK + f"[training]\nalpha0 = 1\nalpha1 = {given_range}\n", "alpha1")
    assert (found[0], found[-1], len(found)) == (start, stop, count)
    places = [math.log(value) for value in found] if scale == "log" else found
    step = (places[-1] - places[0]) / (count - 1)
    for number, place in enumerate(places):
        assert math.isclose(place, places[0] + number * step, rel_tol=1e-9, abs_tol=1e-9)


def test_ranges_hold_round_numbers_exactly() -> None:
    head = HEAD + TASK + "[training]\nalpha0 = 1\nalpha1 = "
    doubled = values(head + '{ from = 1, to = 8, count = 4, scale = "log" }\n', "alpha1")
    assert list(doubled) == [1, 2, 4, 8]
    tenths = values(head + "{ from = 0.1, to = 0.5, count = 5 }\n", "alpha1")
    assert list(tenths) == [0.1, 0.2, 0.3, 0.4, 0.5]


def test_ranges_of_whole_numbers_are_rounded_and_have_no_repetitions() -> None:
    text = 'trials = 1\ndimensions = { from = 2, to = 100, count = 9, scale = "log" }\n'
    found = values(text + TASK + TRAINING, "dimension")
    assert (found[0], found[-1]) == (2, 100)
    assert found == sorted(set(found))
    assert all(isinstance(value, int) for value in found)
    short = text.replace("100", "4")
    assert values(short + TASK + TRAINING, "dimension") == [2, 3, 4]


def test_a_query_is_for_attention_and_a_test_task_keeps_what_is_not_named() -> None:
    text = 'classifiers = ["attention", "pooled"]\n' + PLAIN
    text += "[query]\nalignment = [0.5, 1]\nsharpness = 3\n[at]\nlength = 20\n"
    cells = parse_study(text).cells()
    assert [read_cell(cell).query for cell in cells] == [Query(0.5, 3), None, Query(1, 3), None]
    assert {read_cell(cell).at for cell in cells} == {Task(20, 1, 2.0)}
    assert cells[1]["query_alignment"] == 0.5
    assert cells[0]["at_strength"] == 2.0


def test_metrics_and_another_sharpness_and_bias_reach_trials_and_theory() -> None:
    text = 'classifiers = ["attention", "pooled"]\nmetrics = ["auc", "hit_rate"]\n' + PLAIN
    text += "[query]\nalignment = 0.9\nsharpness = 1\n"
    text += "[at]\nlength = 20\nsharpness = [2, inf]\nrecalibrate = [true, false]\n"
    cells = parse_study(text).cells()
    chosen = [(cell["at_sharpness"], cell["at_recalibrate"]) for cell in cells]
    assert chosen[::2] == [("2.0", True), ("2.0", False), ("inf", True), ("inf", False)]
    task, training, query, at = read_cell(cells[4])
    usage: dict[str, Any] = {"at_sharpness": math.inf, "recalibrate": True, "at": at}
    trial = run_trial(
        task, training, dimension=10, trial=0, query=query, metrics=["auc", "hit_rate"], **usage
    )
    record = simulate_trial(cells[4], 0)
    assert [record[name] for name in ("test_error", "auc", "hit_rate", "at_bias")] == [
        *(trial.test_error, trial.auc, trial.hit_rate, trial.at_bias)
    ]
    theory = predict(task, training, query=query, **usage)
    expected = theory.to_dict("auc", "hit_rate")
    assert list(expected)[2:6:2] == ["auc", "hit_rate"]
    assert expected.pop("at_sharpness") == math.inf  # a setting here
    assert predict_cell(cells[4]) == expected
    # The pooled classifier has neither a softmax nor a place that it looks at.
    pooled = predict_cell(cells[5])
    assert "auc" in pooled
    assert "hit_rate" not in pooled


def test_a_study_without_metrics_has_the_settings_that_it_always_had() -> None:
    assert (
        not {"metrics", "at_sharpness"}
        & parse_study(PLAIN + "[at]\nlength = 20\n").cells()[0].keys()
    )


@pytest.mark.parametrize(
    ("before", "after", "key"),
    [
        ("", "[query]\nalignment = 0.9\nsharpness = 1\n", "query"),
        ('metrics = ["auc", "hit_rate"]\n', "", "metrics: 'hit_rate'"),
        ("", "[at]\nsharpness = 2\n", "at.sharpness"),
    ],
)
def test_what_only_a_query_reads_is_refused_where_no_classifier_has_one(
    before: str, after: str, key: str
) -> None:
    text = 'classifiers = ["pooled", "vectorised"]\n' + before + PLAIN + after
    assert problems(text) == [f"{key} has no effect here: no classifier has a query"]
    assert parse_study(text.replace("vectorised", "attention")).cells()


def test_every_number_that_a_cell_gives_can_be_drawn() -> None:
    text = 'metrics = ["auc", "hit_rate"]\n' + PLAIN.replace("alpha1 = 2", "alpha1 = 2\nridge = 0")
    text += "[at]\nlength = 20\nsharpness = 2\nrecalibrate = true\n[plot]\ny = '{}'\n"
    (cell,) = parse_study(text.format("test_error")).cells()
    found = {**predict_cell(cell), **simulate_trial(cell, 0)}
    numbers = [name for name, value in found.items() if isinstance(value, int | float)]
    assert {"margin_uncertainty", "rate_constant", "along", "readout_norm", "at_bias"} < {*numbers}
    for name in numbers:
        assert parse_study(text.format(name)).plot.y == name


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("trials = ", "is not TOML: Invalid value (at end of document)"),
        (PLAIN + "[at]\nsharpness = -1", "at.sharpness: -1 is not valid: expected a finite number >= 0, or infinity"),
        (PLAIN + "[at]\nrecalibrate = 1", "at.recalibrate: 1 is not valid: expected True or False"),
        (
            'metrics = ["recall"]\n' + PLAIN,
            ("metrics: 'recall' is not valid: expected one of 'attended_mass', 'auc', "
            "'average_precision', 'balanced_error', 'hit_rate'"),
        ),
        (PLAIN.replace("trials = 1", ""), "trials: missing"),
        (PLAIN.replace(TASK, ""), "task: missing"),
        (PLAIN.replace("alpha1 = 2", ""), "training.alpha1: missing"),
        ("colour = 1\n" + PLAIN, "colour: unknown key"),
        (PLAIN + "losss = 1\n", "training.losss: unknown key (did you mean 'training.loss'?)"),
        (PLAIN + "[plt]\nx = 1\n", "plt: unknown key (did you mean 'plot'?)"),
        (PLAIN + "[plot]\nz = 1\n", "plot.z: unknown key"),
        (PLAIN + '[plot]\nx = "alpha"\n', "plot.x: 'alpha' is not a setting (did you mean 'alpha1'?)"),
        (PLAIN + '[plot]\ny = "test_eror"\n', "plot.y: 'test_eror' is not a number of the results (did you mean 'test_error'?)"),
        (PLAIN + "ridge = []\n", "training.ridge: an empty list: give one value or more"),
        (PLAIN + "ridge = [1, 1.0]\n", "training.ridge: a value is listed twice"),
        (PLAIN + "ridge = true\n", "training.ridge: True is not valid: expected 0, or a finite number in [1e-12, 1000000]"),
        (PLAIN + "ridge = nan\n", "training.ridge: nan is not valid: expected 0, or a finite number in [1e-12, 1000000]"),
        (PLAIN + "ridge = [[1]]\n", "training.ridge: [1] is not valid: expected 0, or a finite number in [1e-12, 1000000]"),
        (
            PLAIN + "ridge = { from = 1, to = 2 }\n",
            RANGE,
        ),
        (
            PLAIN + "ridge = { from = 0, to = 2, count = 3, scale = 'log' }\n",
            "training.ridge: from = 0 is not valid: expected a finite number > 0",
        ),
        (
            PLAIN + "ridge = { from = 1, to = 2, count = 1 }\n",
            "training.ridge: count = 1 is not valid: expected an integer in [2, 1000000]",
        ),
        (
            PLAIN + "ridge = { from = 1, to = 2, count = 3, scale = 'cubic' }\n",
            "training.ridge: scale = 'cubic' is not valid: expected one of 'linear', 'log'",
        ),
        (
            PLAIN + "loss = 'cubic'\n",
            LOSSES,
        ),
        (PLAIN.replace("length = 10", "length = 1.5"),
         "task.length: 1.5 is not valid: expected an integer in [2, 1000000000]"),
        (PLAIN.replace("dimensions = 10", ""),
         "dimensions: needed for trials (trials = 0 gives theory alone)"),
        ("theory = false\n" + PLAIN.replace("trials = 1", "trials = 0"),
         "trials: 0 without theory leaves nothing to do"),
        ("zip = [['task.lenght', 'training.alpha1']]\n" + PLAIN,
         "zip: 'task.lenght' is not a key with several values"),
        ("zip = [['training.ridge', 'dimensions']]\n" + HEAD.replace("10", "[10, 20, 30]") + TASK
         + TRAINING + "ridge = [1, 2]\n",
         "zip: lists of different lengths: training.ridge has 2, dimensions has 3"),
        ("zip = [['training.ridge']]\n" + PLAIN + "ridge = [1, 2]\n",
         "zip: ['training.ridge'] is not valid: expected two keys or more"),
        ("zip = ['training.ridge']\n" + PLAIN, "zip.0: 'training.ridge' is not valid: expected a list"),
        (PLAIN.replace("trials = 1", "trials = '1'"), "trials: '1' is not valid: expected an integer"),
        (PLAIN.replace("trials = 1", "trials = -1"), "trials: -1 is not valid: expected an integer >= 0"),
        ("seed = 9223372036854775808\n" + PLAIN,
         "seed: 9223372036854775808 is not valid: expected an integer < 9223372036854775808"),
        ("sampler = 'x'\n" + PLAIN, "sampler: 'x' is not valid: expected 'reduced' or 'plain'"),
        ("theory = 'yes'\n" + PLAIN, "theory: 'yes' is not valid: expected true or false"),
        ("title = 3\n" + PLAIN, "title: 3 is not valid: expected a text"),
        ("query = 3\n" + PLAIN, "query: 3 is not valid: expected a table"),
        ("zip = [['training.ridge', 'training.ridge']]\n" + PLAIN + "ridge = [1, 2]\n",
         "zip: 'training.ridge' is named twice"),
    ],
)  # fmt: skip
def test_mistakes_are_named_by_their_key(text: str, problem: str) -> None:
    assert problem in problems(text)


def test_a_title_that_no_figure_can_show_is_refused_before_anything_runs() -> None:
    [found] = problems(r"title = '$\nonsense{$'" + "\n" + PLAIN)
    assert found.startswith(r"title: '$\\nonsense{$' cannot be set: ")


def test_a_title_may_hold_formulas_and_prices() -> None:
    for title in (r"error against $\alpha_1$", "3 $ a sample", "no formula"):
        assert parse_study(f"title = '{title}'\n" + PLAIN).title == title


def test_theory_alone_and_simulation_alone_are_studies() -> None:
    assert "dimension" not in parse_study("trials = 0\n" + TASK + TRAINING).cells()[0]
    assert not parse_study("theory = false\n" + PLAIN).theory


def test_many_bad_cells_are_counted_and_a_few_shown() -> None:
    found = problems(PLAIN.replace("informative = 1", "informative = [10, 11, 12, 13, 14, 15, 16]"))
    assert found[0] == (
        "cell 0 (informative = 10): informative = 10 is not valid: "
        "expected an integer below length = 10"
    )
    assert len(found) == 6
    assert found[-1] == "... and 2 more combinations"


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=r"none\.toml has 1 problem:\n  cannot be read: No such"):
        read_study(tmp_path / "none.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(StudyError, match=r"binary\.toml has 1 problem:\n  cannot be read: .*utf-8"):
        read_study(tmp_path / "binary.toml")
    os.mkfifo(tmp_path / "pipe.toml")  # to open it would wait for ever
    with pytest.raises(StudyError, match=r"pipe\.toml has 1 problem:\n  cannot be read: it is not"):
        read_study(tmp_path / "pipe.toml")


def test_a_mark_at_the_beginning_of_a_file_is_no_mistake(tmp_path: Path) -> None:
    (tmp_path / "marked.toml").write_text("\ufeff" + PLAIN, encoding="utf-8")
    assert read_study(tmp_path / "marked.toml") == parse_study(PLAIN)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('"a.b" = 1\n' + PLAIN, "a.b: unknown key"),
        (PLAIN.replace("trials = 1", "trials = " + "1" * 5000), "is not TOML: "),
        ("x = " + "[" * 100_000 + "\n" + PLAIN, "is not TOML: nested too deeply"),
        (
            PLAIN + "ridge = { from = 1e-300, to = 1e300, count = 3, scale = 'log' }\n",
            "training.ridge: from and to are too far apart for a range",
        ),
        (
            PLAIN + "ridge = { from = -1e308, to = 1e308, count = 3 }\n",
            "training.ridge: from and to are too far apart for a range",
        ),
        (
            PLAIN + "ridge = { from = 1, to = 2, count = 1000000000 }\n",
            "training.ridge: count = 1000000000 is not valid: expected an integer in [2, 1000000]",
        ),
        (
            PLAIN.replace("trials = 1", "trials = 1000000000000"),
            "trials: 1000000000000 of each of 1 cells are too many, at most 100000000 in all",
        ),
        (
            PLAIN.replace("alpha1 = 2", "alpha1 = { from = 1, to = 2, count = 10000 }")
            + "ridge = { from = 1, to = 2, count = 10000 }\n",
            (
                "100000000 cells are too many, at most 10000000 are accepted: "
                "training.alpha1 has 10000, training.ridge has 10000"
            ),
        ),
        (
            PLAIN.replace("alpha1 = 2", "alpha1 = [1, 2]")
            + "query_step = { from = 1, to = 2, count = 10000 }\n"
            + "ridge = { from = 1, to = 2, count = 1000 }\n",
            (
                "20000000 cells are too many, at most 10000000 are accepted: "
                "training.alpha1 has 2, training.ridge has 1000, training.query_step has 10000"
            ),
        ),
        (f"title = '${'{' * 400}x{'}' * 400}$'\n" + PLAIN, "title: '${{{"),
        ("title = '" + "$x$ " * 500_000 + "'\n" + PLAIN, "title: '$x$ "),
    ],
    ids=[
        "dotted",
        "digits",
        "brackets",
        "log",
        "linear",
        "count",
        "trials",
        "product",
        "two values",
        "nested formula",
        "long formula",
    ],
)
def test_what_would_take_all_memory_or_time_is_one_message(text: str, problem: str) -> None:
    begin = time.process_time()
    [found] = problems(text)
    assert found.startswith(problem)
    assert time.process_time() - begin < 60  # only going through all cells would take so long


def test_a_million_cells_cost_nothing_until_they_are_asked_for() -> None:
    text = PLAIN.replace("alpha1 = 2", "alpha1 = { from = 1, to = 2, count = 1000 }")
    text += "ridge = { from = 1, to = 2, count = 1000 }\n"
    begin = time.process_time()
    cells = parse_study(text).cells()
    assert (len(cells), cells[-1]["alpha1"], cells[-1]["ridge"]) == (10**6, 2.0, 2.0)
    assert cells[1] == {**cells[0], "ridge": cells[1]["ridge"]}
    assert time.process_time() - begin < 20  # a million cells take minutes to make
    assert list(islice(cells, 3)) == [cells[0], cells[1], cells[2]]


def test_cells_of_a_grid_are_those_of_the_same_list() -> None:
    text = 'zip = [["task.strength", "dimensions"]]\nclassifiers = ["attention", "pooled"]\n'
    text += "trials = 1\ndimensions = [10, 20, 30]\n" + TASK.replace(
        "strength = 2", "strength = [1, 2, 1.5]"
    )
    text += "[training]\nalpha0 = [1, 2]\nalpha1 = 1\n[at]\nlength = [5, 6]\n"
    grid = parse_study(text).cells()
    assert Grid.from_json(grid.to_json()) == grid
    cells = list(grid)
    assert [grid[number] for number in range(len(grid))] == cells
    ignored = ("dimension", "sampler", "seed", "classifier")
    lazy, listed = share(grid, ignored), share(cells, ignored)
    for number in range(len(cells)):
        assert lazy.first(number) == listed.first(number)
        assert sorted(lazy.members(lazy.first(number))) == list(listed.members(lazy.first(number)))
