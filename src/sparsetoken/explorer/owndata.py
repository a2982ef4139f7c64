"""A person's own data on the page: an .npz file with X and y, compared and looked into."""

import io
import zipfile
from typing import Any

import numpy as np

from sparsetoken.estimators.archive import read_labelled
from sparsetoken.explorer.state import LIMITS
from sparsetoken.validation import ParameterError

__all__ = ["MOST_BYTES", "compare_classifiers", "read_arrays"]

MOST_BYTES = LIMITS["file"]
_MOST_ENTRIES = 4_000_000
_SHOWN = 12
# Of each class there must be as many as the comparison has folds.
_FOLDS = 5


def read_arrays(content: bytes) -> tuple[Any, Any]:
    """Return X (n, tokens, dimension) and y (n,) of an .npz file, read without pickle."""
    if len(content) > MOST_BYTES:
        raise ParameterError("file", f"{len(content)} bytes", f"at most {MOST_BYTES} bytes")
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            unpacked = sum(item.file_size for item in archive.infolist())
            if unpacked > 4 * MOST_BYTES:
                accepted = f"at most {4 * MOST_BYTES} bytes"
                raise ParameterError("file", f"{unpacked} bytes unpacked", accepted)
    except (OSError, zipfile.BadZipFile) as error:
        raise ParameterError("file", str(error), "an .npz file of plain arrays") from None
    X, y = read_labelled(io.BytesIO(content))
    if X.ndim != 3 or len(X) < 10:
        shapes = f"X {X.shape} {X.dtype}, y {y.shape}"
        raise ParameterError("file", shapes, "X (n >= 10, tokens, dimension) of numbers, y (n,)")
    if X.size > _MOST_ENTRIES:
        accepted = f"at most {_MOST_ENTRIES} numbers on this page; use compare() in Python"
        raise ParameterError("file", f"{X.size} numbers", accepted)
    if not np.all(np.isfinite(X)):
        raise ParameterError("file", "X with values that are not finite", "finite numbers")
    return X.astype(float), y


def _check_classes(y: Any) -> None:
    """Raise an error if a fold would have none of some class."""
    if y.dtype.kind == "f" and not np.all(y == np.floor(y)):
        return  # no classes: the comparison says so
    classes, counts = np.unique(y, return_counts=True)
    if len(classes) > 1 and counts.min() < _FOLDS:
        rarest = f"{counts.min()} of class {classes[counts.argmin()]}"
        raise ParameterError("y", rarest, f"at least {_FOLDS} sequences of each class")


def compare_classifiers(content: bytes) -> dict[str, Any]:
    """Compare classifiers on an .npz file by cross-validation, and show where attention looks."""
    from sparsetoken.estimators import AttentionClassifier, compare

    X, y = read_arrays(content)
    _check_classes(y)
    comparison = compare(X, y, cv=_FOLDS)
    model = AttentionClassifier().fit(X, y)
    shown = np.linspace(0, len(X) - 1, min(_SHOWN, len(X))).round().astype(int)
    weights = np.asarray(model.attention(X[shown]))
    return {
        "kind": "own",
        "text": str(comparison),
        "samples": [int(number) for number in shown],
        "labels": [str(label) for label in y[shown]],
        "weights": [[float(value) for value in row] for row in weights],
    }
