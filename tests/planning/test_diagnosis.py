"""Diagnoses: estimates against the truth of the Gaussian task, verdicts, refusals."""

from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sparsetoken import (
    AttentionClassifier,
    Diagnosis,
    ParameterError,
    PooledClassifier,
    Task,
    diagnose,
    digit_bags,
    sample,
)
from sparsetoken.planning.findings import _nothing_to_mend, _too_soft, _unlearnt
from sparsetoken.planning.signal_estimate import (
    Tokens,
    _effective_dimension,
    _pooled_estimate,
    estimate_signal,
)
from sparsetoken.theory.oracle_ranking import best_ranking

SETTINGS = {
    "early": (Task(20, 1, 4.0), 100, 64),
    "few": (Task(4, 1, 3.0), 100, 64),
    "rare": (Task(20, 1, 3.0, 0.1), 600, 24),
    "sparse": (Task(20, 1, 5.0), 300, 24),
    "weak": (Task(20, 1, 2.0), 1000, 12),
    "dense": (Task(6, 5, 1.5), 300, 16),
    "nothing": (Task(10, 1, 0.0), 400, 24),
}


def draw(name: str, seed: int = 3) -> Any:
    task, count, dimension = SETTINGS[name]
    return sample(task, count, dimension=dimension, rng=np.random.default_rng(seed))


@cache
def diagnosed(name: str) -> Diagnosis:
    drawn = draw(name)
    return diagnose(drawn.X, drawn.y)


def tokens_of(drawn: Any) -> Tokens:
    count, length, dimension = drawn.X.shape
    sequence = np.repeat(np.arange(count), length)
    return Tokens(drawn.X.reshape(-1, dimension), sequence, drawn.y > 0)


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("sparse", "attention pays"),
        ("early", "too few samples"),
        ("few", "too few samples"),
        ("weak", "the signal is too weak"),
        ("dense", "the signal is not sparse"),
        ("nothing", "nothing to tell the classes apart"),
    ],
)
def test_each_difficulty_is_named(name: str, cause: str) -> None:
    found = diagnosed(name)
    assert cause in [finding.cause for finding in found.findings]
    assert found.verdict in str(found)


def test_too_soft_attention_is_named_and_the_cure_cures() -> None:
    """A fixed sharpness of 0.3 spreads over 17 of 20 tokens; the named cure ends both."""
    drawn = draw("sparse")
    soft = AttentionClassifier(sharpness=0.3, refine=False, tied=False, random_state=0)
    found = diagnose(drawn.X, drawn.y, attention=soft)
    assert found.verdict == "attention is too soft"
    assert "set a larger sharpness" in found.findings[0].next_step
    assert found.comparison.attended_tokens > 15
    sharper = diagnose(drawn.X, drawn.y, attention=soft.set_params(sharpness=3.0))
    assert sharper.verdict == "attention pays"
    assert "attention is too soft" not in [finding.cause for finding in sharper.findings]


def test_of_classes_that_differ_in_spread_alone_no_shift_is_seen() -> None:
    """A kernel tells them apart, but no direction does."""
    rng = np.random.default_rng(4)
    labels = np.arange(200) % 2
    X = rng.standard_normal((200, 6, 5)) * (1 + labels)[:, None, None]
    found = diagnose(X, labels)
    assert found.verdict == "no shift of tokens is seen"
    assert found.signal.strength is None


