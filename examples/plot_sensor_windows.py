"""
A fault in one window of a recording
====================================

A machine is recorded for a while, and the recording is cut into windows. Some recordings hold one
short fault. Recordings differ in length, so X is simply a list of arrays (windows, features).
"""

import matplotlib.pyplot as plt
import numpy as np

from sparsetoken import AttentionClassifier, compare, localisation_score
from sparsetoken.plotting import COLOURS

# %%
# Each window is 32 samples of a vibration: noise of changing loudness, and in a faulty recording
# one window with a decaying ring, at a random moment. Its features are the spectrum and the peak
# relative to the window's own loudness.


def record(windows: int, fault: int | None, rng: np.random.Generator) -> np.ndarray:
    loudness = np.exp(0.4 * np.cumsum(rng.standard_normal(windows)) / np.sqrt(windows))
    signal = loudness[:, None] * rng.standard_normal((windows, 32))
    if fault is not None:
        time = np.arange(32 - rng.integers(12))
        ring = np.exp(-time / 8) * np.sin(0.9 * time)
        signal[fault, -len(ring) :] += 4.5 * loudness[fault] * ring
    return signal


def features(signal: np.ndarray) -> np.ndarray:
    spectrum = np.abs(np.fft.rfft(signal, axis=1)) ** 2
    peak = np.abs(signal).max(axis=1, keepdims=True) / signal.std(axis=1, keepdims=True)
    return np.hstack([np.log(spectrum + 1e-3), peak])


def recordings(count: int, seed: int) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(count) % 2)
    windows = rng.integers(15, 60, size=count)
    faults = np.where(y == 1, rng.integers(0, windows), -1)
    signals = [
        record(length, fault if fault >= 0 else None, rng)
        for length, fault in zip(windows, faults, strict=True)
    ]
    return signals, y, faults


signals, y, faults = recordings(600, seed=0)
X = [features(signal) for signal in signals]
print(f"{len(X)} recordings of {min(map(len, X))} to {max(map(len, X))} windows")

# %%
# Does attention pay here? ``compare`` answers by cross-validation.

comparison = compare(X, y)
print(comparison)
comparison.plot(figure=plt.figure(figsize=(7.5, 3.2), layout="constrained"))
plt.show()

# %%
# Where is the fault? Attention over time in three recordings that were not used for fitting; the
# line marks the true moment.

model = AttentionClassifier(random_state=0).fit(X, y)
new_signals, new_y, new_faults = recordings(200, seed=1)
new_X = [features(signal) for signal in new_signals]
attention = model.attention(new_X)
print(f"accuracy on new recordings {model.score(new_X, new_y):.3f}")
print(
    f"fault within the two most attended windows {localisation_score(attention, new_faults, k=2):.1%}"
)

figure, grid = plt.subplots(3, 1, figsize=(7.5, 4.2), layout="constrained", sharey=True)
for axes, row in zip(grid, np.flatnonzero(new_y)[:3], strict=True):
    axes.bar(np.arange(len(attention[row])), attention[row], color=COLOURS["vermilion"])
    axes.axvline(new_faults[row], color=COLOURS["black"], linestyle=":", linewidth=1)
    axes.set_ylabel("attention")
grid[-1].set_xlabel("window of the recording")
plt.show()
