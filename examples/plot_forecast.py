"""
Is it worth collecting more?
============================

Bags of fifteen handwritten digits, positive if one of them is a nine. ``forecast`` measures a
classifier on nested subsamples of the 200 bags at hand and says what more of them would bring.
"""

import matplotlib.pyplot as plt

from sparsetoken import AttentionClassifier, digit_bags, forecast

bags, _ = digit_bags(15, train=200, test=2)
found = forecast(AttentionClassifier(random_state=0), bags.X, bags.y, target=0.02, repeats=1)
print(found)

# %%
# Measured errors, the forecast with its 80 % band, the target and the answer, if there is one.

_, axes = plt.subplots(figsize=(5.0, 3.6), layout="constrained")
found.plot(axes=axes)
plt.show()
