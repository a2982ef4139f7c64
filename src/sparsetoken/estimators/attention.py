"""Classifiers with attention: softmax, or element by element."""

import warnings
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from sparsetoken.arrays import Array
from sparsetoken.estimators.base import Check, Model, SequenceClassifier, automatic
from sparsetoken.estimators.choice import Candidate, Wishes, choose
from sparsetoken.estimators.export import write_export
from sparsetoken.estimators.extremes import extreme_evidence, extreme_shares
from sparsetoken.estimators.heads import (
    FittedHeads,
    HeadSettings,
    Plan,
    block_features,
    fit_heads,
    sharpness_of,
)
from sparsetoken.estimators.labelled import LabelledSequences
from sparsetoken.estimators.localisation import Background
from sparsetoken.estimators.objective import Heads
from sparsetoken.estimators.pooling import Elementwise, Pooling, Softmax, segment_sums
from sparsetoken.estimators.query import balanced_weights, first_coefficients
from sparsetoken.estimators.recalibration import recalibrated, recalibrated_to_rate
from sparsetoken.estimators.scaling import (
    Scaler,
    are_correlated,
    first_pass,
    token_moments,
    whitened,
)
from sparsetoken.estimators.sequences import Block, Sequences
from sparsetoken.learning.features import NONLINEARITIES
from sparsetoken.numerics.threads import one_thread
from sparsetoken.validation import ParameterError, choice, integer, real

__all__ = [
    "AttentionClassifier",
    "ElementwiseAttentionClassifier",
]

# So many times as sharp, only the most attended token counts.
HARD = 1e6
# Beyond this dimension a whitening matrix costs more than a fit: only if it is asked for.
WHITEN_AUTO_DIMENSION = 1024


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

    def features(self, block: Block) -> Array:
        """Return Xᵀ p of every problem and head in standardised coordinates: (k, problems H d).

        Maxima and minima of the coordinates, if they are read, stand behind.
        """
        queries = np.vstack([problem.heads.queries for problem in self.problems])
        return block_features(
            block, queries, self.scaler, self.pooling, extremes=self.plan.reads_extremes
        )

    def token_scores(self, block: Block, problem: int) -> Array:
        """Return how much a token attracts attention by itself, (N,), in units of the spread.

        That is the largest score ⟨x, q_h⟩ over heads; without a query, the evidence ⟨x, w⟩ that it
        would be alone.
        """
        heads = self.problems[problem].heads
        vectors = heads.queries if np.any(heads.queries) else heads.alone(self.scaler)
        norms = np.linalg.norm(vectors, axis=1)
        vectors = vectors[norms > 0] / norms[norms > 0, None]
        if not len(vectors):
            return np.zeros(len(block.tokens), dtype=block.tokens.dtype)
        return np.asarray(self.scaler.scores(vectors, block.tokens).max(axis=0))

    def evidence(self, block: Block, problem: int) -> Array:
        """Return by how much the decision would fall without each token, (N,).

        For the softmax, f - f₋ₗ = p_l (v_l - f)/(1 - p_l) with v = ⟨x, w⟩, summed over heads; else
        p_l v_l. A lone token is compared with an empty sequence, of decision b.
        """
        heads = self.problems[problem].heads
        count = len(heads.queries)
        scores = self.scaler.scores(np.vstack([heads.queries, heads.weights]), block.tokens)
        weights, values = self.pooling.weights(scores[:count], block), scores[count:]
        parts = weights * values
        if isinstance(self.pooling, Softmax):
            pooled = np.repeat(segment_sums(parts, block), block.lengths, axis=1)
            # 1 - p from the other tokens' weights, which keeps its digits when p is nearly 1.
            others = np.repeat(segment_sums(weights, block), block.lengths, axis=1) - weights
            others = np.maximum(others, np.finfo(weights.dtype).eps)
            alone = np.repeat(block.lengths == 1, block.lengths)
            parts = np.where(alone, values, weights * (values - pooled) / others)
        evidence = parts.sum(axis=0)
        if heads.extremes is not None:
            evidence += extreme_evidence(
                block, self.scaler.location, heads.extremes / self.scaler.scale
            )
        return np.asarray(evidence)

    def attend(self, block: Block, problem: int) -> Array:
        """Return one weight a token, (N,), each sequence's of sum 1: the mean over heads.

        With extremes, it is the share of how far each token pulls the readout away from the mean,
        beside the readout of the mean itself, ‖·‖₁ over coordinates.
        """
        heads = self.problems[problem].heads
        scores = self.scaler.scores(heads.queries, block.tokens)
        weights = np.abs(self.pooling.weights(scores, block))  # signed for tanh and linear
        totals = segment_sums(weights, block)
        if np.any(totals == 0):  # tanh and linear of nothing but zero scores: no preference
            weights[:, np.repeat(np.any(totals == 0, axis=0), block.lengths)] = 1
            totals = segment_sums(weights, block)
        shares = (weights / np.repeat(totals, block.lengths, axis=1)).mean(axis=0)
        if heads.extremes is not None:
            # A silent readout has no preference.
            mean = np.abs(heads.weights).sum() + np.finfo(float).tiny
            shares = mean * shares + extreme_shares(block, heads.extremes / self.scaler.scale)
            shares /= np.repeat(segment_sums(shares, block), block.lengths)
        return np.asarray(shares, dtype=block.tokens.dtype)


