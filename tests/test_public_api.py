"""Every public function asks for what it needs in the same way."""

import inspect
import itertools
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import is_dataclass
from enum import Enum

import click
import numpy as np
import pytest

import sparsetoken
from sparsetoken import BinomialCount, CountLaw, ParameterError, Query, Step, Task, Training, sample
from sparsetoken.cli import main

FUNCTIONS = {
    name: inspect.signature(getattr(sparsetoken, name)).parameters.values()
    for name in sparsetoken.__all__
    if inspect.isfunction(getattr(sparsetoken, name))
}
# (X, y) are one set of data.
THREE_OBJECTS = {"forecast": "model X y", "learn_direction": "task X y"}
THREE_OBJECTS["train"] = "query_data readout_data training"


METHODS = {
    f"{one.__name__}.{name}": list(inspect.signature(method).parameters.values())[1:]
    for one in (getattr(sparsetoken, name) for name in sparsetoken.__all__)
    if inspect.isclass(one)
    for name, method in inspect.getmembers(one, inspect.isfunction)
    # Not what scikit-learn makes, such as `set_fit_request`, nor what a mixin of it brings along.
    if not name.startswith("_") and method.__module__.startswith("sparsetoken")
}
# scikit-learn calls these two so; laws of counts are written by users as well, with this call.
THREE_OF_METHODS = {"fit": "X y sample_weight", "score": "X y sample_weight"}
THREE_OF_METHODS["draw"] = "length size rng"


# What a user makes: not results, nor errors and the like, which are tuples or derive from them.
CONSTRUCTORS = {
    name: list(inspect.signature(one).parameters.values())
    for name in sparsetoken.__all__
    if inspect.isclass(one := getattr(sparsetoken, name))
    and (not is_dataclass(one) or issubclass(one, CountLaw | Task | Training | Query | Step))
    and not issubclass(one, tuple | Exception | Enum)
}


def test_there_are_functions_and_methods_to_look_at() -> None:
    assert len(FUNCTIONS) > 40
    assert len(METHODS) > 150


@pytest.mark.parametrize("name", METHODS)
def test_what_a_method_takes_after_its_objects_has_to_be_named(name: str) -> None:
    names = [one.name for one in METHODS[name] if one.kind is one.POSITIONAL_OR_KEYWORD]
    assert len(names) <= 2 or " ".join(names) == THREE_OF_METHODS[name.split(".")[1]]
    assert not {"k", "mask", "target", "groups", "client"} & set(names)


@pytest.mark.parametrize("name", CONSTRUCTORS)
def test_what_an_object_is_made_of_has_to_be_named_after_two(name: str) -> None:
    names = [one.name for one in CONSTRUCTORS[name] if one.kind is one.POSITIONAL_OR_KEYWORD]
    # The README and every page write a task so.
    assert len(names) <= 2 or (name, len(names)) == ("Task", 4)


def test_rates_cannot_be_swapped() -> None:
    assert {"Task", "Training", "Query", "Step", "PoissonCount"} < set(CONSTRUCTORS)
    with pytest.raises(TypeError, match="positional"):
        Training(4, 2, "square", 0.1, 0.5, 0.5, 20.0)  # type: ignore[misc]
    with pytest.raises(TypeError, match="positional"):
        Step(2.0, 1.0, 0.5, 2.0)  # type: ignore[misc]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_comes_after_the_objects_has_to_be_named(name: str) -> None:
    objects = [one for one in FUNCTIONS[name] if one.kind is one.POSITIONAL_OR_KEYWORD]
    names = [one.name for one in objects]
    assert len(names) <= 2 or " ".join(names) == THREE_OBJECTS[name]
    assert [one.name for one in objects if one.default is not one.empty] in ([], ["training"])


def test_arguments_stand_in_the_same_order_everywhere() -> None:
    seen: dict[tuple[str, str], str] = {}
    every = {**FUNCTIONS, **METHODS, **CONSTRUCTORS}
    del every["Study"]  # the keys of a file
    for function, parameters in every.items():
        for pair in itertools.combinations([one.name for one in parameters], 2):
            seen.setdefault(pair, function)
            assert pair[::-1] not in seen, f"{pair} in {function} and {seen.get(pair[::-1])}"


