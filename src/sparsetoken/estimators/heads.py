"""Fitting the heads of one binary classifier: query, choice by inner validation, refinement."""

import math
from dataclasses import dataclass, replace

import numpy as np

from sparsetoken.arrays import Array
from sparsetoken.estimators.labelled import LabelledSequences
from sparsetoken.estimators.objective import Heads, JointObjective, refine_heads
from sparsetoken.estimators.pooling import Pooling, segment_sums
from sparsetoken.estimators.query import Scaler, pooled_sums, query_pass, spread
from sparsetoken.estimators.sequences import Sequences
from sparsetoken.losses import Loss

__all__ = [
    "FittedHeads",
    "HeadSettings",
    "first_coefficients",
    "fit_heads",
]

SHARPNESS_GRID = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0)
HELD_OUT_SHARE = 0.25
# Below this many samples of the smaller class a held-out part says too little to choose by it.
LEAST_TO_HOLD_OUT = 8
MOST_FOR_CHOICE = 5000
# Above this size refinement starts on a subsample, to read all data a few times only.
SUBSAMPLE_BYTES = 2**27
# Iterations on all data after that, and iterations that decide between two starts.
POLISH = 10
TRIAL = 10


@dataclass(frozen=True)
class HeadSettings:
    """What `fit_heads` is to do; the fields are the classifier's parameters of that name."""

    pooling: Pooling
    loss: Loss
    ridge: float
    heads: int
    refine: bool
    tied: bool | str
    sharpness: float | str
    split: float | None
    max_iter: int
    tol: float


@dataclass(frozen=True)
class FittedHeads:
    """The heads, with the choices that were made for them.

    Attributes
    ----------
    heads : Heads
    tied : bool
    sharpness : float
        Standard deviation of the first head's scores within a sequence, after the two steps.
    iterations : int
        Steps of the optimiser.
    """

    heads: Heads
    tied: bool
    sharpness: float
    iterations: int


def fit_heads(
    problem: LabelledSequences, scaler: Scaler, settings: HeadSettings, rng: np.random.Generator
) -> FittedHeads:
    """Fit all heads of a binary classifier, one after another."""
    if problem.sequences.lengths.max() == 1:
        return _single_token(problem, scaler, settings)
    if settings.split is None:
        for_query = for_readout = problem
    else:
        for_query, for_readout = problem.split(settings.split, rng)
    settings = _chosen(for_query, for_readout, scaler, settings, rng)
    return _fit_chosen(for_query, for_readout, scaler, settings)


def _single_token(
    problem: LabelledSequences, scaler: Scaler, settings: HeadSettings
) -> FittedHeads:
    """With one token in every sequence all weights are one: only the readout is left to fit."""
    d = problem.sequences.dimension
    none = np.zeros((settings.heads, d))
    weights = np.zeros((settings.heads, d))
    features = _head_features(problem.sequences, none[:1], scaler, settings.pooling)
    readout = problem.fit_readout(features, settings.loss, settings.ridge)
    weights[0] = readout.weights
    return FittedHeads(Heads(none, weights, readout.bias), True, 0.0, max(1, readout.steps))


def _fit_chosen(
    for_query: LabelledSequences,
    for_readout: LabelledSequences,
    scaler: Scaler,
    settings: HeadSettings,
    first_direction: Array | None = None,
) -> FittedHeads:
    """Fit the heads when sharpness and tied are known, and perhaps the first query's direction."""
    d = for_query.sequences.dimension
    sharpness = float(settings.sharpness)
    heads = Heads(np.zeros((0, d)), np.zeros((0, d)), 0.0)
    iterations = 0
    for index in range(settings.heads):
        if index == 0 and first_direction is not None:
            direction = first_direction
        else:
            direction = two_step_direction(for_query, scaler, settings, heads)
        if settings.refine and settings.tied:
            starts = _tied_starts(for_readout, heads, direction, scaler, settings)
        else:
            queries = np.vstack([heads.queries, sharpness * direction])
            starts = [_read_out(for_readout, queries, scaler, settings)]
        heads = starts[0]
        if settings.refine:
            heads, steps = _refined(for_readout, starts, scaler, settings)
            iterations += steps
    tied = bool(settings.refine and settings.tied)
    return FittedHeads(heads, tied, sharpness, max(1, iterations))


def two_step_direction(
    problem: LabelledSequences, scaler: Scaler, settings: HeadSettings, heads: Heads
) -> Array:
    """Return the next query after stages 1 to 3, scaled so that scores spread by one.

    The classes are balanced in these stages, whatever their weights: the query of rare positives
    would else point away from the signal (docs/theory.md, section 4).
    """
    weights = problem.balanced()
    offset: Array | float = 0.0
    if len(heads.queries):
        offset = heads.decisions(problem.sequences, scaler, settings.pooling)
    first = problem.first_weights
    if first is None or len(heads.queries):
        coefficients = first_coefficients(problem.labels, weights, settings.loss, offset)
        first = pooled_sums(problem.sequences, scaler, coefficients)
    query = query_pass(
        problem.sequences, problem.labels, weights, scaler, first, settings.loss, offset
    )
    scale = spread(problem.sequences, scaler, query)
    return query / scale if scale > 0 else np.zeros_like(query)


def first_coefficients(
    labels: Array, weights: Array, loss: Loss, offset: Array | float = 0.0
) -> Array:
    """Return c such that stage 1's readout is Σ c_i f̄_i: -ω_i y_i ℓ'(y_i o_i)."""
    return -weights * labels * loss.slope(labels * np.broadcast_to(offset, labels.shape))


