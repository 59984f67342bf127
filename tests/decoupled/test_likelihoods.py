"""Likelihoods against quadrature by brute force, finite differences and draws."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats
from scipy.integrate import quad

from skvbgp.decoupled._likelihoods import Gaussian, Poisson, Probit, StudentT
from tests.decoupled.problems import LIKELIHOODS
from tests.derivatives import numerical_gradient

each = pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=lambda one: type(one).__name__)


def log_density(likelihood, theta):
    if isinstance(likelihood, Gaussian):
        return lambda y, f: stats.norm.logpdf(y, f, np.exp(0.5 * theta[0]))
    if isinstance(likelihood, StudentT):
        return lambda y, f: stats.t.logpdf(y, 4.0, f, np.exp(0.5 * theta[0]))
    if isinstance(likelihood, Poisson):
        return lambda y, f: stats.poisson.logpmf(y, np.exp(likelihood.offset + f))
    return lambda y, f: stats.norm.logcdf(y * f)


def problem(likelihood, rng):
    theta = np.array(likelihood.start, dtype=float) + 1.0
    y = {Poisson: np.array([0.0, 3.0, 7.0]), Probit: np.array([1.0, -1.0, 1.0])}.get(
        type(likelihood), rng.standard_normal(3)
    )
    return theta, y, rng.standard_normal(3), np.array([0.05, 0.2, 0.4])


@each
def test_expectation(likelihood, rng):
    theta, y, m, s = problem(likelihood, rng)
    log_p = log_density(likelihood, theta)
    for i in range(3):
        std = np.sqrt(s[i])
        expected, _ = quad(
            lambda f, i=i, std=std: log_p(y[i], f) * stats.norm.pdf(f, m[i], std),
            m[i] - 10.0 * std,
            m[i] + 10.0 * std,
        )
        assert_allclose(likelihood.expected(theta, y, m, s).value[i], expected, rtol=1e-4)


@each
def test_gradients(likelihood, rng):
    theta, y, m, s = problem(likelihood, rng)
    found = likelihood.expected(theta, y, m, s)
    arguments = {"dm": (m, lambda x: (theta, y, x, s)), "ds": (s, lambda x: (theta, y, m, x))}
    for name, (start, at) in arguments.items():
        expected = numerical_gradient(
            lambda x, at=at: likelihood.expected(*at(x)).value.sum(), start
        )
        assert_allclose(getattr(found, name), expected, rtol=1e-7, atol=1e-8)
    expected = numerical_gradient(lambda x: likelihood.expected(x, y, m, s).value.sum(), theta)
    assert_allclose(found.dtheta.sum(axis=0), expected, rtol=1e-7)


@pytest.mark.parametrize("likelihood", LIKELIHOODS[:3], ids=lambda one: type(one).__name__)
def test_predictions_are_moments_of_draws(likelihood):
    rng = np.random.RandomState(0)
    theta = np.array(likelihood.start, dtype=float)
    m, S = np.array([0.3, -0.5]), np.array([[0.3, 0.1], [0.1, 0.2]])
    f = rng.multivariate_normal(m, S, 400_000)
    y = likelihood.sample(theta, f, rng)
    mean, covariance = likelihood.joint(theta, m, S)
    assert_allclose(mean, y.mean(axis=0), atol=0.02)
    assert_allclose(covariance, np.cov(y.T), rtol=0.05, atol=0.02)
    for one, joint in zip(
        likelihood.moments(theta, m, np.diag(S)), (mean, np.diag(covariance)), strict=True
    ):
        assert_allclose(one, joint, rtol=1e-12)


def test_extreme_rates_stay_finite():
    expected = Poisson(0.0).expected(np.empty(0), np.ones(1), np.array([1e3]), np.array([1e3]))
    assert all(np.isfinite(part).all() for part in expected)
