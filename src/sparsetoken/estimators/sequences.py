"""One container for every form of input: equal lengths, ragged lists, padded arrays with a mask.

Whatever the form, the samples are read in blocks of stacked tokens with the offsets at which each
sequence starts, so that no other module knows about forms, padding or memory maps.
"""

import mmap
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparsetoken.arrays import Array
from sparsetoken.validation import ParameterError

__all__ = [
    "Block",
    "Sequences",
    "StackedSequences",
    "as_sequences",
    "looks_transposed",
    "mask_tokens",
]

# Small enough that a block stays in the processor's cache between two products with it.
BLOCK_BYTES = 2**20
# Blocks that had to be copied are kept if together they are no larger than this.
HELD_BYTES = 2**28


@dataclass(frozen=True)
class Block:
    """Consecutive samples with their tokens stacked.

    Attributes
    ----------
    samples : slice
        Which samples these are.
    tokens : array of shape (N, d)
    starts : array of shape (k,)
        Row of `tokens` at which each of the k sequences starts.
    lengths : array of shape (k,)
    """

    samples: slice
    tokens: Array
    starts: Array
    lengths: Array


class Sequences:
    """Samples that are sequences of tokens of one dimension.

    Parameters
    ----------
    source : array of shape (n, L, d), or list of arrays of shape (L_i, d)
    lengths : array of shape (n,)
    mask : array of shape (n, L), optional
        True where a token is present, if `source` is an array with padding.
    rows : array of int, optional
        Which samples of the source; all by default.
    dtype : the floating type in which tokens are read
    """

    def __init__(
        self,
        source: Any,
        lengths: Array,
        dtype: Any,
        mask: Array | None = None,
        rows: Array | None = None,
    ) -> None:
        self._source = source
        self._mask = mask
        self._rows = rows
        self._held: list[Block] | None = None
        self._mapped = _memory_map(source)
        self.lengths = lengths
        self.dtype = np.dtype(dtype)
        self.dimension = int(source.shape[2] if _is_array(source) else source[0].shape[1])

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def padded_length(self) -> int | None:
        """Length of the second axis if the source is an array, None if it is a list."""
        return int(self._source.shape[1]) if _is_array(self._source) else None

    @property
    def token_mask(self) -> Array | None:
        """Mask of the present tokens (n, L), or None if there is no padding."""
        if self._mask is None or self._rows is None:
            return self._mask
        return np.asarray(self._mask[self._rows])

    @property
    def token_bytes(self) -> int:
        """Size of all tokens, without padding."""
        return int(self.lengths.sum()) * self.dimension * int(self.dtype.itemsize)

    def take(self, rows: Array) -> "Sequences":
        """Return some of the samples, without reading them."""
        rows = np.asarray(rows)
        source_rows = rows if self._rows is None else self._rows[rows]
        return Sequences(self._source, self.lengths[rows], self.dtype, self._mask, source_rows)

    def source_row(self, sample: int) -> int:
        """Return the row of a sample in the data that the user gave."""
        return sample if self._rows is None else int(self._rows[sample])

    def require_finite(self, block: Block) -> None:
        """Raise an error that names the first sample of the block with NaN or infinity."""
        bad = np.flatnonzero(~np.isfinite(block.tokens).all(axis=1))
        if len(bad):
            within = int(np.searchsorted(block.starts, bad[0], side="right")) - 1
            row = self.source_row(block.samples.start + within)
            raise ParameterError(f"sample {row}", "NaN or inf", "finite numbers in X")

    def blocks(self) -> Iterator[Block]:
        """Yield all samples in order, in blocks of about 1 MB (at least one sample each)."""
        if self._held is not None:
            yield from self._held
            return
        views = self._reads_views()
        hold = self._mapped is None and (views or self.token_bytes <= HELD_BYTES)
        held = []
        starts = np.cumsum(self.lengths) - self.lengths
        for part in self._parts():
            block = Block(
                part, self._tokens(part), starts[part] - starts[part.start], self.lengths[part]
            )
            if hold:
                held.append(block)
            yield block
            self._release_pages()
        if hold:
            self._held = held

    def sums(
        self, kernel: Callable[..., tuple[Any, ...]], per_sample: tuple[Any, ...] = (), *shared: Any
    ) -> tuple[Any, ...]:
        """Return the sums over all blocks of the arrays that a kernel gives.

        Parameters
        ----------
        kernel : called with a block, its samples' columns of `per_sample`, and `shared`
        per_sample : arrays of shape (..., n), or None
        """
        totals: tuple[Any, ...] | None = None
        for block in self.blocks():
            sliced = (None if a is None else a[..., block.samples] for a in per_sample)
            found = kernel(block, *sliced, *shared)
            totals = found if totals is None else tuple(map(operator.add, totals, found))
        assert totals is not None
        return totals

    def _parts(self) -> Iterator[slice]:
        sizes = np.cumsum(self.lengths) * (self.dimension * self.dtype.itemsize)
        start = 0
        while start < len(self):
            before = sizes[start - 1] if start else 0
            stop = int(sizes.searchsorted(before + BLOCK_BYTES, side="right"))
            stop = max(stop, start + 1)
            yield slice(start, stop)
            start = stop

    def _tokens(self, part: slice) -> Array:
        rows = part if self._rows is None else self._rows[part]
        if not _is_array(self._source):
            chosen = (
                self._source[rows] if isinstance(rows, slice) else [self._source[i] for i in rows]
            )
            tokens = np.concatenate([np.asarray(one, dtype=self.dtype) for one in chosen])
        elif self._mask is None:
            tokens = np.asarray(self._source[rows]).reshape(-1, self.dimension)
        else:
            tokens = np.asarray(self._source[rows])[self._mask[rows]]
        return np.asarray(tokens, dtype=self.dtype)

    def _reads_views(self) -> bool:
        source = self._source
        plain = _is_array(source) and self._mask is None and self._rows is None
        return plain and source.dtype == self.dtype and source.flags.c_contiguous

    def _release_pages(self) -> None:
        # Pages of a map count as the process's memory until they are given back; the file's cache
        # keeps them. A writable map is left alone: copy-on-write changes would be lost.
        if self._mapped is not None:
            self._mapped.madvise(mmap.MADV_DONTNEED)


