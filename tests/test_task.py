import dataclasses
import json
import math
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsetoken import ParameterError, Query, Task, Training, loss_names
from sparsetoken.informative import ACCEPTED
from sparsetoken.task import spaced

Settings = Task | Training | Query

EXAMPLES: dict[type[Settings], dict[str, Any]] = {
    Task: {"length": 10, "informative": 3, "strength": 5.0, "positive_rate": 0.25},
    Training: {
        "alpha0": 2.0,
        "alpha1": 4.0,
        "loss": "square",
        "ridge": 0.1,
        "readout_step": 0.3,
        "bias_step": 0.0,
        "query_step": 2.0,
        "inverse_temperature": 1.5,
        "reuse": False,
    },
    Query: {"alignment": 0.5, "sharpness": 2.0},
}
CLASSES = list(EXAMPLES)

NOT_REAL = [math.nan, math.inf, -math.inf, "1", None, True, 1j]
NOT_INTEGER = [2.5, 3.0, math.nan, math.inf, "3", None, True]
POSITIVE = [0, -1, -1e-9, *NOT_REAL]

BAD_VALUES: list[tuple[type[Settings], str, list[Any], str]] = [
    (Task, "length", [1, 0, -3, 2**63, *NOT_INTEGER], "an integer in [2, 1000000000]"),
    (Task, "informative", [0, -1], "an integer in [1, 1000000000]"),
    (Task, "informative", [2.5, 3.0, math.nan, math.inf, "x", None, True], ACCEPTED),
    (Task, "informative", [10, 11, 10**9], "an integer below length = 10"),
    (
        Task,
        "strength",
        [-1e-9, 1e-10, 1e200, *NOT_REAL],
        "0, or a finite number in [1e-09, 1000000]",
    ),
    (
        Task,
        "positive_rate",
        [0, 1, -0.1, 1.1, 1e-320, *NOT_REAL],
        "a finite number in [1e-09, 0.999999999]",
    ),
    (
        Training,
        "loss",
        ["huber", None, 3],
        (
            "one of 'hinge', 'logistic', 'square', 'squared_hinge', or a loss that `register_loss` "
            "made known in this process"
        ),
    ),
    (
        Training,
        "ridge",
        [-1e-9, 1e-300, 1e7, *NOT_REAL],
        "0, or a finite number in [1e-12, 1000000]",
    ),
    (Training, "bias_step", [-1e-9, 1e7, *NOT_REAL], "0, or a finite number in [1e-09, 1000000]"),
    *(
        (Training, name, [1e7, *POSITIVE], f"a finite number in [{low}, 1000000]")
        for name, low in (
            ("alpha0", "1e-06"),
            ("alpha1", "1e-06"),
            ("readout_step", "1e-09"),
            ("query_step", "1e-09"),
            ("inverse_temperature", "1e-09"),
        )
    ),
    (Training, "reuse", [1, 0, "yes", None], "True or False"),
    (Query, "alignment", [-1.0000001, 1.0000001, *NOT_REAL], "a finite number in [-1, 1]"),
    (
        Query,
        "sharpness",
        [-1e-9, *(value for value in NOT_REAL if value != math.inf)],
        "a finite number >= 0, or infinity",
    ),
]


@pytest.mark.parametrize(
    ("made", "name", "value", "accepted"),
    [(made, name, value, text) for made, name, values, text in BAD_VALUES for value in values],
)
def test_bad_value_is_refused_by_name(
    made: type[Settings], name: str, value: Any, accepted: str
) -> None:
    with pytest.raises(ParameterError) as caught:
        made(**{**EXAMPLES[made], name: value})
    assert str(caught.value) == f"{name} = {value!r} is not valid: expected {accepted}"


def test_every_field_has_its_bad_values_and_a_description() -> None:
    covered = {(made, name) for made, name, _, _ in BAD_VALUES}
    for made in CLASSES:
        for field in dataclasses.fields(made):
            assert (made, field.name) in covered
            assert field.metadata["description"]


@pytest.mark.parametrize("made", CLASSES)
def test_objects_are_frozen_hashable_and_picklable(made: type[Settings]) -> None:
    one, same = made(**EXAMPLES[made]), made(**EXAMPLES[made])
    assert one == same
    assert len({one, same}) == 1
    assert pickle.loads(pickle.dumps(one)) == one
    for name in EXAMPLES[made]:
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(one, name, 1)
    with pytest.raises((AttributeError, TypeError)):
        one.misspelt = 1  # type: ignore[union-attr]


