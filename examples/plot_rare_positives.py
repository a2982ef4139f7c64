"""
Rare positives: what the error hides
====================================

Where one sequence in twenty is positive, never saying "positive" errs in 5 % of cases. The error of a
trained classifier is then about 0.05 whatever it has learnt. Ranking tells more: the area under the
ROC curve, and the precision at a wanted recall. All are exact in the limit of high dimension, and
trials at finite dimension measure them without a test set.
"""

import matplotlib.pyplot as plt

from sparsetoken import Task, Training, curve, predict, simulate
from sparsetoken.plotting import LOOKS, STYLE, draw_simulation, draw_theory

task = Task(length=20, informative=2, strength=4.0, positive_rate=0.05)
training = Training(alpha0=8, alpha1=4, ridge=1e-2, query_step=60)
steps = [0.5, 2.0, 4.0, 6.0, 10.0]

predicted = curve(task, training, over="bias_step", values=steps)
simulated = [
    simulate(task, training.replace(bias_step=step), dimension=200, trials=6, check_separable=False)
    for step in steps
]

# %%
# Rare positives turn the query away from the signal, unless the bias is allowed to learn first: a
# larger bias step cures it. The test error hardly shows the cure; the AUC does.

plt.rcParams.update(STYLE)
figure, panels = plt.subplots(1, 2, layout="constrained", figsize=(6.8, 2.8))
look = LOOKS["attention"]
for axes, name in zip(panels, ("test_error", "auc"), strict=True):
    draw_theory(axes, steps, [getattr(item, name) for item in predicted], look)
    draw_simulation(
        axes,
        steps,
        [trials.mean(name) for trials in simulated],
        [trials.standard_error(name) for trials in simulated],
        look,
    )
    axes.set(xlabel="bias step, η_b", ylabel=name.replace("_", " "))
panels[0].set_ylim(0, 0.06)
panels[1].set_ylim(0.4, 1)
plt.show()

# %%
# Of the last classifier: what a wanted recall costs, and how precision falls with recall.

best = predict(task, training.replace(bias_step=steps[-1]))
print(best.at_recall(0.8))
print(best.localisation)

figure, axes = plt.subplots(layout="constrained")
for classifier in ("attention", "pooled", "vectorised"):
    found = predict(task, training.replace(bias_step=steps[-1]), classifier=classifier)
    ranked = found.precision_recall()
    draw_theory(axes, ranked.values, ranked.column("precision"), LOOKS[classifier])
axes.set(xlabel="recall", ylabel="precision", ylim=(0, 1))
axes.legend()
plt.show()
