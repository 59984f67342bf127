"""Literal, dense forms of the decoupled model's formulas; slow and free of tricks.

Features live in a space of finite dimension: a basis is a matrix Psi whose columns are the
features of its points, and the function is f = Psi' w for a Gaussian weight w.
"""

import numpy as np
from scipy.special import log_ndtr


def kl_dense(mean_q, cov_q, mean_p, cov_p):
    """Proposition 1: KL between two Gaussians of finite dimension."""
    P = np.linalg.inv(cov_p)
    shift = mean_q - mean_p
    log_det = np.linalg.slogdet(cov_p)[1] - np.linalg.slogdet(cov_q)[1]
    return 0.5 * (np.trace(P @ cov_q) + shift @ P @ shift + log_det - len(shift))


def kl_theorem_1(K, a, B, a_bar, B_bar):
    """Theorem 1, eq. (17); ``K(s, t)`` has the Gram matrix of two bases by name.

    The names are "a", "b" for q and "A", "B" for p.
    """
    R = np.linalg.inv(np.linalg.inv(B) + K("b", "b"))
    G_b = K("b", "b") + K("b", "B") @ B_bar @ K("B", "b")
    G_a = K("a", "a") + K("a", "B") @ B_bar @ K("B", "a")
    G_aA = K("a", "A") + K("a", "B") @ B_bar @ K("B", "A")
    G_A = K("A", "A") + K("A", "B") @ B_bar @ K("B", "A")
    log_det = np.linalg.slogdet(np.eye(len(B)) + K("b", "b") @ B)[1]
    log_det_p = np.linalg.slogdet(np.eye(len(B_bar)) + K("B", "B") @ B_bar)[1]
    constant = 0.5 * (np.trace(K("B", "B") @ B_bar) - log_det_p + a_bar @ G_A @ a_bar)
    return (
        -0.5 * np.trace(G_b @ R) + 0.5 * log_det + 0.5 * a @ G_a @ a - a @ G_aA @ a_bar + constant
    )


def generalized_se(Z, c, Z2, c2, variance, length_scale):
    """Eq. (19), dimension by dimension; c has one multiplier for all of them, or (m, d)."""
    c, c2 = (np.ones(len(length_scale)) * np.reshape(one, (len(one), -1)) for one in (c, c2))
    K = np.full((len(Z), len(Z2)), variance)
    for i in range(len(Z)):
        for j in range(len(Z2)):
            for k, s in enumerate(length_scale):
                u, v = s * c[i, k], s * c2[j, k]
                total = u**2 + v**2
                K[i, j] *= np.sqrt(2.0 * u * v / total)
                K[i, j] *= np.exp(-((Z[i, k] - Z2[j, k]) ** 2) / total)
    return K


def sparse_gp(Kxx, Kxz, Kzz, mean_z, cov_z):
    """The coupled model: moments of f at x, and KL(q(f_z) || p(f_z))."""
    W = np.linalg.solve(Kzz, Kxz.T).T
    mean = W @ mean_z
    covariance = Kxx - W @ (Kzz - cov_z) @ W.T
    return mean, covariance, kl_dense(mean_z, cov_z, np.zeros(len(Kzz)), Kzz)


def gaussian_expectation(y, mean, variance, noise):
    """Sum of E[log N(y | f, noise)] for f ~ N(mean, variance)."""
    return np.sum(-0.5 * (np.log(2.0 * np.pi * noise) + ((y - mean) ** 2 + variance) / noise))


def weighted_log_evidence(y, K, noise, weight):
    """Of rows that are there as often as their weights say: those of one place are averaged."""
    C = K + np.diag(noise / weight)
    normal = -0.5 * (len(y) * np.log(2.0 * np.pi) + np.linalg.slogdet(C)[1])
    normal -= 0.5 * y @ np.linalg.solve(C, y)
    return normal - 0.5 * np.sum((weight - 1.0) * np.log(2.0 * np.pi * noise) + np.log(weight))


def choose_points(K_rows, K, counts, size, jitter, worth):
    """Points that are left when, one by one, the one goes without which the rows lose least.

    ``K_rows`` (n, m) are covariances with the points, and a loss counts ``worth`` (m,) times.
    """
    K = K + jitter * np.mean(np.diag(K)) * np.eye(len(K))

    def explained(points):
        A = K_rows[:, points]
        return counts @ np.sum(A * np.linalg.solve(K[np.ix_(points, points)], A.T).T, axis=1)

    left = list(range(len(K)))
    while len(left) > size:
        rest = [[j for j in left if j != i] for i in left]
        losses = [
            worth[i] * (explained(left) - explained(others))
            for i, others in zip(left, rest, strict=True)
        ]
        left.pop(int(np.argmin(losses)))
    return left


def left_out_scores(K, t, mean, variance, weight):
    """Scores of rows from the sites of all others, or of one copy less of their own.

    The sites are those of probits at q's moments, each there as often as the row's weight says, of
    which at most 1 is left out; the prior is N(0, K).
    """
    z = np.linspace(-9.0, 9.0, 4001)
    p = np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi) * (z[1] - z[0])
    f = t[:, None] * (mean[:, None] + np.sqrt(variance)[:, None] * z)
    ratio = np.exp(-0.5 * f**2 - 0.5 * np.log(2.0 * np.pi) - log_ndtr(f))
    tau = (ratio * (f + ratio)) @ p
    nu = t * (ratio @ p) + tau * mean
    scores = []
    for i in range(len(t)):
        count = weight - np.minimum(weight, 1.0) * (np.arange(len(t)) == i)
        S = np.linalg.inv(np.linalg.inv(K) + np.diag(count * tau))
        scores.append(S[i] @ (count * nu) / np.sqrt(1.0 + S[i, i]))
    return np.array(scores)
