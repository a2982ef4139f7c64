"""Write files whole or not at all, never over what is not ours, and by one writer at a time.

Every command that writes goes through here, so that these promises are kept in one place:

- a file is written beside its place and then renamed: a reader, or a kill, finds the old file or
  the new one, never half of one;
- what is there is replaced only if it is a regular file that the same command could have written;
- a lock ends with the process that holds it, however that ends.
"""

import errno
import os
import sqlite3
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import IO, Any, Self

__all__ = [
    "NO_ROOM",
    "FileLock",
    "LockTaken",
    "OutputRefused",
    "check_output",
    "lock_file",
    "replacing",
    "write_text",
]

# Why something could not be written that could be opened.
NO_ROOM = {
    getattr(errno, name) for name in ("EFBIG", "ENOSPC", "EDQUOT", "EIO") if hasattr(errno, name)
}

_LOOKED_AT = 1 << 16
_SQLITE = b"SQLite format 3\x00"


class OutputRefused(Exception):
    """A file cannot be written, or must not be; the message says why, and what would help."""


class LockTaken(Exception):
    """Another process holds the lock."""


@contextmanager
def replacing(path: str | Path, *, binary: bool = False) -> Iterator[IO[Any]]:
    """Open a file beside `path` that takes its place when it is complete.

    A link stays one: the file that it leads to is replaced. Text is UTF-8 with the line ends given.
    """
    place = Path(os.path.realpath(path))
    beside = place.with_name(f".{place.name}.{token_hex(4)}.part")
    try:
        with (
            beside.open("xb") if binary else beside.open("x", encoding="utf-8", newline="") as file
        ):
            yield file
            file.flush()
            os.fsync(file.fileno())
        with suppress(OSError):  # a new file has the usual permissions, a replaced one its own
            beside.chmod(stat.S_IMODE(place.stat().st_mode))
        beside.replace(place)
    except BaseException as error:
        beside.unlink(missing_ok=True)
        if isinstance(error, OSError) and (error.errno in NO_ROOM or error.filename == str(beside)):
            # A disk that is full names no file, and nobody knows of the one beside.
            error.filename = str(path)
        raise


def write_text(path: str | Path, text: str) -> None:
    """Write a text file, whole or not at all."""
    with replacing(path) as file:
        file.write(text)


def check_output(
    path: str | Path,
    is_ours: Callable[[bytes], bool],
    *,
    inputs: Iterable[str | Path] = (),
    force: bool | None = False,
) -> None:
    """Refuse, before any work, a file that could not or must not be written after it.

    Parameters
    ----------
    path : path
        Where the output will go.
    is_ours : callable
        Tells from the first and last bytes of an existing file whether the same command could have
        written it. An empty file may be replaced as well.
    inputs : paths
        What the command reads; never replaced.
    force : bool or None
        Replace a regular file even if it is not ours. Inputs and stores are refused all the same.
        None where the caller is not asked, and the message must not advise it.

    Raises
    ------
    OutputRefused
    """
    path = Path(path)
    if not str(path.name):
        raise OutputRefused(f"{str(path)!r} is not the name of a file")
    try:
        _check_folder(path.parent)
        mode = path.stat().st_mode if path.exists() else None
    except OSError as error:
        raise OutputRefused(f"{path} cannot be written: {error.strerror}") from None
    if mode is None:
        _check_new(path)
        return
    if stat.S_ISDIR(mode):
        raise OutputRefused(f"{path} is a folder, not a file")
    if not stat.S_ISREG(mode):
        raise OutputRefused(f"{path} is not a regular file: name another one")
    for read in inputs:
        if Path(read).exists() and path.samefile(read):
            raise OutputRefused(f"{path} is read by this command: name another file to write")
    _check_replaceable(path, is_ours, force)


def _check_folder(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise OutputRefused(f"{folder} is not a folder")
    if not folder.exists():
        raise OutputRefused(f"the folder {folder} does not exist")


def _check_new(path: Path) -> None:
    """Try to write beside, because permissions do not tell of read-only and special file systems."""
    place = Path(os.path.realpath(path))
    beside = place.with_name(f".{place.name}.{token_hex(4)}.part")
    try:
        with beside.open("xb"):
            pass
        beside.unlink()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise OutputRefused(f"{path} cannot be written: {reason}") from None


def _check_replaceable(path: Path, is_ours: Callable[[bytes], bool], force: bool | None) -> None:
    if not os.access(path, os.W_OK):
        raise OutputRefused(f"{path} cannot be written: Permission denied")
    try:
        with path.open("rb") as file:
            content = file.read(_LOOKED_AT)
            size = file.seek(0, os.SEEK_END)
            file.seek(max(len(content), size - _LOOKED_AT))
            content += file.read()
    except OSError as error:
        raise OutputRefused(f"{path} cannot be read: {error.strerror}") from None
    if content.startswith(_SQLITE):
        raise OutputRefused(f"{path} is a store, or another database: name another file")
    if content and not is_ours(content) and not force:
        advice = "name another file" + (", or replace it with --force" if force is False else "")
        raise OutputRefused(f"{path} exists and is not what this command writes: {advice}")
    _check_new(path)


def lock_file(path: str | Path) -> Path:
    """Return the file beside `path` that locks it; the same for all links to it."""
    place = Path(os.path.realpath(path))
    return place.with_name(place.name + ".lock")


class FileLock:
    """A lock that ends with its process: SQLite's own portable lock on an empty file.

    Parameters
    ----------
    path : path
        The empty file, made if there is none. It stays.

    Raises
    ------
    LockTaken
        If another process, or another part of this one, holds the lock.
    sqlite3.Error
        If the file cannot be opened.
    """

    def __init__(self, path: str | Path) -> None:
        self._connection = sqlite3.connect(
            os.path.realpath(path), isolation_level=None, timeout=0, check_same_thread=False
        )
        try:
            self._connection.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            self._connection.close()
            if error.sqlite_errorname.startswith("SQLITE_BUSY"):
                raise LockTaken(str(path)) from None
            raise
        except BaseException:
            self._connection.close()
            raise

    def release(self) -> None:
        """Let others in."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
