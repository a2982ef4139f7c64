"""Does simulation agree with theory? Random settings, four dimensions, z-scores.

    python benchmarks/agreement.py [--seed 0] [--dimensions 250 500 1000 2000] [--output docs/agreement]
    python benchmarks/agreement.py --plan no-split --dimensions 250 500 --output docs/agreement_no_split

Settings are drawn at random, before anything is computed, from the ranges in `draw_settings`: both
losses, three classifiers, learnt and given queries, with and without a shift at test time, with
another sharpness and the best bias there, without ridge, and the capacity. Ranking and localisation
are compared in every setting of trials. For each quantity and dimension the study writes the mean over trials, its
z-score against theory, and the bias c in simulation = theory + c/d, fitted over the dimensions.

Fluctuations between trials fall as 1/√d, so one standard deviation (times √d) is estimated from the
trials of all dimensions together: few trials at large d would not give one of their own. The
theory's numerical error is added in quadrature. The study leaves settings.csv (what was drawn),
zscores.csv and zscores.svg in a folder, and a page of the same name beside it; about fourteen
minutes on one core.
"""

import argparse
import csv
import math
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import Progress
from scipy.stats import kstest, norm

from sparsetoken import (
    Capacity,
    Query,
    Task,
    Training,
    align,
    capacity,
    predict,
    run_trial,
    separability,
)
from sparsetoken.plotting import new_figure, save_figure, styled
from sparsetoken.plotting.style import SERIES
from sparsetoken.records import METRICS, RANKING
from sparsetoken.simulation.random_streams import stream
from sparsetoken.simulation.reduced import (
    reduced_attention,
    reduced_pooled,
    reduced_query,
    reduced_vectorised,
)

TRIALS = {250: 40, 500: 20, 1000: 8, 2000: 4}
LOSSES = ("logistic", "square", "hinge", "squared_hinge")
LARGEST_CAPACITY = 3.5
LARGEST_WIDTH = 2000

# Groups of settings, with the classifier and the number of settings in each.
PLAN = (
    ("learnt query", "attention", 8),
    ("given query", "attention", 6),
    ("learnt query, shift", "attention", 4),
    ("given query, shift", "attention", 3),
    ("pooled", "pooled", 4),
    ("pooled, shift", "pooled", 2),
    ("vectorised", "vectorised", 3),
    ("vectorised, shift", "vectorised", 2),
    ("no ridge", "attention", 3),
    ("capacity, learnt query", "attention", 2),
    ("capacity, given query", "attention", 2),
    ("capacity, pooled", "pooled", 1),
    ("capacity, vectorised", "vectorised", 1),
    ("given query, sharper, best bias", "attention", 3),
    ("learnt query, shift, hard maximum, best bias", "attention", 2),
)
# The same samples for the query and the readout: all losses, and without ridge.
NO_SPLIT = (("no split", "attention", 20), ("no split, no ridge", "attention", 4))
PLANS = {"all": PLAN, "no-split": NO_SPLIT}
TITLES = {
    "all": "Simulation against theory",
    "no-split": "Simulation against theory, without a split of the data",
}
RATIO_UNIT = 250


@dataclass(frozen=True)
class Setting:
    """One drawn setting; `group` says which part of the claim it belongs to."""

    group: str
    task: Task
    training: Training
    classifier: str = "attention"
    query: Query | None = None
    at: Task | None = None
    at_sharpness: float | None = None

    @property
    def usage(self) -> dict[str, object]:
        """How the trained classifier is used at test time."""
        return {
            "at": self.at,
            "at_sharpness": self.at_sharpness,
            "recalibrate": "best bias" in self.group,
        }


