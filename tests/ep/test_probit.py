"""Moments of the probit likelihood."""

import numpy as np
from numpy.testing import assert_allclose
from scipy.special import log_ndtr, ndtr

from skvbgp.ep._probit import probit_moments
from tests.derivatives import numerical_gradient
from tests.oracles.ep import expectation, tilted

T = np.array([1.0, -1.0, 1.0, -1.0])
C = np.array([0.3, 1.2, -0.7, -0.1])
V = np.array([0.5, 2.0, 0.1, 3.0])


def test_normaliser_is_the_average_of_the_likelihood():
    for t, c, v, log_z in zip(T, C, V, probit_moments(T, C, 1.0 + V).log_z, strict=True):
        average = expectation(lambda f, t=t: ndtr(t * f[:, 0]), [c], np.array([v]), 80)
        assert_allclose(np.exp(log_z), average, rtol=1e-9)


def test_derivatives():
    moments = probit_moments(T, C, 1.0 + V)

    def log_z(c, v):
        return float(np.sum(probit_moments(T, c, 1.0 + v).log_z))

    def slope(c):
        return float(np.sum(probit_moments(T, c, 1.0 + V).slope))

    assert_allclose(moments.slope, numerical_gradient(lambda c: log_z(c, V), C), atol=1e-10)
    assert_allclose(moments.curvature, -numerical_gradient(slope, C), atol=1e-10)
    assert_allclose(moments.d_r, numerical_gradient(lambda v: log_z(C, v), V), atol=1e-10)


def test_tilted_moments():
    moments = probit_moments(T, C, 1.0 + V)
    for i in range(4):
        z, mean, variance = tilted(T[i], C[i], V[i])
        assert_allclose(moments.log_z[i], np.log(z))
        assert_allclose(C[i] + V[i] * moments.slope[i], mean)
        assert_allclose(V[i] - V[i] ** 2 * moments.curvature[i], variance)


def test_extreme_margins():
    """Finite, within bounds and continuous, from certainly wrong to certainly right."""
    z = np.concatenate([-np.logspace(12, -3, 300), np.logspace(-3, 12, 300)])
    one = np.ones_like(z)
    with np.errstate(all="raise", under="ignore"):
        moments = probit_moments(one, z, one)
    assert_allclose(moments.log_z, log_ndtr(z))
    assert all(np.isfinite(m).all() for m in moments)
    assert np.all((moments.curvature >= 0.0) & (moments.curvature <= 1.0))
    assert np.all(np.diff(moments.curvature) <= 1e-8)
    far = z < -1e4
    assert_allclose(moments.slope[far], -z[far], rtol=1e-7)
    assert_allclose(moments.curvature[far], 1.0, rtol=1e-7)
    assert_allclose(moments.curvature[z > 50.0], 0.0, atol=1e-300)
