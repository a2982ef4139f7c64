"""Run a sweep on a Dask cluster that exists already."""

import re
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, InvalidStateError
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from sparsetoken import __version__
from sparsetoken.sweeps.engine import Backend
from sparsetoken.sweeps.errors import SweepError

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["dask_backend"]

_CONNECT_SECONDS = 10
_RECOUNT_SECONDS = 2.0
_PATIENCE_SECONDS = 60.0  # without a single worker
_ADDRESS = re.compile(r"(?:tcp://)?(?P<host>[^\s:/\[\]]+|\[[0-9a-fA-F:.]+\]):(?P<port>\d{1,5})")


class WorkersGone(RuntimeError):
    """All workers that might have run a call have left the cluster."""


@contextmanager
def dask_backend(address: str) -> Iterator[Backend]:
    """Connect to the scheduler at `address` and give a backend that runs calls on its workers.

    Calls go to workers with this version of the package alone; those that join later are asked for
    theirs first. Dask starts a call anew when its worker dies, and gives up after a few deaths in a
    row with `KilledWorker`; it does so for every call that the worker held, guilty or not.
    """
    try:
        from distributed import Client, KilledWorker
    except ImportError:
        raise SweepError(
            "a Dask cluster needs the package distributed, which the extra 'cluster' brings: "
            "in a clone, pip install '.[cluster]'"
        ) from None
    _check_address(address)
    try:
        client = Client(  # type: ignore[no-untyped-call]
            address, timeout=_CONNECT_SECONDS, set_as_default=False
        )
    except (OSError, ValueError, TimeoutError) as error:
        raise SweepError(f"cannot reach a Dask scheduler at {address}: {error}") from None
    with client:
        _check_scheduler(client)
        executor = _VersionedExecutor(client, address)
        executor.look()
        executor.refuse_if_all_differ()
        try:
            yield Backend(executor, executor.window, (KilledWorker,), (WorkersGone,), executor.note)
        finally:
            executor.shutdown(wait=False)


def _check_address(address: str) -> None:
    """Refuse, at once, what is not the address of something that answers.

    Dask itself would try for a long time and then break off with errors of its own threads.
    """
    match = _ADDRESS.fullmatch(address)
    if match is None or not 0 < int(match["port"]) < 2**16:
        raise SweepError(
            f"cannot reach a Dask scheduler at {address!r}: expected tcp://HOST:PORT, for instance "
            "tcp://127.0.0.1:8786"
        )
    place = match["host"].strip("[]"), int(match["port"])
    try:
        socket.create_connection(place, timeout=_CONNECT_SECONDS).close()
    except OSError as error:
        reason = error.strerror or error
        raise SweepError(f"cannot reach a Dask scheduler at {address}: {reason}") from None


def _check_scheduler(client: "Client") -> None:
    """Refuse a scheduler that lacks this package or has another version: it unpickles calls too."""
    try:
        version = client.run_on_scheduler(_package_version)  # type: ignore[no-untyped-call]
    except Exception as error:  # noqa: BLE001 (Dask re-raises what the scheduler raised)
        raise SweepError(
            f"the cluster's scheduler cannot import sparsetoken {__version__}: {error}"
        ) from None
    if version != __version__:
        raise SweepError(f"the scheduler has sparsetoken {version}, not {__version__}")


def _package_version() -> str:
    return __version__


