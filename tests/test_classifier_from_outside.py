"""The documented extensions work without a change of the package, in worker processes too."""

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "extending-classifiers.md"

STUDY = """
imports = ["summed"]
classifiers = ["summed", "pooled"]
dimensions = 30
trials = 2
[task]
length = 4
informative = 1
strength = 3
[training]
alpha0 = 2
alpha1 = [1, 3]
ridge = 0.1
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the page's classifier as a module, and a study that uses it."""
    examples = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "summed.py").write_text("\n".join(examples[:3]))
    (tmp_path / "study.toml").write_text(STUDY)
    return tmp_path


def run(folder: Path, *words: str) -> str:
    return run_python(folder, "-m", "sparsetoken", *words)


def run_python(folder: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{os.environ.get('PYTHONPATH', '')}:{folder}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_command_line_knows_an_imported_classifier(folder: Path) -> None:
    words = ("predict", "--classifier", "summed", "--ridge", "0.1", "--json")
    found = json.loads(run(folder, *words, "--import", "summed"))["result"]
    # With noise of unit size a ridge of 0.1 acts as one of 0.1/L does on pooled features.
    pooled = json.loads(run(folder, *words[:2], "pooled", "--ridge", "0.01", "--json"))["result"]
    assert found["test_error"] == pytest.approx(pooled["test_error"], abs=1e-6)


# All in one process: to start one takes longer than to show any help.
HELPED = """
from click.testing import CliRunner

from sparsetoken.cli import main

for words in ([], ["--import", "summed"]):
    for command in ("predict", "capacity", "simulate", "map"):
        print(*CliRunner().invoke(main, [command, *words, "--help"]).output.split())
"""


def test_help_names_an_imported_classifier(folder: Path) -> None:
    texts = run_python(folder, "-c", HELPED).splitlines()
    assert len(texts) == 8
    assert all("attention, pooled or vectorised." in plain for plain in texts[:4])
    assert all("attention, pooled, vectorised or summed." in told for told in texts[4:])


def test_a_sweep_simulates_an_imported_classifier_in_worker_processes(folder: Path) -> None:
    run(folder, "sweep", "run", "study.toml", "--workers", "2")
    run(folder, "sweep", "export", "study.toml", "--csv", "trials.csv")
    rows = list(csv.DictReader((folder / "trials.csv").read_text().splitlines()))
    assert [row["classifier"] for row in rows].count("summed") == 4
    for row in rows:
        assert row["outcome"] == "done"
        assert 0 < float(row["theory_test_error"]) < 0.5
    # Figures give it a free colour, with its own name.
    run(folder, "sweep", "plot", "study.toml", "--output", "figure.svg")
    assert "summed" in (folder / "figure.svg").read_text()


def test_a_map_predicts_an_imported_classifier_in_worker_processes(folder: Path) -> None:
    words = ("map", "--import", "summed", "--classifier", "summed", "--classifier", "pooled")
    options = ("--points", "2", "--ridge", "0.1", "--workers", "2", "--json")
    rows = json.loads(run(folder, *words, *options))["results"]
    assert len(rows) == 4
    for row in rows:
        assert 0 < row["summed_test_error"] < 0.5
        assert row["summed_test_error"] != row["pooled_test_error"]


IN_WORKERS = """
from sparsetoken import Task, Training, phase_map, simulate
from sparsetoken.simulation import trials

if __name__ == "__main__":
    trials.START_OF_PROCESSES = 0.0
    task, training = Task(8, 2, 3.0), Training(2.0, 2.0, ridge=0.1)
    options = {"dimension": 20, "trials": 3, "classifier": "summed"}
    axes = {"x": ("strength", [2.0, 3.0]), "y": ("alpha", [1.0, 2.0]), "classifiers": ["summed"]}
    alone, shared = (
        (
            simulate(task, training, workers=workers, **options).values("test_error"),
            phase_map(task, training, workers=workers, **axes).errors["summed"].tolist(),
        )
        for workers in (1, 2)
    )
    print(alone == shared)
"""


@pytest.mark.parametrize(
    "beginning",
    [
        "",  # defined by the program itself, which workers cannot import
        "from sparsetoken.extensions import import_extensions\nimport_extensions(['summed'])\n",
    ],
)
def test_trials_and_maps_hand_a_classifier_on_to_their_workers(
    folder: Path, beginning: str
) -> None:
    definition = beginning or (folder / "summed.py").read_text()
    (folder / "program.py").write_text(definition + IN_WORKERS)
    assert run_python(folder, "program.py").split() == ["True"]


TRAINED = """
import numpy as np

import summed
from sparsetoken import Task, Training, features, sample, train

data = sample(Task(8, 2, 6.0), 200, dimension=20, rng=0)
pairs = [(data.X[:100], data.y[:100]), (data.X[100:], data.y[100:])]
kinds = {name: train(*pairs, Training(5.0, 5.0, ridge=ridge), classifier=name)
         for name, ridge in (("summed", 0.1), ("pooled", 0.1 / 8))}
mapped = features(data.X, "summed")
print(np.allclose(mapped, np.sqrt(8) * features(data.X, "pooled")))
print(np.allclose(kinds["summed"].decision(data.X), kinds["pooled"].decision(data.X), atol=1e-6))
"""


def test_arrays_are_mapped_and_trained_on_as_an_imported_classifier_says(folder: Path) -> None:
    (folder / "trained.py").write_text(TRAINED)
    assert run_python(folder, "trained.py").split() == ["True", "True"]


EXPLORED = """
from sparsetoken.extensions import import_extensions

import_extensions(["summed"])  # as `sparsetoken explore --import summed` does

from sparsetoken import predict
from sparsetoken.explorer.simulating import Simulating
from sparsetoken.explorer.state import State
from sparsetoken.explorer.picture import pieces
from sparsetoken.explorer.views import FIRST

if __name__ == "__main__":
    state = State.from_values({"classifiers": ["summed"], "dimension": 30, "trials": 2})
    numbers = [piece for piece in pieces(state, FIRST, lambda: None) if piece["kind"] == "numbers"]
    here = predict(state.task, state.training, classifier="summed").test_error
    print(abs(numbers[0]["rows"][0]["value"] - here) < 2e-3)
    print("dot" in {message["kind"] for message in Simulating(state).messages()})
"""


OTHER_VIEWS = """
import sys

from sparsetoken.extensions import import_extensions

import_extensions(["summed", "summed_at_any_length"])

from sparsetoken import ParameterError, Task, Training, phase_map
from sparsetoken.explorer.looks import line_looks
from sparsetoken.explorer.state import State
from sparsetoken.explorer.picture import pieces
from sparsetoken.explorer.views import FIRST

values = {"view": "map", "classifiers": ["summed", "pooled"], "ridge": 0.1}
(found,) = pieces(State.from_values(values), FIRST, lambda: None)
print([row[0] is not None for row in found["values"]["summed"]].count(True))
moved = {"view": "shift", "classifiers": ["summed_at_any_length"], "ridge": 0.1, "points": 3}
names = [piece["name"] for piece in pieces(State.from_values(moved), FIRST, lambda: None)]
print(names, set(names) < set(line_looks()))
for view, name in (("shift", "summed"), ("query", "summed"), ("inside", "summed")):
    try:
        State.from_values({"view": view, "classifiers": [name]})
    except ParameterError as error:
        print(error)
axes = {"x": ("strength", [2.0, 3.0]), "y": ("alpha", [1.0, 2.0])}
print(list(phase_map(Task(8, 2, 3.0), Training(2.0, 2.0, ridge=0.1), **axes).errors))
"""

AT_ANY_LENGTH = """
from dataclasses import replace

from sparsetoken.theory.laws import LAWS

LAWS["summed_at_any_length"] = replace(LAWS["pooled"])
"""


def test_maps_and_shifts_take_an_imported_classifier_and_other_views_refuse_it_by_name(
    folder: Path,
) -> None:
    (folder / "summed_at_any_length.py").write_text(AT_ANY_LENGTH)
    (folder / "views.py").write_text(OTHER_VIEWS)
    side, drawn, shift, query, inside, mapped = run_python(folder, "views.py").splitlines()
    assert side == "5"
    assert drawn == "['summed_at_any_length', 'summed_at_any_length, bias moved'] True"
    assert "classifiers = 'summed'" in shift
    assert "'summed_at_any_length'" in shift
    for refused in (query, inside):
        assert refused.endswith("classifiers = 'summed' is not valid: expected one of 'attention'")
    assert mapped == "['attention', 'pooled', 'vectorised', 'summed', 'summed_at_any_length']"


def test_the_explorer_draws_an_imported_classifier_and_simulates_it(folder: Path) -> None:
    (folder / "explored.py").write_text(EXPLORED)
    assert run_python(folder, "explored.py").split() == ["True", "True"]
