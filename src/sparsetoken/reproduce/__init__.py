"""The paper's claims and its open questions: each measured, drawn and judged by a stated criterion.

What a claim of one's own is made of is exported here; docs/extending.md shows one.
"""

from sparsetoken.reproduce.claim import Claim, Drawing, Quantity, Settings, Table, Verdict
from sparsetoken.reproduce.evidence import (
    Condition,
    agreement,
    crossing,
    decide,
    holds,
    lowest,
    power_law,
    within,
)
from sparsetoken.reproduce.measurement import Measurement, measures
from sparsetoken.reproduce.panels import label_axes, line_over_dots
from sparsetoken.reproduce.registry import claims, register_claim, unregister_claim

__all__ = [
    "Claim",
    "Condition",
    "Drawing",
    "Measurement",
    "Quantity",
    "Settings",
    "Table",
    "Verdict",
    "agreement",
    "claims",
    "crossing",
    "decide",
    "holds",
    "label_axes",
    "line_over_dots",
    "lowest",
    "measures",
    "power_law",
    "register_claim",
    "unregister_claim",
    "within",
]
