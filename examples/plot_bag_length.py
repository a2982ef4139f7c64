"""
How much does a longer bag cost?
================================

One '9' hides among ever more other digits. The mean over the bag dilutes it by 1/L, so that pooling
ends up guessing, whereas attention has to find one image among L.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.kernel_approximation import Nystroem
from sklearn.pipeline import make_pipeline

from sparsetoken import AttentionClassifier, PooledClassifier, TokenWise, digit_bags
from sparsetoken.plotting import LOOKS, styled

lengths = (3, 5, 10, 20, 40)
seeds = range(3)
classifiers = {
    "pooled": PooledClassifier(),
    "attention": AttentionClassifier(tied=True, sharpness=1.0, ridge=0.02),
}

# %%
# 300 training bags for each length, the same pipeline and parameters for all.

errors = {name: np.zeros((len(lengths), len(seeds))) for name in classifiers}
for i, length in enumerate(lengths):
    for seed in seeds:
        train, test = digit_bags(length, train=300, test=500, seed=seed)
        lift = TokenWise(Nystroem(gamma=0.14, n_components=200, random_state=seed))
        for name, classifier in classifiers.items():
            model = make_pipeline(lift, classifier).fit(train.X, train.y)
            errors[name][i, seed] = 1 - model.score(test.X, test.y)

# %%
# Markers are means over three seeds, bars standard errors.


@styled
def draw() -> None:
    _, axes = plt.subplots(figsize=(5.0, 3.2), layout="constrained")
    for name, values in errors.items():
        look = LOOKS[name]
        axes.errorbar(
            lengths,
            values.mean(axis=1),
            yerr=values.std(axis=1, ddof=1) / np.sqrt(len(seeds)),
            color=look.colour,
            marker=look.marker,
            label=name,
        )
    axes.axhline(0.5, color="0.4", linestyle=":", label="guessing")
    axes.set_xscale("log")
    axes.set_xticks(lengths, [str(length) for length in lengths])
    axes.minorticks_off()
    axes.set_xlabel("images in a bag, L")
    axes.set_ylabel("test error")
    axes.set_ylim(0, 0.55)
    axes.legend()


draw()
plt.show()
