"""The Bayes floor: known values, its equations, its phases, its edges and its error bars."""

from types import SimpleNamespace

import numpy as np
import pytest

from sparsetoken import ParameterError, Task, Training, oracle, predict
from sparsetoken.numerics.solution import Status
from sparsetoken.simulation.message_passing import simulate_message_passing
from sparsetoken.theory import floor as floor_module
from sparsetoken.theory.floor import floor, floor_curve, hard_phase
from sparsetoken.theory.places import PlacesLaw, exact_overlap, places_law


def iterate(task: Task, alpha: float, overlap: float) -> float:
    """Iterate m ← Λe/(1 + Λe) for one informative token, without any table."""
    ratio = alpha * task.positive_rate * task.strength**2
    for _ in range(20_000):
        before = overlap
        product = ratio * exact_overlap(task.length, task.strength * np.sqrt(overlap))
        overlap = product / (1 + product)
        if abs(overlap - before) < 1e-10:
            break
    return overlap


@pytest.mark.parametrize(
    ("task", "alpha"),
    [
        (Task(10, 1, 5.0, 0.5), 2.0),
        (Task(20, 1, 2.5, 0.3), 4.0),
        (Task(1000, 1, 4.0, 0.5), 1.0),
        (Task(1000, 1, 6.0, 0.5), 1.0),
        (Task(100, 1, 4.0, 0.5), 0.28),
    ],
)
def test_fixed_points_against_plain_iteration(task: Task, alpha: float) -> None:
    found = floor(task, alpha)
    assert found.reachable_overlap == pytest.approx(iterate(task, alpha, 0.0), abs=1e-6)
    assert found.overlap == pytest.approx(iterate(task, alpha, 1.0), abs=1e-6)
    assert found.uncertainty.overlap < 1e-6


@pytest.mark.parametrize(
    ("task", "alpha"),
    [(Task(10, 1, 3.0, 0.5), 1.0), (Task(12, 3, 2.0, 0.3), 2.0), (Task(8, 6, 1.5, 0.6), 0.7)],
)
def test_solutions_are_stationary_points_of_the_free_energy(task: Task, alpha: float) -> None:
    """φ(m, e) = (Λe - log(1+Λe))/2 + απψ(θ√m) - Λme/2 has no slope at the solution."""
    found = floor(task, alpha)
    law = places_law(task.length, task.informative, 7)
    ratio = alpha * task.positive_rate * task.strength**2

    def energy(m: float, e: float) -> float:
        potential = law.potential(np.array([task.strength * np.sqrt(m)])).mean()
        gain = alpha * task.positive_rate * potential
        return 0.5 * (ratio * e - np.log1p(ratio * e) - ratio * m * e) + float(gain)

    m = found.overlap
    e = float(law.overlap(np.array([task.strength * np.sqrt(m)])).mean())
    step = 1e-5
    for up, down in (
        ((m + step, e), (m - step, e)),
        ((m, e * (1 + step)), (m, e * (1 - step))),
    ):
        slope = (energy(*up) - energy(*down)) / (2 * step)
        # The terms that cancel are of order Λe; a wrong factor in any of them would leave as much.
        assert abs(slope) < 1e-4 * ratio * e
    assert found.free_energy == pytest.approx(energy(m, e), abs=1e-9)


def test_the_hard_phase_lies_between_its_two_ends() -> None:
    task = Task(1000, 1, 4.0, 0.5)
    phase = hard_phase(task)
    assert phase is not None
    assert phase.appears < phase.begins < phase.ends
    assert max(phase.uncertainty.values()) < 1e-4
    for alpha, name in (
        (0.99 * phase.begins, "easy"),
        (1.01 * phase.begins, "hard"),
        (0.99 * phase.ends, "hard"),
        (1.01 * phase.ends, "easy"),
    ):
        found = floor(task, alpha)
        assert found.phase == name
        assert found.solution.status is Status.CONVERGED
    # The ends by iteration alone, within 1 %.
    assert iterate(task, 0.99 * phase.ends, 0.0) < 0.2 < iterate(task, 1.01 * phase.ends, 0.0)
    assert iterate(task, 0.99 * phase.appears, 1.0) < 0.2 < iterate(task, 1.01 * phase.appears, 1.0)
    before, after = floor(task, 0.99 * phase.begins), floor(task, 1.01 * phase.begins)
    assert before.overlap < 0.2 < after.overlap
    assert after.free_energy > after.reachable_free_energy


