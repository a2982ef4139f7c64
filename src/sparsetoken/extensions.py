"""Losses and classifiers from outside: modules that make them known, and processes that need them."""

import os
import pickle
import sys
from collections.abc import Iterable
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from sparsetoken.validation import ParameterError

__all__ = ["additions", "extensible", "import_extensions", "imported_extensions", "make_known"]

# Names in the order in which they were asked for, for other processes to ask for them too.
_IMPORTED: dict[str, None] = {}


class _Registry(NamedTuple):
    entries: dict[str, Any]
    built_in: dict[str, Any]


# By the module that defines each.
_REGISTRIES: dict[str, _Registry] = {}


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


def extensible(module: str, entries: dict[str, Any]) -> None:
    """Note that programs may add to a module's registry what worker processes need too."""
    _REGISTRIES[module] = _Registry(entries, dict(entries))


class _Additions(NamedTuple):
    """What this process has added to the package; the entries pickled, by registry.

    To read them takes the places and the modules that they come from.
    """

    places: tuple[str, ...]
    modules: tuple[str, ...]
    entries: bytes


def additions() -> bytes:
    """Return what this process has added to the package, for `make_known` in a worker process.

    Functions and classes of a program's main module travel as they are, others by their names.
    """
    from joblib import wrap_non_picklable_objects

    added = {
        module: {
            name: entry
            for name, entry in known.entries.items()
            if known.built_in.get(name) is not entry
        }
        for module, known in _REGISTRIES.items()
    }
    new = {module: entries for module, entries in added.items() if entries}
    pickled = pickle.dumps(wrap_non_picklable_objects(new, keep_wrapper=False))
    return pickle.dumps(_Additions(tuple(sys.path), imported_extensions(), pickled))


# Once for the many calls of one program; again where a process has served another in between.
@lru_cache(maxsize=1)
def make_known(added: bytes) -> None:
    """Add to this process what `additions` returned in another."""
    found: _Additions = pickle.loads(added)
    sys.path += [place for place in found.places if place not in sys.path]
    import_extensions(found.modules)
    for module, entries in pickle.loads(found.entries).items():
        import_module(module)
        _REGISTRIES[module].entries.update(entries)
