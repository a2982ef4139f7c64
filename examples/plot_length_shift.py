"""
Trained on short sequences, used on long ones
=============================================

A classifier that attends well to 20 tokens may fail completely on 500. Two numbers repair most of it:
the sharpness of the softmax and the bias. `shift` predicts the test error of one trained classifier
on tasks of other lengths, used as it was trained, with the best bias, with a hard maximum instead
of the softmax, and with the best pair of both. Nothing is trained again.
"""

import matplotlib.pyplot as plt

from sparsetoken import Task, Training, shift
from sparsetoken.plotting import LOOKS, STYLE, draw_theory
from sparsetoken.plotting.style import SERIES

task = Task(length=20, informative=1, strength=5.0)
training = Training(alpha0=8, alpha1=8, ridge=1e-2, query_step=40)
lengths = [20, 50, 200, 1000, 10_000, 100_000]

found = shift(task, training, over="length", values=lengths, tolerance=2e-3)
print(found[2])

# %%
# A sequence of more tokens dilutes the trained softmax, and with it moves all scores: the classifier
# ends up calling every sequence by one label. The best bias alone does not help for long, and a
# sharper softmax without its own bias does not help at all.

plt.rcParams.update(STYLE)
figure, axes = plt.subplots(layout="constrained")
looks = {
    "trained_test_error": LOOKS["attention"].named("as trained"),
    "trained_best_bias_test_error": SERIES[1].named("best bias"),
    "hard_best_bias_test_error": SERIES[2].named("hard maximum, best bias"),
    "best_pair_test_error": LOOKS["vectorised"].named("best sharpness and bias"),
    "oracle_test_error": LOOKS["bayes"].named("Bayes floor"),
}
for name, look in looks.items():
    line = "--" if name == "oracle_test_error" else "-"
    draw_theory(axes, lengths, found.column(name), look, linestyle=line)
axes.set(xscale="log", xlabel="length at test time, L", ylabel="test error", ylim=(0, 0.52))
axes.legend()
plt.show()

# %%
# The best sharpness grows slowly with the length, as the largest of many noise tokens does.

for length, sharpness in zip(lengths, found.column("best_sharpness"), strict=True):
    print(f"L = {length:6d}: best sharpness {sharpness:.2f}")
