"""Classifiers with attention: softmax, or element by element."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from sparsetoken.arrays import Array
from sparsetoken.estimators.base import Check, Model, SequenceClassifier, automatic
from sparsetoken.estimators.choice import Candidate, Wishes, choose
from sparsetoken.estimators.heads import FittedHeads, HeadSettings, Plan, fit_heads, sharpness_of
from sparsetoken.estimators.labelled import LabelledSequences
from sparsetoken.estimators.pooling import Elementwise, Pooling, Softmax, segment_sums
from sparsetoken.estimators.query import balanced_weights, first_coefficients
from sparsetoken.estimators.scaling import Scaler, first_pass
from sparsetoken.estimators.sequences import Block, Sequences
from sparsetoken.learning.features import NONLINEARITIES
from sparsetoken.validation import ParameterError, choice, integer, real

__all__ = [
    "AttentionClassifier",
    "ElementwiseAttentionClassifier",
]


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise ParameterError(name, value, "True or False")
    return bool(value)


@dataclass(frozen=True)
class _AttentionModel:
    scaler: Scaler
    pooling: Pooling
    plan: Plan
    candidates: tuple[Candidate, ...]
    problems: tuple[FittedHeads, ...]
    sharpness: Array

    @property
    def iterations(self) -> int:
        return max(problem.iterations for problem in self.problems)

    def decide(self, block: Block) -> Array:
        return np.array(
            [problem.heads.decide(block, self.scaler, self.pooling) for problem in self.problems]
        )

    def attend(self, block: Block, problem: int) -> Array:
        """Return one weight a token, (N,), each sequence's of sum 1: the mean over heads."""
        heads = self.problems[problem].heads
        scores = self.scaler.scores(heads.queries, block.tokens)
        weights = np.abs(self.pooling.weights(scores, block))  # signed for tanh and linear
        totals = segment_sums(weights, block)
        if np.any(totals == 0):  # tanh and linear of nothing but zero scores: no preference
            weights[:, np.repeat(np.any(totals == 0, axis=0), block.lengths)] = 1
            totals = segment_sums(weights, block)
        return np.asarray((weights / np.repeat(totals, block.lengths, axis=1)).mean(axis=0))


