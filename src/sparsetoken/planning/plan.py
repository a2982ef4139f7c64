"""How many samples a task takes, with which training, how surely, and what else would do."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sparsetoken import validation
from sparsetoken.limits import MOST_DIMENSIONS, MOST_TRIALS, MOST_WORKERS
from sparsetoken.losses import get_loss
from sparsetoken.numerics.memory import path_memory
from sparsetoken.planning.best_training import (
    FEWEST_SAMPLES,
    LARGEST_RATIO,
    TOLERANCE,
    chance_of,
    loss_of,
    total_samples,
)
from sparsetoken.planning.defaults import ASSURANCE, TRIALS
from sparsetoken.planning.parallel import Count
from sparsetoken.planning.plan_check import MOST_SIZES, Assurance, check_plan
from sparsetoken.planning.plan_search import (
    Alternative,
    PlanSearch,
    Searched,
    limit_of,
    loss_error,
    most_searched,
)
from sparsetoken.planning.sensitivity import (
    MOST_SENSITIVITY,
    Sensitivity,
    anti_alignments,
    sensitivities,
)
from sparsetoken.planning.study_text import study_text
from sparsetoken.records import Record, preformatted, rate_text, share_text, with_error
from sparsetoken.task import Task, Training
from sparsetoken.theory.alignment import learnt_alignment
from sparsetoken.theory.laws import LAWS
from sparsetoken.validation import ParameterError

__all__ = ["LEARNER", "Alternative", "Plan", "most_predictions", "plan"]

# What a plan is of, and what it is not.
LEARNER = "two-step training"
_OTHER_LEARNER = (
    "The plan is for two-step training alone. AttentionClassifier also refines its query and chooses",
    "settings from the data: it may do far better, or somewhat worse",
)

# A query with a smaller cosine is hardly better than none, nor is an error above this share of that
# of always naming the more frequent class.
_WEAK_ALIGNMENT = 0.5
_NOTHING_LEARNT = 0.99
# Samples per dimension of a budget: any part of them, from a twentieth on, is a ratio of a training.
_BUDGETS = (2e-5, 1e6)
# Samples that are reused are drawn from three coordinates of their noise on.
_LEAST_DRAWN = 3
_NO_STUDY = "its default with trials = 0: none is simulated"
# With so many of a class on average, one in 150 studies has none of it.
_FEW_OF_A_CLASS = 5
# An error bar that changes no digit of a rate.
_UNSEEN = 5e-5
# Another classifier is recommended for a budget if its error is below this share.
_CLEARLY_LESS = 0.99


@dataclass(frozen=True)
class Plan(Record):
    """What `plan` found. `print` it for the plan in words, `plot` it for a picture.

    There is an example in `plan`.

    Attributes
    ----------
    task, dimension
        What was asked.
    metric : "error" or "auc"
    target : float or None
        The wanted value; None for a budget.
    samples : int or None
        All samples, or None if the target cannot be reached.
    training : Training or None
        Split, sharpness (by the query step), rates, ridge and loss.
    test_error : float or None
        Predicted test error with that training.
    auc : float or None
        Predicted area under the ROC curve, where theory gives it.
    uncertainty : dict
        Numerical error bars of test error, AUC and limit.
    limit : float
        Error, or AUC, with ever more samples.
    alternatives : tuple of Alternative
    widths : dict of str to (low, high)
        Ranges of sharpness, ridge, split and bias step that are nearly as good (within 5 %): wide is
        good. Those that the search had no predictions left to look at are not there.
    sensitivity : tuple of Sensitivity
        What happens if a setting is not as planned, the one that matters most first.
    assurance : Assurance or None
        The plan in simulated studies at this dimension; None without trials.
    warnings : tuple of str
    predictions : int
        How many predictions the whole plan took: at most `most_predictions()`.
    """

    task: Task
    dimension: int
    metric: str
    target: float | None
    samples: int | None
    training: Training | None
    test_error: float | None
    auc: float | None
    uncertainty: dict[str, float]
    limit: float
    alternatives: tuple[Alternative, ...]
    widths: dict[str, tuple[float, float]]
    sensitivity: tuple[Sensitivity, ...]
    assurance: Assurance | None
    warnings: tuple[str, ...]
    predictions: int

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as a dictionary of plain values. There is an example in `plan`.

        Returns
        -------
        dict
        """
        flat: dict[str, Any] = {
            **self.task.to_dict(),
            "dimension": self.dimension,
            "metric": self.metric,
            "target": self.target,
            "samples": self.samples,
            "test_error": self.test_error,
            "test_error_uncertainty": self.uncertainty.get("test_error"),
            "auc": self.auc,
            "auc_uncertainty": self.uncertainty.get("auc"),
            "limit": self.limit,
            "limit_uncertainty": self.uncertainty["limit"],
            "predictions": self.predictions,
            "warnings": list(self.warnings),
            "learner": LEARNER,
            "training": self.training.to_dict() if self.training else None,
            "widths": {name: list(ends) for name, ends in self.widths.items()},
            "alternatives": [one.to_dict() for one in self.alternatives],
            "sensitivity": [one.to_dict() for one in self.sensitivity],
        }
        return flat | (self.assurance.to_dict() if self.assurance else {})

    def study(self) -> str:
        """Return the text of a study file that checks the plan: `sparsetoken sweep run` takes it.

        There is an example in `plan`.

        Returns
        -------
        str
        """
        # With the seed of the plan's own studies some of the draws would be those again.
        seed = 1 if self.assurance is None else self.assurance.seed + 1
        aim = (self.metric, self.target)
        return study_text(self.task, self._training(), self.dimension, aim, seed)

    def _training(self) -> Training:
        if self.training is None:
            accepted = "a plan that can be carried out: this target is out of reach"
            raise ParameterError("plan", self.target, accepted)
        return self.training

    def __repr__(self) -> str:
        found = "out of reach" if self.samples is None else f"of {self.samples:,} samples"
        return f"<Plan {found} in {self.dimension:,} dimensions>"

    def __str__(self) -> str:
        return "\n".join(_lines(self))

    def _repr_html_(self) -> str:
        return preformatted(str(self))

    def plot(self, *, axes: Any = None) -> Any:
        """Draw the predicted errors against the number of samples, with the plan marked.

        There is an example in `plan`.

        Parameters
        ----------
        axes : matplotlib Axes, optional
            Where to draw; in a new figure if not given.

        Returns
        -------
        matplotlib Axes
        """
        self._training()
        from sparsetoken.planning.plan_figure import draw_plan

        return draw_plan(self, axes)


