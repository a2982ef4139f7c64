"""How long a slider of the explorer waits: from its message to the first and to the final answer.

    python benchmarks/explorer_latency.py [--events 200] [--views learning query ...] [--dash PYTHON]

For each view a slider runs along a path of events, the next one as soon as all lines were drawn anew;
every tenth time it comes to rest. "First" is the time from the message to the first line or map that
can be drawn, "whole" to the last of them, with few points, "screen" to more points, still at screen
accuracy, "number" to the values at the present settings at the package's default accuracy, and
"final" to the end of the refined answer. Beside the time on the clock stands the processor time that
the server and its workers took, and that of the longest way, the server and the busiest worker: what
the clock would show at least if nothing had to wait. A busy machine stretches the clock alone.

With --dash the learning-curve view written in Dash (benchmarks/explorer_dash.py) is asked for a tenth
of the same path in the same run, by the interpreter of an environment that has dash and this package.
"""

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import websockets

from sparsetoken.explorer.state import VIEWS

# A slider of each view that is not on its axis, and the way it goes.
SLIDERS = {
    "learning": ("strength", 5.0, 3.0),
    "query": ("strength", 5.0, 3.0),
    "turning": ("strength", 5.0, 3.0),
    "strength": ("positive_rate", 0.5, 0.3),
    "capacity": ("alpha0", 4.0, 3.0),
    "map": ("query_step", 50.0, 30.0),
    "shift": ("strength", 5.0, 3.0),
    "inside": ("strength", 5.0, 3.0),
}
REST = 10
DASH_PORT = 8722
MARKS = ("first", "whole", "screen", "number", "final")


class Meter:
    """Processor time of a process and of all that descend from it, also of those that have ended."""

    def __init__(self, process: int) -> None:
        self.process = process
        self._read: dict[int, float] = {}

    def read(self) -> dict[int, float]:
        """Return the time of each of them so far, in seconds."""
        for member in self._family(self.process):
            known = self._read.get(member, 0.0)
            self._read[member] = max(known, self._of_threads(member), self._of_process(member))
        return dict(self._read)

    def _of_threads(self, process: int) -> float:
        """Return what the threads that are there took, to the nanosecond."""
        total = 0
        for thread in _listed(f"/proc/{process}/task"):
            with suppress(OSError):
                total += int((thread / "schedstat").read_text().split()[0])
        return total / 1e9

    def _of_process(self, process: int) -> float:
        """Return what a process took, also in threads that have ended, to a hundredth of a second."""
        with suppress(OSError):
            words = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
        return 0.0

    def _family(self, process: int) -> Iterator[int]:
        yield process
        for thread in _listed(f"/proc/{process}/task"):
            with suppress(OSError):
                for child in (thread / "children").read_text().split():
                    yield from self._family(int(child))


def _listed(folder: str) -> list[Path]:
    """Return what is in a folder, nothing if it is gone: processes come and go."""
    with suppress(OSError):
        return list(Path(folder).iterdir())
    return []


