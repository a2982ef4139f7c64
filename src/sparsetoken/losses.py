"""Convex losses of the margin, and the registry that knows them by name.

A loss ℓ(t) is a function of the margin t = y(⟨f, w⟩ + b). To add one, derive from `Loss`, give it
a name and its value, slope and curvature, and pass an instance to `register_loss`:

>>> import numpy as np
>>> from sparsetoken import Loss, check_loss, register_loss
>>> class Exponential(Loss):
...     name = "exponential"
...     minimisers = (np.inf, np.inf)
...     def value(self, margin):
...         return np.exp(-margin)
...     def slope(self, margin):
...         return -np.exp(-margin)
...     def curvature(self, margin):
...         return np.exp(-margin)
>>> check_loss(Exponential(), margins=np.linspace(-5, 5, 101))
>>> register_loss(Exponential())

`Training(loss="exponential", ...)` is then valid. `unregister_loss("exponential")` forgets it.
"""

from abc import ABC, abstractmethod
from functools import cache
from importlib.metadata import EntryPoint, entry_points

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from sparsetoken.arrays import Array
from sparsetoken.extensions import extensible
from sparsetoken.numerics.roots import increasing_root
from sparsetoken.validation import ParameterError, choice, instance

__all__ = [
    "Hinge",
    "Logistic",
    "Loss",
    "Square",
    "SquaredHinge",
    "check_loss",
    "get_loss",
    "loss_names",
    "register_loss",
    "unregister_loss",
]


