"""Change a claim's table, to see whether its verdict notices."""

from collections.abc import Callable, Mapping
from typing import Any

from sparsetoken.reproduce.claim import Table


def altered(table: Table, change: Callable[[dict[str, Any]], Any], **labels: Any) -> Table:
    """Return the table with `change` applied to a copy of the rows that have these labels."""
    chosen = [id(row) for row in table.select(**labels).rows]
    assert chosen, "the test must change something"
    rows: list[Mapping[str, Any]] = []
    for row in table.rows:
        copy = dict(row)
        if id(row) in chosen:
            change(copy)
        rows.append(copy)
    return Table(rows, table.settings)
