"""The joint objective of queries, readout and bias, with its gradient, and its minimisation."""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from sparsetoken.arrays import Array
from sparsetoken.estimators.pooling import Pooling, segment_sums
from sparsetoken.estimators.query import Scaler
from sparsetoken.estimators.sequences import Block, Sequences
from sparsetoken.losses import Loss
from sparsetoken.numerics.threads import one_thread

__all__ = ["Heads", "JointObjective", "refine_heads"]


@dataclass(frozen=True)
class Heads:
    """Queries and readouts of one binary classifier, in standardised coordinates.

    The decision is Σ_h ⟨f_h(X), w_h⟩ + b with f_h = Xᵀ p(X q_h).

    Attributes
    ----------
    queries, weights : arrays of shape (H, d)
    bias : float
    """

    queries: Array
    weights: Array
    bias: float

    def decide(self, block: Block, scaler: Scaler, pooling: Pooling) -> Array:
        """Return the decisions of the block's samples, of shape (k,)."""
        scores = scaler.scores(np.vstack([self.queries, self.weights]), block.tokens)
        count = len(self.queries)
        attention = pooling.weights(scores[:count], block)
        pooled = segment_sums(attention * scores[count:], block)
        return np.asarray(pooled.sum(axis=0) + pooled.dtype.type(self.bias))

    def decisions(self, sequences: Sequences, scaler: Scaler, pooling: Pooling) -> Array:
        """Return the decisions of all samples, of shape (n,)."""
        parts = [self.decide(block, scaler, pooling) for block in sequences.blocks()]
        return np.concatenate(parts)


@dataclass(frozen=True)
class JointObjective:
    """Σ_i ω_i ℓ(y_i(Σ_h ⟨f_h(X_i), w_h⟩ + b)) + (λ/2) Σ_h ‖w_h‖² as a function of all parameters.

    Tied, the queries are q_h = κ_h w_h: attention goes to the tokens that speak for or against the
    class, and the parameters are (w, κ, b). Free, they are (w, q, b), and (λ/2) Σ_h ‖q_h‖² is added.

    Attributes
    ----------
    labels : array of shape (n,), values -1 and +1
    weights : array of shape (n,), ω, with sum 1
    ridge : float, λ
    """

    sequences: Sequences
    labels: Array
    weights: Array
    scaler: Scaler
    pooling: Pooling
    loss: Loss
    ridge: float
    tied: bool

    def pack(self, heads: Heads) -> Array:
        """Return the parameters as one vector."""
        if self.tied:
            squares = np.einsum("hd,hd->h", heads.weights, heads.weights)
            overlaps = np.einsum("hd,hd->h", heads.queries, heads.weights)
            query = np.divide(overlaps, squares, out=np.zeros_like(squares), where=squares > 0)
        else:
            query = heads.queries.ravel()
        return np.concatenate([heads.weights.ravel(), query, [heads.bias]])

    def unpack(self, point: Array) -> Heads:
        """Return the heads that a vector of parameters describes."""
        d = self.sequences.dimension
        count = (len(point) - 1) // (d + 1 if self.tied else 2 * d)
        weights = point[: count * d].reshape(count, d)
        query = point[count * d : -1]
        queries = query[:, None] * weights if self.tied else query.reshape(count, d)
        return Heads(queries, weights, float(point[-1]))

    def __call__(self, point: Array) -> tuple[float, Array]:
        """Return the objective's value and gradient."""
        heads = self.unpack(point)
        count, d = heads.weights.shape
        value = 0.5 * self.ridge * float(np.sum(heads.weights**2))
        gradient = np.zeros_like(point)
        by_weights = gradient[: count * d].reshape(count, d)
        by_weights += self.ridge * heads.weights
        by_query = gradient[count * d : -1]  # κ if tied, else q
        if not self.tied:
            by_query = by_query.reshape(count, d)
            by_query += self.ridge * heads.queries
            value += 0.5 * self.ridge * float(np.sum(heads.queries**2))
        sharpness = point[count * d : -1, None].astype(self.sequences.dtype)  # κ, used if tied
        vectors = heads.weights if self.tied else np.vstack([heads.queries, heads.weights])
        scores_of = self.scaler.scorer(vectors, self.sequences.dtype)
        for block in self.sequences.blocks():
            products = scores_of(block.tokens)
            values = products[-count:]
            scores = sharpness * values if self.tied else products[:count]
            attention = self.pooling.weights(scores, block)
            pooled = segment_sums(attention * values, block)
            part, slopes = self._losses(pooled.sum(axis=0) + heads.bias, block)
            value += part
            gradient[-1] += slopes.sum()
            slopes = np.repeat(slopes.astype(values.dtype), block.lengths)
            to_scores = slopes * self.pooling.pull_back(scores, attention, values, pooled, block)
            to_values = slopes * attention
            if self.tied:
                by_query += np.einsum("hn,hn->h", to_scores, values)
                to_values += sharpness * to_scores
                by_weights += self.scaler.weighted_sums(to_values, block.tokens)
            else:
                sums = self.scaler.weighted_sums(np.vstack([to_values, to_scores]), block.tokens)
                by_weights += sums[:count]
                by_query += sums[count:]
        return value, gradient

    def _losses(self, decisions: Array, block: Block) -> tuple[float, Array]:
        """Return the block's weighted loss and its derivative in each decision."""
        labels, weights = self.labels[block.samples], self.weights[block.samples]
        margins = labels * decisions
        return float(weights @ self.loss.value(margins)), weights * labels * self.loss.slope(
            margins
        )


def refine_heads(
    objective: JointObjective, start: Heads, max_iter: int, tol: float
) -> tuple[Heads, int]:
    """Minimise the joint objective by L-BFGS; return the heads and the number of iterations."""
    # The products are with one block and a few vectors: too small for threads to gain anything.
    with one_thread:
        result = minimize(
            objective,
            objective.pack(start),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": max_iter, "ftol": tol, "gtol": 1e-6, "maxfun": 3 * max_iter},
        )
    return objective.unpack(result.x), int(result.nit)
