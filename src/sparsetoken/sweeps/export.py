"""Write a store as one tidy table: a row for each trial, and all settings as columns.

The columns: cell, trial, outcome ("done" or "failed"), the settings, the results of the trial, the
theory of its cell (with the prefix "theory_"), attempts, seconds, version, finished and error.
"""

import csv
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any

from sparsetoken.sweeps.errors import SweepError
from sparsetoken.sweeps.store import Store

__all__ = ["FORMATS", "write_csv", "write_json", "write_parquet"]

_BATCH = 20_000
_BOOKKEEPING = ("attempts", "seconds", "version", "finished", "error")


class _Table:
    """The columns of a store, and what all rows of a cell have in common."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.cells = dict(store.cells())
        self.settings = list(dict.fromkeys(name for cell in self.cells.values() for name in cell))
        self.results = store.columns("trials")
        self.theory = store.columns("theory")
        self._predictions = {cell: result for cell, result, _ in store.theory()}

    @property
    def columns(self) -> list[str]:
        theory = [f"theory_{name}" for name in self.theory]
        return ["cell", "trial", "outcome", *self.settings, *self.results, *theory, *_BOOKKEEPING]

    def prediction(self, cell: int) -> dict[str, Any]:
        result = self._predictions.get(cell)
        return {} if result is None else dict(json.loads(result))

    def rows(self, parse: Callable[[str], dict[str, Any]] = json.loads) -> Iterator[list[Any]]:
        """Yield the values of each trial in the order of the columns, None where there is none."""
        last = -1
        for cell, trial, result, error, attempts, seconds, version, finished in self.store.trials():
            if cell != last:
                last = cell
                settings = [self.cells[cell].get(name) for name in self.settings]
                prediction = self.prediction(cell)
                theory = [prediction.get(name) for name in self.theory]
            if result is None:
                outcome, values = "failed", [None] * len(self.results)
            else:
                outcome = "done"
                fields = parse(result)
                # As a rule all trials have the same fields in the same order.
                same = list(fields) == self.results
                values = [*fields.values()] if same else [fields.get(name) for name in self.results]
            yield [cell, trial, outcome, *settings, *values, *theory, attempts, seconds, version,
                   finished, error]  # fmt: skip


def write_csv(store: Store, path: str | Path) -> int:
    """Write a table of comma-separated values and return the number of rows."""
    table = _Table(store)
    # Numbers stay the text that they are in the store: nothing is lost, and it is faster.
    decoder = json.JSONDecoder(parse_float=str, parse_int=str)
    count = 0
    with _replacing(Path(path)) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(table.columns)
        rows = table.rows(decoder.decode)
        while batch := list(islice(rows, _BATCH)):
            writer.writerows(batch)
            count += len(batch)
    return count


def write_json(store: Store, path: str | Path) -> int:
    """Write a JSON array with one object a row and return the number of rows."""
    table = _Table(store)
    columns = table.columns
    encode = json.JSONEncoder(separators=(",", ":")).encode
    count = 0
    with _replacing(Path(path)) as file:
        file.write("[")
        rows = table.rows()
        while batch := list(islice(rows, _BATCH)):
            file.write(",\n" if count else "\n")
            file.write(",\n".join(encode(dict(zip(columns, row, strict=True))) for row in batch))
            count += len(batch)
        file.write("\n]\n")
    return count


def write_parquet(store: Store, path: str | Path) -> int:
    """Write a Parquet file and return the number of rows; needs the package pyarrow."""
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise SweepError(
            "Parquet needs the package pyarrow: pip install 'sparsetoken[parquet]'"
        ) from None
    table = _Table(store)
    rows = table.rows()
    batches = []
    while batch := list(islice(rows, _BATCH)):
        batches.append(pa.table(list(map(list, zip(*batch, strict=True))), table.columns))
    empty = pa.table({name: [] for name in table.columns})
    # A column that is empty in one batch may hold numbers in the next.
    whole = pa.concat_tables([empty, *batches], promote_options="permissive")
    with _replacing(Path(path), binary=True) as file:
        parquet.write_table(whole, file)
    return int(whole.num_rows)


FORMATS: dict[str, Callable[[Store, str | Path], int]] = {
    "csv": write_csv,
    "parquet": write_parquet,
    "json": write_json,
}


@contextmanager
def _replacing(path: Path, *, binary: bool = False) -> Iterator[IO[Any]]:
    """Open a file beside `path` that takes its place when it is complete."""
    beside = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        try:
            with (
                beside.open("wb")
                if binary
                else beside.open("w", encoding="utf-8", newline="") as file
            ):
                yield file
            beside.replace(path)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise SweepError(f"{path} cannot be written: {error.strerror}") from error