class Loss(ABC):
    """A convex loss of the margin. All methods take and give arrays of any shape.

    Attributes
    ----------
    name : str
        The name in the registry.
    minimisers : tuple of float
        The interval [low, high] of margins at which the loss is least. (inf, inf) if it only tends
        to its infimum, as the logistic loss does. It decides what ridge → 0 means on separable
        data: the maximum-margin classifier if high is infinite, interpolation if it is finite.
    breakpoints : tuple of float
        Margins at which the slope or curvature jumps, or around which they change most. Quadrature
        splits its panels there; they affect accuracy and speed, never the meaning.
    smooth : bool
        Whether the slope is continuous. If not, `prox` and `prox_slope` must be given as well.
    piecewise_quadratic : bool
        Whether the curvature is constant between breakpoints; theory then needs no quadrature.

    Examples
    --------
    >>> from sparsetoken import get_loss
    >>> loss = get_loss("hinge")
    >>> loss.value([0.0, 1.0, 2.0]).tolist(), loss.minimisers
    ([1.0, 0.0, 0.0], (1.0, inf))
    """

    name: str
    minimisers: tuple[float, float]
    breakpoints: tuple[float, ...] = ()
    smooth: bool = True
    piecewise_quadratic: bool = False

    @abstractmethod
    def value(self, margin: Array) -> Array:
        """Return ℓ(t).

        Parameters
        ----------
        margin : array
            The margins t, of any shape.

        Returns
        -------
        array of the shape of the margins

        Examples
        --------
        >>> import numpy as np
        >>> from sparsetoken import get_loss
        >>> get_loss("logistic").value(np.zeros(1)).round(4).tolist()
        [0.6931]
        """

    @abstractmethod
    def slope(self, margin: Array) -> Array:
        """Return ℓ'(t); at a kink, any subgradient.

        Parameters
        ----------
        margin : array
            The margins t, of any shape.

        Returns
        -------
        array of the shape of the margins

        Examples
        --------
        >>> import numpy as np
        >>> from sparsetoken import get_loss
        >>> get_loss("logistic").slope(np.zeros(1)).tolist()
        [-0.5]
        """

    @abstractmethod
    def curvature(self, margin: Array) -> Array:
        """Return ℓ''(t) wherever it exists.

        Parameters
        ----------
        margin : array
            The margins t, of any shape.

        Returns
        -------
        array of the shape of the margins

        Examples
        --------
        >>> import numpy as np
        >>> from sparsetoken import get_loss
        >>> get_loss("logistic").curvature(np.zeros(1)).tolist()
        [0.25]
        """

    def derivatives(self, margin: Array) -> tuple[Array, Array, Array]:
        """Return ℓ(t), ℓ'(t) and ℓ''(t), where they share work at less cost than one by one.

        Parameters
        ----------
        margin : array
            The margins t, of any shape.

        Returns
        -------
        three arrays of the shape of the margins

        Examples
        --------
        >>> import numpy as np
        >>> from sparsetoken import get_loss
        >>> [part.round(4).tolist() for part in get_loss("logistic").derivatives(np.zeros(1))]
        [[0.6931], [-0.5], [0.25]]
        """
        return self.value(margin), self.slope(margin), self.curvature(margin)

    @property
    def infimum(self) -> float:
        """The greatest lower bound of the loss."""
        return float(self.value(np.array([min(self.minimisers[0], 1e300)]))[0])

    def prox(self, centre: ArrayLike, step: ArrayLike) -> Array:
        """Return the r that minimises ℓ(r) + (r - centre)²/(2 step), so r + step ℓ'(r) = centre.

        Parameters
        ----------
        centre, step : array
            Of shapes that go together; steps > 0.

        Returns
        -------
        array of the common shape of centre and step

        Examples
        --------
        >>> import numpy as np
        >>> from sparsetoken import get_loss
        >>> get_loss("square").prox(np.zeros(1), 1.0).tolist()
        [0.5]
        """
        omega, tau = np.broadcast_arrays(
            np.asarray(centre, dtype=float), np.asarray(step, dtype=float)
        )
        # ℓ' increases, so the root lies between the centre and one explicit step from it.
        with np.errstate(over="ignore"):
            explicit = np.nan_to_num(omega - tau * self.slope(omega))
        return increasing_root(
            lambda r: r - omega + tau * self.slope(r),
            lambda r: 1 + tau * self.curvature(r),
            np.minimum(omega, explicit),
            np.maximum(omega, explicit),
        )

    def rough_prox(self, centre: Array, step: Array) -> Array:
        """Return `prox` to a few digits, where that is enough and cheaper.

        Parameters
        ----------
        centre, step : array
            Of shapes that go together; steps > 0.

        Returns
        -------
        array of the common shape of centre and step

        Examples
        --------
        >>> import numpy as np
        >>> from sparsetoken import get_loss
        >>> loss, centre, step = get_loss("logistic"), np.zeros(1), np.ones(1)
        >>> bool(abs(loss.rough_prox(centre, step) - loss.prox(centre, step))[0] < 1)
        True
        """
        return self.prox(centre, step)

    def prox_slope(self, centre: ArrayLike, step: ArrayLike) -> Array:
        """Return the derivative of `prox` in its centre, 1/(1 + step ℓ''(r)) if ℓ is smooth.

        Parameters
        ----------
        centre, step : array
            Of shapes that go together; steps > 0.

        Returns
        -------
        array of the common shape of centre and step

        Examples
        --------
        >>> import numpy as np
        >>> from sparsetoken import get_loss
        >>> get_loss("square").prox_slope(np.zeros(1), 1.0).tolist()
        [0.5]
        """
        r = self.prox(centre, step)
        return np.asarray(1 / (1 + np.asarray(step) * self.curvature(r)))

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class Logistic(Loss):
    """log(1 + exp(-t))."""

    name = "logistic"
    minimisers = (np.inf, np.inf)
    breakpoints = (-16.0, -8.0, -4.0, 0.0, 4.0, 8.0, 12.0, 16.0, 20.0)

    def value(self, margin: Array) -> Array:
        return np.asarray(np.logaddexp(0.0, -np.asarray(margin, dtype=float)))

    def slope(self, margin: Array) -> Array:
        return np.asarray(-expit(-np.asarray(margin, dtype=float)))

    def curvature(self, margin: Array) -> Array:
        margin = np.asarray(margin, dtype=float)
        return np.asarray(expit(margin) * expit(-margin))

    def rough_prox(self, centre: Array, step: Array) -> Array:
        centre, step = np.broadcast_arrays(centre, step)
        below = centre + 0.5 * step < 0
        start = np.where(below, -(centre + step), centre)
        s = _logistic_start(start, step)
        s = np.maximum(s - _halley(s, start, step, 0.0), 0.0)
        return np.asarray(np.where(below, -s, s))

    def derivatives(self, margin: Array) -> tuple[Array, Array, Array]:
        small = np.exp(-np.abs(margin))
        below = np.minimum(margin, 0.0)
        larger = 1 / (1 + small)
        # σ(-t) is small/(1 + small) above 0 and 1/(1 + small) below.
        slope = -np.where(margin > 0, small, 1.0) * larger
        return np.log1p(small) - below, slope, small * larger**2

    def prox(self, centre: ArrayLike, step: ArrayLike) -> Array:
        """Solve r = centre + step σ(-r) by Halley's method.

        A root below 0 is turned into one above by r → -r, where r - centre - step σ(-r) is concave
        in r. The sum centre + step is formed with its rounding error: the two nearly cancel when
        both are large. For a root near 0, centre and step/2 nearly cancel: a last step takes them
        together, with σ(-r) = 1/2 - tanh(r/2)/2.
        """
        omega, tau = np.broadcast_arrays(
            np.asarray(centre, dtype=float), np.asarray(step, dtype=float)
        )
        total, lost = _sum_and_rounding(omega, tau)
        at_zero = omega + 0.5 * tau
        below = at_zero < 0
        # With s = -r a root below 0 solves s = -(centre + step) + step σ(-s): the same equation.
        start, correction = np.where(below, -total, omega), np.where(below, -lost, 0.0)
        s = _logistic_root(start, tau, correction)
        s = np.where(s < _NEAR_ZERO, _polished_root(s, np.abs(at_zero), tau), s)
        return np.asarray(np.where(below, -s, s))


