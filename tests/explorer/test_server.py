"""The server by its own protocol: answers, refusals, and messages that mean harm."""

import asyncio
import io
import json
import multiprocessing
import os
import re
import signal
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from starlette.requests import ClientDisconnect
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from sparsetoken.explorer import server as server_module
from sparsetoken.explorer.owndata import read_arrays
from sparsetoken.explorer.picture import Known, Picture
from sparsetoken.explorer.running import _hosts, _listen
from sparsetoken.explorer.server import _awaited, make_app
from sparsetoken.explorer.simulating import Simulating
from sparsetoken.explorer.snapshot import write_snapshot
from sparsetoken.explorer.state import State
from sparsetoken.explorer.views import FINAL, FIRST, SCREEN
from sparsetoken.explorer.workers import ENDED, Crew, in_a_process
from sparsetoken.plotting import LOOKS
from sparsetoken.validation import ParameterError

HOST = "127.0.0.1:8719"
SOCKET = f"ws://{HOST}/socket"
ORIGIN = {"origin": f"http://{HOST}"}
LIGHT = {"view": "learning", "classifiers": ["pooled"], "points": 3, "ridge": 0.01}


@pytest.fixture
def client() -> Iterator[TestClient]:
    with TestClient(make_app(frozenset({HOST})), base_url=f"http://{HOST}") as found:
        yield found


def until(socket, *kinds: str) -> dict:
    for _ in range(500):
        message = json.loads(socket.receive_text())
        if message["kind"] in kinds:
            return message
    raise AssertionError(kinds)


def test_the_page_and_its_files(client: TestClient) -> None:
    page = client.get("/")
    assert page.status_code == 200
    assert "default-src 'none'" in page.headers["content-security-policy"]
    for name in re.findall(r'(?:src|href)="([\w.]+)"', page.text):
        assert client.get(f"/{name}").status_code == 200, name
    assert "plotly.js v" in client.get("/plotly.js").text[:500]
    about = client.get("/about.json").json()
    assert about["views"]["learning"]["title"] == "Learning curves"
    assert len(about["tour"]) == 5
    drawn = about["looks"]["pooled"]
    look = LOOKS["pooled"]
    assert (drawn["label"], drawn["colour"], drawn["symbol"]) == (look.label, look.colour, "square")


@pytest.mark.parametrize(
    "path", ["/server.py", "/../state.py", "/%2e%2e/state.py", "/page/app.js", "/etc/passwd", "/x"]
)
def test_nothing_else_is_served(client: TestClient, path: str) -> None:
    assert client.get(path).status_code == 404


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"host": "localhost"},
    ],
)
def test_foreign_hosts_and_origins_are_refused(client: TestClient, headers: dict) -> None:
    assert client.get("/", headers=headers).status_code == 403
    assert client.post("/own", headers=headers, content=b"x").status_code == 403
    with pytest.raises(WebSocketDisconnect), client.websocket_connect(SOCKET, headers=headers):
        pass


def test_a_socket_or_an_upload_without_an_origin_is_refused(client: TestClient) -> None:
    assert client.post("/own", content=b"x").status_code == 403
    with pytest.raises(WebSocketDisconnect), client.websocket_connect(SOCKET):
        pass


def test_drawing_answers_twice(client: TestClient) -> None:
    with client.websocket_connect(SOCKET, headers=ORIGIN) as socket:
        socket.send_text(json.dumps({"kind": "draw", "number": 1, "state": LIGHT}))
        line = until(socket, "line")
        first, second = until(socket, "done"), until(socket, "done")
    assert (line["name"], line["accuracy"]) == ("pooled", "screen")
    assert (first["accuracy"], second["accuracy"]) == ("screen", "final")


