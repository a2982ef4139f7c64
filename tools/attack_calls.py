"""Sound arguments for every public function, so that `attack.py` can spoil one of them at a time."""

import inspect
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import sparsetoken as st
from sparsetoken.sweeps import parse_study

__all__ = ["STUDY", "odd_values", "public_calls"]

STUDY = """
classifiers = "pooled"
dimensions = 20
trials = 3
theory = false
[task]
length = 4
informative = 1
strength = [2, 4]
[training]
alpha0 = 2
alpha1 = 2
loss = "square"
"""
# Public functions that are asked for nothing that could be spoilt, or that change what is registered.
LEFT_OUT = {"loss_names", "register_loss", "unregister_loss"}


def public_calls(folder):
    """Return a list of (name, function, arguments): each is cheap, and none is refused."""
    task, training, step = (
        st.Task(4, 1, 2.0),
        st.Training(2.0, 2.0, ridge=0.1),
        st.Step(2.0, readout_step=1, bias_step=1, query_step=1),
    )
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, 3, 2)), np.where(np.arange(60) % 2, 1, -1)
    X[y > 0, 0] += 2
    features, labels = X[:, 0], y
    both = {"task": task, "training": training}
    data = {"X": X, "y": y}
    attention = st.AttentionClassifier(
        refine=False, ridge=0.1, sharpness=2.0, tied=True, random_state=0
    )
    fitted = attention.fit(X, y)
    weights, positions = fitted.attention(X), np.zeros((60, 1), dtype=int)
    pooled = {"classifier": "pooled"}
    calls = {
        "Task": {"length": 4, "informative": 1, "strength": 2.0, "positive_rate": 0.5},
        "Training": {"alpha0": 1.0, "alpha1": 1.0, "loss": "square", "ridge": 0.1},
        "Query": {"alignment": 0.5, "sharpness": 1.0},
        "Step": {"alpha": 1.0, "readout_step": 1.0, "bias_step": 1.0, "query_step": 1.0},
        "BinomialCount": {"probability": 0.5},
        "PoissonCount": {"mean": 1.0},
        "CountTable": {"table": {1: 0.5, 2: 0.5}},
        "KeptCount": {"length": 4, "informative": 2},
        "align": both,
        "capacity": {"task": task, **pooled, "tolerance": 0.1},
        "capacity_curve": {"task": task, **pooled, "values": [1.0, 2.0], "tolerance": 0.1},
        "check_loss": {"loss": st.get_loss("square")},
        "compare": {**data, "cv": 2, "repeats": 1, "classifiers": {"attention": attention}},
        "curve": {**both, **pooled, "values": [1.0, 2.0], "tolerance": 0.1},
        "descend": {"task": task, "steps": [step], "tolerance": 0.1},
        "diagnose": {**data, "cv": 2, "splits": 1, "attention": attention},
        "digit_bags": {"length": 3, "train": 20, "test": 20},
        "explain": {"model": fitted, "X": X},
        "features": {"X": X, **pooled},
        "finite_size": {**both, **pooled, "dimension": 10, "trials": 4, "tolerance": 0.1},
        "fit_readout": {"features": features, "labels": labels, "loss": "square", "ridge": 0.1},
        "floor": {"task": task, "alpha": 1.0, "tolerance": 0.1},
        "floor_curve": {"task": task, "values": [1.0, 2.0], "tolerance": 0.1},
        "forecast": {"model": st.PooledClassifier(ridge=0.1), **data, "repeats": 1, "backtest": False},
        "free_response_curve": {"scores": list(weights), "positions": list(positions)},
        "get_loss": {"name": "square"},
        "hard_phase": {"task": task},
        "learn_direction": {"task": st.Task(3, 1, 2.0), **data},
        "localisation_score": {"attention": weights, "positions": positions},
        "localise": both,
        "mask_tokens": {"X": X, "mask": np.ones((60, 3), dtype=bool)},
        "oracle": {"task": task, **pooled, "tolerance": 0.1},
        "phase_map": {**both, "x": ("strength", [1.0, 2.0]), "y": ("alpha", [1.0, 2.0]),
                      "classifiers": ["pooled"], "tolerance": 0.1},
        "plan": {"task": task, "dimension": 9, "samples": 99, "trials": 0},
        "plot_attention": {"model": fitted, "X": X[:2]},
        "predict": {**both, **pooled, "at": task, "tolerance": 0.1},
        "read_study": {"path": folder / "study.toml"},
        "required_strength": {"task": task, **pooled, "error": 0.1, "tolerance": 0.1},
        "run_cells": {"store": folder / "calls.sqlite", "cells": [{"size": 4}], "function": _half,
                      "trials": 0},
        "run_sweep": {"study": parse_study(STUDY), "store": folder / "sweep.sqlite",
                      "executor": ThreadPoolExecutor(1)},
        "run_trial": {**both, **pooled, "dimension": 5, "trial": 0, "seed": 1, "fresh_test": 3},
        "sample": {"task": task, "count": 5, "dimension": 3, "rng": np.random.default_rng(0)},
        "separability": {"features": features, "labels": labels},
        "shift": {**both, "values": [4, 8], "tolerance": 0.1},
        "simulate": {**both, **pooled, "dimension": 5, "trials": 1},
        "simulate_descent": {"task": task, "steps": [step], "dimension": 5, "trials": 1},
        "simulate_joint": {"task": task, "training": training.replace(reuse=True), "dimension": 5, "trials": 1, "max_steps": 10},
        "simulate_message_passing": {"task": task, "alpha": 1.0, "dimension": 5, "trials": 1},
        "strength_curve": {"task": task, **pooled, "values": [4, 8], "error": 0.1, "tolerance": 0.1},
        "suggest": {"task": task, "alpha": 1.0, "tolerance": 0.1},
        "train": {"query_data": (X, y), "readout_data": (X, y), "training": training},
    }  # fmt: skip
    named = [(name, getattr(st, name), arguments) for name, arguments in calls.items()]
    return [*named, ("parse_study", parse_study, {"text": STUDY}), *_methods(X, y)]


