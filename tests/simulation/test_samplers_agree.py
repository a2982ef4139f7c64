"""The reduced sampler has the law of the plain one, in every reported quantity and at any d.

Two-sample Kolmogorov-Smirnov tests on seeded trials, with a total level of 1e-3 shared by all
comparisons (Bonferroni). Small dimensions are the point: there, asymptotics are no excuse.
"""

from typing import get_args

import numpy as np
import pytest
from scipy.stats import ks_2samp

from sparsetoken import Query, Task, Training, simulate
from sparsetoken.simulation.protocol import WAYS, Protocol, train_plain, train_reduced
from sparsetoken.simulation.sampling import SAMPLERS
from sparsetoken.sweeps.spec import Study

TRIALS = 90
QUANTITIES = (
    "alignment",
    "query_norm",
    "readout_cosine",
    "test_error",
    "train_loss",
    "train_error",
    "separable",
    "margin",
    "readout_norm",
    "bias",
    "fresh_test_error",
)

RARE = Task(length=5, informative=2, strength=2.0, positive_rate=0.3)
PAIR = Task(length=2, informative=1, strength=3.0, positive_rate=0.5)
LONG = Task(length=12, informative=1, strength=4.0, positive_rate=0.6)
STEPS = {"readout_step": 2.0, "bias_step": 1.0, "query_step": 8.0}

SETTINGS = {
    "d=2": (RARE, Training(4.0, 6.0, ridge=0.1, **STEPS), 2, {}),
    "d=5": (LONG, Training(3.0, 3.0, ridge=1e-2, **STEPS), 5, {}),
    "d=20": (RARE, Training(1.0, 2.0, ridge=1e-3, **STEPS), 20, {}),
    "square": (PAIR, Training(2.0, 4.0, loss="square", ridge=1e-2, **STEPS), 5, {}),
    "fewer samples than dimensions": (PAIR, Training(2.0, 0.5, **STEPS), 20, {}),
    "no ridge": (RARE, Training(2.0, 1.6, ridge=0.0, **STEPS), 10, {}),
    "hinge": (LONG, Training(1.0, 3.0, loss="hinge", ridge=1e-2, **STEPS), 5, {}),
    "given query": (RARE, Training(1.0, 2.0), 5, {"query": Query(-0.4, 3.0)}),
    "perfect query": (RARE, Training(1.0, 2.0), 5, {"query": Query(1.0, 3.0)}),
    "shift": (RARE, Training(2.0, 3.0, **STEPS), 5, {"at": LONG}),
    "pooled": (LONG, Training(1.0, 3.0, ridge=1e-2), 2, {"classifier": "pooled"}),
    "pooled, few samples": (LONG, Training(1.0, 0.5), 20, {"classifier": "pooled"}),
    "vectorised": (RARE, Training(1.0, 8.0, ridge=1e-2), 2, {"classifier": "vectorised"}),
    "vectorised, few samples": (RARE, Training(1.0, 1.5), 5, {"classifier": "vectorised"}),
}
LEVEL = 1e-3 / (len(SETTINGS) * len(QUANTITIES))


def pair(name, trials=TRIALS):
    task, training, dimension, options = SETTINGS[name]
    return [
        simulate(
            task,
            training,
            dimension=dimension,
            trials=trials,
            sampler=sampler,
            fresh_test=40,
            **options,
        )
        for sampler in ("plain", "reduced")
    ]


@pytest.mark.parametrize("name", SETTINGS)
def test_samplers_agree_in_law(name):
    plain, reduced = pair(name)
    compared = 0
    for quantity in QUANTITIES:
        first, second = plain.values(quantity), reduced.values(quantity)
        assert bool(first) == bool(second)
        if len(set(first + second)) > 1:
            # Rounding would order values that are equal in law, such as a given query's alignment.
            # Margins exist for separable data only: too few of them for the asymptotic law.
            method = "asymp" if min(len(first), len(second)) >= 20 else "exact"
            verdict = ks_2samp(np.round(first, 9), np.round(second, 9), method=method)
            assert verdict.pvalue > LEVEL, quantity
            compared += 1
    assert compared >= 4


def test_the_comparison_sees_a_small_difference():
    # The same test must reject when the law is changed a little, else it shows nothing.
    task, training, dimension, options = SETTINGS["d=20"]
    other = task.replace(strength=1.25 * task.strength)
    plain = simulate(task, training, dimension=dimension, trials=TRIALS, sampler="plain", **options)
    changed = simulate(
        other, training, dimension=dimension, trials=TRIALS, sampler="reduced", **options
    )
    verdict = ks_2samp(plain.values("test_error"), changed.values("test_error"), method="asymp")
    assert verdict.pvalue < LEVEL


@pytest.mark.parametrize("classifier", ["attention", "pooled", "vectorised"])
@pytest.mark.parametrize("train", [train_plain, train_reduced])
def test_the_test_error_without_a_test_set_is_that_on_fresh_data(classifier, train):
    # One classifier, measured on many fresh samples: agreement within 3.5 standard errors.
    rng = np.random.default_rng(5)
    for task, at in ((RARE, RARE), (RARE, RARE.replace(informative=3, positive_rate=0.6))):
        outcome = train(Protocol(task, Training(2.0, 3.0, **STEPS), 8, classifier), rng)
        value, uncertainty = outcome.geometry.test_error(at, rng)
        count = 40_000
        fresh = outcome.fresh_error(at, count, rng)
        error = np.hypot(np.sqrt(value * (1 - value) / count), uncertainty)
        assert uncertainty < 2e-3
        assert abs(fresh - value) <= 3.5 * error


def test_every_sampler_is_known_wherever_one_is_chosen():
    assert set(WAYS) == set(SAMPLERS) == set(get_args(Study.model_fields["sampler"].annotation))
