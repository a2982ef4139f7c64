"""Joint descent: known paths, known limits, simulation, and what its error bars are made of."""

import numpy as np
import pytest

from sparsetoken import ParameterError, Step, Task, Training, align, descend, predict
from sparsetoken.numerics.solution import Status
from sparsetoken.simulation.descent import simulate_descent
from sparsetoken.theory import descent as module

NAMES = ("test_error", "alignment", "query_norm", "readout_cosine", "readout_norm", "bias")


def test_two_known_paths() -> None:
    # Checked at d = 1200 with plain arrays when the equations were derived: 0.002 or better.
    slow = descend(
        Task(8, 2, 3.0, 0.3), [Step(2.0, readout_step=0.6, bias_step=0.6, query_step=2.0)] * 6
    )
    last = slow[-1]
    assert (last.readout_cosine, last.alignment) == pytest.approx((0.929, 0.864), abs=0.002)
    assert (last.query_norm, last.bias) == pytest.approx((0.417, -0.552), abs=0.002)
    fast = descend(
        Task(10, 1, 5.0, 0.5), [Step(2.0, readout_step=1.0, bias_step=0.5, query_step=2.0)] * 5
    )
    found = [state.alignment for state in fast[1:]]
    assert found == pytest.approx([0.948, 0.977, 0.974, 0.936], abs=0.002)
    assert fast.values == (1, 2, 3, 4, 5)


def test_a_glance_says_roughly_what_descend_says() -> None:
    task, steps = (
        Task(10, 1, 4.0, 0.4),
        [Step(0.5, readout_step=0.5, bias_step=0.5, query_step=4.0)] * 4,
    )
    glance, last = module.glance(task, steps), descend(task, steps)[-1]
    for name in (*NAMES, "sharpness"):
        assert glance[name] == pytest.approx(getattr(last, name), abs=0.01)


def test_many_samples_give_the_two_steps_of_align() -> None:
    # A sample's own weight in the readout vanishes with many samples: then the batches may differ.
    task, many = Task(8, 2, 3.0, 0.3), 1e6
    training = Training(many, 1.0, readout_step=0.7, bias_step=0.4, query_step=3.0)
    expected = align(task, training)
    steps = [
        Step(many, readout_step=0.7, bias_step=0.4, query_step=0.0),
        Step(many, readout_step=0.0, bias_step=0.0, query_step=3.0),
    ]
    found = descend(task, steps)[1]
    assert found.alignment == pytest.approx(expected.alignment, abs=2e-4)
    assert found.query_norm == pytest.approx(expected.query_norm, rel=2e-3)
    assert found.readout_cosine == pytest.approx(expected.readout_cosine, abs=1e-4)


def test_a_rate_of_zero_leaves_a_parameter_alone() -> None:
    task = Task(6, 1, 3.0, 0.4)
    found = descend(
        task,
        [
            Step(2.0, readout_step=1.0, bias_step=1.0, query_step=0.0),
            Step(2.0, readout_step=0.0, bias_step=1.0, query_step=0.0),
            Step(2.0, readout_step=0.0, bias_step=0.0, query_step=1.0),
        ],
    )
    first, second, third = found
    assert (first.query_norm, second.query_norm) == (0.0, 0.0)
    assert second.readout_norm == pytest.approx(first.readout_norm, rel=1e-12)
    assert third.readout_norm == pytest.approx(first.readout_norm, rel=1e-12)
    assert first.bias != second.bias
    assert second.bias == third.bias
    assert third.query_norm > 0


@pytest.mark.parametrize(
    ("task", "step", "loss"),
    [
        (
            Task(8, 2, 3.0, 0.3),
            Step(2.0, readout_step=1.0, bias_step=1.0, query_step=4.0),
            "logistic",
        ),
        (
            Task(60, 2, 4.0, 0.5),
            Step(3.0, readout_step=0.5, bias_step=0.05, query_step=5.0, inverse_temperature=1.5),
            "squared_hinge",
        ),
    ],
)
def test_agreement_with_simulation(task: Task, step: Step, loss: str) -> None:
    steps = [step, step, step.replace(query_step=1.0), step]
    predicted = descend(task, steps, loss=loss)
    assert max(state.amplification for state in predicted) < 3
    simulated = simulate_descent(task, steps, dimension=800, trials=10, loss=loss, seed=5)
    for theory, trials in zip(predicted, simulated, strict=True):
        for name in NAMES:
            error = np.hypot(trials.uncertainty[name] or 0.0, theory.uncertainty[name] / 3)
            gap = abs(getattr(theory, name) - getattr(trials, name))
            # The largest of 24; a finite dimension moves each by a few 1/d as well.
            assert gap < 4 * error + 4 / 800 * abs(getattr(theory, name))