@dataclass
class Comparison:
    """Simulated values of one quantity by dimension, and theory's value with its error."""

    setting: int
    group: str
    quantity: str
    theory: float
    theory_error: float
    values: dict[int, list[float]] = field(default_factory=dict)

    def deviation(self) -> float:
        """Return √d times the standard deviation of a trial, from all dimensions."""
        squares = sum(d * np.var(v) * len(v) for d, v in self.values.items())
        return math.sqrt(squares / sum(len(v) - 1 for v in self.values.values()))

    def standard_error(self, dimension: int) -> float:
        """Return the standard error of the mean at one dimension, with the theory's error."""
        trials = len(self.values[dimension])
        return math.hypot(self.deviation() / math.sqrt(dimension * trials), self.theory_error)

    def z_score(self, dimension: int) -> float:
        """Return (simulation - theory)/standard error at one dimension."""
        difference = float(np.mean(self.values[dimension])) - self.theory
        return difference / self.standard_error(dimension)

    def fit(self) -> tuple[float, float, float]:
        """Return the bias c of simulation = theory + c/d, its error, and the z-score at 1/d = 0.

        The z-score is that of the intercept when simulation - theory = a + c/d is fitted with both
        free: what is left when the finite-size bias is taken away.
        """
        d = np.array(sorted(self.values), dtype=float)
        gap = np.array([np.mean(self.values[int(x)]) for x in d]) - self.theory
        weight = d * np.array([len(self.values[int(x)]) for x in d]) / self.deviation() ** 2
        bias_error = 1 / math.sqrt(np.sum(weight / d**2))
        bias = float(np.sum(weight * gap / d)) * bias_error**2
        if len(d) < 2:
            return bias, bias_error, math.nan
        design = np.column_stack([np.ones_like(d), 1 / d])
        covariance = np.linalg.inv(design.T @ (weight[:, None] * design))
        intercept = float((covariance @ (design.T @ (weight * gap)))[0])
        error = math.hypot(math.sqrt(covariance[0, 0]), self.theory_error)
        return bias, bias_error, intercept / error


def draw_settings(seed: int, plan: tuple[tuple[str, str, int], ...] = PLAN) -> list[Setting]:
    """Draw the study's settings: ranges wide enough to be interesting, small enough to afford."""
    rng = np.random.default_rng(seed)
    return [
        _draw(group, classifier, number, rng)
        for group, classifier, count in plan
        for number in range(count)
    ]


def _draw(group: str, classifier: str, number: int, rng: np.random.Generator) -> Setting:
    while True:
        longest = 30
        if classifier == "vectorised":  # its features are L d wide
            longest = 2 if "capacity" in group else 4
        task = _draw_task(rng, longest)
        training = Training(
            alpha0=_ratio(rng, 1.0, 8.0),
            alpha1=_ratio(rng, 0.4, 1.0) if group == "no ridge" else _ratio(rng, 0.5, 3.0),
            loss=("logistic", "square")[number % 2],
            ridge=0.0 if group == "no ridge" else _log_uniform(rng, 1e-3, 1.0),
            readout_step=_log_uniform(rng, 0.5, 4.0),
            bias_step=float(rng.uniform(0.0, 2.0)),
            query_step=_log_uniform(rng, 1.0, 30.0),
        )
        if "no split" in group:
            training = _without_split(training, group, number, rng)
        given = Query(float(rng.uniform(-0.5, 1.0)), _log_uniform(rng, 0.3, 4.0))
        other = _draw_task(rng, longest=30)
        if classifier == "vectorised":
            other = task.replace(strength=other.strength, positive_rate=other.positive_rate)
        setting = Setting(
            group,
            task,
            training,
            classifier,
            given if "given" in group else None,
            other if "shift" in group else None,
            math.inf if "hard" in group else 3 * given.sharpness if "sharper" in group else None,
        )
        # A capacity is bounded by what can be afforded at the largest dimension.
        largest = LARGEST_CAPACITY * _width(setting)
        if "capacity" not in group or _capacity(setting).alpha <= largest:
            return setting


