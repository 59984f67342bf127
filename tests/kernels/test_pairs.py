"""Triangles of kernels of some rows, and their gradients, against the kernels themselves."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skvbgp.kernels import RBF, Matern, _pairs
from skvbgp.kernels._pairs import Pairs
from tests.kernels.cases import CASES, N_FEATURES, inputs


def symmetric(rng, n):
    dK = rng.normal(size=(n, n))
    return dK + dK.T


@pytest.fixture(params=[N_FEATURES, N_FEATURES - 1], ids=["few inputs", "many inputs"])
def few_inputs(request, monkeypatch):
    """With differences of rows that are kept, or not."""
    monkeypatch.setattr(_pairs, "_FEW_INPUTS", request.param)


@pytest.mark.usefixtures("few_inputs")
@pytest.mark.parametrize("kernel", CASES, ids=repr)
@pytest.mark.every_nth("kernel", 3)
def test_values_and_gradient_are_those_of_the_kernel(kernel, rng):
    X, dK = np.vstack([inputs(7), inputs(2)]), symmetric(rng, 9)  # two places twice
    K, pull_back = Pairs(X).evaluate(kernel)
    assert_allclose(K, np.tril(kernel(X)), rtol=1e-12, atol=1e-14)
    dtheta, _, _ = kernel.vjp(X, None, kernel(X), dK)
    assert_allclose(pull_back(dK), dtheta, rtol=1e-9, atol=1e-12)


@pytest.mark.usefixtures("few_inputs")
def test_what_is_kept_of_the_rows_serves_other_hyperparameters(rng):
    X, dK = inputs(6), symmetric(rng, 6)
    pairs = Pairs(X)
    for kernel in CASES:
        for shift in (0.0, 0.3):
            other = kernel.with_theta(kernel.theta + shift)
            K, pull_back = pairs.evaluate(other)
            assert_allclose(K, np.tril(other(X)), rtol=1e-12, atol=1e-14)
            expected = other.vjp(X, None, other(X), dK)[0]
            assert_allclose(pull_back(dK), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.usefixtures("few_inputs")
@pytest.mark.parametrize("origin", [1e4, 1e6])
def test_rows_far_from_the_origin_lose_nothing(origin, rng):
    X, dK, kernel = inputs(6), symmetric(rng, 6), 2.0 * RBF((0.7, 1.3, 2.1)) * Matern(1.4)
    X = (X + origin) - origin  # what is left of the rows there
    (K, pull_back), (far, pull_far) = (Pairs(Z).evaluate(kernel) for Z in (X, X + origin))
    assert_allclose(far, K, rtol=1e-9)
    assert_allclose(pull_far(dK), pull_back(dK), rtol=1e-7)


def test_many_rows_are_evaluated_by_the_kernel_itself(monkeypatch, rng):
    X, dK, kernel = inputs(6), symmetric(rng, 6), 2.0 * RBF((0.7, 1.3, 2.1))
    _, few = Pairs(X).evaluate(kernel)
    monkeypatch.setattr(_pairs, "_FEW_ROWS", 5)
    K, many = Pairs(X).evaluate(kernel)
    assert_array_equal(K, kernel(X))
    assert_allclose(many(dK), few(dK), rtol=1e-9)


class Doubled(RBF):
    """What a user may write."""

    def __call__(self, X, Z=None):
        return 2.0 * super().__call__(X, Z)


@pytest.mark.parametrize("kernel", [Doubled(), 3.0 * Doubled(), Doubled() + RBF()], ids=repr)
def test_a_kernel_that_inherits_has_its_own_covariance(kernel, rng):
    X, dK = inputs(5), symmetric(rng, 5)
    K, pull_back = Pairs(X).evaluate(kernel)
    assert_allclose(K, np.tril(kernel(X)))
    assert_allclose(pull_back(dK), kernel.vjp(X, None, kernel(X), dK)[0], rtol=1e-9)
