"""Dense twins of EP-DTC [Andrade2014], literal and slow.

EP itself is Algorithm 3.5 of Rasmussen and Williams, "Gaussian Processes for Machine Learning",
MIT Press 2006, without its Cholesky factors: n x n matrices are inverted and sites visited one by
one. Expectations over uncertain inputs are Gauss-Hermite sums. Labels are -1 and 1.
"""

import functools
import itertools

import numpy as np
from scipy.special import expit, log_ndtr
from scipy.stats import multivariate_normal, norm

hermegauss = functools.cache(np.polynomial.hermite_e.hermegauss)  # takes milliseconds

# ------------------------------------------------------------------------------------------
# expectation propagation


def dense_ep(K, t, tilted, n_sweeps=500, tol=1e-13):
    """Sites tau, nu (n,) of f ~ N(0, K), its posterior mean and covariance, and log evidence.

    ``tilted`` gives the moments of the likelihood.
    """
    n = len(t)
    tau, nu = np.zeros(n), np.zeros(n)
    Sigma, mu = K.copy(), np.zeros(n)
    for _ in range(n_sweeps):
        before = np.concatenate([tau, nu])
        for i in range(n):
            c, v = cavity(mu[i], Sigma[i, i], tau[i], nu[i])
            _, mean, variance = tilted(t[i], c, v)
            tau[i], nu[i] = 1.0 / variance - 1.0 / v, mean / variance - c / v
            mu, Sigma = posterior(K, tau, nu)
        if np.max(np.abs(np.concatenate([tau, nu]) - before)) < tol:
            break
    return tau, nu, mu, Sigma, log_evidence(K, t, tau, nu, tilted)


def posterior(K, tau, nu):
    """(K^-1 + diag(tau))^-1 and its product with nu, (S.10) and (S.11); K may be singular."""
    Sigma = np.linalg.inv(np.eye(len(K)) + K * tau) @ K
    return Sigma @ nu, Sigma


def cavity(mu, variance, tau, nu):
    """Mean and variance without a site."""
    precision = 1.0 / variance - tau
    return (mu / variance - nu) / precision, 1.0 / precision


def tilted_probit(t, c, v):
    """Normaliser, mean and variance of Phi(t f) N(f | c, v), their (3.58)."""
    z = t * c / np.sqrt(1.0 + v)
    ratio = norm.pdf(z) / norm.cdf(z)
    mean = c + t * v * ratio / np.sqrt(1.0 + v)
    return norm.cdf(z), mean, v - v**2 * ratio / (1.0 + v) * (z + ratio)


def tilted_logistic(t, c, v, n_nodes=200):
    """The same of 1 / (1 + exp(-t f)), as Gauss-Hermite sums."""
    f, weights = hermegauss(n_nodes)
    f = c + np.sqrt(v) * f
    weights = weights / weights.sum() * expit(t * f)
    z, first, second = weights @ np.column_stack([np.ones_like(f), f - c, (f - c) ** 2])
    return z, c + first / z, second / z - (first / z) ** 2


def log_evidence(K, t, tau, nu, tilted):
    """log Z-tilde + log N(mu-tilde | 0, K + Sigma-tilde): (S.21) with its logarithm, no trace."""
    mu, Sigma = posterior(K, tau, nu)
    log_z_tilde = 0.0
    for i in range(len(t)):
        c, v = cavity(mu[i], Sigma[i, i], tau[i], nu[i])
        s2 = v + 1.0 / tau[i]
        log_z_tilde += np.log(tilted(t[i], c, v)[0])
        log_z_tilde += 0.5 * np.log(2.0 * np.pi * s2) + 0.5 * (c - nu[i] / tau[i]) ** 2 / s2
    gaussian = multivariate_normal(np.zeros(len(t)), K + np.diag(1.0 / tau))
    return log_z_tilde + gaussian.logpdf(nu / tau)


def predict(K, K_star, k_star_star, tau, nu):
    """Mean and variance of f at new rows, K_star (n*, n), k_star_star (n*,)."""
    B = np.linalg.inv(np.eye(len(K)) + K * tau)
    mean = K_star @ (nu - tau * (B @ K @ nu))
    variance = k_star_star - np.einsum("in,nm,im->i", K_star, np.diag(tau) @ B, K_star)
    return mean, variance