# Below this root of the logistic prox, centre and step/2 nearly cancel.
_NEAR_ZERO = 0.5

# Halley's method converges cubically: after a relative change this small one more step reaches rounding
# level. Five steps were the most that 20,000 random pairs of centre and step took.
_LAST_CHANGE = 1e-6
_MOST_STEPS = 60


def _sum_and_rounding(a: Array, b: Array) -> tuple[Array, Array]:
    """Return a + b in floating point, and what the exact sum has beyond it."""
    total = a + b
    return total, (a - (total - (total - a))) + (b - (total - a))


def _logistic_root(start: Array, step: Array, correction: Array) -> Array:
    """Return the root s >= 0 of s = start + step σ(-s) + correction, by Halley's method."""
    s = _logistic_start(start, step)
    last = False
    for _ in range(_MOST_STEPS):
        change = _halley(s, start, step, correction)
        s = np.maximum(s - change, 0.0)
        if last:
            break
        last = bool(np.all(np.abs(change) <= _LAST_CHANGE * (1 + s)))
    return s


def _polished_root(s: Array, at_zero: Array, step: Array) -> Array:
    """Return the root after a Newton step on s = at_zero - step tanh(s/2)/2."""
    weight = expit(-s)
    residual = (s - at_zero) + 0.5 * step * np.tanh(0.5 * s)
    return np.asarray(np.maximum(s - residual / (1 + step * weight * (1 - weight)), 0.0))


def _halley(s: Array, start: Array, step: Array, correction: Array | float) -> Array:
    """Return what to take off s to come closer to the root of s = start + step σ(-s) + correction."""
    weight = expit(-s)
    bend = step * weight * (1 - weight)
    newton = ((s - start) - (step * weight + correction)) / (1 + bend)
    return np.asarray(newton / (1 + 0.5 * newton * bend * (1 - 2 * weight) / (1 + bend)))


