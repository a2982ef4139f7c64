"""Simulated dots, in a process of their own that can be ended at any moment."""

from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

from sparsetoken.explorer.computing import finite, share_out
from sparsetoken.explorer.state import SIMULATED, State
from sparsetoken.explorer.views import given_query
from sparsetoken.explorer.workers import ENDED, listen, start_process, unexpected
from sparsetoken.task import ALL_SAMPLES
from sparsetoken.validation import ParameterError

__all__ = ["Simulating", "dot_settings"]


def dot_settings(state: State) -> dict[str, Any]:
    """Return where a simulated dot lies, or say why this view has none."""
    if state.view not in SIMULATED:
        accepted = "learning curves or the query: other views have no simulated dots"
        raise ParameterError("view", state.view, accepted)
    x = state.present(state.over)
    if isinstance(x, str):
        raise ParameterError(state.over, x, "a number, where it is the x axis of simulated dots")
    if state.quantity == "rate_constant":
        accepted = "a quantity that one training has: C is of the limit of many samples"
        raise ParameterError("quantity", state.quantity, accepted)
    classifiers = [name for name in state.classifiers if name != "floor"]
    if not classifiers:
        raise ParameterError("classifiers", state.classifiers, "one that is trained")
    return {"x": x, "classifiers": classifiers}


class Simulating:
    """Trials at a state's settings in a worker process, as a stream of messages."""

    def __init__(self, state: State) -> None:
        dot_settings(state)
        self._connection, self._process = start_process(_work, state)
        self._stopped = False

    def messages(self) -> Iterator[dict[str, Any]]:
        """Yield progress, then a dot for each classifier, until the worker is done or ended."""
        try:
            while (message := self._connection.recv()) is not None:
                yield message
        except (EOFError, OSError):
            if not self._stopped:
                yield {"kind": "error", "text": ENDED}

    def stop(self) -> None:
        """End the worker at once."""
        self._stopped = True
        if self._process.is_alive():
            self._process.kill()
        self._process.join(timeout=5)


def _work(send: Connection, state: State) -> None:
    """Run in the worker: all trials of every line, one after another."""
    listen(send, lambda _: None)
    from sparsetoken.simulation.trials import simulate

    settings = dot_settings(state)
    total = state.trials * len(settings["classifiers"])
    try:
        for number, classifier in enumerate(settings["classifiers"]):
            before = number * state.trials

            def progress(done: int, _: int, before: int = before) -> None:
                send.send({"kind": "progress", "done": before + done, "total": total})

            training = state.training
            if state.over == ALL_SAMPLES:
                training = share_out(training, classifier, settings["x"])
            found = simulate(
                state.task,
                training,
                dimension=state.dimension,
                trials=state.trials,
                classifier=classifier,
                query=given_query(state, classifier),
                check_separable=False,
                progress=progress,
            )
            send.send(
                {
                    "kind": "dot",
                    "name": classifier,
                    "x": settings["x"],
                    "y": finite(found.mean(state.quantity)),
                    "bar": finite(found.standard_error(state.quantity)),
                    "dimension": state.dimension,
                    "trials": state.trials,
                }
            )
    except (ValueError, ArithmeticError, MemoryError) as error:
        send.send({"kind": "error", "text": str(error)})
    except Exception as error:  # noqa: BLE001 the page shows it
        send.send({"kind": "error", "text": unexpected(error)})
    send.send(None)
