"""Small data and quick instances of the sparse spectrum regressor."""

import numpy as np

from skvbgp.spectrum import SVBSSGPRegressor
from skvbgp.spectrum._block_model import SharedRows
from skvbgp.spectrum._neighbours import Neighbours
from skvbgp.spectrum._state import Hyperparameters

POSTERIORS = ["joint", "factorised", "point"]
#: Frequencies and inputs of single formulas, and hyperparameters.
M, D = 3, 2
HYPER = Hyperparameters(np.ones(D), 1.3, 0.5, 0.2)


def small(n_frequencies=8, **parameters):
    """An instance that trains in a fraction of a second, on several blocks."""
    quick = {"n_blocks": 4, "n_samples": 4, "max_iter": 4, "batch_size": 16, "random_state": 0}
    return SVBSSGPRegressor(n_frequencies, **{**quick, **parameters})


def make_data(n=60, d=2, seed=0):
    """Inputs of unequal spread, and a wavy function of them with a little noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (n, d)) * np.arange(1, d + 1) + 0.5
    y = 3.0 * np.sin(X @ np.linspace(1.0, 0.5, d)) + 10.0 + 0.2 * rng.standard_normal(n)
    return X, y


def given_all(kind, rows, n=5):
    """Rows that all of n new ones are conditioned on, as those of a block or as neighbours."""
    if kind is SharedRows:
        return SharedRows(rows)
    return Neighbours.of(rows, np.tile(np.arange(len(rows)), (n, 1)))


def condition(local, Phi, R, *, full):
    """What rows say of lines with features Phi, given frequencies R."""
    ((_, *moments),) = local.condition(lambda R: Phi, [R], HYPER, full=full)
    return moments


def draw(local, Phi, R, s, noise):
    """Mean and errors of functions, given frequencies R."""
    ((_, *parts),) = local.draw(lambda R: Phi, [R], HYPER, [s], [noise])
    return parts


#: For the common tests: passes enough for the score of `check_regressors_train`.
INSTANCES = [
    small(16, **options, max_iter=6, batch_size=64, learning_rate=0.1)
    for options in (
        {},
        {"posterior": "factorised", "objective": "bound"},
        {"posterior": "point", "n_neighbors": None},
        {"objective": "bound", "solver": "adam"},
    )
]
