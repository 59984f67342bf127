"""Literal dense twins of the formulas of Yu, Hoang, Low, Jaillet (IJCNN 2019, arXiv 1711.00221).

Slow and obvious on purpose: every function follows one numbered equation or one appendix of the
paper with loops or dense matrices, so that the fast code can be tested against it.

Model (zeta = 1)
    f(x) = sigma_f s(Lambda x),  Lambda = diag(lambda_1..lambda_d),  s a standard GP (Remark 2),
    y = f(X) + eps,  eps ~ N(0, C).
Variational distribution
    q(s_Z) = N(m, S),  q(lambda_k) = N(nu_k, xi_k),  q(sigma_f) = N(alpha, beta).
    xi and beta are variances.
Prior
    s_Z ~ N(0, Sigma_ZZ),  (lambda_1..lambda_d, sigma_f) ~ N(prior_mean, diag(prior_variance));
    prior_mean, prior_variance are scalars or arrays (d + 1,), sigma_f last.

Shapes: X (n, d), y (n,), Z (m, d) *rotated* inducing inputs, C (n, n), nu and xi (d,).

jitter: Sigma_ZZ + jitter I takes the place of Sigma_ZZ everywhere. This is exact inference with
inducing variables s(Z) + N(0, jitter I), so bounds stay lower bounds for every jitter >= 0.
"""

import math

import numpy as np

# ------------------------------------------------------------------------------------------
# kernels for one fixed value of the hyperparameters (Sec. III)


def se(X, Z):
    """exp(-0.5 ||x - z||^2), the kernel of the standard GP s; (n, m)."""
    differences = X[:, None, :] - Z[None, :, :]
    return np.exp(-0.5 * np.sum(differences**2, axis=2))


def sigma_zz(Z, jitter=0.0):
    """Prior covariance of the inducing variables, Sigma_ZZ + jitter I; (m, m)."""
    return se(Z, Z) + jitter * np.eye(Z.shape[0])


def k_xz(X, Z, lam, sigma_f):
    """cov[f(x), s(z)] = sigma_f exp(-0.5 ||Lambda x - z||^2), Sec. III; (n, m)."""
    return sigma_f * se(X * lam, Z)


def k_xx(X1, X2, lam, sigma_f):
    """cov[f(x), f(x')] = sigma_f^2 exp(-0.5 ||Lambda x - Lambda x'||^2), Sec. II-A."""
    return sigma_f**2 * se(X1 * lam, X2 * lam)


# ------------------------------------------------------------------------------------------
# expectations under q(theta), App. C


def omega(X, Z, nu, xi, alpha):
    """Omega = E[K_XZ], App. C; (n, m), the transpose of the paper's Omega_ID."""
    n, d = X.shape
    result = np.zeros((n, Z.shape[0]))
    for i in range(n):
        for a in range(Z.shape[0]):
            product = 1.0
            for k in range(d):
                x, z = X[i, k], Z[a, k]
                scale = xi[k] * x**2 + 1.0
                product *= scale**-0.5 * math.exp(-((x * nu[k] - z) ** 2) / (2.0 * scale))
            result[i, a] = alpha * product
    return result


def psi(X, Z, nu, xi, alpha, beta, C_inv):
    """Psi = E[K_ZX C^-1 K_XZ], App. C; (m, m).

    The paper sums over pairs x, x' of one block; here over all pairs with a nonzero entry of
    the dense C^-1, which is the same thing.
    """
    n, d = X.shape
    n_inducing = Z.shape[0]
    result = np.zeros((n_inducing, n_inducing))
    for a in range(n_inducing):
        for b in range(n_inducing):
            for i in range(n):
                for j in range(n):
                    if C_inv[i, j] == 0.0:
                        continue
                    product = 1.0
                    for k in range(d):
                        x, xp, z, zp = X[i, k], X[j, k], Z[a, k], Z[b, k]
                        scale = xi[k] * (x**2 + xp**2) + 1.0
                        exponent = (
                            xi[k] * (zp * x - z * xp) ** 2
                            + (x * nu[k] - z) ** 2
                            + (xp * nu[k] - zp) ** 2
                        )
                        product *= scale**-0.5 * math.exp(-exponent / (2.0 * scale))
                    result[a, b] += (beta + alpha**2) * C_inv[i, j] * product
    return result