class _Attending(TransformerMixin, SequenceClassifier):  # type: ignore[misc]
    """What the two attention classifiers share."""

    # How large a loss is large: that of labels, or the variance of a target that labels stand for.
    _loss_unit = 1.0
    _checks: ClassVar[dict[str, Check]] = {
        **SequenceClassifier._checks,
        "heads": lambda name, value: integer(name, value, low=1),
        "refine": automatic(_flag),
        "tied": automatic(_flag),
        "sharpness": automatic(lambda name, value: real(name, value, low=0)),
        "whiten": automatic(_flag),
        "split": lambda name, value: (
            None if value is None else real(name, value, low=0, high=1, inclusive=False)
        ),
        "max_iter": lambda name, value: integer(name, value, low=1),
        "tol": lambda name, value: real(name, value, low=0),
        "verbose": _flag,
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
                pooling = self._pooling()
                families = ("pooled",) if pooling.holds_mean else ()
                families += ("maxima", "minima", "extremes") if pooling.holds_extremes else ()
                families += ("two-step",)
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
            progress=_shown if self.verbose else None,
            unit=self._loss_unit,
        )
        wishes = self._wishes(int(labelled.sequences.lengths.max()))
        balanced = balanced_weights(labelled.labels, labelled.weights)
        coefficients = first_coefficients(labelled.labels, balanced, settings.loss)
        firsts: Array | None
        scaler, firsts = first_pass(labelled.sequences, labelled.weights, coefficients)
        white = self._whitened(labelled, scaler, wishes)
        if white is not None and self.whiten is True:
            scaler, white = white, None
        if self.split is None or wishes.families == ("pooled",):
            for_query, for_readout, own_query = labelled, labelled, None
        else:
            for_query, for_readout = labelled.split(self.split, rng)
            firsts, own_query = None, for_query
        plan, candidates, scaler = choose(for_readout, own_query, scaler, white, wishes, settings)
        if firsts is not None and scaler.whitening is not None:
            firsts = firsts @ scaler.whitening
        fitted = fit_heads(for_readout, for_query, scaler, plan, settings, firsts)
        if not all(one.converged for one in fitted):
            warnings.warn(
                f"the fit stopped after max_iter = {self.max_iter} steps before it converged to "
                f"tol = {self.tol}; raise max_iter, or the ridge (here {plan.ridge:g})",
                ConvergenceWarning,
                stacklevel=3,
            )
        sharpness = [sharpness_of(one.heads, labelled, scaler) for one in fitted]
        return _AttentionModel(
            scaler,
            settings.pooling,
            plan,
            tuple(candidates),
            tuple(fitted),
            np.array(sharpness),
        )

    def _whitened(
        self, labelled: LabelledSequences, scaler: Scaler, wishes: Wishes
    ) -> Scaler | None:
        """Return a scaler that whitens, if that is wanted, or worth a comparison."""
        sequences = labelled.sequences
        if self.whiten is False or sequences.lengths.max() == 1 or sequences.dimension == 1:
            return None
        if self.whiten is True:
            return whitened(scaler, token_moments(sequences, labelled.weights, scaler))
        if sequences.dimension > WHITEN_AUTO_DIMENSION or "two-step" not in wishes.families:
            return None
        if wishes.plan() is not None:
            return None
        moments = token_moments(sequences, labelled.weights, scaler)
        return whitened(scaler, moments) if are_correlated(moments) else None

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
        return _in_shape(sequences, self._per_token(sequences, target, self.model_.attend))

    def evidence(self, X: Any, mask: Any = None, target: Any = None) -> Any:
        """Return by how much each token moves the decision: it would fall by this without it.

        Positive for tokens that speak for the class (with two classes, the second), negative for
        those against it. Arguments and shapes as in `attention`.
        """
        sequences = self._fitted_sequences(X, mask)
        return _in_shape(sequences, self._per_token(sequences, target, self.model_.evidence))

    def token_scores(self, X: Any, mask: Any = None, target: Any = None) -> Any:
        """Return how much each token attracts attention by itself, whatever stands beside it.

        Comparable between sequences of any length. Arguments and shapes as in `attention`.
        """
        sequences = self._fitted_sequences(X, mask)
        return _in_shape(sequences, self._per_token(sequences, target, self.model_.token_scores))

    def learn_background(self, X: Any, mask: Any = None, target: Any = None) -> Self:
        """Learn the law of token scores in sequences without signal, for `locate(false_alarms=)`.

        Parameters
        ----------
        X, mask : as in `fit`
            Sequences of the negative class that were not used in `fit`. To control a false alarms
            in sequences of L tokens takes at least L/a tokens here.
        target : class label, optional
            With three or more classes, the class to locate.
        """
        sequences = self._fitted_sequences(X, mask)
        scores = self._per_token(sequences, target, self.model_.token_scores)
        self.background_ = Background.of(np.concatenate(scores))
        return self

    def locate(
        self,
        X: Any,
        k: int | None = None,
        mask: Any = None,
        target: Any = None,
        *,
        false_alarms: float | None = None,
    ) -> Any:
        """Return the positions of the tokens that matter, the first first.

        Parameters
        ----------
        X, mask, target : as in `attention`
        k : int, default 1
            How many tokens of each sequence: the k most attended.
        false_alarms : float, optional
            Instead of `k`: as many tokens as stand out from the background, perhaps none, so that
            a sequence without signal has at most this many on average. `learn_background` first.

        Returns
        -------
        array of shape (n, k), or a list of n arrays with `false_alarms`
        """
        sequences = self._fitted_sequences(X, mask)
        if false_alarms is not None:
            if k is not None:
                raise ParameterError("k", k, "None together with false_alarms")
            return self._outstanding(sequences, target, false_alarms)
        k = integer("k", 1 if k is None else k, low=1)
        short = np.flatnonzero(sequences.lengths < k)
        if len(short):
            raise ParameterError(
                "k", k, f"at most the {sequences.lengths[short[0]]} tokens of sample {short[0]}"
            )
        weights = _in_shape(sequences, self._per_token(sequences, target, self.model_.attend))
        if sequences.token_mask is not None:
            weights[~sequences.token_mask] = -1.0
        return np.array([np.argsort(-row, kind="stable")[:k] for row in weights])

    def _outstanding(self, sequences: Sequences, target: Any, false_alarms: float) -> list[Array]:
        """Return the tokens whose p-value times the length is at most `false_alarms`."""
        allowed = real("false_alarms", false_alarms, low=0, inclusive=False)
        if not hasattr(self, "background_"):
            raise ParameterError(
                "false_alarms", false_alarms, "a call of learn_background(X_negative) first"
            )
        needed = int(np.ceil(sequences.lengths.max() / allowed))
        if self.background_.count < needed:
            warnings.warn(
                f"the background has {self.background_.count} tokens; to let any token of the "
                f"longest sequence stand out takes {needed}: learn it from more sequences",
                UserWarning,
                stacklevel=3,
            )
        scores = np.concatenate(self._per_token(sequences, target, self.model_.token_scores))
        p_values = self.background_.p_values(scores)
        found = []
        ends = np.cumsum(sequences.lengths)
        masks = sequences.token_mask
        for row, (end, length) in enumerate(zip(ends, sequences.lengths, strict=True)):
            own = p_values[end - length : end]
            chosen = np.flatnonzero(length * own <= allowed)
            chosen = chosen[np.argsort(own[chosen], kind="stable")]
            found.append(chosen if masks is None else np.flatnonzero(masks[row])[chosen])
        return found

    @one_thread
    def transform(self, X: Any, mask: Any = None) -> Array:
        """Return the attended features Xᵀ p, standardised tokens: (n, problems × heads × d)."""
        sequences = self._fitted_sequences(X, mask)
        parts = []
        for block in sequences.blocks():
            parts.append(self.model_.features(block))
            if not np.all(np.isfinite(parts[-1])):
                sequences.require_finite(block)
        return np.concatenate(parts)

    def export(self, path: Any = None) -> dict[str, Array]:
        """Return the classifier as plain arrays, in the tokens' own units; write them if asked.

        With scores s = X @ queries[c, h] + query_offsets[c, h] and v likewise from the weights, the
        decision of problem c is Σ_h softmax(s)·v + bias[c]. If maxima or minima are read (`extremes_`
        is not None), max(X) @ max_weights[c] + min(X) @ min_weights[c] is added.

        Parameters
        ----------
        path : str or Path, optional
            A file that ends in .npz, or in .onnx if the package onnx is installed: a graph from
            `tokens` (L, d) of one sequence to `decision` and `attention`.
        """
        check_is_fitted(self)
        if not isinstance(self.model_.pooling, Softmax):
            raise ParameterError("pooling", "element by element", "softmax attention, to export")
        scaler = self.model_.scaler
        arrays = {}
        for name, vectors in (("queries", self.queries_), ("weights", self.coef_)):
            plain = scaler.in_token_units(vectors.reshape(-1, vectors.shape[2]))
            arrays[name] = plain.reshape(vectors.shape)
            offsets = -(plain @ scaler.location).reshape(vectors.shape[:2])
            arrays["query_offsets" if name == "queries" else "weight_offsets"] = offsets
        arrays |= {"bias": self.intercept_, "classes": self.classes_}
        if self.extremes_ is not None:
            plain = self.extremes_ / scaler.scale
            arrays |= {"max_weights": plain[:, 0], "min_weights": plain[:, 1]}
            arrays["bias"] = self.intercept_ - plain.sum(axis=1) @ scaler.location
        if path is not None:
            write_export(arrays, path)
        return arrays

    def with_sharpness(self, sharpness: float | str) -> Self:
        """Return a copy whose scores have another spread within a sequence.

        Parameters
        ----------
        sharpness : float, "trained" or "hard"
            The spread (`sharpness_` is the trained one), or "hard" for the most attended token
            alone. Problems without attention stay as they are.
        """
        check_is_fitted(self)
        if isinstance(sharpness, str):
            choice("sharpness", sharpness, ("trained", "hard"))
            factors = np.full(len(self.sharpness_), HARD if sharpness == "hard" else 1.0)
        else:
            wanted = real("sharpness", sharpness, low=0)
            trained = self.sharpness_
            factors = np.divide(wanted, trained, out=np.ones_like(trained), where=trained > 0)
        return self._moved(factors, self.intercept_)

    def recalibrate(self, X: Any, y: Any = None, *, rate: Any = None, mask: Any = None) -> Self:
        """Return a copy with sharpness and bias for sequences of another length.

        Trained on short sequences, attention is too blunt for long ones. Two numbers a problem
        repair most of it; the directions of queries and readouts stay.

        Parameters
        ----------
        X, mask : as in `fit`
            Sequences such as the classifier is to be used on.
        y : array of shape (n,), optional
            Their classes, if some are known: of least loss.
        rate : float, or array of shape (classes,), optional
            Without `y`: the share of positives (of each class) among them.
        """
        if (y is None) == (rate is None):
            raise ParameterError("rate", rate, "either y or rate, and not both")
        sequences = self._fitted_sequences(X, mask)
        loss, model = self._loss_object, self.model_
        if y is not None:
            known = np.asarray(y)
            if known.shape != (len(sequences),) or not np.isin(known, self.classes_).all():
                raise ParameterError(
                    "y", known.shape, f"a class of fit for {len(sequences)} samples"
                )
        targets = self.classes_[1:] if len(self.classes_) == 2 else self.classes_
        rates = np.broadcast_to(0.0 if rate is None else rate, len(targets))
        factors, biases = np.ones(len(targets)), self.intercept_
        for row, target in enumerate(targets):
            heads = replace(model.problems[row].heads, bias=0.0)

            def decisions(factor: float, heads: Heads = heads) -> Array:
                moved = replace(heads, queries=factor * heads.queries)
                return moved.decisions(sequences, model.scaler, model.pooling)

            if y is not None:
                labels = np.where(known == target, 1.0, -1.0)
                weights = np.full(len(labels), 1 / len(labels))
                factors[row], biases[row] = recalibrated(decisions, labels, weights, loss)
            else:
                share = real("rate", float(rates[row]), low=0, high=1, inclusive=False)
                factors[row], biases[row] = recalibrated_to_rate(decisions, share)
        return self._moved(factors, biases)

    def _moved(self, factors: Array, biases: Array) -> Self:
        """Return a copy with the queries times factors, and these biases."""
        model = self.model_
        problems = tuple(
            replace(
                problem,
                heads=replace(
                    problem.heads, queries=factor * problem.heads.queries, bias=float(bias)
                ),
            )
            for problem, factor, bias in zip(model.problems, factors, biases, strict=True)
        )
        moved = copy(self)
        moved.model_ = replace(model, problems=problems, sharpness=factors * model.sharpness)
        return moved

    @one_thread
    def _per_token(
        self, sequences: Sequences, target: Any, compute: Callable[[Block, int], Array]
    ) -> list[Array]:
        """Return one number a token, block by block, from the problem of each sequence."""
        if target is not None and not np.any(self.classes_ == target):
            raise ParameterError("target", target, f"one of {self.classes_.tolist()}")
        if len(self.model_.problems) == 1:
            problem = np.zeros(len(sequences), dtype=int)
        elif target is None:
            problem = self._predicted(sequences)
        else:
            problem = np.full(len(sequences), np.flatnonzero(self.classes_ == target)[0])
        parts = []
        for block in sequences.blocks():
            wanted = problem[block.samples]
            values = np.zeros(len(block.tokens), dtype=block.tokens.dtype)
            for index in np.unique(wanted):
                here = np.repeat(wanted == index, block.lengths)
                values[here] = compute(block, index)[here]
            if not np.all(np.isfinite(values)):
                sequences.require_finite(block)
            parts.append(values)
        return parts

    @property
    def mean_(self) -> Array:
        """Mean of the tokens, of shape (d,)."""
        check_is_fitted(self)
        return np.asarray(self.model_.scaler.location)

    @property
    def scale_(self) -> Array:
        """Standard deviation of the tokens' coordinates, of shape (d,)."""
        check_is_fitted(self)
        return np.asarray(self.model_.scaler.scale)

    @property
    def whitening_(self) -> Array | None:
        """The matrix (d, d) that whitens standardised tokens, or None."""
        check_is_fitted(self)
        return self.model_.scaler.whitening  # type: ignore[no-any-return]

    @property
    def family_(self) -> str:
        """Which kind was fitted.

        "pooled", "maxima", "minima", "extremes" (all three), "two-step", "tied" or "free".
        """
        check_is_fitted(self)
        return str(self.model_.plan.family)

    @property
    def ridge_(self) -> float:
        """The ridge, chosen or given."""
        check_is_fitted(self)
        return float(self.model_.plan.ridge)

    @property
    def candidates_(self) -> list[dict[str, Any]]:
        """What was compared: family, sharpness, ridge and mean held-out loss, simplest first.

        A refined family that was far behind after its first steps has its loss at that point.
        """
        check_is_fitted(self)
        return [
            {
                "family": one.plan.family,
                "sharpness": one.plan.sharpness,
                "ridge": one.plan.ridge,
                "held_out_loss": one.loss,
                "chosen": one.plan == self.model_.plan,
            }
            for one in self.model_.candidates
        ]

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
    def extremes_(self) -> Array | None:
        """Readouts of maxima and minima in standardised coordinates, (problems, 2, d), or None."""
        check_is_fitted(self)
        if not self.model_.plan.reads_extremes:
            return None
        return np.array([problem.heads.extremes for problem in self.model_.problems])

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
        Queries, found one after another, each on what the ones before it left unexplained, or, if
        that ends better when refined, all at once, from the kinds of token that the first attends to.
    refine : True, False or "auto", default "auto"
        Whether to optimise queries, readout and bias jointly by L-BFGS. "auto" does so if that
        lowers the loss on held-out samples by more than half a standard error; without refinement
        the model is mean pooling, max or min pooling, all three, or the two-step query.
    tied : True, False or "auto", default "auto"
        Refinement with q = κ w (attention goes to the evidence itself: half the parameters) or with
        a query of its own (for tokens that are marked by something else than what they say). "auto"
        compares both on held-out samples.
    sharpness : float or "auto", default "auto"
        Standard deviation of the scores X q within a sequence after the two steps (for white
        tokens, β‖q‖), where refinement starts. 0 is mean pooling. "auto" tries several.
    whiten : True, False or "auto", default "auto"
        Whether to whiten tokens, with shrinkage, rather than only standardise them: for tokens that
        share strong directions. "auto" does so if they are correlated and the two-step query, where
        that is among the candidates, gains from it on held-out samples; for d up to 1,024.
    split : float in (0, 1) or None, default None
        Share of the samples used for the query alone, the rest for the readout; None uses all for
        both.
    ridge : float or "auto", default "auto"
        Penalty (ridge/2)‖s w‖² beside the mean loss, where s is the spread of the features (when
        refined, of the tokens), and on q if it is refined and not tied. "auto" chooses from a path
        on held-out samples.
    loss : str, default "logistic"
        One of `sparsetoken.loss_names()`; with `refine`, a smooth one.
    class_weight : None, "balanced" or dict, default None
    max_iter : int, default 300
        Most iterations of L-BFGS for a head.
    tol : float, default 1e-5
        L-BFGS stops when two steps in a row improve the objective by less than this.
    verbose : bool, default False
        Whether to print how the fit goes on.
    length : int, optional
        Tokens in a row of a 2-D X.
    random_state : int, RandomState or None
        Decides which samples are split off, if `split` is given; nothing else is random.

    Attributes
    ----------
    classes_ : array of shape (classes,)
    queries_, coef_ : arrays of shape (problems, heads, d)
        q and w in standardised coordinates; one problem for two classes, else one for each class.
    intercept_, sharpness_, tied_ : arrays of shape (problems,)
        Biases, spreads of the fitted scores within a sequence, and whether q = κ w.
    mean_, scale_ : arrays of shape (d,)
        Location and scale of the tokens.
    extremes_ : array of shape (problems, 2, d), or None
        Readouts of the coordinates' maxima and minima, if these were chosen.
    family_, ridge_, candidates_
        What was chosen, and what it was compared with.
    n_iter_ : int

    Examples
    --------
    >>> from sparsetoken import AttentionClassifier, digit_bags
    >>> train, test = digit_bags(6, train=120, test=100)
    >>> model = AttentionClassifier(refine=False, ridge=0.01, sharpness=2.0).fit(train.X, train.y)
    >>> model.attention(test.X).shape, model.score(test.X, test.y) > 0.6
    ((100, 6), True)
    """

    def __init__(
        self,
        *,
        heads: int = 1,
        refine: bool | str = "auto",
        tied: bool | str = "auto",
        sharpness: float | str = "auto",
        whiten: bool | str = "auto",
        split: float | None = None,
        ridge: float | str = "auto",
        loss: str = "logistic",
        class_weight: Any = None,
        max_iter: int = 300,
        tol: float = 1e-5,
        verbose: bool = False,
        length: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.heads = heads
        self.refine = refine
        self.tied = tied
        self.sharpness = sharpness
        self.whiten = whiten
        self.split = split
        self.ridge = ridge
        self.loss = loss
        self.class_weight = class_weight
        self.max_iter = max_iter
        self.tol = tol
        self.verbose = verbose
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
    heads, refine, tied, sharpness, whiten, split, ridge, loss, class_weight, max_iter, tol, \
verbose, length, random_state
        As in `AttentionClassifier`.

    Examples
    --------
    >>> from sparsetoken import ElementwiseAttentionClassifier, digit_bags
    >>> train, test = digit_bags(6, train=120, test=100)
    >>> model = ElementwiseAttentionClassifier(refine=False, ridge=0.01, sharpness=2.0)
    >>> model.fit(train.X, train.y).predict(test.X).shape
    (100,)
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
        whiten: bool | str = "auto",
        split: float | None = None,
        ridge: float | str = "auto",
        loss: str = "logistic",
        class_weight: Any = None,
        max_iter: int = 300,
        tol: float = 1e-5,
        verbose: bool = False,
        length: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.nonlinearity = nonlinearity
        self.heads = heads
        self.refine = refine
        self.tied = tied
        self.sharpness = sharpness
        self.whiten = whiten
        self.split = split
        self.ridge = ridge
        self.loss = loss
        self.class_weight = class_weight
        self.max_iter = max_iter
        self.tol = tol
        self.verbose = verbose
        self.length = length
        self.random_state = random_state

    def _pooling(self) -> Pooling:
        return Elementwise(self.nonlinearity)


def _shown(what: str, evaluations: int, values: Array) -> None:
    """Print how a descent goes on."""
    if evaluations % 10 == 0:
        print(
            f"{what}: {len(values)} problems, {evaluations} evaluations, mean objective "
            f"{np.mean(values):.5f}",
            flush=True,
        )


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