def test_bursts_of_energy_are_a_signal_that_squares_turn_into_a_shift() -> None:
    """Four of 40 tokens spread further: sparse, though no direction shows it. The next step does."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((200, 40, 4)), np.arange(200) % 2
    for row, start in zip(np.flatnonzero(y), rng.integers(0, 36, size=100), strict=True):
        X[row, start : start + 4] *= 2.5
    found = diagnose(X, y, splits=1)
    assert found.verdict == "no shift of tokens is seen"
    assert "so that there is a signal" in found.findings[0].because
    assert "squares" in found.findings[0].next_step
    assert diagnose(X**2, y, splits=1).signal.strength is not None


def test_what_is_constant_without_the_signal_is_no_noise_of_rounding() -> None:
    """Pixels that are dark in all bags without a nine had noise of 1e-16: in its units they were all."""
    bags, _ = digit_bags(length=10, train=200)
    found = diagnose(bags.X, bags.y)
    assert 10 < found.signal.effective_dimension < 64
    # The estimate is of rare bright pixels, and pooling that knew them would do; it does not here.
    assert [finding.cause for finding in found.findings] == ["attention pays"]


def test_estimates_that_what_is_measured_contradicts_are_not_explained_further() -> None:
    """A word that only positives have leaves no error, where normal noise would leave 0.25."""
    rng = np.random.default_rng(0)
    words, y = np.eye(12)[rng.integers(11, size=(200, 8))], np.arange(200) % 2
    words[y == 1, rng.integers(8, size=100)] = np.eye(12)[11]
    found = diagnose(words, y, splits=1)
    assert found.limits["attention"] > 0.2
    assert [finding.cause for finding in found.findings] == ["the estimates do not fit"]


@pytest.mark.filterwarnings("ignore:.*are copies of others")  # negatives are, and are told of
def test_a_direction_without_noise_is_diagnosed() -> None:
    rng = np.random.default_rng(0)
    marks, y = np.zeros((200, 8, 1)), np.arange(200) % 2
    marks[y == 1, rng.integers(8, size=100)] = 1.0
    with pytest.warns(UserWarning, match="fewer than 3 different samples"):  # negatives are alike
        found = diagnose(marks, y, splits=1)
    assert found.verdict == "the estimates do not fit"
    assert "  error, pooled          0 in every fold\n" in str(found)
    found.plot()


def test_rare_positives_are_ranked_and_so_are_their_limits() -> None:
    """Limits are 1 - AUC then, as the classifiers' scores are: 0.097 at a strength of 3.1."""
    found = diagnosed("rare")
    assert found.comparison.measure == "1 - auc"
    assert "1 - auc, attention" in str(found)
    assert found.signal.strength is not None
    task = Task(20, 1, found.signal.strength, float(np.mean(draw("rare").y > 0)))
    assert found.limits["attention"] == best_ranking(task, "attention").misranked
    assert found.limits["pooled"] > 0.25 > found.limits["learnt"] > found.limits["attention"]
    assert [finding.cause for finding in found.findings] == ["attention pays"]


def test_soft_attention_is_named_only_if_it_costs() -> None:
    def facts(attended: float, error: float, normal: bool = True) -> Any:
        return SimpleNamespace(
            comparison=SimpleNamespace(attended_tokens=attended),
            signal=SimpleNamespace(informative=1.0, normal=normal),
            attention=SimpleNamespace(error=error, uncertainty=0.01),
            limits={"learnt": 0.05},
            length=20.0,
            errs="errs",
        )

    (finding,) = _too_soft(facts(12.0, 0.2))
    assert finding.cause == "attention is too soft"
    assert "spread over 12.0 of 20.0 tokens" in finding.because
    assert not list(_too_soft(facts(2.0, 0.2)))
    assert not list(_too_soft(facts(12.0, 0.06)))
    # Estimates that are called unreliable are no ground for a cure.
    assert not list(_too_soft(facts(12.0, 0.2, normal=False)))


def test_a_signal_at_a_fixed_place_is_named_instead_of_called_too_weak() -> None:
    rng = np.random.default_rng(3)
    X, y = rng.standard_normal((600, 8, 5)), np.arange(600) % 2
    X[y == 1, 3, 0] += 1.5
    found = diagnose(X, y)
    assert [finding.cause for finding in found.findings] == ["the signal has a fixed place"]
    assert "use VectorisedClassifier" in found.findings[0].next_step


def test_attention_does_what_it_can_only_where_the_numbers_say_so() -> None:
    def facts(error: float) -> Any:
        return SimpleNamespace(
            attention=SimpleNamespace(error=error, uncertainty=0.01),
            rival=SimpleNamespace(name="pooled"),
            limits={"learnt": 0.05},
            measure="error",
        )

    assert _nothing_to_mend(facts(0.06), "0.1").cause == "attention does what it can"
    assert _nothing_to_mend(facts(0.02), "0.1").cause == "attention does what it can"
    assert _nothing_to_mend(facts(0.12), "0.1").cause == "nothing to mend is seen"


