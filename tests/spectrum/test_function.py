"""Draws of the function, its gradients, and the relevance of the inputs that they give."""

from itertools import combinations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.feature_selection import SelectFromModel

from skvbgp.spectrum._block_model import SharedRows
from skvbgp.spectrum._features import feature_slopes, features
from skvbgp.spectrum._neighbours import Neighbours
from skvbgp.spectrum._paths import Path, _evaluate, count_draws
from skvbgp.spectrum._posterior import Mixture
from skvbgp.spectrum._rows import Rows
from tests.derivatives import check_mean_gradient, numerical_gradient
from tests.fits import FitOnce
from tests.functions import (
    check_draws,
    check_gradients_of_draws,
    check_importances,
    check_same_functions,
)
from tests.oracles import spectrum as oracle
from tests.spectrum.cases import HYPER, D, M, condition, draw, make_data, small

#: What a row is predicted from: some neighbours, its block, all rows, and the global function, too.
LOCAL = [
    {"n_neighbors": 9},
    {"n_neighbors": None},
    {"n_neighbors": 100, "posterior": "factorised"},
    {"n_neighbors": 30, "gamma": 0.4},
]
EVERY = [*LOCAL, {"gamma": 1.0}]

local = pytest.mark.parametrize("options", LOCAL, ids=repr)
every = pytest.mark.parametrize("options", EVERY, ids=repr)
fit_once = FitOnce()


# -- formulas ------------------------------------------------------------------------------------


def test_slopes_of_the_features(rows, R):
    X, _ = rows
    found = feature_slopes(X, R).reshape(*X.shape, -1)
    for x, slopes in zip(X, found, strict=True):
        for j in range(2 * M):
            numeric = numerical_gradient(lambda x, j=j: oracle.phi(x, R)[j], x)
            assert_allclose(slopes[:, j], numeric, atol=1e-9)


