"""Literal twins of skvbgp.gp: dense, one row at a time, with SciPy's distributions."""

import numpy as np
from scipy import special, stats


def log_student(y, C, dof):
    """log St(y | 0, C, dof); the normal density for an infinite number."""
    if np.isinf(dof):
        return stats.multivariate_normal(np.zeros(len(y)), C).logpdf(y)
    return stats.multivariate_t(np.zeros(len(y)), C, df=dof).logpdf(y)


def predict_student(K, k, k_own, y, noise, dof):
    """Mean and variance of f at one place, and variance of the noise there.

    Student's t of (y, f) given y, from the partition of its scale matrix.
    """
    n = len(y)
    C_inv = np.linalg.inv(K + noise * np.eye(n))
    mean = k @ C_inv @ y
    variance = k_own - k @ C_inv @ k
    if np.isinf(dof):
        return mean, variance, noise
    scale = (dof + y @ C_inv @ y) / (dof + n)
    factor = scale * (dof + n) / (dof + n - 2.0)
    return mean, factor * variance, factor * noise


def predict_from_neighbours(C, k, k_own, y, noise, dof, window, weight=1.0, y_var=0.0):
    """Mean and variance of f at one place, variance of the noise there, and the log evidence.

    The rows' covariance at scale 1 is C, and the last row is the nearest one. Each row is predicted
    from those before it; the r-th nearest counts exp(-r / window) for the scale and the evidence.
    It stands for some equal rows, each with the variance noise + y_var.
    """
    n = len(y)
    weight, t = np.broadcast_to(weight, n), np.broadcast_to(noise + y_var, n)
    repeated = 0.5 * ((weight - 1.0) * np.log(t) + np.log(weight))
    C_inv = np.linalg.inv(C)
    mean, variance = k @ C_inv @ y, k_own - k @ C_inv @ k
    if np.isinf(dof):
        more = 0.5 * np.sum(weight - 1.0) * np.log(2.0 * np.pi) + np.sum(repeated)
        return mean, variance, noise, log_student(y, C, dof) - more
    counted = quadratic = half_log_det = 0.0
    for i in range(n):
        gain = np.linalg.solve(C[:i, :i], C[:i, i])
        innovation, spread = y[i] - gain @ y[:i], C[i, i] - gain @ C[:i, i]
        share = np.exp(-(n - 1 - i) / window)
        counted += share * weight[i]
        quadratic += share * innovation**2 / spread
        half_log_det += share * (0.5 * np.log(spread) + repeated[i])
    factor, evidence = follow_errors(counted, quadratic, half_log_det, dof)
    return mean, factor * variance, factor * noise, evidence


def follow_errors(counted, quadratic, half_log_det, dof):
    """Factor of the variances, and evidence, of so many errors with these sums."""
    factor = (dof + quadratic) / (dof + counted - 2.0)
    evidence = special.gammaln((dof + counted) / 2.0) - special.gammaln(dof / 2.0)
    evidence -= counted / 2.0 * np.log(np.pi * dof) + half_log_det
    evidence -= (dof + counted) / 2.0 * np.log(1.0 + quadratic / dof)
    return factor, evidence


def predict_from_all(K, k, k_own, y, t, dof, window, near, weight):
    """Mean and variance of f at one place, factor of variances there, and the log evidence.

    All rows predict f at scale 1. Of the scale there speak rows in order, the nearest first, each
    by its error where all the others predict it; the r-th counts exp(-r / window). A row stands for
    some equal ones of the variances t.
    """
    C = K + np.diag(t / weight)
    gain = np.linalg.solve(C, k)
    counted = quadratic = half_log_det = 0.0
    for r, j in enumerate(near):
        others = np.arange(len(y)) != j
        own = np.linalg.solve(C[np.ix_(others, others)], C[others, j])
        error, spread = y[j] - own @ y[others], C[j, j] - own @ C[others, j]
        share = np.exp(-r / window)
        counted += share * weight[j]
        quadratic += share * error**2 / spread
        repeated = 0.5 * ((weight[j] - 1.0) * np.log(t[j]) + np.log(weight[j]))
        half_log_det += share * (0.5 * np.log(spread) + repeated)
    factor, evidence = follow_errors(counted, quadratic, half_log_det, dof)
    return gain @ y, factor * (k_own - gain @ k), factor, evidence