def test_the_landscape_turns_where_it_says() -> None:
    task = Task(1000, 1, 4.0, 0.5)
    landscape = floor_module._Landscape(task, places_law(task.length, task.informative, 9))
    assert len(landscape.turns) == 2
    for turn, sign in zip(landscape.turns, (1, -1), strict=True):
        before, at, after = sign * landscape.log_ratio(turn + np.array([-1e-3, 0.0, 1e-3]))
        assert at > max(before, after)


def test_short_sequences_have_no_hard_phase_or_a_narrow_one() -> None:
    assert hard_phase(Task(20, 1, 4.0)) is None
    assert hard_phase(Task(100, 1, 2.0)) is None
    assert hard_phase(Task(30, 1, 0.0)) is None
    narrow = hard_phase(Task(100, 1, 4.0))
    assert narrow is not None
    assert narrow.ends < 1.5 * narrow.begins < 0.4
    assert floor(Task(100, 1, 4.0), 0.5).phase == "easy"


def test_strong_signals_have_their_hard_phase_too() -> None:
    # For θ → ∞ the transitions are at fixed θ⁴α: e depends on θ√m, and m = Λe for small m.
    scaled = []
    for strength in (30.0, 1000.0):
        phase = hard_phase(Task(1000, 1, strength))
        assert phase is not None
        scaled.append([strength**4 * phase.begins, strength**4 * phase.ends])
    np.testing.assert_allclose(scaled[0], scaled[1], rtol=0.05)


def test_transitions_of_several_informative_tokens_carry_their_error() -> None:
    phase = hard_phase(Task(200, 2, 4.0))
    assert phase is not None
    assert phase.solution.status is Status.CONVERGED
    for name in ("begins", "ends", "appears"):
        assert 0 < phase.uncertainty[name] < 0.01 * getattr(phase, name)


def test_message_passing_stays_low_in_the_hard_phase() -> None:
    task = Task(300, 1, 4.0, 0.5)
    found = floor(task, 0.6)
    assert found.phase == "hard"
    assert found.overlap > 0.7
    assert found.reachable_test_error > found.test_error + 0.1
    simulated = simulate_message_passing(task, 0.6, dimension=400, trials=8)
    error = simulated.uncertainty["overlap"]
    assert error is not None
    # A finite dimension adds about 1/d to a squared cosine.
    assert abs(simulated.overlap - found.reachable_overlap) < 3.5 * error + 3 / 400


@pytest.mark.parametrize(
    ("task", "alpha"),
    [
        (Task(10, 1, 4.0, 0.5), 0.5),
        (Task(12, 2, 2.5, 0.3), 2.0),
        (Task(15, 3, 2.0, 0.6), 1.0),
        (Task(9, 4, 1.5, 0.4), 3.0),
    ],
)
def test_message_passing_reaches_the_floor(task: Task, alpha: float) -> None:
    found = floor(task, alpha)
    simulated = simulate_message_passing(task, alpha, dimension=500, trials=16, seed=4)
    for name, theory, bar in (
        ("overlap", found.reachable_overlap, found.uncertainty.reachable_overlap),
        ("test_error", found.reachable_test_error, found.uncertainty.reachable_test_error),
    ):
        error = simulated.uncertainty[name]
        assert error is not None
        # z of 3.5 at a standard error of 0.003 (overlap) and 0.0007 (error) or so.
        assert abs(getattr(simulated, name) - theory) < 3.5 * np.hypot(error, bar / 3)


def test_without_a_signal_nothing_is_learnt() -> None:
    found = floor(Task(10, 1, 0.0, 0.3), 5.0)
    assert (found.overlap, found.reachable_overlap, found.free_energy) == (0.0, 0.0, 0.0)
    assert found.test_error == pytest.approx(0.3, abs=found.uncertainty.test_error + 1e-9)


def test_many_samples_are_as_good_as_knowing_the_signal() -> None:
    for task in (Task(10, 1, 3.0, 0.4), Task(8, 3, 1.5, 0.5), Task(20, 19, 1.0, 0.5)):
        found, known = floor(task, 1e5), oracle(task, classifier="bayes")
        assert found.overlap > 1 - 1e-4
        assert (
            abs(found.test_error - known.test_error)
            <= found.uncertainty.test_error + known.uncertainty + 1e-4
        )
        gap = floor(task, 10.0).test_error - known.test_error
        assert gap > -(found.uncertainty.test_error + known.uncertainty)


