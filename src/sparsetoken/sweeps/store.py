"""One SQLite file that holds a study: its cells, the theory of each, and every trial.

Several processes may read a store while one driver writes it. The driver holds a lock that the
operating system releases when the driver ends, however it ends. A store is made under another name
and then renamed, so that a file with its name is always whole.

Tables: `study` (fingerprint, versions, time of creation), `cells` (settings as JSON), `theory` (one
row a cell), `trials` (one row a trial, unique by cell and trial) and `layouts` (the lists of fields
that results have: one, as a rule). Results are JSON objects; a row has either a result or an error.
"""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from sparsetoken import __version__
from sparsetoken.sweeps.errors import StoreError

__all__ = ["APPLICATION_ID", "SCHEMA_VERSION", "Counts", "Store", "translated_errors"]

APPLICATION_ID = 0x53505453  # "SPTS", in the file's header: tells a store from other SQLite files
SCHEMA_VERSION = 1
_MAGIC = b"SQLite format 3\x00"


class Counts(NamedTuple):
    """How far a study is. `failed` trials are not among those `done`."""

    cells: int
    cells_done: int
    trials: int
    done: int
    failed: int
    theory_done: int
    theory_failed: int


class Store:
    """A store, open for reading.

    Parameters
    ----------
    path : path
        The file.
    fingerprint : str, optional
        The fingerprint of the study that the store must belong to.
    check : bool
        Whether to look for damage in the whole file, which takes about a second for 10⁶ trials.

    Raises
    ------
    StoreError
        If the file is missing, damaged, of another study, or not a store of this version.
    """

    def __init__(
        self, path: str | Path, fingerprint: str | None = None, *, check: bool = False
    ) -> None:
        self.path = Path(path)
        _check_header(self.path)
        with translated_errors(self.path):
            self._connection = self._connect()
            try:
                self._check_content(fingerprint, check)
            except BaseException:
                self._connection.close()
                raise

    def _connect(self) -> sqlite3.Connection:
        uri = self.path.absolute().as_uri()
        connection = sqlite3.connect(f"{uri}?mode=ro", uri=True, isolation_level=None, timeout=30)
        try:
            connection.execute("SELECT count(*) FROM study")
        except sqlite3.OperationalError:
            # Where files beside the store cannot be made, such as on read-only media, a store
            # without a write-ahead log can still be read as a file that nobody changes.
            connection.close()
            if self.path.with_name(self.path.name + "-wal").exists():
                raise
            connection = sqlite3.connect(f"{uri}?immutable=1", uri=True, isolation_level=None)
        return connection

    def _check_content(self, fingerprint: str | None, check: bool) -> None:
        found = self.study["fingerprint"]
        if fingerprint is not None and found != fingerprint:
            raise StoreError(
                f"{self.path} belongs to another study: its cells, seed or functions are not those "
                "asked for (only the number of trials may change). Use another store, or the "
                "study that it was made with"
            )
        if check:
            verdict = self._connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            if verdict != "ok":
                raise StoreError(f"{self.path} is damaged ({verdict}). It has not been touched")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    @property
    def study(self) -> dict[str, str]:
        """What is known of the study: fingerprint, versions of the package, time of creation."""
        return dict(self._read("SELECT name, value FROM study"))

    def counts(self) -> Counts:
        """Count cells and trials, without reading the results."""
        cells, trials = next(self._read("SELECT count(*), coalesce(sum(trials), 0) FROM cells"))
        cells_done, done, failed = next(
            self._read(
                "SELECT coalesce(sum(stored >= cells.trials), 0), coalesce(sum(stored - bad), 0),"
                " coalesce(sum(bad), 0) FROM cells JOIN (SELECT cell, count(*) AS stored,"
                " sum(failed) AS bad FROM trials GROUP BY cell) USING (cell)"
            )
        )
        if not trials:
            cells_done = next(self._read("SELECT count(*) FROM theory"))[0]
        theory = dict(self._read("SELECT failed, count(*) FROM theory GROUP BY failed"))
        return Counts(cells, cells_done, trials, done, failed, theory.get(0, 0), theory.get(1, 0))

    def errors(self, limit: int = 5) -> list[tuple[int, int | None, str]]:
        """Return (cell, trial or None for theory, error) of the first few failures."""
        return list(
            self._read(
                "SELECT cell, trial, error FROM trials WHERE (cell, trial) IN (SELECT cell, trial"
                " FROM trials INDEXED BY trials_failed WHERE failed = 1 LIMIT :limit)"
                " UNION ALL SELECT cell, NULL, error FROM (SELECT * FROM theory WHERE failed"
                " LIMIT :limit) LIMIT :limit",
                {"limit": limit},
            )
        )

    def versions(self) -> list[str]:
        """Return the versions of the package that have run this study."""
        return list(json.loads(self.study["versions"]))

    def cells(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the number and the settings of each cell."""
        for cell, settings in self._read("SELECT cell, settings FROM cells ORDER BY cell"):
            yield cell, json.loads(settings)

    def layouts(self, kind: str) -> list[list[str]]:
        """Return the lists of fields that results of "trials" or of the "theory" have."""
        query = "SELECT names FROM layouts WHERE kind = ? ORDER BY layout"
        return [json.loads(row[0]) for row in self._read(query, (kind,))]

    def columns(self, kind: str) -> list[str]:
        """Return the names of all result fields of "trials" or of the "theory"."""
        return list(dict.fromkeys(name for layout in self.layouts(kind) for name in layout))

    def theory(self) -> Iterator[tuple[int, str | None, str | None]]:
        """Yield (cell, result as JSON, error) of the theory of each cell that has been tried."""
        return self._read("SELECT cell, result, error FROM theory ORDER BY cell")

    def trials(self) -> Iterator[tuple[int, int, str | None, str | None, int, float, str, str]]:
        """Yield (cell, trial, result as JSON, error, attempts, seconds, version, finished)."""
        return self._read(
            "SELECT cell, trial, result, error, attempts, seconds, version, finished"
            " FROM trials ORDER BY cell, trial"
        )

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield one dictionary a trial: cell, trial, the settings, the results and the error.

        The error is None where the trial succeeded; where it failed, there are no results.
        """
        settings = dict(self.cells())
        for cell, trial, result, error, *_ in self.trials():
            values = json.loads(result) if result is not None else {}
            yield {"cell": cell, "trial": trial, **settings[cell], **values, "error": error}

    def theory_rows(self) -> Iterator[dict[str, Any]]:
        """Yield one dictionary a cell with theory: cell, the settings, the results, the error."""
        settings = dict(self.cells())
        for cell, result, error in self.theory():
            values = json.loads(result) if result is not None else {}
            yield {"cell": cell, **settings[cell], **values, "error": error}

    def _read(self, query: str, values: Any = ()) -> Iterator[Any]:
        with translated_errors(self.path):
            yield from self._connection.execute(query, values)


def _check_header(path: Path) -> None:
    """Refuse what is not a store of this version, by the file's first bytes alone."""
    try:
        with path.open("rb") as file:
            header = file.read(100)
    except FileNotFoundError:
        raise StoreError(
            f"there is no store {path} yet: `sparsetoken sweep run` makes it"
        ) from None
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from None
    identity = int.from_bytes(header[68:72], "big")
    if len(header) < 100 or not header.startswith(_MAGIC) or identity != APPLICATION_ID:
        raise StoreError(
            f"{path} is not a store of sparsetoken, or damaged. It has not been touched"
        )
    schema = int.from_bytes(header[60:64], "big")
    if schema != SCHEMA_VERSION:
        raise StoreError(
            f"{path} has schema {schema}, but sparsetoken {__version__} knows schema "
            f"{SCHEMA_VERSION}: use the version that made it. It has not been touched"
        )


@contextmanager
def translated_errors(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into a StoreError that says what to do."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        name = getattr(error, "sqlite_errorname", None) or ""
        raise StoreError(f"{path} {_advice(name)} (SQLite: {error})") from error
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror}") from error


def _advice(name: str) -> str:
    kept = "What was stored is kept"
    if name.startswith(("SQLITE_FULL", "SQLITE_IOERR")):
        return f"cannot be written: is the disk full? {kept}; make room and run again"
    if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_AUTH")):
        return f"cannot be opened or written: is the file or its folder read-only? {kept}"
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return f"is in use by another program. {kept}; run again later"
    return "is damaged. It has not been touched: restore it from a copy, or use another store"
