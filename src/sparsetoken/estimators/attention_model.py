"""A fitted attention classifier: queries and readouts, and what they make of a block of sequences."""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from sparsetoken.arrays import Array
from sparsetoken.estimators.choice import Candidate
from sparsetoken.estimators.extremes import extreme_evidence, extreme_shares
from sparsetoken.estimators.heads import FittedHeads, Recipe, block_features
from sparsetoken.estimators.pooling import Pooling, Softmax, segment_sums
from sparsetoken.estimators.scaling import Scaler
from sparsetoken.estimators.sequences import Block
from sparsetoken.numerics.solution import Solution

__all__ = ["AttentionModel"]


@dataclass(frozen=True)
class AttentionModel:
    """What was fitted: one `FittedHeads` for each one-against-the-rest problem.

    Attributes
    ----------
    scaler, pooling
        How tokens are standardised, and how scores become weights.
    recipe, candidates
        What was chosen, and what it was compared with.
    problems : tuple of FittedHeads
    sharpness : array of shape (problems,)
        Spread of the fitted scores within a sequence.
    """

    scaler: Scaler
    pooling: Pooling
    recipe: Recipe
    candidates: tuple[Candidate, ...]
    problems: tuple[FittedHeads, ...]
    sharpness: Array

    @property
    def solutions(self) -> tuple[Solution, ...]:
        """How the optimiser of each problem ended."""
        return tuple(problem.solution for problem in self.problems)

    def decide(self, block: Block) -> Array:
        """Return the decisions, of shape (problems, samples of the block)."""
        return np.array(
            [problem.heads.decide(block, self.scaler, self.pooling) for problem in self.problems]
        )

    def features(self, block: Block) -> Array:
        """Return Xᵀ p of every problem and head in standardised coordinates: (k, problems H d).

        Maxima and minima of the coordinates, if they are read, stand behind.
        """
        queries = np.vstack([problem.heads.queries for problem in self.problems])
        return block_features(
            block, queries, self.scaler, self.pooling, extremes=self.recipe.reads_extremes
        )

    def token_scores(self, block: Block, problem: int, sign: int = 1) -> Array:
        """Return how much a token attracts attention by itself, (N,), in units of the spread.

        That is the largest score ⟨x, q_h⟩ over heads; without a query, the evidence ⟨x, w⟩ that it
        would be alone, for the problem's positives or, of sign -1, for its negatives.
        """
        heads = self.problems[problem].heads
        vectors = heads.queries if np.any(heads.queries) else sign * heads.alone(self.scaler)
        norms = np.linalg.norm(vectors, axis=1)
        vectors = vectors[norms > 0] / norms[norms > 0, None]
        if not len(vectors):
            return np.zeros(len(block.tokens), dtype=block.tokens.dtype)
        return np.asarray(self.scaler.scores(vectors, block.tokens).max(axis=0))

    def evidence(self, block: Block, problem: int, sign: int = 1) -> Array:
        """Return by how much the decision, times the sign, would fall without each token, (N,).

        For the softmax, f - f₋ₗ = p_l (v_l - f)/(1 - p_l) with v = ⟨x, w⟩, summed over heads; else
        p_l v_l. A lone token is compared with an empty sequence, of decision b.
        """
        heads = self.problems[problem].heads
        count = len(heads.queries)
        scores = self.scaler.scores(np.vstack([heads.queries, heads.weights]), block.tokens)
        scores, values = scores[:count], scores[count:]
        weights = self.pooling.weights(scores, block)
        parts = weights * values
        if isinstance(self.pooling, Softmax):
            parts = _falls(scores, values, weights, block)
        evidence = parts.sum(axis=0)
        if heads.extremes is not None:
            evidence += extreme_evidence(
                block, self.scaler.location, heads.extremes / self.scaler.scale
            )
        return np.asarray(sign * evidence)

    def attend(self, block: Block, problem: int) -> Array:
        """Return one weight a token, (N,), each sequence's of sum 1: the mean over heads.

        With extremes, it is the share of how far each token pulls the readout away from the mean,
        beside the readout of the mean itself, ‖·‖₁ over coordinates.
        """
        heads = self.problems[problem].heads
        scores = self.scaler.scores(heads.queries, block.tokens)
        weights = np.abs(self.pooling.weights(scores, block))  # signed for tanh and linear
        totals = segment_sums(weights, block)
        if np.any(totals == 0):  # tanh and linear of nothing but zero scores: no preference
            weights[:, np.repeat(np.any(totals == 0, axis=0), block.lengths)] = 1
            totals = segment_sums(weights, block)
        shares = (weights / np.repeat(totals, block.lengths, axis=1)).mean(axis=0)
        if heads.extremes is not None:
            # A silent readout has no preference.
            mean = np.abs(heads.weights).sum() + np.finfo(float).tiny
            shares = mean * shares + extreme_shares(block, heads.extremes / self.scaler.scale)
            shares /= np.repeat(segment_sums(shares, block), block.lengths)
        return np.asarray(shares, dtype=block.tokens.dtype)

    def moved(self, factors: Array, biases: Array) -> Self:
        """Return the model with its queries times factors, and these biases: both (problems,)."""
        problems = tuple(
            replace(
                problem,
                heads=replace(
                    problem.heads, queries=factor * problem.heads.queries, bias=float(bias)
                ),
            )
            for problem, factor, bias in zip(self.problems, factors, biases, strict=True)
        )
        return replace(self, problems=problems, sharpness=factors * self.sharpness)


def _falls(scores: Array, values: Array, weights: Array, block: Block) -> Array:
    """Return by how much Σ p v of a softmax falls without each token: (heads, N).

    Where a token has more than half of the weight, 1 - p and v - Σ p v lose their digits: the other
    tokens' softmax is computed without it.
    """

    def pooled(weights: Array) -> Array:
        return np.repeat(segment_sums(weights * values, block), block.lengths, axis=1)

    large = weights > 0.5  # at most one token of a sequence
    without = Softmax().weights(np.where(large, np.finfo(scores.dtype).min / 4, scores), block)
    others = np.where(large, 1, 1 - weights)
    falls = np.where(
        large, pooled(weights) - pooled(without), weights * (values - pooled(weights)) / others
    )
    alone = np.repeat(block.lengths == 1, block.lengths)
    return np.asarray(np.where(alone, values, falls))
