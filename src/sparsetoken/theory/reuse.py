"""The law of training features if the query was learnt from the same data (docs/theory.md, 5.6).

A query that has seen a sample's noise shifts the sample's tokens along itself. Given the mean score
of a sequence under the first readout, all of that is linear in the tokens' noise, so that a point of
the law takes the same few numbers as without reuse, and four more, whatever the length.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from sparsetoken.arrays import Array
from sparsetoken.losses import get_loss
from sparsetoken.numerics.memory import kept_on_path
from sparsetoken.numerics.sobol import sobol_points
from sparsetoken.task import Task, Training
from sparsetoken.theory.alignment import QueryStep
from sparsetoken.theory.feature_law import FeatureLaw
from sparsetoken.theory.mixture import Stratum, label_strata
from sparsetoken.theory.replicates import REPLICATES
from sparsetoken.theory.token_law import (
    SUMS,
    TokenGroup,
    group_dimensions,
    rest_sums,
    token_groups,
)

__all__ = ["reused_law"]

# Sums over the tokens that are not drawn one by one: the softmax's, and that of the tokens alone.
_TERMS = (*SUMS, (0, 1))

# Points of two accuracies, for sequences of two lengths.
_KEPT_BYTES = 2**26

# Numbers of a point beside its tokens: the means along the first readout and along the scores, and
# the noise in the two directions across the scores.
_BESIDE = 4


def reused_law(task: Task, training: Training, log2_points: int, seed: int = 0) -> FeatureLaw:
    """Return the law of the features that train the readout, by 2^log2_points points as ever.

    Coordinates are along the query, across it towards the signal, and along a third direction in
    which fresh data have noise only. None has noise of its own.
    """
    frame = _Frame(task, training)
    rates = {1: task.positive_rate, -1: 1 - task.positive_rate}
    strata = [(label, part) for label in rates for part in label_strata(task, label, log2_points)]
    parts = [
        _features(frame, label, part, (seed, index, label + 1, *part.stream))
        for index in range(REPLICATES)
        for label, part in strata
    ]
    coordinates, scale, removed = (np.concatenate(column) for column in zip(*parts, strict=True))
    sizes = [part.points for _, part in strata]
    labels = [float(label) for label, _ in strata]
    weights = [rates[label] * part.weight / (part.points * REPLICATES) for label, part in strata]
    return FeatureLaw(
        coordinates=coordinates,
        scale=scale,
        label=np.tile(np.repeat(labels, sizes), REPLICATES),
        weight=np.tile(np.repeat(weights, sizes), REPLICATES),
        noisy=(False, False, False),
        removed=removed,
        spurious=1,
        replicates=REPLICATES,
    )


class _Frame:
    """Scalars of stages 1 to 3, in the frame (ξ, ŵ, v̂) of the signal and the two noise directions.

    Attributes
    ----------
    readout : array (2,)
        The first readout along ξ and ŵ.
    query : array (3,)
    axes : array (3, 3)
        Rows: along the query, across it towards the signal, and the third direction.
    memory : float
        η_q β/(L α): how much of a token's own part in the query comes back in its score, per k_l.
    spread : float
        √K₂, the size of a sample's part in the query.
    """

    def __init__(self, task: Task, training: Training) -> None:
        alpha = training.alpha0
        step = QueryStep(task, training, 1 / alpha)
        rate = training.query_step * training.inverse_temperature / task.length
        slope = float(get_loss(training.loss).slope(np.zeros(1))[0])
        across = step.gain / np.sqrt(alpha * task.length)
        self.task, self.training, self.alpha = task, training, alpha
        self.bias = -training.bias_step * slope * (2 * task.positive_rate - 1)
        self.own = step.gain / (alpha * task.length)
        self.readout = np.array([step.readout_signal, across])
        self.spread = float(np.sqrt(step.noise_square))
        self.memory = rate / alpha
        self.query = np.array(
            [
                -rate * (step.pull + step.push * step.readout_signal),
                -rate * step.push * across,
                rate * self.spread / np.sqrt(alpha),
            ]
        )
        self.axes = _axes(self.query)


def _axes(query: Array) -> Array:
    """Return orthonormal rows: the query's direction, that of the signal across it, and a third."""
    signal = np.array([1.0, 0.0, 0.0])
    norm = float(np.linalg.norm(query))
    along = query / norm if norm > 0 else np.array([0.0, 0.0, 1.0])
    across = signal - along[0] * along
    if np.linalg.norm(across) < 1e-8:  # any direction will do: the signal has no part in it
        across = np.array([0.0, 1.0, 0.0]) - along[1] * along
    across /= np.linalg.norm(across)
    return np.stack([along, across, np.cross(along, across)])


