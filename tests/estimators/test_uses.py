"""What a fitted classifier is used for: other lengths, localisation, export, odd input."""

import subprocess
import sys
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bags import equal_bags, make_bags
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV
from sklearn.multioutput import MultiOutputClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sparsetoken import ParameterError, get_loss
from sparsetoken.arrays import Array
from sparsetoken.estimators import (
    AttentionClassifier,
    ElementwiseAttentionClassifier,
    PooledClassifier,
    TokenWise,
    VectorisedClassifier,
    digit_bags,
    explain,
    fitting,
    free_response_curve,
    linear,
    mask_tokens,
    plot_attention,
)
from sparsetoken.estimators.recalibration import (
    FACTORS,
    _cut,
    recalibrated_to_labels,
    recalibrated_to_rate,
)
from sparsetoken.estimators.token_evidence import Background

QUICK: dict[str, Any] = {"refine": True, "tied": True, "sharpness": 2.0, "ridge": 0.01}


@pytest.fixture(scope="module")
def fitted() -> tuple[AttentionClassifier, np.ndarray, np.ndarray, np.ndarray]:
    X, y, positions = equal_bags(count=300, length=10)
    return AttentionClassifier(**QUICK).fit(X, y), X, y, positions


def test_rare_positives_are_found_without_class_weights() -> None:
    # 1 % positives: 12 of 1,200.
    train, test = digit_bags(10, train=1200, test=1500, digit=3, positive_rate=0.01, seed=1)
    model = AttentionClassifier(refine=True, tied=True, ridge=0.01).fit(train.X, train.y)
    area = roc_auc_score(test.y, model.decision_function(test.X))
    pooled = PooledClassifier().fit(train.X, train.y)
    assert area > 0.75
    assert area > roc_auc_score(test.y, pooled.decision_function(test.X)) + 0.05


