"""Small data and quick instances of the estimators of near rows."""

import numpy as np

from skvbgp.base import pick
from skvbgp.gp import VBGPClassifier, VBGPRegressor
from skvbgp.gp._neighbours import measure_matrices, predict_from_matrices
from skvbgp.kernels import RBF, Matern


def small(kernel=None, **parameters):
    """An instance that trains in a fraction of a second."""
    kernel = Matern(nu=1.5) if kernel is None else kernel
    return VBGPRegressor(kernel, **{"max_iter": 1, "random_state": 0, **parameters})


def small_outputs(kernel=None, **parameters):
    """The same for several outputs."""
    kernel = Matern([1.0, 1.0], nu=2.5) if kernel is None else kernel
    return VBGPRegressor(kernel, **{"max_iter": 2, "random_state": 0, **parameters})


def small_classifier(kernel=None, **parameters):
    """The same for classes."""
    kernel = Matern(2.0, nu=1.5) if kernel is None else kernel
    return VBGPClassifier(kernel, **{"max_iter": 1, "random_state": 0, **parameters})


def predict_from_neighbours(processes, X, y, x, known=None):
    """What each process says of one row x (d,) from its neighbours, the nearest one last."""
    K = measure_matrices(processes, np.concatenate([X, x[None]])[None])
    return predict_from_matrices(processes, K, y[None], pick(known, None))[0]


def make_classes(n=60, K=3, seed=0):
    """Inputs of unequal spread, and classes with curved borders and some noise."""
    X, y = make_data(n, seed=seed)
    height = y - 0.5 * X[:, 1]
    return X, np.searchsorted(np.quantile(height, np.arange(1, K) / K), height)


def make_classes_apart(n=60, seed=0):
    """The same inputs, and three classes with straight borders, which regressions tell apart."""
    X, _ = make_data(n, seed=seed)
    return X, (X[:, 0] > -0.2).astype(int) + (X[:, 0] > 1.2)


def make_data(n=60, d=2, seed=0):
    """Inputs of unequal spread, and a wavy function of them with a little noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (n, d)) * np.arange(1, d + 1) + 0.5
    y = 3.0 * np.sin(X @ np.linspace(1.0, 0.5, d)) + 10.0 + 0.2 * rng.standard_normal(n)
    return X, y


#: For the common tests: exact and from neighbours, of one kernel and of several.
REGRESSORS = [
    small([("rough", 2.0 * Matern(2.0, nu=0.5)), ("smooth", 2.0 * RBF(2.0))], max_iter=1),
    small(2.0 * Matern(2.0, nu=1.5), n_neighbors=8, max_iter=1),
    small(2.0 * Matern(2.0, nu=1.5), n_neighbors=8, n_inducing=10, max_iter=1),
]
CLASSIFIERS = [
    small_classifier([("rough", Matern(2.0, nu=0.5)), ("smooth", RBF(2.0))], max_iter=1),
    small_classifier(n_neighbors=12, max_iter=1),
    small_classifier(n_neighbors=12, n_inducing=10, max_iter=1),
]
INSTANCES = [*REGRESSORS, *CLASSIFIERS]