def _logistic_start(start: Array, step: Array) -> Array:
    """Approximate the root of s = start + step σ(-s), s >= 0, by that of s = start + step exp(-s)."""
    z = np.log(step) - start
    large = np.maximum(z, 2.0)
    # x + log(x) = z has the expansion z - log z + (log z)/z for large z.
    logarithm = np.log(large)
    guess = np.where(z > 2, large - logarithm + logarithm / large, 0.0)
    return np.asarray(np.maximum(start + guess, 0.0))


class Square(Loss):
    """(1 - t)²/2."""

    name = "square"
    minimisers = (1.0, 1.0)
    piecewise_quadratic = True

    def value(self, margin: Array) -> Array:
        return np.asarray(0.5 * (1 - np.asarray(margin, dtype=float)) ** 2)

    def slope(self, margin: Array) -> Array:
        return np.asarray(margin, dtype=float) - 1

    def curvature(self, margin: Array) -> Array:
        return np.ones_like(np.asarray(margin, dtype=float))

    def prox(self, centre: ArrayLike, step: ArrayLike) -> Array:
        omega, tau = np.asarray(centre, dtype=float), np.asarray(step, dtype=float)
        return np.asarray((omega + tau) / (1 + tau))


class SquaredHinge(Loss):
    """max(0, 1 - t)²/2."""

    name = "squared_hinge"
    minimisers = (1.0, np.inf)
    breakpoints = (1.0,)
    piecewise_quadratic = True

    def value(self, margin: Array) -> Array:
        return np.asarray(0.5 * self.slope(margin) ** 2)

    def slope(self, margin: Array) -> Array:
        return np.asarray(np.minimum(np.asarray(margin, dtype=float) - 1, 0.0))

    def curvature(self, margin: Array) -> Array:
        return np.asarray(np.asarray(margin, dtype=float) < 1, dtype=float)

    def prox(self, centre: ArrayLike, step: ArrayLike) -> Array:
        omega, tau = np.asarray(centre, dtype=float), np.asarray(step, dtype=float)
        return np.asarray(np.where(omega < 1, (omega + tau) / (1 + tau), omega))


class Hinge(Loss):
    """max(0, 1 - t)."""

    name = "hinge"
    minimisers = (1.0, np.inf)
    breakpoints = (1.0,)
    piecewise_quadratic = True
    smooth = False

    def value(self, margin: Array) -> Array:
        return np.asarray(np.maximum(1 - np.asarray(margin, dtype=float), 0.0))

    def slope(self, margin: Array) -> Array:
        return np.asarray(-(np.asarray(margin, dtype=float) < 1).astype(float))

    def curvature(self, margin: Array) -> Array:
        return np.zeros_like(np.asarray(margin, dtype=float))

    def prox(self, centre: ArrayLike, step: ArrayLike) -> Array:
        omega, tau = np.asarray(centre, dtype=float), np.asarray(step, dtype=float)
        return np.asarray(np.where(omega < 1, np.minimum(omega + tau, 1.0), omega))

    def prox_slope(self, centre: ArrayLike, step: ArrayLike) -> Array:
        omega, tau = np.asarray(centre, dtype=float), np.asarray(step, dtype=float)
        return np.asarray((omega >= 1) | (omega + tau <= 1), dtype=float)


_BUILT_IN = (Logistic(), Square(), SquaredHinge(), Hinge())
_REGISTRY: dict[str, Loss] = {loss.name: loss for loss in _BUILT_IN}
extensible(__name__, _REGISTRY)


def loss_names() -> list[str]:
    """Return the names of the known losses: built in, registered, or of installed packages.

    Returns
    -------
    list of str

    Examples
    --------
    >>> from sparsetoken import loss_names
    >>> "logistic" in loss_names()
    True
    """
    return sorted({*_REGISTRY, *_installed()})


