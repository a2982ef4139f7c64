"""The table of verdicts for pages written in Markdown."""

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["verdict_table"]


def verdict_table(entries: Sequence[Mapping[str, Any]], series: str = "claim") -> str:
    """Return the table of the claims, or questions, of `verdicts.json`."""
    mark = "Q" if series == "question" else ""
    rows = [
        f"| {mark}{entry[series]} | {entry['title']} | {entry['verdict']} |" for entry in entries
    ]
    return "\n".join([f"| | {series} | verdict |", "|---|---|---|", *rows])
