"""Covariances at uncertain inputs: averages of squared exponentials, valid for the others."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skvbgp.kernels import RBF, Anova, Constant, Linear, Matern, RationalQuadratic
from skvbgp.kernels._uncertain import UncertainCovariance, append_variances
from tests.derivatives import numerical_gradient
from tests.oracles import uncertain as oracle

SCALES = [0.7, 2.0, 1.1]
KERNELS = [
    RBF(SCALES),
    RBF(1.3, isotropic=True),
    Matern(SCALES, nu=0.5),
    Matern(SCALES, nu=2.5),
    RationalQuadratic(SCALES, alpha=0.8),
    Anova(SCALES, [0.5, 2.0, 1.0]),
    Anova(1.3, isotropic=True).bind(3),
    2.0 * Matern(SCALES, nu=1.5) * RBF(1.5, isotropic=True) + Linear(SCALES),
]


def make_rows(rng, n=7, sure=0.5):
    """Rows of three inputs, the last of which is known everywhere."""
    variance = rng.exponential(size=(n, 3)) * (rng.uniform(size=(n, 3)) > sure) * [1.0, 1.0, 0.0]
    return append_variances(rng.standard_normal((n, 3)), variance)


def test_squared_exponentials_are_averaged(rng):
    X, Z = make_rows(rng, 5), make_rows(rng, 3)
    covariance = UncertainCovariance(RBF(SCALES), 3)
    for A, B, K in ((X, Z, covariance(X, Z)), (X, X, covariance(X))):
        expected = [
            [
                oracle.average_squared_exponential(*np.split(a, 2), *np.split(b, 2), SCALES)
                for b in B
            ]
            for a in A
        ]
        assert_allclose(K, expected, rtol=1e-8)


def test_anova_kernels_are_averaged(rng):
    """As functions of one input and of sets of inputs, which are independent."""
    X, Z, variances = make_rows(rng, 4), make_rows(rng, 2), np.array([0.5, 2.0, 1.0])
    covariance = UncertainCovariance(Anova(SCALES, variances), 3)
    for A, B, K in ((X, Z, covariance(X, Z)), (X, X, covariance(X))):
        expected = np.ones((len(A), len(B)))
        for c in range(3):
            own = [[c, c + 3]]
            expected *= 1.0 + variances[c] / 3.0 * np.array(
                [
                    [
                        oracle.average_squared_exponential(*a[own].T, *b[own].T, [SCALES[c]])
                        for b in B
                    ]
                    for a in A
                ]
            )
        assert_allclose(K, expected - 1.0, rtol=1e-8)


def test_mixtures_of_squared_exponentials(rng):
    X, Z = make_rows(rng), make_rows(rng, 4)
    K = UncertainCovariance(RationalQuadratic(SCALES, alpha=0.8), 3)(X, Z)
    expected = [
        [
            oracle.average_rational_quadratic(*np.split(a, 2), *np.split(b, 2), SCALES, 0.8)
            for b in Z
        ]
        for a in X
    ]
    assert_allclose(K, expected, rtol=1e-7)


@pytest.mark.parametrize("kernel", KERNELS)
def test_rows_that_are_certain(rng, kernel):
    X, Z = make_rows(rng, sure=1.0), make_rows(rng, 4, sure=1.0)
    covariance = UncertainCovariance(kernel.bind(3), 3)
    assert_allclose(covariance(X, Z), kernel.bind(3)(X[:, :3], Z[:, :3]), rtol=1e-10)
    assert_allclose(covariance(X), kernel.bind(3)(X[:, :3]), rtol=1e-10)
    assert_allclose(covariance.lost(X), 0.0, atol=1e-12)
    assert_array_equal(covariance(X[:, :3], Z[:, :3]), kernel.bind(3)(X[:, :3], Z[:, :3]))
    assert_array_equal(covariance.lost(X[:, :3]), np.zeros(7))


@pytest.mark.parametrize("kernel", KERNELS)
def test_it_is_a_covariance(rng, kernel):
    """Also of many rows, with a diagonal that is at most the variance of the function."""
    X = make_rows(rng, 120)
    covariance = UncertainCovariance(kernel.bind(3), 3)
    K = covariance(X)
    assert_array_equal(K, K.T)
    assert_allclose(np.diagonal(K), covariance.diag(X), rtol=1e-10)
    assert np.linalg.eigvalsh(K).min() > -1e-10 * np.trace(K)
    whole = kernel.bind(3).diag(X[:, :3])
    assert_allclose(covariance.diag(X) + covariance.lost(X), whole, rtol=1e-12)
    lost = covariance.lost(X)
    assert np.all(lost[X[:, 3:].any(axis=1)] > 0.0)
    assert np.all(lost[~X[:, 3:].any(axis=1)] == 0.0)
    assert_allclose(covariance(X, X), K, rtol=1e-10)


@pytest.mark.parametrize("kernel", KERNELS)
def test_gradient(rng, kernel):
    X, dK, dlost = make_rows(rng, 9), rng.standard_normal((9, 9)), rng.standard_normal(9)
    kernel = kernel.bind(3)

    def value(theta):
        covariance = UncertainCovariance(kernel.with_theta(theta), 3)
        return np.vdot(dK, covariance(X)) + covariance.lost(X) @ dlost

    covariance = UncertainCovariance(kernel, 3)
    gradient = covariance.vjp(X, covariance(X), dK, dlost)
    assert_allclose(gradient, numerical_gradient(value, kernel.theta), rtol=1e-6, atol=1e-7)


def test_rows_of_both_kinds(rng):
    X, Z = make_rows(rng), rng.standard_normal((4, 3))
    covariance = UncertainCovariance(RBF(SCALES), 3)
    certain = append_variances(Z, np.zeros((4, 3)))
    assert_allclose(covariance(X, Z), covariance(X, certain), rtol=1e-12)
    assert_allclose(covariance(Z, X), covariance(X, Z).T, rtol=1e-12)
    assert_array_equal(covariance.stack(X, Z), np.vstack([X, certain]))
    assert_array_equal(covariance.stack(Z, Z), np.vstack([Z, Z]))
    constant = UncertainCovariance(Constant(2.0), 3)
    assert_allclose(constant(X), 2.0)
    assert_array_equal(constant.lost(X), np.zeros(7))
