"""How much memory there is, and results that are kept for repeated calls up to a number of bytes."""

import os
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import update_wrapper
from typing import Any, Generic, ParamSpec, TypeVar

import numpy as np

__all__ = ["ByteCache", "bounded_cache", "require_memory"]

P = ParamSpec("P")
R = TypeVar("R")


class ByteCache(Generic[P, R]):
    """A function whose last results are kept, as many as fit in `limit` bytes of arrays.

    A result that does not fit alone is not kept.
    """

    def __init__(self, function: Callable[P, R], limit: int) -> None:
        update_wrapper(self, function)
        self._function = function
        self._limit = limit
        self._results: OrderedDict[Any, tuple[R, int]] = OrderedDict()
        self.hits = self.misses = self.size = 0

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Return the kept result for these arguments, or a new one."""
        key = (args, tuple(sorted(kwargs.items())))
        if key in self._results:
            self.hits += 1
            self._results.move_to_end(key)
            return self._results[key][0]
        self.misses += 1
        result = self._function(*args, **kwargs)
        size = _array_bytes(result)
        if size <= self._limit:
            self._results[key] = (result, size)
            self.size += size
        while self.size > self._limit:
            _, (_, oldest) = self._results.popitem(last=False)
            self.size -= oldest
        return result

    def cache_clear(self) -> None:
        """Forget all results."""
        self._results.clear()
        self.hits = self.misses = self.size = 0


def bounded_cache(limit: int) -> Callable[[Callable[P, R]], ByteCache[P, R]]:
    """Return a decorator that keeps the results of a function, up to `limit` bytes of arrays."""
    return lambda function: ByteCache(function, limit)


def require_memory(what: str, needed: float) -> None:
    """Raise a MemoryError if so many bytes are more than this machine has, where it tells."""
    if not hasattr(os, "sysconf"):
        return
    present = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > present:
        raise MemoryError(
            f"{what} needs {needed / 1e9:.3g} GB; this machine has {present / 1e9:.3g} GB"
        )


def _array_bytes(value: Any) -> int:
    """Return the size of the arrays in a value: in tuples and dataclasses too."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, tuple | list):
        return sum(map(_array_bytes, value))
    if is_dataclass(value):
        return sum(_array_bytes(getattr(value, item.name)) for item in fields(value))
    return 0
