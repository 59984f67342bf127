"""Quick instances of the two estimators, and what tests of their fits have in common."""

import numpy as np
from numpy.testing import assert_allclose

from skvbgp.decoupled import DecoupledGPClassifier, DecoupledGPRegressor
from tests.oracles import decoupled as oracles


def small(cls, **parameters):
    """An instance that trains in milliseconds, with a few passes of several mini-batches."""
    quick = {"n_mean_basis": 20, "n_cov_basis": 8, "max_iter": 2, "batch_size": 32}
    return cls(**{**quick, "learning_rate": 0.1, "random_state": 0, **parameters})


#: For the common tests: steps enough for the scores that scikit-learn asks for.
INSTANCES = [
    small(DecoupledGPRegressor, n_mean_basis=12),
    small(DecoupledGPRegressor, n_mean_basis=12, max_iter=4, parametrization="decoupled"),
    small(DecoupledGPRegressor, n_mean_basis=12, generalized_length_scales="per_input", replay=0),
    small(DecoupledGPClassifier, n_mean_basis=12),
]


def check_exact_process(model, X, y, weight, known=0.0):
    """A fit to few rows is an exact process of rows that count so often, with known noise."""
    assert model.n_iter_ == 2  # the hyperparameters are settled
    centred = y - np.average(y, weights=weight)
    K, noise = model.kernel_(X), model.noise_variance_ + known
    evidence = oracles.weighted_log_evidence(centred, K, noise, weight)
    assert_allclose(model.lower_bound_, evidence, atol=1e-4)
    new = X[:9] + 0.3
    mean = model.predict(new) - (y - centred)[0]
    expected = model.kernel_(new, X) @ np.linalg.solve(K + np.diag(noise / weight), centred)
    assert_allclose(mean, expected, atol=1e-5)
