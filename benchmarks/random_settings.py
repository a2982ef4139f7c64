"""Random valid settings, for the benchmarks that look at many of them.

A setting is known by a seed and its number, so that any one can be made again alone.
"""

from dataclasses import dataclass

import numpy as np

from sparsetoken import Query, Task, Training, loss_names

CLASSIFIERS = ("attention", "pooled", "vectorised")


@dataclass(frozen=True)
class Setting:
    """The arguments of `predict`."""

    task: Task
    training: Training
    classifier: str
    query: Query | None
    at: Task | None = None

    def __str__(self) -> str:
        shift = "" if self.at is None else f", at={self.at}"
        return f"{self.task}, {self.training}, {self.classifier!r}, {self.query}{shift}"


def random_setting(
    number: int,
    seed: int = 0,
    classifiers: tuple[str, ...] = CLASSIFIERS,
    shifted: float = 0.0,
    reused: bool = False,
) -> Setting:
    """Draw a setting; with probability `shifted` it is tested on another task.

    With `reused` the query of attention is learnt, from the samples that train the readout.
    """
    rng = np.random.default_rng((seed, number))
    # Attention is the hard one: it has its place and, if there are others, theirs as well.
    classifier = "attention" if rng.random() < 0.5 else str(rng.choice(classifiers))
    task = _random_task(rng)
    training = Training(
        alpha0=_log_uniform(rng, 0.05, 100),
        alpha1=_log_uniform(rng, 0.05, 100),
        loss=str(rng.choice(sorted(loss_names()))),
        ridge=_edge_or(rng, (0.0, 0.0, 10.0), _log_uniform(rng, 1e-8, 10), chance=0.4),
        readout_step=_log_uniform(rng, 0.1, 3),
        bias_step=_edge_or(rng, (0.0,), _log_uniform(rng, 0.1, 3), chance=0.1),
        query_step=_log_uniform(rng, 0.1, 10),
        inverse_temperature=_log_uniform(rng, 0.1, 10),
    )
    query = Query(
        alignment=_edge_or(rng, (-1.0, 0.0, 1.0), rng.uniform(-1, 1), chance=0.4),
        sharpness=_edge_or(rng, (0.0,), _log_uniform(rng, 0.01, 100), chance=0.15),
    )
    if reused:
        training = training.replace(alpha0=training.alpha1, reuse=True)
    given = classifier == "attention" and rng.random() < 0.5 and not reused
    at = _random_task(rng) if rng.random() < shifted else None
    if at is not None and classifier == "vectorised":
        at = task.replace(strength=at.strength, positive_rate=at.positive_rate)
    return Setting(task, training, classifier, query if given else None, at)


def _random_task(rng: np.random.Generator) -> Task:
    length = round(_log_uniform(rng, 2, 200))
    return Task(
        length=length,
        informative=int(_edge_or(rng, (1, length - 1), int(rng.integers(1, length)), chance=0.6)),
        strength=_edge_or(rng, (0.0, 20.0), rng.uniform(0, 20), chance=0.1),
        positive_rate=_edge_or(rng, (0.001, 0.5, 0.999), rng.uniform(0.02, 0.98), chance=0.3),
    )


def _log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def _edge_or(
    rng: np.random.Generator, edges: tuple[float, ...], otherwise: float, chance: float
) -> float:
    """Return one of the edges of the range with the given chance."""
    return float(rng.choice(edges)) if rng.random() < chance else float(otherwise)
