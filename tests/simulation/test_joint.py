"""All parameters trained together on all data: the optimum, the starts, and full-batch descent."""

import numpy as np
import pytest

from sparsetoken import (
    ParameterError,
    Status,
    Step,
    Task,
    Training,
    fit_readout,
    get_loss,
    sample,
    simulate_descent,
    simulate_joint,
)
from sparsetoken.simulation import joint
from sparsetoken.simulation.joint import STARTS, joint_trial, train_together
from sparsetoken.simulation.sampling import Sample

TASK = Task(6, 1, 5.0, 0.4)
TRAINING = Training(
    3.0, 3.0, ridge=0.05, query_step=30.0, reuse=True, inverse_temperature=1.3, loss="logistic"
)
QUERY_RIDGE = 0.08


@pytest.fixture(scope="module")
def data() -> Sample:
    return sample(TASK, 60, dimension=20, rng=np.random.default_rng(0))


def objective(data: Sample, point: np.ndarray) -> float:
    """The objective, written anew."""
    w, q, b = point[:20], point[20:40], point[40]
    total = 0.0
    for x, y in zip(data.X, data.y, strict=True):
        p = np.exp(1.3 * x @ q)
        total += np.log1p(np.exp(-y * ((p / p.sum()) @ x @ w + b)))
    return total / len(data.y) + 0.025 * w @ w + QUERY_RIDGE / 2 * q @ q


@pytest.mark.parametrize("start", list(STARTS))
def test_training_ends_where_no_parameter_wants_to_move(start: str, data: Sample) -> None:
    begin = STARTS[start](data, TRAINING, np.random.default_rng(1))
    point, solution = train_together(data, TRAINING, begin, QUERY_RIDGE, 500)
    assert solution.converged
    assert objective(data, point) < objective(data, begin) - 0.01
    for axis in range(41):
        move = 1e-4 * np.eye(41)[axis]
        slope = (objective(data, point + move) - objective(data, point - move)) / 2e-4
        assert abs(slope) < 2e-4


def test_a_query_that_may_not_grow_leaves_pooling(data: Sample) -> None:
    begin = STARTS["zero"](data, TRAINING, np.random.default_rng(1))
    point, _ = train_together(data, TRAINING, begin, 1e4, 2000)
    pooled = fit_readout(
        data.X.mean(axis=1), data.y, loss=get_loss("logistic"), ridge=TRAINING.ridge
    )
    assert point[:20] == pytest.approx(pooled.weights, abs=2e-3)
    assert point[40] == pytest.approx(pooled.bias, abs=2e-3)


def test_starts_share_their_data_and_random_ones_have_the_staged_norm() -> None:
    begins = []
    for start in STARTS.values():
        rng = np.random.default_rng(3)
        begins.append(start(sample(TASK, 60, dimension=20, rng=rng), TRAINING, rng))
    assert not begins[0].any()
    norms = [np.linalg.norm(begin[20:40]) for begin in begins[1:]]
    assert norms[0] == pytest.approx(norms[1])
    assert abs(begins[1][20:40] @ begins[2][20:40]) < 0.7 * norms[0] ** 2


def test_means_are_those_of_the_trials() -> None:
    found = simulate_joint(TASK, TRAINING, dimension=30, trials=3, start="two-step", seed=2)
    rows = [
        joint_trial(TASK, TRAINING, 30, trial, "two-step", TRAINING.ridge, seed=2)[0]
        for trial in range(3)
    ]
    assert found.test_error == pytest.approx(np.mean([row["test_error"] for row in rows]))
    assert found.objective > found.train_loss
    assert found.to_dict()["test_error_uncertainty"] > 0
    assert found.solution.converged


def test_a_limit_of_steps_is_told() -> None:
    found = simulate_joint(TASK, TRAINING, dimension=20, trials=1, max_steps=2)
    assert not found.solution.converged
    assert "limit of steps" in found.solution.message


@pytest.mark.parametrize("start", list(STARTS))
def test_that_the_loss_falls_for_ever_without_a_ridge_is_told(start: str) -> None:
    # Data that can be separated: the longer the readout the smaller the logistic loss.
    free = TRAINING.replace(ridge=0.0)
    found = simulate_joint(TASK, free, dimension=20, trials=1, start=start)
    assert found.solution.status is Status.NO_MINIMUM
    bounded = simulate_joint(
        TASK, free.replace(loss="squared_hinge"), dimension=20, trials=1, start=start
    )
    assert bounded.solution.status is Status.CONVERGED


def test_an_end_that_is_no_minimum_is_not_called_one(
    data: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joint, "SMALLEST_DECREASE", 1e-1)
    begin = STARTS["zero"](data, TRAINING, np.random.default_rng(1))
    _, solution = train_together(data, TRAINING, begin, QUERY_RIDGE, 500)
    assert solution.residual > 1e-3
    assert solution.status is Status.STALLED


def test_bad_input_is_named() -> None:
    with pytest.raises(ParameterError, match=r"training\.loss = 'hinge' .* continuous slope"):
        simulate_joint(TASK, TRAINING.replace(loss="hinge"), dimension=20)
    with pytest.raises(ParameterError, match=r"training\.reuse = False"):
        simulate_joint(TASK, TRAINING.replace(reuse=False), dimension=20)
    with pytest.raises(ParameterError, match="start = 'middle'"):
        simulate_joint(TASK, TRAINING, dimension=20, start="middle")
    with pytest.raises(ParameterError, match="query_ridge = -1"):
        simulate_joint(TASK, TRAINING, dimension=20, query_ridge=-1.0)


def test_full_batch_descent_tends_to_the_minimum_of_the_loss_on_its_data() -> None:
    # Pooling (the query stands still) is convex: many steps on one batch end at its minimum, which
    # fresh batches never reach.
    steps = [Step(10.0, readout_step=0.8, bias_step=0.8, query_step=0.0)] * 200
    options = {"dimension": 8, "trials": 1, "sampler": "plain", "loss": "square"}
    full = simulate_descent(TASK, steps, reuse=True, **options)
    moved = abs(full[-1].readout_norm - full[-20].readout_norm)
    assert moved < 1e-3 * full[-1].readout_norm
    fresh = simulate_descent(TASK, steps, **options)
    assert abs(fresh[-1].readout_norm - fresh[-20].readout_norm) > 10 * moved


def test_reuse_is_refused_where_it_does_not_apply() -> None:
    steps = [
        Step(3.0, readout_step=1.0, bias_step=1.0, query_step=0.0),
        Step(2.0, readout_step=1.0, bias_step=1.0, query_step=0.0),
    ]
    with pytest.raises(ParameterError, match="sampler = 'reduced'"):
        simulate_descent(TASK, steps, dimension=8, reuse=True)
    with pytest.raises(ParameterError, match="the same in all steps"):
        simulate_descent(TASK, steps, dimension=8, sampler="plain", reuse=True)


def test_a_trial_has_two_samples_at_least(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []

    def record(*arguments: object, **options: object) -> Sample:
        drawn.append(sample(*arguments, **options))
        return drawn[-1]

    monkeypatch.setattr(joint, "sample", record)
    for alpha in (0.01, 0.4):
        training = TRAINING.replace(alpha0=alpha, alpha1=alpha)
        joint_trial(TASK, training, 10, 0, "two-step", TRAINING.ridge, seed=0)
    assert [len(data.y) for data in drawn] == [2, 4]
