"""Trials of a setting, alone or in parallel, with means and standard errors."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np

from sparsetoken import validation
from sparsetoken.extensions import additions, make_known
from sparsetoken.limits import MOST_DIMENSIONS, MOST_TRIALS, MOST_WORKERS
from sparsetoken.numerics.memory import require_memory
from sparsetoken.numerics.threads import one_thread, thread_pools
from sparsetoken.records import FEW_POSITIVES, LOCALISATION, METRICS, UNCERTAINTY, Record
from sparsetoken.simulation.draws import DRAWS
from sparsetoken.simulation.protocol import WAYS, Protocol, Trained
from sparsetoken.simulation.random_streams import stream
from sparsetoken.simulation.reused import TOKEN_ARRAYS
from sparsetoken.simulation.sampling import SAMPLERS
from sparsetoken.task import Query, Task, Training, check_reuse
from sparsetoken.uncertainty import mean_and_error
from sparsetoken.validation import ParameterError

__all__ = ["Simulation", "Trial", "iterate_trials", "run_trial", "simulate"]

# Seconds that worker processes need to start and to import what a trial needs.
START_OF_PROCESSES = 3.0


@dataclass(frozen=True, slots=True)
class Trial(Record):
    """What one trial gave. A field that does not apply is None.

    Attributes
    ----------
    trial : int
        The trial's number.
    alignment, query_norm, sharpness : float or None
        cos(q, ξ), ‖q‖ and β‖q‖ of an attention classifier.
    readout_cosine : float or None
        cos(w, ξ) of the readout after stage 1, if the query was learnt.
    test_error : float
        Probability of a wrong label on fresh data (from `at`, if given), integrated semi-analytically.
    test_error_uncertainty : float
        Standard error of that integration; 0 where it is closed.
    fresh_test_error : float or None
        Fraction of wrong labels on fresh data, if asked for.
    train_loss, train_error : float
        Mean loss (without ridge) and fraction of wrong labels on the readout's data.
    separable : bool or None
        Whether the readout's data are linearly separable; None if not asked for or undecided.
    margin : float or None
        The fitted readout's smallest margin over ‖w‖, if it is positive. At ridge 0 it is the
        largest possible.
    readout_norm, bias : float
        ‖w‖ and b of the readout. On separable data at ridge 0 they are scaled to a margin of 1.
    auc, average_precision, balanced_error, attended_mass, hit_rate : float or None
        Ranking of fresh sequences and localisation of the signal, if asked for; the AUC always
        where positives are rarer than 20 %.
    at_bias : float or None
        The bias at test time, if it is the one of least error there.
    residual : float
        Norm of the gradient (or KKT residual) that the readout's solver reached.
    converged : bool
    status, message : str
        How the readout's solver ended: by the name of its `Status`, and in words.
    seconds : float
        Time that the trial took.

    Examples
    --------
    >>> from sparsetoken import Task, Training, run_trial
    >>> task, training = Task(6, 1, 5.0), Training(4.0, 2.0, query_step=20.0)
    >>> found = run_trial(task, training, dimension=60, trial=0, classifier="pooled")
    >>> found.trial, found.alignment, found.converged
    (0, None, True)
    """

    trial: int
    alignment: float | None
    query_norm: float | None
    sharpness: float | None
    readout_cosine: float | None
    test_error: float
    test_error_uncertainty: float
    fresh_test_error: float | None
    train_loss: float
    train_error: float
    separable: bool | None
    margin: float | None
    readout_norm: float
    bias: float
    residual: float
    converged: bool
    status: str
    message: str
    seconds: float
    auc: float | None = None
    average_precision: float | None = None
    balanced_error: float | None = None
    attended_mass: float | None = None
    hit_rate: float | None = None
    at_bias: float | None = None


QUANTITIES = tuple(
    f.name
    for f in fields(Trial)
    if f.name not in ("trial", "status", "message", "seconds", "test_error_uncertainty")
)


@dataclass(frozen=True)
class Simulation(Record):
    """Trials of one setting.

    Shown as the means of all quantities, and as the share of trials whose readout was found
    (`converged`) if that is not all of them.

    Attributes
    ----------
    task, training, dimension, classifier, query, sampler, at, seed, at_sharpness, recalibrate
        What was simulated.
    trials : tuple of Trial
        In the order of their numbers.

    Examples
    --------
    >>> from sparsetoken import Task, Training, simulate
    >>> task, training = Task(6, 1, 5.0), Training(4.0, 2.0, query_step=20.0)
    >>> found = simulate(task, training, dimension=60, trials=4, classifier="pooled")
    >>> len(found.values("test_error")), found.standard_error("test_error") < 0.05
    (4, True)
    """

    sampled: ClassVar[bool] = True

    task: Task
    training: Training
    dimension: int
    classifier: str
    query: Query | None
    sampler: str
    at: Task | None
    seed: int
    trials: tuple[Trial, ...]
    at_sharpness: float | None = None
    recalibrate: bool = False

    def __post_init__(self) -> None:
        # Worker processes give them in any order.
        ordered = tuple(sorted(self.trials, key=lambda trial: trial.trial))
        object.__setattr__(self, "trials", ordered)

    def values(self, quantity: str) -> list[float]:
        """Return a quantity of every trial that has it, as numbers (True is 1).

        Parameters
        ----------
        quantity : str
            A field of `Trial` that is a number.

        Returns
        -------
        list of float

        Examples
        --------
        >>> from sparsetoken import Task, Training, simulate
        >>> found = simulate(Task(10, 1, 5.0), Training(2.0, 2.0), dimension=30, trials=3, classifier="pooled")
        >>> len(found.values("test_error"))
        3
        """
        validation.choice("quantity", quantity, QUANTITIES)
        found = (getattr(trial, quantity) for trial in self.trials)
        return [float(value) for value in found if value is not None]

    def mean(self, quantity: str) -> float | None:
        """Return the mean of a quantity over the trials that have it; None if none has.

        Parameters
        ----------
        quantity : str
            A field of `Trial` that is a number.

        Returns
        -------
        float or None

        Examples
        --------
        >>> from sparsetoken import Task, Training, simulate
        >>> found = simulate(Task(6, 1, 4.0), Training(2.0, 2.0), dimension=20, trials=3)
        >>> found.mean("test_error") == sum(found.values("test_error")) / 3
        True
        """
        return mean_and_error(self.values(quantity))[0]

    def standard_error(self, quantity: str) -> float | None:
        """Return the standard error of the mean; None with fewer than two values.

        Parameters
        ----------
        quantity : str
            A field of `Trial` that is a number.

        Returns
        -------
        float or None

        Examples
        --------
        >>> from sparsetoken import Task, Training, simulate
        >>> found = simulate(Task(10, 1, 5.0), Training(2.0, 2.0), dimension=30, trials=3, classifier="pooled")
        >>> 0 < found.standard_error("test_error") < 0.1
        True
        """
        return mean_and_error(self.values(quantity))[1]

    def to_dict(self) -> dict[str, Any]:
        """Return the mean of every quantity, its standard error under name_uncertainty.

        Returns
        -------
        dict

        Examples
        --------
        >>> from sparsetoken import Task, Training, simulate
        >>> found = simulate(Task(10, 1, 5.0), Training(2.0, 2.0), dimension=30, trials=3, classifier="pooled")
        >>> found.to_dict()["test_error"] == found.mean("test_error")
        True
        """
        flat: dict[str, Any] = {}
        for name in QUANTITIES:
            mean, error = self.mean(name), self.standard_error(name)
            if mean is not None:
                flat[name] = mean
                if error is not None:
                    flat[name + UNCERTAINTY] = error
        return flat

    def __repr__(self) -> str:
        return (
            f"<Simulation of {len(self.trials):,} trials of {self.classifier} in "
            f"{self.dimension:,} dimensions>"
        )

    def settings(self) -> dict[str, Any]:
        """Return what was simulated, as plain values.

        Returns
        -------
        dict

        Examples
        --------
        >>> from sparsetoken import Task, Training, simulate
        >>> found = simulate(Task(6, 1, 4.0), Training(2.0, 2.0), dimension=20, trials=3)
        >>> found.settings()["dimension"]
        20
        """
        return {
            item.name: value.to_dict() if hasattr(value, "to_dict") else value
            for item in fields(self)
            if item.name != "trials"
            for value in [getattr(self, item.name)]
        }


def run_trial(
    task: Task,
    training: Training,
    *,
    dimension: int,
    trial: int,
    classifier: str = "attention",
    query: Query | None = None,
    sampler: str = "reduced",
    at: Task | None = None,
    at_sharpness: float | None = None,
    recalibrate: bool = False,
    metrics: Sequence[str] = (),
    seed: int = 0,
    fresh_test: int = 0,
    dtype: str = "float64",
    check_separable: bool = True,
    threads: int | None = 1,
) -> Trial:
    """Train one classifier on data drawn from a task, and measure it.

    Parameters
    ----------
    task : Task
    training : Training
    dimension : int >= 2
        d; there are round(alpha0 d) and round(alpha1 d) samples.
    trial : int >= 0
        Number of the trial. Its random stream depends on (seed, settings, trial) alone.
    classifier : str
        "attention", "pooled", "vectorised", or another entry of `simulation.draws.DRAWS`.
    query : Query, optional
        A query for attention instead of the one that stages 1 to 3 learn; without reuse.
    sampler : "reduced" or "plain"
        Two ways to draw from the same law: few numbers, or the sequences themselves.
    at : Task, optional
        Another task to measure the test error on. The trained classifier does not depend on it.
    at_sharpness : float, optional
        Another sharpness κ of the softmax at test time; infinity for the largest score alone.
    recalibrate : bool
        Test with the bias of least error on the task at test time instead of the trained one.
    metrics : sequence of str
        Which of "auc", "average_precision", "balanced_error", "attended_mass" and "hit_rate" to
        measure on the task at test time. The AUC is measured anyway if positives are rare there.
    seed : int >= 0
    fresh_test : int
        Number of fresh samples to measure `fresh_test_error` on.
    dtype : "float64" or "float32"
        Precision in which the features are kept.
    check_separable : bool
        Whether to decide `separable` where the fit itself does not show it; costs up to as much
        again as the fit.
    threads : int or None
        Threads of linear algebra; 1 makes results identical to the last bit in any process.

    Returns
    -------
    Trial

    Examples
    --------
    >>> from sparsetoken import Task, Training, run_trial
    >>> task, training = Task(6, 1, 5.0), Training(4.0, 2.0, query_step=20.0)
    >>> first = run_trial(task, training, dimension=60, trial=0)
    >>> again = run_trial(task, training, dimension=60, trial=0)
    >>> first.test_error == again.test_error, first.alignment > 0.5
    (True, True)
    """
    validation.instance("task", task, Task)
    validation.instance("training", training, Training)
    _check(task, dimension, trial, classifier, query, sampler, at, seed, fresh_test, dtype)
    check_reuse(training.reuse, query)
    _check_usage(classifier, sampler, at_sharpness, recalibrate, metrics, fresh_test)
    _require_memory(task, training, dimension, classifier, dtype, given=query is not None)
    check_separable = validation.boolean("check_separable", check_separable)
    begin = time.perf_counter()
    settings = {
        "task": task.to_dict(),
        # Left out unless set, so that a trial without reuse keeps the random numbers it always had.
        "training": {k: v for k, v in training.to_dict().items() if k != "reuse" or v},
        "dimension": int(dimension),
        "classifier": classifier,
        "query": query.to_dict() if query else None,
        "sampler": sampler,
        "dtype": dtype,
    }
    measured = {"stage": "test", "at": at.to_dict() if at else None, **settings}
    if threads is not None:
        threads = validation.integer("threads", threads, low=1, high=MOST_WORKERS)
    with one_thread if threads == 1 else thread_pools().limit(limits=threads, user_api="blas"):
        protocol = Protocol(
            task, training, dimension, classifier, query, dtype, check_separable, at_sharpness
        )
        outcome = WAYS[sampler](protocol, stream(seed, settings, trial))
        if at_sharpness is not None and not outcome.geometry.knows_sharpness:
            accepted = f"None: {type(outcome.geometry).__name__} knows no sharpness"
            raise ParameterError("at_sharpness", at_sharpness, accepted)
        found = _measure(outcome, at or task, metrics, recalibrate, stream(seed, measured, trial))
        if fresh_test:
            fresh = stream(seed, {**measured, "stage": "fresh"}, trial)
            found["fresh_test_error"] = outcome.fresh_error(at or task, fresh_test, fresh)
    seconds = time.perf_counter() - begin
    return _record(trial, training, outcome, found, seconds)


def _measure(
    outcome: Trained,
    task: Task,
    metrics: Sequence[str],
    recalibrate: bool,
    rng: np.random.Generator,
) -> dict[str, float]:
    """Return what is measured on fresh data, by the names of a trial's fields."""
    points, found = outcome.geometry.points(task, rng), {}
    if recalibrate:
        points, added = points.recalibrated()
        found["at_bias"] = float(outcome.readout.bias) + added
    found["test_error"], found["test_error_uncertainty"] = points.test_error
    wanted = [*metrics, "auc"] if task.positive_rate < FEW_POSITIVES else metrics
    for name, (value, _) in points.measure(dict.fromkeys(wanted), rng).items():
        found[name] = value
    return found


