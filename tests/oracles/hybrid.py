"""Dense twins of the latent-variable model [Andrade2014], [Titsias2010], literal and slow.

Expectations over the latents q(x_i) = N(mu_i, diag(s_i)) are the Gauss-Hermite sums of
`tests.oracles.ep`; every column has its own covariance matrices.
"""

import numpy as np
from numpy.polynomial.hermite_e import hermegauss

from tests.oracles import ep


def gplvm_column(y, mu, s, Z, variance, length_scale, beta, jitter):
    """The lower bound on log p(y | x) of a column without missing entries, averaged over q(x).

    Equation (14) of Titsias and Lawrence, "Bayesian Gaussian process latent variable model",
    AISTATS 2010, with noise precision beta.
    """
    n, m = len(y), len(Z)
    K = ep.se(Z, Z, variance, length_scale) + jitter * variance * np.eye(m)
    Psi1 = ep.psi1(mu, s, Z, variance, length_scale)
    Psi2 = ep.psi2(mu, s, Z, variance, length_scale).sum(axis=0)
    psi0 = n * variance
    W = beta * np.eye(n) - beta**2 * Psi1 @ np.linalg.inv(beta * Psi2 + K) @ Psi1.T
    log_dets = np.linalg.slogdet(K)[1] - np.linalg.slogdet(beta * Psi2 + K)[1]
    value = 0.5 * n * np.log(beta / (2.0 * np.pi)) + 0.5 * log_dets - 0.5 * y @ W @ y
    return value - 0.5 * beta * psi0 + 0.5 * beta * np.trace(np.linalg.solve(K, Psi2))


def site_column(tau, nu, mu, s, Z, variance, length_scale, jitter):
    """log of the integral over u of N(u | 0, K) exp E[sum_i nu_i f_i - tau_i f_i^2 / 2]."""
    K = ep.se(Z, Z, variance, length_scale) + jitter * variance * np.eye(len(Z))
    K_inv = np.linalg.inv(K)
    Psi1 = ep.psi1(mu, s, Z, variance, length_scale)
    Psi2 = ep.psi2(mu, s, Z, variance, length_scale)
    a = K_inv @ Psi1.T @ nu  # E[f_i] = a_i' u
    M = K_inv @ np.tensordot(tau, Psi2, 1) @ K_inv  # E[f_i^2] = u' M_i u + rest
    rest = tau @ (variance - np.einsum("nab,ab->n", Psi2, K_inv))
    precision = K_inv + M
    log_det = np.linalg.slogdet(K)[1] + np.linalg.slogdet(precision)[1]
    return 0.5 * a @ np.linalg.solve(precision, a) - 0.5 * log_det - 0.5 * rest


def discrete_column(t, mu, s, Z, variance, length_scale, tilted, jitter):
    """(S.34) with the sites of EP on N(0, Psi1' K^-1 Psi1 + Lambda); also tau and nu."""
    K, _ = ep.uncertain_prior(mu, s, Z, variance, length_scale, "dtc", jitter)
    tau, nu, _, _, evidence = ep.dense_ep(K, t, tilted)
    # log Z-tilde N(f | mu-tilde, Sigma-tilde), less what depends on f
    C = K + np.diag(1.0 / tau)
    target = nu / tau
    gaussian = 0.5 * (np.linalg.slogdet(2.0 * np.pi * C)[1] + target @ np.linalg.solve(C, target))
    log_scale = evidence + gaussian + 0.5 * np.sum(np.log(tau / (2.0 * np.pi)) - nu**2 / tau)
    return log_scale + site_column(tau, nu, mu, s, Z, variance, length_scale, jitter), tau, nu


def kl_to_standard(mu, s):
    """KL(q(X) || N(0, I)) as a sum of one-dimensional integrals on a grid."""
    total = 0.0
    for m, v in zip(mu.ravel(), s.ravel(), strict=True):
        x, step = np.linspace(m - 12.0 * np.sqrt(v), m + 12.0 * np.sqrt(v), 4001, retstep=True)
        log_q = -0.5 * (x - m) ** 2 / v - 0.5 * np.log(2.0 * np.pi * v)
        log_p = -0.5 * x**2 - 0.5 * np.log(2.0 * np.pi)
        total += step * np.sum(np.exp(log_q) * (log_q - log_p))
    return total


def row_bound(y, t, mean, variance, beta, tilted, weight, mu, s):
    """Bound of a row's latents q(x) = N(mu, diag(s)), given the moments of f there.

    Of its seen continuous entries y first, then of its discrete ones t, 0 where missing.
    """
    total = -kl_to_standard(mu, s)
    nodes, weights = hermegauss(20)
    for j, target in enumerate([*y, *t]):
        if j < len(y) and not np.isnan(target):
            f = mean[j] + np.sqrt(variance[j]) * nodes
            log_p = 0.5 * np.log(beta[j] / (2.0 * np.pi)) - 0.5 * beta[j] * (target - f) ** 2
            total += weight[j] * np.sum(weights * log_p) / weights.sum()
        elif j >= len(y) and target != 0.0:
            total += weight[j] * np.log(tilted(target, mean[j], variance[j])[0])
    return total


def moments(tau, nu, mu, s, Z, variance, length_scale, jitter, mu_new, s_new):
    """Mean and variance of f at new latents under the optimal q(u) of `site_column`."""
    K = ep.se(Z, Z, variance, length_scale) + jitter * variance * np.eye(len(Z))
    K_inv = np.linalg.inv(K)
    Psi1 = ep.psi1(mu, s, Z, variance, length_scale)
    Psi2 = ep.psi2(mu, s, Z, variance, length_scale)
    Sigma = np.linalg.inv(K_inv + K_inv @ np.tensordot(tau, Psi2, 1) @ K_inv)
    u = Sigma @ K_inv @ Psi1.T @ nu
    psi1_new = ep.psi1(mu_new, s_new, Z, variance, length_scale)
    psi2_new = ep.psi2(mu_new, s_new, Z, variance, length_scale)
    mean = psi1_new @ K_inv @ u
    inner = K_inv @ (Sigma + np.outer(u, u)) @ K_inv - K_inv
    return mean, variance + np.einsum("nab,ab->n", psi2_new, inner) - mean**2
