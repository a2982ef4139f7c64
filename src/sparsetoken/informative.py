"""How many tokens of a positive sequence carry the signal, where that number is random.

A `CountLaw` stands in for the integer `Task.informative`. Whatever it is, a task of a given length
knows it as whole numbers with probabilities, `Counts`. Zero is a possible number: a positive without
any informative token is drawn like a negative, and no classifier can tell it from one
(docs/theory.md, section 13).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from numbers import Integral
from typing import TYPE_CHECKING, Any, ClassVar

from sparsetoken import validation
from sparsetoken.numerics.memory import kept_on_path
from sparsetoken.validation import ParameterError

if TYPE_CHECKING:  # so that the command line can show the fields without loading numpy
    import numpy as np

    from sparsetoken.arrays import Array

__all__ = [
    "BinomialCount",
    "CountLaw",
    "CountTable",
    "Counts",
    "KeptCount",
    "PoissonCount",
    "as_informative",
    "counts",
    "draw_counts",
]

# Numbers that theory looks at one by one; a law with more of them is interpolated between so many.
MOST_NUMBERS = 257
_MOST_TOKENS = 10**9
# A number is left out where its probability is below exp(-40) times the largest one.
_NEGLIGIBLE = 40.0
ACCEPTED = (
    "an integer >= 1, or a law of it: binomial:PROBABILITY, poisson:MEAN (either with :least=1), "
    "table:NUMBER:PROBABILITY,... or kept:LENGTH:INFORMATIVE"
)


@dataclass(frozen=True, eq=False)
class Counts:
    """Numbers of informative tokens and their probabilities; iterates over pairs of both.

    Attributes
    ----------
    values : integer array of shape (k,), rising
    probability : array of shape (k,), sums to 1
    """

    values: "Array"
    probability: "Array"

    @property
    def mean(self) -> float:
        """The mean number."""
        return float(self.probability @ self.values)

    def __iter__(self) -> Iterator[tuple[int, float]]:
        return zip(map(int, self.values), map(float, self.probability), strict=True)


class CountLaw(ABC):
    """The law of the number of informative tokens of a positive sequence.

    `str` gives the text that stands for it on the command line and in study files.

    Examples
    --------
    >>> from sparsetoken import CountLaw, PoissonCount, Task
    >>> law = Task(10, "poisson:2", 5.0).informative
    >>> isinstance(law, CountLaw), law == PoissonCount(2)
    (True, True)
    """

    kind: ClassVar[str]

    @property
    def lengths(self) -> tuple[int, int]:
        """The shortest and the longest sequences that it is a law for."""
        return 2, _MOST_TOKENS

    @abstractmethod
    def window(self, length: int) -> tuple[int, int]:
        """Return the smallest and the largest number that matter.

        Parameters
        ----------
        length : int
            Tokens in a sequence.

        Returns
        -------
        two integers

        Examples
        --------
        >>> from sparsetoken import PoissonCount
        >>> PoissonCount(2.0).window(10)
        (0, 10)
        """

    @abstractmethod
    def log_weight(self, values: "Array", length: int) -> "Array":
        """Return the logarithm of the probability of each number, up to a constant.

        Parameters
        ----------
        values : array of int
            Numbers of informative tokens.
        length : int
            Tokens in a sequence.

        Returns
        -------
        array of the shape of the values

        Examples
        --------
        >>> import numpy as np
        >>> from sparsetoken import PoissonCount
        >>> weights = np.exp(PoissonCount(2.0).log_weight(np.arange(3), 10))
        >>> (weights / weights[0]).round(6).tolist()
        [1.0, 2.0, 2.0]
        """

    def draw(self, length: int, size: int, rng: "np.random.Generator | int | None") -> "Array":
        """Draw `size` numbers.

        Parameters
        ----------
        length : int
            Tokens in a sequence.
        size : int
        rng : numpy.random.Generator, int or None
            Whatever `numpy.random.default_rng` takes.

        Returns
        -------
        array of shape (size,)

        Examples
        --------
        >>> from sparsetoken import PoissonCount
        >>> PoissonCount(2.0).draw(10, 1000, 0).shape
        (1000,)
        """
        import numpy as np

        rng = validation.generator("rng", rng)
        known = _probabilities(self, length)
        places = np.searchsorted(np.cumsum(known.probability), rng.random(size), side="right")
        return np.asarray(known.values[np.minimum(places, len(known.values) - 1)])


@dataclass(frozen=True)
class BinomialCount(CountLaw):
    """Each token is informative with the same probability, on its own.

    Parameters
    ----------
    probability : float in (0, 1)
    least : 0 or 1
        With 1, the law given that there is an informative token at all.

    Examples
    --------
    >>> from sparsetoken import BinomialCount, Task
    >>> round(Task(10, BinomialCount(0.1), 5.0).silent_rate, 4)
    0.3487
    """

    probability: float
    least: int = 0
    kind: ClassVar[str] = "binomial"

    def __post_init__(self) -> None:
        chance = validation.real("probability", self.probability, low=0, high=1, inclusive=False)
        _store(self, probability=chance, least=_least(self.least))

    def __str__(self) -> str:
        return f"{self.kind}:{_short(self.probability)}{_least_text(self.least)}"

    def window(self, length: int) -> tuple[int, int]:
        """Return the numbers within twelve standard deviations, and some.

        Parameters
        ----------
        length : int
            Tokens in a sequence.

        Returns
        -------
        two integers

        Examples
        --------
        >>> from sparsetoken import BinomialCount
        >>> BinomialCount(0.5).window(4)
        (0, 4)
        """
        mean = self.probability * length
        return _around(mean, mean * (1 - self.probability), self.least, length)

    def log_weight(self, values: "Array", length: int) -> "Array":
        """Return log [C(L, r) p^r (1-p)^(L-r)].

        Parameters
        ----------
        values : array of int
            Numbers of informative tokens.
        length : int
            Tokens in a sequence.

        Returns
        -------
        array of the shape of the values

        Examples
        --------
        >>> import numpy as np
        >>> from sparsetoken import BinomialCount
        >>> weights = np.exp(BinomialCount(0.5).log_weight(np.arange(3), 2))
        >>> (weights / weights.sum()).round(6).tolist()
        [0.25, 0.5, 0.25]
        """
        import numpy as np

        odds = math.log(self.probability) - math.log1p(-self.probability)
        return np.asarray(_log_choose(length, values) + values * odds)


@dataclass(frozen=True)
class PoissonCount(CountLaw):
    """A Poisson number, given that it is at most the length and at least 0 or 1.

    Parameters
    ----------
    mean : float > 0
        Of the law before it is cut off.
    least : 0 or 1

    Examples
    --------
    >>> from sparsetoken import PoissonCount, Task
    >>> str(PoissonCount(2)), round(Task(10, PoissonCount(2), 5.0).silent_rate, 4)
    ('poisson:2', 0.1353)
    """

    mean: float
    least: int = 0
    kind: ClassVar[str] = "poisson"

    def __post_init__(self) -> None:
        mean = validation.real("mean", self.mean, low=1e-9, high=_MOST_TOKENS)
        _store(self, mean=mean, least=_least(self.least))

    def __str__(self) -> str:
        return f"{self.kind}:{_short(self.mean)}{_least_text(self.least)}"

    def window(self, length: int) -> tuple[int, int]:
        """Return the numbers within twelve standard deviations, and some.

        Parameters
        ----------
        length : int
            Tokens in a sequence.

        Returns
        -------
        two integers

        Examples
        --------
        >>> from sparsetoken import PoissonCount
        >>> PoissonCount(2.0).window(10)
        (0, 10)
        """
        return _around(self.mean, self.mean, self.least, length)

    def log_weight(self, values: "Array", length: int) -> "Array":  # noqa: ARG002
        """Return log [m^r/r!].

        Parameters
        ----------
        values : array of int
            Numbers of informative tokens.
        length : int
            Tokens in a sequence.

        Returns
        -------
        array of the shape of the values

        Examples
        --------
        >>> import numpy as np
        >>> from sparsetoken import PoissonCount
        >>> weights = np.exp(PoissonCount(2.0).log_weight(np.arange(3), 10))
        >>> (weights / weights[0]).round(6).tolist()
        [1.0, 2.0, 2.0]
        """
        import numpy as np
        from scipy.special import gammaln

        return np.asarray(values * math.log(self.mean) - gammaln(values + 1.0))


@dataclass(frozen=True)
class CountTable(CountLaw):
    """Given probabilities of given numbers.

    Parameters
    ----------
    table : mapping of int to float, or pairs
        Probabilities by number of informative tokens; they sum to 1.

    Examples
    --------
    >>> from sparsetoken import CountTable, Task
    >>> print(Task(10, CountTable({0: 0.1, 2: 0.9}), 5.0).informative)
    table:0:0.1,2:0.9
    """

    table: Mapping[int, float] | Iterable[tuple[int, float]]
    kind: ClassVar[str] = "table"

    def __post_init__(self) -> None:
        given = self.table.items() if isinstance(self.table, Mapping) else self.table
        pairs = []
        for pair in validation.several("table", given, "pairs"):
            if not (isinstance(pair, tuple | list) and len(pair) == 2):
                accepted = "{number: probability}, or pairs (number, probability)"
                raise ParameterError("table", self.table, accepted)
            number, probability = pair
            number = validation.integer("number of informative tokens", number, low=0)
            chance = validation.real(f"probability of {number}", probability, low=0, high=1)
            if chance > 0:
                pairs.append((number, chance))
        _store(self, table=tuple(sorted(pairs)))
        numbers = [number for number, _ in pairs]
        total = math.fsum(chance for _, chance in pairs)
        if len(set(numbers)) < len(numbers) or abs(total - 1) > 1e-6 or not any(numbers):
            accepted = "different numbers, not 0 alone, with probabilities that sum to 1"
            raise ParameterError("informative", str(self), accepted)
        if len(numbers) > MOST_NUMBERS:
            raise ParameterError("informative", str(self), f"at most {MOST_NUMBERS} numbers")

    def __str__(self) -> str:
        pairs = ",".join(f"{number}:{_short(chance)}" for number, chance in self._pairs)
        return f"{self.kind}:{pairs}"

    @property
    def _pairs(self) -> tuple[tuple[int, float], ...]:
        assert isinstance(self.table, tuple)
        return self.table

    @property
    def lengths(self) -> tuple[int, int]:
        """No sequence has fewer tokens than the largest number."""
        return max(2, self._pairs[-1][0]), _MOST_TOKENS

    def window(self, length: int) -> tuple[int, int]:  # noqa: ARG002
        """Return the ends of the table.

        Parameters
        ----------
        length : int
            Tokens in a sequence.

        Returns
        -------
        two integers

        Examples
        --------
        >>> from sparsetoken import CountTable
        >>> CountTable({1: 0.25, 3: 0.75}).window(10)
        (1, 3)
        """
        return self._pairs[0][0], self._pairs[-1][0]

    def log_weight(self, values: "Array", length: int) -> "Array":  # noqa: ARG002
        """Return the logarithms of the table, -∞ for other numbers.

        Parameters
        ----------
        values : array of int
            Numbers of informative tokens.
        length : int
            Tokens in a sequence.

        Returns
        -------
        array of the shape of the values

        Examples
        --------
        >>> import numpy as np
        >>> from sparsetoken import CountTable
        >>> np.exp(CountTable({1: 0.25, 3: 0.75}).log_weight(np.array([1, 3]), 10)).round(6).tolist()
        [0.25, 0.75]
        """
        import numpy as np

        known = dict(self._pairs)
        chances = np.array([known.get(int(value), 0.0) for value in values])
        return np.asarray(np.log(chances, out=np.full(len(values), -np.inf), where=chances > 0))


@dataclass(frozen=True)
class KeptCount(CountLaw):
    """What is left of the informative tokens where only some tokens of a longer sequence are kept.

    Of r informative tokens among `length`, m random ones keep a hypergeometric number.

    Parameters
    ----------
    length : int
        Tokens before.
    informative : int, CountLaw or str
        Informative tokens before.

    Examples
    --------
    >>> from sparsetoken import KeptCount, Task
    >>> Task(10, 2, 5.0).keep(5).informative == KeptCount(10, 2)
    True
    """

    length: int
    informative: "int | CountLaw"
    kind: ClassVar[str] = "kept"

    def __post_init__(self) -> None:
        length = validation.integer("length", self.length, low=2, high=_MOST_TOKENS)
        _store(self, length=length, informative=as_informative(self.informative, length))

    def __str__(self) -> str:
        return f"{self.kind}:{self.length}:{self.informative}"

    @property
    def lengths(self) -> tuple[int, int]:
        """No more tokens are kept than there were."""
        return 2, self.length

    def window(self, length: int) -> tuple[int, int]:
        """Return the numbers that any number of informative tokens before leaves.

        Parameters
        ----------
        length : int
            Tokens in a sequence.

        Returns
        -------
        two integers

        Examples
        --------
        >>> from sparsetoken import KeptCount
        >>> KeptCount(10, 2).window(4)
        (0, 2)
        """
        ends = []
        for number, _ in counts(self.informative, self.length):
            share = number / self.length
            variance = length * share * (1 - share)
            least = max(0, length + number - self.length)
            ends.append(_around(length * share, variance, least, min(number, length)))
        return min(low for low, _ in ends), max(high for _, high in ends)

    def log_weight(self, values: "Array", length: int) -> "Array":
        """Return log Σ_r P(r) C(r, k) C(L-r, m-k)/C(L, m).

        Parameters
        ----------
        values : array of int
            Numbers of informative tokens.
        length : int
            Tokens in a sequence.

        Returns
        -------
        array of the shape of the values

        Examples
        --------
        >>> import numpy as np
        >>> from sparsetoken import KeptCount
        >>> weights = np.exp(KeptCount(4, 1).log_weight(np.arange(2), 2))
        >>> (weights / weights.sum()).round(6).tolist()
        [0.5, 0.5]
        """
        import numpy as np

        total = np.full(len(values), -np.inf)
        for number, chance in counts(self.informative, self.length):
            possible = (values <= number) & (length - values <= self.length - number)
            inside = values[possible]
            logs = _log_choose(number, inside) - _log_choose(self.length, length)
            logs += _log_choose(self.length - number, length - inside) + math.log(chance)
            total[possible] = np.logaddexp(total[possible], logs)
        return total

    def draw(self, length: int, size: int, rng: "np.random.Generator | int | None") -> "Array":
        """Draw the numbers before, and what is kept of them; see `CountLaw`.

        Parameters
        ----------
        length : int
            Tokens in a sequence.
        size : int
            How many sequences.
        rng : numpy.random.Generator, int or None
            Whatever `numpy.random.default_rng` takes.

        Returns
        -------
        array of shape (size,)

        Examples
        --------
        >>> from sparsetoken import KeptCount
        >>> int(KeptCount(10, 2).draw(4, size=1000, rng=0).max())
        2
        """
        rng = validation.generator("rng", rng)
        before = draw_counts(self.informative, self.length, size, rng)
        return rng.hypergeometric(before, self.length - before, length)


_KINDS: dict[str, type[CountLaw]] = {
    law.kind: law for law in (BinomialCount, PoissonCount, CountTable, KeptCount)
}


def as_informative(value: object, length: int | None = None) -> int | CountLaw:
    """Return what a task takes as its informative tokens: an integer, a law, or the text of either.

    With a length, the law must fit it.
    """
    if isinstance(value, str):
        value = _parsed(value)
    if isinstance(value, CountLaw):
        low, high = value.lengths
        if length is not None and not low <= length <= high:
            accepted = f"a law for {length} tokens, and this one is for {low} to {high}"
            raise ParameterError("informative", str(value), accepted)
        return value
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise ParameterError("informative", value, ACCEPTED)
    number = validation.integer("informative", value, low=1, high=_MOST_TOKENS)
    if length is not None and number >= length:
        raise ParameterError("informative", number, f"an integer below length = {length}")
    return number


def _parsed(text: str) -> int | CountLaw:
    """Return the integer or the law that a text stands for."""
    kind, _, rest = text.strip().partition(":")
    try:
        if not rest:
            return int(kind)
        if kind == CountTable.kind:
            pairs = [entry.split(":") for entry in rest.split(",")]
            return CountTable([(int(number), float(chance)) for number, chance in pairs])
        if kind == KeptCount.kind:
            length, _, before = rest.partition(":")
            return KeptCount(int(length), _parsed(before))
        number, _, option = rest.partition(":")
        least = {"": 0, "least=0": 0, "least=1": 1}[option]
        return {"binomial": BinomialCount, "poisson": PoissonCount}[kind](float(number), least)
    except ParameterError as error:
        part = "" if error.parameter == "informative" else f" as its {error.parameter}"
        accepted = error.accepted + part
        raise ParameterError("informative", text, accepted) from None
    except (KeyError, ValueError):
        raise ParameterError("informative", text, ACCEPTED) from None


@lru_cache(maxsize=64)
def counts(informative: int | CountLaw, length: int) -> Counts:
    """Return the numbers of informative tokens of a sequence and their probabilities.

    A law of more than `MOST_NUMBERS` numbers is known by as many: a function of the number is
    replaced by what interpolates it between three numbers at a time, so that its mean is exact up to
    third order in their distance, and the mean number is exact.
    """
    import numpy as np

    if isinstance(informative, int):
        return Counts(np.array([informative]), np.ones(1))
    return _interpolated(_probabilities(informative, length))


def draw_counts(
    informative: int | CountLaw, length: int, size: int, rng: "np.random.Generator"
) -> "Array":
    """Draw numbers of informative tokens, (size,); an integer takes no random numbers."""
    import numpy as np

    if isinstance(informative, int):
        return np.full(size, informative)
    return informative.draw(length, size, rng)


# Of 10^9 tokens one law takes 4 MB.
@kept_on_path(limit=8_000_000)
def _probabilities(law: CountLaw, length: int) -> Counts:
    """Return all numbers that matter, however many."""
    import numpy as np

    low, high = law.window(length)
    values = np.arange(low, high + 1)
    logs = law.log_weight(values, length)
    logs -= logs.max()
    kept = logs > -_NEGLIGIBLE
    weights = np.exp(logs[kept])
    return Counts(values[kept], weights / weights.sum())


def _interpolated(known: Counts) -> Counts:
    """Return at most `MOST_NUMBERS` of the numbers, with weights that keep means of functions."""
    import numpy as np

    values, probability = known.values, known.probability
    if len(values) <= MOST_NUMBERS:
        return known
    cells = (MOST_NUMBERS - 1) // 2
    ends = np.round(np.linspace(values[0], values[-1], cells + 1)).astype(int)
    cell = np.clip(np.searchsorted(ends, values, side="right") - 1, 0, cells - 1)
    left, right = ends[cell], ends[cell + 1]
    middle = (left + right) // 2
    # Lagrange's polynomials of the three numbers of a cell; where a cell's mass is so uneven that a
    # weight would be negative, the two of a straight line instead.
    shares = np.stack(
        [
            (values - middle) * (values - right) / ((left - middle) * (left - right)),
            (values - left) * (values - right) / ((middle - left) * (middle - right)),
            (values - left) * (values - middle) / ((right - left) * (right - middle)),
        ]
    )
    sums = np.stack([np.bincount(cell, probability * share, cells) for share in shares])
    uneven = np.any(sums < 0, axis=0, keepdims=True)[0][cell]
    straight = np.stack([right - values, np.zeros_like(values), values - left]) / (right - left)
    shares = np.where(uneven, straight, shares)
    numbers = np.concatenate([left, middle, right])
    found, places = np.unique(numbers, return_inverse=True)
    weights = np.bincount(places, (probability * shares).ravel(), len(found))
    return Counts(found[weights > 0], weights[weights > 0] / weights.sum())


def _around(mean: float, variance: float, least: int, most: int) -> tuple[int, int]:
    """Return the numbers within twelve standard deviations of a mean, and some, within bounds."""
    reach = 12 * math.sqrt(variance) + _NEGLIGIBLE
    low = max(least, min(math.floor(mean - reach), most - math.ceil(reach)))
    return low, max(low, min(most, math.ceil(mean + reach)))


def _log_choose(total: "int | Array", chosen: "int | Array") -> Any:
    """Return log C(n, k), accurate for large n too."""
    import numpy as np
    from scipy.special import betaln

    return -betaln(np.subtract(total, chosen) + 1.0, np.add(chosen, 1.0)) - np.log1p(total)


def _store(law: CountLaw, **values: Any) -> None:
    for name, value in values.items():
        object.__setattr__(law, name, value)


def _short(value: float) -> str:
    return repr(value).removesuffix(".0")


def _least(value: object) -> int:
    return validation.integer("least", value, low=0, high=1)


def _least_text(least: int) -> str:
    return f":least={least}" if least else ""
