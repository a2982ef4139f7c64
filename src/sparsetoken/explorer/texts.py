"""A state in other words: a Python program, a command line, a study file for a sweep."""

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from sparsetoken.explorer.state import State, axis_range
from sparsetoken.task import Query, Task, Training
from sparsetoken.validation import ParameterError

__all__ = ["as_command", "as_python", "as_study"]

_COMMANDS = {
    "learning": "predict",
    "query": "align",
    "capacity": "capacity",
    "strength": "oracle",
    "shift": "predict",
}


def as_python(state: State) -> str:
    """Return a program that computes what the view shows."""
    lines = [f"task = {_call(state.task)}", f"training = {_call(state.training)}"]
    if state.given_query:
        lines.append(f"query = {_call(state.query)}")
    given = ", query=query" if state.given_query else ""
    names = ["Task", "Training"] + (["Query"] if state.given_query else [])
    classifier = next((name for name in state.classifiers if name != "floor"), "attention")
    if classifier != "attention":
        given = f', classifier="{classifier}"'
    over, values = state.over, _value_list(state)
    if state.view == "learning":
        names.append("curve")
        lines += [
            f"found = curve(task, training, over={over!r}, values={values}{given})",
            f"print(found.column({state.quantity!r}))",
        ]
    elif state.view == "shift":
        names.append("curve")
        lines += [
            f'found = curve(task, training, over="at_length", values={values}{given})',
            'print(found.column("test_error"))',
        ]
    elif state.view == "strength":
        names.append("required_strength")
        lines.append(
            f"print(required_strength(task, error={state.error!r}, classifier={classifier!r}))"
        )
    elif state.view == "capacity":
        names.append("capacity")
        lines.append(f"print(capacity(task, training{given}))")
    elif state.view in ("query", "turning", "inside"):
        names.append("align")
        lines.append("print(align(task, training))")
    else:
        names.append("predict")
        lines.append(f"print(predict(task, training{given}))")
    head = f"from sparsetoken import {', '.join(sorted(names))}"
    return "\n".join([head, "", *lines, ""])


def as_command(state: State) -> str:
    """Return a command that computes what the view shows."""
    command = _COMMANDS.get(state.view, "predict")
    parts = ["sparsetoken", command, *_options(state.task)]
    if command != "oracle":
        parts += _options(state.training)
    if state.given_query and command in ("predict", "capacity"):
        parts += _options(state.query)
    if command == "oracle":
        parts += ["--error", f"{state.error!r}"]
    if state.view in _COMMANDS and state.view != "shift":
        start, stop = axis_range(state, state.over, state.start, state.stop)
        parts += ["--over", state.over, "--from", _number(start), "--to", _number(stop)]
        parts += ["--points", str(state.points)]
        if state.logarithmic and start > 0:
            parts.append("--log")
    if state.view == "shift":
        parts += ["--at-length", str(10 * state.task.length)]
    return " ".join(parts)


def as_study(state: State) -> str:
    """Return a study file for `sparsetoken sweep`: the lines of the view, with simulated dots."""
    if state.view != "learning":
        accepted = "the view of learning curves, which a sweep can repeat"
        raise ParameterError("view", state.view, accepted)
    start, stop = axis_range(state, state.over, state.start, state.stop)
    count = min(state.points, 8)
    scale = ', scale = "log"' if state.logarithmic and start > 0 else ""
    axis = f"{{ from = {_number(start)}, to = {_number(stop)}, count = {count}{scale} }}"
    classifiers = [name for name in state.classifiers if name != "floor"]
    lines = [
        'title = "From the explorer"',
        f"classifiers = {json.dumps(classifiers)}",
        f"dimensions = [{state.dimension}]",
        f"trials = {state.trials}",
    ]
    tables: list[tuple[str, Task | Training | Query]] = [
        ("task", state.task),
        ("training", state.training),
    ]
    if state.given_query:
        tables.append(("query", state.query))
    for title, item in tables:
        lines += ["", f"[{title}]"]
        for name, value in item.to_dict().items():
            lines.append(f"{name} = {axis if name == state.over else _toml(value)}")
    lines += ["", "[plot]", f'x = "{state.over}"', f'y = "{state.quantity}"']
    return "\n".join([*lines, ""])


def _call(item: Task | Training | Query) -> str:
    return f"{type(item).__name__}({', '.join(f'{k}={v!r}' for k, v in _set(item).items())})"


def _set(item: Task | Training | Query) -> Mapping[str, Any]:
    """Return the fields that differ from their defaults."""
    return {
        entry.name: getattr(item, entry.name)
        for entry in fields(item)
        if getattr(item, entry.name) != entry.default
    }


def _options(item: Task | Training | Query) -> list[str]:
    parts = []
    for name, value in item.to_dict().items():
        option = "--" + name.replace("_", "-")
        if isinstance(value, bool):
            parts += [option] if value else []
        else:
            parts += [option, _number(value)]
    return parts


def _number(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)


def _toml(value: Any) -> str:
    return json.dumps(value)


def _value_list(state: State) -> str:
    from sparsetoken.explorer.views import FINAL, axis_values

    return repr([round(value, 6) for value in axis_values(state, FINAL)])