# ------------------------------------------------------------------------------------------
# the squared exponential kernel and its expectations under q(x) = N(mu, diag(s))


def se(X, Z, variance, length_scale):
    """k(x, z) = variance exp(-sum_k (x_k - z_k)^2 / l_k^2 / 2), (n, m)."""
    differences = (X[:, None, :] - Z[None, :, :]) / length_scale
    return variance * np.exp(-0.5 * np.sum(differences**2, axis=2))


def expectation(function, mu, s, n_nodes=40):
    """E[function(x)], x ~ N(mu, diag(s)) of few entries; function maps (N, d) to (N, ...)."""
    nodes, weights = hermegauss(n_nodes)
    weights = weights / weights.sum()
    grid = np.array(list(itertools.product(nodes, repeat=len(mu))))
    weight = np.prod(list(itertools.product(weights, repeat=len(mu))), axis=1)
    return np.tensordot(weight, function(mu + np.sqrt(s) * grid), axes=1)


def psi1(mu, s, Z, variance, length_scale):
    """<K_fu>, (n, m)."""
    return np.array(
        [
            expectation(lambda x: se(x, Z, variance, length_scale), mu_i, s_i)
            for mu_i, s_i in zip(mu, s, strict=True)
        ]
    )


def psi2(mu, s, Z, variance, length_scale):
    """<k_u(x_i) k_u(x_i)'> of every row, (n, m, m)."""

    def outer(x):
        k = se(x, Z, variance, length_scale)
        return k[:, :, None] * k[:, None, :]

    return np.array([expectation(outer, mu_i, s_i) for mu_i, s_i in zip(mu, s, strict=True)])


def uncertain_prior(mu, s, Z, variance, length_scale, approximation, jitter):
    """Covariance of f, (n, n), and the residual of the trace correction, (n,), cf. (S.35)."""
    K_inv = np.linalg.inv(se(Z, Z, variance, length_scale) + jitter * variance * np.eye(len(Z)))
    Psi1 = psi1(mu, s, Z, variance, length_scale)
    Psi2 = psi2(mu, s, Z, variance, length_scale)
    Q = Psi1 @ K_inv @ Psi1.T
    explained = np.einsum("nab,ab->n", Psi2, K_inv)
    if approximation == "dtc":
        return Q + np.diag(explained - np.diag(Q)), variance - explained
    return Q + np.diag(variance - np.diag(Q)), np.zeros(len(mu))


def corrected_evidence(mu, s, t, Z, variance, length_scale, approximation, jitter):
    """(S.34) with converged sites: log evidence, sites tau and nu."""
    K, residual = uncertain_prior(mu, s, Z, variance, length_scale, approximation, jitter)
    tau, nu, _, _, evidence = dense_ep(K, t, tilted_probit)
    return evidence - 0.5 * tau @ residual, tau, nu


# ------------------------------------------------------------------------------------------
# a joint Gaussian with missing entries


def conditional(x, mean, covariance):
    """Mean and covariance (d,), (d, d) of a row with NaN given its other entries."""
    u, o = np.isnan(x), ~np.isnan(x)
    full_mean, full_covariance = x.copy(), np.zeros((len(x), len(x)))
    gain = covariance[np.ix_(u, o)] @ np.linalg.inv(covariance[np.ix_(o, o)])
    full_mean[u] = mean[u] + gain @ (x[o] - mean[o])
    full_covariance[np.ix_(u, u)] = covariance[np.ix_(u, u)] - gain @ covariance[np.ix_(o, u)]
    return full_mean, full_covariance


def tempered_probit(t, c, s, noise, power):
    """Log normaliser, mean and variance of Phi(t g / sqrt(1 + noise))^power under N(c, s)."""
    reach = 12.0 * np.sqrt(s) + s * max(-t * c, 0.0) / (1.0 + s)  # as far as Phi may move g
    g = np.linspace(c - reach, c + reach, 40_001)
    log_p = power * log_ndtr(t * g / np.sqrt(1.0 + noise)) - 0.5 * (g - c) ** 2 / s
    top = log_p.max()
    p = np.exp(log_p - top) / np.sqrt(2.0 * np.pi * s) * (g[1] - g[0])
    mean = p @ g / p.sum()
    return top + np.log(p.sum()), mean, p @ (g - mean) ** 2 / p.sum()
