"""The test error of a trained readout on a law of features, with its bar."""

from dataclasses import dataclass

import numpy as np

from sparsetoken.arrays import Array
from sparsetoken.numerics.quadrature import normal_density
from sparsetoken.theory.feature_law import FeatureLaw, score_law
from sparsetoken.theory.replicates import replicate_error
from sparsetoken.theory.trained_readout import LimitReadout, misclassified

__all__ = ["ENOUGH_POINTS", "Misclassification", "misclassification"]

# If fewer points than these carry an error, others may be missing.
ENOUGH_POINTS = 30


@dataclass(frozen=True)
class Misclassification:
    """A test error, its bar, the part of it that is not the law's, and whether enough points err."""

    value: float
    bar: float
    numerical: float
    seen: bool


def misclassification(readout: LimitReadout, tested: FeatureLaw) -> Misclassification:
    """Return P(y (⟨f, w⟩ + b) < 0) for features f with the law that is `tested`.

    Its bar has the spread over replicates of both laws, the numerical error of the readout to first
    order, and how far other readouts that are as good would be off.
    """
    shares = tested.weight * misclassified(tested, readout.weights)
    value = float(shares.sum())
    exact = tested.replicates == 1
    replicates = readout.weights if exact else readout.replicate_weights
    test_errors = tested.by_replicate(misclassified(tested, replicates))
    numerical = float(_sensitivity(tested, readout.weights) @ readout.weights_error)
    bar = replicate_error(test_errors, float(shares.max())) + numerical
    if readout.alternatives is not None:
        others = [tested.weight @ misclassified(tested, row) for row in readout.alternatives]
        bar += float(np.abs(np.array(others) - value).max())
    seen = exact or value**2 >= ENOUGH_POINTS * float(shares @ shares)
    return Misclassification(value, bar if seen else max(bar, value), numerical, seen)


def _sensitivity(law: FeatureLaw, weights: Array) -> Array:
    """Return |∂ test error/∂ (μ_1 … μ_k, b, ν)|."""
    scores = score_law(law, weights)
    ratio = -scores.label * scores.mean / scores.spread
    density = scores.weight * normal_density(ratio)
    direct = -scores.label * density / scores.spread
    noisy = weights * np.array([*law.noisy, False, True])
    # What a larger weight adds to the spread: with the noise of all directions, and with further.
    widening = density * ratio / scores.spread**2
    wider = float(widening @ law.scale**2) * noisy
    if law.further is not None:
        wider[0] += float(widening @ law.further**2) * weights[0]
    means = np.append(direct @ law.coordinates, [direct.sum(), 0.0])
    return np.asarray(np.abs(means - wider))
