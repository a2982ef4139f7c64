"""How long a slider of the explorer waits: from its message to the first and to the final answer.

    python benchmarks/explorer_latency.py [--events 200] [--views learning query ...] [--dash]

For each view a slider (the signal's strength) runs along a path of events. "First" is the time from
the message to the first line or row at screen accuracy, "screen" to the last one, and "final" to
the end of the refined answer after the slider has come to rest. With --dash the learning-curve view
is written in Dash too (pip install dash), with the same lines at the default accuracy, and asked for
the same path in the same run.
"""

import argparse
import asyncio
import json
import re
import subprocess
import sys
import time
import urllib.request
from typing import Any

import numpy as np
import websockets

from sparsetoken.explorer.state import VIEWS

LIGHT = {"classifiers": "attention,pooled"}

DASH = """
import numpy as np, sys
from dash import Dash, Input, Output, dcc, html
import plotly.graph_objects as go
from sparsetoken import Task, Training, curve
app = Dash(__name__)
app.layout = html.Div([dcc.Slider(1, 10, value=5, id="s"), dcc.Graph(id="g")])
@app.callback(Output("g", "figure"), Input("s", "value"))
def draw(strength):
    task, training = Task(10, 1, strength), Training(4.0, 4.0, ridge=1e-5, query_step=50.0)
    figure = go.Figure()
    for name in ("attention", "pooled"):
        found = curve(task, training, values=np.geomspace(0.1, 100, 24), classifier=name)
        figure.add_scatter(x=list(found.values), y=found.column("test_error"), name=name)
    return figure
app.run(port=int(sys.argv[1]), debug=False)
"""


async def path(url: str, view: str, events: int) -> dict[str, list[float]]:
    """Move the slider along its path and return the waiting times, in seconds."""
    times: dict[str, list[float]] = {"first": [], "screen": [], "final": []}
    values: dict[str, Any] = {"view": view, "points": 24}
    if view in ("learning", "map", "shift", "strength", "capacity"):
        values["classifiers"] = [
            name for name in ("attention", "pooled") if name in VIEWS[view].classifiers
        ]
    origin = url.rstrip("/")
    async with websockets.connect(
        url.replace("http", "ws") + "socket", origin=origin, max_size=None
    ) as socket:
        strengths = 5 + 3 * np.sin(np.linspace(0, 6, events))
        for number, strength in enumerate(strengths):
            begin = time.perf_counter()
            state = {**values, "strength": float(strength)}
            await socket.send(json.dumps({"kind": "draw", "number": number, "state": state}))
            rest = number % 20 == 19  # now and then the slider comes to rest
            first = True
            while True:
                message = json.loads(await socket.recv())
                if message.get("number") != number:
                    continue
                if message["kind"] == "error":
                    raise RuntimeError(message["text"])
                if first:
                    times["first"].append(time.perf_counter() - begin)
                    first = False
                if message["kind"] == "done" and message["accuracy"] == "screen":
                    times["screen"].append(time.perf_counter() - begin)
                    if not rest:
                        break
                if message["kind"] == "done" and message["accuracy"] == "final":
                    times["final"].append(time.perf_counter() - begin)
                    break
    return times


def dash_times(events: int) -> list[float]:
    """Return the waiting times of the same view in Dash."""
    process = subprocess.Popen([sys.executable, "-c", DASH, "8722"], stderr=subprocess.DEVNULL)
    body = {
        "output": "g.figure",
        "outputs": {"id": "g", "property": "figure"},
        "changedPropIds": ["s.value"],
    }
    times = []
    try:
        for strength in 5 + 3 * np.sin(np.linspace(0, 6, events)):
            inputs = [{"id": "s", "property": "value", "value": float(strength)}]
            request = urllib.request.Request(
                "http://127.0.0.1:8722/_dash-update-component",
                json.dumps({**body, "inputs": inputs}).encode(),
                {"Content-Type": "application/json"},
            )
            for _ in range(100):
                begin = time.perf_counter()
                try:
                    with urllib.request.urlopen(request, timeout=120) as answer:
                        answer.read()
                    break
                except OSError:
                    time.sleep(0.3)
            times.append(time.perf_counter() - begin)
    finally:
        process.kill()
    return times


def show(name: str, times: list[float]) -> str:
    """Return median and 95th percentile in milliseconds."""
    if not times:
        return f"{name} -"
    middle, high = 1000 * np.percentile(times, [50, 95])
    return f"{name} {middle:.0f} / {high:.0f} ms"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=200)
    parser.add_argument("--views", nargs="*", default=sorted(VIEWS))
    parser.add_argument("--dash", action="store_true")
    options = parser.parse_args()
    command = [sys.executable, "-m", "sparsetoken", "explore", "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        found = re.search(r"http://[\d.:]+/", server.stdout.readline())
        assert found is not None
        time.sleep(1)
        try:
            print("median / 95th percentile")
            for view in options.views:
                times = asyncio.run(path(found[0], view, options.events))
                print(f"{view:9}", ", ".join(show(name, part) for name, part in times.items()))
        finally:
            server.terminate()
    if options.dash:
        print("learning curves in Dash:", show("answer", dash_times(options.events)))


if __name__ == "__main__":
    main()
