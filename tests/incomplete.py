"""Gaussian rows with missing entries."""

import numpy as np

MEAN = np.array([0.3, -0.2, 0.1])
COVARIANCE = np.array([[1.0, 0.7, -0.2], [0.7, 1.5, 0.3], [-0.2, 0.3, 0.8]])


def draw_incomplete(rng, n=200):
    """Rows (n, 3) of which three entries in ten are NaN."""
    X = rng.multivariate_normal(MEAN, COVARIANCE, n)
    X[rng.uniform(size=X.shape) < 0.3] = np.nan
    return X
