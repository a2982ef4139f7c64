"""The frozen objects that describe a problem: `Task`, `Training`, `Query` and `Step`.

Theory and simulation take exactly these objects and nothing else. Field names are those of the
notation table in the README; every field carries a one-line description, which the command line
shows as the help of the option of the same name.
"""

import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, MISSING, Field, dataclass, field, fields, replace
from numbers import Real
from typing import Any, Self, TypeVar, dataclass_transform

from sparsetoken import validation
from sparsetoken.informative import CountLaw, Counts, KeptCount, as_informative, counts
from sparsetoken.validation import ParameterError

__all__ = [
    "ALL_SAMPLES",
    "Query",
    "Step",
    "Task",
    "Training",
    "check_matters",
    "check_reuse",
    "spaced",
    "vary",
]

# On an axis: all samples per dimension, of query and readout together.
ALL_SAMPLES = "alpha"

_Class = TypeVar("_Class")


def _described(
    description: str,
    *,
    default: Any = MISSING,
    low: float = -math.inf,
    high: float = math.inf,
    or_zero: bool = False,
    infinite: bool = False,
) -> Any:
    """Return a field with its description and the numbers that it accepts.

    Within these limits every number is computed, in bounded time and memory; beyond them the answer
    would drown in rounding, or in a limit that is known without computing.
    """
    limits = {"low": low, "high": high, "or_zero": or_zero, "infinite": infinite}
    return field(default=default, metadata={"description": description, **limits})


@dataclass_transform(frozen_default=True, field_specifiers=(_described,))
def _settings(cls: type[_Class]) -> type[_Class]:
    """Make a frozen dataclass whose docstring lists its fields by their descriptions."""
    made = dataclass(frozen=True, slots=True)(cls)
    lines = ["", "", "Parameters", "----------"]
    for item in fields(made):  # type: ignore[arg-type]
        kind = getattr(item.type, "__name__", item.type)
        default = "" if item.default is MISSING else f", default {item.default!r}"
        lines += [f"{item.name} : {kind}{default}", f"    {item.metadata['description']}"]
    text, examples, shown = inspect.cleandoc(made.__doc__ or "").partition("\n\nExamples\n")
    made.__doc__ = text + "\n".join(lines) + examples + shown
    return made


class _Settings:
    """What the three objects share: copies with changes, and dictionaries."""

    __slots__ = ()

    def replace(self, **changes: Any) -> Self:
        """Return a copy with the named fields changed, validated anew.

        Parameters
        ----------
        **changes
            New values by the names of the fields.

        Returns
        -------
        the same kind of object

        Examples
        --------
        >>> from sparsetoken import Task
        >>> Task(10, 1, 5.0).replace(length=20).length
        20
        """
        self._refuse_unknown(changes)
        return replace(self, **changes)  # type: ignore[type-var]

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a dictionary of plain Python values; a law is its text.

        Returns
        -------
        dict

        Examples
        --------
        >>> from sparsetoken import Query
        >>> Query(alignment=0.5, sharpness=3.0).to_dict()
        {'alignment': 0.5, 'sharpness': 3.0}
        """
        values = {item.name: getattr(self, item.name) for item in self._fields()}
        return {
            name: str(value) if isinstance(value, CountLaw) else value
            for name, value in values.items()
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Make the object from a dictionary such as `to_dict` gives.

        Parameters
        ----------
        values : mapping
            Values by the names of the fields; those with a default may be left out.

        Returns
        -------
        the object

        Examples
        --------
        >>> from sparsetoken import Task
        >>> task = Task(10, 1, 5.0)
        >>> Task.from_dict(task.to_dict()) == task
        True
        """
        validation.instance("values", values, Mapping)
        cls._refuse_unknown(values)
        missing = [f.name for f in cls._fields() if f.default is MISSING and f.name not in values]
        if missing:
            raise ParameterError(cls.__name__, dict(values), "values for " + ", ".join(missing))
        return cls(**values)

    @classmethod
    def _fields(cls) -> tuple[Field[Any], ...]:
        return fields(cls)  # type: ignore[arg-type]

    @classmethod
    def _refuse_unknown(cls, values: Mapping[str, Any]) -> None:
        known = [f.name for f in cls._fields()]
        for name in values:
            if name not in known:
                raise ParameterError(f"{cls.__name__} field", name, "one of " + ", ".join(known))

    def _check_numbers(self) -> None:
        """Keep each number as int or float if it is within the limits of its field."""
        for item in self._fields():
            if item.type in (int, float):
                checked = _number(item, getattr(self, item.name))
                object.__setattr__(self, item.name, checked)

    def _store(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)


