"""Sites, against the moments that they are to give."""

import numpy as np
from numpy.testing import assert_allclose

from skvbgp._core.sites import match_moments


def test_a_cavity_has_the_moments_with_its_site():
    rng = np.random.default_rng(0)
    slope, mean = rng.normal(size=(2, 20))
    variance = rng.uniform(0.1, 3.0, 20)
    curvature = rng.uniform(0.0, 0.9, 20) / variance
    tau, nu = match_moments(slope, curvature, mean, variance)
    precision = 1.0 / variance + tau
    assert_allclose(1.0 / precision, variance - variance**2 * curvature)
    assert_allclose((mean / variance + nu) / precision, mean + variance * slope)
