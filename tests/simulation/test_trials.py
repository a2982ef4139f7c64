"""Trials: reproducible, independent of workers, with sound records and summaries."""

import pickle
from dataclasses import replace

import numpy as np
import pytest

from sparsetoken import (
    ParameterError,
    Query,
    Step,
    Task,
    Training,
    run_trial,
    simulate,
    simulate_descent,
    simulate_joint,
    simulate_message_passing,
)
from sparsetoken.numerics import memory
from sparsetoken.numerics.threads import thread_pools
from sparsetoken.simulation import joint, protocol
from sparsetoken.simulation import trials as trials_module

TASK = Task(length=6, informative=2, strength=3.0, positive_rate=0.4)
TRAINING = Training(alpha0=3.0, alpha1=2.5, ridge=1e-2, query_step=5.0)
QUERY = Query(alignment=0.8, sharpness=1.5)


def values(trial):
    record = trial.to_dict()
    record.pop("seconds")
    return record


@pytest.mark.parametrize("sampler", ["reduced", "plain"])
@pytest.mark.parametrize("classifier", ["attention", "pooled", "vectorised"])
def test_a_trial_depends_on_its_number_and_seed_alone(classifier, sampler):
    def run(trial, seed=0):
        return values(
            run_trial(
                TASK,
                TRAINING,
                dimension=20,
                trial=trial,
                classifier=classifier,
                sampler=sampler,
                seed=seed,
            )
        )

    assert run(3) == run(3)
    assert run(3)["test_error"] != run(4)["test_error"]
    assert run(3)["test_error"] != run(3, seed=1)["test_error"]


def test_the_number_of_workers_changes_nothing(monkeypatch):
    monkeypatch.setattr(trials_module, "START_OF_PROCESSES", 0.0)
    one = simulate(TASK, TRAINING, dimension=30, trials=5, workers=1)
    here: list[int] = []
    run = trials_module.run_trial
    monkeypatch.setattr(
        trials_module, "run_trial", lambda *a, **k: here.append(k["trial"]) or run(*a, **k)
    )
    two = simulate(TASK, TRAINING, dimension=30, trials=5, workers=2)
    monkeypatch.setattr(trials_module, "run_trial", run)
    assert here == [0], "the first trial shows that processes pay; they do the others"
    assert [values(t) for t in one.trials] == [values(t) for t in two.trials]
    fewer = simulate(TASK, TRAINING, dimension=30, trials=3)
    assert [values(t) for t in one.trials[:3]] == [values(t) for t in fewer.trials]


def test_no_process_is_started_for_what_takes_less_time(monkeypatch):
    monkeypatch.setattr("joblib.Parallel", None)
    assert len(simulate(TASK, TRAINING, dimension=10, trials=3, workers=2).trials) == 3


def test_trials_are_in_order_however_they_finish(monkeypatch):
    finished = [run_trial(TASK, TRAINING, dimension=10, trial=number) for number in (2, 0, 1)]
    monkeypatch.setattr(trials_module, "iterate_trials", lambda *_, **__: iter(finished))
    result = simulate(TASK, TRAINING, dimension=10, trials=3)
    assert [trial.trial for trial in result.trials] == [0, 1, 2]


@pytest.mark.parametrize(
    ("name", "inside"),
    [("run_trial", 1), ("simulate_joint", 1), ("three threads", 3), ("as they are", 2)],
)
def test_a_trial_runs_in_one_thread_of_linear_algebra_or_as_many_as_it_is_told(
    name, inside, monkeypatch
):
    def threads():
        return {pool["num_threads"] for pool in thread_pools().info() if pool["user_api"] == "blas"}

    seen = []

    def look(*_):
        seen.append(threads())
        raise InterruptedError

    reused = TRAINING.replace(reuse=True, alpha0=2.5)
    calls = {
        "run_trial": lambda: run_trial(TASK, TRAINING, dimension=10, trial=0),
        "three threads": lambda: run_trial(TASK, TRAINING, dimension=10, trial=0, threads=3),
        "as they are": lambda: run_trial(TASK, TRAINING, dimension=10, trial=0, threads=None),
        "simulate_joint": lambda: simulate_joint(TASK, reused, dimension=10),
    }
    monkeypatch.setitem(trials_module.WAYS, "reduced", look)
    monkeypatch.setattr(joint, "joint_trial", look)
    with thread_pools().limit(limits=2, user_api="blas"):
        assert threads() == {2}, "this BLAS cannot show whether the limit works"
        with pytest.raises(InterruptedError):
            calls[name]()
    assert seen == [{inside}]


