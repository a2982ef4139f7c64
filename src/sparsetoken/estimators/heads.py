"""What heads are fitted to, by which recipe, and the features that queries give."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from sparsetoken.arrays import Array
from sparsetoken.estimators.extremes import coordinate_extremes
from sparsetoken.estimators.labelled import LabelledSequences
from sparsetoken.estimators.objective import Heads
from sparsetoken.estimators.pooling import Pooling, segment_sums
from sparsetoken.estimators.query import spreads, two_step_directions
from sparsetoken.estimators.scaling import Scaler, smallest_deviation
from sparsetoken.estimators.sequences import Block, Sequences
from sparsetoken.losses import Loss
from sparsetoken.numerics.solution import Solution

__all__ = [
    "LEAST_UNIT",
    "SUMMARIES",
    "FittedHeads",
    "HeadSettings",
    "Problems",
    "Recipe",
    "block_features",
    "feature_units",
    "head_directions",
    "head_features",
    "prior_bias",
    "sharpness_of",
]

# The kinds of readout without a query, and which of mean, maxima and minima they read.
SUMMARIES = {"pooled": (0, 1), "maxima": (1, 2), "minima": (2, 3), "extremes": (0, 3)}

# An attended feature of independent tokens has the standard deviation ‖p‖. One that varies much less is
# of tokens that nobody attended to, such as rare words: in units of its own, the ridge would let the
# readout multiply them by millions where new data attend to them.
LEAST_UNIT = 0.3


@dataclass(frozen=True)
class HeadSettings:
    """How heads are to be fitted; the fields are the classifier's parameters of that name.

    `unit` is how large a loss is large: tolerances are measured in it.
    """

    pooling: Pooling
    loss: Loss
    heads: int
    max_iter: int
    tol: float
    progress: Callable[[str, int, Array], None] | None = None
    unit: float = 1.0

    def progress_of(self, what: str) -> Callable[[int, Array], None] | None:
        """Return what to call in the minimisations of one part of the fit, if anything."""
        return None if self.progress is None else partial(self.progress, what)


@dataclass(frozen=True)
class Recipe:
    """Which model to fit: a family, the two-step query's sharpness ("auto" if refined), the ridge."""

    family: str
    sharpness: float | str
    ridge: float

    @property
    def refined(self) -> bool:
        """Whether query and readout are moved together."""
        return self.family in ("tied", "free")

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
    solution : Solution
    """

    heads: Heads
    objective: float
    solution: Solution


@dataclass(frozen=True)
class Problems:
    """P binary problems on the same sequences: labels and weights of shape (P, n).

    Attributes
    ----------
    units : array of shape (P, d), optional
        Standard deviations of standardised tokens, where problems have others than 1.
    """

    sequences: Sequences
    labels: Array
    weights: Array
    scaler: Scaler
    units: Array | None = None

    @classmethod
    def of(cls, labelled: LabelledSequences, scaler: Scaler) -> "Problems":
        """Return each class against the rest, all with the samples' weights."""
        weights = np.broadcast_to(labelled.weights, labelled.labels.shape)
        return cls(labelled.sequences, labelled.labels, weights, scaler)

    def repeated(self, times: int) -> "Problems":
        """Return each problem `times` times in a row."""
        if times == 1:
            return self
        return replace(
            self,
            labels=np.repeat(self.labels, times, axis=0),
            weights=np.repeat(self.weights, times, axis=0),
            units=None if self.units is None else np.repeat(self.units, times, axis=0),
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


def head_directions(
    labelled: LabelledSequences,
    scaler: Scaler,
    settings: HeadSettings,
    firsts: Array | None = None,
    offsets: Array | None = None,
) -> Array:
    """Return each problem's two-step direction, (P, d), on what decisions `offsets` leave to explain."""
    problems = Problems.of(labelled, scaler)
    return two_step_directions(
        problems.sequences,
        problems.labels,
        problems.weights,
        scaler,
        settings.loss,
        firsts=firsts,
        offsets=offsets,
    )


def feature_units(features: Array, weights: Array, constant: Array | None = None) -> Array:
    """Return the standard deviation of each feature, (n, D) → (D,); 1 where it does not vary.

    Infinite where tokens do not, in the coordinates `constant` (d,) of each summary: of them features
    hold what rounding left, which a small unit would make as large as the rest.
    """
    location = weights @ features
    centred = features - location
    # Squares of very small or large numbers would leave the range of numbers.
    largest = np.abs(centred).max(axis=0)
    varies = largest > 1e-12 * np.abs(location)
    least = smallest_deviation(features.dtype)
    largest = np.where(varies & (largest > 0), np.maximum(largest, least), 1.0)
    variance = weights @ (centred / largest) ** 2
    units = np.maximum(largest * np.sqrt(variance), least)
    units = np.where(varies & (variance > 0), units, 1.0)
    if constant is not None:
        units[np.tile(constant, len(units) // len(constant))] = np.inf
    return np.asarray(units)


def head_features(
    sequences: Sequences,
    queries: Array,
    scaler: Scaler,
    pooling: Pooling,
    *,
    extremes: bool = False,
) -> tuple[Array, Array]:
    """Return f_h(X) of all heads side by side, standardised tokens, (n, H d), and ‖p_h‖², (H, n).

    With `extremes`, maxima and minima of the coordinates stand behind them: (n, H d + 2 d).
    """
    features, squares = [], []
    for block in sequences.blocks():
        attention = _attention(block, queries, scaler, pooling)
        features.append(_attended(block, attention, scaler, extremes).astype(float))
        squares.append(segment_sums(attention**2, block))
    return np.concatenate(features), np.concatenate(squares, axis=1)


def block_features(
    block: Block, queries: Array, scaler: Scaler, pooling: Pooling, *, extremes: bool = False
) -> Array:
    """Return the features of `head_features` for the samples of a block: (k, H d) or (k, H d + 2 d)."""
    return _attended(block, _attention(block, queries, scaler, pooling), scaler, extremes)


def _attention(block: Block, queries: Array, scaler: Scaler, pooling: Pooling) -> Array:
    return pooling.weights(scaler.scores(queries, block.tokens), block)


def _attended(block: Block, attention: Array, scaler: Scaler, extremes: bool) -> Array:
    parts = []
    for weights in attention:
        sums = segment_sums(weights[:, None] * block.tokens, block, axis=0)
        totals = segment_sums(weights, block)[:, None]
        parts.append(scaler.standardised(sums - totals * scaler.location))
    if extremes:
        location, scale = np.tile(scaler.location, 2), np.tile(scaler.scale, 2)
        parts.append((coordinate_extremes(block) - location) / scale)
    return np.asarray(np.concatenate(parts, axis=1), dtype=block.tokens.dtype)


def sharpness_of(heads: Heads, labelled: LabelledSequences, scaler: Scaler) -> float:
    """Return the spread of the fitted scores within a sequence, of the sharpest head."""
    return float(spreads(labelled.sequences, scaler, heads.queries, labelled.weights).max())
