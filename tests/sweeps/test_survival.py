"""What a sweep must survive, with real processes, and but for the ten kills with real trials."""

import random
import time
from pathlib import Path
from typing import Any

import pytest
from sweep_driver import Driver, run_cheap_cells, sweep

from sparsetoken.sweeps import Store, read_study, run_sweep

pytestmark = pytest.mark.slow

STUDY = """
classifiers = ["attention", "pooled"]
dimensions = 30
trials = 30
theory = false
[task]
length = 4
informative = 1
strength = [2, 4]
[training]
alpha0 = 2
alpha1 = 2
"""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    path = tmp_path / "study.toml"
    path.write_text(STUDY)
    return path


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Any, ...]]:
    folder = tmp_path_factory.mktemp("undisturbed")
    (folder / "study.toml").write_text(STUDY)
    run_sweep(read_study(folder / "study.toml"), folder / "a.sqlite")
    return results(folder / "a.sqlite")


def results(path: Path) -> list[tuple[Any, ...]]:
    """Return (cell, trial, result as text, error), after a check of the whole file."""
    with Store(path, check=True) as store:
        return [row[:4] for row in store.trials()]


def stored(path: Path) -> int:
    if not path.exists():
        return 0
    with Store(path) as store:
        return store.counts().done


def test_ten_kills_of_the_driver_lose_nothing(tmp_path: Path) -> None:
    store = tmp_path / "killed.sqlite"
    run_cheap_cells(tmp_path / "undisturbed.sqlite", 2)
    undisturbed = results(tmp_path / "undisturbed.sqlite")
    moments = random.Random(7)
    progress = []
    for kill in range(10):
        driver = Driver("cells", store, 1 + kill % 2)
        before = stored(store)
        if kill % 3 == 0:  # at any time, so also while it starts and makes the store
            time.sleep(moments.uniform(0, 1))
        else:  # among trials, wherever the machine's speed puts them
            more = moments.randint(1, 9)
            assert driver.wait_until(lambda: stored(store) >= before + more)  # noqa: B023
            time.sleep(moments.uniform(0, 0.05))
        driver.kill()
        if driver.descendants():
            driver.assert_nothing_is_left()
        progress.append(stored(store))
    assert progress == sorted(progress)
    assert 0 < progress[4] < len(undisturbed)
    code, output = Driver("cells", store, 2).end()
    assert (code, results(store)) == (0, undisturbed), output
    with Store(store) as one, Store(tmp_path / "undisturbed.sqlite") as two:
        assert list(one.theory()) == list(two.theory())
    assert not (tmp_path / ".killed.sqlite.new").exists()


def test_workers_do_not_outlive_a_killed_driver_even_if_busy(tmp_path: Path) -> None:
    traces = tmp_path / "traces"
    traces.mkdir()
    driver = Driver("long", tmp_path / "a.sqlite", traces)
    assert driver.wait_until(lambda: len(list(traces.iterdir())) == 2)
    driver.kill()
    assert len(driver.descendants()) >= 2
    driver.assert_nothing_is_left()


@pytest.mark.parametrize("finished", [0, 3])
def test_ctrl_c_keeps_what_has_finished_and_leaves_no_process(
    study: Path, finished: int, undisturbed: list[tuple[Any, ...]]
) -> None:
    store = study.with_suffix(".sqlite")
    driver = Driver("run", study, "--workers", 2)
    # With 0, as soon as workers start: they must leave Ctrl-C to the driver from the beginning.
    assert driver.wait_until(lambda: len(driver.descendants()) > 1 and stored(store) >= finished)
    driver.press_ctrl_c()
    code, output = driver.end()
    assert code == 130, output
    assert "run again to go on" in output
    assert "Traceback" not in output
    driver.assert_nothing_is_left()
    kept = results(store)
    assert finished <= len(kept) < len(undisturbed)
    assert set(kept) <= set(undisturbed)
    if finished:
        assert sweep("run", study, "--workers", 2)[0] == 0
        assert results(store) == undisturbed


