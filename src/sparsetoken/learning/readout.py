"""The convex readout: minimise Σ p_i ℓ(y_i(⟨f_i, w⟩ + b)) + (ridge/2)‖w‖² over w and b.

The bias is free and p_i = 1/n unless sample weights are given. Ridge 0 means the limit ridge → 0+:

- where the loss's minimum can be met by every sample at once (square loss with n <= d), the readout
  of least norm that meets it;
- for losses that are least at arbitrarily large margins (logistic, hinge, squared hinge) on
  separable data, the maximum-margin classifier, scaled so that its smallest margin is 1;
- otherwise the plain minimum; of several, because features are linearly dependent, the one of least
  norm. (Those of the hinge loss can be several for other reasons; then it is one of them.)
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from scipy import linalg

from sparsetoken import validation
from sparsetoken.arrays import Array
from sparsetoken.learning.examples import Examples, check_examples, gram
from sparsetoken.learning.interior_point import SoftMarginProgram, minimise_hinge
from sparsetoken.learning.separability import separability
from sparsetoken.learning.smooth_minimum import Minimum, minimise_smooth
from sparsetoken.losses import Hinge, Loss, get_loss
from sparsetoken.numerics.solution import Solution, Status
from sparsetoken.validation import ParameterError

__all__ = ["Readout", "fit_readout"]

# Far below what any quantity of a trained readout shows, and above what sums of 10^6 samples round to.
_GRADIENT_TOLERANCE = 1e-8
# Normal equations square the condition: below this ratio of pivots half of the digits are lost.
_SMALLEST_PIVOT = 1e-10
# Above this ratio of pivots, in single precision, features are independent for sure. Scores that differ
# by less than this, relative to the largest, are the same.
_CLEAR_PIVOT = 1e-4
_SAME_SCORES = 1e-9


@dataclass(frozen=True)
class Readout:
    """A fitted linear readout.

    Attributes
    ----------
    weights : array of shape (d,)
    bias : float
    objective : float
        Σ p_i ℓ + (ridge/2)‖w‖² at the solution.
    train_loss : float
        Σ p_i ℓ alone. For a maximum-margin classifier, the limit 0 (the loss's infimum).
    train_error : float
        Weight of the samples that are misclassified.
    margin : float or None
        The smallest margin y_i(⟨f_i, w⟩ + b) over ‖w‖, if it is positive.
    solution : Solution
        How the solver ended. Its residual is the norm of the objective's gradient in (w, b); for
        the hinge loss and for maximum-margin classifiers the largest violation of the optimality
        (KKT) conditions. It has converged if that is at most 1e-8, or the tolerance asked for.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsetoken import fit_readout
    >>> data, labels = np.array([[1.0], [2.0], [-1.0], [0.0]]), np.array([1, 1, -1, -1])
    >>> found = fit_readout(data, labels, loss="hinge", ridge=0.0)
    >>> round(found.margin, 6), found.solution.converged
    (0.5, True)
    """

    weights: Array = field(repr=False)
    bias: float
    objective: float
    train_loss: float
    train_error: float
    margin: float | None
    solution: Solution


def fit_readout(
    features: Array,
    labels: Array,
    *,
    loss: Loss | str,
    ridge: float,
    max_steps: int = 200,
    sample_weight: Array | None = None,
    tolerance: float = _GRADIENT_TOLERANCE,
) -> Readout:
    """Minimise the readout's objective, to a gradient (or KKT residual) of at most `tolerance`.

    Parameters
    ----------
    features : array of shape (n, d), float64 or float32 (then still solved in double precision)
    labels : array of shape (n,), values -1 and +1
    loss : Loss or str
        Any smooth loss, or the hinge loss; by its name if it is a known one.
    ridge : float >= 0
        0 means the limit of small ridges; see the module's documentation.
    max_steps : int
        At most so many steps of Newton's method, for smooth losses with a ridge.
    sample_weight : array of shape (n,), optional
        Weights >= 0, normalised here to sum to 1; not all 0.
    tolerance : float
        For smooth losses with a ridge; the other problems are solved to 1e-8.

    Returns
    -------
    Readout

    Examples
    --------
    >>> import numpy as np
    >>> from sparsetoken import fit_readout
    >>> data, labels = np.array([[1.0], [2.0], [-1.0], [0.0]]), np.array([1, 1, -1, -1])
    >>> found = fit_readout(data, labels, loss="square", ridge=0.0)
    >>> found.weights.round(3).tolist(), round(found.bias, 3), found.train_error
    ([0.8], -0.4, 0.0)
    """
    ridge = validation.real("ridge", ridge, low=0)
    max_steps = validation.integer("max_steps", max_steps, low=0)
    tolerance = validation.real("tolerance", tolerance, low=0, inclusive=False)
    loss = loss if isinstance(loss, Loss) else get_loss(loss)
    features, labels = check_examples(features, labels)
    if not (loss.smooth or isinstance(loss, Hinge)):
        raise ParameterError("loss", loss.name, "'hinge', or a loss with a continuous slope")
    examples = Examples.of(features, labels, _checked_weights(sample_weight, len(labels)))
    n, d = examples.shape
    if np.all(examples.labels == examples.labels[0]):
        return _one_class(examples, loss)
    if 4 * n > 3 * d:
        return _fit(examples, loss, ridge, max_steps, tolerance)
    # With fewer samples than dimensions the solution lies in the span of the features: fᵢ = Q rᵢ. A
    # basis in single precision would leave a gradient of 1e-7.
    spanning = examples.features.T.astype(float, copy=False)
    basis, coordinates = linalg.qr(spanning, mode="economic", check_finite=False)
    small = _fit(replace(examples, features=coordinates.T), loss, ridge, max_steps, tolerance)
    return replace(small, weights=basis @ small.weights)


def _fit(examples: Examples, loss: Loss, ridge: float, max_steps: int, tolerance: float) -> Readout:
    if ridge == 0:
        limit = _without_ridge(examples, loss)
        if limit is not None:
            return limit
    found: SoftMarginProgram | Minimum
    if isinstance(loss, Hinge):
        found = minimise_hinge(examples, ridge, tolerance=_GRADIENT_TOLERANCE)
    else:
        found = minimise_smooth(examples, loss, ridge, tolerance, max_steps)
    weights, bias = found.weights, found.bias
    if ridge == 0 and found.solution.converged:
        weights, bias = _of_least_norm(examples, weights, bias)
    return _readout(examples, loss, ridge, weights, bias, found.solution)


def _of_least_norm(examples: Examples, weights: Array, bias: float) -> tuple[Array, float]:
    """Return the readout of least ‖w‖ with the same scores: another one if features are dependent."""
    factor = examples.factor(examples.weights, 0.0, 0.0, np.float32)
    if factor is not None and min(factor.factor.pivot_ratio(), factor.schur) > _CLEAR_PIVOT:
        return weights, bias
    scores = examples.scores(weights) + bias
    other, change = _pivoted_least_squares(examples, scores)
    moved = np.abs(examples.scores(other) + change - scores).max()
    # Else features are independent after all, but of so different sizes that rounding hides it.
    same = moved <= _SAME_SCORES * max(1.0, float(np.abs(scores).max()))
    return (other, change) if same else (weights, bias)


def _without_ridge(examples: Examples, loss: Loss) -> Readout | None:
    """Return the limit ridge → 0+ where it is not a plain minimum, else None."""
    low, high = loss.minimisers
    n, d = examples.shape
    if np.isfinite(high):
        # With many samples the minimum is unique and well conditioned, and Newton's method faster.
        if 2 * n > 3 * d or not (loss.name == "square" or (low == high and n <= d)):
            return None
        weights, bias = _least_squares(examples, target=low)
        slopes = examples.weights * loss.slope(examples.margins(weights, bias))
        gradient_w, gradient_b = examples.signed_total(slopes)
        residual = float(np.hypot(np.linalg.norm(gradient_w), gradient_b))
        status = Status.CONVERGED if residual <= _GRADIENT_TOLERANCE else Status.STALLED
        return _readout(examples, loss, 0.0, weights, bias, Solution(status, residual, steps=1))
    verdict = separability(examples.features, examples.labels)
    if verdict.weights is None or verdict.bias is None:
        return None
    separator = verdict.weights, verdict.bias
    program = minimise_hinge(examples, 1.0, separator=separator, tolerance=_GRADIENT_TOLERANCE)
    detail = "the data are separable, this is the maximum-margin classifier"
    solution = replace(program.solution, detail=detail)
    fitted = _readout(examples, loss, 0.0, program.weights, program.bias, solution)
    infimum = float(loss.value(np.array([low if np.isfinite(low) else 1e300]))[0])
    return replace(fitted, objective=infimum, train_loss=infimum)


def _least_squares(examples: Examples, target: float) -> tuple[Array, float]:
    """Return the (w, b) of least ‖w‖ that minimise Σ p_i (y_i(⟨f_i, w⟩ + b) - target)².

    By a Cholesky factor, refined once; if that is nearly singular, by a pivoted QR decomposition,
    which takes three times the memory.
    """
    n, d = examples.shape
    solve = _interpolation(examples) if n <= d else _normal_equations(examples)
    if solve is None:
        return _pivoted_least_squares(examples, target * examples.labels)
    weights, bias = solve(target * examples.labels)
    step, change = solve(target * examples.labels - examples.scores(weights) - bias)
    return weights + step, bias + change


def _interpolation(examples: Examples) -> Callable[[Array], tuple[Array, float]] | None:
    """Return the map from scores r_i to the (w, b) of least ‖w‖ with ⟨f_i, w⟩ + b = r_i (n <= d).

    w = Σ a_i f_i, where Σ_j ⟨f_i, f_j⟩ a_j + b = r_i and Σ a_i = 0.
    """
    n, d = examples.shape
    matrix = gram(examples.features.T, np.ones(d))
    if not matrix.factor() or matrix.pivot_ratio() < _SMALLEST_PIVOT:
        return None
    ones_solved = matrix.solve(np.ones(n))

    def solve(scores: Array) -> tuple[Array, float]:
        solved = matrix.solve(scores)
        bias = float(solved.sum() / ones_solved.sum())
        return examples.total(solved - bias * ones_solved)[0], bias

    return solve


def _normal_equations(examples: Examples) -> Callable[[Array], tuple[Array, float]] | None:
    """Return the map from scores r_i to the (w, b) that minimise Σ p_i (⟨f_i, w⟩ + b - r_i)²."""
    factor = examples.factor(examples.weights, 0.0, 0.0)
    if factor is None or min(factor.factor.pivot_ratio(), factor.schur) < _SMALLEST_PIVOT:
        return None
    return lambda scores: factor.solve(*examples.total(examples.weights * scores))


def _pivoted_least_squares(examples: Examples, scores: Array) -> tuple[Array, float]:
    """Return the (w, b) of least ‖w‖ that minimise Σ p_i (⟨f_i, w⟩ + b - r_i)² for scores r_i."""
    centre, _ = examples.total(examples.weights)
    mean = float(examples.weights @ scores)
    roots = np.sqrt(examples.weights)
    centred = (examples.features - centre) * roots[:, None]
    goal = (scores - mean) * roots
    # Centring takes away one rank, which rounding would give back without the cut.
    cut = 10 * max(centred.shape) * np.finfo(float).eps
    weights = linalg.lstsq(
        centred, goal, cond=cut, lapack_driver="gelsy", check_finite=False, overwrite_a=True
    )[0]
    return np.asarray(weights), mean - float(centre @ weights)


def _one_class(examples: Examples, loss: Loss) -> Readout:
    """Return the constant classifier: all samples have one label, which a free bias fits."""
    low = loss.minimisers[0]
    label = float(examples.labels[0])
    bias = label * (low if np.isfinite(low) and low > 0 else 1.0)
    infimum = float(loss.value(np.array([low if np.isfinite(low) else 1e300]))[0])
    detail = "all labels are the same, the readout is constant"
    solution = Solution(Status.CONVERGED, residual=0.0, steps=0, detail=detail)
    fitted = _readout(examples, loss, 0.0, np.zeros(examples.shape[1]), bias, solution)
    return replace(fitted, objective=infimum, train_loss=infimum)


def _readout(
    examples: Examples,
    loss: Loss,
    ridge: float,
    weights: Array,
    bias: float,
    solution: Solution,
) -> Readout:
    margins = examples.margins(weights, bias)
    train_loss = float(examples.weights @ loss.value(margins))
    norm = float(np.linalg.norm(weights))
    smallest = float(margins.min())
    return Readout(
        weights=weights,
        bias=bias,
        objective=train_loss + 0.5 * ridge * norm**2,
        train_loss=train_loss,
        train_error=float(examples.weights @ (margins <= 0)),
        margin=smallest / norm if smallest > 0 and norm > 0 else None,
        solution=solution,
    )


def _checked_weights(sample_weight: Array | None, count: int) -> Array | None:
    if sample_weight is None:
        return None
    weights = validation.rectangular("sample_weight", sample_weight)
    accepted = f"{count} finite numbers >= 0, not all 0"
    if weights.shape != (count,):
        raise ParameterError("sample_weight", weights.shape, accepted)
    if weights.dtype.kind not in "biuf":
        raise ParameterError("sample_weight", weights.dtype.name, accepted)
    weights = weights.astype(float)
    if not (np.all(np.isfinite(weights)) and np.all(weights >= 0) and weights.any()):
        raise ParameterError("sample_weight", float(np.min(weights)), accepted)
    return weights
