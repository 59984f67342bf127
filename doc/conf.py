"""Sphinx configuration: `sphinx-build -W doc doc/_build/html`.

Without a network add ``-t offline``: links to other projects then stay plain text. The code in the
pages is run by `sphinx-build -b doctest doc doc/_build/doctest`.
"""

import os
import sys
from pathlib import Path

# Before scikit-learn or the gallery loads matplotlib: no window.
os.environ["MPLBACKEND"] = "Agg"

sys.path.insert(0, str(Path(__file__).parent))

from _capabilities import make_tables
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.directives.patches import Figure
from sphinx.util.docutils import SphinxDirective
from sphinx_gallery.sorting import ExplicitOrder

import skvbgp

project = "skvbgp"
author = "skvbgp developers"
copyright = "skvbgp developers"
version = release = skvbgp.__version__

extensions = [
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.doctest",
    "sphinx.ext.intersphinx",
    "sphinx.ext.mathjax",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build"]

autosummary_generate = True
toc_object_entries_show_parents = "hide"
numpydoc_class_members_toctree = False
numpydoc_show_class_members = False

offline = tags.has("offline")  # noqa: F821 (`tags` is Sphinx's own)
intersphinx_mapping = {
    "numpy": ("https://numpy.org/doc/stable", None),
    "scipy": ("https://docs.scipy.org/doc/scipy", None),
    "sklearn": ("https://scikit-learn.org/stable", None),
}
if offline:
    intersphinx_mapping = {}

doctest_test_doctest_blocks = ""  # the examples of docstrings are pytest's

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "parallel": 2,  # examples at a time
    "within_subsection_order": ExplicitOrder(
        [
            "plot_quickstart.py",
            "plot_drop_in.py",
            "plot_classes.py",
            "plot_kernel_selection.py",
            "plot_sensors.py",
            "plot_bayesian_optimisation.py",
            "plot_tuning.py",
            "plot_forgetting.py",
            "plot_stream.py",
            "plot_out_of_core.py",
            "plot_relevance.py",
            "plot_missing_inputs.py",
            "plot_hybrid_digits.py",
            "plot_conformal.py",
            "plot_small_data.py",
            "plot_noise_structures.py",
            "plot_gamma.py",
            "plot_decoupled.py",
            "plot_grid_search.py",
        ]
    ),
}

templates_path = ["_templates"]
html_theme = "pydata_sphinx_theme"
html_title = f"skvbgp {release}"
html_static_path = ["_static"]
html_css_files = ["skvbgp.css"]
# Pages without a section have no use for a side bar.
html_sidebars = {
    "architecture": [],
    "notation": [],
    "quick_start": [],
    "references": [],
    "reproduced_figures": [],
    "versions": [],
    "which_estimator": [],
}
if tags.has("site"):  # noqa: F821
    html_theme_options = {"navbar_start": ["navbar-logo", "versions-link"]}


def _plain_text(app, env, node, contnode):
    """Leave labels that scikit-learn's inherited docstrings refer to unlinked."""
    return contnode if node.get("reftarget") in {"accuracy_score", "r2_score"} else None


class Capabilities(SphinxDirective):
    """What each estimator can do, from the estimators themselves."""

    def run(self):
        container = nodes.container(classes=["capabilities"])
        self.state.nested_parse(StringList(make_tables(), "capabilities"), 0, container)
        return [container]


class GalleryPicture(Figure):
    """The first figure of an example; its thumbnail where the gallery is not run."""

    def run(self):
        env, name = self.state.document.settings.env, self.arguments[0]
        folder = "auto_examples/images"
        env.note_reread()  # the next build may have the other one
        picture = f"{folder}/sphx_glr_{name}_001.png"
        if not Path(env.srcdir, picture).exists():
            picture = f"{folder}/thumb/sphx_glr_{name}_thumb.png"
        self.arguments[0] = f"/{picture}"
        return super().run()


def setup(app):
    app.add_directive("gallery-picture", GalleryPicture)
    app.add_directive("capabilities", Capabilities)
    if offline:
        app.connect("missing-reference", _plain_text)
