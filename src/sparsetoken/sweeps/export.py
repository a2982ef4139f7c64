"""Write a store as one tidy table: a row for each trial, and all settings as columns.

The columns: cell, trial, outcome ("done" or "failed"), the settings, the results of the trial, the
theory of its cell (with the prefix "theory_"), attempts, seconds, version, finished and error.
"""

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property, lru_cache
from itertools import islice
from pathlib import Path
from typing import IO, Any

from sparsetoken.files import replacing
from sparsetoken.sweeps.errors import SweepError
from sparsetoken.sweeps.grid import names_of
from sparsetoken.sweeps.store import Store

__all__ = ["FORMATS", "IS_OURS", "write_csv", "write_json", "write_parquet"]

_BATCH = 20_000
_BOOKKEEPING = ("attempts", "seconds", "version", "finished", "error")


class _Table:
    """The columns of a store, and its rows as lines of text.

    Results are JSON in the store already, and a line is put together from texts: to take millions
    of results apart into Python objects would take several times as long. Results that need it
    (several layouts, or texts with commas or backslashes) are taken apart all the same.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._theory = {cell: result for cell, result, _ in store.theory()}
        self._settings = names_of(store.settings)
        self._results = store.columns("trials")
        self._predicted = store.columns("theory")
        self._one_layout = len(store.layouts("trials")) == 1

    @property
    def columns(self) -> list[str]:
        predicted = [f"theory_{name}" for name in self._predicted]
        return [
            *("cell", "trial", "outcome"),
            *self._settings,
            *self._results,
            *predicted,
            *_BOOKKEEPING,
        ]

    def json_lines(self) -> Iterator[str]:
        """Yield each row as a JSON object."""
        of_cell = self._texts_of_cells(_json_fields)
        for row in self._store.trials():
            cell, trial, result, error, attempts, seconds, version, finished = row
            settings, theory = of_cell(cell)
            yield (
                f'{{"cell":{cell},"trial":{trial},"outcome":"{_outcome(error)}"{settings}'
                f'{self._json_results(result)}{theory},"attempts":{attempts},'
                f'"seconds":{seconds!r},"version":"{version}","finished":"{finished}",'
                f'"error":{json.dumps(error)}}}'
            )

    def csv_lines(self) -> Iterator[str]:
        """Yield each row as comma-separated values."""
        of_cell = self._texts_of_cells(lambda values: _csv_fields(values.values()))
        for row in self._store.trials():
            cell, trial, result, error, attempts, seconds, version, finished = row
            settings, theory = of_cell(cell)
            reason = "," if error is None else _csv_fields([error])
            yield (
                f"{cell},{trial},{_outcome(error)}{settings}{self._csv_results(result)}{theory},"
                f"{attempts},{seconds!r},{version},{finished}{reason}"
            )

    def _json_results(self, result: str | None) -> str:
        """Return the fields of a result, in the order of the columns, as JSON has them."""
        if result is not None and self._one_layout:
            return f",{result[1:-1]}" if self._results else ""
        return _json_fields(self._taken_apart(result))

    def _csv_results(self, result: str | None) -> str:
        """Return the fields of a result, in the order of the columns, each after a comma."""
        if result is not None and self._one_layout and "\\" not in result:
            texts = result[1:-1].split(",")
            if self._results and len(texts) == len(self._results):  # no text holds a comma
                values = [text[start:] for text, start in zip(texts, self._starts, strict=True)]
                return "," + ",".join(["" if value == "null" else value for value in values])
        return _csv_fields(self._taken_apart(result).values())

    @cached_property
    def _starts(self) -> list[int]:
        """Where a value begins after its name in quotes and a colon, for each field."""
        return [len(json.dumps(name)) + 1 for name in self._results]

    def _taken_apart(self, result: str | None) -> dict[str, Any]:
        values = {} if result is None else json.loads(result)
        return {name: values.get(name) for name in self._results}

    def _texts_of_cells(
        self, text: Callable[[dict[str, Any]], str]
    ) -> Callable[[int], tuple[str, str]]:
        """Return a function that gives the texts of a cell's settings and of its theory."""

        @lru_cache(maxsize=1)  # the rows of a cell follow each other
        def of_cell(cell: int) -> tuple[str, str]:
            settings = self._store.settings[cell]
            theory = json.loads(self._theory.get(cell) or "{}")
            return (
                text({name: settings.get(name) for name in self._settings}),
                text({f"theory_{name}": theory.get(name) for name in self._predicted}),
            )

        return of_cell