@pytest.mark.parametrize("rate", [1e-6, 1e-3, 0.999, 1 - 1e-6])
def test_extreme_rates(rate: float) -> None:
    task = Task(10, 1, 4.0, rate)
    found = floor(task, 2.0)
    ratio = 2.0 * rate * task.strength**2
    assert 0 < found.test_error <= min(rate, 1 - rate) + found.uncertainty.test_error
    if rate < 0.5:
        # To first order in Λ the places are unknown: m = Λ R²/L.
        assert found.overlap == pytest.approx(ratio / 10, rel=0.05)


def test_all_tokens_but_one_are_nearly_the_whole_sequence() -> None:
    # Knowing all places would give e = L - 1 of the R = L - 1; not knowing the odd one costs little.
    task = Task(50, 49, 0.5, 0.5)
    found = floor(task, 1.0)
    ratio = 0.5 * task.strength**2
    assert found.overlap == pytest.approx(ratio * 49 / (1 + ratio * 49), rel=0.01)
    assert found.overlap < ratio * 49 / (1 + ratio * 49)


def test_nothing_trained_beats_the_floor() -> None:
    rng = np.random.default_rng(11)
    for _ in range(6):
        length = int(rng.integers(3, 25))
        task = Task(
            length,
            int(rng.integers(1, min(length - 1, 4) + 1)),
            float(rng.uniform(1, 5)),
            float(rng.uniform(0.1, 0.9)),
        )
        training = Training(*rng.uniform(0.5, 4, 2), ridge=0.01, query_step=20.0)
        found = floor(task, training.alpha0 + training.alpha1)
        for classifier in ("attention", "pooled", "vectorised"):
            trained = predict(task, training, classifier=classifier, tolerance=1e-3)
            bars = trained.uncertainty.test_error + found.uncertainty.test_error
            assert found.test_error <= trained.test_error + bars


def test_a_curve_holds_all_points_and_falls() -> None:
    task, values = Task(10, 1, 4.0), (4.0, 0.5, 1.0, 2.0)
    curve = floor_curve(task, values=values)
    assert curve.values == values
    assert [item.alpha for item in curve] == list(values)
    errors = np.array(curve.column("test_error"))[np.argsort(values)]
    assert np.all(np.diff(errors) < 0)
    across = floor_curve(task, over="strength", values=[3.0, 4.0], alpha=2.0)
    assert across[1] == curve[3]
    assert "alpha" in across.settings


def test_the_bar_covers_few_points_and_few_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break the law of the places in each of its parts: the bars of all numbers must grow."""
    names = ("overlap", "reachable_overlap", "free_energy", "reachable_free_energy")
    sampled, exact = Task(14, 3, 2.0, 0.4), Task(300, 1, 4.0, 0.5)
    for task, alpha, broken in (
        (sampled, 1.0, {"log2_points": 4, "seed": 3}),
        (exact, 0.6, {"nodes": 8}),
        (exact, 0.6, {"spacing": 1.2}),
    ):
        better = floor(task, alpha)
        law = PlacesLaw(task.length, task.informative, **broken)  # type: ignore[arg-type]
        monkeypatch.setattr(floor_module, "places_law", lambda *_, law=law: law)
        monkeypatch.setattr(floor_module, "_can_grow", lambda _: False)
        worse = floor(task, alpha, tolerance=1e-12)
        monkeypatch.undo()
        assert worse.solution.status is Status.TOLERANCE_NOT_REACHED
        for name in names:
            bar = getattr(worse.uncertainty, name)
            gap = abs(getattr(worse, name) - getattr(better, name))
            assert gap <= bar + getattr(better.uncertainty, name)
            assert bar > 3 * getattr(better.uncertainty, name)


@pytest.mark.parametrize(("overlap", "bar"), [(None, 0.05), (0.8, 0.6), (0.01, 0.3)])
def test_the_bar_of_the_error_holds_that_of_the_overlap(overlap: float | None, bar: float) -> None:
    task = Task(10, 2, 2.5, 0.4)
    states = floor_module._States(task, places_law(10, 2, 7), 1.0)
    states.values["overlap"] = overlap = overlap or states.values["overlap"]
    states.bars["overlap"] = bar
    best = states._best("overlap", 1e-3)
    for moved in (overlap - bar, overlap + bar):
        if 0 <= moved <= 1:
            other = oracle(task.replace(strength=2.5 * np.sqrt(moved)), classifier="bayes")
            assert abs(other.test_error - best.test_error) <= best.uncertainty
    assert best.uncertainty < bar


class OffBy(PlacesLaw):
    """A law whose overlap e may be off by 3 %, as it says."""

    def relative_error(self, _: float) -> float:
        return 0.03


def test_an_error_of_the_law_is_as_many_samples_more_or_less(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In Λe an error of e is one of α: so far the states move, and so far the transitions."""
    task = Task(300, 1, 4.0)
    law, off = PlacesLaw(300, 1), OffBy(300, 1)
    for alpha in (0.6, 2.0):
        states = floor_module._States(task, off, alpha)
        for times in (0.97, 1.03):
            moved = floor_module._States(task, law, times * alpha)
            for name in ("overlap", "reachable_overlap"):
                gap = abs(states.values[name] - moved.values[name])
                assert 0.99 * gap <= states.bars[name]
    exact = hard_phase(task)
    monkeypatch.setattr(floor_module, "places_law", lambda *_: off)
    found = hard_phase(task)
    assert exact is not None
    assert found is not None
    for name in ("begins", "ends", "appears"):
        assert getattr(found, name) == getattr(exact, name)
        assert found.uncertainty[name] == pytest.approx(0.03 * getattr(exact, name), rel=0.1)
    # Where it decides on which side of an end the samples are, that is told.
    near = floor(task, 1.02 * exact.ends, tolerance=1.0)
    assert near.solution.status is Status.NEAR_THRESHOLD
    assert floor(task, 1.1 * exact.ends, tolerance=1.0).solution.status is Status.CONVERGED
    # In the hard phase the overlap that is reached may be less sure than the best one.
    bars = floor(task, 0.96 * exact.ends, tolerance=1.0).uncertainty
    between = (bars.overlap * bars.reachable_overlap) ** 0.5
    assert bars.overlap < between
    strict = floor(task, 0.96 * exact.ends, tolerance=between)
    assert strict.solution.status is Status.TOLERANCE_NOT_REACHED