def leave_out_of_all(K, i, y, t, dof, window, near, weight):
    """The same at row i, without which every other one is predicted as well: two are left out."""
    others = np.arange(len(y)) != i
    near = [j - (j > i) for j in near]
    rows = y[others], t[others], dof, window, near, weight[others]
    return predict_from_all(K[np.ix_(others, others)], K[others, i], K[i, i], *rows)


def mix(log_weights, temper, evidence, means, variances):
    """Moments of a mixture at one place, whose processes are given as lists."""
    weights = np.exp(np.array(log_weights) + temper * (np.array(evidence) - np.max(evidence)))
    weights = weights / weights.sum()
    mean = sum(w * m for w, m in zip(weights, means, strict=True))
    second = sum(w * (v + m**2) for w, m, v in zip(weights, means, variances, strict=True))
    return mean, second - mean**2


def covary_by_level(belief, means, covariances):
    """Covariance of functions that keep to a level in the cumulative belief (n, C) of each place.

    Given the level, f(x_i) is that of the process at which the belief at x_i passes it, with a mean
    (n, C) and covariances (C, n, n) of its own, independent of the other processes.
    """
    ends, n = np.cumsum(belief, axis=1), len(belief)
    mixed, total = np.sum(belief * means, axis=1), np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            steps = np.unique(np.concatenate([[0.0], ends[i], ends[j]]))
            for lower, upper in zip(steps[:-1], steps[1:], strict=True):
                level = 0.5 * (lower + upper)
                c, d = (min(np.searchsorted(ends[k], level), len(means[0]) - 1) for k in (i, j))
                part = (means[i, c] - mixed[i]) * (means[j, d] - mixed[j])
                total[i, j] += (upper - lower) * (part + (covariances[c][i, j] if c == d else 0.0))
    return total


def covary(k, B, outputs):
    """Covariance (n, n) of the functions at rows of given outputs: B[i, j] times the inputs' k."""
    return B[np.ix_(outputs, outputs)] * k


def predict_outputs(k, B, outputs, y, noises):
    """Evidence of values of several outputs, and moments of those that were not observed.

    Intrinsic coregionalisation, dense: the rows' matrix k, the output of each, its value or NaN,
    and the variance of each output's noise. Means and covariance of the functions at the NaN.
    """
    K = covary(k, B, outputs)
    seen = ~np.isnan(y)
    C = K[np.ix_(seen, seen)] + np.diag([noises[j] for j in outputs[seen]])
    gain = K[np.ix_(~seen, seen)] @ np.linalg.inv(C)
    covariance = K[np.ix_(~seen, ~seen)] - gain @ K[np.ix_(seen, ~seen)]
    evidence = stats.multivariate_normal(np.zeros(seen.sum()), C).logpdf(y[seen])
    return evidence, gain @ y[seen], covariance


def predict_sparse(kernel, Z, X, y, t, places):
    """Mean and covariance of DTC's function at places, from rows with noise variances t.

    Rows see the function through Q = K_XZ K_ZZ^-1 K_ZX; its prior is the kernel's.
    """
    K_inv = np.linalg.inv(kernel(Z))
    Q, Q_places = (kernel(rows, Z) @ K_inv @ kernel(Z, X) for rows in (X, places))
    gain = Q_places @ np.linalg.inv(Q + np.diag(t))
    return gain @ y, kernel(places) - gain @ Q_places.T


def warp(rows, centre, width, counts):
    """Rows (n, d) after asinh((x - centre) / width), by column, in units of their spread after it.

    How often each row counts is an integer.
    """
    bent = np.arcsinh((rows - centre) / width)
    known = np.repeat(bent, counts, axis=0)
    return (bent - known.mean(axis=0)) / known.std(axis=0)


