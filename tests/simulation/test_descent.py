"""Simulated joint descent: its gradient, its two samplers, its streams."""

import numpy as np
import pytest

from sparsetoken import ParameterError, Step, Task, get_loss, sample
from sparsetoken.learning.gradient import batch_sums
from sparsetoken.simulation.descent import _DESCENDING, simulate_descent


def test_sums_are_the_gradient_of_the_mean_loss() -> None:
    task, loss = Task(5, 2, 2.0, 0.4), get_loss("logistic")
    rng = np.random.default_rng(0)
    batch = sample(task, 30, dimension=6, rng=rng)
    readout, query, bias, beta = rng.standard_normal(6), rng.standard_normal(6), 0.3, 1.7

    def total(w: np.ndarray, q: np.ndarray, b: float) -> float:
        p = np.exp(beta * batch.X @ q)
        p /= p.sum(axis=1, keepdims=True)
        scores = np.einsum("nl,nld,d->n", p, batch.X, w) + b
        return float(loss.value(batch.y * scores).sum())

    sums = batch_sums(batch.X, batch.y, readout, query, bias, beta, loss)
    step = 1e-5
    for axis in range(6):
        move = step * np.eye(6)[axis]
        slope = total(readout + move, query, bias) - total(readout - move, query, bias)
        assert slope / (2 * step) == pytest.approx(sums.readout[axis], abs=1e-6)
        slope = total(readout, query + move, bias) - total(readout, query - move, bias)
        assert slope / (2 * step) == pytest.approx(beta * sums.query[axis], abs=1e-6)
    slope = total(readout, query, bias + step) - total(readout, query, bias - step)
    assert slope / (2 * step) == pytest.approx(sums.bias, abs=1e-6)


def test_wrong_labels_are_counted_and_a_score_of_zero_is_wrong() -> None:
    task, loss, axis = Task(5, 2, 2.0, 0.4), get_loss("logistic"), np.eye(6)[0]
    batch = sample(task, 40, dimension=6, rng=np.random.default_rng(0))
    wrong = int(np.sum(batch.y * (batch.X.mean(axis=1) @ axis - 0.4) <= 0))
    assert 0 < wrong < 20
    assert batch_sums(batch.X, batch.y, axis, 0 * axis, -0.4, 1.0, loss).errors == wrong
    assert batch_sums(batch.X, batch.y, 0 * axis, axis, 0.0, 1.0, loss).errors == 40


@pytest.mark.parametrize(
    ("task", "step"),
    [
        (
            Task(6, 2, 3.0, 0.4),
            Step(2.0, readout_step=1.0, bias_step=0.7, query_step=4.0, inverse_temperature=1.3),
        ),
        (Task(4, 1, 4.0, 0.6), Step(1.0, readout_step=4.0, bias_step=2.0, query_step=10.0)),
    ],
)
def test_samplers_agree_in_first_and_second_moments(task: Task, step: Step) -> None:
    # Few dimensions, where the parts outside the frame and their degrees of freedom count.
    steps, count = [step, step, step.replace(query_step=1.0)], 1500
    drawn = []
    for number, name in enumerate(("reduced", "plain")):
        make = _DESCENDING[name]
        rows = []
        for trial in range(count):
            state = make(task, 12, np.random.default_rng((number, trial)))
            row: list[float] = []
            for one in steps:
                state.advance(one, get_loss("logistic"))
                w, q = state.vectors()
                row += [w[0], q[0], w @ w, w @ q, q @ q, state.bias]
            rows.append(row)
        drawn.append(np.array(rows))
    for power in (1, 2):
        reduced, plain = (sample**power for sample in drawn)
        spread = np.hypot(reduced.std(axis=0), plain.std(axis=0)) / np.sqrt(count)
        moves = spread > 0
        z = (reduced.mean(axis=0) - plain.mean(axis=0))[moves] / spread[moves]
        # The largest of 16: a shift of 0.15 of a trial's deviation would be noticed.
        assert np.abs(z).max() < 3.7


def test_samplers_report_alike() -> None:
    task, steps = (
        Task(6, 2, 3.0, 0.4),
        [Step(2.0, readout_step=1.0, bias_step=0.7, query_step=4.0)] * 2,
    )
    found = [
        simulate_descent(task, steps, dimension=12, trials=40, sampler=sampler)[-1]
        for sampler in ("reduced", "plain")
    ]
    for name in ("test_error", "alignment", "query_norm", "readout_cosine", "readout_norm"):
        errors = [item.uncertainty[name] or 0.0 for item in found]
        assert abs(getattr(found[0], name) - getattr(found[1], name)) < 3.5 * np.hypot(*errors)


def test_the_same_seed_gives_the_same_trials() -> None:
    steps = [Step(1.0, readout_step=1.0, bias_step=1.0, query_step=1.0)] * 2
    runs = [
        simulate_descent(Task(4, 1, 3.0), steps, dimension=20, trials=2, seed=seed)
        for seed in (1, 1, 2)
    ]
    assert runs[0].records == runs[1].records
    assert runs[0].records != runs[2].records


def test_bad_input_is_named() -> None:
    task, steps = Task(4, 1, 3.0), [Step(1.0, readout_step=1.0, bias_step=1.0, query_step=1.0)]
    with pytest.raises(ParameterError, match="dimension = 4"):
        simulate_descent(task, steps, dimension=4)
    with pytest.raises(ParameterError, match="sampler = 'magic'"):
        simulate_descent(task, steps, dimension=10, sampler="magic")
    with pytest.raises(ParameterError, match="one Step or more"):
        simulate_descent(task, [], dimension=10)


def test_sums_are_finite_for_any_sharpness_and_end_at_the_largest_score() -> None:
    task, loss = Task(5, 2, 2.0, 0.4), get_loss("logistic")
    batch = sample(task, 30, dimension=6, rng=np.random.default_rng(0))
    readout, query = np.eye(6)[0], np.eye(6)[1]
    sharp = batch_sums(batch.X, batch.y, readout, query, 0.3, 1e5, loss)
    chosen = batch.X[np.arange(30), (batch.X @ query).argmax(axis=1)]
    assert sharp.loss == pytest.approx(loss.value(batch.y * (chosen @ readout + 0.3)).sum())
