"""Fitting and using a classifier runs in one thread of linear algebra: last bits do not vary."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from bags import make_bags

from sparsetoken.estimators import AttentionClassifier, AttentionRegressor
from sparsetoken.estimators.partitions import _run
from sparsetoken.numerics.threads import thread_pools

BAGS = make_bags(40)
FITTED = AttentionClassifier(refine=False, ridge=0.01, sharpness=2.0).fit(BAGS.X, BAGS.y)
# What is called inside, and what the user calls.
CASES: dict[str, tuple[Any, str, Callable[[], Any]]] = {
    "fit": (AttentionClassifier, "_fit_model", lambda: AttentionClassifier().fit(BAGS.X, BAGS.y)),
    "regression": (
        AttentionClassifier,
        "_fit_labelled",
        lambda: AttentionRegressor().fit(BAGS.X, BAGS.y.astype(float)),
    ),
    "decision": (type(FITTED.model_), "decide", lambda: FITTED.decision_function(BAGS.X)),
    "features": (type(FITTED.model_), "features", lambda: FITTED.transform(BAGS.X)),
    "attention": (type(FITTED.model_), "attend", lambda: FITTED.attention(BAGS.X)),
    "a part of the data": (np, "sort", lambda: _run(BAGS.X, None, lambda part: np.sort(part), ())),
}


def threads() -> set[int]:
    return {pool["num_threads"] for pool in thread_pools().info() if pool["user_api"] == "blas"}


@pytest.mark.parametrize("name", CASES)
def test_estimators_run_in_one_thread(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place, inside, call = CASES[name]

    def look(*_: Any, **__: Any) -> None:
        seen.append(threads())
        raise InterruptedError

    seen: list[set[int]] = []
    monkeypatch.setattr(place, inside, look)
    with thread_pools().limit(limits=2, user_api="blas"):
        assert threads() == {2}, "this BLAS cannot show whether the limit works"
        with pytest.raises(InterruptedError):
            call()
        assert threads() == {2}
    assert seen == [{1}]