@pytest.mark.slow
def test_sums_over_small_tokens_are_good_enough() -> None:
    """At length 33 all tokens are drawn; at 400 the small ones are normal sums."""
    for length in (33, 400):
        task, steps = (
            Task(length, 2, 5.0, 0.5),
            [Step(2.0, readout_step=2.0, bias_step=0.2, query_step=40.0)] * 3,
        )
        predicted = descend(task, steps)[-1]
        trials = simulate_descent(task, steps, dimension=2000, trials=5, seed=1)[-1]
        for name in ("alignment", "readout_cosine", "query_norm"):
            error = np.hypot(trials.uncertainty[name] or 0.0, predicted.uncertainty[name] / 3)
            gap = abs(getattr(predicted, name) - getattr(trials, name))
            assert gap < 3.5 * error + 20 / 2000 * abs(getattr(predicted, name))


def test_a_readout_fitted_on_fresh_data() -> None:
    task = Task(8, 2, 3.0, 0.3)
    state = descend(task, [Step(2.0, readout_step=0.6, bias_step=0.6, query_step=2.0)] * 3)[-1]
    training = Training(1.0, 3.0, ridge=0.01)
    assert state.fitted(task, training) == predict(task, training, query=state.query)


def test_ranking_against_drawn_scores() -> None:
    task = Task(8, 2, 3.0, 0.1)
    state = descend(task, [Step(2.0, readout_step=0.6, bias_step=0.6, query_step=4.0)] * 4)[-1]
    law, rng = state.ranking.law, np.random.default_rng(2)
    drawn = {}
    for label in (1.0, -1.0):
        chosen = np.flatnonzero(law.label == label)
        points = rng.choice(chosen, 100_000)
        drawn[label] = law.mean[points] + law.spread[points] * rng.standard_normal(100_000)
    above = float(np.mean(drawn[1.0] > drawn[-1.0]))
    # Four standard errors of 100,000 pairs.
    assert abs(state.auc - above) < 4 * 0.0016 + state.ranking.uncertainty["auc"]
    missed, alarms = np.mean(drawn[1.0] <= 0), np.mean(drawn[-1.0] > 0)
    assert state.balanced_error == pytest.approx((missed + alarms) / 2, abs=0.005)
    assert 0.1 < state.average_precision < 1
    assert state.ranking.at_recall(0.8).recall == pytest.approx(0.8, abs=1e-4)


def test_large_steps_are_said_to_amplify() -> None:
    task, step = Task(8, 2, 4.0, 0.4), Step(2.0, readout_step=12.0, bias_step=6.0, query_step=5.0)
    found = descend(task, [step] * 4, tolerance=0.01)
    assert found[-1].amplification > module.AMPLIFIED
    assert found[-1].solution.status is Status.AMPLIFIED
    assert "smaller steps" in found[-1].solution.message
    gentle = descend(task, [Step(2.0, readout_step=0.5, bias_step=0.5, query_step=1.0)] * 4)
    assert gentle[-1].amplification < 3
    assert gentle[-1].solution.status is Status.CONVERGED


def test_a_bias_that_one_batch_throws_about_is_said_to_amplify() -> None:
    # The mean label of 100 samples moves the bias by more than the readout's size.
    task, step = Task(10, 1, 4.0, 0.5), Step(0.25, readout_step=0.28, bias_step=8.7, query_step=3.2)
    last = descend(task, [step] * 8, tolerance=0.01)[-1]
    assert last.solution.status is Status.AMPLIFIED
    trials = simulate_descent(task, [step] * 8, dimension=400, trials=6)[-1]
    assert trials.test_error > last.test_error + 0.2
    calm = descend(
        task, [Step(0.25, readout_step=0.8, bias_step=0.5, query_step=1.5)] * 8, tolerance=0.01
    )[-1]
    assert calm.solution.status is Status.CONVERGED


def test_coordinates_of_a_state_say_all_of_it() -> None:
    coordinates = np.array([0.5, 1.1, -0.4, 0.7, 0.9, 0.3])
    state = module._State.from_coordinates(coordinates)
    np.testing.assert_allclose(state.coordinates(), coordinates, rtol=1e-12)
    # In a frame of the signal, the readout and the query these are two vectors.
    readout, query = np.array([0.5, 1.1, 0.0]), np.array([-0.4, 0.7, 0.9])
    products = (state.readout_square, state.cross, state.query_square)
    assert products == pytest.approx((readout @ readout, readout @ query, query @ query))


def test_amplification_is_the_growth_of_a_deviation() -> None:
    """Start two paths a relative 1e-4 apart: their distance grows no more than is said."""
    task, step = Task(8, 2, 4.0, 0.4), Step(2.0, readout_step=8.0, bias_step=4.0, query_step=5.0)
    loss, draws = module.get_loss("logistic"), module._Draws.make(task, 8, 1)
    states = module._path(task, loss, [step] * 5, draws)
    growth = module._amplifications(task, loss, [step] * 5, states)
    largest = 0.0
    for axis in range(6):
        moved = states[0].coordinates()
        moved[axis] += 1e-4 * states[0].scales()[axis]
        state = module._State.from_coordinates(moved)
        for number in range(1, 5):
            state = module._advance(task, loss, step, state, draws)
            away = (state.coordinates() - states[number].coordinates()) / states[number].scales()
            distance = float(np.linalg.norm(away)) / 1e-4
            assert distance < 1.3 * growth[number]
        largest = max(largest, distance)
    assert largest > 2


