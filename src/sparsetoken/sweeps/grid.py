"""The cells of a study without writing them down: a product of axes, one cell made when asked for.

A study of 10⁶ cells is a few lists. Everything that must know all cells (their number, what a store
belongs to, which cells share one theory) is worked out from the lists.
"""

import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, overload

__all__ = ["Grid", "Settings", "Sharing", "names_of", "share"]

Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Axis:
    """Settings that vary together: their names, and the values that they take side by side."""

    names: tuple[str, ...]
    values: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True)
class Grid(Sequence[dict[str, Any]]):
    """A sequence of settings: the product of axes, the last one varying fastest.

    Attributes
    ----------
    axes : tuple of Axis
    names : tuple of str
        The settings in the order in which a cell lists them.
    copies : dict
        Settings that take the value of another one, by name.
    fixed : dict
        Settings that are the same in all cells.
    """

    axes: tuple[Axis, ...]
    names: tuple[str, ...]
    copies: Mapping[str, str] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return math.prod(len(axis.values) for axis in self.axes)

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> list[dict[str, Any]]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        return self._cell(
            axis.values[place]
            for axis, place in zip(self.axes, self.places(index % len(self)), strict=True)
        )

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return map(self._cell, itertools.product(*(axis.values for axis in self.axes)))

    def _cell(self, picked: Any) -> dict[str, Any]:
        varied = dict(zip(self._varied, itertools.chain.from_iterable(picked), strict=True))
        varied |= self.fixed
        for name, source in self.copies.items():
            varied[name] = varied[source]
        return {name: varied[name] for name in self.names}

    @cached_property
    def _varied(self) -> tuple[str, ...]:
        return tuple(name for axis in self.axes for name in axis.names)

    @cached_property
    def _strides(self) -> tuple[int, ...]:
        lengths = [len(axis.values) for axis in self.axes]
        return tuple(math.prod(lengths[place + 1 :]) for place in range(len(lengths)))

    def places(self, number: int) -> list[int]:
        """Return where cell `number` is on each axis."""
        return [
            number // stride % len(axis.values)
            for stride, axis in zip(self._strides, self.axes, strict=True)
        ]

    def number(self, places: Sequence[int]) -> int:
        """Return the number of the cell at these places of the axes."""
        return sum(place * stride for place, stride in zip(places, self._strides, strict=True))

    def combinations(self, names: Sequence[str]) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield each combination of values of some settings, with the first cell that has it."""
        sources = {self.copies.get(name, name) for name in names}
        matter = [bool(sources.intersection(axis.names)) for axis in self.axes]
        ranges = [
            range(len(axis.values)) if matters else range(1)
            for axis, matters in zip(self.axes, matter, strict=True)
        ]
        for places in itertools.product(*ranges):
            number = self.number(places)
            cell = self[number]
            yield number, {name: cell[name] for name in names}

    def to_json(self) -> str:
        """Return the grid as a text that `from_json` reads."""
        axes = [[axis.names, axis.values] for axis in self.axes]
        return json.dumps([axes, self.names, dict(self.copies), dict(self.fixed)])

    @classmethod
    def from_json(cls, text: str) -> "Grid":
        """Return the grid that `to_json` wrote."""
        axes, names, copies, fixed = json.loads(text)
        made = tuple(Axis(tuple(n), tuple(tuple(v) for v in values)) for n, values in axes)
        return cls(made, tuple(names), copies, fixed)


def names_of(cells: Sequence[Settings]) -> list[str]:
    """Return the names of all settings, in the order in which they first occur."""
    if isinstance(cells, Grid):
        return list(cells.names)
    return list(dict.fromkeys(name for cell in cells for name in cell))


@dataclass(frozen=True)
class Sharing:
    """Which cells share one call, and which of them makes it.

    Attributes
    ----------
    first : callable
        Gives the cell that makes the call of a cell.
    members : callable
        Gives all cells that share the call of such a first cell.
    """

    first: Callable[[int], int]
    members: Callable[[int], Sequence[int]]


def share(cells: Sequence[Settings], ignored: Sequence[str]) -> Sharing:
    """Let cells that differ in the `ignored` settings alone share one call."""
    return _share_grid(cells, ignored) if isinstance(cells, Grid) else _share_list(cells, ignored)


def _share_list(cells: Sequence[Settings], ignored: Sequence[str]) -> Sharing:
    groups: dict[str, list[int]] = {}
    first = []
    for number, cell in enumerate(cells):
        key = {name: value for name, value in cell.items() if name not in ignored}
        group = groups.setdefault(json.dumps(key, sort_keys=True), [])
        group.append(number)
        first.append(group[0])
    members = {group[0]: group for group in groups.values()}
    return Sharing(first.__getitem__, members.__getitem__)


def _share_grid(grid: Grid, ignored: Sequence[str]) -> Sharing:
    """Work on the places of single axes: those that differ in ignored settings alone are alike."""
    alike: list[dict[int, list[int]]] = []  # for each axis, from a first place to all places
    first_place: list[list[int]] = []
    for axis in grid.axes:
        kept = [
            n
            for n, name in enumerate(axis.names)
            if name not in ignored
            or any(source == name and copy not in ignored for copy, source in grid.copies.items())
        ]
        seen: dict[tuple[Any, ...], int] = {}
        firsts = [
            seen.setdefault(tuple(values[n] for n in kept), place)
            for place, values in enumerate(axis.values)
        ]
        groups: dict[int, list[int]] = {}
        for place, alike_place in enumerate(firsts):
            groups.setdefault(alike_place, []).append(place)
        first_place.append(firsts)
        alike.append(groups)

    def first(number: int) -> int:
        places = grid.places(number)
        return grid.number([first_place[axis][place] for axis, place in enumerate(places)])

    def members(number: int) -> list[int]:
        places = grid.places(number)
        groups = [alike[axis][place] for axis, place in enumerate(places)]
        return [grid.number(combination) for combination in itertools.product(*groups)]

    return Sharing(first, members)
