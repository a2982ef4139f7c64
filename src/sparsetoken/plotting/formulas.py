"""Formulas between dollar signs in a text that a figure will show."""

__all__ = ["formula_problem"]

# The parser needs half a millisecond for each character.
_MOST_CHARACTERS = 1000


def formula_problem(text: str) -> str | None:
    """Return why the formulas in a text cannot be set; None if they can, or if there are none."""
    if text.count("$") < 2:
        return None
    from matplotlib.cbook import is_math_text
    from matplotlib.mathtext import MathTextParser

    if not is_math_text(text):
        return None
    if len(text) > _MOST_CHARACTERS:
        return f"a text with formulas has at most {_MOST_CHARACTERS} characters"
    try:
        MathTextParser("path").parse(text)
    except ValueError as error:
        return str(error).strip().splitlines()[-1]
    except RecursionError:
        return "formulas are nested too deeply"
    return None
