"""Draw sequences from a task (docs/theory.md, section 1)."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from sparsetoken import validation
from sparsetoken.arrays import Array
from sparsetoken.informative import draw_counts
from sparsetoken.limits import MOST_DIMENSIONS
from sparsetoken.numerics.memory import require_memory
from sparsetoken.task import Task
from sparsetoken.validation import ParameterError

__all__ = [
    "SAMPLERS",
    "Sample",
    "first_places",
    "rows_by_count",
    "sample",
    "sample_counts",
    "sample_labels",
    "sample_positions",
]

# How data of the same law are drawn everywhere: as few numbers, or as whole sequences.
SAMPLERS = ("reduced", "plain")


class Sample(NamedTuple):
    """Sequences drawn from a task.

    Attributes
    ----------
    X : array of shape (n, L, d)
    y : array of shape (n,), labels -1 and +1
    positions : boolean array of shape (n, L), true where the signal is; all false for negatives
    signal : array of shape (d,), the unit vector ξ

    Examples
    --------
    >>> import numpy as np
    >>> from sparsetoken import Task, sample
    >>> X, y, positions, signal = sample(Task(6, 2, 5.0), 9, dimension=20, rng=np.random.default_rng(0))
    >>> positions.sum(axis=1)[y == 1].tolist(), round(float(signal @ signal), 6)
    ([2, 2, 2], 1.0)
    """

    X: Array
    y: Array
    positions: Array
    signal: Array


def sample(
    task: Task,
    count: int,
    *,
    dimension: int,
    rng: np.random.Generator | int | None,
    positions: str | ArrayLike = "uniform",
    signal: ArrayLike | None = None,
) -> Sample:
    """Draw `count` sequences of `dimension`-dimensional tokens.

    Parameters
    ----------
    task : Task
    count, dimension : int
    rng : numpy.random.Generator, int or None
        Whatever `numpy.random.default_rng` takes: a generator, which moves on, an integer for the
        same data every time, or None for other data every time.
    positions : "uniform" or array of shape (L,)
        The law of the informative places: all R-subsets alike, or, where R is one number, the
        probability of each place to be informative. Probabilities must lie in [0, 1] and sum to R;
        they are met exactly, by systematic sampling in a random order.
    signal : array of shape (d,), optional
        The unit vector ξ; drawn uniformly from the sphere if not given. Pass `Sample.signal` to
        draw more data with the same signal.

    Returns
    -------
    Sample

    Examples
    --------
    >>> import numpy as np
    >>> from sparsetoken import Task, sample
    >>> found = sample(Task(6, 1, 5.0), 100, dimension=20, rng=np.random.default_rng(0))
    >>> found.X.shape, found.y.shape, sorted(set(found.y.tolist()))
    ((100, 6, 20), (100,), [-1, 1])
    """
    validation.instance("task", task, Task)
    rng = validation.generator("rng", rng)
    count = validation.integer("count", count, low=1)
    dimension = validation.integer("dimension", dimension, low=1, high=MOST_DIMENSIONS)
    require_memory(f"count = {count}, for the tokens,", 8.0 * count * task.length * dimension)
    xi = _signal(signal, dimension, rng)
    y = sample_labels(task, count, rng)
    places = sample_positions(task, count, rng, positions) & (y > 0)[:, None]
    X = rng.standard_normal((count, task.length, dimension))
    X[places] += task.strength * xi
    return Sample(X, y, places, xi)


def sample_labels(task: Task, count: int, rng: np.random.Generator) -> Array:
    """Draw labels, +1 with probability π."""
    return np.where(rng.random(count) < task.positive_rate, 1, -1)


def sample_counts(task: Task, count: int, rng: np.random.Generator) -> Array:
    """Draw how many tokens of each of `count` positive sequences are informative, (count,)."""
    return draw_counts(task.informative, task.length, count, rng)


def first_places(task: Task, count: int, rng: np.random.Generator) -> Array:
    """Return informative places, boolean (count, L), the first ones: places are exchangeable."""
    return np.asarray(np.arange(task.length) < sample_counts(task, count, rng)[:, None])


def rows_by_count(informative: Array) -> Iterator[tuple[int, Array | slice]]:
    """Yield each number of informative tokens that occurs, and the sequences that have it."""
    numbers = np.unique(informative)
    for number in numbers:
        yield int(number), informative == number if len(numbers) > 1 else slice(None)


def sample_positions(
    task: Task, count: int, rng: np.random.Generator, positions: str | ArrayLike = "uniform"
) -> Array:
    """Draw R informative places of L for each of `count` sequences, as a boolean (n, L) array."""
    if isinstance(positions, str):
        validation.choice("positions", positions, ["uniform"])
        if not isinstance(task.informative, int):
            ranks = rng.random((count, task.length)).argsort(axis=1).argsort(axis=1)
            return np.asarray(ranks < sample_counts(task, count, rng)[:, None])
        order = np.argpartition(rng.random((count, task.length)), task.informative - 1, axis=1)[
            :, : task.informative
        ]
        places = np.zeros((count, task.length), dtype=bool)
        np.put_along_axis(places, order, values=True, axis=1)
        return places
    # Systematic sampling: a comb of spacing 1 with a random offset meets the stacked intervals of
    # lengths p_l, so each is hit with probability p_l and exactly R are hit. A random order of the
    # places keeps the joint law free of structure beyond that. Integers make it exact.
    lengths, bits = _interval_lengths(task, positions)
    order = np.argsort(rng.random((count, task.length)), axis=1)
    ends = np.cumsum(lengths[order], axis=1)
    teeth = (ends + rng.integers(0, 2**bits, size=(count, 1))) >> bits
    hit = np.diff(teeth, axis=1, prepend=0) > 0
    places = np.empty_like(hit)
    np.put_along_axis(places, order, hit, axis=1)
    return places


def _interval_lengths(task: Task, positions: ArrayLike) -> tuple[Array, int]:
    """Return the inclusion probabilities in units of 2^-bits, summing to R exactly, and bits."""
    informative = task.fixed_informative
    accepted = f"'uniform', or {task.length} probabilities in [0, 1] that sum to {informative}"
    error = ParameterError("positions", positions, accepted)
    given = validation.rectangular("positions", positions)
    if given.dtype.kind not in "biuf":
        raise error
    probabilities = given.astype(float)
    if probabilities.shape != (task.length,) or not np.all(
        (probabilities >= 0) & (probabilities <= 1)
    ):
        raise error
    if abs(probabilities.sum() - informative) > 1e-9 * task.length:
        raise error
    bits = 61 - informative.bit_length()
    lengths = np.rint(probabilities * 2.0**bits).astype(np.int64)
    # What rounding left over goes to the place with the most room on both sides.
    roomiest = np.argmin(np.abs(probabilities - 0.5))
    lengths[roomiest] += informative * 2**bits - lengths.sum()
    if not 0 <= lengths[roomiest] <= 2**bits:
        raise error
    return lengths, bits


def _signal(signal: ArrayLike | None, dimension: int, rng: np.random.Generator) -> Array:
    if signal is None:
        direction = rng.standard_normal(dimension)
        return np.asarray(direction / np.linalg.norm(direction))
    xi = validation.rectangular("signal", signal)
    if xi.dtype.kind not in "biuf":
        raise ParameterError("signal", signal, f"{dimension} real numbers")
    xi = xi.astype(float)
    if xi.shape != (dimension,):
        raise ParameterError("shape of signal", xi.shape, f"({dimension},)")
    norm = float(np.linalg.norm(xi))
    if not np.isclose(norm, 1, atol=1e-8):
        raise ParameterError("norm of signal", norm, "1")
    return xi