@pytest.mark.parametrize("k", [1, 4, 9])  # fewer and more rows than features
def test_draws_given_neighbours_are_the_literal_correction(rng, rows, R, k):
    (X, y), X_new = rows, rng.standard_normal((5, D))
    near = np.array([oracle.nearest(x, X, k) for x in X_new])
    s, noise = rng.standard_normal((2 * M, 3)), rng.standard_normal((12, 3))
    given = Neighbours.of(Rows(X, y), near)
    for design in (features, feature_slopes):
        Phi = design(X_new, R)
        mean, error = draw(given, Phi, R, s, noise[given.places])
        n = len(Phi) // len(near)
        for i, phi in enumerate(Phi):
            index = near[i // n]
            part = oracle.errors_of_draws(phi, X[index], R, s, noise[index], 1.3, 0.2)
            assert_allclose(error[i], part, rtol=1e-8, atol=1e-10)
        assert_allclose(mean, condition(given, Phi, R, full=False)[0])


@pytest.mark.parametrize("n", [4, 12])
def test_draws_given_all_rows_are_those_of_a_block(rng, rows, R, n):
    known, Phi = Rows(*rows).take(slice(n)), features(rng.standard_normal((5, D)), R)
    s, noise = rng.standard_normal((2 * M, 3)), rng.standard_normal((n, 3))
    near = Neighbours.of(known, np.tile(np.arange(n), (5, 1)))
    found, expected = (draw(local, Phi, R, s, noise) for local in (near, SharedRows(known)))
    for one, other in zip(found, expected, strict=True):
        assert_allclose(one, other, rtol=1e-8, atol=1e-10)


def test_gamma_shares_between_the_global_function_and_what_rows_say(rng, rows, R):
    """Means by gamma, and errors so that variances are as `moments` has them."""
    local, X, own = SharedRows(Rows(*rows)), rng.standard_normal((5, D)), np.arange(3)
    s, weights, noise = (rng.standard_normal(n) for n in ((2 * M,), (2 * M, 3), (12, 3)))
    said = []
    for gamma in (0.0, 0.6):
        mixture, paths = Mixture([(R, s)], gamma, HYPER), [Path(own, R, s, weights)]
        (values,) = _evaluate(mixture, features, paths, X, local, noise)
        ((mean,), _) = mixture.moments(X, local, full=False)
        said.append((mean, values - mean[:, None]))
    (mean, error), (shared, scaled) = said
    assert_allclose(shared, 0.6 * (features(X, R) @ s) + 0.4 * mean)
    assert_allclose(scaled, 0.8 * error)  # 0.8^2 is 1 - 0.6^2


# -- gradients -----------------------------------------------------------------------------------


@every
@pytest.mark.every_nth("options", 4)
def test_mean_gradient_is_that_of_predict(options):
    """In the user's units, row by row."""
    X, y = make_data()
    model = fit_once(small(**options), X, 10.0 * y)
    check_mean_gradient(model, X[:4] + 0.05, atol=1e-8)


@local
@pytest.mark.every_nth("options", 2)
def test_gradient_is_the_limit_of_differences(options):
    """Of the joint distribution of two places that have the same neighbours."""
    X, y = make_data()
    model = fit_once(small(**options), X, 10.0 * y)
    x, h = X[7] + 0.05, 1e-4
    mean, std = model.predict_gradient(x[None])
    for j in range(D):
        step = h * (np.arange(D) == j)
        ends, cov = model.predict([x + step, x - step], return_cov=True, include_noise=False)
        difference = np.array([0.5, -0.5]) / h
        assert_allclose(mean[0, j], ends @ difference, rtol=1e-5, atol=1e-5)
        assert_allclose(std[0, j], np.sqrt(difference @ cov @ difference), rtol=1e-3)


# -- draws ---------------------------------------------------------------------------------------


@local
@pytest.mark.every_nth("options", 4)
def test_draws_have_the_moments_of_predict(options, rng):
    """Near the rows and far away; weights and y_var count as in predictions."""
    X, y = make_data()
    weight, y_var = rng.choice([0.5, 3.0], 60), rng.choice([0.0, 50.0], 60)
    model = small(**options, n_samples=10).fit(X, 10.0 * y, weight, y_var)
    labels = model._state.rows.lookup(model._state.coordinates.scaled(X))
    places = np.vstack([X[labels == labels[0]][:4], [[9.0, 9.0]]])
    check_draws(model, places, 1500, jointly=options["n_neighbors"] is not None)
    check_draws(model, places[:4], 1500)


@pytest.mark.parametrize("n", [2, 10, 100, 10_000])
@pytest.mark.parametrize("spread", [0.0, 0.03, 0.3, 1.0])
def test_functions_share_no_fewer_draws_of_alpha_than_their_average_allows(rng, n, spread):
    """Its variance, over all choices of so many draws, is 1.25 times that of independent ones."""
    means, variances = spread * rng.standard_normal(7), rng.uniform(0.5, 1.5, 7)
    total = means.var() + variances.mean()
    n_draws = count_draws(n, 7, means.var() / total)

    def variance(k):
        chosen = np.array(list(combinations(range(7), k)))
        between = (means[chosen].mean(axis=1) - means.mean()) ** 2
        return np.mean(between + variances[chosen].mean(axis=1) / n)

    assert 1 <= n_draws <= min(n, 7)
    assert variance(n_draws) <= 1.25 * total / n
    assert n_draws == 1 or variance(n_draws - 1) > 1.25 * total / n
    assert count_draws(n, 1, 0.0) == 1


def test_the_share_between_draws_of_alpha_is_that_of_rows_left_out():
    X, y = make_data()
    posterior = fit_once(small(n_neighbors=9, gamma=0.4), X, y)._posterior()
    known, hyper = posterior._state.rows.all_rows, posterior._mixture.hyper
    shares = []
    for i, x in enumerate(known.X):
        others = np.delete(np.arange(len(known)), i)
        near = others[oracle.nearest(x, known.X[others], 9)]
        given = known.X[near], known.y[near]
        noise = hyper.signal_variance, hyper.local_noise_variance
        each = [
            oracle.test_conditional(x, *given, R, s, 0.4, *noise)
            for R, s in posterior._mixture.draws
        ]
        mean, variance = np.array(each).T
        shares.append(mean.var() / (mean.var() + variance.mean()))
    rows = posterior._state.rows
    assert_allclose(posterior._measure_between(rows), np.mean(shares), rtol=1e-8)


def test_functions_come_from_any_draw_of_alpha():
    """From as few as will do, which are others for another random_state."""
    X, y = make_data()
    posterior = fit_once(small(n_neighbors=9), X, y)._posterior()
    draws = [R for R, _ in posterior._mixture.draws]
    few = count_draws(5, len(draws), posterior._measure_between(posterior._state.rows))
    assert few < len(draws)
    owners = []
    for seed in range(25):
        paths = posterior.draw_functions(5, np.random.RandomState(seed)).paths
        assert len(paths) == few
        assert sum(len(path.members) for path in paths) == 5
        owners += [i for path in paths for i, R in enumerate(draws) if R is path.R]
    counts = np.bincount(owners, minlength=len(draws))
    share = few / len(draws)
    assert_allclose(counts, 25 * share, atol=5.0 * np.sqrt(25 * share * (1.0 - share)))
    assert len(posterior.draw_functions(10_000, np.random.RandomState(0)).paths) == len(draws)


@pytest.mark.thorough
def test_draws_of_the_global_function():
    """Each has frequencies and weights of its own; predictions average over other draws."""
    X, y = make_data()
    model = small(gamma=1.0, n_samples=4000).fit(X, 10.0 * y)
    check_draws(model, np.vstack([X[:2] + 0.1, [[9.0, 9.0]]]), 1000)


def test_functions_jump_less_between_neighbourhoods_than_between_blocks():
    """Two blocks are as good as independent, while near places have most neighbours in common."""
    X, y = make_data(200, d=1)
    model, largest = small(n_blocks=8).fit(X, y), []
    grid = np.linspace(X.min(), X.max(), 1001)[:, None]
    for n_neighbors in (40, None):
        model.set_params(n_neighbors=n_neighbors)
        mean, std = model.predict(grid, return_std=True, include_noise=False)
        errors = (model.sample_function(100)(grid) - mean[:, None]) / std[:, None]
        largest.append(np.sqrt(np.mean(np.diff(errors, axis=0) ** 2, axis=1)).max())
    assert largest[0] < 0.5 < 1.0 < largest[1] < 2.0


@every
@pytest.mark.every_nth("options", 3)
def test_a_function_is_the_same_wherever_it_is_evaluated(options):
    X, y = make_data()
    model = fit_once(small(**options), X, y)
    check_same_functions(model, X[:6] + 0.3, y[:6])


@every
@pytest.mark.every_nth("options", 4)
def test_gradient_of_functions(options):
    X, y = make_data()
    model = fit_once(small(**options), X, y)
    check_gradients_of_draws(model, X[:3] + 0.05)


def test_functions_after_blocks_have_been_divided():
    """The noise of a row is its own, wherever it is kept."""
    X, y = make_data()
    model = small(n_neighbors=None, learn_hyperparameters=False).fit(X, y)
    model.partial_fit(0.1 * X[:40], y[:40])
    rows = model._state.rows
    assert rows.divided and len(rows.all_rows) == rows.starts[-1] == 100
    for k in range(rows.n_blocks):
        own = rows.all_rows.X[rows.starts[k] : rows.starts[k + 1]]
        assert_array_equal(own, rows.block(k).X)
    labels = rows.lookup(model._state.coordinates.scaled(X))
    check_draws(model, X[labels == labels[0]][:3], 1000)


# -- relevance -----------------------------------------------------------------------------------


@every
@pytest.mark.every_nth("options", 2)
def test_importance_is_the_share_in_the_variation(options):
    X, y = make_data()
    weight = np.where(np.arange(60) < 20, 3.0, 1.0)
    model = fit_once(small(**options), X, y, weight)
    check_importances(model, X, weight)
    posterior = model._posterior()
    assert np.all(model.feature_importances_std_ > 0.0)
    posterior._mixture.draws[:] = posterior._mixture.draws[:1]  # no other is believed in
    assert_allclose(posterior.relevance.std, 0.0, atol=1e-12)


def test_importance_of_many_rows_is_that_of_some_everywhere(monkeypatch):
    monkeypatch.setattr("skvbgp.base._function._RELEVANCE_ROWS", 7)
    model = small().fit(*make_data())
    some = model._state.rows.all_rows.X[::9]  # of 60 rows, block by block
    check_importances(model, model._state.coordinates.original(some))


def test_inputs_are_selected_by_importance():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 3)) * [1.0, 10.0, 0.1]
    y = np.sin(X[:, 0]) + 20.0 * X[:, 2] + 0.1 * rng.standard_normal(120)
    model = small(n_neighbors=30, max_iter=30)
    chosen = SelectFromModel(model, threshold=0.05).fit(X, y).get_support()
    assert_array_equal(chosen, [True, False, True])


def test_importance_of_what_does_not_vary():
    X, _ = make_data(20)
    assert_array_equal(small().fit(X, np.full(20, 3.0)).feature_importances_, np.zeros(2))
