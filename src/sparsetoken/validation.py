"""Checks of single parameters, and the one error that all bad input raises."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "ParameterError",
    "boolean",
    "callback",
    "choice",
    "generator",
    "instance",
    "integer",
    "path",
    "real",
    "rectangular",
    "several",
    "shown",
]

_SHOWN = 200


class ParameterError(ValueError):
    """A parameter has a value that is not accepted.

    Parameters
    ----------
    parameter : str
        Name of the parameter.
    value : object
        The value that was given.
    accepted : str
        What would be accepted, as the end of a sentence ("a number > 0").

    Examples
    --------
    >>> from sparsetoken import ParameterError, Task
    >>> try:
    ...     Task(length=10, informative=1, strength=-1.0)
    ... except ParameterError as error:
    ...     error.parameter, error.value
    ('strength', -1.0)
    """

    def __init__(self, parameter: str, value: object, accepted: str) -> None:
        super().__init__(parameter, value, accepted)
        self.parameter = parameter
        self.value = value
        self.accepted = accepted

    def __str__(self) -> str:
        return f"{self.parameter} = {shown(self.value)} is not valid: expected {self.accepted}"


def shown(value: object) -> str:
    """Return a value as messages show it: whole if it is short, its ends if it is long."""
    try:
        text = re.sub(r"\s*\n\s*", " ", repr(value))  # arrays break their lines
    except Exception as error:  # noqa: BLE001 (an integer of 5,000 digits has no text, for one)
        return f"<a {type(value).__name__} that cannot be shown: {error}>"
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN // 2]} ... {text[-_SHOWN // 4 :]}"


def integer(parameter: str, value: object, *, low: int, high: int | None = None) -> int:
    """Return `value` as an int if it is an integer >= `low`, and <= `high` if that is given."""
    accepted = f"an integer >= {low}" if high is None else f"an integer in [{low}, {high}]"
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise ParameterError(parameter, value, accepted)
    number = int(value)
    if number < low or (high is not None and number > high):
        raise ParameterError(parameter, value, accepted)
    return number


def real(
    parameter: str,
    value: object,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    inclusive: bool = True,
    infinite: bool = False,
) -> float:
    """Return `value` as a float if it is within [low, high], or (low, high), and finite.

    With `infinite`, infinity is accepted too.
    """
    accepted = f"a finite number{_interval(low, high, inclusive)}"
    if infinite:
        accepted += ", or infinity"
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ParameterError(parameter, value, accepted)
    try:
        number = float(value)
    except OverflowError:
        raise ParameterError(parameter, value, accepted) from None
    inside = low <= number <= high if inclusive else low < number < high
    if not inside or not (math.isfinite(number) or (infinite and number > 0)):
        raise ParameterError(parameter, value, accepted)
    return number


def boolean(parameter: str, value: object) -> bool:
    """Return `value` as a bool if it is one, numpy's included."""
    kind = type(value)
    if not (kind is bool or (kind.__module__ == "numpy" and kind.__name__ in ("bool", "bool_"))):
        raise ParameterError(parameter, value, "True or False")
    return bool(value)


def choice(parameter: str, value: object, options: Iterable[str]) -> str:
    """Return `value` if it is one of `options`."""
    known = sorted(options)
    if not isinstance(value, str) or value not in known:
        raise ParameterError(parameter, value, "one of " + ", ".join(map(repr, known)))
    return value


def callback(parameter: str, value: object) -> None:
    """Raise an error unless `value` is None or can be called, before there is much to tell it."""
    if not (value is None or callable(value)):
        raise ParameterError(parameter, value, "a function, or None")


def several(parameter: str, value: Any, of: str) -> Iterator[Any]:
    """Return an iterator over a value if it has several entries: no single one, nor a text."""
    # numpy's arrays without an axis look iterable and are not.
    if not isinstance(value, str | bytes | Mapping) and getattr(value, "shape", None) != ():
        try:
            return iter(value)
        except TypeError:
            pass
    raise ParameterError(parameter, value, f"a list of {of}")


def path(parameter: str, value: Any) -> Path:
    """Return a path from a text or whatever else names a file."""
    if not isinstance(value, str | PathLike) or "\0" in str(value):
        raise ParameterError(parameter, value, "a path")
    return Path(value)


def rectangular(parameter: str, value: Any) -> "np.ndarray[Any, Any]":
    """Return an array of a value whose rows have one length."""
    import numpy as np

    try:
        return np.asarray(value)
    except (TypeError, ValueError):
        accepted = "an array, or lists that all have one length"
        raise ParameterError(parameter, value, accepted) from None


def instance(parameter: str, value: object, kind: type, *, optional: bool = False) -> None:
    """Raise an error unless `value` is an object of that class, or None if that is allowed."""
    if not (isinstance(value, kind) or (optional and value is None)):
        article = "an" if kind.__name__[0] in "AEIOU" else "a"
        raise ParameterError(parameter, value, f"{article} {kind.__name__}")


def generator(parameter: str, value: Any) -> "np.random.Generator":
    """Return a generator of random numbers from what `numpy.random.default_rng` takes (SPEC 7)."""
    import numpy as np

    accepted = "a numpy.random.Generator, an integer >= 0 to make one from, or None"
    if isinstance(value, bool | float):
        raise ParameterError(parameter, value, accepted)
    try:
        return np.random.default_rng(value)
    except (TypeError, ValueError):
        raise ParameterError(parameter, value, accepted) from None


def _interval(low: float, high: float, inclusive: bool) -> str:
    if math.isfinite(low) and math.isfinite(high):
        brackets = "[]" if inclusive else "()"
        return f" in {brackets[0]}{low:.12g}, {high:.12g}{brackets[1]}"
    if math.isfinite(low):
        return f" {'>=' if inclusive else '>'} {low:g}"
    if math.isfinite(high):
        return f" {'<=' if inclusive else '<'} {high:g}"
    return ""
