"""Each part of an error bar is there for an error that it covers: leaving one out is noticed."""

import numpy as np
import pytest
from scipy.special import expit

from sparsetoken import Loss, Query, Task, Training, get_loss, predict, register_loss
from sparsetoken.losses import unregister_loss
from sparsetoken.theory import limit
from sparsetoken.theory.laws import pooled_law
from sparsetoken.theory.limit import limit_readout
from sparsetoken.theory.replicates import replicate_error

TASK = Task(10, 1, 5.0, 0.4)


class SoftHinge(Loss):
    """w log(1 + exp((1 - t)/w)): a hinge with a corner of width w that quadrature is not told of."""

    name = "soft_hinge"
    minimisers = (np.inf, np.inf)
    width = 0.05

    def value(self, margin):
        return self.width * np.logaddexp(0.0, (1 - margin) / self.width)

    def slope(self, margin):
        return -expit((1 - margin) / self.width)

    def curvature(self, margin):
        share = expit((1 - margin) / self.width)
        return share * (1 - share) / self.width


class ToldHinge(SoftHinge):
    """The same loss, with its corner cut into panels."""

    name = "told_hinge"
    breakpoints = tuple(1 + SoftHinge.width * np.arange(-24.0, 25.0, 3.0))


def test_the_bar_covers_what_quadrature_misses() -> None:
    """The law is exact: without the error of quadrature the bars would be some 1e-9."""
    for loss in (SoftHinge(), ToldHinge()):
        register_loss(loss)
    try:
        training = Training(2.0, 3.0, ridge=1e-2)
        found, truth = (
            predict(TASK, training.replace(loss=name), classifier="pooled")
            for name in ("soft_hinge", "told_hinge")
        )
    finally:
        for name in ("soft_hinge", "told_hinge"):
            unregister_loss(name)
    for field in ("test_error", "train_loss"):
        deviation = abs(getattr(found, field) - getattr(truth, field))
        assert deviation > 1e-8, field
        assert getattr(truth.uncertainty, field) < 0.1 * deviation
        assert deviation <= getattr(found.uncertainty, field) < 1e3 * deviation, field


def test_the_bar_covers_what_a_solver_that_stops_early_leaves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Law and moments are exact: without the residual the bars would be at rounding level."""
    training = Training(2.0, 3.0, ridge=1e-2, loss="squared_hinge")
    truth = predict(TASK, training, classifier="pooled", tolerance=1e-9)
    monkeypatch.setattr(limit, "_SOLUTION", 0.3)
    monkeypatch.setattr(limit, "_CORRECTIONS", 1)
    early = predict(TASK, training, classifier="pooled", tolerance=1.0)
    for field in ("test_error", "train_loss"):
        deviation = abs(getattr(early, field) - getattr(truth, field))
        assert deviation > 1e-8, field
        assert deviation <= getattr(early.uncertainty, field), field


def test_the_errors_of_the_order_parameters_hold_both_parts() -> None:
    law = pooled_law(TASK)
    readout = limit_readout((law, law), get_loss("logistic"), 3.0, 1e-2)
    assert np.all(readout.weights_error >= readout.solution.residual * np.abs(readout.weights))
    assert readout.train_loss_error > 0


def test_points_that_were_not_drawn_count_where_few_carry_the_error() -> None:
    """Eight replicates of which one saw a rare event: others like it were missed."""
    replicates = np.array([0.0] * 7 + [8e-3])
    deviation, mean = replicates.std(ddof=1), 1e-3
    unseen = replicate_error(replicates, 2e-4) - replicate_error(replicates)
    assert unseen == pytest.approx(10 * 2e-4 * deviation / mean)
    even = 1e-3 + 1e-9 * np.arange(8)
    assert replicate_error(even, 2e-4) - replicate_error(even) < 1e-8


def test_the_bar_of_the_test_error_has_the_unseen_points(monkeypatch: pytest.MonkeyPatch) -> None:
    from sparsetoken.theory import prediction, replicates

    setting = (Task(10, 1, 7.0), Training(6.0, 2.0, ridge=1e-2))
    query = Query(0.95, 1.0)
    # Rare errors have a law of their own; without it a few points carry them.
    monkeypatch.setattr(prediction, "RARE", 0.0)
    full = predict(*setting, query=query, tolerance=1.0).uncertainty.test_error
    monkeypatch.setattr(replicates, "_UNSEEN", 0.0)
    assert predict(*setting, query=query, tolerance=1.0).uncertainty.test_error < full