def test_a_new_request_makes_the_last_one_stale(client: TestClient) -> None:
    heavy = {"view": "map", "start": 1, "stop": 8}
    with client.websocket_connect(SOCKET, headers=ORIGIN) as socket:
        for number in range(1, 6):
            socket.send_text(json.dumps({"kind": "draw", "number": number, "state": heavy}))
        socket.send_text(json.dumps({"kind": "draw", "number": 9, "state": LIGHT}))
        found = until(socket, "done")
    assert found["number"] == 9


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "1",
        '"draw"',
        "[" * 5000,
        '{"kind": "fly"}',
        '{"kind": "draw"}',
        '{"kind": "draw", "number": 1, "state": 5}',
        '{"kind": "draw", "number": "1", "state": {}}',
        '{"kind": "draw", "number": true, "state": {}}',
        '{"kind": "draw", "number": 1, "state": {"length": 1e300}}',
        '{"kind": "draw", "number": 1, "state": {"length": [1]}}',
        '{"kind": "draw", "number": 1, "state": {"strength": "NaN"}}',
        '{"kind": "draw", "number": 1, "state": {"__class__": "x"}}',
        '{"kind": "draw", "number": 1, "state": {"pins": [{"a": 1}]}}',
        '{"kind": "draw", "number": 1, "state": {"loss": "os.system"}}',
        '{"kind": "text", "language": "perl", "state": {}}',
        '{"kind": "text", "language": ["python"], "state": {}}',
        '{"kind": "simulate", "state": {"view": "map"}}',
        '{"kind": "simulate", "state": {"trials": 10000000}}',
        "x" * 20_000,
    ],
)
def test_hostile_messages_get_one_clear_error_and_the_socket_lives(
    client: TestClient, text: str
) -> None:
    with client.websocket_connect(SOCKET, headers=ORIGIN) as socket:
        socket.send_text(text)
        message = until(socket, "error")
        assert "is not valid: expected" in message["text"]
        socket.send_text(json.dumps({"kind": "text", "language": "command", "state": {}}))
        assert until(socket, "text")["text"].startswith("sparsetoken predict")


def test_binary_messages_close_the_socket_only(client: TestClient) -> None:
    with client.websocket_connect(SOCKET, headers=ORIGIN) as socket:
        socket.send_bytes(b"\x00")
    assert client.get("/").status_code == 200


def test_too_many_tabs_are_refused(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "_MOST_CLIENTS", 1)
    with client.websocket_connect(SOCKET, headers=ORIGIN) as socket:
        socket.send_text('{"kind": "cancel"}')
        second = client.websocket_connect(SOCKET, headers=ORIGIN)
        with second as late, pytest.raises(WebSocketDisconnect):
            late.receive_text()


def test_a_computation_that_takes_too_long_says_so(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "_SECONDS", 0.0)
    with client.websocket_connect(SOCKET, headers=ORIGIN) as socket:
        socket.send_text(json.dumps({"kind": "draw", "number": 1, "state": LIGHT}))
        assert "fewer points" in until(socket, "done")["text"]


def test_simulation_gives_dots_and_can_be_cancelled(client: TestClient) -> None:
    small = {**LIGHT, "dimension": 20, "trials": 2}
    with client.websocket_connect(SOCKET, headers=ORIGIN) as socket:
        socket.send_text(json.dumps({"kind": "simulate", "state": small}))
        dot = until(socket, "dot")
        assert dot["x"] == 4.0
        assert 0 < dot["y"] < 0.6
        assert until(socket, "simulated")["cancelled"] is False
        long = {**LIGHT, "dimension": 1000, "trials": 200}
        socket.send_text(json.dumps({"kind": "simulate", "state": long}))
        socket.send_text(json.dumps({"kind": "cancel"}))
        assert until(socket, "simulated")["cancelled"] is True


def packed(**arrays) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def bomb() -> bytes:
    """Return a small file that unpacks to a hundred million bytes."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("X.npy", bytes(10**8))
    return file.getvalue()


def unmarked() -> bytes:
    """Return a file whose arrays do not begin as numpy's do."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("X.npy", b"12")
        archive.writestr("y.npy", b"34")
    return file.getvalue()


def test_own_data_are_compared(client: TestClient) -> None:
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 30)
    X = rng.standard_normal((60, 4, 3))
    X[30:, 0, 0] += 4
    found = client.post("/own", headers=ORIGIN, content=packed(X=X, y=y)).json()
    assert found["kind"] == "own"
    assert "attention" in found["text"].lower()
    assert np.allclose(np.sum(found["weights"], axis=1), 1)


def test_classes_that_a_fold_would_miss_are_named(client: TestClient) -> None:
    X = np.random.default_rng(0).standard_normal((40, 3, 2))
    for y in ((np.arange(40) < 2).astype(int), np.arange(40) % 11):
        answered = client.post("/own", headers=ORIGIN, content=packed(X=X, y=y))
        assert answered.status_code == 400
        assert "at least 5 sequences of each class" in answered.json()["text"]