def mask_tokens(X: Any, mask: Any) -> Any:
    """Return X as a masked array in which only the tokens of `mask` count.

    A masked array carries its mask through `Pipeline`, `GridSearchCV` and `cross_val_score`, which
    a separate argument does not.

    Parameters
    ----------
    X : array of shape (n, L, d)
    mask : array of shape (n, L), True where a token is present

    Returns
    -------
    masked array of shape (n, L, d)

    Examples
    --------
    >>> import numpy as np
    >>> from sparsetoken import mask_tokens
    >>> masked = mask_tokens(np.ones((2, 3, 4)), np.array([[True, True, False], [True, True, True]]))
    >>> masked.count(axis=1)[:, 0].tolist()
    [2, 3]
    """
    X = np.asarray(X)
    present = _checked_mask(mask, X.shape)
    return np.ma.MaskedArray(X, mask=np.repeat(~present[:, :, None], X.shape[2], axis=2))


def looks_transposed(X: Array) -> bool:
    """Whether an array (n, a, b) looks like channels and moments rather than tokens and numbers.

    So it does with rows that are long and smooth: neighbours along the last axis are correlated by
    more than a half. Accelerometers have 0.6 and slower series up to 1, neighbouring pixels of small
    images 0.3. One row a sample is a series of one channel only then: else it is a single token.
    """
    _, a, b = X.shape
    if b < 4 * a or b < 16 or isinstance(X, np.ma.MaskedArray):
        return False
    some = np.asarray(X[:50], dtype=float)
    some = some - some.mean(axis=(0, 1))
    with np.errstate(over="ignore", invalid="ignore"):
        products = np.mean(some[..., 1:] * some[..., :-1])
        squares = np.sqrt(np.mean(some[..., 1:] ** 2) * np.mean(some[..., :-1] ** 2))
    return bool(products > 0.5 * squares > 0)


def as_sequences(X: Any, mask: Any = None, length: int | None = None) -> Sequences:
    """Convert input to Sequences, or raise a ParameterError that names the sample.

    Values are not read (apart from a mask's): finiteness is checked where they are.

    Parameters
    ----------
    X : array of shape (n, L, d), masked array of that shape, list of arrays of shape (L_i, d), or
        array of shape (n, d)
        A 2-D X is n sequences of one token, or of `length` tokens if that is given.
    mask : array of shape (n, L), optional
        True where a token is present; for 3-D X only.
    length : int, optional
    """
    if isinstance(X, list | tuple) or (isinstance(X, np.ndarray) and X.dtype == object):
        if mask is not None:
            raise ParameterError("mask", type(mask).__name__, "None for a list, which needs none")
        return _from_list(list(X))
    array = X if isinstance(X, np.ndarray) else np.asarray(X)
    if array.ndim == 2:
        array = _unfolded(array, length)
    if array.ndim != 3:
        raise ParameterError(
            "shape of X", array.shape, "(samples, tokens, dimension) or (samples, dimension)"
        )
    if isinstance(array, np.ma.MaskedArray):
        if mask is not None:
            raise ParameterError("mask", type(mask).__name__, "None for an X that is masked itself")
        mask = _token_mask(array)
        array = array.data
    _require_some(array.shape)
    dtype = _floating(array.dtype)
    if mask is None:
        return Sequences(array, np.full(len(array), array.shape[1]), dtype)
    present = _checked_mask(mask, array.shape)
    lengths = present.sum(axis=1)
    _require_tokens(lengths)
    return Sequences(array, lengths, dtype, None if present.all() else present)