def get_loss(name: str) -> Loss:
    """Return the loss of that name.

    Parameters
    ----------
    name : str
        One of `loss_names()`.

    Returns
    -------
    Loss

    Examples
    --------
    >>> from sparsetoken import get_loss
    >>> get_loss("square").slope([0.0, 1.0]).tolist()
    [-1.0, 0.0]
    """
    named = isinstance(name, str)  # a wrong name may be anything
    if named and name not in _REGISTRY and name in _installed():
        _register_installed(name)
    if not named or name not in _REGISTRY:
        known = ", ".join(map(repr, loss_names()))
        accepted = f"one of {known}, or a loss that `register_loss` made known in this process"
        raise ParameterError("loss", name, accepted)
    return _REGISTRY[name]


@cache
def _installed() -> dict[str, EntryPoint]:
    """Return the losses that installed packages offer, by name."""
    return {point.name: point for point in entry_points(group="sparsetoken.losses")}


def _register_installed(name: str) -> None:
    """Register the loss, or the class of one, that an entry point names."""
    try:
        loaded = _installed()[name].load()
        loss = loaded() if isinstance(loaded, type) else loaded
        register_loss(loss)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise ParameterError(
            "loss", name, f"a loss that its package can load ({reason})"
        ) from error
    if loss.name != name:
        raise ParameterError("loss", name, f"the name that the loss itself has, {loss.name!r}")


def register_loss(loss: Loss) -> None:
    """Make a loss known by its name, for `Training(loss=...)` and everything that takes one.

    The registry belongs to one process: a program that starts worker processes must register the
    loss in a module that they import too.

    Parameters
    ----------
    loss : Loss

    Examples
    --------
    >>> from sparsetoken import loss_names, register_loss, unregister_loss
    >>> from sparsetoken.losses import Square
    >>> class Renamed(Square):
    ...     name = "least_squares"
    >>> register_loss(Renamed())
    >>> "least_squares" in loss_names()
    True
    >>> unregister_loss("least_squares")
    """
    if not isinstance(loss, Loss):
        raise ParameterError("loss", loss, "an instance of a class derived from Loss")
    _check_declared(loss)
    known = _REGISTRY.get(loss.name)
    if known is not None and type(known) is not type(loss):
        raise ParameterError("loss.name", loss.name, "a name that is not taken")
    _REGISTRY[loss.name] = loss


def unregister_loss(name: str) -> None:
    """Forget a loss that `register_loss` made known; the built-in ones stay.

    Parameters
    ----------
    name : str

    Examples
    --------
    >>> from sparsetoken import loss_names, register_loss, unregister_loss
    >>> from sparsetoken.losses import Square
    >>> class Renamed(Square):
    ...     name = "least_squares"
    >>> register_loss(Renamed())
    >>> unregister_loss("least_squares")
    >>> "least_squares" in loss_names()
    False
    """
    added = set(_REGISTRY) - {loss.name for loss in _BUILT_IN}
    if not added:
        raise ParameterError("loss", name, "a loss that register_loss made known: there is none")
    del _REGISTRY[choice("loss", name, added)]


def check_loss(loss: Loss, *, margins: ArrayLike | None = None) -> None:
    """Raise a ValueError that says which rule a loss breaks, if any.

    Slope and curvature are compared with finite differences of the value, the slope must not
    decrease and must vanish exactly on `minimisers`, `prox` must satisfy its optimality condition
    for small and large steps, and `prox_slope` must be its derivative.

    Parameters
    ----------
    loss : Loss
    margins : array, optional
        Where to check; 601 points in [-30, 30] if not given. Points next to a breakpoint are left
        out.

    Examples
    --------
    >>> from sparsetoken import check_loss, get_loss
    >>> check_loss(get_loss("squared_hinge"))
    """
    instance("loss", loss, Loss)
    _check_declared(loss)
    grid = np.linspace(-30, 30, 601) if margins is None else np.asarray(margins, dtype=float)
    if grid.ndim != 1 or not grid.size:
        raise ParameterError(
            "shape of margins", grid.shape, "one dimension, and at least one margin"
        )
    if not np.all(np.isfinite(grid)):
        raise ParameterError("margins", "nan or infinity", "finite numbers")
    grid = grid[np.all(np.abs(np.subtract.outer(grid, loss.breakpoints)) > 1e-3, axis=1)]
    _check_derivatives(loss, grid)
    for step in (1e-6, 1e-2, 1.0, 1e2, 1e6):
        _check_prox(loss, grid, step)


