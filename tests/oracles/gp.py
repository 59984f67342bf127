"""Literal twins of skvbgp.gp: dense, one row at a time, with SciPy's distributions."""

import numpy as np
from scipy import stats


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


def mix(log_weights, temper, evidence, means, variances):
    """Moments of a mixture at one place, whose processes are given as lists."""
    weights = np.exp(np.array(log_weights) + temper * (np.array(evidence) - np.max(evidence)))
    weights = weights / weights.sum()
    mean = sum(w * m for w, m in zip(weights, means, strict=True))
    second = sum(w * (v + m**2) for w, m, v in zip(weights, means, variances, strict=True))
    return mean, second - mean**2
