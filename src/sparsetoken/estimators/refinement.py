"""Refinement: queries, readouts and biases of binary classifiers by descent, all at once.

All problems of a fit (classes against the rest, folds, starts) are solved together, so that they
share every pass over the data.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from sparsetoken.arrays import Array
from sparsetoken.estimators.heads import (
    FittedHeads,
    HeadSettings,
    Problems,
    Recipe,
    head_directions,
    head_features,
    prior_bias,
)
from sparsetoken.estimators.labelled import LabelledSequences
from sparsetoken.estimators.lbfgs import Descents, Objectives, minimise_together
from sparsetoken.estimators.objective import Heads, JointObjective, LinearObjective
from sparsetoken.estimators.query import spreads
from sparsetoken.estimators.sequences import Sequences

__all__ = ["Refinement", "centres_of_groups", "heads_of_kinds", "refined_heads"]

# Sharpnesses at which refinement starts, with evidence for the class and against it.
STARTING_SHARPNESS = (1.0, 4.0)
# Steps that decide between starts.
TRIAL_STEPS = 10
# Most steps of the readout without a query that a fit is compared with.
POOLED_STEPS = 100
# Iterations that put attended features into groups, one for each head.
GROUPING_STEPS = 20
# Above this size the starts are tried on a part of the samples; refinement ends on all of them.
LARGE_BYTES = 2**29


@dataclass(frozen=True)
class Refinement:
    """Refinement of P problems from several starts each, by the joint objective.

    Attributes
    ----------
    problems : Problems
    settings : HeadSettings
    sharpness : float or "auto"
        Where to start; "auto" tries several.
    """

    problems: Problems
    settings: HeadSettings
    sharpness: float | str

    def objective(
        self, times: int, ridges: Array, *, tied: bool, heads: int = 1, offsets: Any = None
    ) -> JointObjective:
        """Return the objective of each problem `times` times in a row, with these P·times ridges."""
        repeated = self.problems.repeated(times)
        d = self.problems.sequences.dimension
        units = np.ones((1, d)) if repeated.units is None else repeated.units
        return JointObjective(
            sequences=repeated.sequences,
            labels=repeated.labels,
            weights=repeated.weights,
            scaler=repeated.scaler,
            pooling=self.settings.pooling,
            loss=self.settings.loss,
            units=np.broadcast_to(units[:, None], (len(repeated), heads, d)),
            ridges=ridges,
            tied=tied,
            offsets=offsets,
        )

    def best_start(
        self, directions: Array, ridge: float, *, tied: bool, offsets: Array | None = None
    ) -> tuple[list[Heads], int]:
        """Return each problem's best head after a few steps from several starts."""
        heads, steps = self.tied_start(directions, ridge, offsets)
        if tied:
            return heads, steps
        heads, more = self.free_start(heads, directions, ridge, offsets)
        return heads, steps + more

    def tied_start(
        self, directions: Array, ridge: float, offsets: Array | None = None
    ) -> tuple[list[Heads], int]:
        """Return each problem's best tied head."""
        starts = self._tied_starts(directions, offsets)
        return self._best_of(starts, ridge, tied=True, offsets=offsets)

    def free_start(
        self, tied: list[Heads], directions: Array, ridge: float, offsets: Array | None = None
    ) -> tuple[list[Heads], int]:
        """Return each problem's best free head, begun as a tied one or the silent two-step query."""
        prior = prior_bias(self.problems.labels, self.problems.weights, self.settings.loss)
        if offsets is not None:
            prior = np.zeros_like(prior)
        silent = np.zeros((1, directions.shape[1]))
        sharpness = 2.0 if self.sharpness == "auto" else float(self.sharpness)
        both = [
            [one, Heads(sharpness * direction[None], silent, float(bias))]
            for one, direction, bias in zip(tied, directions, prior, strict=True)
        ]
        return self._best_of(both, ridge, tied=False, offsets=offsets)

    def _tied_starts(self, directions: Array, offsets: Array | None) -> list[list[Heads]]:
        """Return heads whose evidence is for the class or against it, blunt or sharp.

        The two-step query says where to look, and only weakly so what for: when sequences are long
        the sign of a readout on it is often wrong, and no later step turns it round. The bias makes
        the mean decision that of a constant, so that rare classes do not begin far off.
        """
        problems, settings = self.problems, self.settings
        levels = STARTING_SHARPNESS if self.sharpness == "auto" else (float(self.sharpness),)
        times = len(levels)
        alone = self.objective(times, np.zeros(times * len(problems)), tied=False)
        heads = [
            Heads(level * direction[None], direction[None], 0.0)
            for direction in directions
            for level in levels
        ]
        decisions = alone.decisions(alone.pack(heads))
        means = np.einsum("pn,pn->p", alone.weights, decisions) / alone.weights.sum(axis=1)
        prior = np.zeros(len(problems))
        if offsets is None:
            prior = prior_bias(problems.labels, problems.weights, settings.loss)
        return [
            [
                Heads(one.queries, sign * one.weights, float(prior[row] - sign * means[at]))
                for at, one in enumerate(heads[row * times : (row + 1) * times], row * times)
                for sign in (1.0, -1.0)
            ]
            for row in range(len(problems))
        ]

    def _best_of(
        self, starts: list[list[Heads]], ridge: float, *, tied: bool, offsets: Array | None
    ) -> tuple[list[Heads], int]:
        times = len(starts[0])
        if times == 1:
            return [some[0] for some in starts], 0
        if offsets is not None:
            offsets = np.repeat(offsets, times, axis=0)
        objective = self.objective(
            times, np.full(times * len(starts), ridge), tied=tied, offsets=offsets
        )
        points = objective.pack([one for some in starts for one in some])
        tried = self.minimised(objective, points, TRIAL_STEPS, "trying starts")
        best = tried.values.reshape(-1, times).argmin(axis=1) + times * np.arange(len(starts))
        return objective.unpack(tried.points[best], best), tried.most_steps

    def descend(
        self, heads: list[Heads], ridges: Array, *, tied: bool, max_steps: int
    ) -> tuple[JointObjective, Descents]:
        """Refine each problem with each of R ridges, all heads jointly: P·R descents."""
        times = len(ridges)
        objective = self.objective(
            times, np.tile(ridges, len(heads)), tied=tied, heads=len(heads[0].queries)
        )
        points = objective.pack([one for one in heads for _ in ridges])
        return objective, self.minimised(objective, points, max_steps, "refining")

    def best_readouts(self, ridge: float) -> list[Heads]:
        """Return each problem's best head without a query: for the softmax, mean pooling."""
        problems, settings = self.problems, self.settings
        silent = np.zeros((1, problems.sequences.dimension))
        features, _ = head_features(problems.sequences, silent, problems.scaler, settings.pooling)
        objective = LinearObjective(
            [features],
            np.array([len(problems)]),
            problems.labels,
            problems.weights,
            settings.loss,
            np.full(len(problems), ridge),
            np.ones((len(problems), features.shape[1])),
        )
        starts = np.zeros((len(problems), features.shape[1] + 1))
        starts[:, -1] = prior_bias(problems.labels, problems.weights, settings.loss)
        found = self.minimised(objective, starts, POOLED_STEPS, "pooling")
        return [Heads(silent, point[None, :-1], float(point[-1])) for point in found.points]

    def minimised(
        self, objective: Objectives, points: Array, max_steps: int, what: str
    ) -> Descents:
        """Descend from rows of points, to the tolerance of the settings."""
        return minimise_together(
            objective,
            points,
            max_steps=max_steps,
            tolerance=self.settings.tol * self.settings.unit,
            progress=self.settings.progress_of(what),
        )


