"""How a model's error will fall with more data, and how many samples a target takes."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from sparsetoken import validation
from sparsetoken.arrays import Array
from sparsetoken.estimators.base import warn_of_copies
from sparsetoken.estimators.sequences import as_sequences
from sparsetoken.limits import LARGEST_SEED, MOST_REPEATS, MOST_WORKERS
from sparsetoken.planning.curve_families import families
from sparsetoken.planning.curve_posterior import CurvePosterior, fit_curves, weighted_quantile
from sparsetoken.planning.defaults import ASSURANCE
from sparsetoken.planning.learning_curve import (
    FOLDS,
    LearningCurve,
    balanced_order,
    check_finite,
    checked_model,
    labels_of,
    learning_curve,
    planned_sizes,
    rows_of,
)
from sparsetoken.planning.parallel import Count
from sparsetoken.records import Record, preformatted, share_text, to_frame
from sparsetoken.validation import ParameterError

__all__ = ["Backtest", "Forecast", "Outlook", "RequiredSamples", "agrees", "forecast"]

# The ends and the middle of an 80 % band.
_LEVELS = np.array([0.1, 0.5, 0.9])
_BAND = 1.28
# A band at four times the data that is wider than this share of the chance error says too little.
_TOO_WIDE = 0.4
_LOOK_AHEAD = 4
_FURTHEST = 1000
_SIZES_SEARCHED = 120
_IMAGINED = 60


@dataclass(frozen=True)
class Outlook(Record):
    """Predicted error of a model trained on `samples`, with the ends of its 80 % band.

    An infinite number of samples is the limit that more data cannot pass.
    """

    samples: float
    error: float
    low: float
    high: float

    @property
    def width(self) -> float:
        """Width of the band."""
        return self.high - self.low


@dataclass(frozen=True)
class RequiredSamples(Record):
    """The answer to "how many samples for this error?"

    Attributes
    ----------
    target, assurance : float
        The wanted error, and how sure one wants to be of it: in that share of answers a model
        trained on so many samples should err as seldom.
    samples : int or None
        The least number with that assurance. None if there is none within the horizon, or if more
        than there are would be needed and the forecast is not identifiable.
    even_odds : int or None
        The least number at which reaching the target is as likely as not.
    probability : float
        Of reaching it within the horizon.
    verdict : "reached", "needed", "beyond the horizon", "cannot be reached" or "cannot say"
    """

    target: float
    assurance: float
    samples: int | None
    even_odds: int | None
    probability: float
    verdict: str


@dataclass(frozen=True)
class Backtest(Record):
    """The same forecast made from half of the data, against what all of them showed.

    Attributes
    ----------
    samples, size : int
        How many samples the forecast was made from, and the training size that it is about: the
        largest that the whole data allow.
    predicted, low, high : float
        The error that it said, and the ends of its 80 % band.
    seen, seen_uncertainty : float
        What was measured there, and its standard error.
    within : bool
        Whether the two agree as an 80 % band should let them.
    """

    samples: int
    size: int
    predicted: float
    low: float
    high: float
    seen: float
    seen_uncertainty: float
    within: bool


@dataclass(frozen=True)
class Forecast(Record):
    """What `forecast` found. `print` it for the answer in words, `plot` it for a picture.

    Attributes
    ----------
    model : str
        Name of the model's class.
    curve : LearningCurve
        What was measured.
    outlooks : tuple of Outlook
        At the present number of samples, at 2, 4, ... times as many, and at the horizon.
    ceiling : Outlook
        The error that more data cannot pass.
    identifiable : bool
        Whether the data say enough about four times as many.
    collect_first : int or None
        If not: about how many samples would.
    required : RequiredSamples or None
        If a target was given.
    backtest : Backtest or None
        None if it was not wanted, or if half of the data are too few.
    shapes : dict of str to float
        Posterior probability of each family of learning curves.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsetoken import PooledClassifier, Task, forecast, sample
    >>> X, y, _, _ = sample(Task(4, 2, 3.0), 120, dimension=6, rng=np.random.default_rng(0))
    >>> found = forecast(PooledClassifier(ridge=0.1), X, y, repeats=1, backtest=False)
    >>> found.model, found.at(200).samples
    ('PooledClassifier', 200.0)
    """

    model: str
    curve: LearningCurve
    outlooks: tuple[Outlook, ...]
    ceiling: Outlook
    identifiable: bool
    collect_first: int | None
    required: RequiredSamples | None
    backtest: Backtest | None
    shapes: dict[str, float]
    _posterior: CurvePosterior = field(repr=False)

    def at(self, samples: float) -> Outlook:
        """Return the predicted error for another number of training samples.

        Parameters
        ----------
        samples : float
            At least 1; infinity for what no number of them goes below.

        Returns
        -------
        Outlook

        Examples
        --------
        >>> from sparsetoken import PooledClassifier, Task, forecast, sample
        >>> data = sample(Task(4, 2, 3.0), 120, dimension=5, rng=0)
        >>> found = forecast(PooledClassifier(ridge=0.1), data.X, data.y, repeats=1)
        >>> 0 <= found.at(240).error <= 1
        True
        """
        samples = validation.real("samples", samples, low=1, infinite=True)
        return _outlook(self._posterior, samples)

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as a flat dictionary of plain values.

        Returns
        -------
        dict

        Examples
        --------
        >>> from sparsetoken import PooledClassifier, Task, forecast, sample
        >>> data = sample(Task(4, 2, 3.0), 120, dimension=5, rng=0)
        >>> found = forecast(PooledClassifier(ridge=0.1), data.X, data.y, repeats=1)
        >>> sorted(found.to_dict())[:2]
        ['backtest_high', 'backtest_low']
        """
        flat: dict[str, Any] = {
            "model": self.model,
            "samples": self.curve.samples,
            "largest_size": int(self.curve.sizes[-1]),
            "test_error": float(self.curve.errors[-1]),
            "test_error_uncertainty": float(self.curve.standard_errors[-1]),
            "identifiable": self.identifiable,
            "collect_first": self.collect_first,
        }
        for outlook in (*self.outlooks, self.ceiling):
            multiple = outlook.samples / self.curve.samples
            place = f"at_{multiple:g}x" if np.isfinite(multiple) else "ceiling"
            values = (("error", outlook.error), ("low", outlook.low), ("high", outlook.high))
            flat |= {f"{name}_{place}": value for name, value in values}
        if self.required is not None:
            flat |= {f"required_{name}": v for name, v in self.required.to_dict().items()}
        if self.backtest is not None:
            flat |= {f"backtest_{name}": v for name, v in self.backtest.to_dict().items()}
        return flat | {f"share_of_{name.replace(' ', '_')}": v for name, v in self.shapes.items()}

    def to_rows(self) -> list[dict[str, Any]]:
        """Return a dictionary for each number of samples: samples, error, low, high.

        Returns
        -------
        list of dict

        Examples
        --------
        >>> from sparsetoken import PooledClassifier, Task, forecast, sample
        >>> data = sample(Task(4, 2, 3.0), 120, dimension=5, rng=0)
        >>> found = forecast(PooledClassifier(ridge=0.1), data.X, data.y, repeats=1)
        >>> found.to_rows()[-1]["samples"] > 90
        True
        """
        return [outlook.to_dict() for outlook in (*self.outlooks, self.ceiling)]

    def to_frame(self) -> Any:
        """Return the outlooks as a data frame with a row for each number of samples.

        Returns
        -------
        DataFrame

        Examples
        --------
        >>> from sparsetoken import PooledClassifier, Task, forecast, sample
        >>> data = sample(Task(4, 2, 3.0), 120, dimension=5, rng=0)
        >>> found = forecast(PooledClassifier(ridge=0.1), data.X, data.y, repeats=1)
        >>> len(found.to_frame()) == len(found.to_rows())
        True
        """
        return to_frame(self.to_rows())

    def __repr__(self) -> str:
        return f"<Forecast for {self.model} from {self.curve.samples:,} samples>"

    def __str__(self) -> str:
        return "\n".join(_lines(self))

    def _repr_html_(self) -> str:
        return preformatted(str(self))

    def plot(self, *, axes: Any = None) -> Any:
        """Draw measured errors, the forecast with its band, the target and the answer.

        Parameters
        ----------
        axes : matplotlib Axes, optional
            Where to draw; in a new figure if not given.

        Returns
        -------
        matplotlib Axes

        Examples
        --------
        >>> from sparsetoken import PooledClassifier, Task, forecast, sample
        >>> data = sample(Task(4, 2, 3.0), 120, dimension=5, rng=0)
        >>> found = forecast(PooledClassifier(ridge=0.1), data.X, data.y, repeats=1)
        >>> found.plot().get_xlabel()
        'training samples'
        """
        from sparsetoken.planning.forecast_figure import draw_forecast

        return draw_forecast(self, self._posterior, axes)


