"""Joint gradient descent on fresh batches, in the limit of high dimension.

Each step draws αd new samples and moves the query, the readout and the bias by the gradient of the
mean loss. The state is the Gram matrix of signal, readout and query, and the bias (docs/theory.md,
section 11).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.special import ndtr

from sparsetoken import validation
from sparsetoken.arrays import Array
from sparsetoken.losses import Loss, get_loss
from sparsetoken.numerics.memory import path_memory
from sparsetoken.numerics.solution import Solution, Status
from sparsetoken.numerics.threads import one_thread
from sparsetoken.records import Curve, Record
from sparsetoken.task import Query, Step, Task, Training
from sparsetoken.theory.feature_law import ScoreLaw
from sparsetoken.theory.gradient_law import (
    FrameReadout,
    TokenDraw,
    draw_sequences,
    mean_gradient,
    sequence_scores,
)
from sparsetoken.theory.prediction import Prediction
from sparsetoken.theory.predictor import predict
from sparsetoken.theory.ranking import Ranked, Ranking
from sparsetoken.theory.replicates import REPLICATES, replicate_error
from sparsetoken.validation import ParameterError

__all__ = ["AMPLIFIED", "DescentState", "descend", "glance"]

# From this growth of small deviations on, trials of usual dimensions part from the limit.
AMPLIFIED = 5.0

# Points of the law, as powers of two: where to begin and end, for small deviations, and for an answer
# without a bar. Nodes of the quadrature for the answer, and for what it is compared with.
_FIRST_SIZE = 8
_LAST_SIZE = 13
_COARSE_SIZE = 7
_GLANCE_SIZE = 9
_ORDERS = (8, 5)
# Below this sharpness the mean of the tokens matters most.
_MILD_SHARPNESS = 0.2
_QUANTITIES = (
    "test_error",
    "alignment",
    "query_norm",
    "sharpness",
    "readout_cosine",
    "readout_norm",
    "bias",
)


@dataclass(frozen=True)
class DescentState(Ranked, Record):
    """The classifier after some steps.

    Attributes
    ----------
    test_error : float
        Of the classifier as it is.
    alignment, readout_cosine : float
        Cosines of the query and the readout with the signal.
    query_norm, readout_norm, bias : float
    sharpness : float
        κ = β‖q‖, with the β of the last step.
    uncertainty : dict
        Numerical error bars.
    amplification : float
        The most to which what one batch's chance changes has grown, relative to the parameters'
        sizes and in units of 1/√d.
    solution : Solution
    ranking : Ranking
        How well the scores rank fresh sequences: AUC, average precision, curves.

    Examples
    --------
    >>> from sparsetoken import Step, Task, descend
    >>> step = Step(alpha=8.0, readout_step=2.0, bias_step=1.0, query_step=10.0)
    >>> first = descend(Task(10, 1, 5.0), [step])[0]
    >>> first.query_norm, round(first.readout_cosine, 2)
    (0.0, 0.91)
    """

    test_error: float
    alignment: float
    query_norm: float
    sharpness: float
    readout_cosine: float
    readout_norm: float
    bias: float
    uncertainty: dict[str, float]
    amplification: float
    solution: Solution
    ranking: Ranking = field(repr=False, compare=False, metadata={"hidden": True})

    @property
    def query(self) -> Query:
        """The query as an input of `predict`, `capacity` and `simulate`."""
        return Query(self.alignment, self.sharpness)

    def fitted(self, task: Task, training: Training) -> Prediction:
        """Predict a readout fitted on alpha1 d fresh samples, with the query of this state.

        Parameters
        ----------
        task : Task
            The one of the descent.
        training : Training
            Its alpha1, loss and ridge are those of the readout.

        Returns
        -------
        Prediction

        Examples
        --------
        >>> from sparsetoken import Step, Task, Training, descend
        >>> task, step = Task(8, 2, 3.0), Step(2.0, readout_step=0.6, bias_step=0.6, query_step=2.0)
        >>> found = descend(task, 3 * [step])[-1]
        >>> round(found.fitted(task, Training(2.0, 2.0)).test_error, 2)
        0.12
        """
        return predict(task, training, query=self.query)


@one_thread
@path_memory()
def descend(
    task: Task, steps: Sequence[Step], *, loss: str = "logistic", tolerance: float = 1e-3
) -> Curve[DescentState]:
    """Predict joint gradient descent from w = 0, b = 0, q = 0, a fresh batch for every step.

    Parameters
    ----------
    task : Task
    steps : sequence of Step
        Any schedule; a rate of 0 leaves a parameter alone. The query begins to move with the second
        step, since its gradient is 0 without a readout.
    loss : str
    tolerance : float
        Wanted numerical error of the test errors. If it cannot be reached, the uncertainty and the
        status say so.

    Returns
    -------
    Curve over "step" of the state after each one.

    Examples
    --------
    >>> from sparsetoken import Step, Task, descend
    >>> step = Step(alpha=8.0, readout_step=2.0, bias_step=1.0, query_step=10.0)
    >>> path = descend(Task(10, 1, 5.0), [step, step.replace(query_step=2.0)])
    >>> [round(error, 2) for error in path.column("test_error")]
    [0.29, 0.36]
    """
    validation.instance("task", task, Task)
    chosen = tuple(validation.several("steps", steps, "Step"))
    if not chosen or not all(isinstance(step, Step) for step in chosen):
        raise ParameterError("steps", steps, "one Step or more")
    tolerance = validation.real("tolerance", tolerance, low=0, inclusive=False)
    found = get_loss(loss)
    size = _FIRST_SIZE
    while True:
        states = _solve(task, chosen, found, size, tolerance)
        worst = max(state.uncertainty["test_error"] for state in states)
        if worst <= tolerance or size == _LAST_SIZE or _hopeless(states, tolerance):
            break
        growth = int(np.ceil(np.log2(worst / tolerance)))
        size = min(_LAST_SIZE, size + max(1, min(growth, 3)))
    settings = {**task.to_dict(), "loss": found.name}
    return Curve("step", tuple(range(1, len(states) + 1)), tuple(states), settings)


@one_thread
@path_memory()
def glance(task: Task, steps: Sequence[Step], *, loss: str = "logistic") -> dict[str, float]:
    """Return what `descend` says after the last step, by few points and without bars: for searches."""
    draws = _Draws.make(task, _GLANCE_SIZE, replicates=1)
    state = _path(task, get_loss(loss), steps, draws, order=_ORDERS[1])[-1]
    values, _ = _values(steps[-1], state, _scores(task, steps[-1], state, draws))
    return dict(zip(_QUANTITIES, map(float, values), strict=True))


def _hopeless(states: Sequence[DescentState], tolerance: float) -> bool:
    """Whether only amplified states miss the tolerance: more points would not tell much more."""
    return all(
        state.solution.status is Status.AMPLIFIED
        for state in states
        if state.uncertainty["test_error"] > tolerance
    )


@dataclass(frozen=True)
class _State:
    """Gram matrix of ξ, w and q, and the bias.

    Attributes
    ----------
    readout_signal, query_signal : ⟨w, ξ⟩ and ⟨q, ξ⟩
    readout_square, cross, query_square : ‖w‖², ⟨w, q⟩, ‖q‖²
    bias : b
    """

    readout_signal: float = 0.0
    query_signal: float = 0.0
    readout_square: float = 0.0
    cross: float = 0.0
    query_square: float = 0.0
    bias: float = 0.0

    def in_frame(self, inverse_temperature: float) -> FrameReadout:
        """Return the coordinates in the frame of the query and the rest of the signal.

        A query of 0 has no direction, and any will do: that of the signal.
        """
        norm = float(np.sqrt(self.query_square))
        alignment = float(np.clip(self.query_signal / norm, -1, 1)) if norm > 0 else 1.0
        along = self.cross / norm if norm > 0 else self.readout_signal
        slant = np.sqrt(1 - alignment**2)
        across = (self.readout_signal - alignment * along) / slant if slant > 1e-7 else 0.0
        rest = np.sqrt(max(self.readout_square - along**2 - across**2, 0.0))
        return FrameReadout(
            alignment,
            inverse_temperature * norm,
            float(along),
            float(across),
            float(rest),
            self.bias,
        )

    def coordinates(self) -> Array:
        """Return (w, w; q, q, q; b) in the frame of ξ, the rest of w and the rest of q."""
        rest = np.sqrt(max(self.readout_square - self.readout_signal**2, 0.0))
        shared = (self.cross - self.readout_signal * self.query_signal) / rest if rest > 0 else 0.0
        last = np.sqrt(max(self.query_square - self.query_signal**2 - shared**2, 0.0))
        return np.array(
            [self.readout_signal, rest, self.query_signal, shared, last, self.bias], dtype=float
        )

    @classmethod
    def from_coordinates(cls, x: Array) -> "_State":
        """Return the state with these coordinates."""
        return cls(
            float(x[0]),
            float(x[2]),
            float(x[0] ** 2 + x[1] ** 2),
            float(x[0] * x[2] + x[1] * x[3]),
            float(x[2] ** 2 + x[3] ** 2 + x[4] ** 2),
            float(x[5]),
        )

    def scales(self) -> Array:
        """Return the size by which each coordinate is measured."""
        readout, query = np.sqrt(self.readout_square), np.sqrt(self.query_square)
        return np.array([readout, readout, query, query, query, max(abs(self.bias), readout)])


@dataclass(frozen=True, eq=False)
class _Draws:
    """Tokens of each replicate, for sharp and for mild attention."""

    sharp: tuple[TokenDraw, ...]
    mild: tuple[TokenDraw, ...]

    @classmethod
    def make(cls, task: Task, size: int, replicates: int = REPLICATES) -> "_Draws":
        sharp, mild = (
            tuple(draw_sequences(task, size, (size, index), mild) for index in range(replicates))
            for mild in (False, True)
        )
        return cls(sharp, mild)

    def at(self, sharpness: float) -> tuple[TokenDraw, ...]:
        return self.mild if sharpness < _MILD_SHARPNESS else self.sharp

    def only(self, index: int) -> "_Draws":
        """Return one replicate."""
        return _Draws(self.sharp[index : index + 1], self.mild[index : index + 1])


def _advance(
    task: Task, loss: Loss, step: Step, state: _State, draws: _Draws, order: int = _ORDERS[0]
) -> _State:
    """Return the state after one step."""
    frame = state.in_frame(step.inverse_temperature)
    found = mean_gradient(task, loss, frame, draws.at(frame.sharpness), order)
    slant = np.sqrt(1 - frame.alignment**2)
    signal = np.array([frame.alignment, slant, 0.0])
    readout = np.array([frame.along, frame.across, frame.rest])
    query = np.array([np.sqrt(state.query_square), 0.0, 0.0])
    rate_w, rate_q = step.readout_step, step.query_step * step.inverse_temperature
    readout = readout - rate_w * found.readout
    query = query - rate_q * found.query
    noise = 1 / step.alpha
    return _State(
        float(readout @ signal),
        float(query @ signal),
        float(readout @ readout + noise * rate_w**2 * found.readout_noise),
        float(readout @ query + noise * rate_w * rate_q * found.cross_noise),
        float(query @ query + noise * rate_q**2 * found.query_noise),
        state.bias - step.bias_step * found.bias,
    )


def _path(
    task: Task, loss: Loss, steps: Sequence[Step], draws: _Draws, order: int = _ORDERS[0]
) -> list[_State]:
    states = [_State()]
    for step in steps:
        states.append(_advance(task, loss, step, states[-1], draws, order))
    return states[1:]


def _values(step: Step, state: _State, law: ScoreLaw) -> tuple[Array, float]:
    """Return the reported quantities, and the largest share that one point has in the error."""
    spread = np.maximum(law.spread, 1e-290)
    shares = law.weight * ndtr(-law.label * law.mean / spread)
    query, readout = np.sqrt(state.query_square), np.sqrt(state.readout_square)
    values = (
        shares.sum(),
        state.query_signal / query if query > 0 else 0.0,
        query,
        step.inverse_temperature * query,
        state.readout_signal / readout if readout > 0 else 0.0,
        readout,
        state.bias,
    )
    return np.array(values, dtype=float), float(shares.max())


def _scores(task: Task, step: Step, state: _State, draws: _Draws) -> ScoreLaw:
    frame = state.in_frame(step.inverse_temperature)
    return sequence_scores(task, frame, draws.at(frame.sharpness))


def _together(laws: Sequence[ScoreLaw]) -> ScoreLaw:
    """Return laws of one replicate each as the replicates of one law."""
    columns = ((law.mean, law.spread, law.label, law.weight / len(laws)) for law in laws)
    mean, spread, label, weight = map(np.concatenate, zip(*columns, strict=True))
    return ScoreLaw(mean, spread, label, weight, replicates=len(laws))


def _solve(
    task: Task, steps: Sequence[Step], loss: Loss, size: int, tolerance: float
) -> list[DescentState]:
    draws = _Draws.make(task, size)
    parts = [draws.only(index) for index in range(REPLICATES)]
    states = _path(task, loss, steps, draws)
    paths = [_path(task, loss, steps, part) for part in parts]
    coarse = _path(task, loss, steps, parts[0], order=_ORDERS[1])
    growth = _amplifications(task, loss, steps, states)
    results = []
    for number, step in enumerate(steps):
        law = _scores(task, step, states[number], draws)
        laws = [
            _scores(task, step, path[number], part) for path, part in zip(paths, parts, strict=True)
        ]
        values, largest = _values(step, states[number], law)
        spread = np.stack(
            [_values(step, path[number], own)[0] for path, own in zip(paths, laws, strict=True)]
        )
        fewer = _values(step, coarse[number], _scores(task, step, coarse[number], parts[0]))[0]
        bars = {
            name: replicate_error(spread[:, index], largest if name == "test_error" else 0.0)
            + float(abs(fewer[index] - spread[0, index]))
            for index, name in enumerate(_QUANTITIES)
        }
        results.append(
            DescentState(
                **dict(zip(_QUANTITIES, map(float, values), strict=True)),
                uncertainty=bars,
                amplification=growth[number],
                solution=_solution(growth[number], bars["test_error"], tolerance, number + 1),
                ranking=Ranking(law, _together(laws)),
            )
        )
    return results


def _solution(growth: float, bar: float, tolerance: float, steps: int) -> Solution:
    if growth > AMPLIFIED:
        detail = f"trials of dimension d deviate by some {growth:.2g}/√d of the parameters' sizes"
        return Solution(Status.AMPLIFIED, bar, steps, detail)
    if bar > tolerance:
        detail = f"the test error is known to ± {bar:.2g}, {tolerance:g} was wanted"
        return Solution(Status.TOLERANCE_NOT_REACHED, bar, steps, detail)
    return Solution(Status.CONVERGED, bar, steps)


def _amplifications(
    task: Task, loss: Loss, steps: Sequence[Step], states: Sequence[_State]
) -> list[float]:
    """Return, after each step, the largest growth of what one batch's chance has changed before.

    A batch moves every coordinate by some 1/√d of the sizes of readout, query and bias; the bias by
    more where its step is large for the readout's size. That is followed through the steps: the norm
    of the product of their Jacobians in coordinates relative to those sizes. A few points are
    enough.
    """
    draws = _Draws.make(task, _COARSE_SIZE, replicates=1)
    products: list[Array] = []
    growth = []
    for before, after, step in zip([_State(), *states], states, steps, strict=False):
        relative = _relative_jacobian(task, loss, step, before, after, draws)
        chance = np.diag([1.0] * 5 + [_bias_chance(task, loss, step, before, after, draws)])
        products = [*(relative @ product for product in products), chance]
        growth.append(max(1.0, *(float(np.linalg.norm(product, 2)) for product in products)))
    return growth


def _bias_chance(
    task: Task, loss: Loss, step: Step, before: _State, after: _State, draws: _Draws
) -> float:
    """Return by how much one batch's chance moves the bias, relative to its size, times √d."""
    frame = before.in_frame(step.inverse_temperature)
    noise = mean_gradient(task, loss, frame, draws.at(frame.sharpness), _ORDERS[1]).bias_noise
    size = float(after.scales()[-1])
    return max(1.0, step.bias_step * np.sqrt(noise / step.alpha) / size) if size > 0 else 1.0


def _relative_jacobian(
    task: Task, loss: Loss, step: Step, before: _State, after: _State, draws: _Draws
) -> Array:
    """Return the change of a step's end with its start, both relative to their sizes, (6, 6)."""
    scale, new_scale = before.scales(), after.scales()
    jacobian = np.zeros((6, 6))
    for index in np.flatnonzero(scale):
        moved = np.zeros(6)
        moved[index] = 1e-4 * scale[index]
        ends = [
            _advance(
                task, loss, step, _State.from_coordinates(before.coordinates() + part), draws
            ).coordinates()
            for part in (moved, -moved)
        ]
        jacobian[:, index] = (ends[0] - ends[1]) / 2e-4
    return np.divide(
        jacobian, new_scale[:, None], out=np.zeros((6, 6)), where=new_scale[:, None] > 0
    )