def refined_heads(
    problems: Problems,
    for_query: LabelledSequences,
    directions: Array,
    recipe: Recipe,
    settings: HeadSettings,
) -> list[FittedHeads]:
    """Refine one head after another, each begun on what the ones before it miss.

    Several heads also begin all at once, one for each kind of evidence that the first has found, and
    the better end is kept: a head that has settled between two kinds does not leave that place.
    """
    tied = recipe.family == "tied"
    search = Refinement(problems, settings, recipe.sharpness)
    descent = _Descent(search, _smaller(search), recipe.ridge, tied)
    starts, steps = descent.smaller.best_start(directions, recipe.ridge, tied=tied)
    fitted = descent.settled(starts, steps)
    if settings.heads == 1:
        return fitted
    kinds = [heads_of_kinds(one.heads, search, row) for row, one in enumerate(fitted)]
    for _ in range(1, settings.heads):
        heads = [one.heads for one in fitted]
        starts, steps = _with_one_more(search, for_query, heads, recipe, tied=tied)
        fitted = descent.settled(starts, steps + fitted[0].solution.steps)
    together = descent.settled(kinds, fitted[0].solution.steps)
    return [min(pair, key=lambda one: one.objective) for pair in zip(fitted, together, strict=True)]


@dataclass(frozen=True)
class _Descent:
    """How a fit comes to its end: on a part of the samples first, and not above mean pooling.

    Attributes
    ----------
    search, smaller : Refinement
        On all samples, and on the part where starts are tried: the same if there are not many.
    """

    search: Refinement
    smaller: Refinement
    ridge: float
    tied: bool

    def settled(self, heads: list[Heads], steps: int) -> list[FittedHeads]:
        """Refine until converged, after so many steps; anew without a query where that is better.

        Mean pooling is the model at q = 0. A fit that ends above its objective has fallen into a
        poor basin, or stopped too early. From there no step goes up, so the second end is not above.
        """
        for stage in [self.search] if self.smaller is self.search else [self.smaller, self.search]:
            fitted = self._refined(stage, heads, steps)
            heads, steps = [one.heads for one in fitted], fitted[0].solution.steps
        starts, values = self.without_queries
        slack = self.search.settings.tol * self.search.settings.unit * np.maximum(values, 1.0)
        above = np.array([one.objective for one in fitted]) > values + slack
        if not above.any():
            return fitted
        starts = [one.padded(len(heads[0].queries)) for one in starts]
        again = self._refined(self.search, starts, steps)
        return [pair[int(poor)] for *pair, poor in zip(fitted, again, above, strict=True)]

    def _refined(self, stage: Refinement, heads: list[Heads], steps: int) -> list[FittedHeads]:
        objective, found = stage.descend(
            heads, np.array([self.ridge]), tied=self.tied, max_steps=stage.settings.max_iter
        )
        ends = zip(objective.unpack(found.points), found.values, found.solutions, strict=True)
        steps += found.most_steps
        return [
            FittedHeads(one, float(value), replace(solution, steps=steps))
            for one, value, solution in ends
        ]

    @cached_property
    def without_queries(self) -> tuple[list[Heads], Array]:
        """Each problem's best head with q = 0, and its objective on all samples."""
        heads = self.smaller.best_readouts(self.ridge)
        objective = self.search.objective(1, np.full(len(heads), self.ridge), tied=self.tied)
        d = self.search.problems.sequences.dimension

        def readout_alone(points: Array, rows: Array) -> tuple[Array, Array]:
            values, gradients = objective(points, rows)
            gradients[:, d:-1] = 0
            return values, gradients

        found = self.search.minimised(readout_alone, objective.pack(heads), POOLED_STEPS, "pooling")
        return objective.unpack(found.points), found.values


