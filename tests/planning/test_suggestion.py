"""Suggested settings: each follows its rule, and together they are nearly the best."""

from functools import cache

import numpy as np
import pytest

from sparsetoken import (
    ParameterError,
    Task,
    Training,
    align,
    curve,
    get_loss,
    loss_names,
    predict,
    suggest,
)
from sparsetoken.planning.suggestion import BIAS_FACTORS, RIDGES, bias_steps, suggested_sharpness

RARE = Task(30, 2, 4.0, 0.3)
LONG = Task(120, 1, 5.0, 0.7)
# Far from rates that serve all: without a bias step the query points away from the signal.
TURNED = Task(40, 1, 3.0, 0.15)
MULTIPLES = (0.5, 1.4)


@cache
def suggested(task: Task) -> Training:
    return suggest(task, 4.0, tolerance=2e-3)


@pytest.mark.parametrize("task", [RARE, LONG, TURNED, Task(12, "poisson:2", 4.0)])
def test_the_query_step_gives_the_sharpness_of_the_rule(task: Task) -> None:
    training = suggested(task)
    assert training.reuse
    assert training.alpha0 == training.alpha1 == 4.0
    wanted = 0.55 * np.log(1 + task.length / task.counts.mean**2)
    assert align(task, training).sharpness == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize("task", [RARE, LONG, TURNED])
def test_no_other_of_the_bias_steps_aligns_the_query_better(task: Task) -> None:
    training = suggested(task)
    steps = bias_steps(task)
    assert training.bias_step in steps
    cosines = [align(task, training.replace(bias_step=step)).alignment for step in steps]
    assert align(task, training).alignment == max(cosines) > 0
    if task is TURNED:
        assert min(cosines) < 0


def test_no_other_of_the_ridges_errs_less() -> None:
    errors = [
        predict(RARE, suggested(RARE).replace(ridge=ridge), tolerance=2e-3).test_error
        for ridge in RIDGES
    ]
    assert suggested(RARE).ridge == RIDGES[int(np.argmin(errors))]
    assert max(errors) > 2 * min(errors)


@pytest.mark.parametrize("task", [RARE, TURNED])
def test_the_suggestion_is_nearly_the_best_of_a_map(task: Task) -> None:
    training = suggested(task)
    errors = [
        found.test_error
        for multiple in MULTIPLES
        for found in curve(
            task,
            training.replace(query_step=multiple * training.query_step),
            over="ridge",
            values=RIDGES,
            tolerance=2e-3,
        )
    ]
    assert predict(task, training, tolerance=2e-3).test_error <= 1.15 * min(errors)
    assert max(errors) > 1.3 * min(errors)


@pytest.mark.parametrize("loss", loss_names())
def test_every_loss_tries_the_same_first_biases(loss: str) -> None:
    slope = -float(get_loss(loss).slope(np.zeros(1))[0])
    first = [-step * slope * (1 - 2 * RARE.positive_rate) for step in bias_steps(RARE, loss)]
    log_odds = np.log(RARE.positive_rate / (1 - RARE.positive_rate))
    assert first == pytest.approx([factor * log_odds for factor in BIAS_FACTORS])
    assert suggest(RARE, 2.0, loss=loss, tolerance=5e-3).loss == loss


def test_sequences_are_attended_to_more_softly_if_more_tokens_tell() -> None:
    assert suggested_sharpness(Task(30, 4, 4.0)) < suggested_sharpness(Task(30, 1, 4.0)) / 2
    assert suggested_sharpness(Task(30, 1, 4.0)) < suggested_sharpness(Task(300, 1, 4.0))


def test_without_a_signal_there_is_a_suggestion_too() -> None:
    assert suggest(Task(10, 1, 0.0), 2.0).ridge in RIDGES


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ((RARE, 0.0), "alpha = 0.0"),
        ((RARE, 1e9), "alpha = 1000000000.0"),
        ((RARE, "much"), "alpha"),
        (("task", 2.0), "task"),
    ],
)
def test_what_is_no_setting_is_refused_by_name(arguments: tuple[object, ...], name: str) -> None:
    with pytest.raises(ParameterError, match=name):
        suggest(*arguments)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="loss"):
        suggest(RARE, 2.0, loss="absolute")
