"""Draws of the function, its gradients, and the relevance of the inputs that they give."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.feature_selection import RFE, SelectFromModel

from skvbgp import VBDTCRegressor
from skvbgp._core.draws import quasi_normal
from skvbgp.sgpr import _places
from skvbgp.sgpr._bound import Prior
from skvbgp.sgpr._places import Places
from skvbgp.sgpr._posterior import SparseLatent
from skvbgp.sgpr._quadrature import ClosedForm, CommonDraws
from skvbgp.sgpr._slopes import se_slopes, square_slopes
from tests.derivatives import check_mean_gradient, numerical_gradient
from tests.functions import (
    check_draws,
    check_gradients_of_draws,
    check_importances,
    check_irrelevant,
    check_same_functions,
    make_irrelevant,
)
from tests.oracles import sgpr as oracles
from tests.sgpr.cases import REGRESSORS, SOLVERS, make_data, small
from tests.sgpr.problems import KINDS, mixture_of, random_q, small_problem

pytestmark = pytest.mark.usefixtures("quick_block_start")

#: How f is known: from all rows, or through inducing inputs by a rule for the expectations.
POSTERIORS = [("exact", "auto"), ("collapsed", "closed_form"), ("stochastic", "sampled")]

every = pytest.mark.parametrize("cls", REGRESSORS)
posteriors = pytest.mark.parametrize(("solver", "psi"), POSTERIORS)


def sparse(problem, rule, draws=None):
    return SparseLatent(problem.parameters, Prior(problem.parameters), random_q(4), rule, draws)


# -- gradients -----------------------------------------------------------------------------------


def literal_squares(X, Z, V, nodes):
    """k'(Lambda x, Z) V k'(Lambda x, Z)' of each row and input, averaged over weighted nodes."""
    result = np.zeros(X.shape)
    for Lambda, weight in nodes:
        for i, x in enumerate(X):
            k = oracles.k_xz(x[None], Z, Lambda, 1.0)[0]
            for j in range(len(x)):
                slope = Lambda[j] * (Z[:, j] - Lambda[j] * x[j]) * k
                result[i, j] += weight * slope @ V @ slope
    return result


def test_square_slopes_twin(problem, Xs):
    """By a Gauss-Hermite rule that is exact to far more digits than are compared."""
    p, Z = problem.parameters, problem.Z
    V = np.cov(np.random.default_rng(3).normal(size=(4, 9))) - np.eye(4)
    points, weights = np.polynomial.hermite_e.hermegauss(40)
    weights = weights / weights.sum()
    nodes = [
        (p.nu + np.sqrt(p.xi) * np.array([a, b]), v * w)
        for a, v in zip(points, weights, strict=True)
        for b, w in zip(points, weights, strict=True)
    ]
    Xs[0, 0] = 0.0
    found = square_slopes(Xs, p.nu, p.xi, Z, V)
    assert_allclose(found, literal_squares(Xs, Z, V, nodes), rtol=1e-9, atol=1e-12)


def test_slopes_of_the_kernel(Xs):
    Z = np.random.default_rng(3).normal(size=(4, 2))
    found = np.stack(list(se_slopes(Xs, Z)), axis=-1)  # (n, m, d)
    for i, x in enumerate(Xs):
        for a in range(4):
            numeric = numerical_gradient(lambda x, a=a: oracles.se(x[None], Z)[0, a], x)
            assert_allclose(found[i, a], numeric, atol=1e-9)


def differentiate(latent, x, j, step=1e-3):
    """Mean and variance of a derivative, as the limit of differences of a joint distribution."""
    ends = np.array([x, x])
    ends[:, j] += [step, -step]
    mean, covariance = latent.joint(ends)
    difference = np.array([0.5, -0.5]) / step
    return mean @ difference, difference @ covariance @ difference


def assert_limits(latent, Xs):
    mean, variance = latent.slope_moments(Xs)
    for i, x in enumerate(Xs):
        expected = np.array([differentiate(latent, x, j) for j in range(2)]).T
        assert_allclose(mean[i], expected[0], rtol=1e-4, atol=1e-6)
        assert_allclose(variance[i], expected[1], rtol=1e-3)


def test_gradient_over_draws_is_the_limit_of_differences(problem, Xs, rng):
    draws = rng.normal(size=(6, 2))
    assert_limits(sparse(problem, CommonDraws(draws), draws), Xs)


@pytest.mark.parametrize("kind", KINDS)
def test_gradient_of_an_exact_posterior_is_the_limit_of_differences(kind, Xs):
    assert_limits(mixture_of(small_problem(kind)), Xs)


def test_gradient_in_closed_form_is_that_over_many_draws(problem, Xs):
    draws = quasi_normal(1_000, 2, seed=0)
    mean, variance = sparse(problem, ClosedForm(), draws[:8]).slope_moments(Xs)
    expected = sparse(problem, CommonDraws(draws)).slope_moments(Xs)
    assert np.all(np.abs(mean - expected[0]) < 0.01 * np.sqrt(variance))
    assert_allclose(variance, expected[1], rtol=0.01)


