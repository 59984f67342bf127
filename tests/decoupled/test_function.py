"""Draws of the function, its gradients, and the relevance of the inputs that they give."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.feature_selection import SelectFromModel

from skvbgp.decoupled import DecoupledGPRegressor
from skvbgp.decoupled._basis import Basis, GeneralizedSE
from skvbgp.decoupled._inputwise import InputwiseSE
from skvbgp.decoupled._paths import BasisFeatures
from skvbgp.kernels import RBF, Matern, Periodic, Wiener
from tests.decoupled.cases import small
from tests.derivatives import check_gradient_moments, check_mean_gradient, numerical_gradient
from tests.fits import FitOnce
from tests.functions import (
    check_draws,
    check_gradients_of_draws,
    check_importances,
    check_same_functions,
)
from tests.sgpr.cases import make_data

pytestmark = pytest.mark.usefixtures("quick_searches")

#: Parametrizations, with points of the function, and with multipliers of a point and of its inputs.
OPTIONS = [
    {},
    {"parametrization": "hybrid", "generalized_length_scales": "per_input"},
    {"parametrization": "decoupled"},
    {"kernel": 1.5 * RBF(1.5) + Matern(2.0, nu=1.5) * Periodic(1.0, 6.0)},
    {"generalized_length_scales": False, "n_mean_basis": 0},
    {"likelihood": "poisson"},
]
every = pytest.mark.parametrize("options", OPTIONS, ids=repr)
fit_once = FitOnce()


def fit(options, n=60, **others):
    """A model of few steps, in which points of the bases have moved."""
    X, y = make_data(n)
    targets = np.round(np.maximum(y, 0.0)) if "likelihood" in options else 10.0 * y
    return fit_once(small(DecoupledGPRegressor, **options, **others), X, targets), X, targets


@pytest.mark.parametrize("form", [GeneralizedSE, InputwiseSE])
@pytest.mark.every_nth("form", 2)
def test_features_of_points_average_to_their_covariances(form, rng):
    kernel = form(np.log(2.0), np.log([0.7, 2.0]))
    shape = (4,) if form is GeneralizedSE else (4, 2)
    points = Basis(rng.standard_normal((4, 2)), rng.uniform(-0.4, 0.4, shape))
    rows, average = Basis(rng.standard_normal((3, 2))), np.zeros((7, 4))
    for _ in range(200):
        features = BasisFeatures.draw(kernel, 2, rng)
        of_points = features(points)
        average += np.vstack([features(rows), of_points]) @ of_points.T / 200
    expected = np.vstack([kernel(rows, points), kernel(points, points)])
    # 100,000 waves; each product has a deviation of a few times the variance at most
    assert_allclose(average, expected, atol=2.0 * 5.0 * 3.0 / np.sqrt(200 * 512))


@every
@pytest.mark.every_nth("options", 4)
def test_mean_gradient_is_that_of_predict(options):
    """Of the latent function, in the user's units, row by row."""
    model, X, _ = fit(options)
    if "likelihood" in options:  # predict has the rate
        mean, _ = model.predict_gradient(X[:4] + 0.05)
        for x, slope in zip(X[:4] + 0.05, mean, strict=True):
            numeric = numerical_gradient(
                lambda x: model.predict(x[None], include_noise=False)[0], x
            )
            assert_allclose(slope, numeric, rtol=1e-6)
        return
    check_mean_gradient(model, X[:4] + 0.05, atol=1e-9)


@every
@pytest.mark.every_nth("options", 2)
def test_gradient_is_the_limit_of_differences(options):
    model, X, _ = fit(options)
    check_gradient_moments(model, X[7] + 0.05, atol=1e-5, rtol=2e-3)


@every
@pytest.mark.every_nth("options", 4)
def test_draws_have_the_moments_of_predict(options):
    """Near the rows and far away."""
    model, X, _ = fit(options)
    check_draws(model, np.vstack([X[:3] + 0.1, [[9.0, 9.0]]]), 1000)


def test_draws_with_multipliers_that_differ_much():
    model, X, _ = fit({"learning_rate": 0.3}, max_iter=10)
    p = model._state.parameters
    p.beta_log_c[:] = np.linspace(-0.5, 0.7, len(p.beta_log_c))
    vars(model._state).pop("posterior", None)
    check_draws(model, X[:4] + 0.1, 1000)


@every
@pytest.mark.every_nth("options", 2)
def test_a_function_is_the_same_wherever_it_is_evaluated(options):
    model, X, y = fit(options)
    check_same_functions(model, X[:6] + 0.3, y[:6])


@every
@pytest.mark.every_nth("options", 2)
def test_gradient_of_functions(options):
    model, X, _ = fit(options)
    check_gradients_of_draws(model, X[:3] + 0.2)


@every
@pytest.mark.every_nth("options", 4)
def test_importance_is_the_share_in_the_variation(options):
    model, X, _ = fit(options)
    check_importances(model, X)
    assert_array_equal(model.feature_importances_std_, np.zeros(2))


@pytest.mark.thorough
def test_importance_of_weighted_rows_and_without_rows():
    X, y = make_data(60)
    weight = np.where(np.arange(60) < 20, 3.0, 1.0)
    model = small(DecoupledGPRegressor).fit(X, y, weight)
    check_importances(model, X, weight)
    for options in ({}, {"n_mean_basis": 0}):
        model = small(DecoupledGPRegressor, replay=0, **options).fit(X, y)
        check_importances(model, model.cov_basis_ if options else model.mean_basis_)


def test_functions_that_cannot_be_drawn_are_refused():
    X, y = make_data(30)
    model = small(DecoupledGPRegressor, kernel=Wiener(2.0)).fit(np.abs(X[:, :1]), y)
    with pytest.raises(ValueError, match="no spectrum is known"):
        model.sample_function()


def test_inputs_are_selected_by_importance():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 3)) * [1.0, 10.0, 0.1]
    y = np.sin(X[:, 0]) + 20.0 * X[:, 2] + 0.1 * rng.standard_normal(120)
    model = DecoupledGPRegressor(random_state=0)
    chosen = SelectFromModel(model, threshold=0.05).fit(X, y).get_support()
    assert_array_equal(chosen, [True, False, True])
