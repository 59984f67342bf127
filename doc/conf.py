"""Sphinx configuration: `sphinx-build -W doc doc/_build/html`."""

import os

# Before scikit-learn or the gallery loads matplotlib: no window.
os.environ["MPLBACKEND"] = "Agg"

import skvbgp

project = "skvbgp"
author = "skvbgp developers"
copyright = "skvbgp developers"
version = release = skvbgp.__version__

extensions = [
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.mathjax",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build"]

autosummary_generate = True
numpydoc_class_members_toctree = False
numpydoc_show_class_members = False

intersphinx_mapping = {
    "numpy": ("https://numpy.org/doc/stable", None),
    "scipy": ("https://docs.scipy.org/doc/scipy", None),
    "sklearn": ("https://scikit-learn.org/stable", None),
}

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
}

html_theme = "pydata_sphinx_theme"
html_title = f"skvbgp {release}"
