"""What theory predicts of a trained classifier: errors, losses and scores, with error bars."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from sparsetoken import validation
from sparsetoken.numerics.memory import path_memory
from sparsetoken.numerics.solution import Solution, Status
from sparsetoken.records import FEW_POSITIVES, LOCALISATION, METRICS, RANKING, UNCERTAINTY, Record
from sparsetoken.task import Query, Task
from sparsetoken.theory.alignment import Alignment
from sparsetoken.theory.laws import classifier_law
from sparsetoken.theory.localisation import Localisation
from sparsetoken.theory.misclassification import ENOUGH_POINTS, Misclassification
from sparsetoken.theory.ranking import Ranked, Ranking
from sparsetoken.theory.replicates import replicate_error
from sparsetoken.theory.trained_readout import LimitReadout
from sparsetoken.theory.usage import Tested
from sparsetoken.validation import ParameterError

__all__ = ["OrderParameters", "Prediction", "Uncertainty", "known_metrics", "prediction_of"]


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
        Sharpness and bias at test time, if they are not those of training. Where the best bias
        gives all sequences one label it lies far beyond all scores, anywhere there.
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


def known_metrics(prediction: Prediction, names: Iterable[str]) -> list[str]:
    """Return those of the `METRICS` that theory can tell of the prediction's classifier."""
    return [
        name for name in names if name not in LOCALISATION or prediction.localisation is not None
    ]


def prediction_of(
    readout: LimitReadout, error: Misclassification, query: Query | None, at: Task, classifier: str
) -> Prediction:
    """Return what a readout and its test error say, each number with its bar."""
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
    detail = f"fewer than {ENOUGH_POINTS} points of the law carry the test error"
    return replace(solution, status=Status.BEYOND_REACH, detail=detail)
