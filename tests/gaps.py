"""What tests of missing entries have in common."""

import numpy as np


def make_data(n, rng, share=0.2):
    """Correlated inputs, of which a share is missing, and a function of two of them."""
    X = rng.standard_normal((n, 3))
    X[:, 1] += 0.8 * X[:, 0]
    y = np.sin(1.5 * X[:, 0]) + 0.7 * X[:, 1] + 0.05 * rng.standard_normal(n)
    X[rng.uniform(size=X.shape) < share] = np.nan
    return X, y
