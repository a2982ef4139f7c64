"""A state in other words: a Python program, command lines, a study file for a sweep.

Each is written from the lines of the view itself, so that it gives the numbers that the page shows.
"""

import json
import math
from collections.abc import Collection, Mapping
from dataclasses import fields, replace
from typing import Any

from sparsetoken.explorer.computing import Source, share_out, takes_query
from sparsetoken.explorer.state import State, axis_range
from sparsetoken.explorer.views import DEFAULT, FINAL, MAP, Line, axis_values, lines_of, map_axes
from sparsetoken.planning.study_text import toml_value
from sparsetoken.records import METRICS
from sparsetoken.task import ALL_SAMPLES, Query, Task, Training
from sparsetoken.theory.chosen_query import LEARNING
from sparsetoken.validation import ParameterError

__all__ = ["as_command", "as_python", "as_study"]

_MAPS = ("map", "turning")


def as_python(state: State) -> str:
    """Return a program that computes what the view shows."""
    if state.view == "inside":
        return _program(state, _INSIDE_NAMES, _inside(state), ["import numpy as np"])
    numpy = ["import numpy as np"]
    if state.view in _MAPS:
        return _program(state, *_map_program(state), numpy)
    names: set[str] = set()
    body = [f"values = {_values_text(state)}"]
    for line in lines_of(state):
        name, expression = _expression(line, state)
        names.add(name)
        body.append(f"print({line.name!r}, {expression})")
    return _program(state, names, body, numpy)


def _program(state: State, names: set[str], body: list[str], imports: list[str]) -> str:
    """Return a program: imports, the settings, and what is done with them."""
    used = "\n".join(body)
    settings = []
    for name, item in (("task", state.task), ("training", state.training), ("query", state.query)):
        if name in used and not (name == "query" and not state.given_query):
            settings.append(f"{name} = {_call(item)}")
            names = names | {type(item).__name__}
    head = [*imports, f"from sparsetoken import {', '.join(sorted(names))}"]
    return "\n".join([*head, "", *settings, *body, ""])


def _values_text(state: State) -> str:
    """Return the values of the x axis as code."""
    found = axis_values(state)
    start, stop = axis_range(state, state.over, state.start, state.stop)
    spaced = "geomspace" if state.logarithmic and start > 0 and stop > 0 else "linspace"
    text = f"np.{spaced}({_number(start)}, {_number(stop)}, {state.points})"
    if isinstance(found[0], int):
        return f"np.unique({text}.round()).astype(int).tolist()"
    return f"{text}.tolist()"


def _expression(line: Line, state: State) -> tuple[str, str]:
    """Return the public function that a line comes from, and the code for its values."""
    source = line.source
    if source.kind == "predict" and source.over == ALL_SAMPLES:
        return _shared_expression(line)
    if source.kind == "predict":
        return _curve_expression(line)
    if source.kind == "floor":
        if source.over == ALL_SAMPLES:
            training = _varied_texts(state.over, "value", state)["training"]
            all_samples = state.over == ALL_SAMPLES
            values = "values" if all_samples else f"[{training}.alpha for value in values]"
            return "floor_curve", f"floor_curve(task, values={values}).column('test_error')"
        options = f"over={source.over!r}, values=values, alpha={dict(source.options)['alpha']!r}"
        return "floor_curve", f"floor_curve(task, {options}).column('test_error')"
    settings = _varied_texts(source.over, "value", state)
    if source.kind == "align":
        call = f"align({settings['task']}, {settings['training']}).{source.quantity}"
        return "align", f"[{call} for value in values]"
    if source.kind == "strength":
        options = f"error={state.error!r}, classifier={source.classifier!r}"
        call = f"required_strength({settings['task']}, {options}).strength"
        return "required_strength", f"[{call} for value in values]"
    given = f", query={settings['query']}" if source.query is not None else ""
    options = f"classifier={source.classifier!r}{given}"
    if source.query is None and takes_query(source.classifier):
        options = f"training={settings['training']}, {options}"
    return "capacity", f"[capacity({settings['task']}, {options}).alpha for value in values]"


def _shared_expression(line: Line) -> tuple[str, str]:
    """Return the code of a line over all samples, which query and readout share."""
    source = line.source
    learns = takes_query(source.classifier)
    training = f"training.{'share_out(value)' if learns else 'replace(alpha1=value)'}"
    query = ", query=query" if source.query is not None else ""
    options = f"classifier={source.classifier!r}{query}"
    value = "metrics('auc')['auc']" if source.quantity == "auc" else source.quantity
    call = f"predict(task, {training}, {options}).{value}"
    return "predict", f"[{call} for value in values]"