def _without_split(
    training: Training, group: str, number: int, rng: np.random.Generator
) -> Training:
    """Return a training on one set of samples; without a ridge there are fewer than dimensions."""
    ratio = _ratio(rng, 0.4, 0.9) if "no ridge" in group else _ratio(rng, 0.5, 4.0)
    return training.replace(
        alpha0=ratio,
        alpha1=ratio,
        reuse=True,
        loss=LOSSES[number % len(LOSSES)],
        ridge=0.0 if "no ridge" in group else training.ridge,
        query_step=_log_uniform(rng, 5.0, 200.0),
    )


def _width(setting: Setting) -> int:
    """Return the number of features over d."""
    return setting.task.length if setting.classifier == "vectorised" else 1


def _draw_task(rng: np.random.Generator, longest: int) -> Task:
    length = int(rng.integers(2, longest + 1))
    return Task(
        length=length,
        informative=int(rng.integers(1, min(3, length - 1) + 1)),
        strength=float(rng.uniform(1.0, 6.0)),
        positive_rate=float(rng.uniform(0.2, 0.8)),
    )


def _log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(math.log(low), math.log(high))))


def _ratio(rng: np.random.Generator, low: float, high: float) -> float:
    """Draw a sample ratio that gives a whole number of samples at every dimension."""
    return round(_log_uniform(rng, low, high) * RATIO_UNIT) / RATIO_UNIT


def compare(setting: Setting, index: int, trials: dict[int, int], seed: int) -> list[Comparison]:
    """Compare simulation with theory in one setting, quantity by quantity."""
    study = _capacity_study if "capacity" in setting.group else _trial_study
    return study(setting, index, trials, seed)


def _trial_study(
    setting: Setting, index: int, trials: dict[int, int], seed: int
) -> list[Comparison]:
    theory = predict(
        setting.task,
        setting.training,
        classifier=setting.classifier,
        query=setting.query,
        **setting.usage,
    )
    # Where a given query looks does not depend on the trial.
    learnt_query = setting.classifier == "attention" and setting.query is None
    metrics = METRICS if learnt_query else RANKING
    values = {
        "test_error": (theory.test_error, theory.uncertainty.test_error),
        "train_loss": (theory.train_loss, theory.uncertainty.train_loss),
        "train_error": (theory.train_error, theory.uncertainty.train_error),
    }
    if theory.margin is not None:
        values["margin"] = (theory.margin, theory.uncertainty.margin or 0.0)
    if learnt_query:
        learnt = align(setting.task, setting.training)
        values["alignment"] = (learnt.alignment, 0.0)
        values["readout_cosine"] = (learnt.readout_cosine, 0.0)
    ranked = theory.metrics(*metrics)
    values |= {name: (ranked[name], ranked[f"{name}_uncertainty"]) for name in metrics}
    # Theory's error bars cover 98 %: a third of them is a standard error.
    found = {
        name: Comparison(index, setting.group, name, value, error / 3)
        for name, (value, error) in values.items()
    }
    for dimension, count in trials.items():
        for trial in range(count):
            record = run_trial(
                setting.task,
                setting.training,
                dimension=dimension,
                trial=trial,
                classifier=setting.classifier,
                query=setting.query,
                **setting.usage,
                metrics=metrics,
                seed=seed,
                check_separable=False,
            )
            assert record.converged, record.message
            for name, comparison in found.items():
                comparison.values.setdefault(dimension, []).append(getattr(record, name))
    # A quantity that does not vary, such as the training loss of separable data, has no z-score.
    return [comparison for comparison in found.values() if comparison.deviation() > 1e-9]


