"""
How far from the best possible?
===============================

Test error against the number of labelled sequences per dimension, when one token in ten carries the
signal: the least error that any learner could reach, and what trained classifiers do. Lines are exact
in the limit of high dimension; markers are simulations with their standard errors.

Message passing reaches the floor here: the phase is easy. Attention after two gradient steps, which
spends half of its samples on the query, comes to twice the floor; linear classifiers on pooled or
vectorised tokens are ten times off, and more samples do not help them much. Attention is simulated at
a larger dimension than they are: at the left end it learns its query from a quarter of a sequence per
dimension, and comes close to the limit only in a thousand dimensions.
"""

import matplotlib.pyplot as plt
import numpy as np

from sparsetoken import (
    Task,
    Training,
    floor_curve,
    predict,
    simulate,
    simulate_message_passing,
)
from sparsetoken.plotting import (
    STYLE,
    describe,
    draw_simulation,
    draw_theory,
    look_of,
    tidy_log_ticks,
)

task = Task(length=10, informative=1, strength=5.0, positive_rate=0.5)
classifiers = ("attention", "pooled", "vectorised")
dimensions = {"attention": 1000, "message_passing": 1000, "pooled": 300, "vectorised": 300}


def training(classifier: str, ratio: float) -> Training:
    """Attention splits its samples between query and readout; the others use all for the readout."""
    share = 0.5 if classifier == "attention" else 1.0
    return Training(alpha0=0.5 * ratio, alpha1=share * ratio, ridge=1e-5, query_step=20.0)


def predicted_errors(ratios: np.ndarray) -> dict[str, list[float]]:
    """Return test errors by learner, at each number of samples per dimension."""
    errors = {"bayes": floor_curve(task, values=ratios).column("test_error")}
    for classifier in classifiers:
        found = [
            predict(task, training(classifier, ratio), classifier=classifier, tolerance=1e-3)
            for ratio in ratios
        ]
        errors[classifier] = [prediction.test_error for prediction in found]
    return errors


def simulated_errors(ratios: np.ndarray, trials: int) -> dict[str, list[tuple[float, float]]]:
    """Return means and standard errors over trials."""
    errors = {"message_passing": [], **{classifier: [] for classifier in classifiers}}
    for ratio in ratios:
        messages = simulate_message_passing(
            task, ratio, dimension=dimensions["message_passing"], trials=trials
        )
        errors["message_passing"].append((messages.test_error, messages.uncertainty["test_error"]))
        for classifier in classifiers:
            found = simulate(
                task,
                training(classifier, ratio),
                dimension=dimensions[classifier],
                trials=trials,
                classifier=classifier,
            )
            errors[classifier].append(
                (found.mean("test_error"), found.standard_error("test_error"))
            )
    return errors


plt.rcParams.update(STYLE)
figure, axes = plt.subplots(figsize=(5.2, 3.6), layout="constrained")
line = np.geomspace(0.5, 16, 16)
for name, values in predicted_errors(line).items():
    draw_theory(axes, line, values, look_of(name))
dots, trials = np.geomspace(0.5, 16, 6), 16
for name, pairs in simulated_errors(dots, trials).items():
    means, bars = zip(*pairs, strict=True)
    draw_simulation(axes, dots, means, bars, look_of(name), "" if name not in classifiers else None)
axes.set(
    xscale="log",
    yscale="log",
    xlabel="labelled sequences per dimension, α",
    ylabel="test error",
    title=f"{describe(task.to_dict())}, λ = 1e-5\nLines: theory. Markers: {trials} trials, "
    f"d = {dimensions['attention']} (linear classifiers: {dimensions['pooled']})",
)
tidy_log_ticks(axes)
axes.legend(loc="center right")
plt.show()
