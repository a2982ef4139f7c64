"""Which learning rates, sharpness, ridge and split to take: rules, put to the test on a map of tasks.

    python benchmarks/rates_study.py [--output docs/training_guide] [--again]
    python benchmarks/rates_study.py --fresh 24 [--seed 1]

Two maps, all by exact theory. *Cosines*: random tasks, the query's cosine with the signal over
readout step and bias step. *Errors*: a grid of tasks over length, strength, label balance and
samples; the test error over sharpness, ridge and split. A rule is good if following it costs little
against the best of the map. Writes errors.csv, rules.csv and two figures.

`--fresh` judges the rules on other tasks, drawn at random, and writes fresh.csv and fresh_rules.csv.
Rules for sharpness and ridge were read off the grid and the tasks of seed 1.
"""

import argparse
import csv
import itertools
import os
from collections.abc import Iterable
from pathlib import Path

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np

from sparsetoken import Task, Training, oracle, predict
from sparsetoken.plotting import new_figure, save_figure, shared_legend, styled
from sparsetoken.plotting.style import SERIES
from sparsetoken.reproduce.claims.c16_rates_map import balanced_bias_step
from sparsetoken.theory.alignment import learnt_alignment

RANDOM_TASKS = 300
READOUT_STEPS = (0.05, 0.2, 0.5, 1.0, 2.0, 5.0)
BIAS_FACTORS = (0.0, 0.25, 0.5, 1.0, 2.0)
GRID = tuple(itertools.product((8, 40), (3.5, 5.0), (0.5, 0.2), (2.0, 8.0)))
SHARPNESSES = (0.5, 1.0, 1.5, 2.0, 3.0, 4.5)
RIDGES = (0.003, 0.03, 0.1, 0.3)
SHARES = (0.2, 0.35, 0.5, 0.65)
TOLERANCE = 2e-3
READOUT_RULE = 0.2
SHARE_RULE = 0.5

Row = dict[str, float]