def sum_evidence(K, Y, noise, dof):
    """Evidence of outputs Y (n, t) with the same hyperparameters, NaN where one was not observed.

    The matrix K of all rows is the same for all; each output knows its own rows.
    """
    total = 0.0
    for y in Y.T:
        seen = ~np.isnan(y)
        total += log_student(y[seen], K[np.ix_(seen, seen)] + noise * np.eye(seen.sum()), dof)
    return total


def log_noise_prior(noise, noiseless=0.01):
    """Log density of the logarithm of few rows' noise variance: a mixture of two normals."""
    usual = stats.norm.pdf(np.log(noise), np.log(0.05), 1.0)
    hardly_any = stats.norm.pdf(np.log(noise), np.log(0.001), 5.0)
    return np.log((1.0 - noiseless) * usual + noiseless * hardly_any)


def log_normal(x, mean, variance):
    """Log density, as scipy has it, which takes a hundred times as long for a single number."""
    return -0.5 * (np.log(2.0 * np.pi * variance) + (x - mean) ** 2 / variance)


def score_shape(pi, a, b, z, weight, seen):
    """Log density of errors under a mixture, and of what each component has seen besides."""
    value = 0.0
    for error, count in zip(z, weight, strict=True):
        value += count * np.log(sum(pi * np.exp(log_normal(error, a, b))))
    for p, mean, variance in zip(pi, a, b, strict=True):
        value += seen * (np.log(p) - 0.5 * (np.log(variance) + (1.0 + mean**2) / variance))
    return value


def spread_noise(noise, mean, output, noises):
    """Variances of the noise of rows of several outputs, where these means are predicted."""
    spread = np.array(noise, dtype=float)
    for i, j in enumerate(output):
        spread[i] += noises[j].extra
        level = noises[j].level
        if level is not None:
            t = min(max((mean[i] - level.centre) / level.unit, -2.0), 2.0)
            spread[i] *= np.exp(level.level + level.slope * t)
    return spread


def score_noise_level(c, b, t, latent, noise, squares, weight, precision):
    """Normal density of errors whose noise depends on where predictions are."""
    value = -0.5 * precision * b**2
    for i, count in enumerate(weight):
        variance = latent[i] + noise[i] * np.exp(c + b * t[i])
        value += count * log_normal(np.sqrt(squares[i]), 0.0, variance)
    return value


def compare_pairs(X, y):
    """Pairs of rows that agree and differ at one place, and the same at different places."""
    is_pair = np.tri(len(y), k=-1, dtype=bool)
    place = np.any(X[:, None] != X, axis=2)[is_pair]
    value = (y[:, None] != y)[is_pair]
    return np.bincount(2 * place + value, minlength=4).reshape(2, 2)


def spread_few_directions(prior, rows, start, n_directions, least):
    """Covariance and log |precision / 2 pi| of the Gaussian of many hyperparameters.

    `prior` (p,) and `rows` (p, p) are minus the second derivatives of either logarithm. In units of
    the prior it is as curved as they say within the Krylov space of `start`, and one beyond.
    """
    prior = np.maximum(prior, least)
    unit = np.diag(prior**-0.5)
    curvature = unit @ (rows + np.diag(prior)) @ unit
    powers = [np.linalg.matrix_power(curvature, i) @ start for i in range(n_directions)]
    Q = np.linalg.qr(np.column_stack(powers))[0]
    values, V = np.linalg.eigh(Q.T @ curvature @ Q)
    inside = V @ np.diag(np.maximum(values, least)) @ V.T
    precision = Q @ inside @ Q.T + np.eye(len(prior)) - Q @ Q.T
    covariance = unit @ np.linalg.inv(precision) @ unit
    return covariance, -np.linalg.slogdet(2.0 * np.pi * covariance)[1]
