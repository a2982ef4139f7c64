"""
Which digit made the bag positive?
==================================

A bag of images is positive if one of them is a '9'. Only the bags are labelled: nobody says which
image it is. :class:`~sparsetoken.AttentionClassifier` classifies the bag and shows where it looked.
"""

import matplotlib.pyplot as plt
from sklearn.kernel_approximation import Nystroem
from sklearn.pipeline import make_pipeline

from sparsetoken import (
    AttentionClassifier,
    PooledClassifier,
    TokenWise,
    digit_bags,
    localisation_score,
)
from sparsetoken.plotting import COLOURS

# %%
# 500 bags of 12 images of scikit-learn's digits to learn from, 500 of other images to test.

train, test = digit_bags(12, train=500, test=500)
print(train.X.shape, train.y[:10])

# %%
# A digit is not a linear function of its pixels, so that every image is mapped to Nyström features
# first. ``TokenWise`` lifts the transformer from rows to tokens.

model = make_pipeline(
    TokenWise(Nystroem(gamma=0.14, n_components=250, random_state=0)),
    AttentionClassifier(random_state=0),
)
model.fit(train.X, train.y)
pooled = make_pipeline(model[0], PooledClassifier()).fit(train.X, train.y)

features = model[:-1].transform(test.X)
attention = model[-1].attention(features)
print(f"accuracy of mean pooling {pooled.score(test.X, test.y):.3f}")
print(f"accuracy of attention    {model.score(test.X, test.y):.3f}")
print(f"the '9' is the most attended image in {localisation_score(attention, test.positions):.1%}")

# %%
# Eight positive bags, one a row. The most attended image is framed: orange if it is the '9', blue
# with a broken line if attention was mistaken. The number is its weight.

rows = (test.y == 1).nonzero()[0][:8]
located = model[-1].locate(features[rows])[:, 0]
figure, grid = plt.subplots(len(rows), test.X.shape[1], figsize=(7.5, 6.6))
for row, place, line in zip(rows, located, grid, strict=True):
    right = place == test.positions[row]
    for position, axes in enumerate(line):
        axes.imshow(test.X[row, position].reshape(8, 8), cmap="gray_r")
        axes.set_xticks([])
        axes.set_yticks([])
        axes.spines[:].set_visible(position == place)
        axes.spines[:].set_color(COLOURS["vermilion" if right else "blue"])
        axes.spines[:].set_linestyle("-" if right else "--")
        axes.spines[:].set_linewidth(3)
    line[place].set_title(f"{attention[row, place]:.2f}", fontsize=7, pad=2)
figure.suptitle("The most attended image of each positive bag, and its weight", fontsize=10)
figure.tight_layout(h_pad=0.4, w_pad=0.2)
plt.show()