def _check_declared(loss: Loss) -> None:
    """Raise an error unless a loss says its name and its minimisers, which have no default."""
    name, minimisers = (getattr(loss, part, None) for part in ("name", "minimisers"))
    if not (isinstance(name, str) and name):
        raise ParameterError("loss.name", name, "a text that is not empty")
    try:
        low, high = minimisers  # type: ignore[misc]
        ordered = bool(low <= high)
    except (TypeError, ValueError):
        ordered = False
    if not ordered:
        accepted = "two numbers (low, high), the margins between which the loss is least"
        raise ParameterError("loss.minimisers", minimisers, accepted)


def _check_derivatives(loss: Loss, grid: Array) -> None:
    width = 1e-5 * np.maximum(1.0, np.abs(grid))
    value, slope, curvature = loss.value(grid), loss.slope(grid), loss.curvature(grid)
    difference = (loss.value(grid + width) - loss.value(grid - width)) / (2 * width)
    scale = 1 + np.abs(value)
    _require(loss, "slope differs from the derivative of value", slope - difference, 1e-6 * scale)
    difference = (loss.slope(grid + width) - loss.slope(grid - width)) / (2 * width)
    scale = 1 + np.abs(slope) + np.abs(curvature)
    _require(
        loss, "curvature differs from the derivative of slope", curvature - difference, 1e-5 * scale
    )
    _require(loss, "slope decreases: not convex", np.minimum(np.diff(slope), 0), 1e-12)
    low, high = loss.minimisers
    side = np.where(grid > high, 1.0, np.where(grid < low, -1.0, 0.0))
    _require(loss, "slope does not change sign at minimisers", np.sign(slope) - side, 0.0)


def _check_prox(loss: Loss, grid: Array, step: float) -> None:
    r = loss.prox(grid, step)
    # At a kink the subgradient (centre - r)/step need only lie between the slopes beside it.
    beside = 1e-9 * np.maximum(1.0, np.abs(r))
    subgradient = (grid - r) / step
    under, above = loss.slope(r - beside) - subgradient, loss.slope(r + beside) - subgradient
    slack = 1e-6 * (1 + np.abs(subgradient)) + 1e-9 * np.abs(grid) / step
    outside = np.maximum(under, 0) + np.minimum(above, 0)
    _require(loss, f"prox breaks its optimality condition at step {step:g}", outside, slack)
    # Where prox has a kink, its difference quotient lies between the derivatives beside it.
    left, right = grid - 1e-5, grid + 1e-5
    quotient = (loss.prox(right, step) - loss.prox(left, step)) / (right - left)
    ends = loss.prox_slope(left, step), loss.prox_slope(right, step)
    outside = np.maximum(quotient - np.maximum(*ends), 0) + np.minimum(
        quotient - np.minimum(*ends), 0
    )
    _require(loss, f"prox_slope is not the derivative of prox at step {step:g}", outside, 1e-5)


def _require(loss: Loss, rule: str, deviation: Array, tolerance: Array | float) -> None:
    if not np.all(np.abs(deviation) <= tolerance):
        raise ValueError(f"loss {loss.name!r}: {rule} (by {np.max(np.abs(deviation)):.3g})")
