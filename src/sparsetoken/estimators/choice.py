"""Which model to fit: families, sharpness and ridge compared on held-out samples.

The simplest family whose held-out loss is within half a standard error of the best is chosen, so
that refinement has to earn its keep, and the result is not worse than pooling beyond noise.
"""

from collections.abc import Callable, Container
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from sparsetoken.arrays import Array
from sparsetoken.estimators.extremes import coordinate_extremes
from sparsetoken.estimators.heads import (
    LEAST_UNIT,
    SUMMARIES,
    HeadSettings,
    Problems,
    Recipe,
    feature_units,
    prior_bias,
)
from sparsetoken.estimators.labelled import Folds, LabelledSequences
from sparsetoken.estimators.lbfgs import minimise_together
from sparsetoken.estimators.objective import Heads, LinearObjective
from sparsetoken.estimators.pooling import Pooling, segment_sums
from sparsetoken.estimators.query import two_step_directions
from sparsetoken.estimators.refinement import Refinement
from sparsetoken.estimators.scaling import Scaler
from sparsetoken.estimators.sequences import Sequences, StackedSequences
from sparsetoken.learning.readout import fit_readout
from sparsetoken.losses import Loss

__all__ = ["Candidate", "Wishes", "choose", "choose_ridge"]

# Scores of a two-step query spread by one at sharpness 1: from a mild preference among tokens to one
# for the largest scores alone. The middle one serves where nothing can be compared.
SHARPNESS_GRID = (1.0, 2.0, 4.0)
MIDDLE_SHARPNESS = 2.0
# Features have variance 1 and losses bend by at most about 1: from a ridge that hardly counts to one
# as strong as the data. Refined families have fewer, for each takes a descent of its own.
LINEAR_RIDGES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
REFINED_RIDGES = (1e-3, 1e-2, 1e-1)
MIDDLE_RIDGE = 1e-2
# Readouts of four fifths of the samples are close to those of all, and few enough to solve.
FOLDS = 5
# These bound the time that a comparison takes; a rare class keeps at least so many samples.
MOST_SAMPLES = 5000
LEAST_OF_CLASS = 50
# The samples that the choice looks at are copied; this is the copy's largest size.
COPY_BYTES = 2**29
# About so many tokens are read at once: small enough for the cache with many problems.
BLOCK_TOKENS = 4096
# A simpler family is preferred if its loss exceeds the least by at most so many standard errors.
SIMPLER_ERRORS = 0.5
# Differences of a thousandth decide nothing; what solvers leave is a part of that.
TOLERANCE = 1e-3
SOLVER_PART = 0.3
# First steps tell families apart; the fit itself takes as many as it needs.
REFINED_STEPS = 40
LINEAR_STEPS = 100
# With more features for each sample, training samples can be separated. A readout that stops early then
# has a far lower held-out loss than the fit, and so has one in units that know the held-out samples:
# the best are solved to the end, a gradient of this norm, and each part has units of its own. A strong
# ridge bends the loss so much that its first steps reach the end.
FEW_FEATURES = 0.25
FINISHED_TOLERANCE = 1e-6
STRONG_RIDGE = 1.0
# Sums of squares in single precision are right to about a millionth.
SINGLE_ROUNDING = 1e-4
# The families that read one summary alone, in the order of `SUMMARIES`.
PARTS = ("pooled", "maxima", "minima")
# With more samples, or features, an eigenvalue problem of their size takes longer than it saves.
MOST_FACTORED = 2000
MOST_ROTATED = 400
# Problems times features of readouts that are solved together; more only fill the memory.
MOST_TOGETHER = 2**14
# Without a ridge, steps along features that hardly vary are no longer than these have them.
LEAST_VARIANCE = 1e-6
# A family that is behind by so many standard errors after its first steps is not finished.
HOPELESS_ERRORS = 2.0
# By so many standard errors whitening must lower the loss. A small gain of the two-step query was
# often a loss of the refined ones, on real bags; where directions are shared the gain is large.
WHITENING_ERRORS = 3.0


