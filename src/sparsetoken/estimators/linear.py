"""Classifiers without attention: a readout on pooled or on all tokens."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from sparsetoken.arrays import Array
from sparsetoken.estimators.base import Check, Model, SequenceClassifier
from sparsetoken.estimators.choice import choose_ridge
from sparsetoken.estimators.heads import feature_units
from sparsetoken.estimators.labelled import LabelledSequences
from sparsetoken.estimators.pooling import segment_sums
from sparsetoken.estimators.scaling import constant_coordinates
from sparsetoken.estimators.sequences import Block, Sequences
from sparsetoken.learning.readout import fit_readout
from sparsetoken.numerics.solution import Solution
from sparsetoken.validation import ParameterError

__all__ = ["PooledClassifier", "VectorisedClassifier"]


@dataclass(frozen=True)
class _LinearModel:
    """Readouts on standardised features: w (problems, D) and b (problems,)."""

    kind: str
    weights: Array
    biases: Array
    solutions: tuple[Solution, ...]
    ridge: float

    def decide(self, block: Block) -> Array:
        features = _linear_features(block, self.kind)
        weights = self.weights.astype(features.dtype)
        return np.asarray(weights @ features.T + self.biases[:, None].astype(features.dtype))


class _Linear(SequenceClassifier):
    """A readout on features without parameters."""

    @abstractmethod
    def _kind(self) -> str:
        """Return which features are read: "vectorised", or summaries joined by "|"."""

    def _fit_model(
        self,
        labelled: LabelledSequences,
        rng: np.random.Generator,  # noqa: ARG002
    ) -> Model:
        features = _all_features(labelled.sequences, self._kind())
        weights = labelled.weights
        location = weights @ features
        scale = feature_units(features, weights, constant_coordinates(labelled.sequences))
        standardised = (features - location) / scale
        ridge = choose_ridge(labelled, standardised, self.ridge, self._loss_object)
        readouts = [
            fit_readout(
                standardised,
                row,
                loss=self._loss_object,
                ridge=ridge,
                sample_weight=weights,
                tolerance=1e-10,
            )
            for row in labelled.labels
        ]
        # Back to the coordinates of the features, so that decisions need no scaling.
        vectors = np.array([readout.weights for readout in readouts]) / scale
        biases = np.array([readout.bias for readout in readouts]) - vectors @ location
        solutions = tuple(readout.solution for readout in readouts)
        return _LinearModel(self._kind(), vectors, biases, solutions, ridge)

    @property
    def coef_(self) -> Array:
        """Readouts in the features' own coordinates, of shape (problems, features)."""
        check_is_fitted(self)
        return np.asarray(self.model_.weights)

    @property
    def ridge_(self) -> float:
        """The ridge, chosen or given."""
        check_is_fitted(self)
        return float(self.model_.ridge)

    @property
    def intercept_(self) -> Array:
        """Biases, of shape (problems,)."""
        check_is_fitted(self)
        return np.asarray(self.model_.biases)


def _summaries(name: str, value: Any) -> str:
    parts = value.split("|") if isinstance(value, str) else []
    if not parts or len(set(parts)) < len(parts) or not set(parts) <= {"mean", "max", "min"}:
        raise ParameterError(name, value, "'mean', 'max', 'min', or several joined by '|'")
    return str(value)


