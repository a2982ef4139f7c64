"""What the attention classifiers share: the fit, its attributes, and copies for another length."""

from copy import copy
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import TransformerMixin
from sklearn.utils.validation import check_is_fitted

from sparsetoken.arrays import Array
from sparsetoken.estimators.attention_model import AttentionModel
from sparsetoken.estimators.base import (
    Check,
    Model,
    SequenceClassifier,
    automatic,
    warn_user,
)
from sparsetoken.estimators.choice import Wishes, choose
from sparsetoken.estimators.fitting import fit_heads
from sparsetoken.estimators.heads import HeadSettings, sharpness_of
from sparsetoken.estimators.labelled import LabelledSequences
from sparsetoken.estimators.objective import Heads
from sparsetoken.estimators.plain_arrays import write_export
from sparsetoken.estimators.pooling import Pooling, Softmax
from sparsetoken.estimators.query import balanced_weights, first_coefficients
from sparsetoken.estimators.recalibration import recalibrated_to_labels, recalibrated_to_rate
from sparsetoken.estimators.scaling import (
    Scaler,
    are_correlated,
    first_pass,
    outlying,
    token_moments,
    whitened,
)
from sparsetoken.estimators.token_reading import TokenReading
from sparsetoken.limits import MOST_HEADS
from sparsetoken.numerics.threads import one_thread
from sparsetoken.validation import ParameterError, boolean, choice, integer, real

__all__ = ["Attending"]

# So many times as sharp, only the most attended token counts.
HARD = 1e6
# Beyond this dimension a whitening matrix costs more than a fit: only if it is asked for.
WHITEN_AUTO_DIMENSION = 1024


