"""Test error, training loss and training error of a trained classifier, with error bars."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from sparsetoken import validation
from sparsetoken.arrays import Array
from sparsetoken.losses import get_loss
from sparsetoken.numerics.memory import path_memory
from sparsetoken.numerics.quadrature import normal_density
from sparsetoken.numerics.solution import Solution, Status
from sparsetoken.numerics.threads import one_thread
from sparsetoken.records import (
    FEW_POSITIVES,
    LOCALISATION,
    METRICS,
    RANKING,
    UNCERTAINTY,
    Curve,
    Record,
)
from sparsetoken.task import Query, Task, Training, check_matters, check_reuse, vary
from sparsetoken.theory.alignment import Alignment, learnt_alignment
from sparsetoken.theory.feature_law import FeatureLaw, score_law
from sparsetoken.theory.laws import ClassifierLaw, classifier_law
from sparsetoken.theory.limit import FINEST, limit_readout
from sparsetoken.theory.localisation import Localisation
from sparsetoken.theory.path import Trail, from_path, on_path
from sparsetoken.theory.ranking import Ranked, Ranking
from sparsetoken.theory.replicates import replicate_error
from sparsetoken.theory.trained_readout import LimitReadout, LimitState, misclassified
from sparsetoken.theory.usage import BIAS, Tested, Usage, best_sharpness, recalibrated
from sparsetoken.validation import ParameterError

__all__ = [
    "OrderParameters",
    "Prediction",
    "Uncertainty",
    "chosen_query",
    "curve",
    "feature_law",
    "known_metrics",
    "predict",
    "reuses",
    "training_law",
]

# What a query to be learnt depends on, of a training, and nothing else does.
LEARNING = ("alpha0", "readout_step", "bias_step", "query_step", "inverse_temperature")

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

# Where quadrature and tables make more than one such part of the wanted error, they are made finer.
_NUMERICAL_PART = 3

# An error below the tolerance, and below this, is wanted to a relative accuracy, from so many points
# of a law that reaches into the tails; if fewer than these carry it, others may be missing.
_RARE = 1e-3
_RARE_ACCURACY = 0.05
_RARE_SIZES = range(9, 13)
_FEW_POINTS = 30


@dataclass(frozen=True)
class OrderParameters(Record):
    """The few numbers that describe the trained readout w (docs/theory.md, section 5).

    Attributes
    ----------
    along : μ_q, the part of w along the query; 0 where the law has a single coordinate
    across : μ_e, along the part of the signal that is orthogonal to the query
    bias : b
    rest : ν, the norm of the rest of w
    susceptibility : χ; infinite where the training loss is zero at ridge 0
    further : the parts along a law's coordinates from the third on, which no built-in law has
    """

    along: float
    across: float
    bias: float
    rest: float
    susceptibility: float
    further: tuple[float, ...] = field(default=(), metadata={"hidden": True})


@dataclass(frozen=True)
class Uncertainty:
    """Numerical error bars: quadrature, the law of the features, and the solver together.

    All are infinite for a solution that did not converge.
    """

    test_error: float
    train_loss: float
    train_error: float
    margin: float | None = None


@dataclass(frozen=True)
class Prediction(Ranked, Record):
    """What training gives, in the limit of high dimension.

    Attributes
    ----------
    test_error : float
    train_loss : float
        Mean loss on the training data, without the ridge term.
    train_error : float
    margin : float or None
        Margin of the unit-norm readout, if ridge = 0 and the training data are separable.
    query : Query or None
        The query that was used; None for classifiers without one.
    learnt : Alignment or None
        How the query was learnt; None if it was given.
    order_parameters : OrderParameters
    uncertainty : Uncertainty
    solution : Solution
    at_sharpness, at_bias : float or None
        Sharpness and bias at test time, if they are not those of training.
    at : Task
        The task at test time.

    Examples
    --------
    >>> from sparsetoken import Task, Training, predict
    >>> found = predict(Task(10, 1, 5.0), Training(4.0, 2.0, query_step=20.0))
    >>> round(found.test_error, 3), round(found.auc, 3)
    (0.038, 0.994)
    """

    test_error: float
    train_loss: float
    train_error: float
    margin: float | None
    query: Query | None = field(metadata={"merge": True})
    learnt: Alignment | None = field(metadata={"merge": True})
    order_parameters: OrderParameters
    uncertainty: Uncertainty
    solution: Solution
    at_sharpness: float | None = field(default=None, metadata={"merge": True})
    at_bias: float | None = field(default=None, metadata={"merge": True})
    at: Task = field(kw_only=True, repr=False, metadata={"hidden": True})
    _classifier: str = field(kw_only=True, repr=False, metadata={"hidden": True})
    _tested: Tested | None = field(
        default=None, kw_only=True, repr=False, compare=False, metadata={"hidden": True}
    )

    @cached_property
    @path_memory()
    def ranking(self) -> Ranking:
        """How well the scores rank fresh sequences.

        Examples
        --------
        >>> from sparsetoken import Query, Task, Training, predict
        >>> rare = Task(10, 1, 5.0, positive_rate=0.1)
        >>> found = predict(rare, Training(4.0, 2.0), classifier="pooled")
        >>> round(found.ranking.auc, 2)
        0.71
        """
        assert self._tested is not None
        return self._tested.ranking()

    @cached_property
    def localisation(self) -> Localisation | None:
        """Whether attention looks at the right tokens.

        None for classifiers without a query, and where the classifier's law does not say.

        Examples
        --------
        >>> from sparsetoken import Query, Task, Training, predict
        >>> found = predict(Task(10, 1, 5.0), Training(4.0, 2.0), query=Query(0.9, 3.0))
        >>> round(found.localisation.hit_rate, 3)
        0.994
        """
        localise = classifier_law(self._classifier).localise
        if self.query is None or localise is None:
            return None
        sharper = {} if self.at_sharpness is None else {"sharpness": self.at_sharpness}
        return localise(self.at, self.query.replace(**sharper))

    def metrics(self, *names: str) -> dict[str, float]:
        """Return quantities of `METRICS` by name, each with its error bar under name_uncertainty.

        Parameters
        ----------
        *names : str
            Of "auc", "average_precision", "balanced_error", "attended_mass" and "hit_rate".

        Returns
        -------
        dict

        Examples
        --------
        >>> from sparsetoken import Task, Training, predict
        >>> found = predict(Task(10, 1, 5.0), Training(8.0, 2.0, query_step=20.0))
        >>> sorted(found.metrics("auc", "hit_rate"))
        ['auc', 'auc_uncertainty', 'hit_rate', 'hit_rate_uncertainty']
        """
        flat: dict[str, float] = {}
        for name in names:
            of_tokens = validation.choice("metric", name, METRICS) in LOCALISATION
            source = self.localisation if of_tokens else self.ranking
            if source is None:
                accepted = "a quantity of scores (" + ", ".join(RANKING) + "): the law of the "
                accepted += f"{self._classifier} classifier localises no tokens"
                raise ParameterError("metric", name, accepted)
            bar = source.uncertainty[name] if self.solution.converged else np.inf
            flat |= {name: getattr(source, name), name + UNCERTAINTY: bar}
        return flat

    def to_dict(self, *metrics: str) -> dict[str, Any]:
        """Return the values by name; with the AUC, where positives are rarer than 20 %.

        Parameters
        ----------
        metrics : str
            Names of `metrics` to return too, after the test error.

        Returns
        -------
        dict

        Examples
        --------
        >>> from sparsetoken import Task, Training, predict
        >>> found = predict(Task(10, 1, 5.0), Training(4.0, 2.0), classifier="pooled")
        >>> round(found.to_dict()["test_error"], 3)
        0.319
        >>> list(found.to_dict("auc"))[:4]
        ['test_error', 'test_error_uncertainty', 'auc', 'auc_uncertainty']
        """
        flat = super().to_dict()
        if self.at.positive_rate < FEW_POSITIVES:
            metrics = (*metrics, "auc")
        first = {name: flat.pop(name) for name in ("test_error", "test_error" + UNCERTAINTY)}
        return {**first, **self.metrics(*metrics), **flat}


# Before a field of the task at test time, where that varies.
_AT = "at_"


def known_metrics(prediction: Prediction, names: Iterable[str]) -> list[str]:
    """Return those of the `METRICS` that theory can tell of the prediction's classifier."""
    return [
        name for name in names if name not in LOCALISATION or prediction.localisation is not None
    ]


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
    """Predict the outcome of training a classifier on a task.

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
    fixed.pop(over, None)
    return Curve(over, tuple(points), tuple(predictions), fixed)


def feature_law(
    task: Task,
    classifier: str,
    query: Query | None,
    log2_points: int = FIRST_SIZE,
    seed: int = 0,
    *,
    fresh: bool = False,
) -> FeatureLaw:
    """Return the law of a classifier's features; that of `fresh` ones is not for training."""
    found = classifier_law(classifier)
    if query is None and found.takes_query:
        raise ParameterError("query", None, f"a Query for the {classifier} classifier")
    make = found.make_fresh if fresh and found.make_fresh is not None else found.make
    law = make(task, query, log2_points, seed)
    if not law.is_consistent:
        accepted = "a classifier whose law has one length, labels of ±1 and weights that sum to one"
        raise ParameterError("classifier", classifier, accepted)
    return law


