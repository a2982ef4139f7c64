"""How much memory there is, and results that are kept in a bounded part of it, while a path lasts.

A path is a curve, a map, a plan, a single prediction, or all that a process of the explorer answers:
whatever asks for the same law again and again. It opens `path_memory`, which keeps the results of
functions marked `kept_on_path` and frees them when the path ends. Nested paths share the outermost one's.
Without a path nothing is kept.

Only what is small and the same for every setting stays for the life of the process, by `functools`:
nodes and weights of quadrature rules, direction numbers, tables of a few kilobytes and records of a
few numbers.
"""

import os
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, is_dataclass
from functools import wraps
from typing import Any, Generic, ParamSpec, TypeVar

__all__ = ["Results", "kept_on_path", "kept_results", "path_memory", "require_memory"]

P = ParamSpec("P")
R = TypeVar("R")


@dataclass
class Results(Generic[R]):
    """The last results of one kind by their keys, as many as fit in `limit` bytes.

    A result that does not fit alone is not kept.
    """

    limit: int
    size: int = 0
    hits: int = 0
    misses: int = 0
    _kept: OrderedDict[Any, tuple[R, int]] = field(default_factory=OrderedDict)

    def get(self, key: Any, make: Callable[[], R]) -> R:
        """Return the kept result for a key, or a new one."""
        if key in self._kept:
            return self._found(key)
        self.misses += 1
        result = make()
        self.put(key, result, _array_bytes(result))
        return result

    def find(self, key: Any) -> R | None:
        """Return the kept result for a key, or None."""
        return self._found(key) if key in self._kept else None

    def _found(self, key: Any) -> R:
        self.hits += 1
        self._kept.move_to_end(key)
        return self._kept[key][0]

    def put(self, key: Any, result: R, size: int) -> None:
        """Keep a result of so many bytes, and forget those that were not used for longest."""
        if key in self._kept:
            self.size -= self._kept.pop(key)[1]
        if size <= self.limit:
            self._kept[key] = (result, size)
            self.size += size
        while self.size > self.limit:
            _, (_, oldest) = self._kept.popitem(last=False)
            self.size -= oldest


_PATH: ContextVar[dict[Any, Results[Any]] | None] = ContextVar("results of the path", default=None)


@contextmanager
def path_memory() -> Iterator[None]:
    """Keep the results of `kept_on_path` functions until the end; a decorator as well.

    Not for generator functions, whose body runs after the decorated call has returned.
    """
    if _PATH.get() is not None:
        yield
        return
    before = _PATH.set({})
    try:
        yield
    finally:
        _PATH.reset(before)


def kept_on_path(limit: int) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator that keeps the results of a function, up to `limit` bytes, for a path."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            path = _PATH.get()
            if path is None:
                return function(*args, **kwargs)
            results: Results[R] = path.setdefault(call, Results(limit))
            key = (args, tuple(sorted(kwargs.items())))
            return results.get(key, lambda: function(*args, **kwargs))

        return call

    return decorate


def kept_results(function: Callable[..., Any]) -> Results[Any]:
    """Return what the path keeps of a `kept_on_path` function; nothing without a path."""
    return (_PATH.get() or {}).get(function, Results(0))


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
    if hasattr(value, "nbytes"):
        return int(value.nbytes)
    if isinstance(value, tuple | list):
        return sum(map(_array_bytes, value))
    if is_dataclass(value):
        return sum(_array_bytes(getattr(value, item.name)) for item in fields(value))
    return 0