def correlated_bags(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Sixteen directions shared by all tokens are thirty times as strong as the rest."""
    X, y, _ = equal_bags(count=count, dimension=32, strength=5.0, seed=seed)
    mixing = np.random.default_rng(7).standard_normal((16, 32))
    rng = np.random.default_rng(seed + 100)
    return X + 30 * rng.standard_normal((*X.shape[:2], 16)) @ mixing / np.sqrt(16), y


def test_whitening_is_chosen_where_tokens_share_directions() -> None:
    (X, y), (Xt, yt) = correlated_bags(600, 0), correlated_bags(1000, 1)
    options: dict[str, Any] = {"refine": False, "ridge": 0.01}
    plain = AttentionClassifier(whiten=False, **options).fit(X, y)
    auto = AttentionClassifier(**options).fit(X, y)
    assert auto.whitening_ is not None
    assert plain.whitening_ is None
    assert auto.score(Xt, yt) > plain.score(Xt, yt) + 0.1
    white, labels, _ = equal_bags(count=200, dimension=32)
    assert AttentionClassifier(**options).fit(white, labels).whitening_ is None
    # The same as whitening the tokens first, but for the shrinkage.
    tokens = (X.reshape(-1, 32) - auto.mean_) / auto.scale_
    before = np.linalg.eigvalsh(tokens.T @ tokens)
    after = np.linalg.eigvalsh(auto.whitening_ @ tokens.T @ tokens @ auto.whitening_)
    assert before.max() / before.min() > 1000
    assert after.max() / after.min() < 10


def test_a_fit_that_stops_early_says_so() -> None:
    X, y, _ = equal_bags()
    with pytest.warns(ConvergenceWarning, match="max_iter = 1 ") as caught:
        AttentionClassifier(**QUICK, max_iter=1).fit(X, y)
    assert caught[0].filename == __file__  # it points at the call


def test_a_readout_that_stops_early_does_not_ask_for_steps_that_it_would_not_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fitting, "fit_readout", partial(fitting.fit_readout, max_steps=1))
    X, y, _ = equal_bags()
    with pytest.warns(ConvergenceWarning, match="raise the ridge .here 0.01.") as caught:
        AttentionClassifier(refine=False, sharpness=2.0, ridge=0.01).fit(X, y)
    assert "max_iter" not in str(caught[0].message)


@pytest.mark.parametrize("kind", [PooledClassifier, VectorisedClassifier])
def test_a_linear_readout_that_stops_early_says_so_at_the_call(
    kind: type[PooledClassifier | VectorisedClassifier], monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y, _ = equal_bags()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kind(ridge=0.01).fit(X, y)
    monkeypatch.setattr(linear, "fit_readout", partial(linear.fit_readout, max_steps=1))
    with pytest.warns(ConvergenceWarning, match="raise the ridge .here 0.01.") as caught:
        kind(ridge=0.01).fit(X, y)
    assert caught[0].filename == __file__


def test_verbose_prints(capsys: pytest.CaptureFixture[str]) -> None:
    X, y, _ = equal_bags(strength=2.0)
    AttentionClassifier(**QUICK, verbose=True, tol=1e-12).fit(X, y)
    assert "refining: 1 problems" in capsys.readouterr().out
    AttentionClassifier(refine=False, verbose=True).fit(X, y)
    assert "comparing: " in capsys.readouterr().out
    AttentionClassifier(refine=False).fit(X, y)
    assert capsys.readouterr().out == ""


def test_candidates_say_what_was_compared() -> None:
    X, y, _ = equal_bags(count=100)
    model = AttentionClassifier().fit(X, y)
    found = model.candidates_
    assert [one["family"] for one in found] == [
        "pooled",
        "maxima",
        "minima",
        "extremes",
        "two-step",
        "tied",
        "free",
    ]
    (chosen,) = [one for one in found if one["chosen"]]
    assert (chosen["family"], chosen["ridge"]) == (model.family_, model.ridge_)
    assert chosen["held_out_loss"] < found[0]["held_out_loss"]


def test_evidence_is_what_the_decision_loses_without_the_token(fitted: Any) -> None:
    model, X, _, _ = fitted
    evidence = model.evidence(X[:20])
    whole = model.decision_function(X[:20])
    for token in range(X.shape[1]):
        without = model.decision_function(np.delete(X[:20], token, axis=1))
        np.testing.assert_allclose(evidence[:, token], whole - without, rtol=1e-5, atol=1e-7)
    alone = model.evidence(X[:5, :1])
    np.testing.assert_allclose(
        alone[:, 0], model.decision_function(X[:5, :1]) - model.intercept_[0], rtol=1e-9
    )


def test_evidence_keeps_its_digits_where_one_token_has_all_of_the_weight(fitted: Any) -> None:
    model, X, _, _ = fitted
    sharp = model.with_sharpness(200.0)
    assert np.median(sharp.attention(X[:20]).max(axis=1)) == 1
    evidence, whole = sharp.evidence(X[:20]), sharp.decision_function(X[:20])
    for token in range(X.shape[1]):
        without = sharp.decision_function(np.delete(X[:20], token, axis=1))
        np.testing.assert_allclose(evidence[:, token], whole - without, rtol=1e-5, atol=1e-7)


def test_false_alarms_are_as_many_as_allowed(fitted: Any) -> None:
    # Held-out negatives: 4,000 sequences of 10 tokens; the count of false alarms has a standard
    # error of about √(allowed/4000), and 4 of them are accepted.
    model, _, _, _ = fitted
    rng = np.random.default_rng(5)
    negatives, others = rng.standard_normal((2, 4000, 10, 5))
    model.learn_background(negatives)
    for allowed in (0.02, 0.1, 1.0):
        found = model.locate(others, false_alarms=allowed)
        per_sequence = np.mean([len(tokens) for tokens in found])
        assert abs(per_sequence - allowed) < 4 * np.sqrt(2 * allowed / 4000)
    X, y, positions = equal_bags(count=400, length=10, seed=9)
    found = model.locate(X[y == 1], false_alarms=0.1)
    hits = [where in tokens for tokens, where in zip(found, positions[y == 1], strict=True)]
    assert np.mean(hits) > 0.95
    assert any(len(tokens) == 0 for tokens in model.locate(X[y == 0], false_alarms=0.1))


def test_each_class_has_a_background_of_its_own() -> None:
    # Held-out negatives: 2,000 sequences of 10 tokens. As in the test before, 4 standard errors,
    # √(2 · 0.2/2000) = 0.014 each, are accepted; the other class's background gives 0.12 and 0.33.
    rng = np.random.default_rng(6)
    X, classes = rng.standard_normal((300, 10, 5)), np.array(["none", "low", "high"] * 100)
    X[classes == "low", 0, 0] += 5
    X[classes == "high", 1] *= 4
    model = AttentionClassifier(refine=True, tied=False, ridge=0.01).fit(X, classes)
    negatives, others = rng.standard_normal((2, 2000, 10, 5))
    model.learn_background(negatives, target="low")
    with pytest.raises(ParameterError, match="target='high'"):
        model.locate(others, target="high", false_alarms=0.2)
    with pytest.raises(ParameterError, match="learn_background"):
        model.locate(others, false_alarms=0.2)
    model.learn_background(negatives, target="high").learn_background(negatives)
    for target in ("low", "high", None):
        found = model.locate(others, target=target, false_alarms=0.2)
        assert abs(np.mean([len(tokens) for tokens in found]) - 0.2) < 4 * np.sqrt(0.4 / 2000)
    with pytest.raises(ParameterError, match="learn_background"):  # another fit, other scores
        model.fit(X, classes).locate(others, target="low", false_alarms=0.2)


def test_locations_skip_padding_and_need_a_background() -> None:
    bags = make_bags(count=200)
    model = AttentionClassifier(**QUICK).fit(bags.X, bags.y)
    with pytest.raises(ParameterError, match="learn_background"):
        model.locate(bags.X, false_alarms=0.1)
    negatives = [bag for bag, label in zip(bags.X, bags.y, strict=True) if label == 0]
    model.learn_background(negatives)
    array, mask = bags.padded
    shifted = np.concatenate([np.full((len(array), 2, 5), np.nan), array], axis=1)
    there = np.concatenate([np.zeros((len(array), 2), bool), mask], axis=1)
    expected = model.locate(bags.X, false_alarms=0.5)
    for tokens, moved in zip(
        expected, model.locate(shifted, mask=there, false_alarms=0.5), strict=True
    ):
        np.testing.assert_array_equal(tokens + 2, moved)
    with pytest.raises(ParameterError, match="k = 2"):
        model.locate(bags.X, k=2, false_alarms=0.1)
    with pytest.warns(UserWarning, match="learn it from more sequences"):
        model.learn_background(negatives[:2]).locate(bags.X, false_alarms=0.01)


def test_p_values_count_the_background() -> None:
    background = Background.of(np.array([3.0, 1.0, 2.0]))
    np.testing.assert_allclose(background.p_values(np.array([0.0, 2.0, 5.0])), [1, 0.75, 0.25])


def test_free_response_by_hand() -> None:
    curve = free_response_curve([[0.9, 0.1], [0.8, 0.7], [0.3, 0.2]], [0, 1, -1])
    np.testing.assert_allclose(curve.token_recall, [0, 0.5, 0.5, 1, 1, 1, 1])
    np.testing.assert_allclose(curve.false_alarms, np.array([0, 0, 1, 1, 2, 3, 4]) / 3)
    assert curve.at(0.1) == pytest.approx(0.5)
    assert curve.plot().get_xlabel() == "false alarms per sequence"
    assert repr(curve) == "<FreeResponseCurve of 7 thresholds up to 1.33 false alarms per sequence>"
    shown = [line.split() for line in str(curve).splitlines()[1:]]
    assert shown == [["0", "0.500"], ["0.01", "0.500"], ["0.1", "0.500"], ["1", "1.000"]]
    assert curve._repr_html_() == f"<pre>{curve}</pre>"
    with pytest.raises(ParameterError, match="in some sequence"):
        free_response_curve([[0.1]], [-1])


def test_sharper_and_hard_attention(fitted: Any) -> None:
    model, X, _, _ = fitted
    np.testing.assert_array_equal(
        model.with_sharpness("trained").decision_function(X), model.decision_function(X)
    )
    hard = model.with_sharpness("hard").attention(X)
    np.testing.assert_allclose(hard.max(axis=1), 1)
    np.testing.assert_array_equal(hard.argmax(axis=1), model.attention(X).argmax(axis=1))
    sharper = model.with_sharpness(2 * model.sharpness_[0])
    np.testing.assert_allclose(sharper.sharpness_, 2 * model.sharpness_)
    np.testing.assert_allclose(sharper.queries_, 2 * model.queries_)
    np.testing.assert_allclose(model.with_sharpness(0).attention(X), 1 / X.shape[1])
    with pytest.raises(ParameterError, match="sharpness"):
        model.with_sharpness("blunt")


@pytest.mark.parametrize("known", ["labels", "rate"])
def test_recalibration_repairs_another_length(known: str) -> None:
    X, y, _ = equal_bags(count=600, length=5, strength=5.0)
    model = AttentionClassifier(refine=True, tied=True, ridge=0.01).fit(X, y)
    few, labels, _ = equal_bags(count=300, length=200, strength=5.0, seed=3)
    Xt, yt, _ = equal_bags(count=1000, length=200, strength=5.0, seed=4)
    before = model.score(Xt, yt)
    options: dict[str, Any] = {"y": labels} if known == "labels" else {"rate": 0.5}
    moved = model.recalibrate(few, **options)
    assert moved.score(Xt, yt) > before + 0.05
    assert moved.score(Xt, yt) > 0.9
    assert moved.sharpness_[0] > model.sharpness_[0], "long sequences need sharper attention"
    assert model.score(Xt, yt) == before, "the model itself stays as it is"


def test_the_cut_makes_the_fewest_errors() -> None:
    rng = np.random.default_rng(0)
    for count in (1, 2, 3, 10, 40):
        for _ in range(20):
            values = rng.integers(8, size=count) / 2.0  # with many that are equal
            labels = np.where(rng.uniform(size=count) < 0.5, 1.0, -1.0)
            tried = np.arange(-0.25, 4, 0.5)
            errors = [np.sum((values > one) != (labels > 0)) for one in tried]
            fewest, bias = _cut(values, labels)
            assert fewest == np.sum((values + bias > 0) != (labels > 0)) == min(errors)
            assert -bias not in values


def test_a_unit_of_decisions_is_no_contrast_between_the_classes() -> None:
    decisions = np.r_[-1.0, -0.5, 0.0, 2.0, 2.5, 3.5]
    sharper = {factor: decisions * factor**2 for factor in FACTORS}
    assert recalibrated_to_rate(sharper.__getitem__, 0.5) == (1.0, -1.0)
    sharper[FACTORS[-1]][3:] += 9.0  # there the two sides are farther apart for their spread
    assert recalibrated_to_rate(sharper.__getitem__, 0.5)[0] == FACTORS[-1] > 1


def test_a_long_tail_moves_the_bias_of_least_loss_and_not_that_of_fewest_errors() -> None:
    rng = np.random.default_rng(0)
    labels = np.where(np.arange(400) % 2 == 0, 1.0, -1.0)
    # Three in ten of the bags without signal have a token far out; the others are told apart.
    tails = 8 * rng.exponential(size=400) * (rng.uniform(size=400) < 0.3) * (labels < 0)
    noise = 0.03 * rng.standard_normal(400)

    def decisions(factor: float) -> Array:
        return 0.1 * labels * min(factor, 8 / factor) + noise + tails

    found = []
    for fewest in (True, False):
        factor, bias = recalibrated_to_labels(
            decisions, labels, get_loss("logistic"), fewest_errors=fewest
        )
        assert factor == pytest.approx(8**0.5)
        found.append(np.mean((decisions(factor) + bias > 0) != (labels > 0)))
    assert found[0] < 0.2  # the bags with a tail, and nothing else
    assert found[1] > 0.4


def test_of_several_classes_recalibration_has_the_least_loss() -> None:
    X, y, _ = equal_bags(count=150)
    y = y + 2 * (np.arange(150) % 3 == 0)
    model = AttentionClassifier(refine=False, sharpness=2.0, ridge=0.01).fit(X, y)
    default, loss = (model.recalibrate(X, y, aim=aim) for aim in (None, "loss"))
    np.testing.assert_array_equal(default.intercept_, loss.intercept_)
    with pytest.raises(ParameterError, match=r"aim = 'errors' .* 'loss' or None for 4 classes"):
        model.recalibrate(X, y, aim="errors")
    pair = model.fit(X, y % 2)
    default, errors, loss = (
        pair.recalibrate(X, y % 2, aim=aim) for aim in (None, "errors", "loss")
    )
    assert default.intercept_[0] == errors.intercept_[0] != loss.intercept_[0]
    # With the bias of least loss probabilities have the rate of the class as their mean.
    assert loss.predict_proba(X)[:, 1].mean() == pytest.approx(np.mean(y % 2), abs=1e-3)


def test_recalibration_refuses_nonsense(fitted: Any) -> None:
    model, X, y, _ = fitted
    with pytest.raises(ParameterError, match="aim"):
        model.recalibrate(X, y, aim="speed")
    for aim in ("errors", "loss"):  # both need to know the labels
        with pytest.raises(ParameterError, match=f"aim = '{aim}' is not valid: expected None with"):
            model.recalibrate(X, rate=0.2, aim=aim)
    for rate in ([0.2, 0.3, 0.5], [0.5], [[0.5, 0.5]]):
        with pytest.raises(ParameterError, match=r"shape of rate .* or 2, one for each class"):
            model.recalibrate(X, rate=rate)
    for rate in (0.0, [1.0, 0.0], "half"):
        with pytest.raises(ParameterError, match=r"^rate = "):
            model.recalibrate(X, rate=rate)
    both, second = (model.recalibrate(X, rate=rate) for rate in ([0.8, 0.2], 0.2))
    np.testing.assert_array_equal(both.intercept_, second.intercept_)
    with pytest.raises(ParameterError, match="either y or rate"):
        model.recalibrate(X)
    with pytest.raises(ParameterError, match="a class of fit"):
        model.recalibrate(X, y + 7)
    with pytest.raises(ParameterError, match="every class"):
        model.recalibrate(X[y == 1], y[y == 1])
    with pytest.raises(ParameterError, match="at least 2"):
        model.recalibrate(X[:1], rate=0.5)
    with pytest.raises(ParameterError, match="rate"):
        model.recalibrate(X, rate=1.0)


def test_transform_gives_the_features_that_are_read_out(fitted: Any) -> None:
    model, X, _, _ = fitted
    features = model.transform(X)
    assert features.shape == (len(X), 5)
    decisions = features @ model.coef_[0, 0] + model.intercept_[0]
    np.testing.assert_allclose(decisions, model.decision_function(X), rtol=1e-9)


def test_export_is_the_classifier_in_plain_arrays(fitted: Any, tmp_path: Path) -> None:
    model, X, _, _ = fitted
    model.export(tmp_path / "probe.npz")
    with np.load(tmp_path / "probe.npz") as arrays:
        scores = X @ arrays["queries"][0, 0] + arrays["query_offsets"][0, 0]
        values = X @ arrays["weights"][0, 0] + arrays["weight_offsets"][0, 0]
        attention = np.exp(scores - scores.max(axis=1, keepdims=True))
        attention /= attention.sum(axis=1, keepdims=True)
        decisions = (attention * values).sum(axis=1) + arrays["bias"][0]
    np.testing.assert_allclose(decisions, model.decision_function(X), rtol=1e-8, atol=1e-10)
    with pytest.raises(ParameterError, match=r"\.npz or \.onnx"):
        model.export(tmp_path / "probe.txt")


def test_export_as_a_graph(tmp_path: Path) -> None:
    reference = pytest.importorskip("onnx.reference")
    X = np.random.default_rng(0).standard_normal((90, 4, 5))
    X[np.arange(90), 1, np.arange(90) % 3] += 5
    model = AttentionClassifier(heads=2, **QUICK).fit(X, np.arange(90) % 3)
    model.export(tmp_path / "probe.onnx")
    run = reference.ReferenceEvaluator(str(tmp_path / "probe.onnx"))
    assert (
        run.proto_.ir_version <= 8
    )  # which has operators of set 17; runtimes lag behind the newest
    for row in X[:5]:
        decision, _ = run.run(None, {"tokens": row.astype(np.float32)})
        np.testing.assert_allclose(
            decision, model.decision_function(row[None])[0], rtol=1e-3, atol=1e-3
        )


def test_explaining_through_pipelines_and_searches() -> None:
    bags = make_bags()
    pipeline = make_pipeline(TokenWise(StandardScaler()), AttentionClassifier(**QUICK))
    search = GridSearchCV(pipeline, {"attentionclassifier__ridge": [0.01]}, cv=2)
    search.fit(bags.X, bags.y)
    inner = search.best_estimator_
    expected = inner[-1].attention(inner[:-1].transform(bags.X))
    for model in (search, inner):
        for one, other in zip(explain(model, bags.X), expected, strict=True):
            np.testing.assert_array_equal(one, other)
    assert explain(search, bags.X, what="locate", k=2).shape == (len(bags.X), 2)
    axes = plot_attention(search, bags.X[:4], positions=bags.positions[:4])
    assert axes.images[0].get_array().shape[0] == 4
    masks = [np.arange(len(one)) == k for one, k in zip(bags.X[:4], (0, 2, 1, -1), strict=True)]
    circles = plot_attention(search, bags.X[:4], positions=masks).lines
    assert [line.get_xdata().tolist() for line in circles] == [[0], [2], [1], []]
    with pytest.raises(ParameterError, match="what"):
        explain(search, bags.X, what="predict")
    with pytest.raises(ParameterError, match="PooledClassifier"):
        explain(PooledClassifier().fit(bags.X, bags.y), bags.X)


def test_scores_refuse_labels_of_another_shape_or_kind(fitted: Any) -> None:
    model, X, y, _ = fitted
    assert model.score(X, y) > 0.9
    for wrong in (y[:, None], [1], None, y[:-1], y.astype(str), y + 7):
        with pytest.raises(ParameterError, match=r"^(shape of )?y"):
            model.score(X, wrong)
    new = np.where(np.arange(len(y)) == 0, 7, y)  # a class that only the test samples have
    assert 0.9 < model.score(X, new) < 1


@pytest.mark.parametrize("what", ["attention", "evidence", "token_scores", "learn_background"])
@pytest.mark.parametrize("target", [7, "1", [0, 1], [0, 1, 2]])
def test_targets_of_two_classes_are_checked(fitted: Any, what: str, target: Any) -> None:
    model, X, _, _ = fitted
    with pytest.raises(ParameterError, match=r"^target = .* one of \[0, 1\]"):
        getattr(model, what)(X, target=target)
    for options in ({"k": 2}, {"false_alarms": 0.1}):
        with pytest.raises(ParameterError, match=r"^target = .* one of \[0, 1\]"):
            model.locate(X, target=target, **options)


PER_TOKEN_MODELS: tuple[dict[str, Any], ...] = (
    QUICK,
    {"refine": False, "ridge": 0.1},  # maxima: no query, extremes
    {"refine": False, "sharpness": 0.0, "ridge": 0.1},  # mean pooling: no query
    {**QUICK, "heads": 2},
)


@pytest.mark.parametrize("options", PER_TOKEN_MODELS, ids=str)
@pytest.mark.parametrize("classes", [(0, 1), ("off", "on")])
def test_what_speaks_for_one_of_two_classes_speaks_against_the_other(
    options: dict[str, Any], classes: tuple[Any, Any]
) -> None:
    X, y, _ = equal_bags(count=120, length=7)
    model = AttentionClassifier(**options).fit(X, np.array(classes)[y])
    for_first, for_second = (model.evidence(X[:9], target=one) for one in classes)
    np.testing.assert_array_equal(for_first, -for_second)
    np.testing.assert_array_equal(for_second, model.evidence(X[:9]))
    decisions = -model.decision_function(X[:9])  # those for the first class
    without = -model.decision_function(np.delete(X[:9], 3, axis=1))
    np.testing.assert_allclose(for_first[:, 3], decisions - without, rtol=1e-5, atol=1e-7)
    # Attention is that of one problem; what has no query is scored by what it says.
    weights = [model.attention(X[:9], target=one) for one in (None, *classes)]
    np.testing.assert_array_equal(weights[1], weights[0])
    np.testing.assert_array_equal(weights[2], weights[0])
    scores = [model.token_scores(X[:9], target=one) for one in (None, *classes)]
    np.testing.assert_array_equal(scores[2], scores[0])
    sign = 1 if np.any(model.queries_) else -1
    np.testing.assert_array_equal(scores[1], sign * scores[0])


def test_either_of_two_classes_can_be_located_against_a_background_of_the_other() -> None:
    # The signal is in the first class. Held-out sequences without it: 2,000 of 7 tokens; the count
    # of false alarms has a standard error of about √(2 · 0.1/2000) = 0.01, and 4 are accepted.
    X, y, positions = equal_bags(count=300, length=7)
    kinds = np.where(y == 1, "faulty", "good")
    model = AttentionClassifier(refine=False, ridge=0.1).fit(X, kinds)
    negatives, others = np.random.default_rng(3).standard_normal((2, 2000, 7, 5))
    model.learn_background(negatives)
    with pytest.raises(ParameterError, match=r"learn_background\(X_background, target='faulty'\)"):
        model.locate(X, target="faulty", false_alarms=0.1)
    model.learn_background(negatives, target="faulty")
    alarms = model.locate(others, target="faulty", false_alarms=0.1)
    assert abs(np.mean([len(tokens) for tokens in alarms]) - 0.1) < 4 * np.sqrt(0.2 / 2000)
    for target, least, most in (("faulty", 0.95, 1.0), ("good", 0.0, 0.05), (None, 0.0, 0.05)):
        found = model.locate(X[y == 1], target=target, false_alarms=0.1)
        hits = [where in tokens for tokens, where in zip(found, positions[y == 1], strict=True)]
        assert least <= np.mean(hits) <= most


@pytest.mark.parametrize("form", ["array", "list", "masked"])
def test_mean_pooling_locates_the_tokens_that_speak_for_the_class(form: str) -> None:
    bags = make_bags(count=200, strength=8.0)
    model = AttentionClassifier(refine=False, sharpness=0.0).fit(bags.X, bags.y)
    X: Any = bags.X
    if form == "masked":
        X = mask_tokens(*bags.padded)
    elif form == "array":
        X = np.stack([bag[:3] for bag in bags.X])
    chosen = [
        row for row in range(200) if bags.y[row] and (form != "array" or bags.positions[row] < 3)
    ]
    located = model.locate(X)[:, 0]
    assert len(chosen) > 20
    assert np.mean(located[chosen] == bags.positions[chosen]) > 0.95
    against = model.locate(X, target=0)[:, 0]  # what speaks for the other class
    assert np.mean(against[chosen] == bags.positions[chosen]) < 0.05


def test_tokens_without_weight_are_located_by_their_scores(fitted: Any) -> None:
    model, X, _, _ = fitted
    hard = model.with_sharpness("hard")
    assert np.all(np.sort(hard.attention(X))[:, :-1] == 0)
    np.testing.assert_array_equal(hard.locate(X, k=3), model.locate(X, k=3))


def test_evidence_for_each_of_several_classes_is_that_for_its_own_decision() -> None:
    rng = np.random.default_rng(4)
    y = np.array(["ant", "bee", "cat"])[np.arange(150) % 3]
    X = rng.standard_normal((150, 6, 5))
    X[np.arange(150), rng.integers(6, size=150), np.arange(150) % 3] += 5
    model = AttentionClassifier(**QUICK).fit(X, y)
    fall = model.decision_function(X[:9]) - model.decision_function(X[:9, 1:])
    found = np.array([model.evidence(X[:9], target=one)[:, 0] for one in model.classes_])
    np.testing.assert_allclose(found.T, fall, rtol=1e-5, atol=1e-7)
    chosen = model.decision_function(X[:9]).argmax(axis=1)
    np.testing.assert_allclose(model.evidence(X[:9])[:, 0], found[chosen, np.arange(9)])
    for what in ("evidence", "token_scores", "attention", "learn_background", "locate"):
        with pytest.raises(ParameterError, match="target = 'dog'"):
            getattr(model, what)(X, target="dog")


@pytest.mark.parametrize("model", [AttentionClassifier(), PooledClassifier()], ids=repr)
def test_tiny_numbers_are_numbers(model: Any) -> None:
    X, y, _ = equal_bags()
    assert model.fit(X * 1e-165, y).score(X * 1e-165, y) == pytest.approx(
        model.fit(X, y).score(X, y), abs=0.02
    )


@pytest.mark.parametrize(
    "model",
    [
        AttentionClassifier(),
        ElementwiseAttentionClassifier(),
        PooledClassifier(),
        PooledClassifier(pooling="mean|max|min"),
        VectorisedClassifier(),
    ],
    ids=repr,
)
@pytest.mark.parametrize("kind", ["two values", "chance", "many", "one"])
@pytest.mark.filterwarnings("ignore:fewer than 3 different samples")
def test_numbers_without_digits_are_no_trouble(model: Any, kind: str) -> None:
    """Subnormal numbers hold next to nothing, and their inverses overflow."""
    rng, y = np.random.default_rng(0), np.arange(60) % 2
    X = {
        "two values": np.full((60, 3, 2), 5e-324) * (1 + y[:, None, None]),
        "chance": np.where(rng.random((60, 3, 2)) < 0.5, 5e-324, 0.0),
        "many": 1e-310 * rng.standard_normal((60, 3, 2)),
        "one": np.where(np.arange(60)[:, None, None] == 9, 5e-324, np.zeros((60, 3, 2))),
    }[kind]
    assert np.isfinite(model.fit(X, y).decision_function(X)).all()


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_column_of_arrays(library: str) -> None:
    module = pytest.importorskip(library)
    bags = make_bags(count=60)
    model = AttentionClassifier(**QUICK).fit(bags.X, bags.y)
    expected = model.decision_function(bags.X)
    values = bags.X if library == "pandas" else [bag.tolist() for bag in bags.X]
    column = module.Series("tokens", values) if library == "polars" else module.Series(values)
    np.testing.assert_array_equal(model.decision_function(column), expected)
    frame = module.DataFrame({"tokens": column})
    np.testing.assert_array_equal(model.decision_function(frame), expected)


def test_a_missing_label_of_pandas_is_named() -> None:
    pandas = pytest.importorskip("pandas")
    X, _, _ = equal_bags(count=20)
    with pytest.raises(ParameterError, match="a missing label"):
        PooledClassifier().fit(X, pandas.Series(["a", pandas.NA] * 10, dtype="string"))


def test_channels_and_time_are_noticed() -> None:
    rng = np.random.default_rng(0)
    series = np.cumsum(rng.standard_normal((40, 3, 100)), axis=2)
    y = np.arange(40) % 2
    noisy = rng.standard_normal((40, 3, 101))
    noisy = noisy[:, :, 1:] + noisy[:, :, :-1] + 0.07 * series  # neighbours correlated by 0.6
    for X in (series, noisy, series[:, :1]):
        with pytest.warns(UserWarning, match=r"transpose\(0, 2, 1\)"):
            PooledClassifier().fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        PooledClassifier().fit(series.transpose(0, 2, 1), y)
        PooledClassifier().fit(digit_bags(10, train=40)[0].X, y)
        for dimension in (5, 100):  # one token a sample is a series only if it is smooth
            PooledClassifier().fit(rng.standard_normal((40, 1, dimension)), y)


def test_several_labels_at_once() -> None:
    X, y, _ = equal_bags(count=120)
    both = np.column_stack([y, 1 - y])
    model = MultiOutputClassifier(AttentionClassifier(**QUICK)).fit(X, both)
    assert np.mean(model.predict(X) == both) > 0.9


def test_an_estimator_does_not_load_matplotlib() -> None:
    program = (
        "import sys; from sparsetoken import AttentionClassifier, compare; "
        "sys.exit('matplotlib' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_whitening_does_not_blow_up_what_a_few_repeated_tokens_leave_out() -> None:
    """Sequences draw their tokens from 40 things: 4,000 tokens know no more of R than these."""
    rng = np.random.default_rng(0)
    decay = np.geomspace(1, 0.1, 60)

    def things(count: int) -> np.ndarray:
        return (rng.standard_normal((count, 60)) * decay) @ mixing

    mixing = rng.standard_normal((60, 60))
    X = things(40)[rng.integers(40, size=(200, 20))]
    model = AttentionClassifier(whiten=True, refine=False, sharpness=2.0, ridge=0.01)
    model.fit(X, np.arange(200) % 2)
    whitening = model.whitening_ / model.scale_
    spreads = [
        np.std((one.reshape(-1, 60) - model.mean_) @ whitening.T) for one in (X, things(1000))
    ]
    # 1.4 here; 4.5 with the shrinkage of 4,000 independent tokens.
    assert spreads[1] < 2 * spreads[0]


def test_a_token_scores_what_its_best_head_gives_it() -> None:
    bags = make_bags()
    model = AttentionClassifier(heads=2, refine=False, sharpness=2.0, ridge=0.01, whiten=False)
    model.fit(bags.X, bags.y)
    units = model.queries_[0] / np.linalg.norm(model.queries_[0], axis=1, keepdims=True)
    for bag, scores in zip(bags.X[:5], model.token_scores(bags.X[:5]), strict=True):
        each = (bag - model.mean_) / model.scale_ @ units.T
        assert np.abs(each[:, 0] - each[:, 1]).max() > 1e-3  # the heads differ
        np.testing.assert_allclose(scores, each.max(axis=1))


def test_the_first_sequence_that_is_too_short_is_named() -> None:
    bags = make_bags()
    model = AttentionClassifier(refine=False, sharpness=2.0, ridge=0.01).fit(bags.X, bags.y)
    short = [bags.X[0][:3], bags.X[1][:2], bags.X[2][:1]]
    with pytest.raises(ParameterError, match="at most the 2 tokens of sample 1"):
        model.locate(short, k=3)
