"""Calls that cannot be meant, each with the parameter that the error names."""

import inspect
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from sklearn.model_selection import StratifiedKFold

import sparsetoken as st
from sparsetoken import ParameterError
from sparsetoken.estimators.archive import read_labelled
from sparsetoken.numerics import memory
from sparsetoken.sweeps import parse_study

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
    (
        "theory_ignores",
        lambda: st.run_cells([{"a": 1}], "none", function=max, trials=1, theory_ignores=["a"]),
    ),
    ("repeats", lambda: st.diagnose(X, Y, repeats=None)),
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


MANY = np.array([1.0, 2.0])
ARRAYS: list[tuple[str, Callable[[], Any]]] = [
    ("at_sharpness", lambda: st.predict(TASK, TRAINING, at_sharpness=MANY)),
    ("inverse_temperature", lambda: st.features(X, "pooled", inverse_temperature=MANY)),
    ("nonlinearity", lambda: st.features(X, "pooled", nonlinearity=MANY)),
    ("error", lambda: st.plan(TASK, dimension=20, error=MANY)),
    ("over", lambda: st.shift(TASK, TRAINING, over=MANY, values=[8])),
    ("tolerance", lambda: st.phase_map(TASK, TRAINING, tolerance=MANY)),
    ("checkpoint", lambda: st.phase_map(TASK, TRAINING, checkpoint=MANY)),
    ("what", lambda: st.explain(FITTED, X, what=MANY)),
    ("class_weight", lambda: st.PooledClassifier(class_weight=MANY).fit(X, Y)),
    ("pooling", lambda: st.PooledClassifier(pooling=["mean", "max"]).fit(X, Y)),
]
FITTED = st.AttentionClassifier(refine=False, ridge=0.1, sharpness=1.0).fit(X, Y)


@pytest.mark.parametrize(("parameter", "call"), ARRAYS)
def test_several_values_where_one_is_wanted_are_refused(
    parameter: str, call: Callable[[], Any]
) -> None:
    assert_names(parameter, call)


NO_NAMES = np.array([None] * 60)
DATA: list[tuple[str, Callable[[], Any]]] = [
    ("loss", lambda: st.get_loss(np.array(["square", "hinge"]))),
    ("loss", lambda: st.get_loss(["square"])),
    ("margins", lambda: st.check_loss(st.get_loss("square"), margins=[0.0, np.nan])),
    ("shape of margins", lambda: st.check_loss(st.get_loss("square"), margins=[])),
    ("values", lambda: st.Task.from_dict(None)),
    ("groups", lambda: st.PooledClassifier().fit(X, Y, groups=NO_NAMES)),
    ("labels", lambda: st.separability(X[:, 0], ["yes"] * 60)),
    ("sample_weight", lambda: FITTED.score(X, Y, sample_weight=["a"] * 60)),
    ("shape of sample_weight", lambda: FITTED.score(X, Y, sample_weight=[1.0])),
    ("sample_weight", lambda: FITTED.score(X, Y, sample_weight=np.zeros(60))),
    ("seed", lambda: st.digit_bags(4, seed=-1)),
    ("seed", lambda: st.digit_bags(4, seed="first")),
    ("seed", lambda: st.forecast(st.PooledClassifier(), X, Y, seed=2**32)),
    ("seed", lambda: st.diagnose(X, Y, seed=2**32)),
    ("length of labels", lambda: st.plot_attention(FITTED, X[:3], labels=["a"])),
    ("labels", lambda: st.plot_attention(FITTED, X[:3], labels="abc")),
    ("path", lambda: st.read_study("study\0.toml")),
    ("path", lambda: FITTED.export(3)),
]


@pytest.mark.parametrize(("parameter", "call"), DATA)
def test_what_is_wrong_with_data_is_named(parameter: str, call: Callable[[], Any]) -> None:
    assert_names(parameter, call)


def test_no_samples_are_refused_as_such() -> None:
    assert_names("shape of X", lambda: st.compare(np.zeros((0, 3)), []))


@pytest.mark.parametrize(
    "call", [lambda: st.sample(TASK, 10**15, dimension=5, rng=0), lambda: st.digit_bags(10**15)]
)
def test_more_than_memory_holds_is_refused_before_it_is_drawn(call: Callable[[], Any]) -> None:
    with pytest.raises(MemoryError, match="GB; this machine has"):
        call()


