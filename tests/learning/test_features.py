from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsetoken import ParameterError, features
from sparsetoken.arrays import Array
from sparsetoken.learning import features as module
from sparsetoken.learning.features import (
    FEATURE_MAPS,
    NONLINEARITIES,
    FeatureMap,
    attention_weights,
    blocks,
)

every_classifier = pytest.mark.parametrize("classifier", FEATURE_MAPS)


@pytest.fixture
def X() -> Array:
    return np.random.default_rng(0).standard_normal((7, 5, 3))


@pytest.fixture
def query() -> Array:
    return np.array([0.5, -1.0, 2.0])


def plain(X: Array, classifier: str, query: Array, beta: float, nonlinearity: str) -> Array:
    """Write the definitions out, one sequence and one token at a time."""
    rows = []
    for sequence in X:
        scores = [beta * float(np.dot(token, query)) for token in sequence]
        if classifier == "vectorised":
            rows.append(np.concatenate(list(sequence)))
            continue
        if classifier == "pooled":
            weights = [1 / len(sequence)] * len(sequence)
        elif classifier == "attention":
            total = sum(np.exp(score) for score in scores)
            weights = [np.exp(score) / total for score in scores]
        else:
            sigma = {
                "sigmoid": lambda s: 1 / (1 + np.exp(-s)),
                "tanh": np.tanh,
                "linear": lambda s: s,
                "exp": np.exp,
            }[nonlinearity]
            weights = [sigma(score) / len(sequence) for score in scores]
        rows.append(sum(w * token for w, token in zip(weights, sequence, strict=True)))
    return np.array(rows)


def mapped(X: Array, classifier: str, query: Array, **options: Any) -> Array:
    """Return the features, with the query where the classifier has one."""
    has_query = classifier in ("attention", "elementwise")
    return features(X, classifier, query=query if has_query else None, **options)


@pytest.mark.parametrize(
    ("classifier", "nonlinearity"),
    [*((name, "sigmoid") for name in FEATURE_MAPS if name != "elementwise")]
    + [("elementwise", name) for name in sorted(NONLINEARITIES)],
)
def test_each_map_is_its_definition(
    X: Array, query: Array, classifier: str, nonlinearity: str
) -> None:
    beta = 0.7 if classifier in ("attention", "elementwise") else 1.0
    found = mapped(X, classifier, query, inverse_temperature=beta, nonlinearity=nonlinearity)
    np.testing.assert_allclose(
        found, plain(X, classifier, query, 0.7, nonlinearity), rtol=1e-13, atol=1e-14
    )


def test_without_a_query_attention_pools(X: Array) -> None:
    zero = np.zeros(3)
    pooled = X.mean(axis=1)
    np.testing.assert_allclose(features(X, "attention", query=zero), pooled, rtol=1e-14, atol=1e-16)
    at_zero = {"sigmoid": 0.5, "tanh": 0.0, "linear": 0.0, "exp": 1.0}
    for nonlinearity, weight in at_zero.items():
        found = features(X, "elementwise", query=zero, nonlinearity=nonlinearity)
        np.testing.assert_allclose(found, weight * pooled, rtol=1e-14, atol=1e-16)


@pytest.mark.parametrize("sharpness", [1e4, 1e8, 1e300])
def test_sharp_attention_picks_the_token_with_the_highest_score(
    X: Array, query: Array, sharpness: float
) -> None:
    best = X[np.arange(len(X)), np.argmax(X @ query, axis=1)]
    np.testing.assert_allclose(
        features(X, "attention", query=query, inverse_temperature=sharpness), best, rtol=1e-12
    )
    weights = attention_weights(X, query, sharpness)
    np.testing.assert_allclose(weights.sum(axis=1), 1.0, rtol=1e-14)


def test_bounded_and_linear_nonlinearities_at_a_high_sharpness(X: Array, query: Array) -> None:
    scores = X @ query
    sharp = 1e4
    for nonlinearity, weights in {
        "sigmoid": scores > 0,
        "tanh": np.sign(scores),
        "linear": sharp * scores,
    }.items():
        found = features(
            X, "elementwise", query=query, inverse_temperature=sharp, nonlinearity=nonlinearity
        )
        expected = (weights[:, :, None] * X).mean(axis=1)
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


def test_what_cannot_be_represented_is_said(X: Array, query: Array) -> None:
    with pytest.raises(ParameterError, match=r"inverse_temperature = 10000.0 .*exp\(β X q\) is"):
        features(X, "elementwise", query=query, inverse_temperature=1e4, nonlinearity="exp")
    with pytest.raises(ParameterError, match="a value at which β X q is finite"):
        features(X * 1e10, "attention", query=query, inverse_temperature=1e300)


@given(st.integers(0, 2**32 - 1), st.floats(-1e4, 1e4))
def test_attention_does_not_feel_a_common_shift_of_the_scores(seed: int, shift: float) -> None:
    rng = np.random.default_rng(seed)
    X, query = rng.standard_normal((3, 4, 2)), np.array([1.0, 0.0])
    shifted = X.copy()
    shifted[:, :, 0] += shift
    np.testing.assert_allclose(
        attention_weights(shifted, query, 1.0), attention_weights(X, query, 1.0), rtol=1e-9
    )