def _number(item: Field[Any], value: Any) -> int | float:
    """Return a number that a field accepts."""
    limits = item.metadata
    if item.type is int:
        return validation.integer(item.name, value, low=limits["low"], high=limits["high"])
    if limits["or_zero"] and isinstance(value, Real) and value == 0 and value is not False:
        return 0.0
    bounds = {name: limits[name] for name in ("low", "high", "infinite")}
    try:
        return validation.real(item.name, value, **bounds)
    except ParameterError as error:
        zero = "0, or " if limits["or_zero"] else ""
        raise ParameterError(item.name, value, zero + error.accepted) from None


@_settings
class Task(_Settings):
    """What is to be learnt: sequences with a weak signal in a few tokens.

    A label y is +1 with probability π. A sequence X of shape (L, d) is θ v ξᵀ + Z for y = +1 and Z
    for y = -1, with Z of independent standard normals, ξ an unknown unit vector and v a 0/1 vector
    with R ones in random places. R is a number, or a law by which each positive sequence draws its
    own: an object such as `PoissonCount(2)`, or its text "poisson:2". A positive that draws R = 0 is
    like a negative, and no classifier can tell: its label is noise.

    Examples
    --------
    >>> from sparsetoken import Task
    >>> task = Task(length=10, informative=1, strength=5.0)
    >>> task.replace(length=100).to_dict()
    {'length': 100, 'informative': 1, 'strength': 5.0, 'positive_rate': 0.5}
    """

    length: int = _described("tokens in a sequence (L)", low=2, high=10**9)
    informative: int | CountLaw = _described(
        "tokens that carry the signal in a positive sequence (R), or a law such as poisson:2",
        low=1,
        high=10**9,
    )
    strength: float = _described("signal strength (θ)", low=1e-9, high=1e6, or_zero=True)
    positive_rate: float = _described(
        "probability of a positive label (π)", default=0.5, low=1e-9, high=1 - 1e-9
    )

    def __post_init__(self) -> None:
        self._check_numbers()
        self._store(informative=as_informative(self.informative, self.length))

    @property
    def counts(self) -> Counts:
        """The numbers of informative tokens of a positive sequence, and their probabilities."""
        return counts(self.informative, self.length)

    @property
    def silent_rate(self) -> float:
        """P(R = 0): the share of positives without any informative token, which look negative."""
        return sum(chance for number, chance in self.counts if number == 0)

    @property
    def fixed_informative(self) -> int:
        """R where it is one number; an error where it is a law."""
        if isinstance(self.informative, int):
            return self.informative
        accepted = "one integer: a law of the number of informative tokens is not possible here"
        raise ParameterError("informative", str(self.informative), accepted)

    def keep(self, keep: int) -> "Task":
        """Return the task in which only `keep` tokens of each sequence are kept, at random.

        R becomes hypergeometric. Train on it, or test on it (`at=task.keep(5)`).

        Parameters
        ----------
        keep : int
            From 2 to the length.

        Returns
        -------
        Task

        Examples
        --------
        >>> from sparsetoken import Task
        >>> round(Task(10, 1, 5.0).keep(4).silent_rate, 6)
        0.6
        """
        keep = validation.integer("keep", keep, low=2, high=self.length)
        if keep == self.length:
            return self
        if isinstance(self.informative, KeptCount):
            return self.replace(length=keep)
        return self.replace(length=keep, informative=KeptCount(self.length, self.informative))


