"""Fitting the heads of binary classifiers when it is known what to fit: readouts and refinement.

All problems of a fit (classes against the rest, folds, starts) are solved together, so that they
share every pass over the data.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sparsetoken.arrays import Array
from sparsetoken.estimators.descent import Descents, minimise_together
from sparsetoken.estimators.extremes import coordinate_extremes
from sparsetoken.estimators.labelled import LabelledSequences
from sparsetoken.estimators.objective import Heads, JointObjective
from sparsetoken.estimators.pooling import Pooling, segment_sums
from sparsetoken.estimators.query import spreads, two_step_directions
from sparsetoken.estimators.scaling import Scaler
from sparsetoken.estimators.sequences import Block, Sequences
from sparsetoken.learning.readout import Readout, fit_readout
from sparsetoken.losses import Loss

__all__ = [
    "FAMILIES",
    "SUMMARIES",
    "FittedHeads",
    "HeadSettings",
    "Plan",
    "Problems",
    "Refinement",
    "block_features",
    "feature_units",
    "fit_heads",
    "head_features",
    "prior_bias",
]

# From the simplest to the richest: the mean of the tokens, the coordinates' maxima or minima alone,
# mean, maxima and minima together, the two-step query with its readout, refinement with q = κ w, and
# refinement with a query of its own.
FAMILIES = ("pooled", "maxima", "minima", "extremes", "two-step", "tied", "free")
# Those without a query, and which of mean, maxima and minima they read.
SUMMARIES = {"pooled": (0, 1), "maxima": (1, 2), "minima": (2, 3), "extremes": (0, 3)}
# Sharpnesses at which refinement starts, with evidence for the class and against it.
STARTING_SHARPNESS = (1.0, 4.0)
# Steps that decide between starts.
TRIAL_STEPS = 10
# Iterations that put attended features into groups, one for each head.
GROUPING_STEPS = 20
# Above this size the starts are tried on a part of the samples; refinement ends on all of them.
LARGE_BYTES = 2**29


@dataclass(frozen=True)
class HeadSettings:
    """What `fit_heads` is to do; the fields are the classifier's parameters of that name.

    `unit` is how large a loss is large: tolerances are measured in it.
    """

    pooling: Pooling
    loss: Loss
    heads: int
    max_iter: int
    tol: float
    progress: Callable[[str, int, Array], None] | None = None
    unit: float = 1.0


@dataclass(frozen=True)
class Plan:
    """Which model to fit: a family, the two-step query's sharpness ("auto" if refined), the ridge."""

    family: str
    sharpness: float | str
    ridge: float

    @property
    def reads_extremes(self) -> bool:
        """Whether maxima and minima of the coordinates are among the features."""
        return SUMMARIES.get(self.family, (0, 1))[1] > 1

    def columns(self, count: int) -> slice:
        """Return which of `count` features are read: with extremes, mean, maxima and minima."""
        if not self.reads_extremes:
            return slice(None)
        first, last = SUMMARIES[self.family]
        return slice(first * count // 3, last * count // 3)


@dataclass(frozen=True)
class FittedHeads:
    """The heads of one binary problem, with how they were reached.

    Attributes
    ----------
    heads : Heads
    objective : float
        Mean loss and penalty at the solution.
    iterations : int
    converged : bool
    """

    heads: Heads
    objective: float
    iterations: int
    converged: bool


@dataclass(frozen=True)
class Problems:
    """P binary problems on the same sequences: labels and weights of shape (P, n)."""

    sequences: Sequences
    labels: Array
    weights: Array
    scaler: Scaler

    def repeated(self, times: int) -> "Problems":
        """Return each problem `times` times in a row."""
        if times == 1:
            return self
        return replace(
            self,
            labels=np.repeat(self.labels, times, axis=0),
            weights=np.repeat(self.weights, times, axis=0),
        )

    def __len__(self) -> int:
        return len(self.labels)


def prior_bias(labels: Array, weights: Array, loss: Loss) -> Array:
    """Return the bias of a constant decision: log-odds, or the mean label; (P,)."""
    means = np.sum(weights * labels, axis=1) / weights.sum(axis=1)
    if loss.name != "logistic":
        return np.asarray(means)
    bounded = np.clip(means, -1 + 1e-9, 1 - 1e-9)
    return np.asarray(np.log1p(bounded) - np.log1p(-bounded))


def fit_heads(
    labelled: LabelledSequences,
    for_query: LabelledSequences,
    scaler: Scaler,
    plan: Plan,
    settings: HeadSettings,
    firsts: Array | None = None,
) -> list[FittedHeads]:
    """Fit the heads of all binary problems: the query on `for_query`, the rest on `labelled`.

    Parameters
    ----------
    firsts : array of shape (C, d), optional
        Stage 1's readouts on `for_query`, if they are known already.
    """
    problems = _problems(labelled, scaler)
    if plan.family in SUMMARIES:
        queries = np.zeros((len(problems), 1, labelled.sequences.dimension))
        return _padded(_read_out(problems, queries, plan, settings), settings.heads)
    directions = _directions(for_query, scaler, settings, firsts)
    if plan.family == "two-step":
        return _two_step(problems, for_query, directions, plan, settings)
    return _refined(problems, for_query, directions, plan, settings)


def _problems(labelled: LabelledSequences, scaler: Scaler) -> Problems:
    weights = np.broadcast_to(labelled.weights, labelled.labels.shape)
    return Problems(labelled.sequences, labelled.labels, weights, scaler)


def _directions(
    labelled: LabelledSequences,
    scaler: Scaler,
    settings: HeadSettings,
    firsts: Array | None = None,
    offsets: Array | None = None,
) -> Array:
    problems = _problems(labelled, scaler)
    return two_step_directions(
        problems.sequences,
        problems.labels,
        problems.weights,
        scaler,
        settings.loss,
        firsts=firsts,
        offsets=offsets,
    )


def _padded(fitted: list[FittedHeads], count: int) -> list[FittedHeads]:
    """Return the fits with silent heads added: mean pooling has one that speaks."""

    def padded(heads: Heads) -> Heads:
        missing = np.zeros((count - len(heads.queries), heads.queries.shape[1]))
        return replace(
            heads,
            queries=np.vstack([heads.queries, missing]),
            weights=np.vstack([heads.weights, missing]),
        )

    return [replace(one, heads=padded(one.heads)) for one in fitted]


# Readouts on fixed queries


def _read_out(
    problems: Problems, queries: Array, plan: Plan, settings: HeadSettings
) -> list[FittedHeads]:
    """Return stage 4's readouts on the features of queries (P, H, d)."""
    fitted = []
    with_extremes = plan.reads_extremes
    shared = None
    for row, own in enumerate(queries):
        if shared is None or np.any(own):  # mean pooling has the same features in all problems
            shared = head_features(
                problems.sequences, own, problems.scaler, settings.pooling, extremes=with_extremes
            )
        read = plan.columns(shared.shape[1])
        units = feature_units(shared[:, read], problems.weights[row])
        readout = _solve(shared[:, read] / units, problems, row, plan.ridge, settings.loss)
        every = np.zeros(shared.shape[1])
        every[read] = readout.weights / units
        weights, extremes = np.split(every, [own.size])
        heads = Heads(
            own,
            weights.reshape(own.shape),
            readout.bias,
            extremes.reshape(2, -1) if with_extremes else None,
        )
        fitted.append(
            FittedHeads(
                heads,
                readout.objective,
                max(1, readout.solution.steps),
                readout.solution.converged,
            )
        )
    return fitted


def _solve(features: Array, problems: Problems, row: int, ridge: float, loss: Loss) -> Readout:
    weights = problems.weights[row]
    # A penalty does not see the bias: centred features need fewer steps.
    centre = weights @ features / weights.sum()
    readout = fit_readout(
        np.asarray(features - centre, dtype=float),
        problems.labels[row],
        loss=loss,
        ridge=ridge,
        sample_weight=weights,
        tolerance=1e-10,
    )
    return replace(readout, bias=readout.bias - float(centre @ readout.weights))


def feature_units(features: Array, weights: Array) -> Array:
    """Return the standard deviation of each feature, (n, D) → (D,); 1 where it does not vary."""
    location = weights @ features
    centred = features - location
    # Squares of very small or large numbers would leave the range of numbers.
    largest = np.abs(centred).max(axis=0)
    varies = largest > 1e-12 * np.abs(location)
    largest = np.where(varies & (largest > 0), largest, 1.0)
    variance = weights @ (centred / largest) ** 2
    return np.asarray(np.where(varies & (variance > 0), largest * np.sqrt(variance), 1.0))


def head_features(
    sequences: Sequences,
    queries: Array,
    scaler: Scaler,
    pooling: Pooling,
    *,
    extremes: bool = False,
) -> Array:
    """Return f_h(X) of all heads side by side, standardised tokens: shape (n, H d).

    With `extremes`, maxima and minima of the coordinates stand behind them: (n, H d + 2 d).
    """
    return np.concatenate(
        [
            block_features(block, queries, scaler, pooling, extremes=extremes).astype(float)
            for block in sequences.blocks()
        ]
    )


def block_features(
    block: Block, queries: Array, scaler: Scaler, pooling: Pooling, *, extremes: bool = False
) -> Array:
    """Return `head_features` for the samples of a block: shape (k, H d) or (k, H d + 2 d)."""
    attention = pooling.weights(scaler.scores(queries, block.tokens), block)
    parts = []
    for weights in attention:
        sums = segment_sums(weights[:, None] * block.tokens, block, axis=0)
        totals = segment_sums(weights, block)[:, None]
        parts.append(scaler.standardised(sums - totals * scaler.location))
    if extremes:
        location, scale = np.tile(scaler.location, 2), np.tile(scaler.scale, 2)
        parts.append((coordinate_extremes(block) - location) / scale)
    return np.asarray(np.concatenate(parts, axis=1), dtype=block.tokens.dtype)


def _two_step(
    problems: Problems,
    for_query: LabelledSequences,
    directions: Array,
    plan: Plan,
    settings: HeadSettings,
) -> list[FittedHeads]:
    """Fit heads one after another, each query on what the ones before left unexplained."""
    sharpness = float(plan.sharpness)
    queries = sharpness * directions[:, None]
    fitted = _read_out(problems, queries, plan, settings)
    while queries.shape[1] < settings.heads:
        offsets = np.array(
            [
                one.heads.decisions(for_query.sequences, problems.scaler, settings.pooling)
                for one in fitted
            ]
        )
        further = _directions(for_query, problems.scaler, settings, offsets=offsets)
        queries = np.concatenate([queries, sharpness * further[:, None]], axis=1)
        fitted = _read_out(problems, queries, plan, settings)
    return fitted


# Refinement


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
        return JointObjective(
            sequences=repeated.sequences,
            labels=repeated.labels,
            weights=repeated.weights,
            scaler=repeated.scaler,
            pooling=self.settings.pooling,
            loss=self.settings.loss,
            units=np.broadcast_to(1.0, (len(repeated), heads, d)),
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
        tried = self._descend(objective, points, TRIAL_STEPS, "trying starts")
        best = tried.values.reshape(-1, times).argmin(axis=1) + times * np.arange(len(starts))
        return objective.unpack(tried.points[best], best), int(tried.steps.max())

    def descend(
        self, heads: list[Heads], ridges: Array, *, tied: bool, max_steps: int
    ) -> tuple[JointObjective, Descents]:
        """Refine each problem with each of R ridges, all heads jointly: P·R descents."""
        times = len(ridges)
        objective = self.objective(
            times, np.tile(ridges, len(heads)), tied=tied, heads=len(heads[0].queries)
        )
        points = objective.pack([one for one in heads for _ in ridges])
        return objective, self._descend(objective, points, max_steps, "refining")

    def _descend(
        self, objective: JointObjective, points: Array, max_steps: int, what: str
    ) -> Descents:
        progress = self.settings.progress
        return minimise_together(
            objective,
            points,
            max_steps=max_steps,
            tolerance=self.settings.tol * self.settings.unit,
            progress=None if progress is None else lambda n, values: progress(what, n, values),
        )


def _refined(
    problems: Problems,
    for_query: LabelledSequences,
    directions: Array,
    plan: Plan,
    settings: HeadSettings,
) -> list[FittedHeads]:
    """Refine one head after another, each begun on what the ones before it miss.

    Several heads also begin all at once, one for each kind of evidence that the first has found, and
    the better end is kept: a head that has settled between two kinds does not leave that place.
    """
    tied = plan.family == "tied"
    search = Refinement(problems, settings, plan.sharpness)
    smaller = _smaller(search)
    ridges = np.array([plan.ridge])

    def settled(heads: list[Heads]) -> tuple[list[Heads], Descents, int]:
        steps = 0
        for stage in [search] if smaller is search else [smaller, search]:
            objective, found = stage.descend(heads, ridges, tied=tied, max_steps=settings.max_iter)
            heads = objective.unpack(found.points)
            steps += int(found.steps.max())
        return heads, found, steps

    heads, steps = smaller.best_start(directions, plan.ridge, tied=tied)
    heads, found, more = settled(heads)
    steps += more
    starts = [heads_of_kinds(one, search, row) for row, one in enumerate(heads)]
    for _ in range(1, settings.heads):
        heads, tried = _with_one_more(search, for_query, heads, plan, tied=tied)
        heads, found, more = settled(heads)
        steps += tried + more
    fitted = _as_fitted(heads, found, steps)
    if settings.heads == 1:
        return fitted
    heads, found, more = settled(starts)
    together = _as_fitted(heads, found, steps + more)
    return [min(pair, key=lambda one: one.objective) for pair in zip(fitted, together, strict=True)]


def _as_fitted(heads: list[Heads], found: Descents, steps: int) -> list[FittedHeads]:
    return [
        FittedHeads(one, float(value), steps, bool(done))
        for one, value, done in zip(heads, found.values, found.converged, strict=True)
    ]


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
    features = head_features(problems.sequences, first.queries, problems.scaler, settings.pooling)
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
    plan: Plan,
    *,
    tied: bool,
) -> tuple[list[Heads], int]:
    """Add a head to each problem that explains, alone, most of what the others miss."""
    problems, settings = search.problems, search.settings

    def decisions(sequences: Sequences) -> Array:
        return np.array(
            [one.decisions(sequences, problems.scaler, settings.pooling) for one in heads]
        )

    directions = _directions(
        for_query, problems.scaler, settings, offsets=decisions(for_query.sequences)
    )
    further, steps = search.best_start(
        directions, plan.ridge, tied=tied, offsets=decisions(problems.sequences)
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


def sharpness_of(heads: Heads, labelled: LabelledSequences, scaler: Scaler) -> float:
    """Return the spread of the fitted scores within a sequence, of the sharpest head."""
    return float(spreads(labelled.sequences, scaler, heads.queries, labelled.weights).max())
