"""Dense EP for Gaussian process classification with probit sites, literally.

Rasmussen and Williams, "Gaussian Processes for Machine Learning", MIT Press 2006, Algorithm 3.5
without its Cholesky factors: n x n matrices are inverted, sites visited one by one.
"""

import numpy as np
from scipy.stats import multivariate_normal, norm


def dense_ep(K, y, n_sweeps=200, noise=None, tol=1e-13):
    """Sites tau, nu (n,), posterior mean and covariance of f, and log evidence.

    K (n, n) is the prior covariance of f, y holds -1 and 1.
    """
    n = len(y)
    tau, nu = np.zeros(n), np.zeros(n)
    Sigma, mu = K.copy(), np.zeros(n)
    for _ in range(n_sweeps):
        before = np.concatenate([tau, nu])
        for i in range(n):
            c, v = cavity(mu[i], Sigma[i, i], tau[i], nu[i])
            _, mean, variance = tilted(y[i], c, v)
            tau[i], nu[i] = 1.0 / variance - 1.0 / v, mean / variance - c / v
            Sigma = np.linalg.inv(np.eye(n) + K * tau) @ K
            mu = Sigma @ nu
        if np.max(np.abs(np.concatenate([tau, nu]) - before)) < tol:
            break
    return tau, nu, mu, Sigma, dense_log_evidence(K, y, tau, nu)


def cavity(mu, variance, tau, nu):
    precision = 1.0 / variance - tau
    return (mu / variance - nu) / precision, 1.0 / precision


def tilted(y, c, v):
    """Normaliser, mean and variance of Phi(y f) N(f | c, v), GPML (3.58)."""
    z = y * c / np.sqrt(1.0 + v)
    ratio = norm.pdf(z) / norm.cdf(z)
    mean = c + y * v * ratio / np.sqrt(1.0 + v)
    return norm.cdf(z), mean, v - v**2 * ratio / (1.0 + v) * (z + ratio)


def dense_log_evidence(K, y, tau, nu):
    """log Z-tilde + log N(mu-tilde | 0, K + Sigma-tilde), the corrected (S.21) without trace."""
    Sigma = np.linalg.inv(np.linalg.inv(K) + np.diag(tau))
    mu = Sigma @ nu
    log_z_tilde = 0.0
    for i in range(len(y)):
        c, v = cavity(mu[i], Sigma[i, i], tau[i], nu[i])
        s2 = v + 1.0 / tau[i]
        log_z_tilde += np.log(tilted(y[i], c, v)[0])
        log_z_tilde += 0.5 * np.log(2.0 * np.pi * s2) + 0.5 * (c - nu[i] / tau[i]) ** 2 / s2
    return log_z_tilde + multivariate_normal(np.zeros(len(y)), K + np.diag(1.0 / tau)).logpdf(
        nu / tau
    )