def test_nearly_even_attention_has_draws_that_know_the_mean(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps = [Step(4.0, readout_step=0.5, bias_step=0.5, query_step=1.0)] * 2

    def bar() -> float:
        return descend(Task(10, 1, 4.0), steps)[-1].uncertainty["test_error"]

    mild = bar()
    monkeypatch.setattr(module._Draws, "at", lambda draws, sharpness: draws.sharp)  # noqa: ARG005
    assert 2 * mild < bar()


def test_the_bar_covers_few_points(monkeypatch: pytest.MonkeyPatch) -> None:
    task, steps = (
        Task(8, 2, 3.0, 0.3),
        [Step(2.0, readout_step=0.6, bias_step=0.6, query_step=2.0)] * 5,
    )
    better = descend(task, steps, tolerance=5e-4)
    monkeypatch.setattr(module, "_FIRST_SIZE", 4)
    monkeypatch.setattr(module, "_LAST_SIZE", 4)
    worse = descend(task, steps, tolerance=5e-4)
    assert worse[-1].solution.status is Status.TOLERANCE_NOT_REACHED
    inside = []
    for few, many in zip(worse, better, strict=True):
        for name in NAMES:
            bar = few.uncertainty[name] + many.uncertainty[name]
            inside.append(abs(getattr(few, name) - getattr(many, name)) <= bar)
    assert worse[-1].uncertainty["test_error"] > 2 * better[-1].uncertainty["test_error"]
    assert np.mean(inside) > 0.9


def test_the_bar_covers_a_coarse_quadrature(monkeypatch: pytest.MonkeyPatch) -> None:
    # Steps so large that the slope changes fast, and panels of one or two nodes.
    task, steps = (
        Task(6, 1, 4.0, 0.4),
        [Step(2.0, readout_step=6.0, bias_step=3.0, query_step=2.0)] * 3,
    )
    better = descend(task, steps, tolerance=0.005)
    monkeypatch.setattr(module, "_ORDERS", (2, 1))
    monkeypatch.setattr(module, "_advance", _with_order(module._advance, 2))
    worse = descend(task, steps, tolerance=0.005)
    for few, many in zip(worse, better, strict=True):
        for name in NAMES:
            bar = few.uncertainty[name] + many.uncertainty[name]
            assert abs(getattr(few, name) - getattr(many, name)) <= bar
    assert worse[-1].uncertainty["alignment"] > 3 * better[-1].uncertainty["alignment"]


def _with_order(advance, usual):  # type: ignore[no-untyped-def]
    def changed(task, loss, step, state, draws, order=usual):  # type: ignore[no-untyped-def]
        return advance(task, loss, step, state, draws, min(order, usual))

    return changed


def test_no_signal_and_extreme_rates() -> None:
    silent = descend(
        Task(6, 1, 0.0, 0.3), [Step(2.0, readout_step=1.0, bias_step=1.0, query_step=1.0)] * 3
    )
    assert silent[-1].alignment == pytest.approx(0, abs=1e-2)
    assert silent[-1].test_error == pytest.approx(0.3, abs=1e-4)
    for rate in (1e-4, 1 - 1e-4):
        found = descend(
            Task(6, 1, 3.0, rate), [Step(2.0, readout_step=1.0, bias_step=5.0, query_step=1.0)] * 4
        )
        assert found[-1].test_error == pytest.approx(1e-4, rel=0.1)


def test_bad_input_is_named() -> None:
    task = Task(5, 1, 3.0)
    with pytest.raises(ParameterError, match="steps = \\[\\]"):
        descend(task, [])
    with pytest.raises(ParameterError, match="one Step or more"):
        descend(task, [Training(1.0, 1.0)])  # type: ignore[list-item]
    with pytest.raises(ParameterError, match="loss = 'zero-one'"):
        descend(task, [Step(1.0, readout_step=1.0, bias_step=1.0, query_step=1.0)], loss="zero-one")
    with pytest.raises(ParameterError, match="alpha = 0"):
        Step(0, readout_step=1.0, bias_step=1.0, query_step=1.0)
    with pytest.raises(ParameterError, match="query_step = -1"):
        Step(1.0, readout_step=1.0, bias_step=1.0, query_step=-1)


def test_a_readout_that_is_not_trained_has_no_direction() -> None:
    [state] = descend(Task(6, 1, 3.0), [Step(2.0, readout_step=0.0, bias_step=0.5, query_step=2.0)])
    assert (state.readout_norm, state.readout_cosine, state.alignment) == (0.0, 0.0, 0.0)


def test_bars_are_those_of_replicates_where_fewer_nodes_change_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same nodes on the same points: the difference is 0, whatever replicates do."""
    monkeypatch.setattr(module, "_ORDERS", (module._ORDERS[0],) * 2)
    monkeypatch.setattr(module, "replicate_error", lambda *_: 0.0)
    found = descend(
        Task(6, 1, 3.0, 0.4),
        [Step(2.0, readout_step=1.0, bias_step=1.0, query_step=1.0)] * 2,
        tolerance=1.0,
    )
    assert [set(state.uncertainty.values()) for state in found] == [{0.0}, {0.0}]
