"""
How many samples does this task take?
=====================================

A signal of strength 5 hides in one of ten tokens of 60 dimensions. ``plan`` finds the fewest samples
for an error of 6 %, with the training that reaches it, and checks it by simulated studies.
"""

import matplotlib.pyplot as plt

from sparsetoken import Task, plan

found = plan(Task(10, 1, 5.0), error=0.06, dimension=60, trials=20, losses=("logistic",))
print(found)

# %%
# The plan against the number of samples. Pooling stays far above, whatever the number.

_, axes = plt.subplots(figsize=(5.0, 3.6), layout="constrained")
found.plot(axes=axes)
plt.show()
