"""What tests of the latent-variable model share."""

import numpy as np
import pytest
from sklearn.datasets import load_iris


@pytest.fixture(scope="session")
def iris():
    """X, X with missing entries, and y."""
    X, y = load_iris(return_X_y=True)
    holes = X.copy()
    holes[np.random.default_rng(0).random(X.shape) < 0.3] = np.nan
    return X, holes, y