def _record(
    trial: int,
    training: Training,
    outcome: Trained,
    found: Mapping[str, float],
    seconds: float,
) -> Trial:
    readout, state = outcome.readout, outcome.query
    ended = readout.solution.to_dict()
    del ended["steps"]  # a trial has no such column
    return Trial(
        trial=trial,
        alignment=state.alignment if state else None,
        query_norm=state.norm if state else None,
        sharpness=state.seen(training).sharpness if state else None,
        readout_cosine=state.readout_cosine if state else None,
        train_loss=readout.train_loss,
        train_error=readout.train_error,
        separable=outcome.separable,
        margin=readout.margin,
        readout_norm=float(np.linalg.norm(readout.weights)),
        bias=float(readout.bias),
        seconds=seconds,
        **ended,
        **{"fresh_test_error": None, **found},  # type: ignore[arg-type]
    )


def iterate_trials(
    task: Task,
    training: Training,
    *,
    dimension: int,
    trials: int,
    workers: int = 1,
    **options: Any,
) -> Iterator[Trial]:
    """Yield trials 0 to `trials` - 1 as they finish; options are those of `run_trial`."""
    trials = validation.integer("trials", trials, low=1, high=MOST_TRIALS)
    workers = validation.integer("workers", workers, low=1, high=MOST_WORKERS)
    validation.instance("training", training, Training)
    begin, done = time.perf_counter(), 0
    while workers == 1 or not _processes_pay(time.perf_counter() - begin, done, trials):
        yield run_trial(task, training, dimension=dimension, trial=done, **options)
        done += 1
        if done == trials:
            return
    from joblib import Parallel, delayed, parallel_config

    with parallel_config("loky", inner_max_num_threads=1):
        pool = Parallel(n_jobs=min(workers, trials - done), return_as="generator_unordered")
        added = additions()
        yield from pool(
            delayed(_run_in_worker)(
                added,
                task,
                training,
                dimension=dimension,
                trial=number,
                **options,
            )
            for number in range(done, trials)
        )


