"""Literal dense twins of the sparse spectrum formulas ([Hoang2017]_), one loop per sum."""

import numpy as np
from scipy.stats import multivariate_normal


def phi(x, R):
    """Eq. (2): cos(2 pi r_1' x), sin(2 pi r_1' x), cos(2 pi r_2' x), ..."""
    values = []
    for r in R:
        values += [np.cos(2.0 * np.pi * (r @ x)), np.sin(2.0 * np.pi * (r @ x))]
    return np.array(values)


def design(X, R):
    """Phi_theta(X) of the paper, (2 m, n)."""
    return np.column_stack([phi(x, R) for x in X])


def split(alpha, m, d):
    return alpha[: m * d].reshape(m, d), alpha[m * d :]


def log_likelihood(alpha, X, y, m, noise_variance):
    """Lemma 2."""
    R, s = split(alpha, m, X.shape[1])
    v = y - design(X, R).T @ s
    return -0.5 * v @ v / noise_variance - 0.5 * len(y) * np.log(2.0 * np.pi * noise_variance)


def prior_covariance(m, length_scale, signal_variance):
    """blkdiag(Theta, Lambda)."""
    theta = np.tile(1.0 / (2.0 * np.pi * length_scale) ** 2, m)
    return np.diag(np.append(theta, np.full(2 * m, signal_variance / m)))


def kl(mean, covariance, prior_mean, prior_covariance):
    """KL between two Gaussians."""
    precision, shift = np.linalg.inv(prior_covariance), mean - prior_mean
    log_ratio = np.linalg.slogdet(prior_covariance)[1] - np.linalg.slogdet(covariance)[1]
    trace = np.trace(precision @ covariance)
    return 0.5 * (trace + shift @ precision @ shift - len(mean) + log_ratio)


def expected_squared_error(mean, covariance, X, y, m):
    """E_q |y - Phi' s|^2 in closed form, for any Gaussian q(alpha).

    f(x) = Re sum_i (s_2i - i s_2i+1) exp(i omega_i), omega_i = 2 pi r_i' x, and for jointly
    Gaussian a, b, w: E[a b e^iw] = (cov(a, b) + (E a + i cov(a, w)) (E b + i cov(b, w)))
    exp(i E w - var(w) / 2).
    """
    d, total = X.shape[1], 0.0
    for x, target in zip(X, y, strict=True):
        A = np.zeros((m, len(mean)))  # omega = A alpha
        for i in range(m):
            A[i, i * d : (i + 1) * d] = 2.0 * np.pi * x
        first, second = 0.0, 0.0
        for i in range(m):
            for p, kind in enumerate((1.0, -1.0j)):
                a = m * d + 2 * i + p
                first += (kind * _moment(mean, covariance, [a], A[i])).real
                for j in range(m):
                    for q, other in enumerate((1.0, -1.0j)):
                        b = m * d + 2 * j + q
                        # Re(u) Re(v) = Re(u v + u conj(v)) / 2
                        plus = kind * other * _moment(mean, covariance, [a, b], A[i] + A[j])
                        minus = (
                            kind * np.conj(other) * _moment(mean, covariance, [a, b], A[i] - A[j])
                        )
                        second += 0.5 * (plus + minus).real
        total += target**2 - 2.0 * target * first + second
    return total


def _moment(mean, covariance, entries, w):
    """E[prod alpha_entries exp(i w' alpha)]."""
    shifted = mean + 1j * (covariance @ w)
    value = np.exp(1j * (w @ mean) - 0.5 * w @ covariance @ w)
    if len(entries) == 1:
        return shifted[entries[0]] * value
    a, b = entries
    return (covariance[a, b] + shifted[a] * shifted[b]) * value


def lower_bound(mean, covariance, X, y, m, length_scale, signal_variance, noise_variance):
    """L(q), without any sampling."""
    error = expected_squared_error(mean, covariance, X, y, m)
    fit = -0.5 * error / noise_variance - 0.5 * len(y) * np.log(2.0 * np.pi * noise_variance)
    prior = prior_covariance(m, length_scale, signal_variance)
    return fit - kl(mean, covariance, np.zeros(len(mean)), prior)


def reparameterised_draw(M, b, z, X, y, m, length_scale, signal_variance, noise_variance):
    """log p(y | alpha) - log q(alpha) / p(alpha) at alpha = M z + b, in Lemma 1's form (6)."""
    alpha = M @ z + b
    log_q = multivariate_normal(np.zeros(len(z))).logpdf(z) - np.linalg.slogdet(M)[1]
    prior = prior_covariance(m, length_scale, signal_variance)
    log_p = multivariate_normal(np.zeros(len(b)), prior).logpdf(alpha)
    return log_likelihood(alpha, X, y, m, noise_variance) - log_q + log_p


