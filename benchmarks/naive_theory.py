"""The prediction for pooled features and the logistic loss, written straight from the formulas.

    python benchmarks/naive_theory.py

Every expectation is a `scipy.integrate.quad` over the noise, every proximal point in it a
`scipy.optimize.brentq`, and the self-consistent equations (docs/theory.md, section 5; for pooled
features the one along the query falls away) go to `scipy.optimize.root`, or to the damped iteration
that is usual for such equations, all with scipy's default tolerances. It is the reference of `theory_speed.py`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.integrate import quad
from scipy.optimize import brentq, root

from sparsetoken import Task, Training, predict

AGREEMENT = 1e-6

Equations = Callable[[np.ndarray], list[float]]


@dataclass(frozen=True)
class NaivePrediction:
    """The three numbers that `predict` gives."""

    test_error: float
    train_loss: float
    train_error: float


def naive_predict(task: Task, training: Training, solver: str = "root") -> NaivePrediction:
    """Predict the outcome of training the pooled classifier with the logistic loss."""
    scale = 1 / math.sqrt(task.length)
    shift = task.strength * task.informative / task.length
    rates = (task.positive_rate, 1 - task.positive_rate)
    labels, centres = (1, -1), (shift, 0.0)
    alpha, ridge = training.alpha1, training.alpha1 * training.ridge

    def mean(
        function: Callable[[float], float],
        point: tuple[float, float, float, float],
        factors: tuple[float, float] = (1, 1),
    ) -> float:
        """Return E factor function(r), with a factor of each class."""
        across, bias, rest, susceptibility = point
        noise = scale * math.hypot(across, rest)
        step = susceptibility * scale**2

        def integrand(g: float, centre: float) -> float:
            density = math.exp(-g * g / 2) / math.sqrt(2 * math.pi)
            return function(prox(centre + noise * g, step)) * density

        return sum(
            rate * factor * quad(integrand, -10, 10, args=(label * (across * centre + bias),))[0]
            for rate, factor, label, centre in zip(rates, factors, labels, centres, strict=True)
        )

    def equations(unknown: np.ndarray) -> list[float]:
        point = as_point(unknown)
        across, _, rest, susceptibility = point
        step = susceptibility * scale**2
        stiffness = mean(lambda r: curvature(r) / (1 + step * curvature(r)), point)
        square = mean(lambda r: slope(r) ** 2, point)
        pull = mean(slope, point, factors=(shift, 0.0))
        balance = mean(slope, point, factors=labels)
        return [
            across + susceptibility * alpha * pull,
            balance,
            math.log(rest**2 / (susceptibility**2 * alpha * scale**2 * square)) / 2,
            math.log(susceptibility * (ridge + alpha * scale**2 * stiffness)),
        ]

    point = as_point(SOLVERS[solver](equations, starting_guess(task, training)))
    across, bias, rest, susceptibility = point

    def below(threshold: float) -> float:
        """Return P(y m + SρG < threshold)."""
        noise = scale * math.hypot(across, rest)
        return sum(
            rate * normal_cdf((threshold - label * (across * centre + bias)) / noise)
            for rate, label, centre in zip(rates, labels, centres, strict=True)
        )

    return NaivePrediction(
        test_error=below(0.0),
        train_loss=mean(lambda r: math.log1p(math.exp(-r)), point),
        # r < 0 exactly when its centre is below step ℓ'(0).
        train_error=below(susceptibility * scale**2 * slope(0.0)),
    )


def by_root_finder(equations: Equations, start: list[float]) -> np.ndarray:
    """Solve the equations by Levenberg-Marquardt: scipy's default does not converge from afar."""
    solution = root(equations, start, method="lm")
    if not solution.success:
        raise RuntimeError(f"the equations are not solved: {solution.message}")
    return solution.x


def by_iteration(equations: Equations, start: list[float]) -> np.ndarray:
    """Put each unknown to the value that its equation asks for, half-way, until nothing moves.

    The equation of the bias is a sum of slopes: a step along it, with the largest curvature 1/4 of
    the loss, lowers its residual.
    """
    unknown = np.array(start)
    for _ in range(100_000):
        change = np.array(equations(unknown)) * (0.5, 2.0, 0.5, 0.5)
        unknown = unknown - change
        if np.abs(change).max() < 1e-8:
            return unknown
    raise RuntimeError("the iteration does not converge")


SOLVERS = {"root": by_root_finder, "iteration": by_iteration}


def as_point(unknown: np.ndarray) -> tuple[float, float, float, float]:
    """Return (μ_e, b, ν, χ) from (μ_e, b, log ν, log χ)."""
    across, bias, rest, susceptibility = map(float, unknown)
    return across, bias, math.exp(rest), math.exp(susceptibility)


def starting_guess(task: Task, training: Training) -> list[float]:
    """Return the solution to leading order at a heavy ridge, from which `predict` starts too."""
    scale_square = 1 / task.length
    ridge = max(training.ridge, 10 * scale_square)
    across = task.positive_rate * task.strength * task.informative / task.length / (2 * ridge)
    rest = math.sqrt(training.alpha1 * scale_square) / (2 * training.alpha1 * ridge)
    return [across, 0.0, math.log(rest), -math.log(training.alpha1 * ridge)]


def prox(centre: float, step: float) -> float:
    """Return the root of r + step ℓ'(r) = centre, which lies between centre and centre + step."""
    return brentq(lambda r: r + step * slope(r) - centre, centre - 1, centre + step + 1)


def slope(r: float) -> float:
    """Return ℓ'(r) of the logistic loss."""
    return 0.5 * math.tanh(r / 2) - 0.5


def curvature(r: float) -> float:
    """Return ℓ''(r) of the logistic loss."""
    return -slope(r) * (1 + slope(r))


def normal_cdf(x: float) -> float:
    """Return Φ(x)."""
    return 0.5 * math.erfc(-x / math.sqrt(2))


def agree(task: Task, training: Training, solver: str = "root") -> float:
    """Return the largest difference between the two predictions; raise if it is too large."""
    naive, own = naive_predict(task, training, solver), predict(task, training, classifier="pooled")
    names = ("test_error", "train_loss", "train_error")
    difference = max(abs(getattr(naive, name) - getattr(own, name)) for name in names)
    if difference > AGREEMENT:
        raise AssertionError(f"{naive} and {own} differ by {difference:.1e}")
    return difference


def main() -> None:
    for task in (Task(10, 1, 5.0), Task(10, 3, 2.0, 0.3), Task(50, 5, 4.0, 0.7)):
        for training in (Training(1.0, 2.0), Training(1.0, 0.7, ridge=0.1), Training(1.0, 8.0)):
            print(f"{agree(task, training):.1e}  {task}, {training}", flush=True)


if __name__ == "__main__":
    main()
