"""Calls that cannot be meant, each with the parameter that the error names."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

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


def assert_names(parameter: str, call: Callable[[], Any]) -> None:
    with pytest.raises(ParameterError) as refused:
        call()
    assert refused.value.parameter == parameter
    assert refused.value.accepted.strip()
