"""Files of labelled sequences: what is read, and what is refused by name."""

from pathlib import Path

import numpy as np
import pytest

from sparsetoken import ParameterError
from sparsetoken.estimators.archive import read_labelled

X, Y = np.arange(24.0).reshape(4, 3, 2), np.array([0, 1, 0, 1])


def written(folder: Path, **arrays: np.ndarray) -> Path:
    np.savez(folder / "data.npz", **arrays)
    return folder / "data.npz"


def test_arrays_come_back_as_they_are(tmp_path: Path) -> None:
    read, labels = read_labelled(written(tmp_path, X=X, y=Y, other=Y))
    np.testing.assert_array_equal(read, X)
    np.testing.assert_array_equal(labels, Y)
    flat, _ = read_labelled(written(tmp_path, X=X[:, 0], y=Y))
    np.testing.assert_array_equal(flat, X[:, 0])


def test_a_mask_hides_tokens(tmp_path: Path) -> None:
    mask = np.arange(12).reshape(4, 3) % 3 > 0
    read, _ = read_labelled(written(tmp_path, X=X, y=Y, mask=mask))
    assert np.ma.isMaskedArray(read)
    np.testing.assert_array_equal(np.ma.getmaskarray(read)[:, :, 0], ~mask)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"X": X}, "arrays named X and y"),
        ({"y": Y}, "arrays named X and y"),
        ({"X": X, "y": Y[:3]}, r"y \(n,\)"),
        ({"X": X[None], "y": Y[:1]}, "of numbers"),
        ({"X": X[0, 0], "y": Y[:2]}, "of numbers"),
        ({"X": X.astype(str), "y": Y}, "of numbers"),
        ({"X": X.astype(object), "y": Y}, "plain arrays"),
        ({"X": X, "y": Y.astype("S")}, "of numbers or texts"),
    ],
)
def test_other_files_are_refused(
    arrays: dict[str, np.ndarray], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ParameterError, match=message):
        read_labelled(written(tmp_path, **arrays))


def test_a_single_array_and_no_file_are_told_apart(tmp_path: Path) -> None:
    np.save(tmp_path / "one.npy", X)
    with pytest.raises(ParameterError, match="a single array"):
        read_labelled(tmp_path / "one.npy")
    with pytest.raises(FileNotFoundError):
        read_labelled(tmp_path / "none.npz")