def chosen_query(
    task: Task, training: Training | None, classifier: str, query: Query | None
) -> tuple[Query | None, Alignment | None]:
    """Return the given query, or the learnt one with how it was learnt, or None without one."""
    validation.instance("task", task, Task)
    validation.instance("training", training, Training, optional=True)
    validation.instance("query", query, Query, optional=True)
    if not classifier_law(classifier).takes_query:
        if query is not None:
            accepted = f"None for the {classifier} classifier, which takes no query"
            raise ParameterError("query", query, accepted)
        return None, None
    if training is not None:
        check_reuse(training.reuse, query)
    if query is not None:
        return query, None
    if training is None:
        raise ParameterError("query", None, "a Query, or a Training to learn it with")
    learnt = learnt_alignment(task, training)
    return learnt.query, learnt


def prediction_fields(classifier: str, query: Query | None) -> tuple[str, ...]:
    """Return the numeric fields of the settings that a prediction depends on."""
    task = tuple(item.name for item in fields(Task))
    return (*task, "alpha1", "ridge", *query_fields(classifier, query))


def query_fields(classifier: str, query: Query | None) -> tuple[str, ...]:
    """Return the numeric fields that the query depends on, of a training or of the given query."""
    if not classifier_law(classifier).takes_query:
        return ()
    return LEARNING if query is None else tuple(item.name for item in fields(Query))