def _curve_expression(line: Line) -> tuple[str, str]:
    source = line.source
    options = [f"classifier={source.classifier!r}"]
    options += ["query=query"] if source.query is not None else []
    options += [
        f"{name}={'np.inf' if value == math.inf else repr(value)}" for name, value in source.options
    ]
    if line.accuracy != DEFAULT:
        options.append(f"tolerance={line.accuracy.final!r}")
    # A line without a query is flat over the fields of one, and one with it over its learning.
    flat = len(set(line.asked)) == 1 and len(line.x) > 1
    over = f"over={source.over!r}, values={'[training.alpha1]' if flat else 'values'}"
    call = f"curve(task, training, {over}, {', '.join(options)})"
    if source.quantity == "auc":
        return "curve", f"[found.metrics('auc')['auc'] for found in {call}]"
    return "curve", f"{call}.column({source.quantity!r})"


def _varied_texts(over: str, value: str, state: State) -> dict[str, str]:
    """Return task, training and query as code, with one field changed in the one that has it."""
    texts = {}
    for name, item in (("task", state.task), ("training", state.training), ("query", state.query)):
        changed = [over] if over in item.to_dict() else []
        if changed and name == "training" and state.training.reuse and over.startswith("alpha"):
            changed = ["alpha0", "alpha1"]
        changes = ", ".join(f"{part}={value}" for part in changed)
        texts[name] = f"{name}.replace({changes})" if changes else name
    return texts


def _map_program(state: State) -> tuple[set[str], list[str]]:
    """Return the names and the lines of a program that makes a map."""
    across, up, _ = map_axes(state)
    body = [f"across = {across!r}", f"up = {up!r}"]
    if state.view == "turning":
        first, second = (
            _varied_texts(name, value, state)
            for name, value in ((state.over, "x"), (state.second, "y"))
        )
        settings = ", ".join(
            first[name] + second[name].removeprefix(name) for name in ("task", "training")
        )
        call = f"align({settings}).alignment"
        return {"align"}, [*body, f"print([[{call} for x in across] for y in up])"]
    learner = next(filter(takes_query, state.classifiers), None)
    if state.given_query and learner is not None:
        varied = _varied_texts(state.second, "y", state)
        settings = ", ".join([varied["task"], varied["training"]])
        options = f"classifier={learner!r}, query={varied['query']}, tolerance={MAP.final}"
        if state.over in LEARNING:
            call = f"predict({settings}, {options}).{state.quantity}"
            return {"predict"}, [*body, f"print([[{call}] * len(across) for y in up])"]
        call = f"curve({settings}, over={state.over!r}, values=across, {options}).column({state.quantity!r})"
        return {"curve"}, [*body, f"print([{call} for y in up])"]
    axes = f"x=({state.over!r}, across), y=({state.second!r}, up)"
    options = f"classifiers={list(state.classifiers)!r}, with_capacity=True"
    return {"phase_map"}, [
        *body,
        f"found = phase_map(task, training, {axes}, {options})",
        "print(found)",
        "print(found.errors, found.capacities)",
    ]


_INSIDE_NAMES = {"align", "sample"}


def _inside(state: State) -> list[str]:
    learnt = [] if state.given_query else ["query = align(task, training).query"]
    options = f"dimension=2, rng=np.random.default_rng({state.draw}), signal=[1.0, 0.0]"
    return [
        *learnt,
        "# In the plane of the signal and the query, which is all that counts.",
        f"drawn = sample(task.replace(positive_rate=1 - 1e-9), 1, {options})",
        "direction = [query.alignment, (1 - query.alignment**2) ** 0.5]",
        "scores = drawn.X[0] @ direction",
        "weights = np.exp(query.sharpness * (scores - scores.max()))",
        "print(scores, weights / weights.sum(), np.flatnonzero(drawn.positions[0]))",
    ]


def as_command(state: State) -> str:
    """Return commands that compute what the view shows, one for each line."""
    if state.view == "map":
        return _map_command(state)
    if state.view == "turning":  # its row at the present settings
        row = lines_of(state)[0]
        source = replace(row.source, task=state.task, training=state.training)
        return _line_command(replace(row, source=source), state, FINAL.fine_side)
    if state.view == "inside":  # the query that looks at the tokens
        return _command(replace(lines_of(state)[0].source, query=None), [])
    return "\n".join(_line_command(line, state, state.points) for line in lines_of(state))