@pytest.mark.parametrize("made", CLASSES)
def test_numpy_scalars_become_plain_values(made: type[Settings]) -> None:
    values = {
        name: np.array(value)[()] if not isinstance(value, str) else value
        for name, value in EXAMPLES[made].items()
    }
    one = made(**values)
    assert one == made(**EXAMPLES[made])
    assert all(type(value) in (bool, int, float, str) for value in one.to_dict().values())
    assert made.from_dict(json.loads(json.dumps(one.to_dict()))) == one


def test_replace_gives_a_new_validated_object() -> None:
    task = Task(length=10, informative=3, strength=5)
    longer = task.replace(length=20)
    assert (task.length, longer.length) == (10, 20)
    assert longer.replace(length=10) == task
    with pytest.raises(ParameterError, match="informative = 3 is not valid"):
        task.replace(length=3)
    with pytest.raises(ParameterError, match="Task field = 'lenght' is not valid: expected one of"):
        task.replace(lenght=3)


def test_from_dict_names_what_is_missing_or_unknown() -> None:
    with pytest.raises(ParameterError, match="expected values for informative, strength"):
        Task.from_dict({"length": 10})
    with pytest.raises(ParameterError, match="Query field = 'gamma'"):
        Query.from_dict({"gamma": 1.0})
    assert Training.from_dict({"alpha0": 1, "alpha1": 2}) == Training(alpha0=1, alpha1=2)


def test_defaults() -> None:
    assert Training(1, 2).to_dict() == {
        "alpha0": 1.0,
        "alpha1": 2.0,
        "loss": "logistic",
        "ridge": 1e-3,
        "readout_step": 0.5,
        "bias_step": 0.5,
        "query_step": 1.0,
        "inverse_temperature": 1.0,
        "reuse": False,
    }


def reals(made: type[Settings], name: str) -> Any:
    """Draw what a field accepts, both ends included, and 0 where that is allowed."""
    limits = next(f.metadata for f in dataclasses.fields(made) if f.name == name)
    inside = st.floats(limits["low"], limits["high"])
    return inside | st.just(0.0) if limits["or_zero"] else inside


TASKS = st.integers(2, 10**6).flatmap(
    lambda length: st.builds(
        Task,
        st.just(length),
        st.integers(1, length - 1),
        reals(Task, "strength"),
        reals(Task, "positive_rate"),
    )
)
TRAININGS = st.builds(
    Training,
    reals(Training, "alpha0"),
    reals(Training, "alpha1"),
    loss=st.sampled_from(loss_names()),
    ridge=reals(Training, "ridge"),
    readout_step=reals(Training, "readout_step"),
    bias_step=reals(Training, "bias_step"),
    query_step=reals(Training, "query_step"),
    inverse_temperature=reals(Training, "inverse_temperature"),
)
QUERIES = st.builds(Query, reals(Query, "alignment"), reals(Query, "sharpness"))


@given(st.one_of(TASKS, TRAININGS, QUERIES))
def test_dictionaries_round_trip(one: Settings) -> None:
    again = type(one).from_dict(json.loads(json.dumps(one.to_dict())))
    assert again == one
    assert hash(again) == hash(one)
    assert one.replace() == one


def test_a_value_too_long_to_show_is_cut() -> None:
    with pytest.raises(ParameterError, match=r"length = 1111111.* \.\.\. .*11 is not valid"):
        Task(int("1" * 4000), 1, 1.0)
    with pytest.raises(ParameterError, match="length = <a int that cannot be shown"):
        Task(10**5000, 1, 1.0)


@pytest.mark.parametrize(
    ("training", "shared", "whole"),
    [
        (Training(3.0, 1.0), (6.0, 2.0), 4.0),
        (Training(2.0, 2.0, reuse=True), (8.0, 8.0), 2.0),
    ],
)
def test_all_samples_are_shared_out_as_before(
    training: Training, shared: tuple[float, float], whole: float
) -> None:
    assert training.alpha == whole
    more = training.share_out(8.0)
    assert (more.alpha0, more.alpha1, more.alpha, more.reuse) == (*shared, 8.0, training.reuse)
    for_readout = training.all_for_the_readout()
    assert (for_readout.alpha1, for_readout.reuse) == (whole, False)
    with pytest.raises(ParameterError, match="alpha = 0"):
        training.share_out(0)


def test_values_of_a_field_are_spaced_evenly_or_by_factors_and_whole_where_it_is_whole() -> None:
    assert spaced("strength", 1.0, 4.0, 3, by_factors=False) == [1.0, 2.5, 4.0]
    assert spaced("strength", 1.0, 4.0, 3, by_factors=True) == pytest.approx([1.0, 2.0, 4.0])
    for name in ("length", "at_length", "informative"):
        assert spaced(name, 2, 4, 5, by_factors=False) == [2, 3, 4]
