"""Predictions, one at a time or along a path, on laws that are refined until a tolerance is met."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from sparsetoken import validation
from sparsetoken.arrays import Array
from sparsetoken.losses import get_loss
from sparsetoken.numerics.memory import path_memory
from sparsetoken.numerics.solution import Solution, Status
from sparsetoken.numerics.threads import one_thread
from sparsetoken.records import Curve
from sparsetoken.task import Query, Task, Training, check_matters, vary
from sparsetoken.theory.chosen_query import chosen_query, prediction_fields, training_law
from sparsetoken.theory.feature_law import FeatureLaw
from sparsetoken.theory.laws import ClassifierLaw, classifier_law, feature_law
from sparsetoken.theory.limit import FINEST, limit_readout
from sparsetoken.theory.misclassification import Misclassification, misclassification
from sparsetoken.theory.path import Trail, from_path, on_path
from sparsetoken.theory.prediction import Prediction, prediction_of
from sparsetoken.theory.trained_readout import LimitReadout, LimitState
from sparsetoken.theory.usage import BIAS, Tested, Usage, best_sharpness, recalibrated
from sparsetoken.validation import ParameterError

__all__ = ["Predictor", "curve", "predict"]

# Before a field of the task at test time, where that varies.
_AT = "at_"

# Points a class and replicate, as powers of two: where refining begins at a tolerance of 1e-4, at one
# of 1e-3 or more and at a rough one, where it ends, and how many powers fewer, but no more than these,
# do to begin a solution where a compressed law does not.
FIRST_SIZE = 10
LEAST_SIZE = 7
ROUGH_SIZE = 5
_ROUGH = 5e-3
LAST_SIZE = 14
_COARSER = 3
_LAST_COARSE = 9

# The error of the law falls as points^-0.8, or more slowly: then as it was seen to fall so far.
_FASTEST = 0.8
_SLOWEST = 0.3

# Powers of two that points grow by at the most before it was seen how the error falls: that of few points
# can be far too large, and fifty times as many cost more than a look in between.
_FIRST_GROWTH = 4

# Where quadrature and tables make more than one such part of the wanted error, they are made finer.
_NUMERICAL_PART = 3

# An error below the tolerance, and below this, is wanted to a relative accuracy, from so many points
# of a law that reaches into the tails.
_RARE = 1e-3
_RARE_ACCURACY = 0.05
_RARE_SIZES = range(9, 13)


@one_thread
@path_memory()
def predict(
    task: Task,
    training: Training,
    *,
    classifier: str = "attention",
    query: Query | None = None,
    at: Task | None = None,
    at_sharpness: float | str | None = None,
    recalibrate: bool = False,
    tolerance: float = 1e-4,
) -> Prediction:
    """Predict the test error, training loss and more that training a classifier on a task gives.

    Exact in the limit of high dimension, with numerical error bars (docs/theory.md, section 5).

    Parameters
    ----------
    task, training : Task, Training
    classifier : str
        "attention", "pooled", "vectorised", or another entry of `theory.laws.LAWS`. One without a
        query reads nothing but alpha1, loss and ridge of a training that serves all classifiers.
    query : Query, optional
        A given query instead of the one that `align` predicts; for attention. What only a query to
        be learnt reads of the training (alpha0, the rates) then plays no part, and reuse is refused.
    at : Task, optional
        Test on this task instead: sequences of another length, sparsity, strength or rate.
        The direction of the signal stays the same.
    at_sharpness : float or "best", optional
        Test with this sharpness κ of the softmax; infinity puts all weight on the largest score,
        "best" finds the one of least error.
    recalibrate : bool
        Test with the bias of least error on the task at test time instead of the trained one.
    tolerance : float
        Wanted numerical error of the test error. If it cannot be reached, the uncertainty and the
        status say so. A test error below it is given to about 5 % of its value.

    Returns
    -------
    Prediction
        Errors, order parameters and ranking quantities, each with its numerical error bar.

    Examples
    --------
    >>> from sparsetoken import Task, Training, predict
    >>> task = Task(length=10, informative=1, strength=5.0)
    >>> training = Training(alpha0=4.0, alpha1=2.0, query_step=20.0)
    >>> found = predict(task, training)
    >>> round(found.test_error, 3), found.uncertainty.test_error < 1e-4
    (0.038, True)
    >>> round(predict(task, training, classifier="pooled").test_error, 3)
    0.319
    """
    usage = Usage(at, at_sharpness, recalibrate)
    return Predictor(classifier, query, usage, tolerance).predict(task, training)


@one_thread
@path_memory()
def curve(
    task: Task,
    training: Training,
    *,
    over: str = "alpha1",
    values: Iterable[float],
    classifier: str = "attention",
    query: Query | None = None,
    at: Task | None = None,
    at_sharpness: float | str | None = None,
    recalibrate: bool = False,
    tolerance: float = 1e-4,
) -> Curve[Prediction]:
    """Predict along a path: one field of the task, the training or the query takes many values.

    Each problem starts from the solution of the one before, so that a curve costs little more than
    a few points.

    Parameters
    ----------
    over : str
        A numeric field of `Task` or `Training`, or of `Query` if a query is given; "at_length",
        "at_strength" and so on for a field of the task at test time, or "at_sharpness". What is
        tested in many ways is trained once. With a given query, fields that only a query to be
        learnt depends on are refused; a classifier without a query has a flat line over them.
    values : iterable of float
        Its values, in the order in which predictions are returned.
    task, training, classifier, query, at, at_sharpness, recalibrate, tolerance
        As in `predict`; at_sharpness is refused where it varies.

    Returns
    -------
    Curve of Prediction

    Examples
    --------
    >>> from sparsetoken import Task, Training, curve
    >>> task = Task(length=10, informative=1, strength=5.0)
    >>> training = Training(alpha0=4.0, alpha1=2.0, query_step=20.0)
    >>> errors = curve(task, training, values=[1.0, 2.0, 4.0], classifier="pooled")
    >>> [round(error, 2) for error in errors.column("test_error")]
    [0.34, 0.32, 0.28]
    """
    path = Predictor(classifier, query, Usage(at, at_sharpness, recalibrate), tolerance)
    validation.instance("task", task, Task)
    validation.instance("training", training, Training)
    validation.instance("query", query, Query, optional=True)
    validation.instance("over", over, str)
    if at_sharpness is not None and over == _AT + "sharpness":
        raise ParameterError("at_sharpness", at_sharpness, "None: it varies")
    if query is not None and not over.startswith(_AT):
        check_matters(over, prediction_fields(classifier, query))
    points, predictions = [], []
    # One by one: they may come as the caller makes them.
    for value in validation.several("values", values, "numbers"):
        points.append(value)
        path.position = validation.real("values", value, infinite=True)
        if over.startswith(_AT):
            path.usage = path.usage.varied(over.removeprefix(_AT), value, task)
            predictions.append(path.predict(task, training))
        else:
            varied_task, varied_training, path.query = vary(over, value, task, training, query)
            predictions.append(path.predict(varied_task, varied_training))
    fixed = {"classifier": classifier, **task.to_dict(), **training.to_dict()}
    if query is not None:
        fixed |= query.to_dict()
    fixed |= settings_of_test(at, at_sharpness, recalibrate)
    fixed.pop(over, None)
    return Curve(over, tuple(points), tuple(predictions), fixed)


def settings_of_test(
    at: Task | None, at_sharpness: float | str | None, recalibrate: bool
) -> dict[str, Any]:
    """Return what is set for the test alone, by the names that the command line gives it."""
    task = {} if at is None else {f"at_{name}": value for name, value in at.to_dict().items()}
    sharpness = {} if at_sharpness is None else {"at_sharpness": at_sharpness}
    return {**task, **sharpness, **({"recalibrate": True} if recalibrate else {})}


class Predictor:
    """Predictions one after another, each starting from the last.

    `usage` may change between two predictions: what was trained last is kept. `position` says where
    on a path the next problem lies, so that solutions can be followed along it; `expected` says where
    its solution may be, in the variables of `solution`, to a caller who knows more than the path.
    """

    def __init__(
        self, classifier: str, query: Query | None, usage: Usage, tolerance: float
    ) -> None:
        self.classifier = classifier
        self.query = query
        self.usage = usage
        self.tolerance = validation.real("tolerance", tolerance, low=0, inclusive=False)
        self.position: float | None = None
        self.expected: Array | None = None
        self._state: LimitState | None = None
        self._trails: dict[int, Trail] = {}
        self._trained: dict[int, LimitReadout] = {}
        self._trained_for: Any = None
        # By length at test time: what the best sharpness was for, and that.
        self._best: dict[int, tuple[Any, float]] = {}
        # As powers of two, by way of use, what the last law at test time would have needed.
        self._needed: dict[Any, int] = {}
        self._accuracy = self.tolerance
        looser = int(np.log2(max(self.tolerance / 1e-4, 1.0)) / _FASTEST)
        least = LEAST_SIZE if self.tolerance < _ROUGH else ROUGH_SIZE
        self._first_size = max(least, FIRST_SIZE - looser)

    @property
    def law(self) -> ClassifierLaw:
        """How the classifier's features are distributed; by name, so that a path can be pickled."""
        return classifier_law(self.classifier)

    @property
    def solution(self) -> Array | None:
        """Variables of the last solution that change smoothly with the problem, None without any."""
        return on_path(self._state) if self._state is not None else None

    def predict(self, task: Task, training: Training) -> Prediction:
        """Predict, refining the law until the tolerance is met."""
        validation.instance("training", training, Training)
        query, learnt = chosen_query(task, training, self.classifier, self.query)
        at = self.usage.at
        if at is not None and self.law.fixed_length and at.length != task.length:
            accepted = f"{task.length}, the training length, for the {self.classifier} classifier"
            raise ParameterError("at.length", at.length, accepted)
        self.usage.check(self.law.takes_query, self.classifier)
        way = (self.usage.sharpness, self.usage.recalibrate)
        size = self._needed.get(way, self._first_size) if self.usage.differs else self._first_size
        errors: dict[int, float] = {}
        while True:
            found = self._predict_at(task, training, query, size)
            prediction = replace(found, learnt=learnt)
            errors[size] = error = prediction.uncertainty.test_error
            solution = prediction.solution
            # More points do not make an answer unique.
            hopeless = solution.status is Status.NOT_UNIQUE or not solution.converged
            settled = error <= self.tolerance or hopeless
            if settled or self.law.exact:
                if error <= self.tolerance:
                    needed = size + _growth(errors, self.tolerance)
                    self._needed[way] = max(self._first_size, needed)
                return prediction
            if size == LAST_SIZE:
                return replace(prediction, solution=self._short_of_tolerance(prediction))
            size = min(LAST_SIZE, size + _growth(errors, self.tolerance))

    def _short_of_tolerance(self, prediction: Prediction) -> Solution:
        reached = f"tolerance {self.tolerance:g}, reached {prediction.uncertainty.test_error:.2g}"
        before = prediction.solution
        if before.status is Status.CONVERGED:
            return replace(before, status=Status.TOLERANCE_NOT_REACHED, detail=reached)
        return replace(before, detail=f"{before.detail}; {reached}")

    def _predict_at(
        self, task: Task, training: Training, query: Query | None, size: int
    ) -> Prediction:
        readout = self._train(task, training, query, size)
        usage, at = self.usage, self.usage.at or task
        used = query
        # Points of its own keep the law at test time independent of the errors of training's.
        fresh = usage.differs
        make = partial(feature_law, at, self.classifier, seed=1 if fresh else 0, fresh=fresh)
        if usage.sharpness is not None and query is not None:
            used = query.replace(sharpness=self._sharpness(readout, query, make))
        law = partial(make, used, log2_points=size)
        tested = recalibrated(readout, law()) if usage.recalibrate else readout
        error = misclassification(tested, law())
        rough = error.numerical > self.tolerance / _NUMERICAL_PART and self._accuracy > FINEST
        if rough and readout.solution.converged:
            # More points of the law do not help where quadrature and tables decide.
            self._accuracy = max(FINEST, self._accuracy / 20)
            self._trained.clear()
            return self._predict_at(task, training, query, size)
        rare = error.value + error.bar < min(self.tolerance, _RARE) or not error.seen
        if rare and readout.solution.converged:
            error = self._rare_error(tested, at, used, error)
        return replace(
            prediction_of(readout, error, query, at, self.classifier),
            at_sharpness=used.sharpness if used is not None and used is not query else None,
            at_bias=float(tested.weights[BIAS]) if usage.recalibrate else None,
            _tested=Tested(
                law,
                tested.weights,
                tested.replicate_weights,
                tested.weights_error,
                tested.alternatives,
            ),
        )

    def _sharpness(
        self, readout: LimitReadout, query: Query, make: Callable[..., FeatureLaw]
    ) -> float:
        """Return the sharpness at test time; the best one is looked for once, on few points."""
        wanted, recalibrate = self.usage.sharpness, self.usage.recalibrate
        if not isinstance(wanted, str):
            assert wanted is not None
            return wanted
        key = (self._trained_for, self.usage)
        length = (self.usage.at or self._trained_for[0]).length
        near: float | None = None
        if self._best:
            nearest = min(self._best, key=lambda other: abs(np.log(other / length)))
            known, near = self._best[nearest]
            if known == key:
                return near
        found = best_sharpness(
            lambda other, points: make(other, log2_points=points),
            readout.weights,
            query,
            recalibrate=recalibrate,
            near=near,
        )
        self._best[length] = (key, found)
        return found

    def _train(
        self, task: Task, training: Training, query: Query | None, size: int
    ) -> LimitReadout:
        """Return the readout for a law with that many points; those of the last problem are kept."""
        if self._trained_for != (task, training, query):
            self._trained_for, self._trained = (task, training, query), {}
        if size in self._trained:
            return self._trained[size]
        trained = training_law(task, training, self.classifier, self.query, query)
        law, loss = trained(size, 0), get_loss(training.loss)
        trail = self._trails.setdefault(size, Trail())
        known = self.expected
        guess = trail.ahead(self.position) if known is None else from_path(known)

        def solved(coarse: FeatureLaw) -> LimitReadout:
            settings = (loss, training.alpha1, training.ridge, self._state, self._accuracy)
            return limit_readout((coarse, law), *settings, guess)

        readout = solved(law if law.replicates == 1 else law.compressed)
        if not readout.solution.converged and law.replicates > 1:
            # Near a threshold cells are too wide, and fewer points of their own do better.
            readout = solved(trained(min(max(size - _COARSER, LEAST_SIZE), _LAST_COARSE), 2))
        if readout.solution.converged:
            self._state = readout.state
            trail.add(self.position, readout.state)
        self._trained[size] = readout
        return readout

    def _rare_error(
        self, readout: LimitReadout, task: Task, query: Query | None, error: Misclassification
    ) -> Misclassification:
        """Return the test error to a relative accuracy, on points that reach into the tails."""
        if self.law.make_rare is None:
            return error
        for size in _RARE_SIZES:
            error = misclassification(readout, self.law.make_rare(task, query, size, 3))
            if error.bar <= _RARE_ACCURACY * error.value:
                break
        return error


def _growth(errors: dict[int, float], tolerance: float) -> int:
    """Return how many powers of two more points it takes, from the errors by power of two so far.

    At least one more where the last error is too large, and more if that was not enough before.
    """
    first, last = min(errors), max(errors)
    rate = _FASTEST
    if last > first:
        fell = np.log2(errors[first] / errors[last]) / (last - first)
        rate = float(np.clip(fell, _SLOWEST, _FASTEST))
    excess = np.clip(np.log2(errors[last] / tolerance), -LAST_SIZE, LAST_SIZE)
    growth = int(np.ceil(excess / rate))
    if len(errors) == 1:
        growth = min(growth, _FIRST_GROWTH)
    return max(1, len(errors) - 1, growth) if excess > 0 else growth
