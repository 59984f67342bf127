"""A kernel read as variance and length scales, and back."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skvbgp.kernels import RBF, Constant, Linear
from skvbgp.kernels._squared_exponential import SquaredExponential
from tests.derivatives import numerical_gradient

KERNELS = [
    RBF([0.5, 2.0]),
    2.0 * RBF(1.5),
    Constant(3.0) * RBF(1.5, isotropic=True) * Constant(0.5, value_bounds="fixed"),
    Constant(3.0) * RBF([0.5, 2.0], length_scale_bounds="fixed"),
]


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_value(kernel, rng):
    X = rng.normal(size=(4, 2))
    se = SquaredExponential.of(kernel, 2)
    scaled = X / se.length_scale
    r2 = np.sum((scaled[:, None] - scaled) ** 2, axis=2)
    assert_allclose(se.variance * np.exp(-0.5 * r2), kernel(X))


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_gradient(kernel, rng):
    a, b = rng.normal(size=2), rng.normal()

    def value(theta):
        se = SquaredExponential.of(kernel.bind(2).with_theta(theta), 2)
        return a @ np.log(se.length_scale) + b * np.log(se.variance)

    kernel = kernel.bind(2)
    gradient = SquaredExponential.of(kernel, 2).dtheta(b, a)
    assert_allclose(gradient, numerical_gradient(value, kernel.theta), atol=1e-9)


@pytest.mark.parametrize("kernel", [RBF() + 1.0, Linear(), Constant(2.0), RBF() * RBF()], ids=repr)
def test_other_kernels_are_refused(kernel):
    with pytest.raises(ValueError, match="squared-exponential"):
        SquaredExponential.of(kernel, 2)
