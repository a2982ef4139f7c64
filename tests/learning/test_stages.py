import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest

from sparsetoken import ParameterError, Sample, Task, Training, get_loss, sample, train
from sparsetoken.arrays import Array
from sparsetoken.learning import features as features_module
from sparsetoken.learning.features import BLOCK_BYTES, FEATURE_MAPS, attention_features, features
from sparsetoken.learning.stages import first_step, query_step

SMOOTH = ("logistic", "square", "squared_hinge")
every_classifier = pytest.mark.parametrize("classifier", FEATURE_MAPS)


def training(**changes: object) -> Training:
    settings = {"alpha0": 1.0, "alpha1": 1.0, "ridge": 0.1, "inverse_temperature": 0.8}
    return Training.from_dict(settings | changes)


@pytest.fixture
def data() -> Sample:
    task = Task(length=6, informative=2, strength=3.0, positive_rate=0.4)
    return sample(task, 60, dimension=8, rng=np.random.default_rng(0))


def mean_loss(data: Sample, query: Array, weights: Array, bias: float, how: Training) -> float:
    mapped = attention_features(data.X, query, how.inverse_temperature)
    return float(get_loss(how.loss).value(data.y * (mapped @ weights + bias)).mean())


def gradient(function: Callable[[Array], float], at: Array, step: float = 1e-5) -> Array:
    """Differentiate numerically, with an error of order step⁴."""
    directions = step * np.eye(len(at))
    near = [function(at + e) - function(at - e) for e in directions]
    far = [function(at + 2 * e) - function(at - 2 * e) for e in directions]
    return (8 * np.array(near) - np.array(far)) / (12 * step)


