"""The joint objective of queries, readout and bias for many binary problems at once."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from sparsetoken.arrays import Array
from sparsetoken.estimators.extremes import coordinate_extremes
from sparsetoken.estimators.pooling import Pooling, segment_sums
from sparsetoken.estimators.scaling import Scaler
from sparsetoken.estimators.sequences import Block, Sequences
from sparsetoken.losses import Loss

__all__ = ["Heads", "JointObjective", "LinearObjective"]


@dataclass(frozen=True)
class Heads:
    """Queries and readouts of one binary classifier, in standardised coordinates.

    The decision is Σ_h ⟨f_h(X), w_h⟩ + b with f_h = Xᵀ p(X q_h), and perhaps ⟨max X, u⟩ + ⟨min X, v⟩
    beside it, coordinate by coordinate.

    Attributes
    ----------
    queries, weights : arrays of shape (H, d)
    bias : float
    extremes : array of shape (2, d), u and v, or None for neither
    """

    queries: Array
    weights: Array
    bias: float
    extremes: Array | None = None

    def decide(self, block: Block, scaler: Scaler, pooling: Pooling, factor: float = 1.0) -> Array:
        """Return the decisions of the block's samples, (k,), with the queries times `factor`."""
        scores = scaler.scores(np.vstack([factor * self.queries, self.weights]), block.tokens)
        count = len(self.queries)
        attention = pooling.weights(scores[:count], block)
        pooled = segment_sums(attention * scores[count:], block)
        decisions = pooled.sum(axis=0) + pooled.dtype.type(self.bias)
        if self.extremes is not None:
            plain = self.extremes / scaler.scale
            values = coordinate_extremes(block) @ plain.ravel().astype(pooled.dtype)
            decisions += values - pooled.dtype.type(plain.sum(axis=0) @ scaler.location)
        return np.asarray(decisions)

    def alone(self, scaler: Scaler) -> Array:
        """Return what reads a token that stands alone, without queries: w of each head, (H, d).

        With extremes it is (1, d), the sum of all: a token alone is mean, maximum and minimum.
        """
        if self.extremes is None:
            return self.weights
        extremes = self.extremes.sum(axis=0)
        if scaler.whitening is not None:  # which extremes are not read through
            extremes = np.linalg.solve(scaler.whitening, extremes)
        return np.asarray(self.weights.sum(axis=0) + extremes)[None]

    def padded(self, count: int) -> "Heads":
        """Return so many heads: these, and silent ones behind them."""
        silent = np.zeros((count - len(self.queries), self.queries.shape[1]))
        return replace(
            self,
            queries=np.vstack([self.queries, silent]),
            weights=np.vstack([self.weights, silent]),
        )

    def decisions(self, sequences: Sequences, scaler: Scaler, pooling: Pooling) -> Array:
        """Return the decisions of all samples, of shape (n,)."""
        parts = [self.decide(block, scaler, pooling) for block in sequences.blocks()]
        return np.concatenate(parts)


