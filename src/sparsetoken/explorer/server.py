"""The page's server: a few fixed files, one socket a tab, and nothing that a client can name.

Messages are small JSON objects. A client has one computation at a time, in processes that are kept
warm: a new request makes the last one stale, and ends it. Only addresses of this machine are answered, and a
page from elsewhere is refused by its origin.
"""

import asyncio
import json
import math
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from functools import cache, partial
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from sparsetoken import __version__
from sparsetoken.explorer import owndata, texts
from sparsetoken.explorer.looks import line_looks
from sparsetoken.explorer.picture import Known, Picture, Piece
from sparsetoken.explorer.presets import PRESETS, TOUR
from sparsetoken.explorer.simulating import Simulating
from sparsetoken.explorer.state import State, controls
from sparsetoken.explorer.views import FINAL, FIRST, SCREEN, Stage
from sparsetoken.explorer.workers import Crew, in_a_process, unexpected
from sparsetoken.validation import ParameterError

__all__ = ["make_app", "plotly_script"]

_PAGE = {
    "": ("index.html", "text/html"),
    "style.css": ("style.css", "text/css"),
    "app.js": ("app.js", "text/javascript"),
    "plots.js": ("plots.js", "text/javascript"),
    "controls.js": ("controls.js", "text/javascript"),
}
# A message holds a state, some 1000 letters. Pages are for one person: more of them are a mistake.
_MOST_MESSAGE = 8000
_MOST_CLIENTS = 16
_CROWDED = 4429
# How long a view, and a comparison on one's own data, may take: nobody waits longer at a page.
_SECONDS = 60.0
_OWN_SECONDS = 300.0
# What is on its way may be shown for so long after a newer request has come, and a picture that
# grows is sent so often, in seconds.
_PATIENCE = 0.2
_BETWEEN = 0.1
# How often it is looked whether the one who waits for a comparison is still there, in seconds.
_LOOK = 0.2
# Usual settings are computed before anyone asks, while nobody has asked for so many seconds; what
# takes longest comes first.
_IDLE = 1.0
_PREPARED = ("map", "shift", "learning", "strength", "capacity", "turning")
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; connect-src 'self'; font-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@cache
def plotly_script() -> str:
    """Return the plotly.js that the package `plotly` ships."""
    return (files("plotly") / "package_data" / "plotly.min.js").read_text(encoding="utf-8")


@cache
def page_file(name: str) -> str:
    """Return a file of the page."""
    return (files("sparsetoken.explorer") / "page" / name).read_text(encoding="utf-8")