class Stopwatch:
    """Times since it was made, on the clock and of the processors."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._begin = time.perf_counter(), meter.read()

    def read(self) -> tuple[float, float, float]:
        """Return times so far in seconds: on the clock, of all processes, of the longest way.

        The longest way is the server and the worker that had most to do: without waiting for a
        processor, for others or for messages no answer is sooner there.
        """
        clock = time.perf_counter() - self._begin[0]
        took = {
            process: seconds - self._begin[1].get(process, 0.0)
            for process, seconds in self._meter.read().items()
        }
        workers = [seconds for process, seconds in took.items() if process != self._meter.process]
        return clock, sum(took.values()), took[self._meter.process] + max(workers, default=0.0)


def way(view: str, events: int) -> list[float]:
    """Return the values of the slider, none of them twice."""
    _, middle, swing = SLIDERS[view]
    return list(middle + swing * np.sin(np.linspace(0, 2 * np.pi * np.sqrt(5), events)))


async def path(url: str, view: str, events: int, meter: Meter) -> dict[str, list[Any]]:
    """Move the slider along its path and return the waiting times, in seconds."""
    times: dict[str, list[Any]] = {mark: [] for mark in MARKS}
    address, origin = url.replace("http", "ws") + "socket", url.rstrip("/")
    async with websockets.connect(address, origin=origin, max_size=None) as socket:
        for number, value in enumerate(way(view, events)):
            state = {"view": view, SLIDERS[view][0]: float(value)}
            message = {"kind": "draw", "number": number, "state": state}
            watch = Stopwatch(meter)
            await socket.send(json.dumps(message))
            seen = await answers(socket, number, watch, final=number % REST == REST - 1)
            for mark, reading in seen.items():
                times[mark].append(reading)
    return times


async def answers(socket: Any, number: int, watch: Stopwatch, final: bool) -> dict[str, Any]:
    """Return when an answer came: its first line, all of them, screen accuracy, its end."""
    seen: dict[str, Any] = {}
    while True:
        message = json.loads(await socket.recv())
        if message.get("number") != number:
            continue
        if message["kind"] == "error":
            raise RuntimeError(message["text"])
        if message["kind"] in ("line", "map", "tokens"):
            seen.setdefault("first", watch.read())
        if message["kind"] == "whole":
            seen["whole"] = watch.read()
            if not final:
                return seen
        if message["kind"] == "numbers" and message["accuracy"] == "final":
            seen.setdefault("number", watch.read())
        if message["kind"] == "done":
            seen[message["accuracy"]] = watch.read()
            if message["accuracy"] == "final":
                return seen


def dash_times(python: str, events: int) -> list[tuple[float, ...]]:
    """Return the waiting times of the same view in Dash."""
    program = str(Path(__file__).with_name("explorer_dash.py"))
    times = []
    with subprocess.Popen([python, program, str(DASH_PORT)], stderr=subprocess.DEVNULL) as process:
        meter = Meter(process.pid)
        try:
            for strength in [5.0, *way("learning", events)]:
                watch = Stopwatch(meter)
                ask_dash(strength)
                times.append(watch.read())
        finally:
            process.kill()
    return times[1:]  # the first one waits for the server to start


def ask_dash(strength: float) -> None:
    """Move the slider of the page in Dash, and wait for the figure."""
    body = {
        "output": "graph.figure",
        "outputs": {"id": "graph", "property": "figure"},
        "inputs": [{"id": "strength", "property": "value", "value": strength}],
        "changedPropIds": ["strength.value"],
    }
    request = urllib.request.Request(
        f"http://127.0.0.1:{DASH_PORT}/_dash-update-component",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    for _ in range(200):
        try:
            with urllib.request.urlopen(request, timeout=300) as answer:
                answer.read()
                return
        except (ConnectionError, urllib.error.URLError):
            time.sleep(0.2)
    raise RuntimeError("the page in Dash does not answer")


def percentiles(times: list[tuple[float, ...]]) -> list[str]:
    """Return median and 95th percentile in milliseconds, of each kind of time."""
    return [
        f"{middle:.0f} / {high:.0f}"
        for middle, high in 1000 * np.percentile(np.array(times), [50, 95], axis=0).T
    ]


def table(found: dict[str, dict[str, list[Any]]], cell: Callable[[list[str]], str]) -> str:
    """Return a table of all views, as the documents have it."""
    rows = [["view", *MARKS], ["---"] * (1 + len(MARKS))]
    for view, times in found.items():
        shown = [cell(percentiles(times[mark])) if times[mark] else "" for mark in MARKS]
        rows.append([VIEWS[view].title.lower(), *shown])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows).replace("|  |", "| |")


def main() -> None:
    """Print tables of all views: for docs/explorer.md, and with processor times for the README."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=200)
    parser.add_argument("--views", nargs="*", default=list(VIEWS))
    parser.add_argument("--dash", metavar="PYTHON")
    options = parser.parse_args()
    loaded = [options.dash, "-c", "import dash, sparsetoken"]
    if options.dash and subprocess.run(loaded, check=False).returncode:
        parser.error(f"{options.dash} has no dash, or not this package: -m pip install dash .")
    command = [sys.executable, "-m", "sparsetoken", "explore", "--no-browser"]
    print("processes that wanted a processor, before:", os.getloadavg(), flush=True)
    times: dict[str, dict[str, list[Any]]] = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        found = re.search(r"http://[\d.:]+/", server.stdout.readline())
        assert found is not None
        meter = Meter(server.pid)
        try:
            for view in options.views:
                asyncio.run(path(found[0], "query", 5, meter))  # all is loaded
                times[view] = asyncio.run(path(found[0], view, options.events, meter))
                print(view, percentiles(times[view]["final"]), file=sys.stderr, flush=True)
        finally:
            server.terminate()
    print("\nmedian / 95th percentile in ms on the clock\n")
    print(table(times, lambda shown: shown[0]))
    print("\nthe same (of all processors)\n")
    print(table(times, lambda shown: f"{shown[0]} ({shown[1]})"))
    print("\nthe same (of the longest way: the server and its busiest worker)\n")
    print(table(times, lambda shown: f"{shown[0]} ({shown[2]})"))
    if options.dash:
        dash = percentiles(dash_times(options.dash, options.events // 10))
        print(f"\nlearning curves in Dash: {dash[0]} ({dash[1]}) ms for their only answer")


if __name__ == "__main__":
    main()
