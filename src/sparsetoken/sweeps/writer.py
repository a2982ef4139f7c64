"""The driver's side of a store: make it, lock it, and write outcomes to it."""

import json
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex
from typing import Any, NamedTuple

from sparsetoken import __version__
from sparsetoken.files import FileLock, LockTaken, lock_file
from sparsetoken.sweeps.errors import StoreError
from sparsetoken.sweeps.grid import Grid
from sparsetoken.sweeps.store import (
    APPLICATION_ID,
    COLUMNS,
    SCHEMA_VERSION,
    Store,
    seal_of,
    translated_errors,
)

__all__ = ["StoreWriter", "StoredRow", "create_store", "lock_store", "now", "refuse_leftovers"]

_OUTCOME = """
    result TEXT,
    error TEXT,
    failed INTEGER NOT NULL CHECK (failed = (error IS NOT NULL) AND failed = (result IS NULL)),
    attempts INTEGER NOT NULL,
    seconds REAL NOT NULL,
    version TEXT NOT NULL,
    finished TEXT NOT NULL,
    seal BLOB NOT NULL
"""
_SCHEMA = f"""
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
BEGIN;
CREATE TABLE study (
    name TEXT PRIMARY KEY, value TEXT NOT NULL, seal BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE cells (
    cell INTEGER PRIMARY KEY, settings TEXT NOT NULL UNIQUE, seal BLOB NOT NULL
);
CREATE TABLE layouts (
    layout INTEGER PRIMARY KEY,
    kind TEXT NOT NULL CHECK (kind IN ('theory', 'trials')),
    names TEXT NOT NULL,
    seal BLOB NOT NULL,
    UNIQUE (kind, names)
);
CREATE TABLE theory (cell INTEGER PRIMARY KEY, {_OUTCOME});
CREATE TABLE trials (
    cell INTEGER NOT NULL, trial INTEGER NOT NULL, {_OUTCOME}, PRIMARY KEY (cell, trial)
) WITHOUT ROWID;
-- Counting must not read the results: this index holds all that `counts` and `finished` need.
CREATE INDEX trials_failed ON trials (cell, failed);
"""


class StoredRow(NamedTuple):
    """What became of one trial, or of the theory of one cell (`trial` is then None).

    `result` is a JSON object with the fields `columns`; it is None if the work failed, and `error`
    then says why. `version` is that of the process that did the work.
    """

    cell: int
    trial: int | None
    result: str | None
    error: str | None
    columns: tuple[str, ...]
    attempts: int
    seconds: float
    version: str = __version__


class StoreWriter(Store):
    """A store, open for its one driver; made if there is none.

    Parameters
    ----------
    path : path
    fingerprint : str
        Says which study this is; a store of another one is refused.
    cells : sequence of mappings
        The settings of each cell, in order.
    trials : int
        Trials wanted for each cell. It may be changed later.
    """

    def __init__(
        self,
        path: str | Path,
        fingerprint: str,
        cells: Sequence[Mapping[str, Any]],
        trials: int,
    ) -> None:
        self._known_layouts: set[tuple[str, tuple[str, ...]]] = set()
        self._lock = lock_store(path)
        try:
            place = Path(os.path.realpath(path))
            if not place.exists():
                refuse_leftovers(place)
                create_store(place, fingerprint, cells, trials)
            super().__init__(path, fingerprint, check=True)
            try:
                self._prepare(trials)
            except BaseException:
                self._connection.close()
                raise
        except BaseException:
            self._lock.release()
            raise

    def _prepare(self, trials: int) -> None:
        with translated_errors(self.path):
            reader, self._connection = self._connection, self._connect_for_writing()
            reader.close()
        versions = json.dumps(sorted({*self.versions(), __version__}))
        with self._transaction() as connection:
            for name, value in (("trials", str(trials)), ("versions", versions)):
                connection.execute(
                    "UPDATE study SET value = ?, seal = ? WHERE name = ?",
                    (value, self._seal("study", (name, value)), name),
                )

    def _connect_for_writing(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"{self.path.absolute().as_uri()}?mode=rw", uri=True, isolation_level=None, timeout=30
        )
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
        except BaseException:
            connection.close()
            raise
        return connection

    def close(self) -> None:
        """Close the file and let go of the lock."""
        try:
            with translated_errors(self.path):
                super().close()
        finally:
            self._lock.release()

    def finished(self, *, retry_failed: bool) -> Iterator[tuple[int, int]]:
        """Yield (cell, trial) of the trials that need not run again."""
        return self._read(
            "SELECT cell, trial FROM trials WHERE trial < ?"
            + (" AND failed = 0" if retry_failed else ""),
            (self.trials_wanted,),
        )

    def finished_theory(self, *, retry_failed: bool) -> set[int]:
        """Return the cells whose theory need not be computed again."""
        query = "SELECT cell FROM theory" + (" WHERE failed = 0" if retry_failed else "")
        return {row[0] for row in self._read(query)}

    def save(self, rows: Sequence[StoredRow]) -> None:
        """Store rows in one transaction; a trial that is already there stays as it is."""
        if not rows:
            return
        finished = now()
        with self._transaction() as connection:
            for row in rows:
                kind = "theory" if row.trial is None else "trials"
                if row.error is None:
                    self._save_layout(connection, kind, row.columns)
                key = (row.cell,) if row.trial is None else (row.cell, row.trial)
                outcome = (row.result, row.error, int(row.error is not None), row.attempts)
                values = (*key, *outcome, row.seconds, row.version, finished)
                connection.execute(_UPSERT[kind], (*values, self._seal(kind, values)))

    def _save_layout(
        self, connection: sqlite3.Connection, kind: str, names: tuple[str, ...]
    ) -> None:
        if (kind, names) in self._known_layouts:
            return
        text = json.dumps(names)
        known = connection.execute(
            "SELECT 1 FROM layouts WHERE kind = ? AND names = ?", (kind, text)
        ).fetchone()
        if not known:
            [number] = connection.execute("SELECT count(*) FROM layouts").fetchone()
            values = (number, kind, text)
            connection.execute(
                "INSERT INTO layouts VALUES (?, ?, ?, ?)", (*values, self._seal("layouts", values))
            )
        self._known_layouts.add((kind, names))

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with translated_errors(self.path):
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                self._known_layouts.clear()
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise


def _upsert(table: str, keys: str) -> str:
    columns = [*COLUMNS[table], "seal"]
    changes = ", ".join(f"{name} = excluded.{name}" for name in columns)
    # A trial may run twice on a cluster. The first success stays; only a failure is replaced.
    return (
        f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
        f" ON CONFLICT ({keys}) DO UPDATE SET {changes} WHERE {table}.failed"
    )


_UPSERT = {"theory": _upsert("theory", "cell"), "trials": _upsert("trials", "cell, trial")}


def now() -> str:
    """Return the time as the store keeps it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def lock_store(path: str | Path) -> FileLock:
    """Lock out other drivers, by a file beside the store."""
    beside = lock_file(path)
    try:
        with translated_errors(beside):
            return FileLock(beside)
    except LockTaken:
        raise StoreError(f"another sweep is running on {path}: wait for it or stop it") from None


def refuse_leftovers(place: Path) -> None:
    """See that no log of a store that is gone is taken for one of the store to be made.

    SQLite replays a log into whatever file has the name, and so would mix two studies. Empty logs,
    as readers leave them, say nothing and are removed; others are left to the user, because a store
    that was only moved is not whole without its log.
    """
    for ending in ("-wal", "-journal"):
        log = place.with_name(place.name + ending)
        if log.exists() and log.stat().st_size:
            raise StoreError(
                f"{log} is left from a store {place.name} that is gone: delete it, or move it to "
                "where the store is now"
            )
    for ending in ("-wal", "-journal", "-shm"):
        place.with_name(place.name + ending).unlink(missing_ok=True)


def create_store(
    place: Path, fingerprint: str, cells: Sequence[Mapping[str, Any]], trials: int
) -> None:
    """Make a store without results, under another name until it is whole."""
    unfinished = place.with_name(f".{place.name}.new")  # hidden: no name for a store of one's own
    with translated_errors(place):
        _remove_unfinished(unfinished)
        connection = sqlite3.connect(unfinished, isolation_level=None)
        try:
            connection.executescript(_SCHEMA)
            _write_study(connection, fingerprint, cells, trials)
            connection.execute("COMMIT")
        except BaseException:
            connection.close()
            unfinished.unlink(missing_ok=True)
            raise
        connection.close()
        unfinished.rename(place)


def _remove_unfinished(unfinished: Path) -> None:
    """Remove what a driver left that was killed here; the lock says that none is at work."""
    if unfinished.exists():
        with unfinished.open("rb") as file:
            start = file.read(16)
        if start.strip(b"\x00") and not start.startswith(b"SQLite format 3"):
            raise StoreError(f"{unfinished} is in the way of the store: move it elsewhere")
    for ending in ("", "-journal", "-wal", "-shm"):
        unfinished.with_name(unfinished.name + ending).unlink(missing_ok=True)


def _write_study(
    connection: sqlite3.Connection,
    fingerprint: str,
    cells: Sequence[Mapping[str, Any]],
    trials: int,
) -> None:
    facts = {
        "identity": token_hex(16),
        "fingerprint": fingerprint,
        "trials": str(trials),
        "versions": json.dumps([__version__]),
        "created": now(),
    }
    seal = seal_of(facts["identity"])
    if isinstance(cells, Grid):
        facts["grid"] = cells.to_json()
    else:
        rows = ((number, json.dumps(dict(cell))) for number, cell in enumerate(cells))
        connection.executemany(
            "INSERT INTO cells VALUES (?, ?, ?)", ((*row, seal("cells", row)) for row in rows)
        )
    connection.executemany(
        "INSERT INTO study VALUES (?, ?, ?)",
        ((*fact, seal("study", fact)) for fact in facts.items()),
    )