def refuse_unread(training: Training | None, classifier: str, query: Query | None) -> None:
    """Raise a ParameterError if a training is given that only a query to be learnt would read."""
    if training is None or (query is None and classifier_law(classifier).takes_query):
        return
    reason = "the query is given" if query is not None else f"{classifier} has no query to learn"
    raise ParameterError("training", training, f"None: {reason}, and nothing else reads it")


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
        error = _test_error(tested, law())
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
            _summary(readout, error, query, at, self.classifier),
            at_sharpness=used.sharpness if used is not None and used is not query else None,
            at_bias=float(tested.weights[BIAS]) if usage.recalibrate else None,
            _tested=Tested(law, tested.weights, tested.replicate_weights, tested.weights_error),
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
        self, readout: LimitReadout, task: Task, query: Query | None, error: "_TestError"
    ) -> "_TestError":
        """Return the test error to a relative accuracy, on points that reach into the tails."""
        if self.law.make_rare is None:
            return error
        for size in _RARE_SIZES:
            error = _test_error(readout, self.law.make_rare(task, query, size, 3))
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
    return max(1, len(errors) - 1, growth) if excess > 0 else growth


def reuses(training: Training, classifier: str, given: Query | None) -> bool:
    """Return whether the readout trains on samples that its query was learnt from."""
    return training.reuse and classifier_law(classifier).takes_query and given is None


def training_law(
    task: Task,
    training: Training,
    classifier: str,
    given: Query | None = None,
    chosen: Query | None = None,
) -> Callable[[int, int], FeatureLaw]:
    """Return the function of (log2_points, seed) that gives the law of the training features.

    It differs from that of fresh features if the query was learnt from the same samples; a query
    that is `given` was not. The one that `chosen_query` returns may be passed on, to spare its work.
    """
    if not reuses(training, classifier, given):
        query = chosen or chosen_query(task, training, classifier, given)[0]
        return lambda size, seed: feature_law(task, classifier, query, size, seed)
    reused = classifier_law(classifier).reused
    if reused is None:
        accepted = f"False for the {classifier} classifier, whose law on reused data is not known"
        raise ParameterError("reuse", True, accepted)
    return lambda size, seed: reused(task, training, size, seed)


@dataclass(frozen=True)
class _TestError:
    """A test error, its bar, the part of it that is not the law's, and whether enough points err."""

    value: float
    bar: float
    numerical: float
    seen: bool


def _test_error(readout: LimitReadout, tested: FeatureLaw) -> _TestError:
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
    seen = exact or value**2 >= _FEW_POINTS * float(shares @ shares)
    return _TestError(value, bar if seen else max(bar, value), numerical, seen)


def _summary(
    readout: LimitReadout, error: _TestError, query: Query | None, at: Task, classifier: str
) -> Prediction:
    margin_error = None
    if readout.replicate_margins is not None:
        margin_error = replicate_error(readout.replicate_margins) + readout.solution.residual
    *mean, bias, rest = map(float, readout.weights)
    # Classifiers without a query have a coordinate along the signal only.
    along, across, *further = mean if len(mean) > 1 else (0.0, *mean, 0.0)[:2]
    order = OrderParameters(along, across, bias, rest, readout.susceptibility, tuple(further))
    uncertainty = Uncertainty(
        test_error=error.bar,
        train_loss=replicate_error(readout.replicate_train_loss) + readout.train_loss_error,
        train_error=replicate_error(readout.replicate_train_error)
        + error.numerical
        + readout.train_error_range,
        margin=margin_error,
    )
    if not readout.solution.converged:
        unknown = None if margin_error is None else np.inf
        uncertainty = Uncertainty(np.inf, np.inf, np.inf, unknown)
    return Prediction(
        test_error=error.value,
        train_loss=readout.train_loss,
        train_error=readout.train_error,
        margin=readout.margin,
        query=query,
        learnt=None,
        order_parameters=order,
        uncertainty=uncertainty,
        solution=_read_with_care(readout.solution) if not error.seen else readout.solution,
        at=at,
        _classifier=classifier,
    )


def _read_with_care(solution: Solution) -> Solution:
    """Return the solution with a status that says that few points of the law carry the error."""
    if solution.status is not Status.CONVERGED:
        return solution
    detail = f"fewer than {_FEW_POINTS} points of the law carry the test error"
    return replace(solution, status=Status.BEYOND_REACH, detail=detail)


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
