"""Sequences in parts that are never all in one memory: files, delayed blocks, Dask arrays.

Every pass over the data is a sum over samples. With a Dask client each part is one task that
returns its sums; they are added here in the order of the parts, so that the result is the same to
the last bit for any number of workers, and a part whose worker is lost is done again.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from sparsetoken.arrays import Array
from sparsetoken.estimators.sequences import Block, Sequences, as_sequences
from sparsetoken.numerics.threads import one_thread
from sparsetoken.validation import ParameterError

__all__ = ["PartitionedSequences", "is_partitioned", "read_partitions"]


@dataclass(frozen=True)
class FilePart:
    """A file: .npy of samples (n, L, d) or of one sample (L, d); .h5 with a dataset `features`."""

    path: str

    def load(self) -> Any:
        """Return the samples: a memory map or array (n, L, d), or a list with one (L, d)."""
        name = Path(self.path)
        if name.suffix == ".npy":
            array = np.load(name, mmap_mode="r")
        elif name.suffix in (".h5", ".hdf5"):
            array = _read_features(name)
        else:
            raise ParameterError("file", self.path, "a name that ends in .npy, .h5 or .hdf5")
        if array.ndim == 3 and array.shape[0] == 1 and name.suffix != ".npy":
            array = array[0]  # slide encoders write (1, tokens, dimension)
        return [np.asarray(array)] if array.ndim == 2 else array


def _read_features(path: Path) -> Array:
    try:
        import h5py
    except ImportError:
        raise ImportError("an .h5 file needs the package h5py: pip install h5py") from None
    with h5py.File(path, "r") as file:
        if "features" not in file:
            raise ParameterError(f"datasets of {path}", list(file), "one named 'features'")
        return np.asarray(file["features"][()])


@dataclass(frozen=True)
class DelayedPart:
    """A Dask delayed object that gives samples: an array (n, L, d) or a list of arrays."""

    block: Any

    def load(self) -> Any:
        """Compute the block here."""
        return self.block.compute()


def is_partitioned(X: Any) -> bool:
    """Whether X is a Dask array, or a list of files or of delayed blocks."""
    if hasattr(X, "to_delayed") and hasattr(X, "chunks"):
        return True
    if not isinstance(X, list | tuple) or len(X) == 0:
        return False
    return isinstance(X[0], str | Path) or hasattr(X[0], "dask")


def read_partitions(X: Any, client: Any = None) -> "PartitionedSequences":
    """Return a Dask array (chunks along samples), files or delayed blocks as sequences."""
    if client is not None and not hasattr(client, "compute"):
        raise ParameterError("client", client, "a distributed.Client, or None")
    if hasattr(X, "chunks"):
        if X.ndim != 3 or any(len(sizes) > 1 for sizes in X.chunks[1:]):
            raise ParameterError(
                "chunks of X", X.chunks, "an array (n, L, d) with chunks along samples alone"
            )
        parts: list[Any] = [DelayedPart(block) for block in X.to_delayed().ravel()]
    else:
        parts = [DelayedPart(x) if hasattr(x, "dask") else FilePart(str(x)) for x in X]
    return PartitionedSequences(parts, _client(client, parts))


def _client(client: Any, parts: Sequence[Any]) -> Any:
    """Return the client to use: the given one, else one that is active and has the blocks."""
    if client is not None or not isinstance(parts[0], DelayedPart):
        return client
    try:
        from distributed import get_client

        return get_client()
    except (ImportError, ValueError):
        return None


class PartitionedSequences(Sequences):
    """Samples in parts, each read when it is needed, here or on the workers of a cluster."""

    def __init__(self, parts: Sequence[Any], client: Any) -> None:
        self._parts_of_samples, self._client = list(parts), client
        described = list(self._on_parts([(part, _describe, (), ()) for part in parts]))
        dimensions = {d for _, d, _ in described}
        if len(dimensions) > 1:
            raise ParameterError("dimensions of the parts", sorted(dimensions), "the same for all")
        self.lengths = np.concatenate([lengths for lengths, _, _ in described])
        self.dimension = int(dimensions.pop())
        self.dtype = np.result_type(*{dtype for _, _, dtype in described})
        counts = np.array([len(lengths) for lengths, _, _ in described])
        self._ends = np.cumsum(counts)
        self._equal = len(set(self.lengths.tolist())) == 1

    @property
    def padded_length(self) -> int | None:
        """Length of the sequences if it is one for all."""
        return int(self.lengths[0]) if self._equal else None

    @property
    def token_mask(self) -> Array | None:
        """None: parts have no padding."""
        return None

    def source_row(self, sample: int) -> int:
        """Return the sample's number itself."""
        return sample

    def take(self, rows: Array) -> Sequences:
        """Return some of the samples, read into memory."""
        rows = np.asarray(rows)
        jobs, wanted = [], []
        for index, part in enumerate(self._parts_of_samples):
            span = self._span(index)
            here = np.flatnonzero((rows >= span.start) & (rows < span.stop))
            if len(here):
                jobs.append((part, _rows_of, (), (rows[here] - span.start,)))
                wanted.append(here)
        items: list[Any] = [None] * len(rows)
        for here, found in zip(wanted, self._on_parts(jobs), strict=True):
            for place, item in zip(here, found, strict=True):
                items[place] = item
        return as_sequences(items)

    def blocks(self) -> Iterator[Block]:
        """Yield all samples in order, part by part, read here."""
        for index, part in enumerate(self._parts_of_samples):
            start = self._span(index).start
            for block in as_sequences(part.load()).blocks():
                samples = slice(start + block.samples.start, start + block.samples.stop)
                tokens = np.asarray(block.tokens, dtype=self.dtype)
                yield replace(block, samples=samples, tokens=tokens)

    def sums(
        self, kernel: Callable[..., tuple[Any, ...]], per_sample: tuple[Any, ...] = (), *shared: Any
    ) -> tuple[Any, ...]:
        """Return the sums of a kernel's results over all blocks, each part in a task of its own."""
        jobs = []
        for index, part in enumerate(self._parts_of_samples):
            span = self._span(index)
            sliced = tuple(None if a is None else a[..., span] for a in per_sample)
            jobs.append((part, _sums_of, (kernel, sliced), (self.dtype, *shared)))
        totals: tuple[Any, ...] | None = None
        for found in self._on_parts(jobs):
            totals = (
                found
                if totals is None
                else tuple(a + b for a, b in zip(totals, found, strict=True))
            )
        assert totals is not None
        return totals

    def _span(self, index: int) -> slice:
        return slice(int(self._ends[index - 1]) if index else 0, int(self._ends[index]))

    def _on_parts(self, jobs: list[tuple[Any, Any, Any, Any]]) -> Iterator[Any]:
        """Yield the results of function(samples, *arguments) for each part, in order."""
        if self._client is None:
            return (
                function(part.load(), *first, *second) for part, function, first, second in jobs
            )
        from dask.delayed import delayed

        tasks = []
        for part, function, first, second in jobs:
            work = delayed(_run, pure=False)
            block = part.block if isinstance(part, DelayedPart) else None
            file = part if block is None else None
            tasks.append(work(block, file, function, (*first, *second)))
        futures = self._client.compute(tasks, retries=3)
        return (future.result() for future in futures)


def _run(block: Any, file: FilePart | None, function: Any, arguments: tuple[Any, ...]) -> Any:
    with one_thread:  # the number of threads would decide the last bits
        return function(block if file is None else file.load(), *arguments)


def _describe(samples: Any) -> tuple[Array, int, Any]:
    sequences = as_sequences(samples)
    return sequences.lengths, sequences.dimension, sequences.dtype


def _rows_of(samples: Any, rows: Array) -> list[Array]:
    # Copies: a view would keep the whole file mapped for as long as the row is kept.
    return [np.array(samples[row]) for row in rows]


def _sums_of(
    samples: Any, kernel: Any, per_sample: tuple[Any, ...], dtype: Any, *shared: Any
) -> tuple[Any, ...]:
    sequences = as_sequences(samples)
    sequences.dtype = dtype
    return sequences.sums(kernel, per_sample, *shared)
