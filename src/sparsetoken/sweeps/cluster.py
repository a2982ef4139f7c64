"""Run a sweep on a Dask cluster that exists already."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sparsetoken import __version__
from sparsetoken.sweeps.engine import Backend
from sparsetoken.sweeps.errors import SweepError

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["dask_backend"]

_CONNECT_SECONDS = 10
_RECOUNT_SECONDS = 5.0


@contextmanager
def dask_backend(address: str) -> Iterator[Backend]:
    """Connect to the scheduler at `address` and give a backend that runs calls on its workers.

    Dask starts a call anew when its worker dies, and gives up after a few deaths in a row with
    `KilledWorker`; it does so for every call that the worker held, guilty or not.
    """
    try:
        from distributed import Client, KilledWorker
    except ImportError:
        raise SweepError(
            "a Dask cluster needs the package distributed, which the extra 'cluster' brings: "
            "in a clone, pip install '.[cluster]'"
        ) from None
    try:
        client = Client(  # type: ignore[no-untyped-call]
            address, timeout=_CONNECT_SECONDS, set_as_default=False
        )
    except (OSError, ValueError, TimeoutError) as error:
        raise SweepError(f"cannot reach a Dask scheduler at {address}: {error}") from None
    with client:
        _check_versions(client)
        # Not pure: Dask would answer a second attempt with the failure of the first.
        executor = client.get_executor(pure=False)  # type: ignore[no-untyped-call]
        try:
            yield Backend(executor, _window(client), (KilledWorker,))
        finally:
            executor.shutdown(wait=False)


def _check_versions(client: "Client") -> None:
    """Refuse a cluster whose processes lack this package or have another version of it."""
    try:
        versions: dict[str, str] = client.run(_package_version)
        # The scheduler unpickles calls too.
        versions["scheduler"] = client.run_on_scheduler(  # type: ignore[no-untyped-call]
            _package_version
        )
    except Exception as error:  # noqa: BLE001 (Dask re-raises what the worker raised)
        raise SweepError(
            f"the cluster's processes cannot import sparsetoken {__version__}: {error}"
        ) from None
    for place, version in versions.items():
        if version != __version__:
            raise SweepError(f"{place} has sparsetoken {version}, not {__version__}")


def _package_version() -> str:
    return __version__


def _window(client: "Client") -> Callable[[], int]:
    """Return a function that gives four calls per thread of the cluster, recounted now and then."""
    counted: dict[str, Any] = {"at": -float("inf"), "window": 1}

    def window() -> int:
        if time.monotonic() - counted["at"] > _RECOUNT_SECONDS:
            threads = client.nthreads()  # type: ignore[no-untyped-call]
            counted["window"] = max(8, 4 * sum(threads.values()))
            counted["at"] = time.monotonic()
        return int(counted["window"])

    return window