def heads_of_kinds(first: Heads, search: Refinement, row: int) -> Heads:
    """Return a start for several heads, one for each kind of token that one head attends to.

    The attended features of the samples whose class it speaks for are put into as many groups; each
    head begins at the centre of one, blunt, with the mean decision of a constant.
    """
    problems, settings = search.problems, search.settings
    count = settings.heads
    if count == 1:
        return first
    side = 1.0 if np.sum(first.queries * first.weights) >= 0 else -1.0
    features, _ = head_features(
        problems.sequences, first.queries, problems.scaler, settings.pooling
    )
    weights = np.where(problems.labels[row] == side, problems.weights[row], 0.0)
    centres = centres_of_groups(features, weights, count)
    scale = spreads(problems.sequences, problems.scaler, centres, problems.weights[row])[:, None]
    queries = np.divide(centres, scale, out=np.zeros_like(centres), where=scale > 0)
    start = Heads(queries, side * queries / count, 0.0)
    decisions = start.decisions(problems.sequences, problems.scaler, settings.pooling)
    prior = prior_bias(problems.labels[[row]], problems.weights[[row]], settings.loss)[0]
    return replace(start, bias=float(prior - problems.weights[row] @ decisions))


def centres_of_groups(features: Array, weights: Array, count: int) -> Array:
    """Return the centres (count, d) of groups of weighted features (n, d), by Lloyd's iterations.

    They begin as parts of equal weight along the direction of the largest variance. Nothing is
    random: a sample of weight 2 is two samples, and their order plays no part.
    """
    chosen = weights > 0
    features, weights = features[chosen], weights[chosen] / weights.sum()
    centred = features - weights @ features
    direction = centred[np.argmax(np.einsum("nd,nd->n", centred, centred))]
    for _ in range(GROUPING_STEPS):
        direction = (weights * (centred @ direction)) @ centred
        direction = direction / max(float(np.linalg.norm(direction)), 1e-300)
    order = np.argsort(centred @ direction, kind="stable")
    before = np.cumsum(weights[order]) - weights[order] / 2
    group = np.empty(len(features), dtype=int)
    group[order] = np.minimum((count * before).astype(int), count - 1)
    centres = np.zeros((count, features.shape[1]))
    for _ in range(GROUPING_STEPS):
        for index in range(count):
            own = weights * (group == index)
            if own.sum() > 0:
                centres[index] = own @ features / own.sum()
        distances = np.einsum("kd,kd->k", centres, centres) - 2 * features @ centres.T
        group = distances.argmin(axis=1)
    return centres


