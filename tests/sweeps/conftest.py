"""Worker processes import the functions of the tests: they must be on their path."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "importable"))
