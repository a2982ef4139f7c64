"""Does attention go to the right tokens?"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from sparsetoken.arrays import Array
from sparsetoken.validation import ParameterError, integer, several

__all__ = ["concentration", "localisation_score", "positions_of", "with_positions"]


def localisation_score(attention: Any, positions: Any, *, k: int = 1) -> float:
    """Return the share of sequences with an informative token among the k most attended.

    Parameters
    ----------
    attention : array of shape (n, L), or list of n arrays of shape (L_i,)
        Weights of the tokens, as `AttentionClassifier.attention` gives them.
    positions : array of shape (n,), list of n sequences of int, or n boolean masks of shape (L_i,)
        Positions of the informative tokens of each sequence; -1, None or an empty list if it has
        none, which leaves the sequence out. A mask is True at informative tokens, as in
        `sample(...).positions`.
    k : int, default 1
        A sequence of fewer than k tokens counts with all of its tokens.

    Returns
    -------
    float in [0, 1]

    Examples
    --------
    >>> from sparsetoken import localisation_score
    >>> localisation_score([[0.9, 0.1], [0.2, 0.8], [0.5, 0.5]], [0, 0, -1])
    0.5
    """
    k = integer("k", k, low=1)
    hits = []
    for weights, wanted in with_positions("attention", attention, positions):
        if len(wanted) == 0:
            continue
        hits.append(np.isin(np.argsort(-weights, kind="stable")[:k], wanted).any())
    if not hits:
        raise ParameterError("positions", "none", "an informative token in some sequence")
    return float(np.mean(hits))


def concentration(attention: Any) -> Array:
    """Return 1/Σ p² for each sequence: the number of tokens that attention is spread over."""
    return np.array([1.0 / float(np.sum(np.square(weights))) for weights in attention])


def with_positions(name: str, rows: Any, positions: Any) -> Iterator[tuple[Array, Array]]:
    """Yield the numbers of each sequence's tokens, with the positions of its informative ones."""
    rows, entries = (
        list(several(name, rows, "arrays")),
        list(several("positions", positions, "int")),
    )
    if len(rows) != len(entries):
        accepted = f"{len(rows)}, one entry a sequence"
        raise ParameterError("length of positions", len(entries), accepted)
    for index, (row, entry) in enumerate(zip(rows, entries, strict=True)):
        row = np.asarray(row)
        if row.ndim != 1 or row.dtype.kind not in "biuf":
            given = row.shape if row.dtype.kind in "biuf" else row.dtype.name
            raise ParameterError(f"{name} of sample {index}", given, "numbers of shape (tokens,)")
        yield row, positions_of(entry, len(row), index)


def positions_of(entry: Any, length: int, index: int) -> Array:
    """Return the informative tokens that an entry names for a sequence, none for -1 or None."""
    if entry is None:
        return np.zeros(0, dtype=int)
    wanted = np.atleast_1d(np.asarray(entry))
    if wanted.dtype == bool and wanted.shape == (length,):
        return np.flatnonzero(wanted)
    if wanted.size == 0 or (wanted.dtype.kind in "iu" and wanted.tolist() == [-1]):
        return np.zeros(0, dtype=int)
    whole = wanted.dtype.kind in "iu" and wanted.ndim == 1
    if not whole or wanted.min() < 0 or wanted.max() >= length:
        accepted = f"integers within 0 ... {length - 1}, or {length} booleans"
        raise ParameterError(f"positions of sample {index}", entry, accepted)
    return wanted.astype(int)