@every
@posteriors
@pytest.mark.in_turn("cls")
@pytest.mark.every_nth("solver", 2)
def test_mean_gradient_is_that_of_predict(cls, solver, psi):
    """In the user's units, row by row."""
    X, y = make_data()
    model = small(cls, solver, psi=psi).fit(X, 10.0 * y)
    places = X[:4] + 0.05
    check_mean_gradient(model, places, atol=1e-10)


def test_gradient_is_as_uncertain_as_it_is_wrong():
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, (600, 1))
    y = 5.0 * np.sin(X[:, 0]) + 0.5 * rng.standard_normal(600)
    model = VBDTCRegressor(20, max_iter=30, random_state=0).fit(X, y)
    places = np.linspace(-2.8, 2.8, 60)[:, None]
    mean, std = model.predict_gradient(places)
    assert 0.4 < np.sqrt(np.mean(((5.0 * np.cos(places) - mean) / std) ** 2)) < 1.6
    assert np.max(np.abs(5.0 * np.cos(places) - mean)) < 1.0


# -- draws ---------------------------------------------------------------------------------------


@every
@posteriors
@pytest.mark.in_turn("cls")
@pytest.mark.every_nth("solver", 2)
@pytest.mark.every_nth("cls", 3)
def test_draws_have_the_moments_of_predict(cls, solver, psi, rng):
    """Near the rows and far away, where the prior is uncertain; y_var counts as in predictions."""
    X, y = make_data(60)
    options = {"psi": psi, "n_inducing": 500 if solver == "exact" else 20, "max_iter": 4}
    model = small(cls, solver, **options).fit(X, 10.0 * y, y_var=rng.choice([0.0, 50.0], 60))
    places = np.vstack([X[:3] + 0.1, X[:2] + 3.0, [[9.0, 9.0]]])
    # in closed form, joint covariances are averages over eight draws
    check_draws(model, places, 1000, jointly=psi != "closed_form")


@pytest.mark.thorough
@every
@pytest.mark.parametrize("solver", SOLVERS)
def test_draws_of_more_rows_have_the_moments_of_predict(cls, solver):
    X, y = make_data(300)
    m = 500 if solver == "exact" else 150  # moments are averages over draws
    model = small(cls, solver, n_inducing=m, max_iter=10).fit(X, y)
    places = np.vstack([X[:3] + 0.1, X[:2] + 3.0])
    check_draws(model, places, 1000)


@posteriors
@pytest.mark.every_nth("solver", 2)
def test_draws_of_a_wide_belief_in_the_hyperparameters(solver, psi):
    """Functions differ in Lambda and sigma_f as much as predictions are averaged over."""
    X, y = make_data(30)
    wide = {"hyperparameter_variance": 0.3, "length_scale": 1.0, "signal_std": 3.0}
    options = {"psi": psi, "learn_hyperparameters": False, **wide}
    model = small(VBDTCRegressor, solver, **options).fit(X, y)
    places = np.vstack([X[:3] + 0.1, [[0.5, 1.0]]])
    check_draws(model, places, 2000, jointly=False)


@posteriors
@pytest.mark.every_nth("solver", 2)
def test_a_function_is_the_same_wherever_it_is_evaluated(solver, psi):
    X, y = make_data()
    model = small(VBDTCRegressor, solver, psi=psi).fit(X, y)
    check_same_functions(model, X[:6] + 0.3, y[:6])


@posteriors
@pytest.mark.every_nth("solver", 2)
def test_gradient_of_functions(solver, psi):
    X, y = make_data()
    model = small(VBDTCRegressor, solver, psi=psi).fit(X, 10.0 * y)
    check_gradients_of_draws(model, X[:3] + 0.2)


def test_functions_of_several_outputs():
    X, y = make_data()
    Y = np.column_stack([y, -2.0 * y, y])
    Y[:5, 1] = np.nan
    model = small(VBDTCRegressor).fit(X, Y)
    functions = model.sample_function(4)
    assert functions(X[:6]).shape == (6, 3, 4)
    assert functions.gradient(X[:6]).shape == (6, 3, 2, 4)
    mean, std = model.predict_gradient(X[:6])
    assert mean.shape == std.shape == (6, 3, 2)
    alone = small(VBDTCRegressor).fit(X, Y[:, 0])
    assert_allclose(mean[:, 0], alone.predict_gradient(X[:6])[0], rtol=1e-10)
    each = [small(VBDTCRegressor).fit(X[5:], Y[5:, 1]), alone, alone]
    expected = np.mean([one.feature_importances_ for one in each], axis=0)
    assert_allclose(model.feature_importances_, expected, rtol=1e-8)


