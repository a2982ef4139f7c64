"""
From bags to a tuned classifier
===============================

The classifiers are scikit-learn estimators: the features of the tokens and the attention are tuned
together, by the usual grid search on a pipeline.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.kernel_approximation import Nystroem
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline

from sparsetoken import AttentionClassifier, TokenWise, digit_bags

# %%
# A pipeline of two steps. ``tied=True`` makes the search cheap: attention then goes to the evidence
# itself, which is right when a token counts for what it is.

train, test = digit_bags(10, train=300, test=500)
pipeline = Pipeline(
    [
        ("features", TokenWise(Nystroem(n_components=150, random_state=0))),
        ("attention", AttentionClassifier(tied=True, sharpness=1.0, random_state=0)),
    ]
)
grid = {
    "features__transformer__gamma": [0.03, 0.1, 0.3],
    "attention__ridge": [1e-3, 1e-2, 1e-1],
}
search = GridSearchCV(pipeline, grid, cv=4).fit(train.X, train.y)
print(search.best_params_)
print(f"cross-validated accuracy {search.best_score_:.3f}")
print(f"accuracy on test bags    {search.score(test.X, test.y):.3f}")

# %%
# The two matter together: a narrow kernel (a large gamma) suffers most from a strong ridge. Grid
# search goes through the ridges first, so that rows of this table are kernels after a transpose.

scores = search.cv_results_["mean_test_score"].reshape(3, 3).T
figure, axes = plt.subplots(figsize=(4.4, 3.4), layout="constrained")
image = axes.imshow(scores, cmap="cividis")
for (i, j), score in np.ndenumerate(scores):
    colour = "white" if score < scores.min() + np.ptp(scores) / 2 else "black"
    axes.text(j, i, f"{score:.3f}", ha="center", va="center", color=colour)
axes.set_xticks(range(3), grid["attention__ridge"])
axes.set_yticks(range(3), grid["features__transformer__gamma"])
axes.set_xlabel("ridge")
axes.set_ylabel("gamma of the kernel")
figure.colorbar(image, label="cross-validated accuracy")
plt.show()

# %%
# Probabilities and positions come with the prediction.

best = search.best_estimator_
features = best[:-1].transform(test.X[:5])
for probability, place, label in zip(
    best[-1].predict_proba(features)[:, 1], best[-1].locate(features)[:, 0], test.y, strict=False
):
    print(f"P(holds a '9') = {probability:.2f}, most likely image {place}, truth {bool(label)}")
