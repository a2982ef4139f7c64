"""Modules that make losses and classifiers known: named on the command line or in a study file."""

import os
import sys
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

from sparsetoken.validation import ParameterError

__all__ = ["import_extensions", "imported_extensions"]

# Names in the order in which they were asked for, for other processes to ask for them too.
_IMPORTED: dict[str, None] = {}


def import_extensions(modules: Iterable[str], folder: str | Path | None = None) -> None:
    """Import modules for what they register, as ``python -m`` would find them.

    Parameters
    ----------
    modules : iterable of str
        Names as in an import statement.
    folder : path, optional
        Where to look too, after the installed modules and the working folder.
    """
    for name in modules:
        if not all(part.isidentifier() for part in str(name).split(".")):
            raise ParameterError("imports", name, "the name of a module, such as 'my_losses'")
        if name in sys.modules:
            _IMPORTED[name] = None
            continue
        for place in (os.getcwd(), folder):  # noqa: PTH109 (sys.path holds texts)
            if place is not None and str(place) not in sys.path:
                sys.path.append(str(place))
        try:
            import_module(name)
        except (Exception, SystemExit) as error:  # noqa: BLE001 (a module may fail in any way)
            reason = f"{type(error).__name__}: {error}"
            raise ParameterError(
                "imports", name, f"a module that can be imported ({reason})"
            ) from None
        _IMPORTED[name] = None


def imported_extensions() -> tuple[str, ...]:
    """Return the modules that `import_extensions` has imported, for a worker process to import."""
    return tuple(_IMPORTED)