@pytest.mark.parametrize("loss", SMOOTH)
def test_stage_1_is_one_gradient_step_of_the_readout(data: Sample, loss: str) -> None:
    how = training(loss=loss, readout_step=0.3, bias_step=0.7)
    zero = np.zeros(8)
    weights, bias = first_step(data.X, data.y, how)
    by_weights = gradient(lambda w: mean_loss(data, zero, w, 0.0, how), zero, 1e-3)
    by_bias = gradient(lambda b: mean_loss(data, zero, zero, b[0], how), np.zeros(1), 1e-3)
    np.testing.assert_allclose(weights, -0.3 * by_weights, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(bias, -0.7 * by_bias[0], rtol=1e-8)


def test_stage_1_leaves_the_query_at_zero(data: Sample) -> None:
    zero = np.zeros(8)
    by_query = gradient(lambda q: mean_loss(data, q, zero, 0.0, training()), zero)
    np.testing.assert_array_equal(by_query, zero)


@pytest.mark.parametrize("loss", SMOOTH)
def test_stages_2_and_3_are_one_gradient_step_of_the_query(data: Sample, loss: str) -> None:
    how = training(loss=loss, query_step=2.5, inverse_temperature=0.8)
    weights, bias = first_step(data.X, data.y, how)
    by_query = gradient(lambda q: mean_loss(data, q, weights, bias, how), np.zeros(8), 1e-3)
    query = query_step(data.X, data.y, weights, bias, how)
    np.testing.assert_allclose(query, -2.5 * by_query, rtol=1e-7, atol=1e-10)


def test_train_runs_the_stages_in_order(data: Sample) -> None:
    how = training()
    model = train((data.X, data.y), (data.X, data.y), how)
    weights, bias = first_step(data.X, data.y, how)
    np.testing.assert_array_equal(model.first_weights, weights)
    assert model.first_bias == bias
    np.testing.assert_array_equal(model.query, query_step(data.X, data.y, weights, bias, how))
    assert "array(" not in repr(model)


@every_classifier
@pytest.mark.parametrize("loss", SMOOTH)
def test_stage_4_is_stationary_to_1e_8(data: Sample, classifier: str, loss: str) -> None:
    how = training(loss=loss)
    nonlinearity = "tanh" if classifier == "elementwise" else "sigmoid"
    model = train(
        (data.X, data.y), (data.X, data.y), how, classifier=classifier, nonlinearity=nonlinearity
    )
    mapped = features(
        data.X,
        classifier,
        query=model.query,
        inverse_temperature=model.inverse_temperature,
        nonlinearity=nonlinearity,
    )
    slopes = data.y * get_loss(loss).slope(data.y * (mapped @ model.weights + model.bias))
    residual = np.append(slopes @ mapped / 60 + how.ridge * model.weights, slopes.mean())
    assert np.linalg.norm(residual) <= 1.01e-8
    assert model.readout.solution.converged
    assert model.readout.solution.residual <= 1e-8


def test_classifiers_without_a_query_do_not_read_the_first_data(data: Sample) -> None:
    for classifier in ("pooled", "vectorised"):
        model = train(
            (np.full((1, 2, 3), np.nan), [0]), (data.X, data.y), training(), classifier=classifier
        )
        without = train(None, (data.X, data.y), training(), classifier=classifier)
        assert np.array_equal(model.weights, without.weights)
        assert model.query is None
        assert model.first_weights is None
        assert model.first_bias is None


@every_classifier
def test_decision_and_prediction(data: Sample, classifier: str) -> None:
    model = train((data.X, data.y), (data.X, data.y), training(), classifier=classifier)
    mapped = features(
        data.X, classifier, query=model.query, inverse_temperature=model.inverse_temperature
    )
    decision = model.decision(data.X)
    np.testing.assert_allclose(decision, mapped @ model.weights + model.bias, rtol=1e-13)
    np.testing.assert_array_equal(model.predict(data.X), np.where(decision > 0, 1, -1))
    with pytest.raises(ParameterError, match="shape of X"):
        model.predict(data.X[0])


@every_classifier
@pytest.mark.parametrize("order", ["C", "F"])
def test_streaming_in_blocks_changes_nothing(
    data: Sample, classifier: str, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = train((data.X, data.y), (data.X, data.y), training(), classifier=classifier)
    monkeypatch.setattr(features_module.blocks, "__defaults__", (7 * data.X[0].nbytes,))
    X = np.asarray(data.X, order=order)
    pieces = train((X, data.y), (X, data.y), training(), classifier=classifier)
    np.testing.assert_allclose(pieces.weights, whole.weights, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(pieces.decision(X), whole.decision(data.X), rtol=1e-6, atol=1e-8)
    if whole.query is not None:
        np.testing.assert_allclose(pieces.query, whole.query, rtol=1e-12)


def peak_memory(action: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("order", ["C", "F"])
def test_no_temporary_is_larger_than_a_block(dtype: type[np.floating], order: str) -> None:
    rng = np.random.default_rng(0)
    # Four blocks of samples, with a dimension that makes everything else small beside a block.
    L, d = 8, 2**14
    n = 4 * BLOCK_BYTES // (8 * L * d)
    X = np.asarray(rng.standard_normal((n, L, d), dtype=np.float32).astype(dtype), order=order)
    y = rng.choice([-1.0, 1.0], n)
    weights, query = rng.standard_normal(d), rng.standard_normal(d) / d
    how = training()
    result = n * d * X.itemsize
    allowed = BLOCK_BYTES * 1.1 + 2**20
    assert X.nbytes > 1.5 * allowed
    assert peak_memory(lambda: first_step(X, y, how)) <= allowed
    assert peak_memory(lambda: query_step(X, y, weights, 0.1, how)) <= allowed
    for classifier, given in (("attention", query), ("pooled", None), ("elementwise", query)):
        # A block's features, 1/L of it, may be there twice, beside the block and the whole result.
        used = peak_memory(lambda name=classifier, q=given: features(X, name, query=q))
        assert used <= result + allowed + 2 * BLOCK_BYTES / L


def test_single_precision_data_are_summed_in_double(data: Sample) -> None:
    X = data.X.astype(np.float32)
    how = training()
    exact = X.astype(np.float64)
    weights, bias = first_step(X, data.y, how)
    np.testing.assert_allclose(weights, first_step(exact, data.y, how)[0], rtol=1e-14)
    query = query_step(X, data.y, weights, bias, how)
    assert query.dtype == np.float64
    np.testing.assert_allclose(query, query_step(exact, data.y, weights, bias, how), rtol=1e-12)
    model = train((X, data.y), (X, data.y), how)
    reference = train((exact, data.y), (exact, data.y), how)
    np.testing.assert_allclose(model.decision(X), reference.decision(exact), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (np.ones((4, 3)), [1, -1, 1, -1], "shape of X in {} = (4, 3)"),
        (np.ones((0, 3, 2)), [], "samples in {} = 0"),
        (np.ones((2, 3, 2)) * 1j, [1, -1], "type of X in {} = 'complex128'"),
        (np.full((2, 3, 2), np.nan), [1, -1], "X in {} = 'NaN or infinity'"),
        (np.full((2, 3, 2), np.inf), [1, -1], "X in {} = 'NaN or infinity'"),
        (np.ones((2, 3, 2)), [1, -1, 1], "shape of y in {} = (3,)"),
        (np.ones((2, 3, 2)), [[1], [-1]], "shape of y in {} = (2, 1)"),
        (np.ones((2, 3, 2)), [0, 1], "y in {} = [0, 1]"),
        (np.ones((2, 3, 2)), ["a", "b"], "y in {} = ['a', 'b']"),
        (np.ones((2, 3, 2)), [np.nan, 1], "y in {} = [1.0, nan]"),
    ],
)
@pytest.mark.parametrize("which", ["query_data", "readout_data"])
def test_bad_data_are_refused_by_name(
    data: Sample, X: Array, y: list[float], message: str, which: str
) -> None:
    good, bad = (data.X, data.y), (X, y)
    first, second = (bad, good) if which == "query_data" else (good, bad)
    with pytest.raises(ParameterError) as caught:
        train(first, second, training())
    assert str(caught.value).startswith(message.format(which))


def test_settings_that_do_not_fit_are_refused(data: Sample) -> None:
    both = ((data.X, data.y), (data.X, data.y), training())
    with pytest.raises(ParameterError, match="classifier = 'mlp'"):
        train(*both, classifier="mlp")
    with pytest.raises(ParameterError, match="nonlinearity = 'relu'"):
        train(*both, nonlinearity="relu")
    with pytest.raises(ParameterError, match=r"query_data = 7 .*expected 8"):
        train((data.X[:, :, :7], data.y), (data.X, data.y), training())
    with pytest.raises(ParameterError, match=r"query_data = None .* a pair \(X, y\)"):
        train(None, (data.X, data.y), training())


@pytest.mark.parametrize("classifier", list(FEATURE_MAPS))
def test_new_data_must_be_like_those_learnt_from(data: Sample, classifier: str) -> None:
    pair = (data.X, data.y)
    model = train(pair, pair, training(), classifier=classifier)
    with pytest.raises(ParameterError, match=r"(shape|dimension) of X = .*as in training"):
        model.predict(data.X[:, :, :7])
    damaged = data.X.copy()
    damaged[-1, 0, 0] = np.nan
    with pytest.raises(ParameterError, match="X = 'NaN or infinity'"):
        model.predict(damaged)
    if classifier == "vectorised":
        with pytest.raises(ParameterError, match="shape of X"):
            model.decision(data.X[:, 1:])
    else:
        assert len(model.decision(data.X[:, 1:])) == len(data.y)


def test_reuse_trains_on_one_data_set(data: Sample) -> None:
    reused, pair = Training(2.0, 2.0, reuse=True), (data.X, data.y)
    same = train(pair, pair, reused)
    assert np.array_equal(
        same.readout.weights, train(pair, pair, Training(2.0, 2.0)).readout.weights
    )
    copied = train(pair, (data.X.copy(), data.y.copy()), reused)
    assert np.array_equal(same.readout.weights, copied.readout.weights)
    changed = data.X.copy()
    changed[-1, -1, -1] += 1
    for other in ((changed, data.y), (data.X, -data.y), (data.X[1:], data.y[1:])):
        with pytest.raises(ParameterError, match=r"readout_data = .*same arrays as query_data"):
            train(pair, other, reused)
    # Without a query the first data are not read.
    assert train(pair, (changed, data.y), reused, classifier="pooled").query is None


def test_attention_finds_a_signal_that_linear_classifiers_miss() -> None:
    task = Task(length=10, informative=1, strength=5.0, positive_rate=0.5)
    rng = np.random.default_rng(0)
    first = sample(task, 800, dimension=100, rng=rng)
    second = sample(task, 800, dimension=100, rng=rng, signal=first.signal)
    test = sample(task, 2000, dimension=100, rng=rng, signal=first.signal)
    how = Training(alpha0=8, alpha1=8, ridge=1e-2, query_step=20.0)
    errors = {}
    for classifier in FEATURE_MAPS:
        model = train((first.X, first.y), (second.X, second.y), how, classifier=classifier)
        errors[classifier] = np.mean(model.predict(test.X) != test.y)
    # 2000 test sequences give each error a standard error of at most 0.011.
    assert errors["attention"] < 0.06
    assert errors["attention"] < errors["elementwise"] < errors["pooled"] < errors["vectorised"]
