"""What tests of outputs that learn from each other have in common."""

import pickle

import numpy as np
from numpy.testing import assert_allclose


def check_methods_agree(model, places, t, *, atol, rtol):
    """Predictions of t outputs say the same in every form; medians and intervals nearly do.

    A median may be off by ``atol`` standard deviations, and the width of an interval by ``rtol``.
    """
    n = len(places)
    mean, std = model.predict(places, return_std=True)
    mean_too, covariance = model.predict(places, return_cov=True)
    assert mean.shape == std.shape == (n, t)
    assert covariance.shape == (n, n, t)
    assert_allclose(mean_too, mean, rtol=1e-8)
    assert_allclose(np.einsum("iij->ij", covariance), std**2, rtol=1e-8)
    assert_allclose(model.predict(places[2:3])[0], mean[2], rtol=1e-8)
    latent = model.predict(places, return_std=True, include_noise=False)[1]
    assert np.all(latent < std)
    quantiles = model.predict_quantiles(places, [0.025, 0.5, 0.975])
    assert_allclose(quantiles[..., 1], mean, atol=atol * std.max())
    assert_allclose((quantiles[..., 2] - quantiles[..., 0]) / (3.92 * std), 1.0, atol=rtol)
    both = np.tile(np.linspace(0.1, 3.0, t), (n, 1))
    some = np.arange(t) % 2 == 0
    parts = (np.where(some == which, both, np.nan) for which in (True, False))
    total = sum(model.log_predictive_density(places, part) for part in parts)
    assert_allclose(model.log_predictive_density(places, both), total)
    copy = pickle.loads(pickle.dumps(model))
    assert_allclose(copy.predict(places), mean, rtol=1e-12)
