"""Noise covariances against the literal formula; gradients numerically."""

from functools import reduce

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skvbgp._core.linalg import JITTER
from skvbgp.kernels import RBF, Constant, Matern
from skvbgp.sgpr._noise import Blocks, Diagonal, NoiseGradients, White
from tests.derivatives import numerical_gradient
from tests.oracles import sgpr as oracles

VALUE, LENGTHS, SCALE, VARIANCE = 0.5, np.array([0.8, 1.7]), 0.7, 0.2
KERNEL = Constant(VALUE) * RBF(LENGTHS)


def literal_kernel(X, Z):
    return SCALE * VALUE * oracles.se(X / LENGTHS, Z / LENGTHS)


@pytest.fixture
def X(rng):
    return rng.normal(size=(6, 2))


@pytest.fixture
def U():
    return np.random.default_rng(1).normal(size=(4, 2))


def noise(U, *, correlated, variance=VARIANCE, theta=None, kernel=KERNEL, scale=SCALE):
    kernel = kernel if theta is None else kernel.with_theta(theta)
    structure = (Blocks if correlated else Diagonal)(kernel, scale)
    return structure.noise(variance, kernel.theta, U)


def literal(X, U, labels):
    return oracles.noise_covariance(
        X, U, literal_kernel, VARIANCE, labels, jitter=JITTER * SCALE * VALUE
    )


def test_white(X, U):
    white = White().noise(VARIANCE, np.empty(0), U)
    expected = np.diag(oracles.noise_covariance(X, None, None, VARIANCE, np.zeros(6)))
    assert_array_equal(white.covariance(X), expected)
    assert_array_equal(white.marginal_variance(X), expected)
    gradients = white.complete(white.vjp(X, np.arange(6.0)))
    assert gradients.noise_variance == 15.0
    assert gradients.theta.shape == (0,)


def test_covariance(X, U):
    """The condition number of k(U, U) is below 1e3: twelve digits remain."""
    full = literal(X, U, np.zeros(6))
    assert_allclose(noise(U, correlated=True).covariance(X), full, rtol=0, atol=1e-12)
    assert_allclose(noise(U, correlated=False).covariance(X), np.diag(full), rtol=0, atol=1e-12)
    for correlated in (False, True):
        marginal = noise(U, correlated=correlated).marginal_variance(X)
        assert_allclose(marginal, np.diag(full), rtol=0, atol=1e-12)


def test_cross_covariance(X, U):
    joint = literal(X, U, np.zeros(6))
    cross = noise(U, correlated=True).cross_covariance(X[4:], X[:4])
    assert_allclose(cross, joint[4:, :4], rtol=0, atol=1e-12)


@pytest.mark.parametrize("correlated", [False, True])
def test_nothing_is_left_at_the_inducing_inputs(U, correlated):
    """There the residual is the jitter; rounding must not make it negative."""
    model = noise(U, correlated=correlated)
    C = model.covariance(U)
    expected = VARIANCE * np.eye(4) if correlated else np.full(4, VARIANCE)
    assert_allclose(C, expected, rtol=0, atol=10.0 * JITTER)
    assert np.all(model.marginal_variance(U) >= VARIANCE)


@pytest.mark.parametrize("correlated", [False, True])
@pytest.mark.parametrize(
    "kernel", [KERNEL, Constant(0.6) * RBF(1.1) * Matern(LENGTHS, nu=1.5)], ids=["SE", "product"]
)
@pytest.mark.every_nth("kernel", 2)
def test_gradients_of_two_groups(X, U, rng, correlated, kernel):
    """Sum over groups, completed once; values of order one, so the stencil's error is 1e-9."""
    groups = [slice(0, 4), slice(4, 6)]
    dC = [rng.normal(size=4), rng.normal(size=2)]
    if correlated:
        dC = [a[:, None] + a + np.outer(a, a) for a in dC]

    def total(**changed):
        model = noise(**({"U": U, "kernel": kernel} | changed), correlated=correlated)
        return sum(
            np.sum(d * model.covariance(X[rows])) for rows, d in zip(groups, dC, strict=True)
        )

    model = noise(U, kernel=kernel, correlated=correlated)
    parts = [model.vjp(X[rows], d) for rows, d in zip(groups, dC, strict=True)]
    g = model.complete(reduce(NoiseGradients.plus, parts))
    expected = numerical_gradient(lambda x: total(variance=float(x)), VARIANCE)
    assert_allclose(g.noise_variance, expected, rtol=1e-9)
    expected = numerical_gradient(lambda x: total(theta=x), kernel.theta)
    assert g.theta.shape == kernel.theta.shape
    # the cotangent leaves out that the jitter follows the amplitude: 1e-8 of the entries
    assert_allclose(g.theta, expected, rtol=1e-6, atol=1e-7)
    assert_allclose(g.U, numerical_gradient(lambda x: total(U=x), U), rtol=1e-6, atol=1e-7)


def test_covariance_is_positive_definite_for_many_rows(rng):
    """Dense rows on a smooth kernel: the residual's smallest eigenvalue is zero up to rounding."""
    X = rng.uniform(size=(60, 2))
    C = noise(X[:10], correlated=True).covariance(X)
    assert_allclose(C, C.T, rtol=0, atol=1e-15)
    assert np.linalg.eigvalsh(C)[0] > VARIANCE - 1e-8
