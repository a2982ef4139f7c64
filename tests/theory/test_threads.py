"""Every entry point of theory runs in one thread, whatever the user's BLAS does."""

import os
import subprocess
import sys

import pytest

ASK = """
import sys
import numpy, scipy.linalg
from threadpoolctl import ThreadpoolController, threadpool_limits
from sparsetoken import Query, Task, Training, {name}
import sparsetoken.theory.prediction, sparsetoken.theory.oracle, sparsetoken.theory.capacity

threadpool_limits(3, user_api="blas")
pools = ThreadpoolController().select(user_api="blas").lib_controllers
if any(pool.get_num_threads() != 3 for pool in pools):
    print("one core")
    raise SystemExit
seen = set()

def note(frame, event, argument):
    if event == "call" and "/sparsetoken/theory/" in frame.f_code.co_filename:
        seen.update(pool.get_num_threads() for pool in pools)

sys.setprofile(note)
{call}
sys.setprofile(None)
print(seen, [pool.get_num_threads() for pool in pools] == [3] * len(pools))
"""

TASK, TRAINING = "Task(6, 1, 3.0)", "Training(2.0, 1.0)"
CALLS = {
    "align": f"align({TASK}, {TRAINING})",
    "predict": f"predict({TASK}, {TRAINING})",
    "curve": f"curve({TASK}, {TRAINING}, over='alpha1', values=[1.0, 2.0])",
    "capacity": f"capacity({TASK}, query=Query(0.8, 1.0))",
    "oracle": f"oracle({TASK}, classifier='bayes')",
    "required_strength": f"required_strength({TASK}, error=0.1, classifier='bayes')",
}


@pytest.mark.parametrize("name", CALLS)
def test_theory_runs_in_one_thread(name: str) -> None:
    environment = {key: text for key, text in os.environ.items() if "NUM_THREADS" not in key}
    done = subprocess.run(
        [sys.executable, "-c", ASK.format(name=name, call=CALLS[name])],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    if done.stdout == "one core\n":
        pytest.skip("this BLAS has one thread only")
    assert done.stdout == "{1} True\n"
