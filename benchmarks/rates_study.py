"""Which learning rates, sharpness, ridge and split to take: rules, put to the test on a map of tasks.

    python benchmarks/rates_study.py [--output docs/training_guide] [--loss hinge] [--tasks 60]

Two maps, all by exact theory. *Cosines*: 300 random tasks, the query's cosine with the signal over
readout step and bias step. *Errors*: 60 random tasks, the test error over bias step, sharpness, ridge
and split. A rule is good if following it costs little against the best of the map; what all rules
together cost is predicted again at a finer tolerance. Nothing was chosen on these tasks: the rules
were read off 80 others (seeds 1004, 2001 and 2002) with the logistic loss.

Writes errors.csv, rules.csv and two figures; for another loss LOSS_errors.csv and LOSS_rules.csv.
The same command goes on where it was stopped; delete the table of errors to begin anew.
"""

import argparse
import csv
import itertools
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np

from sparsetoken import Task, Training, curve, oracle, predict
from sparsetoken.planning.suggestion import (
    BIAS_FACTORS,
    READOUT_STEP,
    RIDGES,
    bias_steps,
    suggested_sharpness,
)
from sparsetoken.plotting import new_figure, save_figure, shared_legend, styled
from sparsetoken.plotting.style import SERIES
from sparsetoken.theory.alignment import learnt_alignment

COSINE_TASKS = 300
READOUT_STEPS = (0.05, READOUT_STEP, 0.5, 1.0, 2.0, 5.0)
# Sharpness over that of the rule.
MULTIPLES = (0.4, 0.55, 0.75, 1.0, 1.4, 2.0, 2.8)
# Where bias step or split are not those of the rules, the map is coarser.
COARSE_MULTIPLES, COARSE_RIDGES = (0.75, 1.0, 1.4), (0.1, 0.03, 0.01, 0.001)
SHARES = (0.25, 0.5, 0.75)
# Bias steps whose cosine is below this share of the best are not tried.
WORTH_A_TRY = 0.8
SEED = 20261118
TOLERANCE, FINE = 1e-3, 1e-4

Row = dict[str, float]