def test_the_error_is_as_sure_as_the_overlap_is_asked_to_be() -> None:
    found = floor(Task(30, 3, 2.0), 2.0, tolerance=1e-3)
    assert found.uncertainty.test_error < 1.5e-3


def test_replicates_without_a_hard_phase_say_that_there_may_be_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ends = floor_module._ends
    monkeypatch.setattr(floor_module, "_can_grow", lambda _: False)
    monkeypatch.setattr(PlacesLaw, "relative_error", lambda *_: 1e-9)
    known = hard_phase(Task(200, 2, 4.0))
    assert known is not None
    # What replicates differ by is all that is open, and decides near an end.
    assert min(known.uncertainty.values()) > 1e-6
    alpha = known.ends + 0.3 * known.uncertainty["ends"]
    near = floor(Task(200, 2, 4.0), alpha, tolerance=1.0)
    assert near.solution.status is Status.NEAR_THRESHOLD
    monkeypatch.setattr(
        floor_module, "_ends", lambda one: None if one.replicate == 3 else ends(one)
    )
    found = hard_phase(Task(200, 2, 4.0))
    assert found is not None
    assert set(found.uncertainty.values()) == {np.inf}
    assert found.solution.status is Status.TOLERANCE_NOT_REACHED


def test_errors_too_rare_for_the_points_are_said_to_be_a_bound() -> None:
    found = floor(Task(10, 9, 5.0), 2.0)
    assert found.solution.status is Status.BEYOND_REACH
    assert found.test_error < found.uncertainty.test_error < 1e-3
    assert floor(Task(10, 1, 5.0), 2.0).solution.status is Status.CONVERGED


def test_bad_input_is_named() -> None:
    task = Task(10, 1, 3.0)
    with pytest.raises(ParameterError, match="alpha = 0"):
        floor(task, 0)
    with pytest.raises(ParameterError, match="tolerance = 0"):
        floor(task, 1, tolerance=0)
    with pytest.raises(ParameterError, match="symmetric polynomials"):
        floor(Task(5000, 2, 3.0), 1.0)
    with pytest.raises(ParameterError, match="over = 'colour'"):
        floor_curve(task, over="colour", values=[1.0])
    with pytest.raises(ParameterError, match="alpha = None"):
        floor_curve(task, over="strength", values=[1.0])
    with pytest.raises(ParameterError, match=r"alpha = 2\.0 .* it varies"):
        floor_curve(task, values=[1.0], alpha=2.0)


def test_a_law_of_places_grows_unless_it_is_exact_or_large_enough() -> None:
    def can_grow(**changes: object) -> bool:
        law = {"exact": False, "length": 20, "replicates": 8, "log2_points": 9, **changes}
        return floor_module._can_grow(SimpleNamespace(**law))

    assert can_grow()
    assert not can_grow(exact=True)
    assert not can_grow(log2_points=floor_module._LAST_SIZE)
    assert not can_grow(length=10**6)
