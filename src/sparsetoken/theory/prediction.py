"""Test error, training loss and training error of a trained classifier, with error bars."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from sparsetoken import validation
from sparsetoken.arrays import Array
from sparsetoken.losses import get_loss
from sparsetoken.numerics.quadrature import normal_density
from sparsetoken.numerics.solution import Solution, Status
from sparsetoken.numerics.threads import one_thread
from sparsetoken.records import Curve, Record
from sparsetoken.task import Query, Task, Training, vary
from sparsetoken.theory.alignment import Alignment, learnt_alignment
from sparsetoken.theory.laws import FeatureLaw, classifier_law, score_law
from sparsetoken.theory.limit import LimitReadout, State, limit_readout, misclassified
from sparsetoken.theory.replicates import replicate_error
from sparsetoken.validation import ParameterError

__all__ = [
    "OrderParameters",
    "Prediction",
    "Uncertainty",
    "chosen_query",
    "curve",
    "feature_law",
    "predict",
]

# Points a class and replicate, as powers of two: where refining begins and ends, and how many
# are enough to solve the equations before the correction on all points: so many powers fewer, and
# no more than these.
FIRST_SIZE = 10
LAST_SIZE = 14
COARSER = 3
LAST_COARSE = 9

# An error below the tolerance, and below this, is wanted to a relative accuracy, from so many points
# of a law that reaches into the tails; if fewer than these carry it, others may be missing.
RARE = 1e-3
RARE_ACCURACY = 0.05
RARE_SIZES = range(9, 13)
FEW_POINTS = 30


@dataclass(frozen=True)
class OrderParameters:
    """The few numbers that describe the trained readout w (docs/theory.md, section 5).

    Attributes
    ----------
    along : μ_q, the part of w along the query
    across : μ_e, along the part of the signal that is orthogonal to the query
    bias : b
    rest : ν, the norm of the rest of w
    susceptibility : χ; infinite where the training loss is zero at ridge 0
    """

    along: float
    across: float
    bias: float
    rest: float
    susceptibility: float


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
class Prediction(Record):
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


@one_thread
def predict(
    task: Task,
    training: Training,
    *,
    classifier: str = "attention",
    query: Query | None = None,
    at: Task | None = None,
    tolerance: float = 1e-4,
) -> Prediction:
    """Predict the outcome of training a classifier on a task.

    Parameters
    ----------
    task, training : Task, Training
    classifier : str
        "attention", "pooled", "vectorised", or another entry of `theory.laws.LAWS`.
    query : Query, optional
        A given query instead of the one that `align` predicts; for attention.
    at : Task, optional
        Test on this task instead: sequences of another length, sparsity, strength or rate.
        The direction of the signal stays the same.
    tolerance : float
        Wanted numerical error of the test error. If it cannot be reached, the uncertainty and the
        status say so. A test error below it is given to about 5 % of its value.
    """
    return _Path(classifier, query, at, tolerance).predict(task, training)


@one_thread
def curve(
    task: Task,
    training: Training,
    *,
    over: str = "alpha1",
    values: Iterable[float],
    classifier: str = "attention",
    query: Query | None = None,
    at: Task | None = None,
    tolerance: float = 1e-4,
) -> Curve[Prediction]:
    """Predict along a path: one field of the task, the training or the query takes many values.

    Each problem starts from the solution of the one before, so that a curve costs little more than
    a few points.

    Parameters
    ----------
    over : str
        A numeric field of `Task` or `Training`, or of `Query` if a query is given.
    values : iterable of float
        Its values, in the order in which predictions are returned.
    """
    path = _Path(classifier, query, at, tolerance)
    validation.instance("task", task, Task)
    validation.instance("training", training, Training)
    points, predictions = [], []
    for value in values:  # one by one: they may come as the caller makes them
        points.append(value)
        varied_task, varied_training, path.query = vary(over, value, task, training, query)
        predictions.append(path.predict(varied_task, varied_training))
    fixed = {"classifier": classifier, **task.to_dict(), **training.to_dict()}
    if query is not None:
        fixed |= query.to_dict()
    fixed.pop(over)
    return Curve(over, tuple(points), tuple(predictions), fixed)


def feature_law(
    task: Task, classifier: str, query: Query | None, log2_points: int = FIRST_SIZE, seed: int = 0
) -> FeatureLaw:
    """Return the law of a classifier's features."""
    found = classifier_law(classifier)
    if query is None and found.takes_query:
        raise ParameterError("query", None, f"a Query for the {classifier} classifier")
    return found.make(task, query, log2_points, seed)


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
    if query is not None:
        return query, None
    if training is None:
        raise ParameterError("query", None, "a Query, or a Training to learn it with")
    learnt = learnt_alignment(task, training)
    return learnt.query, learnt


