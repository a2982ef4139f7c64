"""Ask the theory for random valid settings: nothing may fail silently.

    python benchmarks/theory_robustness.py [--settings 1000] [--tolerance 1e-4] [--reuse]

Every prediction must be finite (the susceptibility may be infinite), converged or with a status
that says what to do, without a warning, and made in less than 20 CPU seconds. The same holds for
the capacity of every fifth setting and for curves over several fields. `--first N --settings 1`
repeats one setting.
"""

import argparse
import os

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import signal
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np
from random_settings import CLASSIFIERS, Setting, random_setting

from sparsetoken import (
    Capacity,
    Prediction,
    Query,
    Task,
    Training,
    capacity,
    curve,
    get_loss,
    predict,
)
from sparsetoken.numerics.solution import Solution

Result = TypeVar("Result")

SECONDS = 20.0
HANG = 60.0
ADVICE = ("raise", "use", "move", "lower", "not reached")
SLACK = 1e-9
FAULTS = (ArithmeticError, LookupError, OSError, RuntimeError, TypeError, ValueError, Warning)


def solution_faults(solution: Solution) -> Iterator[str]:
    if not np.isfinite(solution.residual):
        yield f"residual {solution.residual}"
    if not solution.converged and not any(word in solution.message for word in ADVICE):
        yield f"no advice in the status {solution.message!r}"


def prediction_faults(prediction: Prediction, loss: str) -> Iterator[str]:
    yield from solution_faults(prediction.solution)
    parameters, errors = prediction.order_parameters, prediction.uncertainty
    values = {
        name: getattr(prediction, name) for name in ("test_error", "train_loss", "train_error")
    }
    values |= {name: getattr(parameters, name) for name in ("along", "across", "bias", "rest")}
    bars = {name: getattr(errors, name) for name in ("test_error", "train_loss", "train_error")}
    if prediction.margin is not None:
        values["margin"], bars["margin"] = prediction.margin, errors.margin
        if not prediction.margin > 0:
            yield f"margin {prediction.margin}"
    for name, value in values.items():
        if not np.isfinite(value):
            yield f"{name} {value}"
    for name, value in bars.items():
        # Where nothing converged nothing is known.
        if not (np.isfinite(value) or not prediction.solution.converged) or not value >= 0:
            yield f"uncertainty of {name} {value}"
    if np.isnan(parameters.susceptibility) or parameters.susceptibility < 0:
        yield f"susceptibility {parameters.susceptibility}"
    for name in ("test_error", "train_error"):
        if not -SLACK <= values[name] <= 1 + SLACK:
            yield f"{name} {values[name]}"
    if values["train_loss"] < get_loss(loss).infimum - SLACK:
        yield f"train_loss {values['train_loss']}"


def capacity_faults(found: Capacity) -> Iterator[str]:
    yield from solution_faults(found.solution)
    # Ignoring the signal gives 2 already, whatever the law.
    if not found.alpha >= 2 * (1 - 1e-6) - found.uncertainty:
        yield f"capacity {found.alpha}"
    if not (np.isfinite(found.uncertainty) or found.alpha == np.inf) or not found.uncertainty >= 0:
        yield f"uncertainty of the capacity {found.uncertainty}"


