"""Plans: the target is met, the best is found, what cannot be reached is said."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparsetoken import (
    ParameterError,
    Plan,
    Task,
    floor,
    oracle,
    plan,
    predict,
    read_study,
    simulate,
)
from sparsetoken.planning.best_training import Candidate, TrainingSearch, enlarged, total_samples
from sparsetoken.planning.plan_check import _assured, _disagreement
from sparsetoken.planning.sensitivity import _least_multiple, anti_alignments, sensitivities
from sparsetoken.task import Training

TASK = Task(10, 1, 5.0)
RARE = Task(20, 2, 3.0, 0.1)


@cache
def planned() -> Plan:
    return plan(TASK, error=0.05, dimension=80, trials=30, losses=("logistic",))


def test_the_plan_meets_its_target_and_less_does_not() -> None:
    found = planned()
    assert found.training is not None
    assert found.samples == total_samples(found.training, 80)
    assert predict(TASK, found.training).test_error == found.error
    # Whole samples and the search's tolerance: within 2 % of the target.
    assert found.error == pytest.approx(0.05, rel=0.02)
    assert predict(TASK, enlarged(found.training, 0.8)).test_error > 0.05


def test_no_other_setting_nearby_does_better() -> None:
    """A grid around the plan: none is better by more than what counts as nearly as good."""
    found = planned()
    assert found.training is not None
    assert found.error is not None
    for ridge in (0.3, 1.0, 3.0):
        for step in (0.6, 1.0, 1.6):
            other = found.training.replace(
                ridge=found.training.ridge * ridge, query_step=found.training.query_step * step
            )
            assert predict(TASK, other, tolerance=1e-3).test_error > 0.95 * found.error


def test_a_sharpness_is_what_the_candidate_says() -> None:
    candidate = Candidate(6.0, split=0.25, sharpness=2.5)
    training = candidate.training(TASK)
    assert (training.alpha0, training.alpha1) == (1.5, 4.5)
    query = predict(TASK, training, tolerance=1e-2).query
    assert query is not None
    assert query.sharpness == pytest.approx(2.5)
    reused = Candidate(6.0, schedule="no split").training(TASK)
    assert reused.reuse
    assert reused.alpha0 == reused.alpha1 == 6.0


def test_the_search_never_makes_more_predictions_than_it_may() -> None:
    search = TrainingSearch(TASK, "attention", "error", most=20)
    search.least_alpha(search.start(4.0), 0.05)
    assert search.predictions <= 21
    assert search.exhausted


def test_alternatives_are_what_they_say() -> None:
    found = {one.name: one for one in planned().alternatives}
    assert found["pooled"].samples is None
    assert found["pooled"].limit == oracle(TASK, classifier="pooled").error
    assert found["floor"].samples is not None
    alpha = found["floor"].samples / 80
    assert floor(TASK, alpha).error == pytest.approx(0.05, abs=0.003)
    assert floor(TASK, 0.9 * alpha).error > 0.05
    assert found["floor"].samples <= found["message passing"].samples <= (planned().samples or 0)


def test_pooling_is_given_all_samples_and_recommended_where_it_is_better() -> None:
    dense = Task(4, 3, 3.0)
    found = plan(dense, error=0.05, dimension=60, trials=0, losses=("logistic",))
    pooled = next(one for one in found.alternatives if one.name == "pooled")
    assert pooled.samples is not None
    assert found.samples is not None
    training = Training(alpha0=1, alpha1=pooled.samples / 60, ridge=0.05)
    assert predict(dense, training, classifier="pooled").test_error == pytest.approx(0.05, abs=0.02)
    warned = any("pooled classifier reaches the target" in text for text in found.warnings)
    assert warned == (pooled.samples < found.samples)


def test_simulated_studies_agree_and_assure() -> None:
    found = planned()
    checked = found.assurance
    assert checked is not None
    assert checked.simulated == pytest.approx(0.05, abs=0.04)
    assert checked.low < checked.simulated < checked.high
    assert checked.assured_samples is not None
    assert found.training is not None
    assert found.samples is not None
    # With the assured number of samples, other studies: 80 % of 60 ± 5 (one standard error).
    more = enlarged(found.training, checked.assured_samples / found.samples)
    errors = simulate(TASK, more, dimension=80, trials=60, seed=9, check_separable=False)
    assert np.mean(np.array(errors.values("test_error")) <= 0.05) > 0.6


def test_assurance_is_interpolated_between_what_was_tried() -> None:
    shares = iter([0.6, 0.9])
    multiple = _assured(0.5, lambda _: next(shares), 0.8)
    assert multiple is not None
    assert 1.15 < multiple < 1.15 * 1.15**1.5
    assert _assured(0.85, lambda _: 1.0, 0.8) == 1.0
    assert _assured(0.1, lambda _: 0.2, 0.8) is None


def test_disagreement_must_be_clear_and_matter() -> None:
    assert _disagreement(0.10, 0.01, 0.11, 50) is None
    assert _disagreement(0.10, 0.0001, 0.101, 50) is None
    text = _disagreement(0.15, 0.005, 0.1, 50)
    assert text is not None
    assert "At 50 dimensions" in text


def test_a_budget_is_used_up() -> None:
    found = plan(RARE, samples=600, dimension=50, trials=0, losses=("logistic",))
    assert found.samples == 600
    assert found.target is None
    assert found.error is not None
    assert found.error < 0.1
    assert {one.samples for one in found.alternatives} == {600}


def test_rare_positives_warn_of_anti_alignment_with_the_cure() -> None:
    training = Training(alpha0=8, alpha1=4, bias_step=1.0, query_step=30)
    texts = list(anti_alignments(RARE, training.replace(bias_step=0.0)))
    assert len(texts) == 1
    assert "points away from the signal" in texts[0]
    assert "Cure: bias_step above" in texts[0]
    turns = float(texts[0].split("bias_step above ")[1].split()[0].rstrip(".,;"))
    near = list(anti_alignments(RARE, training.replace(bias_step=1.5 * turns)))
    assert any(f"bias step of {0.75 * turns:.3g}" in text for text in near)
    assert not list(anti_alignments(TASK, training))


def test_sensitivity_is_what_prediction_says_and_sorted() -> None:
    training = Training(alpha0=2, alpha1=2, query_step=40)
    found = sensitivities(TASK, training, "error", target=0.1, dimension=100)
    assert [one.effect for one in found] == sorted((one.effect for one in found), reverse=True)
    strength = next(one for one in found if one.setting == "strength")
    weaker = predict(TASK.replace(strength=4.0), training, tolerance=1e-3)
    assert strength.value_low == weaker.test_error
    assert strength.value_low > strength.value_high
    assert strength.samples_low is not None
    assert strength.samples_high is not None
    assert strength.samples_high < 400 < strength.samples_low
    multiple = strength.samples_low / 400
    more = training.replace(alpha0=2 * multiple, alpha1=2 * multiple)
    assert predict(TASK.replace(strength=4.0), more).test_error == pytest.approx(0.1, rel=0.05)
    assert f"(target: {strength.samples_low:,} samples)" in str(strength)


def test_samples_that_a_changed_task_takes_may_be_out_of_reach() -> None:
    assert _least_multiple(lambda multiple: 1 / multiple - 0.2) == pytest.approx(5, rel=0.03)
    assert _least_multiple(lambda multiple: 0.2 / multiple - 1) == pytest.approx(0.2, rel=0.03)
    assert _least_multiple(lambda _: 1.0) is None


def test_a_target_below_the_limit_cannot_be_reached() -> None:
    found = plan(Task(20, 1, 4.0), error=0.01, dimension=256)
    assert found.samples is None
    assert found.training is None
    assert "cannot reach error 0.01" in str(found)
    assert f"the limit is {found.limit:.4f}" in str(found)
    with pytest.raises(ParameterError, match="out of reach"):
        found.study()
    with pytest.raises(ParameterError, match="out of reach"):
        found.plot()


def test_an_area_under_the_curve_is_a_target_too() -> None:
    found = plan(TASK, auc=0.95, dimension=80, trials=5, losses=("logistic",))
    assert found.auc == pytest.approx(0.95, abs=0.01)
    assert found.assurance is not None
    assert found.assurance.simulated == pytest.approx(0.95, abs=0.1)


def test_text_study_and_figure(tmp_path: Path) -> None:
    found = planned()
    text = str(found)
    assert f"{found.samples:,} samples" in text
    assert "nearly as good: sharpness" in text
    assert "simulated studies" in text
    path = tmp_path / "study.toml"
    path.write_text(found.study())
    cells = read_study(path).cells()
    assert len(cells) == 10
    assert {cell["dimension"] for cell in cells} == {80}
    axes = found.plot()
    labels = {text.get_text() for text in axes.get_legend().get_texts()}
    assert {"attention", "plan", "target 0.05", "Bayes floor"} <= labels
    flat = found.to_dict()
    assert flat["samples"] == found.samples
    assert flat["assured_samples"] == found.assurance.assured_samples  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({}, "target = None .* exactly one of error, auc and samples"),
        ({"error": 0.1, "samples": 100}, "target = 'error, samples'"),
        ({"error": 0.5}, "error = 0.5 .* in \\(0, 0.5\\)"),
        ({"error": 0.0}, "error = 0.0"),
        ({"auc": 0.4}, "auc = 0.4"),
        ({"samples": 5}, "samples = 5 .* >= 10"),
        ({"error": 0.1, "dimension": 1}, "dimension = 1"),
        ({"error": 0.1, "assurance": 0.2}, "assurance = 0.2"),
        ({"error": 0.1, "trials": -1}, "trials = -1"),
    ],
)
def test_bad_input_is_refused_by_name(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        plan(TASK, **{"dimension": 50, **change})
