"""Small problems for the tests of the mathematics."""

import numpy as np

from skvbgp._core.gaussian import InducingOutputs
from skvbgp.ep._features import SparsePrior
from skvbgp.ep._inputs import Inputs
from skvbgp.ep._schedules import Schedule
from skvbgp.kernels import RBF, Constant

APPROXIMATIONS = ["dtc", "fitc"]
VARIANCE, LENGTH_SCALE = 1.7, np.array([0.8, 1.3])
KERNEL = Constant(VARIANCE) * RBF(LENGTH_SCALE)
PARALLEL = Schedule("parallel", 500, 0.0)
SEQUENTIAL = Schedule("sequential", 500, 0.0)
#: Diagonal loading of K_uu, relative to its diagonal.
JITTER = 1e-8


def small_inputs(n=8, seed=0, *, uncertain=True):
    """Rows of two inputs, all but the first two uncertain."""
    rng = np.random.default_rng(seed)
    mean, variance = rng.standard_normal((n, 2)), rng.uniform(0.1, 0.8, (n, 2))
    variance[:2] = 0.0
    return Inputs(mean, variance if uncertain else np.zeros((n, 2)))


def small_labels(inputs, seed=0):
    """Labels -1 and 1 that depend on the first input."""
    rng = np.random.default_rng(seed)
    return np.where(inputs.mean[:, 0] + 0.5 * rng.standard_normal(len(inputs)) > 0.0, 1.0, -1.0)


def small_prior(approximation="dtc", n=8, m=4, *, uncertain=True, kernel=KERNEL):
    """Prior of the rows of `small_inputs`."""
    Z = np.random.default_rng(1).standard_normal((m, 2))
    return SparsePrior(
        InducingOutputs(kernel, Z), small_inputs(n, uncertain=uncertain), approximation
    )
