"""Margin moments of many points at once, by interpolation (docs/theory.md, section 5.2).

A law of features has thousands of points but only two numbers of each enter: the centre y m of the
margin and the scale S. Chebyshev interpolants of some hundred exact values serve them all. There is
one for each range of scales, because points of a small scale lie close together but need a fine
resolution, and points of a large scale the other way round.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
from numpy.polynomial import chebyshev

from sparsetoken.arrays import Array
from sparsetoken.numerics.memory import kept_on_path
from sparsetoken.theory.moments import GRADIENT_MOMENTS

__all__ = [
    "FEW_POINTS",
    "MomentTable",
    "ScaleRange",
    "Shape",
    "scale_ranges",
    "tabulated_moments",
]

Span = tuple[float, float]


class ExactMoments(Protocol):
    """What a table needs: `moments.Margin`, or anything like it."""

    def moments(self, centre: Array, scale: Array) -> Array:
        """Return all moments at centres and scales (n,): (n, 10)."""

    def moments_on_grid(self, centre: Array, scale: Array, count: int) -> Array:
        """Return the first moments for all centres and all scales: (centres, scales, count)."""


# Rows and columns of a table. The first one resolves a smooth margin to some 1e-4, which tells how
# many more are needed; with the most, its transform takes as long as the values themselves.
Shape = tuple[int, int]
_FIRST_SHAPE = (20, 8)
_MOST_NODES = 12_000

# A table that is too coarse grows by these factors: coefficients fall geometrically, so that one or two
# such steps are enough, and none overshoots by much. One that resolves becomes as small as leaves some
# room, in what it may leave and in degrees: the next is of a slightly wider range.
_MORE_ROWS = 1.4
_MORE_COLUMNS = 1.3
_ROOM = 0.2
_SPARE = 3

# Fewer points of a range are not worth a table. One takes as long as a quarter as many points as it
# has nodes, since the nodes of a scale share the values of the loss.
FEW_POINTS = 64
_NODES_OF_A_POINT = 4

# Moments after the first four enter the Hessian alone, where they steer Newton's method.
_HESSIAN_TOLERANCE = 1e-3

# Width of a range of scales, in log S: noise then differs by a factor of 2.2 at most, so that one
# spacing of the rows suits all of a range. Many points are worth more tables, of fewer columns.
_WIDTH = 0.8
_NARROW = 0.4
_MANY_POINTS = 2**13

# What the transforms of all shapes of a path may take: some hundred shapes of a hundred rows.
_KEPT_BYTES = 2**24

# Points that are looked up at once: their work arrays stay in the processor's cache.
_CHUNK = 2048


@dataclass(frozen=True, eq=False)
class ScaleRange:
    """The points of a law with a scale in a certain range.

    Attributes
    ----------
    number : int
        Ranges are numbered from S = 1 down, the same for every law of about as many points.
    points : array of int of shape (n,)
    span : (low, high)
        The least and largest log S of the points.
    unit : array of shape (n,)
        Their log S, with `span` mapped to [-1, 1].
    """

    number: int
    points: Array
    span: Span
    unit: Array


def scale_ranges(scale: Array) -> tuple[ScaleRange, ...]:
    """Sort the points of a law into ranges of scale."""
    logs = np.log(scale)
    width = _WIDTH if len(scale) < _MANY_POINTS else _NARROW
    numbers = np.floor(-logs / width).astype(int)
    ranges = []
    for number in np.unique(numbers):
        points = np.flatnonzero(numbers == number)
        part = logs[points]
        span = _span(part)
        ranges.append(ScaleRange(int(number), points, span, _from_range(part, span)))
    return tuple(ranges)


@dataclass(frozen=True)
class MomentTable:
    """Margin moments as smooth functions of (centre, log scale).

    Attributes
    ----------
    coefficients : array of shape (centre degrees, scale degrees, count)
    centre_span : (low, high)
    """

    coefficients: Array
    centre_span: Span

    @classmethod
    def build(cls, exact: ExactMoments, spans: tuple[Span, Span], shape: Shape, count: int) -> Self:
        """Tabulate the first moments over ranges of the centre and of log S."""
        centre, logs = map(_nodes_in, shape, spans)
        values = exact.moments_on_grid(centre, np.exp(logs), count)
        rows, columns = shape
        by_centre = (_transform(rows) @ values.reshape(rows, -1)).reshape(rows, columns, -1)
        return cls(_transform(columns) @ by_centre, spans[0])

    @property
    def size(self) -> Array:
        """A bound on each moment, (count,)."""
        return np.asarray(np.abs(self.coefficients).sum(axis=(0, 1)))

    @property
    def finite(self) -> bool:
        """Whether all moments are numbers."""
        return bool(np.all(np.isfinite(self.coefficients)))

    @property
    def error(self) -> Array:
        """Estimated largest interpolation error of each moment, from the last coefficients, (count,)."""
        return np.asarray(sum(self._errors))

    @property
    def _errors(self) -> tuple[Array, Array]:
        """The error from too few rows, and from too few columns."""
        size = np.abs(self.coefficients)
        return size[-2:].sum(axis=(0, 1)), size[:, -2:].sum(axis=(0, 1))

    def better_shape(self, allowed: Array) -> tuple[Shape, bool]:
        """Return the shape to use next time, and whether this one leaves no more than is allowed.

        Parameters
        ----------
        allowed : array of shape (count,)
            Largest error of each moment. The next shape is larger if it is exceeded, and else as
            small as it can be.
        """
        rows, columns, _ = self.coefficients.shape
        more_rows, more_columns = (bool(np.any(error > allowed)) for error in self._errors)
        if more_rows or more_columns:
            shape = (
                int(_MORE_ROWS * rows) if more_rows else rows,
                int(_MORE_COLUMNS * columns) + 1 if more_columns else columns,
            )
            return shape, False
        size, less = np.abs(self.coefficients), _ROOM * allowed
        needed = (_last_above(size.sum(axis=1), less), _last_above(size.sum(axis=0), less))
        return (min(rows, needed[0] + _SPARE), min(columns, needed[1] + _SPARE)), True

    def __call__(self, centre: Array, scale: ScaleRange) -> Array:
        """Return the moments, (n, count), at centres (n,) in this range of scales."""
        rows, columns, count = self.coefficients.shape
        flat = self.coefficients.reshape(rows, -1)
        unit = _from_range(centre, self.centre_span)
        result = np.empty((len(centre), count))
        for first in range(0, len(centre), _CHUNK):
            part = slice(first, first + _CHUNK)
            partial = (_basis(unit[part], rows).T @ flat).reshape(-1, columns, count)
            np.einsum("nbm,bn->nm", partial, _basis(scale.unit[part], columns), out=result[part])
        return result


def tabulated_moments(
    exact: ExactMoments,
    centre: Array,
    scale: Array,
    ranges: Sequence[ScaleRange],
    count: int,
    shapes: Mapping[int, Shape],
    tolerance: float,
) -> tuple[Array, Array, dict[int, Shape]]:
    """Return the first margin moments at the points of a law from tables, and the tables' error.

    Parameters
    ----------
    exact : ExactMoments
    centre, scale : arrays of shape (n,)
    ranges : the points by scale
    count : int
        How many moments are wanted: 4, or 10 for all.
    shapes : mapping
        Shapes of tables to begin with, by the number of the range.
    tolerance : float
        What the last rows or columns of a table may add, in units of the largest value of a moment.

    Returns
    -------
    moments : array of shape (n, count)
    error : array of shape (count,)
    shapes : the shapes to begin with next time
    """
    relative = np.full(count, _HESSIAN_TOLERANCE)
    relative[:GRADIENT_MOMENTS] = tolerance
    tables, shapes = _resolved_tables(exact, centre, ranges, shapes, relative)
    moments = np.empty((len(centre), count))
    others = [part.points for part in ranges if part.number not in tables]
    for part in ranges:
        if part.number in tables:
            table = tables[part.number]
            moments[part.points] = table(centre[part.points], part)
    if others:
        rest = np.concatenate(others)
        for points in np.array_split(rest, 1 + len(rest) // _CHUNK):
            moments[points] = exact.moments(centre[points], scale[points])[:, :count]
    error = np.max([np.zeros(count), *(table.error for table in tables.values())], axis=0)
    return moments, error, shapes


def _resolved_tables(
    exact: ExactMoments,
    centre: Array,
    ranges: Sequence[ScaleRange],
    shapes: Mapping[int, Shape],
    relative: Array,
) -> tuple[dict[int, MomentTable], dict[int, Shape]]:
    """Return tables by the number of their range, where they are worth it, and the shapes needed.

    A table may leave `relative` (count,) of the largest value of each moment. All that are too coarse
    are built again, larger, until they are resolved or not worth their nodes.
    """
    found: dict[int, MomentTable] = {}
    shapes, size = dict(shapes), np.zeros(len(relative))
    waiting = [part for part in ranges if len(part.points) > FEW_POINTS]
    while waiting := [part for part in waiting if _worth(part, shapes)]:
        tables = [
            MomentTable.build(
                exact,
                (_span(centre[part.points]), part.span),
                shapes.get(part.number, _FIRST_SHAPE),
                len(relative),
            )
            for part in waiting
        ]
        size = np.max([size, *(table.size for table in tables if table.finite)], axis=0)
        unresolved = []
        for part, table in zip(waiting, tables, strict=True):
            if not table.finite:  # at a far trial point of a solver
                continue
            shapes[part.number], resolved = table.better_shape(relative * size)
            if resolved:
                found[part.number] = table
            else:
                unresolved.append(part)
        waiting = unresolved
    return found, shapes


def _worth(part: ScaleRange, shapes: Mapping[int, Shape]) -> bool:
    """Tell whether a table has fewer nodes than its points are worth."""
    rows, columns = shapes.get(part.number, _FIRST_SHAPE)
    return rows * columns <= min(_NODES_OF_A_POINT * len(part.points), _MOST_NODES)


@kept_on_path(_KEPT_BYTES)
def _nodes(count: int) -> Array:
    return np.cos(np.pi * (np.arange(count) + 0.5) / count)


def _last_above(sizes: Array, allowed: Array) -> int:
    """Return the last degree with a coefficient above what is allowed."""
    return int(np.flatnonzero(np.any(sizes > allowed, axis=1)).max(initial=0))


def _span(values: Array) -> Span:
    return float(values.min()), float(values.max())


def _nodes_in(count: int, span: Span) -> Array:
    return np.asarray(0.5 * (span[0] + span[1]) + 0.5 * (span[1] - span[0]) * _nodes(count))


@kept_on_path(_KEPT_BYTES)
def _transform(count: int) -> Array:
    """Return the matrix that takes values at the Chebyshev nodes to coefficients."""
    matrix = chebyshev.chebvander(_nodes(count), count - 1).T * (2 / count)
    matrix[0] /= 2
    return np.asarray(matrix)


def _basis(x: Array, count: int) -> Array:
    """Return T_0 … T_{count-1} at x, as rows."""
    rows = np.empty((count, len(x)))
    rows[0] = 1
    if count > 1:
        rows[1] = x
    twice = 2 * x
    for k in range(2, count):
        np.multiply(twice, rows[k - 1], out=rows[k])
        rows[k] -= rows[k - 2]
    return rows


def _from_range(x: Array, span: Span) -> Array:
    width = span[1] - span[0]
    return np.asarray((2 * x - span[0] - span[1]) / width if width > 0 else np.zeros_like(x))
