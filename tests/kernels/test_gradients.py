"""Every vector-Jacobian product against central differences of the value."""

import inspect

import numpy as np
import pytest
from numpy.testing import assert_allclose

import skvbgp.kernels
from skvbgp.kernels import RBF, Constant, Kernel, Linear, Matern, RationalQuadratic
from tests.kernels.cases import CASES, LEAVES, inputs

STEP = 1e-5


def numerical_gradient(function, x):
    """Gradient of a scalar function by central differences."""
    gradient = np.empty(x.shape)
    for index in np.ndindex(x.shape):
        step = np.zeros(x.shape)
        step[index] = STEP
        gradient[index] = (function(x + step) - function(x - step)) / (2.0 * STEP)
    return gradient


def check(actual, function, x):
    expected = numerical_gradient(function, x)
    assert actual.shape == x.shape
    assert_allclose(actual, expected, rtol=1e-6, atol=1e-8)


def test_the_list_of_cases_is_complete():
    public = [getattr(skvbgp.kernels, name) for name in skvbgp.kernels.__all__]
    classes = {c for c in public if inspect.isclass(c) and not inspect.isabstract(c)}
    assert {type(case) for case in CASES} == classes
    assert {case.nu for case in LEAVES if isinstance(case, Matern)} == {0.5, 1.5, 2.5}


@pytest.mark.parametrize("kernel", CASES, ids=repr)
@pytest.mark.every_nth("kernel", 3)
def test_vjp(kernel, rng):
    X, Z, dK = inputs(6), inputs(4, seed=1), rng.normal(size=(6, 4))
    dtheta, dX, dZ = kernel.vjp(X, Z, kernel(X, Z), dK)
    check(dtheta, lambda theta: np.sum(dK * kernel.with_theta(theta)(X, Z)), kernel.theta)
    check(dX, lambda X: np.sum(dK * kernel(X, Z)), X)
    check(dZ, lambda Z: np.sum(dK * kernel(X, Z)), Z)


@pytest.mark.parametrize("kernel", CASES, ids=repr)
@pytest.mark.every_nth("kernel", 3)
def test_vjp_of_the_same_inputs(kernel, rng):
    X, dK = inputs(5), rng.normal(size=(5, 5))  # dK is not symmetric
    dtheta, dX, dZ = kernel.vjp(X, None, kernel(X), dK)
    check(dtheta, lambda theta: np.sum(dK * kernel.with_theta(theta)(X)), kernel.theta)
    check(dX, lambda X: np.sum(dK * kernel(X)), X)
    assert dZ is None


@pytest.mark.parametrize("kernel", CASES, ids=repr)
@pytest.mark.every_nth("kernel", 2)
def test_vjp_diag(kernel, rng):
    X, ddiag = inputs(5), rng.normal(size=5)
    dtheta, dX = kernel.vjp_diag(X, ddiag)
    check(dtheta, lambda theta: np.sum(ddiag * kernel.with_theta(theta).diag(X)), kernel.theta)
    check(dX, lambda X: np.sum(ddiag * kernel.diag(X)), X)


@pytest.mark.parametrize("kernel", CASES, ids=repr)
def test_arguments_are_not_modified(kernel):
    X, Z = inputs(4), inputs(3, seed=1)
    K, dK = kernel(X, Z), np.ones((4, 3))
    for array in (K, dK):
        array.flags.writeable = False
    kernel.vjp(X, Z, K, dK)
    kernel.vjp_diag(X, dK[:, 0])


@pytest.mark.parametrize("kernel", CASES, ids=repr)
def test_gradient_is_finite_between_equal_points(kernel):
    X = np.repeat(inputs(2), 2, axis=0)
    with np.errstate(all="raise", under="ignore"):
        for Z in (None, X.copy()):
            K = kernel(X, Z)
            gradients = kernel.vjp(X, Z, K, np.ones_like(K))
            assert all(np.isfinite(g).all() for g in gradients if g is not None)


