"""Every entry point of theory runs in one thread, whatever the user's BLAS does."""

import json
from collections.abc import Callable

import pytest

ASK = """
import json, sys
import numpy, scipy.linalg
from threadpoolctl import ThreadpoolController, threadpool_limits
from sparsetoken import *
import sparsetoken.theory.floor, sparsetoken.theory.shift, sparsetoken.theory.predictor
from sparsetoken.theory.descent import glance
from sparsetoken.theory.oracle_ranking import best_ranking

threadpool_limits(3, user_api="blas")
pools = ThreadpoolController().select(user_api="blas").lib_controllers
if any(pool.get_num_threads() != 3 for pool in pools):
    print("one core")
    raise SystemExit
found = {}

class Enough(Exception):
    pass

def note(frame, event, argument):
    if event == "call" and "/sparsetoken/theory/" in frame.f_code.co_filename:
        seen.update(pool.get_num_threads() for pool in pools)
        left.pop()
        if not left:
            raise Enough  # which also ends the profile

for name, call in CALLS.items():
    seen, left = set(), [None] * 300
    sys.setprofile(note)
    try:
        eval(call)
    except Enough:
        pass
    sys.setprofile(None)
    after = {pool.get_num_threads() for pool in pools}
    found[name] = [sorted(seen), sorted(after)]
print(json.dumps(found))
"""

TASK, TRAINING = "Task(6, 1, 3.0)", "Training(2.0, 1.0)"
CALLS = {
    "align": f"align({TASK}, {TRAINING})",
    "predict": f"predict({TASK}, {TRAINING})",
    "curve": f"curve({TASK}, {TRAINING}, over='alpha1', values=[1.0, 2.0])",
    "capacity": f"capacity({TASK}, query=Query(0.8, 1.0))",
    "capacity_curve": f"capacity_curve({TASK}, query=Query(0.8, 1.0), values=[1.0, 2.0])",
    "descend": f"descend({TASK}, [Step(8.0, readout_step=2.0, bias_step=1.0, query_step=1.0)] * 2)",
    "glance": f"glance({TASK}, [Step(8.0, readout_step=2.0, bias_step=1.0, query_step=1.0)] * 2)",
    "shift": f"shift({TASK}, {TRAINING}, values=[6, 8])",
    "floor": f"floor({TASK}, 2.0)",
    "hard_phase": f"hard_phase({TASK})",
    "oracle": f"oracle({TASK}, classifier='bayes')",
    "best_ranking": f"best_ranking({TASK}, 'bayes')",
    "required_strength": f"required_strength({TASK}, error=0.1, classifier='bayes')",
}


@pytest.fixture(scope="module")
def found(answer: Callable[[str], str]) -> dict[str, list[list[int]]]:
    """Return the sizes of BLAS' pools inside and after each call."""
    return dict(json.loads(answer(f"CALLS = {CALLS!r}\n{ASK}")))


@pytest.mark.parametrize("name", CALLS)
def test_theory_runs_in_one_thread(name: str, found: dict[str, list[list[int]]]) -> None:
    inside, after = found[name]
    assert (inside, after) == ([1], [3])