def test_the_threads_of_a_trial_are_a_number_or_left_alone():
    def run(threads):
        return run_trial(TASK, TRAINING, dimension=10, trial=0, threads=threads).test_error

    assert run(None) == pytest.approx(run(1), rel=1e-6)
    with pytest.raises(ParameterError, match="threads = 0"):
        run(0)


def test_the_shift_at_test_time_keeps_the_trained_classifier():
    other = Task(length=12, informative=1, strength=4.0, positive_rate=0.7)
    here = run_trial(TASK, TRAINING, dimension=30, trial=0)
    there = run_trial(TASK, TRAINING, dimension=30, trial=0, at=other)
    assert (here.train_loss, here.bias) == (there.train_loss, there.bias)
    assert here.test_error != there.test_error


@pytest.mark.parametrize("sampler", ["reduced", "plain"])
@pytest.mark.parametrize("classifier", ["attention", "pooled", "vectorised"])
def test_fields_that_do_not_apply_are_none_and_the_rest_are_finite(classifier, sampler):
    trial = run_trial(
        TASK, TRAINING, dimension=15, trial=0, classifier=classifier, sampler=sampler, fresh_test=50
    )
    record = trial.to_dict()
    queried = {"alignment", "query_norm", "sharpness", "readout_cosine"}
    assert all((record[name] is None) == (classifier != "attention") for name in queried)
    present = [v for v in record.values() if v is not None and not isinstance(v, str)]
    assert np.all(np.isfinite(present))
    assert trial.converged
    assert pickle.loads(pickle.dumps(trial)) == trial


def test_a_given_query_is_used_as_it_is():
    for sampler in ("reduced", "plain"):
        trial = run_trial(TASK, TRAINING, dimension=15, trial=0, query=QUERY, sampler=sampler)
        assert trial.alignment == pytest.approx(0.8)
        assert trial.sharpness == pytest.approx(1.5)
        assert trial.readout_cosine is None


def test_without_ridge_on_separable_data_the_margin_is_the_largest():
    training = TRAINING.replace(ridge=0.0, alpha1=1.0)
    trial = run_trial(TASK, training, dimension=40, trial=0)
    assert trial.separable
    assert trial.margin == pytest.approx(1 / trial.readout_norm, rel=1e-6)
    other = run_trial(TASK, training.replace(loss="hinge"), dimension=40, trial=0)
    assert other.converged


def test_single_precision_is_offered():
    single = simulate(TASK, TRAINING, dimension=40, trials=30, dtype="float32")
    double = simulate(TASK, TRAINING, dimension=40, trials=30)
    assert all(trial.converged for trial in single.trials)
    for field in ("test_error", "train_loss"):
        difference = single.mean(field) - double.mean(field)
        error = np.hypot(single.standard_error(field), double.standard_error(field))
        assert abs(difference) <= 3.5 * error  # z-score; the streams differ


@pytest.mark.parametrize("reuse", [False, True])
@pytest.mark.parametrize("sampler", ["reduced", "plain"])
@pytest.mark.parametrize("classifier", ["attention", "pooled", "vectorised"])
def test_readouts_are_fitted_to_features_of_the_wanted_precision(
    classifier, sampler, reuse, monkeypatch
):
    fit, seen = protocol._fit, []

    def watched(one, features, *rest):
        seen.append(features.dtype.name)
        return fit(one, features, *rest)

    monkeypatch.setattr(protocol, "_fit", watched)
    setting = {"dimension": 10, "trial": 0, "classifier": classifier, "sampler": sampler}
    for dtype in ("float32", "float64"):
        run_trial(TASK, TRAINING.replace(alpha0=2.5, reuse=reuse), dtype=dtype, **setting)
    assert seen == ["float32", "float64"]


def test_summaries_are_means_and_standard_errors():
    result = simulate(TASK, TRAINING, dimension=20, trials=7, classifier="pooled")
    errors = np.array([trial.test_error for trial in result.trials])
    assert result.mean("test_error") == pytest.approx(errors.mean())
    assert result.standard_error("test_error") == pytest.approx(errors.std(ddof=1) / np.sqrt(7))
    assert result.mean("alignment") is None
    assert result.standard_error("alignment") is None
    row = result.to_dict()
    assert row["test_error"] == result.mean("test_error")
    assert row["test_error_uncertainty"] == result.standard_error("test_error")
    assert "alignment" not in row
    assert 0 <= result.mean("separable") <= 1
    with pytest.raises(ParameterError, match="quantity"):
        result.mean("status")


