import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsetoken import Task, Training, align, get_loss, loss_names, sample
from sparsetoken.learning.stages import first_step, query_step
from sparsetoken.theory.alignment import with_sharpness


@pytest.mark.parametrize("name", loss_names())
@pytest.mark.parametrize("rate", [0.2, 0.6])
def test_agrees_with_training_on_arrays(name: str, rate: float) -> None:
    """Stages 1 to 3 at d = 400, 12 trials: |z| < 4, after a bias of order 1/d."""
    task = Task(6, 2, 4.0, rate)
    training = Training(1.5, 1.0, loss=name, readout_step=0.8, bias_step=0.3, query_step=2.0)
    dimension, trials = 400, 12
    cosines, norms, readouts = [], [], []
    for trial in range(trials):
        rng = np.random.default_rng([11, trial])
        data = sample(task, round(training.alpha0 * dimension), dimension=dimension, rng=rng)
        w, b = first_step(data.X, data.y, training)
        q = query_step(data.X, data.y, w, b, training)
        norms.append(np.linalg.norm(q))
        cosines.append(q @ data.signal / norms[-1])
        readouts.append(w @ data.signal / np.linalg.norm(w))
    found = align(task, training)
    for values, expected in (
        (cosines, found.alignment),
        (norms, found.query_norm),
        (readouts, found.readout_cosine),
    ):
        error = np.std(values, ddof=1) / np.sqrt(trials)
        allowed = 4 * error + 3 * abs(expected) / dimension
        assert abs(np.mean(values) - expected) < allowed


def test_rate_constant_is_the_slope_at_many_samples() -> None:
    task, training = Task(10, 3, 6.0, 0.2), Training(1e6, 1.0)
    found = align(task, training)
    assert (1 - found.alignment) * 1e6 == pytest.approx(found.rate_constant, rel=1e-4)
    assert align(task, training.replace(alpha0=3.0)).rate_constant == found.rate_constant


@given(
    informative=st.integers(1, 9),
    strength=st.floats(0.5, 10),
    rate=st.floats(0.02, 0.98),
)
def test_small_steps_anti_align_below_the_predicted_rate(
    informative: int, strength: float, rate: float
) -> None:
    """For small learning rates the query turns away exactly if π(θ²K + 2(L-1)) < L - 1."""
    task = Task(10, informative, strength, rate)
    training = Training(5.0, 1.0, readout_step=1e-7, bias_step=1e-7)
    spread = informative * (1 - informative / 10)
    excess = rate * (strength**2 * spread + 18) - 9
    if abs(excess) > 1e-3:
        assert align(task, training).anti_aligned == (excess < 0)


# Each setting anti-aligns for another reason; the last by two steps that are too large together.
@pytest.mark.parametrize(
    ("task", "training", "cause", "step"),
    [
        (Task(10, 1, 2.0, 0.1), Training(5.0, 1.0, bias_step=0.01), "rare", "bias_step above"),
        (Task(10, 1, 2.0, 0.7), Training(20.0, 1.0, bias_step=10.0), "bias step is", "bias_step below"),
        (Task(4, 1, 2.0, 0.9), Training(2.0, 1.0, loss="square", readout_step=1.0, bias_step=3.0), "bias step is", "bias_step below"),
        (Task(10, 1, 2.0, 0.5), Training(5.0, 1.0, readout_step=1e4), "readout", "readout_step below"),
        (Task(10, 3, 2.0, 0.5), Training(0.5, 1.0, loss="square", readout_step=300.0), "readout", "readout_step below"),
        (Task(10, 1, 2.0, 0.52), Training(5.0, 1.0, readout_step=1e4, bias_step=60.0), "readout step are", "together"),
    ],
)  # fmt: skip
def test_anti_alignment_says_its_cause_and_a_cure_that_works(
    task: Task, training: Training, cause: str, step: str
) -> None:
    found = align(task, training)
    assert found.anti_aligned
    assert found.cause is not None
    assert found.cure is not None
    assert cause in found.cause
    assert step in found.cure
    if step == "together":
        assert not align(task, training.replace(readout_step=0.5, bias_step=0.5)).anti_aligned
        return
    for cure in found.cure.split(", or "):
        name, word, value = cure.split()
        beyond, short = (1.02, 0.98) if word == "above" else (0.98, 1.02)
        cured, still = (
            align(task, training.replace(**{name: factor * float(value)}))
            for factor in (beyond, short)
        )
        assert not cured.anti_aligned
        assert cured.cause is None
        assert cured.cure is None
        assert still.anti_aligned


