"""Sphinx settings."""

import re

import sparsetoken

project = "sparsetoken"
author = "The sparsetoken developers"
project_copyright = f"2026, {author}"
release = sparsetoken.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "myst_parser",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build"]
suppress_warnings = [
    "config.cache",
    "ref.python",  # auc, query and their like are fields of several results
    "sphinx_gallery.space_in_filename",  # a clone may stand in any folder
]

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3

autodoc_typehints = "signature"  # docstrings add what is accepted, with shapes
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
napoleon_google_docstring = False
napoleon_use_ivar = True  # attributes in docstrings do not repeat the documented properties

html_theme = "furo"
html_title = "sparsetoken"

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r".*\.py",
    "abort_on_example_error": True,
    "show_signature": False,
    "write_computation_times": False,
}


def _bars_are_absolute_values(app, what, name, obj, options, lines):
    lines[:] = [re.sub(r"\|(\S+?)\|", r"\|\1\|", line) for line in lines]


def _skip_what_others_wrote(app, what, name, obj, skip, options):
    """Leave out what a class inherits from scikit-learn or pydantic."""
    written = getattr(obj, "fget", None) or getattr(obj, "func", obj)
    module = getattr(written, "__module__", None)
    return True if module and not module.startswith("sparsetoken") else None


def setup(app):
    app.connect("autodoc-process-docstring", _bars_are_absolute_values)
    app.connect("autodoc-skip-member", _skip_what_others_wrote)