class _OnlyThisMachine:
    """Refuse hosts and origins that are not this server's own address."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str]) -> None:
        self._app, self._hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        origin = headers.get("origin")
        own = headers.get("host", "") in self._hosts
        same = origin is None or origin.removeprefix("http://") in self._hosts
        # A browser always names the origin of a socket and of an upload.
        needed = scope["type"] == "websocket" or scope.get("method") == "POST"
        if own and same and not (needed and origin is None):
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 4403})
        else:
            refusal = PlainTextResponse("This address is not served here.", status_code=403)
            await refusal(scope, receive, send)


class _Gone(Exception):
    """The tab is closed, or does not keep to the protocol."""


class _Client:
    """One tab: its present computation, its simulation, and the socket to answer on."""

    def __init__(self, socket: WebSocket, crew: Crew, known: Known) -> None:
        self._socket = socket
        self._crew, self._known = crew, known
        self._wanted: tuple[int, State] | None = None
        self._newer = asyncio.Event()
        self._drawing: asyncio.Task[None] | None = None
        self._counting: asyncio.Task[None] | None = None
        self._simulating: Simulating | None = None
        self._drawn = -math.inf
        self._sending = asyncio.Lock()

    async def send(self, message: dict[str, Any]) -> None:
        text = json.dumps(message, allow_nan=False)
        async with self._sending:
            try:
                await self._socket.send_text(text)
            except (WebSocketDisconnect, RuntimeError):
                raise _Gone from None

    @property
    def busy(self) -> bool:
        """Whether it waits for an answer, or has had one only just now."""
        return asyncio.get_running_loop().time() < self._drawn + _IDLE

    def draw(self, number: int, state: State) -> None:
        """Answer this request instead of the last one."""
        self._wanted, self._drawn = (number, state), math.inf
        self._newer.set()
        if self._drawing is None:
            self._drawing = asyncio.create_task(self._keep_drawing())

    async def _keep_drawing(self) -> None:
        """Answer the newest request, again and again; one that is overtaken is cancelled."""
        while True:
            await self._newer.wait()
            self._newer.clear()
            assert self._wanted is not None
            seen = asyncio.Event()
            answer = asyncio.create_task(self._answer(*self._wanted, seen))
            newer = asyncio.create_task(self._newer.wait())
            try:
                await asyncio.wait({answer, newer}, return_when=asyncio.FIRST_COMPLETED)
                if not answer.done():
                    # Something must be seen while a slider moves all the time.
                    with suppress(TimeoutError):
                        await asyncio.wait_for(seen.wait(), _PATIENCE)
            finally:
                for task in (answer, newer):
                    task.cancel()
                await asyncio.gather(answer, newer, return_exceptions=True)

    async def _answer(self, number: int, state: State, seen: asyncio.Event) -> None:
        """Answer with few points, with more, and at the default accuracy."""
        answer = partial(_numbered, number)
        try:
            picture = Picture(state, self._known)
            try:
                async with asyncio.timeout(_SECONDS):
                    for stage in (FIRST, SCREEN, FINAL):
                        await self._draw_stage(picture, stage, answer)
                        seen.set()
                        # At first all lines are there, with few points.
                        ended = "whole" if stage is FIRST else "done"
                        await self.send(answer(stage, {"kind": ended}))
            except TimeoutError:
                text = f"Stopped after {_SECONDS:.0f} s: ask for fewer points, or use Python."
                await self.send(answer(FINAL, {"kind": "done", "text": text}))
        except (ParameterError, ArithmeticError, MemoryError) as error:
            await self.send({"kind": "error", "number": number, "text": str(error)})
        except _Gone:
            raise
        except Exception as error:  # noqa: BLE001 the page goes on
            await self.send({"kind": "error", "number": number, "text": unexpected(error)})
        finally:
            seen.set()
            if not self._newer.is_set():
                self._drawn = asyncio.get_running_loop().time()

    async def _draw_stage(
        self, picture: Picture, stage: Stage, answer: Callable[[Stage, Piece], Piece]
    ) -> None:
        """Compute what a stage needs, as many batches at once as there are workers, and show it."""
        batches = picture.batches(stage)
        total, done, shown = len(batches), 0, asyncio.get_running_loop().time()
        todo = iter(batches)

        async def consume() -> None:
            nonlocal done, shown
            for batch in todo:
                picture.put(batch, await self._crew.compute(picture.begun(batch)))
                done += 1
                now = asyncio.get_running_loop().time()
                if done < total and (stage is FIRST or now - shown > _BETWEEN):
                    shown = now
                    progress = {"kind": "refining", "done": done, "total": total}
                    await self._show(picture, stage, answer, progress)

        consumers = [asyncio.create_task(consume()) for _ in range(min(self._crew.size, total))]
        try:
            await asyncio.gather(*consumers)
        finally:
            for consumer in consumers:
                consumer.cancel()
            await asyncio.gather(*consumers, return_exceptions=True)
        await self._show(picture, stage, answer)

    async def _show(
        self,
        picture: Picture,
        stage: Stage,
        answer: Callable[[Stage, Piece], Piece],
        *more: Piece,
    ) -> None:
        for piece in (*picture.pieces(), *more):
            await self.send(answer(stage, piece))

    async def simulate(self, state: State) -> None:
        await self.cancel()
        self._simulating = Simulating(state)
        self._counting = asyncio.create_task(self._count(self._simulating))

    async def _count(self, simulating: Simulating) -> None:
        stream = simulating.messages()
        with suppress(_Gone):
            while (message := await run_in_threadpool(next, stream, None)) is not None:
                await self.send(message)
            ended = simulating is not self._simulating
            await self.send({"kind": "simulated", "cancelled": ended})

    async def cancel(self) -> None:
        """End the simulation, if one is under way."""
        simulating, self._simulating = self._simulating, None
        if simulating is not None:
            await run_in_threadpool(simulating.stop)

    async def close(self) -> None:
        for task in (self._drawing, self._counting):
            if task is not None:
                task.cancel()
        await self.cancel()


def _refusal(text: str, status: int) -> Response:
    return JSONResponse({"kind": "error", "text": text}, status, headers=_HEADERS)


def _numbered(number: int, stage: Stage, piece: Piece) -> Piece:
    return {**piece, "number": number, "accuracy": stage.accuracy}


async def _handle(client: _Client, message: dict[str, Any]) -> None:
    """Do what a message asks for; anything else is a ParameterError."""
    kind = message.get("kind")
    if kind == "cancel":
        await client.cancel()
        return
    if kind not in ("draw", "simulate", "text"):
        raise ParameterError("kind", kind, "'draw', 'simulate', 'cancel' or 'text'")
    values = message.get("state")
    if not isinstance(values, dict) or not all(isinstance(name, str) for name in values):
        raise ParameterError("state", type(values).__name__, "an object of values by name")
    state = State.from_values(values)
    if kind == "simulate":
        await client.simulate(state)
    elif kind == "text":
        makers: dict[Any, Callable[[State], str]] = {
            "python": texts.as_python,
            "command": texts.as_command,
            "study": texts.as_study,
        }
        language = message.get("language")
        if not isinstance(language, str) or language not in makers:
            raise ParameterError("language", language, "one of " + ", ".join(makers))
        text = makers[language](state)
        await client.send({"kind": "text", "language": language, "text": text})
    else:
        number = message.get("number")
        if isinstance(number, bool) or not isinstance(number, int):
            raise ParameterError("number", number, "an integer")
        client.draw(number, state)


def _read(text: str) -> dict[str, Any]:
    if len(text) > _MOST_MESSAGE:
        raise ParameterError("message", f"{len(text)} letters", f"at most {_MOST_MESSAGE}")
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        raise ParameterError("message", text[:40], "JSON") from None
    if not isinstance(message, dict):
        raise ParameterError("message", type(message).__name__, "a JSON object")
    return message


async def _prepare(crew: Crew, known: Known, clients: set[_Client]) -> None:
    """Compute the usual settings of views in one worker, while no client waits for an answer."""
    await crew.start()
    for view in _PREPARED:
        picture = Picture(State.from_values({"view": view}), known)
        for stage in (FIRST, SCREEN, FINAL):
            for batch in picture.batches(stage):
                while any(client.busy for client in clients):
                    await asyncio.sleep(_IDLE / 4)
                picture.put(batch, await crew.compute(picture.begun(batch)))


def make_app(hosts: frozenset[str], *, prepare: bool = False) -> Starlette:
    """Return the application that answers under these hosts, such as "127.0.0.1:8719".

    With `prepare` it computes the usual settings before anyone asks.
    """
    clients: set[_Client] = set()
    crew, known, busy = Crew(), Known(), asyncio.Lock()

    async def own_data(request: Request) -> Response:
        return await _own_data(request, busy)

    async def socket(websocket: WebSocket) -> None:
        await _serve(websocket, clients, crew, known)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(_prepare(crew, known, clients))] if prepare else []
        yield
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for client in list(clients):
            await client.close()
        crew.close()

    app = Starlette(
        routes=[
            Route("/", _page),
            Route("/plotly.js", _plotly),
            Route("/about.json", _about),
            Route("/own", own_data, methods=["POST"]),
            Route("/{name}", _page),
            WebSocketRoute("/socket", socket),
        ],
        lifespan=lifespan,
    )
    app.add_middleware(_OnlyThisMachine, hosts=hosts)
    return app


async def _page(request: Request) -> Response:
    found = _PAGE.get(request.path_params.get("name", ""))
    if found is None:
        return PlainTextResponse("There is no such page.", status_code=404, headers=_HEADERS)
    return Response(page_file(found[0]), media_type=found[1], headers=_HEADERS)


async def _plotly(_: Request) -> Response:
    headers = {**_HEADERS, "Cache-Control": "max-age=3600"}
    return Response(plotly_script(), media_type="text/javascript", headers=headers)


async def _about(_: Request) -> Response:
    presets = {
        "presets": [vars(item) for item in PRESETS],
        "tour": [vars(item) for item in TOUR],
    }
    words = {"package": __version__, "crowded": _CROWDED}
    body = {**words, **controls(), "looks": line_looks(), **presets}
    return JSONResponse(body, headers=_HEADERS)


async def _own_data(request: Request, busy: asyncio.Lock) -> Response:
    """Compare classifiers on the data of a request, one at a time."""
    try:
        content = await _limited(request)
        async with busy:
            # Where it takes too long, or nobody waits for it, its process is ended.
            asked = (owndata.compare_classifiers, content)
            found = await _awaited(request, in_a_process(*asked, seconds=_OWN_SECONDS))
    except TimeoutError:
        text = f"Stopped after {_OWN_SECONDS:.0f} s: use fewer samples, or compare() in Python."
        return _refusal(text, 400)
    except (ValueError, MemoryError) as error:
        return _refusal(str(error), 400)
    except ClientDisconnect:
        return _refusal("Nobody waits for this.", 400)
    except asyncio.CancelledError:
        return _refusal("The server has ended.", 503)
    except Exception as error:  # noqa: BLE001 the page shows it
        return _refusal(unexpected(error), 500)
    return JSONResponse(found, headers=_HEADERS)


async def _awaited(request: Request, answer: Coroutine[Any, Any, Any]) -> Any:
    """Return an answer, which is cancelled where the request's client leaves."""
    task = asyncio.create_task(answer)
    try:
        while not task.done():
            await asyncio.wait({task}, timeout=_LOOK)
            if not task.done() and await request.is_disconnected():
                raise ClientDisconnect
        return task.result()
    finally:
        task.cancel()
        await asyncio.wait({task})


