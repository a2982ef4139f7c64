"""The family that reads maxima and minima of coordinates beside the mean."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparsetoken import AttentionClassifier, ElementwiseAttentionClassifier, PooledClassifier
from sparsetoken.arrays import Array


def bags_of_many_signs(
    count: int = 200, seed: int = 0, size: float = 7.0, ways: tuple[int, ...] = (-1, 1)
) -> tuple[Array, Array]:
    """Positive bags hold one token far out along one of eight axes, either way: no query finds all."""
    rng = np.random.default_rng(seed)
    X, y = rng.standard_normal((count, 8, 8)), rng.permutation(np.arange(count) % 2)
    rows = np.flatnonzero(y)
    far = size * rng.choice(ways, len(rows))
    X[rows, rng.integers(0, 8, len(rows)), rng.integers(0, 8, len(rows))] += far
    return X, y


@pytest.fixture(scope="module", params=["two classes", "whitened, two heads"])
def fitted(request: pytest.FixtureRequest) -> tuple[Any, Array, Array]:
    X, y = bags_of_many_signs()
    options: dict[str, Any] = {"whiten": False}
    if request.param != "two classes":
        options = {"whiten": True, "heads": 2}
    return AttentionClassifier(**options).fit(X, y), X, y


def test_extremes_are_chosen_where_many_axes_carry_the_signal(fitted: Any) -> None:
    model, X, y = fitted
    assert model.family_ == "extremes"
    other, labels = bags_of_many_signs(count=1000, seed=1)
    # 1,000 test bags: a standard error of 0.013. Here 0.86, and 0.60 without extremes.
    without = AttentionClassifier(refine=False, sharpness=2.0).fit(X, y)
    assert model.score(other, labels) > without.score(other, labels) + 0.1


def test_decisions_are_those_of_the_pooled_classifier() -> None:
    X, y = bags_of_many_signs()
    model = AttentionClassifier(whiten=False).fit(X, y)
    pooled = PooledClassifier(pooling="mean|max|min", ridge=model.ridge_).fit(X, y)
    np.testing.assert_allclose(
        model.decision_function(X), pooled.decision_function(X), rtol=1e-5, atol=1e-6
    )


def test_evidence_is_what_the_decision_loses_without_the_token(fitted: Any) -> None:
    model, X, _ = fitted
    X = X[:20].copy()
    X[3, 1] = X[3, 0]  # a tie: neither token is needed for an extreme
    whole, evidence = model.decision_function(X), model.evidence(X)
    for token in range(X.shape[1]):
        without = model.decision_function(np.delete(X, token, axis=1))
        np.testing.assert_allclose(evidence[:, token], whole - without, rtol=1e-6, atol=1e-8)
    alone = model.evidence(X[:, :1])[:, 0]
    np.testing.assert_allclose(alone, model.decision_function(X[:, :1]) - model.intercept_[0])
    # One token is scored by what it would be alone, in units of the vector that reads it.
    scores = model.token_scores(X[:, :1])[:, 0]
    assert np.corrcoef(scores, alone)[0, 1] > 1 - 1e-9


def test_attention_is_the_share_of_what_each_token_pulls(fitted: Any) -> None:
    model, X, y = fitted
    attention = model.attention(X)
    np.testing.assert_allclose(attention.sum(axis=1), 1.0)
    extremes, mean = np.abs(model.extremes_[0]), np.abs(model.coef_[0]).sum()
    standard = (X[0] - model.mean_) / model.scale_
    expected = np.full(8, mean / 8)
    for axis, values in enumerate(standard.T):
        expected[values.argmax()] += extremes[0, axis] * (values.max() - values.mean())
        expected[values.argmin()] += extremes[1, axis] * (values.mean() - values.min())
    np.testing.assert_allclose(attention[0], expected / expected.sum())
    # The informative token is found in 0.83 of the positive bags; 0.125 by chance.
    far = np.abs(X).max(axis=2).argmax(axis=1)
    assert np.mean(model.locate(X)[y == 1, 0] == far[y == 1]) > 0.75


def test_export_and_transform_hold_the_extremes(fitted: Any, tmp_path: Path) -> None:
    model, X, _ = fitted
    arrays = model.export(tmp_path / "probe.npz")
    values = X @ arrays["weights"][0].T + arrays["weight_offsets"][0]
    by_hand = values.mean(axis=1).sum(axis=1) + arrays["bias"][0]
    by_hand += X.max(axis=1) @ arrays["max_weights"][0] + X.min(axis=1) @ arrays["min_weights"][0]
    np.testing.assert_allclose(by_hand, model.decision_function(X), rtol=1e-9, atol=1e-9)
    features = model.transform(X)
    coefficients = np.concatenate([model.coef_.ravel(), model.extremes_.ravel()])
    np.testing.assert_allclose(
        features @ coefficients + model.intercept_[0], model.decision_function(X), atol=1e-9
    )
    reference = pytest.importorskip("onnx.reference")
    model.export(tmp_path / "probe.onnx")
    run = reference.ReferenceEvaluator(str(tmp_path / "probe.onnx"))
    decision, _ = run.run(None, {"tokens": X[0].astype(np.float32)})
    np.testing.assert_allclose(decision, model.decision_function(X[:1]), rtol=1e-3, atol=1e-3)


def test_only_the_softmax_holds_extremes() -> None:
    X, y = bags_of_many_signs(count=100)
    model = ElementwiseAttentionClassifier().fit(X, y)
    assert "extremes" not in [one["family"] for one in model.candidates_]
    assert model.extremes_ is None


@pytest.mark.parametrize(("sign", "family"), [(1, "maxima"), (-1, "minima")])
def test_maxima_or_minima_alone_are_max_or_min_pooling(sign: int, family: str) -> None:
    X, y = bags_of_many_signs(size=6.0, ways=(1,))
    X = sign * X
    model = AttentionClassifier(whiten=False).fit(X, y)
    assert model.family_ == family
    pooling = "max" if sign > 0 else "min"
    pooled = PooledClassifier(pooling=pooling, ridge=model.ridge_).fit(X, y)
    np.testing.assert_allclose(
        model.decision_function(X), pooled.decision_function(X), rtol=1e-5, atol=1e-6
    )
    silent = model.extremes_[0, 0 if sign < 0 else 1]
    assert not np.any(silent), "the other extreme is not read"
    assert not np.any(model.coef_), "nor is the mean"
    without = model.decision_function(np.delete(X[:5], 0, axis=1))
    evidence = model.evidence(X[:5])[:, 0]
    np.testing.assert_allclose(evidence, model.decision_function(X[:5]) - without, atol=1e-9)
    assert np.allclose(model.attention(X).sum(axis=1), 1.0)
