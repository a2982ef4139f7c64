"""One SQLite file that holds a study: its cells, the theory of each, and every trial.

Several processes may read a store while one driver writes it. The driver holds a lock that the
operating system releases when the driver ends, however it ends. A store is made under another name
and then renamed, so that a file with its name is always whole.

Tables: `study` (identity, fingerprint, trials wanted, versions, time of creation, and the grid of
cells), `cells` (settings as JSON, where the cells are a list and not a grid), `theory` (one row a
cell), `trials` (one row a trial, unique by cell and trial) and `layouts` (the lists of fields that
results have: one, as a rule). Results are JSON objects; a row has either a result or an error.

Each row is sealed: it carries a hash of the store's identity, drawn when the store is made, and of
all that the row says. A row that has changed by a digit, or that comes from another store, is named
when it is read; it is never taken for a result.
"""

import hashlib
import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from sparsetoken import __version__, validation
from sparsetoken.limits import MOST_TRIALS
from sparsetoken.sweeps.errors import DamagedStore, StoreError
from sparsetoken.sweeps.grid import Grid

__all__ = [
    "APPLICATION_ID",
    "COLUMNS",
    "SCHEMA_VERSION",
    "Store",
    "StudyCounts",
    "describe_row",
    "seal_of",
    "translated_errors",
]

APPLICATION_ID = 0x53505453  # "SPTS", in the file's header: tells a store from other SQLite files
SCHEMA_VERSION = 2
_MAGIC = b"SQLite format 3\x00"

# What is sealed of each table's rows, in this order.
_OUTCOME = ("result", "error", "failed", "attempts", "seconds", "version", "finished")
COLUMNS: dict[str, tuple[str, ...]] = {
    "study": ("name", "value"),
    "cells": ("cell", "settings"),
    "layouts": ("layout", "kind", "names"),
    "theory": ("cell", *_OUTCOME),
    "trials": ("cell", "trial", *_OUTCOME),
}
_FACTS = {"identity", "fingerprint", "trials", "versions", "created"}


def seal_of(identity: str) -> Callable[[str, tuple[Any, ...]], bytes]:
    """Return the function that seals a row, given its table and values, for one store."""
    start = hashlib.blake2b(identity.encode("utf-8", "surrogatepass"), digest_size=8)

    def seal(table: str, values: tuple[Any, ...]) -> bytes:
        hashed = start.copy()
        hashed.update(repr((table, values)).encode("utf-8", "surrogatepass"))
        return hashed.digest()

    return seal


