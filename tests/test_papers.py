"""What the papers' figures compute by themselves, and that they still find what they import."""

import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skvbgp import kernels as kernels_of
from tests.oracles import sgpr as oracles

pytest.importorskip("matplotlib")

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(autouse=True)
def figures_on_the_path(monkeypatch):
    before = set(sys.modules)
    monkeypatch.syspath_prepend(BENCHMARKS)
    monkeypatch.syspath_prepend(BENCHMARKS / "papers")
    yield
    for name in set(sys.modules) - before:  # their names are short: common, figures, run
        if Path(getattr(sys.modules[name], "__file__", None) or ".").is_relative_to(BENCHMARKS):
            del sys.modules[name]


def test_the_command_names_every_figure():
    names = import_module("run").FIGURES
    assert sorted(names) == sorted(p.stem for p in (BENCHMARKS / "papers").glob("paper*.py"))
    for name in names:
        assert callable(import_module(name).run)


def test_tables_and_pictures_are_saved(tmp_path):
    figures = import_module("figures")
    from matplotlib.figure import Figure

    rows = [{"passes": n, "model": model, "RMSE": n / 4} for model in ("a", "b") for n in (1, 2)]
    picture = Figure()
    figures.draw_curves(picture.add_subplot(), rows, "model")
    table = figures.pivoted(rows, "passes", "model", "RMSE")
    figures.Result(picture, {"Title": table}).save(tmp_path, "name")
    assert (tmp_path / "name.png").stat().st_size > 0
    expected = (
        "**Title**\n\n| passes | a | b |\n|---|---|---|\n| 1 | 0.25 | 0.25 |\n| 2 | 0.5 | 0.5 |\n\n"
    )
    assert (tmp_path / "name.md").read_text() == expected


def test_divergence_of_gaussians():
    rng = np.random.default_rng(0)
    moments = []
    for _ in range(2):
        root = rng.normal(size=(4, 4))
        moments += [rng.normal(size=4), root @ root.T + np.eye(4)]
    actual = import_module("paper000_fig1").kl_gaussian(*moments)
    assert_allclose(actual, oracles.kl_gauss(*moments))


@pytest.mark.parametrize("name", ["VBDTC", "VBPIC"])
def test_stochastic_against_exact_training(monkeypatch, name):
    fig1 = import_module("paper000_fig1")
    for constant, value in {"N_ROWS": 40, "N_BLOCKS": 2, "N_INDUCING": 4}.items():
        monkeypatch.setattr(fig1, constant, value)
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (50, 1))
    y = np.sin(2.0 * X[:, 0]) + 0.2 * rng.normal(size=50)
    curve, bounds = fig1.divergences(name, X, y, seed=0, n_passes=30)
    assert curve.shape == (31, 2)
    assert np.all(curve >= 0.0)
    if name == "VBDTC":  # so few passes leave PIC's noise where rounding takes it
        assert np.all(curve[-1] < 0.5 * curve[0])
    assert bounds["stochastic"] <= bounds["exact, from the end"]


def test_simulated_blogs_have_the_inputs_of_blog_feedback(monkeypatch):
    blog = import_module("paper001_fig3_blog")
    for constant, value in {"N_ROWS": 600, "N_SITES": 20}.items():
        monkeypatch.setattr(blog, constant, value)
    X, y, X_test, y_test = blog.simulated_blogs(np.random.default_rng(0))
    X, y = np.concatenate([X, X_test]), np.append(y, y_test)
    assert X.shape == (600, 60)
    assert len(np.unique(X[:, :50], axis=0)) == 20
    total, recent, before, earliest, rise = X[:, 50:55].T
    assert_allclose(rise, recent - before)
    assert np.all(total >= np.maximum(recent + before, earliest))
    assert np.any(recent + before < total)
    assert np.any(earliest < total)
    assert np.all(X[:, 20] <= total)  # the minimum of the site
    assert np.all(X[:, 30] >= total)  # the maximum
    assert np.median(y) < 0.5 * np.mean(y)
    assert np.corrcoef(recent, y)[0, 1] > 0.3


def test_affinity_is_the_overlap_of_two_densities(rng):
    """Of functions at one place, by quadrature, for two draws of hyperparameters of each kernel."""
    a, b = rng.uniform(0.5, 3.0, (2, 2, 1, 1))
    f = np.linspace(-40.0, 40.0, 20_001)

    def root(variance):
        return np.sqrt(np.exp(-0.5 * f**2 / variance) / np.sqrt(2.0 * np.pi * variance))

    expected = np.mean([np.trapezoid(root(s) * root(t), f) for s in a.ravel() for t in b.ravel()])
    assert_allclose(import_module("paper003_fig3_fig4").mean_affinity(a, b), expected, rtol=1e-6)


def test_kernels_are_near_that_make_similar_functions(rng):
    fig3 = import_module("paper003_fig3_fig4")
    kernels = [kernels_of.RBF(1.0), kernels_of.RationalQuadratic(1.0), kernels_of.Linear()]
    features = fig3.embed_kernels(kernels, rng.normal(size=(30, 1)), rng)
    distances = np.linalg.norm(features[:, None] - features, axis=-1)
    assert distances[0, 1] < 0.8 * distances[0, 2]
    assert distances[0, 1] < 0.8 * distances[1, 2]


def test_bayesian_optimisation_finds_the_best_of_many():
    """With a value that is a smooth function of the features, in a fifth of all evaluations."""
    fig3 = import_module("paper003_fig3_fig4")
    features = np.linspace(-3.0, 3.0, 60)[:, None]
    values = np.sin(2.0 * features[:, 0]) - 0.1 * features[:, 0] ** 2
    order = fig3.optimise(features, values, [0, 5, 59], 12)
    assert len(set(order)) == 12
    assert np.argmax(values) in order
    leaders = fig3.best_so_far(values, order)
    assert_allclose(values[leaders], np.maximum.accumulate(values[order]))
