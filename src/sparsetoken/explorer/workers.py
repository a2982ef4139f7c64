"""Processes that compute, kept warm, and ended where they do not stop by themselves.

A worker has one batch at a time. To be told to stop it needs to look, which it does before each
point; one that does not look within a moment is killed, and another takes its place: forked from a
process that has everything loaded, so that this takes a few hundredths of a second.
"""

import asyncio
import logging
import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from sparsetoken.explorer.computing import Batch, Point, Stale, compute
from sparsetoken.extensions import import_extensions, imported_extensions
from sparsetoken.limits import usable_cores
from sparsetoken.numerics.memory import path_memory

__all__ = ["ENDED", "Crew", "in_a_process", "listen", "start_process", "unexpected"]

# What to tell where a process is gone without an answer.
ENDED = "the computation was ended by the system: ask for less"

# How long a worker may go on after it was told to stop, in seconds.
_GRACE = 0.3
_STOP = None
# How often it is looked whether a process of its own has answered, in seconds.
_LOOK = 0.02


def _process_context() -> Any:
    """Return how processes are started: from a loaded one where the system has that."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["sparsetoken.cli", "sparsetoken.explorer.computing"])
    return context


def unexpected(error: Exception) -> str:
    """Return what to tell of an error that nobody made; the terminal has where it comes from."""
    logging.getLogger(__name__).error("unexpected", exc_info=error)
    return f"This should not happen, please report it: {error!r}"


def start_process(target: Callable[..., None], *arguments: Any) -> tuple[Connection, Any]:
    """Start target(connection, *arguments) in a process; return the other end, and the process."""
    context = _process_context()
    connection, other = context.Pipe()
    begun = (imported_extensions(), target, other, arguments)
    process = context.Process(target=_begin, args=begun, daemon=True)
    process.start()
    other.close()
    return connection, process


def _begin(
    modules: Sequence[str],
    target: Callable[..., None],
    connection: Connection,
    arguments: Sequence[Any],
) -> None:
    """Run in the process: make known what the server's modules have added, then the target."""
    import_extensions(modules)
    target(connection, *arguments)


async def in_a_process(function: Callable[..., Any], *arguments: Any, seconds: float) -> Any:
    """Call a function in a process that ends with this call, also where that is cancelled."""
    connection, process = await asyncio.to_thread(start_process, _call, function, arguments)
    try:
        async with asyncio.timeout(seconds):
            while not connection.poll():
                await asyncio.sleep(_LOOK)
        answer = connection.recv()
    except EOFError:
        raise MemoryError(ENDED) from None
    finally:
        process.kill()
        connection.close()
    if isinstance(answer, BaseException):
        raise answer
    return answer


def _call(connection: Connection, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """Run in the process: send what the function returns or raises."""
    listen(connection, lambda _: None)
    try:
        answer = function(*arguments)
    except Exception as error:  # noqa: BLE001 the caller decides what to tell
        answer = error
    connection.send(answer)


class Crew:
    """Some workers for all tabs of a server.

    Parameters
    ----------
    size : int, optional
        How many work at once; one for each core that may be used, at most four. There are twice as many
        processes, so that the place of one that was ended is taken at once.
    """

    def __init__(self, size: int | None = None) -> None:
        self.size = size or min(4, usable_cores())
        self._idle: asyncio.LifoQueue[_Worker] = asyncio.LifoQueue()
        self._all: set[_Worker] = set()
        self._replacing: set[asyncio.Task[None]] = set()
        self._started = False

    async def start(self) -> None:
        """Start the workers, unless they were started before."""
        if not self._started:
            self._started = True
            await asyncio.gather(*(self._add() for _ in range(2 * self.size)))

    async def _add(self) -> None:
        worker = await asyncio.to_thread(_Worker, asyncio.get_running_loop())
        self._all.add(worker)
        await worker.ready
        self._idle.put_nowait(worker)

    async def compute(self, batch: Batch) -> list[Point]:
        """Compute a batch in a worker; where this is cancelled, the worker stops."""
        worker = await self._idle.get()
        answer = worker.ask(batch)
        try:
            # The answer outlives a cancellation: it says that the worker has stopped.
            result = await asyncio.shield(answer)
        except asyncio.CancelledError:
            ending = asyncio.create_task(self._end(worker, answer))
            self._replacing.add(ending)
            ending.add_done_callback(self._replacing.discard)
            raise
        if isinstance(result, EOFError):
            await self._replace(worker)
            result = MemoryError(ENDED)
        else:
            self._idle.put_nowait(worker)
        if isinstance(result, BaseException):
            raise result
        return list(result)

    async def _end(self, worker: "_Worker", answer: "asyncio.Future[Any]") -> None:
        """Tell a worker to stop; replace it if it does not."""
        worker.stop()
        done, _ = await asyncio.wait({answer}, timeout=_GRACE)
        if done and not isinstance(answer.result(), EOFError):
            self._idle.put_nowait(worker)
        else:
            await self._replace(worker)

    async def _replace(self, worker: "_Worker") -> None:
        self._all.discard(worker)
        worker.kill()
        await self._add()

    def close(self) -> None:
        """End all workers at once."""
        for task in self._replacing:
            task.cancel()
        for worker in self._all:
            worker.kill()
        self._all.clear()


class _Worker:
    """One process, and the thread that waits for its answers."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._connection, self._process = start_process(_work)
        self._loop = loop
        self.ready = self._answer = loop.create_future()
        threading.Thread(target=self._listen, daemon=True).start()

    def ask(self, batch: Batch) -> "asyncio.Future[Any]":
        self._answer = self._loop.create_future()
        self._send(batch)
        return self._answer

    def stop(self) -> None:
        self._send(_STOP)

    def kill(self) -> None:
        self._process.kill()

    def _send(self, message: Batch | None) -> None:
        with suppress(OSError):  # if it is gone, the thread that listens says so
            self._connection.send(message)

    def _listen(self) -> None:
        while True:
            try:
                answer = self._connection.recv()
            except (EOFError, OSError):
                answer = EOFError()
            try:
                self._loop.call_soon_threadsafe(self._settle, answer)
            except RuntimeError:
                return  # the server has ended
            if isinstance(answer, EOFError):
                self._process.join()
                return

    def _settle(self, answer: Any) -> None:
        if not self._answer.done():
            self._answer.set_result(answer)


def _work(connection: Connection) -> None:
    """Run in the worker: answer batches until the server is gone."""
    inbox: queue.SimpleQueue[Batch | None] = queue.SimpleQueue()
    listen(connection, inbox.put)

    def check() -> None:
        if not inbox.empty():
            raise Stale

    def answer(batch: Batch) -> Any:
        try:
            return compute(batch, check)
        except Exception as error:  # noqa: BLE001 the server decides what to tell
            return error

    # Requests that follow each other share laws: all that a worker answers is one path.
    with path_memory(), suppress(BrokenPipeError):  # a server that is gone needs no answer
        connection.send("ready")
        while True:
            batch = inbox.get()
            if batch is not _STOP:  # else for a batch that was done already
                connection.send(answer(batch))


def listen(connection: Connection, put: Callable[[Any], None]) -> None:
    """Hand on what comes, in a thread; a process without a server ends, whatever it is doing."""
    # Ctrl-C is for the server, which ends its processes.
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def receive() -> None:
        while True:
            try:
                put(connection.recv())
            except (EOFError, OSError):
                os._exit(0)

    threading.Thread(target=receive, daemon=True).start()
