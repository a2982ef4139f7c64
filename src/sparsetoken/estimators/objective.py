"""The joint objective of queries, readout and bias for many binary problems at once."""

from dataclasses import dataclass

import numpy as np

from sparsetoken.arrays import Array
from sparsetoken.estimators.pooling import Pooling, segment_sums
from sparsetoken.estimators.scaling import Scaler
from sparsetoken.estimators.sequences import Block, Sequences
from sparsetoken.losses import Loss

__all__ = ["Heads", "JointObjective", "LinearObjective"]


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

    def decide(self, block: Block, scaler: Scaler, pooling: Pooling, factor: float = 1.0) -> Array:
        """Return the decisions of the block's samples, (k,), with the queries times `factor`."""
        scores = scaler.scores(np.vstack([factor * self.queries, self.weights]), block.tokens)
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
    """Σ_i ω_i ℓ(y_i(o_i + Σ_h ⟨f_h(X_i), w_h⟩ + b)) + (λ/2) Σ_h ‖s w_h‖², for P problems.

    The penalty is on s w, the readout of features divided by their units s. Tied, the queries are
    q_h = κ_h w_h: attention goes to the tokens that speak for or against the class, and the
    parameters are (s w, κ, b). Free, they are (s w, q, b), and (λ/2) Σ_h ‖q_h‖² is added.

    Attributes
    ----------
    sequences : Sequences
        The samples, the same for all problems.
    labels : array of shape (P, n), values -1 and +1
    weights : array of shape (P, n), ω, each row of sum 1
    units : array of shape (P, H, d), s
    ridges : array of shape (P,), λ
    offsets : array of shape (P, n), o, or None for none
    """

    sequences: Sequences
    labels: Array
    weights: Array
    scaler: Scaler
    pooling: Pooling
    loss: Loss
    units: Array
    ridges: Array
    tied: bool
    offsets: Array | None = None

    def pack(self, heads: list[Heads]) -> Array:
        """Return the parameters of each problem's heads as a row."""
        rows = []
        for one, units in zip(heads, self.units, strict=True):
            query = one.queries.ravel()
            if self.tied:
                squares = np.einsum("hd,hd->h", one.weights, one.weights)
                overlaps = np.einsum("hd,hd->h", one.queries, one.weights)
                query = np.divide(overlaps, squares, out=np.zeros_like(squares), where=squares > 0)
            rows.append(np.concatenate([(units * one.weights).ravel(), query, [one.bias]]))
        return np.array(rows)

    def unpack(self, points: Array, rows: Array | None = None) -> list[Heads]:
        """Return the heads that rows of parameters describe, of the problems `rows`."""
        weights, queries, biases = self._parameters(
            points, self.units if rows is None else self.units[rows]
        )
        return [
            Heads(query, weight, float(bias))
            for query, weight, bias in zip(queries, weights, biases, strict=True)
        ]

    def _parameters(self, points: Array, units: Array) -> tuple[Array, Array, Array]:
        heads, d = units.shape[1:]
        weights = points[:, : heads * d].reshape(units.shape) / units
        query = points[:, heads * d : -1]
        queries = query[:, :, None] * weights if self.tied else query.reshape(units.shape)
        return weights, queries, points[:, -1]

    def __call__(self, points: Array, rows: Array) -> tuple[Array, Array]:
        """Return values (A,) and gradients (A, m) of the problems `rows`, one a row of points."""
        units, ridges = self.units[rows], self.ridges[rows]
        count, heads, d = units.shape
        weights, queries, biases = self._parameters(points, units)
        values = np.zeros(count)
        gradients = np.zeros_like(points)
        by_weights = np.zeros((count, heads, d))
        by_query = gradients[:, heads * d : -1]  # κ if tied, else q
        vectors = weights if self.tied else np.concatenate([queries, weights], axis=1)
        dtype = self.sequences.dtype
        factors = points[:, heads * d : -1].reshape(-1, 1).astype(dtype)  # κ, used if tied
        scores_of = self.scaler.scorer(vectors.reshape(-1, d), dtype)
        for block in self.sequences.blocks():
            products = scores_of(block.tokens).reshape(count, -1, len(block.tokens))
            flat = products[:, -heads:].reshape(count * heads, -1)  # ⟨x, w⟩
            scores = factors * flat if self.tied else products[:, :heads].reshape(count * heads, -1)
            attention = self.pooling.weights(scores, block)
            pooled = segment_sums(attention * flat, block)
            decisions = pooled.reshape(count, heads, -1).sum(axis=1) + biases[:, None]
            losses, slopes = self._losses(decisions, block, rows)
            values += losses
            gradients[:, -1] += slopes.sum(axis=1)
            spread = np.repeat(slopes.astype(dtype), block.lengths, axis=1)
            spread = np.repeat(spread, heads, axis=0) if heads > 1 else spread
            to_scores = spread * self.pooling.pull_back(scores, attention, flat, pooled, block)
            to_values = spread * attention
            if self.tied:
                by_query += np.einsum("an,an->a", to_scores, flat).reshape(count, heads)
                to_values += factors * to_scores
                sums = self.scaler.weighted_sums(to_values, block.tokens)
                by_weights += sums.reshape(count, heads, d)
            else:
                both = np.concatenate([to_values, to_scores])
                sums = self.scaler.weighted_sums(both, block.tokens).reshape(2, count, heads, d)
                by_weights += sums[0]
                by_query += sums[1].reshape(count, -1)
        readouts = points[:, : heads * d]
        values += 0.5 * ridges * np.einsum("pm,pm->p", readouts, readouts)
        gradients[:, : heads * d] = (by_weights / units).reshape(count, -1)
        gradients[:, : heads * d] += ridges[:, None] * readouts
        if not self.tied:
            query = points[:, heads * d : -1]
            values += 0.5 * ridges * np.einsum("pm,pm->p", query, query)
            by_query += ridges[:, None] * query
        return values, gradients

    def decisions(self, points: Array) -> Array:
        """Return the decisions of all problems on all samples, of shape (P, n)."""
        heads = self.unpack(points)
        count = len(heads[0].queries)
        vectors = np.vstack([one.queries for one in heads] + [one.weights for one in heads])
        scores_of = self.scaler.scorer(vectors, self.sequences.dtype)
        parts = []
        for block in self.sequences.blocks():
            scores, flat = np.split(scores_of(block.tokens), 2)
            pooled = segment_sums(self.pooling.weights(scores, block) * flat, block)
            parts.append(pooled.reshape(len(heads), count, -1).sum(axis=1))
        biases = np.array([[one.bias] for one in heads])
        return np.asarray(np.concatenate(parts, axis=1) + biases)

    def _losses(self, decisions: Array, block: Block, rows: Array) -> tuple[Array, Array]:
        """Return the block's weighted losses (A,) and their slopes in each decision (A, k)."""
        labels = self.labels[rows, block.samples]
        weights = self.weights[rows, block.samples]
        if self.offsets is not None:
            decisions = decisions + self.offsets[rows, block.samples]
        margins = labels * decisions
        losses = np.einsum("pk,pk->p", weights, self.loss.value(margins))
        return losses, weights * labels * self.loss.slope(margins)


