"""Small data and quick instances of the estimators."""

import numpy as np
from scipy.special import ndtr

from skvbgp import EPDTCClassifier, HybridGPLVM


def make_labels(n=60, d=2, seed=0, missing=0.0):
    """Inputs of unequal spread, and labels 0 and 1 with overlap."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * np.arange(1, d + 1) + 0.5
    f = 2.0 * np.sin(X @ np.linspace(1.5, 0.5, d))
    y = (rng.uniform(size=n) < ndtr(f)).astype(int)
    X[rng.uniform(size=X.shape) < missing] = np.nan
    return X, y


#: For the common tests.
INSTANCES = [
    EPDTCClassifier(n_inducing=8, max_iter=3, random_state=0),
    EPDTCClassifier(n_inducing=8, max_iter=3, approximation="fitc", random_state=0),
    HybridGPLVM(n_inducing=6, max_iter=4, random_state=0),
    HybridGPLVM(
        n_inducing=6,
        latents="free",
        likelihood="probit",
        prior_weight=1.0,
        max_iter=4,
        random_state=0,
    ),
]
