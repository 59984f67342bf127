"""Psi1 and Psi2 against Gauss-Hermite sums, and their gradients."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skvbgp.ep import Psi2, psi1, psi1_vjp
from tests.derivatives import numerical_gradient
from tests.oracles import ep as oracles

N, M, D = 4, 3, 2
VARIANCE = 1.7


@pytest.fixture
def arguments(rng):
    """mu, s, Z, length_scale, far from the origin."""
    origin = np.array([3.0, -5.0])
    mu = origin + rng.standard_normal((N, D))
    Z = origin + rng.standard_normal((M, D))
    return mu, rng.uniform(0.05, 0.6, (N, D)), Z, np.array([0.8, 1.4])


@pytest.fixture
def cotangents(rng):
    """Of Psi1 (n, m); weights (n,) and a symmetric matrix (m, m) for Psi2."""
    V = rng.standard_normal((M, M))
    return rng.standard_normal((N, M)), rng.standard_normal(N), V + V.T


def test_psi1(arguments):
    mu, s, Z, length_scale = arguments
    expected = oracles.psi1(mu, s, Z, VARIANCE, length_scale)
    assert_allclose(psi1(mu, s, Z, VARIANCE, length_scale), expected, rtol=1e-9)


def test_psi2(arguments, cotangents):
    mu, s, Z, length_scale = arguments
    _, w, V = cotangents
    expected = oracles.psi2(mu, s, Z, VARIANCE, length_scale)
    statistic = Psi2(mu, s, Z, VARIANCE, length_scale)
    assert_allclose(statistic.weighted_sum(w), np.tensordot(w, expected, 1), rtol=1e-9)
    assert_allclose(statistic.quadratic_forms(V), np.einsum("nab,ab->n", expected, V), rtol=1e-9)


def test_certain_inputs_have_the_kernel_itself(arguments):
    mu, s, Z, length_scale = arguments
    K = oracles.se(mu, Z, VARIANCE, length_scale)
    assert_allclose(psi1(mu, 0.0 * s, Z, VARIANCE, length_scale), K)
    statistic = Psi2(mu, 0.0 * s, Z, VARIANCE, length_scale)
    assert_allclose(statistic.weighted_sum(np.ones(N)), K.T @ K)


def check_gradients(value, gradients, mu, s, Z, length_scale):
    """``value(mu, s, Z, variance, length_scale)`` against all five gradients."""

    def of(name):
        def f(argument):
            values = {"mu": mu, "s": s, "Z": Z, "variance": VARIANCE, "length_scale": length_scale}
            return value(*(values | {name: argument}).values())

        return f

    assert_allclose(gradients.mu, numerical_gradient(of("mu"), mu), atol=1e-9)
    assert_allclose(gradients.s, numerical_gradient(of("s"), s), atol=1e-8)
    assert_allclose(gradients.Z, numerical_gradient(of("Z"), Z), atol=1e-9)
    d_log = numerical_gradient(lambda x: of("length_scale")(np.exp(x)), np.log(length_scale))
    assert_allclose(gradients.log_length_scale, d_log, atol=1e-8)
    d_log = numerical_gradient(lambda x: of("variance")(float(np.exp(x))), np.log(VARIANCE))
    assert_allclose(gradients.log_variance, d_log, atol=1e-9)


def test_gradients_of_psi1(arguments, cotangents):
    mu, s, Z, length_scale = arguments
    d_psi1, _, _ = cotangents
    value = psi1(mu, s, Z, VARIANCE, length_scale)
    gradients = psi1_vjp(mu, s, Z, length_scale, value, d_psi1)
    check_gradients(lambda *args: np.sum(d_psi1 * psi1(*args)), gradients, *arguments)


def test_gradients_of_psi2(arguments, cotangents):
    mu, s, Z, length_scale = arguments
    _, w, V = cotangents
    gradients = Psi2(mu, s, Z, VARIANCE, length_scale).vjp(w, V)
    check_gradients(lambda *args: w @ Psi2(*args).quadratic_forms(V), gradients, *arguments)


def test_gradients_of_a_mixture_of_psi2(arguments, rng):
    mu, s, Z, length_scale = arguments
    w, V = rng.standard_normal((N, 2)), rng.standard_normal((2, M, M))
    V += V.swapaxes(1, 2)
    gradients = Psi2(mu, s, Z, VARIANCE, length_scale).vjp(w, V)
    check_gradients(lambda *a: np.sum(w * Psi2(*a).quadratic_forms(V)), gradients, *arguments)
