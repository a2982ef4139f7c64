"""The classifiers as scikit-learn sees them."""

import pickle
import warnings
from typing import Any

import numpy as np
import pytest
from bags import equal_bags, make_bags
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.kernel_approximation import Nystroem
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from sparsetoken.estimators import (
    AttentionClassifier,
    AttentionRegressor,
    ElementwiseAttentionClassifier,
    PooledClassifier,
    TokenWise,
    VectorisedClassifier,
    mask_tokens,
    sequences,
)

EVERY = [
    AttentionClassifier(),
    AttentionClassifier(heads=2, refine=False, split=0.5, loss="squared_hinge"),
    AttentionClassifier(loss="hinge", refine=False),
    ElementwiseAttentionClassifier(),
    PooledClassifier(),
    PooledClassifier(pooling="max", loss="square"),
    VectorisedClassifier(),
]
# Checks that scikit-learn leaves out when an optional library is missing; nothing else may be.
MAY_BE_LEFT_OUT = {
    "check_sample_weights_pandas_series",
    "check_classifier_data_not_an_array",
    "check_array_api_input",
    "check_transformer_data_not_an_array",
}


@pytest.mark.parametrize("estimator", [*EVERY, TokenWise(StandardScaler())], ids=repr)
def test_check_estimator_in_full(estimator: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn's own checks warn
        results = check_estimator(estimator, on_skip=None)
    left_out = {result["check_name"] for result in results if result["status"] == "skipped"}
    assert left_out <= MAY_BE_LEFT_OUT
    assert not [result["check_name"] for result in results if result["status"] == "xfail"]
    assert len(results) > 40


def test_rows_of_several_tokens_are_sequences() -> None:
    X, y, _ = equal_bags()
    flat = X.reshape(len(X), -1)
    deep = AttentionClassifier(random_state=0).fit(X, y)
    wide = AttentionClassifier(length=X.shape[1], random_state=0).fit(flat, y)
    np.testing.assert_array_equal(wide.decision_function(flat), deep.decision_function(X))
    assert wide.n_features_in_ == flat.shape[1]
    np.testing.assert_array_equal(wide.attention(flat), deep.attention(X))


@pytest.mark.parametrize("form", ["list", "masked", "array"])
def test_pipeline_grid_search_and_cross_validation(form: str) -> None:
    bags = make_bags(lengths=(6, 6) if form == "array" else (3, 9))
    X: Any = bags.X
    if form == "masked":
        X = mask_tokens(*bags.padded)
    elif form == "array":
        X = np.stack(bags.X)
    pipeline = make_pipeline(
        TokenWise(StandardScaler()), TokenWise(PCA(5)), AttentionClassifier(random_state=0)
    )
    scores = cross_val_score(pipeline, X, bags.y, cv=3)
    assert scores.mean() > 0.9
    search = GridSearchCV(
        pipeline,
        {"attentionclassifier__ridge": [1e-3, 1e-1], "tokenwise-2__transformer__n_components": [5]},
        cv=3,
    ).fit(X, bags.y)
    assert search.best_score_ > 0.9
    assert search.best_estimator_.predict(X).shape == bags.y.shape


def test_a_grid_may_cross_parameters_of_which_one_leaves_the_other_no_say() -> None:
    X, y, _ = equal_bags(count=60)
    grid = {"refine": [True, False], "tied": [True, False], "ridge": [0.1], "sharpness": [2.0]}
    search = GridSearchCV(AttentionClassifier(), grid, cv=2).fit(X, y)
    untouched = [
        score
        for score, one in zip(
            search.cv_results_["mean_test_score"], search.cv_results_["params"], strict=True
        )
        if not one["refine"]
    ]
    assert len(untouched) == 2
    assert untouched[0] == untouched[1]
    assert "Without refinement it has no say" in (AttentionClassifier.__doc__ or "")


def test_calibration() -> None:
    bags = make_bags()
    model = AttentionClassifier(loss="squared_hinge", random_state=0)
    assert not hasattr(model, "predict_proba")
    calibrated = CalibratedClassifierCV(model, cv=3).fit(bags.X, bags.y)
    probabilities = calibrated.predict_proba(bags.X)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    assert np.mean((probabilities[:, 1] > 0.5) == bags.y) > 0.9


@pytest.mark.parametrize("estimator", EVERY, ids=repr)
def test_clone_and_pickle_keep_everything(estimator: Any) -> None:
    X, y, _ = equal_bags(count=60)
    copy = clone(estimator)
    assert copy.get_params() == estimator.get_params()
    fitted = copy.set_params(**{"random_state": 0} if hasattr(copy, "random_state") else {}).fit(
        X, y
    )
    restored = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(restored.decision_function(X), fitted.decision_function(X))


def test_tokenwise_keeps_form_and_equals_the_transformer_on_rows() -> None:
    bags = make_bags()
    rows = np.concatenate(bags.X)
    expected = PCA(3).fit(rows).transform(rows)
    as_list = TokenWise(PCA(3)).fit_transform(bags.X)
    assert [len(bag) for bag in as_list] == [len(bag) for bag in bags.X]
    np.testing.assert_allclose(np.concatenate(as_list), expected)
    array, mask = bags.padded
    masked = TokenWise(PCA(3)).fit_transform(mask_tokens(array, mask))
    np.testing.assert_array_equal(~np.ma.getmaskarray(masked)[:, :, 0], mask)
    np.testing.assert_allclose(masked.data[mask], expected)
    also = TokenWise(PCA(3)).fit(array, mask=mask).transform(array, mask=mask)
    np.testing.assert_allclose(also.data[mask], expected)


def test_tokenwise_transforms_block_by_block(monkeypatch: pytest.MonkeyPatch) -> None:
    bags = make_bags()
    lifted = TokenWise(PCA(3)).fit(bags.X)
    at_once = np.concatenate(lifted.transform(bags.X))
    monkeypatch.setattr(sequences, "BLOCK_BYTES", 500)
    assert len(list(sequences.as_sequences(bags.X).blocks())) > 5
    np.testing.assert_allclose(np.concatenate(lifted.transform(bags.X)), at_once)


def test_tokenwise_fits_on_a_sample_of_the_tokens() -> None:
    bags = make_bags()
    lifted = TokenWise(Nystroem(n_components=7, random_state=0), max_tokens=50, random_state=1)
    assert lifted.fit_transform(bags.X)[0].shape[1] == 7
    tokens = {tuple(token) for bag in bags.X for token in bag}
    sampled = TokenWise(StandardScaler(), max_tokens=50, random_state=1).fit(bags.X)
    assert sampled.transformer_.n_samples_seen_ == 50
    assert {tuple(row) for row in lifted.transformer_.components_} <= tokens


@pytest.mark.parametrize("model", [AttentionClassifier(), AttentionRegressor()])
def test_what_a_fit_finds_is_not_there_before(model: Any) -> None:
    found = [name for name in dir(type(model)) if name.endswith("_") and not name.startswith("_")]
    assert found
    for name in found:
        with pytest.raises(NotFittedError):
            getattr(model, name)
