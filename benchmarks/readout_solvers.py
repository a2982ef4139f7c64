"""Time solvers of the readout on the settings of the paper's figures, at equal accuracy.

    python benchmarks/readout_solvers.py [--dimension 1000]

Logistic loss, L=10, R=1, π=0.5, θ=5, ridge 1e-5, features of attention (query of cosine 0.95 and
sharpness 1) and of the pooled classifier. Every solver is asked for a gradient of norm 1e-8 of the
objective (1/n) Σ ℓ + (ridge/2)‖w‖² and the norm it reached is shown. The results are in
benchmarks/README.md. CPU seconds of one thread: set OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1.
"""

import argparse
import time
import warnings
from collections.abc import Callable

import numpy as np
from scipy import linalg
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from sparsetoken import Task, fit_readout, get_loss
from sparsetoken.simulation.reduced import reduced_attention, reduced_pooled

RIDGE = 1e-5
Point = tuple[np.ndarray, float]


class Objective:
    """The readout's objective for the logistic loss, as general optimisers want it."""

    def __init__(self, features: np.ndarray, labels: np.ndarray) -> None:
        self.features, self.labels, self.count = features, labels, len(labels)

    def margins(self, point: np.ndarray) -> np.ndarray:
        """Return y(⟨f, w⟩ + b)."""
        return self.labels * (self.features @ point[:-1] + point[-1])

    def value(self, point: np.ndarray) -> float:
        """Return the objective."""
        loss = np.logaddexp(0, -self.margins(point)).mean()
        return loss + 0.5 * RIDGE * point[:-1] @ point[:-1]

    def gradient(self, point: np.ndarray) -> np.ndarray:
        """Return its gradient in (w, b)."""
        slopes = -self.labels * expit(-self.margins(point)) / self.count
        return np.append(slopes @ self.features + RIDGE * point[:-1], slopes.sum())

    def curvatures(self, point: np.ndarray) -> np.ndarray:
        """Return ℓ'' over n."""
        margins = self.margins(point)
        return expit(margins) * expit(-margins) / self.count

    def hessian_times(self, point: np.ndarray, vector: np.ndarray) -> np.ndarray:
        """Return the Hessian times a vector."""
        image = self.curvatures(point) * (self.features @ vector[:-1] + vector[-1])
        return np.append(image @ self.features + RIDGE * vector[:-1], image.sum())


def own(features: np.ndarray, labels: np.ndarray) -> Point:
    readout = fit_readout(features, labels, loss=get_loss("logistic"), ridge=RIDGE)
    return readout.weights, readout.bias


def newton_cholesky(features: np.ndarray, labels: np.ndarray) -> Point:
    """Take Newton steps with a fresh factor each, and backtrack."""
    objective = Objective(features, labels)
    point = np.zeros(features.shape[1] + 1)
    rows = np.column_stack([features, np.ones(len(labels))])
    penalty = np.append(np.full(features.shape[1], RIDGE), 0.0)
    for _ in range(100):
        gradient = objective.gradient(point)
        if np.linalg.norm(gradient) <= 1e-8:
            break
        scaled = rows * np.sqrt(objective.curvatures(point))[:, None]
        step = -linalg.solve(scaled.T @ scaled + np.diag(penalty), gradient, assume_a="pos")
        length, value = 1.0, objective.value(point)
        while objective.value(point + length * step) > value + 1e-15 and length > 1e-10:
            length /= 2
        point = point + length * step
    return point[:-1], point[-1]


def scipy_method(method: str, **options: float) -> Callable[..., Point]:
    def solve(features: np.ndarray, labels: np.ndarray) -> Point:
        objective = Objective(features, labels)
        products = {"hessp": objective.hessian_times} if method == "Newton-CG" else {}
        found = minimize(
            objective.value,
            np.zeros(features.shape[1] + 1),
            jac=objective.gradient,
            method=method,
            options=options,
            **products,
        )
        return found.x[:-1], found.x[-1]

    return solve


def scikit_learn(solver: str, tolerance: float) -> Callable[..., Point]:
    def solve(features: np.ndarray, labels: np.ndarray) -> Point:
        model = LogisticRegression(
            C=1 / (RIDGE * len(labels)), solver=solver, tol=tolerance, max_iter=20_000
        )
        model.fit(features, labels)
        return model.coef_[0], float(model.intercept_[0])

    return solve


SOLVERS: dict[str, Callable[..., Point]] = {
    "this package": own,
    "Newton-Cholesky, plain": newton_cholesky,
    "scipy Newton-CG": scipy_method("Newton-CG", xtol=1e-12, maxiter=500),
    "scipy L-BFGS-B": scipy_method(
        "L-BFGS-B", ftol=0.0, gtol=1e-10, maxiter=20_000, maxfun=40_000, maxcor=20
    ),
    "scikit-learn newton-cholesky": scikit_learn("newton-cholesky", 1e-9),
    "scikit-learn newton-cg": scikit_learn("newton-cg", 1e-9),
    "scikit-learn lbfgs": scikit_learn("lbfgs", 1e-10),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dimension", type=int, default=1000)
    parser.add_argument("--ratios", type=float, nargs="+", default=[0.5, 2.0, 4.0, 8.0])
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    task = Task(length=10, informative=1, strength=5.0, positive_rate=0.5)
    print("| features | α1 | solver | seconds | gradient norm |")
    print("|---|---|---|---|---|")
    for ratio in options.ratios:
        count = round(ratio * options.dimension)
        drawn = {
            "attention": reduced_attention(
                task, 0.95, 1.0, count, options.dimension, np.random.default_rng(0)
            ),
            "pooled": reduced_pooled(task, count, options.dimension, np.random.default_rng(0)),
        }
        for name, (features, labels) in drawn.items():
            for solver, solve in SOLVERS.items():
                begin = time.process_time()
                weights, bias = solve(features, labels)
                seconds = time.process_time() - begin
                gradient = Objective(features, labels).gradient(np.append(weights, bias))
                row = f"| {name} | {ratio:g} | {solver} | {seconds:.2f} "
                print(row + f"| {np.linalg.norm(gradient):.1e} |", flush=True)


if __name__ == "__main__":
    main()
