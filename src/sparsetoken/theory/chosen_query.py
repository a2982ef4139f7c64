"""Which query a classifier gets, given or learnt, and which settings matter for it."""

from collections.abc import Callable
from dataclasses import fields

from sparsetoken import validation
from sparsetoken.task import Query, Task, Training, check_reuse
from sparsetoken.theory.alignment import Alignment, learnt_alignment
from sparsetoken.theory.feature_law import FeatureLaw
from sparsetoken.theory.laws import classifier_law, feature_law
from sparsetoken.validation import ParameterError

__all__ = [
    "LEARNING",
    "chosen_query",
    "prediction_fields",
    "query_fields",
    "refuse_unread",
    "reuses",
    "training_law",
]

# What a query to be learnt depends on, of a training, and nothing else does.
LEARNING = ("alpha0", "readout_step", "bias_step", "query_step", "inverse_temperature")


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