@dataclass(frozen=True)
class Wishes:
    """What the user left open: allowed families in order, sharpness and ridge or "auto"."""

    families: tuple[str, ...]
    sharpness: float | str
    ridge: float | str

    def recipe(self) -> Recipe | None:
        """Return the recipe if nothing is open."""
        open_sharpness = self.sharpness == "auto" and self.families == ("two-step",)
        if len(self.families) > 1 or self.ridge == "auto" or open_sharpness:
            return None
        return Recipe(self.families[0], self.sharpness, float(self.ridge))

    def fallback(self) -> Recipe:
        """Return what to fit when the samples are too few to choose: the simplest."""
        sharpness = self.sharpness
        if self.families[0] == "two-step" and sharpness == "auto":
            sharpness = MIDDLE_SHARPNESS
        ridge = MIDDLE_RIDGE if self.ridge == "auto" else float(self.ridge)
        return Recipe(self.families[0], sharpness, ridge)


@dataclass(frozen=True)
class Candidate:
    """A recipe with its held-out loss, the best of its family.

    Attributes
    ----------
    recipe : Recipe
    loss : float
        Mean held-out loss, summed over classes against the rest.
    losses : array of shape (n,)
    """

    recipe: Recipe
    loss: float
    losses: Array


def choose(
    labelled: LabelledSequences,
    for_query: LabelledSequences | None,
    scaler: Scaler,
    white: Scaler | None,
    wishes: Wishes,
    settings: HeadSettings,
) -> tuple[Recipe, list[Candidate], Scaler]:
    """Return the recipe, the candidates that were compared, simplest first, and the scaler.

    Parameters
    ----------
    for_query : LabelledSequences or None
        Samples for the query alone; None if folds serve for both.
    white : Scaler or None
        One that also whitens, to be taken if the two-step query has a far lower held-out loss with
        it: directions that all tokens share are what that query stumbles over.
    """
    recipe = wishes.recipe()
    if recipe is not None:
        return recipe, [], scaler
    some = labelled.thinned(_most_samples(labelled.sequences), least_of_class=LEAST_OF_CLASS)
    folds = some.folds(FOLDS)
    if folds is None:
        return wishes.fallback(), [], scaler
    held = _HeldOut(some, folds, settings.loss, settings.unit, settings.progress_of("comparing"))
    scalers = [scaler] if white is None else [scaler, white]
    validations = [_Validation(some, for_query, held, one, settings) for one in scalers]
    found = _linear_candidates(validations, wishes, wishes.families)
    chosen = int(_whitening_pays(found, held))
    if chosen:
        # Means are whitened with the tokens; maxima and minima never are.
        with_means = _linear_candidates(validations[1:], wishes, ("pooled", "extremes"))[0]
        found[1] = {**found[0], **with_means, **found[1]}
    candidates = found[chosen]
    for family in wishes.families:
        if family not in candidates:
            best = min(candidates.values(), key=lambda one: one.loss, default=None)
            candidates[family] = validations[chosen].refined(family, wishes, best)
    ordered = [candidates[family] for family in wishes.families]
    return _simplest_good(ordered, held), ordered, scalers[chosen]


def _whitening_pays(found: list[dict[str, Candidate]], held: "_HeldOut") -> bool:
    """Whether the two-step query has a far lower loss with the second scaler, if there is one."""
    two_step = [candidates["two-step"] for candidates in found if "two-step" in candidates]
    if len(two_step) < 2:
        return False
    excess, error = held.excess(two_step[0].losses, two_step[1].losses)
    return excess > WHITENING_ERRORS * error


def _most_samples(sequences: Sequences) -> int:
    """Return how many samples the choice may look at, within the copy's size but for a hundred."""
    per_sample = 4 * sequences.dimension * float(np.mean(sequences.lengths))
    return int(min(MOST_SAMPLES, max(COPY_BYTES / per_sample, 100)))


