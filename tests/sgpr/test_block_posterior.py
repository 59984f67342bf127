"""PIC's predictions, which condition on the test row's own block, against Appendix F.2."""

import gc
import weakref
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skvbgp import VBPICRegressor
from skvbgp._core.gaussian import WhitenedGaussian
from skvbgp._core.linalg import JITTER
from skvbgp.sgpr._block_conditional import BlockConditional
from skvbgp.sgpr._bound import Prior
from skvbgp.sgpr._left_out import Remembered
from skvbgp.sgpr._quadrature import ClosedForm
from tests.oracles import sgpr as oracles
from tests.sgpr.cases import make_data, small
from tests.sgpr.problems import random_q, small_problem

N_DRAWS = 3


@pytest.fixture
def problem():
    return small_problem("pitc")


@pytest.fixture
def draws():
    return np.random.default_rng(11).normal(size=(N_DRAWS, 3))


def predictor(problem, q, draws):
    p = problem.parameters
    known = Remembered(problem.model, p, Prior(p), problem.model.noise(p), q, ClosedForm())
    return BlockConditional(known, draws)


def predict(problem, q, draws, Xs, block, *, include_noise, full=False):
    """Mean and (co)variance over the draws."""
    local = predictor(problem, q, draws)
    means, within, _ = local.moments(Xs, 0, block, include_noise=include_noise, full=full)
    if full:
        return means.mean(axis=0), within + np.cov(means, rowvar=False, bias=True)
    return means.mean(axis=0), within.mean(axis=0) + means.var(axis=0)


def literal_theta(problem, draws):
    nu, xi, alpha, beta = problem.theta
    return nu + np.sqrt(xi) * draws[:, :-1], alpha + np.sqrt(beta) * draws[:, -1]


def literal_noise(problem, Xs, index):
    """C_bb, C_sb and the whole C_ss of test rows Xs and the rows of a group."""
    original = problem.model.coordinates.original
    joint = oracles.noise_covariance(
        np.concatenate([problem.data.X[index], original(Xs)]),
        problem.U_original,
        problem.noise_kernel,
        problem.parameters.noise_variance,
        np.zeros(len(index) + len(Xs)),
        problem.noise_jitter,
    )
    n = len(index)
    return joint[:n, :n], joint[n:, :n], joint[n:, n:]


def joint_moments(problem, q, lam, sigma_f, Xs, block, noise, include_noise):
    """Mean and covariance of all test rows at once, for one theta: (y*, y_B, s) is normal."""
    C_bb, C_sb, C_ss = noise
    n, m, n_data = len(Xs), len(problem.Z), len(Xs) + len(block.y)
    X = np.concatenate([Xs, block.X])
    joint = np.zeros((n_data + m, n_data + m))
    joint[:n_data, :n_data] = oracles.k_xx(X, X, lam, sigma_f)
    joint[n:n_data, n:n_data] += C_bb
    if include_noise:
        joint[:n, :n] += C_ss
        joint[:n, n:n_data] += C_sb
        joint[n:n_data, :n] += C_sb.T
    joint[:n_data, n_data:] = oracles.k_xz(X, problem.Z, lam, sigma_f)
    joint[n_data:, :n_data] = joint[:n_data, n_data:].T
    joint[n_data:, n_data:] = oracles.sigma_zz(problem.Z, JITTER)
    gain = joint[:n, n:] @ np.linalg.inv(joint[n:, n:])
    mean_s, S = problem.moments_of_s(q)
    mean = gain @ np.concatenate([block.y, mean_s])
    gain_s = gain[:, len(block.y) :]
    return mean, joint[:n, :n] - gain @ joint[n:, :n] + gain_s @ S @ gain_s.T


