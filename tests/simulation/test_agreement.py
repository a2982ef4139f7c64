"""Simulation agrees with theory: a small seeded part of benchmarks/agreement.py.

z is (simulation - theory)/standard error in the limit of high dimension, extrapolated from two
dimensions with a free bias of order 1/d. About 30 comparisons: |z| <= 3.7 each has a chance of less
than 1 % to fail for a correct program, and the seed is fixed.
"""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.slow

PLAN = (
    ("learnt query", "attention", 2),
    ("given query, shift", "attention", 2),
    ("pooled, shift", "pooled", 1),
    ("vectorised", "vectorised", 1),
    ("no ridge", "attention", 1),
    ("capacity, given query", "attention", 1),
)


@pytest.fixture(scope="module")
def agreement():
    path = Path(__file__).parents[2] / "benchmarks" / "agreement.py"
    spec = importlib.util.spec_from_file_location("agreement", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["agreement"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def comparisons(agreement):
    settings = agreement.draw_settings(1, PLAN)
    found = [
        agreement.compare(setting, index, {100: 24, 200: 12}, seed=0)
        for index, setting in enumerate(settings)
    ]
    return settings, [comparison for part in found for comparison in part]


def test_theory_and_simulation_agree(comparisons):
    _, found = comparisons
    assert len(found) >= 20
    scores = {(c.setting, c.group, c.quantity): c.fit()[2] for c in found}
    far = {key: z for key, z in scores.items() if not abs(z) <= 3.7}
    assert not far
    z = np.array(list(scores.values()))
    assert 0.5 < np.sqrt(np.mean(z**2)) < 1.6


def test_the_comparison_sees_a_wrong_theory(comparisons):
    _, found = comparisons
    errors = [c for c in found if c.quantity == "test_error"]
    assert errors
    for item in errors:
        before = item.z_score(200)
        item.theory += 12 * item.standard_error(200)
        assert abs(item.z_score(200) - before) == pytest.approx(12)
        assert abs(item.fit()[2]) > 3.7
        item.theory -= 12 * item.standard_error(200)


def test_the_report_holds_every_comparison(agreement, comparisons, tmp_path):
    settings, found = comparisons
    folder = tmp_path / "study"
    agreement.write(folder, settings, found)
    rows = (folder / "zscores.csv").read_text().splitlines()
    assert len(rows) == 1 + len(found)
    assert len((folder / "settings.csv").read_text().splitlines()) == 1 + len(settings)
    assert f"{len(found)} comparisons" in (tmp_path / "study.md").read_text()
    assert (folder / "zscores.svg").stat().st_size > 1000