def _simplest_good(candidates: list[Candidate], held: "_HeldOut") -> Recipe:
    """Return the first candidate within half a standard error of the best."""
    best = min(candidates, key=lambda candidate: candidate.loss)
    for candidate in candidates:
        excess, error = held.excess(candidate.losses, best.losses)
        if excess <= SIMPLER_ERRORS * error:
            return candidate.recipe
    return best.recipe


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
    path = _RidgePath.of(features, labelled.weights, LINEAR_RIDGES)
    (losses,) = held.finished_losses([path])
    return LINEAR_RIDGES[int(np.argmin(losses @ labelled.weights))]


@dataclass(frozen=True)
class _RidgePath:
    """Readouts to compare: of the same features, with several ridges.

    Attributes
    ----------
    features : array of shape (n, D), or (P, n, D) if every problem has its own
    variances : array of shape (D,), of the features
    ridges : tuple of float
    """

    features: Array
    variances: Array
    ridges: tuple[float, ...]

    @classmethod
    def of(cls, features: Array, weights: Array, ridges: tuple[float, ...]) -> "_RidgePath":
        """Return the path for features (n, D) along their principal axes.

        Penalised readouts are the same there, and found in few steps. Axes along which samples
        hardly differ, for the least ridge, are left out.
        """
        roots = np.sqrt(weights)[:, None]
        n, size = features.shape
        if size <= min(n, MOST_ROTATED):
            scaled = roots * features
            values, vectors = np.linalg.eigh(scaled.T @ scaled)
        elif size > n and n <= MOST_FACTORED:
            scaled = roots * features
            values, vectors = np.linalg.eigh(scaled @ scaled.T)
            vectors = scaled.T @ (vectors / np.sqrt(np.maximum(values, 1e-300)))
        else:
            return cls(features.astype(np.float32), weights @ features**2, ridges)
        kept = values > 0.01 * min(ridges)
        return cls((features @ vectors[:, kept]).astype(np.float32), values[kept], ridges)

    @classmethod
    def side_by_side(cls, parts: list["_RidgePath"]) -> "_RidgePath":
        """Return the path of all parts' features together."""
        return cls(
            np.concatenate([part.features for part in parts], axis=1),
            np.concatenate([part.variances for part in parts]),
            parts[0].ridges,
        )

    @property
    def groups(self) -> list[Array]:
        """The features that problems share."""
        return [self.features] if self.features.ndim == 2 else list(self.features)