def described(text: str | None) -> set[str]:
    """Return the names of the arguments that a docstring describes."""
    section = (text or "").partition("Parameters\n")[2].partition("\nReturns\n")[0]
    listed = re.findall(r"^(\*{0,2}\w+(?:, \*{0,2}\w+)*)(?: :|$)", section, re.MULTILINE)
    return {one.strip("* ") for line in listed for one in line.split(",")}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_argument_is_documented(name: str) -> None:
    text = inspect.getdoc(getattr(sparsetoken, name))
    assert {one.name for one in FUNCTIONS[name]} <= described(text)


@pytest.mark.parametrize("name", METHODS)
def test_every_argument_of_a_method_is_documented(name: str) -> None:
    owner, method = name.split(".")
    text = inspect.getdoc(getattr(getattr(sparsetoken, owner), method))
    assert {one.name for one in METHODS[name]} <= described(text)


def options(command: click.Command, name: str = "") -> Iterator[tuple[str, click.Parameter]]:
    for parameter in command.params:
        yield name, parameter
    for below in getattr(command, "commands", {}).values():
        yield from options(below, f"{name} {below.name}".strip())


def test_workers_have_one_default_in_python_and_on_the_command_line() -> None:
    defaults = {
        name: one.default
        for name, parameters in FUNCTIONS.items()
        for one in parameters
        if one.name == "workers"
    }
    assert len(defaults) > 5
    assert set(defaults.values()) == {1}
    asked = {
        name: option.get_default(click.Context(main))
        for name, option in options(main)
        if option.name == "workers"
    }
    assert len(asked) > 5
    assert set(asked.values()) == {1}


def test_workers_are_no_more_than_the_cores_that_a_process_may_use() -> None:
    told = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); import click;"
        "from sparsetoken.cli.plan import plan; from sparsetoken.explorer.workers import Crew;"
        "option, = (one for one in plan.params if one.name == 'workers');"
        "print(option.type.convert('all', option, click.Context(plan)), Crew().size)"
    )
    result = subprocess.run([sys.executable, "-c", told], capture_output=True, check=True)
    assert result.stdout.split() == [b"1", b"1"]


def test_functions_have_workers_and_a_seed_where_scikit_learn_s_classes_have_other_words() -> None:
    for name, parameters in FUNCTIONS.items():
        assert not {"n_jobs", "random_state"} & {one.name for one in parameters}, name


@pytest.mark.parametrize(
    ("path", "point"),
    [
        ("curve", "predict"),
        ("capacity_curve", "capacity"),
        ("floor_curve", "floor"),
        ("strength_curve", "required_strength"),
    ],
)
def test_a_curve_has_the_defaults_of_its_points(path: str, point: str) -> None:
    defaults = [
        {one.name: one.default for one in FUNCTIONS[name] if one.kind is one.KEYWORD_ONLY}
        for name in (path, point)
    ]
    shared = set(defaults[0]) & set(defaults[1])
    assert "tolerance" in shared
    assert {defaults[0][name] == defaults[1][name] for name in shared} == {True}


def test_seeds_are_0_unless_another_is_named() -> None:
    seeds = [one for parameters in FUNCTIONS.values() for one in parameters if one.name == "seed"]
    assert len(seeds) > 8
    assert {one.default for one in seeds} == {0}


def test_every_simulation_has_as_many_trials_unless_asked_for_others() -> None:
    asked = {
        name: one.default
        for name, parameters in FUNCTIONS.items()
        for one in parameters
        if one.name == "trials" and name.startswith("simulate")
    }
    assert asked == dict.fromkeys(
        ("simulate", "simulate_descent", "simulate_joint", "simulate_message_passing"), 8
    )


def test_rng_is_whatever_numpy_makes_a_generator_of() -> None:
    task, law = Task(4, BinomialCount(0.4), 2.0), BinomialCount(0.4)
    wanted = sample(task, 9, dimension=5, rng=np.random.default_rng(3))
    for same in (3, np.random.SeedSequence(3), np.random.PCG64(3), np.int64(3)):
        assert np.array_equal(sample(task, 9, dimension=5, rng=same).X, wanted.X)
    assert not np.array_equal(sample(task, 9, dimension=5, rng=None).X, wanted.X)
    assert np.array_equal(law.draw(4, 50, 3), law.draw(4, 50, np.random.default_rng(3)))


@pytest.mark.parametrize("bad", [-1, 1.5, "3", True, object()])
def test_what_is_no_generator_is_refused(bad: object) -> None:
    with pytest.raises(ParameterError, match=r"^rng = .* expected a numpy.random.Generator, an"):
        sample(Task(4, 1, 2.0), 9, dimension=5, rng=bad)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="rng"):
        BinomialCount(0.4).draw(4, 50, bad)  # type: ignore[arg-type]