def _features(
    frame: _Frame, label: int, part: Stratum, seed: tuple[int, ...]
) -> tuple[Array, Array, Array]:
    """Return coordinates (n, 3), scales (n,) and removed parts (n, 2) of samples of one label."""
    task, beta = frame.task, frame.training.inverse_temperature
    length = task.length
    share = part.counts[0] / length
    signal, norm = frame.readout[0], float(np.linalg.norm(frame.readout))
    beside, tokens = _draw(part, seed)
    mean = beside[:, 0] / np.sqrt(length)

    # Stage 2: the slope of the loss, and with it how a token's score depends on its noise along the
    # first readout (T), across it in the plane of the signal (N), and along v̂.
    centre = task.strength * share * signal + norm * mean + label * frame.own
    slopes = label * get_loss(frame.training.loss).slope(label * (centre + frame.bias))
    turn = np.array([[signal, frame.readout[1]], [-frame.readout[1], signal]]) / norm
    on_readout, on_normal = turn @ frame.query[:2]
    scores = _Scores.make(
        beta * (on_readout - frame.memory * norm * slopes), beta * on_normal, beta * frame.query[2]
    )
    shift = beta * task.strength * (frame.query[0] - frame.memory * signal * slopes)
    marked, along, scale, free = _softmax_sums(tokens, scores.sharpness, shift)

    # The mean of the noise along the scores, given that along the first readout.
    own = beside[:, 1] / np.sqrt(length)
    along = along - free / length + scores.cosine * mean + scores.sine * own
    spread = np.sqrt(np.maximum(scale**2 - 1 / length, 0.0))
    inside = scores.sine * mean - scores.cosine * own + spread * beside[:, 2]
    noise = scores.back(along, inside, scale * beside[:, 3])

    own_part = task.strength * signal * (marked - share) + norm * (noise[:, 0] - mean)
    own_part = slopes * own_part / frame.spread if frame.spread > 0 else np.zeros_like(own_part)
    coordinates = np.column_stack([noise[:, :2] @ turn, noise[:, 2]])
    coordinates[:, 0] += task.strength * marked
    coordinates[:, 1] += label / np.sqrt(frame.alpha * length)
    coordinates[:, 2] -= own_part / np.sqrt(frame.alpha)
    removed = np.column_stack([np.full(len(own_part), length**-0.5), label * own_part])
    return coordinates @ frame.axes.T, scale, removed


@dataclass(frozen=True)
class _Scores:
    """How the scores of a sequence's tokens depend on their noise along (T, N, v̂).

    Attributes
    ----------
    sharpness : array (n,)
        κ: the scores are κ times a standard normal, plus what the signal adds.
    cosine, sine : arrays (n,)
        Of the angle between that noise and T.
    normal : array (2,)
        Its direction across T, in the plane of N and v̂.
    """

    sharpness: Array
    cosine: Array
    sine: Array
    normal: Array

    @classmethod
    def make(cls, readout: Array, normal: float, other: float) -> "_Scores":
        across = float(np.hypot(normal, other))
        sharpness = np.hypot(readout, across)
        safe = np.where(sharpness > 0, sharpness, 1.0)
        cosine = readout / safe
        sine = np.where(sharpness > 0, across / safe, 1.0)
        unit = np.array([normal, other]) / across if across > 0 else np.array([0.0, 1.0])
        return cls(sharpness, cosine, sine, unit)

    def back(self, along: Array, inside: Array, outside: Array) -> Array:
        """Return noise along (T, N, v̂), (n, 3), from that along the scores and two across.

        `inside` lies in the plane of the scores and T, `outside` across both.
        """
        turned = self.sine * along - self.cosine * inside
        return np.column_stack(
            [
                self.cosine * along + self.sine * inside,
                turned * self.normal[0] - outside * self.normal[1],
                turned * self.normal[1] + outside * self.normal[0],
            ]
        )


@kept_on_path(_KEPT_BYTES)
def _draw(part: Stratum, seed: tuple[int, ...]) -> tuple[Array, tuple[TokenGroup, ...]]:
    """Draw the numbers beside the tokens (n, 4), all standard normal, and the tokens by group.

    The same for all settings of one length, and so kept for the next ones of a path.
    """
    dimensions = _BESIDE + group_dimensions(part.counts, terms=_TERMS)
    uniforms = sobol_points(dimensions, part.log2_points, np.random.default_rng((3, *seed)))
    beside, rest = np.split(uniforms, [_BESIDE], axis=1)
    return ndtri(beside), token_groups(np.log(rest), part.counts, terms=_TERMS)


def _softmax_sums(
    groups: tuple[TokenGroup, ...], sharpness: Array, shift: Array
) -> tuple[Array, Array, Array, Array]:
    """Return A, ⟨u, p⟩ and ‖p‖ for p = softmax(κu + shift on the first group), and Σ u."""
    shifts = (shift, np.zeros_like(shift))
    pairs = list(zip(groups, shifts, strict=True))
    peak = np.max(
        [sharpness * g.values[:, 0] + extra for g, extra in pairs if g.values.shape[1]], axis=0
    )
    masses, first, square, free = [], 0.0, 0.0, 0.0
    for group, extra in pairs:
        weights = np.exp(sharpness[:, None] * group.values + (extra - peak)[:, None])
        sums = [
            weights.sum(axis=1),
            np.vecdot(weights, group.values),
            np.vecdot(weights, weights),
            group.values.sum(axis=1),
        ]
        if group.rest:
            level = np.exp(sharpness * group.values[:, -1] + extra - peak)
            rest = rest_sums(group, sharpness, _TERMS)
            sums = [
                part + level**power * more
                for part, more, (power, _) in zip(sums, rest, _TERMS, strict=True)
            ]
        masses.append(sums[0])
        first, square, free = first + sums[1], square + sums[2], free + sums[3]
    total = masses[0] + masses[1]
    return masses[0] / total, first / total, np.sqrt(square) / total, np.asarray(free)
