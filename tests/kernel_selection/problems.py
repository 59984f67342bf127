"""Rows, inducing inputs and kernels for the tests of the bounds."""

import numpy as np

from skvbgp.kernel_selection import kernel_grammar
from skvbgp.kernel_selection._categories import bind


def make_rows(n=12, m=5, d=1, seed=3):
    """X (n, d), y (n,) and Z (m, d)."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, d))
    y = np.sin(4.0 * X[:, 0]) + 0.1 * rng.standard_normal(n)
    Z = rng.uniform(-1.0, 1.0, (m, d))
    return X, y, Z


def kernel_at(name, d=1, seed=0):
    """A kernel of the grammar, bound to d inputs, and a point x = (theta, log s2)."""
    kernel = bind(dict(kernel_grammar())[name], d, ())
    x = np.random.default_rng(seed).uniform(-0.5, 0.3, len(kernel.theta) + 1)
    return kernel, x