@path_memory()
def plan(
    task: Task,
    *,
    dimension: int,
    error: float | None = None,
    auc: float | None = None,
    samples: int | None = None,
    assurance: float = ASSURANCE,
    trials: int = TRIALS,
    losses: tuple[str, ...] = ("logistic", "square"),
    seed: int = 0,
    workers: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> Plan:
    """Plan a study with attention: the fewest samples for a target, or the best for a budget.

    The plan is for two-step training, which theory describes. `AttentionClassifier` goes on from there
    and chooses its settings from the data: it may need far fewer samples, or some more. What any
    learner needs, the floor, is among the alternatives.

    Give one of `error`, `auc` and `samples`. Split, sharpness, rates, ridge and loss are chosen by
    exact predictions. The best found is reported, with how wide the optimum is. What others need and
    what happens if a setting is not as planned are predicted as well, with at most 400 predictions in
    all, and 40 more for each classifier without a query that was registered from outside. Then the plan is checked by simulated studies at this dimension.

    Parameters
    ----------
    task : Task
    dimension : int
        Dimension of a token, d.
    error, auc : float, optional
        The target: test error, or area under the ROC curve.
    samples : int, optional
        A budget: what is the best that so many samples give?
    assurance : float, default 0.8
        Share of repeated studies that should reach the target.
    trials : int, default 40
        Simulated studies for each number of samples that is tried; 0 for none.
    losses : tuple of str
        The first is searched with, the others are tried at its optimum.
    seed : int
        Of the simulated studies.
    workers : int
        Processes, for the search and for the simulated studies.
    progress : callable, optional
        Called as progress(finished, total) after every prediction and simulated study; the total is
        the largest possible.

    Returns
    -------
    Plan

    Examples
    --------
    >>> from sparsetoken import Task, plan
    >>> found = plan(Task(10, 1, 5.0), dimension=50, samples=400, trials=0)
    >>> found.samples, found.test_error < 0.1, found.assurance is None
    (400, True, True)
    >>> found.to_dict()["samples"], found.plot().get_xlabel(), "[training]" in found.study()
    (400, 'samples', True)
    """
    validation.instance("task", task, Task)
    dimension = validation.integer("dimension", dimension, low=2, high=MOST_DIMENSIONS)
    trials, seed, workers = _checked_studies(trials, seed, workers, dimension)
    metric, goal = _goal(task, dimension, error, auc, samples)
    assurance = _checked_assurance(assurance, trials, budget=samples is not None)
    _check_losses(losses)
    count = Count(progress, most_predictions() + MOST_SIZES * trials)
    search = PlanSearch(
        task=task,
        dimension=dimension,
        metric=metric,
        goal=goal,
        budget=None if samples is None else samples / dimension,
        losses=losses,
        limit=limit_of(task, metric),
    )
    searched, alternatives, predictions = search.all(workers, count.more)
    nothing = Plan(
        task=task,
        dimension=dimension,
        metric=metric,
        target=error if metric == "error" else auc,
        samples=None,
        training=None,
        test_error=None,
        auc=None,
        uncertainty={"limit": search.limit.bar},
        limit=loss_of(metric, search.limit.loss),
        alternatives=alternatives,
        widths={},
        sensitivity=(),
        assurance=None,
        warnings=(),
        predictions=predictions,
    )
    drafted = _drafted(nothing, search, searched, workers, count.more)
    unchecked: tuple[str, ...] = ()
    if trials:
        options = {"trials": trials, "seed": seed, "workers": workers}
        drafted, unchecked = _checked(drafted, assurance, count.one_more, options)
    exhausted = searched is not None and searched.exhausted
    return replace(drafted, warnings=(*unchecked, *_warnings(drafted, exhausted)))


def most_predictions() -> int:
    """Return how many predictions a plan takes at the most, all told."""
    return most_searched() + MOST_SENSITIVITY


def _checked_studies(trials: int, seed: int, workers: int, dimension: int) -> tuple[int, int, int]:
    """Return what simulated studies are asked for, if it is possible."""
    trials = validation.integer("trials", trials, low=0, high=MOST_TRIALS)
    if trials == 1:
        raise ParameterError("trials", trials, "0, or at least 2 to see how studies differ")
    if trials and dimension < _LEAST_DRAWN:
        accepted = f"an integer >= {_LEAST_DRAWN} for simulated studies, or trials = 0"
        raise ParameterError("dimension", dimension, accepted)
    workers = validation.integer("workers", workers, low=1, high=MOST_WORKERS)
    seed = validation.integer("seed", seed, low=0)
    if not trials and seed != 0:
        raise ParameterError("seed", seed, _NO_STUDY)
    return trials, seed, workers


def _checked_assurance(assurance: float, trials: int, *, budget: bool) -> float:
    """Return the assurance, if something reads it."""
    assurance = validation.real("assurance", assurance, low=0.5, high=0.99)
    if budget and assurance != ASSURANCE:
        raise ParameterError("assurance", assurance, "its default with samples: it is of a target")
    if not trials and assurance != ASSURANCE:
        raise ParameterError("assurance", assurance, _NO_STUDY)
    return assurance


def _check_losses(losses: tuple[str, ...]) -> None:
    validation.instance("losses", losses, tuple)
    for loss in losses:
        get_loss(loss)
    if not losses:
        raise ParameterError("losses", losses, "at least one loss")


def _drafted(
    nothing: Plan,
    search: PlanSearch,
    searched: Searched | None,
    workers: int,
    more: Callable[[int], None],
) -> Plan:
    """Return the plan before it is checked, made from one that has no training."""
    if searched is None or searched.best is None:
        return nothing
    training, prediction, settling = search.settled(searched.best.candidate)
    found, trying = sensitivities(
        search.task,
        training,
        search.metric,
        target=nothing.target,
        dimension=search.dimension,
        workers=workers,
    )
    more(settling + trying)
    return replace(
        nothing,
        samples=total_samples(training, search.dimension),
        training=training,
        test_error=prediction.test_error,
        auc=prediction.auc,
        uncertainty={
            **nothing.uncertainty,
            "test_error": prediction.uncertainty.test_error,
            "auc": loss_error("auc", prediction),
        },
        widths=searched.widths,
        sensitivity=tuple(found),
        predictions=nothing.predictions + settling + trying,
    )


def _checked(
    drafted: Plan, assurance: float, one_more: Callable[[], None], options: dict[str, Any]
) -> tuple[Plan, tuple[str, ...]]:
    """Return the plan with what simulated studies say of it, or with the reason why there are none.

    It took a long search and stands without them.
    """
    if drafted.training is None:
        return drafted, ()
    wanted = (drafted.metric, drafted.target, assurance)
    settings = (drafted.task, drafted.training, drafted.dimension, _value(drafted), wanted)
    try:
        return replace(drafted, assurance=check_plan(*settings, one_more, options)), ()
    except MemoryError as error:
        return drafted, (f"The plan was not checked by simulated studies: {error}.",)


def _value(found: Plan) -> float:
    value = found.test_error if found.metric == "error" else found.auc
    assert value is not None
    return value


def _goal(
    task: Task, dimension: int, error: float | None, auc: float | None, samples: int | None
) -> tuple[str, float | None]:
    """Return the metric, and the loss to reach; None for a budget."""
    given = (error, auc, samples)
    if sum(one is None for one in given) != 2:
        raise ParameterError("error, auc, samples", given, "exactly one of error, auc and samples")
    if samples is not None:
        fewest = max(FEWEST_SAMPLES, int(np.ceil(_BUDGETS[0] * dimension * (1 - 1e-9))))
        validation.integer("samples", samples, low=fewest, high=int(_BUDGETS[1] * dimension))
        return "error", None
    if auc is not None:
        return "auc", 1 - validation.real("auc", auc, low=0.5, high=1, inclusive=False)
    chance = chance_of("error", task)
    return "error", validation.real("error", error, low=0, high=chance, inclusive=False)


def _warnings(drafted: Plan, exhausted: bool) -> Iterator[str]:
    if exhausted:
        yield (
            "The search ended at its limit of predictions: this is the best found, and a better "
            "training may exist."
        )
    for one in drafted.alternatives:
        if one.name in LAWS:
            yield from _rival_warning(one, drafted)
    if drafted.training is None:
        return
    chance = chance_of("error", drafted.task)
    budget = drafted.target is None
    hopeless = budget and drafted.limit > _NOTHING_LEARNT * chance
    if hopeless:
        yield (
            f"No number of samples lowers the error here: attention that knew the signal would err "
            f"{_rate(drafted.limit, drafted.uncertainty['limit'])}, always naming the more frequent class "
            f"{rate_text(chance)}."
        )
    elif budget and _value(drafted) > _NOTHING_LEARNT * chance:
        yield (
            f"So few samples teach nothing: always naming the more frequent class errs "
            f"{rate_text(chance)} too."
        )
    yield from _few_of_a_class(drafted.task, drafted.training, drafted.dimension)
    cosine = learnt_alignment(drafted.task, drafted.training).alignment
    if 0 <= cosine < _WEAK_ALIGNMENT and not hopeless:
        yield (
            f"The query has a cosine of only {cosine:.2f} with the signal: more samples for the "
            "query (a larger alpha0) are what helps."
        )
    yield from anti_alignments(drafted.task, drafted.training)
    if drafted.assurance is not None and drafted.assurance.disagreement:
        yield drafted.assurance.disagreement


def _few_of_a_class(task: Task, training: Training, dimension: int) -> Iterator[str]:
    """Warn where samples of the rarer class may be missing altogether, which no theory sees."""
    samples = round(min(training.alpha0, training.alpha1) * dimension)
    name = "positives" if task.positive_rate <= 0.5 else "negatives"
    expected = chance_of("error", task) * samples
    if expected < _FEW_OF_A_CLASS:
        part = "" if training.reuse else ", the smaller part,"
        yield (
            f"{samples:,} samples{part} hold {expected:.2g} {name} on average, and may hold none: theory "
            "is of far more of either class."
        )


def _rival_warning(one: Alternative, drafted: Plan) -> Iterator[str]:
    if one.samples is None:
        return
    if drafted.samples is None:
        yield f"Attention does not reach the target, but the {one.name} classifier does."
    elif drafted.target is not None and one.samples < drafted.samples:
        yield (
            f"The {one.name} classifier reaches the target with {one.samples:,} samples, fewer than "
            f"attention: use that."
        )
    elif drafted.target is None and (one.value or 0.0) < _CLEARLY_LESS * _value(drafted):
        yield (
            f"The {one.name} classifier errs {rate_text(one.value or 0.0)} with the same samples, less than "
            f"attention: use that."
        )


def _lines(found: Plan) -> Iterator[str]:
    """Yield the plan in words."""
    task = found.task
    yield (
        f"Signal of strength {task.strength:g} in {task.informative} of {task.length} tokens, "
        f"{share_text(task.positive_rate)} positive, {found.dimension} dimensions"
    )
    aim = f"{found.metric} {found.target:g}" if found.target is not None else "the least error"
    if found.training is None or found.samples is None:
        yield _out_of_reach(found, aim)
    else:
        yield from _training_lines(found, found.training, aim)
    yield from (f"  {one.name:16} {_alternative_text(one, found)}" for one in found.alternatives)
    if found.training is not None:
        first, second = _OTHER_LEARNER
        bounded = any(one.name == "floor" and one.unknown is None for one in found.alternatives)
        yield from (first, f"{second}{', but not better than the floor' if bounded else ''}.")
    if found.sensitivity:
        outcome = "Error" if found.metric == "error" else "AUC"
        yield f"{outcome} if a setting is not as planned, ± {TOLERANCE:g}:"
        yield from (f"  {one}" for one in found.sensitivity[:5])
    yield from (f"Warning: {text}" for text in found.warnings)


def _training_lines(found: Plan, training: Training, aim: str) -> Iterator[str]:
    first, second = (round(ratio * found.dimension) for ratio in (training.alpha0, training.alpha1))
    shared = (
        "all for both query and readout"
        if training.reuse
        else f"{first:,} for the query and {second:,} for the readout"
    )
    yield f"For {aim}: {found.samples:,} samples with {LEARNER}, {shared}"
    error = with_error(found.test_error, found.uncertainty["test_error"])
    area = "" if found.auc is None else f", AUC {with_error(found.auc, found.uncertainty['auc'])}"
    yield f"  predicted error {error}{area} (best found; {found.predictions} predictions in all)"
    sharpness = learnt_alignment(found.task, training).sharpness
    steps = (
        f"readout step {training.readout_step:.3g}, bias step {training.bias_step:.3g}, "
        f"query step {training.query_step:.3g}"
    )
    if training.inverse_temperature != 1:
        steps += f", inverse temperature {training.inverse_temperature:.3g}"
    steps += f" (sharpness {sharpness:.2g})"
    yield f"  {training.loss} loss, ridge {training.ridge:.3g}, {steps}"
    if found.widths:
        yield f"  nearly as good: {', '.join(_width_text(*item) for item in found.widths.items())}"
    if found.assurance is not None:
        yield from (f"  {line}" for line in found.assurance.lines())


def _width_text(name: str, ends: tuple[float, float]) -> str:
    low, high = (f"{end:.2g}" for end in ends)
    return f"{name.replace('_', ' ')} {low if low == high else f'{low} to {high}'}"


def _out_of_reach(found: Plan, aim: str) -> str:
    limit = _rate(found.limit, found.uncertainty["limit"])
    if _is_beyond(found.limit, found):
        return f"Attention cannot reach {aim} at any size: the limit is {limit}."
    most = f"{LARGEST_RATIO * found.dimension:,.0f} samples"
    return f"No {LEARNER} with up to {most} was found to reach {aim}; the limit is {limit}."


def _is_beyond(limit: float, found: Plan) -> bool:
    """Return whether the target is better than a limit."""
    target = loss_of(found.metric, np.nan if found.target is None else found.target)
    return target < loss_of(found.metric, limit)


def _alternative_text(one: Alternative, found: Plan) -> str:
    if one.unknown is not None:
        return f"not computed: {one.unknown}"
    if one.samples is None:
        if one.limit is None:
            return "was not found to reach it"
        verdict = "cannot reach it" if _is_beyond(one.limit, found) else "was not found to reach it"
        return f"{verdict} (its limit is {_rate(one.limit, one.uncertainty['limit'])})"
    assert one.value is not None
    return f"{one.samples:,} samples, {_rate(one.value, one.uncertainty['value'])}"


def _rate(value: float, bar: float) -> str:
    """Return a rate with its error bar, if that changes a digit."""
    return rate_text(value) if bar < _UNSEEN else with_error(value, bar)
