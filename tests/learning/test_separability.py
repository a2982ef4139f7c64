"""Separability: both verdicts must carry a proof, and agree with a linear program."""

from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog

from sparsetoken import ParameterError, fit_readout, separability
from sparsetoken.learning.separability import _units
from sparsetoken.losses import Logistic


def draw(n, d, seed, heavy=False):
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((n, d))
    if heavy:
        features *= rng.exponential(size=(n, 1))
    return features, np.where(rng.random(n) < 0.5, 1, -1)


def program_says(features, labels):
    n, d = features.shape
    signed = labels[:, None] * np.column_stack([features, np.ones(n)])
    found = linprog(
        np.zeros(d + 1), A_ub=-signed, b_ub=-np.ones(n), bounds=[(None, None)] * (d + 1)
    )
    return found.status == 0


def check_proof(features, labels, verdict):
    if verdict.separable:
        margins = labels * (features @ verdict.weights + verdict.bias)
        assert margins.min() > 0
        assert verdict.margin == pytest.approx(margins.min() / np.linalg.norm(verdict.weights))
        assert verdict.multipliers is None
    else:
        assert verdict.separable is False
        assert verdict.multipliers.min() >= 0
        assert verdict.multipliers.sum() == pytest.approx(1)
        signed = labels[:, None] * np.column_stack([features, np.ones(len(labels))])
        size = np.sqrt(np.mean(np.sum(signed**2, axis=1)))
        assert np.linalg.norm(verdict.multipliers @ signed) <= 1.1e-9 * size
        assert verdict.solution.residual <= 1e-9


@pytest.mark.parametrize("heavy", [False, True])
def test_agrees_with_a_linear_program_around_capacity(heavy):
    verdicts = []
    for seed in range(30):
        for n in (34, 40, 46):
            features, labels = draw(n, 20, seed, heavy)
            verdict = separability(features, labels)
            check_proof(features, labels, verdict)
            assert verdict.separable == program_says(features, labels)
            verdicts.append(verdict.separable)
    assert 0.2 < np.mean(verdicts) < 0.9


@pytest.mark.parametrize(("n", "separable"), [(50, True), (400, False)])
def test_a_start_does_not_change_the_verdict(n, separable):
    features, labels = draw(n, 60, 0)
    start = np.linspace(-1, 1, 60), 0.3
    verdict = separability(features, labels, start=start)
    assert verdict.separable is separable
    check_proof(features, labels, verdict)


@pytest.mark.parametrize("unit", [1.0, 1e9, 1e-9])
def test_a_start_that_separates_needs_no_step_in_any_unit(unit):
    features, labels = draw(40, 60, 0)
    features = unit * (features + 3.0)
    found = separability(features, labels)
    again = separability(features, labels, start=(found.weights, found.bias), max_steps=0)
    assert found.solution.steps > 0 == again.solution.steps
    assert again.separable is True


def test_one_class_is_separable_by_the_bias():
    verdict = separability(np.random.default_rng(0).standard_normal((50, 2)), np.ones(50))
    assert verdict.separable


def test_duplicates_with_opposite_labels_are_not_separable():
    features, labels = draw(20, 60, 1)
    features[1], labels[:2] = features[0], (1, -1)
    verdict = separability(features, labels)
    assert verdict.separable is False
    check_proof(features, labels, verdict)


@pytest.mark.parametrize("scale", [1e-300, 1e-165, 1e-10, 1e-6, 1e6, 1e150])
def test_the_scale_of_the_features_does_not_matter(scale):
    for n in (34, 46):
        features, labels = draw(n, 20, 3)
        expected = separability(features, labels).separable
        assert separability(scale * features, labels).separable is expected


def test_undecided_is_none():
    features, labels = draw(44, 20, 0)
    verdict = separability(features, labels, max_steps=0)
    assert verdict.separable is None
    assert verdict.solution.residual > 0


@pytest.mark.parametrize("offset", [0.0, 1e3, 1e5])
@pytest.mark.parametrize("scale", [1e-10, 1.0])
def test_neither_unit_nor_origin_of_the_features_matters(scale, offset):
    for n in (34, 46):
        features, labels = draw(n, 20, 3)
        verdict = separability(scale * (features + offset), labels)
        assert verdict.separable is separability(features, labels).separable
        if verdict.separable:
            margins = labels * (scale * (features + offset) @ verdict.weights + verdict.bias)
            assert margins.min() > 0


@pytest.mark.parametrize(
    "labels", [[0, 1, 0, 1], ["a", "b", "a", "b"], [1, -1], [[1], [-1], [1], [-1]]]
)
def test_labels_that_are_not_signs_are_refused(labels):
    with pytest.raises(ParameterError, match="labels"):
        separability(np.eye(4), np.array(labels))
    with pytest.raises(ParameterError, match="labels"):
        fit_readout(np.eye(4), np.array(labels), loss="logistic", ridge=0.1)


@pytest.mark.parametrize("labels", [[1, -1, 1, -1], ["a", 1, None, 1]])
def test_labels_that_are_objects_are_refused_by_their_type(labels):
    # The first look right when they are shown, the others cannot be sorted.
    with pytest.raises(ParameterError, match="type of labels = 'object'"):
        separability(np.eye(4), np.array(labels, dtype=object))


@pytest.mark.parametrize("features", [np.ones(4), np.full((4, 2), np.nan), np.ones((0, 2))])
def test_features_that_cannot_be_used_are_refused(features):
    with pytest.raises(ParameterError, match="features"):
        separability(features, np.array([1, -1, 1, -1]))


def test_a_loss_may_be_given_by_its_name():
    features, labels = draw(30, 5, 0)
    by_name = fit_readout(features, labels, loss="logistic", ridge=0.1)
    assert np.array_equal(
        by_name.weights, fit_readout(features, labels, loss=Logistic(), ridge=0.1).weights
    )
    with pytest.raises(ParameterError, match="loss = 'cubic'"):
        fit_readout(features, labels, loss="cubic", ridge=0.1)


@pytest.mark.parametrize(("offset", "kept"), [(0.0, True), (2.0, True), (900.0, False)])
def test_features_far_from_zero_are_centred(offset, kept):
    features = offset + np.random.default_rng(0).standard_normal((50, 4)) * 0.1
    centre, unit = _units(features)
    assert (centre is None) == kept
    if not kept:
        assert centre == pytest.approx(features.mean(axis=0))
        assert unit == pytest.approx(np.sqrt(4) * 0.1, rel=0.1)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"tolerance": 0.0}, "tolerance = 0.0"),
        ({"tolerance": "fine"}, "tolerance = 'fine'"),
        ({"max_steps": -1}, "max_steps = -1"),
        ({"start": 3}, "start = 3"),
        ({"start": (np.ones(3), 0.0)}, r"start = \(3,\) .* \(2 finite weights, a finite bias\)"),
        ({"start": (np.array([1.0, np.nan]), 0.0)}, "start = 'nan or infinity'"),
        ({"start": (np.ones(2), "none")}, "bias of start = 'none'"),
        ({"start": ([[1], [1, 2]], 0.0)}, "start = .* one length"),
    ],
)
def test_arguments_that_cannot_be_meant_are_refused(bad: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        separability(np.eye(2), np.array([1, -1]), **bad)
    if "start" not in bad:
        with pytest.raises(ParameterError, match=message):
            fit_readout(np.eye(2), np.array([1, -1]), loss="logistic", ridge=0.1, **bad)
