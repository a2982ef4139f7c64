"""compare() and the metrics."""

import numpy as np
import pytest
from bags import equal_bags, make_bags
from matplotlib.figure import Figure
from sklearn.model_selection import ShuffleSplit
from sklearn.preprocessing import StandardScaler

from sparsetoken import ParameterError
from sparsetoken.estimators import (
    AttentionClassifier,
    PooledClassifier,
    TokenWise,
    compare,
    localisation_score,
    mask_tokens,
)
from sparsetoken.estimators.metrics import concentration

QUICK = {"attention": AttentionClassifier(tied=True, sharpness=2.0, max_iter=20)}


def test_attention_pays_where_the_signal_is_sparse() -> None:
    X, y, _ = equal_bags(length=20, strength=5.0)
    found = compare(X, y, cv=4, classifiers=QUICK)
    assert [row.name for row in found.rows] == ["pooled", "max-pooled", "vectorised", "attention"]
    pooled = found.differences[0]
    assert pooled.difference < -2 * pooled.standard_error
    assert found.attended_tokens < 6
    assert found.sharpness > 1
    assert "attention" in str(found)
    assert found.table[0]["attention_minus_it"] == pooled.difference
    assert found.table[-1]["attention_minus_it"] is None


def test_attention_does_not_pay_where_all_tokens_carry_the_signal() -> None:
    rng = np.random.default_rng(0)
    y = np.arange(120) % 2
    X = rng.standard_normal((120, 6, 4)) + 0.4 * y[:, None, None]
    found = compare(X, y, cv=3, repeats=1)
    assert not found.advice.startswith("Attention pays")


def test_advice_names_the_best_rival() -> None:
    X, y, _ = equal_bags(length=20, strength=5.0)
    never = {"max-pooled": PooledClassifier(ridge=1e6), "vectorised": PooledClassifier(ridge=1e6)}
    found = compare(X, y, cv=4, classifiers=QUICK | never)
    assert found.advice.startswith("Attention pays: its error is")
    assert "below that of pooled" in found.advice
    blind = {"attention": AttentionClassifier(refine=False, sharpness=0.0, ridge=1e6)}
    worse = compare(X, y, cv=4, classifiers=blind)
    assert worse.advice.startswith("Attention does not pay")


def test_standard_errors_are_those_of_nadeau_and_bengio() -> None:
    X, y, _ = equal_bags(count=60)
    split = ShuffleSplit(n_splits=5, test_size=0.25, random_state=0)
    found = compare(X, y, cv=split, classifiers=QUICK)
    for row in found.rows:
        assert len(row.errors) == 5
        expected = np.sqrt((1 / 5 + 15 / 45) * np.var(row.errors, ddof=1))
        assert row.standard_error == pytest.approx(expected)
    gaps = found.rows[-1].errors - found.rows[0].errors
    expected = np.sqrt((1 / 5 + 15 / 45) * np.var(gaps, ddof=1))
    assert found.differences[0].standard_error == pytest.approx(expected)


@pytest.mark.parametrize("form", ["list", "masked"])
def test_ragged_input_and_transformer(form: str) -> None:
    bags = make_bags()
    X = bags.X if form == "list" else mask_tokens(*bags.padded)
    found = compare(
        X, bags.y, cv=3, repeats=1, transformer=TokenWise(StandardScaler()), classifiers=QUICK
    )
    assert "vectorised" not in [row.name for row in found.rows]
    assert found.mean_length == pytest.approx(np.mean([len(bag) for bag in bags.X]))
    for example in found.examples:
        assert len(example.attention) == len(bags.X[example.row])
        assert example.attention.sum() == pytest.approx(1)
        assert example.label == bags.y[example.row]


def test_plot_shows_every_classifier_and_the_attention() -> None:
    bags = make_bags()
    found = compare(bags.X, bags.y, cv=2, repeats=1, classifiers=QUICK)
    for figure in (found.plot(), found.plot(Figure())):
        errors, attention, _ = figure.axes
        assert [text.get_text() for text in errors.get_yticklabels()] == [
            r.name for r in found.rows
        ]
        image = attention.images[0].get_array()
        assert image.shape == (12, max(len(example.attention) for example in found.examples))
        np.testing.assert_allclose(image.filled(0).sum(axis=1), 1)


def test_bad_requests() -> None:
    X, y, _ = equal_bags(count=20)
    with pytest.raises(ParameterError, match="attention weights"):
        compare(X, y, classifiers={"attention": PooledClassifier()})
    with pytest.raises(ParameterError, match="cv = 1"):
        compare(X, y, cv=1)
    with pytest.raises(ParameterError, match="two folds"):
        compare(X, y, cv=ShuffleSplit(n_splits=1))


def test_localisation_score_by_hand() -> None:
    attention = [[0.1, 0.7, 0.2], [0.5, 0.2, 0.3], [1.0], [0.6, 0.4]]
    assert localisation_score(attention, [1, 2, -1, 1]) == pytest.approx(1 / 3)
    assert localisation_score(attention, [1, 2, -1, 1], k=2) == 1.0
    assert localisation_score(attention, [[0, 1], [1, 2], None, []]) == 0.5
    assert localisation_score(np.array([[0.1, 0.9], [0.9, 0.1]]), np.array([0, 0])) == 0.5


def test_localisation_score_refuses_nonsense() -> None:
    with pytest.raises(ParameterError, match="positions of sample 1"):
        localisation_score([[1.0], [0.5, 0.5]], [0, 2])
    with pytest.raises(ParameterError, match="length of positions"):
        localisation_score([[1.0]], [0, 1])
    with pytest.raises(ParameterError, match="in some sequence"):
        localisation_score([[1.0]], [-1])
    with pytest.raises(ParameterError, match="k = 0"):
        localisation_score([[1.0]], [0], k=0)


def test_concentration_counts_tokens() -> None:
    np.testing.assert_allclose(concentration([[1.0, 0.0], [0.25] * 4]), [1, 4])


def test_a_sample_that_is_not_finite_has_the_number_that_the_caller_knows() -> None:
    X = np.random.default_rng(0).standard_normal((60, 4, 3))
    X[50, 1, 1] = np.nan
    with pytest.raises(ParameterError, match="sample 50 "):
        compare(X, np.arange(60) % 2)
