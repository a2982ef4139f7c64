"""The loss of attention on arrays, and its gradient in readout, query and bias."""

from dataclasses import dataclass

import numpy as np

from sparsetoken.arrays import Array
from sparsetoken.losses import Loss

__all__ = ["BatchSums", "batch_sums"]


@dataclass(frozen=True)
class BatchSums:
    """Sums over samples, with h = y ℓ'(y(Σ p t + b)), t = ⟨x, w⟩ and k = p (t - Σ p t).

    Attributes
    ----------
    loss, errors : float
        Sums of the loss, and of wrong labels.
    bias : float
        Σ h.
    readout, query : arrays of shape (d,)
        Σ h Σ_l p x and Σ h Σ_l k x; β times the latter is the gradient in q.
    squares : array of shape (2, 2)
        Σ h² Σ_l (p, k)(p, k)ᵀ.
    """

    loss: float
    errors: float
    bias: float
    readout: Array
    query: Array
    squares: Array


def batch_sums(
    X: Array, y: Array, readout: Array, query: Array, bias: float, beta: float, loss: Loss
) -> BatchSums:
    """Return the sums of one block of sequences X (n, L, d), with p the softmax of β X q."""
    scores = beta * (X @ query)
    scores -= scores.max(axis=1, keepdims=True)
    p = np.exp(scores)
    p /= p.sum(axis=1, keepdims=True)
    t = X @ readout
    mean = np.vecdot(p, t)
    margins = y * (mean + bias)
    slopes = y * loss.slope(margins)
    weights = slopes[:, None] * p
    moved = weights * (t - mean[:, None])
    flat = X.reshape(-1, X.shape[2])
    rows = np.stack([weights.reshape(-1), moved.reshape(-1)])
    products = rows @ flat
    return BatchSums(
        float(loss.value(margins).sum()),
        float(np.sum(margins <= 0)),
        float(slopes.sum()),
        products[0],
        products[1],
        rows @ rows.T,
    )
