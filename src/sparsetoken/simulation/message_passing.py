"""Approximate message passing on data: the best known efficient learner of the signal.

With x = √d ξ the positive sequences are X = (θ/√d) v xᵀ + Z. Message passing alternates between an
estimate of x, given a prior N(0, I), and of the places v of each sequence, given that R of them are
ones (docs/theory.md, section 10.3). Negative sequences say nothing about ξ.

Two sources of data give the same law of everything reported: "plain" builds the sequences, "reduced"
draws only the products with them that the algorithm asks for, each given all the earlier ones.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln

from sparsetoken import validation
from sparsetoken.arrays import Array
from sparsetoken.learning.examples import check_labels
from sparsetoken.learning.features import blocks, sequence_array
from sparsetoken.limits import MOST_DIMENSIONS, MOST_TRIALS
from sparsetoken.numerics.solution import Solution, Status
from sparsetoken.records import Record
from sparsetoken.simulation.averages import averages, repeated
from sparsetoken.simulation.random_streams import stream
from sparsetoken.simulation.sampling import SAMPLERS, first_places, sample
from sparsetoken.task import Task
from sparsetoken.validation import ParameterError

__all__ = [
    "LearntDirection",
    "MessagePassing",
    "learn_direction",
    "place_means",
    "simulate_message_passing",
]

# 5 to 20 steps are usual; near the edge of a hard phase hundreds. A direction that turns by less than
# the tolerance in a step has settled.
STEPS = 300
TOLERANCE = 1e-6
# Of this relative size a new direction is rounding.
_ROUNDING = 1e-9
# Scores of tokens that are held at once, and drawn to measure a test error: 8 MB.
_TEST_SCORES = 2**20


@dataclass(frozen=True, eq=False)
class LearntDirection:
    """What message passing learnt.

    Attributes
    ----------
    direction : array of shape (d,)
        Unit vector, the estimate of ξ; 0 where nothing was to be learnt from.
    estimated_overlap : float
        What the algorithm itself expects of the squared cosine with ξ.
    solution : Solution
        Its residual is the relative change in the last step.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsetoken import Task, learn_direction, sample
    >>> task = Task(6, 1, 4.0)
    >>> X, y, _, _ = sample(task, 400, dimension=40, rng=np.random.default_rng(0))
    >>> found = learn_direction(task, X, y)
    >>> bool(np.mean(found.predict(task, X) == y) > 0.9), found.solution.converged
    (True, True)
    """

    direction: Array = field(repr=False)
    estimated_overlap: float
    solution: Solution

    def scores(self, task: Task, X: ArrayLike) -> Array:
        """Return the log-likelihood ratio of each sequence of X (n, L, d).

        It is that of a signal of strength θ√(estimated overlap) along the direction.

        Parameters
        ----------
        task : Task
            What the sequences are of; its strength and number of informative tokens are taken as
            known.
        X : array of shape (n, L, d)

        Returns
        -------
        array of shape (n,)

        Examples
        --------
        >>> from sparsetoken import Task, learn_direction, sample
        >>> task = Task(10, 1, 5.0)
        >>> data = sample(task, 200, dimension=20, rng=0)
        >>> learn_direction(task, data.X, data.y).scores(task, data.X).shape
        (200,)
        """
        sequences = _sequences(task, X)
        if sequences.shape[2] != len(self.direction):
            accepted = f"{len(self.direction)}, as of the samples that it was learnt from"
            raise ParameterError("dimension of X", sequences.shape[2], accepted)
        tokens = sequences @ self.direction
        return _log_ratio(tokens, task, task.strength * math.sqrt(self.estimated_overlap))

    def predict(self, task: Task, X: ArrayLike) -> Array:
        """Return the predicted labels, -1 or +1.

        Parameters
        ----------
        task : Task
            What the sequences are of; its strength and number of informative tokens are taken as
            known.
        X : array of shape (n, L, d)

        Returns
        -------
        array of shape (n,)

        Examples
        --------
        >>> from sparsetoken import Task, learn_direction, sample
        >>> task = Task(10, 1, 5.0)
        >>> data = sample(task, 200, dimension=20, rng=0)
        >>> found = learn_direction(task, data.X, data.y)
        >>> bool((found.predict(task, data.X) == data.y).mean() > 0.9)
        True
        """
        return np.where(self.scores(task, X) > _threshold(task), 1, -1)


@dataclass(frozen=True)
class MessagePassing(Record):
    """Means over trials of message passing, with standard errors.

    Attributes
    ----------
    overlap : float
        Squared cosine of the learnt direction with the signal.
    alignment : float
        Its cosine; a `Query` of this alignment gives the direction to attention.
    estimated_overlap : float
        What the algorithm itself expects.
    test_error : float
        Of the likelihood-ratio classifier along the direction.
    steps : float
    uncertainty : dict
        Standard errors of the means; None with one trial.
    converged : float
        Fraction of trials that came to rest.
    dimension, trials : int
    alpha : float

    Examples
    --------
    >>> from sparsetoken import Task, simulate_message_passing
    >>> found = simulate_message_passing(Task(6, 1, 4.0), 4.0, dimension=60, trials=2)
    >>> found.test_error < 0.1, sorted(found.uncertainty)[:2]
    (True, ['alignment', 'converged'])
    """

    sampled: ClassVar[bool] = True

    overlap: float
    alignment: float
    estimated_overlap: float
    test_error: float
    steps: float
    uncertainty: dict[str, float | None]
    converged: float
    dimension: int
    trials: int
    alpha: float


class _Tokens(Protocol):
    """Products with the matrix of positive tokens, of shape (n L, d)."""

    count: int
    dimension: int

    def scores(self, x: Array) -> Array:
        """Return X x, of shape (n, L)."""

    def sums(self, v: Array) -> Array:
        """Return Σ v_il X_il, of shape (d,)."""


def learn_direction(
    task: Task, X: ArrayLike, y: ArrayLike, *, max_steps: int = STEPS, tolerance: float = TOLERANCE
) -> LearntDirection:
    """Learn the signal's direction from labelled sequences by message passing.

    The direction is a query like any other: `features(X, "attention", query=κ direction)` and
    `fit_readout` train a readout on it, and `predict` uses it as well as it can be used.

    Parameters
    ----------
    task : Task
        Its strength and number of informative tokens are known to the algorithm.
    X : array of shape (n, L, d)
    y : array of shape (n,), labels -1 and +1
    max_steps : int
        At most so many.
    tolerance : float
        Relative change of the estimate at which it stops.

    Returns
    -------
    LearntDirection

    Examples
    --------
    >>> import numpy as np
    >>> from sparsetoken import Task, learn_direction, sample
    >>> task = Task(6, 1, 4.0)
    >>> X, y, _, signal = sample(task, 400, dimension=40, rng=np.random.default_rng(0))
    >>> bool(learn_direction(task, X, y).direction @ signal > 0.9)
    True
    """
    sequences = _sequences(task, X)
    labels = check_labels("y", y, len(sequences))
    max_steps = validation.integer("max_steps", max_steps, low=1)
    tolerance = validation.real("tolerance", tolerance, low=0, inclusive=False)
    return _learn(
        task, _PlainTokens(np.asarray(sequences[labels > 0], dtype=float)), max_steps, tolerance
    )


def _sequences(task: Task, X: ArrayLike) -> Array:
    """Return finite sequences that are as long as the task says."""
    validation.instance("task", task, Task)
    sequences = sequence_array(X)
    if sequences.shape[1] != task.length:
        accepted = f"{task.length}, the task's length"
        raise ParameterError("tokens in X", sequences.shape[1], accepted)
    if not all(np.isfinite(sequences[part]).all() for part in blocks(sequences)):
        raise ParameterError("X", "NaN or infinity", "finite numbers")
    return sequences


def _learn(task: Task, tokens: _Tokens, steps: int, tolerance: float) -> LearntDirection:
    """Iterate from no information: all places alike."""
    strength, dimension = task.strength, tokens.dimension
    gain = strength / math.sqrt(dimension)
    places = np.full((tokens.count, task.length), task.counts.mean / task.length)
    estimate = np.zeros(dimension)
    change = math.inf
    status, done = Status.STEP_LIMIT, steps
    for step in range(steps):
        before = estimate
        precision = 1 + gain**2 * float(np.sum(places**2))
        spread = gain**2 * float(np.sum(places * (1 - places)))
        estimate = (gain * tokens.sums(places) - spread * before) / precision
        norm = float(np.linalg.norm(estimate))
        if norm == 0:
            break
        change = float(np.linalg.norm(estimate - before)) / norm
        if change < tolerance:
            status, done = Status.CONVERGED, step + 1
            break
        scores = gain * tokens.scores(estimate) - strength**2 / precision * places
        if isinstance(task.informative, int):
            places = place_means(scores, task.informative)
        else:
            # What is the same for all sets of R places counts where R is not known.
            scores -= 0.5 * (gain * norm) ** 2
            places = mixed_place_means(scores, _log_priors(task))
    norm = float(np.linalg.norm(estimate))
    if norm == 0:
        nothing = Solution(Status.CONVERGED, 0.0, 0, "no positive sequence, or no signal")
        return LearntDirection(estimate, 0.0, nothing)
    overlap = min(norm**2 / dimension, 1.0)
    return LearntDirection(estimate / norm, overlap, Solution(status, change, done))


def place_means(scores: Array, informative: int) -> Array:
    """Return the posterior means of 0/1 places with R ones, of weights exp(scores) (n, L).

    For R = 1 the softmax. Otherwise P(place l) = e^{s_l} Σ_j e_j(before l) e_{R-1-j}(after l) over
    e_R(all), with elementary symmetric polynomials in logarithms.
    """
    length = scores.shape[1]
    if informative > length - informative:
        return 1 - place_means(-scores, length - informative)
    if informative == 1:
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))
    result = np.empty_like(scores)
    size = max(1, _TEST_SCORES // (length * informative))
    for start in range(0, len(scores), size):
        block = scores[start : start + size].T
        before = _log_polynomials(block, informative)
        after = _log_polynomials(block[::-1], informative)[::-1]
        terms = before[:-1, :informative] + after[1:, informative - 1 :: -1]
        logs = np.logaddexp.reduce(terms[:, :informative], axis=1)
        result[start : start + size] = np.exp(block + logs - before[-1, informative]).T
    return result


def mixed_place_means(scores: Array, log_priors: Array) -> Array:
    """Return the posterior means of 0/1 places, of weights exp(scores) (n, L).

    A set of r places has the prior weight exp(log_priors[r]). With F_l(j) what all sets of later
    places weigh that come to j places up to l: P(place l) = e^{s_l} Σ_j e_j(before l) F_l(j+1)/F_0(0).
    """
    result = np.empty_like(scores)
    length, order = scores.shape[1], len(log_priors) - 1
    size = max(1, _TEST_SCORES // (length * order))
    for start in range(0, len(scores), size):
        block = scores[start : start + size].T
        before = _log_polynomials(block, order)
        later = np.repeat(log_priors[:, None], block.shape[1], axis=1)
        for index in range(length - 1, -1, -1):
            exponent = block[index]
            terms = before[index, :-1] + later[1:]
            result[start : start + size, index] = exponent + np.logaddexp.reduce(terms, axis=0)
            later[:-1] = np.logaddexp(later[:-1], exponent + later[1:])
        result[start : start + size] -= later[0][:, None]
    return np.exp(result)


def _log_priors(task: Task) -> Array:
    """Return the logarithm of the probability of a set of r places, r = 0 ... the largest."""
    known = task.counts
    values = known.values
    subsets = gammaln(task.length + 1) - gammaln(values + 1) - gammaln(task.length - values + 1)
    logs = np.full(int(values[-1]) + 1, -np.inf)
    logs[values] = np.log(known.probability) - subsets
    return logs


def _log_polynomials(exponents: Array, order: int) -> Array:
    """Return log e_j of the first l weights exp(exponents) (L, n), of shape (L + 1, order + 1, n)."""
    length, count = exponents.shape
    logs = np.full((length + 1, order + 1, count), -np.inf)
    logs[:, 0] = 0.0
    for index, exponent in enumerate(exponents):
        logs[index + 1, 1:] = np.logaddexp(logs[index, 1:], exponent + logs[index, :-1])
    return logs


class _PlainTokens:
    """The positive sequences themselves."""

    def __init__(self, X: Array) -> None:
        self.count, self.length, self.dimension = X.shape
        self._rows = X.reshape(-1, self.dimension)

    def scores(self, x: Array) -> Array:
        return np.asarray((self._rows @ x).reshape(self.count, self.length))

    def sums(self, v: Array) -> Array:
        return np.asarray(v.reshape(-1) @ self._rows)


class _ReducedTokens:
    """Products with positive sequences that are drawn when they are asked for.

    Let Z be the noise, U and W orthonormal bases of the vectors that it was multiplied with from
    the right and from the left, and A = ZU, B = ZᵀW. Given these, Z is A Uᵀ + W Bᵀ - W(WᵀA)Uᵀ plus
    fresh noise between the complements of W and U: a product with a new vector is known but for one
    fresh normal vector. The signal lies along the first axis, in the first R tokens.
    """

    def __init__(self, task: Task, count: int, dimension: int, rng: np.random.Generator) -> None:
        self.count, self.dimension = count, dimension
        self._task, self._rng = task, rng
        self._marked = task.strength * first_places(task, count, rng)
        rows = count * task.length
        self._right, self._right_images = np.empty((0, dimension)), np.empty((0, rows))
        self._left, self._left_images = np.empty((0, rows)), np.empty((0, dimension))

    def scores(self, x: Array) -> Array:
        product, self._right, self._right_images = self._product(
            x, self._right, self._right_images, self._left, self._left_images
        )
        scores = product.reshape(self.count, self._task.length)
        scores += float(x[0]) * self._marked
        return scores

    def sums(self, v: Array) -> Array:
        sums, self._left, self._left_images = self._product(
            v.reshape(-1), self._left, self._left_images, self._right, self._right_images
        )
        sums[0] += float(np.vdot(self._marked, v))
        return sums

    def _product(
        self, vector: Array, basis: Array, images: Array, others: Array, other_images: Array
    ) -> tuple[Array, Array, Array]:
        """Return the product with a vector, and the basis and images with the new direction."""
        rest = vector - (basis @ vector) @ basis
        rest -= (basis @ rest) @ basis
        norm = float(np.linalg.norm(rest))
        if norm > _ROUNDING * float(np.linalg.norm(vector)):
            unit = rest / norm
            fresh = self._rng.standard_normal((images.shape[1],))
            fresh -= (others @ fresh) @ others
            image = (other_images @ unit) @ others + fresh
            basis, images = np.vstack([basis, unit]), np.vstack([images, image])
        return (basis @ vector) @ images, basis, images


def simulate_message_passing(
    task: Task,
    alpha: float,
    *,
    dimension: int,
    trials: int = 8,
    sampler: str = "reduced",
    max_steps: int = STEPS,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> MessagePassing:
    """Run message passing on data drawn from a task; means and standard errors over trials.

    Parameters
    ----------
    task : Task
    alpha : float
        Samples per dimension, all of them.
    dimension, trials : int
    sampler : "reduced" or "plain"
    max_steps : int
        Steps of message passing at most.
    seed : int
    progress : callable, optional
        Called as progress(finished, trials) after every trial.

    Returns
    -------
    MessagePassing

    Examples
    --------
    >>> from sparsetoken import Task, simulate_message_passing
    >>> found = simulate_message_passing(Task(6, 1, 4.0), 4.0, dimension=60, trials=2)
    >>> found.overlap > 0.8, found.converged
    (True, 1.0)
    """
    validation.instance("task", task, Task)
    alpha = validation.real("alpha", alpha, low=1e-6, high=1e6)
    dimension = validation.integer("dimension", dimension, low=2, high=MOST_DIMENSIONS)
    trials = validation.integer("trials", trials, low=1, high=MOST_TRIALS)
    max_steps = validation.integer("max_steps", max_steps, low=1)
    seed = validation.integer("seed", seed, low=0)
    validation.choice("sampler", sampler, SAMPLERS)
    settings = {
        "stage": "message passing",
        "task": task.to_dict(),
        "alpha": alpha,
        "dimension": dimension,
        "sampler": sampler,
        "steps": max_steps,
    }

    def one(trial: int) -> dict[str, float]:
        rng = stream(seed, settings, trial)
        return _trial(task, alpha, dimension, sampler, max_steps, rng)

    means, errors = averages(repeated(one, trials, progress))
    converged = means.pop("converged")
    return MessagePassing(
        **means,
        uncertainty=errors,
        converged=converged,
        dimension=dimension,
        trials=trials,
        alpha=alpha,
    )


def _trial(
    task: Task, alpha: float, dimension: int, sampler: str, steps: int, rng: np.random.Generator
) -> dict[str, float]:
    count = max(1, round(alpha * dimension))
    if sampler == "plain":
        drawn = sample(task, count, dimension=dimension, rng=rng)
        signal = drawn.signal
        tokens: _Tokens = _PlainTokens(drawn.X[drawn.y > 0])
    else:
        signal = np.eye(1, dimension)[0]
        positives = int(rng.binomial(count, task.positive_rate))
        tokens = _ReducedTokens(task, positives, dimension, rng)
    learnt = _learn(task, tokens, steps, TOLERANCE)
    alignment = float(learnt.direction @ signal)
    return {
        "overlap": alignment**2,
        "alignment": alignment,
        "estimated_overlap": learnt.estimated_overlap,
        "test_error": _test_error(task, alignment, learnt.estimated_overlap, rng),
        "steps": float(learnt.solution.steps),
        "converged": float(learnt.solution.converged),
    }


def _test_error(
    task: Task, alignment: float, estimated_overlap: float, rng: np.random.Generator
) -> float:
    """Return the error of the likelihood-ratio classifier, from the scalars that it sees."""
    count = max(256, _TEST_SCORES // (2 * task.length))
    assumed = task.strength * math.sqrt(estimated_overlap)
    wrong = 0.0
    size = max(1, _TEST_SCORES // (8 * task.length))
    for start in range(0, count, size):
        noise = rng.standard_normal((min(size, count - start), task.length))
        alarms = _log_ratio(noise, task, assumed) > _threshold(task)
        noise += task.strength * alignment * first_places(task, len(noise), rng)
        missed = _log_ratio(noise, task, assumed) <= _threshold(task)
        rate = task.positive_rate
        wrong += rate * float(missed.sum()) + (1 - rate) * float(alarms.sum())
    return wrong / count


def _log_ratio(tokens: Array, task: Task, strength: float) -> Array:
    """Return log mean over R and R-subsets of exp(s Σ x - R s²/2), for tokens x (n, L)."""
    exponents = strength * tokens.T - 0.5 * strength**2
    priors = _log_priors(task)
    if len(priors) == 2:
        logs = np.stack([np.zeros(len(tokens)), np.logaddexp.reduce(exponents, axis=0)])
    else:
        logs = np.full((len(priors), len(tokens)), -np.inf)
        logs[0] = 0.0
        for exponent in exponents:
            logs[1:] = np.logaddexp(logs[1:], exponent + logs[:-1])
    return np.asarray(np.logaddexp.reduce(logs + priors[:, None], axis=0))


def _threshold(task: Task) -> float:
    return math.log((1 - task.positive_rate) / task.positive_rate)
