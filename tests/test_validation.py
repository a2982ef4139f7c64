import pickle
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from sparsetoken.validation import ParameterError, choice, integer, real, several, shown


def test_error_is_a_value_error_that_names_parameter_value_and_what_is_accepted() -> None:
    error = ParameterError("ridge", -1, "a number >= 0")
    assert isinstance(error, ValueError)
    assert str(error) == "ridge = -1 is not valid: expected a number >= 0"


def test_error_survives_the_way_back_from_a_worker_process() -> None:
    error = pickle.loads(pickle.dumps(ParameterError("ridge", -1, "a number >= 0")))
    assert (error.parameter, error.value, error.accepted) == ("ridge", -1, "a number >= 0")


def test_an_array_is_shown_on_one_line() -> None:
    assert shown(np.zeros((2, 2))) == "array([[0., 0.], [0., 0.]])"


@pytest.mark.parametrize("value", [3, np.int8(3), np.uint64(3)])
def test_integers_of_any_make_become_int(value: object) -> None:
    result = integer("count", value, low=1)
    assert result == 3
    assert type(result) is int


@pytest.mark.parametrize("value", [True, np.True_, 3.0, np.float64(3), "3", None, [3], 0])
def test_what_is_no_integer_or_too_small_is_refused(value: object) -> None:
    with pytest.raises(ParameterError, match=r"count = .* expected an integer >= 1"):
        integer("count", value, low=1)


@pytest.mark.parametrize("value", [0.5, np.float32(0.5), Fraction(1, 2), np.longdouble("0.5")])
def test_real_numbers_of_any_make_become_float(value: object) -> None:
    result = real("rate", value)
    assert result == 0.5
    assert type(result) is float


@pytest.mark.parametrize(
    "value",
    [True, np.False_, "0.5", None, 0.5j, Decimal("0.5"), np.array([0.5]), np.nan, -np.inf, 10**400],
)
def test_what_is_no_finite_real_number_is_refused(value: object) -> None:
    with pytest.raises(ParameterError, match=r"rate = .* expected a finite number$"):
        real("rate", value)


@pytest.mark.parametrize(
    ("bounds", "accepted", "good", "bad"),
    [
        ({"low": 0}, "a finite number >= 0", [0, 1e300], [-1e-300]),
        ({"low": 0, "inclusive": False}, "a finite number > 0", [1e-300], [0, -0.0]),
        ({"high": 2}, "a finite number <= 2", [2, -1e300], [2.0000001]),
        ({"high": 2, "inclusive": False}, "a finite number < 2", [1.9999999], [2]),
        ({"low": -1, "high": 1}, "a finite number in [-1, 1]", [-1, 0, 1], [-1.01, 1.01]),
        ({"low": 0, "high": 1, "inclusive": False}, "a finite number in (0, 1)", [0.5], [0, 1]),
    ],
)
def test_bounds_of_real_numbers(
    bounds: dict[str, float], accepted: str, good: list[float], bad: list[float]
) -> None:
    for value in good:
        assert real("rate", value, **bounds) == value
    for value in bad:
        with pytest.raises(ParameterError) as caught:
            real("rate", value, **bounds)
        assert caught.value.accepted == accepted


def test_choice_lists_what_is_known() -> None:
    assert choice("colour", "red", ["red", "blue"]) == "red"
    for value in ("green", 3, None):
        with pytest.raises(ParameterError, match="expected one of 'blue', 'red'"):
            choice("colour", value, ["red", "blue"])


@pytest.mark.parametrize("value", [(1, 2), [1, 2], np.array([1, 2]), iter([1, 2]), range(1, 3)])
def test_several_values_may_come_in_any_form(value: object) -> None:
    assert list(several("values", value, "numbers")) == [1, 2]


@pytest.mark.parametrize(
    "value", [3.0, None, "auc", b"auc", {"a": 1}, np.array(3.0), np.float64(3)]
)
def test_one_value_or_a_text_is_not_several(value: object) -> None:
    with pytest.raises(ParameterError, match=r"^values = .* expected a list of numbers$"):
        several("values", value, "numbers")
