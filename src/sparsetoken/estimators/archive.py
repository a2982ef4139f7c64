"""Labelled sequences in one .npz file of plain arrays: X, y and perhaps mask. Never with pickle."""

import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np

from sparsetoken.estimators.sequences import mask_tokens
from sparsetoken.numerics.memory import require_memory
from sparsetoken.validation import ParameterError

__all__ = ["read_labelled"]


# What numpy and zipfile raise for files that are damaged, or made by others.
_UNREADABLE = (
    *(ValueError, OSError, EOFError, RuntimeError, SyntaxError, tokenize.TokenError),
    *(zipfile.BadZipFile, zlib.error),
)


# Kinds of arrays that labels may be: numbers, texts, dates. Whether they are classes is told later.
_LABELS = "biufcUMm"


def read_labelled(source: str | Path | IO[bytes]) -> tuple[Any, Any]:
    """Return X and y of an .npz file; with a `mask` (n, L), X as a masked array.

    Parameters
    ----------
    source : path or open file
        Arrays named X, of numbers, (n, L, d) or (n, d), and y (n,), of numbers or texts.
    """
    try:
        found = _arrays(source)
    except FileNotFoundError:
        raise
    except _UNREADABLE as error:
        if isinstance(error, ParameterError):
            raise
        # numpy takes what it does not know for a pickle, and tells how to load that unsafely.
        unknown = "pickle" in str(error)
        reason = "neither an .npz nor an .npy file, or with objects" if unknown else str(error)
        raise ParameterError("file", reason, "an .npz file of plain arrays") from None
    for name, array in found.items():
        if not isinstance(array, np.ndarray):  # numpy hands on what it does not know as it is
            raise ParameterError("file", f"{name} that is no array", "an .npz file of plain arrays")
    X, y = found["X"], found["y"]
    numbers = X.ndim in (2, 3) and X.dtype.kind in "biuf"
    if not numbers or y.shape != (len(X),) or y.dtype.kind not in _LABELS:
        shapes = f"X {X.shape} {X.dtype}, y {y.shape} {y.dtype}"
        accepted = "X (n, tokens, dimension) of numbers, y (n,) of numbers or texts"
        raise ParameterError("file", shapes, accepted)
    return (X, y) if "mask" not in found else (mask_tokens(X, found["mask"]), y)


def _arrays(source: str | Path | IO[bytes]) -> dict[str, Any]:
    loaded = np.load(source, allow_pickle=False)
    if isinstance(loaded, np.ndarray):
        raise ParameterError("file", "a single array", "an .npz file with arrays X and y")
    with loaded:
        if not {"X", "y"} <= set(loaded.files):
            raise ParameterError("file", sorted(loaded.files), "arrays named X and y")
        require_memory("the file", sum(item.file_size for item in loaded.zip.infolist()))
        return {name: loaded[name] for name in ("X", "y", "mask") if name in loaded.files}
