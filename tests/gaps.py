"""What tests of missing entries have in common."""

import numpy as np


def make_data(n, rng, share=0.2):
    """Correlated inputs, of which a share is missing, and a function of two of them."""
    X = rng.standard_normal((n, 3))
    X[:, 1] += 0.8 * X[:, 0]
    y = np.sin(1.5 * X[:, 0]) + 0.7 * X[:, 1] + 0.05 * rng.standard_normal(n)
    X[rng.uniform(size=X.shape) < share] = np.nan
    return X, y


def check_measured_slopes(model, rng):
    """Only new rows have gaps: wide where the input matters, and not where it does not."""
    X, y = make_data(150, rng, share=0.0)
    model.fit(X, y)
    T, t = make_data(200, rng, share=0.0)
    std = model.predict(T, True)[1]
    for j, low, high in ((1, 0.25, 1.0), (2, 0.0, 0.15)):
        gap = T.copy()
        gap[:, j] = np.nan
        mean, wide = model.predict(gap, True)
        assert low <= np.sqrt(max(np.mean(wide**2 - std**2), 0.0)) < high
        assert np.mean(np.abs(t - mean) < 1.96 * wide) > 0.8
