import numpy as np
import pytest

from sparsetoken import ParameterError, Query, Task, Training, finite_size, simulate
from sparsetoken.planning import finite_size as module

TASK, QUERY = Task(10, 1, 5.0), Query(0.9, 1.0)


@pytest.mark.slow
def test_the_extrapolated_mean_and_spread_are_those_of_trials_at_that_dimension(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At α1 = 0.3 the difference is clear: without it the mean would be off by four bars."""
    training = Training(4.0, 0.3, ridge=1e-2)
    monkeypatch.setattr(module, "_NUMBERS", 0.0)
    found = finite_size(TASK, training, dimension=400, query=QUERY, trials=400)
    assert found.simulated == 128
    known = simulate(TASK, training, dimension=400, trials=400, query=QUERY, seed=9)
    mean, error = known.mean("test_error"), known.standard_error("test_error")
    assert mean is not None
    assert error is not None
    bar = float(np.hypot(found.uncertainty["test_error"], error))
    # z < 4 with standard errors of both; the extrapolation's own error is part of the bar.
    assert abs(found.test_error - mean) < 4 * bar
    assert abs(found.limit - mean) > 2 * error
    assert found.difference > 2 * found.uncertainty["difference"]
    # The spread of 400 trials has a relative standard error of 1/√800 = 3.5 %.
    spread = float(np.std(known.values("test_error"), ddof=1))
    assert found.spread == pytest.approx(spread, rel=0.25)


def test_small_dimensions_are_simulated_themselves() -> None:
    seen: list[tuple[int, int]] = []
    found = finite_size(
        TASK,
        Training(4.0, 1.0),
        dimension=50,
        classifier="pooled",
        trials=16,
        progress=lambda done, total: seen.append((done, total)),
    )
    known = simulate(TASK, Training(4.0, 1.0), dimension=50, trials=16, classifier="pooled")
    assert found.simulated == found.dimension == 50
    assert found.test_error == pytest.approx(known.mean("test_error"), abs=1e-12)
    assert found.to_dict()["test_error_uncertainty"] == pytest.approx(
        known.standard_error("test_error"), rel=1e-9
    )
    assert seen[-1] == (16, 16)


def test_bad_input_is_named() -> None:
    with pytest.raises(ParameterError, match="dimension = 1"):
        finite_size(TASK, Training(4.0, 1.0), dimension=1)
    with pytest.raises(ParameterError, match="trials = 2"):
        finite_size(TASK, Training(4.0, 1.0), dimension=50, trials=2)


def test_dimensions_up_to_twice_the_smallest_are_simulated_themselves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_NUMBERS", 0.0)
    small = module._SMALL_DIMENSION
    assert module._simulated_dimensions(2 * small, 10.0) == (2 * small,)
    assert module._simulated_dimensions(2 * small + 1, 10.0) == (small, 2 * small)