def fresh_tasks(count: int, seed: int) -> list[tuple[Task, float]]:
    """Draw tasks and their samples per dimension from wider ranges than those of the grid.

    Tasks on which no sharpness and no ridge could matter are left out: those with an error below
    1e-3 or above 0.9 of that of guessing, if the signal were known.
    """
    rng = np.random.default_rng(seed)
    drawn: list[tuple[Task, float]] = []
    while len(drawn) < count:
        length = int(np.exp(rng.uniform(np.log(5), np.log(300))))
        task = Task(
            length,
            int(rng.integers(1, min(4, length // 4) + 1)),
            float(rng.uniform(2.5, 6.5)),
            float(rng.uniform(0.1, 0.9)),
        )
        alpha = float(np.exp(rng.uniform(np.log(1), np.log(20))))
        guessing = min(task.positive_rate, 1 - task.positive_rate)
        if 1e-3 < oracle(task, classifier="bayes").test_error < 0.9 * guessing:
            drawn.append((task, alpha))
    return drawn


def cosine_map(seed: int = 15) -> list[Row]:
    """Return the cosine over both steps of the first stage, on random tasks."""
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(RANDOM_TASKS):
        length = int(np.exp(rng.uniform(np.log(3), np.log(200))))
        task = Task(
            length,
            int(rng.integers(1, max(2, length // 3))),
            float(np.exp(rng.uniform(np.log(1), np.log(8)))),
            float(rng.uniform(0.05, 0.95)),
        )
        alpha = float(np.exp(rng.uniform(np.log(0.5), np.log(50))))
        balanced = balanced_bias_step(task.positive_rate)
        for readout, factor in itertools.product(READOUT_STEPS, BIAS_FACTORS):
            training = Training(alpha, 1.0, readout_step=readout, bias_step=factor * balanced)
            cosine = learnt_alignment(task, training).alignment
            rows.append(
                {"task": number, "readout_step": readout, "bias_factor": factor, "cosine": cosine}
            )
    return rows


def error_map(tasks: list[tuple[Task, float]]) -> list[Row]:
    """Return the test error over sharpness, ridge and share (0: no split) of each task."""
    rows = []
    for number, (task, alpha) in enumerate(tasks):
        for share, ridge, kappa in itertools.product((0.0, *SHARES), RIDGES, SHARPNESSES):
            if share and (ridge not in RIDGES[1:] or kappa not in SHARPNESSES[1:5]):
                continue
            first, second = (share * alpha, (1 - share) * alpha) if share else (alpha, alpha)
            training = Training(
                first,
                second,
                ridge=ridge,
                readout_step=READOUT_RULE,
                bias_step=balanced_bias_step(task.positive_rate),
                query_step=1.0,
                reuse=not share,
            )
            unit = learnt_alignment(task, training).sharpness
            training = training.replace(query_step=kappa / unit)
            found = predict(task, training, tolerance=TOLERANCE)
            rows.append(
                {
                    "task": number,
                    **task.to_dict(),
                    "alpha": alpha,
                    "share": share,
                    "ridge": ridge,
                    "sharpness": kappa,
                    "error": found.test_error,
                    "converged": float(found.solution.converged),
                }
            )
        print(f"task {number + 1} of {len(tasks)}", flush=True)
    return rows


def least(rows: Iterable[Row], **labels: float) -> np.ndarray:
    """Return the least error of each task among rows with these labels."""
    best: dict[float, float] = {}
    for row in rows:
        if all(row[name] == value for name, value in labels.items()):
            best[row["task"]] = min(best.get(row["task"], np.inf), row["error"])
    return np.array([best[task] for task in sorted(best)])


def cosines(rows: Iterable[Row], **labels: float) -> np.ndarray:
    """Return the largest cosine of each task among rows with these labels."""
    best: dict[float, float] = {}
    for row in rows:
        if all(row[name] == value for name, value in labels.items()):
            best[row["task"]] = max(best.get(row["task"], -1.0), row["cosine"])
    return np.array([best[task] for task in sorted(best)])


def ridge_rule(row: Row) -> float:
    """Return the ridge nearest to 0.1 R^-3/2 for balanced labels, else to 0.03 R^-3/2.

    A short readout leaves all to the larger class, and more tokens make a stronger signal.
    """
    usual = 0.1 if 0.35 <= row["positive_rate"] <= 0.65 else 0.03
    return _nearest(RIDGES, usual / row["informative"] ** 1.5)


def sharpness_rule(row: Row) -> float:
    """Return the sharpness nearest to 2/(1 + 4(R² - 1)/L): softer where more tokens tell."""
    crowded = (row["informative"] ** 2 - 1) / row["length"]
    return _nearest(SHARPNESSES, 2 / (1 + 4 * crowded))


def _nearest(values: tuple[float, ...], wanted: float) -> float:
    """Return the value of the map that is nearest, as a factor."""
    return min(values, key=lambda value: abs(np.log(value / wanted)))


def rules(angles: list[Row], errors: list[Row]) -> list[dict[str, object]]:
    """Return each rule with the share of tasks on which following it costs little."""
    top = cosines(angles)
    steady = cosines([row for row in angles if row["readout_step"] == READOUT_RULE])
    balanced, no_bias = (
        cosines(angles, readout_step=READOUT_RULE, bias_factor=factor) for factor in (1.0, 0.0)
    )
    best, whole = least(errors), least(errors, share=0.0)
    by_ridge = [row for row in errors if row["ridge"] == ridge_rule(row)]
    by_sharpness = [row for row in errors if row["sharpness"] == sharpness_rule(row)]
    by_both = [row for row in by_ridge if row["sharpness"] == sharpness_rule(row)]
    split = least([row for row in errors if row["share"] > 0])
    rows: list[tuple[str, np.ndarray, float]] = [
        ("η_w = 0.2, best of five bias steps: loss of cosine", 1 - steady / top, 0.05),
        ("η_w = 0.2, balanced bias step: loss of cosine", 1 - balanced / top, 0.05),
        ("η_w = 0.2, no bias step: loss of cosine", 1 - no_bias / top, 0.05),
        ("no split, against the best of all", whole / best - 1, 0.02),
        ("the best split, against no split", split / whole - 1, 0.1),
        (
            "half for the query, against the best split",
            least(errors, share=SHARE_RULE) / split - 1,
            0.1,
        ),
        ("κ by the rule, at the best ridge", least(by_sharpness, share=0.0) / whole - 1, 0.1),
        ("κ = 1, at the best ridge", least(errors, share=0.0, sharpness=1.0) / whole - 1, 0.1),
        ("λ by the rule, at the best κ", least(by_ridge, share=0.0) / whole - 1, 0.1),
        ("λ = 0.003, at the best κ", least(errors, share=0.0, ridge=0.003) / whole - 1, 0.1),
        ("all rules together", least(by_both, share=0.0) / best - 1, 0.15),
    ]
    return [
        {
            "rule": name,
            "within": allowed,
            "share of tasks": round(float(np.mean(loss <= allowed)), 2),
            "median": round(float(np.median(loss)), 3),
            "worst": round(float(np.max(loss)), 2),
        }
        for name, loss, allowed in rows
    ]


@styled
def draw(angles: list[Row], errors: list[Row], folder: Path) -> None:
    """Draw what each choice costs, median and range over tasks."""
    figure, panels = new_figure(columns=3)
    whole = least(errors, share=0.0)
    curves = (
        (panels[0], "sharpness κ = β‖q‖", SHARPNESSES, "sharpness"),
        (panels[1], "ridge λ", RIDGES, "ridge"),
    )
    for panel, label, values, name in curves:
        found = np.array([least(errors, share=0.0, **{name: v}) / whole for v in values])
        _band(panel, values, found, SERIES[0].colour)
        panel.set_xlabel(label)
        panel.set_xscale("log")
        panel.set_ylabel("error over the best")
        panel.set_xticks(values, [f"{value:g}" for value in values])
        panel.minorticks_off()
    split = np.array([least(errors, share=v) / whole for v in SHARES])
    _band(panels[2], SHARES, split, SERIES[1].colour)
    panels[2].axhline(1, color="black", linestyle=":", label="no split")
    panels[2].set_xlabel("share of the data for the query")
    panels[2].set_ylabel("error over that of no split")
    panels[2].legend()
    save_figure(figure, folder / "choices", ("svg",))
    figure, (panel,) = new_figure()
    top = cosines(angles)
    for look, factor in zip(SERIES, BIAS_FACTORS, strict=True):
        found = [
            np.mean(cosines(angles, readout_step=step, bias_factor=factor) >= 0.95 * top)
            for step in READOUT_STEPS
        ]
        panel.plot(
            READOUT_STEPS,
            found,
            marker=look.marker,
            color=look.colour,
            label=f"{factor:g} of balanced",
        )
    panel.set_xscale("log")
    panel.set_xticks(READOUT_STEPS, [f"{step:g}" for step in READOUT_STEPS])
    panel.minorticks_off()
    panel.set_ylim(0, 1)
    panel.set_xlabel("readout step η_w")
    panel.set_ylabel("tasks within 5 % of the best")
    shared_legend(figure, columns=2)
    save_figure(figure, folder / "steps", ("svg",))


def _band(panel: object, values: tuple[float, ...], found: np.ndarray, colour: str) -> None:
    low, middle, high = np.percentile(found, (0, 50, 100), axis=1)
    panel.fill_between(values, low, high, color=colour, alpha=0.25)  # type: ignore[attr-defined]
    panel.plot(values, middle, color=colour, marker="o")  # type: ignore[attr-defined]
    panel.set_ylim(0.95, min(3.0, float(high.max()) * 1.05))  # type: ignore[attr-defined]


def write(rows: list[Row] | list[dict[str, object]], path: Path) -> None:
    """Write rows as CSV."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def read(path: Path) -> list[Row]:
    """Read rows of numbers."""
    with path.open(newline="", encoding="utf-8") as file:
        return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]


def main() -> None:
    """Compute both maps, judge the rules and draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("docs/training_guide"))
    parser.add_argument("--again", action="store_true", help="Judge the errors.csv that is there.")
    parser.add_argument("--fresh", type=int, help="Judge the rules on so many random tasks.")
    parser.add_argument("--seed", type=int, default=1, help="Of the random tasks.")
    options = parser.parse_args()
    folder = options.output
    folder.mkdir(parents=True, exist_ok=True)
    if options.fresh:
        name, judging = "fresh", "fresh_rules"
        angles = cosine_map(options.seed)
        tasks = fresh_tasks(options.fresh, options.seed)
    else:
        name, judging = "errors", "rules"
        angles = cosine_map()
        tasks = [(Task(length, 1, *rest), alpha) for length, *rest, alpha in GRID]
    errors = read(folder / f"{name}.csv") if options.again else error_map(tasks)
    judged = rules(angles, errors)
    write(errors, folder / f"{name}.csv")
    write(judged, folder / f"{judging}.csv")
    if not options.fresh:
        draw(angles, errors, folder)
    for row in judged:
        print("| " + " | ".join(str(value) for value in row.values()) + " |")


if __name__ == "__main__":
    main()
