"""Functions that are hard to learn."""

import numpy as np


def chirp(n):
    """A sine of rising frequency, 15 periods in all, with noise of 0.1.

    It turns thirty times for each unit of the input at its end: 0.006 of the spread of X.
    """
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(n, 1))
    return X, np.sin(30.0 * np.pi * X[:, 0] ** 2) + 0.1 * rng.standard_normal(n)
