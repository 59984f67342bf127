"""Small data and quick instances of `VBKSRegressor`."""

import numpy as np

from skvbgp import VBKSRegressor
from skvbgp.kernels import RBF, Constant, Linear

#: A list that holds a smooth kernel and a straight line.
KERNELS = [("SE", Constant() * RBF()), ("LIN", Linear())]


def small(**parameters):
    """An instance that trains in a fraction of a second."""
    quick = {"kernels": KERNELS, "n_inducing": 20, "n_restarts": 1, "n_samples": 200}
    return VBKSRegressor(**{**quick, "max_iter": 4, "random_state": 0, **parameters})


def make_series(n=60, seed=0, noise=0.1):
    """A wave of period 1.5 about a straight line, at irregular times."""
    rng = np.random.default_rng(seed)
    t = np.sort(rng.uniform(2.0, 12.0, n))
    y = 3.0 + 0.5 * t + np.sin(2.0 * np.pi * t / 1.5) + noise * rng.standard_normal(n)
    return t[:, None], y


INSTANCES = [
    small(n_inducing=6, max_iter=2),
    small(n_inducing=6, max_iter=3, batch_size=64, learning_rate=0.1),
    small(n_inducing=6, max_iter=2, hyperparameter_posterior="gaussian", kernels=KERNELS[:1]),
]
