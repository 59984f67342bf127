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


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["VBDTC", "VBPIC"])
def test_stochastic_against_exact_training(monkeypatch, name):
    fig1 = import_module("paper000_fig1")
    for constant, value in {"N_ROWS": 40, "N_BLOCKS": 2, "N_INDUCING": 4, "N_TEST": 10}.items():
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
    assert bounds["RMSE, exact"] < 0.5 * y.std() and bounds["NLPD, exact"] < 0.6


@pytest.fixture(scope="module")
def rows_of_a_wave():
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, (160, 1)) * [[10.0]]
    y = 5.0 + 2.0 * np.sin(X[:, 0] / 5.0) + 0.1 * rng.normal(size=160)
    return X[:120], y[:120], X[120:], y[120:]


@pytest.mark.thorough
def test_learning_curves_of_three_noise_structures(monkeypatch, rows_of_a_wave):
    fig2 = import_module("paper000_fig2_fig3")
    for constant, value in {"N_INDUCING": 8, "BLOCK_ROWS": 30, "BATCH_SIZE": 60}.items():
        monkeypatch.setattr(fig2, constant, value)
    rows, one_draw = fig2.learning_curves(*rows_of_a_wave, [1, 2], seed=0)
    assert [(row["model"], row["passes"]) for row in rows] == [
        (model, passes) for model in ("VBDTC+", "VBFITC+", "VBPIC+") for passes in (1, 2)
    ]
    assert all(row["seconds"] > 0.0 for row in rows)
    assert rows[-1]["RMSE"] < 0.2  # noise is 0.1
    assert rows[-1]["NLPD"] < 0.0
    assert one_draw == pytest.approx(rows[-1]["RMSE"], abs=0.05)
    assert one_draw != rows[-1]["RMSE"]


@pytest.mark.thorough
def test_other_models_of_table_1(monkeypatch, rows_of_a_wave):
    fig2 = import_module("paper000_fig2_fig3")
    monkeypatch.setattr(fig2, "N_INDUCING", 16)
    monkeypatch.setattr(fig2, "BATCH_SIZE", 30)
    errors = fig2.others(*rows_of_a_wave, 60, seed=0)
    assert set(errors) == {"SVIGP", "VSSGPR", "rBCM"}
    assert max(errors["SVIGP"], errors["rBCM"]) < 0.15  # noise is 0.1
    assert errors["VSSGPR"] < 0.8 * np.std(rows_of_a_wave[3])


def test_robust_committee_weighs_experts_by_what_they_have_learned(rows_of_a_wave):
    """Deisenroth and Ng (2015), eqs. 20 to 22, written out for each row; far off, the prior."""
    X, y, X_test, _ = rows_of_a_wave
    model = import_module("rbcm").RobustCommittee(expert_rows=60, max_iter=5).fit(X, y)
    assert len(model.experts_) == 2
    mean, std = model.predict(X_test)
    scaled = (X_test - X.mean(axis=0)) / X.std(axis=0)
    prior, noise = model.kernel_.k1.k1.constant_value, model.kernel_.k2.noise_level
    for i in (0, 7):
        beta, precision, shift = 0.0, 0.0, 0.0
        for expert in model.experts_:
            k = model.kernel_.k1(scaled[i : i + 1], expert.X_train_)[0]
            C = model.kernel_(expert.X_train_)
            variance = prior - k @ np.linalg.solve(C, k)
            b = 0.5 * (np.log(prior) - np.log(variance))
            beta, precision = beta + b, precision + b / variance
            shift += b / variance * (k @ np.linalg.solve(C, expert.y_train_))
        precision += (1.0 - beta) / prior
        assert_allclose(mean[i], y.mean() + y.std() * shift / precision)
        assert_allclose(std[i], y.std() * np.sqrt(1.0 / precision + noise))
    mean, std = model.predict([[1e4]])
    assert_allclose([mean[0], std[0]], [y.mean(), y.std() * np.sqrt(prior + noise)])


def test_the_grammar_to_level_3_holds_the_true_kernels():
    fig2 = import_module("paper003_fig2")
    kernels = dict(fig2.kernel_set_144())
    assert len(kernels) == 144
    assert set(fig2.TRUE_KERNELS) <= set(fig2.K12) <= set(kernels)
    line = kernels["LIN"](np.array([[0.0], [1.0], [2.0]]))
    assert_allclose(line[0], 0.0)  # it passes through the origin


def test_kernels_are_drawn_that_were_first_or_second():
    from matplotlib.figure import Figure

    beliefs = np.array([[0.5, 0.3, 0.2, 0.0, 0.0], [0.5, 0.1, 0.3, 0.1, 0.0]])
    axis = Figure().add_subplot()
    drawn = import_module("paper003_fig2").draw(axis, [0.1, 1.0], beliefs, list("abcde"), 4)
    assert drawn == [0, 1, 2, 4]
    assert [line.get_label() for line in axis.lines] == list("abce")
    assert axis.lines[-1].get_linewidth() > axis.lines[0].get_linewidth()


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


@pytest.mark.thorough
def test_runs_and_times_of_kernel_selection(monkeypatch, rows_of_a_wave):
    fig4 = import_module("paper003_fig4a_fig5")
    constants = {"N_INDUCING": 12, "BATCH_SIZE": 20, "PASSES": 8, "TEST_ROWS": 30, "N_JOBS": 1}
    for constant, value in constants.items():
        monkeypatch.setattr(fig4, constant, value)
    monkeypatch.setattr(fig4, "BATCH_SIZES", (30, 50))
    kernels = [("SE", kernels_of.RBF()), ("LIN", kernels_of.Linear())]
    score = fig4.scores_of_run(kernels, rows_of_a_wave, 60, seed=0)
    assert score["first"] == "SE"
    assert score["VBKS-s"] < 0.3
    assert score["VBKS"] == pytest.approx(score["VBKS-s"], abs=0.01)  # no belief in LIN
    X, y, _, _ = rows_of_a_wave
    rows = fig4.seconds_by_steps(X, y, 0, [1, 2])
    assert [(row["rows"], row["steps"]) for row in rows] == [(30, 4), (30, 8), (50, 3), (50, 6)]
    assert all(row["seconds"] > 0.0 for row in rows)


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
