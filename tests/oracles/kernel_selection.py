"""Literal dense twins of the formulas of variational Bayesian kernel selection."""

import numpy as np
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

JITTER = 1e-8


def log_evidence(K, noise, y):
    """log N(y | 0, K + s2 I)."""
    return multivariate_normal(np.zeros(len(y)), K + noise * np.eye(len(y))).logpdf(y)


def whitened_features(Kxz, Kzz):
    """A = Kxz L^-T for Kzz + jitter = L L'."""
    L = np.linalg.cholesky(Kzz + JITTER * np.mean(np.diag(Kzz)) * np.eye(len(Kzz)))
    return np.linalg.solve(L, Kxz.T).T


def titsias_bound(Kxz, Kzz, diagonal, noise, y):
    """log N(y | 0, Q + s2 I) - tr(Kxx - Q) / (2 s2) for Q = Kxz Kzz^-1 Kzx."""
    A = whitened_features(Kxz, Kzz)
    Q = A @ A.T
    return log_evidence(Q, noise, y) - np.sum(diagonal - np.diag(Q)) / (2.0 * noise)


def local_bound(Kxz, Kzz, diagonal, noise, y, mean, covariance):
    """Eq. (9) at fixed hyperparameters, row by row, for q(u) = N(mean, covariance), whitened."""
    A = whitened_features(Kxz, Kzz)
    total = 0.0
    for a, k, target in zip(A, diagonal, y, strict=True):
        variance = k - a @ a + a @ covariance @ a  # of f(x) under q
        expected_square = (target - a @ mean) ** 2 + variance
        total += -0.5 * np.log(2.0 * np.pi * noise) - 0.5 * expected_square / noise
    _, log_det = np.linalg.slogdet(covariance)
    kl = 0.5 * (np.trace(covariance) + mean @ mean - len(mean) - log_det)
    return total - kl


def prediction(Kxz, Kzz, diagonal, mean, covariance):
    """Appendix D.2: mean and variance of f at new rows."""
    A = whitened_features(Kxz, Kzz)
    variance = [k - a @ a + a @ covariance @ a for a, k in zip(A, diagonal, strict=True)]
    return A @ mean, np.array(variance)


def belief_bound(local_bounds, mean, factor, prior_variance, nodes, weights):
    """Eq. (8) by a quadrature rule for e ~ N(0, I), with g = mean + factor e."""
    expected = 0.0
    for e, weight in zip(nodes, weights, strict=True):
        p = np.exp(mean + factor @ e)
        expected += weight * (p / p.sum()) @ local_bounds
    K = len(mean)
    covariance = factor @ factor.T
    _, log_det = np.linalg.slogdet(covariance / prior_variance)
    kl = 0.5 * (np.trace(covariance) / prior_variance + mean @ mean / prior_variance - K - log_det)
    return expected - kl


def season_gain(waves, y, level):
    """log p(y | waves) - log p(y), integrated over the amplitudes and over log s.

    y = a level of this variance + F b + noise of deviation s, b ~ N(0, n s2 (F'F)^-1) with F about
    its mean.
    """
    n = len(y)
    F = waves - waves.mean(axis=0)
    shared = n * waves @ np.linalg.solve(F.T @ F, waves.T)

    def log_evidence(of_waves):
        values = [
            multivariate_normal(cov=s2 * (np.eye(n) + of_waves) + level).logpdf(y)
            for s2 in np.exp(np.linspace(-3.0, 5.0, 200))
        ]
        return logsumexp(values)

    return log_evidence(shared) - log_evidence(np.zeros((n, n)))