@pytest.mark.parametrize("n_outputs", [1, 2])
@pytest.mark.every_nth("n_outputs", 2)
def test_functions_take_and_refuse_what_predict_does(n_outputs):
    pd = pytest.importorskip("pandas")
    X, y = make_data()
    frame = pd.DataFrame(X, columns=["a", "b"])
    model = small(VBDTCRegressor).fit(frame, np.column_stack([y, -y])[:, :n_outputs])
    functions = pickle.loads(pickle.dumps(model.sample_function()))
    for call in (functions, functions.gradient, model.predict_gradient):
        with pytest.raises(ValueError, match="feature names"):
            call(frame[["b", "a"]])
        with pytest.raises(ValueError, match="NaN"):
            call(frame.where(frame != frame.iloc[0]))
        assert len(call(frame)[0]) > 0
    for bad in (0, 1.5, "many"):
        with pytest.raises(ValueError, match="n must be"):
            model.sample_function(bad)
    assert not hasattr(functions.reader, "_state") and hasattr(model, "_state")


# -- relevance -----------------------------------------------------------------------------------


@every
@posteriors
@pytest.mark.in_turn("cls")
@pytest.mark.every_nth("solver", 2)
@pytest.mark.thorough
def test_importance_is_the_share_in_the_variation(cls, solver, psi):
    X, y = make_irrelevant()
    options = {"n_inducing": 500 if solver == "exact" else 20, "learning_rate": 0.1}
    model = small(cls, solver, psi=psi, max_iter=15, **options).fit(X, y)
    check_irrelevant(model)
    assert np.all(model.feature_importances_std_ < 0.02)


def test_importance_of_rows_with_weights():
    X, y = make_irrelevant(60)
    weight = np.where(np.arange(60) < 20, 3.0, 1.0)
    model = small(VBDTCRegressor, psi="sampled").fit(X, y, sample_weight=weight)
    check_importances(model, X, weight)
    copies = small(VBDTCRegressor, psi="sampled").fit(
        np.repeat(X, weight.astype(int), axis=0), np.repeat(y, weight.astype(int))
    )
    assert_allclose(copies.feature_importances_, model.feature_importances_, rtol=1e-8)


@posteriors
@pytest.mark.every_nth("solver", 2)
def test_importance_is_as_uncertain_as_the_hyperparameters(solver, psi):
    X, y = make_irrelevant(60)
    model = small(VBDTCRegressor, solver, psi=psi).fit(X, y)
    p = model._state.parameters
    latent = model._posterior()._latent
    _, each = latent.slopes(model._state.model.coordinates.scaled(X))
    shares = np.mean(each**2, axis=1)  # of columns of unit variance
    shares /= shares.sum(axis=1, keepdims=True)
    expected = np.sqrt(np.mean((shares - model.feature_importances_) ** 2, axis=0))
    assert_allclose(model.feature_importances_std_, expected, rtol=1e-6)
    assert len(each) == 8
    model._state = replace(model._state, parameters=replace(p, xi=1e-12 * p.xi, beta=1e-12))
    if solver != "exact":
        assert_allclose(model.feature_importances_std_, 0.0, atol=1e-5)


@pytest.mark.thorough
def test_inputs_are_selected_by_importance():
    X, y = make_irrelevant(60)
    model = small(VBDTCRegressor, "exact", max_iter=20)
    chosen = SelectFromModel(model, threshold=0.01).fit(X, y).get_support()
    assert_array_equal(chosen, [True, False, True])
    selected = RFE(model, n_features_to_select=1).fit(X, y)
    assert_array_equal(selected.support_, [False, False, True])


def test_importance_without_a_fit_or_without_variation():
    assert not hasattr(small(VBDTCRegressor), "feature_importances_")
    X, _ = make_data(20)
    model = small(VBDTCRegressor).fit(X, np.full(20, 3.0))
    assert_array_equal(model.feature_importances_, np.zeros(2))


# -- places --------------------------------------------------------------------------------------


def test_places_are_among_all_rows_of_a_stream_alike(monkeypatch, rng):
    """As many of each chunk as it has rows; sums of their weights are those of the rows."""
    monkeypatch.setattr(_places, "_PLACES", 100)
    X, weight = rng.standard_normal((1200, 2)), rng.integers(1, 3, 1200).astype(float)
    places = Places.of(X[:40], weight[:40])
    assert_array_equal(places.X, X[:40])
    for start, stop in ((40, 90), (90, 600), (600, 601), (601, 1200)):
        places = places.joined(Places.of(X[start:stop], weight[start:stop]))
    assert len(places.X) == 100
    assert_allclose(places.weight.sum(), weight.sum())
    index = np.array([np.flatnonzero(np.all(X == x, axis=1)).item() for x in places.X])
    assert_allclose(np.sum(index < 600), 50, atol=3)
    heavy = weight[index] == 2.0
    assert_allclose(heavy.mean(), 2.0 / 3.0, atol=0.15)


def test_a_stream_knows_the_places_of_all_its_rows():
    X, y = make_data(120)
    stream = small(VBDTCRegressor, "stochastic")
    for rows in np.split(np.arange(120), 3):
        stream.partial_fit(X[rows], y[rows])
    assert_array_equal(stream._state.places.X, X)
    assert np.all(stream.feature_importances_ > 0.0)