def _from_list(items: list[Any]) -> Sequences:
    if not items:
        raise ParameterError("X", [], "at least one sample")
    arrays = [np.asarray(item) for item in items]
    dimension = arrays[0].shape[-1] if arrays[0].ndim == 2 else None
    for index, array in enumerate(arrays):
        if array.ndim != 2:
            raise ParameterError(
                f"shape of sample {index}", array.shape, "(tokens, dimension) for each of a list"
            )
        if array.shape[1] != dimension or dimension == 0:
            accepted = f"{dimension}, as in sample 0" if dimension else "at least 1"
            raise ParameterError(f"dimension of sample {index}", array.shape[1], accepted)
    lengths = np.array([len(array) for array in arrays])
    _require_tokens(lengths)
    return Sequences(arrays, lengths, _floating(np.result_type(*{a.dtype for a in arrays})))


def _unfolded(array: Array, length: int | None) -> Array:
    length = 1 if length is None else length
    if array.shape[1] % length:
        raise ParameterError(
            "columns of X", array.shape[1], f"a multiple of length = {length} for a 2-D X"
        )
    return array.reshape(len(array), length, array.shape[1] // length)


def _token_mask(array: Any) -> Array:
    hidden = np.ma.getmaskarray(array)
    partly = np.flatnonzero((hidden.any(axis=2) != hidden.all(axis=2)).any(axis=1))
    if len(partly):
        raise ParameterError(
            f"mask of sample {partly[0]}", "a token masked in part", "tokens masked as a whole"
        )
    return np.asarray(~hidden.any(axis=2))


def _checked_mask(mask: Any, shape: tuple[int, ...]) -> Array:
    mask = np.asarray(mask)
    if len(shape) != 3 or mask.shape != shape[:2]:
        raise ParameterError("shape of mask", mask.shape, f"{shape[:2]}, for an X of shape {shape}")
    if mask.dtype != bool and not np.isin(mask, (0, 1)).all():
        raise ParameterError("mask", mask.dtype.name, "boolean, True where a token is present")
    return np.asarray(mask, dtype=bool)


def _require_some(shape: tuple[int, ...]) -> None:
    for size, name in zip(shape, ("sample", "token", "dimension"), strict=True):
        if size == 0:
            raise ParameterError("shape of X", shape, f"at least one {name}")


def _require_tokens(lengths: Array) -> None:
    empty = np.flatnonzero(lengths == 0)
    if len(empty):
        raise ParameterError(f"length of sample {empty[0]}", 0, "at least one token")


def _floating(dtype: Any) -> Any:
    if np.issubdtype(dtype, np.complexfloating):
        raise ParameterError("dtype of X", dtype.name, "real numbers: Complex data not supported")
    if not (np.issubdtype(dtype, np.number) or dtype == bool):
        raise ParameterError("dtype of X", dtype.name, "numbers")
    return np.dtype(np.float32) if dtype in (np.float16, np.float32) else np.dtype(np.float64)


def _is_array(source: Any) -> bool:
    return isinstance(source, np.ndarray)


def _memory_map(source: Any) -> mmap.mmap | None:
    """Return the read-only memory map under an array, if there is one whose pages can be freed."""
    if not _is_array(source) or source.flags.writeable or not hasattr(mmap, "MADV_DONTNEED"):
        return None
    while isinstance(source, np.ndarray):
        source = source.base
    return source if isinstance(source, mmap.mmap) else None


class StackedSequences(Sequences):
    """Samples whose tokens are one stacked array (N, d) in memory.

    Parameters
    ----------
    tokens : array of shape (N, d)
    lengths : array of shape (n,), of sum N
    block_tokens : int
        About how many tokens a block holds.
    """

    def __init__(self, tokens: Array, lengths: Array, block_tokens: int) -> None:
        self.lengths, self.dtype, self.dimension = lengths, tokens.dtype, tokens.shape[1]
        ends = np.cumsum(lengths)
        starts = ends - lengths
        self._held = []
        first = 0
        while first < len(lengths):
            beginning = starts[first]
            last = int(np.searchsorted(ends, beginning + block_tokens, side="right"))
            last = max(last, first + 1)
            part = slice(first, last)
            rows = tokens[beginning : ends[last - 1]]
            self._held.append(Block(part, rows, starts[part] - beginning, lengths[part]))
            first = last
