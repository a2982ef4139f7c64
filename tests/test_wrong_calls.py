"""Calls that cannot be meant, each with the parameter that the error names."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.model_selection import StratifiedKFold

import sparsetoken as st
from sparsetoken import ParameterError

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(60, 6, 5)), np.repeat([-1, 1], 30)
FEATURES, LABELS = np.array([[1.0], [2.0], [-1.0], [0.0]]), np.array([1, 1, -1, -1])
RAGGED = [np.ones((2, 3)), np.ones((4, 3))]

LEARNING: list[tuple[str, Callable[[], Any]]] = [
    ("dtype of features", lambda: st.separability(FEATURES * (1 + 5j), LABELS)),
    ("dtype of features", lambda: st.separability(FEATURES.astype(str), LABELS)),
    ("features", lambda: st.separability([[1.0], [2.0, 3.0]], LABELS[:2])),
    (
        "dtype of features",
        lambda: st.fit_readout(FEATURES * (1 + 5j), LABELS, loss="square", ridge=1.0),
    ),
    (
        "sample_weight",
        lambda: st.fit_readout(
            FEATURES, LABELS, loss="square", ridge=1.0, sample_weight=np.array(["a"] * 4)
        ),
    ),
    ("X", lambda: st.features(RAGGED, "pooled")),
    (
        "inverse_temperature",
        lambda: st.features(X, "attention", query=X[0, 0], inverse_temperature="hot"),
    ),
]


@pytest.mark.parametrize(("parameter", "call"), LEARNING)
def test_learning_names_what_is_wrong(parameter: str, call: Callable[[], Any]) -> None:
    assert_names(parameter, call)


COMPARISONS: list[tuple[str, dict[str, Any]]] = [
    ("repeats", {"cv": StratifiedKFold(3), "repeats": 9}),
    ("repeats", {"cv": StratifiedKFold(3), "repeats": "bad"}),
    ("repeats", {"repeats": "bad"}),
    ("cv", {"cv": "5"}),
    ("cv", {"cv": [1, 2]}),
    ("cv", {"cv": 2.5}),
    ("cv", {"cv": StratifiedKFold(31)}),
    ("shape of y", {"y": Y[:50]}),
    ("y", {"y": X[:, 0, 0]}),
    ("shape of groups", {"groups": [1, 2]}),
    ("scoring", {"scoring": "acuracy"}),
    ("scoring", {"scoring": ["auc", 3]}),
    ("scoring", {"scoring": len}),
    ("scoring['auc']", {"scoring": {"auc": "auc"}}),
    ("classifiers", {"classifiers": [st.PooledClassifier()]}),
    ("classifiers['own']", {"classifiers": {"own": st.PooledClassifier}}),
    ("classifiers['own']", {"classifiers": {"own": "pooled"}}),
    ("transformer", {"transformer": "pca"}),
    ("transformer", {"transformer": st.TokenWise}),
]


@pytest.mark.parametrize(("parameter", "options"), COMPARISONS)
def test_comparisons_name_what_is_wrong(parameter: str, options: dict[str, Any]) -> None:
    assert_names(parameter, lambda: st.compare(**{"X": X, "y": Y, **options}))


@pytest.mark.parametrize("cv", ["5", StratifiedKFold(3), None])
def test_a_diagnosis_takes_a_number_of_folds(cv: Any) -> None:
    assert_names("cv", lambda: st.diagnose(X, Y, cv=cv))


TASK, TRAINING, STEP = (
    st.Task(6, 1, 2.0),
    st.Training(3.0, 3.0),
    st.Step(2.0, readout_step=1.0, bias_step=0.5, query_step=2.0),
)
LEARNT = st.predict(TASK, TRAINING, classifier="pooled", tolerance=0.1)
SINGLES: list[tuple[str, Callable[[], Any]]] = [
    ("values", lambda: st.curve(TASK, TRAINING, values=3.0)),
    ("values", lambda: st.curve(TASK, TRAINING, values="123")),
    ("values", lambda: st.curve(TASK, TRAINING, values=["a"])),
    ("values", lambda: st.curve(TASK, TRAINING, over="informative", values=["poisson:2"])),
    ("values", lambda: st.capacity_curve(TASK, values=3.0)),
    ("values", lambda: st.floor_curve(TASK, values=3.0)),
    ("values", lambda: st.strength_curve(TASK, values=3.0, error=0.1)),
    ("values", lambda: st.shift(TASK, TRAINING, values=10)),
    ("sharpness", lambda: st.shift(TASK, TRAINING, values=[10], sharpness=2.0)),
    ("false_alarm_rates", lambda: LEARNT.roc(0.1)),
    ("false_alarm_rates", lambda: LEARNT.roc([0.1, 2.0])),
    ("recalls", lambda: LEARNT.precision_recall(0.1)),
    ("scores", lambda: LEARNT.calibration(3.0)),
    ("steps", lambda: st.descend(TASK, STEP)),
    ("steps", lambda: st.simulate_descent(TASK, STEP, dimension=20)),
    ("values of x", lambda: st.phase_map(TASK, TRAINING, x=("strength", ["a", "b"]))),
    ("values of y", lambda: st.phase_map(TASK, TRAINING, y=("alpha", [[1.0], [2.0, 3.0]]))),
    ("classifiers", lambda: st.phase_map(TASK, TRAINING, classifiers="pooled")),
    ("metrics", lambda: st.run_trial(TASK, TRAINING, dimension=20, trial=0, metrics="auc")),
    ("metrics", lambda: st.simulate(TASK, TRAINING, dimension=20, trials=1, metrics="auc")),
    ("cells", lambda: st.run_cells({"a": 1}, "none", function=max, trials=1)),
    ("cells", lambda: st.run_cells([1], "none", function=max, trials=1)),
    ("imports", lambda: st.run_cells([{"a": 1}], "none", function=max, trials=1, imports="re")),
    ("loss", lambda: st.unregister_loss("square")),
]


@pytest.mark.parametrize(("parameter", "call"), SINGLES)
def test_one_value_where_several_are_wanted_is_refused(
    parameter: str, call: Callable[[], Any]
) -> None:
    given = assert_names(parameter, call)
    assert given not in ("p", "1")  # letters of a text


OTHERS: list[tuple[str, Callable[[], Any]]] = [
    ("shape of X", lambda: st.PooledClassifier().fit(Y, X)),
    ("X", lambda: st.AttentionClassifier().fit("data.npz", Y)),
    ("shape of X", lambda: st.AttentionRegressor().fit(Y, X)),
    ("X", lambda: st.PooledClassifier().fit([[1.0, 2.0], [3.0]], [0, 1])),
    ("sample_weight", lambda: st.PooledClassifier().fit(X, Y, sample_weight=["a"] * 60)),
    ("tokens in X", lambda: DIRECTION.predict(st.Task(9, 1, 2.0), X)),
    ("dimension of X", lambda: DIRECTION.scores(TASK, X[:, :, 1:])),
    ("task", lambda: DIRECTION.scores(X, TASK)),
    ("table", lambda: st.CountTable([0.5, 0.5])),
    ("table", lambda: st.CountTable(3)),
    ("path", lambda: st.read_study(3)),
    ("path", lambda: st.Store(3)),
    ("store", lambda: st.run_cells([{"a": 1}], 3, function=max, trials=1)),
    ("digit", lambda: st.digit_bags(4, digit=[])),
    ("digit", lambda: st.digit_bags(4, digit=range(10))),
    ("positions", lambda: st.sample(TASK, 9, dimension=5, rng=0, positions=None)),
    ("positions", lambda: st.sample(TASK, 9, dimension=5, rng=0, positions=["a"] * 6)),
    ("signal", lambda: st.sample(TASK, 9, dimension=5, rng=0, signal="first")),
]
DIRECTION = st.learn_direction(TASK, X, Y)


@pytest.mark.parametrize(("parameter", "call"), OTHERS)
def test_what_stands_in_the_wrong_place_is_refused(parameter: str, call: Callable[[], Any]) -> None:
    assert_names(parameter, call)


def test_a_refused_law_of_places_is_shown_as_it_was_given() -> None:
    given = assert_names(
        "positions", lambda: st.sample(TASK, 9, dimension=5, rng=0, positions=None)
    )
    assert given is None


def assert_names(parameter: str, call: Callable[[], Any]) -> Any:
    with pytest.raises(ParameterError) as refused:
        call()
    assert refused.value.parameter == parameter
    assert refused.value.accepted.strip()
    return refused.value.value
