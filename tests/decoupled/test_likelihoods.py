"""Likelihoods against quadrature by brute force, finite differences and draws."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats
from scipy.integrate import quad

from skvbgp.decoupled._likelihoods import Gaussian, LogCounts, Poisson, Probit, StudentT
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
@pytest.mark.every_nth("likelihood", 3)
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


def test_stand_in_of_counts(rng):
    """A normal density, and that of Poisson near the maximum of large ones."""
    theta, y, m, s = problem(Poisson(0.3), rng)
    likelihood = LogCounts(0.3)
    found = likelihood.expected(theta, y, m, s)
    for i in range(3):
        noise, std = (y[i] + 0.5) ** -0.5, np.sqrt(s[i])
        expected, _ = quad(
            lambda f, i=i, noise=noise, std=std: (
                stats.norm.logpdf(np.log(y[i] + 0.5), 0.3 + f, noise) * stats.norm.pdf(f, m[i], std)
            ),
            m[i] - 10.0 * std,
            m[i] + 10.0 * std,
        )
        assert_allclose(found.value[i], expected, rtol=1e-6)
    slope = numerical_gradient(lambda x: likelihood.expected(theta, y, x, s).value.sum(), m)
    assert_allclose(found.dm, slope, rtol=1e-7)
    slope = numerical_gradient(lambda x: likelihood.expected(theta, y, m, x).value.sum(), s)
    assert_allclose(found.ds, slope, rtol=1e-7)
    y, s = np.array([1e6]), np.zeros(1)
    m = np.log(y) - 0.3 + 1e-4
    poisson, found = (one.expected(theta, y, m, s) for one in (Poisson(0.3), likelihood))
    assert_allclose(found.dm, poisson.dm, rtol=0.01)
    assert_allclose(found.ds, poisson.ds, rtol=1e-3)


def test_step_of_counts_ends_at_their_rate():
    """From a rate that is far too small; Newton's would end at y / rate, as a logarithm."""
    m, s, y = np.array([-4.0, 3.0, -900.0]), np.array([0.2, 0.1, 0.0]), np.full(3, 1e6)
    found = Poisson(0.3).expected(np.empty(0), y, m, s)
    assert_allclose(0.3 + m + 0.5 * s + found.dm / found.precision, np.log(y))
    near = Poisson(0.3).expected(np.empty(0), y, np.full(3, 13.4), s)
    assert_allclose(near.precision, -2.0 * near.ds)


@pytest.mark.parametrize("likelihood", LIKELIHOODS[:3], ids=lambda one: type(one).__name__)
@pytest.mark.every_nth("likelihood", 3)
def test_density_of_predictions(likelihood, rng):
    """Averaged over f; Student's t also where it is most of the prediction, and in its tails."""
    theta, y, m, s = problem(likelihood, rng)
    y[0] += 20.0 if isinstance(likelihood, StudentT) else 2.0
    s[2] = 1e-4
    log_p = log_density(likelihood, theta)
    for i, found in enumerate(likelihood.distribution(theta, m, s).log_density(y)):
        std = np.sqrt(s[i])
        expected, _ = quad(
            lambda f, i=i, std=std: np.exp(log_p(y[i], f)) * stats.norm.pdf(f, m[i], std),
            m[i] - 10.0 * std,
            m[i] + 10.0 * std,
        )
        assert_allclose(found, np.log(expected), atol=1e-5)


@pytest.mark.parametrize("p", [1e-3, 0.3, 0.5, 0.999])
@pytest.mark.every_nth("p", 2)
def test_quantiles_of_counts_are_the_first_that_reach_the_probability(p):
    given = Poisson(0.3).distribution(np.empty(0), np.array([-30.0, 0.5, 4.0]), np.full(3, 0.4))
    counts = np.arange(3000.0)
    for i, found in enumerate(given.quantile(p)):
        row = type(given)(given.rates[i : i + 1].repeat(3000, axis=0))
        total = np.cumsum(np.exp(row.log_density(counts)))
        assert found == counts[np.argmax(total >= p)]


@pytest.mark.parametrize("likelihood", LIKELIHOODS[:3], ids=lambda one: type(one).__name__)
@pytest.mark.every_nth("likelihood", 3)
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


@pytest.mark.parametrize("likelihood", LIKELIHOODS[:2], ids=lambda one: type(one).__name__)
@pytest.mark.every_nth("likelihood", 2)
def test_information_about_the_noise(likelihood):
    """The variance of the slope in theta, at the truth."""
    theta = np.array([0.4])
    log_p = log_density(likelihood, theta)

    def slope(y):
        return numerical_gradient(lambda x: log_density(likelihood, x)(y, 0.0), theta)[0]

    expected, _ = quad(lambda y: np.exp(log_p(y, 0.0)) * slope(y) ** 2, -np.inf, np.inf)
    assert_allclose(likelihood.noise_information, expected, rtol=1e-6)
    assert len(likelihood.noise_information) == len(likelihood.start)


def test_outliers_beside_equal_targets_count_as_often_as_they_come():
    y, weight = np.array([2.0, 3.0, 5.0, 90.0]), np.array([40, 1, 1, 3])
    found = StudentT().latent_values(y, weight.astype(float))
    assert_allclose(found.repeat(weight), StudentT().latent_values(y.repeat(weight)))
