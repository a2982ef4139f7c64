"""The table of verdicts for pages written in Markdown."""

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["verdict_table"]


def verdict_table(claims: Sequence[Mapping[str, Any]]) -> str:
    """Return the table of the claims of `verdicts.json`."""
    rows = [f"| {entry['claim']} | {entry['title']} | {entry['verdict']} |" for entry in claims]
    return "\n".join(["| | claim | verdict |", "|---|---|---|", *rows])
