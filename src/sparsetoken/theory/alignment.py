"""The query after two gradient steps, in the limit of high dimension (docs/theory.md, section 4)."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from sparsetoken import validation
from sparsetoken.arrays import Array
from sparsetoken.losses import Loss, get_loss
from sparsetoken.numerics.quadrature import normal_panels
from sparsetoken.numerics.threads import one_thread
from sparsetoken.records import Record
from sparsetoken.task import Query, Task, Training

__all__ = [
    "Alignment",
    "QueryStep",
    "align",
    "balanced_bias_step",
    "learnt_alignment",
    "with_sharpness",
]

# Steps that are tried as cures: from so small that they change nothing to absurdly large.
_STEPS = np.geomspace(1e-6, 1e6, 37)

# The least and the largest query step of a `Training`, and its largest inverse temperature.
_QUERY_STEPS = (1e-9, 1e6)
_LARGEST_INVERSE_TEMPERATURE = 1e6


@dataclass(frozen=True)
class Alignment(Record):
    """The learnt query.

    Attributes
    ----------
    alignment : float
        Cosine of the query with the signal, negative if the query points away from it.
    query_norm : float
        ‖q‖.
    sharpness : float
        κ = β‖q‖.
    readout_cosine : float
        Cosine of the first readout step with the signal, for comparison.
    rate_constant : float
        C in abs(alignment) = 1 - C/α0 + o(1/α0); infinite without a signal.
    anti_aligned : bool
        Whether the query points away from the signal.
    cause : str or None
        Why it does: positives too rare for so weak a signal, or a step that is too large.
    cure : str or None
        Which steps turn it round, each on its own, and from where on.

    Examples
    --------
    >>> from sparsetoken import Task, Training, align
    >>> found = align(Task(10, 1, 1.0, positive_rate=0.1), Training(alpha0=4.0, alpha1=2.0))
    >>> found.anti_aligned, found.cause
    (True, 'positives are too rare for so weak a signal')
    """

    alignment: float
    query_norm: float
    sharpness: float
    readout_cosine: float
    rate_constant: float
    anti_aligned: bool
    cause: str | None = None
    cure: str | None = None

    @property
    def query(self) -> Query:
        """The query as an input of `predict`, `capacity` and `simulate`."""
        return Query(self.alignment, self.sharpness)


@one_thread
def align(task: Task, training: Training) -> Alignment:
    """Predict the query that two gradient steps learn: its cosine with the signal, and its size.

    Where the query points away from the signal, `cause` and `cure` say why and what to change. No
    rule of thumb holds: for π < 1/2 a larger bias step cures it, for π > 1/2 it causes it, at
    π = 1/2 the bias step does nothing, and too large a readout step anti-aligns at any π.

    Parameters
    ----------
    task : Task
    training : Training

    Returns
    -------
    Alignment

    Examples
    --------
    >>> from sparsetoken import Task, Training, align
    >>> found = align(Task(10, 1, 5.0), Training(alpha0=4.0, alpha1=2.0))
    >>> round(found.alignment, 3), found.anti_aligned
    (0.977, False)
    """
    validation.instance("task", task, Task)
    validation.instance("training", training, Training)
    found = learnt_alignment(task, training)
    if not found.anti_aligned:
        return found
    return replace(found, cause=_cause(task, training), cure=_cure(task, training))


def learnt_alignment(task: Task, training: Training) -> Alignment:
    """Return the query after stages 1 to 3, without asking why it is as it is."""
    step = QueryStep(task, training, 1 / training.alpha0)
    cosine, norm = step.cosine, step.query_norm
    return Alignment(
        alignment=cosine,
        query_norm=norm,
        sharpness=training.inverse_temperature * norm,
        readout_cosine=float(step.readout_signal / np.sqrt(step.readout_square)),
        rate_constant=_rate_constant(task, training),
        anti_aligned=cosine < 0,
    )


def with_sharpness(task: Task, training: Training, sharpness: float) -> Training:
    """Return the training with the query step that makes the learnt query's β‖q‖ the sharpness.

    Where that is beyond the largest step that a training may have, as in long sequences, β rises by
    powers of ten: only η_q β² enters. A step below the least is that one. A step changes nothing of a
    query of length 0: it is 1 then.
    """
    unit = training.replace(query_step=1.0)
    found = learnt_alignment(task, unit).sharpness
    if found == 0:
        return unit
    least, largest = _QUERY_STEPS
    step = sharpness / found
    powers = max(np.ceil(0.5 * np.log10(step / largest)), 0.0) if step > 0 else 0.0
    beta = min(10.0**powers * training.inverse_temperature, _LARGEST_INVERSE_TEMPERATURE)
    step *= (training.inverse_temperature / beta) ** 2
    return unit.replace(
        query_step=float(np.clip(step, least, largest)), inverse_temperature=float(beta)
    )


def _turned(task: Task, training: Training, **steps: float) -> bool:
    """Return whether the query points away from the signal with other steps."""
    changed = training.replace(**steps)
    return QueryStep(task, changed, 1 / training.alpha0).cosine < 0


def _cause(task: Task, training: Training) -> str:
    """Say why the query points away from the signal: what would have to be otherwise."""
    least = float(_STEPS[0])
    if _turned(task, training, readout_step=least, bias_step=0.0):
        return "positives are too rare for so weak a signal"
    if not _turned(task, training, bias_step=0.0):
        return "the bias step is too large where positives are frequent"
    if not _turned(task, training, readout_step=least):
        return "the readout step is too large"
    return "the bias step and the readout step are too large"


def _cure(task: Task, training: Training) -> str:
    """Say which steps turn the query to the signal, with the value where it turns."""
    cures = list(_single_cures(task, training))
    if cures:
        return ", or ".join(cures)
    if not _turned(task, training, readout_step=float(_STEPS[0]), bias_step=0.0):
        return "smaller readout_step and bias_step together"
    return "none by one step alone: more frequent positives or a stronger signal"


def _single_cures(task: Task, training: Training) -> Iterator[str]:
    for name, word in (("bias_step", "above"), ("bias_step", "below"), ("readout_step", "below")):
        bad = getattr(training, name)
        index = int(np.searchsorted(_STEPS, bad))
        tried = _STEPS[index:] if word == "above" else _STEPS[:index][::-1]
        for good in map(float, tried):
            if not _turned(task, training, **{name: good}):
                yield f"{name} {word} {_turning_step(task, training, name, bad, good):.3g}"
                break
            bad = good


def _turning_step(task: Task, training: Training, name: str, bad: float, good: float) -> float:
    """Return the step between a bad and a good one at which the query turns, by bisection."""
    for _ in range(20):
        middle = float(np.sqrt(bad * good))
        if _turned(task, training, **{name: middle}):
            bad = middle
        else:
            good = middle
    return good


class QueryStep:
    """The scalars of the two steps, at an inverse sample ratio 1/α0 >= 0.

    Attributes
    ----------
    readout_signal, readout_square : w_ξ and ‖w‖² of the first readout step
    pull, push : a and e: the query is a ξ + e w plus noise, up to its rate
    noise_square : α0 N², the noise's size
    """

    def __init__(self, task: Task, training: Training, inverse_ratio: float) -> None:
        loss = get_loss(training.loss)
        slope = float(loss.slope(np.zeros(1))[0])
        length, rate = task.length, task.positive_rate
        gain = -training.readout_step * slope
        bias = -training.bias_step * slope * (2 * rate - 1)
        known = task.counts
        shares = known.values / length
        spreads = known.values * (1 - shares)

        self.readout_signal = gain * rate * task.strength * known.mean / length
        self.readout_square = self.readout_signal**2 + gain**2 * inverse_ratio / length
        # A sample's own weight in the readout shifts its margin by `own`.
        own = gain * inverse_ratio / length
        noise = np.sqrt(self.readout_square / length)
        centres = task.strength * shares * self.readout_signal + own + bias
        moments = np.array([_slope_moments(loss, centre, noise) for centre in centres])
        mean_minus, square_minus = _slope_moments(loss, own - bias, noise)
        chances = rate * known.probability
        mean_positive, square_positive = chances @ moments
        mean = mean_positive - (1 - rate) * mean_minus
        self.square = square_positive + (1 - rate) * square_minus

        # How informative tokens differ from the mean of the sequence goes with R as well.
        mean_spread, square_spread = (chances * spreads) @ moments
        self.pull = task.strength**2 * self.readout_signal * mean_spread
        self.push = (length - 1) * mean
        self.signal_noise = task.strength**2 * self.readout_signal**2 * square_spread
        self.noise_square = self.signal_noise + self.readout_square * (length - 1) * self.square
        self.gain = gain
        self._step = training.query_step * training.inverse_temperature / length
        self._inverse_ratio = inverse_ratio

    @property
    def _square(self) -> float:
        """The square norm of the query, over that of its step."""
        return float(
            self.pull**2
            + 2 * self.pull * self.push * self.readout_signal
            + self.push**2 * self.readout_square
            + self.noise_square * self._inverse_ratio
        )

    @property
    def query_norm(self) -> float:
        """‖q‖."""
        return float(self._step * np.sqrt(self._square))

    @property
    def cosine(self) -> float:
        """The cosine of the query with the signal; 0 for a query of length 0."""
        if not self._square > 0:
            return 0.0
        projection = self.pull + self.push * self.readout_signal
        # The query moves against the gradient. Adding 0 turns a -0 into 0.
        return float(np.clip(-projection / np.sqrt(self._square), -1, 1)) + 0.0


# Along a curve in the second ratio or the ridge the query stays the same.
@lru_cache(maxsize=64)
def _slope_moments(loss: Loss, mean: float, noise: float) -> tuple[float, float]:
    """Return E ℓ'(s) and E ℓ'(s)² for s = mean + noise G."""
    if noise == 0:
        slope = float(loss.slope(np.array([mean]))[0])
        return slope, slope**2
    edges: Array = (np.array(loss.breakpoints) - mean) / noise
    nodes, weights = normal_panels(edges, order=16)
    slopes = loss.slope(mean + noise * nodes)
    return float(weights @ slopes), float(weights @ slopes**2)


def _rate_constant(task: Task, training: Training) -> float:
    """Return C in abs(alignment) = 1 - C/α0 + o(1/α0)."""
    limit = QueryStep(task, training, 0.0)
    projection = limit.pull + limit.push * limit.readout_signal
    if projection == 0:
        return np.inf
    across = limit.push**2 * limit.gain**2 / task.length
    noise = limit.signal_noise + limit.readout_signal**2 * (task.length - 1) * limit.square
    return float((across + noise) / (2 * projection**2))


def balanced_bias_step(positive_rate: float) -> float:
    """Return the bias step that makes the first bias the log odds of the labels (logistic loss).

    b1 = (η_b/2)(2π - 1) is log(π/(1-π)) if η_b = 2 log((1-π)/π)/(1-2π); its limit at π = 1/2 is 4.
    """
    gap = 1 - 2 * positive_rate
    if abs(gap) < 1e-6:
        return 4.0
    return 2 * math.log((1 - positive_rate) / positive_rate) / gap
