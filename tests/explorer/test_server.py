"""The server by its own protocol: answers, refusals, and messages that mean harm."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator

import numpy as np
import pytest
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from sparsetoken.explorer import server as server_module
from sparsetoken.explorer.owndata import read_arrays
from sparsetoken.explorer.server import make_app
from sparsetoken.explorer.snapshot import write_snapshot
from sparsetoken.explorer.state import State
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


def test_drawing_answers_twice_and_says_the_address(client: TestClient) -> None:
    with client.websocket_connect(SOCKET, headers=ORIGIN) as socket:
        socket.send_text(json.dumps({"kind": "draw", "number": 1, "state": LIGHT}))
        first, second = until(socket, "done"), until(socket, "done")
    assert (first["accuracy"], second["accuracy"]) == ("screen", "final")
    assert State.from_address(second["address"]) == State.from_values(LIGHT)


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
        assert "fewer points" in until(socket, "error")["text"]


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


def test_own_data_are_compared(client: TestClient) -> None:
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 30)
    X = rng.standard_normal((60, 4, 3))
    X[30:, 0, 0] += 4
    found = client.post("/own", headers=ORIGIN, content=packed(X=X, y=y)).json()
    assert found["kind"] == "own"
    assert "attention" in found["text"].lower()
    assert np.allclose(np.sum(found["weights"], axis=1), 1)


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


# A process that is started in the background ignores the signal unless it is told not to.
PROGRAM = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from sparsetoken.cli import main
main(["explore", "--no-browser"])
"""


def test_ctrl_c_ends_the_server_at_once(tmp_path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    )
    assert process.stdout is not None
    address = re.search(r"http://[\d.:]+/", process.stdout.readline())
    assert address is not None
    for _ in range(100):
        try:
            with urllib.request.urlopen(address[0], timeout=5) as page:
                assert b"sparsetoken" in page.read()
            break
        except OSError:
            time.sleep(0.1)
    os.kill(process.pid, signal.SIGINT)
    process.communicate(timeout=20)
    assert process.returncode in (0, 130, -signal.SIGINT)
