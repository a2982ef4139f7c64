"""Finished rows of a map in a file, so that an interrupted map goes on where it was."""

import hashlib
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np

from sparsetoken import validation
from sparsetoken.files import (
    FileLock,
    LockTaken,
    OutputRefused,
    check_output,
    lock_file,
    write_text,
)
from sparsetoken.validation import ParameterError

__all__ = ["Checkpoint"]

_KIND = "sparsetoken map"


class Checkpoint:
    """Rows by (kind, value of y), kept in a JSON file that is rewritten whole after each of them.

    A context: until it ends no other process may write to the file, whose rows would be lost.

    Parameters
    ----------
    path : path or None
        None keeps nothing on disk.
    identity : dict
        What every row depends on besides its key. A file of another identity is refused, so that
        rows of two maps are never mixed.
    """

    def __init__(self, path: str | Path | None, identity: dict[str, Any]) -> None:
        self._path = None if path is None else validation.path("checkpoint", path)
        self._identity = json.loads(json.dumps(identity))
        self.rows: dict[tuple[str, float], list[float]] = {}
        if self._path is None:
            return
        try:
            check_output(self._path, _is_checkpoint, force=None)
        except OutputRefused as refusal:
            raise ParameterError("checkpoint", str(path), f"a file to write: {refusal}") from None
        self._lock = _locked(self._path)
        try:
            if self._path.exists() and self._path.stat().st_size:
                self.rows = dict(self._read(self._path))
        except BaseException:
            self._lock.release()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._path is not None:
            self._lock.release()

    def _read(self, path: Path) -> Iterator[tuple[tuple[str, float], list[float]]]:
        accepted = "a file of this map (same settings, values across, tolerance and version)"
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            same = found["identity"] == self._identity
            whole = found["digest"] == _digest(found["identity"], found["rows"])
            rows = [
                (
                    (str(row["kind"]), float(row["value"])),
                    [np.nan if value is None else float(value) for value in row["row"]],
                )
                for row in found["rows"]
            ]
        except (ValueError, KeyError, TypeError, RecursionError):
            whole = False
        if not whole:
            raise ParameterError("checkpoint", str(path), f"{accepted}, undamaged") from None
        if not same:
            raise ParameterError("checkpoint", str(path), f"{accepted}, or a new file")
        yield from rows

    def keep(self, key: tuple[str, float], row: list[float]) -> None:
        """Add a finished row, on disk before this returns."""
        self.rows[key] = row
        if self._path is None:
            return
        rows = [
            {"kind": kind, "value": value, "row": [None if np.isnan(v) else v for v in row]}
            for (kind, value), row in self.rows.items()
        ]
        digest = _digest(self._identity, rows)
        content = {"what": _KIND, "identity": self._identity, "digest": digest, "rows": rows}
        write_text(self._path, json.dumps(content) + "\n")


def _locked(path: Path) -> FileLock:
    beside = lock_file(path)
    try:
        return FileLock(beside)
    except LockTaken:
        accepted = "a file that no other map writes to: wait for that one, or name another file"
    except sqlite3.Error as error:
        accepted = f"a file to write: {beside} cannot be written: {error}"
    raise ParameterError("checkpoint", str(path), accepted)


def _digest(identity: Any, rows: Any) -> str:
    """Return a hash of all that a file says: a digit that has changed is no row of ours."""
    return hashlib.sha256(json.dumps([identity, rows]).encode()).hexdigest()


def _is_checkpoint(content: bytes) -> bool:
    return content.startswith(b'{"what": "%s"' % _KIND.encode())
