"""One binary problem: samples, labels, weights, and its parts."""

from dataclasses import dataclass

import numpy as np

from sparsetoken.arrays import Array
from sparsetoken.estimators.sequences import Sequences
from sparsetoken.learning.readout import Readout, fit_readout
from sparsetoken.losses import Loss
from sparsetoken.validation import ParameterError

__all__ = ["LabelledSequences", "balanced_weights"]


@dataclass(frozen=True)
class LabelledSequences:
    """Samples with labels -1 and +1 and weights of sum 1.

    Attributes
    ----------
    first_weights : array of shape (d,), optional
        Stage 1's readout, if it is known already.
    """

    sequences: Sequences
    labels: Array
    weights: Array
    first_weights: Array | None = None

    def take(self, rows: Array) -> "LabelledSequences":
        """Return some of the samples, their weights normalised again."""
        weights = self.weights[rows]
        return LabelledSequences(
            self.sequences.take(rows), self.labels[rows], weights / weights.sum()
        )

    @property
    def smaller_class(self) -> int:
        """Number of samples of the rarer class."""
        return int(min(np.sum(self.labels > 0), np.sum(self.labels < 0)))

    def split(
        self, share: float, rng: np.random.Generator
    ) -> tuple["LabelledSequences", "LabelledSequences"]:
        """Return a random part with `share` of either class, and the rest."""
        first, second = [], []
        for label in (-1, 1):
            rows = rng.permutation(np.flatnonzero(self.labels == label))
            count = round(share * len(rows))
            if not 0 < count < len(rows):
                raise ParameterError(
                    "split",
                    share,
                    "a share that leaves samples of both classes on either side; of "
                    f"{len(rows)} samples of a class it takes {count}",
                )
            first.append(rows[:count])
            second.append(rows[count:])
        return self.take(np.sort(np.concatenate(first))), self.take(np.sort(np.concatenate(second)))

    def thinned(self, every: int) -> "LabelledSequences":
        """Return every so many-th sample of either class."""
        if every <= 1:
            return self
        rows = [np.flatnonzero(self.labels == label)[::every] for label in (-1, 1)]
        return self.take(np.sort(np.concatenate(rows)))

    def fit_readout(self, features: Array, loss: Loss, ridge: float) -> Readout:
        """Return stage 4's solution for one row of features a sample."""
        features = np.asarray(features, dtype=float)
        return fit_readout(
            features, self.labels, loss, ridge, sample_weight=self.weights, tolerance=1e-11
        )

    def balanced(self) -> Array:
        """Return the weights rescaled so that either class has half of the total."""
        return balanced_weights(self.labels, self.weights)


def balanced_weights(labels: Array, weights: Array) -> Array:
    """Return the weights rescaled so that either class has half of the total."""
    positive = labels > 0
    share = np.where(positive, weights[positive].sum(), weights[~positive].sum())
    return np.asarray(weights / (2 * share))
