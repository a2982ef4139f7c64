"""Damage is named, never read as a result, and repaired without losing what is whole."""

import json
import os
import random
import shutil
import signal
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import sweep_functions as functions
from click.testing import CliRunner
from sweep_driver import Driver, sweep

from sparsetoken.cli import main
from sparsetoken.sweeps import Store, StoreError, read_study, run_cells
from sparsetoken.sweeps.errors import DamagedStore
from sparsetoken.sweeps.export import write_csv
from sparsetoken.sweeps.repair import inspect_store
from sparsetoken.sweeps.run import run_sweep

STUDY = """
classifiers = "pooled"
dimensions = 20
trials = 40
seed = 3
theory = false
[task]
length = 4
informative = 1
strength = [2, 4]
[training]
alpha0 = 2
alpha1 = 2
loss = "square"
"""


def results(path: Path) -> list[tuple[Any, ...]]:
    with Store(path) as store:
        return [row[:4] for row in store.trials()]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    (folder / "study.toml").write_text(STUDY)
    run_sweep(read_study(folder / "study.toml"), folder / "study.sqlite")
    return folder


@pytest.fixture
def study(made: Path, tmp_path: Path) -> Path:
    for path in made.iterdir():
        shutil.copy(path, tmp_path)
    return tmp_path / "study.toml"


@pytest.fixture
def at_home(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str]]:
    """Return what runs the command in this process, with threads as workers: it is faster."""
    monkeypatch.setattr("sparsetoken.sweeps.run.LocalExecutor", ThreadPoolExecutor)

    def run(*arguments: object) -> tuple[int, str]:
        done = CliRunner().invoke(main, ["sweep", *map(str, arguments)])
        return done.exit_code, done.output

    return run


def change(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(statement)
    connection.close()


@pytest.mark.slow
def test_a_log_of_a_deleted_store_never_enters_a_new_one(tmp_path: Path) -> None:
    """Kill a sweep of seed 3, delete its store, and run seed 4 under the same name."""
    study = tmp_path / "study.toml"
    store = tmp_path / "study.sqlite"
    study.write_text(STUDY.replace("trials = 40", "trials = 100_000"))
    driver = Driver("run", study, "--workers", 1)
    log = tmp_path / "study.sqlite-wal"
    assert driver.wait_until(lambda: log.exists() and log.stat().st_size > 30_000)
    driver.kill()
    store.unlink()
    study.write_text(STUDY.replace("seed = 3", "seed = 4"))
    code, output = sweep("run", study, "--workers", 1)
    assert code == 2
    assert f"{log} is left from a store study.sqlite that is gone: delete it" in output
    assert not store.exists()
    log.unlink()
    assert sweep("run", study, "--workers", 1)[0] == 0
    run_sweep(read_study(study), tmp_path / "alone.sqlite")
    assert results(store) == results(tmp_path / "alone.sqlite")


@pytest.mark.slow
def test_an_empty_log_that_a_reader_left_is_no_obstacle(study: Path) -> None:
    store = study.with_suffix(".sqlite")
    assert sweep("status", study)[0] == 0  # leaves an empty log
    store.unlink()
    assert sweep("run", study, "--workers", 1)[0] == 0
    assert len(results(store)) == 80


def test_rows_of_another_store_are_not_taken_for_ones_own(study: Path, tmp_path: Path) -> None:
    store, other = study.with_suffix(".sqlite"), tmp_path / "other.toml"
    other.write_text(STUDY.replace("seed = 3", "seed = 4"))
    run_sweep(read_study(other), tmp_path / "other.sqlite")
    change(store, "DELETE FROM trials WHERE cell = 1 AND trial = 7")
    connection = sqlite3.connect(store)
    connection.execute("ATTACH ? AS other", (str(tmp_path / "other.sqlite"),))
    with connection:
        connection.execute(
            "INSERT INTO trials SELECT * FROM other.trials WHERE cell = 1 AND trial = 7"
        )
    connection.close()
    with pytest.raises(DamagedStore, match=r"cell 1, trial 7 has changed .*of another store"):
        results(store)


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("UPDATE trials SET result = replace(result, '1', '2') WHERE cell = 0 AND trial = 3",
         "cell 0, trial 3"),
        ("UPDATE trials SET seconds = seconds + 1 WHERE cell = 1 AND trial = 39", "cell 1, trial 39"),
        ("UPDATE trials SET trial = 99 WHERE cell = 1 AND trial = 0", "cell 1, trial 99"),
        ("UPDATE trials SET result = x'ff00' WHERE cell = 0 AND trial = 0", "cell 0, trial 0"),
        ("UPDATE layouts SET names = replace(names, 'margin', 'morgin')", "a list of fields"),
        ("UPDATE study SET value = '[\"9.9\"]' WHERE name = 'versions'", "what is said of the study"),
    ],
)  # fmt: skip
def test_a_changed_digit_is_found_named_and_repaired(
    study: Path, made: Path, statement: str, named: str, at_home: Callable[..., tuple[int, str]]
) -> None:
    store = study.with_suffix(".sqlite")
    change(store, statement)
    before = store.read_bytes()
    code, output = at_home("check", study)
    assert (code, named in output) == (1, True), output
    if "SET trial = 99" not in statement:  # beyond the trials that are wanted, so not exported
        code, output = at_home("export", study, "--csv", study.with_suffix(".csv"))
        assert code == 2
        assert "is damaged" in output
        assert named in output
        assert "sweep check STUDY --repair" in output
        assert not study.with_suffix(".csv").exists()
    code, output = at_home("run", study, "--workers", 1)
    assert (code, "is damaged" in output) == (2, True), output
    assert store.read_bytes() == before
    code, output = at_home("check", study, "--repair", "--workers", 1)
    assert code == 0, output
    assert results(store) == results(made / "study.sqlite")
    assert at_home("check", study) == (0, f"{store} is sound: 80 rows\n")
    assert (study.parent / "study.sqlite.damaged").exists()


