"""Where training starts: the evidence of a sample, and the units of the steps."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import multivariate_normal

from skvbgp._core.scaling import Coordinates
from skvbgp.decoupled import DecoupledGPRegressor
from skvbgp.decoupled._basis import Basis, GeneralizedSE, PlainKernel
from skvbgp.decoupled._bound import Model
from skvbgp.decoupled._likelihoods import Gaussian, Poisson, Probit, StudentT
from skvbgp.decoupled._start import find_hyperparameters, log_evidence
from skvbgp.kernels import RBF, Linear, Matern
from tests.decoupled.problems import D, kernels
from tests.derivatives import numerical_gradient
from tests.signals import chirp


def model_of(kernel, prior_variance=np.inf, likelihood=None):
    return Model(kernel, likelihood or Gaussian(), "orthogonal", False, prior_variance)


@pytest.mark.parametrize("kind", ["generalized", "plain"])
def test_evidence_and_its_gradient(kind):
    rng = np.random.default_rng(0)
    kernel, X, y = kernels(rng)[kind], rng.standard_normal((7, D)), rng.standard_normal(7)
    model, rows, x = model_of(kernel), Basis(X), np.append(kernel.theta, -1.0)
    value, gradient = log_evidence(model, x, rows, y)
    covariance = kernel(rows, rows) + np.exp(-1.0) * np.eye(7)
    assert_allclose(value, multivariate_normal(np.zeros(7), covariance).logpdf(y), rtol=1e-10)
    numerical = numerical_gradient(lambda x: log_evidence(model, x, rows, y)[0], x)
    assert_allclose(gradient, numerical, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("kind", ["generalized", "plain"])
def test_evidence_of_several_functions_in_units_of_the_noise(kind):
    rng = np.random.default_rng(0)
    kernel, X, y = kernels(rng)[kind], rng.standard_normal((7, D)), rng.standard_normal((7, 3))
    model, rows, x = model_of(kernel, likelihood=Probit()), Basis(X), np.append(kernel.theta, -1.0)
    value, gradient = log_evidence(model, x, rows, y)
    covariance = np.exp(-1.0) * (kernel(rows, rows) + np.eye(7))
    expected = multivariate_normal(np.zeros(7), covariance).logpdf(y.T).sum()
    assert_allclose(value, expected, rtol=1e-10)
    numerical = numerical_gradient(lambda x: log_evidence(model, x, rows, y)[0], x)
    assert_allclose(gradient, numerical, rtol=1e-7, atol=1e-8)


def test_prior_and_its_gradient():
    model = model_of(GeneralizedSE(0.3, np.array([0.1, 0.2])), prior_variance=0.5)
    theta = np.array([1.0, -0.5, 0.4])
    value, gradient = model.log_prior(theta)
    assert_allclose(value, -np.sum((theta - model.kernel.theta) ** 2))
    assert_allclose(gradient, numerical_gradient(lambda x: model.log_prior(x)[0], theta))
    assert model_of(model.kernel).log_prior(theta)[0] == 0.0


def test_search_finds_length_scales_that_are_far_away():
    X, y = chirp(300)
    scaled = Coordinates.of(X).scaled(X)
    start = GeneralizedSE(0.0, np.zeros(1))
    theta = find_hyperparameters(model_of(start, 0.5), scaled, y / np.std(y))
    assert 0.02 < np.exp(theta[1]) < 0.1


def test_length_unit_of_any_kernel():
    frame = Coordinates(np.array([1.0, -2.0]), np.array([0.5, 4.0]))
    rbf = PlainKernel(RBF([0.1, 1.0]).bind(2), frame)
    ratio = rbf.length_unit / (np.array([0.1, 1.0]) / frame.scale)
    assert np.all((ratio >= 1.0) & (ratio <= 2.0))
    everywhere = PlainKernel(Linear().bind(2), frame).length_unit
    assert np.all(everywhere > 0.0)
    assert np.isfinite(everywhere).all()


def test_latent_values():
    y = np.append(np.arange(9.0), 1e6)
    assert_allclose(StudentT().latent_values(y)[:-1], y[:-1])
    assert np.max(StudentT().latent_values(y)) < 40.0
    assert_allclose(StudentT().latent_values(np.ones(3)), 1.0)
    assert_allclose(StudentT().latent_values(np.repeat([1.0, 5.0], [4, 1]))[-1], 5.0)
    counts = Poisson(0.0).latent_values(np.array([0.0, 1.0, 20.0]))
    assert np.all(np.diff(counts) > 0.0)


@pytest.mark.parametrize("kernel", [None, Matern(0.2, nu=2.5)], ids=["default", "user"])
def test_function_with_much_detail(kernel):
    X, y = chirp(800)
    model = DecoupledGPRegressor(100, 100, kernel=kernel, max_iter=25, random_state=0)
    mean, std = model.fit(X[:400], y[:400]).predict(X[400:], return_std=True)
    assert np.sqrt(np.mean((mean - y[400:]) ** 2)) < 0.2
    assert np.mean(np.abs(mean - y[400:]) < 1.96 * std) > 0.9
