"""What the command line computes beside the package's own entry points runs in one thread, too."""

from collections.abc import Callable
from typing import Any

import pytest

from sparsetoken import Task, Training
from sparsetoken.explorer import computing
from sparsetoken.numerics.threads import thread_pools
from sparsetoken.reproduce import joint_training

TASK, TRAINING = Task(4, 1, 3.0), Training(2.0, 2.0, reuse=True)
# What is called inside, and what is called from outside.
CASES: dict[str, tuple[Any, str, Callable[[], Any]]] = {
    "descent on one batch": (
        joint_training,
        "descent_trial",
        lambda: joint_training.full_batch_trial.function(TASK, 2.0, (0.5, 0.5, 1.0), [1], 20, 0),
    ),
    "joint training": (
        joint_training,
        "joint_trial",
        lambda: joint_training.converged_trial.function(TASK, TRAINING, "zero", 0.1, 20, 0),
    ),
}


def threads() -> set[int]:
    return {pool["num_threads"] for pool in thread_pools().info() if pool["user_api"] == "blas"}


@pytest.mark.parametrize("name", CASES)
def test_trials_run_in_one_thread(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place, inside, call = CASES[name]
    monkeypatch.setattr(place, inside, look := Looking())
    assert_one_thread(call, look)


class Looking:
    """Stands for what is called inside: notes the threads there, and ends the call."""

    def __init__(self) -> None:
        self.seen: list[set[int]] = []

    def __call__(self, *_: Any, **__: Any) -> Any:
        self.seen.append(threads())
        raise InterruptedError


def assert_one_thread(call: Callable[[], Any], look: Looking) -> None:
    with thread_pools().limit(limits=2, user_api="blas"):
        assert threads() == {2}, "this BLAS cannot show whether the limit works"
        with pytest.raises(InterruptedError):
            call()
        assert threads() == {2}
    assert look.seen == [{1}]


def test_points_of_the_explorer_are_computed_in_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    look = Looking()
    monkeypatch.setattr(computing, "_KINDS", {"looking": look})
    source = type("Source", (), {"kind": "looking"})
    batch = type("Batch", (), {"source": source, "values": ()})
    assert_one_thread(lambda: computing.compute(batch, lambda: None), look)  # type: ignore[arg-type]
