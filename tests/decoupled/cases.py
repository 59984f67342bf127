"""Quick instances of the two estimators."""

from skvbgp.decoupled import DecoupledGPClassifier, DecoupledGPRegressor


def small(cls, **parameters):
    """An instance that trains in milliseconds, with a few passes of several mini-batches."""
    quick = {"n_mean_basis": 20, "n_cov_basis": 8, "max_iter": 4, "batch_size": 32}
    return cls(**{**quick, "learning_rate": 0.1, "random_state": 0, **parameters})


#: For the common tests: steps enough for the scores that scikit-learn asks for.
INSTANCES = [
    small(DecoupledGPRegressor, n_mean_basis=12),
    small(DecoupledGPRegressor, n_mean_basis=12, parametrization="decoupled"),
    small(DecoupledGPRegressor, n_mean_basis=12, generalized_length_scales="per_input", replay=0),
    small(DecoupledGPClassifier, n_mean_basis=12, max_iter=2),
]
