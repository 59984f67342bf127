"""Sites, against the moments that they are to give."""

import numpy as np
from numpy.testing import assert_allclose
from scipy import stats

from skvbgp._core.sites import match_moments, measure_curvature, measure_ratio, measure_third


def test_a_cavity_has_the_moments_with_its_site():
    rng = np.random.default_rng(0)
    slope, mean = rng.normal(size=(2, 20))
    variance = rng.uniform(0.1, 3.0, 20)
    curvature = rng.uniform(0.0, 0.9, 20) / variance
    tau, nu = match_moments(slope, curvature, mean, variance)
    precision = 1.0 / variance + tau
    assert_allclose(1.0 / precision, variance - variance**2 * curvature)
    assert_allclose((mean / variance + nu) / precision, mean + variance * slope)


# -- the slopes of log Phi, against each other and what they come to far off -----------------------


STEP = 1e-4


def differentiate(function, z):
    return (function(z + STEP) - function(z - STEP)) / (2.0 * STEP)


def test_each_is_the_slope_of_the_one_before():
    z = np.linspace(-8.0, 8.0, 17)
    ratio = measure_ratio(z)
    assert_allclose(ratio, differentiate(stats.norm.logcdf, z), rtol=1e-6, atol=1e-12)
    curvature = measure_curvature(z, ratio)
    assert_allclose(curvature, -differentiate(measure_ratio, z), rtol=1e-5, atol=1e-12)
    third = measure_third(z, ratio)
    slopes = differentiate(lambda x: measure_curvature(x, measure_ratio(x)), z)
    assert_allclose(third, -slopes, rtol=1e-4, atol=1e-9)


def test_far_off():
    """Where the expansions begin, and far beyond."""
    z = np.array([-999.0, -1001.0])
    ratio = measure_ratio(z)
    assert_allclose(ratio, -z - 1.0 / z, rtol=1e-9)
    assert_allclose(measure_curvature(z, ratio), 1.0 - z**-2.0, rtol=1e-9)
    assert_allclose(measure_third(z, ratio), -2.0 / z**3.0, atol=1e-6)
    with np.errstate(all="raise"):
        ratio = measure_ratio(np.array([-1e14]))
        found = [each(np.array([-1e14]), ratio)[0] for each in (measure_curvature, measure_third)]
        assert_allclose([ratio[0], *found], [1e14, 1.0, 2e-42])
    z = np.array([50.0])
    assert measure_ratio(z) == measure_curvature(z, measure_ratio(z)) == 0.0