class Attending(TransformerMixin, TokenReading):  # type: ignore[misc]
    """A classifier by attention; which weights scores become is for the classes below to say."""

    _checks: ClassVar[dict[str, Check]] = {
        **SequenceClassifier._checks,
        "heads": lambda name, value: integer(name, value, low=1, high=MOST_HEADS),
        "refine": automatic(boolean),
        "tied": automatic(boolean),
        "sharpness": automatic(lambda name, value: real(name, value, low=0)),
        "whiten": automatic(boolean),
        "split": lambda name, value: (
            None if value is None else real(name, value, low=0, high=1, inclusive=False)
        ),
        "max_iter": lambda name, value: integer(name, value, low=1),
        "tol": lambda name, value: real(name, value, low=0),
        "verbose": boolean,
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
            unit=labelled.unit,
        )
        wishes = self._wishes(int(labelled.sequences.lengths.max()))
        balanced = balanced_weights(labelled.labels, labelled.weights)
        coefficients = first_coefficients(labelled.labels, balanced, settings.loss)
        firsts: Array | None
        scaler, firsts = first_pass(labelled.sequences, labelled.weights, coefficients)
        _warn_of_outliers(labelled, scaler)
        white = self._whitened(labelled, scaler, wishes)
        if white is not None and self.whiten is True:
            scaler, white = white, None
        if self.split is None or wishes.families == ("pooled",):
            for_query, for_readout, own_query = labelled, labelled, None
        else:
            for_query, for_readout = labelled.split(self.split, rng)
            firsts, own_query = None, for_query
        recipe, candidates, scaler = choose(for_readout, own_query, scaler, white, wishes, settings)
        if len(wishes.families) > 1 and not candidates:
            warn_user(
                "fewer than 3 different samples, or groups, of a class are too few to compare models "
                f"on held-out ones: the simplest, {recipe.family!r}, is fitted; bring more samples, "
                "or give refine and sharpness a value"
            )
        if firsts is not None and scaler.whitening is not None:
            firsts = firsts @ scaler.whitening
        fitted = fit_heads(for_readout, for_query, scaler, recipe, settings, firsts)
        sharpness = np.array([sharpness_of(one.heads, labelled, scaler) for one in fitted])
        return AttentionModel(
            scaler, settings.pooling, recipe, tuple(candidates), tuple(fitted), sharpness
        )

    def _unfinished(self) -> str:
        if not self.model_.recipe.refined:
            return super()._unfinished()
        return (
            f"the fit stopped after max_iter = {self.max_iter} steps before it converged to "
            f"tol = {self.tol}; raise max_iter, or the ridge"
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
        if wishes.recipe() is not None:
            return None
        moments = token_moments(sequences, labelled.weights, scaler)
        return whitened(scaler, moments) if are_correlated(moments) else None

    @one_thread
    def transform(self, X: Any, *, mask: Any = None) -> Array:
        """Return the attended features Xᵀ p, standardised tokens: (n, problems × heads × d).

        Parameters
        ----------
        X : array of shape (n, L, d), list of n arrays of shape (L_i, d), masked array (n, L, d), or
            array of shape (n, d)
        mask : array of shape (n, L), optional
            True where a token is present, for a 3-D X with padding.

        Returns
        -------
        array of shape (n, problems × heads × d)

        Examples
        --------
        >>> from sparsetoken import AttentionClassifier, digit_bags
        >>> train, test = digit_bags(4, train=60, test=20)
        >>> model = AttentionClassifier(refine=False, sharpness=2.0, ridge=0.1, random_state=0)
        >>> model.fit(train.X, train.y).transform(test.X).shape
        (20, 64)
        """
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

        Returns
        -------
        dict of arrays
            By name, as in the formula above.

        Examples
        --------
        >>> from sparsetoken import AttentionClassifier, digit_bags
        >>> train, test = digit_bags(6, train=120, test=40)
        >>> model = AttentionClassifier(refine=False, ridge=0.01, sharpness=2.0).fit(train.X, train.y)
        >>> arrays = model.export()
        >>> arrays["queries"].shape, arrays["bias"].shape
        ((1, 1, 64), (1,))
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

        Returns
        -------
        a fitted copy; this classifier stays as it is

        Examples
        --------
        >>> from sparsetoken import AttentionClassifier, digit_bags
        >>> train, test = digit_bags(6, train=120, test=40)
        >>> model = AttentionClassifier(refine=False, ridge=0.01, sharpness=2.0).fit(train.X, train.y)
        >>> hard = model.with_sharpness("hard")
        >>> float(hard.attention(test.X).max(axis=1).min())
        1.0
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

    def recalibrate(
        self,
        X: Any,
        y: Any = None,
        *,
        rate: Any = None,
        aim: str | None = None,
        mask: Any = None,
    ) -> Self:
        """Return a copy with sharpness and bias for sequences of another length.

        Trained on short sequences, attention is too blunt for long ones. Two numbers a problem
        repair most of it; the directions of queries and readouts stay.

        Parameters
        ----------
        X, mask : as in `fit`
            Sequences such as the classifier is to be used on.
        y : array of shape (n,), optional
            Their classes, if they are known.
        aim : "errors" or "loss", optional
            With `y`: the fewest errors, or the least loss, for probabilities. By default the fewest
            errors of two classes; of several, whose decisions are compared, only the least loss.
        rate : float, or array of shape (classes,), optional
            Without `y`: the share of positives (of each class) among them.

        Returns
        -------
        a fitted copy; this classifier stays as it is

        Examples
        --------
        >>> from sparsetoken import AttentionClassifier, digit_bags
        >>> train, test = digit_bags(6, train=120, test=40)
        >>> model = AttentionClassifier(refine=False, ridge=0.01, sharpness=2.0).fit(train.X, train.y)
        >>> _, longer = digit_bags(12, test=60)
        >>> model.recalibrate(longer.X, longer.y).predict(longer.X).shape
        (60,)
        """
        if (y is None) == (rate is None):
            raise ParameterError("rate", rate, "either y or rate, and not both")
        sequences = self._fitted_sequences(X, mask)
        fewest = self._counts_errors(aim, labelled=y is not None)
        loss, model = self._loss_object, self.model_
        if y is not None:
            known = np.asarray(y)
            if known.shape != (len(sequences),) or not np.isin(known, self.classes_).all():
                raise ParameterError(
                    "y", known.shape, f"a class of fit for {len(sequences)} samples"
                )
            missing = np.setdiff1d(self.classes_, known)
            if len(missing):  # the bias would rule it out, or in
                raise ParameterError("y", f"without {missing[0]}", "samples of every class of fit")
        elif len(sequences) < 2:
            raise ParameterError("number of samples", len(sequences), "at least 2 without y")
        targets = self.classes_[1:] if len(self.classes_) == 2 else self.classes_
        rates = self._rates(0.5 if rate is None else rate)[-len(targets) :]
        factors, biases = np.ones(len(targets)), self.intercept_
        for row, target in enumerate(targets):
            heads = replace(model.problems[row].heads, bias=0.0)

            def decisions(factor: float, heads: Heads = heads) -> Array:
                moved = replace(heads, queries=factor * heads.queries)
                return moved.decisions(sequences, model.scaler, model.pooling)

            if y is not None:
                labels = np.where(known == target, 1.0, -1.0)
                factors[row], biases[row] = recalibrated_to_labels(
                    decisions, labels, loss, fewest_errors=fewest
                )
            else:
                factors[row], biases[row] = recalibrated_to_rate(decisions, float(rates[row]))
        return self._moved(factors, biases)

    def _rates(self, rate: Any) -> Array:
        """Return the share of each class, or of each that is a positive, from one or from all."""
        shape = np.shape(rate)
        if shape not in ((), (len(self.classes_),)):
            accepted = f"a number, or {len(self.classes_)}, one for each class"
            raise ParameterError("shape of rate", shape, accepted)
        for one in np.ravel(rate).tolist():
            real("rate", one, low=0, high=1, inclusive=False)
        return np.broadcast_to(np.asarray(rate, dtype=float), len(self.classes_))

    def _counts_errors(self, aim: str | None, *, labelled: bool) -> bool:
        """Return whether a recalibration aims at the fewest errors, if its aim can be met."""
        if aim is None:
            return len(self.classes_) == 2
        if not labelled:
            raise ParameterError("aim", aim, "None with rate: errors and losses take y")
        choice("aim", aim, ("errors", "loss"))
        if aim == "errors" and len(self.classes_) > 2:
            raise ParameterError("aim", aim, f"'loss' or None for {len(self.classes_)} classes")
        return aim == "errors"

    def _moved(self, factors: Array, biases: Array) -> Self:
        """Return a copy with the queries times factors, and these biases."""
        moved = copy(self)
        moved.model_ = self.model_.moved(factors, biases)
        if not np.all(factors):  # without a query, tokens are scored by the readout
            moved.backgrounds_ = {}
        return moved

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
        return str(self.model_.recipe.family)

    @property
    def ridge_(self) -> float:
        """The ridge, chosen or given."""
        check_is_fitted(self)
        return float(self.model_.recipe.ridge)

    @property
    def candidates_(self) -> list[dict[str, Any]]:
        """What was compared: family, sharpness, ridge and mean held-out loss, simplest first.

        A refined family that was far behind after its first steps has its loss at that point.
        """
        check_is_fitted(self)
        return [
            {
                "family": one.recipe.family,
                "sharpness": one.recipe.sharpness,
                "ridge": one.recipe.ridge,
                "held_out_loss": one.loss,
                "chosen": one.recipe == self.model_.recipe,
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
        if not self.model_.recipe.reads_extremes:
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
        return np.full(len(self.model_.problems), self.model_.recipe.family == "tied")


def _warn_of_outliers(labelled: LabelledSequences, scaler: Scaler) -> None:
    found = outlying(labelled.sequences, scaler)
    if found is None:
        return
    excess, row = found
    warn_user(
        f"outliers set the units: in half of the coordinates tokens have {excess:,.0f} times the standard "
        f"deviation of their bulk, the farthest in sample {row}. What the bulk says is hardly read, and "
        "held-out losses say little of new outliers: look for codes of missing values, or give ranks, "
        'as TokenWise(QuantileTransformer(output_distribution="normal")) does'
    )


def _shown(what: str, evaluations: int, values: Array) -> None:
    """Print how a descent goes on, first after two evaluations: the start and one step."""
    if evaluations == 2 or evaluations % 10 == 0:
        print(
            f"{what}: {len(values)} problems, {evaluations} evaluations, mean objective "
            f"{np.mean(values):.5f}",
            flush=True,
        )
