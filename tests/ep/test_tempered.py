"""Powers of likelihoods under a Gaussian."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skvbgp.ep._likelihoods import LIKELIHOODS, tempered_moments
from tests.derivatives import numerical_gradient
from tests.oracles import ep as oracles

kinds = pytest.mark.parametrize("name", ["probit", "logistic"])

T = np.array([1.0, -1.0, 1.0, -1.0, 1.0])
C = np.array([0.3, -0.7, -2.0, 1.5, 0.0])
NOISE = np.array([0.0, 0.4, 0.0, 0.7, 0.1])
POWER = np.array([0.1, 0.5, 0.9, 0.02, 0.7])


@kinds
@pytest.mark.parametrize("s", [1e-9, 5e-3, 0.02, 1.0])
def test_the_first_power_is_the_likelihood(name, s):
    s = np.full(5, s)
    expected = LIKELIHOODS[name].moments(T, C, NOISE + s)
    found = tempered_moments(LIKELIHOODS[name], T, C, s, NOISE, np.ones(5))
    for one, other in zip(found, expected, strict=True):
        assert_allclose(one, other, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("s", [5e-3, 1.0, 8.0])
def test_moments_are_those_of_the_dense_tilted_distribution(s):
    s = np.full(5, s)
    found = tempered_moments(LIKELIHOODS["probit"], T, C, s, NOISE, POWER)
    for i in range(5):
        log_z, mean, variance = oracles.tempered_probit(T[i], C[i], s[i], NOISE[i], POWER[i])
        assert_allclose(found.log_z[i], log_z, rtol=1e-4)
        assert_allclose(C[i] + s[i] * found.slope[i], mean, rtol=1e-3, atol=1e-6)
        assert_allclose(s[i] - s[i] ** 2 * found.curvature[i], variance, rtol=1e-3)


@pytest.mark.parametrize("s", [0.02, 1.0, 46.0])
@pytest.mark.parametrize("c", [-130.0, -30.0, -5.0])
def test_a_cavity_that_is_far_from_its_label(c, s):
    """Nodes around the cavity's mean would not reach as far as the label moves it."""
    one = np.ones(1)
    found = tempered_moments(LIKELIHOODS["probit"], one, c * one, s * one, 0.1 * one, 0.35 * one)
    log_z, mean, variance = oracles.tempered_probit(1.0, c, s, 0.1, 0.35)
    assert_allclose(found.log_z, log_z, rtol=1e-5)
    assert_allclose(c + s * found.slope, mean, rtol=1e-4)
    assert_allclose(s - s**2 * found.curvature, variance, rtol=1e-4)


@kinds
def test_nothing_is_left_to_learn_of_a_function_that_is_known(name):
    found = tempered_moments(LIKELIHOODS[name], T, C, np.zeros(5), NOISE, POWER)
    expected = LIKELIHOODS[name].moments(T, C, NOISE)
    assert_allclose(found.log_z, POWER * expected.log_z)
    assert_allclose(found.slope, POWER * expected.slope)


@kinds
@pytest.mark.parametrize("s", [5e-3, 0.02, 1.0])
@pytest.mark.every_nth("s", 2)
def test_slopes(name, s):
    s = np.full(5, s)

    def total(c, noise):
        return tempered_moments(LIKELIHOODS[name], T, c, s, noise, POWER).log_z.sum()

    found = tempered_moments(LIKELIHOODS[name], T, C, s, NOISE, POWER)
    assert_allclose(found.slope, numerical_gradient(lambda c: total(c, NOISE), C), atol=1e-6)
    noise = NOISE + 0.1
    found = tempered_moments(LIKELIHOODS[name], T, C, s, noise, POWER)
    assert_allclose(found.d_v, numerical_gradient(lambda v: total(C, v), noise), atol=1e-6)