class Record:
    """What happened to a kind of call."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.seconds: list[float] = []
        self.statuses: Counter[str] = Counter()
        self.failures = 0

    def call(
        self, label: str, function: Callable[[], Result], faults: Callable[[Result], Iterator[str]]
    ) -> Result | None:
        """Call, note the time, and print whatever is wrong with the settings in `label`."""
        result = None
        begin = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, HANG)
        try:
            result = function()
            wrong = list(faults(result))
        except FAULTS as error:
            wrong = [f"{type(error).__name__}: {error}"]
        signal.setitimer(signal.ITIMER_PROF, 0)
        self.seconds.append(time.process_time() - begin)
        if self.seconds[-1] > SECONDS:
            wrong.append(f"{self.seconds[-1]:.1f} s")
        for fault in wrong:
            print(f"FAILURE {self.name} {label}: {fault}", flush=True)
        self.failures += bool(wrong)
        return result

    def count(self, solution: Solution) -> None:
        """Count a status by what comes before its numbers."""
        kind = "converged" if solution.converged else "not converged"
        if "not reached" in solution.message:
            kind += ", tolerance not reached"
        for word in ("smoothed", "capacity"):
            if word in solution.message:
                kind += f", {word}"
        self.statuses[kind] += 1

    def summary(self) -> str:
        """Return two lines: calls, failures and times; kinds of status."""
        kinds = "; ".join(f"{kind}: {n}" for kind, n in self.statuses.most_common())
        return (
            f"{self.name}: {len(self.seconds)} calls, {self.failures} failures; CPU seconds: "
            f"median {np.median(self.seconds):.2f}, largest {max(self.seconds):.1f}, "
            f"sum {sum(self.seconds):.0f}\n    {kinds}"
        )


def check_settings(numbers: range, tolerance: float, reused: bool) -> list[Record]:
    predictions, capacities = Record("predict"), Record("capacity")
    # Without a query there is nothing to reuse.
    kinds = ("attention",) if reused else CLASSIFIERS
    for number in numbers:
        setting = random_setting(number, classifiers=kinds, reused=reused)
        found = predictions.call(
            f"[{number}] {setting}",
            lambda setting=setting: predict_setting(setting, tolerance),
            lambda result, loss=setting.training.loss: prediction_faults(result, loss),
        )
        if found is not None:
            predictions.count(found.solution)
            if not found.solution.converged:
                print(f"[{number}] {found.solution.message}: {setting}", flush=True)
        if number % 5 == 0:
            held = capacities.call(
                f"[{number}] {setting}",
                lambda s=setting: capacity(
                    s.task,
                    query=s.query,
                    training=None if s.query or s.classifier != "attention" else s.training,
                    classifier=s.classifier,
                ),
                capacity_faults,
            )
            if held is not None:
                capacities.count(held.solution)
    return [predictions, capacities]


def predict_setting(setting: Setting, tolerance: float) -> Prediction:
    return predict(
        setting.task,
        setting.training,
        classifier=setting.classifier,
        query=setting.query,
        tolerance=tolerance,
    )


CURVES: dict[str, list[float]] = {
    "alpha1": list(np.geomspace(0.05, 100, 15)),
    "ridge": [10, 1, 0.1, 1e-3, 1e-5, 0],
    "strength": list(np.linspace(0, 20, 11)),
    "length": [3, 5, 10, 30, 100, 200],
    "positive_rate": [0.001, 0.05, 0.3, 0.5, 0.9, 0.999],
    "alignment": list(np.linspace(-1, 1, 9)),
    "sharpness": [0, 0.01, 0.1, 1, 10, 100],
    "alpha0": list(np.geomspace(0.05, 100, 8)),
}


def check_curves(tolerance: float) -> Record:
    record = Record("curve")
    for over, values in CURVES.items():
        for loss in ("logistic", "hinge", "square", "squared_hinge"):
            ridge = 0.0 if over == "alpha1" else 1e-4
            task, training = Task(10, 2, 3.0), Training(2.0, 2.0, loss=loss, ridge=ridge)
            query = Query(0.8, 1.0) if over in Query.__dataclass_fields__ else None
            found = record.call(
                f"over {over}, {task}, {training}, {query}",
                lambda pair=(task, training), over=over, values=values, query=query: curve(
                    *pair, over=over, values=values, query=query, tolerance=tolerance
                ),
                lambda results, loss=loss: (
                    fault for result in results for fault in prediction_faults(result, loss)
                ),
            )
            for prediction in found or []:
                record.count(prediction.solution)
    return record


def hanging(*_: object) -> None:
    raise TimeoutError(f"not done after {HANG:g} CPU seconds")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--settings", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="Number of the first setting.")
    parser.add_argument("--tolerance", type=float, default=1e-4)
    parser.add_argument("--reuse", action="store_true", help="Learn the query from the same data.")
    parser.add_argument("--no-curves", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("error")
    signal.signal(signal.SIGPROF, hanging)
    records = check_settings(
        range(options.first, options.first + options.settings), options.tolerance, options.reuse
    )
    if not options.no_curves:
        records.append(check_curves(options.tolerance))
    print(f"tolerance {options.tolerance:g}")
    for record in records:
        if record.seconds:
            print(record.summary())
    raise SystemExit(any(record.failures for record in records))


if __name__ == "__main__":
    main()
