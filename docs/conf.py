"""Sphinx settings."""

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
suppress_warnings = ["config.cache"]

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3

autodoc_typehints = "none"  # docstrings say what is accepted, with shapes
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
}
