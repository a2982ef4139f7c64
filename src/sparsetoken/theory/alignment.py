"""The query after two gradient steps, in the limit of high dimension (docs/theory.md, section 4)."""

from dataclasses import dataclass

import numpy as np

from sparsetoken import validation
from sparsetoken.arrays import Array
from sparsetoken.losses import Loss, get_loss
from sparsetoken.numerics.quadrature import normal_panels
from sparsetoken.records import Record
from sparsetoken.task import Query, Task, Training

__all__ = ["Alignment", "align"]


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
        Whether the query points away from the signal. A larger bias step cures it.
    """

    alignment: float
    query_norm: float
    sharpness: float
    readout_cosine: float
    rate_constant: float
    anti_aligned: bool

    @property
    def query(self) -> Query:
        """The query as an input of `predict`, `capacity` and `simulate`."""
        return Query(self.alignment, self.sharpness)


def align(task: Task, training: Training) -> Alignment:
    """Predict the query after stages 1 to 3."""
    validation.instance("task", task, Task)
    validation.instance("training", training, Training)
    step = _QueryStep(task, training, 1 / training.alpha0)
    projection = step.pull + step.push * step.readout_signal
    square = (
        step.pull**2
        + 2 * step.pull * step.push * step.readout_signal
        + step.push**2 * step.readout_square
        + step.noise_square / training.alpha0
    )
    rate = -training.query_step * training.inverse_temperature / task.length
    norm = float(abs(rate) * np.sqrt(square))
    # Adding 0 turns a -0 into 0.
    cosine = float(np.sign(rate) * projection / np.sqrt(square)) + 0.0 if square > 0 else 0.0
    return Alignment(
        alignment=float(np.clip(cosine, -1, 1)),
        query_norm=norm,
        sharpness=training.inverse_temperature * norm,
        readout_cosine=float(step.readout_signal / np.sqrt(step.readout_square)),
        rate_constant=_rate_constant(task, training),
        anti_aligned=cosine < 0,
    )


class _QueryStep:
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
        length, informative, rate = task.length, task.informative, task.positive_rate
        gain = -training.readout_step * slope
        bias = -training.bias_step * slope * (2 * rate - 1)
        share = informative / length
        spread = informative * (1 - share)

        self.readout_signal = gain * rate * task.strength * share
        self.readout_square = self.readout_signal**2 + gain**2 * inverse_ratio / length
        # A sample's own weight in the readout shifts its margin by `own`.
        own = gain * inverse_ratio / length
        noise = np.sqrt(self.readout_square / length)
        positive = task.strength * share * self.readout_signal + own + bias
        mean_plus, square_plus = _slope_moments(loss, positive, noise)
        mean_minus, square_minus = _slope_moments(loss, own - bias, noise)
        self.mean_positive = rate * mean_plus
        self.square_positive = rate * square_plus
        mean = self.mean_positive - (1 - rate) * mean_minus
        self.square = self.square_positive + (1 - rate) * square_minus

        self.pull = task.strength**2 * spread * self.readout_signal * self.mean_positive
        self.push = (length - 1) * mean
        self.signal_noise = (
            task.strength**2 * self.readout_signal**2 * spread * self.square_positive
        )
        self.noise_square = self.signal_noise + self.readout_square * (length - 1) * self.square
        self.gain = gain


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
    limit = _QueryStep(task, training, 0.0)
    projection = limit.pull + limit.push * limit.readout_signal
    if projection == 0:
        return np.inf
    across = limit.push**2 * limit.gain**2 / task.length
    noise = limit.signal_noise + limit.readout_signal**2 * (task.length - 1) * limit.square
    return float((across + noise) / (2 * projection**2))
