"""Measurements on plain arrays of data that the theory does not cover: other noise, more signals."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from sparsetoken.arrays import Array
from sparsetoken.learning.stages import train
from sparsetoken.numerics.memory import kept_on_path
from sparsetoken.reproduce.measurement import as_argument, measures
from sparsetoken.simulation.random_streams import stream
from sparsetoken.task import Task, Training
from sparsetoken.validation import choice

__all__ = ["NOISES", "plain_trial"]

Noise = Callable[[np.random.Generator, tuple[int, int, int]], Array]

# Of neighbouring tokens, and of neighbouring coordinates.
CORRELATION = 0.6


def _correlated(values: Array, axis: int) -> Array:
    """Return unit-variance values that are correlated along an axis as CORRELATION^distance."""
    values = np.moveaxis(values, axis, 0)
    fresh = math.sqrt(1 - CORRELATION**2)
    for place in range(1, len(values)):
        values[place] = CORRELATION * values[place - 1] + fresh * values[place]
    return np.moveaxis(values, 0, axis)


@kept_on_path(2**22)
def _digits(whitened: bool) -> Array:
    """Return the images of scikit-learn's digits, with unit variance, whitened or only scaled."""
    from sklearn.datasets import load_digits

    images = np.asarray(load_digits().data, dtype=float)
    images -= images.mean(axis=0)
    if not whitened:
        images = images[:, images.std(axis=0) > 0.1]
        return np.asarray(images / images.std(axis=0))
    left, values, _ = np.linalg.svd(images, full_matrices=False)
    kept = values > 0.01 * values[0]
    return np.asarray(left[:, kept] * math.sqrt(len(images)))


def _from_digits(whitened: bool) -> Noise:
    def draw(rng: np.random.Generator, shape: tuple[int, int, int]) -> Array:
        images = _digits(whitened)
        drawn = images[rng.integers(len(images), size=shape[:2])]
        # Any d: a random orthogonal projection of the images, or images side by side.
        copies = math.ceil(shape[2] / drawn.shape[2])
        more = [images[rng.integers(len(images), size=shape[:2])] for _ in range(copies - 1)]
        return np.concatenate([drawn, *more], axis=2)[:, :, : shape[2]]

    return draw


NOISES: dict[str, Noise] = {
    "gaussian": lambda rng, shape: rng.standard_normal(shape),
    "rademacher": lambda rng, shape: rng.choice([-1.0, 1.0], size=shape),
    "student": lambda rng, shape: rng.standard_t(5, size=shape) * math.sqrt(3 / 5),
    "correlated tokens": lambda rng, shape: _correlated(rng.standard_normal(shape), 1),
    "correlated coordinates": lambda rng, shape: _correlated(rng.standard_normal(shape), 2),
    "digits, whitened": _from_digits(whitened=True),
    "digits": _from_digits(whitened=False),
}


@measures("simulation", shown=("dimension",))
def plain_trial(
    task: Task,
    training: Training,
    dimension: int,
    trial: int,
    noise: str = "gaussian",
    directions: int = 1,
    fresh: int = 4000,
    seed: int = 0,
) -> dict[str, Any]:
    """Draw sequences, train attention through all stages, and count errors on fresh sequences.

    `directions` orthogonal signals: each positive sequence carries one of them, at random.
    """
    choice("noise", noise, NOISES)
    settings = {
        "only": "plain",
        "task": task.to_dict(),
        "training": as_argument(training),
        "dimension": dimension,
        "noise": noise,
        "directions": directions,
    }
    rng = stream(seed, settings, trial)
    signals = np.linalg.qr(rng.standard_normal((dimension, directions)))[0].T

    def sequences(count: int) -> tuple[Array, Array]:
        y = np.where(rng.random(count) < task.positive_rate, 1, -1)
        x = NOISES[noise](rng, (count, task.length, dimension))
        for i in np.flatnonzero(y > 0):
            places = rng.choice(task.length, task.fixed_informative, replace=False)
            x[i, places] += task.strength * signals[rng.integers(directions)]
        return x, y

    counts = (max(2, round(ratio * dimension)) for ratio in (training.alpha0, training.alpha1))
    first, second = (sequences(count) for count in counts)
    model = train(first, second, training)
    x, y = sequences(fresh)
    pooled = train(first, second, training, classifier="pooled")
    assert model.query is not None
    cosines = signals @ model.query / np.linalg.norm(model.query)
    return {
        "test_error": float(np.mean(model.predict(x) != y)),
        "pooled_error": float(np.mean(pooled.predict(x) != y)),
        "alignment": float(np.linalg.norm(cosines)) if directions > 1 else float(cosines[0]),
    }
