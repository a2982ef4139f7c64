from itertools import combinations
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsetoken import ParameterError, Task, sample
from sparsetoken.arrays import Array
from sparsetoken.simulation.sampling import rows_by_count, sample_labels, sample_positions

# Seeds are fixed. Statistical tests accept |z| <= 4.5, which 10⁴ comparisons of right code pass
# with a probability of 0.93, and each test makes far fewer.
Z = 4.5


def task(**changes: object) -> Task:
    values = {"length": 6, "informative": 2, "strength": 3.0, "positive_rate": 0.3}
    return Task.from_dict(values | changes)


def z_of_frequencies(hits: Array, probabilities: Array) -> Array:
    deviation = hits.mean(axis=0) - probabilities
    return deviation / np.sqrt(probabilities * (1 - probabilities) / len(hits))


def test_shapes_and_types() -> None:
    drawn = sample(task(), 11, dimension=4, rng=np.random.default_rng(0))
    assert drawn.X.shape == (11, 6, 4)
    assert drawn.y.shape == (11,)
    assert drawn.positions.shape == (11, 6)
    assert drawn.signal.shape == (4,)
    assert set(drawn.y.tolist()) <= {-1, 1}
    assert drawn.positions.dtype == bool


def test_same_generator_same_data() -> None:
    one, same = (sample(task(), 5, dimension=3, rng=np.random.default_rng(7)) for _ in range(2))
    for a, b in zip(one, same, strict=True):
        np.testing.assert_array_equal(a, b)


def test_labels_have_their_rate() -> None:
    y = sample_labels(task(), 200_000, np.random.default_rng(0))
    assert abs(z_of_frequencies(y[:, None] > 0, np.array([0.3]))[0]) <= Z


def test_only_positives_have_informative_places_and_they_have_r() -> None:
    drawn = sample(task(), 500, dimension=2, rng=np.random.default_rng(0))
    np.testing.assert_array_equal(drawn.positions.sum(axis=1), np.where(drawn.y > 0, 2, 0))


def test_tokens_are_signal_plus_standard_noise() -> None:
    drawn = sample(task(), 4000, dimension=10, rng=np.random.default_rng(0))
    noise = drawn.X - 3.0 * drawn.positions[:, :, None] * drawn.signal
    flat = noise.reshape(4000, 60)
    moments = {"mean": (flat, 0.0, 1.0), "square": (flat**2, 1.0, 2.0), "fourth": (flat**4, 3, 96)}
    for values, expected, variance in moments.values():
        z = (values.mean(axis=0) - expected) / np.sqrt(variance / 4000)
        assert np.max(np.abs(z)) <= Z
    products = flat.T @ flat / np.sqrt(4000)
    assert np.max(np.abs(products[np.triu_indices(60, k=1)])) <= Z


def test_signal_is_uniform_on_the_sphere() -> None:
    rng = np.random.default_rng(0)
    signals = np.array([sample(task(), 1, dimension=5, rng=rng).signal for _ in range(4000)])
    np.testing.assert_allclose(np.linalg.norm(signals, axis=1), 1.0, rtol=1e-14)
    z = signals.mean(axis=0) / np.sqrt(1 / 5 / 4000)
    assert np.max(np.abs(z)) <= Z
    # A squared coordinate of a uniform unit vector of R⁵ has mean 1/5, variance 2·4/(25·7).
    z = (np.mean(signals**2, axis=0) - 0.2) / np.sqrt(8 / 175 / 4000)
    assert np.max(np.abs(z)) <= Z


def test_a_given_signal_is_used() -> None:
    signal = np.array([0.6, 0.8, 0.0])
    drawn = sample(task(strength=1e6), 50, dimension=3, rng=np.random.default_rng(0), signal=signal)
    np.testing.assert_array_equal(drawn.signal, signal)
    informative = drawn.X[drawn.positions] / 1e6
    np.testing.assert_allclose(informative, np.tile(signal, (len(informative), 1)), atol=1e-5)


def test_uniform_positions_give_every_subset_alike() -> None:
    places = sample_positions(task(), 60_000, np.random.default_rng(0))
    assert np.all(places.sum(axis=1) == 2)
    subsets = np.array([[places[:, i] & places[:, j]] for i, j in combinations(range(6), 2)])
    z = z_of_frequencies(subsets[:, 0].T, np.full(15, 1 / comb(6, 2)))
    assert np.max(np.abs(z)) <= Z