class StudyCounts(NamedTuple):
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
    trials : int, optional
        Trials of each cell that are wanted; by default as many as were asked for last. Those
        beyond are kept, but not shown.
    check : bool
        Whether to look for damage in the whole file, which takes a few seconds for 10⁶ trials.

    Raises
    ------
    StoreError
        If the file is missing, damaged, of another study, or not a store of this version.

    Examples
    --------
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> from sparsetoken import Store, run_cells
    >>> def half(settings, trial):
    ...     return {"value": settings["size"] / 2 + trial}
    >>> with ThreadPoolExecutor(1) as pool:
    ...     _ = run_cells(
    ...         [{"size": 4}], "half.sqlite", function=half, trials=2, executor=pool
    ...     )
    >>> with Store("half.sqlite") as store:
    ...     sorted(row["value"] for row in store.rows())
    [2.0, 3.0]
    """

    def __init__(
        self,
        path: str | Path,
        fingerprint: str | None = None,
        *,
        trials: int | None = None,
        check: bool = False,
    ) -> None:
        self.path = validation.path("path", path)
        if trials is not None:
            trials = validation.integer("trials", trials, low=0, high=MOST_TRIALS)
        check = validation.boolean("check", check)
        self._trials = trials
        self._place = Path(
            os.path.realpath(path)
        )  # SQLite's own files are beside what a link names
        _check_header(self.path)
        with translated_errors(self.path):
            self._connection = self._connect()
            self._seal = seal_of("")
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
        except BaseException as error:
            connection.close()
            # Where files beside the store cannot be made, such as on read-only media, a store
            # without a write-ahead log can still be read as a file that nobody changes.
            unlogged = not self._place.with_name(self._place.name + "-wal").exists()
            if not (isinstance(error, sqlite3.OperationalError | UnicodeDecodeError) and unlogged):
                raise
            connection = sqlite3.connect(f"{uri}?immutable=1", uri=True, isolation_level=None)
        return connection

    def _check_content(self, fingerprint: str | None, check: bool) -> None:
        found = self.study
        if not found.keys() >= _FACTS:
            raise DamagedStore(f"{self.path} is damaged: what it says of its study is not whole")
        if fingerprint is not None and found["fingerprint"] != fingerprint:
            raise StoreError(
                f"{self.path} belongs to another study: its cells, seed or functions are not those "
                "asked for (only the number of trials may change). Use another store, or the "
                "study that it was made with"
            )
        if check:
            verdict = self._connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            if verdict != "ok":
                raise DamagedStore(f"{self.path} is damaged ({verdict}). {_REPAIR}")
            for table in COLUMNS:
                for _ in self._sealed(table):
                    pass

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
        """Close the file.

        Examples
        --------
        >>> from concurrent.futures import ThreadPoolExecutor
        >>> from sparsetoken import Store, run_cells
        >>> def half(settings, trial):
        ...     return {"value": settings["size"] / 2 + trial}
        >>> with ThreadPoolExecutor(1) as pool:
        ...     _ = run_cells([{"size": 4}], "half.sqlite", function=half, trials=2, executor=pool)
        >>> store = Store("half.sqlite")
        >>> store.close()
        >>> store.path.name
        'half.sqlite'
        """
        self._connection.close()

    @property
    def study(self) -> dict[str, str]:
        """What is known of the study: fingerprint, versions of the package, time of creation."""
        # The identity comes first, since all seals depend on it, its own included.
        identity = dict(self._read("SELECT name, value FROM study WHERE name = 'identity'"))
        self._seal = seal_of(str(identity.get("identity", "")))
        return dict(self._sealed("study"))

    @cached_property
    def settings(self) -> Sequence[dict[str, Any]]:
        """The settings of each cell, by its number.

        Examples
        --------
        >>> from concurrent.futures import ThreadPoolExecutor
        >>> from sparsetoken import Store, run_cells
        >>> def half(settings, trial):
        ...     return {"value": settings["size"] / 2 + trial}
        >>> with ThreadPoolExecutor(1) as pool:
        ...     _ = run_cells([{"size": 4}], "half.sqlite", function=half, trials=2, executor=pool)
        >>> with Store("half.sqlite") as store:
        ...     store.settings[0]
        {'size': 4}
        """
        grid = self.study.get("grid")
        if grid is not None:
            return Grid.from_json(grid)
        return [json.loads(text) for _, text in self._sealed("cells", "ORDER BY cell")]

    @property
    def trials_wanted(self) -> int:
        """Trials of each cell that are shown: those asked for here, or else in the last run."""
        return int(self.study["trials"]) if self._trials is None else self._trials

    def counts(self) -> StudyCounts:
        """Count cells and trials, without reading the results.

        Returns
        -------
        StudyCounts

        Examples
        --------
        >>> from concurrent.futures import ThreadPoolExecutor
        >>> from sparsetoken import Store, run_cells
        >>> def half(settings, trial):
        ...     return {"value": settings["size"] / 2 + trial}
        >>> with ThreadPoolExecutor(1) as pool:
        ...     _ = run_cells([{"size": 4}], "half.sqlite", function=half, trials=2, executor=pool)
        >>> with Store("half.sqlite") as store:
        ...     store.counts().done
        2
        """
        cells, wanted = len(self.settings), self.trials_wanted
        cells_done, done, failed = next(
            self._read(
                "SELECT coalesce(sum(stored >= :wanted), 0), coalesce(sum(stored - bad), 0),"
                " coalesce(sum(bad), 0) FROM (SELECT count(*) AS stored, sum(failed) AS bad"
                " FROM trials WHERE trial < :wanted GROUP BY cell)",
                {"wanted": wanted},
            )
        )
        if not wanted:
            cells_done = next(self._read("SELECT count(*) FROM theory"))[0]
        theory = dict(self._read("SELECT failed, count(*) FROM theory GROUP BY failed"))
        predicted, unpredicted = theory.get(0, 0), theory.get(1, 0)
        return StudyCounts(cells, cells_done, cells * wanted, done, failed, predicted, unpredicted)

    def errors(self, limit: int = 5) -> list[tuple[int, int | None, str]]:
        """Return (cell, trial or None for theory, error) of the first few failures.

        Parameters
        ----------
        limit : int, default 5
            At most so many.

        Returns
        -------
        list of tuples

        Examples
        --------
        >>> from concurrent.futures import ThreadPoolExecutor
        >>> from sparsetoken import Store, run_cells
        >>> def half(settings, trial):
        ...     return {"value": settings["size"] / 2 + trial}
        >>> with ThreadPoolExecutor(1) as pool:
        ...     _ = run_cells([{"size": 4}], "half.sqlite", function=half, trials=2, executor=pool)
        >>> with Store("half.sqlite") as store:
        ...     store.errors()
        []
        """
        limit = validation.integer("limit", limit, low=0, high=MOST_TRIALS)
        return list(
            self._read(
                "SELECT cell, trial, error FROM trials WHERE (cell, trial) IN (SELECT cell, trial"
                " FROM trials INDEXED BY trials_failed WHERE failed = 1 AND trial < :wanted"
                " LIMIT :limit)"
                " UNION ALL SELECT cell, NULL, error FROM (SELECT * FROM theory WHERE failed"
                " LIMIT :limit) LIMIT :limit",
                {"limit": limit, "wanted": self.trials_wanted},
            )
        )

    def versions(self) -> list[str]:
        """Return the versions of the package that have run this study.

        Returns
        -------
        list of str

        Examples
        --------
        >>> import sparsetoken
        >>> from concurrent.futures import ThreadPoolExecutor
        >>> from sparsetoken import Store, run_cells
        >>> def half(settings, trial):
        ...     return {"value": settings["size"] / 2 + trial}
        >>> with ThreadPoolExecutor(1) as pool:
        ...     _ = run_cells([{"size": 4}], "half.sqlite", function=half, trials=2, executor=pool)
        >>> with Store("half.sqlite") as store:
        ...     store.versions() == [sparsetoken.__version__]
        True
        """
        return list(json.loads(self.study["versions"]))

    def cells(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the number and the settings of each cell.

        Returns
        -------
        iterator of (int, dict)

        Examples
        --------
        >>> from concurrent.futures import ThreadPoolExecutor
        >>> from sparsetoken import Store, run_cells
        >>> def half(settings, trial):
        ...     return {"value": settings["size"] / 2 + trial}
        >>> with ThreadPoolExecutor(1) as pool:
        ...     _ = run_cells([{"size": 4}], "half.sqlite", function=half, trials=2, executor=pool)
        >>> with Store("half.sqlite") as store:
        ...     list(store.cells())
        [(0, {'size': 4})]
        """
        yield from enumerate(self.settings)

    def layouts(self, kind: str) -> list[list[str]]:
        """Return the lists of fields that results of "trials" or of the "theory" have.

        Parameters
        ----------
        kind : "trials" or "theory"

        Returns
        -------
        list of lists of str

        Examples
        --------
        >>> from concurrent.futures import ThreadPoolExecutor
        >>> from sparsetoken import Store, run_cells
        >>> def half(settings, trial):
        ...     return {"value": settings["size"] / 2 + trial}
        >>> with ThreadPoolExecutor(1) as pool:
        ...     _ = run_cells([{"size": 4}], "half.sqlite", function=half, trials=2, executor=pool)
        >>> with Store("half.sqlite") as store:
        ...     store.layouts("trials")
        [['value']]
        """
        validation.choice("kind", kind, ("trials", "theory"))
        rows = self._sealed("layouts", "ORDER BY layout")
        return [json.loads(names) for _, found, names in rows if found == kind]

    def columns(self, kind: str) -> list[str]:
        """Return the names of all result fields of "trials" or of the "theory".

        Parameters
        ----------
        kind : "trials" or "theory"

        Returns
        -------
        list of str

        Examples
        --------
        >>> from concurrent.futures import ThreadPoolExecutor
        >>> from sparsetoken import Store, run_cells
        >>> def half(settings, trial):
        ...     return {"value": settings["size"] / 2 + trial}
        >>> with ThreadPoolExecutor(1) as pool:
        ...     _ = run_cells([{"size": 4}], "half.sqlite", function=half, trials=2, executor=pool)
        >>> with Store("half.sqlite") as store:
        ...     store.columns("trials")
        ['value']
        """
        return list(dict.fromkeys(name for layout in self.layouts(kind) for name in layout))

    def theory(self) -> Iterator[tuple[int, str | None, str | None]]:
        """Yield (cell, result as JSON, error) of the theory of each cell that has been tried.

        Returns
        -------
        iterator of (int, str or None, str or None)

        Examples
        --------
        >>> from concurrent.futures import ThreadPoolExecutor
        >>> from sparsetoken import Store, run_cells
        >>> def half(settings, trial=0):
        ...     return {"value": settings["size"] / 2 + trial}
        >>> with ThreadPoolExecutor(1) as pool:
        ...     _ = run_cells(
        ...         [{"size": 4}], "half.sqlite", function=half, trials=2, theory=half, executor=pool
        ...     )
        >>> with Store("half.sqlite") as store:
        ...     [(cell, results) for cell, results, _ in store.theory()]
        [(0, '{"value":2.0}')]
        """
        for cell, result, error, *_ in self._sealed("theory", "ORDER BY cell"):
            yield cell, result, error

    def trials(self) -> Iterator[tuple[int, int, str | None, str | None, int, float, str, str]]:
        """Yield (cell, trial, result as JSON, error, attempts, seconds, version, finished).

        Returns
        -------
        iterator of (int, int, str or None, str or None, int, float, str, str)

        Examples
        --------
        >>> from concurrent.futures import ThreadPoolExecutor
        >>> from sparsetoken import Store, run_cells
        >>> def half(settings, trial):
        ...     return {"value": settings["size"] / 2 + trial}
        >>> with ThreadPoolExecutor(1) as pool:
        ...     _ = run_cells([{"size": 4}], "half.sqlite", function=half, trials=2, executor=pool)
        >>> with Store("half.sqlite") as store:
        ...     [(cell, trial) for cell, trial, *_ in store.trials()]
        [(0, 0), (0, 1)]
        """
        rows = self._sealed("trials", "WHERE trial < ? ORDER BY cell, trial", (self.trials_wanted,))
        for cell, trial, result, error, _, attempts, seconds, version, finished in rows:
            yield cell, trial, result, error, attempts, seconds, version, finished

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield one dictionary a trial: cell, trial, the settings, the results and the error.

        The error is None where the trial succeeded; where it failed, there are no results.

        Returns
        -------
        iterator of dict

        Examples
        --------
        >>> from concurrent.futures import ThreadPoolExecutor
        >>> from sparsetoken import Store, run_cells
        >>> def half(settings, trial):
        ...     return {"value": settings["size"] / 2 + trial}
        >>> with ThreadPoolExecutor(1) as pool:
        ...     _ = run_cells([{"size": 4}], "half.sqlite", function=half, trials=2, executor=pool)
        >>> with Store("half.sqlite") as store:
        ...     [row["value"] for row in store.rows()]
        [2.0, 3.0]
        """
        for cell, trial, result, error, *_ in self.trials():
            values = json.loads(result) if result is not None else {}
            yield {"cell": cell, "trial": trial, **self.settings[cell], **values, "error": error}

    def theory_rows(self) -> Iterator[dict[str, Any]]:
        """Yield one dictionary a cell with theory: cell, the settings, the results, the error.

        Returns
        -------
        iterator of dict

        Examples
        --------
        >>> from concurrent.futures import ThreadPoolExecutor
        >>> from sparsetoken import Store, run_cells
        >>> def half(settings, trial=0):
        ...     return {"value": settings["size"] / 2 + trial}
        >>> with ThreadPoolExecutor(1) as pool:
        ...     _ = run_cells(
        ...         [{"size": 4}], "half.sqlite", function=half, trials=2, theory=half, executor=pool
        ...     )
        >>> with Store("half.sqlite") as store:
        ...     [row["value"] for row in store.theory_rows()]
        [2.0]
        """
        for cell, result, error in self.theory():
            values = json.loads(result) if result is not None else {}
            yield {"cell": cell, **self.settings[cell], **values, "error": error}

    def _sealed(
        self, table: str, which: str = "", values: Sequence[Any] = ()
    ) -> Iterator[tuple[Any, ...]]:
        """Yield the sealed columns of rows, after a look at each seal."""
        seal = self._seal
        query = f"SELECT seal, {', '.join(COLUMNS[table])} FROM {table} {which}"
        for found, *row in self._read(query, values):
            if found != seal(table, tuple(row)):
                raise DamagedStore(
                    f"{self.path} is damaged: {describe_row(table, row)} has changed since it was "
                    f"stored, or is of another store. {_REPAIR}"
                )
            yield tuple(row)

    def _read(self, query: str, values: Any = ()) -> Iterator[Any]:
        with translated_errors(self.path):
            yield from self._connection.execute(query, values)


_REPAIR = (
    "Nothing has been touched: `sparsetoken sweep check STUDY --repair` keeps what is whole and "
    "computes the rest again"
)


def describe_row(table: str, row: Sequence[Any]) -> str:
    """Return "cell 3, trial 4": what a person calls a row, given its sealed columns."""
    return {
        "study": "what is said of the study",
        "cells": f"the settings of cell {row[0]}",
        "layouts": "a list of fields",
        "theory": f"the theory of cell {row[0]}",
        "trials": f"cell {row[0]}, trial {row[1]}",
    }[table]


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
    except (sqlite3.Error, MemoryError, UnicodeDecodeError) as error:
        # SQLite runs out of memory where a damaged file names an absurd size, and quotes what
        # stands in the file in its messages.
        name = getattr(error, "sqlite_errorname", None) or ""
        advice = _advice(name)
        kind = StoreError if advice else DamagedStore
        text = advice or f"is damaged. {_REPAIR}"
        raise kind(f"{path} {text} (SQLite: {error})") from error
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror}") from error


def _advice(name: str) -> str:
    """Return what to do about an error of SQLite that is not about the file's content, or ""."""
    kept = "What was stored is kept"
    if name.startswith(("SQLITE_FULL", "SQLITE_IOERR")):
        return f"cannot be written: is the disk full? {kept}; make room and run again"
    if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_AUTH")):
        return f"cannot be opened or written: is the file or its folder read-only? {kept}"
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return f"is in use by another program. {kept}; run again later"
    return ""
