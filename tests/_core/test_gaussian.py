"""Whitened q(u) and Kullback-Leibler divergences against dense formulas."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from skvbgp._core.gaussian import (
    WhitenedGaussian,
    ZeroMeanNormal,
    kl_terms,
    scan_log_normal_density,
)
from skvbgp._core.linalg import NotPositiveDefiniteError
from tests.derivatives import numerical_gradient
from tests.oracles import sgpr as oracles

M = 5


@pytest.fixture
def q(rng):
    root = rng.normal(size=(M, M))
    return WhitenedGaussian(np.eye(M) + root @ root.T, rng.normal(size=M))


def test_moments(q):
    """Condition number of the precision below 100: twelve digits remain."""
    covariance = np.linalg.inv(q.precision)
    mean = covariance @ q.shift
    assert_allclose(q.covariance, covariance, rtol=1e-12, atol=1e-13)
    assert_allclose(q.mean, mean, rtol=1e-12, atol=1e-13)
    excess = covariance + np.outer(mean, mean) - np.eye(M)
    assert_allclose(q.excess_moment, excess, rtol=1e-12, atol=1e-13)
    R = q.precision_factor_inv
    assert_allclose(R.T @ R, covariance, rtol=1e-12, atol=1e-13)
    # asking for the excess leaves the covariance as it was
    assert_allclose(q.covariance, covariance, rtol=1e-12, atol=1e-13)


def test_a_precision_that_needs_no_jitter_is_factorised_once(q, monkeypatch):
    expected = WhitenedGaussian(q.precision, q.shift).precision_factor
    q.refuse_jitter()
    monkeypatch.setattr("skvbgp._core.gaussian.cholesky", None)
    assert_array_equal(q.precision_factor, expected)


def test_a_precision_that_needs_jitter_is_refused():
    q = WhitenedGaussian(np.ones((2, 2)) - 1e-12 * np.eye(2), np.zeros(2))
    with pytest.raises(NotPositiveDefiniteError, match="precision of q"):
        q.refuse_jitter()
    assert np.isfinite(q.precision_factor).all()


def test_kl_to_prior(q):
    expected = oracles.kl_gauss(q.mean, np.linalg.inv(q.precision), np.zeros(M), np.eye(M))
    assert_allclose(q.kl_to_prior, expected, rtol=1e-12)
    assert q.kl_to_prior > 0.1


def test_kl_to_another(q, rng):
    root = rng.normal(size=(M, M))
    other = WhitenedGaussian(np.eye(M) + root @ root.T, rng.normal(size=M))
    moments = [part for one in (q, other) for part in (one.mean, np.linalg.inv(one.precision))]
    assert_allclose(q.kl_to(other), oracles.kl_gauss(*moments), rtol=1e-11)
    assert_allclose(q.kl_to(WhitenedGaussian.standard(M)), q.kl_to_prior, rtol=1e-12)
    assert_allclose(q.kl_to(q), 0.0, atol=1e-12)


def test_moved(q, rng):
    v = rng.normal(size=M)
    assert_allclose(q.moved(v).mean, q.mean + v, rtol=1e-12)
    assert_array_equal(q.moved(v).precision, q.precision)


def test_standard():
    q = WhitenedGaussian.standard(M)
    assert_array_equal(q.mean, np.zeros(M))
    assert_array_equal(q.covariance, np.eye(M))
    assert_array_equal(q.excess_moment, np.zeros((M, M)))
    assert q.kl_to_prior == 0.0


def test_with_information(q, rng):
    root, shift = rng.normal(size=(M, 2)), rng.normal(size=M)
    more = q.with_information(root @ root.T, shift)
    assert_allclose(more.precision, q.precision + root @ root.T)
    assert_allclose(more.shift, q.shift + shift)


def test_information_adds_over_chunks_of_data(rng):
    """Bayes' rule for y = A u + noise, in two chunks, against the dense posterior."""
    A, y = rng.normal(size=(8, M)), rng.normal(size=8)
    q = WhitenedGaussian.standard(M)
    for rows in (slice(0, 3), slice(3, 8)):
        q = q.with_information(A[rows].T @ A[rows] / 0.1, A[rows].T @ y[rows] / 0.1)
    gain = A.T @ np.linalg.inv(A @ A.T + 0.1 * np.eye(8))
    assert_allclose(q.mean, gain @ y, rtol=1e-10, atol=1e-11)
    assert_allclose(q.covariance, np.eye(M) - gain @ A, rtol=1e-10, atol=1e-11)


def test_kl_terms(rng):
    mean, prior_mean = rng.normal(size=(2, 4))
    variance, prior_variance = rng.uniform(0.5, 2.0, size=(2, 4))
    terms, d_mean, d_variance = kl_terms(mean, variance, prior_mean, prior_variance)
    dense = oracles.kl_gauss(mean, np.diag(variance), prior_mean, np.diag(prior_variance))
    assert_allclose(terms.sum(), dense, rtol=1e-13)

    def of_mean(x):
        return kl_terms(x, variance, prior_mean, prior_variance)[0].sum()

    def of_variance(x):
        return kl_terms(mean, x, prior_mean, prior_variance)[0].sum()

    assert_allclose(d_mean, numerical_gradient(of_mean, mean), rtol=1e-9, atol=1e-10)
    assert_allclose(d_variance, numerical_gradient(of_variance, variance), rtol=1e-9, atol=1e-9)
    # q = p: nothing, and a minimum
    assert_allclose(kl_terms(mean, variance, mean, variance), 0.0, atol=1e-15)


def test_zero_mean_normal(rng):
    A, y, V = rng.standard_normal((4, 4)), rng.standard_normal(4), rng.standard_normal((4, 4))
    C, V = A @ A.T + np.eye(4), V + V.T
    normal = ZeroMeanNormal.of(np.linalg.cholesky(C), y)
    assert_allclose(normal.log_density, stats.multivariate_normal(np.zeros(4), C).logpdf(y))
    assert_allclose(normal.weights, np.linalg.solve(C, y))

    def along(t):
        return ZeroMeanNormal.of(np.linalg.cholesky(C + t[0] * V), y).log_density

    assert_allclose(
        np.sum(normal.gradient() * V), numerical_gradient(along, np.zeros(1))[0], rtol=1e-7
    )


def test_scan_log_normal_density(rng):
    A, y = rng.standard_normal((4, 3)), rng.standard_normal(4)
    K, signal, noise = A @ A.T, np.array([0.5, 2.0, 0.0]), np.array([0.1, 3.0, 1.0])
    expected = [
        stats.multivariate_normal(np.zeros(4), a * K + s2 * np.eye(4)).logpdf(y)
        for a, s2 in zip(signal, noise, strict=True)
    ]
    assert_allclose(scan_log_normal_density(K, y, signal, noise), expected)


def test_scan_where_numpy_finds_no_eigenvalues(rng, monkeypatch):
    """As of nearly diagonal matrices, whose small entries underflow."""

    def fail(*args, **kwargs):
        raise np.linalg.LinAlgError("Eigenvalues did not converge")

    A, y = rng.standard_normal((4, 3)), rng.standard_normal(4)
    K, signal, noise = A @ A.T, np.array([0.5, 2.0, 0.0]), np.array([0.1, 3.0, 1.0])
    expected = scan_log_normal_density(K, y, signal, noise)
    monkeypatch.setattr(np.linalg, "eigh", fail)
    assert_allclose(scan_log_normal_density(K, y, signal, noise), expected)
