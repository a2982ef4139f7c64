"""Losses from outside reach study files, the command line and worker processes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sparsetoken import ParameterError, Store
from sparsetoken.extensions import additions, import_extensions, make_known
from sparsetoken.theory.laws import LAWS, ClassifierLaw

MODULE = """
import numpy as np
from sparsetoken import Loss, register_loss

class Huber(Loss):
    name = "huber"
    minimisers = (1.0, np.inf)
    breakpoints = (-1.0, 1.0)
    piecewise_quadratic = True

    def value(self, margin):
        gap = np.maximum(1 - margin, 0.0)
        return np.where(gap <= 2, 0.5 * gap**2, 2 * gap - 2)

    def slope(self, margin):
        return np.clip(margin - 1, -2.0, 0.0)

    def curvature(self, margin):
        return np.where((margin > -1) & (margin < 1), 1.0, 0.0)
"""
STUDY = """
imports = ["my_losses"]
classifiers = "pooled"
dimensions = 20
trials = 2
[task]
length = 4
informative = 1
strength = 2
[training]
alpha0 = 2
alpha1 = 2
ridge = 0.1
loss = "huber"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "my_losses.py").write_text(MODULE + "\nregister_loss(Huber())\n")
    return tmp_path


def command(folder: Path, *arguments: str, path: str = "") -> subprocess.CompletedProcess[str]:
    """Run the installed command's entry, which unlike `python -m` has no folder on its path."""
    start = "import sys; sys.path = [p for p in sys.path if p]; from sparsetoken.cli import main; main()"
    environment = dict(os.environ)
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [path, os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        [sys.executable, "-c", start, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=folder,
        env=environment,
    )


def test_a_study_file_names_the_module_and_workers_import_it(folder: Path) -> None:
    (folder / "study.toml").write_text(STUDY)
    done = command(folder, "sweep", "run", "study.toml", "--workers", "2")
    assert done.returncode == 0, done.stderr
    with Store(folder / "study.sqlite") as store:
        rows = list(store.rows())
        assert [row["error"] for row in rows] == [None, None]
        assert [row["error"] for row in store.theory_rows()] == [None]
        assert rows[0]["loss"] == "huber"


def test_without_the_module_the_loss_is_unknown(folder: Path) -> None:
    (folder / "study.toml").write_text(STUDY.replace('imports = ["my_losses"]', ""))
    done = command(folder, "sweep", "status", "study.toml")
    assert (done.returncode, "training.loss: 'huber' is not valid" in done.stderr) == (2, True)


def test_the_workers_of_a_sweep_know_what_the_command_line_imports(folder: Path) -> None:
    (folder / "study.toml").write_text(STUDY.replace('imports = ["my_losses"]', ""))
    done = command(folder, "sweep", "run", "study.toml", "--import", "my_losses", "--workers", "1")
    assert done.returncode == 0, done.stdout
    assert "theory of 1, trials 2/2;" in done.stdout


@pytest.mark.parametrize("workers", ["1", "2"])
def test_the_command_line_names_the_module_and_workers_know_the_loss(
    folder: Path, workers: str
) -> None:
    words = ["simulate", "--import", "my_losses", "--loss", "huber", "--ridge", "0.1"]
    words += ["--classifier", "pooled", "--dimension", "20", "--trials", "2", "--json"]
    done = command(folder, *words, "--workers", workers)
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["trials"]) == 2


def test_an_installed_package_offers_a_loss_by_an_entry_point(tmp_path: Path) -> None:
    site = tmp_path / "site"
    metadata = site / "my_package-1.0.dist-info"
    metadata.mkdir(parents=True)
    (site / "my_package.py").write_text(MODULE)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[sparsetoken.losses]\nhuber = my_package:Huber\n")
    words = ["predict", "--classifier", "pooled", "--loss", "huber", "--ridge", "0.1", "--json"]
    done = command(tmp_path, *words, path=str(site))
    assert done.returncode == 0, done.stderr
    assert 0 < json.loads(done.stdout)["result"]["test_error"] < 0.5
    (metadata / "entry_points.txt").write_text("[sparsetoken.losses]\nhuber = my_package:Gone\n")
    done = command(tmp_path, *words, path=str(site))
    assert (done.returncode, "a loss that its package can load" in done.stderr) == (2, True)


@pytest.mark.parametrize("name", ["no_such_module_here", "os; import sys", "", "a..b", 3])
def test_what_is_no_module_is_refused_by_name(name: object) -> None:
    with pytest.raises(ParameterError, match="imports = "):
        import_extensions([name])  # type: ignore[list-item]


def test_a_module_that_fails_is_one_message(folder: Path) -> None:
    (folder / "broken.py").write_text("raise SystemExit(3)")
    done = command(folder, "align", "--import", "broken")
    assert (done.returncode, "SystemExit: 3" in done.stderr) == (2, True)
    assert "Traceback" not in done.stderr


def test_what_was_added_last_is_what_a_process_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker serves one program after another, and may have seen the same addition before."""
    states = []
    for fixed_length in (True, False):
        monkeypatch.setitem(
            LAWS, "mine", ClassifierLaw(LAWS["pooled"].make, fixed_length=fixed_length)
        )
        states.append(additions())
    monkeypatch.delitem(LAWS, "mine")
    assert b"mine" not in additions()
    for index in (0, 1, 0):
        make_known(states[index])
        assert LAWS["mine"].fixed_length is (index == 0)
    del LAWS["mine"]
