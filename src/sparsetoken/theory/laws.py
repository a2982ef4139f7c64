"""What theory knows of each classifier: the law of its features, by name.

For the pooled and vectorised classifiers the law has one coordinate, along the signal, and one point a
class for each number of informative tokens. Attention's is drawn.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from sparsetoken import validation
from sparsetoken.extensions import extensible
from sparsetoken.task import Query, Task, Training
from sparsetoken.theory.attention_law import attention_law
from sparsetoken.theory.feature_law import FeatureLaw
from sparsetoken.theory.localisation import Localisation, localise
from sparsetoken.theory.reuse import reused_law
from sparsetoken.validation import ParameterError

__all__ = [
    "LAWS",
    "ClassifierLaw",
    "FeatureLaw",
    "classifier_law",
    "feature_law",
    "pooled_law",
    "vectorised_law",
]


def pooled_law(task: Task) -> FeatureLaw:
    """Return the law of pooled features: S = 1/√L, c_e = θR/L for positives."""
    return _few_points(task, task.strength / task.length, 1 / np.sqrt(task.length))


def vectorised_law(task: Task) -> FeatureLaw:
    """Return the law of vectorised features in dimension L d: S = 1, c_e = θR/√L for positives."""
    shift = task.strength / np.sqrt(task.length)
    return _few_points(task, shift, 1.0, dimension_ratio=float(task.length))


def _few_points(task: Task, shift: float, scale: float, dimension_ratio: float = 1.0) -> FeatureLaw:
    """Return a point for each number of informative tokens, `shift` times it, and one at 0."""
    known = task.counts
    size = len(known.values) + 1
    return FeatureLaw(
        coordinates=shift * np.append(known.values, 0.0)[:, None],
        scale=np.full(size, scale),
        label=np.append(np.ones(size - 1), -1.0),
        weight=np.append(task.positive_rate * known.probability, 1 - task.positive_rate),
        noisy=(True,),
        removed=np.empty((size, 0)),
        dimension_ratio=dimension_ratio,
    )


@dataclass(frozen=True)
class ClassifierLaw:
    """What theory knows of a classifier: the law of its features.

    Attributes
    ----------
    make : callable
        make(task, query, log2_points, seed) gives the law; the last two matter only to laws that
        are drawn.
    takes_query : bool
        Whether the classifier has a query, learnt or given.
    fixed_length : bool
        Whether it can only be used on sequences of the length it was trained on.
    exact : bool
        Whether the law has the same few points whatever their wanted number.
    make_rare : callable, optional
        The same as `make` with points that reach to where rare errors come from.
    make_fresh : callable, optional
        The same as `make`, more accurate, for data that nothing is trained on.
    reused : callable or None
        reused(task, training, log2_points, seed) gives the law of the features of samples that the
        query was learnt from; None if the classifier has no query, or the law is not known.
    localise : callable or None
        localise(task, query) gives the `Localisation` of the tokens that the classifier attends to;
        None if it has no query, or that is not known.
    """

    make: Callable[[Task, Query | None, int, int], FeatureLaw]
    takes_query: bool = False
    fixed_length: bool = False
    exact: bool = True
    make_rare: Callable[[Task, Query | None, int, int], FeatureLaw] | None = None
    make_fresh: Callable[[Task, Query | None, int, int], FeatureLaw] | None = None
    reused: Callable[[Task, Training, int, int], FeatureLaw] | None = None
    localise: Callable[[Task, Query], Localisation] | None = None


def _attention(
    task: Task,
    query: Query | None,
    log2_points: int,
    seed: int,
    *,
    rare: bool = False,
    smooth: bool = False,
) -> FeatureLaw:
    assert query is not None
    return attention_law(task, query, log2_points, seed, rare=rare, smooth=smooth)


# Everything else in the package that names classifiers takes the names from here.
LAWS: dict[str, ClassifierLaw] = {
    "attention": ClassifierLaw(
        _attention,
        takes_query=True,
        exact=False,
        make_rare=partial(_attention, rare=True),
        make_fresh=partial(_attention, smooth=True),
        reused=reused_law,
        localise=lambda task, query: localise(task, query=query),
    ),
    "pooled": ClassifierLaw(lambda task, *_: pooled_law(task)),
    "vectorised": ClassifierLaw(lambda task, *_: vectorised_law(task), fixed_length=True),
}
extensible(__name__, LAWS)


def classifier_law(name: str) -> ClassifierLaw:
    """Return the law of the classifier of that name."""
    return LAWS[validation.choice("classifier", name, LAWS)]


def feature_law(
    task: Task,
    classifier: str,
    query: Query | None,
    log2_points: int,
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
