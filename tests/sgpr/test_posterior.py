"""Predictions through the inducing outputs alone (DTC, FITC, PITC) against Appendix F.1."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skvbgp import VBDTCRegressor
from skvbgp._core.draws import quasi_normal
from skvbgp._core.gaussian import WhitenedGaussian
from skvbgp._core.linalg import JITTER
from skvbgp.sgpr._bound import Prior
from skvbgp.sgpr._posterior import SparseLatent
from skvbgp.sgpr._quadrature import ClosedForm, CommonDraws
from tests.oracles import sgpr as oracles
from tests.sgpr.problems import random_q, row_problem


def predictor(problem, q, rule, draws=None):
    return SparseLatent(problem.parameters, Prior(problem.parameters), q, rule, draws)


def literal_mixture(problem, q, Xs, draws):
    """Moments (n,), (n, n) of f given each draw of Lambda and each of two values of sigma_f.

    alpha +- sqrt(beta) carry the first two moments of sigma_f, all that occurs.
    """
    nu, xi, alpha, beta = problem.theta
    m, S = problem.moments_of_s(q)
    Sigma = oracles.sigma_zz(problem.Z, JITTER)
    means, covariances = [], []
    for e in draws:
        lam = nu + np.sqrt(xi) * e
        for sign in (-1.0, 1.0):
            sigma_f = alpha + sign * np.sqrt(beta)
            A = oracles.k_xz(Xs, problem.Z, lam, sigma_f) @ np.linalg.inv(Sigma)
            prior = oracles.k_xx(Xs, Xs, lam, sigma_f)
            means.append(A @ m)
            covariances.append(prior - A @ Sigma @ A.T + A @ S @ A.T)
    return np.array(means), np.mean(covariances, axis=0)


def test_what_predictions_have_made_of_a_state_is_kept(rng):
    X = rng.uniform(-2.0, 2.0, (60, 2))
    model = VBDTCRegressor(20, solver="stochastic", max_iter=2, random_state=0).fit(X, X[:, 0])
    latent = model._posterior()._latent
    assert model._posterior()._latent is latent
    expected = pickle.loads(pickle.dumps(model))
    model.partial_fit(X + 0.1, X[:, 0])
    assert model._posterior()._latent is not latent
    expected.partial_fit(X + 0.1, X[:, 0])
    assert_array_equal(model.predict(X, True), expected.predict(X, True))


def test_closed_form(problem, Xs):
    """The same sums in another order; ten digits remain of conditions below 1e3."""
    q = random_q(4)
    mean, variance = predictor(problem, q, ClosedForm()).moments(Xs)
    m, S = problem.moments_of_s(q)
    expected = oracles.predict_closed(Xs, problem.Z, m, S, *problem.theta, JITTER)
    assert_allclose(mean, expected[0], rtol=1e-9, atol=1e-10)
    assert_allclose(variance, expected[1], rtol=1e-9, atol=1e-10)


def test_monte_carlo(problem, Xs):
    """5,000 draws: means within 5 standard errors, variances within 5 errors of sqrt(2 / n)."""
    q = random_q(4)
    mean, variance = predictor(problem, q, ClosedForm()).moments(Xs)
    m, S = problem.moments_of_s(q)
    rng = np.random.default_rng(12)
    expected = oracles.predict_monte_carlo(Xs, problem.Z, m, S, *problem.theta, rng, 5_000, JITTER)
    assert np.all(np.abs(mean - expected[0]) < 5.0 * np.sqrt(variance / 5_000))
    assert_allclose(variance, expected[1], rtol=5.0 * np.sqrt(2.0 / 5_000))


def test_sampled(problem, Xs, rng):
    """The law of total variance over the same draws, sigma_f integrated."""
    q, draws = random_q(4), rng.normal(size=(6, 2))
    mean, variance = predictor(problem, q, CommonDraws(draws)).moments(Xs)
    means, within = literal_mixture(problem, q, Xs, draws)
    assert_allclose(mean, means.mean(axis=0), rtol=1e-9, atol=1e-10)
    expected = np.diagonal(within) + means.var(axis=0)
    assert_allclose(variance, expected, rtol=1e-9, atol=1e-10)


def test_sampled_tends_to_the_closed_form(problem, Xs):
    """Space-filling draws: closer than 1 % of the spread with 2,000 of them."""
    q = random_q(4)
    mean, variance = predictor(problem, q, ClosedForm()).moments(Xs)
    rule = CommonDraws(quasi_normal(2_000, 2, seed=0))
    sampled_mean, sampled_variance = predictor(problem, q, rule).moments(Xs)
    assert np.all(np.abs(sampled_mean - mean) < 0.01 * np.sqrt(variance))
    assert_allclose(sampled_variance, variance, rtol=0.01)


def test_moments_that_would_drown_in_rounding_are_averages_over_draws(problem, Xs):
    """Where there is so little noise that they have to be that exact."""
    q, draws = random_q(4), quasi_normal(8, 2, seed=0)
    problem = problem.at(replace(problem.parameters, noise_variance=1e-16))
    expected = predictor(problem, q, CommonDraws(draws)).moments(Xs)
    assert_array_equal(predictor(problem, q, ClosedForm(), draws).moments(Xs), expected)


@pytest.mark.parametrize("sampled", [False, True])
def test_joint(problem, Xs, rng, sampled):
    """Its diagonal is the variance; with sampled moments all of it is the mixture's."""
    q, draws = random_q(4), rng.normal(size=(6, 2))
    rule = CommonDraws(draws) if sampled else ClosedForm()
    global_predictor = predictor(problem, q, rule, draws)
    mean, covariance = global_predictor.joint(Xs)
    means, within = literal_mixture(problem, q, Xs, draws)
    literal = within + np.cov(means, rowvar=False, bias=True)
    for actual, expected in zip(
        (mean, np.diagonal(covariance)), global_predictor.moments(Xs), strict=True
    ):
        assert_allclose(actual, expected, rtol=1e-9, atol=1e-10)
    if sampled:
        assert_allclose(covariance, literal, rtol=1e-9, atol=1e-10)
    # the correlations are the draws' in any case
    spread = np.sqrt(np.diagonal(covariance))
    literal_spread = np.sqrt(np.diagonal(literal))
    assert_allclose(
        covariance / np.outer(spread, spread),
        literal / np.outer(literal_spread, literal_spread),
        rtol=1e-9,
        atol=1e-10,
    )
    assert np.linalg.eigvalsh(covariance)[0] > 0.0