def test_a_second_driver_is_refused_and_readers_are_welcome(
    study: Path, undisturbed: list[tuple[Any, ...]]
) -> None:
    store = study.with_suffix(".sqlite")
    study.write_text(STUDY.replace("trials = 30", "trials = 100_000"))
    driver = Driver("run", study, "--workers", 1)
    assert driver.wait_until(lambda: stored(store) >= 1)
    code, output = sweep("run", study)
    assert code == 2
    assert output == f"Error: another sweep is running on {store}: wait for it or stop it\n"
    code, output = sweep("status", study)
    assert code == 0
    assert output.startswith("cells 0/4, trials ")
    driver.press_ctrl_c()
    assert driver.end()[0] == 130
    assert set(undisturbed) & set(results(store))


@pytest.mark.parametrize("room", [4_000, 60_000])
def test_a_full_disk_stops_the_sweep_and_harms_nothing(
    study: Path, room: int, undisturbed: list[tuple[Any, ...]]
) -> None:
    store = study.with_suffix(".sqlite")
    code, output = sweep("run", study, "--workers", 2, trouble=f"small {room}")
    assert code == 2
    assert f"Error: {store} cannot be written: is the disk full? What was stored is kept" in output
    assert "Traceback" not in output
    # With so little room there is no store at all, otherwise a sound one.
    assert store.exists() == (room > 4_000)
    if store.exists():
        assert set(results(store)) < set(undisturbed)
        assert sweep("run", study, "--workers", 2)[0] == 0
        assert results(store) == undisturbed


def test_read_only_files_and_folders_are_refused_but_can_be_read(study: Path) -> None:
    store = study.with_suffix(".sqlite")
    study.write_text(STUDY.replace("trials = 30", "trials = 1"))
    assert sweep("run", study, "--workers", 1)[0] == 0
    before = results(store)
    for path in study.parent.iterdir():
        if path.suffix not in (".sqlite", ".toml"):
            path.unlink()
    study.write_text(STUDY.replace("trials = 30", "trials = 2"))
    store.chmod(0o444)
    code, output = sweep("run", study, trouble="plain")
    assert code == 2
    assert "is the file or its folder read-only?" in output
    (study.parent / "study.sqlite.lock").unlink()
    study.parent.chmod(0o555)
    code, output = sweep("run", study, trouble="plain")
    assert code == 2
    assert "is the file or its folder read-only?" in output
    code, output = sweep("run", study, "--store", study.parent / "new.sqlite", trouble="plain")
    assert code == 2
    assert "is the file or its folder read-only?" in output
    code, output = sweep("status", study, trouble="plain")
    assert (code, output) == (
        0,
        "cells 0/4, trials 4/8\n",
    )  # of the two trials that it asks for now
    code, output = sweep("export", study, "--csv", study.parent / "a.csv", trouble="plain")
    assert code == 2
    assert output == f"Error: {study.parent / 'a.csv'} cannot be written: Permission denied\n"
    study.parent.chmod(0o755)
    assert results(store) == before


def test_a_file_with_five_mistakes_shows_all_five(study: Path) -> None:
    study.write_text(
        STUDY.replace("dimensions", "dimension")
        .replace('"pooled"', '"average"')
        .replace("trials = 30", 'trials = "many"')
        .replace("alpha0 = 2", "alpha0 = [1, -2]")
        .replace("informative = 1", "positive_rate = 1.5\ninformative = 1")
    )
    code, output = sweep("run", study)
    assert code == 2
    assert output.splitlines() == [
        f"Error: {study} has 5 problems:",
        "  task.positive_rate: 1.5 is not valid: expected a finite number in [1e-09, 0.999999999]",
        "  training.alpha0: -2 is not valid: expected a finite number in [1e-06, 1000000]",
        "  classifiers: 'average' is not valid: expected one of 'attention', 'pooled', 'vectorised'",
        "  trials: 'many' is not valid: expected an integer",
        "  dimension: unknown key (did you mean 'dimensions'?)",
    ]
    assert [path.name for path in study.parent.iterdir()] == ["study.toml"]


def test_a_cell_with_invalid_parameters_is_named_before_anything_runs(study: Path) -> None:
    study.write_text(STUDY.replace("informative = 1", "informative = [1, 4]"))
    code, output = sweep("run", study)
    assert code == 2
    assert "cell 4 (informative = 4, strength = 2.0, classifier = attention): " in output
    assert "informative = 4 is not valid: expected an integer below length = 4" in output
    assert [path.name for path in study.parent.iterdir()] == ["study.toml"]
