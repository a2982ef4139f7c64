"""How the page draws its lines: as the package's figures do."""

from sparsetoken.explorer.state import VIEWS
from sparsetoken.explorer.views import repairs
from sparsetoken.plotting.style import LOOKS, SERIES, Look, look_of

__all__ = ["line_looks"]

# Names of matplotlib's markers in Plotly.
_SYMBOLS = {
    "o": "circle",
    "s": "square",
    "^": "triangle-up",
    "v": "triangle-down",
    "D": "diamond",
    "P": "cross",
    "X": "x",
    "h": "hexagon",
    "*": "star",
}
# Lines of what is not trained.
_KNOWN = {"floor": LOOKS["bayes"], "bayes": LOOKS["bayes"].named("Bayes, signal known")}


def line_looks() -> dict[str, dict[str, str]]:
    """Return label, colour, symbol and dash of every line by its name, in the order of legends."""
    trained = [name for view in VIEWS.values() for name in view.classifiers if name not in _KNOWN]
    looks = {name: _line(look_of(name), "solid") for name in trained}
    looks |= {name: _line(look, "dash") for name, look in _KNOWN.items()}
    for classifier in VIEWS["shift"].classifiers:
        _, moved, *others = (name for name, _ in repairs(classifier))
        looks[moved] = _line(look_of(classifier).named(moved), "dash")
        for name, look in zip(others, SERIES, strict=False):
            looks[name] = _line(look.named(name), "solid")
    return looks


def _line(look: Look, dash: str) -> dict[str, str]:
    symbol = _SYMBOLS.get(look.marker, "circle")
    return {"label": look.label, "colour": look.colour, "symbol": symbol, "dash": dash}