class _VersionedExecutor(Executor):
    """An executor of a Dask cluster that uses the workers with this version, and no others.

    Calls wait here while there is no such worker. `window` must be called now and then: it looks
    who has come and gone.
    """

    def __init__(self, client: "Client", address: str) -> None:
        self._client = client
        self._address = address
        self._version_of: dict[str, str] = {}
        self._threads: dict[str, int] = {}
        self._waiting: list[tuple[Future[Any], tuple[Any, ...]]] = []
        self._sent: dict[Future[Any], frozenset[str]] = {}
        self._orphans: set[Future[Any]] = set()
        self._looked_at = self._alone_since = time.monotonic()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **_: Any) -> Future[Any]:
        """Schedule fn(*args) and return its future."""
        future: Future[Any] = Future()
        self._waiting.append((future, (fn, *args)))
        self._send()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Forget the calls that have not ended; nobody waits for them here."""
        del wait, cancel_futures
        for future in list(self._sent):
            future.cancel()

    def window(self) -> int:
        """Return four calls per thread of the cluster, after a look at it now and then."""
        if time.monotonic() - self._looked_at > _RECOUNT_SECONDS:
            self.look()
        return max(8, 4 * sum(self._threads.values()))

    def note(self) -> str:
        """Return who is not used and why, or that there are no workers."""
        others = {w: v for w, v in self._version_of.items() if v != __version__}
        notes = [
            f"{worker} is not used: it has sparsetoken {version}"
            for worker, version in others.items()
        ]
        if not self._threads:
            notes.append(f"no workers yet: start some with `dask worker {self._address}`")
        return "; ".join(notes)

    def look(self) -> None:
        """Ask new workers for their version, and give up calls that no worker holds any more."""
        present = self._present()
        self._ask(present.keys() - self._version_of.keys())
        self._version_of = {w: v for w, v in self._version_of.items() if w in present}
        self._threads = {
            worker: count
            for worker, count in present.items()
            if self._version_of.get(worker) == __version__
        }
        self._looked_at = time.monotonic()
        if self._threads:
            self._alone_since = self._looked_at
        elif self._looked_at - self._alone_since > _PATIENCE_SECONDS:
            raise SweepError(f"lost or never had workers at {self._address}: {self.note()}")
        self._give_up_orphans()
        self._send()

    def refuse_if_all_differ(self) -> None:
        """End at once if there are workers, but none that may be used."""
        if self._version_of and not self._threads:
            worker, version = next(iter(self._version_of.items()))
            raise SweepError(f"{worker} has sparsetoken {version}, not {__version__}")

    def _give_up_orphans(self) -> None:
        """Give up calls that no worker can hold, if it was so at the last look already.

        Until then, Dask may say itself that their worker was killed.
        """
        orphans = {f for f, workers in self._sent.items() if not workers & self._threads.keys()}
        for future in orphans & self._orphans:
            if not future.done():
                future.set_exception(WorkersGone("the workers that might have run it have gone"))
        self._orphans = orphans

    def _present(self) -> dict[str, int]:
        """Return the number of threads of each worker."""
        try:
            found: dict[str, int] = self._client.nthreads()  # type: ignore[no-untyped-call]
        except Exception as error:  # noqa: BLE001 (whatever Dask raises, the scheduler is gone)
            raise SweepError(
                f"lost the Dask scheduler at {self._address} ({error}). What has finished is "
                "stored; run again to go on"
            ) from None
        return dict(found)

    def _ask(self, workers: set[str]) -> None:
        if not workers:
            return
        with suppress(OSError):  # one that has gone meanwhile is asked again if it comes back
            answers = self._client.run(_package_version, workers=list(workers), on_error="return")
            for worker, answer in answers.items():
                if isinstance(answer, str):
                    self._version_of[worker] = answer
                elif not isinstance(answer, OSError):
                    self._version_of[worker] = f"<unknown> ({answer})"

    def _send(self) -> None:
        if not self._threads:
            return
        workers = frozenset(self._threads)
        while self._waiting:
            future, (function, *args) = self._waiting.pop()
            # Not pure: Dask would answer a second attempt with the failure of the first.
            sent = self._client.submit(function, *args, pure=False, workers=list(workers))
            self._sent[future] = workers
            future.add_done_callback(self._forget(sent))
            sent.add_done_callback(_passing_to(future))  # type: ignore[no-untyped-call]

    def _forget(self, sent: Any) -> Callable[[Future[Any]], None]:
        def forget(future: Future[Any]) -> None:
            self._sent.pop(future, None)
            if not sent.done():
                with suppress(Exception):  # the cluster may be gone
                    sent.cancel()

        return forget


def _passing_to(future: Future[Any]) -> Callable[[Any], None]:
    """Return a function that passes what became of a future of Dask on to `future`."""

    def pass_on(sent: Any) -> None:
        with suppress(InvalidStateError):  # given up meanwhile
            try:
                if sent.status == "cancelled":
                    future.cancel()
                    future.set_running_or_notify_cancel()
                else:
                    future.set_result(sent.result())
            except InvalidStateError:
                raise
            except Exception as error:  # noqa: BLE001 (belongs to the caller)
                future.set_exception(error)

    return pass_on
