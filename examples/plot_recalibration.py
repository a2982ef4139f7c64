r"""
Recalibrate a probe for another length
======================================

A probe is trained on bags of 10 images and used on bags of up to 300. The token that matters keeps
its score, but it competes with ever more others: with scores of spread :math:`s` within a sequence,
one token that stands out by :math:`\Delta` standard deviations has the share

.. math:: p \approx \frac{e^{s\Delta}}{e^{s\Delta} + L\, e^{s^2/2}}

of the attention, which falls like :math:`1/L` beyond :math:`\log L \approx s\Delta - s^2/2`. A
larger :math:`s` brings it back, up to :math:`s = \Delta`. Sharper attention also looks at the
largest of :math:`L` tokens in bags without signal, so that the bias must move with it. These two
numbers are what :meth:`AttentionClassifier.recalibrate` finds, from a few labelled bags or from
unlabelled ones with a known rate of positives. Query and readout keep their directions.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.kernel_approximation import Nystroem

from sparsetoken import AttentionClassifier, TokenWise, digit_bags
from sparsetoken.plotting import COLOURS, STYLE

# %%
# Train on bags of 10 images, on features of a kernel; a bag is positive if it holds a '9'.

train, _ = digit_bags(length=10, train=600, test=2)
features = TokenWise(Nystroem(gamma=0.14, n_components=150, random_state=0)).fit(train.X)
model = AttentionClassifier(refine=True, tied=True, ridge=0.02).fit(
    features.transform(train.X), train.y
)

# %%
# Use it on longer bags of images that it has not seen: as it was trained, four times as sharp, and
# recalibrated on 100 of the bags.

lengths = (10, 30, 100, 300)
errors: dict[str, list[float]] = {}
for length in lengths:
    _, bags = digit_bags(length=length, train=2, test=400, halves_of=10)
    (X_few, X), (y_few, y) = (
        np.split(part, [100]) for part in (features.transform(bags.X), bags.y)
    )
    versions = {
        "as trained": model,
        "four times as sharp": model.with_sharpness(4 * model.sharpness_[0]),
        "recalibrated, 100 labels": model.recalibrate(X_few, y_few),
        "recalibrated, rate known": model.recalibrate(X_few, rate=0.5),
    }
    for name, version in versions.items():
        errors.setdefault(name, []).append(1 - version.score(X, y))
    sharper = versions["recalibrated, 100 labels"].sharpness_[0]
    print(f"L = {length}: sharpness {model.sharpness_[0]:.1f} → {sharper:.1f}")

# %%
# Error bars are standard errors over 300 test bags.

plt.rcParams.update(STYLE)
figure, axes = plt.subplots(layout="constrained")
looks = zip("osDv", ("black", "orange", "blue", "sky"), strict=True)
for (name, values), (marker, colour) in zip(errors.items(), looks, strict=True):
    spread = np.sqrt(np.array(values) * (1 - np.array(values)) / 300)
    axes.errorbar(lengths, values, spread, marker=marker, color=COLOURS[colour], label=name)
axes.set_xscale("log")
axes.set_xticks(lengths, [str(length) for length in lengths])
axes.set_xlabel("images in a bag; trained on 10")
axes.set_ylabel("test error")
axes.set_ylim(bottom=0)
axes.legend()
plt.show()