def random_tasks(count: int, seed: int) -> list[tuple[Task, float]]:
    """Draw tasks and their samples per dimension.

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


def cosine_map(seed: int) -> list[Row]:
    """Return the cosine over both steps of the first stage, on random tasks."""
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(COSINE_TASKS):
        length = int(np.exp(rng.uniform(np.log(3), np.log(200))))
        task = Task(
            length,
            int(rng.integers(1, max(2, length // 3))),
            float(np.exp(rng.uniform(np.log(1), np.log(8)))),
            float(rng.uniform(0.05, 0.95)),
        )
        alpha = float(np.exp(rng.uniform(np.log(0.5), np.log(50))))
        steps = zip(BIAS_FACTORS, bias_steps(task), strict=True)
        for readout, (factor, bias) in itertools.product(READOUT_STEPS, list(steps)):
            training = Training(alpha, 1.0, readout_step=readout, bias_step=bias)
            cosine = learnt_alignment(task, training).alignment
            rows.append(
                {"task": number, "readout_step": readout, "bias_factor": factor, "cosine": cosine}
            )
    return rows


def error_map(tasks: list[tuple[Task, float]], loss: str, path: Path) -> list[Row]:
    """Return the test error over bias step, sharpness, ridge and share (0: no split) of each task.

    The table at `path` grows with every task, and tasks that it has are not predicted again.
    """
    rows = read(path) if path.is_file() else []
    known = {row["task"] for row in rows}
    for number, (task, alpha) in enumerate(tasks):
        if number in known:
            continue
        for share in (0.0, *SHARES):
            for row in _errors(task, alpha, share, loss):
                rounded = {name: float(f"{value:.7g}") for name, value in row.items()}
                rows.append({"task": number, **rounded})
        write(rows, path)
        print(f"task {number + 1} of {len(tasks)}", flush=True)
    return rows


def _errors(task: Task, alpha: float, share: float, loss: str) -> Iterator[Row]:
    """Yield the errors of one task, finely for the bias step that aligns the query best."""
    options = [_training(alpha, share, loss, step) for step in bias_steps(task, loss)]
    queries = [learnt_alignment(task, option) for option in options]
    best = max(query.alignment for query in queries)
    for factor, training, query in zip(BIAS_FACTORS, options, queries, strict=True):
        chosen = query.alignment == best
        if query.alignment < WORTH_A_TRY * best or (share and not chosen):
            continue
        fine = chosen and not share
        for multiple in MULTIPLES if fine else COARSE_MULTIPLES:
            step = multiple * suggested_sharpness(task) / query.sharpness
            ridges = RIDGES if fine else COARSE_RIDGES
            found = curve(
                task,
                training.replace(query_step=step),
                over="ridge",
                values=ridges,
                tolerance=TOLERANCE,
            )
            for ridge, one in zip(ridges, found, strict=True):
                yield {
                    **task.to_dict(),
                    "alpha": alpha,
                    "share": share,
                    "bias_factor": factor,
                    "best_cosine": float(chosen),
                    "cosine": query.alignment,
                    "multiple": multiple,
                    "query_step": step,
                    "ridge": ridge,
                    "error": one.test_error if one.solution.converged else np.inf,
                }


def _training(alpha: float, share: float, loss: str, bias_step: float) -> Training:
    first, second = (share * alpha, (1 - share) * alpha) if share else (alpha, alpha)
    return Training(
        first,
        second,
        loss=loss,
        readout_step=READOUT_STEP,
        bias_step=bias_step,
        query_step=1.0,
        reuse=not share,
    )


def chosen(rows: Iterable[Row], **labels: float) -> list[Row]:
    """Return the row of least error of each task among rows with these labels."""
    best: dict[float, Row] = {}
    for row in rows:
        wanted = all(row[name] == value for name, value in labels.items())
        if wanted and row["error"] < best.get(row["task"], {"error": np.inf})["error"]:
            best[row["task"]] = row
    return [best[task] for task in sorted(best)]


def least(rows: Iterable[Row], **labels: float) -> np.ndarray:
    """Return the least error of each task among rows with these labels."""
    return np.array([row["error"] for row in chosen(rows, **labels)])


def cosines(rows: Iterable[Row], **labels: float) -> np.ndarray:
    """Return the largest cosine of each task among rows with these labels."""
    best: dict[float, float] = {}
    for row in rows:
        if all(row[name] == value for name, value in labels.items()):
            best[row["task"]] = max(best.get(row["task"], -1.0), row["cosine"])
    return np.array([best[task] for task in sorted(best)])


def simple_ridge(row: Row) -> float:
    """Return the ridge of the map nearest to 0.03/R², or to 0.1/R² for ½ <= π <= 0.8."""
    usual = 0.1 if 0.5 <= row["positive_rate"] <= 0.8 else 0.03
    wanted = usual / row["informative"] ** 2
    return min(RIDGES, key=lambda ridge: abs(np.log(ridge / wanted)))


def precisely(row: Row, loss: str) -> float:
    """Return the error of a row at the finer tolerance."""
    task = Task(int(row["length"]), int(row["informative"]), row["strength"], row["positive_rate"])
    bias = bias_steps(task, loss)[BIAS_FACTORS.index(row["bias_factor"])]
    training = _training(row["alpha"], row["share"], loss, bias)
    training = training.replace(query_step=row["query_step"], ridge=row["ridge"])
    return predict(task, training, tolerance=FINE).test_error


def rules(angles: list[Row], errors: list[Row], loss: str) -> list[dict[str, object]]:
    """Return each rule with the share of tasks on which following it costs little."""
    top = cosines(angles)
    steady = cosines([row for row in angles if row["readout_step"] == READOUT_STEP])
    balanced, no_bias = (
        cosines(angles, readout_step=READOUT_STEP, bias_factor=factor) for factor in (1.0, 0.0)
    )
    whole = least(errors, share=0.0)
    aligned = least(errors, share=0.0, best_cosine=1.0)
    split = least([row for row in errors if row["share"] > 0])
    by_formula = [row for row in errors if row["ridge"] == simple_ridge(row)]
    sharpness = {"share": 0.0, "best_cosine": 1.0, "multiple": 1.0}
    together, best = (
        np.array([precisely(row, loss) for row in found])
        for found in (chosen(errors, **sharpness), chosen(errors))
    )
    rows: list[tuple[str, np.ndarray, float]] = [
        ("η_w = 0.2, best of five bias steps: loss of cosine", 1 - steady / top, 0.05),
        ("η_w = 0.2, balanced bias step: loss of cosine", 1 - balanced / top, 0.05),
        ("η_w = 0.2, no bias step: loss of cosine", 1 - no_bias / top, 0.05),
        ("no split, against the best of all", whole / least(errors) - 1, 0.02),
        ("the best split, against no split", split / whole - 1, 0.1),
        (
            "half for the query, against the best split",
            least(errors, share=0.5) / split - 1,
            0.1,
        ),
        ("the bias step of the best cosine, against the best of five", aligned / whole - 1, 0.1),
        ("κ by the rule, at the best ridge", least(errors, **sharpness) / aligned - 1, 0.1),
        *(
            (
                f"{multiple:g} times that κ, at the best ridge",
                least(errors, **{**sharpness, "multiple": multiple}) / aligned - 1,
                0.1,
            )
            for multiple in (0.4, 2.8)
        ),
        (
            "λ by the formula instead of the best of six, at that κ",
            least(by_formula, **sharpness) / least(errors, **sharpness) - 1,
            0.1,
        ),
        (
            "λ = 0.003 instead of the best of six, at that κ",
            least(errors, **sharpness, ridge=0.003) / least(errors, **sharpness) - 1,
            0.1,
        ),
        ("all rules, λ by the formula", least(by_formula, **sharpness) / least(errors) - 1, 0.15),
        ("all rules together", together / best - 1, 0.15),
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
    """Draw what each choice costs, median and nine tenths of the tasks."""
    figure, panels = new_figure(columns=3)
    whole = least(errors, share=0.0, best_cosine=1.0)
    curves = (
        (panels[0], "sharpness over 0.55 log(1 + L/R²)", MULTIPLES, "multiple"),
        (panels[1], "ridge λ", RIDGES[::-1], "ridge"),
    )
    for panel, label, values, name in curves:
        found = np.array(
            [least(errors, share=0.0, best_cosine=1.0, **{name: v}) / whole for v in values]
        )
        _band(panel, values, found, SERIES[0].colour)
        panel.set_xlabel(label)
        panel.set_xscale("log")
        panel.set_ylabel("error over the best")
        panel.set_xticks(values, [f"{value:g}" for value in values])
        panel.minorticks_off()
    split = np.array([least(errors, share=v) / least(errors, share=0.0) for v in SHARES])
    _band(panels[2], SHARES, split, SERIES[1].colour)
    panels[2].axhline(1, color="black", linestyle=":", label="no split")
    panels[2].set_xlabel("share of the data for the query")
    panels[2].set_ylabel("error over that of no split")
    panels[2].legend()
    save_figure(figure, folder / "choices", ("svg",))
    draw_steps(angles, folder)


def draw_steps(angles: list[Row], folder: Path) -> None:
    """Draw on how many tasks each pair of steps aligns the query well."""
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
    low, middle, high = np.percentile(found, (5, 50, 95), axis=1)
    panel.fill_between(values, low, high, color=colour, alpha=0.25)  # type: ignore[attr-defined]
    panel.plot(values, middle, color=colour, marker="o")  # type: ignore[attr-defined]
    panel.set_ylim(0.95, min(3.0, float(high.max()) * 1.05))  # type: ignore[attr-defined]


def write(rows: list[Row] | list[dict[str, object]], path: Path) -> None:
    """Write rows as CSV, all or nothing."""
    beside = path.with_suffix(".part")
    with beside.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    beside.replace(path)


def read(path: Path) -> list[Row]:
    """Read rows of numbers."""
    with path.open(newline="", encoding="utf-8") as file:
        return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]


def main() -> None:
    """Compute both maps, judge the rules and draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("docs/training_guide"))
    parser.add_argument("--loss", default="logistic")
    parser.add_argument("--tasks", type=int, default=60)
    options = parser.parse_args()
    folder, usual = options.output, options.loss == "logistic"
    folder.mkdir(parents=True, exist_ok=True)
    prefix = "" if usual else f"{options.loss}_"
    angles = cosine_map(SEED)
    tasks = random_tasks(options.tasks, SEED)
    errors = error_map(tasks, options.loss, folder / f"{prefix}errors.csv")
    judged = rules(angles, errors, options.loss)
    write(judged, folder / f"{prefix}rules.csv")
    if usual:
        draw(angles, errors, folder)
    for row in judged:
        print("| " + " | ".join(str(value) for value in row.values()) + " |")


if __name__ == "__main__":
    main()
