"""Which model to fit: families, sharpness and ridge compared on held-out samples.

The simplest family whose held-out loss is within half a standard error of the best is chosen, so
that refinement has to earn its keep, and the result is not worse than pooling beyond noise.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from sparsetoken.arrays import Array
from sparsetoken.estimators.descent import minimise_together
from sparsetoken.estimators.extremes import coordinate_extremes
from sparsetoken.estimators.heads import (
    SUMMARIES,
    HeadSettings,
    Plan,
    Problems,
    Refinement,
    feature_units,
    prior_bias,
)
from sparsetoken.estimators.labelled import Folds, LabelledSequences
from sparsetoken.estimators.objective import LinearObjective
from sparsetoken.estimators.pooling import Pooling, segment_sums
from sparsetoken.estimators.query import two_step_directions
from sparsetoken.estimators.scaling import Scaler
from sparsetoken.estimators.sequences import Sequences, StackedSequences
from sparsetoken.losses import Loss

__all__ = ["Candidate", "Wishes", "choose", "choose_ridge"]

SHARPNESS_GRID = (1.0, 2.0, 4.0)
LINEAR_RIDGES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
REFINED_RIDGES = (1e-3, 1e-2, 1e-1)
MIDDLE_RIDGE = 1e-2
FOLDS = 5
MOST_SAMPLES = 5000
# The samples that the choice looks at are copied; this is the copy's largest size.
COPY_BYTES = 2**29
# About so many tokens are read at once: small enough for the cache with many problems.
BLOCK_TOKENS = 4096
# A simpler family is preferred if its loss exceeds the least by at most so many standard errors.
SIMPLER_ERRORS = 0.5
# Differences of a thousandth decide nothing.
TOLERANCE = 1e-3
REFINED_STEPS = 40
# With more samples an eigenvalue problem of their size takes longer than the readouts it helps.
MOST_FACTORED = 2000
# By so many standard errors whitening must lower the loss. A small gain of the two-step query was
# often a loss of the refined ones, on real bags; where directions are shared the gain is large.
WHITENING_ERRORS = 3.0


@dataclass(frozen=True)
class Wishes:
    """What the user left open: allowed families in order, sharpness and ridge or "auto"."""

    families: tuple[str, ...]
    sharpness: float | str
    ridge: float | str

    def plan(self) -> Plan | None:
        """Return the plan if nothing is open."""
        open_sharpness = self.sharpness == "auto" and self.families == ("two-step",)
        if len(self.families) > 1 or self.ridge == "auto" or open_sharpness:
            return None
        return Plan(self.families[0], self.sharpness, float(self.ridge))

    def fallback(self) -> Plan:
        """Return what to fit when the samples are too few to choose: the simplest."""
        sharpness = self.sharpness
        if self.families[0] == "two-step" and sharpness == "auto":
            sharpness = 2.0
        ridge = MIDDLE_RIDGE if self.ridge == "auto" else float(self.ridge)
        return Plan(self.families[0], sharpness, ridge)


@dataclass(frozen=True)
class Candidate:
    """A plan with its held-out loss, the best of its family.

    Attributes
    ----------
    plan : Plan
    loss : float
        Mean held-out loss, summed over classes against the rest.
    losses : array of shape (n,)
    """

    plan: Plan
    loss: float
    losses: Array


def choose(
    labelled: LabelledSequences,
    for_query: LabelledSequences | None,
    scaler: Scaler,
    white: Scaler | None,
    wishes: Wishes,
    settings: HeadSettings,
) -> tuple[Plan, list[Candidate], Scaler]:
    """Return the plan, the candidates that were compared, simplest first, and the scaler.

    Parameters
    ----------
    for_query : LabelledSequences or None
        Samples for the query alone; None if folds serve for both.
    white : Scaler or None
        One that also whitens, to be taken if the two-step query has a far lower held-out loss with
        it: directions that all tokens share are what that query stumbles over.
    """
    plan = wishes.plan()
    if plan is not None:
        return plan, [], scaler
    some = labelled.thinned(_most_samples(labelled.sequences), least_of_class=50)
    folds = some.folds(FOLDS)
    if folds is None:
        return wishes.fallback(), [], scaler
    validation = _Validation(some, for_query, folds, scaler, settings)
    known: dict[str, Candidate] = {}
    if white is not None and "two-step" in wishes.families:
        other = _Validation(some, for_query, folds, white, settings)
        known = {"two-step": validation.candidate("two-step", wishes)}
        mixed = other.candidate("two-step", wishes)
        excess, error = _paired(known["two-step"], mixed, some.weights, folds.units)
        if excess > WHITENING_ERRORS * error:
            validation, scaler, known = other, white, {"two-step": mixed}
    candidates = [
        known[family] if family in known else validation.candidate(family, wishes)
        for family in wishes.families
    ]
    return _simplest_good(candidates, some.weights, folds.units), candidates, scaler


def _most_samples(sequences: Sequences) -> int:
    per_sample = 4 * sequences.dimension * float(np.mean(sequences.lengths))
    return int(min(MOST_SAMPLES, max(COPY_BYTES / per_sample, 100)))


def _simplest_good(candidates: list[Candidate], weights: Array, units: Array) -> Plan:
    """Return the first candidate within half a standard error of the best."""
    best = min(candidates, key=lambda candidate: candidate.loss)
    for candidate in candidates:
        excess, error = _paired(candidate, best, weights, units)
        if excess <= SIMPLER_ERRORS * error:
            return candidate.plan
    return best.plan


def _paired(one: Candidate, other: Candidate, weights: Array, units: Array) -> tuple[float, float]:
    """Return by how much one's loss exceeds the other's, and the standard error of that."""
    gaps = weights * (one.losses - other.losses)
    excess = float(gaps.sum())
    # Copies of a sample are no independent evidence.
    by_unit = np.bincount(units, gaps - excess * weights)
    return excess, float(np.sqrt(np.sum(by_unit**2)))


def choose_ridge(
    labelled: LabelledSequences,
    features: Array,
    ridge: float | str,
    loss: Loss,
) -> float:
    """Return the ridge, "auto" chosen by held-out loss of readouts on features (n, D)."""
    if ridge != "auto":
        return float(ridge)
    folds = labelled.folds(FOLDS)
    if folds is None:
        return MIDDLE_RIDGE
    held = _HeldOut(labelled, folds, loss)
    losses = held.linear_losses(_coordinates(features), LINEAR_RIDGES)
    return LINEAR_RIDGES[int(np.argmin(losses @ labelled.weights))]


class _HeldOut:
    """All problems, classes against the rest times folds, and their held-out losses.

    Problems stand class by class, fold by fold; in each, the samples of its fold have weight 0.
    """

    def __init__(
        self, labelled: LabelledSequences, folds: Folds, loss: Loss, unit: float = 1.0
    ) -> None:
        self.classes, self.weights, self.folds, self.loss, self.unit = (
            labelled.labels,
            labelled.weights,
            folds,
            loss,
            unit,
        )
        kept = np.array([folds.of_sample != fold for fold in range(folds.count)])
        training = kept * labelled.weights
        training = training / training.sum(axis=1, keepdims=True)
        self.labels = np.repeat(labelled.labels, folds.count, axis=0)
        self.training = np.tile(training, (len(labelled.labels), 1))

    def losses_by_level(self, features: Array, ridge: float) -> Array:
        """Return held-out losses (S, n) of readouts on features (S, P, n, D)."""
        levels = len(features)
        side_by_side = np.moveaxis(features, 0, 1).reshape(-1, *features.shape[2:])
        return self._losses(side_by_side, np.full(levels, ridge))

    def linear_losses(self, features: Array, ridges: tuple[float, ...]) -> Array:
        """Return held-out losses (R, n) of readouts on features (n, D) or (P, n, D)."""
        if features.ndim == 3:
            features = np.repeat(features, len(ridges), axis=0)
        return self._losses(features, np.array(ridges))

    def _losses(self, features: Array, ridges: Array) -> Array:
        """Return held-out losses (V, n) of V variants of each problem, all solved together."""
        times = len(ridges)
        objective = LinearObjective(
            features,
            np.repeat(self.labels, times, axis=0),
            np.repeat(self.training, times, axis=0),
            self.loss,
            np.tile(ridges, len(self.labels)),
        )
        starts = np.zeros((len(objective.labels), features.shape[-1] + 1))
        starts[:, -1] = prior_bias(objective.labels, objective.weights, self.loss)
        tolerance = 0.3 * TOLERANCE * self.unit
        found = minimise_together(objective, starts, max_steps=100, tolerance=tolerance)
        return self.losses(objective.decisions(found.points), times)

    def losses(self, decisions: Array, variants: int) -> Array:
        """Return losses (V, n), summed over classes, from decisions (C·F·V, n)."""
        n = len(self.weights)
        by_fold = decisions.reshape(len(self.classes), self.folds.count, variants, n)
        own = by_fold[:, self.folds.of_sample, :, np.arange(n)]  # (n, C, V)
        margins = self.classes.T[:, :, None] * own
        return np.asarray(self.loss.value(margins).sum(axis=1).T)

    def best(self, plans: list[Plan], losses: Array) -> Candidate:
        """Return the plan of least held-out loss, from losses (V, n)."""
        totals = losses @ self.weights
        least = int(np.argmin(totals))
        return Candidate(plans[least], float(totals[least]), losses[least])


class _Validation:
    """The candidates, on a standardised copy of the samples in single precision."""

    def __init__(
        self,
        labelled: LabelledSequences,
        for_query: LabelledSequences | None,
        folds: Folds,
        scaler: Scaler,
        settings: HeadSettings,
    ) -> None:
        self.labelled = labelled
        self.held = _HeldOut(labelled, folds, settings.loss, settings.unit)
        sequences = _standardised_copy(labelled.sequences, scaler)
        d = sequences.dimension
        plain = Scaler(np.zeros(d), np.ones(d))
        self.problems = Problems(sequences, self.held.labels, self.held.training, plain)
        self.settings = replace(settings, tol=max(settings.tol, TOLERANCE), heads=1)
        self.given: Array | None = None
        if for_query is not None:
            own = two_step_directions(
                for_query.sequences,
                for_query.labels,
                np.broadcast_to(for_query.weights, for_query.labels.shape),
                scaler,
                settings.loss,
            )
            self.given = np.repeat(own, folds.count, axis=0)

    @cached_property
    def directions(self) -> Array:
        """Each problem's two-step query, from its own training samples: (P, d)."""
        if self.given is not None:
            return self.given
        problems = self.problems
        return two_step_directions(
            problems.sequences,
            problems.labels,
            problems.weights,
            problems.scaler,
            self.settings.loss,
        )

    @cached_property
    def extremes(self) -> Array:
        """Maxima and minima of the coordinates, never whitened: (n, 2 d)."""
        blocks = self.labelled.sequences.blocks()
        return np.concatenate([coordinate_extremes(block) for block in blocks])

    def candidate(self, family: str, wishes: Wishes) -> Candidate:
        """Return the best of a family."""
        if family in SUMMARIES:
            return self._pooled(family, wishes)
        if family == "two-step":
            return self._two_step(wishes)
        return self._refined(family, wishes)

    def _pooled(self, family: str, wishes: Wishes) -> Candidate:
        plans = [Plan(family, 0.0, ridge) for ridge in _ridges(LINEAR_RIDGES, wishes)]
        features = _means(self.problems.sequences)
        if plans[0].reads_extremes:
            features = np.concatenate([features, self.extremes], axis=1)
        features = features[:, plans[0].columns(features.shape[1])]
        features = _coordinates(_standardised(features, self.held.weights))
        losses = self.held.linear_losses(features, tuple(plan.ridge for plan in plans))
        return self.held.best(plans, losses)

    def _two_step(self, wishes: Wishes) -> Candidate:
        levels = SHARPNESS_GRID if wishes.sharpness == "auto" else (float(wishes.sharpness),)
        ridges = _ridges(LINEAR_RIDGES, wishes)
        queries = np.concatenate([level * self.directions for level in levels])
        features = _query_features(self.problems.sequences, queries, self.settings.pooling)
        features = features.reshape(len(levels), len(self.problems), *features.shape[1:])
        best = 0
        if len(levels) > 1:
            totals = self.held.losses_by_level(features, MIDDLE_RIDGE) @ self.held.weights
            best = int(np.argmin(totals))
        losses = self.held.linear_losses(features[best], ridges)
        return self.held.best([Plan("two-step", levels[best], ridge) for ridge in ridges], losses)

    def _refined(self, family: str, wishes: Wishes) -> Candidate:
        ridges = _ridges(REFINED_RIDGES, wishes)
        tied = family == "tied"
        search = Refinement(self.problems, self.settings, wishes.sharpness)
        heads, _ = search.best_start(self.directions, ridges[len(ridges) // 2], tied=tied)
        objective, found = search.descend(
            heads, np.array(ridges), tied=tied, max_steps=REFINED_STEPS
        )
        losses = self.held.losses(objective.decisions(found.points), len(ridges))
        return self.held.best([Plan(family, wishes.sharpness, ridge) for ridge in ridges], losses)


def _ridges(grid: tuple[float, ...], wishes: Wishes) -> tuple[float, ...]:
    return grid if wishes.ridge == "auto" else (float(wishes.ridge),)


def _standardised_copy(sequences: Sequences, scaler: Scaler) -> StackedSequences:
    tokens = np.empty((int(sequences.lengths.sum()), sequences.dimension), dtype=np.float32)
    start = 0
    for block in sequences.blocks():
        stop = start + len(block.tokens)
        tokens[start:stop] = scaler.standardised(block.tokens - scaler.location)
        start = stop
    return StackedSequences(tokens, sequences.lengths, BLOCK_TOKENS)


def _means(sequences: Sequences) -> Array:
    parts = [
        segment_sums(block.tokens, block, axis=0) / block.lengths[:, None]
        for block in sequences.blocks()
    ]
    return np.concatenate(parts)


def _standardised(features: Array, weights: Array) -> Array:
    """Return features (n, D) of mean 0 and variance 1."""
    return np.asarray((features - weights @ features) / feature_units(features, weights))


def _coordinates(features: Array) -> Array:
    """Return features (n, min(n, D)) with the same inner products: penalised readouts are the same."""
    n, size = features.shape
    if size <= n or n > MOST_FACTORED:
        return features
    values, vectors = np.linalg.eigh(features @ features.T)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


def _query_features(sequences: Sequences, queries: Array, pooling: Pooling) -> Array:
    """Return the standardised features of each query (P, d) on all samples: (P, n, d)."""
    count, d = queries.shape
    result = np.empty((count, len(sequences), d), dtype=np.float32)
    plain = Scaler(np.zeros(d), np.ones(d))
    scores_of = plain.scorer(queries, sequences.dtype)
    for block in sequences.blocks():
        attention = pooling.weights(scores_of(block.tokens), block)
        ends = block.starts + block.lengths
        rows = range(block.samples.start, block.samples.stop)
        for row, start, end in zip(rows, block.starts, ends, strict=True):
            result[:, row] = attention[:, start:end] @ block.tokens[start:end]
    result -= result.mean(axis=1, keepdims=True)
    spread = result.std(axis=1, keepdims=True)
    result /= np.where(spread > 1e-6, spread, 1)
    return result