@_settings
class Training(_Settings):
    """How the classifier is trained: two gradient steps for the query, then a convex readout.

    The readout minimises (1/n1) Σ loss(margin) + (ridge/2)‖w‖², with a free bias.

    Examples
    --------
    >>> from sparsetoken import Training
    >>> Training(alpha0=4.0, alpha1=2.0, query_step=20.0).ridge
    0.001
    """

    alpha0: float = _described(
        "samples for the query, per dimension (α0 = n0/d)", low=1e-6, high=1e6
    )
    alpha1: float = _described(
        "samples for the readout, per dimension (α1 = n1/d)", low=1e-6, high=1e6
    )
    _: KW_ONLY
    loss: str = _described("loss of the margin", default="logistic")
    ridge: float = _described(
        "l2 penalty on the readout (λ)", default=1e-3, low=1e-12, high=1e6, or_zero=True
    )
    readout_step: float = _described(
        "learning rate of the readout's step (η_w)", default=0.5, low=1e-9, high=1e6
    )
    bias_step: float = _described(
        "learning rate of the bias's step (η_b)", default=0.5, low=1e-9, high=1e6, or_zero=True
    )
    query_step: float = _described(
        "learning rate of the query's step (η_q)", default=1.0, low=1e-9, high=1e6
    )
    inverse_temperature: float = _described(
        "inverse temperature of the softmax (β)", default=1.0, low=1e-9, high=1e6
    )
    reuse: bool = _described(
        "train query and readout on the same samples; alpha0 = alpha1 then", default=False
    )

    def __post_init__(self) -> None:
        # Imported here, so that the command line can show the fields without loading numpy.
        from sparsetoken.losses import get_loss

        self._check_numbers()
        self._store(loss=get_loss(self.loss).name, reuse=validation.boolean("reuse", self.reuse))
        if self.reuse and self.alpha0 != self.alpha1:
            accepted = f"{self.alpha0!r}, as alpha0: with reuse both are the same samples"
            raise ParameterError("alpha1", self.alpha1, accepted)

    @property
    def alpha(self) -> float:
        """All samples per dimension (α = n/d): of query and readout, or of the one set for both.

        Returns
        -------
        float

        Examples
        --------
        >>> from sparsetoken import Training
        >>> Training(alpha0=4.0, alpha1=2.0).alpha, Training(4.0, 4.0, reuse=True).alpha
        (6.0, 4.0)
        """
        return self.alpha1 if self.reuse else self.alpha0 + self.alpha1

    def share_out(self, alpha: float) -> "Training":
        """Return the training with so many samples per dimension in all, shared out as before.

        Parameters
        ----------
        alpha : float > 0
            All samples, per dimension.

        Returns
        -------
        Training

        Examples
        --------
        >>> from sparsetoken import Training
        >>> more = Training(alpha0=3.0, alpha1=1.0).share_out(8.0)
        >>> more.alpha0, more.alpha1
        (6.0, 2.0)
        """
        alpha = validation.real("alpha", alpha, low=0, inclusive=False)
        if self.reuse:
            return self.replace(alpha0=alpha, alpha1=alpha)
        share = self.alpha0 / (self.alpha0 + self.alpha1)
        return self.replace(alpha0=share * alpha, alpha1=(1 - share) * alpha)

    def all_for_the_readout(self) -> "Training":
        """Return the training of a classifier without a query: its readout has all samples.

        Returns
        -------
        Training

        Examples
        --------
        >>> from sparsetoken import Training
        >>> Training(alpha0=3.0, alpha1=1.0).all_for_the_readout().alpha1
        4.0
        """
        return self.replace(reuse=False, alpha1=self.alpha)


# Two scores of normal tokens are as near to each other as one over this once in 10^10 times.
_HARD = 1e12