class _Attending(SequenceClassifier):
    """What the two attention classifiers share."""

    _checks: ClassVar[dict[str, Check]] = {
        **SequenceClassifier._checks,
        "heads": lambda name, value: integer(name, value, low=1),
        "refine": automatic(_flag),
        "tied": automatic(_flag),
        "sharpness": automatic(lambda name, value: real(name, value, low=0)),
        "split": lambda name, value: (
            None if value is None else real(name, value, low=0, high=1, inclusive=False)
        ),
        "max_iter": lambda name, value: integer(name, value, low=1),
        "tol": lambda name, value: real(name, value, low=0),
    }

    def _pooling(self) -> Pooling:
        return Softmax()

    def _wishes(self, longest: int) -> Wishes:
        """Return what the parameters leave open."""
        smooth = self._loss_object.smooth
        if self.refine is True and not smooth:
            raise ParameterError("loss", self.loss, "a smooth loss, or refine=False")
        families: tuple[str, ...] = ()
        if longest == 1:  # all weights are one: only the readout is left to fit
            return Wishes(("pooled",), 0.0, self.ridge)
        if self.refine in (False, "auto"):
            if self.sharpness == "auto":
                families = ("pooled", "two-step") if self._pooling().holds_mean else ("two-step",)
            else:
                families = ("pooled",) if self.sharpness == 0 else ("two-step",)
        if self.refine in (True, "auto") and smooth:
            refined = {True: ("tied",), False: ("free",), "auto": ("tied", "free")}
            families += refined[self.tied]
        return Wishes(families, self.sharpness, self.ridge)

    def _fit_model(self, labelled: LabelledSequences, rng: np.random.Generator) -> Model:
        settings = HeadSettings(
            pooling=self._pooling(),
            loss=self._loss_object,
            heads=self.heads,
            max_iter=self.max_iter,
            tol=self.tol,
        )
        wishes = self._wishes(int(labelled.sequences.lengths.max()))
        balanced = balanced_weights(labelled.labels, labelled.weights)
        coefficients = first_coefficients(labelled.labels, balanced, settings.loss)
        firsts: Array | None
        scaler, firsts = first_pass(labelled.sequences, labelled.weights, coefficients)
        if self.split is None or wishes.families == ("pooled",):
            for_query, for_readout, own_query = labelled, labelled, None
        else:
            for_query, for_readout = labelled.split(self.split, rng)
            firsts, own_query = None, for_query
        plan, candidates = choose(for_readout, own_query, scaler, wishes, settings)
        fitted = fit_heads(for_readout, for_query, scaler, plan, settings, firsts)
        sharpness = [sharpness_of(one.heads, labelled, scaler) for one in fitted]
        return _AttentionModel(
            scaler,
            settings.pooling,
            plan,
            tuple(candidates),
            tuple(fitted),
            np.array(sharpness),
        )

    def attention(self, X: Any, mask: Any = None, target: Any = None) -> Any:
        """Return the weight of each token, of sum 1 in each sequence, averaged over heads.

        Parameters
        ----------
        X, mask : as in `fit`
        target : class label, optional
            With three or more classes, the class against the rest whose attention is wanted; that
            of each sequence's predicted class by default.

        Returns
        -------
        array of shape (n, L), 0 at padding, or a list of arrays of shape (L_i,) for a list
        """
        sequences = self._fitted_sequences(X, mask)
        return _in_shape(sequences, self._token_weights(sequences, target))

    def locate(self, X: Any, k: int = 1, mask: Any = None, target: Any = None) -> Array:
        """Return the positions of the k most attended tokens, most attended first: (n, k)."""
        k = integer("k", k, low=1)
        sequences = self._fitted_sequences(X, mask)
        short = np.flatnonzero(sequences.lengths < k)
        if len(short):
            raise ParameterError(
                "k", k, f"at most the {sequences.lengths[short[0]]} tokens of sample {short[0]}"
            )
        weights = _in_shape(sequences, self._token_weights(sequences, target))
        if sequences.token_mask is not None:
            weights[~sequences.token_mask] = -1.0
        return np.array([np.argsort(-row, kind="stable")[:k] for row in weights])

    def _token_weights(self, sequences: Sequences, target: Any) -> list[Array]:
        """Return one weight a token, block by block."""
        if len(self.model_.problems) == 1:
            problem = np.zeros(len(sequences), dtype=int)
        elif target is None:
            problem = self._predicted(sequences)
        else:
            known = np.flatnonzero(self.classes_ == target)
            if len(known) != 1:
                raise ParameterError("target", target, f"one of {self.classes_.tolist()}")
            problem = np.full(len(sequences), known[0])
        parts = []
        for block in sequences.blocks():
            wanted = problem[block.samples]
            weights = np.zeros(len(block.tokens), dtype=block.tokens.dtype)
            for index in np.unique(wanted):
                here = np.repeat(wanted == index, block.lengths)
                weights[here] = self.model_.attend(block, index)[here]
            if not np.all(np.isfinite(weights)):
                sequences.require_finite(block)
            parts.append(weights)
        return parts

    @property
    def queries_(self) -> Array:
        """Queries in standardised coordinates, of shape (problems, heads, d)."""
        check_is_fitted(self)
        return np.array([problem.heads.queries for problem in self.model_.problems])

    @property
    def coef_(self) -> Array:
        """Readouts in standardised coordinates, of shape (problems, heads, d)."""
        check_is_fitted(self)
        return np.array([problem.heads.weights for problem in self.model_.problems])

    @property
    def intercept_(self) -> Array:
        """Biases, of shape (problems,)."""
        check_is_fitted(self)
        return np.array([problem.heads.bias for problem in self.model_.problems])

    @property
    def sharpness_(self) -> Array:
        """Spread of the fitted scores within a sequence, of the sharpest head: (problems,)."""
        check_is_fitted(self)
        return np.asarray(self.model_.sharpness)

    @property
    def tied_(self) -> Array:
        """Whether the queries are tied to the readouts, of shape (problems,)."""
        check_is_fitted(self)
        return np.full(len(self.model_.problems), self.model_.plan.family == "tied")


