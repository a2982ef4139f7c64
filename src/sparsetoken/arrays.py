"""The one array type of the package's annotations; shapes are in the docstrings."""

from typing import Any

from numpy.typing import NDArray

__all__ = ["Array"]

Array = NDArray[Any]