def _capacity_study(
    setting: Setting, index: int, trials: dict[int, int], seed: int
) -> list[Comparison]:
    theory = _capacity(setting)
    found = Comparison(index, setting.group, "capacity", theory.alpha, theory.uncertainty / 3)
    for dimension, count in trials.items():
        if _width(setting) * dimension > LARGEST_WIDTH:
            continue
        for trial in range(max(2, count // 2)):
            rng = stream(seed, {"capacity": index, "dimension": dimension}, trial)
            value = measured_capacity(setting, dimension, theory.alpha, rng)
            found.values.setdefault(dimension, []).append(value)
    return [found]


def _capacity(setting: Setting) -> Capacity:
    return capacity(
        setting.task,
        query=setting.query,
        training=None if setting.query or setting.classifier != "attention" else setting.training,
        classifier=setting.classifier,
    )


def measured_capacity(
    setting: Setting, dimension: int, guess: float, rng: np.random.Generator
) -> float:
    """Return the largest n/d at which the first n samples of one endless data set are separable.

    Bisection, over samples that are drawn once, to 0.5 % of the guess. The guess only says where
    to begin: the bracket is widened until it holds both verdicts, and a random offset of its ends
    keeps the resolution from adding a bias.
    """
    task, training = setting.task, setting.training
    width = 0.16 * guess
    low, high = guess + width * (rng.uniform(-1.06, -0.94)), guess + width * rng.uniform(0.94, 1.06)
    count = round(2 * guess * dimension)
    if setting.classifier == "pooled":
        features, labels = reduced_pooled(task, count, dimension, rng)
    elif setting.classifier == "vectorised":
        features, labels = reduced_vectorised(task, count, dimension, rng)
    else:
        samples = round(training.alpha0 * dimension)
        query = setting.query or reduced_query(task, training, samples, dimension, rng)
        sharpness = query.sharpness if isinstance(query, Query) else query.norm
        features, labels = reduced_attention(
            task, query.alignment, sharpness, count, dimension, rng
        )

    def separable(ratio: float) -> bool:
        n = round(ratio * dimension)
        verdict = separability(features[:n], labels[:n]).separable
        assert verdict is not None
        return verdict

    while not separable(low):
        low, high = low - width, low
    while high < 2 * guess and separable(high):
        low, high = high, high + width
    while high - low > 0.005 * guess:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if separable(middle) else (low, middle)
    return 0.5 * (low + high)


def write(
    output: Path, settings: list[Setting], found: list[Comparison], title: str = TITLES["all"]
) -> None:
    output.mkdir(parents=True, exist_ok=True)
    dimensions = sorted({d for comparison in found for d in comparison.values})
    with (output / "settings.csv").open("w", newline="") as file:
        rows = [_flat(index, setting) for index, setting in enumerate(settings)]
        writer = csv.DictWriter(file, list(dict.fromkeys(k for row in rows for k in row)))
        writer.writeheader()
        writer.writerows(rows)
    with (output / "zscores.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        header = ["setting", "group", "quantity", "theory", "theory_error"]
        for name in ("mean", "standard_error", "z"):
            header += [f"{name}_{d}" for d in dimensions]
        writer.writerow([*header, "bias_times_d", "bias_error", "z_limit"])
        for item in found:
            columns = [[], [], []]
            for d in dimensions:
                have = d in item.values
                columns[0].append(f"{np.mean(item.values[d]):.6g}" if have else "")
                columns[1].append(f"{item.standard_error(d):.3g}" if have else "")
                columns[2].append(f"{item.z_score(d):.2f}" if have else "")
            bias, error, limit = item.fit()
            start = [item.setting, item.group, item.quantity]
            start += [f"{item.theory:.6g}", f"{item.theory_error:.2g}"]
            writer.writerow(
                [*start, *chain(*columns), f"{bias:.3g}", f"{error:.2g}", f"{limit:.2f}"]
            )
    page = output.with_name(f"{output.name}.md")
    text = summary(settings, found, dimensions, output.name)
    page.write_text(f"# {title}\n\n{text}", encoding="utf-8")
    plot(output / "zscores", found, dimensions)


def _flat(index: int, setting: Setting) -> dict[str, object]:
    row: dict[str, object] = {
        "setting": index,
        "group": setting.group,
        "classifier": setting.classifier,
    }
    for name, part in (("", setting.task), ("", setting.training)):
        row |= {name + key: _short(value) for key, value in part.to_dict().items()}
    if setting.at_sharpness is not None:
        row["at_sharpness"] = _short(setting.at_sharpness)
    for name, part in (("query_", setting.query), ("at_", setting.at)):
        row |= {
            name + key: _short(value) for key, value in (part.to_dict() if part else {}).items()
        }
    return row


def _short(value: object) -> object:
    return f"{value:.6g}" if isinstance(value, float) else value


def summary(
    settings: list[Setting], found: list[Comparison], dimensions: list[int], folder: str
) -> str:
    lines = [
        f"{len(settings)} random settings, {len(found)} comparisons, made by",
        f"`benchmarks/agreement.py`; all numbers are in {folder}/zscores.csv, the settings in",
        f"{folder}/settings.csv.",
        "z = (simulation - theory) / standard error. A finite dimension has a bias of order 1/d,",
        "which the trials at small d resolve; the limit takes the fitted bias away.",
        "The quantities of one setting share their trials, so that comparisons are not all independent.",
        "",
        f"![z-scores against the normal law]({folder}/zscores.svg)",
        "",
        "| | comparisons | mean z | standard deviation | beyond 2 | beyond 3 | largest | KS p |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, scores in _scores(found, dimensions).items():
        z = np.array(scores)
        lines.append(
            f"| {name} | {len(z)} | {z.mean():+.2f} | {z.std(ddof=1):.2f} "
            f"| {np.mean(np.abs(z) > 2):.1%} | {np.mean(np.abs(z) > 3):.1%} "
            f"| {np.abs(z).max():.1f} | {kstest(z, 'norm').pvalue:.2g} |"
        )
    lines += [
        "",
        "By setting and quantity, at the largest dimension and in the limit:",
        "",
        "| setting | group | quantity | theory | simulation | z | bias × d | z in the limit |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for item in found:
        largest = max(item.values)
        bias, error, limit = item.fit()
        lines.append(
            f"| {item.setting} | {item.group} | {item.quantity} | {item.theory:.4g} "
            f"| {np.mean(item.values[largest]):.4g} ± {item.standard_error(largest):.1g} "
            f"| {item.z_score(largest):+.2f} | {bias:+.2g} ± {error:.1g} | {limit:+.2f} |"
        )
    return "\n".join(lines) + "\n"


def _scores(found: list[Comparison], dimensions: list[int]) -> dict[str, list[float]]:
    scores = {
        f"d = {d}": [item.z_score(d) for item in found if d in item.values] for d in dimensions
    }
    if len(dimensions) > 1:
        scores["limit"] = [item.fit()[2] for item in found]
    return scores


@styled
def plot(stem: Path, found: list[Comparison], dimensions: list[int]) -> None:
    figure, (axes,) = new_figure(panel_height=3.2)
    for look, (name, scores) in zip(SERIES, _scores(found, dimensions).items(), strict=False):
        ordered = np.sort(scores)
        quantiles = norm.ppf((np.arange(len(ordered)) + 0.5) / len(ordered))
        axes.plot(
            quantiles,
            ordered,
            look.marker,
            color=look.colour,
            markersize=3,
            label="d → ∞, fitted" if name == "limit" else name,
        )
    axes.plot([-3, 3], [-3, 3], color="black", linewidth=1, label="normal law")
    axes.set(xlabel="quantile of the normal law", ylabel="(simulation - theory) / standard error")
    axes.legend()
    save_figure(figure, stem, ("svg",))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dimensions", type=int, nargs="+", default=list(TRIALS))
    parser.add_argument("--plan", choices=PLANS, default="all", help="Which settings are drawn.")
    parser.add_argument("--output", type=Path, default=Path("docs/agreement"))
    options = parser.parse_args()
    settings = draw_settings(options.seed, PLANS[options.plan])
    trials = {d: TRIALS.get(d, max(4, 10_000 // d)) for d in options.dimensions}
    found: list[Comparison] = []
    with Progress(console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("settings", total=len(settings))
        for index, setting in enumerate(settings):
            progress.update(bar, description=f"{index}: {setting.group}")
            found += compare(setting, index, trials, options.seed)
            progress.advance(bar)
    write(options.output, settings, found, TITLES[options.plan])


if __name__ == "__main__":
    main()