class AttentionClassifier(_Attending):
    """Softmax attention with a learnt query, then a linear readout.

    The features are f(X) = Xᵀ softmax(X q), tokens standardised. Two gradient steps give the query,
    a convex problem the readout (docs/theory.md, section 3), and `refine` continues from there with
    all parameters at once.

    Parameters
    ----------
    heads : int, default 1
        Queries, found one after another, each on what the ones before it left unexplained.
    refine : bool, default True
        Whether to optimise queries, readout and bias jointly by L-BFGS, from the two-step query.
    tied : True, False or "auto", default "auto"
        Refinement with q = κ w (attention goes to the evidence itself: half the parameters, hence
        far less overfitting) or with a query of its own (for tokens that are marked by something
        else than what they say). "auto" tries both on held-out samples.
    sharpness : float or "auto", default "auto"
        Standard deviation of the scores X q within a sequence after the two steps (for white
        tokens, β‖q‖). 0 is mean pooling. "auto" chooses on held-out samples.
    split : float in (0, 1) or None, default None
        Share of the samples used for the query alone, the rest for the readout; None uses all for
        both.
    ridge : float, default 1e-2
        Penalty (ridge/2)‖w‖² beside the mean loss (and on q, if it is refined and not tied).
    loss : str, default "logistic"
        One of `sparsetoken.loss_names()`; with `refine`, a smooth one.
    class_weight : None, "balanced" or dict, default None
    max_iter : int, default 100
        Most iterations of L-BFGS for a head.
    tol : float, default 1e-5
        L-BFGS stops when a step improves the objective by less than this, relatively.
    length : int, optional
        Tokens in a row of a 2-D X.
    random_state : int, RandomState or None
        Decides which samples are split off and held out.

    Attributes
    ----------
    classes_ : array of shape (classes,)
    queries_, coef_ : arrays of shape (problems, heads, d)
        q and w in standardised coordinates; one problem for two classes, else one for each class.
    intercept_, sharpness_, tied_ : arrays of shape (problems,)
    n_iter_ : int
    """

    def __init__(
        self,
        *,
        heads: int = 1,
        refine: bool | str = "auto",
        tied: bool | str = "auto",
        sharpness: float | str = "auto",
        split: float | None = None,
        ridge: float | str = "auto",
        loss: str = "logistic",
        class_weight: Any = None,
        max_iter: int = 100,
        tol: float = 1e-5,
        length: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.heads = heads
        self.refine = refine
        self.tied = tied
        self.sharpness = sharpness
        self.split = split
        self.ridge = ridge
        self.loss = loss
        self.class_weight = class_weight
        self.max_iter = max_iter
        self.tol = tol
        self.length = length
        self.random_state = random_state


class ElementwiseAttentionClassifier(_Attending):
    """Attention without normalisation: f(X) = (1/L) Xᵀ σ(X q), then a linear readout.

    For comparison with the softmax, which it falls behind when the signal is in few of many tokens
    (docs/theory.md, section 2). `attention` gives |σ| normalised to sum 1.

    Parameters
    ----------
    nonlinearity : "sigmoid", "tanh", "linear" or "exp", default "sigmoid"
        σ, token by token. The exponential is capped at e³⁰.
    heads, refine, tied, sharpness, split, ridge, loss, class_weight, max_iter, tol, length, \
random_state
        As in `AttentionClassifier`.
    """

    _checks: ClassVar[dict[str, Check]] = {
        **_Attending._checks,
        "nonlinearity": lambda name, value: choice(name, value, NONLINEARITIES),
    }

    def __init__(
        self,
        *,
        nonlinearity: str = "sigmoid",
        heads: int = 1,
        refine: bool | str = "auto",
        tied: bool | str = "auto",
        sharpness: float | str = "auto",
        split: float | None = None,
        ridge: float | str = "auto",
        loss: str = "logistic",
        class_weight: Any = None,
        max_iter: int = 100,
        tol: float = 1e-5,
        length: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.nonlinearity = nonlinearity
        self.heads = heads
        self.refine = refine
        self.tied = tied
        self.sharpness = sharpness
        self.split = split
        self.ridge = ridge
        self.loss = loss
        self.class_weight = class_weight
        self.max_iter = max_iter
        self.tol = tol
        self.length = length
        self.random_state = random_state

    def _pooling(self) -> Pooling:
        return Elementwise(self.nonlinearity)


def _in_shape(sequences: Sequences, parts: list[Array]) -> Any:
    """Return weights of all tokens in the input's shape: padded array, or list."""
    flat = np.concatenate(parts)
    if sequences.padded_length is None:
        return np.split(flat, np.cumsum(sequences.lengths)[:-1])
    if sequences.token_mask is None:
        return flat.reshape(len(sequences), sequences.padded_length)
    result = np.zeros(sequences.token_mask.shape, dtype=flat.dtype)
    result[sequences.token_mask] = flat
    return result