@pytest.mark.parametrize("kernel", [RBF(), Matern(nu=0.5), RationalQuadratic()], ids=repr)
def test_vjp_over_several_blocks_of_rows(kernel, rng):
    """The gradient of many rows is the sum, or the concatenation, of those of two halves."""
    X, Z = rng.normal(size=(700, 2)), rng.normal(size=(90, 2))
    K, dK = kernel(X, Z), rng.normal(size=(700, 90))
    dtheta, dX, dZ = kernel.vjp(X, Z, K, dK)
    halves = [kernel.vjp(X[h], Z, K[h], dK[h]) for h in (slice(0, 201), slice(201, 700))]
    assert_allclose(dtheta, sum(half[0] for half in halves), rtol=1e-10)
    assert_allclose(dX, np.vstack([half[1] for half in halves]), rtol=1e-8, atol=1e-10)
    assert_allclose(dZ, sum(half[2] for half in halves), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("kernel", [k for k in CASES if k.positive], ids=repr)
def test_positive_kernels_read_the_cotangent_of_their_logarithm(kernel, rng):
    X, Z, dK = inputs(6), inputs(4, seed=1), rng.normal(size=(6, 4))
    K = kernel(X, Z)
    assert K.min() > 0.0
    gradients, same = kernel.vjp(X, Z, K, dK), kernel.vjp(X, Z, np.ones_like(K), dK * K)
    for gradient, expected in zip(same, gradients, strict=True):
        assert_allclose(gradient, expected, rtol=1e-12)


@pytest.mark.parametrize("kernel", CASES, ids=repr)
@pytest.mark.every_nth("kernel", 3)
def test_gradient_in_one_input(kernel):
    x, Z = inputs(1)[0], inputs(5, seed=1)
    found = kernel.gradient(x, Z)
    for j, z in enumerate(Z):
        check(found[j], lambda x, z=z: kernel(x[None], z[None])[0, 0], x)


@pytest.mark.parametrize("kernel", CASES, ids=repr)
def test_gradient_in_several_inputs(kernel):
    X, Z = inputs(4), inputs(5, seed=1)
    expected = [kernel.gradient(x, Z) for x in X]
    assert_allclose(kernel.gradient(X, Z), expected, rtol=1e-9, atol=1e-12)


def is_rough(kernel):
    """Whether the functions of a kernel have no gradient."""
    return any(
        getattr(part, "nu", None) == 0.5 or getattr(part, "integrated", None) is False
        for part in getattr(kernel, "kernels", (kernel,))
    )


@pytest.mark.parametrize("kernel", CASES, ids=repr)
@pytest.mark.every_nth("kernel", 2)
def test_curvature_is_the_variance_of_a_derivative(kernel):
    """That of a difference of the function, at points close together."""
    X, step = inputs(3), 1e-4
    found = kernel.curvature(X)
    assert found.shape == X.shape
    if is_rough(kernel):
        assert np.isinf(found).all()
        return
    for i in range(X.shape[1]):
        high, low = X + step * np.eye(3)[i], X - step * np.eye(3)[i]
        pairs = [(high, high, 1), (high, low, -1), (low, high, -1), (low, low, 1)]
        parts = [sign * np.diagonal(kernel(a, b)) for a, b, sign in pairs]
        numeric = np.sum(parts, axis=0) / (4.0 * step**2)
        assert_allclose(found[:, i], numeric, rtol=2e-3, atol=1e-6)


def test_gradient_of_equal_points_is_zero_at_a_kink():
    """And a function that is zero at its kink has a gradient there."""
    X = inputs(2)
    assert_allclose(Matern(0.7, nu=0.5).gradient(X[0], X)[0], 0.0)
    kernel = Matern(0.7, nu=0.5) * Linear(offset=0.0, offset_bounds="fixed")
    assert_allclose(kernel.curvature(np.zeros((1, 3))), 1.0)


def test_a_kernel_without_derivatives_says_so():
    class Own(Constant):
        gradient, curvature = Kernel.gradient, Kernel.curvature

    X = inputs(2)
    with pytest.raises(NotImplementedError, match="Own has no derivatives"):
        Own().gradient(X[0], X)
    with pytest.raises(NotImplementedError, match="Own has no derivatives"):
        Own().curvature(X)


def test_kernel_is_abstract():
    with pytest.raises(TypeError, match="abstract"):
        Kernel()
