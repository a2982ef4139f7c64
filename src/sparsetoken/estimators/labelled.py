"""Labelled samples: one problem of one class against the rest a row of labels, and their parts."""

import hashlib
from dataclasses import dataclass, replace

import numpy as np

from sparsetoken.arrays import Array
from sparsetoken.estimators.sequences import Sequences
from sparsetoken.validation import ParameterError

__all__ = ["Folds", "LabelledSequences"]


@dataclass(frozen=True)
class Folds:
    """Where each sample is held out.

    Attributes
    ----------
    of_sample : array of shape (n,), int
    units : array of shape (n,), int
        Samples of one unit, copies or of one group, are held out together.
    count : int
    """

    of_sample: Array
    units: Array
    count: int


@dataclass(frozen=True)
class LabelledSequences:
    """Samples with their classes and weights.

    Attributes
    ----------
    sequences : Sequences
    codes : array of shape (n,), int
        The class of each sample.
    labels : array of shape (C, n), values -1 and +1
        One row a binary problem: one for two classes, else one for each class.
    weights : array of shape (n,), of sum 1
    groups : array of shape (n,), optional
        Samples of one group are never on both sides of a validation.
    unit : float
        How large a loss is large: tolerances are measured in it.
    """

    sequences: Sequences
    codes: Array
    labels: Array
    weights: Array
    groups: Array | None = None
    unit: float = 1.0

    def __len__(self) -> int:
        return len(self.codes)

    def take(self, rows: Array) -> "LabelledSequences":
        """Return some of the samples, their weights normalised again."""
        weights = self.weights[rows]
        return replace(
            self,
            sequences=self.sequences.take(rows),
            codes=self.codes[rows],
            labels=self.labels[:, rows],
            weights=weights / weights.sum(),
            groups=None if self.groups is None else self.groups[rows],
        )

    def split(
        self, share: float, rng: np.random.Generator
    ) -> tuple["LabelledSequences", "LabelledSequences"]:
        """Return a random part with `share` of every class, and the rest."""
        first, second = [], []
        for code in np.unique(self.codes):
            rows = rng.permutation(np.flatnonzero(self.codes == code))
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

    def thinned(self, most: int, least_of_class: int = 0) -> "LabelledSequences":
        """Return about `most` samples, the same share of every class, but no fewer of any class."""
        if len(self) <= most:
            return self
        share = most / len(self)
        rows = []
        for code in np.unique(self.codes):
            of_class = np.flatnonzero(self.codes == code)
            wanted = min(len(of_class), max(round(share * len(of_class)), least_of_class))
            rows.append(of_class[np.linspace(0, len(of_class) - 1, wanted).astype(int)])
        return self.take(np.sort(np.concatenate(rows)))

    def folds(self, most: int) -> Folds | None:
        """Return at most so many folds, or None if a class is too small for three folds.

        Folds have the same share of every class. Copies of a sample, and samples of one group, are
        in one fold, and nothing but the samples themselves decides which: a sample of weight 2 is
        held out as two samples, their order plays no part, and a second fit does the same.
        """
        keys = self.content() if self.groups is None else self.groups
        _, firsts, units = np.unique(keys, return_index=True, return_inverse=True)
        codes = self.codes[firsts]
        sizes = np.bincount(codes)
        count = min(most, int(sizes[sizes > 0].min()))
        if count < 3:
            return None
        fold_of_unit = np.empty(len(firsts), dtype=int)
        dealt = 0
        for code in np.unique(codes):
            of_class = np.flatnonzero(codes == code)  # ordered by digests: as good as drawn
            fold_of_unit[of_class] = (dealt + np.arange(len(of_class))) % count
            dealt += len(of_class)
        return Folds(fold_of_unit[units], units, count)

    def content(self) -> Array:
        """Return a number for each sample that depends on its tokens and its class alone."""
        keys = np.empty(len(self), dtype=np.uint64)
        for block in self.sequences.blocks():
            ends = block.starts + block.lengths
            for row, start, end in zip(
                range(block.samples.start, block.samples.stop), block.starts, ends, strict=True
            ):
                tokens = np.ascontiguousarray(block.tokens[start:end])
                seed = int(self.codes[row]).to_bytes(8, "little")
                digest = hashlib.blake2b(tokens.data, digest_size=8, salt=seed).digest()
                keys[row] = int.from_bytes(digest, "little")
        return keys