def _methods(X, y):
    """Return calls of the classifiers' methods, and of `fit` with each parameter."""
    kinds = {
        "AttentionClassifier": {"refine": False, "ridge": 0.1, "sharpness": 2.0, "tied": True},
        "ElementwiseAttentionClassifier": {"refine": False, "ridge": 0.1, "sharpness": 2.0},
        "PooledClassifier": {"ridge": 0.1},
        "VectorisedClassifier": {"ridge": 0.1},
        "AttentionRegressor": {"refine": False, "ridge": 0.1, "sharpness": 2.0},
    }
    for name, settings in kinds.items():
        kind = getattr(st, name)
        model = kind(**settings).fit(X, y)
        yield f"{name}().fit", _fitting(kind, X, y), settings
        yield f"{name}.fit", kind(**settings).fit, {"X": X, "y": y}
        yield f"{name}.predict", model.predict, {"X": X}
        yield f"{name}.score", model.score, {"X": X, "y": y}
        for verb in ("decision_function", "predict_proba", "attention", "locate"):
            if hasattr(model, verb):
                yield f"{name}.{verb}", getattr(model, verb), {"X": X}


def _fitting(kind, X, y):
    def fit(**settings):
        return kind(**settings).fit(X, y)

    fit.__signature__ = inspect.signature(kind)
    return fit


def _half(settings, trial):
    return {"value": settings["size"] / 2 + trial}


def odd_values():
    """Return values that most arguments do not accept, of every type there is."""
    task, rng = st.Task(4, 1, 2.0), np.random.default_rng(0)
    features, labels = rng.standard_normal((6, 3)), np.array([1, -1, 1, -1, 1, 1])
    return [
        *(None, "x", "", -1, 0, 1, 2, 10**30, 0.5, -0.5, 1e-300, 1e300, float("nan"), float("inf")),
        *(True, [], {}, (1, 2), [1.0, 2.0], {"a": 1}, 1j, b"x", object(), len, task, "best", "auto"),
        *(np.int64(3), np.float32(0.5), np.array(2), np.zeros((2, 2)), np.zeros((0, 3))),
        *(np.full((6, 3), np.nan), features * 1e-200, labels[:, None], labels, features),
        *(rng.standard_normal((60, 3, 2)) * 1e-165, np.ones((60, 3, 2)), np.ones(60), ["a"] * 60),
        *(np.zeros((60, 0, 2)), np.array([None] * 60), np.arange(60) % 2, np.arange(60) % 3),
    ]  # fmt: skip