@pytest.mark.parametrize("group", [0, 1])
@pytest.mark.parametrize("include_noise", [False, True])
def test_moments(problem, Xs, draws, group, include_noise):
    """Against the literal conditional, row by row; conditions below 1e3, so nine digits."""
    q, block, index = random_q(4), problem.batch[group], problem.groups[group]
    m, S = problem.moments_of_s(q)
    C_bb, C_sb, C_ss = literal_noise(problem, Xs, index)
    lams, sigma_fs = literal_theta(problem, draws)
    literal = oracles.predict_pic_samples(
        Xs,
        block.X,
        block.y,
        problem.Z,
        m,
        S,
        lams,
        sigma_fs,
        C_bb,
        C_sb,
        np.diagonal(C_ss),
        JITTER,
    )
    expected = literal[2:] if include_noise else literal[:2]
    actual = predict(problem, q, draws, Xs, block, include_noise=include_noise)
    for one, other in zip(actual, expected, strict=True):
        assert_allclose(one, other, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("include_noise", [False, True])
def test_covariance(problem, Xs, draws, include_noise):
    q, block, index = random_q(4), problem.batch[0], problem.groups[0]
    noise = literal_noise(problem, Xs, index)
    parts = [
        joint_moments(problem, q, lam, sigma_f, Xs, block, noise, include_noise)
        for lam, sigma_f in zip(*literal_theta(problem, draws), strict=True)
    ]
    means = np.array([mean for mean, _ in parts])
    expected = np.mean([c for _, c in parts], axis=0) + np.cov(means, rowvar=False, bias=True)
    mean, covariance = predict(problem, q, draws, Xs, block, include_noise=include_noise, full=True)
    assert_allclose(mean, means.mean(axis=0), rtol=1e-8, atol=1e-9)
    assert_allclose(covariance, expected, rtol=1e-8, atol=1e-9)
    mean_alone, variance = predict(problem, q, draws, Xs, block, include_noise=include_noise)
    assert_allclose(mean_alone, mean, rtol=1e-12)
    assert_allclose(variance, np.diagonal(covariance), rtol=1e-11)


def test_coefficients_are_those_of_u(problem, Xs, draws):
    """A change of E[u] moves each draw's mean by b' times it."""
    q, block = random_q(4), problem.batch[0]
    change = np.array([0.3, -1.0, 0.5, 2.0])
    other = WhitenedGaussian(q.precision, q.precision @ (q.mean + change))
    results = []
    for each in (q, other):
        local = predictor(problem, each, draws)
        results.append(local.moments(Xs, 0, block, include_noise=True, full=True))
    (before, covariance, coefficients), (after, same_covariance, _) = results
    for k in range(N_DRAWS):
        assert_allclose(after[k] - before[k], coefficients[k] @ change, rtol=1e-9, atol=1e-10)
    assert_allclose(same_covariance, covariance, rtol=1e-12)


def test_row_by_row_equals_the_batch(problem, Xs, draws):
    q, block = random_q(4), problem.batch[0]
    mean, variance = predict(problem, q, draws, Xs, block, include_noise=True)
    for i in range(len(Xs)):
        alone = predict(problem, q, draws, Xs[i : i + 1], block, include_noise=True)
        assert_allclose(np.ravel(alone), [mean[i], variance[i]], rtol=1e-11)


def certain(problem):
    """The same with (almost) certain hyperparameters."""
    return problem.at(replace(problem.parameters, xi=np.full(2, 1e-14), beta=1e-14))


def one_block(problem):
    return problem.data.rows(slice(None)), np.arange(len(problem.data))


def exact_answers(problem, Xs):
    """Exact GP with the one block's noise: f* (mean, var) and y* (mean, var)."""
    X, y = problem.scaled
    nu, _, alpha, _ = problem.theta
    C, C_sb, C_ss = literal_noise(problem, Xs, np.arange(len(y)))

    def kernel(A, B):
        return oracles.k_xx(A, B, nu, alpha)

    latent = oracles.exact_gp(X, y, Xs, kernel, C)[:2]
    cross = kernel(Xs, X) + C_sb
    gain = cross @ np.linalg.inv(kernel(X, X) + C)
    return latent, (gain @ y, np.diag(kernel(Xs, Xs) + C_ss - gain @ cross.T))


@pytest.mark.parametrize("include_noise", [False, True])
def test_one_block_and_the_exact_posterior_give_the_exact_gp(problem, Xs, draws, include_noise):
    """For any inducing inputs. The jitter makes s noisy by 1e-8, in q as in the prior."""
    problem = certain(problem)
    nu, _, alpha, _ = problem.theta
    X, y = problem.scaled
    C, _, _ = literal_noise(problem, Xs, np.arange(len(y)))
    m, S = oracles.exact_inducing_posterior(X, y, problem.Z, nu, alpha, C, JITTER)
    L_inv = np.linalg.inv(np.linalg.cholesky(oracles.sigma_zz(problem.Z, JITTER)))
    precision = np.linalg.inv(L_inv @ S @ L_inv.T)
    q = WhitenedGaussian(precision, precision @ (L_inv @ m))
    actual = predict(problem, q, draws, Xs, one_block(problem)[0], include_noise=include_noise)
    expected = exact_answers(problem, Xs)[include_noise]
    for one, other in zip(actual, expected, strict=True):
        assert_allclose(one, other, rtol=0, atol=1e-6)


def test_one_block_at_the_data_gives_the_exact_gp(problem, Xs, draws):
    """Z = X and eq. (7): the noise is then white, the residual of k^eps being the jitter.

    The tolerance is the jitter, 1e-8, over the noise variance, 0.2, for each of eleven rows.
    """
    problem = certain(problem)
    problem = problem.at(replace(problem.parameters, U=problem.scaled[0]))
    q = problem.evaluation().optimal_q
    X, y = problem.scaled
    nu, _, alpha, _ = problem.theta
    white = 0.2 * np.eye(len(y))
    expected = oracles.exact_gp(X, y, Xs, lambda A, B: oracles.k_xx(A, B, nu, alpha), white)
    for actual, other in zip(
        predict(problem, q, draws, Xs, one_block(problem)[0], include_noise=False),
        expected[:2],
        strict=True,
    ):
        assert_allclose(actual, other, rtol=0, atol=1e-5)


def test_block_tells_more_than_the_inducing_inputs(problem, draws):
    """At a row of the block itself the variance of f falls below that given u alone."""
    q, block = problem.evaluation().optimal_q, problem.batch[0]
    _, variance = predict(problem, q, draws, block.X, block, include_noise=False)
    m, S = problem.moments_of_s(q)
    lams, sigma_fs = literal_theta(problem, draws)
    parts = [
        oracles.predict_theta(block.X, problem.Z, m, S, lam, sigma_f, JITTER)
        for lam, sigma_f in zip(lams, sigma_fs, strict=True)
    ]
    assert np.all(variance < np.mean([v for _, v in parts], axis=0))


def test_factors_serve_again(problem, Xs, draws):
    """They are not changed by use."""
    local, block = predictor(problem, random_q(4), draws), problem.batch[0]
    assert local.factors(0, block).n_bytes == N_DRAWS * 8 * (4 * 2 + 4 * 4 + 4 * 4)
    first, second = (local.moments(Xs, 0, block, include_noise=True, full=True) for _ in range(2))
    assert_array_equal(first[0], second[0])
    assert_array_equal(first[1], second[1])


@pytest.mark.thorough
def test_posterior_serves_again_as_long_as_its_state_lives():
    X, y = make_data()
    model = small(VBPICRegressor, max_iter=1).fit(X, y)
    posteriors = [model._learner().posterior(model._state) for _ in range(2)]
    assert posteriors[0] is posteriors[1]
    state = weakref.ref(model._state)
    model.fit(X, y)
    gc.collect()
    assert state() is None