class _HeldOut:
    """All problems, classes against the rest times folds, and their held-out losses.

    Problems stand class by class, fold by fold; in each, the samples of its fold have weight 0.
    """

    def __init__(
        self,
        labelled: LabelledSequences,
        folds: Folds,
        loss: Loss,
        unit: float = 1.0,
        progress: Callable[[int, Array], None] | None = None,
    ) -> None:
        self.progress = progress
        self.classes, self.weights, self.folds, self.loss = (
            labelled.labels,
            labelled.weights,
            folds,
            loss,
        )
        kept = np.array([folds.of_sample != fold for fold in range(folds.count)])
        training = kept * labelled.weights
        training = training / training.sum(axis=1, keepdims=True)
        self.labels = np.repeat(labelled.labels, folds.count, axis=0)
        self.training = np.tile(training, (len(labelled.labels), 1))
        self.prior = prior_bias(self.labels, self.training, loss)
        # A rare class has a small loss from the start: what counts is how much of it is left.
        constant = np.vecdot(self.training, loss.value(self.labels * self.prior[:, None])).mean()
        self.unit = unit * min(1.0, float(constant / loss.value(np.zeros(1))[0]))

    def finished_losses(self, paths: list[_RidgePath]) -> list[Array]:
        """Return held-out losses (R, n) along each path, of many features the least of the fit itself.

        First steps have too low a loss, so that who is far behind with it stays behind.
        """
        losses = self.path_losses(paths)
        leader: Array | None = None
        for place in np.argsort([float((own @ self.weights).min()) for own in losses]):
            path, own = paths[place], losses[place]
            finished: set[int] = set()
            while True:
                least = int(np.argmin(own @ self.weights))
                settled = least in finished or path.ridges[least] >= STRONG_RIDGE
                if settled or not self.are_many(len(path.variances)):
                    break
                if leader is not None and self.is_hopeless(own[least], leader):
                    break
                own[least] = self._finished(path, path.ridges[least])
                finished.add(least)
            if leader is None or own[least] @ self.weights < leader @ self.weights:
                leader = own[least]
        return losses

    def is_hopeless(self, losses: Array, leader: Array) -> bool:
        """Whether losses (n,) are so far above a leader's that more steps are for nothing."""
        excess, error = self.excess(losses, leader)
        return excess > HOPELESS_ERRORS * error

    def are_many(self, features: int) -> bool:
        """Whether so many features may separate the samples; copies of one count once."""
        return features > FEW_FEATURES * (int(self.folds.units.max()) + 1)

    def _finished(self, path: _RidgePath, ridge: float) -> Array:
        """Return the held-out losses (n,) of readouts that are solved to the end."""
        decisions = np.empty(self.labels.shape)
        shared = len(self.labels) // len(path.groups)
        for row, labels in enumerate(self.labels):
            kept = np.flatnonzero(self.training[row])
            features, weights = path.groups[row // shared], self.training[row, kept]
            centred = np.asarray(features - weights.astype(features.dtype) @ features[kept], float)
            readout = fit_readout(
                centred[kept],
                labels[kept],
                loss=self.loss,
                ridge=ridge,
                sample_weight=weights,
                tolerance=FINISHED_TOLERANCE,
            )
            decisions[row] = centred @ readout.weights + readout.bias
        return np.asarray(self.losses(decisions, 1)[0])

    def path_losses(self, paths: list[_RidgePath]) -> list[Array]:
        """Return held-out losses (R, n) of the readouts along each path, small ones solved together."""
        losses: list[Array] = []
        batch: list[_RidgePath] = []
        for path in paths:
            batch.append(path)
            problems = len(self.labels) * sum(len(one.ridges) for one in batch)
            if problems * max(len(one.variances) for one in batch) > MOST_TOGETHER:
                losses += self._losses(batch[:-1])
                batch = batch[-1:]
        return losses + self._losses(batch)

    def _losses(self, paths: list[_RidgePath]) -> list[Array]:
        if not paths:
            return []
        copies = [len(path.ridges) for path in paths]
        objective = LinearObjective(
            [features for path in paths for features in path.groups],
            np.cumsum(
                [
                    len(self.labels) * len(path.ridges) // len(path.groups)
                    for path in paths
                    for _ in path.groups
                ]
            ),
            np.concatenate([np.repeat(self.labels, times, axis=0) for times in copies]),
            np.concatenate([np.repeat(self.training, times, axis=0) for times in copies]),
            self.loss,
            np.concatenate([np.tile(path.ridges, len(self.labels)) for path in paths]),
            self._units(paths),
        )
        starts = np.zeros((len(objective.labels), objective.units.shape[1] + 1))
        starts[:, -1] = np.concatenate([np.repeat(self.prior, times) for times in copies])
        tolerance = SOLVER_PART * TOLERANCE * self.unit
        found = minimise_together(
            objective, starts, max_steps=LINEAR_STEPS, tolerance=tolerance, progress=self.progress
        )
        decisions = objective.decisions(found.points)
        parts = np.split(decisions, np.cumsum(len(self.labels) * np.array(copies))[:-1])
        return [self.losses(part, times) for part, times in zip(parts, copies, strict=True)]

    def _units(self, paths: list[_RidgePath]) -> Array:
        """Return the root of the curvature at the start along each parameter: (problems, D)."""
        margins = self.labels * self.prior[:, None]
        curvatures = np.vecdot(self.training, self.loss.curvature(margins))
        curvatures = np.where(curvatures > 0, curvatures, 1.0)  # a loss with a kink has none
        size = max(len(path.variances) for path in paths)
        rows = []
        for path in paths:
            variances = np.ones(size)
            variances[: len(path.variances)] = np.maximum(path.variances, LEAST_VARIANCE)
            bends = curvatures[:, None, None] * variances + np.array(path.ridges)[:, None]
            rows.append(np.sqrt(bends).reshape(len(bends) * len(path.ridges), size))
        return np.concatenate(rows)

    def excess(self, losses: Array, others: Array) -> tuple[float, float]:
        """Return by how much losses (n,) exceed others, and the standard error of that."""
        gaps = self.weights * (losses - others)
        excess = float(gaps.sum())
        # Copies of a sample are no independent evidence.
        by_unit = np.bincount(self.folds.units, gaps - excess * self.weights)
        return excess, float(np.sqrt(np.sum(by_unit**2)))

    def losses(self, decisions: Array, variants: int) -> Array:
        """Return losses (V, n), summed over classes, from decisions (C·F·V, n)."""
        n = len(self.weights)
        by_fold = decisions.reshape(len(self.classes), self.folds.count, variants, n)
        own = by_fold[:, self.folds.of_sample, :, np.arange(n)]  # (n, C, V)
        margins = self.classes.T[:, :, None] * own
        return np.asarray(self.loss.value(margins).sum(axis=1).T)

    def best(self, recipes: list[Recipe], losses: Array) -> Candidate:
        """Return the recipe of least held-out loss, from losses (V, n)."""
        totals = losses @ self.weights
        least = int(np.argmin(totals))
        return Candidate(recipes[least], float(totals[least]), losses[least])


class _Validation:
    """What candidates are made of, on a standardised copy of the samples in single precision."""

    def __init__(
        self,
        labelled: LabelledSequences,
        for_query: LabelledSequences | None,
        held: _HeldOut,
        scaler: Scaler,
        settings: HeadSettings,
    ) -> None:
        self.labelled, self.for_query, self.held, self.scaler = labelled, for_query, held, scaler
        sequences = _standardised_copy(labelled.sequences, scaler)
        d = sequences.dimension
        plain = Scaler(np.zeros(d), np.ones(d))
        units = None
        if held.are_many(d):
            own = _token_units(sequences, held.training[: held.folds.count])
            units = np.tile(own, (len(held.classes), 1))
        self.problems = Problems(sequences, held.labels, held.training, plain, units)
        self.settings = replace(settings, tol=max(settings.tol, TOLERANCE), heads=1, unit=held.unit)
        self._known_heads: list[Heads] | None = None
        self._paths: dict[tuple[str, tuple[float, ...]], _RidgePath] = {}

    @cached_property
    def directions(self) -> Array:
        """Each problem's two-step query: (P, d).

        It comes from the problem's own training samples, or from those for the query alone.
        """
        given, problems = self.for_query, self.problems
        if given is None:
            return two_step_directions(
                problems.sequences,
                problems.labels,
                problems.weights,
                problems.scaler,
                self.settings.loss,
                units=problems.units,
            )
        own = two_step_directions(
            given.sequences,
            given.labels,
            np.broadcast_to(given.weights, given.labels.shape),
            self.scaler,
            self.settings.loss,
        )
        return np.repeat(own, self.held.folds.count, axis=0)

    @cached_property
    def summaries(self) -> Array:
        """Means, maxima and minima of the coordinates, the last two never whitened: (n, 3 d).

        Each has mean 0 and variance 1.
        """
        blocks = self.labelled.sequences.blocks()
        extremes = np.concatenate([coordinate_extremes(block) for block in blocks])
        features = np.concatenate([_means(self.problems.sequences), extremes], axis=1)
        weights = self.held.weights
        units = feature_units(features, weights, self.scaler.constant)
        return np.asarray((features - weights @ features) / units)

    def summary_path(self, family: str, ridges: tuple[float, ...]) -> _RidgePath:
        """Return the readouts of a family without a query."""
        size = self.problems.sequences.dimension
        first, last = SUMMARIES[family]
        if last - first > 1 and len(self.summaries) > size:
            # The axes of each part are at hand, and nearly those of all.
            return _RidgePath.side_by_side([self.summary_path(one, ridges) for one in PARTS])
        if (family, ridges) not in self._paths:
            features = self.summaries[:, first * size : last * size]
            self._paths[family, ridges] = _RidgePath.of(features, self.held.weights, ridges)
        return self._paths[family, ridges]

    def query_features(self, levels: tuple[float, ...]) -> Array:
        """Return the features of the two-step queries: (levels, P, n, d)."""
        queries = np.concatenate([level * self.directions for level in levels])
        features, squares = _query_features(self.problems.sequences, queries, self.settings.pooling)
        features = features.reshape(len(levels), len(self.problems), *features.shape[1:])
        squares = squares.reshape(features.shape[:3])
        units = self.problems.units
        weights = self.held.weights[None] if units is None else self.held.training
        weights = weights.astype(features.dtype)[:, None]
        features -= weights @ features
        norms = np.sqrt(weights @ squares[..., None])
        least = LEAST_UNIT * norms * (1 if units is None else units[:, None])
        spread = np.maximum(np.sqrt(weights @ features**2), least)
        features /= np.where(spread > 1e-6, spread, 1)
        return features

    def query_paths(self, levels: tuple[float, ...]) -> list[_RidgePath]:
        """Return the readouts of the two-step query at each sharpness, with the middle ridge.

        One problem's principal axes are nearly those of all, if the samples are many.
        """
        features = self.query_features(levels)
        d = features.shape[3]
        variances = np.ones(d)
        few = d <= MOST_ROTATED and not self.held.are_many(d)
        if few and self.scaler.whitening is None:
            scaled = np.sqrt(self.held.weights)[:, None] * features[len(levels) // 2, 0]
            variances, axes = np.linalg.eigh(scaled.T @ scaled)
            features = features @ axes.astype(features.dtype)
        return [_RidgePath(one, variances, (MIDDLE_RIDGE,)) for one in features]

    def refined(self, family: str, wishes: Wishes, best: Candidate | None) -> Candidate:
        """Return the best of a refined family; as it is after its first steps if it is far behind.

        Parameters
        ----------
        best : Candidate or None
            The best of what was compared before.
        """
        ridges = _ridges(REFINED_RIDGES, wishes)
        middle = ridges[len(ridges) // 2]
        tied = family == "tied"
        search = Refinement(self.problems, self.settings, wishes.sharpness)
        heads = self._tied_heads(search, middle)
        if not tied:
            heads, _ = search.free_start(heads, self.directions, middle)
        if best is not None:
            objective = search.objective(1, np.full(len(heads), middle), tied=tied)
            losses = self.held.losses(objective.decisions(objective.pack(heads)), 1)
            tried = self.held.best([Recipe(family, wishes.sharpness, middle)], losses)
            if self.held.is_hopeless(tried.losses, best.losses):
                return tried
        objective, found = search.descend(
            heads, np.array(ridges), tied=tied, max_steps=REFINED_STEPS
        )
        losses = self.held.losses(objective.decisions(found.points), len(ridges))
        return self.held.best([Recipe(family, wishes.sharpness, ridge) for ridge in ridges], losses)

    def _tied_heads(self, search: Refinement, ridge: float) -> list[Heads]:
        """Return the best tied starts, which both refined families begin with."""
        if self._known_heads is None:
            self._known_heads, _ = search.tied_start(self.directions, ridge)
        return self._known_heads


def _linear_candidates(
    validations: list[_Validation], wishes: Wishes, families: Container[str]
) -> list[dict[str, Candidate]]:
    """Return the best of those of the linear families that are wished, small ones solved together.

    Summaries are compared for the first validation alone, the two-step query for all.
    """
    held, ridges = validations[0].held, _ridges(LINEAR_RIDGES, wishes)
    found: list[dict[str, Candidate]] = [{} for _ in validations]
    places, recipes, paths = [], [], []
    for family in wishes.families:
        if family in SUMMARIES and family in families:
            places.append(0)
            recipes.append([Recipe(family, 0.0, ridge) for ridge in ridges])
            paths.append(validations[0].summary_path(family, ridges))
    if "two-step" in wishes.families and "two-step" in families:
        for place, (level, path) in enumerate(_two_step_paths(validations, wishes)):
            places.append(place)
            recipes.append([Recipe("two-step", level, ridge) for ridge in ridges])
            paths.append(path)
    for place, some, losses in zip(places, recipes, held.finished_losses(paths), strict=True):
        found[place][some[0].family] = held.best(some, losses)
    return found


def _two_step_paths(
    validations: list[_Validation], wishes: Wishes
) -> list[tuple[float, _RidgePath]]:
    """Return each validation's best sharpness at the middle ridge, and the readouts there."""
    levels = SHARPNESS_GRID if wishes.sharpness == "auto" else (float(wishes.sharpness),)
    held, ridges = validations[0].held, _ridges(LINEAR_RIDGES, wishes)
    paths = [path for one in validations for path in one.query_paths(levels)]
    best = np.zeros(len(validations), dtype=int)
    if len(levels) > 1:
        totals = np.concatenate(held.path_losses(paths)) @ held.weights
        best = totals.reshape(len(validations), -1).argmin(axis=1)
    return [
        (levels[level], replace(paths[place * len(levels) + level], ridges=ridges))
        for place, level in enumerate(best)
    ]


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


def _token_units(sequences: Sequences, weights: Array) -> Array:
    """Return the standard deviations of tokens with the weights of samples (F, n): (F, d).

    1 for coordinates that do not vary but by rounding, such as words of other samples alone.
    """
    sums = np.zeros((2, len(weights), sequences.dimension))
    for block in sequences.blocks():
        shares = np.repeat(weights[:, block.samples], block.lengths, axis=1)
        shares = shares.astype(block.tokens.dtype)
        sums += shares @ block.tokens, shares @ block.tokens**2
    means, squares = sums / (weights @ sequences.lengths)[:, None]
    variances = squares - means**2
    return np.sqrt(np.where(variances > SINGLE_ROUNDING * squares, variances, 1.0))


def _means(sequences: Sequences) -> Array:
    parts = [
        segment_sums(block.tokens, block, axis=0) / block.lengths[:, None]
        for block in sequences.blocks()
    ]
    return np.concatenate(parts)


def _query_features(sequences: Sequences, queries: Array, pooling: Pooling) -> tuple[Array, Array]:
    """Return the features of each query (P, d) on all samples, (P, n, d), and ‖p‖², (P, n)."""
    count, d = queries.shape
    result = np.empty((count, len(sequences), d), dtype=np.float32)
    squares = np.empty((count, len(sequences)), dtype=np.float32)
    plain = Scaler(np.zeros(d), np.ones(d))
    scores_of = plain.scorer(queries, sequences.dtype)
    for block in sequences.blocks():
        attention = pooling.weights(scores_of(block.tokens), block)
        ends = block.starts + block.lengths
        rows = range(block.samples.start, block.samples.stop)
        for row, start, end in zip(rows, block.starts, ends, strict=True):
            own = attention[:, start:end]
            result[:, row] = own @ block.tokens[start:end]
            squares[:, row] = np.vecdot(own, own)
    return result, squares