def test_what_nobody_foresaw_is_told_and_the_page_lives(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object, **__: object) -> str:
        raise StopIteration("no more")

    monkeypatch.setattr(server_module.texts, "as_python", broken)
    monkeypatch.setattr(server_module, "in_a_process", broken)
    with client.websocket_connect(SOCKET, headers=ORIGIN) as socket:
        for language in ("python", "command"):
            message = {"kind": "text", "language": language, "state": {}}
            socket.send_text(json.dumps(message))
        assert "should not happen" in until(socket, "error")["text"]
        assert until(socket, "text")["language"] == "command"
    answered = client.post("/own", headers=ORIGIN, content=b"")
    assert "should not happen" in answered.json()["text"]
    assert [record.message for record in caplog.records].count("unexpected") == 2


def test_a_comparison_ends_when_nobody_waits_for_it() -> None:
    class Left:
        async def is_disconnected(self) -> bool:
            return True

    before = set(multiprocessing.active_children())
    begin = time.monotonic()
    with pytest.raises(ClientDisconnect):
        asyncio.run(_awaited(Left(), in_a_process(time.sleep, 600, seconds=600)))  # type: ignore[arg-type]
    assert time.monotonic() - begin < 100
    for process in set(multiprocessing.active_children()) - before:
        process.join(timeout=20)
        assert not process.is_alive()


