import itertools
import weakref
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp, ndtr, ndtri, softmax
from scipy.stats import chi2, ncx2, norm

from sparsetoken import (
    Oracle,
    ParameterError,
    Task,
    oracle,
    required_strength,
    strength_curve,
)
from sparsetoken.arrays import Array
from sparsetoken.numerics.memory import path_memory
from sparsetoken.numerics.solution import Solution, Status
from sparsetoken.theory import oracle as oracle_module
from sparsetoken.theory import oracle_rules
from sparsetoken.theory.oracle import _StrengthSearch
from sparsetoken.theory.oracle_rules import FIT, JUDGE, MeasuredError, rule_for
from sparsetoken.theory.scores import TokenSample, likelihood_ratio_scores
from sparsetoken.theory.token_sums import NONLINEARITIES


def draw(task: Task, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Projections of positive and negative sequences on the signal, token by token."""
    rng = np.random.default_rng(seed)
    positive, negative = rng.standard_normal((2, count, task.length))
    positive[:, : task.informative] += task.strength
    return positive, negative


def sample(task: Task, log2_points: int) -> TokenSample:
    return TokenSample(task, log2_points, stream=2)


def importance_sampled_errors(
    task: Task, rule: Oracle, count: int, seed: int
) -> list[tuple[float, float]]:
    """Errors of the likelihood-ratio test and of an attention rule, with standard errors.

    Plain random numbers with one token at several strengths; weights by the ratio of densities. It
    shares nothing with the package, and sees errors of any size.
    """
    rng = np.random.default_rng(seed)
    length, strength, rate = task.length, task.strength, task.positive_rate
    between = float(
        np.clip(strength / 2 + np.log(length * (1 - rate) / rate) / strength, 0, strength)
    )
    strengths = [0.0, between, (between + strength) / 2, strength]

    def ratio(x: np.ndarray, value: float) -> np.ndarray:
        return logsumexp(value * x, axis=1) - np.log(length) - value**2 / 2

    floors, errors = [], []
    for value in strengths:
        x = rng.standard_normal((count, length))
        x[:, 0] += value
        mixed = logsumexp([ratio(x, other) for other in strengths], axis=0) - np.log(4)
        positive = rate * np.exp(ratio(x, strength) - mixed)
        negative = (1 - rate) * np.exp(-mixed)
        floors.append(np.minimum(positive, negative))
        score = (softmax((rule.sharpness or 0.0) * x, axis=1) * x).sum(axis=1)
        errors.append(np.where(score <= rule.threshold, positive, negative))
    return [
        (float(np.mean(parts)), float(np.sqrt(np.mean([part.var() for part in parts]) / 4 / count)))
        for parts in (floors, errors)
    ]


def empirical_error(
    positive: np.ndarray, negative: np.ndarray, rate: float, threshold: float
) -> float:
    return float(rate * np.mean(positive <= threshold) + (1 - rate) * np.mean(negative > threshold))


def test_linear_classifiers_in_closed_form() -> None:
    task = Task(16, 2, 3.0, 0.3)
    found = oracle(task, classifier="pooled")
    separation = 3 * 2 / 4
    grid = np.linspace(-5, 8, 200001)
    errors = 0.3 * norm.cdf(grid - separation) + 0.7 * norm.sf(grid)
    assert found.test_error == pytest.approx(errors.min(), abs=1e-9)
    assert found.threshold == pytest.approx(grid[errors.argmin()], abs=1e-3)
    assert oracle(task, classifier="vectorised") == found
    nothing = oracle(task.replace(strength=0.0), classifier="pooled")
    assert nothing.test_error == 0.3


@pytest.mark.parametrize("task", [Task(8, 1, 3.0, 0.4), Task(150, 3, 2.5, 0.5)])
def test_attention_against_drawn_tokens(task: Task) -> None:
    found = oracle(task)
    assert found.sharpness is not None
    scores = [
        (softmax(found.sharpness * x, axis=1) * x).sum(axis=1) for x in draw(task, 20000, seed=1)
    ]
    plain = empirical_error(*scores, task.positive_rate, found.threshold)
    # Two samples of 20,000 give a standard error of at most 0.0025: z < 4.
    assert plain == pytest.approx(found.test_error, abs=0.01 + found.uncertainty)


@pytest.mark.parametrize("nonlinearity", NONLINEARITIES)
@pytest.mark.parametrize("length", [20, 400])
def test_elementwise_attention_against_drawn_tokens(nonlinearity: str, length: int) -> None:
    task, sharpness = Task(length, 2, 3.0, 0.4), 0.7
    functions = {
        "sigmoid": lambda s: 1 / (1 + np.exp(-s)), "tanh": np.tanh, "linear": lambda s: s / sharpness, "exp": np.exp,
    }  # fmt: skip
    found = oracle(task, classifier="elementwise", nonlinearity=nonlinearity, sharpness=sharpness)
    scores = [
        (functions[nonlinearity](sharpness * x) * x).mean(axis=1) for x in draw(task, 10000, seed=2)
    ]
    threshold = np.sinh(found.threshold) if nonlinearity == "exp" else found.threshold
    plain = empirical_error(*scores, task.positive_rate, threshold)
    # Two samples of 10,000 give a standard error of at most 0.0036: z < 4.
    assert plain == pytest.approx(found.test_error, abs=0.0144 + found.uncertainty)
    # No other threshold does better, beyond what fitting 20,000 scores gains.
    others = [
        empirical_error(*scores, task.positive_rate, float(value))
        for value in np.quantile(scores[1], np.linspace(0.5, 0.99, 50))
    ]
    assert min(others) > found.test_error - 0.0144 - found.uncertainty


@pytest.mark.parametrize("sharpness", [1.0, 4.0, 12.0])
@pytest.mark.parametrize("length", [10, 100])
def test_sharp_exponential_weights_against_drawn_tokens(length: int, sharpness: float) -> None:
    task = Task(length, 1, 4.0, 0.3)
    found = oracle(task, classifier="elementwise", nonlinearity="exp", sharpness=sharpness)
    ranked = []
    for x in draw(task, 20_000, seed=5):
        size, sign = logsumexp(sharpness * x, b=x / length, axis=1, return_sign=True)
        arsinh = np.where(size > 30, size + np.log(2), np.arcsinh(np.exp(np.minimum(size, 30))))
        ranked.append(sign * arsinh)
    # Two samples of 20,000 give a standard error of at most 0.0021: z < 4.
    plain = empirical_error(*ranked, task.positive_rate, found.threshold)
    assert plain == pytest.approx(found.test_error, abs=0.0084 + found.uncertainty)
    others = [
        empirical_error(*ranked, task.positive_rate, float(value))
        for value in np.quantile(ranked[1], np.linspace(0.5, 0.99, 50))
    ]
    assert min(others) > found.test_error - 0.0084 - found.uncertainty
    best = oracle(task, classifier="elementwise", nonlinearity="exp")
    assert best.test_error <= found.test_error + best.uncertainty + found.uncertainty


@pytest.mark.parametrize(("strength", "rate"), [(2.0, 0.9), (1.0, 0.8)])
def test_the_best_threshold_on_exponential_weights_may_be_negative(
    strength: float, rate: float
) -> None:
    """Every pair of 400 equally likely values of two tokens: exact to some 10^-4."""
    task = Task(2, 1, strength, rate)
    found = oracle(task, classifier="elementwise", nonlinearity="exp", sharpness=0.1)
    noise = ndtri((np.arange(400) + 0.5) / 400)
    one, other = (x * np.exp(0.1 * x) for x in (noise, noise + strength))
    positive, negative = (np.add.outer(values, one).ravel() / 2 for values in (other, one))
    thresholds = np.linspace(-2, 1, 301)
    missed = np.searchsorted(np.sort(positive), thresholds) / len(positive)
    alarms = 1 - np.searchsorted(np.sort(negative), thresholds) / len(negative)
    errors = rate * missed + (1 - rate) * alarms
    best = thresholds[errors.argmin()]
    assert best < 0
    assert found.test_error == pytest.approx(errors.min(), abs=3e-4 + found.uncertainty)
    assert found.uncertainty < 2e-3
    assert np.sinh(found.threshold) == pytest.approx(best, abs=0.05)


@pytest.mark.parametrize(
    ("task", "accuracy"),
    [(Task(2, 1, 3.0), 1e-3), (Task(10, 1, 14.0, 0.3), 0.05), (Task(10**4, 3, 12.0), 3e-4), (Task(10**8, 1, 215.0), 3e-4)],
)  # fmt: skip
def test_energy_detector_in_closed_form(task: Task, accuracy: float) -> None:
    """A sum of squares has a χ² law, from 2 to 10^8 tokens and down to errors of 10^-10."""
    found = oracle(task, classifier="elementwise", nonlinearity="linear")
    total = found.threshold * task.length + np.linspace(-0.3, 0.3, 601) * np.sqrt(2 * task.length)
    noncentral = task.informative * task.strength**2
    rate = task.positive_rate
    errors = rate * ncx2.cdf(total, task.length, noncentral) + (1 - rate) * chi2.sf(
        total, task.length
    )
    assert found.test_error == pytest.approx(errors.min(), abs=found.uncertainty)
    assert found.uncertainty < accuracy * found.test_error
    # The threshold moves in steps of the grid; over one of them the error is flat.
    assert errors[300] == pytest.approx(errors.min(), rel=1e-3)


def test_likelihood_ratio_is_the_mean_over_subsets() -> None:
    task = Task(6, 3, 1.5)
    from sparsetoken.theory.scores import _log_symmetric_polynomials

    x = np.random.default_rng(3).standard_normal((6, 50))
    terms = [
        task.strength * x[list(subset)].sum(axis=0)
        for subset in itertools.combinations(range(6), 3)
    ]
    polynomials = _log_symmetric_polynomials(task.strength * x, 3)
    assert len(polynomials) == 4
    np.testing.assert_allclose(polynomials[3], logsumexp(terms, axis=0), rtol=1e-12)
    scores = likelihood_ratio_scores(sample(task, 9), task.strength)
    # E[exp(LLR)] = 1 under the negative law, E[exp(-LLR)] = 1 under the positive one.
    assert np.exp(scores.negative).mean() == pytest.approx(1, abs=0.05)
    assert np.exp(-scores.positive).mean() == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("task", [Task(10, 1, 3.0, 0.5), Task(12, 4, 1.5, 0.3), Task(1000, 1, 4.0)])
def test_nothing_beats_the_bayes_floor(task: Task) -> None:
    floor = oracle(task, classifier="bayes")
    others = [oracle(task), oracle(task, classifier="pooled")]
    others += [oracle(task, classifier="elementwise", nonlinearity=name) for name in NONLINEARITIES]
    for other in others:
        assert other.test_error >= floor.test_error - other.uncertainty - floor.uncertainty


def test_sharpness_zero_is_pooling_and_large_is_the_maximum() -> None:
    task = Task(10, 1, 3.0)
    flat = oracle(task, sharpness=0.0)
    assert flat.test_error == pytest.approx(
        oracle(task, classifier="pooled").test_error, abs=flat.uncertainty + 1e-3
    )
    hard = oracle(task, sharpness=1e4)
    largest = [x.max(axis=1) for x in draw(task, 20000, seed=4)]
    # Two samples of 20,000 give a standard error of at most 0.0025: z < 4.
    assert empirical_error(*largest, 0.5, hard.threshold) == pytest.approx(
        hard.test_error, abs=0.01
    )


def test_a_million_tokens() -> None:
    """θ = 1.6 √(2 log L): attention nearly certain, pooling blind."""
    task = Task(10**6, 1, 1.6 * np.sqrt(2 * np.log(1e6)))
    assert oracle(task).test_error < 0.01
    assert oracle(task, classifier="pooled").test_error > 0.49


@pytest.mark.parametrize("classifier", ["pooled", "bayes"])
def test_required_strength_inverts_the_oracle(classifier: str) -> None:
    task = Task(50, 1, 1.0, 0.4)
    needed = required_strength(task, error=0.08, classifier=classifier)
    found = oracle(task.replace(strength=needed.strength), classifier=classifier)
    assert found.test_error == pytest.approx(0.08, abs=1e-3)
    assert needed.uncertainty < 0.01


@pytest.mark.parametrize("length", [30, 300])
def test_attention_needs_little_more_than_the_bayes_floor(length: int) -> None:
    # At length 300 the best sharpness jumps from that of pooling to that of picking one token.
    task = Task(length, 1, 1.0, 0.5)
    needed = required_strength(task, error=0.05, classifier="attention")
    floor = required_strength(task, error=0.05, classifier="bayes")
    assert 0.98 < needed.strength / floor.strength < 1.05
    reached = oracle(task.replace(strength=needed.strength), classifier="attention")
    assert reached.test_error == pytest.approx(0.05, abs=0.003)


def test_bad_input_is_named() -> None:
    task = Task(10, 1, 3.0, 0.2)
    with pytest.raises(ParameterError, match="classifier = 'magic'"):
        oracle(task, classifier="magic")
    with pytest.raises(ParameterError, match="nonlinearity = 'relu'"):
        oracle(task, classifier="elementwise", nonlinearity="relu")
    with pytest.raises(ParameterError, match="sharpness = -1"):
        oracle(task, sharpness=-1)
    with pytest.raises(ParameterError, match=r"error = 0\.2 .*\(0, 0\.2\)"):
        required_strength(task, error=0.2)
    with pytest.raises(ParameterError, match="length = 100000"):
        oracle(Task(100000, 2, 3.0), classifier="bayes")


# Errors from 6 % down to 10^-12, and positives so rare that almost all are missed. Standard errors
# of the plain sample are below 1 %: z < 4 would show a deviation of 4 %, beside the error bar.
@pytest.mark.parametrize(
    "task",
    [
        Task(10, 1, 4.0, 1e-4),
        Task(10, 1, 4.0),
        Task(10, 1, 14.4, 0.3),
        Task(100, 1, 12.0),
    ],
)
def test_rare_errors_to_a_few_percent(task: Task) -> None:
    floor, attention = oracle(task, classifier="bayes"), oracle(task)
    known = importance_sampled_errors(task, attention, 40_000, seed=5)
    for found, (error, deviation) in zip((floor, attention), known, strict=True):
        assert deviation < 0.02 * error
        assert abs(found.test_error - error) < found.uncertainty + 4 * deviation
        assert found.uncertainty < 0.05 * found.test_error
        assert found.solution.status is Status.CONVERGED
    assert floor.test_error < min(task.positive_rate, 1 - task.positive_rate)
    assert attention.test_error > floor.test_error - attention.uncertainty - floor.uncertainty


def test_attention_is_fitted_to_other_points_than_those_that_judge_it() -> None:
    """Both sets of points have errors of their own; the fit's would look too good."""
    rule = rule_for(Task(100, 1, 3.0), "attention", "sigmoid", None)
    fixed = rule.at_best(3.0, rare=False)
    assert {stream for _, stream, _ in rule._known} == {FIT}
    fixed.searched = False  # nothing is added for sharpnesses nearby
    found = fixed.judged(3.0, rare=False, tolerance=1.0)
    (size,) = {size for size, stream, _ in rule._known if stream == JUDGE}
    judging = rule._errors(3.0, found.sharpness, size, JUDGE, False)
    fitted = rule._errors(3.0, found.sharpness, fixed.size, FIT, False)
    assert found.threshold == fitted.least()[1]
    assert found.test_error == pytest.approx(judging.error(found.threshold), rel=1e-12)
    assert judging.least()[0] < found.test_error
    # What a threshold that knows the points would gain is in the bar, beside what they differ by.
    alone = MeasuredError.of(*judging.terms(found.threshold), 0.0).uncertainty
    gain = found.test_error - judging.least()[0]
    assert found.uncertainty == pytest.approx(alone + gain, rel=1e-9)


def test_an_error_below_rounding_is_bounded() -> None:
    found = oracle(Task(10, 1, 40.0), classifier="elementwise")
    assert found.solution.status is Status.BEYOND_REACH
    assert 1e-16 < found.uncertainty < 1e-13


@pytest.mark.parametrize("classifier", ["bayes", "attention"])
def test_required_strength_from_tiny_errors_to_almost_chance(classifier: str) -> None:
    task = Task(10, 1, 1.0)
    for error in (1e-9, 1e-3, 0.45, 0.499):
        needed = required_strength(task, error=error, classifier=classifier)
        low = max(needed.strength - needed.uncertainty, 0.0)
        high = min(needed.strength + needed.uncertainty, 1e6)
        floors = [
            oracle(task.replace(strength=strength), classifier="bayes") for strength in (low, high)
        ]
        assert floors[0].test_error + floors[0].uncertainty >= error or classifier == "attention"
        # No classifier needs less than the floor.
        assert floors[1].test_error - floors[1].uncertainty <= error
        if error <= 0.45:
            assert needed.uncertainty < 0.06 * needed.strength
            assert needed.solution.status is Status.CONVERGED
        if classifier == "attention" and error > 0.49:
            # Averages need this, and attention no more.
            enough = required_strength(task, error=error, classifier="pooled").strength
            assert needed.strength - needed.uncertainty <= enough


def test_required_strength_at_a_given_sharpness() -> None:
    task = Task(10, 1, 1.0)
    needed = required_strength(task, error=0.05, sharpness=0.3)
    assert needed.sharpness == 0.3
    reached = oracle(task.replace(strength=needed.strength), sharpness=0.3)
    assert reached.test_error == pytest.approx(0.05, abs=2 * reached.uncertainty)
    best = required_strength(task, error=0.05)
    assert needed.strength > best.strength + needed.uncertainty + best.uncertainty


def test_required_strength_of_elementwise_attention_for_rare_errors() -> None:
    # 10^6 sequences of each label, counted: 5.4e-4 at θ = 12 and 1.8e-4 at 13, with κ = 0.3.
    needed = required_strength(Task(10, 1, 1.0), error=3e-4, classifier="elementwise")
    assert needed.strength == pytest.approx(12.5, abs=0.1)
    for error in (1e-4, 1e-9, 1e-12):
        needed = required_strength(Task(10, 1, 1.0), error=error, classifier="elementwise")
        assert needed.uncertainty < 0.03 * needed.strength
        reached = oracle(Task(10, 1, needed.strength), classifier="elementwise")
        assert np.log(reached.test_error / error) == pytest.approx(0, abs=0.1)


@pytest.mark.parametrize("classifier", ["attention", "elementwise", "bayes", "pooled"])
def test_a_path_in_length_gives_what_single_searches_give(classifier: str) -> None:
    lengths = [10, 30, 100]
    path = strength_curve(Task(10, 1, 1.0, 0.4), values=lengths, error=0.08, classifier=classifier)
    assert path.over == "length"
    assert path.values == (10, 30, 100)
    for length, found in zip(lengths, path, strict=True):
        task = Task(length, 1, 1.0, 0.4)
        alone = required_strength(task, error=0.08, classifier=classifier)
        assert abs(found.strength - alone.strength) <= found.uncertainty + alone.uncertainty


# At these errors the best sharpness is near 2, and one near that of the maximum needs 1 % more strength.
@pytest.mark.parametrize("error", [0.3, 0.35])
def test_a_path_gives_what_single_searches_give_in_either_direction(error: float) -> None:
    lengths = [1000, 100]
    alone = [required_strength(Task(length, 1, 1.0), error=error) for length in lengths]
    down = strength_curve(Task(10, 1, 1.0), values=lengths, error=error)
    up = strength_curve(Task(10, 1, 1.0), values=lengths[::-1], error=error)
    for single, *others in zip(alone, down, list(up)[::-1], strict=True):
        for found in others:
            assert found.sharpness == pytest.approx(single.sharpness, rel=0.5)
            bars = found.uncertainty + single.uncertainty
            assert abs(found.strength - single.strength) <= bars


def least_over_sharpness(task: Task) -> tuple[float, float]:
    """The least error over thresholds and a fine grid of κ, on points of their own, and its bar."""
    rule = rule_for(task, "attention", "sigmoid", None)
    errors = []
    with path_memory():
        for sharpness in np.geomspace(0.4, 50, 20).tolist():
            fitted = rule._errors(task.strength, sharpness, 8, 21, False)
            judged = rule._errors(task.strength, sharpness, 8, 22, False)
            terms = judged.terms(fitted.least()[1])
            errors.append(sum(term.mean(axis=1) for term in terms))
    least = min(errors, key=np.mean)
    # Two standard errors of eight replicates, and what the grid's spacing of 29 % may cost.
    return float(least.mean()), float(2 * least.std(ddof=1) / 8**0.5 + 1e-3 * least.mean())


@pytest.mark.parametrize(
    ("length", "error"),
    [(10, 0.05), (10, 0.35), (100, 0.3), (1000, 0.2), (1000, 0.3), (1000, 0.35), (10**4, 0.1)],
)
def test_no_other_sharpness_needs_less(length: int, error: float) -> None:
    task = Task(length, 1, 1.0)
    found = required_strength(task, error=error)
    # At both ends of the bar the least error is on the right side of the wanted one.
    for side in (-1, 1):
        strength = found.strength + side * found.uncertainty
        least, bar = least_over_sharpness(task.replace(strength=strength))
        assert side * (error - least) > -bar
    at = task.replace(strength=found.strength)
    best, (least, bar) = oracle(at), least_over_sharpness(at)
    assert abs(best.test_error - least) < best.uncertainty + bar


def test_a_rule_keeps_nothing_of_a_question_but_its_points() -> None:
    rule = rule_for(Task(10, 1, 3.0), "attention", "sigmoid", None)
    before = rule.rough(1.0, 2.0, False)
    rule.quick(0.8, False)
    assert rule.rough(1.0, 2.0, False) == before
    # So near to chance the fixed rule takes more points.
    assert rule.at_best(0.8, False).size > rule.size


def test_of_the_points_of_the_likelihood_ratio_only_the_last_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn: list[weakref.ref[TokenSample]] = []

    class Watched(TokenSample):
        def __init__(self, *args: object, **options: object) -> None:
            super().__init__(*args, **options)
            drawn.append(weakref.ref(self))

    monkeypatch.setattr(oracle_rules, "TokenSample", Watched)
    rule = rule_for(Task(10, 2, 2.0), "bayes", "sigmoid", None)
    first = rule.quick(2.0, False)
    assert rule.quick(2.0, False) == first
    assert len(drawn) == 1
    rule.least(2.0, False, tolerance=1e-9)
    assert len(drawn) == 4
    assert sum(sample() is not None for sample in drawn) == 1
    assert rule.quick(2.0, False) == first


def test_sharpnesses_that_few_points_cannot_tell_apart_are_judged_on_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = Task(1000, 1, 3.16)
    rule = rule_for(task, "attention", "sigmoid", None)
    fixed = rule.at_best(3.16, rare=False)
    assert len(fixed.rivals) == 1
    # Started at the worse of the two, more points find the better one.
    swapped = fixed.at_sharpness(fixed.rivals[0])
    swapped.rivals = (fixed.sharpness,)
    for one in (fixed, swapped):
        assert one.judged(3.16, False, 0.002).sharpness == fixed.sharpness < 4 < fixed.rivals[0]
    # On so few points that they might come in the other order, the bar holds what that would gain.
    alone = fixed.at_sharpness(fixed.sharpness).judged(3.16, False, 1.0)
    both = fixed.judged(3.16, False, 1.0)
    assert both.test_error == alone.test_error
    assert both.uncertainty >= alone.uncertainty
    monkeypatch.setattr(oracle_rules._Judgement, "gain", lambda *_: 1e-3)
    open_still = fixed.judged(3.16, False, 1.0)
    assert open_still.uncertainty == pytest.approx(alone.uncertainty + 1e-3, rel=1e-9)


def test_what_the_same_points_leave_open_of_two_rules_is_no_less_than_their_noise() -> None:
    """Of two rules whose errors differ by noise alone, either may be the better one."""
    noise = np.random.default_rng(0).standard_normal((2, 2, 8, 4))
    one, two = (oracle_rules._Judgement(1.0, 0.0, 0.5, 0.5, *part, 0.0) for part in 1 + noise)
    assert min(one.gain(two), two.gain(one)) > 0.1
    clear = replace(two, positive=two.positive + 10)
    assert one.gain(clear) == 0
    assert clear.gain(one) > 9
    assert one.gain(one) < 1e-9


def test_a_smaller_tolerance_gives_a_smaller_bar() -> None:
    task = Task(30, 3, 2.0)
    loose, fine = (oracle(task, tolerance=value) for value in (0.1, 0.005))
    assert fine.uncertainty < 0.005 * fine.test_error < loose.uncertainty <= 0.1 * loose.test_error
    assert abs(fine.test_error - loose.test_error) < loose.uncertainty + fine.uncertainty
    bars = [
        required_strength(task, error=0.1, tolerance=value).uncertainty for value in (0.05, 1e-3)
    ]
    assert bars[1] < 0.2 * bars[0]
    with pytest.raises(ParameterError, match="tolerance = 0"):
        oracle(task, tolerance=0.0)


def test_arguments_that_do_not_apply_are_refused() -> None:
    with pytest.raises(ParameterError, match=r"sharpness = 1e\+20"):
        oracle(Task(10, 1, 3.0), sharpness=1e20)
    task = Task(10, 1, 3.0)
    with pytest.raises(ParameterError, match="nonlinearity = 'tanh'"):
        oracle(task, nonlinearity="tanh")
    with pytest.raises(ParameterError, match=r"sharpness = 1\.0"):
        oracle(task, classifier="bayes", sharpness=1.0)
    with pytest.raises(ParameterError, match="error = 1e-300"):
        required_strength(task, error=1e-300)


def test_no_strength_is_looked_for_beyond_those_of_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Task(10, 1, oracle_module._LARGEST_STRENGTH).strength == oracle_module._LARGEST_STRENGTH
    with pytest.raises(ParameterError, match="strength"):
        Task(10, 1, 1.01 * oracle_module._LARGEST_STRENGTH)
    monkeypatch.setattr(oracle_module, "_LARGEST_STRENGTH", 300.0)
    beyond = required_strength(Task(10**4, 1, 1.0), error=0.05, classifier="pooled")  # 329
    assert (beyond.strength, beyond.uncertainty) == (np.inf, np.inf)
    assert beyond.solution.status is Status.BEYOND_REACH
    assert "no strength up to 300 is enough" in beyond.solution.message


@pytest.mark.parametrize("classifier", ["bayes", "pooled"])
def test_a_strength_that_nothing_bounds_has_an_infinite_bar(
    classifier: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # An error that rises with the strength is one of the points of the law.
    monkeypatch.setattr(_StrengthSearch, "_slope", lambda *_: 1.0)
    found = required_strength(Task(10, 2, 1.0), error=0.1, classifier=classifier)
    assert (found.uncertainty, found.solution.status) == (np.inf, Status.BEYOND_REACH)


@pytest.mark.parametrize("error", [0.498, 0.499])
def test_near_chance_attention_needs_as_much_as_bayes_and_pooling(error: float) -> None:
    # Its own points cannot tell such errors from chance, but the two that it lies between agree.
    task = Task(10, 1, 1.0)
    found = required_strength(task, error=error)
    truth = 2 * float(norm.isf(error)) * task.length**0.5  # of pooling, in closed form
    assert found.solution.status is Status.BEYOND_REACH
    assert abs(found.strength - truth) <= found.uncertainty < 0.4 * truth


@pytest.mark.parametrize("classifier", ["attention", "bayes", "pooled"])
def test_required_strength_from_a_similar_answer_is_the_one_found_without(classifier: str) -> None:
    task = Task(50, 1, 1.0)
    alone = required_strength(task, error=0.05, classifier=classifier)
    # Close by, and far: another length, rate and error.
    for other, error in ((Task(60, 1, 1.0), 0.05), (Task(2000, 1, 1.0, positive_rate=0.1), 0.002)):
        near = required_strength(other, error=error, classifier=classifier)
        found = required_strength(task, error=0.05, classifier=classifier, near=near)
        assert found.strength == pytest.approx(
            alone.strength, abs=found.uncertainty + alone.uncertainty
        )
    with pytest.raises(ParameterError, match="near"):
        required_strength(task, error=0.05, near=3.0)


def test_a_sharpness_beyond_all_reach_is_refused() -> None:
    oracle(Task(6, 1, 3.0), sharpness=1e12)
    with pytest.raises(ParameterError, match="sharpness"):
        oracle(Task(6, 1, 3.0), sharpness=1.1e12)


@pytest.mark.parametrize("count", [4, 29, 31])
def test_the_points_that_err_are_counted(count: int) -> None:
    """Of equal shares: below 30 the bar holds what no point shows, 3/n of either class."""
    positive = np.zeros(8000)
    positive[np.linspace(0, 7999, count).astype(int)] = 1e-3
    found = MeasuredError.of(positive.reshape(8, -1), np.zeros((8, 1000)), 0.0)
    assert (found.solution.status is Status.BEYOND_REACH) == (count < 30)
    assert (found.uncertainty >= 6 / 8000) == (count < 30)
    if count < 30:
        assert f"only some {count} points" in found.solution.message


def search_with_slope(
    monkeypatch: pytest.MonkeyPatch, errors: Callable[[float], float]
) -> _StrengthSearch:
    """Return a search whose few points give these errors."""
    search = _StrengthSearch(
        rule_for(Task(6, 1, 3.0), "bayes", "sigmoid", None), Task(6, 1, 3.0), 0.1, 1e-2
    )
    monkeypatch.setattr(search, "_excess", lambda strength: float(np.log(errors(strength) / 0.1)))
    return search


def test_a_slope_is_that_of_the_errors_or_no_steeper_than_a_normal_tail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = search_with_slope(monkeypatch, lambda strength: np.exp(-20 * strength) + 1e-14)
    assert seen._slope(0.1, 0.02) == pytest.approx(-20)
    unseen = search_with_slope(monkeypatch, lambda strength: np.exp(-20 * strength))
    # 2 log(0.1/0.5)/3 where no point errs any more, at exp(-60).
    assert unseen._slope(3.0, 0.02) == pytest.approx(2 * np.log(0.2) / 3)


@pytest.mark.parametrize(("bar", "steps"), [(1e-4, [0.02]), (0.01, [0.02, 0.2 / 3])])
def test_a_slope_is_taken_over_more_than_the_bar(
    bar: float, steps: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error falls as exp(-3θ) at θ = 1: a bar of 10 % needs steps of 2 · 0.1/3 to either side."""
    search, taken = search_with_slope(monkeypatch, lambda strength: np.exp(-3 * strength)), []

    def slope(_: float, step: float) -> float:
        taken.append(step)
        return -3.0

    monkeypatch.setattr(search, "_slope", slope)
    found = Oracle(0.1, None, 0.0, bar, Solution(Status.CONVERGED, 0.0, 1))
    monkeypatch.setattr(type(search._fixed), "least", lambda *_: found)
    search._polished(1.0)
    assert taken == pytest.approx(steps)


@pytest.mark.parametrize("task", [Task(30, 1, 2.9), Task(26, 3, 2.86, 0.03)])
def test_the_bar_covers_what_another_sharpness_would_gain(task: Task) -> None:
    # The best sharpness is looked for on few points, some tenths of its logarithm away.
    found = oracle(task)
    assert found.sharpness is not None
    for factor in np.exp(np.linspace(-0.3, 0.3, 7)):
        other = oracle(task, sharpness=float(factor * found.sharpness), tolerance=1e-3)
        assert found.test_error - other.test_error < found.uncertainty + other.uncertainty


def _gridded_error(task: Task, sharpness: float) -> float:
    """Return attention's least error over thresholds for four tokens, by a grid of their differences.

    A number added to all tokens adds to the score: their mean is integrated in closed form.
    """
    step = 0.25
    line = np.arange(-8, 8 + step, step)
    places = np.stack(np.meshgrid(line, line, line), axis=-1).reshape(-1, 3)
    density = (step / np.sqrt(2 * np.pi)) ** 3 * np.exp(-0.5 * (places**2).sum(axis=1))
    basis = np.array([[1, 1, -1, -1], [1, -1, 1, -1], [1, -1, -1, 1]]) / 2

    def scores(strength: float) -> Array:
        tokens = places @ basis
        tokens[:, : task.fixed_informative] += strength
        return (softmax(sharpness * tokens, axis=1) * tokens).sum(axis=1)

    missed, alarms = scores(task.strength), scores(0.0)

    def error(threshold: float) -> float:
        # The mean has the standard deviation 1/2.
        misses = task.positive_rate * ndtr(2 * (threshold - missed))
        return float(density @ (misses + (1 - task.positive_rate) * ndtr(2 * (alarms - threshold))))

    found = minimize_scalar(error, bounds=(0.0, task.strength), method="bounded")
    return float(found.fun)


@pytest.mark.parametrize(
    ("informative", "rate", "error"), [(2, 0.3, 3e-8), (3, 0.1, 1e-5), (3, 0.5, 1e-4)]
)
def test_rare_errors_of_mild_attention_against_a_grid(
    informative: int, rate: float, error: float
) -> None:
    task = Task(4, informative, 1.0, rate)
    found = required_strength(task, error=error)
    assert found.sharpness is not None
    near = found.strength * np.array([0.99, 1.01])
    low, high = (
        min(
            _gridded_error(task.replace(strength=strength), factor * found.sharpness)
            for factor in (0.9, 1.0, 1.1)
        )
        for strength in near
    )
    # The logarithm of the error is all but a straight line between the two.
    true = np.interp(-np.log(error), -np.log([low, high]), near)
    assert abs(found.strength - true) < found.uncertainty
