"""The adapter from scikit-learn's kernels."""

import subprocess
import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.gaussian_process import kernels as sk

from skvbgp import VBGPRegressor
from skvbgp.kernels import RBF, Linear, Matern, White, as_kernel
from tests.kernels.cases import CASES, SCALES, inputs

SUPPORTED = [
    sk.RBF(0.7),
    sk.RBF(SCALES, length_scale_bounds=(0.1, 10.0)),
    sk.RBF([0.7]),
    sk.Matern(SCALES, nu=0.5),
    sk.Matern(0.7, nu=1.5, length_scale_bounds="fixed"),
    sk.Matern(SCALES, nu=2.5),
    sk.Matern(SCALES, nu=np.inf),
    sk.RationalQuadratic(0.7, alpha=1.3, alpha_bounds="fixed"),
    sk.ExpSineSquared(0.7, 2.3, periodicity_bounds=(1.0, 3.0)),
    sk.DotProduct(0.7),
    sk.DotProduct(0.0, sigma_0_bounds="fixed"),
    sk.ConstantKernel(0.7, constant_value_bounds=(0.1, 2.0)),
    sk.WhiteKernel(0.7, noise_level_bounds="fixed"),
    2.0 * sk.RBF(SCALES) * sk.Matern(0.7) + sk.WhiteKernel(0.1) + 0.5 * sk.DotProduct(),
]


@pytest.mark.parametrize("theirs", SUPPORTED, ids=repr)
def test_same_kernel(theirs):
    ours = as_kernel(theirs).bind(3)  # an isotropic kernel remains so
    X, Z = inputs(6), inputs(4, seed=1)
    assert_allclose(ours(X), theirs(X), rtol=1e-12, atol=1e-14)
    assert_allclose(ours(X, Z), theirs(X, Z), rtol=1e-12, atol=1e-14)
    assert_allclose(ours.diag(X), theirs.diag(X), rtol=1e-12)

    # The same free hyperparameters with the same bounds, though the order may differ.
    assert_allclose(np.sort(ours.theta), np.sort(theirs.theta), rtol=1e-13)
    by_theta = [np.lexsort((*k.bounds.reshape(-1, 2).T, k.theta)) for k in (ours, theirs)]
    assert_allclose(ours.bounds[by_theta[0]], theirs.bounds.reshape(-1, 2)[by_theta[1]], rtol=1e-13)


@pytest.mark.parametrize("kernel", CASES, ids=repr)
def test_our_own_kernel_is_returned_as_it_is(kernel):
    assert as_kernel(kernel) is kernel


def test_conversion():
    kernel = as_kernel(sk.RBF(2.0, "fixed") * sk.DotProduct() + sk.WhiteKernel())
    expected = (
        RBF(2.0, length_scale_bounds="fixed", isotropic=True)
        * Linear(length_scale_bounds="fixed", isotropic=True)
        + White()
    )
    assert kernel == expected
    assert as_kernel(sk.Matern([1.0, 2.0], nu=2.5)) == Matern([1.0, 2.0], nu=2.5)


class OtherRBF(sk.RBF):
    """Someone's own kernel, perhaps with another formula."""


@pytest.mark.parametrize(
    "kernel",
    [
        OtherRBF(),
        sk.PairwiseKernel(),
        sk.RBF() ** 2,
        sk.RBF() + OtherRBF(),
        sk.CompoundKernel([sk.RBF()]),
        "rbf",
        None,
        RBF,
    ],
    ids=repr,
)
def test_unsupported(kernel):
    with pytest.raises(TypeError, match=r"kernel must be .*RationalQuadratic.*; got "):
        as_kernel(kernel)


@pytest.mark.parametrize("kernel", [sk.RBF() + RBF(), sk.RBF() * (2.0 * RBF())], ids=["sum", "*"])
@pytest.mark.parametrize("convert", [as_kernel, lambda k: VBGPRegressor(k).fit(inputs(4), [0] * 4)])
def test_mixed_operands(kernel, convert):
    """Scikit-learn's operators take one of ours for a number, and cannot even print it."""
    with pytest.raises(TypeError, match="cannot be added to a kernel of scikit-learn"):
        convert(kernel)
    assert as_kernel(sk.RBF()) + RBF() == RBF(isotropic=True) + RBF()


def test_unsupported_smoothness():
    with pytest.raises(ValueError, match="nu must be"):
        as_kernel(sk.Matern(nu=3.5))


def test_sklearn_is_not_imported_before_it_is_needed():
    code = "import sys, skvbgp.kernels._sklearn; print('sklearn.gaussian_process' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"