@dataclass(frozen=True)
class JointObjective:
    """Σ_i ω_i ℓ(y_i(o_i + Σ_h ⟨f_h(X_i), w_h⟩ + b)) + (λ/2) Σ_h ‖s w_h‖², for P problems.

    The penalty is on s w, the readout of tokens divided by their units s. Tied, the queries are
    q_h = κ_h w_h: attention goes to the tokens that speak for or against the class, and the
    parameters are (s w, κ, b). Free, they are (s w, s q, b), and (λ/2) Σ_h ‖s q_h‖² is added.

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
            query = (units * one.queries).ravel()
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
        queries = query[:, :, None] * weights if self.tied else query.reshape(units.shape) / units
        return weights, queries, points[:, -1]

    def __call__(self, points: Array, rows: Array) -> tuple[Array, Array]:
        """Return values (A,) and gradients (A, m) of the problems `rows`, one a row of points."""
        units, ridges = self.units[rows], self.ridges[rows]
        count, heads, d = units.shape
        weights, queries, biases = self._parameters(points, units)
        factors = points[:, heads * d : -1].reshape(-1, 1)  # κ, used if tied
        vectors = weights if self.tied else np.concatenate([queries, weights], axis=1)
        everything = len(rows) == len(self.labels)
        per_sample = (
            self.labels if everything else self.labels[rows],
            self.weights if everything else self.weights[rows],
            None if self.offsets is None else self.offsets[rows],
        )
        values, by_bias, by_weights, by_query = self.sequences.sums(
            _block_terms,
            per_sample,
            vectors,
            factors if self.tied else None,
            biases,
            self.scaler,
            self.pooling,
            self.loss,
        )
        readouts, query = points[:, : heads * d], points[:, heads * d : -1]
        gradients = np.empty_like(points)
        gradients[:, : heads * d] = (by_weights / units).reshape(count, -1)
        gradients[:, : heads * d] += ridges[:, None] * readouts
        if not self.tied:
            by_query = by_query / units.reshape(count, -1)
        gradients[:, heads * d : -1] = by_query
        gradients[:, -1] = by_bias
        values = values + 0.5 * ridges * np.einsum("pm,pm->p", readouts, readouts)
        if not self.tied:
            values += 0.5 * ridges * np.einsum("pm,pm->p", query, query)
            gradients[:, heads * d : -1] += ridges[:, None] * query
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


def _block_terms(
    block: Block,
    labels: Array,
    sample_weights: Array,
    offsets: Array | None,
    vectors: Array,
    factors: Array | None,
    biases: Array,
    scaler: Scaler,
    pooling: Pooling,
    loss: Loss,
) -> tuple[Array, Array, Array, Array]:
    """Return a block's loss of each problem, and its derivatives by bias, readouts and queries.

    Parameters
    ----------
    vectors : array of shape (A, H, d), the readouts, if tied; else (A, 2 H, d), queries first
    factors : array of shape (A H, 1), κ, if tied; else None
    """
    tied = factors is not None
    count, rows, d = vectors.shape
    heads = rows if tied else rows // 2
    tokens = block.tokens
    products = scaler.scores(vectors.reshape(-1, d), tokens).reshape(count, rows, len(tokens))
    values = products[:, -heads:].reshape(count * heads, -1)  # ⟨x, w⟩
    if factors is not None:
        sharpening = factors.astype(tokens.dtype)
        scores = sharpening * values
    else:
        scores = products[:, :heads].reshape(count * heads, -1)
    attention = pooling.weights(scores, block)
    pooled = segment_sums(attention * values, block)
    decisions = pooled.reshape(count, heads, -1).sum(axis=1) + biases[:, None]
    margins = labels * (decisions if offsets is None else decisions + offsets)
    losses = np.einsum("pk,pk->p", sample_weights, loss.value(margins))
    slopes = sample_weights * labels * loss.slope(margins)
    spread = np.repeat(slopes.astype(tokens.dtype), block.lengths, axis=1)
    spread = np.repeat(spread, heads, axis=0) if heads > 1 else spread
    to_scores = spread * pooling.pull_back(scores, attention, values, pooled, block)
    to_values = spread * attention
    if tied:
        by_query = np.einsum("an,an->a", to_scores, values).astype(float).reshape(count, heads)
        to_values += sharpening * to_scores
        by_weights = scaler.weighted_sums(to_values, tokens).reshape(count, heads, d)
    else:
        both = scaler.weighted_sums(np.concatenate([to_values, to_scores]), tokens)
        by_weights = both[: count * heads].reshape(count, heads, d)
        by_query = both[count * heads :].reshape(count, heads * d)
    return losses, slopes.sum(axis=1), by_weights, by_query


@dataclass(frozen=True)
class LinearObjective:
    """Σ_i ω_i ℓ(y_i(⟨f_i, w⟩ + b)) + (λ/2)‖w‖² for P problems; the parameters are (s w, b).

    The problems stand group by group; a group shares its features. Groups with fewer features than
    the largest leave their last parameters alone.

    Attributes
    ----------
    features : list of G arrays of shape (n, D_g)
    ends : array of shape (G,), how many problems there are up to the end of each group
    labels, weights : arrays of shape (P, n)
    ridges : array of shape (P,)
    units : array of shape (P, D), s, D the largest D_g
    """

    features: list[Array]
    ends: Array
    labels: Array
    weights: Array
    loss: Loss
    ridges: Array
    units: Array

    def __call__(self, points: Array, rows: Array) -> tuple[Array, Array]:
        """Return values (A,) and gradients (A, D + 1) of the problems `rows`, in ascending order."""
        units, ridges = self.units[rows], self.ridges[rows]
        labels, weights = self.labels[rows], self.weights[rows]
        readouts = points[:, :-1] / units
        margins = labels * self._decisions(readouts, points[:, -1:], rows)
        losses, slopes, _ = self.loss.derivatives(margins)
        slopes = weights * labels * slopes
        gradients = np.empty_like(points)
        gradients[:, :-1] = ridges[:, None] * readouts
        for features, own in self._groups(rows):
            sums = slopes[own].astype(features.dtype) @ features
            gradients[own, : features.shape[1]] += sums
        gradients[:, :-1] /= units
        gradients[:, -1] = slopes.sum(axis=1)
        penalties = 0.5 * ridges * np.vecdot(readouts, readouts)
        return np.vecdot(weights, losses) + penalties, gradients

    def decisions(self, points: Array) -> Array:
        """Return ⟨f_i, w⟩ + b of all problems and samples, of shape (P, n)."""
        return self._decisions(points[:, :-1] / self.units, points[:, -1:], np.arange(len(points)))

    def _decisions(self, readouts: Array, biases: Array, rows: Array) -> Array:
        decisions = np.empty((len(rows), self.labels.shape[1]))
        for features, own in self._groups(rows):
            own_readouts = readouts[own, : features.shape[1]].astype(features.dtype)
            decisions[own] = own_readouts @ features.T
        return decisions + biases

    def _groups(self, rows: Array) -> Iterator[tuple[Array, slice]]:
        """Yield each group's features and where its problems stand among `rows`."""
        start = 0
        for features, stop in zip(self.features, np.searchsorted(rows, self.ends), strict=True):
            if stop > start:
                yield features, slice(start, stop)
            start = stop