def _read_out(
    problem: LabelledSequences, queries: Array, scaler: Scaler, settings: HeadSettings
) -> Heads:
    """Return heads with these queries and stage 4's readout on the features of all of them."""
    features = _head_features(problem.sequences, queries, scaler, settings.pooling)
    readout = problem.fit_readout(features, settings.loss, settings.ridge)
    return Heads(queries, readout.weights.reshape(queries.shape), readout.bias)


def _tied_starts(
    problem: LabelledSequences,
    heads: Heads,
    direction: Array,
    scaler: Scaler,
    settings: HeadSettings,
) -> list[Heads]:
    """Return the heads with one more, whose evidence is for the class, or against it.

    The two-step query says where to look, and only weakly so what for: when sequences are long the
    sign of a readout on it is often wrong, and no later step turns it round.
    """
    query = float(settings.sharpness) * direction
    alone = Heads(query[None], direction[None], 0.0)
    mean = float(problem.weights @ alone.decisions(problem.sequences, scaler, settings.pooling))
    queries = np.vstack([heads.queries, query])
    return [
        Heads(queries, np.vstack([heads.weights, sign * direction]), heads.bias - sign * mean)
        for sign in (1.0, -1.0)
    ]


def _refined(
    problem: LabelledSequences, starts: list[Heads], scaler: Scaler, settings: HeadSettings
) -> tuple[Heads, int]:
    """Minimise the joint objective from the start that is best after a few steps."""
    objective = JointObjective(
        problem.sequences,
        problem.labels,
        problem.weights,
        scaler,
        settings.pooling,
        settings.loss,
        settings.ridge,
        bool(settings.tied),
    )
    size = problem.sequences.token_bytes
    if size <= SUBSAMPLE_BYTES:
        return _best_refined(objective, starts, settings)
    part = problem.thinned(math.ceil(size / SUBSAMPLE_BYTES))
    smaller = replace(objective, sequences=part.sequences, labels=part.labels, weights=part.weights)
    heads, steps = _best_refined(smaller, starts, settings)
    heads, more = refine_heads(objective, heads, min(settings.max_iter, POLISH), settings.tol)
    return heads, steps + more


def _best_refined(
    objective: JointObjective, starts: list[Heads], settings: HeadSettings
) -> tuple[Heads, int]:
    if len(starts) > 1:
        trials = [refine_heads(objective, start, TRIAL, settings.tol)[0] for start in starts]
        values = [objective(objective.pack(trial))[0] for trial in trials]
        starts = [trials[int(np.argmin(values))]]
    return refine_heads(objective, starts[0], settings.max_iter, settings.tol)


def _head_features(sequences: Sequences, queries: Array, scaler: Scaler, pooling: Pooling) -> Array:
    """Return f_h(X) of all heads side by side, standardised tokens: shape (n, H d)."""
    count, d = queries.shape
    result = np.empty((len(sequences), count, d), dtype=sequences.dtype)
    for block in sequences.blocks():
        attention = pooling.weights(scaler.scores(queries, block.tokens), block)
        for head in range(count):
            weighted = attention[head][:, None] * block.tokens
            totals = segment_sums(attention[head], block)[:, None]
            sums = segment_sums(weighted, block, axis=0)
            result[block.samples, head] = (sums - totals * scaler.location) / scaler.scale
    return result.reshape(len(sequences), count * d)


def _chosen(
    for_query: LabelledSequences,
    for_readout: LabelledSequences,
    scaler: Scaler,
    settings: HeadSettings,
    rng: np.random.Generator,
) -> HeadSettings:
    """Return the settings with "auto" replaced by what is best on held-out samples."""
    choose_sharpness = settings.sharpness == "auto"
    choose_tied = settings.tied == "auto" and settings.refine
    if settings.tied == "auto" and not settings.refine:
        settings = replace(settings, tied=False)
    if not (choose_sharpness or choose_tied):
        return settings
    if for_readout.smaller_class < LEAST_TO_HOLD_OUT:
        sharpness = 1.0 if choose_sharpness else settings.sharpness
        return replace(settings, sharpness=sharpness, tied=choose_tied or settings.tied)
    some = for_readout.thinned(math.ceil(len(for_readout.labels) / MOST_FOR_CHOICE))
    inner, outer = some.split(1 - HELD_OUT_SHARE, rng)
    inner_query = inner if settings.split is None else for_query
    nothing = np.zeros((0, inner.sequences.dimension))
    direction = two_step_direction(inner_query, scaler, settings, Heads(nothing, nothing, 0.0))

    def held_out_losses(candidate: HeadSettings) -> Array:
        model = _fit_chosen(inner_query, inner, scaler, candidate, direction)
        decisions = model.heads.decisions(outer.sequences, scaler, settings.pooling)
        return np.asarray(outer.weights * settings.loss.value(outer.labels * decisions))

    if choose_sharpness:
        plain = replace(settings, refine=False, heads=1)
        candidates = [replace(plain, sharpness=value) for value in SHARPNESS_GRID]
        totals = [held_out_losses(candidate).sum() for candidate in candidates]
        settings = replace(settings, sharpness=SHARPNESS_GRID[int(np.argmin(totals))])
    if choose_tied:
        tied, free = replace(settings, tied=True), replace(settings, tied=False)
        gain = held_out_losses(tied) - held_out_losses(free)
        settings = free if _exceeds_chance(gain) else tied
    return settings


def _exceeds_chance(gain: Array) -> bool:
    """Whether a sum of gains is more than its standard error above zero."""
    return bool(gain.sum() > np.sqrt(len(gain)) * gain.std())