@pytest.mark.parametrize(
    "probabilities",
    [
        [0.5, 0.5, 0.5, 0.25, 0.2, 0.05],
        [1.0, 0.4, 0.3, 0.2, 0.1, 0.0],
        [1.0, 1.0, 0.0, 0.0, 0.0, 0.0],
        [1 / 3] * 6,
        [0.9, 0.9, 0.1, 0.05, 0.05, 0.0],
    ],
)
def test_inclusion_probabilities_are_met(probabilities: list[float]) -> None:
    expected = np.array(probabilities)
    places = sample_positions(task(), 60_000, np.random.default_rng(0), expected)
    assert np.all(places.sum(axis=1) == 2)
    certain = (expected == 0) | (expected == 1)
    np.testing.assert_array_equal(places.mean(axis=0)[certain], expected[certain])
    z = z_of_frequencies(places[:, ~certain], expected[~certain])
    assert z.size == 0 or np.max(np.abs(z)) <= Z


@given(
    st.integers(2, 60).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n - 1))), st.data()
)
def test_exactly_r_places_whatever_the_probabilities(
    sizes: tuple[int, int], data: st.DataObject
) -> None:
    length, informative = sizes
    weights = np.array(data.draw(st.lists(st.floats(1e-9, 1), min_size=length, max_size=length)))
    # Scale to the sum R, cutting at 1: a share of the way to equal probabilities keeps all below 1.
    probabilities = weights * informative / weights.sum()
    equal = informative / length
    share = min(1.0, (1 - equal) / max(probabilities.max() - equal, 1e-300))
    probabilities = np.clip(equal + share * (probabilities - equal), 0, 1)
    if abs(probabilities.sum() - informative) > 1e-10:
        return
    chosen = task(length=length, informative=informative)
    places = sample_positions(chosen, 20, np.random.default_rng(0), probabilities)
    assert np.all(places.sum(axis=1) == informative)
    assert not np.any(places[:, probabilities == 0])
    assert np.all(places[:, probabilities == 1])


def test_given_probabilities_reach_the_data() -> None:
    drawn = sample(
        task(), 300, dimension=2, rng=np.random.default_rng(0), positions=[0, 0, 1, 0, 0, 1]
    )
    positive = drawn.positions[drawn.y > 0]
    np.testing.assert_array_equal(positive, np.tile([0, 0, 1, 0, 0, 1], (len(positive), 1)))


@pytest.mark.parametrize(
    "positions",
    [
        "first",
        [1.0, 1.0],
        [[1 / 3] * 6],
        [0.5, 0.5, 0.5, 0.5, 0.5, 0.5],
        [1.2, 0.8, 0, 0, 0, 0],
        [1.0, 1.2, -0.2, 0, 0, 0],
        [np.nan, 1, 1, 0, 0, 0],
        [1 - 1e-8, 1, 0, 0, 0, 0],
        [1, 1, 1e-9, 1e-9, 1e-9, 0],
    ],
)
def test_bad_positions_are_refused(positions: object) -> None:
    with pytest.raises(ParameterError, match=r"positions = .* expected .*'uniform'"):
        sample(task(), 5, dimension=3, rng=np.random.default_rng(0), positions=positions)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"count": 0}, "count = 0 .* an integer >= 1"),
        ({"count": 2.5}, "count = 2.5 .* an integer >= 1"),
        ({"dimension": 0}, "dimension = 0 .* an integer in"),
        ({"signal": [1.0, 0.0]}, r"shape of signal = \(2,\) .* \(3,\)"),
        ({"signal": [1.0, 1.0, 0.0]}, "norm of signal = 1.41.* expected 1"),
        ({"signal": [np.nan, 0.0, 0.0]}, "norm of signal = nan"),
    ],
)
def test_bad_arguments_are_refused(changes: dict[str, object], message: str) -> None:
    arguments = {"count": 5, "dimension": 3, "rng": np.random.default_rng(0)} | changes
    with pytest.raises(ParameterError, match=message):
        sample(task(), **arguments)


@pytest.mark.parametrize("numbers", [[2, 2], [1, 2, 1], [0, 3, 1, 3]])
def test_rows_by_count_have_each_sequence_once(numbers):
    informative = np.array(numbers)
    found = {
        number: np.arange(len(numbers))[rows].tolist()
        for number, rows in rows_by_count(informative)
    }
    assert found == {n: [k for k, other in enumerate(numbers) if other == n] for n in numbers}