@pytest.mark.parametrize(
    "rule", [ClosedForm(), CommonDraws(np.ones((2, 2)))], ids=["closed", "drawn"]
)
def test_means_alone_need_no_variances(problem, Xs, monkeypatch, rule):
    latent = predictor(problem, random_q(4), rule)
    mean, _ = latent.moments(Xs)
    monkeypatch.setattr("skvbgp.sgpr._posterior.SecondMoment", None)
    monkeypatch.setattr(latent, "_root", None)
    assert_allclose(latent.mean(Xs), mean, rtol=1e-12)


@pytest.mark.parametrize(
    "rule", [ClosedForm(), CommonDraws(np.ones((2, 2)))], ids=["closed", "drawn"]
)
def test_row_by_row_equals_the_batch(problem, Xs, rule):
    together = predictor(problem, random_q(4), rule)
    mean, variance = together.moments(Xs)
    for i in range(len(Xs)):
        alone = together.moments(Xs[i : i + 1])
        assert_allclose(np.ravel(alone), [mean[i], variance[i]], rtol=1e-12)


@pytest.mark.parametrize(
    "rule", [ClosedForm(), CommonDraws(np.zeros((1, 2)))], ids=["closed", "drawn"]
)
def test_far_from_the_inducing_inputs(problem, rule):
    """The prior: mean 0 and variance E[sigma_f^2].

    In closed form omega falls as the product of sqrt(xi) |x|, here to 1e-11; sampled it is 0.
    """
    mean, variance = predictor(problem, random_q(4), rule).moments(np.full((1, 2), 1e6))
    assert_allclose(mean, 0.0, atol=1e-9)
    assert_allclose(variance, problem.parameters.second_moment, rtol=1e-9)


def test_variance_is_positive_however_large_the_mean(problem, rng):
    """Means of 1e6 square to 1e12, of which rounding takes 1e-4: more than the variance."""
    p = replace(problem.parameters, xi=np.full(2, 1e-30), beta=1e-30)
    certain = WhitenedGaussian(1e20 * np.eye(4), 1e26 * np.ones(4))
    X = np.repeat(p.U, 10, axis=0) + 1e-6 * rng.normal(size=(40, 2))
    draws = quasi_normal(2, 2, seed=0)
    _, variance = predictor(problem.at(p), certain, ClosedForm(), draws).moments(X)
    assert np.all(variance > 0.0)


@pytest.mark.parametrize("drawn", [False, True])
def test_exact_gp_at_the_data(drawn):
    """Z = X and certain hyperparameters: moments of the exact GP.

    The jitter is noise of 1e-8 on s, seen through K^-1 (..) of norm below 1 / 0.1; the variance
    of the hyperparameters, 1e-12, is far below it.
    """
    problem = row_problem(12, 2, 12)
    X, y = problem.scaled
    p = replace(problem.parameters, xi=np.full(2, 1e-12), beta=1e-12, U=X)
    problem = problem.at(p)
    q = problem.evaluation().optimal_q
    Xs = np.random.default_rng(11).normal(size=(6, 2))
    rule = CommonDraws(quasi_normal(2, 2, seed=0)) if drawn else ClosedForm()
    mean, variance = predictor(problem, q, rule).moments(Xs)
    C = p.noise_variance * np.eye(12)
    expected = oracles.exact_gp(X, y, Xs, lambda A, B: oracles.k_xx(A, B, p.nu, p.alpha), C)
    assert_allclose(mean, expected[0], rtol=0, atol=2e-6)
    assert_allclose(variance, expected[1], rtol=0, atol=2e-6)