def _outcome(error: str | None) -> str:
    return "done" if error is None else "failed"


def _json_fields(values: dict[str, Any]) -> str:
    """Return the fields of a JSON object, each with a comma before it."""
    return "," + json.dumps(values, separators=(",", ":"))[1:-1] if values else ""


def _csv_fields(values: Iterable[Any]) -> str:
    """Return values, each with a comma before it, booleans and numbers as JSON has them."""
    line = io.StringIO()
    texts = [json.dumps(v) if isinstance(v, bool | float | list | dict) else v for v in values]
    csv.writer(line).writerow(["", *texts])
    return line.getvalue().removesuffix("\r\n") if texts else ""


def write_csv(store: Store, path: str | Path) -> int:
    """Write a table of comma-separated values and return the number of rows."""
    table = _Table(store)
    with _replacing(Path(path)) as file:
        file.write(_csv_fields(table.columns)[1:] + "\n")
        return sum(_write(file, batch, "\n", "\n") for batch in _batches(table.csv_lines()))


def write_json(store: Store, path: str | Path) -> int:
    """Write a JSON array with one object a row and return the number of rows."""
    count = 0
    with _replacing(Path(path)) as file:
        file.write("[\n")
        for batch in _batches(_Table(store).json_lines()):
            file.write(",\n" if count else "")
            count += _write(file, batch, ",\n", "")
        file.write("\n]\n")
    return count


def write_parquet(store: Store, path: str | Path) -> int:
    """Write a Parquet file and return the number of rows; needs the package pyarrow."""
    try:
        import pyarrow as pa
        from pyarrow import json as pa_json
        from pyarrow import parquet
    except ImportError:
        raise SweepError(
            "Parquet needs the package pyarrow, which the extra 'parquet' brings: "
            "in a clone, pip install '.[parquet]'"
        ) from None
    table = _Table(store)
    tables = [pa.table({name: pa.nulls(0) for name in table.columns})]
    for batch in _batches(table.json_lines()):
        data = "\n".join(batch).encode()
        one_block = pa_json.ReadOptions(block_size=len(data) + 1)
        tables.append(pa_json.read_json(io.BytesIO(data), read_options=one_block))
    # A column that is empty in one batch may hold numbers in the next.
    whole = pa.concat_tables(tables, promote_options="permissive")
    with _replacing(Path(path), binary=True) as file:
        parquet.write_table(whole, file)
    return int(whole.num_rows)


FORMATS: dict[str, Callable[[Store, str | Path], int]] = {
    "csv": write_csv,
    "parquet": write_parquet,
    "json": write_json,
}


def _batches(lines: Iterator[str]) -> Iterator[list[str]]:
    while batch := list(islice(lines, _BATCH)):
        yield batch


def _write(file: IO[str], lines: list[str], separator: str, end: str) -> int:
    file.write(separator.join(lines) + end)
    return len(lines)


@contextmanager
def _replacing(path: Path, *, binary: bool = False) -> Iterator[IO[Any]]:
    try:
        with replacing(path, binary=binary) as file:
            yield file
    except OSError as error:
        raise SweepError(f"{path} cannot be written: {error.strerror}") from error


def _is_csv(content: bytes) -> bool:
    return content.startswith(b"cell,trial,outcome,")


def _is_json(content: bytes) -> bool:
    return content.startswith((b'[\n{"cell":', b"[\n\n]"))


def _is_parquet(content: bytes) -> bool:
    return content.startswith(b"PAR1") and b"outcome" in content


# Tells from the bytes of a file whether an export of that format may have written it.
IS_OURS: dict[str, Callable[[bytes], bool]] = {
    "csv": _is_csv,
    "parquet": _is_parquet,
    "json": _is_json,
}
