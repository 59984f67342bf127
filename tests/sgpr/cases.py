"""Small data and quick instances of the four regressors."""

import numpy as np

from skvbgp import VBDTCRegressor, VBFITCRegressor, VBPICRegressor, VBPITCRegressor

REGRESSORS = [VBDTCRegressor, VBFITCRegressor, VBPITCRegressor, VBPICRegressor]
#: Those whose noise is independent, so that rows may be regrouped.
INDEPENDENT = [VBDTCRegressor, VBFITCRegressor]
BLOCKED = [VBPITCRegressor, VBPICRegressor]
WITH_NOISE_KERNEL = [VBFITCRegressor, *BLOCKED]
#: Those that know the data through inducing inputs.
SPARSE_SOLVERS = ["collapsed", "stochastic"]
SOLVERS = ["exact", *SPARSE_SOLVERS]


def small(cls, solver="collapsed", **parameters):
    """An instance that trains in milliseconds, with a few passes of several mini-batches."""
    quick = {
        "n_inducing": 10,
        "max_iter": 3,
        "batch_size": 16,
        "learning_rate": 0.05,
        "random_state": 0,
    }
    if solver == "exact":
        quick["n_inducing"] = 500
    if cls in BLOCKED:
        quick["n_blocks"] = 4
    return cls(**{**quick, "solver": solver, **parameters})


def make_data(n=40, d=2, seed=0):
    """Inputs of unequal spread, and a wavy function of them with a little noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (n, d)) * np.arange(1, d + 1) + 0.5
    y = 3.0 * np.sin(X @ np.linspace(1.0, 0.5, d)) + 10.0 + 0.2 * rng.standard_normal(n)
    return X, y


#: For the common tests: passes and steps enough for the score of `check_regressors_train`.
INSTANCES = [
    small(cls, solver, batch_size=32, learning_rate=0.1) for cls in REGRESSORS for solver in SOLVERS
]