def _line_command(line: Line, state: State, points: int) -> str:
    source = line.source
    if source.over == "at_length":
        # At test time one length is asked for at a time.
        return _command(source, ["--at-length", str(line.x[len(line.x) // 2])])
    if source.over == ALL_SAMPLES:
        # No option varies both parts of the samples: the present ones alone. The points of a floor
        # lie elsewhere than those of the other lines.
        total = state.training.alpha
        shared = share_out(state.training, source.classifier, total)
        options = (("alpha", total),) if source.kind == "floor" else source.options
        return _command(replace(source, training=shared, options=options), [])
    flat = len(line.x) > 1 and line.keys[0] == line.keys[1]
    return _command(source, [] if flat else _axis_options(state, source, points))


# The commands of all kinds of lines; the others have the query of their settings.
_COMMANDS = {"floor": "floor", "strength": "oracle", "capacity": "capacity", "predict": "predict"}


def _command(source: Source, more: list[str]) -> str:
    """Return the command of a line, with the options that it reads; those of its axis in `more`."""
    command = _COMMANDS.get(source.kind, "align")
    varied = source.varied if "--over" in more else ()
    parts = ["sparsetoken", command, *_options(source.settings(), leave=varied)]
    if command in ("oracle", "capacity", "predict"):
        parts += ["--classifier", source.classifier]
    parts += _options(dict(source.options))
    if source.quantity == "auc":
        parts += ["--metric", "auc"]
    return " ".join([*parts, *more])


def _axis_options(state: State, source: Source, points: int) -> list[str]:
    start, stop = axis_range(state, state.over, state.start, state.stop)
    # Samples that are reused are one field, whose name is that of the part that is read.
    over = next(name for name in source.varied if name in source.settings())
    parts = ["--over", over, "--from", _number(start), "--to", _number(stop)]
    parts += ["--points", str(points)]
    return [*parts, "--log"] if state.logarithmic and start > 0 else parts


def _map_command(state: State) -> str:
    start, stop = axis_range(state, state.over, state.start, state.stop)
    low, high = axis_range(state, state.second, state.second_start, state.second_stop)
    settings = {**state.task.to_dict(), **state.training.to_dict()}
    varied = [state.over, state.second]
    if state.training.reuse and not {"alpha0", "alpha1"}.isdisjoint(varied):
        varied += ["alpha0", "alpha1"]
    parts = ["sparsetoken map", *_options(settings, leave=varied)]
    parts += ["--x", state.over, _number(start), _number(stop)]
    parts += ["--log-x"] if state.logarithmic and start > 0 else []
    parts += ["--y", state.second, _number(low), _number(high)]
    parts += ["--log-y" if low > 0 else "--linear-y"]
    parts += [part for name in state.classifiers for part in ("--classifier", name)]
    return " ".join([*parts, "--points", str(FINAL.side), "--capacity"])


def as_study(state: State) -> str:
    """Return a study file for `sparsetoken sweep`: the lines of the view, with simulated dots."""
    if state.view != "learning":
        accepted = "the view of learning curves, which a sweep can repeat"
        raise ParameterError("view", state.view, accepted)
    if state.over == ALL_SAMPLES:
        raise ParameterError("over", state.over, "one field of the settings, for a sweep")
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
        *([f"metrics = {json.dumps([state.quantity])}"] if state.quantity in METRICS else []),
    ]
    tables: list[tuple[str, Task | Training | Query]] = [
        ("task", state.task),
        ("training", state.training),
    ]
    given = state.given_query and any(map(takes_query, classifiers))
    if given:
        tables.append(("query", state.query))
    for title, item in tables:
        lines += ["", f"[{title}]"]
        for name, value in item.to_dict().items():
            lines.append(f"{name} = {axis if name == state.over else toml_value(value)}")
    column = "query_" * (state.over in state.query.to_dict()) + state.over
    x = [f'x = "{column}"'] if given or column == state.over else []
    lines += ["", "[plot]", *x, f'y = "{state.quantity}"']
    return "\n".join([*lines, ""])


def _call(item: Task | Training | Query) -> str:
    return f"{type(item).__name__}({', '.join(f'{k}={_code(v)}' for k, v in _set(item).items())})"


def _code(value: Any) -> str:
    return "float('inf')" if value == math.inf else repr(value)


def _set(item: Task | Training | Query) -> Mapping[str, Any]:
    """Return the fields that differ from their defaults."""
    usual = {entry.name: entry.default for entry in fields(item)}
    return {name: value for name, value in item.to_dict().items() if value != usual[name]}


def _options(values: Mapping[str, Any], leave: Collection[str] = ()) -> list[str]:
    """Return values as options of a command, without those that are to be left out."""
    parts = []
    for name, value in values.items():
        option = "--" + name.replace("_", "-")
        if name in leave or value is False:
            continue
        parts += [option] if value is True else [option, _number(value)]
    return parts


def _number(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)