@dataclass(frozen=True)
class LinearObjective:
    """Σ_i ω_i ℓ(y_i(⟨f_i, w⟩ + b)) + (λ/2)‖w‖² for P problems; the parameters are (w, b).

    Attributes
    ----------
    features : array of shape (n, D), or (P, n, D) if every problem has its own
    labels, weights : arrays of shape (P, n)
    ridges : array of shape (P,)
    """

    features: Array
    labels: Array
    weights: Array
    loss: Loss
    ridges: Array

    def __call__(self, points: Array, rows: Array) -> tuple[Array, Array]:
        """Return values (A,) and gradients (A, D + 1) of the problems `rows`."""
        labels, weights, ridges = self.labels[rows], self.weights[rows], self.ridges[rows]
        readouts = points[:, :-1]
        margins = labels * self._decisions(points, rows)
        slopes = weights * labels * self.loss.slope(margins)
        gradients = np.empty_like(points)
        if self.features.ndim == 2:
            gradients[:, :-1] = slopes.astype(self.features.dtype) @ self.features
        else:
            sums = slopes[:, None].astype(self.features.dtype) @ self._own(rows)
            gradients[:, :-1] = sums[:, 0]
        gradients[:, :-1] += ridges[:, None] * readouts
        gradients[:, -1] = slopes.sum(axis=1)
        values = np.einsum("pn,pn->p", weights, self.loss.value(margins))
        return values + 0.5 * ridges * np.einsum("pd,pd->p", readouts, readouts), gradients

    def decisions(self, points: Array) -> Array:
        """Return ⟨f_i, w⟩ + b of all problems and samples, of shape (P, n)."""
        return self._decisions(points, np.arange(len(points)))

    def _decisions(self, points: Array, rows: Array) -> Array:
        readouts = points[:, :-1].astype(self.features.dtype)
        if self.features.ndim == 2:
            products = readouts @ self.features.T
        else:
            products = (self._own(rows) @ readouts[:, :, None])[:, :, 0]
        return np.asarray(products + points[:, -1:])

    def _own(self, rows: Array) -> Array:
        whole = len(rows) == len(self.features)  # then no copy
        return self.features if whole else self.features[rows]