@pytest.mark.parametrize(
    ("needed", "call"),
    [
        (8 * 50 * TASK.length * 4, lambda _: st.sample(TASK, 50, dimension=4, rng=0)),
        (4 * 64 * 30 * 5, lambda _: st.digit_bags(5, train=30, test=20)),
        (8 * 24 + 8 * 4 + 2 * 128, read_labelled),
    ],
    ids=["sample", "digit_bags", "a file"],
)
def test_the_memory_that_is_asked_for_is_that_of_the_arrays(
    needed: int, call: Callable[[Any], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez_compressed(tmp_path / "data.npz", X=np.zeros((4, 3, 2)), y=np.zeros(4))
    pages = {"SC_PAGE_SIZE": 2, "SC_PHYS_PAGES": needed // 2}
    monkeypatch.setattr(memory.os, "sysconf", pages.__getitem__)
    call(tmp_path / "data.npz")
    pages["SC_PHYS_PAGES"] -= 1
    with pytest.raises(MemoryError, match="GB; this machine has"):
        call(tmp_path / "data.npz")


NEVER = st.Training(3.0, 3.0, reuse=True)
TOLD: dict[str, Callable[[Any], Any]] = {
    "simulate": lambda told: st.simulate(TASK, TRAINING, dimension=10, trials=1, progress=told),
    "simulate_descent": lambda told: st.simulate_descent(TASK, [STEP], dimension=10, progress=told),
    "simulate_joint": lambda told: st.simulate_joint(TASK, NEVER, dimension=10, progress=told),
    "simulate_message_passing": lambda told: st.simulate_message_passing(
        TASK, 2.0, dimension=10, progress=told
    ),
    "finite_size": lambda told: st.finite_size(TASK, TRAINING, dimension=10, progress=told),
    "phase_map": lambda told: st.phase_map(TASK, TRAINING, progress=told),
    "plan": lambda told: st.plan(TASK, dimension=20, samples=99, progress=told),
    "forecast": lambda told: st.forecast(st.PooledClassifier(), X, Y, progress=told),
    "diagnose": lambda told: st.diagnose(X, Y, progress=told),
    "run_cells": lambda told: st.run_cells(
        [{"a": 1}], "never.sqlite", function=max, trials=1, progress=told
    ),
}
TOLD["run_sweep"] = lambda told: st.run_sweep(parse_study(STUDY), "never.sqlite", progress=told)
STUDY = """
trials = 1
dimensions = 10
task = {length = 4, informative = 1, strength = 2}
training = {alpha0 = 2, alpha1 = 2}
"""


@pytest.mark.parametrize("function", TOLD)
def test_what_cannot_be_called_is_refused_before_anything_is_done(
    function: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert_names("progress", lambda: TOLD[function](True))
    assert not list(tmp_path.iterdir())


def test_every_function_with_progress_is_tried() -> None:
    functions = {name: getattr(st, name) for name in st.__all__}
    asked = {
        name
        for name, one in functions.items()
        if inspect.isfunction(one) and "progress" in inspect.signature(one).parameters
    }
    assert asked == set(TOLD)


MAP = st.phase_map(TASK, TRAINING, x=("strength", [1.0, 4.0]), y=("alpha", [1.0, 2.0]),
                   classifiers=["pooled"], tolerance=0.1)  # fmt: skip
CURVE = st.curve(TASK, TRAINING, values=[1.0], classifier="pooled", tolerance=0.1)
FOUND = st.free_response_curve([[0.1, 2.0], [0.4, 0.3]], [[False, True], [False, False]])
FIGURES: list[tuple[str, Callable[[], Any]]] = [
    ("axes", lambda: CURVE.plot(axes="left")),
    ("axes", lambda: FOUND.plot(axes=MAP.plot())),
    ("axes", lambda: st.plot_attention(FITTED, X[:2], axes=3)),
    ("figure", lambda: MAP.plot(figure=CURVE.plot())),
    ("level", lambda: MAP.plot(level="low")),
    ("level", lambda: MAP.plot(level=5.0)),
    ("level", lambda: MAP.crossings(float("nan"), "pooled")),
    ("level", lambda: MAP.crossings([0.1, 0.2], "pooled")),
    ("false_alarms", lambda: FOUND.at(-1.0)),
    ("false_alarms", lambda: FOUND.at("few")),
    ("false_alarms", lambda: FOUND.at(float("nan"))),
]


@pytest.mark.parametrize(("parameter", "call"), FIGURES)
def test_methods_of_results_name_what_is_wrong(parameter: str, call: Callable[[], Any]) -> None:
    assert_names(parameter, call)


def test_figures_can_be_drawn_in_what_the_caller_has() -> None:
    figure = Figure()
    left, right = figure.subplots(1, 2)
    assert CURVE.plot(axes=left) is left
    assert FOUND.plot(axes=right) is right
    halves = Figure().subfigures(1, 2)
    assert MAP.plot(figure=halves[1]) is halves[1]
    assert not halves[0].axes


def half(settings: dict[str, Any], trial: int) -> dict[str, float]:
    return {"value": settings["size"] / 2 + trial}


def test_a_sound_store_is_not_called_damaged_for_a_wrong_argument(tmp_path: Path) -> None:
    path = tmp_path / "half.sqlite"
    with ThreadPoolExecutor(1) as pool:
        st.run_cells([{"size": 4}], path, function=half, trials=2, executor=pool)
    with st.Store(path) as store:
        for limit in ("all", 2.5, -1, 10**30):
            assert_names("limit", lambda limit=limit: store.errors(limit))
        for kind in ("trial", None):
            assert_names("kind", lambda kind=kind: store.columns(kind))
            assert_names("kind", lambda kind=kind: store.layouts(kind))
        assert store.errors(0) == []
        assert store.columns("trials") == ["value"]


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