def test_what_is_the_same_in_all_trials_is_not_called_exact():
    result = simulate(TASK, TRAINING, dimension=20, trials=3, classifier="vectorised")
    assert result.standard_error("separable") == 0
    assert "separable     1\n" in f"{result}\n"
    assert "(exact)" not in str(result) + result._repr_html_()
    step = Step(alpha=2.0, readout_step=1.0, bias_step=0.0, query_step=1.0)
    assert "(exact)" not in str(simulate_descent(TASK, [step], dimension=10, trials=2))


def test_trials_that_did_not_converge_are_told():
    result = simulate(TASK, TRAINING, dimension=20, trials=2, classifier="pooled")
    assert result.mean("converged") == 1
    assert "converged" not in str(result)
    stopped = replace(result.trials[1], converged=False, status="step_limit", message="stopped")
    told = replace(result, trials=(result.trials[0], stopped))
    assert told.to_dict()["converged"] == 0.5
    assert "converged     0.5 ± 0.5" in str(told)
    assert "converged" in told._repr_html_()
    passing = simulate_message_passing(TASK, 1.0, dimension=20, trials=2, max_steps=1)
    assert passing.converged == 0
    assert "converged          0\n" in str(passing)


def test_progress_is_told_of_every_trial():
    seen = []
    simulate(
        TASK,
        TRAINING,
        dimension=10,
        trials=3,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_separability_can_be_left_out():
    assert run_trial(TASK, TRAINING, dimension=20, trial=0, check_separable=False).separable is None


def test_a_classifier_of_one_length_is_tested_on_other_tasks_of_that_length():
    common = {"dimension": 10, "trial": 0, "classifier": "vectorised"}
    strong = run_trial(TASK, TRAINING, at=TASK.replace(strength=30.0), **common)
    assert strong.test_error < run_trial(TASK, TRAINING, **common).test_error


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"dimension": 1}, "dimension"),
        ({"trial": -1}, "trial"),
        ({"classifier": "elementwise"}, "classifier"),
        ({"sampler": "fast"}, "sampler"),
        ({"dtype": "int8"}, "dtype"),
        ({"seed": -1}, "seed"),
        ({"fresh_test": -1}, "fresh_test"),
        ({"at": 7}, "at = 7"),
        ({"query": 0.5}, r"query = 0\.5"),
        ({"classifier": "pooled", "query": QUERY}, "query"),
        ({"classifier": "vectorised", "at": Task(7, 2, 3.0)}, "at.length"),
    ],
)
def test_bad_values_are_named(change, name):
    arguments = {"task": TASK, "training": TRAINING, "dimension": 10, "trial": 0}
    with pytest.raises(ParameterError, match=name):
        run_trial(**{**arguments, **change})
    for wrong in ({"trials": 0}, {"workers": 0}):
        with pytest.raises(ParameterError):
            simulate(TASK, TRAINING, dimension=10, **{"trials": 1, **wrong})


def test_features_beyond_all_memory_are_refused_before_any_work() -> None:
    with pytest.raises(MemoryError, match="dimension = 10000000, for the features, needs"):
        run_trial(Task(10, 1, 5.0), Training(4.0, 2.0), dimension=10_000_000, trial=0)


def test_the_memory_that_is_asked_for_is_that_of_the_features(monkeypatch) -> None:
    """The reduced sampler has no more columns than samples: 20 x 20 numbers here."""
    features = 20 * 20 * 8
    pages = {"SC_PAGE_SIZE": 1, "SC_PHYS_PAGES": features}
    monkeypatch.setattr(memory.os, "sysconf", pages.__getitem__)
    setting = {"dimension": 40, "trial": 0, "query": QUERY, "check_separable": False}
    run_trial(TASK, TRAINING.replace(alpha1=0.5), **setting)
    pages["SC_PHYS_PAGES"] = features - 1
    with pytest.raises(MemoryError, match=r"dimension = 40, for the features, needs 3\.2e-06 GB"):
        run_trial(TASK, TRAINING.replace(alpha1=0.5), **setting)
    run_trial(TASK, TRAINING.replace(alpha1=0.5), dtype="float32", **setting)
