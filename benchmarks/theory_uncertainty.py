"""Compare the error bars of the theory with its true error.

    python benchmarks/theory_uncertainty.py [--settings 60] [--finer 5] [--reuse] [--tolerance T]

Each random setting is predicted with the default number of points of the law of features, or as it
is at a tolerance, and with 2^finer times as many from other random streams, which stands for the
truth. Reported: how often the error bar covers the deviation, and the median of their ratio.
"""

import argparse
import os

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from random_settings import Setting, random_setting

from sparsetoken import Prediction, Query, Task, predict
from sparsetoken.theory import predictor
from sparsetoken.theory.feature_law import FeatureLaw

FIELDS = ("test_error", "train_loss", "train_error")
COVERAGE, RATIO = 0.95, 20.0
# Deviations below this are rounding, of which no ratio means anything.
ROUNDING = 1e-12
OTHER_SEED = 1000


@contextmanager
def law_of_size(log2_points: int, shift: int = 0) -> Iterator[None]:
    """Make predictions use this many points of each law, of random streams shifted by `shift`."""
    sizes = ("FIRST_SIZE", "LEAST_SIZE", "LAST_SIZE")
    kept = {name: getattr(predictor, name) for name in (*sizes, "feature_law", "training_law")}

    def feature_law(
        task: Task,
        classifier: str,
        query: Query | None,
        log2_points: int,
        seed: int = 0,
        *,
        fresh: bool = False,
    ) -> FeatureLaw:
        make = kept["feature_law"]
        return make(task, classifier, query, log2_points, seed + shift, fresh=fresh)

    def training_law(*problem: Any) -> Callable[[int, int], FeatureLaw]:
        make = kept["training_law"](*problem)
        return lambda size, seed: make(size, seed + shift)

    changed: dict[str, Any] = dict.fromkeys(sizes, log2_points)
    changed |= {"feature_law": feature_law, "training_law": training_law}
    for name, value in changed.items():
        setattr(predictor, name, value)
    try:
        yield
    finally:
        for name, value in kept.items():
            setattr(predictor, name, value)


def predicted(setting: Setting, tolerance: float = 1e-4) -> Prediction:
    return predict(
        setting.task,
        setting.training,
        classifier=setting.classifier,
        query=setting.query,
        at=setting.at,
        tolerance=tolerance,
    )


def compare(
    setting: Setting, finer: int, tolerance: float | None
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return deviations and error bars of the three fields; None if a solution says it is none."""
    size = predictor.FIRST_SIZE
    if tolerance is None:
        with law_of_size(size):
            usual = predicted(setting)
    else:
        usual = predicted(setting, tolerance)
    with law_of_size(size + finer, OTHER_SEED):
        fine = predicted(setting)
    if not (usual.solution.converged and fine.solution.converged):
        return None
    pairs = [(getattr(usual, name), getattr(fine, name)) for name in FIELDS]
    deviations = np.array([abs(a - b) for a, b in pairs])
    return deviations, np.array([getattr(usual.uncertainty, name) for name in FIELDS])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--settings", type=int, default=60)
    parser.add_argument("--first", type=int, default=0, help="Number of the first setting.")
    parser.add_argument("--finer", type=int, default=5, help="Power of two.")
    parser.add_argument("--tolerance", type=float, help="As a user gets it at this tolerance.")
    parser.add_argument("--reuse", action="store_true", help="Train without a split.")
    options = parser.parse_args()
    results = []
    for number in range(options.first, options.first + options.settings):
        setting = random_setting(
            number, seed=3, classifiers=("attention",), shifted=0.3, reused=options.reuse
        )
        compared = compare(setting, options.finer, options.tolerance)
        if compared is None:
            print(f"not converged [{number}] {setting}", flush=True)
            continue
        results.append(compared)
        deviations, bars = compared
        for name, deviation, bar in zip(FIELDS, deviations, bars, strict=True):
            if deviation > bar + ROUNDING:
                print(
                    f"missed [{number}] {name}: {deviation:.2e} > {bar:.2e}, {setting}", flush=True
                )
    deviations, bars = (np.array(column) for column in zip(*results, strict=True))
    print(f"{len(results)} settings against {2**options.finer} times as many points")
    print(
        "| field | covered | target | median ratio | target | verdict |\n|---|---|---|---|---|---|"
    )
    for name, deviation, bar in zip(FIELDS, deviations.T, bars.T, strict=True):
        covered = np.mean(deviation <= bar + ROUNDING)
        counted = deviation > ROUNDING
        ratio = np.median(bar[counted] / deviation[counted]) if counted.any() else 0.0
        verdict = "reached" if covered >= COVERAGE and ratio <= RATIO else "not reached"
        print(
            f"| {name} | {covered:.1%} | >= {COVERAGE:.0%} | {ratio:.1f} ({counted.sum()} above "
            f"rounding) | <= {RATIO:g} | {verdict} |"
        )


if __name__ == "__main__":
    main()