@every_classifier
def test_many_blocks_equal_one(
    X: Array, query: Array, classifier: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = mapped(X, classifier, query)
    monkeypatch.setattr(module.blocks, "__defaults__", (2 * X[:1].nbytes,))
    assert len(list(blocks(X))) == 4
    np.testing.assert_allclose(mapped(X, classifier, query), whole, rtol=1e-14, atol=1e-16)


def test_blocks_cover_all_samples_once_and_keep_to_their_size(X: Array) -> None:
    for block_bytes in (1, X[:3].nbytes, 10**9):
        parts = list(blocks(X, block_bytes))
        np.testing.assert_array_equal(np.concatenate([X[part] for part in parts]), X)
        assert all(X[part].nbytes <= max(block_bytes, X[:1].nbytes) for part in parts)


@every_classifier
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_precision_of_the_data_is_kept(
    X: Array, query: Array, classifier: str, dtype: type[np.floating]
) -> None:
    found = mapped(X.astype(dtype), classifier, query)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, mapped(X, classifier, query), rtol=1e-5, atol=1e-6)


@every_classifier
@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.float16, bool])
def test_other_numbers_become_float64(query: Array, classifier: str, dtype: type) -> None:
    X = np.random.default_rng(1).integers(0, 2, (4, 5, 3)).astype(dtype)
    found = mapped(X, classifier, query)
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, mapped(X.astype(float), classifier, query))


def test_bad_input_is_refused_by_name(X: Array, query: Array) -> None:
    with pytest.raises(ParameterError, match=r"classifier = 'mlp' .* 'attention', 'elementwise'"):
        features(X, "mlp")
    with pytest.raises(ParameterError, match="nonlinearity = 'relu'"):
        features(X, "elementwise", query=query, nonlinearity="relu")
    with pytest.raises(ParameterError, match="nonlinearity = 'tanh'"):
        features(X, "attention", query=query, nonlinearity="tanh")
    for classifier in ("pooled", "vectorised"):
        with pytest.raises(ParameterError, match=f"query .* None for '{classifier}'"):
            features(X, classifier, query=query)
    for bad_query in (None, query[:2], query[:, None]):
        with pytest.raises(ParameterError, match=r"shape of query = .*expected \(3,\)"):
            features(X, "attention", query=bad_query)
    for bad_X in (X[0], X[:, :0], X[:, :, :0]):
        with pytest.raises(ParameterError, match=r"shape of X = .*samples, tokens, dimension"):
            features(bad_X, "pooled")
    for bad_type in (X + 0j, X.astype(str)):
        with pytest.raises(ParameterError, match=r"type of X = .*real numbers"):
            features(bad_type, "pooled")


def test_no_samples_give_no_features(query: Array) -> None:
    assert features(np.empty((0, 5, 3)), "attention", query=query).shape == (0, 3)
    assert features(np.empty((0, 5, 3)), "vectorised").shape == (0, 15)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (["a", "b", "c"], "type of query = 'str"),
        ([1j, 0, 0], "type of query = 'complex128'"),
        ([[1], [1, 2], 3], "query = .* one length"),
        ([1.0, np.nan, 0.0], "query = 'NaN or infinity'"),
    ],
)
def test_a_query_that_is_no_vector_of_numbers_is_refused(
    X: Array, query: object, message: str
) -> None:
    with pytest.raises(ParameterError, match=message):
        features(X, "attention", query=query)


@pytest.mark.parametrize("missing", [np.nan, np.inf])
def test_missing_numbers_in_tokens_are_not_blamed_on_the_temperature(
    X: Array, query: Array, missing: float
) -> None:
    damaged = X.copy()
    damaged[-1, 0, 0] = missing
    for classifier in ("attention", "elementwise"):
        with pytest.raises(ParameterError, match="X = 'NaN or infinity'"):
            features(damaged, classifier, query=query)


@pytest.mark.parametrize("classifier", ["pooled", "vectorised"])
def test_an_inverse_temperature_of_no_scores_is_refused(X: Array, classifier: str) -> None:
    with pytest.raises(ParameterError, match=r"inverse_temperature = 0\.7 .* has no scores"):
        features(X, classifier, inverse_temperature=0.7)


def test_a_registered_map_may_have_any_width_and_takes_its_query(
    X: Array, query: Array, monkeypatch: pytest.MonkeyPatch
) -> None:
    def corners(x: Array) -> Array:
        return np.concatenate([x[:, 0], x[:, -1]], axis=1)

    def sharper(x: Array, given: Array, inverse_temperature: float) -> Array:
        return module.attention_features(x, given, 2 * inverse_temperature)

    monkeypatch.setitem(FEATURE_MAPS, "corners", FeatureMap(corners))
    monkeypatch.setitem(FEATURE_MAPS, "sharper", FeatureMap(sharper, takes_query=True))
    monkeypatch.setattr(module.blocks, "__defaults__", (2 * X[:1].nbytes,))
    np.testing.assert_array_equal(features(X, "corners"), corners(X))
    assert features(X[:0], "corners").shape == (0, 2 * X.shape[2])
    twice = features(X, "attention", query=query, inverse_temperature=1.4)
    found = features(X, "sharper", query=query, inverse_temperature=0.7)
    np.testing.assert_allclose(found, twice, rtol=1e-14)
    with pytest.raises(ParameterError, match="shape of query"):
        features(X, "sharper")
    with pytest.raises(ParameterError, match=r"query .* 'corners', which has no query"):
        features(X, "corners", query=query)
    with pytest.raises(ParameterError, match=r"classifier = 'mlp' .*'corners'.*'sharper'"):
        features(X, "mlp")
