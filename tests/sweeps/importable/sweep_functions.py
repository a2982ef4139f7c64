"""Trials for the tests of the engine: cheap, and troublesome in ways that settings choose."""

import os
import random
import signal
import time
from pathlib import Path
from typing import Any

Settings = dict[str, Any]


def nothing(_settings: Settings, _trial: int) -> dict[str, Any]:
    return {}


def noisy(settings: Settings, trial: int) -> dict[str, Any]:
    """Give numbers that depend on the arguments alone, after settings["sleep"] seconds."""
    time.sleep(settings.get("sleep", 0.0))
    rng = random.Random(f"{settings['slope']} {trial}")
    return {"value": settings["slope"] * rng.gauss(), "positive": rng.random() < 0.5, "none": None}


def doubled(settings: Settings) -> dict[str, Any]:
    """Stand in for the theory."""
    return {"value": 2 * settings["slope"]}


def process(_settings: Settings, _trial: int) -> dict[str, Any]:
    return {"pid": os.getpid(), "threads": os.environ["OPENBLAS_NUM_THREADS"]}


def leave_trace(settings: Settings, trial: int) -> int:
    """Write down that this trial has begun, and return how often it had before."""
    trace = Path(settings["traces"]) / f"{settings['slope']}-{trial}"
    with trace.open("a") as file:
        file.write(f"{os.getpid()}\n")
    return len(trace.read_text().split()) - 1


def fails(settings: Settings, trial: int) -> dict[str, Any]:
    """Raise in trial settings["bad"], the first settings["times"] times."""
    if trial == settings["bad"] and leave_trace(settings, trial) < settings["times"]:
        raise RuntimeError("deliberately bad")
    return noisy(settings, trial)


def dies(settings: Settings, trial: int) -> dict[str, Any]:
    """Kill its own process in trial settings["bad"], the first settings["times"] times."""
    if trial == settings["bad"] and leave_trace(settings, trial) < settings["times"]:
        os.kill(os.getpid(), signal.SIGKILL)
    return noisy(settings, trial)


def traced(settings: Settings, trial: int) -> dict[str, Any]:
    """Leave a trace before the work and another, "done", after it."""
    leave_trace(settings, trial)
    result = noisy(settings, trial)
    with (Path(settings["traces"]) / f"{settings['slope']}-{trial}").open("a") as file:
        file.write("done\n")
    return result


def tell_blocked_signals(connection: Any) -> None:
    """Stand in for a worker: tell which signals were blocked while Python started."""
    connection.send(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
