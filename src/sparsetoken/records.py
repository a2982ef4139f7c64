"""Results that all have one shape: named values with their uncertainties.

A result is a frozen dataclass that derives from `Record`. `to_dict()` is its flat form, which
tables, files and figures share: a value under its name, its error bar under `<name>_uncertainty`.
"""

import html
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from importlib import import_module
from typing import Any, ClassVar, Generic, TypeVar, overload

from sparsetoken import validation

__all__ = [
    "FEW_POSITIVES",
    "LOCALISATION",
    "METRICS",
    "RANKING",
    "UNCERTAINTY",
    "Curve",
    "Record",
    "is_noteworthy",
    "is_number",
    "measured",
    "preformatted",
    "rate_text",
    "readable",
    "share_text",
    "table_cells",
    "to_frame",
    "with_error",
]

UNCERTAINTY = "_uncertainty"

# Quantities that predictions and trials have on request: of all classifiers, and of a query.
RANKING = ("auc", "average_precision", "balanced_error")
LOCALISATION = ("attended_mass", "hit_rate")
METRICS = (*RANKING, *LOCALISATION)

# Where positives are rarer, the error says little, and results show the AUC as well.
FEW_POSITIVES = 0.2

# Numbers below 10 to minus this are shown with an exponent.
_SMALL = 5

# How a record names the status of a solution about which there is nothing to say.
_CONVERGED = "converged"

# Left out where a person reads: how the solver got there.
_QUIET = ("residual", "steps", "converged", "status")


class Record:
    """A result as a flat dictionary, as text, as a table in a notebook and as a data frame.

    Fields that are records or settings themselves are merged. The field `uncertainty` holds the
    error bars, by the names of the fields they belong to; a single number belongs to the first
    field. A field with the metadata "hidden" is not a value.

    Attributes
    ----------
    sampled : bool
        Whether error bars are standard errors of trials. If one of them is 0 all trials were alike,
        but the value is not exact.
    """

    sampled: ClassVar[bool] = False

    def to_dict(self) -> dict[str, Any]:
        """Return the values by name, each error bar after its value under name_uncertainty.

        Returns
        -------
        dict

        Examples
        --------
        >>> from sparsetoken import Task, Training, align
        >>> sorted(align(Task(10, 1, 5.0), Training(4.0, 2.0)).to_dict())[:2]
        ['alignment', 'anti_aligned']
        """
        flat: dict[str, Any] = {}
        bars: dict[str, Any] = {}
        for item in fields(self):  # type: ignore[arg-type]
            value = getattr(self, item.name)
            if item.metadata.get("hidden"):
                continue
            if item.name == "uncertainty":
                bars = _bars(value, first=next(iter(flat)))
            elif value is None and item.metadata.get("merge"):
                continue
            elif hasattr(value, "to_dict"):
                flat.update(value.to_dict())
            elif is_dataclass(value) and not isinstance(value, type):
                flat.update({part.name: getattr(value, part.name) for part in fields(value)})
            else:
                flat[item.name] = value
        return dict(_interleaved(flat, bars))

    def to_frame(self) -> Any:
        """Return a data frame of one row (pandas, or polars if only that is installed).

        Returns
        -------
        DataFrame

        Examples
        --------
        >>> from sparsetoken import Task, capacity
        >>> len(capacity(Task(10, 1, 5.0), classifier="pooled").to_frame())
        1
        """
        return to_frame([self.to_dict()])

    def __str__(self) -> str:
        texts = readable(self.to_dict(), sampled=self.sampled)
        width = max(len(name) for name in texts)
        lines = [f"  {name:{width}}  {text}" for name, text in texts.items()]
        return "\n".join([type(self).__name__, *lines])

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th style='text-align:left'>{html.escape(name)}</th><td>{html.escape(text)}</td>"
            "</tr>"
            for name, text in readable(self.to_dict(), sampled=self.sampled).items()
        )
        return f"<table><caption>{type(self).__name__}</caption>{rows}</table>"


_R = TypeVar("_R", bound=Record)


