"""What draws of a regressor's function have to be, whatever family it is of."""

import pickle

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from tests.derivatives import numerical_slopes


def check_draws(model, places, n, *, jointly=True):
    """Draws have the moments of predictions, within five standard errors of normal ones.

    The standard error of a mean of n is 1 / sqrt(n) standard deviations, that of a standard
    deviation a share of 1 / sqrt(2 n), and that of a correlation at most sqrt(2 / n).
    """
    mean, std = model.predict(places, return_std=True, include_noise=False)
    functions, error = model.sample_function(n), 5.0 / np.sqrt(n)
    values = (functions(places) - mean[:, None]) / std[:, None]
    assert_allclose(values.mean(axis=1), 0.0, atol=error)
    assert_allclose(values.std(axis=1), 1.0, atol=error / np.sqrt(2.0))
    if jointly:
        _, covariance = model.predict(places, return_cov=True, include_noise=False)
        correlation = covariance / np.outer(std, std)
        assert_allclose(np.cov(values), correlation, atol=error * np.sqrt(2.0))
    mean, std = model.predict_gradient(places)
    if np.isfinite(std).all():
        slopes = (functions.gradient(places) - mean[..., None]) / std[..., None]
        assert_allclose(slopes.mean(axis=-1), 0.0, atol=error)
        assert_allclose(slopes.std(axis=-1), 1.0, atol=error / np.sqrt(2.0))


def check_joint_draws(draws, mean, covariance, *, error, covariance_error):
    """Draws (..., n) of some values have these means, and covariances in standard deviations."""
    std, values = np.sqrt(np.diagonal(covariance)), draws.reshape(len(mean), -1)
    scale = np.outer(std, std)
    assert_allclose((values.mean(axis=1) - mean) / std, 0.0, atol=error)
    assert_allclose(np.cov(values) / scale, covariance / scale, atol=covariance_error)


def check_first_slope(functions, places):
    """Derivatives in the first of two inputs are those of the values."""
    shift = np.array([1e-5, 0.0])
    numeric = (functions(places + shift) - functions(places - shift)) / 2e-5
    assert_allclose(functions.gradient(places)[:, :, 0], numeric, rtol=1e-3, atol=1e-2)


def check_same_functions(model, places, y):
    """Draws are the same functions wherever they are evaluated, and whatever comes later."""
    functions = model.sample_function(30, random_state=1)
    values = functions(places)
    assert values.shape == (len(places), 30)
    assert len(np.unique(values[0])) == 30
    assert_allclose(np.vstack([functions(x[None]) for x in places]), values, rtol=1e-8)
    assert_allclose(pickle.loads(pickle.dumps(functions))(places), values)
    assert_array_equal(model.sample_function(30, random_state=1)(places), values)
    assert np.all(model.sample_function(30, random_state=2)(places) != values)
    assert model.sample_function()(places).shape == (len(places), 1)
    model.partial_fit(places, y)
    assert_array_equal(functions(places), values)


def check_gradients_of_draws(model, places):
    """The derivatives of draws are those of their values."""
    functions = model.sample_function(3, random_state=1)
    found = functions.gradient(places)
    assert found.shape == (*places.shape, 3)
    assert_allclose(found, numerical_slopes(functions, places), rtol=1e-4, atol=1e-4)


def check_importances(model, X, weight=None):
    """They are mean squared slopes of predictions times variances of the columns."""
    mean, _ = model.predict_gradient(X)
    weight = np.ones(len(X)) if weight is None else weight
    variance = np.cov(X.T, aweights=weight, ddof=0).diagonal()
    expected = np.average(mean**2, axis=0, weights=weight) * variance
    assert_allclose(model.feature_importances_, expected / expected.sum(), rtol=1e-8)
    assert_allclose(model.feature_importances_.sum(), 1.0)


def make_irrelevant(n=100):
    """y depends on the third input most, on the first a little, and not on the second."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 3)) * [1.0, 10.0, 0.1]
    return X, np.sin(X[:, 0]) + 40.0 * X[:, 2] + 0.1 * rng.standard_normal(n)


def check_irrelevant(model):
    """A model of these rows knows that the mean of cos^2 x is .57, and 40^2 times .1^2 is 16."""
    share = 0.57 / 16.57
    assert_allclose(model.feature_importances_, [share, 0.0, 1.0 - share], atol=0.02)
    assert_allclose(model.feature_importances_.sum(), 1.0)