def _with_one_more(
    search: Refinement,
    for_query: LabelledSequences,
    heads: list[Heads],
    recipe: Recipe,
    *,
    tied: bool,
) -> tuple[list[Heads], int]:
    """Add a head to each problem that explains, alone, most of what the others miss."""
    problems, settings = search.problems, search.settings

    def decisions(sequences: Sequences) -> Array:
        return np.array(
            [one.decisions(sequences, problems.scaler, settings.pooling) for one in heads]
        )

    directions = head_directions(
        for_query, problems.scaler, settings, offsets=decisions(for_query.sequences)
    )
    further, steps = search.best_start(
        directions, recipe.ridge, tied=tied, offsets=decisions(problems.sequences)
    )
    joined = [
        Heads(
            np.vstack([old.queries, new.queries]),
            np.vstack([old.weights, new.weights]),
            old.bias + new.bias,
        )
        for old, new in zip(heads, further, strict=True)
    ]
    return joined, steps


def _smaller(search: Refinement) -> Refinement:
    """Return the search on a part of the samples if there are really many."""
    problems = search.problems
    size = problems.sequences.token_bytes
    if size <= LARGE_BYTES:
        return search
    every = int(np.ceil(size / LARGE_BYTES))
    rows = np.unique(
        np.concatenate(
            [np.flatnonzero(row == sign)[::every] for row in problems.labels for sign in (-1, 1)]
        )
    )
    weights = problems.weights[:, rows]
    part = Problems(
        problems.sequences.take(rows),
        problems.labels[:, rows],
        weights / weights.sum(axis=1, keepdims=True),
        problems.scaler,
    )
    return replace(search, problems=part)