def test_the_bias_step_cures_rare_positives_harms_frequent_ones_and_nothing_else() -> None:
    training = Training(20.0, 1.0, bias_step=0.0)

    def cosines(rate: float) -> list[float]:
        task = Task(10, 1, 2.0, rate)
        return [align(task, training.replace(bias_step=step)).alignment for step in (0.0, 10.0)]

    rare, even, frequent = cosines(0.1), cosines(0.5), cosines(0.7)
    assert rare[0] < 0 < rare[1]
    assert even[0] == even[1]
    assert frequent[0] > 0.9
    assert frequent[1] < -0.8


def test_only_products_with_the_temperature_enter() -> None:
    task, training = Task(10, 1, 5.0), Training(4.0, 1.0, query_step=2.0, inverse_temperature=3.0)
    found = align(task, training)
    assert found.sharpness == pytest.approx(3 * found.query_norm)
    other = align(task, training.replace(query_step=6.0, inverse_temperature=1.0))
    assert other.query_norm == pytest.approx(found.query_norm)
    assert other.alignment == pytest.approx(found.alignment)


def test_without_a_signal_the_query_has_no_direction() -> None:
    found = align(Task(10, 1, 0.0), Training(4.0, 1.0))
    assert found.alignment == 0
    assert found.readout_cosine == 0
    assert found.rate_constant == np.inf
    assert not found.anti_aligned


@pytest.mark.parametrize("sharpness", [0.3, 5.0])
def test_the_query_step_of_a_sharpness_gives_it(sharpness: float) -> None:
    task, training = Task(10, 1, 4.0), Training(4.0, 1.0, query_step=7.0, inverse_temperature=0.5)
    found = with_sharpness(task, training, sharpness)
    assert align(task, found).sharpness == pytest.approx(sharpness, rel=1e-12)
    assert found.replace(query_step=7.0) == training


def test_a_sharpness_beyond_the_largest_query_step_takes_a_lower_temperature() -> None:
    """In 10^5 tokens a step of 10^6 leaves the softmax at a sharpness of 0.16."""
    task, training = Task(100_000, 1, 8.0), Training(8.0, 8.0, inverse_temperature=0.5)
    found = with_sharpness(task, training, 3.0)
    assert found.query_step <= 1e6
    assert found.inverse_temperature in {5.0, 50.0}
    assert align(task, found).sharpness == pytest.approx(3.0, rel=1e-12)


def test_a_sharpness_out_of_reach_has_the_nearest_query_step() -> None:
    training = Training(4.0, 1.0, query_step=7.0)
    farthest = with_sharpness(Task(10, 1, 4.0), training, 1e30)
    assert (farthest.query_step, farthest.inverse_temperature) == (1e6, 1e6)
    assert with_sharpness(Task(10, 1, 4.0), training, 0.0).query_step == 1e-9
    # Each sample's own weight takes its margin beyond where the hinge ends: the query stays 0.
    still = Training(1e-6, 1.0, loss="hinge", readout_step=10.0, query_step=7.0)
    assert align(Task(10, 1, 4.0), still).query_norm == 0
    assert with_sharpness(Task(10, 1, 4.0), still, 2.0).query_step == 1


def test_square_loss_in_closed_form() -> None:
    """ℓ' = t - 1 makes every average elementary."""
    task, training = Task(8, 3, 2.0, 0.3), Training(2.5, 1.0, loss="square", bias_step=0.2)
    assert get_loss("square").slope(np.zeros(1))[0] == -1
    w = 0.5 * 0.3 * 2 * 3 / 8
    norm2 = w**2 + 0.25 / (2.5 * 8)
    b, own, var = 0.2 * (0.6 - 1), 0.5 / (2.5 * 8), norm2 / 8
    plus, minus = 2 * 3 / 8 * w + own + b - 1, own - b - 1
    e1, eg = 0.3 * plus, 0.3 * plus - 0.7 * minus
    v1 = 0.3 * (plus**2 + var)
    vg = v1 + 0.7 * (minus**2 + var)
    spread = 3 - 9 / 8
    a, e = 4 * spread * w * e1, 7 * eg
    n2 = (4 * w**2 * spread * v1 + norm2 * 7 * vg) / 2.5
    square = a**2 + 2 * a * e * w + e**2 * norm2 + n2
    found = align(task, training)
    assert found.query_norm == pytest.approx(np.sqrt(square) / 8, rel=1e-9)
    assert found.alignment == pytest.approx(-(a + e * w) / np.sqrt(square), rel=1e-9)