def test_a_repair_tells_a_machine_what_was_found_and_nothing_else(study: Path) -> None:
    change(
        study.with_suffix(".sqlite"),
        "UPDATE trials SET seconds = seconds + 1 WHERE cell = 0 AND trial = 3",
    )
    words = ["sweep", "check", str(study), "--repair", "--json", "--workers", "1"]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["examples"] == ["cell 0, trial 3"]
    assert "Kept 79 rows" in result.stderr
    assert "; 1 trial in " in result.stderr


def test_a_repair_replaces_nothing_and_takes_nothing_from_a_repair_that_was_killed(
    study: Path, made: Path, at_home: Callable[..., tuple[int, str]]
) -> None:
    """What a killed repair leaves has a log; SQLite would replay it into the next repair's store."""
    store, folder = study.with_suffix(".sqlite"), study.parent
    for name in ("study.sqlite.damaged", "study.sqlite.rebuilt"):
        (folder / name).write_text("mine")
    hold_open = sqlite3.connect(folder / "killed.sqlite")
    hold_open.execute("PRAGMA journal_mode = WAL")
    hold_open.execute("CREATE TABLE stale (value)")
    shutil.copy(folder / "killed.sqlite-wal", folder / ".study.sqlite.rebuilt-wal")
    shutil.copy(folder / "killed.sqlite", folder / ".study.sqlite.rebuilt")
    hold_open.close()
    change(store, "UPDATE trials SET seconds = seconds + 1 WHERE cell = 1 AND trial = 3")
    damaged = store.read_bytes()
    code, output = at_home("check", study, "--repair", "--workers", 1)
    assert code == 0, output
    assert results(store) == results(made / "study.sqlite")
    assert at_home("check", study)[0] == 0
    assert (folder / "study.sqlite.damaged2").read_bytes() == damaged
    for name in ("study.sqlite.damaged", "study.sqlite.rebuilt"):
        assert (folder / name).read_text() == "mine"
    assert not list(folder.glob(".study.sqlite.*"))


def test_a_store_without_its_identity_is_refused_for_good(
    study: Path, at_home: Callable[..., tuple[int, str]]
) -> None:
    change(study.with_suffix(".sqlite"), "UPDATE study SET value = 'x' WHERE name = 'identity'")
    code, output = at_home("check", study, "--repair", "--workers", 1)
    assert code == 2
    assert "does not tell any more to which study its rows belong" in output


def test_pages_that_cannot_be_read_cost_their_own_rows_alone(study: Path, made: Path) -> None:
    store = study.with_suffix(".sqlite")
    with store.open("r+b") as file:
        file.seek(store.stat().st_size // 2 // 4096 * 4096)
        file.write(b"\xff" * 4096)
    assert sweep("check", study)[0] == 1
    code, output = sweep("check", study, "--repair", "--workers", 1)
    assert code == 0, output
    assert results(store) == results(made / "study.sqlite")


@pytest.mark.parametrize("seed", range(3))
def test_random_bytes_anywhere_give_the_right_rows_or_one_message(
    study: Path, made: Path, tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    store = study.with_suffix(".sqlite")
    sound, right = store.read_bytes(), results(made / "study.sqlite")
    for _ in range(60):
        damaged = bytearray(sound)
        for _ in range(rng.choice([1, 1, 1, 20])):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        for path in tmp_path.glob("study.sqlite-*"):
            path.unlink()
        store.write_bytes(damaged)
        try:
            inspect_store(store)
            with Store(store) as opened:
                opened.counts(), opened.errors()
                write_csv(opened, tmp_path / "out.csv")
            found = results(store)
        except StoreError:
            continue
        # What is read is right, even if rows that nobody can find are missing.
        assert set(found) <= set(right)


def test_links_to_one_store_share_one_lock(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link.sqlite").symlink_to(tmp_path / "elsewhere" / "real.sqlite")
    traces = tmp_path / "traces"
    traces.mkdir()
    driver = Driver("long", tmp_path / "link.sqlite", traces)
    assert driver.wait_until(lambda: len(list(traces.iterdir())) == 2)
    cells = [{"slope": 1.0, "sleep": 600, "traces": str(traces)}]
    with (
        ThreadPoolExecutor(1) as executor,
        pytest.raises(StoreError, match="another sweep is running"),
    ):
        run_cells(
            cells,
            tmp_path / "elsewhere" / "real.sqlite",
            function=functions.traced,
            trials=2,
            executor=executor,
        )
    os.kill(driver.process.pid, signal.SIGKILL)
    driver.end()
    assert (tmp_path / "link.sqlite").is_symlink()
