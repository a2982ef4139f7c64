"""Look at every row of a store, and save what is whole from a damaged one."""

import json
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparsetoken.sweeps.errors import StoreError
from sparsetoken.sweeps.store import COLUMNS, Store, describe_row, seal_of, translated_errors
from sparsetoken.sweeps.writer import (
    StoredRow,
    StoreWriter,
    create_store,
    lock_store,
    refuse_leftovers,
)

__all__ = ["Inspection", "inspect_store", "rebuild_store"]

_SHOWN = 10
_FACTS = "SELECT name, value, seal FROM study"
_BATCH = 1000


@dataclass(frozen=True)
class Inspection:
    """What was found in a store.

    Attributes
    ----------
    rows : int
        Rows of trials and of theory that are whole.
    damaged : int
        Rows that are not.
    examples : tuple of str
        What the first few of these are, in words.
    structure : str
        What is wrong with the file itself; empty if nothing is.
    """

    rows: int
    damaged: int
    examples: tuple[str, ...]
    structure: str

    @property
    def sound(self) -> bool:
        """Whether nothing is damaged."""
        return not self.damaged and not self.structure


def inspect_store(path: str | Path, fingerprint: str | None = None) -> Inspection:
    """Look at the file's structure and at the seal of every row; nothing is changed.

    Raises
    ------
    StoreError
        If the file is no store, is of another study, or too damaged to tell.
    """
    with Store(path, fingerprint) as store:
        with translated_errors(store.path):
            verdict = str(store._connection.execute("PRAGMA quick_check(1)").fetchone()[0])
        structure = "" if verdict == "ok" else verdict
        whole, damaged = 0, 0
        examples: list[str] = []
        for table, values, seal in _all_rows(store):
            if values is None:
                structure = structure or f"rows of the table {table} cannot be read"
            elif seal == store._seal(table, values):
                whole += table in ("trials", "theory")
            else:
                damaged += 1
                if len(examples) < _SHOWN:
                    examples.append(describe_row(table, values))
    return Inspection(whole, damaged, tuple(examples), structure)


def rebuild_store(
    path: str | Path, fingerprint: str, cells: Sequence[Mapping[str, Any]], trials: int
) -> tuple[int, Path]:
    """Make a store anew with the rows of a damaged one that are whole.

    Returns
    -------
    rows : int
        How many were whole.
    kept : path
        The damaged store, beside the new one: with the ending .damaged, and a number if that name
        is taken.
    """
    place = Path(os.path.realpath(path))
    with lock_store(path), translated_errors(place):
        rebuilt = place.with_name(f".{place.name}.rebuilt")
        _remove(rebuilt, "", "-wal", "-shm", "-journal")  # of a repair that was killed
        create_store(rebuilt, fingerprint, cells, trials)
        with StoreWriter(rebuilt, fingerprint, cells, trials) as writer:
            for batch in _batches(_whole_rows(place, fingerprint, len(cells))):
                writer.save(batch)
            counts = writer.counts()
        _remove(rebuilt, ".lock")
        kept = _free_name(place.with_name(f"{place.name}.damaged"))
        for ending in ("-wal", "-shm", "-journal", ""):  # the log first: it must not meet another
            old = place.with_name(place.name + ending)
            if old.exists():
                old.rename(kept.with_name(kept.name + ending))
        refuse_leftovers(place)
        rebuilt.rename(place)
    rows = counts.done + counts.failed + counts.theory_done + counts.theory_failed
    return rows, kept


def _free_name(path: Path) -> Path:
    """Return the path, with the first number that makes it new if something has its name."""
    names = (path, *(path.with_name(f"{path.name}{number}") for number in range(2, 10_000)))
    return next(name for name in names if not name.exists())


def _remove(path: Path, *endings: str) -> None:
    for ending in endings:
        path.with_name(path.name + ending).unlink(missing_ok=True)


def _batches(rows: Iterator[StoredRow]) -> Iterator[list[StoredRow]]:
    batch: list[StoredRow] = []
    for row in rows:
        batch.append(row)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _whole_rows(place: Path, fingerprint: str, cells: int) -> Iterator[StoredRow]:
    """Yield the rows of trials and theory whose seals hold and that have a result or an error."""
    connection = sqlite3.connect(f"{place.as_uri()}?mode=ro", uri=True, isolation_level=None)
    connection.text_factory = _tolerant
    try:
        facts = {name: (value, seal) for name, value, seal in connection.execute(_FACTS)}
        seal = seal_of(str(facts.get("identity", ("", b""))[0]))
        if facts.get("fingerprint") != (fingerprint, seal("study", ("fingerprint", fingerprint))):
            raise StoreError(
                f"{place} does not tell any more to which study its rows belong: delete it and run "
                "the sweep again"
            )
        for table in ("theory", "trials"):
            for values, found in _readable(connection, table):
                if values is None or found != seal(table, values) or not 0 <= values[0] < cells:
                    continue
                cell, *rest = values
                trial = rest.pop(0) if table == "trials" else None
                result, error, _, attempts, seconds, version, _ = rest
                columns = tuple(json.loads(result)) if result is not None else ()
                yield StoredRow(cell, trial, result, error, columns, attempts, seconds, version)
    except sqlite3.Error as error:
        raise StoreError(
            f"nothing can be saved from {place} ({error}): delete it and run the sweep again"
        ) from None
    finally:
        connection.close()


def _all_rows(store: Store) -> Iterator[tuple[str, tuple[Any, ...] | None, Any]]:
    """Yield (table, values, seal) of every row; values None where rows cannot be read."""
    store._connection.text_factory = _tolerant
    for table in COLUMNS:
        for values, seal in _readable(store._connection, table):
            yield table, values, seal


def _readable(
    connection: sqlite3.Connection, table: str
) -> Iterator[tuple[tuple[Any, ...] | None, Any]]:
    """Yield (values, seal) of the rows of a table, from both ends of it up to what is unreadable."""
    query = f"SELECT {', '.join(COLUMNS[table])}, seal FROM {table}"
    key = ", ".join(COLUMNS[table][: 2 if table == "trials" else 1])
    try:
        for row in connection.execute(f"{query} ORDER BY {key}"):
            yield tuple(row[:-1]), row[-1]
    except (sqlite3.Error, MemoryError):
        yield None, None
        down = ", ".join(f"{name} DESC" for name in key.split(", "))
        try:
            for row in connection.execute(f"{query} ORDER BY {down}"):
                yield tuple(row[:-1]), row[-1]
        except (sqlite3.Error, MemoryError):
            return


def _tolerant(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")