def test_a_query_that_misses_what_the_samples_teach_is_told_apart() -> None:
    """From want of samples, where message passing may find more or not."""

    def facts(samples: int, alignment: float, own: float | None = None) -> Any:
        return SimpleNamespace(
            signal=SimpleNamespace(
                alignment=alignment,
                query_alignment=own,
                effective_dimension=64.0,
                uncertainty={"strength": 0.1},
            ),
            task=Task(20, 1, 4.0),
            samples=samples,
            limits={"learnt": 0.2, "attention": 0.05},
            errs="errs",
        )

    (mistaught,) = _unlearnt(facts(1200, 0.99, 0.5))
    assert mistaught.cause == "the query is misaligned"
    assert "cosine of 0.50" in mistaught.because
    assert "learn 0.99" in mistaught.because
    assert not list(_unlearnt(facts(1200, 0.99, 0.95)))
    (missed,) = _unlearnt(facts(1200, 0.3))
    assert missed.cause == "the query is misaligned"
    assert "teach 0.9" in missed.because
    (early,) = _unlearnt(facts(120, 0.7))
    assert early.cause == "too few samples"
    assert "learn_direction() may find up to 0.97" in early.next_step
    (few,) = _unlearnt(facts(14, 0.7))
    assert few.cause == "too few samples"
    assert "collect about 58 samples" in few.next_step
    assert "learn_direction" not in few.next_step


def test_the_query_of_own_settings_is_measured() -> None:
    """Learnt from 3 % of the samples it misses the signal, from half of them it does not."""
    tokens = tokens_of(draw("sparse"))
    cosines = {}
    for split in (0.03, 0.5):
        own = AttentionClassifier(split=split, refine=False, tied=False, random_state=0)
        found, _ = estimate_signal(tokens, splits=1, seed=0, own=own)
        cosines[split] = found.query_alignment or 0.0
    assert cosines[0.03] < 0.75
    assert cosines[0.5] > 0.9
    assert estimate_signal(tokens, splits=1, seed=0)[0].query_alignment is None


def test_numbers_of_tokens_that_are_not_normal_are_called_unreliable() -> None:
    """Images are not, the Gaussian task is; chance alone does not say so."""
    assert all(diagnosed(name).signal.normal for name in ("sparse", "dense", "weak"))
    assert "unreliable" not in str(diagnosed("sparse"))
    bags, _ = digit_bags(length=10, train=200)
    found = diagnose(bags.X, bags.y, splits=1)
    assert not found.signal.normal
    assert "unreliable: the noise along the signal is not normal" in str(found)
    assert found.to_dict()["normal"] is False


def test_a_fit_that_ran_astray_does_not_decide() -> None:
    """Three fits agree on about one token; one is sure of 23 and would have all the weight."""
    values, errors = np.array([1.0, 1.2, 0.9, 23.0]), np.array([0.4, 0.5, 0.4, 0.17])
    mean, error = _pooled_estimate(values, errors)
    assert abs(mean - 1) < error
    # Values that agree are weighed by precision alone.
    mean, error = _pooled_estimate(np.array([1.0, 1.1]), np.array([0.1, 0.3]))
    assert mean == pytest.approx(1.01)
    assert error == pytest.approx(np.sqrt(2 / (100 + 100 / 9)))
    # A fit that ends where all ten tokens carry the signal is not sure of that.
    mean, error = _pooled_estimate(
        np.array([9.9, 8.7, 9.0, 10.0]), np.array([2.0, 1.4, 1.3, 1e-11])
    )
    assert mean == pytest.approx(10, abs=0.05)
    assert 0.2 < error < 0.4


def test_what_would_have_been_seen_tells_nothing_from_too_little() -> None:
    """Sixty samples of pure noise in many dimensions show no useful signal, and could not; 400 could."""
    drawn = sample(Task(20, 1, 0.0), 60, dimension=64, rng=np.random.default_rng(1))
    few = diagnose(drawn.X, drawn.y, splits=1, cv=3)
    assert few.verdict == "too few samples"
    assert "would be useful" in few.findings[0].because
    many = diagnosed("nothing")
    assert many.verdict == "nothing to tell the classes apart"
    assert "would mostly show from a strength of about" in many.findings[0].because


