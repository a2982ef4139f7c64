"""Bags of handwritten digits: a small, real multiple-instance problem that needs no download."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.datasets import load_digits

from sparsetoken.arrays import Array
from sparsetoken.numerics.memory import require_memory
from sparsetoken.validation import ParameterError, integer, real

__all__ = ["DigitBags", "digit_bags"]


@dataclass(frozen=True)
class DigitBags:
    """Bags of images.

    Attributes
    ----------
    X : array of shape (n, L, 64)
        8×8 images with values in [0, 1], float32.
    y : array of shape (n,)
        1 if the bag holds the wanted digit, else 0.
    positions : array of shape (n,)
        Where the wanted digit is, -1 if the bag has none.

    Examples
    --------
    >>> from sparsetoken import digit_bags
    >>> train, _ = digit_bags(10, train=40, test=20)
    >>> bool(((train.positions >= 0) == (train.y == 1)).all())
    True
    """

    X: Array
    y: Array
    positions: Array


def digit_bags(
    length: int,
    *,
    train: int = 500,
    test: int = 1000,
    digit: int | Sequence[int] = 9,
    positive_rate: float = 0.5,
    seed: int = 0,
    halves_of: int | None = None,
) -> tuple[DigitBags, DigitBags]:
    """Draw training and test bags of scikit-learn's digits.

    Positive bags hold exactly one image of `digit`. The images are divided into two halves first,
    one for either set, so that no test image was seen in training.

    Parameters
    ----------
    length : int
        Images in a bag.
    train, test : int
        Bags in either set.
    digit : int or several, default 9
        What makes a bag positive; of several, any one.
    positive_rate : float, default 0.5
        Share of positive bags, at least one in either set.
    seed : int
    halves_of : int, optional
        Divide the images as for bags of this length; by default every length has halves of its own.
        For a classifier that is trained on one length and tested on another.

    Returns
    -------
    train, test : DigitBags

    Examples
    --------
    >>> from sparsetoken import digit_bags
    >>> train, test = digit_bags(10, train=40, test=20, digit=3)
    >>> train.X.shape, test.y.shape
    ((40, 10, 64), (20,))
    """
    length = integer("length", length, low=1)
    counts = integer("train", train, low=2), integer("test", test, low=2)
    rate = real("positive_rate", positive_rate, low=0, high=1)
    wanted = [integer("digit", one, low=0, high=9) for one in np.atleast_1d(digit).tolist()]
    if not 1 <= len(set(wanted)) <= 9:
        raise ParameterError("digit", digit, "1 to 9 of the digits: some show no signal")
    seed = integer("seed", seed, low=0)
    if halves_of is not None:
        halves_of = integer("halves_of", halves_of, low=1)
    for name, count in zip(("train", "test"), counts, strict=True):
        require_memory(f"{name} = {count} bags of {length} images", 4.0 * 64 * count * length)
    rng = np.random.default_rng([seed, length])
    images, digits = load_digits(return_X_y=True)
    images = (images / 16).astype(np.float32)
    order = rng if halves_of is None else np.random.default_rng([seed, halves_of])
    halves = np.array_split(order.permutation(len(images)), [len(images) // 2])
    first, second = (
        _draw(images[half], np.isin(digits[half], wanted), count, length, rate, rng)
        for half, count in zip(halves, counts, strict=True)
    )
    return first, second


def _draw(
    images: Array, wanted: Array, count: int, length: int, rate: float, rng: np.random.Generator
) -> DigitBags:
    others, targets = images[~wanted], images[wanted]
    positives = min(max(round(rate * count), 1), count - 1)
    y = rng.permutation(np.arange(count) % 2)
    if positives != count // 2:
        y = rng.permutation((np.arange(count) < positives).astype(int))
    X = others[rng.integers(len(others), size=(count, length))]
    positions = np.where(y == 1, rng.integers(length, size=count), -1)
    rows = np.flatnonzero(y)
    X[rows, positions[rows]] = targets[rng.integers(len(targets), size=len(rows))]
    return DigitBags(X, y, positions)
