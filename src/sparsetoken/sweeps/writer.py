"""The driver's side of a store: make it, lock it, and write outcomes to it."""

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from sparsetoken import __version__
from sparsetoken.sweeps.errors import StoreError
from sparsetoken.sweeps.store import APPLICATION_ID, SCHEMA_VERSION, Store, translated_errors

__all__ = ["Outcome", "StoreWriter"]

_SCHEMA = f"""
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
BEGIN;
CREATE TABLE study (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE cells (
    cell INTEGER PRIMARY KEY,
    settings TEXT NOT NULL UNIQUE,
    trials INTEGER NOT NULL
);
CREATE TABLE layouts (
    layout INTEGER PRIMARY KEY,
    kind TEXT NOT NULL CHECK (kind IN ('theory', 'trials')),
    names TEXT NOT NULL,
    UNIQUE (kind, names)
);
CREATE TABLE theory (
    cell INTEGER PRIMARY KEY REFERENCES cells,
    result TEXT,
    error TEXT,
    failed INTEGER NOT NULL CHECK (failed = (error IS NOT NULL) AND failed = (result IS NULL)),
    attempts INTEGER NOT NULL,
    seconds REAL NOT NULL,
    version TEXT NOT NULL,
    finished TEXT NOT NULL
);
CREATE TABLE trials (
    cell INTEGER NOT NULL REFERENCES cells,
    trial INTEGER NOT NULL,
    result TEXT,
    error TEXT,
    failed INTEGER NOT NULL CHECK (failed = (error IS NOT NULL) AND failed = (result IS NULL)),
    attempts INTEGER NOT NULL,
    seconds REAL NOT NULL,
    version TEXT NOT NULL,
    finished TEXT NOT NULL,
    PRIMARY KEY (cell, trial)
) WITHOUT ROWID;
-- Counting must not read the results: this index holds all that `counts` and `finished` need.
CREATE INDEX trials_failed ON trials (cell, failed);
"""


class Outcome(NamedTuple):
    """What became of one trial, or of the theory of one cell (`trial` is then None).

    `result` is a JSON object with the fields `columns`; it is None if the work failed, and `error`
    then says why.
    """

    cell: int
    trial: int | None
    result: str | None
    error: str | None
    columns: tuple[str, ...]
    attempts: int
    seconds: float


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
        Trials wanted for each cell. It may be raised later.
    """

    def __init__(
        self,
        path: str | Path,
        fingerprint: str,
        cells: Sequence[Mapping[str, Any]],
        trials: int,
    ) -> None:
        self.path = Path(path)
        self._known_layouts: set[tuple[str, tuple[str, ...]]] = set()
        self._lock = _take_lock(self.path)
        try:
            if not self.path.exists():
                _create(self.path, fingerprint, cells, trials)
            super().__init__(self.path, fingerprint, check=True)
            try:
                self._prepare(trials)
            except BaseException:
                self._connection.close()
                raise
        except BaseException:
            self._lock.close()
            raise

    def _prepare(self, trials: int) -> None:
        with translated_errors(self.path):
            reader, self._connection = self._connection, self._connect_for_writing()
            reader.close()
        with self._transaction() as connection:
            connection.execute("UPDATE cells SET trials = max(trials, ?)", (trials,))
            versions = json.dumps(sorted({*self.versions(), __version__}))
            connection.execute("UPDATE study SET value = ? WHERE name = 'versions'", (versions,))

    def _connect_for_writing(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"{self.path.absolute().as_uri()}?mode=rw", uri=True, isolation_level=None, timeout=30
        )
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        return connection

    def close(self) -> None:
        """Close the file and let go of the lock."""
        try:
            with translated_errors(self.path):
                super().close()
        finally:
            self._lock.close()

    def finished(self, *, retry_failed: bool) -> Iterator[tuple[int, int]]:
        """Yield (cell, trial) of the trials that need not run again."""
        return self._read(
            "SELECT cell, trial FROM trials" + (" WHERE failed = 0" if retry_failed else "")
        )

    def finished_theory(self, *, retry_failed: bool) -> set[int]:
        """Return the cells whose theory need not be computed again."""
        query = "SELECT cell FROM theory" + (" WHERE failed = 0" if retry_failed else "")
        return {row[0] for row in self._read(query)}

    def save(self, outcomes: Sequence[Outcome]) -> None:
        """Store outcomes in one transaction; a trial that is already there stays as it is."""
        if not outcomes:
            return
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        with self._transaction() as connection:
            for outcome in outcomes:
                kind = "theory" if outcome.trial is None else "trials"
                if outcome.error is None:
                    self._save_layout(connection, kind, outcome.columns)
                key = {"cell": outcome.cell}
                if outcome.trial is not None:
                    key["trial"] = outcome.trial
                row = {
                    **key,
                    "result": outcome.result,
                    "error": outcome.error,
                    "failed": outcome.error is not None,
                    "attempts": outcome.attempts,
                    "seconds": outcome.seconds,
                    "version": __version__,
                    "finished": now,
                }
                connection.execute(_UPSERT[kind], row)

    def _save_layout(
        self, connection: sqlite3.Connection, kind: str, names: tuple[str, ...]
    ) -> None:
        if (kind, names) not in self._known_layouts:
            connection.execute(
                "INSERT OR IGNORE INTO layouts (kind, names) VALUES (?, ?)",
                (kind, json.dumps(names)),
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
    columns = [*keys.split(", "), "result", "error", "failed", "attempts", "seconds"]
    columns += ["version", "finished"]
    values = ", ".join(f":{name}" for name in columns)
    changes = ", ".join(f"{name} = excluded.{name}" for name in columns)
    # A trial may run twice on a cluster. The first success stays; only a failure is replaced.
    return (
        f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({values})"
        f" ON CONFLICT ({keys}) DO UPDATE SET {changes} WHERE {table}.failed"
    )


_UPSERT = {"theory": _upsert("theory", "cell"), "trials": _upsert("trials", "cell, trial")}


def _take_lock(path: Path) -> sqlite3.Connection:
    """Lock out other drivers, by SQLite's own portable file lock on an empty file beside it."""
    beside = path.with_name(path.name + ".lock")
    with translated_errors(path):
        lock = sqlite3.connect(beside, isolation_level=None, timeout=0)
        try:
            lock.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            lock.close()
            if error.sqlite_errorname.startswith("SQLITE_BUSY"):
                raise StoreError(
                    f"another sweep is running on {path}: wait for it or stop it"
                ) from None
            raise
    return lock


def _create(path: Path, fingerprint: str, cells: Sequence[Mapping[str, Any]], trials: int) -> None:
    unfinished = path.with_name(path.name + ".new")
    unfinished.unlink(missing_ok=True)  # of a driver that was killed here; the lock is ours
    facts = {
        "fingerprint": fingerprint,
        "versions": json.dumps([__version__]),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    with translated_errors(path):
        connection = sqlite3.connect(unfinished, isolation_level=None)
        try:
            connection.executescript(_SCHEMA)
            connection.executemany("INSERT INTO study VALUES (?, ?)", facts.items())
            connection.executemany(
                "INSERT INTO cells VALUES (?, ?, ?)",
                ((cell, json.dumps(settings), trials) for cell, settings in enumerate(cells)),
            )
            connection.execute("COMMIT")
        except BaseException:
            connection.close()
            unfinished.unlink(missing_ok=True)
            raise
        connection.close()
        unfinished.rename(path)