def forecast(
    model: Any,
    X: Any,
    y: Any,
    *,
    target: float | None = None,
    horizon: float = 8,
    assurance: float = ASSURANCE,
    repeats: int = 3,
    smallest: int | None = None,
    backtest: bool = True,
    seed: int = 0,
    workers: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> Forecast:
    """Forecast the error of a classifier with more data.

    The error is measured on nested, stratified subsamples by repeated cross-validation. Power laws
    and the curves that theory gives for the best learner of a weak signal, dense or in one of the
    tokens, are fitted with their uncertainty, and weighed by how well they explain the data.

    Parameters
    ----------
    model : scikit-learn classifier
        Copied for every fit.
    X, y : what the model fits
        Sequences as in `AttentionClassifier.fit`, or anything that scikit-learn takes. More data are
        taken to be like these: independent samples of the same source, not of other people or days.
    target : float, optional
        A wanted error: how many samples does it take?
    horizon : float, default 8
        Up to how many times the data to look, at most 1000; nothing is said beyond.
    assurance : float, default 0.8
        How sure to be of the target.
    repeats : int, default 3
        Repeats of the five folds: 15 fits at each of seven sizes, and as many for the backtest on
        half of the data.
    smallest : int, optional
        The smallest training size; by default every class is in it twice, and it is at most 64
        times below the largest.
    backtest : bool, default True
        Whether to make the same forecast from half of the data, and to compare.
    seed : int
    workers : int
        Processes; the result does not depend on it.
    progress : callable, optional
        Called as progress(finished, total) after every fit.

    Returns
    -------
    Forecast

    Examples
    --------
    >>> import numpy as np
    >>> from sparsetoken import PooledClassifier, Task, forecast, sample
    >>> X, y, _, _ = sample(Task(4, 2, 3.0), 120, dimension=6, rng=np.random.default_rng(0))
    >>> found = forecast(PooledClassifier(ridge=0.1), X, y, repeats=1, backtest=False)
    >>> [outlook.samples for outlook in found.outlooks]
    [120.0, 240.0, 480.0, 960.0]
    """
    checked_model(model)
    labels = labels_of(X, y)
    check_finite(model, X)
    horizon = validation.real("horizon", horizon, low=1, high=_FURTHEST)
    assurance = validation.real("assurance", assurance, low=0.5, high=0.99)
    repeats = validation.integer("repeats", repeats, low=1, high=MOST_REPEATS)
    seed = validation.integer("seed", seed, low=0, high=LARGEST_SEED)
    workers = validation.integer("workers", workers, low=1, high=MOST_WORKERS)
    backtest = validation.boolean("backtest", backtest)
    _check_target(target, labels)
    if target is None and assurance != ASSURANCE:
        raise ParameterError("assurance", assurance, "its default without a target")
    sizes = planned_sizes(labels, smallest)
    warn_of_copies(X, labels)
    half = _half(labels, seed) if backtest else None
    count = Count(progress, FOLDS * repeats * len(sizes))
    options: dict[str, Any] = {
        "repeats": repeats,
        "seed": seed,
        "workers": workers,
        "progress": count.one_more,
    }
    half_sizes = None if half is None else _sizes_of_half(labels[half], smallest)
    if half_sizes is not None:
        count.total += FOLDS * repeats * len(half_sizes)
    curve = learning_curve(model, X, labels, sizes=sizes, **options)
    length = _tokens(X, model)
    posterior = fit_curves(curve, families(curve, length), seed)
    tested = None
    if half is not None and half_sizes is not None:
        part = learning_curve(model, rows_of(X, half), labels[half], sizes=half_sizes, **options)
        tested = _backtest(fit_curves(part, families(part, length), seed), part, curve)
    return _forecast(type(model).__name__, curve, posterior, tested, (target, assurance, horizon))


def _forecast(
    name: str,
    curve: LearningCurve,
    posterior: CurvePosterior,
    tested: Backtest | None,
    wanted: tuple[float | None, float, float],
) -> Forecast:
    target, assurance, horizon = wanted
    powers = [2.0**power for power in range(int(np.log2(horizon)) + 1)]
    multiples = sorted({*powers, horizon})
    outlooks = tuple(_outlook(posterior, multiple * curve.samples) for multiple in multiples)
    ahead = _outlook(posterior, _LOOK_AHEAD * curve.samples)
    identifiable = ahead.width <= _TOO_WIDE * curve.chance
    required = None
    if target is not None:
        required = _required(posterior, curve, target, assurance, horizon)
        if not identifiable and required.verdict != "reached":
            # What lies beyond then comes from what was assumed rather than from the data.
            required = replace(required, samples=None, verdict="cannot say")
    shares = zip(posterior.families, posterior.shares, strict=True)
    return Forecast(
        model=name,
        curve=curve,
        outlooks=outlooks,
        ceiling=_outlook(posterior, np.inf),
        identifiable=identifiable,
        collect_first=None if identifiable else _enough(posterior, curve),
        required=required,
        backtest=tested,
        shapes={family.name: float(share) for family, share in shares},
        _posterior=posterior,
    )


def _check_target(target: float | None, y: Array) -> None:
    if target is None:
        return
    target = validation.real("target", target, low=0, high=1, inclusive=False)
    _, counts = np.unique(y, return_counts=True)
    chance = 1 - counts.max() / len(y)
    if target >= chance:
        accepted = f"an error below {chance:.3g}, that of always naming the most frequent class"
        raise ParameterError("target", target, accepted)


def _half(y: Array, seed: int) -> Array:
    order = balanced_order(y, np.random.default_rng([seed, 2]))
    return np.sort(order[: len(y) // 2])


def _sizes_of_half(y: Array, smallest: int | None) -> Array | None:
    """Return the sizes for the backtest, or None where half of the data are too few for one."""
    try:
        return planned_sizes(y, smallest)
    except ParameterError:
        return None


def _tokens(X: Any, model: Any) -> int:
    """Return the mean number of tokens of a sequence; 1 for data that are not sequences."""
    if isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype != object:
        length = model.get_params().get("length")
        return length if isinstance(length, int) else 1
    try:
        return max(1, round(float(as_sequences(X).lengths.mean())))
    except (ParameterError, ValueError, TypeError):
        return 1


def _outlook(posterior: CurvePosterior, samples: float) -> Outlook:
    low, middle, high = posterior.quantiles(np.array([samples]), _LEVELS)[:, 0]
    return Outlook(float(samples), float(middle), float(low), float(high))


def _backtest(half: CurvePosterior, part: LearningCurve, whole: LearningCurve) -> Backtest:
    size = int(whole.sizes[-1])
    said = _outlook(half, size)
    seen, error = float(whole.errors[-1]), float(whole.standard_errors[-1])
    within = agrees(said, seen, error)
    return Backtest(part.samples, size, said.error, said.low, said.high, seen, error, within=within)


def agrees(said: Outlook, seen: float, standard_error: float) -> bool:
    """Return whether what was measured agrees with an 80 % band, given its own standard error."""
    side = said.high - said.error if seen > said.error else said.error - said.low
    return bool(abs(seen - said.error) <= np.hypot(side, _BAND * standard_error))


def _required(
    posterior: CurvePosterior,
    curve: LearningCurve,
    target: float,
    assurance: float,
    horizon: float,
) -> RequiredSamples:
    last = horizon * curve.samples
    sizes = np.geomspace(curve.sizes[0], last, _SIZES_SEARCHED)
    needed = _first_below(posterior.curves(sizes), sizes, target)
    weights = posterior.weights
    sure, even = weighted_quantile(needed, weights, np.array([assurance, 0.5]))
    probability = float(weights[needed <= last].sum())
    if sure <= curve.samples:
        verdict = "reached"
    elif sure <= last:
        verdict = "needed"
    else:
        reachable = posterior.curves(np.array([np.inf]))[:, 0] <= target
        share = float(weights[reachable].sum())
        verdict = (
            "beyond the horizon"
            if share >= assurance
            else "cannot be reached"
            if share <= 1 - assurance
            else "cannot say"
        )
    return RequiredSamples(
        target=target,
        assurance=assurance,
        samples=int(np.ceil(sure)) if sure <= last else None,
        even_odds=int(np.ceil(even)) if even <= last else None,
        probability=probability,
        verdict=verdict,
    )


def _first_below(curves: Array, sizes: Array, target: float) -> Array:
    """Return the size (N,) at which each curve (N, K) falls to the target for good; inf if never."""
    above = curves > target
    # After the last size above the target; curves cross between two sizes, by factors.
    last_above = np.where(above.any(axis=1), above.shape[1] - 1 - above[:, ::-1].argmax(axis=1), -1)
    found = np.full(len(curves), np.inf)
    found[last_above < 0] = sizes[0]
    rows = np.flatnonzero((last_above >= 0) & (last_above < len(sizes) - 1))
    left = last_above[rows]
    before, after = curves[rows, left], curves[rows, left + 1]
    share = (before - target) / (before - after)
    found[rows] = sizes[left] * (sizes[left + 1] / sizes[left]) ** share
    return found


def _enough(posterior: CurvePosterior, curve: LearningCurve) -> int | None:
    """Return about how many samples would make the forecast identifiable, or None if 16 times do not.

    For each multiple, errors that its data could show are imagined, one drawn from each of some
    posterior curves; curves are weighed anew by each, and the typical band that is left counts.
    """
    rng = np.random.default_rng(0)
    weights = posterior.weights
    truths = rng.choice(len(weights), _IMAGINED, p=weights)
    for multiple in (1.5, 2, 3, 4, 6, 8, 12, 16):
        samples = multiple * curve.samples
        now, later = posterior.curves(
            np.array([(FOLDS - 1) / FOLDS * samples, _LOOK_AHEAD * samples])
        ).T
        noise = np.sqrt(np.maximum(now * (1 - now), 0.01) / samples)
        widths = []
        for truth in truths:
            seen = now[truth] + noise[truth] * rng.standard_normal()
            renewed = weights * np.exp(-0.5 * ((now - seen) / noise[truth]) ** 2)
            low, high = weighted_quantile(later, renewed, _LEVELS[[0, 2]])
            widths.append(high - low)
        if np.median(widths) <= _TOO_WIDE * curve.chance:
            return round(float(f"{samples:.2g}"))
    return None


def _lines(found: Forecast) -> Iterator[str]:
    """Yield the forecast in words."""
    curve = found.curve
    yield (
        f"{found.model} on {curve.samples:,} samples, trained on {curve.sizes[0]:,} to "
        f"{curve.sizes[-1]:,} of them: error {curve.errors[-1]:.3f} ± {curve.standard_errors[-1]:.3f} "
        f"(guessing {curve.chance:.3f})"
    )
    if not found.identifiable:
        yield _cure(found)
    yield f"{'samples':>12}  {'error':>6}  80 % band"
    for outlook in (*found.outlooks, found.ceiling):
        name = f"{outlook.samples:,.0f}" if np.isfinite(outlook.samples) else "no limit"
        yield f"{name:>12}  {outlook.error:6.3f}  {outlook.low:.3f} to {outlook.high:.3f}"
    if found.required is not None:
        yield _answer(found.required, found)
    if found.backtest is not None:
        yield _backtest_line(found.backtest)
    else:
        yield "Backtest: none (not asked for, or half of the data are too few)."
    shares = sorted(found.shapes.items(), key=lambda item: -item[1])
    yield "Shapes: " + ", ".join(f"{name} {share_text(share)}" for name, share in shares) + "."


def _cure(found: Forecast) -> str:
    text = f"Not identifiable: these data say little about {_LOOK_AHEAD} times as many."
    if found.collect_first is None:
        return f"{text} Even 16 times as many may not tell."
    return f"{text} Collect about {found.collect_first:,} first, then ask again."


def _answer(required: RequiredSamples, found: Forecast) -> str:
    goal = f"Target {required.target:g}"
    sure = f"{share_text(required.assurance)} sure"
    last = f"{found.outlooks[-1].samples:,.0f}"
    if required.verdict in ("reached", "needed"):
        already = "; you have them" if required.verdict == "reached" else ""
        even = f", even odds at {required.even_odds:,}" if required.even_odds else ""
        return f"{goal}: {required.samples:,} samples ({sure}{even}){already}."
    if required.verdict == "cannot be reached":
        low, high = found.ceiling.low, found.ceiling.high
        return f"{goal}: cannot be reached with more data ({sure}); their limit is {low:.3f} to {high:.3f}."
    even = f" (50 % at {required.even_odds:,})" if required.even_odds else ""
    odds = f"the chance to reach it by {last} samples is {share_text(required.probability)}{even}"
    if required.verdict == "beyond the horizon":
        return f"{goal}: {sure} only with more than this forecast looks at; {odds}."
    return f"{goal}: cannot say; {odds}."


def _backtest_line(tested: Backtest) -> str:
    verdict = (
        "within its band" if tested.within else "outside its band, so take this forecast with care"
    )
    return (
        f"Backtest: {tested.samples:,} samples forecast {tested.predicted:.3f} "
        f"({tested.low:.3f} to {tested.high:.3f}) for training on {tested.size:,}; "
        f"measured {tested.seen:.3f} ± {tested.seen_uncertainty:.3f}: {verdict}."
    )
