"""Do message passing and joint descent follow theory, and does nothing beat the Bayes floor?

    python benchmarks/limits_agreement.py messages|descent|floor [--output docs/agreement]

Settings are drawn at random before anything is computed. `messages` runs message passing in 12
settings with 1 to 4 informative tokens, `descent` four joint steps in 20 settings (those in which
deviations grow more than five-fold are counted and drawn again), both at three dimensions; they
write a row for every quantity, with the z-score at the largest dimension and that of the limit when
the bias c/d is fitted. `floor` holds trained classifiers against the floor in 200 settings. About
three minutes each on one core.
"""

import argparse
import csv
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
from agreement import Comparison
from random_settings import random_setting
from rich.console import Console
from rich.progress import track

from sparsetoken import (
    Step,
    Task,
    descend,
    floor,
    loss_names,
    predict,
    simulate_descent,
    simulate_message_passing,
)

TRIALS = {500: 16, 1000: 8, 2000: 4}
DESCENT_QUANTITIES = (
    *("test_error", "alignment", "query_norm"),
    *("readout_cosine", "readout_norm", "bias"),
)
AMPLIFIED = 5.0
# Numerical error bars are three standard errors.
COVERAGE = 3.0


def _log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def _task(rng: np.random.Generator, informative: int, longest: int) -> Task:
    return Task(
        round(_log_uniform(rng, informative + 2, longest)),
        informative,
        float(rng.uniform(1.5, 5.0)),
        float(rng.uniform(0.2, 0.8)),
    )


def messages(seed: int) -> tuple[list[str], list[Comparison]]:
    """Compare overlap and test error of message passing with the floor's reachable ones."""
    rng = np.random.default_rng((seed, 1))
    settings = [(_task(rng, 1 + i % 4, 60), _log_uniform(rng, 0.3, 4.0)) for i in range(12)]
    found = []
    for index, (task, alpha) in enumerate(_tracked(settings)):
        theory = floor(task, alpha)
        pairs = {
            "overlap": (theory.reachable_overlap, theory.uncertainty.reachable_overlap),
            "test_error": (theory.reachable_test_error, theory.uncertainty.reachable_test_error),
        }

        def trial(dimension: int, number: int, task: Task = task, alpha: float = alpha) -> object:
            return simulate_message_passing(
                task, alpha, dimension=dimension, trials=1, seed=1000 * seed + number
            )

        found += _compare(index, theory.phase, pairs, trial)
    return [f"{task}, alpha={alpha:.4g}" for task, alpha in settings], found


def descent(seed: int) -> tuple[list[str], list[Comparison]]:
    """Compare the state after four joint steps with theory."""
    rng = np.random.default_rng((seed, 2))
    names, found, refused = [], [], 0
    bar = _tracked(range(20))
    for index in bar:
        while True:
            task = _task(rng, int(rng.integers(1, 5)), 40)
            steps = [
                Step(
                    _log_uniform(rng, 1.0, 4.0),
                    readout_step=_log_uniform(rng, 0.2, 1.5),
                    bias_step=_log_uniform(rng, 0.02, 1.0),
                    query_step=_log_uniform(rng, 1.0, 10.0),
                )
                for _ in range(4)
            ]
            loss = str(rng.choice(sorted(loss_names())))
            theory = descend(task, steps, loss=loss)
            if max(state.amplification for state in theory) <= AMPLIFIED:
                break
            refused += 1
        names.append(f"{task}, {loss}, {[step.to_dict() for step in steps]}")
        last = theory[-1]
        pairs = {name: (getattr(last, name), last.uncertainty[name]) for name in DESCENT_QUANTITIES}

        def trial(
            dimension: int,
            number: int,
            task: Task = task,
            steps: list[Step] = steps,
            loss: str = loss,
        ) -> object:
            return simulate_descent(
                task, steps, dimension=dimension, trials=1, loss=loss, seed=1000 * seed + number
            )[-1]

        found += _compare(index, loss, pairs, trial)
    print(
        f"{refused} settings amplified deviations more than {AMPLIFIED:g}-fold and were drawn again"
    )
    return names, found


def _compare(
    index: int,
    group: str,
    pairs: dict[str, tuple[float, float]],
    trial: Callable[[int, int], object],
) -> list[Comparison]:
    items = {
        name: Comparison(index, group, name, value, bar / COVERAGE)
        for name, (value, bar) in pairs.items()
    }
    for dimension, count in TRIALS.items():
        for number in range(count):
            result = trial(dimension, number)
            for name, item in items.items():
                item.values.setdefault(dimension, []).append(getattr(result, name))
    # What no trial changes (a classifier that always says the same) has no z-score.
    return [item for item in items.values() if item.deviation() > 0]


def below(seed: int, count: int = 200) -> None:
    """Count settings in which a trained classifier is better than the floor, by their error bars."""
    closest, wrong = np.inf, 0
    for number in _tracked(range(count)):
        setting = random_setting(number, seed=seed)
        task, training = setting.task, setting.training
        learns = setting.classifier == "attention"
        total = training.alpha1 + (training.alpha0 if learns else 0.0)
        found = floor(task, total)
        trained = predict(task, training, classifier=setting.classifier, tolerance=1e-3)
        bars = found.uncertainty.test_error + trained.uncertainty.test_error
        gap = trained.test_error - found.test_error
        closest = min(closest, gap + bars)
        if gap < -bars:
            wrong += 1
            print(f"{setting}: {trained.test_error:.6g}, floor {found.test_error:.6g} ± {bars:.1g}")
    print(f"{wrong} of {count} trained classifiers below the floor; least gap + bars {closest:.2g}")


def write(path: Path, names: list[str], found: list[Comparison]) -> None:
    """Write a row for every quantity, and print how the z-scores are spread."""
    largest = max(TRIALS)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(
            [
                *("setting", "group", "quantity", "theory", "theory_uncertainty"),
                *(f"d={d}" for d in TRIALS),
                *("standard_error", "z", "bias_times_d", "z_limit", "description"),
            ]
        )
        for item in found:
            bias, _, limit = item.fit()
            numbers = [
                item.theory,
                COVERAGE * item.theory_error,
                *(float(np.mean(item.values[d])) for d in TRIALS),
                item.standard_error(largest),
                item.z_score(largest),
                bias,
                limit,
            ]
            row = [item.setting, item.group, item.quantity, *(f"{x:.5g}" for x in numbers)]
            writer.writerow([*row, names[item.setting]])
    for label, scores in (
        *((f"d = {d}", [item.z_score(d) for item in found]) for d in TRIALS),
        ("limit", [item.fit()[2] for item in found]),
    ):
        z = np.array(scores)
        print(
            f"{label}: {len(z)} comparisons, mean z {z.mean():+.2f}, deviation {z.std(ddof=1):.2f}, "
            f"beyond 2: {np.mean(np.abs(z) > 2):.0%}, largest {np.abs(z).max():.1f}"
        )


def _tracked(items: Iterable[object]) -> Iterable:  # type: ignore[type-arg]
    return track(list(items), "settings", console=Console(stderr=True), transient=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("study", choices=("messages", "descent", "floor"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path("docs/agreement"))
    options = parser.parse_args()
    if options.study == "floor":
        below(options.seed)
        return
    names, found = {"messages": messages, "descent": descent}[options.study](options.seed)
    file = {"messages": "message_passing.csv", "descent": "descent.csv"}[options.study]
    write(options.output / file, names, found)


if __name__ == "__main__":
    main()