def test_a_simulation_that_the_system_ends_says_so() -> None:
    long = State.from_values({**LIGHT, "dimension": 1000, "trials": 200})
    for end, told in (("kill", [ENDED]), ("stop", [])):
        simulating = Simulating(long)
        stream = simulating.messages()
        assert next(stream)["kind"] == "progress"
        simulating._process.kill() if end == "kill" else simulating.stop()
        rest = [message["text"] for message in stream if message["kind"] != "progress"]
        assert rest == told
        simulating.stop()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"over": "informative", "informative": "poisson:2"}, "informative = 'poisson:2'"),
        ({"view": "query", "quantity": "rate_constant"}, "quantity = 'rate_constant'"),
        ({"classifiers": ["floor"]}, "one that is trained"),
    ],
)
def test_dots_that_no_simulation_has_are_refused_at_once(values: dict, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        Simulating(State.from_values(values))


def test_hosts_are_named_as_a_browser_does() -> None:
    assert _hosts(8719) == ["127.0.0.1:8719", "localhost:8719"]
    assert {"127.0.0.1", "localhost"} <= set(_hosts(80))


def test_a_process_of_its_own_ends_with_its_call_and_hands_on_errors() -> None:
    async def calls() -> None:
        assert await in_a_process(sorted, [2, 1], seconds=60) == [1, 2]
        with pytest.raises(ParameterError, match="npz"):
            await in_a_process(read_arrays, b"", seconds=60)
        with pytest.raises(TimeoutError):
            await in_a_process(time.sleep, 600, seconds=0.5)
        call = asyncio.create_task(in_a_process(time.sleep, 600, seconds=600))
        await asyncio.sleep(0.5)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    before = set(multiprocessing.active_children())
    begin = time.monotonic()
    asyncio.run(calls())
    assert time.monotonic() - begin < 100
    for process in set(multiprocessing.active_children()) - before:
        process.join(timeout=20)
        assert not process.is_alive()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "npz"),
        (b"PK\x03\x04 broken", "npz"),
        (packed(X=np.zeros((20, 2, 2))), "X and y"),
        (packed(X=np.zeros((20, 2)), y=np.zeros(20)), "tokens"),
        (packed(X=np.full((20, 2, 2), np.nan), y=np.zeros(20)), "finite"),
        (packed(X=np.array([object()] * 20), y=np.zeros(20)), "npz"),
        (packed(X=np.zeros((20, 2, 2)), y=np.zeros(3)), "y"),
        (packed(X=np.zeros((20, 2, 2)), y=np.array([b"a", b"b"] * 10)), "numbers or texts"),
        (unmarked(), "X that is no array"),
        (bomb(), "at most 83886080 bytes"),
    ],
)
def test_bad_files_are_refused_in_words(content: bytes, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        read_arrays(content)


def test_a_snapshot_needs_nothing_from_outside(tmp_path) -> None:
    path = tmp_path / "page.html"
    write_snapshot(State.from_values(LIGHT), path)
    text = path.read_text(encoding="utf-8")
    assert '"kind": "line"' in text
    body = text[text.index("<body>") :]
    assert not re.search(r'(?:src|href)="', body)
    assert "curve(task, training" in body
    assert not re.search(r"^\s*(?:export|import) ", body, re.MULTILINE)  # no part of it is a module


def test_the_worker_of_a_stale_request_is_free_at_once(client: TestClient) -> None:
    """A point that takes many seconds is not waited for: its worker is replaced."""
    slow = {"view": "strength", "classifiers": ["attention"], "start": 5000, "stop": 9000}
    with client.websocket_connect(SOCKET, headers=ORIGIN) as socket:
        socket.send_text(json.dumps({"kind": "draw", "number": 0, "state": LIGHT}))
        until(socket, "done")
        for number in range(1, 9):
            socket.send_text(json.dumps({"kind": "draw", "number": number, "state": slow}))
            time.sleep(0.4)
        quick = {"view": "query", "points": 3}
        socket.send_text(json.dumps({"kind": "draw", "number": 9, "state": quick}))
        # Each of the eight has points that take seconds: they are not waited for.
        begin = time.monotonic()
        while until(socket, "done", "error")["number"] != 9:
            pass
    assert time.monotonic() - begin < 4


def test_small_messages_do_not_wait_for_the_last_one() -> None:
    async def accepted() -> int:
        found: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        async def look(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            own = writer.get_extra_info("socket")
            found.set_result(own.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        listening = _listen(None)
        async with await asyncio.start_server(look, sock=listening):
            _, writer = await asyncio.open_connection(*listening.getsockname())
            answer = await found
            writer.close()
        return answer

    assert asyncio.run(accepted()) != 0


def test_usual_settings_are_computed_ahead_while_no_client_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Waiting:
        """A client that waits for its answer the first times that it is looked at."""

        looks = 0

        @property
        def busy(self) -> bool:
            self.looks += 1
            assert self.looks > 3 or known.points.size == 0
            return self.looks <= 3

    async def prepare() -> None:
        crew = Crew(1)
        await server_module._prepare(crew, known, {client})
        crew.close()

    monkeypatch.setattr(server_module, "_PREPARED", ("query",))
    client, known = Waiting(), Known()
    asyncio.run(prepare())
    assert client.looks > 3
    picture = Picture(State.from_values({"view": "query"}), known)
    assert [picture.batches(stage) for stage in (FIRST, SCREEN, FINAL)] == [[], [], []]


# A process that is started in the background ignores the signal unless it is told not to.
PROGRAM = """
import signal
if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    from sparsetoken.cli import main
    main(["explore", "--no-browser"])
"""


def family(process: int) -> list[int]:
    """Return a process and all that descend from it."""
    found = [process]
    for children in Path(f"/proc/{process}/task").glob("*/children"):
        with suppress(OSError):
            for child in children.read_text().split():
                found += family(int(child))
    return found


def running(process: int) -> bool:
    """Return whether a process is there and is no mere entry of one that has ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs a list of processes")
@pytest.mark.parametrize(
    "ending",
    [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow), signal.SIGKILL],
)
def test_a_signal_ends_the_server_and_all_that_it_started(ending: int, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    command = [sys.executable, str(program)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        assert process.stdout is not None
        address = re.search(r"http://([\d.:]+)/", process.stdout.readline())
        assert address is not None
        origin = f"http://{address[1]}"
        with suppress(ConnectionClosed), connect(f"ws://{address[1]}/socket", origin=origin) as tab:
            heavy = {"view": "strength", "start": 5000, "stop": 9000}
            tab.send(json.dumps({"kind": "draw", "number": 1, "state": heavy}))
            until_text(tab, "line")
            long = {**LIGHT, "dimension": 200, "trials": 200}
            tab.send(json.dumps({"kind": "simulate", "state": long}))
            until_text(tab, "progress")
            started = family(process.pid)
            assert len(started) > 4
            os.kill(process.pid, ending)
            process.communicate(timeout=30)
        for _ in range(200):
            left = [member for member in started if running(member)]
            if not left:
                break
            time.sleep(0.05)
    assert left == []
    assert process.returncode in (0, 130, -ending)


def until_text(tab: ClientConnection, kind: str) -> None:
    while json.loads(tab.recv(timeout=120))["kind"] != kind:
        pass
