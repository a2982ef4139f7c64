"""All claims, by number."""

from collections.abc import Iterable
from importlib import import_module

from sparsetoken.reproduce.claim import Claim
from sparsetoken.validation import ParameterError

__all__ = ["claims", "select_claims"]

_MODULES = (
    "c01_required_strength",
    "c02_linear_floor",
    "c03_elementwise",
    "c04_alignment",
    "c05_rate",
    "c06_anti_alignment",
    "c07_weak_first_stage",
    "c08_exact_errors",
    "c09_alignment_governs",
    "c10_square_loss",
    "c11_capacity",
    "c12_split",
    "c13_sharpness",
)


def claims() -> list[Claim]:
    """Return all claims in order."""
    return [import_module(f"sparsetoken.reproduce.claims.{module}").CLAIM for module in _MODULES]


def select_claims(numbers: Iterable[int]) -> list[Claim]:
    """Return the claims with these numbers, in order; all of them if there are none."""
    known = {claim.number: claim for claim in claims()}
    wanted = set(numbers) or set(known)
    for number in sorted(wanted - set(known)):
        raise ParameterError("claim", number, f"a number from 1 to {len(known)}")
    return [known[number] for number in sorted(wanted)]
