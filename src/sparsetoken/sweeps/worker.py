"""What runs in a worker process, be it local or on a cluster: one attempt at one trial.

Exceptions of the work itself come back as text: not every exception survives pickling, and the
driver can then tell failed work from a failed worker.
"""

import json
import math
import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

from sparsetoken import __version__
from sparsetoken.extensions import import_extensions
from sparsetoken.numerics.memory import path_memory

__all__ = ["RESERVED_COLUMNS", "Attempt", "attempt", "use_one_thread"]

RESERVED_COLUMNS = frozenset(
    ("cell", "trial", "outcome", "error", "attempts", "seconds", "version", "finished")
)
_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)


class Attempt(NamedTuple):
    """The result as a JSON object and its field names, or the error.

    With the time that it took, and the version of the package in the process that did it.
    """

    result: str | None
    columns: tuple[str, ...]
    error: str | None
    seconds: float
    version: str


@cache
def use_one_thread() -> None:
    """Keep linear algebra in this process to one thread.

    Trials run side by side already, and the number of threads may change the last bits of a
    result. The variables are for libraries not loaded yet, threadpoolctl is for the others.
    """
    os.environ.update(dict.fromkeys(_THREAD_VARIABLES, "1"))
    if "numpy" in sys.modules:
        from threadpoolctl import threadpool_limits

        threadpool_limits(limits=1)


def attempt(
    function: Callable[..., Mapping[str, Any]],
    settings: dict[str, Any],
    trial: int | None,
    imports: tuple[str, ...] = (),
) -> Attempt:
    """Call function(settings, trial), or function(settings) if trial is None.

    `imports` are modules to import before, for what they register.
    """
    use_one_thread()
    start = time.perf_counter()
    try:
        import_extensions(imports)
        with path_memory():
            values = function(settings) if trial is None else function(settings, trial)
        result = {name: _plain(value) for name, value in values.items()}
        _check_names(result, settings)
        text = json.dumps(result, separators=(",", ":"))
    except (Exception, SystemExit) as error:  # noqa: BLE001 (whatever it is, it is recorded)
        return Attempt(None, (), _describe(error), time.perf_counter() - start, __version__)
    return Attempt(text, tuple(result), None, time.perf_counter() - start, __version__)


def _plain(value: Any) -> Any:
    """Turn numpy's scalars into Python's, and numbers that JSON cannot hold into None."""
    if hasattr(value, "item") and not getattr(value, "shape", ()):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _check_names(result: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    taken = sorted(result.keys() & (settings.keys() | RESERVED_COLUMNS))
    if taken:
        raise ValueError(f"result fields {', '.join(taken)} have names of settings or of the store")


def _describe(error: BaseException) -> str:
    """Return the error and the line it comes from."""
    text = "".join(traceback.format_exception_only(error)).strip()
    frames = traceback.extract_tb(error.__traceback__)
    if frames:
        text += f" ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno})"  # noqa: PTH119
    return text