@_settings
class Query(_Settings):
    """A query given directly instead of learnt: only its cosine with the signal and β‖q‖ matter.

    An infinite sharpness is hard attention: all weight on the token with the largest score.

    Examples
    --------
    >>> from sparsetoken import Query
    >>> Query(alignment=1.0, sharpness=3.0).replace(alignment=0.5)
    Query(alignment=0.5, sharpness=3.0)
    """

    alignment: float = _described("cosine of the query with the signal (γ)", low=-1, high=1)
    sharpness: float = _described(
        "inverse temperature times the query's norm (κ = β‖q‖)", low=0, infinite=True
    )

    def __post_init__(self) -> None:
        self._check_numbers()

    @property
    def is_hard(self) -> bool:
        """Whether the softmax is a maximum, up to ties that do not happen."""
        return self.sharpness >= _HARD


@_settings
class Step(_Settings):
    """One step of gradient descent of query, readout and bias together, on a fresh batch.

    A rate of 0 leaves its parameter alone.

    Examples
    --------
    >>> from sparsetoken import Step
    >>> Step(alpha=8.0, readout_step=2.0, bias_step=1.0, query_step=2.0).inverse_temperature
    1.0
    """

    alpha: float = _described("samples in the batch, per dimension (α = n/d)", low=1e-6, high=1e6)
    _: KW_ONLY
    readout_step: float = _described(
        "learning rate of the readout (η_w)", low=1e-9, high=1e6, or_zero=True
    )
    bias_step: float = _described(
        "learning rate of the bias (η_b)", low=1e-9, high=1e6, or_zero=True
    )
    query_step: float = _described(
        "learning rate of the query (η_q)", low=1e-9, high=1e6, or_zero=True
    )
    inverse_temperature: float = _described(
        "inverse temperature of the softmax (β)", default=1.0, low=1e-9, high=1e6
    )

    def __post_init__(self) -> None:
        self._check_numbers()


def vary(name: str, value: Any, *settings: _Settings | None) -> tuple[Any, ...]:
    """Return the settings with the numeric field `name` changed in the one that has it.

    Settings that are None have no fields and stay None. A training that reuses its samples has one
    sample ratio, so that both change together.
    """
    known = [
        []
        if item is None
        else [part.name for part in item._fields() if part.type not in (str, bool)]
        for item in settings
    ]
    for index, names in enumerate(known):
        item = settings[index]
        if item is not None and name in names:
            changes = {name: value}
            if isinstance(item, Training) and item.reuse and name in ("alpha0", "alpha1"):
                changes = {"alpha0": value, "alpha1": value}
            return (*settings[:index], item.replace(**changes), *settings[index + 1 :])
    raise ParameterError(
        "over", name, "one of " + ", ".join(key for names in known for key in names)
    )


_WHOLE = ("length", "informative")


def spaced(name: str, start: float, stop: float, count: int, *, by_factors: bool) -> list[float]:
    """Return so many values of a field, evenly or by factors; whole numbers where the field is one.

    A field at test time has the prefix "at_".
    """
    # Imported here, so that the command line can show the fields without loading numpy.
    import numpy as np

    values = (np.geomspace if by_factors else np.linspace)(start, stop, count)
    if name.removeprefix("at_") in _WHOLE:
        return [int(value) for value in np.unique(np.round(values))]
    return [float(value) for value in values]


def check_matters(over: str, fields: Sequence[str]) -> None:
    """Raise a ParameterError if a field to vary is not among those that a result depends on."""
    if over not in fields:
        raise ParameterError("over", over, "a field that matters here: " + ", ".join(fields))


def check_reuse(reuse: bool, query: object | None) -> None:
    """Raise a ParameterError if samples are to be reused though the query is given, not learnt."""
    if reuse and query is not None:
        accepted = "False with a given query: no samples were used to learn it"
        raise ParameterError("reuse", True, accepted)
