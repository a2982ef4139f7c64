"""Does attention go to the right tokens?"""

from typing import Any

import numpy as np

from sparsetoken.arrays import Array
from sparsetoken.validation import ParameterError, integer

__all__ = ["concentration", "localisation_score", "positions_of"]


def localisation_score(attention: Any, positions: Any, *, k: int = 1) -> float:
    """Return the share of sequences with an informative token among the k most attended.

    Parameters
    ----------
    attention : array of shape (n, L), or list of n arrays of shape (L_i,)
        Weights of the tokens, as `AttentionClassifier.attention` gives them.
    positions : array of shape (n,), or list of n sequences of int
        Positions of the informative tokens of each sequence; -1, None or an empty list if it has
        none, which leaves the sequence out.
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
    if len(attention) != len(positions):
        raise ParameterError(
            "length of positions", len(positions), f"{len(attention)}, one entry a sequence"
        )
    hits = []
    for index, (weights, entry) in enumerate(zip(attention, positions, strict=True)):
        weights = np.asarray(weights)
        wanted = positions_of(entry, len(weights), index)
        if len(wanted) == 0:
            continue
        hits.append(np.isin(np.argsort(-weights, kind="stable")[:k], wanted).any())
    if not hits:
        raise ParameterError("positions", "none", "an informative token in some sequence")
    return float(np.mean(hits))


def concentration(attention: Any) -> Array:
    """Return 1/Σ p² for each sequence: the number of tokens that attention is spread over."""
    return np.array([1.0 / float(np.sum(np.square(weights))) for weights in attention])


def positions_of(entry: Any, length: int, index: int) -> Array:
    """Return the informative tokens that an entry names for a sequence, none for -1 or None."""
    if entry is None:
        return np.zeros(0, dtype=int)
    wanted = np.atleast_1d(np.asarray(entry, dtype=int))
    if wanted.size == 1 and wanted[0] == -1:
        return wanted[:0]
    if wanted.size and (wanted.min() < 0 or wanted.max() >= length):
        raise ParameterError(
            f"positions of sample {index}", wanted.tolist(), f"within 0 ... {length - 1}"
        )
    return wanted