async def _serve(websocket: WebSocket, clients: set[_Client], crew: Crew, known: Known) -> None:
    """Answer a tab until it is gone."""
    await websocket.accept()
    if len(clients) >= _MOST_CLIENTS:
        await websocket.close(_CROWDED, "too many tabs are open")
        return
    client = _Client(websocket, crew, known)
    clients.add(client)
    warming = asyncio.create_task(crew.start())
    try:
        while True:
            await _react(client, await _receive(websocket))
    except _Gone:
        pass
    finally:
        clients.discard(client)
        await client.close()
        await warming


async def _receive(websocket: WebSocket) -> str:
    """Return the next message of a tab, which is a text."""
    try:
        return await websocket.receive_text()
    except (WebSocketDisconnect, KeyError, RuntimeError):
        raise _Gone from None


async def _react(client: _Client, text: str) -> None:
    """Do what a message asks for, or say why not."""
    try:
        await _handle(client, _read(text))
    except ParameterError as error:
        await client.send({"kind": "error", "text": str(error)})
    except _Gone:
        raise
    except Exception as error:  # noqa: BLE001 the page goes on
        await client.send({"kind": "error", "text": unexpected(error)})


async def _limited(request: Request) -> bytes:
    """Return the body, refusing it as soon as it is too large."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > owndata.MOST_BYTES:
            raise ParameterError("file", "too large", f"at most {owndata.MOST_BYTES} bytes")
        parts.append(part)
    return b"".join(parts)
