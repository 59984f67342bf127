"""Draws of the function, its gradients, and the relevance of the inputs that they give."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.feature_selection import SelectFromModel

from skvbgp.kernel_selection._targets import LogTarget
from skvbgp.kernels import RBF, Constant, Linear, Matern, Periodic, White
from tests.derivatives import check_gradient_moments, check_mean_gradient, numerical_gradient
from tests.fits import FitOnce
from tests.functions import (
    check_draws,
    check_gradients_of_draws,
    check_importances,
    check_same_functions,
)
from tests.kernel_selection.cases import make_series, small
from tests.sgpr.cases import make_data

MIXED = [
    ("SE", 2.0 * RBF([1.0, 2.0])),
    ("M52 + LIN", Matern([2.0, 3.0], nu=2.5) + Linear([3.0, 9.0])),
    ("PER * RBF", Periodic([1.0, 2.0], [6.0, 9.0]) * RBF(3.0)),
]
OPTIONS = [
    {"kernels": MIXED, "max_iter": 2},
    {"kernels": MIXED[:2], "n_inducing": None},
    {"kernels": MIXED[:1], "hyperparameter_posterior": "gaussian", "max_iter": 3},
    {"kernels": MIXED[:2], "transforms": ["log"], "max_iter": 2},
]
every = pytest.mark.parametrize("options", OPTIONS, ids=repr)
fit_once = FitOnce()


def fit(options):
    """A model whose belief is made even, so that every kernel matters."""
    X, y = make_data(50)
    model = fit_once(small(**options), X, 10.0 * y)
    n = len(model._state.kept)
    model._state = replace(model._state, weights=np.full(n, 1.0 / n))
    return model, X, 10.0 * y


@every
@pytest.mark.every_nth("options", 4)
def test_mean_gradient_is_that_of_predict(options):
    """Without noise, which makes a difference to the mean of exp(y)."""
    model, X, _ = fit(options)
    check_mean_gradient(model, X[:4] + 0.05, atol=1e-8)


@every
@pytest.mark.every_nth("options", 2)
def test_gradient_is_the_limit_of_differences(options):
    model, X, _ = fit(options)
    check_gradient_moments(model, X[7] + 0.05, atol=1e-4, rtol=5e-3)


@every
@pytest.mark.every_nth("options", 4)
def test_draws_have_the_moments_of_predict(options):
    model, X, _ = fit(options)
    check_draws(model, X[:5] + 0.1, 1000)


@every
@pytest.mark.every_nth("options", 3)
def test_a_function_is_the_same_wherever_it_is_evaluated(options):
    model, X, y = fit(options)
    check_same_functions(model, X[:6] + 0.1, y[:6])


@every
@pytest.mark.every_nth("options", 3)
def test_gradient_of_functions(options):
    model, X, _ = fit(options)
    check_gradients_of_draws(model, X[:3] + 0.2)


@every
@pytest.mark.every_nth("options", 2)
def test_importance_is_the_share_in_the_variation(options):
    model, X, _ = fit(options)
    check_importances(model, X)
    n_components = len(model._posterior()._component_weights)
    assert np.all((model.feature_importances_std_ > 1e-9) == (n_components > 1))


def test_importance_differs_between_kernels_as_they_are_believed():
    model, X, _ = fit(OPTIONS[1])
    each = []
    for belief in ([1.0, 0.0], [0.0, 1.0]):
        model._state = replace(model._state, weights=np.array(belief))
        check_importances(model, X)
        each.append(model.feature_importances_)
    model._state = replace(model._state, weights=np.array([0.8, 0.2]))
    deviations = np.array(each) - model.feature_importances_
    expected = np.sqrt(np.array([0.8, 0.2]) @ deviations**2)
    assert_allclose(model.feature_importances_std_, expected, rtol=1e-8)


def test_importance_of_weighted_rows_and_without_rows(monkeypatch):
    X, y = make_data(60)
    weight = np.where(np.arange(60) < 20, 3.0, 1.0)
    check_importances(small(max_iter=2).fit(X, y, weight), X, weight)
    monkeypatch.setattr("skvbgp.kernel_selection._learner.COLLAPSED_ROWS", 40)
    model = small(max_iter=2).fit(X, y)
    assert model._state.rows is None
    check_importances(model, model.estimators_[0].inducing_inputs)


def test_kernels_of_no_belief_do_not_make_slopes_infinite():
    model, X, _ = fit({"kernels": [MIXED[0], ("M12", 1.0 * Matern(1.0, nu=0.5))], "max_iter": 2})
    assert np.isinf(model.predict_gradient(X[:2])[1]).all()
    first = [name for name, _ in model.kernels_].index("SE") == model._state.kept[0]
    model._state.weights[:] = [1.0, 0.0] if first else [0.0, 1.0]
    assert np.isfinite(model.predict_gradient(X[:2])[1]).all()


@pytest.mark.usefixtures("quick_searches")
@pytest.mark.thorough
def test_functions_that_cannot_be_drawn_are_refused():
    t, y = make_series()
    with_noise = small(kernels=[("SE + N", Constant() * RBF() + White(0.1))]).fit(t, y)
    with pytest.raises(ValueError, match="white noise is no function"):
        with_noise.sample_function()
    series = small(kernels="auto", n_inducing=None, max_iter=1).fit(t, y)
    with pytest.raises(ValueError, match="no spectrum is known"):
        series.sample_function(50)
    mean, std = series.predict_gradient(t[:3])
    assert np.isfinite(mean).all() and mean.shape == std.shape == (3, 1)


def test_inputs_are_selected_by_importance():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 3)) * [1.0, 10.0, 0.1]
    y = np.sin(X[:, 0]) + 20.0 * X[:, 2] + 0.1 * rng.standard_normal(80)
    chosen = SelectFromModel(small(), threshold=0.05).fit(X, y).get_support()
    assert_array_equal(chosen, [True, False, True])


@pytest.mark.parametrize("variance", [0.3, 9.0])  # less and more than logarithms may be uncertain
def test_mean_slope_of_a_logarithm_is_that_of_its_mean(variance):
    target = LogTarget(0.3, 0.8, shift=2.0, margin=0.1)
    slope, together = np.array([0.7, -0.2]), np.array([0.1, 0.3])
    given = np.array([0.4]), np.array([variance])
    mean, _ = target.slope_moments(given, slope[None], together[None], np.ones((1, 2)))
    for j in range(2):
        numeric = numerical_gradient(
            lambda t, j=j: target.moments(0.4 + t * slope[j], variance + 2.0 * t * together[j])[0],
            0.0,
        )
        assert_allclose(mean[0, j], numeric, rtol=1e-8)