@dataclass(frozen=True, repr=False)
class Curve(Sequence[_R], Generic[_R]):
    """Results along one varied field: a sequence of records that knows its x and draws itself.

    Attributes
    ----------
    over : str
        The field that varies.
    values : tuple of float
        Its values.
    records : tuple of records
        The results, one for each value.
    settings : dict
        What stays fixed; the caption of a figure.
    main : str
        The quantity that is drawn unless another is asked for; by default the records' first.

    Examples
    --------
    >>> from sparsetoken import Task, Training, curve
    >>> found = curve(Task(10, 1, 5.0), Training(4.0, 2.0), values=[1.0, 2.0], classifier="pooled")
    >>> found.over, found.values, len(found)
    ('alpha1', (1.0, 2.0), 2)
    """

    over: str
    values: tuple[float, ...]
    records: tuple[_R, ...]
    settings: Mapping[str, Any]
    main: str = ""

    @overload
    def __getitem__(self, index: int) -> _R: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[_R, ...]: ...
    def __getitem__(self, index: int | slice) -> _R | tuple[_R, ...]:
        return self.records[index]

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[_R]:
        return iter(self.records)

    def column(self, quantity: str) -> list[Any]:
        """Return one quantity at every value.

        Parameters
        ----------
        quantity : str
            A key of the rows: the varied field, or a value of the records.

        Returns
        -------
        list
            Of numbers or texts, in the order of `values`.

        Examples
        --------
        >>> from sparsetoken import Task, Training, curve
        >>> found = curve(Task(10, 1, 5.0), Training(4.0, 2.0), values=[1.0, 2.0], classifier="pooled")
        >>> first, second = found.column("test_error")
        >>> first > second
        True
        """
        rows = self.to_rows()
        known = list(rows[0]) if rows else []
        validation.choice("quantity", quantity, known)
        return [row[quantity] for row in rows]

    def to_rows(self) -> list[dict[str, Any]]:
        """Return a dictionary for each value: the varied field, then the result's `to_dict()`.

        Returns
        -------
        list of dict

        Examples
        --------
        >>> from sparsetoken import Task, Training, curve
        >>> found = curve(Task(10, 1, 5.0), Training(4.0, 2.0), values=[1.0, 2.0], classifier="pooled")
        >>> [row["alpha1"] for row in found.to_rows()]
        [1.0, 2.0]
        """
        return [
            {self.over: value, **record.to_dict()}
            for value, record in zip(self.values, self.records, strict=True)
        ]

    def to_frame(self) -> Any:
        """Return a data frame with a row for each value (pandas, or polars if only that is there).

        Returns
        -------
        DataFrame

        Examples
        --------
        >>> from sparsetoken import Task, Training, curve
        >>> found = curve(Task(10, 1, 5.0), Training(2.0, 1.0), values=[1.0, 2.0], classifier="pooled")
        >>> len(found.to_frame())
        2
        """
        return to_frame(self.to_rows())

    def plot(
        self,
        quantity: str | None = None,
        *,
        axes: Any = None,
        look: str = "",
        logarithmic: bool = False,
    ) -> Any:
        """Draw a quantity with its error band against the varied field; return the axes.

        Parameters
        ----------
        quantity : str, optional
            A number of the records; by default `main`, or their first.
        axes : matplotlib Axes, optional
        look : str, optional
            The name of a look of `sparsetoken.plotting`; by default the classifier's.
        logarithmic : bool
            Whether the abscissa is.

        Returns
        -------
        matplotlib Axes

        Examples
        --------
        >>> from sparsetoken import Task, Training, curve
        >>> found = curve(Task(10, 1, 5.0), Training(4.0, 2.0), values=[1.0, 2.0], classifier="pooled")
        >>> found.plot("train_loss").get_ylabel()
        'train loss'
        """
        from sparsetoken.plotting import (
            axes_to_draw_in,
            describe,
            draw_band,
            look_of,
            named,
            tidy_log_ticks,
        )

        logarithmic = validation.boolean("logarithmic", logarithmic)
        entries = [measured(record.to_dict()) for record in self.records]
        known = [name for name, (value, _) in entries[0].items() if is_number(value)]
        quantity = self.main or known[0] if quantity is None else quantity
        validation.choice("quantity", quantity, known)
        is_new, axes = axes is None, axes_to_draw_in(axes)
        if is_new:
            axes.figure.suptitle(describe(self.settings), fontsize=6, wrap=True)
        heights, bars = zip(
            *((value, bar or 0.0) for value, bar in (one[quantity] for one in entries)), strict=True
        )
        look = look or str(self.settings.get("classifier", quantity))
        draw_band(axes, self.values, heights, bars, look_of(look))
        axes.set_xlabel(named(self.over))
        axes.set_ylabel(named(quantity))
        if logarithmic:
            axes.set_xscale("log")
            tidy_log_ticks(axes)
        return axes

    def __repr__(self) -> str:
        span = f" from {self.values[0]:g} to {self.values[-1]:g}" if self.values else ""
        kind = type(self.records[0]).__name__ if self.records else "results"
        return f"<Curve of {len(self)} {kind} over {self.over}{span}>"

    def __str__(self) -> str:
        cells = self._cells()
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in cells
        )

    def _cells(self) -> list[list[str]]:
        sampled = any(getattr(record, "sampled", False) for record in self.records)
        return table_cells(self.over, self.to_rows(), sampled=sampled)

    def _repr_html_(self) -> str:
        head, *body = self._cells()
        rows = ["".join(f"<th>{html.escape(cell)}</th>" for cell in head)]
        rows += ["".join(f"<td>{html.escape(cell)}</td>" for cell in line) for line in body]
        return "<table>" + "".join(f"<tr>{row}</tr>" for row in rows) + "</table>"


