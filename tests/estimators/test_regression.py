"""A real target by labels whose weights stand for it."""

import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.model_selection import cross_val_score
from sklearn.multioutput import MultiOutputClassifier, MultiOutputRegressor
from sklearn.utils.estimator_checks import check_estimator

from sparsetoken import AttentionClassifier, AttentionRegressor
from sparsetoken.arrays import Array
from sparsetoken.validation import ParameterError


def marked(count: int = 240, length: int = 6, seed: int = 0) -> tuple[Array, Array, Array]:
    """One token a sequence is marked along axis 0, and its axis 1 is what the target says."""
    rng = np.random.default_rng(seed)
    X, places = rng.standard_normal((count, length, 10)), rng.integers(length, size=count)
    said = rng.standard_normal(count)
    X[np.arange(count), places, 0] += 6
    X[np.arange(count), places, 1] = said
    return X, 40 + 3 * said + 0.3 * rng.standard_normal(count), places


def test_target_of_one_token_is_found() -> None:
    X, y, _ = marked()
    other, targets, where = marked(seed=1)
    model = AttentionRegressor().fit(X, y)
    assert model.classifier_.family_ in ("two-step", "free")
    # The noise leaves 0.99; the mean of the tokens, which dilutes the message to a sixth, has 0.08.
    assert model.score(other, targets) > 0.95
    assert np.mean(model.locate(other)[:, 0] == where) > 0.95
    np.testing.assert_allclose(model.attention(other).sum(axis=1), 1)
    without = model.predict(np.delete(other[:9], 2, axis=1))
    np.testing.assert_allclose(
        model.evidence(other[:9])[:, 2], model.predict(other[:9]) - without, atol=1e-8
    )
    assert isinstance(model.evidence(list(other[:2])), list)


def test_without_attention_it_is_ridge_regression() -> None:
    X, y, _ = marked()
    features = X.mean(axis=1)
    features = (features - features.mean(axis=0)) / features.std(axis=0)
    expected = Ridge(alpha=0.3 * len(y)).fit(features, y).predict(features)
    model = AttentionRegressor(sharpness=0, refine=False, ridge=0.3).fit(X, y)
    np.testing.assert_allclose(model.predict(X), expected, rtol=1e-7)


@pytest.mark.parametrize("outlier", [False, True])
def test_units_of_the_target_do_not_matter(outlier: bool) -> None:
    X, y, _ = marked(count=120)
    if outlier:  # the others are then a hundredth of the range: tolerances must follow
        y = y.copy()
        y[0] += 300.0
    model = AttentionRegressor(refine=True, tied=False, ridge=0.01).fit(X, y)
    moved = AttentionRegressor(refine=True, tied=False, ridge=0.01).fit(X, -1e4 * y + 5)
    np.testing.assert_allclose(
        moved.predict(X), -1e4 * model.predict(X) + 5, atol=1e4 * 0.02 * np.std(y)
    )


def test_repeating_samples_is_weighting_them() -> None:
    X, y, _ = marked(count=90)
    weights = np.random.default_rng(2).integers(0, 3, size=len(y))
    copies = np.repeat(np.arange(len(y)), weights)
    weighted = AttentionRegressor().fit(X, y, sample_weight=weights)
    repeated = AttentionRegressor().fit(X[copies], y[copies])
    assert weighted.classifier_.family_ == repeated.classifier_.family_
    np.testing.assert_allclose(weighted.predict(X), repeated.predict(X), rtol=1e-4)


def test_check_estimator_in_full() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn's own checks warn
        results = check_estimator(AttentionRegressor(refine=False), on_skip=None)
    assert not [
        r for r in results if r["status"] != "passed" and "array_api" not in r["check_name"]
    ]
    assert len(results) > 40


def test_bad_targets_are_named() -> None:
    X, y, _ = marked(count=20)
    with pytest.raises(ParameterError, match="length of y"):
        AttentionRegressor().fit(X, y[:-1])
    with pytest.raises(ValueError, match="NaN"):
        AttentionRegressor().fit(X, np.where(np.arange(20) == 3, np.nan, y))
    with pytest.raises(ParameterError, match=r"sample_weight = 0\.0 is not valid"):
        AttentionRegressor().fit(X, y, sample_weight=np.zeros(20))
    with pytest.raises(ParameterError, match="heads"):
        AttentionRegressor(heads=0).fit(X, y)
    constant = AttentionRegressor().fit(X, np.full(20, 3.0))
    np.testing.assert_allclose(constant.predict(X), 3.0)


@pytest.mark.parametrize("ragged", [False, True])
def test_several_labels_or_targets_at_once(ragged: bool) -> None:
    X, y, _ = marked()
    sequences: Any = [x[: 6 - i % 2] for i, x in enumerate(X)] if ragged else X
    labels = np.column_stack([y > 40, X[:, :, 2].mean(axis=1) > 0]).astype(int)
    both = MultiOutputClassifier(AttentionClassifier()).fit(sequences, labels)
    assert both.predict(sequences).shape == labels.shape
    assert np.all(np.mean(both.predict(sequences) == labels, axis=0) > 0.8)
    targets = np.column_stack([y, X[:, :, 2].mean(axis=1)])
    several = MultiOutputRegressor(AttentionRegressor()).fit(sequences, targets)
    assert several.score(sequences, targets) > 0.8
    assert np.mean(cross_val_score(AttentionRegressor(), sequences, y, cv=3)) > 0.7


def test_tokens_of_a_regression_stand_out_from_a_background() -> None:
    # Held-out sequences without a mark: 2,000 of 6 tokens. The count of false alarms has a standard
    # error of about √(2 · 0.1/2000) = 0.01, and 4 are accepted.
    X, y, places = marked()
    model = AttentionRegressor(refine=True, tied=False, ridge=0.01).fit(X, y)
    with pytest.raises(ParameterError, match="learn_background"):
        model.locate(X, false_alarms=0.1)
    blank, others = np.random.default_rng(8).standard_normal((2, 2000, 6, 10))
    assert model.learn_background(blank) is model
    alarms = model.locate(others, false_alarms=0.1)
    assert abs(np.mean([len(tokens) for tokens in alarms]) - 0.1) < 4 * np.sqrt(0.2 / 2000)
    found = model.locate(X, false_alarms=0.1)
    assert np.mean([at in tokens for tokens, at in zip(found, places, strict=True)]) > 0.95
    assert np.mean(model.token_scores(X).argmax(axis=1) == places) > 0.95
    np.testing.assert_array_equal(
        model.locate(X, k=2), model.classifier_.locate(X, k=2, target=1.0)
    )
