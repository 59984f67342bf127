"""The natural-gradient step against the gradient in the expectation parameters."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skvbgp._core.gaussian import WhitenedGaussian
from skvbgp._optim.natural_gradient import natural_gradient_step
from tests.derivatives import numerical_gradient, symmetric_gradient

M = 3


@pytest.fixture
def q(rng):
    root = rng.normal(size=(M, M))
    return WhitenedGaussian(np.eye(M) + root @ root.T, rng.normal(size=M))


@pytest.fixture
def information(rng):
    root = rng.normal(size=(M, M))
    return 2.0 * root @ root.T, rng.normal(size=M)


def bound(first, second, information, shift):
    """E_q[u'b - u'Au / 2] - KL(q || N(0, I)) in the moments E[u], E[u u']."""
    covariance = second - np.outer(first, first)
    kl = 0.5 * (np.trace(second) - M - np.linalg.slogdet(covariance)[1])
    return first @ shift - 0.5 * np.sum(information * second) - kl


def test_is_the_natural_gradient(q, information):
    """In (shift, -precision / 2) it is the plain gradient in (E[u], E[u u'])."""
    first, second = q.mean, q.covariance + np.outer(q.mean, q.mean)
    d_first = numerical_gradient(lambda x: bound(x, second, *information), first)
    d_second = symmetric_gradient(lambda x: bound(first, x, *information), second)
    rate = 0.3
    after = natural_gradient_step(q, *information, rate)
    assert_allclose((after.shift - q.shift) / rate, d_first, rtol=1e-6, atol=1e-6)
    assert_allclose(-0.5 * (after.precision - q.precision) / rate, d_second, rtol=1e-6, atol=1e-6)


def test_rate_one_hits_the_optimum(q, information):
    A, b = information
    after = natural_gradient_step(q, A, b, 1.0)
    assert_allclose(after.precision, np.eye(M) + A, rtol=1e-14)
    assert_allclose(after.shift, b, rtol=1e-14)

    def value(x):
        return bound(x.mean, x.covariance + np.outer(x.mean, x.mean), A, b)

    best = value(after)
    for other in (q, WhitenedGaussian.standard(M), natural_gradient_step(q, A, b, 0.99)):
        assert value(other) < best


def test_optimum_is_a_fixed_point(information):
    A, b = information
    optimum = WhitenedGaussian(np.eye(M) + A, b)
    after = natural_gradient_step(optimum, A, b, 0.37)
    assert_allclose(after.precision, optimum.precision, rtol=1e-14)
    assert_allclose(after.shift, b, rtol=1e-14)


def test_q_is_not_modified(q, information):
    before = q.precision.copy(), q.shift.copy()
    for array in (q.precision, q.shift, *information):
        array.flags.writeable = False
    natural_gradient_step(q, *information, 0.5)
    assert_allclose((q.precision[0], q.shift), (before[0][0], before[1]), rtol=0)