def upsilon(X, nu, xi, alpha, beta):
    """Upsilon = E[K_XX], App. C; (n, n)."""
    n, d = X.shape
    result = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            product = 1.0
            for k in range(d):
                r2 = (X[i, k] - X[j, k]) ** 2
                scale = xi[k] * r2 + 1.0
                product *= scale**-0.5 * math.exp(-(nu[k] ** 2) * r2 / (2.0 * scale))
            result[i, j] = (beta + alpha**2) * product
    return result


def sample_theta(nu, xi, alpha, beta, rng, n_samples):
    """Draws from q(theta): lam (n_samples, d) and sigma_f (n_samples,)."""
    lam = nu + np.sqrt(xi) * rng.standard_normal((n_samples, len(nu)))
    sigma_f = alpha + math.sqrt(beta) * rng.standard_normal(n_samples)
    return lam, sigma_f


def quadrature_theta(nu, xi, alpha, beta, order):
    """Tensor Gauss-Hermite rule for q(theta): lam (q, d), sigma_f (q,), weights (q,), sum 1.

    order**(d + 1) nodes: for d <= 2 this replaces Monte Carlo by about ten digits.
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(order)
    weights = weights / np.sum(weights)
    dimension = len(nu) + 1
    grid = np.meshgrid(*([nodes] * dimension), indexing="ij")
    weight_grid = np.meshgrid(*([weights] * dimension), indexing="ij")
    standard = np.column_stack([g.ravel() for g in grid])
    total = np.prod(np.column_stack([w.ravel() for w in weight_grid]), axis=1)
    lam = nu + np.sqrt(xi) * standard[:, :-1]
    sigma_f = alpha + math.sqrt(beta) * standard[:, -1]
    return lam, sigma_f, total


# ------------------------------------------------------------------------------------------
# Kullback-Leibler divergences


def kl_theta(nu, xi, alpha, beta, prior_mean, prior_variance):
    """KL(q(Lambda) q(sigma_f) || p(theta)) for a factorised Gaussian prior.

    The prior N(0, 1) gives the negative of the two last integrals of App. B.
    """
    d = len(nu)
    means = np.append(nu, alpha)
    variances = np.append(xi, beta)
    prior_mean = np.broadcast_to(prior_mean, (d + 1,))
    prior_variance = np.broadcast_to(prior_variance, (d + 1,))
    total = 0.0
    for k in range(d + 1):
        total += 0.5 * (
            variances[k] / prior_variance[k]
            + (means[k] - prior_mean[k]) ** 2 / prior_variance[k]
            - 1.0
            + math.log(prior_variance[k])
            - math.log(variances[k])
        )
    return total


def kl_gauss(m0, S0, m1, S1):
    """KL(N(m0, S0) || N(m1, S1))."""
    S1_inv = np.linalg.inv(S1)
    difference = m1 - m0
    return 0.5 * (
        np.trace(S1_inv @ S0)
        + difference @ S1_inv @ difference
        - len(m0)
        + np.linalg.slogdet(S1)[1]
        - np.linalg.slogdet(S0)[1]
    )


# ------------------------------------------------------------------------------------------
# the lower bound, eqs. (6), (7), (11) and App. B


def expected_log_likelihood(X, y, Z, m, S, nu, xi, alpha, beta, C, jitter=0.0):
    """F(q) = E_q[log p(y | f)] of App. B, with every constant.

    Additive over independent blocks of C: its value on block i is L_i(q) of Corollary 1 plus
    the block's -0.5 (n_i log 2 pi + log|C_i| + y_i' C_i^-1 y_i).
    """
    C_inv = np.linalg.inv(C)
    Sigma_inv = np.linalg.inv(sigma_zz(Z, jitter))
    Omega = omega(X, Z, nu, xi, alpha)
    Psi = psi(X, Z, nu, xi, alpha, beta, C_inv)
    Upsilon = upsilon(X, nu, xi, alpha, beta)
    return (
        -0.5 * len(y) * math.log(2.0 * math.pi)
        - 0.5 * np.linalg.slogdet(C)[1]
        - 0.5 * y @ C_inv @ y
        + m @ Sigma_inv @ Omega.T @ C_inv @ y
        - 0.5 * m @ Sigma_inv @ Psi @ Sigma_inv @ m
        - 0.5 * np.trace(S @ Sigma_inv @ Psi @ Sigma_inv)
        - 0.5 * np.trace(C_inv @ Upsilon)
        + 0.5 * np.trace(Sigma_inv @ Psi)
    )


def weighted_log_likelihood(X, y, weight, Z, m, S, nu, xi, alpha, beta, C, jitter=0.0):
    """Sum of weights times the expected log likelihood of each row; C is diagonal."""
    total = 0.0
    for i, w in enumerate(weight):
        row = slice(i, i + 1)
        total += w * expected_log_likelihood(
            X[row], y[row], Z, m, S, nu, xi, alpha, beta, C[row, row], jitter
        )
    return total


def weighted_block_log_likelihood(
    X, y, weight, Z, m, S, nu, xi, alpha, beta, C, noise_variance, jitter=0.0
):
    """The same with residuals e ~ N(0, R), R = C - sigma_n^2 I, that the copies of a row share.

    The integral of prod_i N(y_i | f_i + e_i, sigma_n^2)^w_i N(e | 0, R) over e is
    N(y | f, R + diag(sigma_n^2 / w)) times a constant, which the exponent gives at y = f.
    """
    n = len(y)
    residual = C - noise_variance * np.eye(n)
    spread = residual + np.diag(noise_variance / weight)
    own = np.full(n, noise_variance)
    constant = weighted_evidence(np.zeros(n), residual, own, weight)
    constant += 0.5 * np.linalg.slogdet(2.0 * math.pi * spread)[1]
    return constant + expected_log_likelihood(X, y, Z, m, S, nu, xi, alpha, beta, spread, jitter)


def bound_without_kl_theta(X, y, Z, m, S, nu, xi, alpha, beta, C, jitter=0.0):
    """bound(...) + kl_theta(...), the last long formula of App. B; finite at xi = beta = 0."""
    C_inv = np.linalg.inv(C)
    Sigma = sigma_zz(Z, jitter)
    Sigma_inv = np.linalg.inv(Sigma)
    Omega = omega(X, Z, nu, xi, alpha)
    Psi = psi(X, Z, nu, xi, alpha, beta, C_inv)
    Upsilon = upsilon(X, nu, xi, alpha, beta)
    Q = Sigma_inv @ Psi @ Sigma_inv + Sigma_inv
    # "const" of (6); the theta part of it is in kl_theta
    const = (
        -0.5 * len(y) * math.log(2.0 * math.pi)
        - 0.5 * np.linalg.slogdet(C)[1]
        - 0.5 * y @ C_inv @ y
        - 0.5 * np.linalg.slogdet(Sigma)[1]
        + 0.5 * Z.shape[0]
    )
    # eq. (6) without its last line
    return const + 0.5 * (
        2.0 * m @ Sigma_inv @ Omega.T @ C_inv @ y
        - m @ Q @ m
        - np.trace(S @ Q)
        - np.trace(C_inv @ Upsilon)
        + np.trace(Sigma_inv @ Psi)
        + np.linalg.slogdet(S)[1]
    )


def bound(X, y, Z, m, S, nu, xi, alpha, beta, C, prior_mean, prior_variance, jitter=0.0):
    """The complete uncollapsed bound L(q), eq. (6) with every constant."""
    without = bound_without_kl_theta(X, y, Z, m, S, nu, xi, alpha, beta, C, jitter)
    return without - kl_theta(nu, xi, alpha, beta, prior_mean, prior_variance)


def optimal_q(X, y, Z, nu, xi, alpha, beta, C, jitter=0.0):
    """(m*, S*) of eq. (7)."""
    C_inv = np.linalg.inv(C)
    Sigma = sigma_zz(Z, jitter)
    Omega = omega(X, Z, nu, xi, alpha)
    Psi = psi(X, Z, nu, xi, alpha, beta, C_inv)
    inverse = np.linalg.inv(Sigma + Psi)
    m = Sigma @ inverse @ Omega.T @ C_inv @ y
    S = Sigma @ inverse @ Sigma
    return m, S


def collapsed_bound_without_kl_theta(X, y, Z, nu, xi, alpha, beta, C, jitter=0.0):
    """collapsed_bound(...) + kl_theta(...); finite at xi = beta = 0."""
    C_inv = np.linalg.inv(C)
    Sigma = sigma_zz(Z, jitter)
    Sigma_inv = np.linalg.inv(Sigma)
    Omega = omega(X, Z, nu, xi, alpha)
    Psi = psi(X, Z, nu, xi, alpha, beta, C_inv)
    Upsilon = upsilon(X, nu, xi, alpha, beta)
    # "const" of (11): log|Sigma| has the opposite sign of the one hidden in (6)
    const = (
        -0.5 * len(y) * math.log(2.0 * math.pi)
        - 0.5 * np.linalg.slogdet(C)[1]
        - 0.5 * y @ C_inv @ y
        + 0.5 * np.linalg.slogdet(Sigma)[1]
    )
    return const + 0.5 * (
        y @ C_inv @ Omega @ np.linalg.inv(Sigma + Psi) @ Omega.T @ C_inv @ y
        - np.trace(C_inv @ Upsilon)
        + np.trace(Sigma_inv @ Psi)
        - np.linalg.slogdet(Sigma + Psi)[1]
    )


def collapsed_bound(X, y, Z, nu, xi, alpha, beta, C, prior_mean, prior_variance, jitter=0.0):
    """The complete collapsed bound, eq. (11) with every constant."""
    without = collapsed_bound_without_kl_theta(X, y, Z, nu, xi, alpha, beta, C, jitter)
    return without - kl_theta(nu, xi, alpha, beta, prior_mean, prior_variance)


def conditional_log_likelihood(X, y, Z, m, S, lam, sigma_f, C, jitter=0.0):
    """E_{q(s) p(f | s, theta)}[log N(y | f, C)] for one fixed theta: H of App. B, s averaged.

    No formula of App. C is used: f given s is the conditional (3).
    """
    C_inv = np.linalg.inv(C)
    Sigma = sigma_zz(Z, jitter)
    A = k_xz(X, Z, lam, sigma_f) @ np.linalg.inv(Sigma)
    residual = k_xx(X, X, lam, sigma_f) - A @ Sigma @ A.T  # covariance of (3)
    f_mean = A @ m
    f_cov = residual + A @ S @ A.T
    error = y - f_mean
    return (
        -0.5 * len(y) * math.log(2.0 * math.pi)
        - 0.5 * np.linalg.slogdet(C)[1]
        - 0.5 * error @ C_inv @ error
        - 0.5 * np.trace(C_inv @ f_cov)
    )


def bound_monte_carlo(
    X,
    y,
    Z,
    m,
    S,
    nu,
    xi,
    alpha,
    beta,
    C,
    prior_mean,
    prior_variance,
    rng,
    n_samples,
    jitter=0.0,
):
    """bound(...) with theta sampled from q, KL(q(theta) || p(theta)) included.

    Returns the estimate and its standard error.
    """
    d = len(nu)
    prior_mean = np.broadcast_to(prior_mean, (d + 1,))
    prior_variance = np.broadcast_to(prior_variance, (d + 1,))
    q_mean, q_variance = np.append(nu, alpha), np.append(xi, beta)
    lams, sigma_fs = sample_theta(nu, xi, alpha, beta, rng, n_samples)
    values = np.zeros(n_samples)
    for t in range(n_samples):
        theta = np.append(lams[t], sigma_fs[t])
        values[t] = (
            conditional_log_likelihood(X, y, Z, m, S, lams[t], sigma_fs[t], C, jitter)
            + _log_normal(theta, prior_mean, prior_variance)
            - _log_normal(theta, q_mean, q_variance)
        )
    estimate = np.mean(values) - kl_gauss(m, S, np.zeros(len(m)), sigma_zz(Z, jitter))
    return estimate, np.std(values, ddof=1) / math.sqrt(n_samples)


def _log_normal(values, means, variances):
    return np.sum(-0.5 * np.log(2.0 * np.pi * variances) - 0.5 * (values - means) ** 2 / variances)


# ------------------------------------------------------------------------------------------
# the noise covariance, Sec. IV


def noise_covariance(X, U, kernel, noise_variance, labels, jitter=0.0, known=0.0):
    """C = blkdiag[K_XX - K_XU K_UU^-1 K_UX] + noise_variance I + diag(known), Sec. IV; (n, n).

    kernel: callable (X, Z) -> K, the k^eps with its own hyperparameters, or None (DTC).
    U: the k^eps inducing inputs, in *input* space. labels (n,): block of every row; all
    different gives FITC, all equal one full block. jitter is added to the diagonal of K_UU.
    known (n,): variances of the rows' noise that are not learned.
    """
    n = X.shape[0]
    own = (noise_variance + known) * np.ones(n)
    if kernel is None:
        return np.diag(own)
    K_XU = kernel(X, U)
    K_UU = kernel(U, U) + jitter * np.eye(U.shape[0])
    residual = kernel(X, X) - K_XU @ np.linalg.inv(K_UU) @ K_XU.T
    C = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            if labels[i] == labels[j]:
                C[i, j] = residual[i, j]
        C[i, i] += own[i]
    return C


def noise_cross_covariance(Xs, Xb, U, kernel, noise_variance, jitter=0.0):
    """(C_sb, C_ss_diag): noise of test rows Xs against rows Xb of the same block, and itself.

    Continues Sec. IV to a test row of the block: C_sb (n_s, n_b) carries no noise_variance
    (independent noise of different observations), C_ss_diag (n_s,) does.
    """
    n_s = Xs.shape[0]
    if kernel is None:
        return np.zeros((n_s, Xb.shape[0])), np.full(n_s, float(noise_variance))
    K_UU_inv = np.linalg.inv(kernel(U, U) + jitter * np.eye(U.shape[0]))
    C_sb = kernel(Xs, Xb) - kernel(Xs, U) @ K_UU_inv @ kernel(U, Xb)
    C_ss = kernel(Xs, Xs) - kernel(Xs, U) @ K_UU_inv @ kernel(U, Xs)
    return C_sb, np.diag(C_ss) + noise_variance


# ------------------------------------------------------------------------------------------
# prediction, App. F


def predict_closed(Xs, Z, m, S, nu, xi, alpha, beta, jitter=0.0):
    """Mean and variance of the latent f(x*), App. F.1 (VBPITC, VBFIC, VBFITC, VBDTC)."""
    Sigma_inv = np.linalg.inv(sigma_zz(Z, jitter))
    n_s = Xs.shape[0]
    mean, var = np.zeros(n_s), np.zeros(n_s)
    for i in range(n_s):
        x = Xs[i : i + 1]
        w = omega(x, Z, nu, xi, alpha)[0]  # E[K_Zx]
        P = psi(x, Z, nu, xi, alpha, beta, np.eye(1))  # E[K_Zx K_xZ]
        k = upsilon(x, nu, xi, alpha, beta)[0, 0]  # E[k_xx] = alpha^2 + beta
        mean[i] = w @ Sigma_inv @ m
        var[i] = (
            k
            - np.trace(Sigma_inv @ P)
            + np.trace(Sigma_inv @ S @ Sigma_inv @ P)
            + m @ Sigma_inv @ (P - np.outer(w, w)) @ Sigma_inv @ m
        )
    return mean, var


def leave_out(X, y, Z, nu, xi, alpha, beta, C, hidden, jitter=0.0):
    """Mean and variance of the latent f of hidden rows, App. F.1 with eq. (7) for the others."""
    others = [j for j in range(len(y)) if not hidden[j]]
    rest = X[others], y[others], Z, nu, xi, alpha, beta, C[np.ix_(others, others)]
    m, S = optimal_q(*rest, jitter)
    return predict_closed(X[hidden], Z, m, S, nu, xi, alpha, beta, jitter)


def leave_one_out(X, y, Z, nu, xi, alpha, beta, C, jitter=0.0):
    """The same of each row by itself."""
    each = [
        leave_out(X, y, Z, nu, xi, alpha, beta, C, row, jitter)
        for row in np.eye(len(y), dtype=bool)
    ]
    mean, var = np.array(each)[..., 0].T
    return mean, var


def predict_theta(Xs, Z, m, S, lam, sigma_f, jitter=0.0):
    """Mean and variance of the latent f(x*) for one fixed theta, App. F.1."""
    Sigma = sigma_zz(Z, jitter)
    A = k_xz(Xs, Z, lam, sigma_f) @ np.linalg.inv(Sigma)
    cov = k_xx(Xs, Xs, lam, sigma_f) - A @ Sigma @ A.T + A @ S @ A.T
    return A @ m, np.diag(cov)


def predict_monte_carlo(Xs, Z, m, S, nu, xi, alpha, beta, rng, n_samples, jitter=0.0):
    """predict_closed(...) by sampling Lambda and sigma_f and the law of total variance."""
    lams, sigma_fs = sample_theta(nu, xi, alpha, beta, rng, n_samples)
    means = np.zeros((n_samples, Xs.shape[0]))
    variances = np.zeros((n_samples, Xs.shape[0]))
    for t in range(n_samples):
        means[t], variances[t] = predict_theta(Xs, Z, m, S, lams[t], sigma_fs[t], jitter)
    return np.mean(means, axis=0), np.mean(variances, axis=0) + np.var(means, axis=0)


def predict_pic(Xs, Xb, yb, Z, m, S, lam, sigma_f, C_bb, C_sb, C_ss_diag, jitter=0.0):
    """VBPIC prediction for one fixed theta, App. F.2, s averaged over N(m, S).

    (Xb, yb): training rows of the test rows' block, possibly none. C_bb (n_b, n_b),
    C_sb (n_s, n_b) = cov(eps*, eps_b), C_ss_diag (n_s,) = var(eps*). Every test row is
    predicted alone. Returns mean_f, var_f of the latent f* (the paper's prediction, in which
    C_sb and C_ss_diag play no part) and mean_y, var_y of the observation y* = f* + eps*.
    """
    n_s, n_b, n_inducing = Xs.shape[0], Xb.shape[0], Z.shape[0]
    mean_f, var_f = np.zeros(n_s), np.zeros(n_s)
    mean_y, var_y = np.zeros(n_s), np.zeros(n_s)
    for i in range(n_s):
        x = Xs[i : i + 1]
        # prior covariance of (f*, eps*, s, y_b): the matrix of App. F.2 with eps* added
        f, e = 0, 1
        s = slice(2, 2 + n_inducing)
        b = slice(2 + n_inducing, 2 + n_inducing + n_b)
        joint = np.zeros((2 + n_inducing + n_b, 2 + n_inducing + n_b))
        joint[f, f] = k_xx(x, x, lam, sigma_f)[0, 0]
        joint[e, e] = C_ss_diag[i]
        joint[s, s] = sigma_zz(Z, jitter)
        joint[b, b] = k_xx(Xb, Xb, lam, sigma_f) + C_bb
        joint[f, s] = joint[s, f] = k_xz(x, Z, lam, sigma_f)[0]
        joint[f, b] = joint[b, f] = k_xx(x, Xb, lam, sigma_f)[0]
        joint[e, b] = joint[b, e] = C_sb[i]
        joint[b, s] = k_xz(Xb, Z, lam, sigma_f)
        joint[s, b] = joint[b, s].T
        # (f*, eps*) given (s, y_b)
        gain = joint[:2, 2:] @ np.linalg.inv(joint[2:, 2:])
        cov = joint[:2, :2] - gain @ joint[2:, :2]
        # integrate over s ~ N(m, S)
        gain_s, gain_b = gain[:, :n_inducing], gain[:, n_inducing:]
        mean = gain_s @ m + gain_b @ yb
        cov = cov + gain_s @ S @ gain_s.T
        mean_f[i], var_f[i] = mean[0], cov[0, 0]
        mean_y[i] = mean[0] + mean[1]
        var_y[i] = cov[0, 0] + cov[1, 1] + 2.0 * cov[0, 1]
    return mean_f, var_f, mean_y, var_y


def correct_pic(Xs, Xb, yb, Z, s, lam, sigma_f, C_bb, g0, noise, jitter=0.0):
    """A draw of f at Xs given s and y_B, from one a priori: g0, of unit variance, at (Xs, Xb, Z).

    ``noise`` (b,) is drawn as well. What is known, y_B and s, replaces what was drawn at once.
    """
    n, b = len(Xs), len(Xb)
    X, prior = np.vstack([Xs, Xb]), np.array(g0, dtype=float)
    prior[: n + b] *= sigma_f
    known = np.zeros((b + len(Z), b + len(Z)))
    known[:b, :b] = k_xx(Xb, Xb, lam, sigma_f) + C_bb
    known[:b, b:] = k_xz(Xb, Z, lam, sigma_f)
    known[b:, :b] = known[:b, b:].T
    known[b:, b:] = sigma_zz(Z, jitter)
    cross = np.hstack([k_xx(X, Xb, lam, sigma_f), k_xz(X, Z, lam, sigma_f)])[:n]
    difference = np.concatenate([yb - prior[n : n + b] - noise, s - prior[n + b :]])
    return prior[:n] + cross @ np.linalg.solve(known, difference)


def predict_pic_samples(
    Xs,
    Xb,
    yb,
    Z,
    m,
    S,
    lams,
    sigma_fs,
    C_bb,
    C_sb,
    C_ss_diag,
    jitter=0.0,
    weights=None,
):
    """VBPIC prediction from given values of theta, App. F.2: law of total variance.

    lams (t, d), sigma_fs (t,); weights (t,) sum to one, default 1 / t (plain samples; the
    variance between the samples is divided by t, not t - 1). Returns as predict_pic.
    """
    n_theta = len(sigma_fs)
    if weights is None:
        weights = np.full(n_theta, 1.0 / n_theta)
    means_f, vars_f = np.zeros((n_theta, len(Xs))), np.zeros((n_theta, len(Xs)))
    means_y, vars_y = np.zeros((n_theta, len(Xs))), np.zeros((n_theta, len(Xs)))
    for t in range(n_theta):
        means_f[t], vars_f[t], means_y[t], vars_y[t] = predict_pic(
            Xs, Xb, yb, Z, m, S, lams[t], sigma_fs[t], C_bb, C_sb, C_ss_diag, jitter
        )
    mean_f, mean_y = weights @ means_f, weights @ means_y
    var_f = weights @ vars_f + weights @ (means_f - mean_f) ** 2
    var_y = weights @ vars_y + weights @ (means_y - mean_y) ** 2
    return mean_f, var_f, mean_y, var_y


# ------------------------------------------------------------------------------------------
# exact answers


def exact_gp(X, y, Xs, kernel, C):
    """Full GP regression with noise covariance C, Sec. II-A: mean, var of f*, log p(y)."""
    K_inv = np.linalg.inv(kernel(X, X) + C)
    K_sX = kernel(Xs, X)
    mean = K_sX @ K_inv @ y
    var = np.diag(kernel(Xs, Xs) - K_sX @ K_inv @ K_sX.T)
    log_evidence = (
        -0.5 * len(y) * math.log(2.0 * math.pi)
        + 0.5 * np.linalg.slogdet(K_inv)[1]
        - 0.5 * y @ K_inv @ y
    )
    return mean, var, log_evidence


def weighted_evidence(y, K, c, weight):
    """log of the integral of N(f | 0, K) prod_i N(y_i | f_i, c_i)^w_i over f, by its exponent."""
    precision = np.linalg.inv(K) + np.diag(weight / c)
    shift = weight * y / c
    return (
        -0.5 * weight @ (np.log(2.0 * math.pi * c) + y**2 / c)
        - 0.5 * np.linalg.slogdet(K)[1]
        - 0.5 * np.linalg.slogdet(precision)[1]
        + 0.5 * shift @ np.linalg.solve(precision, shift)
    )


def exact_inducing_posterior(X, y, Z, lam, sigma_f, C, jitter=0.0):
    """Mean and covariance of p(s_Z | y, theta) in the full GP model (no approximation)."""
    K_ZX = k_xz(X, Z, lam, sigma_f).T
    K_inv = np.linalg.inv(k_xx(X, X, lam, sigma_f) + C)
    return K_ZX @ K_inv @ y, sigma_zz(Z, jitter) - K_ZX @ K_inv @ K_ZX.T


def evidence_quadrature_1d(X, y, C, prior_mean, prior_variance, n_grid=161, width=8.0):
    """log p(y), eq. (2), for d = 1 by the trapezoidal rule over (lambda, sigma_f).

    The likelihood for one theta is the exact N(y | 0, sigma_f^2 SE(lambda x) + C). The grid
    covers prior mean +- width standard deviations with n_grid points per axis.
    """
    prior_mean = np.broadcast_to(prior_mean, (2,))
    prior_sd = np.sqrt(np.broadcast_to(prior_variance, (2,)))
    grid = np.linspace(-width, width, n_grid)
    log_weight = -0.5 * grid**2 - 0.5 * math.log(2.0 * math.pi) + math.log(grid[1] - grid[0])
    log_terms = np.zeros((n_grid, n_grid))
    for a in range(n_grid):
        lam = prior_mean[0] + prior_sd[0] * grid[a]
        sigma_f = prior_mean[1] + prior_sd[1] * grid
        K = sigma_f[:, None, None] ** 2 * se(X * lam, X * lam) + C  # one matrix per sigma_f
        fit = np.einsum("i,kij,j->k", y, np.linalg.inv(K), y)
        log_likelihood = -0.5 * (len(y) * math.log(2.0 * math.pi) + np.linalg.slogdet(K)[1] + fit)
        log_terms[a] = log_likelihood + log_weight[a] + log_weight
    largest = np.max(log_terms)
    return largest + math.log(np.sum(np.exp(log_terms - largest)))


# ------------------------------------------------------------------------------------------
# several outputs: f_i(x) = the i-th of functions with the covariance B k(x, x') (intrinsic
# coregionalisation), and the white noise of each has a variance of its own


def predict_joint_outputs(k, B, rows, y, places, outputs, noises, jitter=0.0):
    """Mean and covariance of f at places (p, d), of each in an output (p,), at fixed theta.

    rows: pairs (X, their outputs) of the values y; places: pairs of inducing inputs and of new
    ones. k is the kernel of inputs (X, Z) -> (n, m), noises those of the rows (n,). Each inducing
    input is one of every output: their covariance is the Kronecker product of k(Z, Z) and B.
    """
    X, own = rows
    Z, X_new = places
    t = len(B)
    Suu = np.kron(k(Z, Z), B) + jitter * np.eye(t * len(Z))
    Kxu, Ksu = (
        np.hstack([np.outer(k(x, Z)[:, a], np.ones(t)) * B[o] for a in range(len(Z))])
        for x, o in ((X, own), (X_new, outputs))
    )
    C_inv = np.diag(1.0 / noises)
    inverse = np.linalg.inv(Suu + Kxu.T @ C_inv @ Kxu)
    mean = Ksu @ inverse @ Kxu.T @ C_inv @ y
    prior = k(X_new, X_new) * B[np.ix_(outputs, outputs)]
    return mean, prior - Ksu @ np.linalg.inv(Suu) @ Ksu.T + Ksu @ inverse @ Ksu.T
