"""What a claim consists of, and the table of numbers that it is judged by."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from matplotlib.figure import Figure

from sparsetoken.arrays import Array
from sparsetoken.plotting import show_whole_markers, styled, tidy_log_ticks
from sparsetoken.uncertainty import Joined, joined

if TYPE_CHECKING:
    from sparsetoken.reproduce.measurement import Measurement

__all__ = [
    "Claim",
    "Drawing",
    "Quantity",
    "Result",
    "Row",
    "Ruling",
    "Series",
    "Settings",
    "Table",
    "Verdict",
]

Ruling = Literal["confirmed", "refuted", "undecided", "not measured"]
Series = Literal["claim", "question"]
Result = dict[str, float]
Row = Mapping[str, Any]
Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Quantity:
    """A number and its uncertainty: numerical for theory, standard error for simulation."""

    value: float
    uncertainty: float | None = None

    def __str__(self) -> str:
        if self.uncertainty is None or not self.uncertainty > 0:
            return f"{self.value:.4g}"
        if self.uncertainty < 1e-4 * abs(self.value):
            return f"{self.value:.4g} ± {self.uncertainty:.0e}"
        digits = max(0, 1 - int(np.floor(np.log10(self.uncertainty))))
        return f"{self.value:.{digits}f} ± {self.uncertainty:.{digits}f}"


@dataclass(frozen=True)
class Verdict:
    """What a claim's criterion says about the numbers."""

    ruling: Ruling
    seen: str
    numbers: Mapping[str, Quantity] = field(default_factory=dict)


@dataclass(frozen=True)
class Drawing:
    """A figure and the caption that gives its settings."""

    figure: Figure
    caption: str


@dataclass(frozen=True)
class Table:
    """Rows of plain data: labels, and for each measured field its value and `field_uncertainty`.

    Theory rows have `source` "theory" and a numerical error; simulation rows have `source`
    "simulation", the mean over `trials`, its standard error and `field_spread`, the standard
    deviation of one trial.
    """

    rows: Sequence[Row]
    settings: Settings

    def select(self, **labels: Any) -> "Table":
        """Return the rows with these labels; a tuple accepts any of its values."""
        kept = [
            row
            for row in self.rows
            if all(_matches(row.get(name), wanted) for name, wanted in labels.items())
        ]
        return Table(kept, self.settings)

    def column(self, name: str) -> Array:
        """Return one field of all rows as an array of floats."""
        return np.array([float(row[name]) for row in self.rows])

    def quantity(self, name: str) -> "Quantity":
        """Return one field of the only row, with its uncertainty."""
        (row,) = self.rows
        return Quantity(float(row[name]), row.get(f"{name}_uncertainty"))

    def where(self, condition: Callable[[Row], bool]) -> "Table":
        """Return the rows that meet a condition."""
        return Table([row for row in self.rows if condition(row)], self.settings)

    def largest(self, name: str) -> "Table":
        """Return the rows with the largest value of a label, and those without it."""
        values = self.distinct(name)
        return self.where(lambda row: name not in row or row[name] == max(values))

    def ordered(self, name: str) -> "Table":
        """Return the rows in increasing order of a field."""
        return Table(sorted(self.rows, key=lambda row: row[name]), self.settings)

    def distinct(self, name: str) -> list[Any]:
        """Return the values that a label takes, each once, in order of appearance."""
        return list(dict.fromkeys(row[name] for row in self.rows if name in row))

    def paired(self, name: str, on: Iterable[str]) -> list[tuple[Row, Joined]]:
        """Return the simulation rows of a field, each beside theory of the same labels."""
        keys = tuple(on)
        theory = {
            tuple(row.get(key) for key in keys): row for row in self.select(source="theory").rows
        }
        found = []
        for row in self.select(source="simulation").rows:
            match = theory.get(tuple(row.get(key) for key in keys))
            if match is not None and name in row and name in match:
                found.append((row, joined(name, row, match, trials=row["trials"])))
        return found

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, or an answer to an open question, and how it is put to the test.

    Attributes
    ----------
    number, name, title : its place, a short name for files, and its title
    statement : the claim in a sentence; for a question, the answer that is put to the test
    meaning : two sentences for someone who has not read the paper
    criterion : what must hold for it to count as confirmed, the same for every run
    settings : profile ("quick", "full" or "tiny") -> plain settings
    measurements : settings -> what is to be measured
    judge : table -> verdict; looks at nothing but the table
    draw : table -> named figures with captions; the first is the main figure
    series : "claim" for the paper's claims, "question" for the questions that it leaves open
    needs : an optional module without which nothing is measured, and the extra that brings it
    """

    number: int
    name: str
    title: str
    statement: str
    meaning: str
    criterion: str
    settings: Mapping[str, Settings]
    measurements: Callable[[Settings], list["Measurement"]]
    judge: Callable[[Table], Verdict]
    draw: Callable[[Table], dict[str, Drawing]]
    series: Series = "claim"
    needs: tuple[str, str] | None = None

    def missing(self) -> str | None:
        """Return what must be installed before it can be measured; None if all is there."""
        if self.needs is None or find_spec(self.needs[0]) is not None:
            return None
        module, extra = self.needs
        return (
            f"not measured: it needs the package {module}, which the extra {extra!r} brings: in a "
            f"clone, pip install '.[{extra}]'"
        )

    def figures(self, table: Table) -> dict[str, Drawing]:
        """Draw the figures in the package's style, whatever the caller's is."""
        drawings = styled(self.draw)(table)
        for drawing in drawings.values():
            for panel in drawing.figure.axes:
                tidy_log_ticks(panel)
                show_whole_markers(panel)
        return drawings

    @property
    def stem(self) -> str:
        """The beginning of the names of its files."""
        return f"{self.series}-{self.number:02d}-{self.name}"

    @property
    def short(self) -> str:
        """Its number as people write it: "8", or "Q8" for a question."""
        return f"{'Q' if self.series == 'question' else ''}{self.number}"


def _matches(value: Any, wanted: Any) -> bool:
    return value in wanted if isinstance(wanted, tuple) else bool(value == wanted)