def reparameterised_gradient(M, b, z, X, y, m, length_scale, signal_variance, noise_variance):
    """Its gradient in M, of any shape, and b: Theorem 1, Apps. D and F, entry by entry."""
    alpha, D, d = M @ z + b, len(b), X.shape[1]
    R, s = split(alpha, m, d)
    g = np.zeros(D)  # of log p(y | alpha): -0.5 / noise times the gradient of v_i^2, row by row
    for x, target in zip(X, y, strict=True):
        v = target - phi(x, R) @ s
        dv = np.zeros(D)
        for i in range(m):
            angle = 2.0 * np.pi * (R[i] @ x)
            slope = -np.sin(angle) * s[2 * i] + np.cos(angle) * s[2 * i + 1]
            dv[i * d : (i + 1) * d] = -2.0 * np.pi * slope * x
        dv[m * d :] = -phi(x, R)
        g += -0.5 / noise_variance * 2.0 * v * dv
    g_prior = -np.linalg.inv(prior_covariance(m, length_scale, signal_variance)) @ alpha
    dM, db = np.linalg.inv(M).T, np.zeros(D)  # of -log q = log |M| + const
    for k in range(D):
        d_alpha = np.zeros((D, D))  # alpha_k in M: I(k = i) z_j
        d_alpha[k] = z
        dM = dM + d_alpha * (g[k] + g_prior[k])
        db[k] = g[k] + g_prior[k]
    return dM, db


def log_evidence(X, y, R, signal_variance, noise_variance):
    """log N(y | 0, Phi' Lambda Phi + noise I)."""
    Phi = design(X, R)
    K = signal_variance / len(R) * Phi.T @ Phi + noise_variance * np.eye(len(y))
    return multivariate_normal(np.zeros(len(y)), K).logpdf(y)


def weighted_log_evidence(X, y, weight, R, signal_variance, noise_variance):
    """log of the integral of prod_i N(y_i | f_i, noise)^w_i over f ~ N(0, Phi' Lambda Phi)."""
    Phi = design(X, R)
    K = signal_variance / len(R) * Phi.T @ Phi + np.diag(noise_variance / weight)
    more = (weight - 1.0) * np.log(2.0 * np.pi * noise_variance) + np.log(weight)
    return multivariate_normal(np.zeros(len(y)), K).logpdf(y) - 0.5 * np.sum(more)


def test_conditional(x, X_k, y_k, R, s, gamma, signal_variance, noise_variance):
    """Proposition 1: mean and variance of f(x) given alpha = (R, s) and the block's rows."""
    Phi, p = design(X_k, R), phi(x, R)
    Lambda_inv = len(R) / signal_variance * np.eye(2 * len(R))
    Gamma_inv = np.linalg.inv(Phi @ Phi.T + noise_variance * Lambda_inv)
    mean = gamma * p @ s + (1.0 - gamma) * p @ Gamma_inv @ Phi @ y_k
    return mean, (1.0 - gamma**2) * noise_variance * p @ Gamma_inv @ p


test_conditional.__test__ = False


def nearest(x, X, k):
    """Indices of the k rows of X that are nearest to x."""
    return np.argsort([np.sum((x - row) ** 2) for row in X], kind="stable")[:k]


def errors_of_draws(phi, X, R, s, noise, signal_variance, noise_variance):
    """phi' s less what the ridge regression makes of the values of phi' s at rows X with noise."""
    m = len(R)
    Phi, errors = design(X, R), []
    Gamma = Phi @ Phi.T + noise_variance * m / signal_variance * np.eye(2 * m)
    for weights, e in zip(s.T, noise.T, strict=True):
        values = Phi.T @ weights + np.sqrt(noise_variance) * e
        errors.append(phi @ weights - phi @ np.linalg.solve(Gamma, Phi @ values))
    return np.array(errors)


def neighbour_errors(X_new, X, near, R, signal_variance, noise_variance):
    """Covariance of f(x*) - E[f(x*) | y of its neighbours], for each pair of new rows.

    By the covariance of all functions and targets: an error is one linear function of them.
    """
    n_new, n = len(X_new), len(X)
    Phi = design(np.concatenate([X_new, X]), R)
    C = signal_variance / len(R) * Phi.T @ Phi
    C[n_new:, n_new:] += noise_variance * np.eye(n)
    E = np.zeros((n_new, n_new + n))
    for i, index in enumerate(near):
        own = n_new + np.asarray(index)
        E[i, i] = 1.0
        E[i, own] = -np.linalg.solve(C[np.ix_(own, own)], C[own, i])
    return E @ C @ E.T
