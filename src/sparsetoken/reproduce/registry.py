"""All claims and questions, by number: the package's own, and those that others register."""

import re
from collections.abc import Iterable
from functools import cache
from importlib import import_module

from sparsetoken.reproduce.claim import Claim, Series
from sparsetoken.validation import ParameterError, instance

__all__ = ["claims", "register_claim", "select_claims", "unregister_claim"]

_MODULES: dict[Series, tuple[str, ...]] = {
    "claim": (
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
        "c14_longer_sequences",
        "c15_capacity_cosine",
        "c16_rates_map",
    ),
    "question": (
        "q01_no_split",
        "q02_joint_training",
        "q03_batches",
        "q04_long_sequences",
        "q05_length_shift",
        "q06_architectures",
        "q07_noise",
        "q08_possible",
        "q09_several_signals",
    ),
}
_ADDED: list[Claim] = []


@cache
def _built_in(series: Series) -> tuple[Claim, ...]:
    package = f"sparsetoken.reproduce.{series}s"
    return tuple(import_module(f"{package}.{name}").CLAIM for name in _MODULES[series])


def claims(series: Series = "claim") -> list[Claim]:
    """Return all claims (or questions) in the order of their numbers."""
    known = [*_built_in(series), *(claim for claim in _ADDED if claim.series == series)]
    return sorted(known, key=lambda claim: claim.number)


def register_claim(claim: Claim) -> Claim:
    """Add a claim or question of one's own to what `sparsetoken reproduce` works through.

    Its number must be free among those of its series. Returns the claim.
    """
    instance("claim", claim, Claim)
    taken = [known.number for known in claims(claim.series)]
    if claim.number in taken or claim.number < 1:
        accepted = f"a number that is free, such as {max(taken, default=0) + 1}"
        raise ParameterError(f"{claim.series}.number", claim.number, accepted)
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", claim.name):
        raise ParameterError("claim.name", claim.name, "lower-case words joined by '-'")
    _ADDED.append(claim)
    return claim


def unregister_claim(claim: Claim) -> None:
    """Forget a claim that was registered."""
    if claim not in _ADDED:
        raise ParameterError("claim", claim.short, "one that was registered")
    _ADDED.remove(claim)


def select_claims(numbers: Iterable[int], series: Series = "claim") -> list[Claim]:
    """Return the claims with these numbers, in order; all of them if there are none."""
    known = {claim.number: claim for claim in claims(series)}
    wanted = set(numbers) or set(known)
    for number in sorted(wanted - set(known)):
        raise ParameterError(series, number, f"one of {', '.join(map(str, known))}")
    return [known[number] for number in sorted(wanted)]