def is_number(value: Any) -> bool:
    """Return whether a value of a row is a number; True and False are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def measured(row: Mapping[str, Any]) -> dict[str, tuple[Any, float | None]]:
    """Return (value, error bar or None) for every value of a flat record."""
    return {
        name: (value, row.get(name + UNCERTAINTY))
        for name, value in row.items()
        if not (name.endswith(UNCERTAINTY) and name.removesuffix(UNCERTAINTY) in row)
    }


def to_frame(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Return flat records as a data frame of pandas, or of polars if only that is installed."""
    # Left to itself, polars takes the columns and their types from the first hundred rows.
    for library, options in (("pandas", {}), ("polars", {"infer_schema_length": None})):
        try:
            make: Callable[..., Any] = import_module(library).DataFrame
        except ImportError:
            continue
        return make([dict(row) for row in rows], **options)
    raise ImportError("a data frame needs pandas or polars: pip install pandas")


def preformatted(text: str) -> str:
    """Return lines of text for a notebook, aligned as they are."""
    return f"<pre>{html.escape(text)}</pre>"


def rate_text(value: float) -> str:
    """Return a rate with four decimals, or with two digits where it is small."""
    return f"{value:.4f}" if value >= 1e-3 or value == 0 else f"{value:.2g}"


def share_text(share: float) -> str:
    """Return a share in whole percent: "80 %"."""
    return f"{100 * share:.0f} %"


def with_error(value: Any, error: float | None) -> str:
    """Return "0.0416 ± 0.0001", with the digits that the error leaves."""
    if value is None:
        return "-"
    if not isinstance(value, float):
        return str(value)
    value += 0.0  # turns a -0 into 0
    if error is None or not math.isfinite(value):
        return f"{value:.5g}"
    if not math.isfinite(error):
        return f"{value:.5g} ± {error}"
    if error == 0:
        return f"{value:.6g} (exact)"
    return f"{_rounded(value, error)} ± {error:.1g}"


def _rounded(value: float, error: float) -> str:
    """Return a number up to the first digit of its error, with at most 6 significant digits."""
    last = math.floor(math.log10(error))
    first = math.floor(math.log10(abs(value))) if value else last
    if first < last:
        return f"{value:.{max(-last, 0)}f}" if abs(value) > 0.5 * 10.0**last else "0"
    significant = min(first - last + 1, 6)
    if first < -_SMALL:
        return f"{value:.{significant}g}"
    return f"{value:.{max(significant - 1 - first, 0)}f}" if value else "0"


def _bars(uncertainty: Any, first: str) -> dict[str, Any]:
    if is_dataclass(uncertainty):
        return {part.name: getattr(uncertainty, part.name) for part in fields(uncertainty)}
    return dict(uncertainty) if isinstance(uncertainty, Mapping) else {first: uncertainty}


def _interleaved(flat: Mapping[str, Any], bars: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in flat.items():
        yield name, value
        if bars.get(name) is not None:
            yield name + UNCERTAINTY, bars[name]


def is_noteworthy(row: Mapping[str, Any]) -> bool:
    """Return whether a flat record tells how its solution ended, and that is not as it should."""
    return "message" in row and row.get("status") != _CONVERGED


def readable(row: Mapping[str, Any], *, sampled: bool = False) -> dict[str, str]:
    """Return what a person wants to read of a flat record, as text by name.

    The share of trials that converged is told if it is not all of them. With `sampled` error bars are
    standard errors; see `Record`.
    """
    quiet = set(_QUIET) if is_noteworthy(row) else {*_QUIET, "message"}
    if isinstance(row.get("converged"), float) and row["converged"] < 1:
        quiet.remove("converged")
    return {
        name.replace("_", " "): with_error(value, (error or None) if sampled else error)
        for name, (value, error) in measured(row).items()
        if value is not None and name not in quiet
    }


def table_cells(
    over: str, rows: Sequence[Mapping[str, Any]], *, sampled: bool = False
) -> list[list[str]]:
    """Return the cells of a table of flat records: its head, then a line for each record."""
    known = (over, over + UNCERTAINTY)  # exact, or rounding: a place on an axis
    texts = [
        readable({name: value for name, value in row.items() if name not in known}, sampled=sampled)
        for row in rows
    ]
    names = list(dict.fromkeys(name for text in texts for name in text))
    body = [
        [f"{row[over]:.5g}", *(text.get(name, "-") for name in names)]
        for row, text in zip(rows, texts, strict=True)
    ]
    return [[over.replace("_", " "), *names], *body]
