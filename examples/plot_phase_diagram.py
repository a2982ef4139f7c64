"""
Out of reach, hard, easy
========================

With long sequences there are three phases. Below the lower line the samples do not determine the
signal: nobody can find it. Between the lines they do, but message passing, the best efficient
algorithm known, does not find it: the phase is hard. Above the upper line it does.

Thin lines say where a test error of 5 % is reached: by the best classifier there is, by message
passing, by attention after two gradient steps (half of the samples for the query, sharpness 2), and
by pooling. Attention needs far more samples than message passing, but hardly more strength. Pooling
needs another order of strength.
"""

import matplotlib.pyplot as plt
import numpy as np

from sparsetoken import Query, Task, Training, align, hard_phase, predict, required_strength
from sparsetoken.plotting import COLOURS, STYLE, describe, draw_theory, look_of
from sparsetoken.theory.places import exact_overlap

base = Task(length=1000, informative=1, strength=1.0, positive_rate=0.5)
target, least, most = 0.05, 1e-3, 1e4


def transitions(strengths: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the strengths that have a hard phase, and its two ends."""
    found = [(value, hard_phase(base.replace(strength=value))) for value in strengths]
    kept = [(value, phase.begins, phase.ends) for value, phase in found if phase is not None]
    return tuple(np.array(kept).T)


def floor_ratios(strengths: np.ndarray) -> tuple[list[float], list[float]]:
    """Return the samples per dimension for the target: of the best learner, of message passing.

    The error is that of the known signal at strength θ√m, so that the overlap m it needs is known,
    and the α of a given m is explicit; but no large overlap is reached before its transition.
    """
    needed = required_strength(base, error=target, classifier="bayes").strength
    places = exact_overlap(base.length, needed)
    best, reachable = [], []
    for strength in strengths:
        overlap = (needed / strength) ** 2
        ratio = np.nan
        if overlap < 1:
            ratio = overlap / (1 - overlap) / (base.positive_rate * strength**2 * places)
        phase = hard_phase(base.replace(strength=strength))
        best.append(max(ratio, phase.begins) if phase else ratio)
        reachable.append(max(ratio, phase.ends) if phase else ratio)
    return best, reachable


def trained_error(task: Task, ratio: float, classifier: str) -> float:
    """Return the test error of a trained classifier with so many samples per dimension."""
    training = Training(0.5 * ratio, 0.5 * ratio, ridge=1e-3, readout_step=0.1, bias_step=0.1)
    if classifier == "pooled":
        return predict(task, training.replace(alpha1=ratio), classifier="pooled").test_error
    query = Query(align(task, training).alignment, 2.0)
    return predict(task, training, query=query, tolerance=5e-3).test_error


def trained_ratio(strength: float, classifier: str) -> float:
    """Return the samples per dimension for the target; NaN if no number is enough."""
    task = base.replace(strength=strength)
    if trained_error(task, most, classifier) > target:
        return np.nan
    low, high = np.log(least), np.log(most)
    while high - low > 0.2:
        middle = 0.5 * (low + high)
        enough = trained_error(task, np.exp(middle), classifier) <= target
        low, high = (low, middle) if enough else (middle, high)
    return float(np.exp(0.5 * (low + high)))


plt.rcParams.update(STYLE)
figure, axes = plt.subplots(figsize=(5.6, 4.0), layout="constrained")
strengths, begins, ends = transitions(np.geomspace(2, 300, 40))
axes.fill_between(strengths, least, begins, color=COLOURS["grey"], alpha=0.30, linewidth=0)
axes.fill_between(strengths, begins, ends, color=COLOURS["orange"], alpha=0.35, linewidth=0)
axes.fill_between(strengths, ends, most, color=COLOURS["green"], alpha=0.12, linewidth=0)
for name, place in (("out of reach", (2.8, 3e-3)), ("hard", (3.6, 1.3)), ("easy", (2.8, 2e3))):
    axes.text(*place, name, fontsize=9)
fine = np.geomspace(5.5, 300, 50)
coarse = {
    "attention": np.array([5.8, 6.5, 8, 15, 50, 90]),
    "pooled": np.array([110, 130, 180, 300]),
}
for name, ratios in zip(("bayes", "message_passing"), floor_ratios(fine), strict=True):
    draw_theory(axes, fine, ratios, look_of(name), f"5 %: {look_of(name).label}", linewidth=1.3)
for name, few in coarse.items():
    ratios = [trained_ratio(strength, name) for strength in few]
    draw_theory(axes, few, ratios, look_of(name), f"5 %: {look_of(name).label}", linewidth=1.3)
axes.set(
    xscale="log",
    yscale="log",
    xlim=(strengths[0], 300),
    ylim=(least, most),
    xlabel="signal strength, θ",
    ylabel="labelled sequences per dimension, α",
    title=describe({name: value for name, value in base.to_dict().items() if name != "strength"}),
)
axes.set_xticks([3, 5, 10, 30, 100, 300], ["3", "5", "10", "30", "100", "300"])
axes.minorticks_off()
axes.legend(loc="upper right")
plt.show()
