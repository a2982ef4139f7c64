"""
Theory over simulation
======================

How the test error of three classifiers falls with the number of samples, when one token in ten
carries the signal. Lines are exact in the limit of high dimension; markers are simulations with
their standard errors, at 200 dimensions. They share their field names, so that one loop draws both.
"""

import matplotlib.pyplot as plt

from sparsetoken import Task, Training, curve, simulate
from sparsetoken.plotting import STYLE, draw_simulation, draw_theory, look_of, tidy_log_ticks

task = Task(length=10, informative=1, strength=5.0, positive_rate=0.5)
training = Training(alpha0=8, alpha1=4, ridge=1e-2, query_step=20.0)
ratios = [1, 2, 4, 8, 16]

plt.rcParams.update(STYLE)
figure, axes = plt.subplots(layout="constrained")
for classifier in ("attention", "pooled", "vectorised"):
    predicted = curve(task, training, over="alpha1", values=ratios, classifier=classifier)
    simulated = [
        simulate(
            task, training.replace(alpha1=ratio), dimension=200, trials=4, classifier=classifier
        )
        for ratio in ratios
    ]
    look = look_of(classifier)
    draw_theory(axes, ratios, [prediction.test_error for prediction in predicted], look)
    draw_simulation(
        axes,
        ratios,
        [trials.mean("test_error") for trials in simulated],
        [trials.standard_error("test_error") for trials in simulated],
        look,
    )
axes.set(xscale="log", yscale="log", xlabel="samples per dimension, α1", ylabel="test error")
tidy_log_ticks(axes)
axes.legend()
plt.show()
