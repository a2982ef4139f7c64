"""The store on its own: what it refuses, and that refusing leaves it as it was."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sparsetoken
from sparsetoken.sweeps import Store, StoreError
from sparsetoken.sweeps.store import SCHEMA_VERSION, describe_row
from sparsetoken.sweeps.writer import StoredRow, StoreWriter

CELLS = [{"slope": 1.0}, {"slope": 2.0}]


def done(cell: int, trial: int | None, value: float = 0.5) -> StoredRow:
    return StoredRow(cell, trial, f'{{"value":{value}}}', None, ("value",), 1, 0.1)


def failed(cell: int, trial: int | None) -> StoredRow:
    return StoredRow(cell, trial, None, "no luck", (), 3, 0.1)


def test_a_row_is_called_by_its_cell_and_trial() -> None:
    tables = ("cells", "theory", "trials")
    assert [describe_row(table, (3, 4)) for table in tables] == [
        "the settings of cell 3",
        "the theory of cell 3",
        "cell 3, trial 4",
    ]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "a.sqlite"
    with StoreWriter(path, "mine", CELLS, 200) as store:
        store.save([done(cell, trial) for cell in (0, 1) for trial in range(200)])
    return path


def test_it_is_one_file_in_wal_mode_with_full_synchronisation(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    with StoreWriter(path, "mine", CELLS, 1) as store:
        store.save([done(0, 0)])
        assert store._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert store._connection.execute("PRAGMA synchronous").fetchone() == (2,)
    assert sorted(item.name for item in tmp_path.iterdir()) == ["a.sqlite", "a.sqlite.lock"]


def test_rows_carry_version_attempts_and_time(path: Path) -> None:
    with Store(path, "mine") as store:
        cell, trial, result, error, attempts, seconds, version, finished = next(store.trials())
        assert (cell, trial, result, error, attempts, seconds) == (
            0,
            0,
            '{"value":0.5}',
            None,
            1,
            0.1,
        )
        assert [version] == store.versions()
        assert finished.endswith("+00:00")


def test_a_success_is_stored_once_and_stays(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "a", "mine", CELLS, 2) as store:
        store.save([done(0, 0, 1.0), done(0, 0, 2.0), done(0, None, 3.0), done(0, None, 4.0)])
        store.save([done(0, 0, 5.0), failed(0, 0)])
        assert [row[2] for row in store.trials()] == ['{"value":1.0}']
        assert list(store.theory()) == [(0, '{"value":3.0}', None)]
        store.save([failed(0, 1)])
        assert store.counts()[3:5] == (1, 1)
        store.save([done(0, 1)])
        assert store.counts()[3:5] == (2, 0)


def test_outcomes_are_stored_all_or_none(path: Path) -> None:
    impossible = done(0, 300)._replace(error="both a result and an error")
    with StoreWriter(path, "mine", CELLS, 400) as store:
        with pytest.raises(StoreError):
            store.save([done(1, 300), impossible])
        assert store.counts().done == 400
        store.save([done(1, 300)])
        assert store.counts().done == 401


def overwrite(offset: int, data: bytes) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        with path.open("r+b") as file:
            file.seek(offset)
            file.write(data)

    return damage


def truncate(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (overwrite(0, b"some other file"), "is not a store of sparsetoken, or damaged"),
        (overwrite(68, b"\0\0\0\1"), "is not a store of sparsetoken, or damaged"),
        (
            overwrite(60, (SCHEMA_VERSION + 1).to_bytes(4, "big")),
            f"has schema {SCHEMA_VERSION + 1}",
        ),
        (overwrite(4096, b"\xff" * 2000), "is damaged"),
        (overwrite(100, b"\xff" * 500), "is damaged"),
        (truncate, "is damaged"),
        (lambda path: path.write_bytes(b""), "is not a store of sparsetoken, or damaged"),
    ],
)
def test_what_is_not_a_sound_store_is_refused_and_left_untouched(
    path: Path, damage: Callable[[Path], Any], message: str
) -> None:
    damage(path)
    before = path.read_bytes(), path.stat().st_mtime_ns
    for opened in (
        lambda: Store(path, "mine", check=True),
        lambda: StoreWriter(path, "mine", CELLS, 200),
    ):
        with pytest.raises(StoreError, match=message):
            opened()
        assert (path.read_bytes(), path.stat().st_mtime_ns) == before


def test_damage_found_late_is_a_clear_error_too(path: Path) -> None:
    overwrite(path.stat().st_size - 4096 * 3, b"\xff" * 4096 * 2)(path)
    with pytest.raises(StoreError, match="is damaged"), Store(path, "mine") as store:
        list(store.rows())


def test_a_store_of_another_study_is_refused_and_left_untouched(path: Path) -> None:
    before = path.read_bytes()
    with pytest.raises(StoreError, match="belongs to another study"):
        Store(path, "yours")
    with pytest.raises(StoreError, match="belongs to another study"):
        StoreWriter(path, "yours", CELLS, 200)
    assert path.read_bytes() == before


def test_a_missing_store_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no store"):
        Store(tmp_path / "none")
    with pytest.raises(StoreError, match="cannot be read"):
        Store(tmp_path)
    with pytest.raises(StoreError, match="cannot be opened or written"):
        StoreWriter(tmp_path / "none" / "a", "mine", CELLS, 1)


def test_one_driver_at_a_time_and_the_lock_ends_with_it(path: Path) -> None:
    with StoreWriter(path, "mine", CELLS, 400) as store:
        with pytest.raises(StoreError, match="another sweep is running"):
            StoreWriter(path, "mine", CELLS, 200)
        with Store(path) as reader:
            store.save([done(0, 200)])
            assert reader.counts().done == 401
    StoreWriter(path, "mine", CELLS, 200).close()


def test_a_driver_killed_while_it_made_the_store_leaves_no_trap(tmp_path: Path) -> None:
    (tmp_path / ".a.new").write_bytes(b"SQLite format 3\0half a store")
    (tmp_path / ".a.new-journal").write_bytes(b"of that half")
    with StoreWriter(tmp_path / "a", "mine", CELLS, 1) as store:
        assert store.counts().cells == 2
    assert not list(tmp_path.glob(".a.new*"))


def test_a_file_of_the_user_with_that_name_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / ".a.new").write_text("mine")
    with pytest.raises(StoreError, match=r"a\.new is in the way"):
        StoreWriter(tmp_path / "a", "mine", CELLS, 1)
    assert (tmp_path / ".a.new").read_text() == "mine"


def test_stores_with_similar_names_are_left_alone(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "a.new", "theirs", CELLS, 1):
        pass
    before = (tmp_path / "a.new").read_bytes()
    with StoreWriter(tmp_path / "a", "mine", CELLS, 1):
        pass
    assert (tmp_path / "a.new").read_bytes() == before


def test_another_program_that_holds_the_file_is_reported(path: Path) -> None:
    other = sqlite3.connect(path, isolation_level=None)
    with StoreWriter(path, "mine", CELLS, 200) as store:
        store._connection.execute("PRAGMA busy_timeout = 50")
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="is in use by another program"):
            store.save([done(0, 200)])
        other.execute("ROLLBACK")
        store.save([done(0, 200)])
    other.close()


def test_the_versions_that_ran_a_study_are_remembered(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparsetoken.sweeps.writer.__version__", "99.0")
    with StoreWriter(path, "mine", CELLS, 200) as store:
        assert store.versions() == sorted([sparsetoken.__version__, "99.0"])


def test_no_connection_is_left_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[sqlite3.Connection] = []
    closed: list[sqlite3.Connection] = []

    class Watched(sqlite3.Connection):
        def close(self) -> None:
            closed.append(self)
            super().close()

    def connect(*arguments: Any, **options: Any) -> sqlite3.Connection:
        opened.append(Watched(*arguments, **options))
        return opened[-1]

    monkeypatch.setattr(sqlite3, "connect", connect)
    for _ in range(2):  # made, and opened again
        with StoreWriter(tmp_path / "a.sqlite", "mine", CELLS, 1):
            pass
    with sqlite3.connect(tmp_path / "a.sqlite") as broken:
        broken.execute("DROP TABLE study")
    broken.close()
    with pytest.raises(StoreError):
        Store(tmp_path / "a.sqlite")
    assert len(opened) > 4
    assert {*map(id, opened)} == {*map(id, closed)}