class _Path:
    """Predictions one after another, each starting from the last."""

    def __init__(
        self, classifier: str, query: Query | None, at: Task | None, tolerance: float
    ) -> None:
        self.law = classifier_law(classifier)
        self.classifier = classifier
        self.query = query
        validation.instance("at", at, Task, optional=True)
        self.at = at
        self.tolerance = validation.real("tolerance", tolerance, low=0, inclusive=False)
        self._state: State | None = None
        self._size = FIRST_SIZE

    def predict(self, task: Task, training: Training) -> Prediction:
        """Predict, refining the law until the tolerance is met."""
        validation.instance("training", training, Training)
        query, learnt = chosen_query(task, training, self.classifier, self.query)
        if self.at is not None and self.law.fixed_length and self.at.length != task.length:
            accepted = f"{task.length}, the training length, for the {self.classifier} classifier"
            raise ParameterError("at.length", self.at.length, accepted)
        while True:
            found = self._predict_at(task, training, query, self._size)
            prediction = replace(found, learnt=learnt)
            error = prediction.uncertainty.test_error
            settled = error <= self.tolerance or not prediction.solution.converged
            if settled or self.law.exact:
                return prediction
            if self._size == LAST_SIZE:
                return replace(prediction, solution=self._short_of_tolerance(prediction))
            # The error of the law falls about as points^-0.8; where it took many points already
            # it falls more slowly.
            growth = int(np.ceil(1.25 * np.log2(error / self.tolerance)))
            self._size = min(LAST_SIZE, self._size + max(1, self._size - FIRST_SIZE, growth))

    def _short_of_tolerance(self, prediction: Prediction) -> Solution:
        reached = f"tolerance {self.tolerance:g}, reached {prediction.uncertainty.test_error:.2g}"
        before = prediction.solution
        if before.status is Status.CONVERGED:
            return replace(before, status=Status.TOLERANCE_NOT_REACHED, detail=reached)
        return replace(before, detail=f"{before.detail}; {reached}")

    def _predict_at(
        self, task: Task, training: Training, query: Query | None, size: int
    ) -> Prediction:
        law = feature_law(task, self.classifier, query, size)
        coarse = law
        if law.replicates > 1:
            coarse_size = min(size - COARSER, LAST_COARSE)
            coarse = feature_law(task, self.classifier, query, coarse_size, seed=2)
        loss = get_loss(training.loss)
        readout = limit_readout((coarse, law), loss, training.alpha1, training.ridge, self._state)
        if readout.solution.converged:
            self._state = readout.state
        tested = law
        if self.at is not None:
            tested = feature_law(self.at, self.classifier, query, size, seed=1)
        error = _test_error(readout, tested)
        if error.value + error.bar < min(self.tolerance, RARE) and readout.solution.converged:
            error = self._rare_error(readout, task if self.at is None else self.at, query, error)
        return _summary(readout, error, query)

    def _rare_error(
        self, readout: LimitReadout, task: Task, query: Query | None, error: "_TestError"
    ) -> "_TestError":
        """Return the test error to a relative accuracy, on points that reach into the tails."""
        if self.law.make_rare is None:
            return error
        for size in RARE_SIZES:
            error = _test_error(readout, self.law.make_rare(task, query, size, 3))
            if error.bar <= RARE_ACCURACY * error.value:
                break
        return error


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
    seen = exact or value**2 >= FEW_POINTS * float(shares @ shares)
    return _TestError(value, bar if seen else max(bar, value), numerical, seen)


def _summary(readout: LimitReadout, error: _TestError, query: Query | None) -> Prediction:
    margin_error = None
    if readout.replicate_margins is not None:
        margin_error = replicate_error(readout.replicate_margins) + readout.solution.residual
    *mean, bias, rest = map(float, readout.weights)
    # Classifiers without a query have a coordinate along the signal only.
    along, across = mean if len(mean) == 2 else (0.0, *mean)
    uncertainty = Uncertainty(
        test_error=error.bar,
        train_loss=replicate_error(readout.replicate_train_loss) + readout.train_loss_error,
        train_error=replicate_error(readout.replicate_train_error) + error.numerical,
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
        order_parameters=OrderParameters(along, across, bias, rest, readout.susceptibility),
        uncertainty=uncertainty,
        solution=_read_with_care(readout.solution) if not error.seen else readout.solution,
    )


def _read_with_care(solution: Solution) -> Solution:
    """Return the solution with a status that says that few points of the law carry the error."""
    if solution.status is not Status.CONVERGED:
        return solution
    detail = f"fewer than {FEW_POINTS} points of the law carry the test error"
    return replace(solution, status=Status.BEYOND_REACH, detail=detail)


def _sensitivity(law: FeatureLaw, weights: Array) -> Array:
    """Return |∂ test error/∂ (μ_1 … μ_k, b, ν)|."""
    scores = score_law(law, weights)
    ratio = -scores.label * scores.mean / scores.spread
    density = scores.weight * normal_density(ratio)
    direct = -scores.label * density / scores.spread
    noisy = weights * np.array([*law.noisy, False, True])
    shrink = float(density @ ratio) / float(noisy @ noisy)
    means = np.append(direct @ law.coordinates, [direct.sum(), 0.0])
    return np.asarray(np.abs(means - shrink * noisy))