def _processes_pay(seconds: float, done: int, trials: int) -> bool:
    """Return whether what is left takes longer than it takes to start processes."""
    return done > 0 and seconds / done * (trials - done) > START_OF_PROCESSES


def _run_in_worker(added: bytes, *args: Any, **options: Any) -> Trial:
    """Make known what the caller's program has added; run a trial."""
    make_known(added)
    return run_trial(*args, **options)


def simulate(
    task: Task,
    training: Training,
    *,
    dimension: int,
    trials: int = 8,
    classifier: str = "attention",
    query: Query | None = None,
    sampler: str = "reduced",
    at: Task | None = None,
    at_sharpness: float | None = None,
    recalibrate: bool = False,
    seed: int = 0,
    workers: int = 1,
    progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> Simulation:
    """Train a classifier on data drawn from a task, `trials` times: means with standard errors.

    The drawn features have the exact law at any dimension, and the results the names of `predict`.

    Parameters
    ----------
    trials : int >= 1
    workers : int >= 1
        Processes to share the trials, where that takes less time than to start them. The results
        do not depend on it.
    progress : callable, optional
        Called as progress(finished, trials) after every trial.
    task, training, dimension, classifier, query, sampler, at, at_sharpness, recalibrate, seed
        As in `run_trial`.
    **options
        Others of `run_trial`: metrics (sequence of str), fresh_test (int), dtype ("float64" or
        "float32"), check_separable (bool) and threads (int or None).

    Returns
    -------
    Simulation

    Examples
    --------
    >>> from sparsetoken import Task, Training, simulate
    >>> task, training = Task(6, 1, 5.0), Training(4.0, 2.0, query_step=20.0)
    >>> found = simulate(task, training, dimension=60, trials=4)
    >>> found.mean("test_error") < 0.3, len(found.trials)
    (True, 4)
    """
    found = []
    recalibrate = validation.boolean("recalibrate", recalibrate)
    validation.callback("progress", progress)
    settings: dict[str, Any] = {
        "classifier": classifier,
        "query": query,
        "sampler": sampler,
        "at": at,
        "at_sharpness": at_sharpness,
        "recalibrate": recalibrate,
        "seed": seed,
    }
    for trial in iterate_trials(
        task,
        training,
        dimension=dimension,
        trials=trials,
        workers=workers,
        **settings,
        **options,
    ):
        found.append(trial)
        if progress is not None:
            progress(len(found), trials)
    return Simulation(task, training, dimension, **settings, trials=tuple(found))


def _check(
    task: Task,
    dimension: int,
    trial: int,
    classifier: str,
    query: Query | None,
    sampler: str,
    at: Task | None,
    seed: int,
    fresh_test: int,
    dtype: str,
) -> None:
    validation.instance("query", query, Query, optional=True)
    validation.instance("at", at, Task, optional=True)
    validation.integer("dimension", dimension, low=2, high=MOST_DIMENSIONS)
    validation.integer("trial", trial, low=0)
    validation.integer("seed", seed, low=0)
    validation.integer("fresh_test", fresh_test, low=0, high=10**9)
    drawn = DRAWS[validation.choice("classifier", classifier, DRAWS)]
    validation.choice("sampler", sampler, SAMPLERS)
    validation.choice("dtype", dtype, ("float64", "float32"))
    if query is not None and not drawn.takes_query:
        raise ParameterError("query", query, f"None: a {classifier} classifier has no query")
    if query is not None and math.isinf(query.sharpness) and sampler == "plain":
        raise ParameterError("sharpness", query.sharpness, "a finite number with sampler 'plain'")
    if at is not None and drawn.fixed_length and at.length != task.length:
        accepted = f"{task.length}, the training's: a {classifier} classifier has one length"
        raise ParameterError("at.length", at.length, accepted)


def _check_usage(
    classifier: str,
    sampler: str,
    at_sharpness: float | None,
    recalibrate: bool,
    metrics: Sequence[str],
    fresh_test: int,
) -> None:
    takes_query = DRAWS[classifier].takes_query
    validation.boolean("recalibrate", recalibrate)
    for name in validation.several("metrics", metrics, "names"):
        validation.choice("metrics", name, METRICS)
        if name in LOCALISATION and not takes_query:
            accepted = f"a quantity of scores: a {classifier} classifier has no query"
            raise ParameterError("metrics", name, accepted)
    if at_sharpness is not None:
        validation.real("at_sharpness", at_sharpness, low=0, infinite=True)
        if not takes_query:
            accepted = f"None: a {classifier} classifier has no softmax"
            raise ParameterError("at_sharpness", at_sharpness, accepted)
    if fresh_test and (recalibrate or (at_sharpness is not None and sampler == "plain")):
        accepted = "0 with another sharpness (plain sampler) or bias at test time"
        raise ParameterError("fresh_test", fresh_test, accepted)


def _require_memory(
    task: Task, training: Training, dimension: int, classifier: str, dtype: str, *, given: bool
) -> None:
    """Raise a MemoryError before any work if the features alone are larger than the memory.

    Or, where the query is learnt from the samples that train the readout, the tokens' noise.
    """
    samples = round(training.alpha1 * dimension)
    draws = DRAWS[classifier]
    columns = draws.columns(task, dimension)
    needed = samples * min(samples, columns) * np.dtype(dtype).itemsize
    require_memory(f"dimension = {dimension}, for the features,", needed)
    if training.reuse and draws.takes_query and not given:
        noise = 8.0 * TOKEN_ARRAYS * samples * task.length
        require_memory(f"length = {task.length}, for the tokens that are used twice,", noise)