def test_estimates_have_the_truth_within_their_errors() -> None:
    """z-scores of 8 settings: of 24, none beyond 4, and a root mean square below 1.8.

    At a strength off by 0.5 or a whole informative token too many the z-scores would be about 5.
    """
    scores = []
    for seed, (strength, informative, length) in enumerate(
        (s, r, length) for s in (3.0, 5.0) for r in (1, 3) for length in (10, 25)
    ):
        task = Task(length, informative, strength)
        drawn = sample(task, 300, dimension=20, rng=np.random.default_rng([seed, 8]))
        found, _ = estimate_signal(tokens_of(drawn), splits=2, seed=0)
        truth = {"strength": strength, "informative": informative, "effective_dimension": 20}
        scores += [
            (getattr(found, name) - value) / found.uncertainty[name]
            for name, value in truth.items()
        ]
    assert np.max(np.abs(scores)) < 4
    assert np.sqrt(np.mean(np.square(scores))) < 1.8


def test_the_class_with_the_signal_is_found() -> None:
    drawn = draw("sparse")
    tokens = tokens_of(drawn)
    flipped = Tokens(tokens.values, tokens.sequence, ~tokens.labels)
    one, _ = estimate_signal(tokens, splits=1, seed=0)
    other, _ = estimate_signal(flipped, splits=1, seed=0)
    assert (one.positive, other.positive) == (1, 0)
    assert other.strength == pytest.approx(one.strength, rel=0.05)


def test_effective_dimension_counts_directions_by_their_variance() -> None:
    rng = np.random.default_rng(0)
    variances = np.array([4.0, 1.0, 1.0, 0.25, 0.25, 0.25])
    values = rng.standard_normal((6000, 6)) * np.sqrt(variances)
    tokens = Tokens(values, np.arange(6000) // 4, np.arange(1500) % 2 == 0)
    found, error = _effective_dimension(tokens)
    truth = variances.sum() ** 2 / (variances**2).sum()
    assert abs(found - truth) < 4 * error
    assert error < 0.1


def test_ragged_sequences_and_any_labels() -> None:
    rng = np.random.default_rng(5)
    drawn = draw("sparse")
    X = [rows[: rng.integers(12, 21)] for rows in drawn.X]
    found = diagnose(X, np.where(drawn.y > 0, "fault", "fine"), splits=1)
    assert 12 < found.length < 20
    assert found.signal.strength == pytest.approx(5, abs=0.6)


def test_text_record_figure_and_progress() -> None:
    found = diagnosed("sparse")
    text = str(found)
    assert "300 sequences of 20 tokens in 24 dimensions" in text
    assert "strength" in text
    flat = found.to_dict()
    assert flat["strength"] == found.signal.strength
    assert flat["strength_uncertainty"] == found.signal.uncertainty["strength"]
    assert flat["verdict"] == "attention pays"
    rows = {row["classifier"]: row for row in found.comparison.to_rows()}
    assert flat["attention_error"] == rows["attention"]["error"]
    assert flat["attention_limit"] == found.limits["attention"]
    # What limits it is announced where it follows.
    announced = found.findings[0].next_step == "use it, and read on"
    assert announced == (len(found.findings) > 1)
    assert "cannot say" in str(diagnosed("nothing"))
    figure = found.plot()
    assert [axes.get_xlabel() != "" for axes in figure.axes] == [True, True]
    calls: list[tuple[int, int]] = []
    drawn = draw("nothing")
    diagnose(drawn.X, drawn.y, splits=1, progress=lambda *counts: calls.append(counts))
    assert calls == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": np.arange(400) % 3}, "classes of y = .* two classes"),
        ({"y": np.arange(400) < 10}, "samples of the rarer class = 10 .* at least 20"),
        ({"y": np.zeros(400)}, "y of one class"),
        ({"X": np.ones((400, 3))}, "tokens of a sequence = 1"),
        ({"X": np.full((400, 3, 2), np.nan)}, "sample 0 = 'NaN or inf'"),
        ({"X": np.ones((400, 3, 2))}, "X = 'the same token everywhere'"),
        ({"y": np.linspace(0, 1, 400)}, "labels of classes .Unknown label type"),
        ({"splits": 0}, "splits = 0"),
        ({"attention": PooledClassifier()}, "one with attention weights"),
    ],
)
def test_bad_input_is_refused_by_name(change: dict[str, Any], message: str) -> None:
    drawn = draw("nothing")
    arguments = {"X": drawn.X, "y": drawn.y, **change}
    with pytest.raises(ParameterError, match=message):
        diagnose(arguments.pop("X"), arguments.pop("y"), **arguments)