class PooledClassifier(_Linear):
    """A linear readout on the mean, or another summary, of the tokens.

    Parameters
    ----------
    pooling : "mean", "max", "min" or several joined by "|", default "mean"
        Taken coordinate by coordinate; "mean|max|min" puts all three side by side.
    loss : str, default "logistic"
        One of `sparsetoken.loss_names()`.
    ridge : float or "auto", default "auto"
        Penalty (ridge/2)‖w‖² beside the mean loss; features are standardised. "auto" chooses among
        1e-4, 1e-3, ..., 1 on held-out samples.
    class_weight : None, "balanced" or dict, default None
    length : int, optional
        Tokens in a row of a 2-D X; None for an X of another form.

    Attributes
    ----------
    classes_ : array of shape (classes,)
    coef_ : array of shape (problems, d)
    intercept_ : array of shape (problems,)
    ridge_ : float

    Examples
    --------
    >>> from sparsetoken import PooledClassifier, digit_bags
    >>> train, test = digit_bags(6, train=120, test=100)
    >>> model = PooledClassifier(pooling="mean|max", ridge=0.01).fit(train.X, train.y)
    >>> model.coef_.shape, model.score(test.X, test.y) > 0.6
    ((1, 128), True)
    """

    _checks: ClassVar[dict[str, Check]] = {
        **SequenceClassifier._checks,
        "pooling": _summaries,
    }

    def __init__(
        self,
        *,
        pooling: str = "mean",
        loss: str = "logistic",
        ridge: float | str = "auto",
        class_weight: Any = None,
        length: int | None = None,
    ) -> None:
        self.pooling = pooling
        self.ridge = ridge
        self.loss = loss
        self.class_weight = class_weight
        self.length = length

    def _kind(self) -> str:
        return str(self.pooling)


class VectorisedClassifier(_Linear):
    """A linear readout on all tokens side by side; all sequences must have one length.

    Parameters
    ----------
    loss : str, default "logistic"
        One of `sparsetoken.loss_names()`.
    ridge : float or "auto", default "auto"
        Penalty (ridge/2)‖w‖² beside the mean loss; features are standardised. "auto" chooses among
        1e-4, 1e-3, ..., 1 on held-out samples.
    class_weight : None, "balanced" or dict, default None
    length : int, optional
        Tokens in a row of a 2-D X; None for an X of another form.

    Attributes
    ----------
    classes_ : array of shape (classes,)
    coef_ : array of shape (problems, L d)
    intercept_ : array of shape (problems,)
    ridge_ : float

    Examples
    --------
    >>> from sparsetoken import VectorisedClassifier, digit_bags
    >>> train, test = digit_bags(6, train=120, test=100)
    >>> VectorisedClassifier(ridge=1.0).fit(train.X, train.y).coef_.shape
    (1, 384)
    """

    def __init__(
        self,
        *,
        loss: str = "logistic",
        ridge: float | str = "auto",
        class_weight: Any = None,
        length: int | None = None,
    ) -> None:
        self.ridge = ridge
        self.loss = loss
        self.class_weight = class_weight
        self.length = length

    def _kind(self) -> str:
        return "vectorised"

    def _fit_model(self, labelled: LabelledSequences, rng: np.random.Generator) -> Model:
        _require_length(labelled.sequences, int(labelled.sequences.lengths[0]))
        return super()._fit_model(labelled, rng)

    def _decisions(self, sequences: Sequences) -> Array:
        _require_length(sequences, self.coef_.shape[1] // sequences.dimension)
        return super()._decisions(sequences)


def _require_length(sequences: Sequences, length: int) -> None:
    other = np.flatnonzero(sequences.lengths != length)
    if len(other):
        raise ParameterError(
            f"length of sample {sequences.source_row(other[0])}",
            int(sequences.lengths[other[0]]),
            f"{length}, the same for all samples of a vectorised classifier",
        )


def _linear_features(block: Block, kind: str) -> Array:
    """Return the block's features without parameters, of shape (k, D)."""
    if kind == "vectorised":
        return block.tokens.reshape(len(block.lengths), -1)
    return np.concatenate([_summary(block, name) for name in kind.split("|")], axis=1)


def _summary(block: Block, name: str) -> Array:
    if name == "mean":
        lengths = block.lengths[:, None].astype(block.tokens.dtype)
        return np.asarray(segment_sums(block.tokens, block, axis=0) / lengths)
    extreme = np.maximum if name == "max" else np.minimum
    return np.asarray(extreme.reduceat(block.tokens, block.starts, axis=0))


def _all_features(sequences: Sequences, kind: str) -> Array:
    parts = []
    for block in sequences.blocks():
        features = _linear_features(block, kind)
        if not np.all(np.isfinite(features)):
            sequences.require_finite(block)
        parts.append(np.asarray(features, dtype=float))
    return np.concatenate(parts)
