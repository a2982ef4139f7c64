"""A random number of informative tokens: theory against plain arrays that share nothing with it."""

import itertools
import math

import numpy as np
import pytest
from scipy.special import logsumexp
from sklearn.linear_model import LogisticRegression

from sparsetoken import (
    BinomialCount,
    CountTable,
    Loss,
    PoissonCount,
    Query,
    Step,
    Task,
    Training,
    align,
    capacity,
    descend,
    floor,
    get_loss,
    localise,
    oracle,
    predict,
    required_strength,
)
from sparsetoken.arrays import Array
from sparsetoken.theory.alignment import QueryStep
from sparsetoken.theory.attention_law import attention_law
from sparsetoken.theory.gradient_law import FrameReadout, draw_sequences, mean_gradient
from sparsetoken.theory.laws import pooled_law
from sparsetoken.theory.places import PlacesLaw, places_law
from sparsetoken.theory.reuse import reused_law
from sparsetoken.validation import ParameterError

LAW = CountTable({0: 0.1, 1: 0.3, 2: 0.2, 5: 0.4})


def plain_counts(count: int, rng: np.random.Generator) -> Array:
    return rng.choice([0, 1, 2, 5], size=count, p=[0.1, 0.3, 0.2, 0.4])


def plain_scalars(task: Task, count: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Draw scores of tokens along a direction (n, L) and informative places, of positives."""
    noise = rng.standard_normal((count, task.length))
    return noise, np.arange(task.length) < plain_counts(count, rng)[:, None]


def z_score(values: Array, wanted: float) -> float:
    return float((values.mean() - wanted) / (values.std(ddof=1) / math.sqrt(len(values))))


# Fixed numbers are the special case --------------------------------------------------------------


def one_number(number: int) -> tuple[Task, Task]:
    settings = (3.0, 0.3)
    return Task(9, number, *settings), Task(9, CountTable({number: 1.0}), *settings)


@pytest.mark.parametrize("number", [1, 3])
def test_a_law_of_one_number_gives_the_same_as_the_number(number: int) -> None:
    plain, law = one_number(number)
    training = Training(3.0, 2.0, query_step=20.0)
    again = training.replace(alpha1=3.0, reuse=True)
    assert align(law, training) == align(plain, training)
    for classifier in ("attention", "pooled", "vectorised"):
        choices = {"classifier": classifier, "tolerance": 1e-3}
        same = predict(plain, training, **choices)  # type: ignore[arg-type]
        assert predict(law, training, **choices).to_dict() == same.to_dict()  # type: ignore[arg-type]
    np.testing.assert_array_equal(
        reused_law(law, again, 6).coordinates, reused_law(plain, again, 6).coordinates
    )
    for classifier in ("pooled", "elementwise", "bayes"):
        assert oracle(law, classifier=classifier).test_error == pytest.approx(
            oracle(plain, classifier=classifier).test_error, rel=1e-12
        )
    assert floor(law, 2.0).test_error == pytest.approx(floor(plain, 2.0).test_error, rel=1e-12)
    query = Query(0.8, 1.0)
    assert localise(law, query=query).attended_mass == localise(plain, query=query).attended_mass


# Laws of features and gradients -------------------------------------------------------------------


def test_the_law_of_attention_features() -> None:
    """Means of A, B, S and of their squares at 60,000 plain draws: |z| < 4, 0.003 in E A."""
    task, query = Task(7, LAW, 2.5, 0.4), Query(0.7, 1.3)
    law = attention_law(task, query, 10)
    noise, places = plain_scalars(task, 60_000, np.random.default_rng(1))
    scores = 1.3 * (noise + 0.7 * 2.5 * places)
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    mass, along = (p * places).sum(axis=1), (p * noise).sum(axis=1)
    drawn = {
        "along": 0.7 * 2.5 * mass + along,
        "across": math.sqrt(1 - 0.49) * 2.5 * mass,
        "scale": np.sqrt((p**2).sum(axis=1)),
    }
    positive = law.label > 0
    weight = law.weight[positive] / law.weight[positive].sum()
    assert law.weight[positive].sum() == pytest.approx(0.4, rel=1e-12)
    columns = {
        "along": law.coordinates[:, 0],
        "across": law.coordinates[:, 1],
        "scale": law.scale,
    }
    for name, values in columns.items():
        for power in (1, 2):
            found = float(weight @ values[positive] ** power)
            assert abs(z_score(drawn[name] ** power, found)) < 4, (name, power)


def test_the_pooled_law_has_a_point_for_each_number() -> None:
    law = pooled_law(Task(10, LAW, 2.0, 0.4))
    np.testing.assert_allclose(law.coordinates[:, 0], np.array([0, 1, 2, 5, 0]) * 0.2)
    np.testing.assert_allclose(law.weight, [0.04, 0.12, 0.08, 0.16, 0.6])


def test_a_compressed_law_keeps_rates_and_means() -> None:
    law = attention_law(Task(9, PoissonCount(2.0), 3.0, 0.3), Query(0.8, 1.0), 9)
    few = law.compressed
    assert len(few.scale) == 256
    assert few.weight[few.label > 0].sum() == pytest.approx(0.3)
    np.testing.assert_allclose(few.weight @ few.coordinates, law.weight @ law.coordinates)


def test_the_gradient_of_a_step() -> None:
    """Means of the parts of the gradient along the query, at 100,000 plain draws: |z| < 4."""
    task, loss = Task(6, LAW, 2.0, 0.5), get_loss("logistic")
    frame = FrameReadout(0.6, 0.9, along=0.4, across=0.3, rest=0.2, bias=-0.1)
    draws = [draw_sequences(task, 11, (index,), mild=False) for index in range(4)]
    found = mean_gradient(task, loss, frame, draws)
    rng = np.random.default_rng(5)
    count = 100_000
    y = np.where(rng.random(count) < 0.5, 1, -1)
    noise, places = plain_scalars(task, count, rng)
    places = places & (y > 0)[:, None]
    q = noise + 0.6 * 2.0 * places
    e = rng.standard_normal(noise.shape) + math.sqrt(1 - 0.36) * 2.0 * places
    o = rng.standard_normal(noise.shape)
    p = np.exp(0.9 * q)
    p /= p.sum(axis=1, keepdims=True)
    t = 0.4 * q + 0.3 * e + 0.2 * o
    mean = (p * t).sum(axis=1)
    h = -y / (1 + np.exp(y * (mean - 0.1)))
    k = p * (t - mean[:, None])
    parts = {
        "bias": (h, found.bias),
        "readout along": (h * (p * q).sum(axis=1), found.readout[0]),
        "readout across": (h * (p * e).sum(axis=1), found.readout[1]),
        "query along": (h * (k * q).sum(axis=1), found.query[0]),
        "query across": (h * (k * e).sum(axis=1), found.query[1]),
        "query noise": (h**2 * (k**2).sum(axis=1), found.query_noise),
    }
    for name, (drawn, wanted) in parts.items():
        assert abs(z_score(drawn, float(wanted))) < 4, name


# Whole trainings ----------------------------------------------------------------------------------


def plain_training(
    task: Task, training: Training, dimension: int, rng: np.random.Generator
) -> dict[str, float]:
    """Run the four stages on arrays, with another package's logistic regression, and count errors."""
    signal = rng.standard_normal(dimension)
    signal /= np.linalg.norm(signal)

    def draw(count: int) -> tuple[Array, Array]:
        y = np.where(rng.random(count) < task.positive_rate, 1, -1)
        x = rng.standard_normal((count, task.length, dimension))
        for row, number in enumerate(plain_counts(count, rng)):
            if y[row] > 0:
                x[row, rng.permutation(task.length)[:number]] += task.strength * signal
        return x, y

    x, y = draw(round(training.alpha0 * dimension))
    pooled = x.mean(axis=1)
    w = 0.5 * training.readout_step * (y @ pooled) / len(y)
    b = 0.5 * training.bias_step * y.mean()
    h = -y / (1 + np.exp(y * (pooled @ w + b)))
    t = x @ w
    centred = t - t.mean(axis=1, keepdims=True)
    query = -training.query_step / task.length * np.einsum("n,nl,nld->d", h, centred, x) / len(y)

    def features(x: Array) -> Array:
        p = np.exp(x @ query)
        return np.asarray(np.einsum("nl,nld->nd", p / p.sum(axis=1, keepdims=True), x))

    x, y = draw(round(training.alpha1 * dimension))
    fit = LogisticRegression(C=1 / (len(y) * training.ridge), tol=1e-8, max_iter=1000)
    fit.fit(features(x), y)
    fresh, labels = draw(4000)
    return {
        "alignment": float(query @ signal / np.linalg.norm(query)),
        "sharpness": float(np.linalg.norm(query)),
        "test_error": float(np.mean(fit.predict(features(fresh)) != labels)),
    }


def test_training_against_plain_arrays() -> None:
    """Eight trials at d = 100: |z| < 4, and 0.05 in the error is seen: the mean number is 2.7."""
    task, training = Task(6, LAW, 3.0, 0.4), Training(4.0, 3.0, ridge=0.05, query_step=30.0)
    rng = np.random.default_rng(11)
    rows = [plain_training(task, training, 100, rng) for _ in range(8)]
    found = predict(task, training, tolerance=1e-3)
    for name in ("alignment", "sharpness", "test_error"):
        values = np.array([row[name] for row in rows])
        assert abs(z_score(values, found.to_dict()[name])) < 4, name
    errors = np.array([row["test_error"] for row in rows])
    for number in (2, 3):
        fixed = predict(task.replace(informative=number), training, tolerance=1e-3)
        assert abs(z_score(errors, fixed.test_error)) > 6


def test_moments_of_the_query_step() -> None:
    """The scalars of stages 1 and 2 by their definitions, summed over the numbers by hand."""
    task, training = Task(8, LAW, 2.0, 0.3), Training(3.0, 1.0)
    step = QueryStep(task, training, 1 / 3)
    loss: Loss = get_loss("logistic")
    table = {0: 0.1, 1: 0.3, 2: 0.2, 5: 0.4}
    mean = sum(number * chance for number, chance in table.items())
    signal = 0.25 * 0.3 * 2.0 * mean / 8
    assert step.readout_signal == pytest.approx(signal)
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    weights = weights / weights.sum()
    spread = math.sqrt((signal**2 + 0.25**2 / (3 * 8)) / 8)
    own, bias = 0.25 / 24, 0.25 * (2 * 0.3 - 1)
    pull = 0.0
    for number, chance in table.items():
        margins = 2.0 * number / 8 * signal + own + bias + spread * nodes
        slope = float(weights @ loss.slope(margins))
        pull += 0.3 * chance * 4.0 * (number - number**2 / 8) * signal * slope
    assert step.pull == pytest.approx(pull, rel=1e-9)


def test_capacity_of_a_mixture_is_that_of_its_own_formula() -> None:
    """1/α* = min over (μ, b) of E(√(1+μ²) G - y(μ c + b)/S)₊², by a grid of plain numbers."""
    task = Task(10, CountTable({0: 0.5, 4: 0.5}), 2.0)
    rng = np.random.default_rng(2)
    g = rng.standard_normal(40_000)
    c = np.where(rng.random(40_000) < 0.5, 0.8, 0.0) * math.sqrt(10)
    y = np.where(rng.random(40_000) < 0.5, 1, -1)
    c = c * (y > 0)
    grid = [
        np.mean(np.maximum(math.hypot(1, mu) * g - y * (mu * c + b), 0) ** 2)
        for mu in np.linspace(0, 2, 15)
        for b in np.linspace(-1, 1, 15)
    ]
    found = capacity(task, classifier="pooled").alpha
    assert 1 / found == pytest.approx(min(grid), rel=0.03)


# What knowing the signal can do ---------------------------------------------------------------------


def all_sets(length: int) -> list[tuple[int, ...]]:
    numbers = range(length + 1)
    return [chosen for k in numbers for chosen in itertools.combinations(range(length), k)]


def plain_log_ratio(tokens: Array, strength: float) -> Array:
    """Return the log-likelihood ratio of scalars (n, L) by listing all sets of places."""
    table, length = {0: 0.1, 1: 0.3, 2: 0.2, 5: 0.4}, tokens.shape[1]
    terms = [
        strength * tokens[:, list(chosen)].sum(axis=1)
        - 0.5 * strength**2 * len(chosen)
        + math.log(table[len(chosen)] / math.comb(length, len(chosen)))
        for chosen in all_sets(length)
        if len(chosen) in table
    ]
    return np.asarray(logsumexp(terms, axis=0))


def test_the_bayes_oracle_lists_all_sets() -> None:
    """60,000 plain draws a label: |z| < 4, a deviation of 0.007."""
    task = Task(6, LAW, 2.0, 0.4)
    rng = np.random.default_rng(4)
    noise, places = plain_scalars(task, 60_000, rng)
    threshold = math.log(0.6 / 0.4)
    missed = plain_log_ratio(noise + 2.0 * places, 2.0) <= threshold
    alarms = plain_log_ratio(rng.standard_normal(noise.shape), 2.0) > threshold
    found = oracle(task, classifier="bayes")
    assert abs(z_score(0.4 * missed + 0.6 * alarms, found.test_error)) < 4


def test_the_pooled_oracle_has_the_best_threshold() -> None:
    task = Task(16, LAW, 2.0, 0.35)
    found = oracle(task, classifier="pooled")
    from scipy.stats import norm

    def error(threshold: float) -> float:
        missed = sum(
            chance * norm.cdf(threshold - 2.0 * number / 4)
            for number, chance in [(0, 0.1), (1, 0.3), (2, 0.2), (5, 0.4)]
        )
        return float(0.35 * missed + 0.65 * norm.sf(threshold))

    assert found.test_error == pytest.approx(error(found.threshold), rel=1e-12)
    assert found.test_error <= min(error(t) for t in np.linspace(-2, 4, 601)) + 1e-12


def test_without_informative_tokens_a_positive_is_missed() -> None:
    """No classifier tells positives with R = 0 from negatives: an error of at least π P(R = 0)."""
    task = Task(12, CountTable({0: 0.2, 2: 0.8}), 50.0, 0.4)
    training = Training(8.0, 8.0, query_step=1.0)
    for classifier in ("attention", "pooled", "bayes"):
        assert oracle(task, classifier=classifier).test_error == pytest.approx(0.08, abs=2e-3)
    assert floor(task, 5.0).test_error == pytest.approx(0.08, abs=2e-3)
    found = predict(task, training, classifier="pooled")
    assert found.test_error >= 0.08 - found.uncertainty.test_error
    rare = Task(12, PoissonCount(1e-4), 5.0, 0.3)
    assert oracle(rare, classifier="bayes").test_error == pytest.approx(0.3, abs=1e-4)
    assert predict(rare, training, classifier="pooled").test_error >= 0.3 - 1e-3


def test_where_all_look_positive_no_threshold_is_finite() -> None:
    # Silent positives alone are more frequent than negatives.
    task = Task(10, CountTable({0: 0.9, 1: 0.1}), 3.0, 0.9)
    found = oracle(task, classifier="pooled")
    assert found.threshold == -math.inf
    assert found.test_error == pytest.approx(0.1)


# The floor -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("signal", [0.4, 1.5, 3.0])
def test_the_overlap_lists_all_sets(signal: float) -> None:
    """4,000 plain draws: |z| < 4 of E⟨v̂, v⟩, and of ψ."""
    law = PlacesLaw(6, LAW, log2_points=11)
    noise, places = plain_scalars(Task(6, LAW, 1.0), 4000, np.random.default_rng(8))
    table = {0: 0.1, 1: 0.3, 2: 0.2, 5: 0.4}
    sets = [chosen for chosen in all_sets(6) if len(chosen) in table]
    members = np.array([[place in chosen for place in range(6)] for chosen in sets], dtype=float)
    sizes = members.sum(axis=1)
    priors = np.log([table[len(c)] / math.comb(6, len(c)) for c in sets])
    scores = signal * places + noise
    exponents = signal * scores @ members.T - 0.5 * signal**2 * sizes + priors
    shared = places @ members.T
    weights = np.exp(exponents - exponents.max(axis=1, keepdims=True))
    overlap = (weights * shared).sum(axis=1) / weights.sum(axis=1)
    potential = logsumexp(exponents, axis=1)
    at = np.array([signal])
    assert abs(z_score(overlap, float(law.overlap(at).mean()))) < 4
    assert abs(z_score(potential, float(law.potential(at).mean()))) < 4


@pytest.mark.slow
def test_ends_of_the_overlap() -> None:
    law = PlacesLaw(20, PoissonCount(2.0), log2_points=6)
    mean = Task(20, PoissonCount(2.0), 1.0).counts.mean
    ends = law.overlap(np.array([1e-6, law.known - 1e-9, law.known + 1.0])).mean(axis=0)
    np.testing.assert_allclose(ends, [mean**2 / 20, mean, mean], rtol=1e-2)


def test_a_law_of_one_token_or_none_with_little_doubt_is_near_one_token() -> None:
    sure, doubtful = (Task(15, law, 3.0) for law in (1, CountTable({0: 1e-6, 1: 1 - 1e-6})))
    assert floor(doubtful, 1.0).overlap == pytest.approx(floor(sure, 1.0).overlap, abs=3e-3)


def test_a_law_far_from_binomial_is_refused_by_name() -> None:
    with pytest.raises(ParameterError, match="nearer to a binomial"):
        places_law(180, CountTable({0: 1 - 1e-6, 60: 1e-6}), 7)
    with pytest.raises(ParameterError, match="symmetric polynomials"):
        places_law(4096, BinomialCount(0.1), 7)


# Where the signal is, and steps --------------------------------------------------------------------


def test_localisation_counts_hits() -> None:
    """60,000 plain draws: |z| < 4; a positive without informative tokens is no hit."""
    task, query = Task(6, LAW, 2.0), Query(0.8, 1.5)
    noise, places = plain_scalars(task, 60_000, np.random.default_rng(6))
    scores = noise + 1.6 * places
    order = np.argsort(-scores, axis=1)
    ranked = np.take_along_axis(places, order, axis=1)
    found = localise(task, query=query)
    assert abs(z_score(ranked[:, 0].astype(float), found.hit_rate)) < 4
    assert abs(z_score(ranked[:, :2].any(axis=1).astype(float), found.top(2))) < 4
    p = np.exp(1.5 * scores)
    mass = (p * places).sum(axis=1) / p.sum(axis=1)
    assert abs(z_score(mass, found.attended_mass)) < 4
    [point] = found.free_response([0.5])
    called = scores > point.threshold
    assert abs(z_score((called & places).any(axis=1).astype(float), point.hit_rate)) < 4


def test_steps_move_towards_the_signal_as_with_a_fixed_number() -> None:
    steps = [Step(2.0, readout_step=1.0, bias_step=0.5, query_step=2.0)] * 2
    tasks = (Task(10, informative, 3.0) for informative in (CountTable({2: 0.5, 4: 0.5}), 2, 4))
    random, *fixed = (descend(task, steps, tolerance=1e-2) for task in tasks)
    ends = [states[1].alignment for states in fixed]
    assert min(ends) < random[1].alignment < max(ends)


@pytest.mark.parametrize("classifier", ["attention", "elementwise", "bayes", "pooled"])
def test_no_strength_is_looked_for_below_what_silent_positives_err(classifier: str) -> None:
    """P(R = 0) = 0.4: with half of the labels positive 0.2 of all are noise."""
    task = Task(20, CountTable({0: 0.4, 1: 0.6}), 1.0)
    found = required_strength(task, error=0.199, classifier=classifier)
    assert found.strength == math.inf
    assert found.solution.steps == 0
    assert "err in 0.2" in found.solution.message
    assert required_strength(task, error=0.21, classifier=classifier).strength < 30
